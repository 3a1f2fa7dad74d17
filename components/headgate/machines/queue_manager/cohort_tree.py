"""
The wake policy `CohortTree`: anything freed in a cohort tree wakes every workload that was set aside in it.

This is Kueue's rule (`QueueInadmissibleWorkloads`, pkg/cache/queue/manager.go). It needs only the position at which
something was last freed, so it is simple, and its decisions equal those of the recordings. It costs a fruitless cycle
for each shape of the tree whenever anything in the tree is freed.
"""

from collections.abc import Callable, Iterable, Iterator

from headgate.core.queueing.wake_conditions import Sleeper, Woken, freed_since
from headgate.core.quota.cache import Forest
from headgate.core.quota.cohorts import tree_of
from headgate.core.state.tables import Parked, State, Workload
from headgate.events.commit import Commit
from headgate.events.ids import Seq, UnixMs, WorkloadKey
from headgate.events.queueing import QuotaFreed, TimePassed, Wake


class CohortTreePolicy:
    """See `headgate.machines.queue_manager.wake_policy.WakePolicy`. It has no state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def watched(self, wake: QuotaFreed, cluster_queue: str) -> tuple[str, ...]:  # noqa: ARG002 (see WakePolicy)
        """See `WakePolicy`: any flavor-resource."""
        return ()

    def note_commit(self, commit: Commit, concerned: Iterable[str]) -> Iterable[Sleeper]:  # noqa: ARG002
        """See `WakePolicy`."""
        return ()

    def holds_back(self, sleeper: Sleeper, head: WorkloadKey, woken: Woken) -> bool:  # noqa: ARG002
        """See `WakePolicy`: never."""
        return False

    def offers_one(self, sleeper: Sleeper, woken: Woken) -> bool:  # noqa: ARG002
        """See `WakePolicy`: a shape wakes as a whole."""
        return False

    def begin(self, now_ms: UnixMs, forest: Callable[[], Forest]) -> "_Pass":  # noqa: ARG002
        """See `WakePolicy`."""
        return _Pass(self._state, now_ms)


class _Pass:
    """See `headgate.machines.queue_manager.wake_policy.WakePass`."""

    def __init__(self, state: State, now_ms: UnixMs) -> None:
        self._state = state
        self._now_ms = now_ms

    def came_true(self, wakes: tuple[Wake, ...], since: Seq, workload: Workload) -> Woken | None:
        """See `WakePass`."""
        return self._freed_or_due(wakes, since, workload.cluster_queue)

    def sleeper_came_true(self, sleeper: Sleeper, parked: Parked) -> Woken | None:
        """See `WakePass`."""
        return self._freed_or_due(parked.wake, parked.decided_at, sleeper.cluster_queue)

    def _freed_or_due(self, wakes: tuple[Wake, ...], since: Seq, cluster_queue: str) -> Woken | None:
        freed = freed_since(tree_of(cluster_queue, self._state), (), since, self._state)
        if freed is not None:
            return freed
        times = [wake.at_ms for wake in wakes if isinstance(wake, TimePassed)]
        if times and min(times) <= self._now_ms:
            return Woken("its time had come", self._state.position)
        return None

    def in_order(self, due: Iterable[Sleeper]) -> Iterator[Sleeper]:
        """See `WakePass`: by ClusterQueue, since all of them wake."""
        return iter(sorted(due))

    def may_wake(self, sleeper: Sleeper, woken: Woken) -> bool:  # noqa: ARG002 (see WakePass)
        """See `WakePass`: always."""
        return True

    def may_go_on(self, workload: Workload, woken: Woken) -> bool:  # noqa: ARG002
        """See `WakePass`: always."""
        return True

    def next_of(self, sleeper: Sleeper, woken: Woken) -> Workload | None:  # noqa: ARG002
        """See `WakePass`: no shape sleeps on while one of its workloads is offered."""
        return None

    def group_of(self, cluster_queue: str) -> str:
        """See `WakePass`."""
        return tree_of(cluster_queue, self._state)
