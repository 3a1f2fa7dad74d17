"""
Leaving: when a workload has to give up its place or its quota, and when it has.

A workload finishes with its job. It is evicted when it is deactivated, when an admission check says Retry or
Rejected, when its LocalQueue or ClusterQueue is drained, when its maximum execution time is over; it is released when
its job has stopped. Each function looks at the state and answers for one workload, with Kueue's reasons and messages;
asked again it gives the same until the answer has been folded.

A stop policy cancels a reservation that is not yet an admission, as Kueue does; here that is an eviction too,
released at once since the job has never run.
"""

import json

import msgspec

from headgate.core import conditions
from headgate.core.conditions import DEACTIVATED
from headgate.core.places import local_queue_of
from headgate.core.state import JobRecord, Stage, State, Workload
from headgate.events.ids import JobKey, UnixMs, split_key
from headgate.events.objects import CheckState, RequeueState
from headgate.events.queueing import DeadlinePassed, QueueEvent, WorkloadEvicted, WorkloadFinished, WorkloadReleased

JOB_UID = "kueue.x-k8s.io/job-uid"
"""The label that names the job a workload was made for, also when the owner reference is gone."""

_DEACTIVATED_MESSAGE = "The workload is deactivated"
_REQUEUES = frozenset({"Preempted", "NodeFailures"})
"""Evictions after which a workload may queue again at once; the others wait for what ended them to be over."""


def job_of(state: State, workload: Workload) -> JobRecord | None:
    """The Job that owns a workload, when the state has it."""
    owner = workload.owner
    if owner is None or owner.kind != "Job":
        return None
    record = state.jobs.get(JobKey(f"{split_key(workload.key)[0]}/{owner.name}"))
    return record if record is not None and record.job.uid == owner.uid else None


# --- finishing -----------------------------------------------------------------------------------------------------


def finish(state: State, workload: Workload) -> WorkloadFinished | None:
    """The end of a workload whose job is over or gone, or that was marked finished by others."""
    if workload.observed_finished is not None:
        observed = workload.observed_finished
        return _finished(workload, observed.reason, observed.message)
    record = job_of(state, workload)
    if record is not None:
        if record.job.finished == "Complete":
            return _finished(workload, "Succeeded", "Job finished successfully")
        if record.job.finished == "Failed":
            return _finished(workload, "Failed", record.job.message)
        return None
    if (
        workload.labels.get(JOB_UID)
        and not workload.deleting
        and (workload.owner is None or workload.owner.kind == "Job")
    ):
        return _finished(workload, "OwnerNotFound", "The workload's owner no longer exists")
    return None


def _finished(workload: Workload, reason: str, message: str) -> WorkloadFinished:
    return WorkloadFinished(workload=workload.key, uid=workload.uid, reason=reason, message=message)


# --- deactivation --------------------------------------------------------------------------------------------------


def is_deactivated(workload: Workload) -> bool:
    """
    Whether a workload is switched off: by its spec, or by an eviction that switches its spec off.

    Until the API server has taken `spec.active: false`, the eviction's generation tells that nobody has switched it
    on since.
    """
    if not workload.spec.active:
        return True
    evicted = conditions.find(workload.conditions, conditions.EVICTED)
    return (
        conditions.is_deactivation(evicted)
        and evicted is not None
        and (evicted.observed_generation or 0) == workload.generation
    )


def deactivation_message(workload: Workload) -> str:
    """Why a workload is switched off, in the words of its eviction."""
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


def deadline_of(workload: Workload) -> UnixMs | None:
    """When an admitted workload has run for as long as it may, all its admissions together; None: for ever."""
    allowed_s = workload.spec.maximum_execution_time_seconds
    if workload.stage is not Stage.ADMITTED or allowed_s is None:
        return None
    return UnixMs(workload.admitted_at_ms + (allowed_s - (workload.past_execution_s or 0)) * 1000)


def eviction(state: State, workload: Workload, now_ms: UnixMs) -> list[QueueEvent]:
    """What drives a workload out now; nothing when it may stay. A pending one only leaves by deactivation."""
    if not workload.spec.active and not conditions.is_true(workload.conditions, conditions.EVICTED):
        return [_deactivated(workload)]
    if workload.stage is not Stage.RESERVED and workload.stage is not Stage.ADMITTED:
        return []
    driven_out = _by_checks(workload) or _by_local_queue(state, workload) or _by_cluster_queue(state, workload)
    if driven_out is not None:
        return [driven_out]
    deadline = deadline_of(workload)
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


def _checks_message(checks: list[CheckState], state: str) -> str:
    named = [
        f"{json.dumps(check.name)} ({check.message})" if check.message else json.dumps(check.name)
        for check in sorted(checks, key=lambda check: check.name)
    ]
    return f"AdmissionCheck{'s' if len(checks) > 1 else ''} in {state} state: {'; '.join(named)}"


def _backoff(workload: Workload, checks: list[CheckState]) -> RequeueState | None:
    """The latest time that the checks ask to wait for; None when none asks. The count is that of slow pods alone."""
    until = [
        _transition_ms(check) + check.requeue_after_seconds * 1000
        for check in checks
        if check.requeue_after_seconds is not None
    ]
    if not until:
        return None
    # The API counts whole seconds: round up, so that nobody comes back early.
    text = conditions.rfc3339(UnixMs(max(until) + 999))
    return msgspec.structs.replace(workload.requeue_state or RequeueState(), requeue_at=text)


def _transition_ms(check: CheckState) -> int:
    try:
        return conditions.parse_rfc3339(check.last_transition_time)
    except ValueError:
        return 0


def _by_local_queue(state: State, workload: Workload) -> WorkloadEvicted | None:
    name = workload.spec.queue_name
    queue = state.local_queues.get(local_queue_of(workload))
    policy = queue.spec.stop_policy if queue is not None else "Missing"
    return _by_stop(workload, "LocalQueue", name, policy)


def _by_cluster_queue(state: State, workload: Workload) -> WorkloadEvicted | None:
    queue = state.cluster_queues.get(workload.cluster_queue)
    policy = queue.spec.stop_policy if queue is not None and not queue.deleting else "Missing"
    return _by_stop(workload, "ClusterQueue", workload.cluster_queue, policy)


def _by_stop(workload: Workload, kind: str, name: str, policy: str) -> WorkloadEvicted | None:
    if policy == "HoldAndDrain":
        return _evicted(workload, f"{kind}Stopped", f"The {kind} is stopped")
    if workload.stage is Stage.ADMITTED or policy == "None":
        return None
    what = "terminating or missing" if policy == "Missing" else "stopped"
    return _evicted(workload, f"{kind}Stopped", f"{kind} {name} is {what}")


# --- release -------------------------------------------------------------------------------------------------------


def release(state: State, workload: Workload) -> WorkloadReleased | None:
    """
    The quota of an evicted workload back, once its job has stopped; None while the job may still have pods.

    `started_for` says that the ungater has resumed the job and nobody has yet seen it suspended again.
    """
    record = job_of(state, workload)
    if record is not None:
        job = record.job
        if not job.suspended or job.active > 0 or record.started_for == workload.uid:
            return None
    evicted = conditions.find(workload.conditions, conditions.EVICTED)
    reason, message = (evicted.reason, evicted.message) if evicted is not None else (DEACTIVATED, _DEACTIVATED_MESSAGE)
    return WorkloadReleased(
        workload=workload.key, uid=workload.uid, requeued=reason in _REQUEUES, reason=reason, message=message
    )
