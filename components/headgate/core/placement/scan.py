"""
In which order nodes are looked at, and which of equal ones is taken.

The scan goes round the zones, one node of each in turn, and each attempt goes on where the last one stopped, so that
nodes have equal chances when not all of them are looked at (node_tree, nextStartNodeIndex). Zones and the nodes of a
zone are in the order of the nodes' names, as the kube-scheduler has them when it has just started: the order is a
function of the nodes, not of how they came. Equal nodes are taken by name too, where the kube-scheduler draws lots.
"""

from itertools import chain, zip_longest
from typing import Final

import msgspec
import numpy as np

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.pods import PodInfo

_REGION: Final = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
_ZONE: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")


class Scan(msgspec.Struct, frozen=True):
    """
    A scan: `order` are all rows, `start` is the place in it where the scan begins.

    `ranks` is per row the place of the node's name among all names; `percentage` of nodes to score, 0 to adapt.
    `is_part`: `order` are some rows, and no other node may be taken.
    """

    order: Rows
    ranks: Ints
    start: int
    percentage: int
    is_part: bool = False


class NodeOrder:
    """The order of the nodes of a cluster: an index, `cluster.index(NodeOrder)`."""

    def __init__(self, cluster: PlacementCluster) -> None:
        self._cluster = cluster
        self._order: Rows | None = None
        self._ranks: Ints = np.zeros(0, dtype=np.int64)

    def scan(self, start: int, percentage: int) -> Scan:
        """A scan from a place on."""
        if self._order is None:
            self._order = self._computed()
        return Scan(self._order, self._ranks, start, percentage)

    def _computed(self) -> Rows:
        by_name = sorted(self._cluster.columns.rows.items())
        self._ranks = np.zeros(self._cluster.columns.size, dtype=np.int64)
        zones: dict[str, list[int]] = {}
        for rank, (_, row) in enumerate(by_name):
            self._ranks[row] = rank
            zones.setdefault(zone_of(self._cluster.info_of(row).node), []).append(row)
        rounds = chain.from_iterable(zip_longest(*zones.values()))
        return np.array([row for row in rounds if row is not None], dtype=np.intp)

    def node_set(self, node: NodeInfo, old: NodeObject | None) -> None:
        """A node is new or has changed."""
        if old is None or zone_of(old) != zone_of(node.node):
            self._order = None

    def node_removed(self, node: NodeInfo) -> None:  # noqa: ARG002 - any node
        """A node is gone."""
        self._order = None

    def pod_added(self, pod: PodInfo, node: NodeInfo) -> None:
        """Without effect."""

    def pod_removed(self, pod: PodInfo, node: NodeInfo) -> None:
        """Without effect."""

    def object_put(self, kind: type, key: str) -> None:
        """Without effect."""


def zone_of(node: NodeObject) -> str:
    """The zone of a node with its region; "" without both (GetZoneKey)."""
    labels = node.metadata.labels
    region = labels.get(_REGION[0]) or labels.get(_REGION[1], "")
    zone = labels.get(_ZONE[0]) or labels.get(_ZONE[1], "")
    return f"{region}:\0:{zone}" if region or zone else ""
