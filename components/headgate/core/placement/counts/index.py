"""
The index `PodCounts` of a cluster: the counts of pods and of their affinity terms (`PlacementCluster.index`).

What it says holds until the next change of the cluster. A change costs as much as there are counts that it concerns.
"""

from headgate.core.placement.arrays import Ints
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.counts.carried import CarriedTable, Meant
from headgate.core.placement.counts.domains import EACH_NODE, Partition, partition
from headgate.core.placement.counts.selected import SelectedTable
from headgate.core.placement.counts.selections import Selection
from headgate.core.placement.counts.sums import DomainSums, RowCounts, SumsTable
from headgate.core.placement.counts.terms import PodTerms
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.objects.owners import Namespace
from headgate.core.placement.pods import PodInfo, PodShape

_NODES = partition(EACH_NODE, ())


class PodCounts:
    """The counts."""

    def __init__(self, cluster: PlacementCluster) -> None:
        self._cluster = cluster
        self._sums = SumsTable(cluster.columns)
        self._selected = SelectedTable(self._sums)
        self._carried = CarriedTable(self._sums)

    # --- what plugins read -----------------------------------------------------------------------------------------

    def by_domain(self, selection: Selection, partition: Partition) -> DomainSums:
        """How many selected pods there are in each domain."""
        return self._sums.of(self._selected.counts_of(selection), partition)

    def by_node(self, selection: Selection) -> Ints:
        """How many selected pods there are on each node, by row."""
        return self._sums.of(self._selected.counts_of(selection), _NODES).by_domain()

    def sums_of(self, counts: RowCounts, partition: Partition) -> DomainSums:
        """How many pods have a term (`terms_meaning`) in each domain."""
        return self._sums.of(counts, partition)

    def terms_of(self, shape: PodShape) -> PodTerms:
        """The affinity terms of pods of a shape."""
        return self._carried.terms_of(shape)

    def terms_meaning(self, pod: PodInfo) -> Meant:
        """The terms of pods on nodes that mean an incoming pod."""
        cluster = self._cluster
        return self._carried.meaning(pod, cluster.objects(Namespace), cluster.version(Namespace))

    # --- what the cluster writes -----------------------------------------------------------------------------------

    def pod_added(self, pod: PodInfo, node: NodeInfo) -> None:
        """A pod is on a node."""
        self._count(pod, node.row, 1)

    def pod_removed(self, pod: PodInfo, node: NodeInfo) -> None:
        """A pod is no longer on a node."""
        self._count(pod, node.row, -1)

    def node_set(self, node: NodeInfo, old: NodeObject | None) -> None:
        """A node exists, with pods that have not been counted, or has changed."""
        self._sums.node_set(node, old)
        if old is None:
            for pod in node.pods.values():
                self._count(pod, node.row, 1)

    def node_removed(self, node: NodeInfo) -> None:
        """A node is gone, with the pods on it."""
        for pod in node.pods.values():
            self._count(pod, node.row, -1)
        self._sums.node_removed(node.row)

    def object_put(self, kind: type, key: str) -> None:
        """Namespaces are read when they are needed."""

    def _count(self, pod: PodInfo, row: int, pods: int) -> None:
        self._selected.add(pod, row, pods)
        self._carried.add(pod, row, pods)
