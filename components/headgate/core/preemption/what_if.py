"""
Snapshot: one quota tree for the duration of a cycle, for simulations without some of its workloads.

The cycle makes one for each tree that it decides on. Flavor assignment reads from its ledger what is available; the
preemption search removes workloads, checks what that frees, and restores them; the cycle removes the victims of the
processed entries. Charges of entries go to `ledger` directly.

Making one costs nothing: usage is copied per flavor-resource on first use, and the holders of quota are looked up in
the catalog's rankings. A snapshot never changes the state, and is valid for that one position.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from headgate.core.flavors.catalog import Catalog
from headgate.core.flavors.placing import Topologies
from headgate.core.quota.admission_fair_sharing import settings
from headgate.core.quota.holders import Holder, Using
from headgate.core.quota.tree import QuotaNode
from headgate.core.state.tables import DomainUsage, FlavorResource, State, Workload
from headgate.events.ids import WorkloadKey


class Snapshot:
    """
    The tree of this name, whose cohorts must not form a cycle. `ledger` has its usage, free to be charged.

    `topologies` are those of the cycle, which all its trees share: a removed workload leaves its domains as well.
    """

    __slots__ = (
        "_removed",
        "_using",
        "by_priority",
        "catalog",
        "configuration",
        "ledger",
        "state",
        "topologies",
        "tree",
    )

    def __init__(self, state: State, catalog: Catalog, tree_name: str, topologies: Topologies | None = None) -> None:
        self.state = state
        self.catalog = catalog
        self.configuration = state.configuration
        self.topologies = topologies
        self.tree = catalog.forest.tree(tree_name)
        self.ledger = catalog.forest.ledger(tree_name)
        self.by_priority = settings(self.configuration) is None
        """Whether holders of one ClusterQueue rank by priority, and not by the usage of their LocalQueues first."""
        self._removed: dict[WorkloadKey, Holder] = {}
        self._using: dict[frozenset[FlavorResource], Using] = {}

    def node(self, cluster_queue: str) -> QuotaNode:
        """The place of one of its ClusterQueues in the tree."""
        return self.tree.cluster_queues[cluster_queue]

    def holders(self, cluster_queue: str) -> Sequence[Workload]:
        """
        The workloads that hold quota of a ClusterQueue and are not removed, in preemption order.

        An inactive ClusterQueue has none: its workloads keep their quota, and cannot be preempted.
        """
        if not self._is_active(cluster_queue):
            return ()
        ranked = self.catalog.rankings.of(self.node(cluster_queue)).holders
        return [holder.workload for holder in ranked if holder.key not in self._removed]

    def candidates(self, cluster_queue: str, contested: frozenset[FlavorResource]) -> Iterator[Holder]:
        """The holders that have been assigned one of these flavor-resources, in preemption order."""
        by_queue = self._using.get(contested)
        if by_queue is None:
            # Where LocalQueues' usage counts, which changes independently of what they hold, nothing is cached.
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
        """Whether a workload is removed."""
        return key in self._removed

    def remove(self, key: WorkloadKey) -> None:
        """Remove a workload that holds quota: its usage is free, and it is no candidate. It must not be removed yet."""
        self._take_out_wholly(self.holder(key))

    def restore(self, key: WorkloadKey) -> None:
        """Restore a removed workload."""
        self._put_back_wholly(self.holder(key))

    @contextmanager
    def without(self, keys: Iterable[WorkloadKey]) -> Iterator[None]:
        """The snapshot without these workloads; those that are removed already stay removed."""
        gone = [self.holder(key) for key in dict.fromkeys(keys) if key not in self._removed]
        for holder in gone:
            self._take_out_wholly(holder)
        try:
            yield
        finally:
            for holder in gone:
                self._put_back_wholly(holder)

    def _take_out_wholly(self, holder: Holder) -> None:
        self.take_out(holder)
        self.vacate(holder)

    def _put_back_wholly(self, holder: Holder) -> None:
        self.put_back(holder)
        self.occupy(holder)

    def take_out(self, holder: Holder) -> None:
        """`remove` for callers that have the holder, without the domains that it occupies in topologies."""
        assert holder.key not in self._removed, f"{holder.key} is taken out already"
        self._removed[holder.key] = holder
        for fr, value in holder.usage.items():
            self.ledger.remove(holder.node, fr, value)

    def put_back(self, holder: Holder) -> None:
        """Undo `take_out`."""
        del self._removed[holder.key]
        for fr, value in holder.usage.items():
            self.ledger.add(holder.node, fr, value)

    def vacate(self, holder: Holder) -> None:
        """Free the domains that a workload occupies."""
        if self.topologies is not None and (occupied := self.occupied(holder.key)):
            self.topologies.what_if.remove(occupied)

    def occupy(self, holder: Holder) -> None:
        """Undo `vacate`."""
        if self.topologies is not None and (occupied := self.occupied(holder.key)):
            self.topologies.what_if.add(occupied)

    def occupied(self, key: WorkloadKey) -> tuple[DomainUsage, ...]:
        """What a workload that holds quota occupies in topologies."""
        return self.state.index.topology_usage_of.get(key, ())
