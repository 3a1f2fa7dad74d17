"""
Turnover: how fast quota is freed by finishing workloads, as far as the log shows.

Evicting a workload loses its work. Where workloads finish all the time, the quota that a head needs is often freed as
fast as an eviction would free it. So before the cycle lets a head preempt, it estimates how long it would take until
that quota is free without eviction (`expected_ms`), and lets the head wait when that is soon.

The fold counts what finished workloads release, by quota tree and flavor-resource, in windows of `WINDOW_MS`: the
current one and the one before it. It also records how long evictions take, from the decision until the quota is free.
What evicted workloads release does not count as turnover.

Called by the fold; read by the cycle.
"""

from collections.abc import Mapping

from headgate.core.quota.cohorts import tree_of
from headgate.core.state.tables import FlavorResource, Stage, State, Turnover, Workload
from headgate.events.ids import UnixMs

WINDOW_MS = 2_000
"""The window over which released quota is counted."""

RECLAIM_MS_MAX = 2_000
"""
How long a head waits at most for quota to be freed by finishing workloads before it reclaims what its queue has lent.
"""

EVICTION_MS_MIN = 500
"""The minimum assumed duration of an eviction: the pods that it ends have to be started again elsewhere."""

EVICTION_MS_MAX = 30_000
"""The maximum wait before preempting, however long evictions take: a pod's default grace period."""


def note_finished(state: State, workload: Workload, at_ms: UnixMs) -> None:
    """Count what a finishing workload releases. Nothing is counted for one that is evicted or holds no quota."""
    charged = state.index.usage_of.get(workload.key)
    if not charged or workload.stage is Stage.EVICTED or not state.configuration.preemption_waits:
        return
    counted = state.turnover.setdefault(tree_of(workload.cluster_queue, state), {})
    for (flavor, resource), value in charged.items():
        name = f"{flavor}/{resource}"
        counted[name] = _add(counted.get(name), value, at_ms)


def note_evicted(state: State, workload: Workload, at_ms: UnixMs) -> None:
    """Record that a workload that holds quota is evicted now."""
    if workload.key in state.index.usage_of and state.configuration.preemption_waits:
        workload.evicted_at_ms = at_ms


def note_released(state: State, workload: Workload, at_ms: UnixMs) -> None:
    """Record how long it took until an evicted workload released its quota, as a moving average."""
    if not workload.evicted_at_ms:
        return
    took_ms = max(0, at_ms - workload.evicted_at_ms)
    before_ms = state.eviction_ms.get(workload.cluster_queue, took_ms)
    state.eviction_ms[workload.cluster_queue] = before_ms + (took_ms - before_ms) // 4
    workload.evicted_at_ms = UnixMs(0)


def forget(state: State, cluster_queue: str) -> None:
    """Drop a deleted ClusterQueue and its eviction times."""
    state.eviction_ms.pop(cluster_queue, None)


def eviction_ms(state: State, cluster_queue: str) -> int:
    """How long it takes from the eviction of a workload of a ClusterQueue until its quota is free."""
    return min(max(state.eviction_ms.get(cluster_queue, 0), EVICTION_MS_MIN), EVICTION_MS_MAX)


def expected_ms(state: State, tree: str, short: Mapping[FlavorResource, int]) -> int | None:
    """The expected time until this much is freed in a quota tree; None when the log has no data."""
    counted = state.turnover.get(tree, {})
    longest_ms = 0
    for (flavor, resource), value in short.items():
        freed, over_ms = _freed(counted.get(f"{flavor}/{resource}"), state.now_ms)
        if value > 0:
            if not freed:
                return None
            longest_ms = max(longest_ms, -(-value * over_ms // freed))
    return longest_ms


def _add(before: Turnover | None, value: int, at_ms: UnixMs) -> Turnover:
    if before is None or at_ms >= before.since_ms + 2 * WINDOW_MS:
        return Turnover(since_ms=at_ms, freed=value)
    if at_ms >= before.since_ms + WINDOW_MS:
        return Turnover(since_ms=UnixMs(before.since_ms + WINDOW_MS), freed=value, freed_before=before.freed)
    return Turnover(since_ms=before.since_ms, freed=before.freed + value, freed_before=before.freed_before)


def _freed(counted: Turnover | None, now_ms: UnixMs) -> tuple[int, int]:
    """How much was freed recently, and over which time."""
    if counted is None or now_ms >= counted.since_ms + 2 * WINDOW_MS:
        return 0, WINDOW_MS
    open_ms = max(0, now_ms - counted.since_ms)
    if open_ms >= WINDOW_MS:
        return counted.freed, open_ms
    return counted.freed + counted.freed_before, (WINDOW_MS if counted.freed_before else WINDOW_MS // 4) + open_ms
