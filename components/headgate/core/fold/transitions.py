"""
Transitions of a workload: its stage, its place in the indexes, what its ClusterQueue is charged for it.

The first four functions are public; the rest belongs to the fold of workloads (`headgate.core.fold.workloads`,
`headgate.core.fold.decisions`). `move` is the only place that changes a workload's stage: it keeps the indexes and the
charged usage consistent. `reindex` rebuilds all of it from the tables.
"""
# Over 400 lines: every function that moves a workload between indexes is here, which keeps them in step with its stage.

from collections.abc import Iterable

from headgate.core.fold import topology_usage
from headgate.core.fold import usage as fold_usage
from headgate.core.fold.nodes import free_places_of
from headgate.core.fold.objects import ANY, free, mark_blocked, tree_in, unmark_blocked, wake_for_pods
from headgate.core.kubernetes import conditions
from headgate.core.kubernetes.quantities import amount
from headgate.core.quota.admission_fair_sharing import local_queue_usage, orders_by_usage
from headgate.core.quota.usage_order import new_queue, rank_in
from headgate.core.state.attribution import about
from headgate.core.state.lifecycle import IllegalTransitionError, LifecycleEvent, OfOneWorkload, next_stage
from headgate.core.state.pending_queue import PendingQueue, Rank
from headgate.core.state.resting import RESTING
from headgate.core.state.sharing import name
from headgate.core.state.tables import (
    HOLDS_QUOTA,
    FlavorResource,
    Parked,
    QueueSleep,
    Stage,
    State,
    Workload,
    local_queue_of,
)
from headgate.core.workload.pod_requests import reclaimable
from headgate.core.workload.slices import standing
from headgate.core.workload.unadmitted_reasons import shown_reason
from headgate.events.configuration import Configuration
from headgate.events.decisions import QuotaReserved
from headgate.events.ids import Seq, UnixMs, WorkloadKey
from headgate.events.objects import Admission, CheckState
from headgate.events.queueing import WorkloadFollowed

IN_LINE = frozenset({Stage.QUEUED, Stage.OFFERED, Stage.SKIPPED})
"""Stages that have a place in the pending queue; in all but QUEUED the workload has stepped out of it."""


PREEMPTING = frozenset({"PendingPreemption", "PendingMigration"})
"""The verdicts on workloads that wait for their victims to leave: each makes its ClusterQueue's preemptor."""


def rank_of(state: State, workload: Workload) -> Rank:
    """A workload's rank in its ClusterQueue: by the usage of its LocalQueue, where that counts, then as `rank_in`."""
    return (usage_in(state, workload.cluster_queue, workload), *rank_in(workload)[1:])


def usage_in(state: State, cluster_queue: str, workload: Workload) -> float:
    """The usage of a workload's LocalQueue, where a ClusterQueue orders by that; else 0."""
    if not orders_by_usage(state, cluster_queue):
        return 0.0
    return local_queue_usage(state, local_queue_of(workload))


def usage_of(admission: Admission) -> dict[FlavorResource, int]:
    """What an admission charges, per flavor-resource: milli-units of cpu, whole units of all else."""
    usage: dict[FlavorResource, int] = {}
    for assignment in admission.pod_set_assignments:
        for resource, flavor in assignment.flavors.items():
            charged = amount(resource, assignment.resource_usage.get(resource, 0))
            usage[flavor, resource] = usage.get((flavor, resource), 0) + charged
    return usage


def charged_usage(workload: Workload, configuration: Configuration) -> dict[FlavorResource, int]:
    """
    What a workload's reservation is charged now: less what its reclaimable pods, or a scale-down, have released.

    Usage is divided by the admitted count and multiplied by what is left (`kueue-semantics` section 1).
    """
    if workload.admission is None:
        return {}
    done = reclaimable(workload, configuration)
    spec_counts = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
    assignments = workload.admission.pod_set_assignments
    if not done and all(spec_counts.get(each.name, each.count) >= each.count for each in assignments):
        return usage_of(workload.admission)
    usage: dict[FlavorResource, int] = {}
    for assignment in workload.admission.pod_set_assignments:
        left = max(0, spec_counts.get(assignment.name, assignment.count) - done.get(assignment.name, 0))
        for resource, flavor in assignment.flavors.items():
            charged = amount(resource, assignment.resource_usage.get(resource, 0))
            if assignment.count and left < assignment.count:
                charged = charged // assignment.count * left
            usage[flavor, resource] = usage.get((flavor, resource), 0) + charged
    return usage


def enter(state: State, workload: Workload) -> None:
    """Add a workload to the indexes of its stage."""
    index, stage = state.index, workload.stage
    if stage in IN_LINE:
        queue = pending_of(state, workload.cluster_queue)
        queue.push(workload.key, workload.shape)
        if stage is not Stage.QUEUED:
            queue.step_out(workload.key)
        if stage is Stage.OFFERED:
            index.offered.setdefault(workload.cluster_queue, {})[workload.key] = None
            index.offers[workload.offered_no] = workload.key
        if workload.preemptor:
            index.preemptors[workload.cluster_queue] = workload.key
    elif stage in HOLDS_QUOTA:
        if stage is Stage.RESERVED:
            index.reserved[workload.key] = None
        if workload.admission is not None and not workload.followed and workload.key not in index.usage_of:
            index.holders.setdefault(workload.cluster_queue, {})[workload.key] = None
            charge(state, workload)


def leave(state: State, workload: Workload, end: Stage | None, seq: Seq) -> None:
    """Remove a workload from the indexes of its stage, on its way to another (None: out of the state)."""
    index, stage = state.index, workload.stage
    if stage in IN_LINE:
        queue = pending_of(state, workload.cluster_queue)
        queue.remove(workload.key)
        if stage is Stage.OFFERED:
            _withdraw(state, workload)
        if stage is not Stage.SKIPPED:
            _forget_shape(state, queue, workload)
        if workload.preemptor:
            _resign(state, workload)
    elif stage in HOLDS_QUOTA:
        if stage is Stage.RESERVED:
            index.reserved.pop(workload.key, None)
        if end not in HOLDS_QUOTA and workload.key in index.usage_of:
            del index.holders[workload.cluster_queue][workload.key]
            uncharge(state, workload, seq)


def _move_in_line(state: State, workload: Workload, end: Stage) -> None:
    """The part of `move` for a workload that keeps its place: it only steps out of it, or back into it."""
    start, key = workload.stage, workload.key
    if start is end:
        return
    queue = state.index.pending[workload.cluster_queue]
    if start is Stage.QUEUED:
        queue.step_out(key)
        _forget_shape(state, queue, workload)
    elif start is Stage.OFFERED:
        _withdraw(state, workload)
    if end is Stage.QUEUED:
        queue.step_back(key)
    assert end is not Stage.OFFERED, f"{key} is offered by `offer`, which numbers the offers"


def _forget_shape(state: State, queue: PendingQueue, workload: Workload) -> None:
    """Drop a sleeping shape whose last member leaves, so that sleeping shapes do not accumulate."""
    if not queue.is_asleep(workload.shape) or queue.has_members(workload.shape):
        return
    sleep = state.sleeps[workload.cluster_queue]
    if sleep.shapes.get(workload.shape) is not None:
        del sleep.shapes[workload.shape]
        queue.wake(workload.shape)
        tidy_sleep(state, workload.cluster_queue)


def pending_of(state: State, cluster_queue: str) -> PendingQueue:
    """The pending queue of a ClusterQueue, created when there is none."""
    queue = state.index.pending.get(cluster_queue)
    if queue is None:
        queue = state.index.pending[cluster_queue] = new_queue(state, cluster_queue)
    return queue


def charge(state: State, workload: Workload) -> None:
    """Charge a workload's ClusterQueue for what it holds."""
    charged = state.index.usage_of[workload.key] = charged_usage(workload, state.configuration)
    if workload.stage is not Stage.RESERVED and conditions.is_true(workload.conditions, conditions.ADMITTED):
        fold_usage.count(state, workload, charged)
    total = state.index.usage.setdefault(workload.cluster_queue, {})
    for flavor_resource, value in charged.items():
        total[flavor_resource] = total.get(flavor_resource, 0) + value
    if workload.admission is not None:
        topology_usage.occupy(state, workload.key, workload.admission, workload.spec)
    touch(state, workload.cluster_queue)


def uncharge(state: State, workload: Workload, seq: Seq) -> None:
    """Release what a workload held, and record that it is free."""
    charged = state.index.usage_of.pop(workload.key)
    fold_usage.uncount(state, workload.key)
    topology_usage.vacate(state, workload.key)
    total = state.index.usage[workload.cluster_queue]
    for flavor_resource, value in charged.items():
        left = total.get(flavor_resource, 0) - value
        if left:
            total[flavor_resource] = left
        else:
            # A charge of nothing, when all its pods are reclaimable, may have left no entry.
            total.pop(flavor_resource, None)
    touch(state, workload.cluster_queue)
    _free(state, workload.cluster_queue, charged, seq)
    free_places_of(state, workload.admission, seq)
    wake_for_pods(state, seq)


def touch(state: State, cluster_queue: str) -> None:
    """Record that the holders of a ClusterQueue's quota, their amounts or stages changed (`Index.changed`)."""
    index = state.index
    index.changes += 1
    index.changed.pop(cluster_queue, None)
    index.changed[cluster_queue] = index.changes


def _free(state: State, cluster_queue: str, charged: dict[FlavorResource, int], seq: Seq) -> None:
    free(state, tree_in(state, cluster_queue), [f"{flavor}/{resource}" for flavor, resource in charged], seq)


def move(state: State, workload: Workload, end: Stage, seq: Seq) -> None:
    """Move a workload to another stage, in the tables and in every index."""
    workload.last_seq = seq
    if end is RESTING:
        state.workloads.touch(workload.key)
    if end in IN_LINE and workload.stage in IN_LINE:
        _move_in_line(state, workload, end)
        workload.stage = end
        return
    if end in HOLDS_QUOTA and workload.stage in HOLDS_QUOTA:
        touch(state, workload.cluster_queue)
    leave(state, workload, end, seq)
    workload.stage = end
    enter(state, workload)
    index_current_slice(state, workload)


def index_current_slice(state: State, workload: Workload) -> None:
    """Determine which of an owner's Workloads represents it. An elastic Job may have several."""
    owner = workload.owner
    if owner is None or owner.uid not in state.index.slices:
        return
    stands = standing(state, owner.uid)
    if stands is not None:
        state.index.by_owner[owner.uid] = stands.key


def moved(state: State, event: OfOneWorkload, seq: Seq) -> tuple[Workload, Stage] | None:
    """The workload that an event moves and its next stage; None when it was overtaken."""
    workload = state.workloads.get(event.workload)
    if workload is None or workload.uid != event.uid:
        state.overtaken += 1
        return None
    return step(state, workload, type(event), seq)


def step(state: State, workload: Workload, event: type[LifecycleEvent], seq: Seq) -> tuple[Workload, Stage] | None:
    """The next stage of a workload after an event; None when it was overtaken. Raises IllegalTransitionError."""
    try:
        end = next_stage(workload.stage, event)
    except LookupError as error:
        raise IllegalTransitionError(
            workload=workload.key,
            uid=workload.uid,
            stage=workload.stage,
            event=event.__name__,
            seq=seq,
            since=workload.last_seq,
        ) from error
    if end is None:
        state.overtaken += 1
        return None
    return workload, end


def sleep_of(state: State, cluster_queue: str) -> QueueSleep:
    """The sleep record of a ClusterQueue, created when there is none."""
    sleep = state.sleeps.get(cluster_queue)
    if sleep is None:
        sleep = state.sleeps[cluster_queue] = QueueSleep()
    return sleep


def tidy_sleep(state: State, cluster_queue: str) -> None:
    """Drop an empty sleep record, so that equal states have equal tables."""
    sleep = state.sleeps.get(cluster_queue)
    if sleep is not None and not sleep.shapes and not sleep.blocked_by:
        del state.sleeps[cluster_queue]


def blocks(state: State, workload: Workload) -> bool:
    """Whether a workload is the head that no other of its ClusterQueue may pass."""
    sleep = state.sleeps.get(workload.cluster_queue)
    return sleep is not None and sleep.blocked_by == workload.key


def block(state: State, workload: Workload, parked: Parked | None) -> None:
    """
    Let no workload of its ClusterQueue pass this one.

    `parked` is what it waits for, None while that is undecided.
    """
    cluster_queue = workload.cluster_queue
    sleep = sleep_of(state, cluster_queue)
    sleep.blocked_by, sleep.blocked = workload.key, parked
    pending_of(state, cluster_queue).blocked = rank_of(state, workload)
    mark_blocked(state, cluster_queue)


def unblock_queue(state: State, cluster_queue: str) -> None:
    """Let the workloads behind the head of a ClusterQueue continue."""
    sleep = state.sleeps[cluster_queue]
    sleep.blocked_by, sleep.blocked = WorkloadKey(""), None
    pending_of(state, cluster_queue).blocked = None
    unmark_blocked(state, cluster_queue, tree_in(state, cluster_queue))
    tidy_sleep(state, cluster_queue)


def unblock(state: State, workload: Workload) -> None:
    """A head that leaves its queue no longer blocks it, nor does it reserve quota against others of its tree."""
    if blocks(state, workload):
        unblock_queue(state, workload.cluster_queue)
    if workload.verdict is not None:
        end_claim(state, workload)


def end_claim(state: State, workload: Workload) -> None:
    """
    Dropping a blocked head's reservation requeues the workloads behind it once. Call it before its verdict is dropped.

    A head that blocks its ClusterQueue reserves quota in every cycle, but uses none: for the workloads behind it, the
    end of the reservation has the effect of freed quota. A verdict that no quota can satisfy reserves nothing, nor does
    one without `claims`. Kueue does not retry any workload for it, nor does the policy that retries as Kueue does.
    """
    if state.configuration.wake_policy != "Bounded":
        return
    verdict = workload.verdict
    if verdict is None or verdict.scope != "queue" or verdict.requeue_reason == "NoFit" or not verdict.claims:
        return
    claimed = {flavor_resource: None for way in verdict.needs for flavor_resource in way}
    claimed.update(dict.fromkeys(verdict.short))
    free(state, tree_in(state, workload.cluster_queue), claimed or (ANY,), state.position)


def become_preemptor(state: State, workload: Workload) -> None:
    """
    Mark the queued workload that its ClusterQueue preempts for; the previous one loses the mark.

    In a BestEffortFIFO queue it also comes first, as in Kueue, until it leaves the queue or another replaces it.
    """
    before = state.workloads.get(state.index.preemptors.get(workload.cluster_queue, WorkloadKey("")))
    if before is not None and before is not workload:
        _resign(state, before)
        _rank_again(state, before)
    record = state.cluster_queues.get(workload.cluster_queue)
    sticky = record is not None and record.spec.queueing_strategy != "StrictFIFO"
    if before is workload and workload.sticky == sticky:
        return
    workload.preemptor, workload.sticky = True, sticky
    state.index.preemptors[workload.cluster_queue] = workload.key
    _rank_again(state, workload)


def _resign(state: State, workload: Workload) -> None:
    workload.preemptor = workload.sticky = False
    state.index.preemptors.pop(workload.cluster_queue, None)


def _rank_again(state: State, workload: Workload) -> None:
    """Move a queued workload to the place of its new rank."""
    queue = state.index.pending[workload.cluster_queue]
    queue.remove(workload.key)
    queue.push(workload.key, workload.shape)
    if workload.stage is not Stage.QUEUED:
        queue.step_out(workload.key)


def take_back(state: State, cluster_queue: str, seq: Seq) -> None:
    """Return a ClusterQueue's offered workloads to its pending queue."""
    if offered := state.index.offered.get(cluster_queue):
        give_back(state, cluster_queue, tuple(offered), seq)


def offer(state: State, workload: Workload, queue: PendingQueue, seq: Seq) -> None:
    """Bring a workload of this queue to OFFERED: `move` for the event that names the most workloads."""
    index, key = state.index, workload.key
    workload.offered_no = state.offers = number = state.offers + 1
    workload.stage, workload.last_seq = Stage.OFFERED, seq
    queue.step_out(key)
    index.offers[number] = key
    offered = index.offered.get(workload.cluster_queue)
    if offered is None:
        index.offered[workload.cluster_queue] = {key: None}
    else:
        offered[key] = None


def _withdraw(state: State, workload: Workload) -> None:
    """Drop an offer; a ClusterQueue without any has no entry, so that a cycle reads only those that have some."""
    index, cluster_queue = state.index, workload.cluster_queue
    del index.offers[workload.offered_no]
    offered = index.offered[cluster_queue]
    del offered[workload.key]
    if not offered:
        del index.offered[cluster_queue]


def give_back(state: State, cluster_queue: str, keys: Iterable[WorkloadKey], seq: Seq) -> None:
    """Return some of a ClusterQueue's offered workloads to its pending queue: `move` for many of one kind."""
    queue = state.index.pending[cluster_queue]
    for key in keys:
        workload = state.workloads[key]
        _withdraw(state, workload)
        workload.stage, workload.last_seq = Stage.QUEUED, seq
        state.workloads.touch(key)
        queue.step_back(key)


def reindex(state: State) -> None:
    """Rebuild the indexes that follow from the workloads' records. Needs `State.index.trees`."""
    for workload in state.workloads.values():
        with about("Workload", workload.key):
            if workload.owner is not None:
                state.index.own(workload.owner.uid, workload.key)
            if workload.stage is not Stage.FINISHED:
                state.index.in_local_queue.setdefault(local_queue_of(workload), {})[workload.key] = None
            if workload.stage is not Stage.OFFERED:
                enter(state, workload)
    for workload in state.workloads.values():
        index_current_slice(state, workload)
    offered = [workload for workload in state.workloads.values() if workload.stage is Stage.OFFERED]
    for workload in sorted(offered, key=lambda each: each.offered_no):
        enter(state, workload)
    for cluster_queue, sleep in state.sleeps.items():
        queue = pending_of(state, cluster_queue)
        for shape in sleep.shapes:
            queue.sleep(shape)
        head = state.workloads.get(sleep.blocked_by)
        if head is not None:
            queue.blocked = rank_of(state, head)
            mark_blocked(state, cluster_queue)


def reserve(
    state: State,
    workload: Workload,
    event: QuotaReserved | WorkloadFollowed,
    message: str,
    at_ms: UnixMs,
    end: Stage,
    seq: Seq,
) -> None:
    """
    Remove a workload from its queue and give it the reservation of an event.

    Its stage, and its place in the indexes of that, are set by the caller.
    """
    unblock(state, workload)
    leave(state, workload, end, seq)
    workload.cluster_queue, workload.admission, workload.reserved_at_ms = event.cluster_queue, event.admission, at_ms
    workload.parked, workload.verdict, workload.last_tried_flavors = None, None, ()
    workload.second_pass = None
    workload.conditions = conditions.put(
        workload.conditions,
        conditions.QUOTA_RESERVED,
        "True",
        "QuotaReserved",
        message,
        at_ms,
        workload.generation,
    )


def merge_checks(ours: tuple[CheckState, ...], workload: Workload) -> tuple[CheckState, ...]:
    """Our checks, with the states that their controllers have written since the last eviction."""
    if not ours:
        return ours
    seen = {check.name: check for check in workload.observed_checks if check not in workload.stale_checks}
    return tuple(seen.get(check.name, check) for check in ours)


def not_decided(workload: Workload, checks: tuple[CheckState, ...]) -> tuple[CheckState, ...]:
    """The checks of an object without those that Headgate has decided itself, which come back as they were written."""
    if not workload.decided_checks:
        return checks
    return tuple(check for check in checks if check.name not in workload.decided_checks)


def not_reserved(state: State, workload: Workload, reason: str, message: str, at_ms: UnixMs) -> None:
    """Set the conditions of a workload that holds no quota, with the reason."""
    put, generation = conditions.put, workload.generation
    _count_execution(workload, at_ms)
    reason = shown_reason(state.configuration, reason)
    workload.conditions = put(
        workload.conditions, conditions.QUOTA_RESERVED, "False", name(reason), name(message), at_ms, generation
    )
    workload.conditions = put(
        workload.conditions,
        conditions.ADMITTED,
        "False",
        "NoReservation",
        conditions.NO_RESERVATION,
        at_ms,
        generation,
    )


_TIME_IS_OVER = conditions.eviction_reason(conditions.DEACTIVATED, "MaximumExecutionTimeExceeded")


def _count_execution(workload: Workload, at_ms: UnixMs) -> None:
    """
    Add the duration of an ending admission to that of those before, in whole seconds (SyncAdmittedCondition).

    But not when it ends because the time is over: a workload that is reactivated gets the full time again.
    """
    admitted = conditions.find(workload.conditions, conditions.ADMITTED)
    if admitted is None or admitted.status != "True":
        return
    evicted = conditions.find(workload.conditions, conditions.EVICTED)
    if evicted is not None and evicted.reason == _TIME_IS_OVER:
        return
    try:
        since_ms = conditions.parse_rfc3339(admitted.last_transition_time)
    except ValueError:
        return
    workload.past_execution_s = (workload.past_execution_s or 0) + max(0, at_ms - since_ms) // 1000
