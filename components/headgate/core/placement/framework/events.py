"""
Cluster events, and the hints by which plugins say whether an event may help a pod that they have rejected.

An event is a resource and one or more kinds of change. A plugin registers for events (`EventHint`); without a hint
function any such event brings the pod back. The queue owns the events that changes of objects amount to.
"""

from collections.abc import Callable, Hashable
from enum import Enum, IntFlag
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from headgate.core.placement.cluster import PlacementCluster
    from headgate.core.placement.pods import PodInfo, PodShape


class ActionType(IntFlag):
    """Kinds of change of an object (ActionType)."""

    ADD = 1
    DELETE = 2
    UPDATE_NODE_ALLOCATABLE = 4
    UPDATE_NODE_LABEL = 8
    UPDATE_NODE_TAINT = 16
    UPDATE_NODE_CONDITION = 32
    UPDATE_NODE_ANNOTATION = 64
    UPDATE_NODE_DECLARED_FEATURE = 128
    UPDATE_POD_LABEL = 256
    UPDATE_POD_SCALE_DOWN = 512
    UPDATE_POD_TOLERATION = 1024
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 2048
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 4096

    @property
    def label(self) -> str:
        """The action as Kubernetes writes it, e.g. `UpdateNodeTaint`."""
        if self == UPDATE:
            return "Update"
        if self == ALL:
            return "All"
        return "".join(part.capitalize() for part in (self.name or "").split("_")) if self in _SINGLE else ""


_SINGLE: Final = tuple(ActionType)
UPDATE: Final = ActionType(0b1_1111_1111_1100)
ALL: Final = ActionType(0b1_1111_1111_1111)


class EventResource(Enum):
    """The kinds of objects that events are about (EventResource)."""

    POD = "Pod"
    NODE = "Node"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    CSI_NODE = "storage.k8s.io/CSINode"
    CSI_DRIVER = "storage.k8s.io/CSIDriver"
    VOLUME_ATTACHMENT = "storage.k8s.io/VolumeAttachment"
    CSI_STORAGE_CAPACITY = "storage.k8s.io/CSIStorageCapacity"
    STORAGE_CLASS = "storage.k8s.io/StorageClass"
    RESOURCE_CLAIM = "resource.k8s.io/ResourceClaim"
    RESOURCE_SLICE = "resource.k8s.io/ResourceSlice"
    DEVICE_CLASS = "resource.k8s.io/DeviceClass"
    POD_GROUP = "scheduling.k8s.io/PodGroup"
    ANY = "*"
    ASSIGNED_POD = "AssignedPod"
    """A pod that has a node. Plugins register for POD, which covers both."""
    UNSCHEDULED_POD = "UnschedulablePod"
    """A pod that has none yet."""


class Hint(Enum):
    """What a plugin says of an event and a pod that it has rejected."""

    QUEUE = "Queue"
    SKIP = "Skip"


HintFunction = Callable[["PodInfo", Any, Any, "PlacementCluster"], Hint]
"""
`hint(pod, old, new, cluster)`: `old` is None for an added object, `new` for a deleted one. Pods are `PodInfo`, nodes
`NodeObject`, all else the Structs of `placement.objects`.
"""


class EventHint(msgspec.Struct, frozen=True):
    """
    A registration: the events, and the hint; None brings the pod back by any of them.

    `key` is the part of a pod's shape that the hint reads. With it the hint is asked once per event for all pods that
    are equal in it, so it must read nothing else of the pod; without it the hint is asked for each pod.
    """

    resource: EventResource
    actions: ActionType
    hint: HintFunction | None = None
    key: Callable[["PodShape"], Hashable] | None = None
