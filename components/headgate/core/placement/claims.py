"""
What pods that are nominated to nodes claim there, in arrays.

Claims are kept per priority until a nomination or a node changes, so that an attempt pays for the nodes that pods are
nominated to as for all others, and not for each of them by itself.
"""

from typing import Final

import numpy as np

from headgate.core.placement.arrays import Ints
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.columns import Bools
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.requests import PODS

PRIORITIES_MAX: Final = 64
"""Priorities whose claims are kept."""


class NodeClaims:
    """The nominated pods that a pod may not displace; `is_claimed` tells which rows have any."""

    def __init__(self, size: int, pods: list[tuple[int, PodInfo]]) -> None:
        self._at = np.array([row for row, _ in pods], dtype=np.intp)
        self._pods = [pod for _, pod in pods]
        self._sums: dict[str, Ints] = {}
        self.is_claimed: Bools = np.zeros(size, dtype=np.bool_)
        self.is_claimed[self._at] = True

    def __bool__(self) -> bool:
        return bool(self._pods)

    def of(self, resource: str) -> Ints:
        """Per row what the pods request of a resource; `pods` is how many they are."""
        known = self._sums.get(resource)
        if known is None:
            known = self._sums[resource] = np.zeros(len(self.is_claimed), dtype=np.int64)
            requests = (1 if resource == PODS else pod.requests.requests.get(resource, 0) for pod in self._pods)
            np.add.at(known, self._at, np.fromiter(requests, dtype=np.int64, count=len(self._pods)))
        return known


class NominatedClaims:
    """The claims of a cluster, by priority: an index, `cluster.index(NominatedClaims)`."""

    def __init__(self, cluster: PlacementCluster) -> None:
        self._cluster = cluster
        self._by_priority: dict[int, NodeClaims] = {}
        self._version = -1
        """The nominations that the claims are of."""

    def of(self, pod: PodInfo) -> NodeClaims:
        """What pods of the same or a higher priority claim, without the pod itself."""
        cluster = self._cluster
        if cluster.nomination_of(pod.key):
            return self._made(pod)
        if cluster.nominations_version != self._version or len(self._by_priority) >= PRIORITIES_MAX:
            self._by_priority.clear()
            self._version = cluster.nominations_version
        known = self._by_priority.get(pod.priority)
        if known is None:
            known = self._by_priority[pod.priority] = self._made(pod)
        return known

    def _made(self, pod: PodInfo) -> NodeClaims:
        pods: list[tuple[int, PodInfo]] = []
        for name in self._cluster.nominated_nodes():
            node = self._cluster.node(name)
            if node is not None:
                pods.extend((node.row, each) for each in yielding_to(self._cluster, pod, name))
        return NodeClaims(self._cluster.columns.size, pods)

    # --- what the cluster writes -----------------------------------------------------------------------------------

    def node_set(self, node: NodeInfo, old: NodeObject | None) -> None:  # noqa: ARG002 - any node
        """A node is new: pods may be nominated to it already. One that has changed has the same row."""
        if old is None:
            self._by_priority.clear()

    def node_removed(self, node: NodeInfo) -> None:  # noqa: ARG002 - any node
        """A node is gone."""
        self._by_priority.clear()

    def pod_added(self, pod: PodInfo, node: NodeInfo) -> None:
        """Without effect: a pod on a node is nominated to none."""

    def pod_removed(self, pod: PodInfo, node: NodeInfo) -> None:
        """Without effect."""

    def object_put(self, kind: type, key: str) -> None:
        """Without effect."""


def yielding_to(cluster: PlacementCluster, pod: PodInfo, node: str) -> list[PodInfo]:
    """The pods nominated to a node that this one may not displace."""
    nominated = cluster.nominated_to(node).values()
    return [each for each in nominated if each.priority >= pod.priority and each.key != pod.key]
