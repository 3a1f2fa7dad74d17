"""
The visible queue of a ClusterQueue: all its pending workloads in Kueue's order; and summaries.

Workloads that may be offered, that sleep until something changes, that are offered to the scheduler and that it has
parked form one order, as in the visibility API of Kueue. What is in no queue there (inactive, gated, in backoff,
without a LocalQueue) has no place here either. The read side and the command line compute places and summaries of
ClusterQueues with it.
"""

import msgspec

from headgate.core.fold.transitions import IN_LINE, rank_of
from headgate.core.quota.activeness import Activeness, cluster_queue_active
from headgate.core.state.tables import FlavorResource, Stage, State, Workload
from headgate.core.views.descriptions import nominal_quotas


def line_of(state: State, cluster_queue: str) -> list[Workload]:
    """The pending workloads of a ClusterQueue, next first. Costs a pass over those of its LocalQueues, and a sort."""
    queue = state.index.pending.get(cluster_queue)
    found = [state.workloads[key] for key, _, _ in queue.places()] if queue is not None else []
    for key, record in state.local_queues.items():
        if record.spec.cluster_queue == cluster_queue:
            members = (state.workloads[each] for each in state.index.in_local_queue.get(key, ()))
            found += (
                each
                for each in members
                if each.stage is Stage.PARKED and each.cluster_queue == cluster_queue and is_in_line(each)
            )
    return sorted(found, key=lambda each: rank_of(state, each))


def aside_of(state: State, cluster_queue: str) -> list[Workload]:
    """
    The workloads of a ClusterQueue that have no place in the queue: new, or parked for a reason other than quota.

    Costs a pass over the unfinished workloads: their LocalQueue may be deleted, or point elsewhere by now.
    """
    return [
        workload
        for members in state.index.in_local_queue.values()
        for workload in (state.workloads[key] for key in members)
        if workload.cluster_queue == cluster_queue
        and workload.stage in (Stage.NEW, Stage.PARKED)
        and not is_in_line(workload)
    ]


def is_in_line(workload: Workload) -> bool:
    """Whether a workload has a place in the queue, or a cycle has parked it alone: then it still counts there."""
    parked = workload.parked
    return workload.stage in IN_LINE or (
        workload.stage is Stage.PARKED and parked is not None and parked.decided_at < parked.since
    )


class QueueSummary(msgspec.Struct, frozen=True, kw_only=True):
    """
    One ClusterQueue: its workloads by status, and the usage of its quota.

    The pending ones are awake (may be offered), asleep (wait with their shape or behind a blocking head), offered to
    the scheduler, or parked alone. `quotas` has used and nominal amounts (in `amounts` units) by flavor-resource, in
    the order of the spec, followed by what is held of others.
    """

    name: str
    strategy: str
    cohort: str
    activeness: Activeness
    awake: int
    asleep: int
    parked: int
    offered: int
    reserved: int
    admitted: int
    evicted: int
    quotas: dict[FlavorResource, tuple[int, int]]


def summaries(state: State) -> list[QueueSummary]:
    """Every ClusterQueue, ordered by name. Costs a pass over the unfinished workloads."""
    counts: dict[str, dict[Stage, int]] = {}
    for members in state.index.in_local_queue.values():
        for key in members:
            workload = state.workloads[key]
            of_queue = counts.setdefault(workload.cluster_queue, {})
            of_queue[workload.stage] = of_queue.get(workload.stage, 0) + 1
    return [_summary(state, name, counts.get(name, {})) for name in sorted(state.cluster_queues)]


def _summary(state: State, name: str, stages: dict[Stage, int]) -> QueueSummary:
    spec = state.cluster_queues[name].spec
    queue = state.index.pending.get(name)
    used, nominal = state.index.usage.get(name, {}), nominal_quotas(spec.resource_groups)
    awake = sum(1 for _ in queue.ahead()) if queue is not None else 0
    return QueueSummary(
        name=name,
        strategy=spec.queueing_strategy,
        cohort=spec.cohort_name,
        activeness=cluster_queue_active(state, name),
        awake=awake,
        asleep=len(queue) - awake if queue is not None else 0,
        parked=stages.get(Stage.PARKED, 0),
        offered=stages.get(Stage.OFFERED, 0) + stages.get(Stage.SKIPPED, 0),
        reserved=stages.get(Stage.RESERVED, 0),
        admitted=stages.get(Stage.ADMITTED, 0),
        evicted=stages.get(Stage.EVICTED, 0),
        quotas={each: (used.get(each, 0), nominal.get(each, 0)) for each in dict.fromkeys((*nominal, *used))},
    )
