"""
The administrators' objects that control queueing, as facts.

These are ResourceFlavors, Topologies, Cohorts, ClusterQueues, LocalQueues, AdmissionChecks and WorkloadPriorityClasses.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from headgate.core.api.admission_checks import PROVISIONING
from headgate.core.api.metadata_keys import NO_KEYS, MetadataKeys, picked
from headgate.core.api.watched_objects import (
    Metadata,
    WatchedObject,
    check_quantities,
    decode,
    is_held,
    key_in,
    renewed,
)
from headgate.core.kubernetes.conditions import find
from headgate.events.facts import (
    AdmissionCheckObserved,
    ClusterQueueObserved,
    CohortObserved,
    Fact,
    LocalQueueObserved,
    ResourceFlavorObserved,
    TopologyObserved,
    WorkloadPriorityClassObserved,
)
from headgate.events.ids import LocalQueueKey, Uid
from headgate.events.objects import (
    AdmissionCheckSpec,
    ApiBranch,
    ClusterQueueSpec,
    CohortSpec,
    Condition,
    FairSharing,
    LocalQueueFairSharingStatus,
    LocalQueueSpec,
    ResourceFlavorSpec,
    ResourceGroup,
    TopologySpec,
)


class _Flavor(WatchedObject, frozen=True):
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class _Topology(WatchedObject, frozen=True):
    spec: TopologySpec = TopologySpec()


class _Cohort(WatchedObject, frozen=True):
    spec: CohortSpec = CohortSpec()


class _ClusterQueue(WatchedObject, frozen=True):
    spec: ClusterQueueSpec = ClusterQueueSpec()


class _LocalQueueStatus(ApiBranch, frozen=True):
    fair_sharing: LocalQueueFairSharingStatus | None = None


class _LocalQueue(WatchedObject, frozen=True):
    status: _LocalQueueStatus = _LocalQueueStatus()
    spec: LocalQueueSpec = LocalQueueSpec()


class _ConditionsOnly(ApiBranch, frozen=True):
    conditions: tuple[Condition, ...] = ()


class _AdmissionCheck(WatchedObject, frozen=True, kw_only=True):
    spec: AdmissionCheckSpec
    status: _ConditionsOnly = _ConditionsOnly()


class _WorkloadPriorityClass(WatchedObject, frozen=True, kw_only=True):
    value: int


def read_flavor(raw: bytes) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one ResourceFlavor."""
    seen = decode(_Flavor, raw)
    meta = seen.metadata
    return meta, ResourceFlavorObserved(
        name=meta.name,
        spec=seen.spec,
        generation=meta.generation,
        uid=Uid(meta.uid),
        deleting=meta.deletion_timestamp is not None,
        finalizer=is_held(meta),
    )


def read_topology(raw: bytes) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one Topology."""
    seen = decode(_Topology, raw)
    meta = seen.metadata
    return meta, TopologyObserved(
        name=meta.name,
        spec=seen.spec,
        uid=Uid(meta.uid),
        deleting=meta.deletion_timestamp is not None,
        finalizer=is_held(meta),
    )


def read_cohort(raw: bytes, keys: MetadataKeys = NO_KEYS) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one Cohort, with these of its labels and annotations."""
    seen = decode(_Cohort, raw)
    meta = seen.metadata
    _check_quotas(seen.spec.resource_groups)
    _check_weight(seen.spec.fair_sharing)
    return meta, CohortObserved(
        name=meta.name,
        spec=seen.spec,
        generation=meta.generation,
        labels=picked(meta.labels, keys.labels),
        annotations=picked(meta.annotations, keys.annotations),
    )


def read_cluster_queue(raw: bytes, keys: MetadataKeys = NO_KEYS) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one ClusterQueue, with these of its labels and annotations."""
    seen = decode(_ClusterQueue, renewed("ClusterQueue", raw))
    meta, spec = seen.metadata, seen.spec
    _check_quotas(spec.resource_groups)
    _check_weight(spec.fair_sharing)
    return meta, ClusterQueueObserved(
        name=meta.name,
        spec=spec,
        uid=Uid(meta.uid),
        generation=meta.generation,
        deleting=meta.deletion_timestamp is not None,
        finalizer=is_held(meta),
        labels=picked(meta.labels, keys.labels),
        annotations=picked(meta.annotations, keys.annotations),
    )


def read_local_queue(raw: bytes, keys: MetadataKeys = NO_KEYS) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one LocalQueue, with these of its labels and annotations."""
    seen = decode(_LocalQueue, raw)
    meta = seen.metadata
    queue = LocalQueueKey(key_in(meta))
    _check_weight(seen.spec.fair_sharing)
    fair = seen.status.fair_sharing
    remembered = fair.admission_fair_sharing_status if fair is not None else None
    return meta, LocalQueueObserved(
        queue=queue,
        spec=seen.spec,
        uid=Uid(meta.uid),
        generation=meta.generation,
        consumed=remembered.consumed_resources if remembered is not None else {},
        labels=picked(meta.labels, keys.labels),
        annotations=picked(meta.annotations, keys.annotations),
    )


def read_admission_check(raw: bytes) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one AdmissionCheck."""
    seen = decode(_AdmissionCheck, raw)
    meta, condition = seen.metadata, find(seen.status.conditions, "Active")
    active = condition is not None and condition.status == "True"
    observed = AdmissionCheckObserved(name=meta.name, spec=seen.spec, active=active)
    if seen.spec.controller_name == PROVISIONING:
        observed = replace(observed, uid=Uid(meta.uid), generation=meta.generation, condition=condition)
    return meta, observed


def read_workload_priority_class(raw: bytes) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one WorkloadPriorityClass."""
    seen = decode(_WorkloadPriorityClass, raw)
    return seen.metadata, WorkloadPriorityClassObserved(name=seen.metadata.name, value=seen.value)


def _check_quotas(groups: Iterable[ResourceGroup]) -> None:
    for group_number, group in enumerate(groups):
        for flavor in group.flavors:
            for quota in flavor.resources:
                where = f"spec.resourceGroups[{group_number}].flavors.{flavor.name}.{quota.name}"
                for field in ("nominal_quota", "borrowing_limit", "lending_limit"):
                    quantity = getattr(quota, field)
                    if quantity is not None:
                        check_quantities(where, {field: quantity})


def _check_weight(fair_sharing: FairSharing | None) -> None:
    if fair_sharing is not None and fair_sharing.weight is not None:
        check_quantities("spec.fairSharing", {"weight": fair_sharing.weight})
