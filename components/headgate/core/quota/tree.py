"""
The quota tree: which node may use how much, and which nodes lend to each other.

A tree is one root Cohort with everything below it, or a ClusterQueue without cohort; `headgate.core.quota.cache` has
those of a state. A `Ledger` is one tree with usage: copied for each cycle, charged and uncharged during the cycle, then
discarded. Flavor assignment reads from it what is available, and the cycle charges it.

The arithmetic is Kueue's (`kueue-semantics` section 5; KEP-79, hierarchical cohorts). Per flavor-resource, a node's
`subtree` quota is its own plus what its children lend; its `local` quota is the part of that which it does not lend.
Usage above the local quota is charged to the parent. Amounts saturate as in `headgate.core.kubernetes.quantities`.

Costs: a ledger copies only the flavor-resources that are used, each once per cycle, at a few nanoseconds a node. Every
query and every charge is O(depth), and so is every change of usage between cycles. A change of a spec costs its tree.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from headgate.core.kubernetes.quantities import UNLIMITED, add, amount, parse_weight, subtract
from headgate.core.state.tables import FlavorResource
from headgate.events.objects import FairSharing, ResourceGroup


class Quota(NamedTuple):
    """Quota of one flavor-resource at one node. A limit of None does not limit."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


_NO_QUOTA = Quota(0)


class Level(NamedTuple):
    """
    The borrowing level of a request: the height of the lowest subtree that fits it, 0 without borrowing.

    `may_reclaim` means that this subtree is not the whole tree, so that reclaiming what others borrowed may be needed.
    """

    height: int
    may_reclaim: bool


class QuotaNode:
    """A ClusterQueue or a Cohort in its tree. `index` is its place in `QuotaTree.nodes`, where children come first."""

    __slots__ = (
        "active",
        "children",
        "cluster_queues",
        "cohorts",
        "height",
        "index",
        "is_cohort",
        "name",
        "parent",
        "quotas",
        "weight",
    )

    def __init__(
        self, name: str, quotas: Mapping[FlavorResource, Quota], *, is_cohort: bool, weight: float = 1.0
    ) -> None:
        self.name = name
        self.quotas = quotas
        self.is_cohort = is_cohort
        self.weight = weight
        """Its weight in fair sharing."""
        self.parent: QuotaNode | None = None
        self.children: list[QuotaNode] = []
        self.cohorts: list[QuotaNode] = []
        """Those of its children that are cohorts, by name."""
        self.cluster_queues: list[QuotaNode] = []
        """Those of its children that are ClusterQueues, by name."""
        self.height = 0
        """The longest path down to a leaf, active ones only: 0 for a ClusterQueue, 1 for a cohort of ClusterQueues."""
        self.active = True
        """Whether it is a cohort, or a ClusterQueue that is active."""
        self.index = 0

    def quota(self, fr: FlavorResource) -> Quota:
        """Its own quota of a flavor-resource; 0 without one."""
        return self.quotas.get(fr, _NO_QUOTA)

    def ancestors(self) -> Iterator["QuotaNode"]:
        """The cohorts above it, its parent first and the root last."""
        at = self.parent
        while at is not None:
            yield at
            at = at.parent


class _Limits(NamedTuple):
    """What is derived from specs, for one flavor-resource: one entry per node of the tree."""

    subtree: list[int]
    local: list[int]
    potential: list[int]


class QuotaTree:
    """One tree. Immutable; shared by all ledgers that are built on it."""

    __slots__ = ("_flavor_resources", "_lendable", "_limits", "cluster_queues", "cohorts", "name", "nodes")

    def __init__(self, name: str, nodes: list[QuotaNode]) -> None:
        self.name = name
        self.nodes = nodes
        self.cluster_queues = {node.name: node for node in nodes if not node.is_cohort}
        self.cohorts = {node.name: node for node in nodes if node.is_cohort}
        self._limits: dict[FlavorResource, _Limits] = {}
        self._flavor_resources: dict[int, Collection[FlavorResource]] = {}
        self._lendable: dict[int, dict[str, int]] = {}

    def limits(self, fr: FlavorResource) -> _Limits:
        """Subtree quota, local quota and potentially available quota of every node."""
        limits = self._limits.get(fr)
        if limits is None:
            limits = self._limits[fr] = self._work_out(fr)
        return limits

    def potential_available(self, node: QuotaNode, fr: FlavorResource) -> int:
        """What a node could use if nothing in the tree were used."""
        return self.limits(fr).potential[node.index]

    def flavor_resources(self, node: QuotaNode) -> Collection[FlavorResource]:
        """The flavor-resources that a node or anything below it has a quota of, including quotas of 0."""
        if not node.children:
            return node.quotas.keys()
        known = self._flavor_resources.get(node.index)
        if known is None:
            union = dict.fromkeys(node.quotas)
            for child in node.children:
                union.update(dict.fromkeys(self.flavor_resources(child)))
            known = self._flavor_resources[node.index] = union.keys()
        return known

    def lendable(self, node: QuotaNode) -> Mapping[str, int]:
        """Per resource, what a node could use of all flavors together if nothing in the tree were used."""
        lendable = self._lendable.get(node.index)
        if lendable is None:
            lendable = self._lendable[node.index] = {}
            for fr in self.flavor_resources(self.nodes[-1]):
                lendable[fr[1]] = add(lendable.get(fr[1], 0), self.limits(fr).potential[node.index])
        return lendable

    def _work_out(self, fr: FlavorResource) -> _Limits:
        subtree = [node.quota(fr).nominal for node in self.nodes]
        local = [0] * len(subtree)
        for i, node in enumerate(self.nodes):
            lending_limit = node.quota(fr).lending_limit
            if lending_limit is not None:
                local[i] = max(0, subtract(subtree[i], lending_limit))
            if node.parent is not None:
                up = node.parent.index
                subtree[up] = add(subtree[up], subtract(subtree[i], local[i]))
        potential = [0] * len(subtree)
        for i in reversed(range(len(subtree))):
            node = self.nodes[i]
            if node.parent is None:
                potential[i] = subtree[i]
                continue
            potential[i] = add(local[i], potential[node.parent.index])
            borrowing_limit = node.quota(fr).borrowing_limit
            if borrowing_limit is not None:
                potential[i] = min(potential[i], add(subtree[i], borrowing_limit))
        return _Limits(subtree, local, potential)


# --- specs -----------------------------------------------------------------------------------------------------------


def quotas_of(groups: tuple[ResourceGroup, ...]) -> dict[FlavorResource, Quota]:
    """The quotas of resource groups, by flavor-resource."""
    quotas: dict[FlavorResource, Quota] = {}
    for group in groups:
        for flavor in group.flavors:
            for resource in flavor.resources:
                name = resource.name
                quotas[flavor.name, name] = Quota(
                    amount(name, resource.nominal_quota),
                    None if resource.borrowing_limit is None else amount(name, resource.borrowing_limit),
                    None if resource.lending_limit is None else amount(name, resource.lending_limit),
                )
    return quotas


def weight_of(fair_sharing: FairSharing | None) -> float:
    """The weight in a `fairSharing`: 1 by default."""
    if fair_sharing is None or fair_sharing.weight is None:
        return 1.0
    return parse_weight(fair_sharing.weight)


# --- usage ---------------------------------------------------------------------------------------------------------

Usage = Mapping[str, Mapping[FlavorResource, int]]
"""Per ClusterQueue, what its workloads hold of each flavor-resource."""


_SAFE = 2**60
"""Sums of a few amounts below it cannot saturate: there plain integers are used, which are faster."""


def _available(node: QuotaNode, fr: FlavorResource, limits: _Limits, column: list[int]) -> int:
    i = node.index
    used, subtree, local = column[i], limits.subtree[i], limits.local[i]
    parent = node.parent
    if parent is None:
        return subtract(subtree, used)
    shared = _available(parent, fr, limits, column)
    borrowing_limit = node.quota(fr).borrowing_limit
    if borrowing_limit is not None:
        used_above = max(0, subtract(used, local))
        shared = min(shared, add(subtract(subtract(subtree, local), used_above), borrowing_limit))
    if local <= used:
        return shared
    return add(subtract(local, used), shared)


class Ledger:
    """
    One tree with its usage. Charging it changes nothing else.

    `kept` has the usage of every node for some flavor-resources; it is copied on use, and completed.
    """

    __slots__ = ("_columns", "_held", "_kept", "tree")

    def __init__(self, tree: QuotaTree, held: Usage, kept: dict[FlavorResource, list[int]] | None = None) -> None:
        self.tree = tree
        self._held = held
        self._kept = kept
        self._columns: dict[FlavorResource, list[int]] = {}

    def column(self, fr: FlavorResource) -> list[int]:
        """The usage of every node, by `QuotaNode.index`: read-only, the same list during the ledger's whole life."""
        column = self._columns.get(fr)
        if column is None:
            column = self._columns[fr] = self._from_kept(fr)
        return column

    def _from_kept(self, fr: FlavorResource) -> list[int]:
        if self._kept is None:
            return self._sum_up(fr)
        column = self._kept.get(fr)
        if column is None:
            column = self._kept[fr] = self._sum_up(fr)
        return column.copy()

    def _sum_up(self, fr: FlavorResource) -> list[int]:
        """The usage of every node: what a ClusterQueue's workloads hold, and what overflows into each cohort."""
        local = self.tree.limits(fr).local
        column = [0] * len(local)
        for i, node in enumerate(self.tree.nodes):
            if not node.is_cohort:
                held = self._held.get(node.name)
                column[i] = min(held.get(fr, 0), UNLIMITED) if held else 0
            if node.parent is not None and column[i] > local[i]:
                up = node.parent.index
                column[up] = add(column[up], subtract(column[i], local[i]))
        return column

    def usage(self, node: QuotaNode, fr: FlavorResource) -> int:
        """The usage at a node: of a ClusterQueue, or of what a cohort's subtree shares."""
        return self.column(fr)[node.index]

    def local_available(self, node: QuotaNode, fr: FlavorResource) -> int:
        """What is left of the quota that a node does not lend."""
        return max(0, subtract(self.tree.limits(fr).local[node.index], self.column(fr)[node.index]))

    def available(self, node: QuotaNode, fr: FlavorResource) -> int:
        """What a node could use now, borrowing included. Negative when more is used than there is."""
        return _available(node, fr, self.tree.limits(fr), self.column(fr))

    def fits(self, node: QuotaNode, usage: Mapping[FlavorResource, int]) -> bool:
        """Whether a ClusterQueue can use all of this now."""
        return all(value <= max(0, self.available(node, fr)) for fr, value in usage.items())

    def add(self, node: QuotaNode, fr: FlavorResource, value: int) -> None:
        """
        Charge a ClusterQueue; what exceeds a node's local quota is charged to its parent too.

        A negative amount changes the ClusterQueue alone (addUsage): its charge at the parent stays.
        """
        column, local = self.column(fr), self.tree.limits(fr).local
        at: QuotaNode | None = node
        while at is not None and value:
            i = at.index
            used, own = column[i], local[i]
            if -_SAFE < used < _SAFE and value < _SAFE and own < _SAFE:
                column[i] = used + value
                if own > used or value < 0:
                    value = max(0, value - max(0, own - used))
            else:
                column[i] = add(used, value)
                value = max(0, subtract(value, max(0, subtract(own, used))))
            at = at.parent

    def remove(self, node: QuotaNode, fr: FlavorResource, value: int) -> None:
        """Undo a charge; a parent is uncharged by what it was charged."""
        column, local = self.column(fr), self.tree.limits(fr).local
        at: QuotaNode | None = node
        while at is not None and value:
            i = at.index
            used, own = column[i], local[i]
            if -_SAFE < used < _SAFE and value < _SAFE and own < _SAFE:
                stored_in_parent = used - own
                column[i] = used - value
            else:
                stored_in_parent = subtract(used, own)
                column[i] = subtract(used, value)
            if stored_in_parent <= 0:
                return
            value = min(value, stored_in_parent)
            at = at.parent

    def borrows_with(self, node: QuotaNode, fr: FlavorResource, value: int) -> bool:
        """Whether a node would use more than its own (a cohort: its subtree's) quota with this added."""
        quota = self.tree.limits(fr).subtree[node.index] if node.is_cohort else node.quota(fr).nominal
        return quota < add(self.column(fr)[node.index], value)

    def borrowing_level(self, node: QuotaNode, fr: FlavorResource, value: int) -> Level:
        """The lowest subtree whose quota fits a request of a ClusterQueue."""
        if node.parent is None or not self.borrows_with(node, fr, value):
            return Level(0, node.parent is not None)
        remaining = subtract(value, self.local_available(node, fr))
        at = node.parent
        while True:
            if not self.borrows_with(at, fr, remaining):
                return Level(at.height, at.parent is not None)
            if at.parent is None:
                return Level(at.height, False)
            remaining = subtract(remaining, self.local_available(at, fr))
            at = at.parent
