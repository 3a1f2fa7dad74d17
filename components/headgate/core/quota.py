"""
The quota tree: who may use how much, and who lends to whom.

A tree is one root Cohort with all below it, or a ClusterQueue that stands alone. `Forest` knows the trees of a state
and builds each when it is first asked for; it follows from specs alone and stays good until one of them changes. A
`Ledger` is one tree with usage written in: made fresh from the state for each cycle, charged and uncharged while the
cycle goes on, then thrown away. Flavor assignment asks it what is available, and the cycle charges it.

The arithmetic is Kueue's (`kueue-semantics` section 5; KEP-79, hierarchical cohorts). Per flavor-resource, a node's
`subtree` quota is its own and what its children lend, its `local` quota the part of that which it does not lend on.
Usage above the local quota is the parent's usage. Amounts saturate as in `headgate.core.amounts`.

Costs: a ledger touches only flavor-resources that somebody asks for, each once per cycle in O(nodes of the tree); after
that every question and every charge is O(depth).
"""

from collections.abc import Mapping
from typing import NamedTuple

from headgate.core.amounts import UNLIMITED, add, amount, subtract
from headgate.core.state import FlavorResource, State
from headgate.core.trees import in_cycle, root_of
from headgate.events.objects import ResourceGroup


class Quota(NamedTuple):
    """Quota of one flavor-resource at one node. A limit of None does not limit."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


_NO_QUOTA = Quota(0)


class Level(NamedTuple):
    """
    From how far up a request is served: the height of the lowest subtree that fits it, 0 without borrowing.

    `may_reclaim` says that this subtree is not the whole tree, so that others may have to give back what they borrowed.
    """

    height: int
    may_reclaim: bool


class Node:
    """A ClusterQueue or a Cohort in its tree. `index` is its place in `QuotaTree.nodes`, where children come first."""

    __slots__ = ("children", "height", "index", "is_cohort", "name", "parent", "quotas")

    def __init__(self, name: str, quotas: Mapping[FlavorResource, Quota], *, is_cohort: bool) -> None:
        self.name = name
        self.quotas = quotas
        self.is_cohort = is_cohort
        self.parent: Node | None = None
        self.children: list[Node] = []
        self.height = 0
        """The longest way down to a leaf: 0 for a ClusterQueue, 1 for a cohort of ClusterQueues."""
        self.index = 0

    def quota(self, fr: FlavorResource) -> Quota:
        """Its own quota of a flavor-resource; none is 0."""
        return self.quotas.get(fr, _NO_QUOTA)


class _Limits(NamedTuple):
    """What follows from specs, for one flavor-resource: one entry per node of the tree."""

    subtree: list[int]
    local: list[int]
    potential: list[int]


class QuotaTree:
    """One tree. Immutable; shared by all ledgers that are made of it."""

    __slots__ = ("_limits", "cluster_queues", "cohorts", "name", "nodes")

    def __init__(self, name: str, nodes: list[Node]) -> None:
        self.name = name
        self.nodes = nodes
        self.cluster_queues = {node.name: node for node in nodes if not node.is_cohort}
        self.cohorts = {node.name: node for node in nodes if node.is_cohort}
        self._limits: dict[FlavorResource, _Limits] = {}

    def limits(self, fr: FlavorResource) -> _Limits:
        """Subtree quota, local quota and potentially available quota of every node."""
        limits = self._limits.get(fr)
        if limits is None:
            limits = self._limits[fr] = self._work_out(fr)
        return limits

    def potential_available(self, node: Node, fr: FlavorResource) -> int:
        """What a node could use if nobody in the tree used anything."""
        return self.limits(fr).potential[node.index]

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


# --- building ------------------------------------------------------------------------------------------------------


def quotas_of(groups: tuple[ResourceGroup, ...]) -> dict[FlavorResource, Quota]:
    """The quotas that resource groups give, by flavor-resource."""
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


class Forest:
    """The quota trees of a state, each built at first asking. Good until a ClusterQueue or a Cohort changes."""

    __slots__ = ("_cluster_queues", "_cohorts", "_state", "_trees")

    def __init__(self, state: State) -> None:
        self._state = state
        self._trees: dict[str, QuotaTree] = {}
        self._cluster_queues: dict[str, list[str]] = {}
        self._cohorts: dict[str, list[str]] = {}
        for name in sorted(state.cluster_queues):
            self._cluster_queues.setdefault(state.index.trees[name], []).append(name)
        for name in _cohort_names(state):
            self._cohorts.setdefault(root_of(name, state.cohorts), []).append(name)

    def tree_of(self, cluster_queue: str) -> QuotaTree:
        """The tree of a ClusterQueue. Raises KeyError when there is no such ClusterQueue."""
        return self.tree(self._state.index.trees[cluster_queue])

    def tree(self, name: str) -> QuotaTree:
        """The tree of this name. Its cohorts must not form a cycle: ClusterQueues below one are not active."""
        tree = self._trees.get(name)
        if tree is None:
            tree = self._trees[name] = self._build(name)
        return tree

    def has_cycle(self, name: str) -> bool:
        """Whether the cohorts of this tree form a cycle, so that it has no root and no quota."""
        return any(in_cycle(cohort, self._state.cohorts) for cohort in self._cohorts.get(name, ()))

    def _build(self, name: str) -> QuotaTree:
        state = self._state
        nodes: list[Node] = []
        cohorts: dict[str, Node] = {}
        for cohort in self._cohorts.get(name, ()):
            assert not in_cycle(cohort, state.cohorts), f"cohort {cohort} is in a cycle and has no quota tree"
            record = state.cohorts.get(cohort)
            groups = record.spec.resource_groups if record is not None else ()
            cohorts[cohort] = Node(cohort, quotas_of(groups), is_cohort=True)
        for cohort, node in cohorts.items():
            record = state.cohorts.get(cohort)
            if record is not None and record.spec.parent_name:
                _adopt(cohorts[record.spec.parent_name], node)
        for cluster_queue in self._cluster_queues.get(name, ()):
            spec = state.cluster_queues[cluster_queue].spec
            node = Node(cluster_queue, quotas_of(spec.resource_groups), is_cohort=False)
            if spec.cohort_name:
                _adopt(cohorts[spec.cohort_name], node)
            else:
                nodes.append(node)
        for cohort, node in cohorts.items():
            if node.parent is None:
                assert cohort == name, f"cohort {cohort} has no parent, but is not the root of tree {name}"
                _collect(node, nodes)
        for index, node in enumerate(nodes):
            node.index = index
        return QuotaTree(name, nodes)


def _cohort_names(state: State) -> list[str]:
    """Every cohort: those with an object, and those that are only named by a member."""
    names = set(state.cohorts)
    names.update(record.spec.parent_name for record in state.cohorts.values() if record.spec.parent_name)
    names.update(record.spec.cohort_name for record in state.cluster_queues.values() if record.spec.cohort_name)
    return sorted(names)


def _adopt(parent: Node, child: Node) -> None:
    child.parent = parent
    parent.children.append(child)


def _collect(node: Node, into: list[Node]) -> None:
    """Put a subtree into the list, children first, and measure its height."""
    for child in node.children:
        _collect(child, into)
    node.height = max((child.height + 1 for child in node.children), default=0)
    into.append(node)


# --- usage ---------------------------------------------------------------------------------------------------------

Usage = Mapping[str, Mapping[FlavorResource, int]]
"""Per ClusterQueue, what its workloads hold of each flavor-resource."""


class Ledger:
    """One tree with its usage. Charging it changes nothing but itself."""

    __slots__ = ("_columns", "_held", "tree")

    def __init__(self, tree: QuotaTree, held: Usage) -> None:
        self.tree = tree
        self._held = held
        self._columns: dict[FlavorResource, list[int]] = {}

    def _column(self, fr: FlavorResource) -> list[int]:
        column = self._columns.get(fr)
        if column is None:
            column = self._columns[fr] = self._sum_up(fr)
        return column

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

    def usage(self, node: Node, fr: FlavorResource) -> int:
        """What is used at a node: by a ClusterQueue, or of what a cohort's subtree shares."""
        return self._column(fr)[node.index]

    def local_available(self, node: Node, fr: FlavorResource) -> int:
        """What is left of the quota that a node does not lend."""
        return max(0, subtract(self.tree.limits(fr).local[node.index], self._column(fr)[node.index]))

    def available(self, node: Node, fr: FlavorResource) -> int:
        """What a node could take now, borrowing included. Negative when more is used than there is."""
        limits, used = self.tree.limits(fr), self._column(fr)[node.index]
        subtree, local = limits.subtree[node.index], limits.local[node.index]
        if node.parent is None:
            return subtract(subtree, used)
        shared = self.available(node.parent, fr)
        borrowing_limit = node.quota(fr).borrowing_limit
        if borrowing_limit is not None:
            used_above = max(0, subtract(used, local))
            shared = min(shared, add(subtract(subtract(subtree, local), used_above), borrowing_limit))
        return add(max(0, subtract(local, used)), shared)

    def fits(self, node: Node, usage: Mapping[FlavorResource, int]) -> bool:
        """Whether a ClusterQueue can take all of this now."""
        return all(value <= max(0, self.available(node, fr)) for fr, value in usage.items())

    def add(self, node: Node, fr: FlavorResource, value: int) -> None:
        """Charge a ClusterQueue; what does not find room in a node's local quota charges its parent too."""
        column, local = self._column(fr), self.tree.limits(fr).local
        at: Node | None = node
        while at is not None and value:
            i = at.index
            room = max(0, subtract(local[i], column[i]))
            column[i] = add(column[i], value)
            value = max(0, subtract(value, room))
            at = at.parent

    def remove(self, node: Node, fr: FlavorResource, value: int) -> None:
        """Take a charge back; a parent gets back what it had been charged for."""
        column, local = self._column(fr), self.tree.limits(fr).local
        at: Node | None = node
        while at is not None and value:
            i = at.index
            stored_in_parent = subtract(column[i], local[i])
            column[i] = subtract(column[i], value)
            if stored_in_parent <= 0:
                return
            value = min(value, stored_in_parent)
            at = at.parent

    def borrows_with(self, node: Node, fr: FlavorResource, value: int) -> bool:
        """Whether a node would use more than its own (a cohort: its subtree's) quota with this on top."""
        quota = self.tree.limits(fr).subtree[node.index] if node.is_cohort else node.quota(fr).nominal
        return quota < add(self._column(fr)[node.index], value)

    def borrowing_level(self, node: Node, fr: FlavorResource, value: int) -> Level:
        """The lowest subtree that fits a request of a ClusterQueue, as far as quota goes."""
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
