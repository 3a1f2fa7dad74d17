"""`corev1.Node`, as far as placement reads it."""

from headgate.core.placement.objects.metadata import MetadataObject
from headgate.events.objects import ApiBranch, Taint


class ContainerImage(ApiBranch, frozen=True):
    """`corev1.ContainerImage`: an image on the node, under all its names."""

    names: tuple[str, ...] = ()
    size_bytes: int = 0


class NodeSpec(ApiBranch, frozen=True):
    """`corev1.NodeSpec`."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(ApiBranch, frozen=True):
    """`corev1.NodeCondition`."""

    type: str = ""
    status: str = ""


class NodeStatus(ApiBranch, frozen=True):
    """`corev1.NodeStatus`. No filter reads a condition: the node lifecycle controller turns them into taints."""

    allocatable: dict[str, str | int | float] = {}
    conditions: tuple[NodeCondition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    declared_features: tuple[str, ...] = ()


class NodeObject(ApiBranch, frozen=True):
    """`corev1.Node`."""

    metadata: MetadataObject
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.metadata.name
