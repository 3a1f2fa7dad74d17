"""
The oracle: whether preemption is possible for one flavor-resource of a workload (Kueue's preemption oracle).

Flavor assignment calls it for each flavor-resource that lacks unused quota. The answer separates flavors in which only
borrowers would be preempted from those in which workloads of the own ClusterQueue would be, and from those without
candidates.
"""

from headgate.core.flavors import Grade
from headgate.core.flavors.cluster_queue import ClusterQueueFlavors
from headgate.core.preemption.target import find_targets
from headgate.core.preemption.what_if import Snapshot
from headgate.core.quota.tree import QuotaNode
from headgate.core.state.tables import FlavorResource, Workload


class SnapshotOracle:
    """Answers by a search on a snapshot (`headgate.core.flavors.PreemptionOracle`)."""

    __slots__ = ("_incoming", "_queue", "_snapshot")

    def __init__(self, snapshot: Snapshot, queue: ClusterQueueFlavors, incoming: Workload) -> None:
        self._snapshot = snapshot
        self._queue = queue
        self._incoming = incoming

    def simulate(self, node: QuotaNode, fr: FlavorResource, value: int) -> tuple[Grade, int]:
        """NO_CANDIDATES, PREEMPT or RECLAIM, and the borrowing level of the request after the targets have gone."""
        snapshot = self._snapshot
        targets = find_targets(snapshot, self._queue, self._incoming, {fr: value}, frozenset((fr,)))
        if not targets:
            return Grade.NO_CANDIDATES, snapshot.ledger.borrowing_level(node, fr, value).height
        with snapshot.without(target.workload for target in targets):
            height = snapshot.ledger.borrowing_level(node, fr, value).height
        at_home = any(target.cluster_queue == node.name for target in targets)
        return Grade.PREEMPT if at_home else Grade.RECLAIM, height
