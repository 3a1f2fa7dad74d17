"""
Eviction: when a workload has to give up its place or its quota, and when it has done so.

A workload finishes with its job. It is evicted when it is deactivated, when an admission check is Retry or Rejected,
when its LocalQueue or ClusterQueue is drained, when its pods are not ready in time
(`headgate.core.workload.pods_ready`), or when its maximum execution time is over. It is released when its job has
stopped. Each function reads the state and answers for one workload, with Kueue's reasons and messages. The answer stays
the same until it has been folded.

A queue that is stopped or deleted cancels a reservation that is not yet an admission. As in Kueue this is no eviction,
because nothing has run.
"""

import json

import msgspec

from headgate.core.jobs.registry import integration_of
from headgate.core.kubernetes import conditions
from headgate.core.kubernetes.conditions import DEACTIVATED
from headgate.core.state.tables import JobRecord, Stage, State, Workload, local_queue_of
from headgate.core.status import foreign_conditions
from headgate.core.status.foreign_conditions import ADMISSION_REVOKED
from headgate.core.workload import concurrent_admission, owners, pods_ready, prebuilt, slices
from headgate.core.workload.injection import InjectionError, UpdateConflictError, injected
from headgate.core.workload.matching import are_pods_in_sync, is_in_sync
from headgate.core.workload.owners import job_of
from headgate.core.workload.pod_jobs import is_group, is_of_pods
from headgate.events.configuration import Configuration
from headgate.events.ids import UnixMs
from headgate.events.objects import CheckState, Condition, RequeueState
from headgate.events.queueing import (
    DeadlinePassed,
    QueueEvent,
    WorkloadEvicted,
    WorkloadFinished,
    WorkloadHeld,
    WorkloadReleased,
)

HOLD_MESSAGE = "StatefulSet scaled to zero; workload on hold"
_DEACTIVATED_MESSAGE = "The workload is deactivated"
NODE_FAILURES = "NodeFailures"
"""The reason of an eviction because of nodes that are lost, and not replaced."""
_REQUEUES = frozenset({"Preempted", NODE_FAILURES, ADMISSION_REVOKED})
"""Evictions after which a workload may queue again at once. After the others, the cause has to be over first."""


# --- finishing -----------------------------------------------------------------------------------------------------


def finish(state: State, workload: Workload) -> WorkloadFinished | None:
    """The end of a workload whose job is over or gone, or that another controller marked finished."""
    if workload.observed_finished is not None:
        observed = workload.observed_finished
        return _finished(workload, observed.reason, observed.message)
    end = slices.surplus_of(state, workload) or concurrent_admission.parent_end(state, workload)
    if end is not None:
        return _finished(workload, *end)
    record = job_of(state, workload)
    if record is not None:
        if record.job.finished == "Complete":
            return _finished(workload, "Succeeded", record.job.message)
        if record.job.finished == "Failed":
            return _finished(workload, "Failed", record.job.message)
        if record.job.prebuilt and _is_out_of_sync(state, workload, record):
            return _finished(workload, conditions.OUT_OF_SYNC, prebuilt.OUT_OF_SYNC_MESSAGE)
        return _failed_to_start(state, workload, record)
    if owners.is_gone(state, workload) and not workload.deleting and not is_group(owners.job_key(state, workload)):
        # The Workload of a pod group is deleted with the last of its owners (Kueue's finalizeWorkloads).
        return _finished(workload, "OwnerNotFound", "The workload's owner no longer exists")
    return None


def _is_out_of_sync(state: State, workload: Workload, record: JobRecord) -> bool:
    """Whether a workload is the one that its job names, and another one than it needs."""
    key = owners.job_key(state, workload)
    if key is None or prebuilt.key_of(key, record.job) != workload.key:
        return False
    if is_of_pods(key):
        return not are_pods_in_sync(key, record.job, record.job.pod_sets, workload)
    integration = integration_of(key)
    if integration.carries_injection(record.job) and record.job.suspended:
        return False
    return not is_in_sync(record, integration.observed_pod_sets(record.job), workload)


def _failed_to_start(state: State, workload: Workload, record: JobRecord) -> WorkloadFinished | None:
    """
    An admitted workload whose admission checks require changes with which its job cannot be started.

    Retrying does not help.
    """
    if workload.stage is not Stage.ADMITTED or record.started_for == workload.uid or not record.job.suspended:
        return None
    if not any(check.pod_set_updates for check in workload.checks):
        return None
    try:
        injected(state, workload)
    except UpdateConflictError as error:
        return _finished(workload, "FailedToStart", str(error))
    except InjectionError:
        return None
    return None


def _finished(workload: Workload, reason: str, message: str) -> WorkloadFinished:
    return WorkloadFinished(workload=workload.key, uid=workload.uid, reason=reason, message=message)


# --- deactivation --------------------------------------------------------------------------------------------------


def is_deactivated(workload: Workload) -> bool:
    """
    Whether a workload is deactivated: by its spec, or by an eviction that deactivates its spec.

    Until the API server has accepted `spec.active: false`, the generation in the eviction proves that nothing has
    reactivated it since.
    """
    if not workload.spec.active:
        return True
    evicted = conditions.find(workload.conditions, conditions.EVICTED)
    return (
        conditions.is_deactivation(evicted)
        and evicted is not None
        and (evicted.observed_generation or 0) == workload.generation
    )


def is_target(workload: Workload) -> bool:
    """
    Whether deactivation is requested, by a DeactivationTarget condition that is True.

    As in Kueue its spec is deactivated first. Its eviction follows from that, with the message of the condition.
    """
    target = workload.deactivation_target
    return target is not None and target.status == "True" and workload.stage is not Stage.FINISHED


def deactivation_message(workload: Workload) -> str:
    """Why a workload is deactivated, as the message of its eviction."""
    evicted = conditions.find(workload.conditions, conditions.EVICTED)
    if evicted is not None and conditions.is_deactivation(evicted):
        return evicted.message
    return _DEACTIVATED_MESSAGE


def _deactivated(workload: Workload, cause: str = "", due_to: str = "") -> WorkloadEvicted:
    message = f"{_DEACTIVATED_MESSAGE} due to {due_to}" if due_to else _DEACTIVATED_MESSAGE
    cleared = RequeueState() if workload.requeue_state is not None else None
    return _evicted(workload, DEACTIVATED, message, cause=cause, requeue_state=cleared)


def _evicted(
    workload: Workload, reason: str, message: str, *, cause: str = "", requeue_state: RequeueState | None = None
) -> WorkloadEvicted:
    return WorkloadEvicted(
        workload=workload.key,
        uid=workload.uid,
        reason=reason,
        message=message,
        underlying_cause=cause,
        requeue_state=requeue_state,
    )


# --- eviction ------------------------------------------------------------------------------------------------------


def hold_of(state: State, workload: Workload) -> JobRecord | None:
    """The job of a workload, where that is on hold: it is to have no pods, and its workload no quota."""
    record = job_of(state, workload)
    return record if record is not None and record.job.on_hold else None


def deadline_of(workload: Workload, configuration: Configuration) -> UnixMs | None:
    """When an admitted workload has to leave, or to be checked again: its first deadline. None without one."""
    slow = pods_ready.deadline(workload, configuration)
    due = (_execution_deadline(workload), slow.at_ms if slow is not None else None)
    return min((at_ms for at_ms in due if at_ms is not None), default=None)


def _execution_deadline(workload: Workload) -> UnixMs | None:
    """When an admitted workload reaches its maximum execution time, over all its admissions; None without a limit."""
    allowed_s = workload.spec.maximum_execution_time_seconds
    if workload.stage is not Stage.ADMITTED or allowed_s is None:
        return None
    return UnixMs(workload.admitted_at_ms + (allowed_s - (workload.past_execution_s or 0)) * 1000)


def eviction(state: State, workload: Workload, now_ms: UnixMs) -> list[QueueEvent]:
    """The eviction that is due now; None when the workload may stay. A pending one is evicted by deactivation only."""
    by_others = _by_others(state, workload)
    if by_others:
        return by_others
    if not workload.spec.active and not conditions.is_true(workload.conditions, conditions.EVICTED):
        # The author of the DeactivationTarget condition (`is_target`) may have given the requester and the reason.
        target = workload.deactivation_target
        return [_deactivated(workload, target.reason, target.message) if target else _deactivated(workload)]
    if workload.stage is not Stage.RESERVED and workload.stage is not Stage.ADMITTED:
        return []
    hold = hold_of(state, workload)
    if hold is not None:
        # What still runs of it keeps its quota until it has ended.
        is_over = hold.job.suspended and hold.job.active == 0
        return [WorkloadHeld(workload=workload.key, uid=workload.uid, message=HOLD_MESSAGE)] if is_over else []
    driven_out = _by_checks(workload) or _by_local_queue(state, workload) or _by_cluster_queue(state, workload)
    driven_out = driven_out or _by_lost_node(workload)
    if driven_out is not None:
        return [driven_out]
    return _by_slow_pods(state, workload, now_ms) or _by_execution_time(workload, now_ms)


def _by_others(state: State, workload: Workload) -> list[QueueEvent]:
    """
    What other controllers have written into a holder's conditions: that it is evicted, or that its quota is released.

    For work that another controller runs, its condition is proof that the work has stopped. A job that Headgate runs
    has to stop first: losing its admission is an eviction, after which it may queue again at once (Kueue stops such a
    job without an Evicted condition).
    """
    evicted, given_back = foreign_conditions.eviction(state, workload), foreign_conditions.given_back(state, workload)
    if workload.stage is Stage.RESERVED and given_back is not None and evicted is None:
        return [_given_back(workload, given_back, cancelled=True)]
    if owners.is_run_here(state, workload) and evicted is None:
        revoked = foreign_conditions.revocation(state, workload)
        return [_evicted(workload, ADMISSION_REVOKED, revoked.message)] if revoked is not None else []
    cause = evicted or (given_back if workload.stage is Stage.ADMITTED else None)
    if cause is None:
        return []
    said: list[QueueEvent] = [_evicted(workload, cause.reason, cause.message)]
    if given_back is not None and not owners.is_run_here(state, workload):
        said.append(_given_back(workload, cause))
    return said


def _given_back(workload: Workload, why: Condition, *, cancelled: bool = False) -> WorkloadReleased:
    return WorkloadReleased(
        workload=workload.key,
        uid=workload.uid,
        requeued=why.reason in _REQUEUES,
        reason=why.reason,
        message=why.message,
        cancelled=cancelled,
    )


def _by_slow_pods(state: State, workload: Workload, now_ms: UnixMs) -> list[QueueEvent]:
    slow, waiting = pods_ready.deadline(workload, state.configuration), state.configuration.wait_for_pods_ready
    if slow is None or waiting is None or slow.at_ms > now_ms:
        return []
    passed = DeadlinePassed(workload=workload.key, uid=workload.uid, deadline="PodsReady", at_ms=slow.at_ms)
    strategy = waiting.requeuing_strategy
    if pods_ready.is_limit_reached(workload, strategy):
        due_to = "exceeding the maximum number of re-queuing retries"
        return [passed, _deactivated(workload, cause=pods_ready.LIMIT_EXCEEDED, due_to=due_to)]
    evicted = _evicted(
        workload,
        pods_ready.TIMEOUT,
        f"Exceeded the PodsReady timeout {workload.key}",
        cause=slow.cause,
        requeue_state=pods_ready.requeue_state(workload, strategy, now_ms),
    )
    return [passed, evicted]


def _by_execution_time(workload: Workload, now_ms: UnixMs) -> list[QueueEvent]:
    deadline = _execution_deadline(workload)
    if deadline is None or deadline > now_ms:
        return []
    due_to = "exceeding the maximum execution time"
    return [
        DeadlinePassed(workload=workload.key, uid=workload.uid, deadline="MaximumExecutionTime", at_ms=deadline),
        _deactivated(workload, cause="MaximumExecutionTimeExceeded", due_to=due_to),
    ]


def _by_checks(workload: Workload) -> WorkloadEvicted | None:
    rejected = [check for check in workload.checks if check.state == "Rejected"]
    if rejected:
        return _deactivated(workload, cause="AdmissionCheck", due_to=_checks_message(rejected, "Rejected"))
    retry = [check for check in workload.checks if check.state == "Retry"]
    if not retry:
        return None
    message = f"Evicted due to {_checks_message(retry, 'Retry')}"
    return _evicted(workload, "AdmissionCheck", message, requeue_state=_backoff(workload, retry))


def _by_lost_node(workload: Workload) -> WorkloadEvicted | None:
    """The scheduler has found no node to replace one that the workload has lost."""
    failed = workload.second_pass
    return _evicted(workload, NODE_FAILURES, failed.message) if failed is not None and failed.evict else None


def _checks_message(checks: list[CheckState], state: str) -> str:
    named = [
        f"{json.dumps(check.name)} ({check.message})" if check.message else json.dumps(check.name)
        for check in sorted(checks, key=lambda check: check.name)
    ]
    return f"AdmissionCheck{'s' if len(checks) > 1 else ''} in {state} state: {'; '.join(named)}"


def _backoff(workload: Workload, checks: list[CheckState]) -> RequeueState | None:
    """The latest retry time of the admission checks; None without one. The count is that of slow pods alone."""
    until = [
        _transition_ms(check) + check.requeue_after_seconds * 1000
        for check in checks
        if check.requeue_after_seconds is not None
    ]
    if not until:
        return None
    # The API has whole seconds: round up, so that no workload returns early.
    text = conditions.rfc3339(UnixMs(max(until) + 999))
    return msgspec.structs.replace(workload.requeue_state or RequeueState(), requeue_at=text)


def _transition_ms(check: CheckState) -> int:
    try:
        return conditions.parse_rfc3339(check.last_transition_time)
    except ValueError:
        return 0


def _by_local_queue(state: State, workload: Workload) -> QueueEvent | None:
    name = workload.spec.queue_name
    queue = state.local_queues.get(local_queue_of(workload))
    policy = queue.spec.stop_policy if queue is not None else _missing(state)
    return _by_stop(workload, "LocalQueue", name, policy)


def _by_cluster_queue(state: State, workload: Workload) -> QueueEvent | None:
    queue = state.cluster_queues.get(workload.cluster_queue)
    policy = queue.spec.stop_policy if queue is not None else _missing(state)
    if queue is not None and queue.deleting:
        policy = "Missing"
    return _by_stop(workload, "ClusterQueue", workload.cluster_queue, policy)


def _missing(state: State) -> str:
    """The policy of a queue that is not in the state: until every resource was shown, it may still appear."""
    return "None" if state.relisting else "Missing"


def _by_stop(workload: Workload, kind: str, name: str, policy: str) -> QueueEvent | None:
    """The effect of a stop policy, or of a missing queue, on a holder of quota: eviction, or cancelled reservation."""
    if workload.stage is Stage.ADMITTED:
        return _evicted(workload, f"{kind}Stopped", f"The {kind} is stopped") if policy == "HoldAndDrain" else None
    if policy == "None":
        return None
    missing = policy == "Missing"
    return WorkloadReleased(
        workload=workload.key,
        uid=workload.uid,
        requeued=False,
        reason="Misconfigured" if missing else "Suspended",
        message=f"{kind} {name} is {'terminating or missing' if missing else 'stopped'}",
        cancelled=True,
    )


# --- release -------------------------------------------------------------------------------------------------------


def release(state: State, workload: Workload) -> WorkloadReleased | None:
    """
    Release the quota of an evicted workload, once its job has stopped; None while the job may still have pods.

    `started_for` means that the ungater has resumed the job and the job was not yet observed suspended again. A Job
    that is missing from the state may run: nothing is released before it is shown, or proved deleted. For an owner that
    Headgate does not run, the owner's QuotaReserved=False decides.
    """
    if concurrent_admission.waits_for_parent(state, workload) or owners.unknown_job(state, workload) is not None:
        return None
    record = job_of(state, workload)
    if record is not None:
        job = record.job
        if not job.suspended or job.active > 0 or record.started_for == workload.uid:
            return None
    elif _is_held_by_others(state, workload) and foreign_conditions.given_back(state, workload) is None:
        return None
    return released(workload)


def _is_held_by_others(state: State, workload: Workload) -> bool:
    return workload.admission is not None and not workload.followed and not owners.is_run_here(state, workload)


def released(workload: Workload) -> WorkloadReleased:
    """
    Release the quota of an evicted workload, with the message of its eviction.

    The caller has checked that its work is over.
    """
    evicted = conditions.find(workload.conditions, conditions.EVICTED)
    reason, message = (evicted.reason, evicted.message) if evicted is not None else (DEACTIVATED, _DEACTIVATED_MESSAGE)
    return WorkloadReleased(
        workload=workload.key, uid=workload.uid, requeued=reason in _REQUEUES, reason=reason, message=message
    )
