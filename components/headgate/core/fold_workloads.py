"""
The fold of everything that happens to workloads.

Called by `headgate.core.fold` only. Each event is looked up in the lifecycle table first; one that was overtaken
changes nothing. `_move` is the only place that changes a workload's stage: it keeps the indexes and the charged
usage in step.
"""

from typing import Any

import msgspec

from headgate.core import conditions
from headgate.core.amounts import amount
from headgate.core.fold_objects import ANY, Apply, free
from headgate.core.lifecycle import IllegalTransitionError, next_stage
from headgate.core.pending import PendingQueue, Rank
from headgate.core.state import (
    HOLDS_QUOTA,
    PENDING,
    FlavorResource,
    Parked,
    QueueSleep,
    Stage,
    State,
    Verdict,
    Workload,
)
from headgate.events import decisions, effects, facts, queueing
from headgate.events.base import EventBase
from headgate.events.commit import Commit
from headgate.events.ids import LocalQueueKey, Seq, UnixMs, WorkloadKey, split_key
from headgate.events.objects import Admission, CheckState, Condition, EvictionStat, WorkloadStatus

# --- stages and indexes --------------------------------------------------------------------------------------------


def rank_of(workload: Workload) -> Rank:
    """A workload's place in its ClusterQueue: higher priority, then earlier queue-order timestamp, then uid."""
    return (-workload.priority, workload.queued_at_ms, workload.uid, workload.key)


def local_queue_of(workload: Workload) -> LocalQueueKey:
    """The LocalQueue that a workload names."""
    return LocalQueueKey(f"{split_key(workload.key)[0]}/{workload.spec.queue_name}")


def usage_of(admission: Admission) -> dict[FlavorResource, int]:
    """What an admission charges, per flavor-resource: milli-units of cpu, whole units of all else."""
    usage: dict[FlavorResource, int] = {}
    for assignment in admission.pod_set_assignments:
        for resource, flavor in assignment.flavors.items():
            charged = amount(resource, assignment.resource_usage.get(resource, 0))
            usage[flavor, resource] = usage.get((flavor, resource), 0) + charged
    return usage


def charged_usage(workload: Workload) -> dict[FlavorResource, int]:
    """
    What a workload's reservation is charged now: less what its reclaimable pods have given back.

    Usage is divided by the admitted count and multiplied by what is left (`kueue-semantics` section 1).
    """
    if workload.admission is None:
        return {}
    if not workload.reclaimable_pods:
        return usage_of(workload.admission)
    done = {pods.name: pods.count for pods in workload.reclaimable_pods}
    spec_counts = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
    usage: dict[FlavorResource, int] = {}
    for assignment in workload.admission.pod_set_assignments:
        left = max(0, spec_counts.get(assignment.name, assignment.count) - done.get(assignment.name, 0))
        for resource, flavor in assignment.flavors.items():
            charged = amount(resource, assignment.resource_usage.get(resource, 0))
            if assignment.count and left < assignment.count:
                charged = charged // assignment.count * left
            usage[flavor, resource] = usage.get((flavor, resource), 0) + charged
    return usage


def _enter(state: State, workload: Workload) -> None:
    """Put a workload into the indexes of its stage."""
    index = state.index
    match workload.stage:
        case Stage.QUEUED:
            _pending(state, workload.cluster_queue).push(workload.key, rank_of(workload), workload.shape)
        case Stage.OFFERED:
            index.offered.setdefault(workload.cluster_queue, {})[workload.key] = None
        case Stage.RESERVED | Stage.ADMITTED | Stage.EVICTED:
            if workload.stage is Stage.RESERVED:
                index.reserved[workload.key] = None
            if workload.admission is not None and workload.key not in index.usage_of:
                index.holders.setdefault(workload.cluster_queue, {})[workload.key] = None
                _charge(state, workload)
        case Stage.NEW | Stage.SKIPPED | Stage.PARKED | Stage.FINISHED:
            pass


def _leave(state: State, workload: Workload, end: Stage | None, seq: Seq) -> None:
    """Take a workload out of the indexes of its stage, on its way to another (None: out of the state)."""
    index = state.index
    match workload.stage:
        case Stage.QUEUED:
            queue = _pending(state, workload.cluster_queue)
            queue.remove(workload.key)
            if queue.is_asleep(workload.shape):
                _forget_shape(state, queue, workload)
        case Stage.OFFERED:
            index.offered[workload.cluster_queue].pop(workload.key, None)
        case Stage.RESERVED | Stage.ADMITTED | Stage.EVICTED:
            if workload.stage is Stage.RESERVED:
                index.reserved.pop(workload.key, None)
            if end not in HOLDS_QUOTA and workload.key in index.usage_of:
                del index.holders[workload.cluster_queue][workload.key]
                _uncharge(state, workload, seq)
        case Stage.NEW | Stage.SKIPPED | Stage.PARKED | Stage.FINISHED:
            pass


def _forget_shape(state: State, queue: PendingQueue, workload: Workload) -> None:
    """A shape whose last member leaves in its sleep is forgotten, so that sleeping shapes do not pile up for ever."""
    sleep = state.sleeps[workload.cluster_queue]
    if sleep.shapes.get(workload.shape) is not None and next(queue.members(workload.shape), None) is None:
        del sleep.shapes[workload.shape]
        queue.wake(workload.shape)
        _tidy_sleep(state, workload.cluster_queue)


def _pending(state: State, cluster_queue: str) -> PendingQueue:
    queue = state.index.pending.get(cluster_queue)
    if queue is None:
        queue = state.index.pending[cluster_queue] = PendingQueue()
    return queue


def _charge(state: State, workload: Workload) -> None:
    charged = state.index.usage_of[workload.key] = charged_usage(workload)
    total = state.index.usage.setdefault(workload.cluster_queue, {})
    for flavor_resource, value in charged.items():
        total[flavor_resource] = total.get(flavor_resource, 0) + value


def _uncharge(state: State, workload: Workload, seq: Seq) -> None:
    charged = state.index.usage_of.pop(workload.key)
    total = state.index.usage[workload.cluster_queue]
    for flavor_resource, value in charged.items():
        left = total.get(flavor_resource, 0) - value
        if left:
            total[flavor_resource] = left
        else:
            # A charge of nothing, all its pods being reclaimable, may have left no entry.
            total.pop(flavor_resource, None)
    _free(state, workload.cluster_queue, charged, seq)


def _free(state: State, cluster_queue: str, charged: dict[FlavorResource, int], seq: Seq) -> None:
    tree = state.index.trees.get(cluster_queue, f"ClusterQueue/{cluster_queue}")
    free(state, tree, [f"{flavor}/{resource}" for flavor, resource in charged], seq)


def _move(state: State, workload: Workload, end: Stage, seq: Seq) -> None:
    _leave(state, workload, end, seq)
    workload.stage = end
    workload.last_seq = seq
    _enter(state, workload)


def _next(state: State, event: Any, seq: Seq) -> tuple[Workload, Stage] | None:
    """The workload that an event moves and where to; None when it was overtaken."""
    workload = state.workloads.get(event.workload)
    if workload is None or workload.uid != event.uid:
        state.overtaken += 1
        return None
    return _step(state, workload, type(event), seq)


def _step(state: State, workload: Workload, event: type[EventBase], seq: Seq) -> tuple[Workload, Stage] | None:
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


# --- facts ---------------------------------------------------------------------------------------------------------


def _observed(state: State, event: facts.WorkloadObserved, commit: Commit, seq: Seq) -> None:
    workload = state.workloads.get(event.workload)
    if workload is not None and workload.uid != event.uid:
        _forget(state, workload, seq)
        workload = None
    if workload is None:
        workload = Workload(
            key=event.workload, uid=event.uid, created_ms=event.created_ms, spec=event.spec, first_seq=seq
        )
        state.workloads[event.workload] = workload
        _describe(state, workload, event)
        if event.taken_over is not None:
            _take_over(state, workload, event.taken_over)
        workload.last_seq = seq
        _enter(state, workload)
        return
    spec_changed = workload.spec != event.spec
    if spec_changed and workload.stage in PENDING:
        _unblock(state, workload)
        _move(state, workload, Stage.NEW, seq)
        workload.parked, workload.verdict, workload.last_tried_flavors = None, None, ()
    reclaimed = workload.reclaimable_pods != event.reclaimable_pods
    _describe(state, workload, event)
    if reclaimed and workload.key in state.index.usage_of:
        _uncharge(state, workload, seq)
        _charge(state, workload)
    elif reclaimed and workload.stage in PENDING and workload.stage is not Stage.NEW:
        _unblock(state, workload)
        _move(state, workload, Stage.NEW, seq)


def _describe(state: State, workload: Workload, event: facts.WorkloadObserved) -> None:
    """Take over what a fact says of a workload's object."""
    _unlist(state, workload)
    workload.spec = event.spec
    workload.generation = event.generation
    workload.labels, workload.annotations = event.labels, event.annotations
    workload.owner, workload.deleting = event.owner, event.deleting
    workload.reclaimable_pods = event.reclaimable_pods
    workload.observed_finished = event.finished
    workload.observed_checks = event.checks
    workload.stale_checks = tuple(check for check in workload.stale_checks if check in event.checks)
    workload.checks = _merge_checks(workload.checks, workload)
    if workload.owner is not None:
        state.index.by_owner[workload.owner.uid] = workload.key
    state.index.in_local_queue.setdefault(local_queue_of(workload), {})[workload.key] = None


def _merge_checks(ours: tuple[CheckState, ...], workload: Workload) -> tuple[CheckState, ...]:
    """Our checks with the states that their controllers have written since the last eviction."""
    seen = {check.name: check for check in workload.observed_checks if check not in workload.stale_checks}
    return tuple(seen.get(check.name, check) for check in ours)


def _unlist(state: State, workload: Workload) -> None:
    if workload.owner is not None and state.index.by_owner.get(workload.owner.uid) == workload.key:
        del state.index.by_owner[workload.owner.uid]
    queue = local_queue_of(workload)
    listed = state.index.in_local_queue.get(queue)
    if listed is not None:
        listed.pop(workload.key, None)
        if not listed:
            del state.index.in_local_queue[queue]


def _take_over(state: State, workload: Workload, status: WorkloadStatus) -> None:
    """Continue from the status that another Kueue, or a Headgate whose log is lost, has written."""
    workload.conditions = status.conditions
    workload.admission = status.admission
    workload.checks = status.admission_checks
    workload.requeue_state = status.requeue_state
    workload.resource_requests = status.resource_requests
    workload.evictions = status.scheduling_stats.evictions if status.scheduling_stats is not None else ()
    reserved = conditions.find(status.conditions, conditions.QUOTA_RESERVED)
    if conditions.is_true(status.conditions, conditions.FINISHED):
        workload.stage = Stage.FINISHED
    elif status.admission is not None and reserved is not None and reserved.status == "True":
        workload.cluster_queue = status.admission.cluster_queue
        workload.reserved_at_ms = _time_of(reserved, workload.created_ms)
        admitted = conditions.find(status.conditions, conditions.ADMITTED)
        if conditions.is_true(status.conditions, conditions.EVICTED):
            workload.stage = Stage.EVICTED
        elif admitted is not None and admitted.status == "True":
            workload.stage = Stage.ADMITTED
            workload.admitted_at_ms = _time_of(admitted, workload.created_ms)
        else:
            workload.stage = Stage.RESERVED


def _time_of(condition: Condition, default: UnixMs) -> UnixMs:
    try:
        return conditions.parse_rfc3339(condition.last_transition_time)
    except ValueError:
        return default


def _deleted(state: State, event: facts.WorkloadDeleted, commit: Commit, seq: Seq) -> None:
    workload = state.workloads.get(event.workload)
    if workload is None or workload.uid != event.uid:
        state.overtaken += 1
        return
    _forget(state, workload, seq)


def _forget(state: State, workload: Workload, seq: Seq) -> None:
    _leave(state, workload, None, seq)
    _unlist(state, workload)
    _unblock(state, workload)
    del state.workloads[workload.key]
    if workload.owner is not None:
        for job in (f"{split_key(workload.key)[0]}/{workload.owner.name}",):
            record = state.jobs.get(job)  # type: ignore[call-overload]
            if record is not None and record.workload == workload.key:
                record.workload = WorkloadKey("")
                record.started_for = ""


# --- queue life ----------------------------------------------------------------------------------------------------


def _sleep_of(state: State, cluster_queue: str) -> QueueSleep:
    sleep = state.sleeps.get(cluster_queue)
    if sleep is None:
        sleep = state.sleeps[cluster_queue] = QueueSleep()
    return sleep


def _tidy_sleep(state: State, cluster_queue: str) -> None:
    """A ClusterQueue in which nothing sleeps has no record: equal states have equal tables."""
    sleep = state.sleeps.get(cluster_queue)
    if sleep is not None and not sleep.shapes and not sleep.blocked_by:
        del state.sleeps[cluster_queue]


def _queued(state: State, event: queueing.WorkloadQueued, commit: Commit, seq: Seq) -> None:
    if step := _next(state, event, seq):
        workload, end = step
        workload.cluster_queue = event.cluster_queue
        workload.priority, workload.queued_at_ms, workload.shape = event.priority, event.queued_at_ms, event.shape
        workload.parked = None
        _awaits_evaluation(workload, commit.time_ms)
        _move(state, workload, end, seq)


def _awaits_evaluation(workload: Workload, at_ms: UnixMs) -> None:
    """What kept it out of the queues is over. As Kueue does, a workload without a condition gets none for this."""
    reserved = conditions.find(workload.conditions, conditions.QUOTA_RESERVED)
    if reserved is not None and reserved.status == "False" and reserved.reason in conditions.KEPT_OUT:
        message = conditions.GATE_CLEARED if reserved.reason == "AdmissionGated" else conditions.AWAITS_EVALUATION
        _not_reserved(workload, "PendingEvaluation", message, at_ms)


def _parked(state: State, event: queueing.WorkloadParked, commit: Commit, seq: Seq) -> None:
    step = _next(state, event, seq)
    if step is None:
        return
    workload, end = step
    parked = Parked(
        reason=event.reason,
        message=event.message,
        wake=event.wake,
        since=seq,
        decided_at=event.decided_at or seq,
        since_ms=commit.time_ms,
        by=event.workload,
    )
    if event.writes_condition:
        _not_reserved(workload, event.reason, event.message, commit.time_ms)
    if event.scope == "workload":
        workload.parked = parked
        _unblock(state, workload)
        _move(state, workload, end, seq)
        if event.cluster_queue:
            workload.cluster_queue = event.cluster_queue
        return
    if workload.stage in (Stage.NEW, Stage.PARKED):
        # Its object changed, or it was set aside, while this was on its way: the verdict is no longer about it.
        state.overtaken += 1
        return
    sleep = _sleep_of(state, workload.cluster_queue)
    if event.scope == "shape":
        sleep.shapes[workload.shape] = parked
        _pending(state, workload.cluster_queue).sleep(workload.shape)
    else:
        sleep.blocked_by, sleep.blocked = workload.key, parked
        _pending(state, workload.cluster_queue).blocked = rank_of(workload)
    if workload.stage is not Stage.QUEUED:
        _move(state, workload, Stage.QUEUED, seq)


def _woken(state: State, event: queueing.WorkloadWoken, commit: Commit, seq: Seq) -> None:
    if event.scope != "workload":
        _wake_many(state, event, seq)
        return
    if step := _next(state, event, seq):
        workload, end = step
        workload.parked = None
        workload.verdict = None
        workload.last_tried_flavors = ()
        _move(state, workload, end, seq)


def _wake_many(state: State, event: queueing.WorkloadWoken, seq: Seq) -> None:
    """Wake a shape or unblock a queue. The workload named is the one that was skipped; it may be gone by now."""
    sleep = state.sleeps.get(event.cluster_queue)
    workload = state.workloads.get(event.workload)
    if event.scope == "queue":
        if sleep is not None and sleep.blocked_by == event.workload:
            _unblock_queue(state, event.cluster_queue)
    elif sleep is not None and event.shape in sleep.shapes:
        del sleep.shapes[event.shape]
        _pending(state, event.cluster_queue).wake(event.shape)
        _tidy_sleep(state, event.cluster_queue)
    if workload is not None and workload.uid == event.uid and workload.stage is Stage.SKIPPED:
        workload.last_tried_flavors = ()
        _move(state, workload, Stage.QUEUED, seq)


def _unblock_queue(state: State, cluster_queue: str) -> None:
    sleep = state.sleeps[cluster_queue]
    sleep.blocked_by, sleep.blocked = WorkloadKey(""), None
    _pending(state, cluster_queue).blocked = None
    _tidy_sleep(state, cluster_queue)


def _unblock(state: State, workload: Workload) -> None:
    """A head that leaves its queue blocks it no longer, nor does it claim quota against others of its tree."""
    sleep = state.sleeps.get(workload.cluster_queue)
    if sleep is not None and sleep.blocked_by == workload.key:
        _unblock_queue(state, workload.cluster_queue)
        tree = state.index.trees.get(workload.cluster_queue, f"ClusterQueue/{workload.cluster_queue}")
        free(state, tree, (ANY,), state.position)


def _heads_offered(state: State, event: queueing.HeadsOffered, commit: Commit, seq: Seq) -> None:
    for head in event.heads:
        workload = state.workloads.get(head.workload)
        if workload is None or workload.uid != head.uid or workload.cluster_queue != head.cluster_queue:
            state.overtaken += 1
            continue
        if workload.stage is Stage.QUEUED and _may_not_be_offered(state, workload):
            state.overtaken += 1
            continue
        step = _step(state, workload, queueing.HeadsOffered, seq)
        if step is not None:
            state.offers += 1
            workload.offered_no = state.offers
            _move(state, workload, step[1], seq)


def _may_not_be_offered(state: State, workload: Workload) -> bool:
    """Its shape went to sleep, or its queue was blocked, while the offer was on its way."""
    queue = _pending(state, workload.cluster_queue)
    if queue.is_asleep(workload.shape):
        return True
    return queue.blocked is not None and rank_of(workload) >= queue.blocked


def _heads_withdrawn(state: State, event: queueing.HeadsWithdrawn, commit: Commit, seq: Seq) -> None:
    for cluster_queue in event.cluster_queues:
        _take_back(state, cluster_queue, seq)


def _take_back(state: State, cluster_queue: str, seq: Seq) -> None:
    for key in tuple(state.index.offered.get(cluster_queue, ())):
        _move(state, state.workloads[key], Stage.QUEUED, seq)


def _evicted(state: State, event: queueing.WorkloadEvicted, commit: Commit, seq: Seq) -> None:
    step = _next(state, event, seq)
    if step is None:
        return
    workload, end = step
    at_ms = commit.time_ms
    workload.conditions = conditions.put(
        workload.conditions, conditions.EVICTED, "True", event.reason, event.message, at_ms, workload.generation
    )
    workload.checks = tuple(
        CheckState(
            name=check.name,
            state="Pending",
            message="Reset to Pending after eviction. Previously: " + check.state,
            last_transition_time=conditions.rfc3339(at_ms),
            retry_count=check.retry_count,
        )
        for check in workload.checks
    )
    workload.stale_checks = workload.observed_checks
    workload.evictions = _count(workload.evictions, event.reason, event.underlying_cause)
    if event.requeue_state is not None:
        workload.requeue_state = event.requeue_state
    workload.parked = None
    workload.verdict = None
    workload.last_tried_flavors = ()
    _unblock(state, workload)
    _move(state, workload, end, seq)


def _count(stats: tuple[EvictionStat, ...], reason: str, cause: str) -> tuple[EvictionStat, ...]:
    for stat in stats:
        if stat.reason == reason and stat.underlying_cause == cause:
            more = EvictionStat(reason=reason, underlying_cause=cause, count=stat.count + 1)
            return tuple(more if each is stat else each for each in stats)
    return (*stats, EvictionStat(reason=reason, underlying_cause=cause, count=1))


def _released(state: State, event: queueing.WorkloadReleased, commit: Commit, seq: Seq) -> None:
    step = _next(state, event, seq)
    if step is None:
        return
    workload, end = step
    at_ms = commit.time_ms
    had_quota = workload.admission is not None
    _move(state, workload, end, seq)
    workload.admission = None
    workload.cluster_queue = ""
    workload.checks = ()
    if had_quota:
        workload.conditions = conditions.put(
            workload.conditions,
            conditions.REQUEUED,
            "True" if event.requeued else "False",
            event.reason,
            event.message,
            at_ms,
            workload.generation,
        )
    reason = "Pending" if had_quota else "Deactivated" if not workload.spec.active else "Pending"
    _not_reserved(workload, reason, event.message, at_ms)


def _requeued(state: State, event: queueing.WorkloadRequeued, commit: Commit, seq: Seq) -> None:
    if step := _next(state, event, seq):
        workload, _ = step
        workload.conditions = conditions.put(
            workload.conditions,
            conditions.REQUEUED,
            "True",
            event.reason,
            event.message,
            commit.time_ms,
            workload.generation,
        )
        workload.last_seq = seq


def _finished(state: State, event: queueing.WorkloadFinished, commit: Commit, seq: Seq) -> None:
    if step := _next(state, event, seq):
        workload, end = step
        if not conditions.is_true(workload.conditions, conditions.FINISHED):
            workload.conditions = conditions.put(
                workload.conditions,
                conditions.FINISHED,
                "True",
                event.reason,
                event.message,
                commit.time_ms,
                workload.generation,
            )
        workload.parked, workload.verdict, workload.last_tried_flavors = None, None, ()
        _unblock(state, workload)
        _move(state, workload, end, seq)
        _unlist_queue(state, workload)


def _unlist_queue(state: State, workload: Workload) -> None:
    listed = state.index.in_local_queue.get(local_queue_of(workload))
    if listed is not None:
        listed.pop(workload.key, None)


def _deadline_passed(state: State, event: queueing.DeadlinePassed, commit: Commit, seq: Seq) -> None:
    if step := _next(state, event, seq):
        workload, _ = step
        if event.deadline == "RequeueAt" and workload.requeue_state is not None:
            workload.requeue_state = msgspec.structs.replace(workload.requeue_state, requeue_at=None)


# --- decisions and effects -----------------------------------------------------------------------------------------


def _not_reserved(workload: Workload, reason: str, message: str, at_ms: UnixMs) -> None:
    put, generation = conditions.put, workload.generation
    workload.conditions = put(
        workload.conditions, conditions.QUOTA_RESERVED, "False", reason, message, at_ms, generation
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


def _cycle_decided(state: State, event: decisions.CycleDecided, commit: Commit, seq: Seq) -> None:
    state.cycle = event.cycle


def _quota_reserved(state: State, event: decisions.QuotaReserved, commit: Commit, seq: Seq) -> None:
    step = _next(state, event, seq)
    if step is None:
        return
    workload, end = step
    put, at_ms, generation = conditions.put, commit.time_ms, workload.generation
    _unblock(state, workload)
    _leave(state, workload, end, seq)
    workload.cluster_queue = event.cluster_queue
    workload.admission = event.admission
    workload.reserved_at_ms = at_ms
    workload.checks = _merge_checks(event.checks, workload)
    workload.parked, workload.verdict, workload.last_tried_flavors = None, None, ()
    workload.conditions = put(
        workload.conditions, conditions.QUOTA_RESERVED, "True", "QuotaReserved", event.message, at_ms, generation
    )
    if any(check.state != "Ready" for check in workload.checks):
        workload.conditions = put(
            workload.conditions,
            conditions.ADMITTED,
            "False",
            "UnsatisfiedAdmissionChecks",
            conditions.UNSATISFIED_CHECKS,
            at_ms,
            generation,
        )
    for kind in (conditions.EVICTED, conditions.PREEMPTED):
        old = conditions.find(workload.conditions, kind)
        if old is not None and old.status == "True":
            message = f"Previously: {old.message}"
            workload.conditions = put(workload.conditions, kind, "False", "QuotaReserved", message, at_ms, generation)
    workload.stage = end
    workload.last_seq = seq
    _enter(state, workload)


def _admitted(state: State, event: decisions.WorkloadAdmitted, commit: Commit, seq: Seq) -> None:
    if step := _next(state, event, seq):
        workload, end = step
        workload.admitted_at_ms = commit.time_ms
        workload.conditions = conditions.put(
            workload.conditions,
            conditions.ADMITTED,
            "True",
            "Admitted",
            event.message,
            commit.time_ms,
            workload.generation,
        )
        _move(state, workload, end, seq)


def _skipped(state: State, event: decisions.WorkloadSkipped, commit: Commit, seq: Seq) -> None:
    step = _next(state, event, seq)
    if step is None:
        return
    workload, end = step
    workload.resource_requests = event.resource_requests
    workload.last_tried_flavors = event.last_tried_flavors
    _not_reserved(workload, event.reason, event.message, commit.time_ms)
    workload.verdict = Verdict(
        status=event.status,
        requeue_reason=event.requeue_reason,
        scope=event.scope,
        reason=event.reason,
        message=event.message,
        decided_at=commit.decided_at,
        at=seq,
        short=event.short,
    )
    match event.scope:
        case "immediate":
            workload.last_seq = seq
        case "workload":
            _move(state, workload, end, seq)
        case "shape":
            _move(state, workload, end, seq)
            _sleep_of(state, workload.cluster_queue).shapes.setdefault(workload.shape, None)
            _pending(state, workload.cluster_queue).sleep(workload.shape)
            for key in tuple(state.index.offered.get(workload.cluster_queue, ())):
                if state.workloads[key].shape == workload.shape:
                    _move(state, state.workloads[key], Stage.QUEUED, seq)
        case "queue":
            _move(state, workload, end, seq)
            _take_back(state, workload.cluster_queue, seq)
            sleep = _sleep_of(state, workload.cluster_queue)
            sleep.blocked_by, sleep.blocked = workload.key, None
            _pending(state, workload.cluster_queue).blocked = rank_of(workload)


def _status_applied(state: State, event: effects.StatusApplied, commit: Commit, seq: Seq) -> None:
    workload = state.workloads.get(event.workload)
    if workload is not None and workload.uid == event.uid:
        workload.applied, workload.refused = event.digest, ""


def _status_rejected(state: State, event: effects.StatusRejected, commit: Commit, seq: Seq) -> None:
    workload = state.workloads.get(event.workload)
    if workload is not None and workload.uid == event.uid:
        workload.refused = event.digest


def reindex(state: State) -> None:
    """Make anew what follows from the workloads' records. Needs `State.index.trees`."""
    for workload in state.workloads.values():
        if workload.owner is not None:
            state.index.by_owner[workload.owner.uid] = workload.key
        if workload.stage is not Stage.FINISHED:
            state.index.in_local_queue.setdefault(local_queue_of(workload), {})[workload.key] = None
        if workload.stage is not Stage.OFFERED:
            _enter(state, workload)
    offered = [workload for workload in state.workloads.values() if workload.stage is Stage.OFFERED]
    for workload in sorted(offered, key=lambda each: each.offered_no):
        _enter(state, workload)
    for cluster_queue, sleep in state.sleeps.items():
        queue = _pending(state, cluster_queue)
        for shape in sleep.shapes:
            queue.sleep(shape)
        head = state.workloads.get(sleep.blocked_by)
        if head is not None:
            queue.blocked = rank_of(head)


APPLY: dict[type, Apply] = {
    facts.WorkloadObserved: _observed,
    facts.WorkloadDeleted: _deleted,
    queueing.WorkloadQueued: _queued,
    queueing.WorkloadParked: _parked,
    queueing.WorkloadWoken: _woken,
    queueing.HeadsOffered: _heads_offered,
    queueing.HeadsWithdrawn: _heads_withdrawn,
    queueing.WorkloadEvicted: _evicted,
    queueing.WorkloadReleased: _released,
    queueing.WorkloadRequeued: _requeued,
    queueing.WorkloadFinished: _finished,
    queueing.DeadlinePassed: _deadline_passed,
    decisions.CycleDecided: _cycle_decided,
    decisions.QuotaReserved: _quota_reserved,
    decisions.WorkloadAdmitted: _admitted,
    decisions.WorkloadSkipped: _skipped,
    effects.StatusApplied: _status_applied,
    effects.StatusRejected: _status_rejected,
}

__all__ = ["ANY", "APPLY", "charged_usage", "local_queue_of", "rank_of", "reindex", "usage_of"]
