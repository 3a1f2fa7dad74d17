"""
VolumeRestrictions: disks that only one pod may use for writing, and claims that only one pod may use at all.

Source: volumerestrictions/volume_restrictions.go of the kube-scheduler.
"""

from typing import Any, Final

import msgspec

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import ActionType, EventHint, EventResource, Hint
from headgate.core.placement.framework.plugin import PluginFactory, PreFiltered, Reads
from headgate.core.placement.framework.status import SKIP, SUCCESS, PluginStatus, unresolvable, unschedulable
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.pods import Volume
from headgate.core.placement.objects.storage import PersistentVolumeClaim
from headgate.core.placement.plugins.volume_claims import claim_of, direct_claims, not_found
from headgate.core.placement.pods import PodInfo

NAME: Final = "VolumeRestrictions"

_DISK: Final = unschedulable("node(s) had no available disk")
_IN_USE: Final = unschedulable(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


class InUse(msgspec.Struct, frozen=True):
    """The claims of the pod that one pod may use at a time, and how many uses of them there are."""

    claims: tuple[str, ...]
    uses: int


class VolumeRestrictions:
    """The plugin."""

    name = NAME
    filter_reads = Reads.CLUSTER

    def is_eased(self, cycle: PlacementCycle) -> bool:  # noqa: ARG002 - any pod
        """Pods occupy disks and claims."""
        return True

    def pre_filter(self, cycle: PlacementCycle) -> PreFiltered:
        """Skip for pods without such disks, and whose claims of one pod nobody uses."""
        pod = cycle.pod
        if not pod.spec.volumes:
            return PreFiltered(SKIP)
        claims: dict[str, None] = {}
        for name in direct_claims(pod):
            claim = claim_of(cycle.cluster, pod.namespace, name)
            if claim is None:
                return PreFiltered(unresolvable(not_found(name)))
            if "ReadWriteOncePod" in claim.spec.access_modes:
                claims[name] = None
        used = sum(1 for name in claims if _is_used(cycle.cluster, f"{pod.namespace}/{name}"))
        if not used and not any(_is_restricted(volume) for volume in pod.spec.volumes):
            return PreFiltered(SKIP)
        return PreFiltered(state=InUse(tuple(claims), used))

    def add_pod(self, cycle: PlacementCycle, state: InUse, added: PodInfo, node: NodeInfo) -> InUse:  # noqa: ARG002
        """Its uses too."""
        return msgspec.structs.replace(state, uses=state.uses + _uses(state, added))

    def remove_pod(self, cycle: PlacementCycle, state: InUse, removed: PodInfo, node: NodeInfo) -> InUse:  # noqa: ARG002
        """Without its uses."""
        return msgspec.structs.replace(state, uses=state.uses - _uses(state, removed))

    def filter(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """Whether no disk of the pod is in use on the node, and no claim of one pod anywhere."""
        if any(_conflicts(cycle.pod, other) for other in node.pods.values()):
            return _DISK
        state: InUse = cycle.filter_states[NAME]
        return _IN_USE if state.uses > 0 else SUCCESS

    def events(self) -> tuple[EventHint, ...]:
        """A pod with the same disk or claim is gone, a node or a claim of the pod is added."""
        return (
            EventHint(EventResource.POD, ActionType.DELETE, _after_pod_deleted),
            EventHint(EventResource.NODE, ActionType.ADD),
            EventHint(EventResource.PERSISTENT_VOLUME_CLAIM, ActionType.ADD, _after_claim),
        )


def _is_used(cluster: PlacementCluster, claim: str) -> bool:
    return any(claim in node.claims for node in cluster.columns.nodes())


def _uses(state: InUse, pod: PodInfo) -> int:
    return sum(1 for name in direct_claims(pod) if name in state.claims)


def _is_restricted(volume: Volume) -> bool:
    sources = (volume.gce_persistent_disk, volume.aws_elastic_block_store, volume.iscsi, volume.rbd)
    return any(source is not None for source in sources)


def _conflicts(pod: PodInfo, other: PodInfo) -> bool:
    return any(_same_disk(each, used) for each in pod.spec.volumes for used in other.spec.volumes)


def _same_disk(one: Volume, other: Volume) -> bool:
    """Whether two volumes are one disk, and not both only read it."""
    disk, used = one.gce_persistent_disk, other.gce_persistent_disk
    if (
        disk is not None
        and used is not None
        and disk.pd_name == used.pd_name
        and not (disk.read_only and used.read_only)
    ):
        return True
    block, used_block = one.aws_elastic_block_store, other.aws_elastic_block_store
    if block is not None and used_block is not None and block.volume_id == used_block.volume_id:
        return True
    return _same_target(one, other) or _same_image(one, other)


def _same_target(one: Volume, other: Volume) -> bool:
    iscsi, used = one.iscsi, other.iscsi
    if iscsi is None or used is None or (iscsi.read_only and used.read_only):
        return False
    return iscsi.iqn == used.iqn


def _same_image(one: Volume, other: Volume) -> bool:
    rbd, used = one.rbd, other.rbd
    if rbd is None or used is None or (rbd.read_only and used.read_only):
        return False
    is_same = (rbd.pool, rbd.image) == (used.pool, used.image)
    return is_same and any(monitor in used.monitors for monitor in rbd.monitors)


def _after_claim(pod: PodInfo, old: Any, new: PersistentVolumeClaim, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    is_named = new.metadata.namespace == pod.namespace and new.metadata.name in direct_claims(pod)
    return Hint.QUEUE if is_named else Hint.SKIP


def _after_pod_deleted(pod: PodInfo, old: PodInfo, new: PodInfo | None, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    if old.namespace != pod.namespace:
        return Hint.SKIP
    claims = direct_claims(pod)
    is_freed = _conflicts(pod, old) or any(name in claims for name in direct_claims(old))
    return Hint.QUEUE if is_freed else Hint.SKIP


FACTORY: Final = PluginFactory(NAME, lambda _: VolumeRestrictions())
