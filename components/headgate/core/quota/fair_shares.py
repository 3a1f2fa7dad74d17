"""
Shares: how much of what a tree can lend a ClusterQueue or cohort has borrowed, for fair sharing.

The dominant resource share (Ghodsi et al., "Dominant Resource Fairness", NSDI 2011) as Kueue defines it (KEP-1714;
`kueue-semantics` section 7): for each resource, a node's usage above its subtree's quota is divided by what its parent
could use if nothing in the tree were used. The largest of these ratios, in thousandths and divided by the node's
weight, is its share. A node without parent has none. The share of a node of weight 0 that borrows is larger than all
others.

The cycle's tournament and the preemption search compare shares; queue statuses show them. The arithmetic uses 64-bit
floats in Kueue's order of operations, so that shares that are equal in Kueue are equal here.
"""

import math
from collections.abc import Mapping

import msgspec

from headgate.core.kubernetes.quantities import UNLIMITED, add, subtract
from headgate.core.quota.tree import Ledger, QuotaNode
from headgate.core.state.tables import FlavorResource


class Share(msgspec.Struct, frozen=True, gc=False):
    """
    A node's share. `ratio` is the unweighted one, of the `resource` that dominates, in thousandths.

    `borrowed` are the flavor-resources of which it uses more than its quota. Even with some there may be no ratio, when
    none of them can be lent. Shares compare by `key`; a larger one is preferred for preemption.
    """

    weight: float = 1.0
    ratio: float = 0.0
    resource: str = ""
    borrowed: tuple[FlavorResource, ...] = ()

    @property
    def borrowing(self) -> bool:
        """Whether the node uses more than its quota of anything."""
        return bool(self.borrowed)

    def borrows_any(self, requests: Mapping[FlavorResource, int]) -> bool:
        """Whether it borrows any of the requested flavor-resources."""
        return any(requests.get(fr, 0) > 0 for fr in self.borrowed)

    @property
    def exact(self) -> float:
        """The weighted share; infinite for a node of weight 0 that borrows."""
        if self.ratio == 0:
            return 0.0
        return math.inf if self.weight == 0 else self.ratio / self.weight

    @property
    def rounded(self) -> int:
        """The weighted share as a status shows it: rounded up, the largest integer for an infinite one."""
        exact = self.exact
        return UNLIMITED if math.isinf(exact) else math.ceil(exact)

    @property
    def key(self) -> tuple[bool, float]:
        """The comparison key: two infinite shares compare by their ratios."""
        infinite = self.weight == 0 and self.ratio != 0
        return infinite, self.ratio if infinite else self.exact


def share_of(ledger: Ledger, node: QuotaNode, requests: Mapping[FlavorResource, int] | None = None) -> Share:
    """The share of a node with these requests added to the usage in its ledger."""
    if node.parent is None:
        return Share(weight=node.weight)
    borrowed: list[FlavorResource] = []
    by_resource: dict[str, int] = {}
    for fr in ledger.tree.flavor_resources(node):
        used = ledger.usage(node, fr)
        if requests:
            used = add(requests.get(fr, 0), used)
        above = subtract(used, ledger.tree.limits(fr).subtree[node.index])
        if above > 0:
            borrowed.append(fr)
            by_resource[fr[1]] = add(by_resource.get(fr[1], 0), above)
    ratio, dominant = 0.0, ""
    if by_resource:
        lendable = ledger.tree.lendable(node.parent)
        for resource in sorted(by_resource):
            most = lendable.get(resource, 0)
            if most > 0:
                of_resource = float(by_resource[resource]) * 1000.0 / float(most)
                if of_resource > ratio:
                    ratio, dominant = of_resource, resource
    return Share(node.weight, ratio, dominant, tuple(borrowed))
