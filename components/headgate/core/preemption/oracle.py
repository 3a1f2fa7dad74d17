"""
The oracle: whether preemption is possible for one flavor-resource of a workload (Kueue's preemption oracle).

Flavor assignment calls it for each flavor-resource that lacks unused quota. The answer separates flavors in which only
borrowers would be preempted from those in which workloads of the own ClusterQueue would be, and from those without
candidates. The targets of the assignment come from here as well: where it is charged a single flavor-resource, that
search was made already.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from headgate.core.flavors import Grade
from headgate.core.flavors.cluster_queue import ClusterQueueFlavors
from headgate.core.preemption.target import Target, find_targets
from headgate.core.preemption.what_if import Snapshot
from headgate.core.quota.tree import QuotaNode
from headgate.core.state.tables import FlavorResource, Workload
from headgate.core.topology.demands import PodSetDemand

_Asked = tuple[frozenset[tuple[FlavorResource, int]], frozenset[FlavorResource]]


class SnapshotOracle:
    """
    Answers by searches on a snapshot (`headgate.core.flavors.PreemptionOracle`).

    For one assignment of one workload: the snapshot must not change meanwhile.
    """

    __slots__ = ("_found", "_incoming", "_queue", "_snapshot")

    def __init__(self, snapshot: Snapshot, queue: ClusterQueueFlavors, incoming: Workload) -> None:
        self._snapshot = snapshot
        self._queue = queue
        self._incoming = incoming
        self._found: dict[_Asked, tuple[Target, ...]] = {}
        """The targets for quota alone, by requests and what is contested."""

    def targets(
        self,
        requests: Mapping[FlavorResource, int],
        contested: AbstractSet[FlavorResource],
        demands: Sequence[PodSetDemand] = (),
    ) -> tuple[Target, ...]:
        """
        `find_targets` for its workload, from the search for the quota alone where that was made.

        Where it found none, none are enough for domains besides. Where the pods can be placed without those that it
        found, it would find the same again: with each workload less in the topology there is more room.
        """
        asked = frozenset(requests.items()), frozenset(contested)
        known = self._found.get(asked)
        if known is not None and (not known or not demands or self._are_enough(known, demands)):
            return known
        found = find_targets(self._snapshot, self._queue, self._incoming, requests, contested, demands=demands)
        if not demands:
            self._found[asked] = found
        return found

    def _are_enough(self, targets: tuple[Target, ...], demands: Sequence[PodSetDemand]) -> bool:
        """Whether the pods can be placed without these; only where every search is monotonous: for one pod set."""
        topologies = self._snapshot.topologies
        if topologies is None or len(demands) > 1 or topologies.gates.balanced or topologies.gates.elastic:
            return False
        with self._snapshot.without(target.workload for target in targets):
            return topologies.can_place(demands)

    def simulate(self, node: QuotaNode, fr: FlavorResource, value: int) -> tuple[Grade, int]:
        """NO_CANDIDATES, PREEMPT or RECLAIM, and the borrowing level of the request after the targets have gone."""
        snapshot = self._snapshot
        targets = self.targets({fr: value}, frozenset((fr,)))
        if not targets:
            return Grade.NO_CANDIDATES, snapshot.ledger.borrowing_level(node, fr, value).height
        with snapshot.without(target.workload for target in targets):
            height = snapshot.ledger.borrowing_level(node, fr, value).height
        at_home = any(target.cluster_queue == node.name for target in targets)
        return Grade.PREEMPT if at_home else Grade.RECLAIM, height
