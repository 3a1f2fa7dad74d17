"""
NodeVolumeLimits: a driver can attach the volumes of the pod to the node, beside those that are there.

Volumes of CSI drivers count. In-tree volumes that a driver has taken over do not: they are not translated here.
Source: nodevolumelimits/csi.go of the kube-scheduler.
"""

from typing import Any, Final

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import UPDATE, ActionType, EventHint, EventResource, Hint
from headgate.core.placement.framework.plugin import PluginFactory, PreFiltered, Reads
from headgate.core.placement.framework.status import SKIP, SUCCESS, PluginStatus, error, unresolvable, unschedulable
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.storage import (
    CsiNode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from headgate.core.placement.plugins.volume_claims import claim_of, class_of, named_claims, not_found, why_not_for_pod
from headgate.core.placement.pods import PodInfo

NAME: Final = "NodeVolumeLimits"

_EXCEEDED: Final = unschedulable("node(s) exceed max volume count")

Volumes = dict[tuple[str, str], None]
"""Driver and handle."""


class NodeVolumeLimits:
    """The plugin."""

    name = NAME
    filter_reads = Reads.CLUSTER

    def is_eased(self, cycle: PlacementCycle) -> bool:  # noqa: ARG002 - any pod
        """Pods take up places of volumes."""
        return True

    def pre_filter(self, cycle: PlacementCycle) -> PreFiltered:
        """Skip for pods without claims."""
        return PreFiltered() if any(True for _ in named_claims(cycle.pod)) else PreFiltered(SKIP)

    def filter(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """Whether each driver can attach as many volumes as are new to the node."""
        wanted: Volumes = {}
        status = _collect(cycle.cluster, cycle.pod, wanted, is_new=True)
        limits = _limits(cycle.cluster, node.name)
        if not status.is_success or not wanted or not limits:
            return status
        attached: Volumes = {}
        for pod in node.pods.values():
            status = _collect(cycle.cluster, pod, attached, is_new=False)
            if not status.is_success:
                return status
        attached.update(_attachments(cycle.cluster, node.name))
        counts: dict[str, int] = {}
        for driver, _ in (*attached, *(volume for volume in wanted if volume not in attached)):
            counts[driver] = counts.get(driver, 0) + 1
        fresh = dict.fromkeys(driver for driver, handle in wanted if (driver, handle) not in attached)
        is_exceeded = any(driver in limits and counts[driver] > limits[driver] for driver in fresh)
        return _EXCEEDED if is_exceeded else SUCCESS

    def events(self) -> tuple[EventHint, ...]:
        """More room on a node, pods with claims that are gone, a claim of the pod that is there."""
        return (
            EventHint(EventResource.CSI_NODE, ActionType.ADD),
            EventHint(EventResource.CSI_NODE, UPDATE, _after_csi_node),
            EventHint(EventResource.POD, ActionType.DELETE, _after_pod_deleted),
            EventHint(EventResource.PERSISTENT_VOLUME_CLAIM, ActionType.ADD, _after_claim),
            EventHint(EventResource.VOLUME_ATTACHMENT, ActionType.DELETE, _after_attachment),
        )


def _collect(cluster: PlacementCluster, pod: PodInfo, volumes: Volumes, *, is_new: bool) -> PluginStatus:
    """Add the volumes of a pod. A pod that is there already may lack a claim."""
    for name, is_ephemeral in named_claims(pod):
        if not name:
            return error("PersistentVolumeClaim had no name")
        claim = claim_of(cluster, pod.namespace, name)
        if claim is None:
            if is_new:
                return unresolvable(f"looking up PVC {pod.namespace}/{name}: {not_found(name)}")
            continue
        reason = why_not_for_pod(claim, pod) if is_ephemeral else ""
        if reason:
            return error(reason)
        driver, handle = _driver_and_handle(cluster, claim)
        if driver and handle:
            volumes[driver, handle] = None
    return SUCCESS


def _driver_and_handle(cluster: PlacementCluster, claim: PersistentVolumeClaim) -> tuple[str, str]:
    volume = cluster.objects(PersistentVolume).get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        source = volume.spec.csi
        return (source.driver, source.volume_handle) if source is not None else ("", "")
    storage = cluster.objects(StorageClass).get(class_of(claim))
    # A handle that no driver gives: the claim stands for its volume until it has one.
    return (storage.provisioner, f"\0{claim.metadata.key}") if storage is not None else ("", "")


def _limits(cluster: PlacementCluster, node: str) -> dict[str, int]:
    csi_node = cluster.objects(CsiNode).get(node)
    drivers = csi_node.spec.drivers or () if csi_node is not None else ()
    return {
        driver.name: driver.allocatable.count
        for driver in drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def _attachments(cluster: PlacementCluster, node: str) -> Volumes:
    volumes: Volumes = {}
    for attachment in cluster.objects(VolumeAttachment).values():
        name = attachment.spec.source.persistent_volume_name
        if attachment.spec.node_name == node and name is not None:
            volume = cluster.objects(PersistentVolume).get(name)
            if volume is not None and volume.spec.csi is not None:
                volumes[attachment.spec.attacher, volume.spec.csi.volume_handle] = None
    return volumes


def _after_csi_node(pod: PodInfo, old: CsiNode, new: CsiNode, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    before = _counts(old)
    return Hint.QUEUE if any(count > before.get(name, 0) for name, count in _counts(new).items()) else Hint.SKIP


def _counts(node: CsiNode) -> dict[str, int]:
    drivers = node.spec.drivers or ()
    return {driver.name: (driver.allocatable.count or 0) if driver.allocatable else 0 for driver in drivers}


def _after_pod_deleted(pod: PodInfo, old: PodInfo, new: PodInfo | None, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    if not old.node_name and not old.nominated_node_name:
        return Hint.SKIP
    is_counted = (
        volume.ephemeral is not None
        or volume.persistent_volume_claim is not None
        or volume.gce_persistent_disk is not None
        or volume.aws_elastic_block_store is not None
        for volume in old.spec.volumes
    )
    return Hint.QUEUE if any(is_counted) else Hint.SKIP


def _after_claim(pod: PodInfo, old: Any, new: PersistentVolumeClaim, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    names = [claim.name for claim in named_claims(pod)]
    return Hint.QUEUE if new.metadata.namespace == pod.namespace and new.metadata.name in names else Hint.SKIP


def _after_attachment(pod: PodInfo, old: VolumeAttachment, new: Any, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    is_claiming = any(volume.persistent_volume_claim is not None for volume in pod.spec.volumes)
    return Hint.QUEUE if is_claiming else Hint.SKIP


FACTORY: Final = PluginFactory(NAME, lambda _: NodeVolumeLimits())
