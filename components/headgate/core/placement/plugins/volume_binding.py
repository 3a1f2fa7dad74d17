"""
VolumeBinding: the claims of the pod are bound to volumes that the node can use, or can be once the pod is there.

What is bound with the pod is reserved as volumes and claims as they will be, and written before the pod is bound.
In-tree volumes that a CSI driver has taken over are not translated. Source: volumebinding of the kube-scheduler.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headgate.core.placement.arrays import Rows
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import UPDATE, ActionType, EventHint, EventResource, Hint
from headgate.core.placement.framework.plugin import (
    Arguments,
    Assumed,
    ObjectWrite,
    PluginFactory,
    PreBound,
    PreFiltered,
    PreScored,
    Reads,
    Reserved,
)
from headgate.core.placement.framework.status import SKIP, SUCCESS, Code, PluginStatus, error, unresolvable
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.storage import (
    ClaimRef,
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from headgate.core.placement.plugins.volume_claims import (
    DELAYED,
    claim_of,
    class_of,
    is_bound,
    named_claims,
    not_found,
    why_not_for_pod,
)
from headgate.core.placement.plugins.volume_matching import SELECTED_NODE, Claims, match, volume_limit
from headgate.core.placement.pods import PodInfo

NAME: Final = "VolumeBinding"

_IMMEDIATE: Final = unresolvable("pod has unbound immediate PersistentVolumeClaims")
_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
_MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"


class UtilizationPoint(Arguments, frozen=True):
    """`UtilizationShapePoint`."""

    utilization: int = 0
    score: int = 0


class VolumeBindingArgs(Arguments, frozen=True):
    """`VolumeBindingArgs`. The shape is read for the feature StorageCapacityScoring alone, which is off."""

    bind_timeout_seconds: int = 600
    shape: tuple[UtilizationPoint, ...] | None = None


class VolumeBinding:
    """The plugin."""

    name = NAME
    filter_reads = Reads.CLUSTER
    score_reads = Reads.NODE

    def is_eased(self, cycle: PlacementCycle) -> bool:  # noqa: ARG002 - any pod
        """Pods do not matter."""
        return True

    def pre_filter(self, cycle: PlacementCycle) -> PreFiltered:
        """The claims; Skip without any, a rejection for those that are missing or should be bound already."""
        claims: list[PersistentVolumeClaim] = []
        for name, is_ephemeral in named_claims(cycle.pod):
            claim = claim_of(cycle.cluster, cycle.pod.namespace, name)
            reason = _unusable(cycle.pod, claim, name, is_ephemeral=is_ephemeral)
            if reason or claim is None:
                return PreFiltered(unresolvable(reason))
            claims.append(claim)
        return _sorted_out(cycle.cluster, claims) if claims else PreFiltered(SKIP)

    def filter(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """Whether the claims have, or can get, volumes that the node can use."""
        return match(cycle.cluster, cycle.filter_states[NAME], node.node).status

    def pre_score(self, cycle: PlacementCycle, rows: Rows) -> PreScored:  # noqa: ARG002 - see VolumeBindingArgs
        """Skip: volumes are not scored."""
        return PreScored(SKIP)

    def score(self, cycle: PlacementCycle, node: NodeInfo) -> int:  # noqa: ARG002 - it is skipped
        """Nodes are alike."""
        return 0

    def reserve(self, cycle: PlacementCycle, node: NodeInfo) -> Reserved:
        """The volumes and claims as they will be."""
        claims: Claims | None = cycle.filter_states.get(NAME)
        if claims is None:
            return Reserved()
        matched = match(cycle.cluster, claims, node.node)
        volumes = [
            Assumed(PersistentVolume, volume.metadata.name, _claimed(volume, claim)) for claim, volume in matched.static
        ]
        made = [Assumed(PersistentVolumeClaim, each.metadata.key, _on(each, node.name)) for each in matched.provisioned]
        return Reserved(matched.status, (*volumes, *made))

    def pre_bind(self, cycle: PlacementCycle, node: NodeInfo) -> PreBound:
        """The claims to be bound, until the volume controller has bound them."""
        claims = [claim_of(cycle.cluster, cycle.pod.namespace, name) for name, _ in named_claims(cycle.pod)]
        open_claims = tuple(claim for claim in claims if claim is not None and not is_bound(claim))
        if not open_claims:
            return PreBound()
        matched = match(cycle.cluster, Claims((), open_claims), node.node)
        if not matched.status.is_success:
            return PreBound(error(f"binding volumes: {matched.status.message}"))
        writes = [
            ObjectWrite("PersistentVolume", volume.metadata.name, _ref_patch(claim)) for claim, volume in matched.static
        ]
        annotation = {"metadata": {"annotations": {SELECTED_NODE: node.name}}}
        writes += [
            ObjectWrite("PersistentVolumeClaim", claim.metadata.key, annotation) for claim in matched.provisioned
        ]
        return PreBound(PluginStatus(Code.WAIT), tuple(writes))

    def events(self) -> tuple[EventHint, ...]:
        """Claims of the pod, volumes, classes, nodes and the capacity of storage."""
        return (
            EventHint(EventResource.STORAGE_CLASS, ActionType.ADD | UPDATE, _after_class),
            EventHint(EventResource.PERSISTENT_VOLUME_CLAIM, ActionType.ADD | UPDATE, _after_claim),
            EventHint(EventResource.PERSISTENT_VOLUME, ActionType.ADD | UPDATE),
            EventHint(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL),
            EventHint(EventResource.CSI_NODE, ActionType.ADD | UPDATE, _after_csi_node),
            EventHint(EventResource.CSI_DRIVER, UPDATE, _after_csi_driver),
            EventHint(EventResource.CSI_STORAGE_CAPACITY, ActionType.ADD | UPDATE, _after_capacity),
        )


# --- claims ----------------------------------------------------------------------------------------------------------


def _unusable(pod: PodInfo, claim: PersistentVolumeClaim | None, name: str, *, is_ephemeral: bool) -> str:
    """Why a pod cannot use a claim; "" if it can."""
    if claim is None:
        if is_ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        return not_found(name)
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volume_name}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    return why_not_for_pod(claim, pod) if is_ephemeral else ""


def _sorted_out(cluster: PlacementCluster, claims: list[PersistentVolumeClaim]) -> PreFiltered:
    bound, delayed, is_waiting = [], [], False
    for claim in claims:
        if is_bound(claim):
            bound.append(claim)
            continue
        storage = cluster.objects(StorageClass).get(class_of(claim))
        if storage is not None and storage.volume_binding_mode is None:
            return PreFiltered(error(f'VolumeBindingMode not set for StorageClass "{storage.metadata.name}"'))
        if storage is not None and storage.volume_binding_mode == DELAYED and not claim.spec.volume_name:
            delayed.append(claim)
        else:
            is_waiting = True
    return PreFiltered(_IMMEDIATE if is_waiting else SUCCESS, Claims(tuple(bound), tuple(delayed)))


def _claimed(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """A volume bound to a claim."""
    metadata = claim.metadata
    ref = ClaimRef(kind="PersistentVolumeClaim", namespace=metadata.namespace, name=metadata.name, uid=metadata.uid)
    annotated = msgspec.structs.replace(
        volume.metadata, annotations={**volume.metadata.annotations, _BY_CONTROLLER: "yes"}
    )
    return msgspec.structs.replace(volume, metadata=annotated, spec=msgspec.structs.replace(volume.spec, claim_ref=ref))


def _on(claim: PersistentVolumeClaim, node: str) -> PersistentVolumeClaim:
    """A claim whose volume is to be made for a node."""
    annotations = {**claim.metadata.annotations, SELECTED_NODE: node}
    return msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, annotations=annotations))


def _ref_patch(claim: PersistentVolumeClaim) -> Mapping[str, Any]:
    metadata = claim.metadata
    ref = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": metadata.namespace}
    ref |= {"name": metadata.name, "uid": metadata.uid}
    return {"metadata": {"annotations": {_BY_CONTROLLER: "yes"}}, "spec": {"claimRef": ref}}


# --- hints -----------------------------------------------------------------------------------------------------------


def _after_class(pod: PodInfo, old: StorageClass | None, new: StorageClass, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    return Hint.QUEUE if old is None or old.allowed_topologies != new.allowed_topologies else Hint.SKIP


def _after_claim(pod: PodInfo, old: Any, new: PersistentVolumeClaim, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    names = [claim.name for claim in named_claims(pod)]
    return Hint.QUEUE if new.metadata.namespace == pod.namespace and new.metadata.name in names else Hint.SKIP


def _after_csi_node(pod: PodInfo, old: CsiNode | None, new: CsiNode, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    if old is None or old.metadata.annotations.get(_MIGRATED) != new.metadata.annotations.get(_MIGRATED):
        return Hint.QUEUE
    return Hint.SKIP


def _after_csi_driver(pod: PodInfo, old: CsiDriver, new: CsiDriver, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    if not old.spec.storage_capacity or new.spec.storage_capacity:
        return Hint.SKIP
    drivers = (volume.csi.driver for volume in pod.spec.volumes if volume.csi is not None)
    return Hint.QUEUE if new.metadata.name in drivers else Hint.SKIP


def _after_capacity(
    pod: PodInfo,  # noqa: ARG001 - every hint gets it
    old: CsiStorageCapacity | None,
    new: CsiStorageCapacity,
    cluster: PlacementCluster,  # noqa: ARG001 - every hint gets it
) -> Hint:
    if old is None:
        return Hint.QUEUE
    before, after = volume_limit(old), volume_limit(new)
    return Hint.QUEUE if after is not None and (before is None or after > before) else Hint.SKIP


FACTORY: Final = PluginFactory(NAME, lambda _: VolumeBinding(), arguments=VolumeBindingArgs)
