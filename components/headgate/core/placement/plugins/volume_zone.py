"""
VolumeZone: the node is in the zone and region that the labels of the pod's volumes name.

Source: volumezone/volume_zone.go of the kube-scheduler.
"""

from typing import Any, Final, NamedTuple

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import UPDATE, ActionType, EventHint, EventResource, Hint
from headgate.core.placement.framework.plugin import PluginFactory, PreFiltered, Reads
from headgate.core.placement.framework.status import SKIP, SUCCESS, PluginStatus, unresolvable
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from headgate.core.placement.plugins.volume_claims import DELAYED, claim_of, class_of, direct_claims, not_found
from headgate.core.placement.pods import PodInfo

NAME: Final = "VolumeZone"

_CURRENT: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""The labels, and what they are called now."""

_CONFLICT: Final = unresolvable("node(s) had no available volume zone")


class Topology(NamedTuple):
    """A label of a volume and its values."""

    key: str
    values: tuple[str, ...]


class VolumeZone:
    """The plugin."""

    name = NAME
    filter_reads = Reads.CLUSTER

    def is_eased(self, cycle: PlacementCycle) -> bool:  # noqa: ARG002 - any pod
        """Pods do not matter."""
        return True

    def pre_filter(self, cycle: PlacementCycle) -> PreFiltered:
        """The zones of the pod's volumes; Skip without any, a rejection for claims that can have none."""
        found: list[Topology] = []
        for name in direct_claims(cycle.pod):
            claim = claim_of(cycle.cluster, cycle.pod.namespace, name)
            if claim is None:
                return PreFiltered(unresolvable(not_found(name)))
            if not claim.spec.volume_name:
                status = _unbound(cycle.cluster, claim)
                if not status.is_success:
                    return PreFiltered(status)
                continue
            volume = cycle.cluster.objects(PersistentVolume).get(claim.spec.volume_name)
            if volume is None:
                return PreFiltered(unresolvable(f'persistentvolume "{claim.spec.volume_name}" not found'))
            found.extend(_topologies(volume))
        return PreFiltered(state=tuple(found)) if found else PreFiltered(SKIP)

    def filter(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """Whether the node has the labels; a node without any of them will do too."""
        labels = node.node.metadata.labels
        if not any(key in labels for key in _CURRENT):
            return SUCCESS
        topologies: tuple[Topology, ...] = cycle.filter_states[NAME]
        for key, values in topologies:
            if labels.get(key, labels.get(_CURRENT[key])) not in values:
                return _CONFLICT
        return SUCCESS

    def events(self) -> tuple[EventHint, ...]:
        """A class that binds late, nodes, and the claims and volumes of the pod."""
        return (
            EventHint(EventResource.STORAGE_CLASS, ActionType.ADD, _after_class),
            EventHint(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL),
            EventHint(EventResource.PERSISTENT_VOLUME_CLAIM, ActionType.ADD | UPDATE, _after_claim),
            EventHint(EventResource.PERSISTENT_VOLUME, ActionType.ADD | UPDATE, _after_volume),
        )


def _unbound(cluster: PlacementCluster, claim: PersistentVolumeClaim) -> PluginStatus:
    """Success for a claim that is bound once the pod has a node."""
    name = class_of(claim)
    if not name:
        return unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
    storage = cluster.objects(StorageClass).get(name)
    if storage is None:
        return unresolvable(f'storageclass.storage.k8s.io "{name}" not found')
    if storage.volume_binding_mode is None:
        return unresolvable(f'VolumeBindingMode not set for StorageClass "{name}"')
    return SUCCESS if storage.volume_binding_mode == DELAYED else unresolvable("PersistentVolume had no name")


def _topologies(volume: PersistentVolume) -> list[Topology]:
    labels = volume.metadata.labels
    found = ((key, [part.strip() for part in labels[key].split("__")]) for key in _CURRENT if key in labels)
    return [Topology(key, tuple(values)) for key, values in found if all(values)]


def _after_class(pod: PodInfo, old: Any, new: StorageClass, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    return Hint.QUEUE if new.volume_binding_mode == DELAYED else Hint.SKIP


def _after_claim(pod: PodInfo, old: Any, new: PersistentVolumeClaim, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    is_named = new.metadata.namespace == pod.namespace and new.metadata.name in direct_claims(pod)
    return Hint.QUEUE if is_named else Hint.SKIP


def _after_volume(pod: PodInfo, old: PersistentVolume | None, new: PersistentVolume, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    return Hint.QUEUE if old is None or _topologies(old) != _topologies(new) else Hint.SKIP


FACTORY: Final = PluginFactory(NAME, lambda _: VolumeZone())
