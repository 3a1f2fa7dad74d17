"""
Statuses: what Kueue's objects show of the state, as Kueue writes it.

`workload_status` is the whole status of a Workload, derived from its record; `status_patch` the server-side apply that
writes it, `status_digest` its identity, so that nothing is written twice. `cluster_queue_status` and
`local_queue_status` are the counts, usage and Active condition of the queues. The binder writes them, the read side
shows them, and since they follow from the state alone, they agree.

The digest excludes the states of admission checks: their controllers write these, and an echo of such a write is no
reason to write. When they are reset, at an eviction, the Evicted condition changes the digest.

Fields of other owners are preserved. Only those conditions are written that Kueue's admission writes; and the states of
admission checks are forced only where an eviction resets them (`forces`), so that an unseen answer of a check's
controller causes a conflict instead of being overwritten. Where a reservation comes before the reset was written, the
binder separates answers to the former one by reading the object (`answered_checks`).
"""
# Over 400 lines: one function for each part of a status, and the paths and patches that write it.

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from headgate.core.config import feature_gates
from headgate.core.jobs.registry import integration_of
from headgate.core.kubernetes import conditions
from headgate.core.kubernetes.quantities import amount, canonical
from headgate.core.quota import admission_fair_sharing
from headgate.core.quota.activeness import ACTIVE, Activeness, cluster_queue_active, local_queue_active
from headgate.core.state.tables import HOLDS_QUOTA, PENDING, ClusterQueueRecord, FlavorResource, Stage, State, Workload
from headgate.core.workload.owners import job_key, job_of
from headgate.core.workload.variants import NEVER_QUEUES
from headgate.events.commit import digest
from headgate.events.ids import LocalQueueKey, Uid, WorkloadKey, split_key
from headgate.events.objects import (
    CheckState,
    Condition,
    ReclaimablePod,
    RequeueState,
    ResourceGroup,
    ResourceQuota,
    SchedulingStats,
    WorkloadStatus,
)

FIELD_MANAGER = "headgate"
"""The field manager in `metadata.managedFields` for the statuses of queues, finalizers, Jobs."""

ADMISSION_MANAGER = "kueue-admission"
"""
The field manager of Workload statuses: the one that Kueue uses.

Server-side apply removes a field only if its manager is the only one that has written it. Under Kueue's name a
reservation of Kueue's can be withdrawn in one write, and Kueue could continue with ours.
"""

API_VERSION = "kueue.x-k8s.io/v1beta2"

Json = dict[str, Any]

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
    }
)
"""The conditions that are written to Workloads: Kueue's admissionManagedConditions. PodsReady is ours for Jobs only."""

REMOVABLE = ("admission", "requeueState", "resourceRequests", "accumulatedPastExecutionTimeSeconds")
"""
The fields of a Workload's status that are removed, and not only emptied.

Where another manager has written one, it stays, and has to be removed by name.
"""


def apply_query(*, force: bool, manager: str = FIELD_MANAGER) -> dict[str, str]:
    """
    The query of a server-side apply. With `force` it takes over fields of other managers.

    Field validation is off because its warnings are not read; without it a write costs the API server a tenth less.
    """
    query = {"fieldManager": manager, "fieldValidation": "Ignore"}
    return query | {"force": "true"} if force else query


# --- Workloads -----------------------------------------------------------------------------------------------------


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
    job = job_key(workload)
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
        )
    )


def is_settled(state: State, workload: Workload) -> bool:
    """Whether the API server has every write of Headgate about a workload."""
    status, applied = workload_status(state, workload), applied_digest(workload)
    return (is_empty(status) and not applied) or applied == status_digest(status)


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
    return status_digest(shown) in (applied, status_digest(workload_status(state, workload)))


def status_digest(status: WorkloadStatus) -> str:
    """The identity of a written status: equal for statuses between which no write is needed."""
    names = tuple(CheckState(name=check.name, state="") for check in status.admission_checks)
    shown = msgspec.structs.replace(status, admission_checks=names, conditions=_written(status))
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


class _Checks(msgspec.Struct, frozen=True, rename="camel"):
    admission_checks: tuple[CheckState, ...] = ()


class _Checked(msgspec.Struct, frozen=True):
    """The part of an answer that has the admission checks of a Workload."""

    status: _Checks = _Checks()


_checks_decoder = msgspec.json.Decoder(_Checked)


def answered_checks(answer: bytes) -> tuple[CheckState, ...]:
    """The admission checks of the Workload in an answer; none when they cannot be read."""
    try:
        return _checks_decoder.decode(answer).status.admission_checks
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ()


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


# --- queues --------------------------------------------------------------------------------------------------------


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """
    The workloads of one queue, and what they hold by flavor-resource (in `amounts` units).

    `reserved` counts all that hold quota, `admitted` those of them whose Admitted condition is True.
    """

    pending: int = 0
    reserving: int = 0
    admitted: int = 0
    reserved_usage: dict[FlavorResource, int] = {}
    admitted_usage: dict[FlavorResource, int] = {}


_IN_NO_QUEUE = frozenset({NEVER_QUEUES, conditions.DEACTIVATED})
"""Reasons of parked workloads that are in no pending queue of Kueue's, though they may still name their last one."""


def is_pending_in_queue(workload: Workload) -> bool:
    """Whether a workload counts among the pending ones of its ClusterQueue and LocalQueue."""
    if workload.stage not in PENDING or workload.stage is Stage.NEW or not workload.cluster_queue:
        return False
    return workload.parked is None or workload.parked.reason not in _IN_NO_QUEUE


def count_holders(state: State, holders: Iterable[WorkloadKey], pending: int) -> Counts:
    """The counts of a queue whose quota holders and number of pending workloads are known."""
    reserving = admitted = 0
    reserved_usage: dict[FlavorResource, int] = {}
    admitted_usage: dict[FlavorResource, int] = {}
    for key in holders:
        workload = state.workloads[key]
        usage = state.index.usage_of.get(key, {})
        reserving += 1
        _add(reserved_usage, usage)
        if conditions.is_true(workload.conditions, conditions.ADMITTED):
            admitted += 1
            _add(admitted_usage, usage)
    return Counts(
        pending=pending,
        reserving=reserving,
        admitted=admitted,
        reserved_usage=reserved_usage,
        admitted_usage=admitted_usage,
    )


def _add(total: dict[FlavorResource, int], usage: Mapping[FlavorResource, int]) -> None:
    for flavor_resource, value in usage.items():
        total[flavor_resource] = total.get(flavor_resource, 0) + value


def count_cluster_queue(state: State, name: str) -> Counts:
    """The counts of a ClusterQueue. Costs a pass over the unfinished workloads of the LocalQueues."""
    pending = sum(
        1
        for members in state.index.in_local_queue.values()
        for key in members
        if is_pending_in_queue(workload := state.workloads[key]) and workload.cluster_queue == name
    )
    return count_holders(state, state.index.holders.get(name, ()), pending)


def count_local_queue(state: State, key: LocalQueueKey) -> Counts:
    """The counts of a LocalQueue. Costs a pass over its unfinished workloads."""
    members = [state.workloads[member] for member in state.index.in_local_queue.get(key, ())]
    holders = [workload.key for workload in members if holds_in_queue(workload)]
    return count_holders(state, holders, sum(1 for workload in members if is_pending_in_queue(workload)))


def holds_in_queue(workload: Workload) -> bool:
    """Whether a workload counts among those with a reservation."""
    return workload.stage in HOLDS_QUOTA and workload.admission is not None and not workload.followed


def cluster_queue_status(state: State, name: str, counts: Counts | None = None) -> Json:
    """
    A ClusterQueue's status, without the transition time of its condition. `counts` when the caller has them.

    Raises KeyError when there is no such ClusterQueue.
    """
    record = state.cluster_queues[name]
    counts = count_cluster_queue(state, name) if counts is None else counts
    return {
        "conditions": [_active(cluster_queue_active(state, name), record.generation)],
        "pendingWorkloads": counts.pending,
        "reservingWorkloads": counts.reserving,
        "admittedWorkloads": counts.admitted,
        "flavorsReservation": _cluster_queue_usage(record, counts.reserved_usage),
        "flavorsUsage": _cluster_queue_usage(record, counts.admitted_usage),
    }


def local_queue_status(state: State, key: LocalQueueKey, counts: Counts | None = None) -> Json:
    """
    A LocalQueue's status, without the transition time of its condition. `counts` when the caller has them.

    Flavors are those of its ClusterQueue; a stopped LocalQueue shows nothing pending. Raises KeyError when there is no
    such LocalQueue.
    """
    record = state.local_queues[key]
    counts = count_local_queue(state, key) if counts is None else counts
    queue = state.cluster_queues.get(record.spec.cluster_queue)
    groups = queue.spec.resource_groups if queue is not None else ()
    status: Json = {
        "conditions": [_active(local_queue_active(state, key), record.generation)],
        "pendingWorkloads": counts.pending if record.spec.stop_policy == "None" else 0,
        "reservingWorkloads": counts.reserving,
        "admittedWorkloads": counts.admitted,
        "flavorsReservation": _local_queue_usage(groups, counts.reserved_usage),
        "flavorsUsage": _local_queue_usage(groups, counts.admitted_usage),
    }
    used = state.local_queue_usage.get(key)
    if used is not None:
        # Kueue leaves a LocalQueue's weighted share at 0: it has a share by usage only.
        status["fairSharing"] = {
            "weightedShare": 0,
            "admissionFairSharingStatus": {
                "consumedResources": admission_fair_sharing.shown(used.consumed.items()),
                "lastUpdate": conditions.rfc3339(used.last_update_ms),
            },
        }
    return status


def queue_patch(kind: str, key: str, uid: str, status: Json) -> Json:
    """The body of the server-side apply that writes the status of a ClusterQueue, LocalQueue or Cohort (no uid)."""
    namespace, name = split_key(key)
    metadata = {"name": name, "uid": uid} if uid else {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "status": status}


def queue_status_path(kind: str, key: str) -> str:
    """The path of the status subresource of a ClusterQueue, LocalQueue or Cohort."""
    namespace, name = split_key(key)
    where = f"namespaces/{namespace}/localqueues" if kind == "LocalQueue" else f"{kind.lower()}s"
    return f"/apis/{API_VERSION}/{where}/{name}/status"


def _active(activeness: Activeness, generation: int) -> Json:
    condition: Json = {
        "type": ACTIVE,
        "status": "True" if activeness.active else "False",
        "reason": activeness.reason,
        "message": activeness.message,
    }
    if generation:
        condition["observedGeneration"] = generation
    return condition


def _cluster_queue_usage(record: ClusterQueueRecord, usage: Mapping[FlavorResource, int]) -> list[Json]:
    """Usage by flavor in the order of the spec; borrowed is what exceeds the nominal quota, in a cohort."""
    in_cohort = record.spec.cohort_name != ""
    result = []
    for flavor, quotas in _quotas_by_flavor(record.spec.resource_groups).items():
        resources = []
        for name, quota in sorted(quotas.items()):
            used = usage.get((flavor, name), 0)
            above = max(0, used - amount(name, quota.nominal_quota)) if in_cohort else 0
            resources.append({"name": name, "total": canonical(name, used), "borrowed": canonical(name, above)})
        result.append({"name": flavor, "resources": resources})
    return result


def _local_queue_usage(groups: tuple[ResourceGroup, ...], usage: Mapping[FlavorResource, int]) -> list[Json]:
    return [
        {
            "name": flavor,
            "resources": [
                {"name": name, "total": canonical(name, usage.get((flavor, name), 0))} for name in sorted(quotas)
            ],
        }
        for flavor, quotas in _quotas_by_flavor(groups).items()
    ]


def _quotas_by_flavor(groups: tuple[ResourceGroup, ...]) -> dict[str, dict[str, ResourceQuota]]:
    """
    Quotas by flavor and resource, in manifest order, the last one of a pair as in `quota.quotas_of`.

    A schema permits a flavor in several groups; a status with two entries of one name is refused.
    """
    by_flavor: dict[str, dict[str, ResourceQuota]] = {}
    for group in groups:
        for flavor in group.flavors:
            by_flavor.setdefault(flavor.name, {}).update((quota.name, quota) for quota in flavor.resources)
    return by_flavor
