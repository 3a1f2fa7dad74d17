"""
Statuses of Workloads: what they show of the state, as Kueue writes it.

`workload_status` is the whole status of a Workload, derived from its record; `status_patch` the server-side apply that
writes it, `status_digest` its identity, so that nothing is written twice.

The digest excludes the states of admission checks: their controllers write these, and an echo of such a write is no
reason to write. When they are reset, at an eviction, the Evicted condition changes the digest. Of the checks that
Headgate decides itself, those for ProvisioningRequests, it has the states.

Fields of other owners are preserved. Only those conditions are written that Kueue's admission writes; and the states of
admission checks are forced only where an eviction resets them (`forces`), so that an unseen answer of a check's
controller causes a conflict instead of being overwritten. Where a reservation comes before the reset was written, the
binder separates answers to the former one by reading the object (`answered_checks`).
"""

from collections.abc import Iterable

import msgspec

from headgate.core.config import feature_gates
from headgate.core.jobs.registry import integration_of
from headgate.core.kubernetes import conditions
from headgate.core.state.tables import Stage, State, Workload
from headgate.core.status.server_side_apply import API_VERSION, Json
from headgate.core.workload.owners import job_key, job_of
from headgate.events.commit import digest
from headgate.events.ids import Uid, WorkloadKey, split_key
from headgate.events.objects import (
    CheckState,
    Condition,
    ReclaimablePod,
    RequeueState,
    SchedulingStats,
    UnhealthyNode,
    WorkloadStatus,
)

ADMISSION_MANAGER = "kueue-admission"
"""
The field manager of Workload statuses: the one that Kueue uses.

Server-side apply removes a field only if its manager is the only one that has written it. Under Kueue's name a
reservation of Kueue's can be withdrawn in one write, and Kueue could continue with ours.
"""

WRITTEN_CONDITIONS = frozenset(
    {
        conditions.QUOTA_RESERVED,
        conditions.BLOCKED_ON_PREEMPTION_GATES,
        conditions.EVICTED,
        conditions.ADMITTED,
        conditions.PREEMPTED,
        conditions.REQUEUED,
        conditions.DEACTIVATION_TARGET,
        conditions.FINISHED,
        conditions.PODS_READY,
        conditions.WAITING_FOR_REPLACEMENT,
    }
)
"""The conditions that are written to Workloads: Kueue's admissionManagedConditions. PodsReady is ours for Jobs only."""

REMOVABLE = ("admission", "requeueState", "resourceRequests", "accumulatedPastExecutionTimeSeconds", "unhealthyNodes")
"""
The fields of a Workload's status that are removed, and not only emptied.

Where another manager has written one, it stays, and has to be removed by name.
"""


def workload_status(state: State, workload: Workload) -> WorkloadStatus:
    """
    The complete status of a Workload according to the state.

    Resource requests are shown only without a reservation; with one, its assignments have them. An empty requeue state
    is omitted: an apply that leaves an object empty sets it to null.
    """
    stats = SchedulingStats(evictions=workload.evictions) if workload.evictions else None
    return WorkloadStatus(
        conditions=workload.conditions,
        admission=workload.admission,
        admission_checks=workload.checks,
        requeue_state=workload.requeue_state if workload.requeue_state != _NOT_REQUEUED else None,
        reclaimable_pods=_reclaimable_pods(state, workload),
        resource_requests=workload.resource_requests if workload.admission is None else (),
        scheduling_stats=stats,
        accumulated_past_execution_time_seconds=workload.past_execution_s,
        preemption_gates=workload.preemption_gates,
        unhealthy_nodes=tuple(UnhealthyNode(name=name) for name in workload.unhealthy_nodes),
    )


def _reclaimable_pods(state: State, workload: Workload) -> tuple[ReclaimablePod, ...]:
    """
    The reclaimable pods that others have reported, and those of the workload's Job (gate ReclaimablePods).

    A count never falls (Kueue's rule while quota is reserved), since the quota may be in use elsewhere already. A
    finished Job releases all of it anyway.
    """
    if not workload.spec.pod_sets or not feature_gates.enabled(state.configuration, feature_gates.RECLAIMABLE_PODS):
        return workload.reclaimable_pods
    record = job_of(state, workload)
    if record is None or record.job.finished is not None:
        return workload.reclaimable_pods
    job = job_key(state, workload)
    assert job is not None
    reclaimable = integration_of(job).reclaimable(record.job)
    counts = {pods.name: pods.count for pods in workload.reclaimable_pods}
    for pod_set, its_own in zip(workload.spec.pod_sets, reclaimable.values(), strict=False):
        # With partial admission a Job may have more parallelism than was admitted: never more than the pod set has.
        done = min(max(its_own, counts.get(pod_set.name, 0)), pod_set.count)
        if done:
            counts[pod_set.name] = done
    return tuple(ReclaimablePod(name=name, count=count) for name, count in counts.items())


def is_empty(status: WorkloadStatus) -> bool:
    """Whether there is nothing to write: a workload that was never evaluated has no status."""
    return status == _NOTHING


def without_reservation(status: WorkloadStatus) -> WorkloadStatus:
    """
    A status without its reservation: it has to be written between two different reservations.

    The API server does not let `status.admission` change, only be removed (Kueue's webhook). When a workload was
    released and reserved again before its status was written, this is the missing intermediate status.
    """
    both = (conditions.QUOTA_RESERVED, conditions.ADMITTED)
    kept = tuple(_taken_back(each) if each.type in both else each for each in status.conditions)
    return msgspec.structs.replace(status, admission=None, conditions=kept)


def _taken_back(condition: Condition) -> Condition:
    if condition.type == conditions.ADMITTED:
        gone = {"reason": "NoReservation", "message": conditions.NO_RESERVATION}
        return msgspec.structs.replace(condition, status="False", **gone)
    message = "The quota reservation before the next one was released"
    return msgspec.structs.replace(condition, status="False", reason="PendingEvaluation", message=message)


_NOTHING = WorkloadStatus()
_NOT_REQUEUED = RequeueState()
_NO_STATS = SchedulingStats()
_encoder = msgspec.json.Encoder(order="deterministic")


def applied_digest(workload: Workload) -> str:
    """
    The digest of the status that the API server has of a workload; "" when it has none.

    One that was taken over counts as written by this version.
    """
    taken = workload.taken_over
    if taken is None:
        return workload.applied
    return status_digest(
        msgspec.structs.replace(
            taken,
            requeue_state=taken.requeue_state if taken.requeue_state != _NOT_REQUEUED else None,
            resource_requests=taken.resource_requests if taken.admission is None else (),
            scheduling_stats=taken.scheduling_stats if taken.scheduling_stats != _NO_STATS else None,
        ),
        workload.decided_checks,
    )


def is_settled(state: State, workload: Workload) -> bool:
    """Whether no write of Headgate about a workload is pending: the API server has it, or has refused it."""
    status, applied = workload_status(state, workload), applied_digest(workload)
    return (is_empty(status) and not applied) or digest_of(workload, status) in (applied, *workload.refused)


def is_known(state: State, workload: Workload, shown: WorkloadStatus | None) -> bool:
    """
    After a restore: whether the shown status of an object is one of the log's.

    It is when it equals what was last written, or is still to be written, according to the log: then nothing happened
    after the backup. A finished workload stays finished, whatever is shown.
    """
    applied = applied_digest(workload)
    if workload.stage is Stage.FINISHED:
        return True
    if shown is None or is_empty(shown):
        return applied == ""
    return digest_of(workload, shown) in (applied, digest_of(workload, workload_status(state, workload)))


def digest_of(workload: Workload, status: WorkloadStatus) -> str:
    """The identity of a status of a workload: with the checks that Headgate has decided itself."""
    return status_digest(status, workload.decided_checks)


def status_digest(status: WorkloadStatus, decided: tuple[str, ...] = ()) -> str:
    """
    The identity of a written status: equal for statuses between which no write is needed.

    Of the checks that are not `decided` by Headgate, only the names count.
    """
    checks = tuple(
        check if check.name in decided else CheckState(name=check.name, state="") for check in status.admission_checks
    )
    shown = msgspec.structs.replace(status, admission_checks=checks, conditions=_written(status))
    return digest(_encoder.encode(shown))


def _written(status: WorkloadStatus) -> tuple[Condition, ...]:
    if all(condition.type in WRITTEN_CONDITIONS for condition in status.conditions):
        return status.conditions
    return tuple(condition for condition in status.conditions if condition.type in WRITTEN_CONDITIONS)


def forces(status: WorkloadStatus) -> bool:
    """
    Whether a status may take over fields of other managers.

    Not while admission checks are shown that their controllers may have answered meanwhile; an eviction resets them.
    """
    return not status.admission_checks or conditions.is_true(status.conditions, conditions.EVICTED)


class _Left(msgspec.Struct, frozen=True):
    """The part of an answer that has the status, undecoded."""

    status: dict[str, msgspec.Raw] = {}


_left_decoder = msgspec.json.Decoder(_Left)


def left_behind(written: Json, answer: bytes) -> list[str]:
    """
    The fields that a written status lacks and the API server's answer still has: another manager's, to be removed.

    An unreadable answer counts as without such fields.
    """
    suspects = [field for field in REMOVABLE if field not in written and field.encode() in answer]
    if not suspects:
        return []
    try:
        status = _left_decoder.decode(answer).status
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []
    return [field for field in suspects if bytes(status.get(field, b"null")) not in (b"null", b"[]", b"{}")]


class _Versioned(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Answer(msgspec.Struct, frozen=True):
    """The part of an answer that has the version of the object."""

    metadata: _Versioned = _Versioned()


_answer_decoder = msgspec.json.Decoder(_Answer)


def version_in(answer: bytes) -> int:
    """The resource version of the object in an answer; 0 when it cannot be read, or is no number."""
    try:
        version = _answer_decoder.decode(answer).metadata.resource_version
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return 0
    return int(version) if version.isdecimal() else 0


class _OthersFields(msgspec.Struct, frozen=True, rename="camel"):
    admission_checks: tuple[CheckState, ...] = ()
    conditions: tuple[Condition, ...] = ()


class _OthersPart(msgspec.Struct, frozen=True):
    """The part of an answer that other controllers may have written."""

    status: _OthersFields = _OthersFields()


_others_decoder = msgspec.json.Decoder(_OthersPart)


def _others_fields(answer: bytes) -> _OthersFields:
    try:
        return _others_decoder.decode(answer).status
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _OthersFields()


def answered_checks(answer: bytes) -> tuple[CheckState, ...]:
    """The admission checks of the Workload in an answer; none when they cannot be read."""
    return _others_fields(answer).admission_checks


def has_released(answer: bytes) -> bool:
    """Whether the Workload in an answer shows QuotaReserved=False; not when it cannot be read."""
    reserved = conditions.find(_others_fields(answer).conditions, conditions.QUOTA_RESERVED)
    return reserved is not None and reserved.status == "False"


def removal_patch(uid: Uid, fields: Iterable[str]) -> Json:
    """The merge patch that removes fields of a Workload's status, regardless of manager."""
    return {"metadata": {"uid": uid}, "status": dict.fromkeys(fields)}


def status_json(status: WorkloadStatus) -> Json:
    """A Workload's status as JSON, with the fields that the CRD requires even when they are empty."""
    body: Json = msgspec.to_builtins(status)
    if "conditions" in body:
        body["conditions"] = [_condition(condition) for condition in status.conditions]
    for check in body.get("admissionChecks", ()):
        check.setdefault("message", "")
        check.setdefault("lastTransitionTime", "1970-01-01T00:00:00Z")
    for assignment in body.get("admission", {}).get("podSetAssignments", ()):
        assignment.setdefault("name", "main")
        assignment.setdefault("count", 0)
    for stat in body.get("schedulingStats", {}).get("evictions", ()):
        stat.setdefault("underlyingCause", "")
        stat.setdefault("count", 0)
    return body


def _condition(condition: Condition) -> Json:
    body: Json = msgspec.to_builtins(condition)
    return {"reason": "", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z", **body}


def workload_path(key: WorkloadKey) -> str:
    """The path of a Workload."""
    namespace, name = split_key(key)
    return f"/apis/{API_VERSION}/namespaces/{namespace}/workloads/{name}"


def status_path(key: WorkloadKey) -> str:
    """The path of a Workload's status subresource."""
    return f"{workload_path(key)}/status"


def status_patch(workload: Workload, status: WorkloadStatus) -> Json:
    """
    The body of the server-side apply that writes a Workload's status.

    Its uid prevents a write to a Workload that was created again under the same name: the API server answers 409.
    """
    namespace, name = split_key(workload.key)
    return {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {"namespace": namespace, "name": name, "uid": workload.uid},
        "status": status_json(msgspec.structs.replace(status, conditions=_written(status))),
    }
