"""
ImageLocality: nodes that have the pod's images already are better, the more so the larger the images are.

An image that few nodes have counts less, so that a few nodes do not attract all pods. Source: image_locality.go.
"""

from typing import Final

import numpy as np

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.columns import Columns
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.plugin import SCORE_MAX, PluginFactory, Reads
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.pods import PodInfo, PodShape

NAME: Final = "ImageLocality"
_MIB: Final = 1024 * 1024
_BYTES_MIN: Final = 23 * _MIB
"""Up to here images count as nothing."""

_BYTES_MAX_OF_CONTAINER: Final = 1000 * _MIB
"""From so much on, per container, a node has the highest score."""


class Images:
    """Which nodes have which images, and how large each is: an index of the cluster."""

    def __init__(self, cluster: PlacementCluster) -> None:  # noqa: ARG002 - it is told all nodes
        self._nodes: dict[str, dict[int, None]] = {}
        self._bytes: dict[str, int] = {}

    def rows(self, image: str) -> dict[int, None]:
        """The rows of the nodes that have an image."""
        return self._nodes.get(image, {})

    def bytes(self, image: str) -> int:
        """The size of an image, as the first node that has it said."""
        return self._bytes.get(image, 0)

    def node_set(self, node: NodeInfo, old: NodeObject | None) -> None:
        """A node has other images."""
        if old is not None and old.status.images == node.node.status.images:
            return
        if old is not None:
            self._forget(old, node.row)
        for image in node.node.status.images:
            for name in image.names:
                self._nodes.setdefault(name, {})[node.row] = None
                self._bytes.setdefault(name, image.size_bytes)

    def node_removed(self, node: NodeInfo) -> None:
        """A node is gone."""
        self._forget(node.node, node.row)

    def pod_added(self, pod: PodInfo, node: NodeInfo) -> None:
        """Without effect."""

    def pod_removed(self, pod: PodInfo, node: NodeInfo) -> None:
        """Without effect."""

    def object_put(self, kind: type, key: str) -> None:
        """Without effect."""

    def _forget(self, node: NodeObject, row: int) -> None:
        for image in node.status.images:
            for name in image.names:
                rows = self._nodes.get(name)
                if rows is not None:
                    rows.pop(row, None)
                    if not rows:
                        del self._nodes[name], self._bytes[name]


class ImageLocality:
    """The plugin."""

    name = NAME
    score_reads = Reads.NODES

    def score_key(self, shape: PodShape) -> tuple[tuple[str, ...], int]:
        """The images, and how many containers want them."""
        return _wanted(shape)

    def score(self, cycle: PlacementCycle, node: NodeInfo) -> int:
        """The images that are there, by size."""
        wanted, containers = _wanted(cycle.pod.shape)
        images = cycle.cluster.index(Images)
        nodes = len(cycle.cluster.columns.rows)
        total = sum(_counted_bytes(images, name, nodes) for name in wanted if node.row in images.rows(name))
        most = _BYTES_MAX_OF_CONTAINER * containers
        return SCORE_MAX * (min(max(total, _BYTES_MIN), most) - _BYTES_MIN) // (most - _BYTES_MIN)

    def score_columns(self, cycle: PlacementCycle, columns: Columns, rows: Rows) -> Ints:
        """The same for many nodes."""
        wanted, containers = _wanted(cycle.pod.shape)
        images = cycle.cluster.index(Images)
        total = np.zeros(columns.size, dtype=np.int64)
        for name in wanted:
            total[list(images.rows(name))] += _counted_bytes(images, name, len(columns.rows))
        most = _BYTES_MAX_OF_CONTAINER * containers
        return SCORE_MAX * (np.clip(total[rows], _BYTES_MIN, most) - _BYTES_MIN) // (most - _BYTES_MIN)


def _counted_bytes(images: Images, name: str, nodes: int) -> int:
    """The size of an image, in proportion to how many nodes have it."""
    return int(images.bytes(name) * (len(images.rows(name)) / nodes))


def _wanted(shape: PodShape) -> tuple[tuple[str, ...], int]:
    spec = shape.spec
    containers = (*spec.init_containers, *spec.containers)
    volumes = (volume.image.reference for volume in spec.volumes if volume.image is not None)
    return tuple(_normalized(name) for name in (*(each.image for each in containers), *volumes)), len(containers)


def _normalized(name: str) -> str:
    """The name with its tag: `latest` if it has none."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


FACTORY: Final = PluginFactory(NAME, lambda _: ImageLocality())
