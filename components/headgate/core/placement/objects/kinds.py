"""
The kinds of objects that placement reads, by the plural name of their resource.

The informer bridge watches them while Headgate places pods, and records of each object the fields of its type here
(`shown`). A change of other fields is no fact.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from headgate.core.api.watched_kinds import KIND_OF
from headgate.core.placement.objects.devices import DeviceClass, ResourceClaim, ResourceSlice, supposed_claim
from headgate.core.placement.objects.groups import PodGroupObject
from headgate.core.placement.objects.metadata import read
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.objects.owners import (
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSetObject,
)
from headgate.core.placement.objects.pods import PodObject, shown_of
from headgate.core.placement.objects.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

STORAGE: Final = "storage.k8s.io"
DEVICES: Final = "resource.k8s.io"


class PlacementKind(msgspec.Struct, frozen=True):
    """
    A kind of object: its resource, and what is read of it.

    An `optional` one may be missing in a cluster. `alias` is its name among the watched resources where a kind of jobs
    has its plural. `supposed(found, written)` is how an object is seen while something is to be written to it.
    """

    plural: str
    type: type
    group: str = ""
    namespaced: bool = True
    optional: bool = False
    version: str = "v1"
    alias: str = ""
    supposed: Callable[[Any, Any], Any] | None = None

    @property
    def name(self) -> str:
        """Its name among the watched resources."""
        return self.alias or self.plural

    @property
    def kind(self) -> str:
        """The kind of its objects."""
        return KIND_OF[self.name]

    def reduced(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """
        The manifest with the fields that placement reads, and no other.

        Raises msgspec.ValidationError, which names the field, for a value of another type than the API's.
        """
        found: dict[str, Any] = msgspec.to_builtins(read(manifest, self.type))
        return found

    def shown(self, raw: bytes) -> msgspec.Raw | None:
        """
        An object's JSON as the log has it: reduced, without what is left out of a pod; None of a pod that has ended.

        Raises msgspec.MsgspecError, which names the field, for a value of another type than the API's, and
        UnicodeDecodeError.
        """
        decoder = _decoder(self.type)
        try:
            found = decoder.decode(raw)
        except msgspec.ValidationError:
            if b"null" not in raw:
                raise
            # Lists that the API does not leave out where they are empty, such as the drivers of a CSINode.
            found = decoder.decode(msgspec.json.encode(_without_nulls(msgspec.json.decode(raw))))
        if isinstance(found, PodObject):
            found = shown_of(found)
            if found is None:
                return None
        return msgspec.Raw(msgspec.json.encode(found))

    def read(self, manifest: msgspec.Raw) -> Any:
        """An object as the log has it, as `type`. Raises msgspec.MsgspecError, which names the field."""
        return _decoder(self.type).decode(manifest)


@cache
def _decoder(kind: type) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, strict=False)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


KINDS: Final[Mapping[str, PlacementKind]] = {
    each.plural: each
    for each in (
        PlacementKind("namespaces", Namespace, namespaced=False),
        PlacementKind("nodes", NodeObject, namespaced=False),
        PlacementKind("services", Service),
        PlacementKind("replicationcontrollers", ReplicationController),
        PlacementKind("replicasets", ReplicaSet, "apps"),
        PlacementKind("statefulsets", StatefulSetObject, "apps", alias="statefulsets.apps"),
        PlacementKind("poddisruptionbudgets", PodDisruptionBudget, "policy"),
        PlacementKind("persistentvolumeclaims", PersistentVolumeClaim),
        PlacementKind("persistentvolumes", PersistentVolume, namespaced=False),
        PlacementKind("storageclasses", StorageClass, STORAGE, namespaced=False),
        PlacementKind("csinodes", CsiNode, STORAGE, namespaced=False),
        PlacementKind("csidrivers", CsiDriver, STORAGE, namespaced=False),
        PlacementKind("csistoragecapacities", CsiStorageCapacity, STORAGE),
        PlacementKind("volumeattachments", VolumeAttachment, STORAGE, namespaced=False),
        PlacementKind("deviceclasses", DeviceClass, DEVICES, namespaced=False, optional=True),
        PlacementKind("resourceslices", ResourceSlice, DEVICES, namespaced=False, optional=True),
        PlacementKind("resourceclaims", ResourceClaim, DEVICES, optional=True, supposed=supposed_claim),
        PlacementKind(
            "podgroups",
            PodGroupObject,
            "scheduling.k8s.io",
            optional=True,
            version="v1alpha2",
            alias="podgroups.scheduling.k8s.io",
        ),
        PlacementKind("pods", PodObject),
    )
}
"""All of them; pods come last, after what they refer to."""

WATCHED: Final[Mapping[str, PlacementKind]] = {each.name: each for each in KINDS.values()}
"""By the name of their watch."""

NODES: Final = KINDS["nodes"]
PODS: Final = KINDS["pods"]
OTHERS: Final[Mapping[str, PlacementKind]] = {each.kind: each for each in KINDS.values() if each not in (NODES, PODS)}
"""Those beside nodes and pods, by kind."""
