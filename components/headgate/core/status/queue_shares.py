"""
The fair shares of ClusterQueues and Cohorts in a state, as their statuses and metrics show them.

Only while fair sharing is on; otherwise there are no shares. Trees are built once and cached until a ClusterQueue, a
Cohort or the configuration changes (`forget`); usage is summed up once per position and tree.
"""

from headgate.core.quota.cache import Forest
from headgate.core.quota.cohorts import root_of
from headgate.core.quota.fair_shares import Share, share_of
from headgate.core.quota.tree import Ledger
from headgate.core.state.tables import State


class QueueShares:
    """The shares of one state, at its current position."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._forest: Forest | None = None
        self._ledgers: dict[str, Ledger] = {}
        self._position = -1

    def forget(self) -> None:
        """Quotas, weights or members may have changed: rebuild the trees."""
        self._forest = None
        self._ledgers.clear()

    def of_cluster_queue(self, name: str) -> Share | None:
        """The share of a ClusterQueue; None when fair sharing is off or there is no such ClusterQueue."""
        tree = self._state.index.trees.get(name)
        ledger = self._ledger(tree) if tree is not None and self.is_on else None
        return None if ledger is None else share_of(ledger, ledger.tree.cluster_queues[name])

    def of_cohort(self, name: str) -> Share | None:
        """The share of a Cohort; None when fair sharing is off or its cohorts form a cycle."""
        if not self.is_on:
            return None
        ledger = self._ledger(root_of(name, self._state.cohorts))
        node = ledger.tree.cohorts.get(name) if ledger is not None else None
        return None if ledger is None or node is None else share_of(ledger, node)

    def cohorts_above(self, cluster_queue: str) -> list[str]:
        """The cohorts whose shares depend on a ClusterQueue's usage; none when fair sharing is off."""
        tree = self._state.index.trees.get(cluster_queue)
        ledger = self._ledger(tree) if tree is not None and self.is_on else None
        # A tree that is about to be rebuilt may not have it yet; all shares are computed then anyway.
        node = ledger.tree.cluster_queues.get(cluster_queue) if ledger is not None else None
        return [] if node is None else [each.name for each in node.ancestors()]

    @property
    def is_on(self) -> bool:
        """Whether there are shares."""
        return self._state.configuration.fair_sharing is not None

    def _ledger(self, tree: str) -> Ledger | None:
        """The tree of this name with its usage; None when its cohorts form a cycle."""
        if self._forest is None:
            self._forest = Forest(self._state)
        if self._position != self._state.position:
            self._ledgers.clear()
            self._position = self._state.position
        ledger = self._ledgers.get(tree)
        if ledger is None and not self._forest.has_cycle(tree):
            ledger = self._ledgers[tree] = self._forest.ledger(tree)
        return ledger
