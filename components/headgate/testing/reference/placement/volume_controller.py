"""
The volume controller and the provisioners of a scenario: they answer at once while a pod is being bound.

A volume that was reserved for a claim is bound to it, and the claim to the volume. A claim with a selected node gets a
volume of its own, named `pvc-<uid>`, in the zone of that node.
"""

from typing import Final

from headgate.core.kubernetes.merge_patch import merge_patched
from headgate.testing.reference.placement.objects import ScenarioObjects
from headgate.testing.reference.placement.scenario import Json

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_ZONE: Final = "topology.kubernetes.io/zone"


def answers(objects: ScenarioObjects, written: Json) -> list[Json]:
    """What is written in answer to an object, in full and in order."""
    match written["kind"]:
        case "PersistentVolume":
            return _bound(objects, written)
        case "PersistentVolumeClaim":
            return _provisioned(objects, written)
        case _:
            return []


def _bound(objects: ScenarioObjects, volume: Json) -> list[Json]:
    claim_ref = volume["spec"].get("claimRef")
    if claim_ref is None or volume.get("status", {}).get("phase") == "Bound":
        return []
    claim = objects.get("PersistentVolumeClaim", f"{claim_ref['namespace']}/{claim_ref['name']}")
    if claim is None:
        return []
    bound: Json = merge_patched(volume, {"status": {"phase": "Bound"}})
    return [bound, _claim_of(claim, bound)]


def _provisioned(objects: ScenarioObjects, claim: Json) -> list[Json]:
    node = objects.get("Node", claim["metadata"].get("annotations", {}).get(SELECTED_NODE, ""))
    storage_class = objects.get("StorageClass", claim["spec"].get("storageClassName", ""))
    if node is None or storage_class is None or claim["spec"].get("volumeName"):
        return []
    metadata = claim["metadata"]
    zone = {"key": _ZONE, "operator": "In", "values": [node["metadata"].get("labels", {}).get(_ZONE, "")]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pvc-{metadata['uid']}", "uid": f"pv-{metadata['uid']}"},
        "spec": {
            "accessModes": claim["spec"]["accessModes"],
            "capacity": claim["spec"]["resources"]["requests"],
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "csi": {"driver": storage_class["provisioner"], "volumeHandle": f"h-{metadata['uid']}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
            "storageClassName": claim["spec"]["storageClassName"],
        },
        "status": {"phase": "Bound"},
    }
    return [volume, _claim_of(claim, volume)]


def _claim_of(claim: Json, volume: Json) -> Json:
    """A claim, bound to its volume."""
    by_controller = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
    patch = {
        "metadata": {"annotations": by_controller},
        "spec": {"volumeName": volume["metadata"]["name"]},
        "status": {
            "accessModes": volume["spec"]["accessModes"],
            "capacity": volume["spec"]["capacity"],
            "phase": "Bound",
        },
    }
    bound: Json = merge_patched(claim, patch)
    return bound
