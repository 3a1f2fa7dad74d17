"""What the volume plugins share: the claims that a pod names, and their classes, volumes and nodes."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from headgate.core.kubernetes.selectors import matches_term
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.objects.storage import PersistentVolume, PersistentVolumeClaim
from headgate.core.placement.pods import PodInfo

_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"

DELAYED: Final = "WaitForFirstConsumer"


class NamedClaim(NamedTuple):
    """A claim that a pod names; `is_ephemeral` for one that is made for the pod."""

    name: str
    is_ephemeral: bool


def named_claims(pod: PodInfo) -> Iterator[NamedClaim]:
    """The claims that a pod names, in the order of its volumes."""
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield NamedClaim(volume.persistent_volume_claim.claim_name, is_ephemeral=False)
        elif volume.ephemeral is not None:
            yield NamedClaim(f"{pod.name}-{volume.name}", is_ephemeral=True)


def direct_claims(pod: PodInfo) -> list[str]:
    """The claims that a pod names itself."""
    return [claim.name for claim in named_claims(pod) if not claim.is_ephemeral]


def claim_of(cluster: PlacementCluster, namespace: str, name: str) -> PersistentVolumeClaim | None:
    """A claim, None if it does not exist."""
    return cluster.objects(PersistentVolumeClaim).get(f"{namespace}/{name}")


def not_found(name: str) -> str:
    """That a claim does not exist."""
    return f'persistentvolumeclaim "{name}" not found'


def why_not_for_pod(claim: PersistentVolumeClaim, pod: PodInfo) -> str:
    """Why a claim is not the one that was made for a pod; "" if it is."""
    owner = next((each for each in claim.metadata.owner_references if each.controller), None)
    if owner is not None and owner.uid == pod.uid:
        return ""
    return f"PVC {claim.metadata.key} was not created for pod {pod.key} (pod is not owner)"


def class_of(claim: PersistentVolumeClaim) -> str:
    """The name of the storage class of a claim, "" for none."""
    return claim.metadata.annotations.get(_CLASS) or claim.spec.storage_class_name or ""


def class_of_volume(volume: PersistentVolume) -> str:
    """The name of the storage class of a volume, "" for none."""
    return volume.metadata.annotations.get(_CLASS) or volume.spec.storage_class_name


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Whether a claim is bound to a volume for good."""
    return bool(claim.spec.volume_name) and _BIND_COMPLETED in claim.metadata.annotations


def is_reachable(volume: PersistentVolume, node: NodeObject) -> bool:
    """Whether a volume can be used on a node."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return any(matches_term(term, node.metadata.labels) for term in affinity.required.node_selector_terms)
