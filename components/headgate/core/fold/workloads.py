"""
The fold of facts about workloads, of their queueing events, and of the configuration.

Called by `headgate.core.fold` only. Each event is looked up in the lifecycle table first (`moved`); one that was
overtaken changes nothing.
"""
# Over 400 lines: one handler for each event type of a workload's life, and the table of all of them.

from typing import Final, Never

import msgspec

from headgate.core.api.admission_checks import reset
from headgate.core.config import feature_gates
from headgate.core.fold import provisioning as fold_provisioning
from headgate.core.fold import usage as fold_usage
from headgate.core.fold.objects import ANY, free, free_where, wake_for_pods
from headgate.core.fold.transitions import (
    block,
    charge,
    enter,
    index_current_slice,
    leave,
    merge_checks,
    move,
    moved,
    not_decided,
    not_reserved,
    offer,
    pending_of,
    rank_of,
    reserve,
    sleep_of,
    step,
    take_back,
    tidy_sleep,
    touch,
    unblock,
    unblock_queue,
    uncharge,
)
from headgate.core.kubernetes import conditions
from headgate.core.quota import turnover
from headgate.core.quota.usage_order import renew
from headgate.core.state import sharing
from headgate.core.state.attribution import about
from headgate.core.state.handlers import EventHandlers
from headgate.core.state.sharing import labels_of, name
from headgate.core.state.tables import HOLDS_QUOTA, PENDING, JobRecord, Parked, Stage, State, Workload, local_queue_of
from headgate.core.workload.ordering import arrived, priority_of
from headgate.core.workload.owners import is_job, job_key, job_of, owner_uid
from headgate.core.workload.pods_ready import follow
from headgate.core.workload.preemption_gates import closed, is_closed, merged, opened
from headgate.core.workload.replacement_pods import follow_absent_pods
from headgate.core.workload.shown_conditions import differing
from headgate.core.workload.slices import SLICE_REPLACED, is_elastic
from headgate.core.workload.unadmitted_reasons import is_explicit, is_granular
from headgate.core.workload.variants import FLAVOR_MIGRATION, followed_message, is_followed, is_variant
from headgate.events import decisions, facts, queueing
from headgate.events.commit import Commit
from headgate.events.ids import Seq, Shape, UnixMs, WorkloadKey
from headgate.events.objects import Condition, EvictionStat, WorkloadStatus


def _configuration_observed(state: State, event: facts.ConfigurationObserved, commit: Commit, seq: Seq) -> None:
    """Any later decision may differ from here on, and held quota may be charged differently."""
    counted = feature_gates.enabled(state.configuration, feature_gates.RECLAIMABLE_PODS)
    state.configuration = event.configuration
    state.configuration_document = event.document
    fold_usage.reconfigure(state)
    for cluster_queue in state.index.pending:
        renew(state, cluster_queue)
    recharges = counted != feature_gates.enabled(state.configuration, feature_gates.RECLAIMABLE_PODS)
    for workload in state.workloads.values():
        with about("Workload", workload.key):
            follow(state, workload, commit.time_ms)
            if recharges and workload.reclaimable_pods and workload.key in state.index.usage_of:
                uncharge(state, workload, seq)
                charge(state, workload)
    free_where(state, lambda _: True, seq)


# Large: a Workload is compared before it is stored, and what has changed is acted upon after.
def _observed(state: State, event: facts.WorkloadObserved, commit: Commit, seq: Seq) -> None:
    workload = state.workloads.get(event.workload)
    if workload is not None and workload.uid != event.uid:
        _forget(state, workload, seq)
        workload = None
    if workload is not None and event.workload in state.unconfirmed:
        workload = _confirm(state, workload, event, seq)
    if workload is None:
        workload = Workload(
            key=event.workload,
            uid=event.uid,
            created_ms=event.created_ms,
            spec=state.shared.spec(event.spec),
            owner=event.owner,
            first_seq=seq,
        )
        state.workloads[event.workload] = workload
        job = job_of(state, workload)
        _share_with(workload, job)
        # Several Workloads are created from Jobs at a time: the Jobs define the order of arrival.
        workload.arrival = job.arrival if job is not None and job.arrival else arrived(seq, event.arrival)
        _describe(state, workload, event)
        if event.taken_over is not None:
            _take_over(state, workload, event.taken_over)
            workload.applied_version = event.shown.version if event.shown is not None else 0
            workload.shown = None
            # The shown status is in the API server: nothing has to be written until it changes.
            workload.taken_over = msgspec.structs.replace(event.taken_over, conditions=workload.conditions)
            follow(state, workload, commit.time_ms)
        workload.last_seq = seq
        _list(state, workload)
        enter(state, workload)
        return
    spec_changed = workload.spec != event.spec
    if spec_changed and workload.stage in PENDING:
        unblock(state, workload)
        move(state, workload, Stage.NEW, seq)
        workload.parked, workload.verdict, workload.last_tried_flavors = None, None, ()
    reclaimed = workload.reclaimable_pods != event.reclaimable_pods
    resized = spec_changed and workload.spec.pod_sets != event.spec.pod_sets
    if resized and not is_elastic(state.configuration, workload.annotations):
        workload.shaped_at = seq
        workload.outdated = workload.stage in HOLDS_QUOTA
    was_gated, ranked = is_closed(workload), priority_of(workload, state.configuration)
    if spec_changed or workload.owner != event.owner:
        _respecify(state, workload, event)
    _describe(state, workload, event)
    follow(state, workload, commit.time_ms)
    follow_absent_pods(state, workload, commit.time_ms)
    tree = state.index.trees.get(workload.cluster_queue)
    if workload.key in state.index.usage_of and tree and ranked != priority_of(workload, state.configuration):
        # Others may now be allowed to preempt it.
        free(state, tree, (ANY,), seq)
    wake_for_pods(state, seq)
    if (reclaimed or resized) and workload.key in state.index.usage_of:
        uncharge(state, workload, seq)
        charge(state, workload)
    elif (reclaimed or was_gated != is_closed(workload)) and workload.stage in PENDING - {Stage.NEW}:
        unblock(state, workload)
        move(state, workload, Stage.NEW, seq)


def _confirm(state: State, workload: Workload, event: facts.WorkloadObserved, seq: Seq) -> Workload | None:
    """After a restore: the workload if the log has its status; None when it has to restart from the shown one."""
    del state.unconfirmed[workload.key]
    if _is_known(workload, event):
        workload.applied, workload.taken_over = "", event.taken_over
        return workload
    job = job_key(state, workload)
    record = state.jobs.get(job) if job is not None else None
    made = record.workload if record is not None else WorkloadKey("")
    _forget(state, workload, seq)
    if record is not None:
        # It still is the one that was created for its Job.
        record.workload = made
    return None


def _is_known(workload: Workload, event: facts.WorkloadObserved) -> bool:
    """Whether the log has the shown status: set by the informer bridge, except in logs of earlier versions."""
    if event.known is not None:
        return event.known
    shown = event.taken_over
    if workload.stage is Stage.FINISHED or shown is None:
        return workload.stage is Stage.FINISHED or workload.applied == ""
    return shown.admission == workload.admission and not set(shown.conditions).difference(workload.conditions)


def _describe(state: State, workload: Workload, event: facts.WorkloadObserved) -> None:
    """Take over a fact about a workload's object, except its spec."""
    workload.generation = event.generation
    workload.labels = labels_of(event.labels, workload.owner)
    workload.annotations = labels_of(event.annotations, workload.owner)
    workload.deleting, workload.finalizer = event.deleting, event.finalizer
    workload.group_owners = event.group_owners
    workload.reclaimable_pods = event.reclaimable_pods
    workload.observed_finished, workload.observed_pods_ready = event.finished, event.pods_ready
    workload.deactivation_target = event.deactivation_target
    workload.observed_checks = not_decided(workload, event.checks)
    if workload.stale_checks:
        workload.stale_checks = tuple(check for check in workload.stale_checks if check in event.checks)
    workload.checks = merge_checks(workload.checks, workload)
    workload.preemption_gates = merged(workload.preemption_gates, event.preemption_gates)
    workload.observed_gates = event.preemption_gates
    workload.shown = differing(workload, event.shown)
    if workload.key in state.index.usage_of:
        touch(state, workload.cluster_queue)


def share(state: State, workload: Workload) -> None:
    """Let a decoded record share equal parts with others, as a folded one does."""
    workload.spec = state.shared.spec(workload.spec)
    _share_with(workload, job_of(state, workload))
    workload.labels = labels_of(workload.labels, workload.owner)
    workload.annotations = labels_of(workload.annotations, workload.owner)
    workload.cluster_queue, workload.shape = name(workload.cluster_queue), Shape(name(workload.shape))
    if workload.queued_at_ms == workload.created_ms:
        workload.queued_at_ms = workload.created_ms


def _share_with(workload: Workload, job: JobRecord | None) -> None:
    """A Job and its Workload share names, uids and a pod template."""
    workload.owner = sharing.owner_of(workload.owner, job.job.uid if job is not None else "")
    if job is not None:
        job.job = sharing.job_of(job.job, workload.spec)
        if job.workload == workload.key:
            job.workload = workload.key


def _respecify(state: State, workload: Workload, event: facts.WorkloadObserved) -> None:
    """Take over another spec or owner, by which a workload is indexed."""
    if workload.spec.queue_name != event.spec.queue_name or (workload.stage in PENDING and not event.spec.active):
        fold_usage.drop(state, workload)
    _unlist(state, workload)
    if event.owner is not None and event.owner != workload.owner:
        workload.owner_gone = False
    workload.spec, workload.owner = state.shared.spec(event.spec), sharing.owner_of(event.owner)
    _list(state, workload)
    fold_usage.recount(state, workload)


def _list(state: State, workload: Workload) -> None:
    if workload.owner is not None:
        state.index.own(workload.owner.uid, workload.key)
        index_current_slice(state, workload)
    if workload.stage is not Stage.FINISHED:
        state.index.in_local_queue.setdefault(local_queue_of(workload), {})[workload.key] = None


def _unlist(state: State, workload: Workload) -> None:
    _unlist_queue(state, workload)
    if workload.owner is not None:
        state.index.disown(workload.owner.uid, workload.key)
        index_current_slice(state, workload)


def _unlist_queue(state: State, workload: Workload) -> None:
    """Remove a finished or deleted workload from its LocalQueue's index."""
    queue = local_queue_of(workload)
    listed = state.index.in_local_queue.get(queue)
    if listed is not None:
        listed.pop(workload.key, None)
        if not listed:
            del state.index.in_local_queue[queue]


def _take_over(state: State, workload: Workload, status: WorkloadStatus) -> None:
    """Continue from the status that another Kueue, or a Headgate whose log is lost, has written."""
    ours = is_variant(workload) or is_job(state, workload.owner)
    workload.conditions = tuple(each for each in status.conditions if ours or each.type != conditions.PODS_READY)
    workload.admission, workload.followed = status.admission, is_followed(workload, status)
    workload.checks = status.admission_checks
    workload.requeue_state = status.requeue_state
    workload.resource_requests = status.resource_requests
    workload.evictions = status.scheduling_stats.evictions if status.scheduling_stats is not None else ()
    workload.past_execution_s = status.accumulated_past_execution_time_seconds
    holds = status.admission is not None
    workload.unhealthy_nodes = tuple(node.name for node in status.unhealthy_nodes) if holds else ()
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


def _owner_gone(state: State, event: facts.OwnerGone, commit: Commit, seq: Seq) -> None:
    workload = state.workloads.get(event.workload)
    if workload is None or workload.uid != event.uid or owner_uid(state, workload) != event.owner_uid:
        state.overtaken += 1
        return
    workload.owner_gone = workload.stage is not Stage.FINISHED


def _forget(state: State, workload: Workload, seq: Seq) -> None:
    state.unconfirmed.pop(workload.key, None)
    leave(state, workload, None, seq)
    fold_usage.drop(state, workload)
    _unlist(state, workload)
    unblock(state, workload)
    fold_provisioning.forget(state, workload)
    del state.workloads[workload.key]
    job = job_key(state, workload)
    record = state.jobs.get(job) if job is not None else None
    if record is not None and record.workload == workload.key:
        record.workload = WorkloadKey("")
        record.started_for = ""


def _queued(state: State, event: queueing.WorkloadQueued, commit: Commit, seq: Seq) -> None:
    if found := moved(state, event, seq):
        workload, end = found
        workload.cluster_queue = name(event.cluster_queue)
        workload.priority, workload.shape = event.priority, Shape(name(event.shape))
        is_new = event.queued_at_ms == workload.created_ms
        workload.queued_at_ms = workload.created_ms if is_new else event.queued_at_ms
        workload.parked = None
        _awaits_evaluation(state, workload, commit.time_ms)
        move(state, workload, end, seq)


def _awaits_evaluation(state: State, workload: Workload, at_ms: UnixMs) -> None:
    """
    What kept it out of the queues is over.

    As in Kueue, a workload without a condition gets none for this, unless explicit conditions are configured. Then, if
    its shape sleeps, it gets the reason of that sleep.
    """
    reserved = conditions.find(workload.conditions, conditions.QUOTA_RESERVED)
    if reserved is None and is_explicit(state.configuration):
        sleep = state.sleeps.get(workload.cluster_queue)
        asleep = sleep.shapes.get(workload.shape) if sleep is not None else None
        reason, message = "PendingEvaluation", conditions.AWAITS_EVALUATION
        if asleep is not None:
            reason, message = asleep.reason, conditions.BYPASSED
        not_reserved(state, workload, reason, message, at_ms)
        return
    if reserved is not None and reserved.status == "False" and _kept_out(state, reserved):
        message = _CLEARED.get(reserved.reason, conditions.AWAITS_EVALUATION)
        not_reserved(state, workload, "PendingEvaluation", message, at_ms)


_CLEARED: Final = {"AdmissionGated": conditions.GATE_CLEARED, conditions.ON_HOLD: conditions.OFF_HOLD}
"""What is said when what has kept a workload out is over."""


def _kept_out(state: State, reserved: Condition) -> bool:
    """Whether a condition shows what keeps a workload out of every queue. Less exact reasons stay until it is tried."""
    if reserved.reason in _CLEARED:
        return True
    return is_granular(state.configuration) and reserved.reason in conditions.KEPT_OUT


def _parked(state: State, event: queueing.WorkloadParked, commit: Commit, seq: Seq) -> None:
    found = moved(state, event, seq)
    if found is None:
        return
    workload, end = found
    parked = Parked(
        reason=name(event.reason),
        message=name(event.message),
        wake=state.shared.wake(event.wake, None if workload.verdict is None else workload.verdict.needs),
        since=seq,
        decided_at=event.decided_at or seq,
        since_ms=commit.time_ms,
        by=event.workload,
    )
    if event.writes_condition:
        not_reserved(state, workload, event.reason, event.message, commit.time_ms)
    if event.scope == "workload":
        workload.parked = parked
        unblock(state, workload)
        move(state, workload, end, seq)
        if event.cluster_queue:
            workload.cluster_queue = event.cluster_queue
        return
    if workload.stage in (Stage.NEW, Stage.PARKED):
        # Its object changed, or it was parked, while this was under way: the verdict is outdated.
        state.overtaken += 1
        return
    if event.scope == "shape":
        sleep_of(state, workload.cluster_queue).shapes[workload.shape] = parked
        pending_of(state, workload.cluster_queue).sleep(workload.shape)
    else:
        block(state, workload, parked)
    if workload.stage is not Stage.QUEUED:
        move(state, workload, Stage.QUEUED, seq)


def _woken(state: State, event: queueing.WorkloadWoken, commit: Commit, seq: Seq) -> None:
    if event.scope != "workload":
        _wake_many(state, event, seq)
        return
    if found := moved(state, event, seq):
        workload, end = found
        workload.parked = None
        workload.verdict = None
        workload.last_tried_flavors = ()
        move(state, workload, end, seq)


def _wake_many(state: State, event: queueing.WorkloadWoken, seq: Seq) -> None:
    """Wake a shape or unblock a queue. The named workload is the one that was skipped; it may be gone by now."""
    sleep = state.sleeps.get(event.cluster_queue)
    workload = state.workloads.get(event.workload)
    if event.scope == "queue":
        if sleep is not None and sleep.blocked_by == event.workload:
            unblock_queue(state, event.cluster_queue)
    elif sleep is not None and event.shape in sleep.shapes:
        del sleep.shapes[event.shape]
        pending_of(state, event.cluster_queue).wake(event.shape)
        tidy_sleep(state, event.cluster_queue)
    if workload is not None and workload.uid == event.uid and workload.stage is Stage.SKIPPED:
        workload.last_tried_flavors = ()
        move(state, workload, Stage.QUEUED, seq)


def _heads_offered(state: State, event: queueing.HeadsOffered, commit: Commit, seq: Seq) -> None:
    for head in event.heads:
        workload = state.workloads.get(head.workload)
        if workload is None or workload.uid != head.uid or workload.cluster_queue != head.cluster_queue:
            state.overtaken += 1
            continue
        if workload.stage is not Stage.QUEUED:
            # From no other stage is there a transition: this counts it as overtaken, or raises.
            step(state, workload, queueing.HeadsOffered, seq)
            continue
        queue = state.index.pending[head.cluster_queue]
        blocked = queue.blocked
        if (queue.is_asleep(workload.shape) and not (head.alone and _waits_as_told(state, workload))) or (
            blocked is not None and rank_of(state, workload) >= blocked
        ):
            # Its shape went to sleep, or its queue was blocked, while the offer was under way.
            state.overtaken += 1
            continue
        offer(state, workload, queue, seq)


def _waits_as_told(state: State, workload: Workload) -> bool:
    """Whether the queue manager has recorded what a sleeping shape waits for, and no verdict has come since."""
    return state.sleeps[workload.cluster_queue].shapes[workload.shape] is not None


def _heads_withdrawn(state: State, event: queueing.HeadsWithdrawn, commit: Commit, seq: Seq) -> None:
    for cluster_queue in event.cluster_queues:
        take_back(state, cluster_queue, seq)


def _evicted(state: State, event: queueing.WorkloadEvicted, commit: Commit, seq: Seq) -> None:
    found = moved(state, event, seq)
    if found is None:
        return
    workload, end = found
    if event.requeue_state is not None:
        workload.requeue_state = event.requeue_state
    if event.underlying_cause == "MaximumExecutionTimeExceeded":
        workload.past_execution_s = None
    if event.reason == conditions.DEACTIVATED:
        # Taken over with the status of another Kueue: its request is fulfilled.
        others = (each for each in workload.conditions if each.type != conditions.DEACTIVATION_TARGET)
        workload.conditions = tuple(others)
    reason = conditions.eviction_reason(event.reason, event.underlying_cause)
    workload.evictions = _count(workload.evictions, event.reason, event.underlying_cause)
    _evict(state, workload, reason, event.message, commit.time_ms)
    move(state, workload, end, seq)


def _preempted(state: State, event: decisions.WorkloadPreempted, commit: Commit, seq: Seq) -> None:
    found = moved(state, event, seq)
    if found is None:
        return
    workload, end = found
    workload.evictions = _count(workload.evictions, conditions.PREEMPTED, "")
    _evict(state, workload, conditions.PREEMPTED, event.message, commit.time_ms)
    workload.conditions = conditions.put(
        workload.conditions,
        conditions.PREEMPTED,
        "True",
        event.reason,
        event.message,
        commit.time_ms,
        workload.generation,
    )
    move(state, workload, end, seq)


def _migrated(state: State, event: decisions.WorkloadMigrated, commit: Commit, seq: Seq) -> None:
    found = moved(state, event, seq)
    if found is None:
        return
    workload, end = found
    workload.evictions = _count(workload.evictions, FLAVOR_MIGRATION, "")
    _evict(state, workload, FLAVOR_MIGRATION, event.message, commit.time_ms)
    move(state, workload, end, seq)


def _evict(state: State, workload: Workload, reason: str, message: str, at_ms: UnixMs) -> None:
    """The common part of every eviction: set its condition, reset its checks, drop its wait."""
    workload.conditions = conditions.put(
        workload.conditions, conditions.EVICTED, "True", reason, message, at_ms, workload.generation
    )
    workload.checks = tuple(reset(check, conditions.rfc3339(at_ms)) for check in workload.checks)
    workload.stale_checks = workload.observed_checks
    workload.preemption_gates = closed(workload.preemption_gates, conditions.rfc3339(at_ms))
    if conditions.is_true(workload.conditions, conditions.BLOCKED_ON_PREEMPTION_GATES):
        workload.conditions = conditions.put(
            workload.conditions,
            conditions.BLOCKED_ON_PREEMPTION_GATES,
            "False",
            reason,
            message,
            at_ms,
            workload.generation,
        )
    unblock(state, workload)
    turnover.note_evicted(state, workload, at_ms)
    workload.unhealthy_nodes, workload.second_pass = (), None
    workload.parked = None
    workload.verdict = None
    workload.last_tried_flavors = ()


def _count(stats: tuple[EvictionStat, ...], reason: str, cause: str) -> tuple[EvictionStat, ...]:
    for stat in stats:
        if stat.reason == reason and stat.underlying_cause == cause:
            more = EvictionStat(reason=reason, underlying_cause=cause, count=stat.count + 1)
            return tuple(more if each is stat else each for each in stats)
    return (*stats, EvictionStat(reason=reason, underlying_cause=cause, count=1))


def _released(state: State, event: queueing.WorkloadReleased, commit: Commit, seq: Seq) -> None:
    found = moved(state, event, seq)
    if found is None:
        return
    workload, end = found
    at_ms = commit.time_ms
    had_quota = workload.admission is not None
    turnover.note_released(state, workload, at_ms)
    move(state, workload, end, seq)
    workload.admission, workload.followed, workload.outdated = None, False, False
    workload.cluster_queue = ""
    if event.cancelled:
        not_reserved(state, workload, event.reason, event.message, at_ms)
        follow(state, workload, at_ms)
        return
    if had_quota:
        workload.conditions = conditions.put(
            workload.conditions,
            conditions.REQUEUED,
            "True" if event.requeued else "False",
            event.reason,
            event.message,
            at_ms,
            workload.generation,
            anew=True,
        )
    reason = conditions.DEACTIVATED if not had_quota and not workload.spec.active else "PendingEvaluation"
    not_reserved(state, workload, reason, event.message, at_ms)
    if not workload.spec.active:
        fold_usage.drop(state, workload)
    follow(state, workload, at_ms)


def _held(state: State, event: queueing.WorkloadHeld, commit: Commit, seq: Seq) -> None:
    found = moved(state, event, seq)
    if found is None:
        return
    workload, end = found
    at_ms = commit.time_ms
    workload.checks = tuple(reset(check, conditions.rfc3339(at_ms)) for check in workload.checks)
    workload.stale_checks = workload.observed_checks
    workload.unhealthy_nodes, workload.second_pass = (), None
    workload.verdict, workload.last_tried_flavors = None, ()
    move(state, workload, end, seq)
    workload.admission, workload.followed, workload.outdated = None, False, False
    workload.cluster_queue = ""
    record = job_of(state, workload)
    if record is not None:
        record.started_for = ""
    not_reserved(state, workload, conditions.ON_HOLD, event.message, at_ms)
    fold_usage.drop(state, workload)
    follow(state, workload, at_ms)


def _requeued(state: State, event: queueing.WorkloadRequeued, commit: Commit, seq: Seq) -> None:
    if found := moved(state, event, seq):
        workload, _ = found
        workload.conditions = conditions.put(
            workload.conditions,
            conditions.REQUEUED,
            "True" if event.requeued else "False",
            event.reason,
            event.message,
            commit.time_ms,
            workload.generation,
        )
        workload.last_seq = seq


def _finished(state: State, event: queueing.WorkloadFinished, commit: Commit, seq: Seq) -> None:
    if found := moved(state, event, seq):
        _finish(state, *found, event.reason, event.message, commit.time_ms, seq)


def _replaced(state: State, event: decisions.WorkloadReplaced, commit: Commit, seq: Seq) -> None:
    successor = state.workloads.get(event.by)
    if successor is None or successor.uid != event.by_uid or successor.stage not in HOLDS_QUOTA:
        # The reservation that it was to end for was overtaken.
        state.overtaken += 1
    elif found := moved(state, event, seq):
        _finish(state, *found, SLICE_REPLACED, event.message, commit.time_ms, seq)


def _finish(state: State, workload: Workload, end: Stage, reason: str, message: str, at_ms: UnixMs, seq: Seq) -> None:
    if not conditions.is_true(workload.conditions, conditions.FINISHED):
        workload.conditions = conditions.put(
            workload.conditions, conditions.FINISHED, "True", reason, message, at_ms, workload.generation
        )
    unblock(state, workload)
    workload.parked, workload.verdict, workload.last_tried_flavors = None, None, ()
    workload.owner_gone, workload.second_pass = False, None
    turnover.note_finished(state, workload, at_ms)
    move(state, workload, end, seq)
    fold_usage.drop(state, workload)
    _unlist_queue(state, workload)


def _followed(state: State, event: queueing.WorkloadFollowed, commit: Commit, seq: Seq) -> None:
    found = moved(state, event, seq)
    if found is None:
        return
    workload, end = found
    at_ms, generation = commit.time_ms, workload.generation
    message = f"Quota reserved in ClusterQueue {event.cluster_queue}"
    reserve(state, workload, event, message, at_ms, end, seq)
    workload.followed, workload.admitted_at_ms = True, at_ms
    workload.conditions = conditions.put(
        workload.conditions,
        conditions.ADMITTED,
        "True",
        "Admitted",
        followed_message(event.variant),
        at_ms,
        generation,
    )
    workload.conditions = conditions.lifted(workload.conditions, (conditions.EVICTED,), at_ms, generation)
    workload.stage, workload.last_seq = end, seq
    follow(state, workload, at_ms)
    enter(state, workload)


def _gate_opened(state: State, event: queueing.PreemptionGateOpened, commit: Commit, seq: Seq) -> None:
    if found := moved(state, event, seq):
        workload, _ = found
        workload.preemption_gates = opened(workload.preemption_gates, event.gate, conditions.rfc3339(commit.time_ms))
        workload.last_seq = seq
        if workload.stage in PENDING - {Stage.NEW}:
            unblock(state, workload)
            move(state, workload, Stage.NEW, seq)
            workload.parked, workload.verdict = None, None


def _deadline_passed(state: State, event: queueing.DeadlinePassed, commit: Commit, seq: Seq) -> None:
    if found := moved(state, event, seq):
        workload, _ = found
        if event.deadline == "RequeueAt" and workload.requeue_state is not None:
            workload.requeue_state = msgspec.structs.replace(workload.requeue_state, requeue_at=None)
        if event.deadline == "SecondPass" and workload.second_pass is not None:
            workload.second_pass = msgspec.structs.replace(workload.second_pass, retry_at_ms=UnixMs(0))


HANDLERS = (
    EventHandlers[Never]()
    .on(facts.ConfigurationObserved, _configuration_observed)
    .on(facts.WorkloadObserved, _observed)
    .on(facts.WorkloadDeleted, _deleted)
    .on(facts.OwnerGone, _owner_gone)
    .on(queueing.WorkloadQueued, _queued)
    .on(queueing.WorkloadParked, _parked)
    .on(queueing.WorkloadWoken, _woken)
    .on(queueing.HeadsOffered, _heads_offered)
    .on(queueing.HeadsWithdrawn, _heads_withdrawn)
    .on(queueing.WorkloadEvicted, _evicted)
    .on(decisions.WorkloadPreempted, _preempted)
    .on(decisions.WorkloadMigrated, _migrated)
    .on(decisions.WorkloadReplaced, _replaced)
    .on(queueing.WorkloadReleased, _released)
    .on(queueing.WorkloadHeld, _held)
    .on(queueing.WorkloadRequeued, _requeued)
    .on(queueing.WorkloadFinished, _finished)
    .on(queueing.DeadlinePassed, _deadline_passed)
    .on(queueing.LocalQueuesSampled, fold_usage.sampled)
    .on(queueing.WorkloadFollowed, _followed)
    .on(queueing.PreemptionGateOpened, _gate_opened)
)
