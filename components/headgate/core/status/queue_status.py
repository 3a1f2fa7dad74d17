"""
Statuses of queues: what ClusterQueues and LocalQueues show of the state, as Kueue writes it.

`cluster_queue_status` and `local_queue_status` are the counts, usage and Active condition of the queues. The binder
writes them, the read side shows them, and since they follow from the state alone, they agree.
"""

from collections.abc import Iterable, Mapping

import msgspec

from headgate.core.kubernetes import conditions
from headgate.core.kubernetes.quantities import amount, canonical
from headgate.core.quota import admission_fair_sharing
from headgate.core.quota.activeness import ACTIVE, Activeness, cluster_queue_active, local_queue_active
from headgate.core.state.tables import HOLDS_QUOTA, PENDING, ClusterQueueRecord, FlavorResource, Stage, State, Workload
from headgate.core.status.server_side_apply import API_VERSION, Json
from headgate.core.workload.variants import NEVER_QUEUES
from headgate.events.ids import LocalQueueKey, WorkloadKey, split_key
from headgate.events.objects import ResourceGroup, ResourceQuota


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
