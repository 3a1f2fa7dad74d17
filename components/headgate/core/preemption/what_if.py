"""
Snapshot: one quota tree for the time of a cycle, and what would be if some workloads were gone.

The cycle makes one for each tree that it decides on. Flavor assignment asks its ledger what is available; the
preemption search takes workloads out of it, looks what that frees, and puts them back; the cycle leaves out the
victims of the entries that it has processed. Charges of entries go through `ledger` itself.

Making one costs nothing: usage is copied flavor-resource by flavor-resource when it is first asked for, and who holds
quota is looked up in the catalog's rankings. A snapshot never changes the state, and is good for that one position.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from headgate.core.flavors.catalog import Catalog
from headgate.core.quota.admission_fair_sharing import settings
from headgate.core.quota.holders import Holder, Using
from headgate.core.quota.tree import Node
from headgate.core.state.tables import FlavorResource, State, Workload
from headgate.events.ids import WorkloadKey


class Snapshot:
    """The tree of this name, whose cohorts must not form a cycle. `ledger` has its usage, to be charged freely."""

    __slots__ = ("_removed", "_using", "by_priority", "catalog", "configuration", "ledger", "state", "tree")

    def __init__(self, state: State, catalog: Catalog, tree_name: str) -> None:
        self.state = state
        self.catalog = catalog
        self.configuration = state.configuration
        self.tree = catalog.forest.tree(tree_name)
        self.ledger = catalog.forest.ledger(tree_name)
        self.by_priority = settings(self.configuration) is None
        """Whether holders of one ClusterQueue rank by priority, and not by the usage of their LocalQueues first."""
        self._removed: dict[WorkloadKey, Holder] = {}
        self._using: dict[frozenset[FlavorResource], Using] = {}

    def node(self, cluster_queue: str) -> Node:
        """The place of one of its ClusterQueues in the tree."""
        return self.tree.cluster_queues[cluster_queue]

    def holders(self, cluster_queue: str) -> Sequence[Workload]:
        """
        The workloads that hold quota of a ClusterQueue, and are not taken out; the first to be preempted first.

        An inactive ClusterQueue has none: its workloads keep their quota, and cannot be preempted.
        """
        if not self._is_active(cluster_queue):
            return ()
        ranked = self.catalog.rankings.of(self.node(cluster_queue)).holders
        return [holder.workload for holder in ranked if holder.key not in self._removed]

    def candidates(self, cluster_queue: str, contested: frozenset[FlavorResource]) -> Iterator[Holder]:
        """Those of its holders that have been assigned one of these flavor-resources, the first to go first."""
        by_queue = self._using.get(contested)
        if by_queue is None:
            # Where LocalQueues' usage counts, which changes otherwise than what they hold, nothing is known before.
            by_queue = self._using[contested] = self.catalog.rankings.using(contested) if self.by_priority else {}
        using = by_queue.get(cluster_queue)
        if using is None:
            using = by_queue[cluster_queue] = self._using_now(cluster_queue, contested)
        if not self._removed:
            return iter(using)
        return (holder for holder in using if holder.key not in self._removed)

    def _using_now(self, cluster_queue: str, contested: frozenset[FlavorResource]) -> list[Holder]:
        if not self._is_active(cluster_queue):
            return []
        holders = self.catalog.rankings.of(self.node(cluster_queue)).holders
        return [holder for holder in holders if not contested.isdisjoint(holder.usage)]

    def _is_active(self, cluster_queue: str) -> bool:
        queue = self.catalog.queue(cluster_queue)
        return queue is not None and queue.active.active

    def holder(self, key: WorkloadKey) -> Holder:
        """A workload of this tree that holds quota, also of an inactive ClusterQueue."""
        return self.catalog.rankings.of(self.node(self.state.workloads[key].cluster_queue)).by_key[key]

    # --- simulation --------------------------------------------------------------------------------------------------

    def is_removed(self, key: WorkloadKey) -> bool:
        """Whether a workload is taken out."""
        return key in self._removed

    def remove(self, key: WorkloadKey) -> None:
        """Take a workload that holds quota out: its usage is free, and it is no candidate. It must not be out yet."""
        self.take_out(self.holder(key))

    def restore(self, key: WorkloadKey) -> None:
        """Put a workload back that was taken out."""
        self.put_back(self.holder(key))

    @contextmanager
    def without(self, keys: Iterable[WorkloadKey]) -> Iterator[None]:
        """As it would be if these workloads were gone; those that already are stay so."""
        gone = [self.holder(key) for key in dict.fromkeys(keys) if key not in self._removed]
        for holder in gone:
            self.take_out(holder)
        try:
            yield
        finally:
            for holder in gone:
                self.put_back(holder)

    def take_out(self, holder: Holder) -> None:
        """`remove` for those who have the holder at hand."""
        assert holder.key not in self._removed, f"{holder.key} is taken out already"
        self._removed[holder.key] = holder
        for fr, value in holder.usage.items():
            self.ledger.remove(holder.node, fr, value)

    def put_back(self, holder: Holder) -> None:
        """`restore` for those who have the holder at hand."""
        del self._removed[holder.key]
        for fr, value in holder.usage.items():
            self.ledger.add(holder.node, fr, value)
