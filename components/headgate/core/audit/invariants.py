"""
Invariants of every state, as predicates: for the audit of a log, simulations, tests.

`forgotten` is the design's guarantee that no workload is ever forgotten: each pending one is queued in a ClusterQueue,
or offered, or parked with a wake condition that can still come true, or waits for a time that is written in the log. At
any position a few may be in transition: the fact is in the log and the queue manager's answer is not yet. Those are
forgotten only in a state in which no process has any event left to append; `settled` includes them, and those that
still wait although the quota they wait for is free.
"""

from headgate.core.queueing.wake_conditions import Unused, came_true
from headgate.core.quota.cohorts import tree_of
from headgate.core.state.tables import PENDING, Parked, QueueSleep, Stage, State, Workload
from headgate.events.ids import WorkloadKey
from headgate.events.queueing import QuotaFreed


def forgotten(state: State, *, settled: bool = False) -> list[tuple[WorkloadKey, str]]:
    """
    The pending workloads that nothing will wake, each with the reason.

    `settled`: no process has anything to append.
    """
    found: list[tuple[WorkloadKey, str]] = []
    unused = Unused(state) if settled else None
    for key, workload in state.workloads.items():
        why = _why_forgotten(state, workload, unused) if workload.stage in PENDING else ""
        if why:
            found.append((key, why))
    return found


def _why_forgotten(state: State, workload: Workload, unused: Unused | None) -> str:
    """`unused` is None where a process may still have something to append."""
    settled = unused is not None
    match workload.stage:
        case Stage.NEW | Stage.SKIPPED:
            return (
                f"it is {workload.stage.value}, and the queue manager has not placed it in a queue" if settled else ""
            )
        case Stage.OFFERED:
            offered = workload.key in state.index.offered.get(workload.cluster_queue, {})
            return "" if offered else f"it is not among the offers of ClusterQueue {workload.cluster_queue!r}"
        case Stage.PARKED:
            return _never_woken(state, workload.parked, workload, unused)
        case _:
            return _why_stuck(state, workload, unused)


def _why_stuck(state: State, workload: Workload, unused: Unused | None) -> str:
    """Why a queued workload will never be offered, "" when it may be."""
    settled = unused is not None
    name = workload.cluster_queue
    queue = state.index.pending.get(name)
    if queue is None or workload.key not in queue:
        return f"it is not in the pending queue of ClusterQueue {name!r}"
    if settled and name not in state.cluster_queues:
        return f"it is queued in ClusterQueue {name!r}, which does not exist"
    sleep = state.sleeps.get(name) or QueueSleep()
    asleep = queue.is_asleep(workload.shape)
    if asleep and workload.shape not in sleep.shapes:
        return f"its scheduling hash is inadmissible in ClusterQueue {name!r} without a recorded reason"
    if queue.blocked is not None and queue.rank_of(workload.key) >= queue.blocked:
        # A workload behind a blocking head waits for what the head waits for, and so does the head.
        if not sleep.blocked_by:
            return f"ClusterQueue {name!r} is blocked without a recorded head"
        if sleep.blocked is not None or settled:
            return _never_woken(state, sleep.blocked, state.workloads[sleep.blocked_by], unused)
    elif asleep:
        parked = sleep.shapes[workload.shape]
        if parked is not None or settled:
            return _never_woken(state, parked, workload, unused)
    return ""


def _never_woken(state: State, parked: Parked | None, workload: Workload, unused: Unused | None) -> str:
    """Why a parked workload or shape can never be woken; "" when one of its conditions can still come true."""
    if parked is None:
        return "it is inadmissible without a recorded condition"
    if not parked.wake:
        return f"it is inadmissible since position {parked.since} without a condition to requeue it"
    if unused is not None and (why := _overdue(state, parked, workload, unused)):
        return why
    cluster_queue = workload.cluster_queue
    for wake in parked.wake:
        if not isinstance(wake, QuotaFreed) or wake.tree == tree_of(cluster_queue, state) or wake.tree in state.freed:
            return ""
    return f"it waits for quota in trees that do not exist: {', '.join(_trees(parked))}"


def _overdue(state: State, parked: Parked, workload: Workload, unused: Unused) -> str:
    """
    Why a parked workload or shape is overdue; "" while the quota that it waits for is not free.

    It is not overdue either when there is enough, but others of its cohort tree are still to be decided, or one of its
    ClusterQueue blocks it.
    """
    cluster_queue = workload.cluster_queue
    quota = tuple(wake for wake in parked.wake if isinstance(wake, QuotaFreed))
    woken = came_true(quota, cluster_queue, parked.decided_at, state, state.now_ms, unused, workload)
    sleep = state.sleeps.get(cluster_queue) or QueueSleep()
    is_behind = bool(sleep.blocked_by) and sleep.blocked is not parked
    if woken is not None and woken.needs and (is_behind or _is_on_offer(state, tree_of(cluster_queue, state))):
        return ""
    return (
        ""
        if woken is None
        else f"it is still inadmissible, though {woken.by} at position {woken.at} meets its condition"
    )


def _is_on_offer(state: State, tree: str) -> bool:
    """Whether a workload of a cohort tree is still to be decided."""
    return any(offered and tree_of(name, state) == tree for name, offered in state.index.offered.items())


def _trees(parked: Parked) -> list[str]:
    return sorted({wake.tree for wake in parked.wake if isinstance(wake, QuotaFreed)})
