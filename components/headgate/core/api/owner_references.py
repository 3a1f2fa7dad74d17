"""Owner references of the objects that Headgate makes or takes over."""

from typing import Any


def controlling(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    """The reference to the object that controls another: with that one the other is deleted."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def of_pod(name: str, uid: str) -> dict[str, Any]:
    """The reference to one of the pods that own the Workload of their group together; none controls it."""
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
