"""
Which volumes the claims of a pod would get on a node: existing ones, or ones to be made there.

Source: volumebinding/binder.go of the kube-scheduler, and FindMatchingVolume of component-helpers.
"""

from fractions import Fraction
from typing import Final

import msgspec

from headgate.core.kubernetes.quantities import parse_quantity
from headgate.core.kubernetes.selectors import matches_labels
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.status import SUCCESS, PluginStatus, error, unresolvable
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.objects.storage import (
    CsiDriver,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from headgate.core.placement.plugins.volume_claims import class_of, class_of_volume, is_reachable

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"

_UNBINDABLE: Final = "node(s) didn't find available persistent volumes to bind"
_UNREACHABLE: Final = "node(s) didn't match PersistentVolume's node affinity"
_NO_SPACE: Final = "node(s) did not have enough free storage"
_NO_VOLUME: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


class Claims(msgspec.Struct, frozen=True):
    """The claims of a pod: those that are bound, and those that are bound once the pod has a node."""

    bound: tuple[PersistentVolumeClaim, ...]
    delayed: tuple[PersistentVolumeClaim, ...]


class Matched(msgspec.Struct, frozen=True):
    """What the claims get on a node: `static` volumes that exist, and `provisioned` ones to be made. Or why not."""

    status: PluginStatus = SUCCESS
    static: tuple[tuple[PersistentVolumeClaim, PersistentVolume], ...] = ()
    provisioned: tuple[PersistentVolumeClaim, ...] = ()


def match(cluster: PlacementCluster, claims: Claims, node: NodeObject) -> Matched:
    """What the claims of a pod get on a node (FindPodVolumes)."""
    reasons = []
    unreachable = _unreachable(cluster, claims, node)
    if unreachable == _UNREACHABLE:
        reasons.append(unreachable)
    delayed = _match_delayed(cluster, claims, node)
    if not delayed.status.is_success and not delayed.status.is_rejected:
        return delayed
    reasons.extend(delayed.status.reasons)
    if unreachable == _NO_VOLUME:
        reasons.append(unreachable)
    return Matched(unresolvable(*sorted(reasons))) if reasons else delayed


def _unreachable(cluster: PlacementCluster, claims: Claims, node: NodeObject) -> str:
    for claim in claims.bound:
        volume = cluster.objects(PersistentVolume).get(claim.spec.volume_name)
        if volume is None:
            return _NO_VOLUME
        if not is_reachable(volume, node):
            return _UNREACHABLE
    return ""


def _match_delayed(cluster: PlacementCluster, claims: Claims, node: NodeObject) -> Matched:
    to_find, to_make = [], []
    for claim in claims.delayed:
        selected = claim.metadata.annotations.get(SELECTED_NODE)
        if selected is None:
            to_find.append(claim)
        elif selected == node.name:
            to_make.append(claim)
        else:
            return Matched(unresolvable(_UNBINDABLE))
    chosen: dict[str, PersistentVolume] = {}
    static = []
    for claim in sorted(to_find, key=_size):
        volume = find_volume(cluster, claim, node, chosen)
        if volume is None:
            to_make.append(claim)
        else:
            chosen[volume.metadata.name] = volume
            static.append((claim, volume))
    status = next((said for claim in to_make if not (said := _makeable(cluster, claim, node)).is_success), SUCCESS)
    return Matched(status) if not status.is_success else Matched(SUCCESS, tuple(static), tuple(to_make))


# --- volumes that exist ----------------------------------------------------------------------------------------------


def find_volume(
    cluster: PlacementCluster, claim: PersistentVolumeClaim, node: NodeObject, excluded: dict[str, PersistentVolume]
) -> PersistentVolume | None:
    """
    The volume that is bound to a claim already, or else the smallest one that fits; None without any.

    Of several, the first by name: the order in which volumes came is not in the state.
    """
    wanted, name = _size(claim), class_of(claim)
    smallest: PersistentVolume | None = None
    bound: PersistentVolume | None = None
    for volume in cluster.objects(PersistentVolume).values():
        if class_of_volume(volume) != name or volume.metadata.name in excluded or not _fits(claim, volume, wanted):
            continue
        if volume.spec.claim_ref is not None:
            bound = volume if bound is None or volume.metadata.name < bound.metadata.name else bound
            continue
        is_smaller = smallest is None or _size_and_name(volume) < _size_and_name(smallest)
        if is_smaller and _is_free(claim, volume) and is_reachable(volume, node):
            smallest = volume
    if bound is not None:
        return bound if is_reachable(bound, node) else None
    return smallest


def _size_and_name(volume: PersistentVolume) -> tuple[Fraction, str]:
    return _capacity(volume), volume.metadata.name


def _fits(claim: PersistentVolumeClaim, volume: PersistentVolume, wanted: Fraction) -> bool:
    """Whether a volume is large enough, of the right kind, and no other claim's."""
    return (
        (volume.spec.claim_ref is None or is_bound_to(volume, claim))
        and _capacity(volume) >= wanted
        and (claim.spec.volume_mode or "Filesystem") == (volume.spec.volume_mode or "Filesystem")
        and (claim.spec.volume_attributes_class_name or "") == (volume.spec.volume_attributes_class_name or "")
        and volume.metadata.deletion_timestamp is None
    )


def _is_free(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    is_selected = claim.spec.selector is None or matches_labels(claim.spec.selector, volume.metadata.labels)
    modes = all(mode in volume.spec.access_modes for mode in claim.spec.access_modes)
    return volume.status.phase == "Available" and is_selected and modes


def is_bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether a volume names a claim as its own."""
    ref = volume.spec.claim_ref
    if ref is None or (ref.namespace, ref.name) != (claim.metadata.namespace, claim.metadata.name):
        return False
    return not ref.uid or ref.uid == claim.metadata.uid


def _size(claim: PersistentVolumeClaim) -> Fraction:
    return parse_quantity(claim.spec.resources.requests.get("storage", 0))


def _capacity(volume: PersistentVolume) -> Fraction:
    return parse_quantity(volume.spec.capacity.get("storage", 0))


# --- volumes to be made ----------------------------------------------------------------------------------------------


def _makeable(cluster: PlacementCluster, claim: PersistentVolumeClaim, node: NodeObject) -> PluginStatus:
    """Whether a volume for a claim can be made on a node."""
    name = class_of(claim)
    if not name:
        return error(f'no class for claim "{claim.metadata.key}"')
    storage = cluster.objects(StorageClass).get(name)
    if storage is None:
        return error(f'failed to find storage class "{name}"')
    if storage.provisioner in ("", _NO_PROVISIONER) or not _allows(storage, node):
        return unresolvable(_UNBINDABLE)
    return SUCCESS if _has_space(cluster, storage, claim, node) else unresolvable(_NO_SPACE)


def _allows(storage: StorageClass, node: NodeObject) -> bool:
    labels = node.metadata.labels
    return not storage.allowed_topologies or any(
        bool(term.match_label_expressions)
        and all(labels.get(each.key) in each.values for each in term.match_label_expressions)
        for term in storage.allowed_topologies
    )


def _has_space(
    cluster: PlacementCluster, storage: StorageClass, claim: PersistentVolumeClaim, node: NodeObject
) -> bool:
    driver = cluster.objects(CsiDriver).get(storage.provisioner)
    if "storage" not in claim.spec.resources.requests or driver is None or not driver.spec.storage_capacity:
        return True
    size = _size(claim)
    return any(
        each.storage_class_name == storage.metadata.name
        and (limit := volume_limit(each)) is not None
        and limit >= size
        and matches_labels(each.node_topology, node.metadata.labels)
        for each in cluster.objects(CsiStorageCapacity).values()
    )


def volume_limit(capacity: CsiStorageCapacity) -> Fraction | None:
    """How large a volume can be."""
    limit = capacity.maximum_volume_size if capacity.maximum_volume_size is not None else capacity.capacity
    return parse_quantity(limit) if limit is not None else None
