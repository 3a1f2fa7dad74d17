"""A claim that is bound once a pod that uses it has a node, a volume for it, and the volume controller's answer."""

from typing import Final

from tests.support.placements import Json, PlacementCell, pod

STORAGE_CLASS: Final[Json] = {
    "kind": "StorageClass",
    "metadata": {"name": "slow"},
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}
CLAIM: Final[Json] = {
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "team", "uid": "uid-data"},
    "spec": {
        "storageClassName": "slow",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
    "status": {"phase": "Pending"},
}
VOLUME: Final[Json] = {
    "kind": "PersistentVolume",
    "metadata": {"name": "disk"},
    "spec": {"storageClassName": "slow", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}},
    "status": {"phase": "Available"},
}


def with_volume(name: str) -> Json:
    """A pod with the claim."""
    return pod(name, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])


def bind_volume(cell: PlacementCell) -> None:
    """The volume controller binds the claim to the volume that names it."""
    cell.patch("persistentvolumes", "disk", {"status": {"phase": "Bound"}})
    cell.patch(
        "persistentvolumeclaims",
        "team/data",
        {
            "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": "disk"},
            "status": {"phase": "Bound"},
        },
    )
