"""
The tree of domains of one flavor, and what is free in its leaves, the domains of the lowest level.

`TopologyCache` builds trees and keeps them current, `WhatIf` changes usage for a cycle, and `headgate.core.topology`'s
search reads them. A domain is a slot of its level: arrays by slot have its parent, its order among all domains of the
level, and how many nodes are below it. A slot stays when its last node leaves, and is used again when the domain comes
back, so a node that becomes unready and ready again moves nothing. `TopologyCache` builds a tree anew when most of its
slots are empty.

Leaf capacity is the sum of what its nodes can allocate, less what pods without topology use there, in the units of
`headgate.core.kubernetes.quantities`. Amounts are kept exactly; arrays have them clamped to what can be computed with
in 64 bits without overflow.

Costs: a change of a node or of usage costs its path. Readers cache what they compute per leaf, and read from the
`LeafChanges` of the tree which leaves to compute anew.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from headgate.core.kubernetes.quantities import amount
from headgate.core.state.tables import Values
from headgate.core.topology.assignments import HOSTNAME
from headgate.core.topology.levels import carries_labels
from headgate.core.topology.slots import DomainLevel, LeafChanges, ResourceColumn
from headgate.events.objects import Node, Toleration

Amounts = Mapping[str, int]


class _Part:
    """What one node has in the tree: its leaf, and the amounts that it adds there."""

    __slots__ = ("amounts", "key", "node", "path")

    def __init__(self, node: Node, key: Values, path: Values) -> None:
        self.node = node
        self.key = key
        self.path = path
        self.amounts = {resource: amount(resource, quantity) for resource, quantity in node.allocatable.items()}


class FlavorTopology:
    """
    The tree of one flavor.

    `levels` are the node labels of its topology, widest first; `by_host` means that the lowest one is the hostname, so
    that leaves are nodes, and are known by their hostname alone. `topology` is the name of the topology.
    """

    def __init__(
        self,
        name: str,
        topology: str,
        levels: Sequence[str],
        node_labels: Mapping[str, str],
        tolerations: tuple[Toleration, ...] = (),
    ) -> None:
        self.name = name
        self.topology = topology
        self.levels = tuple(levels)
        self.node_labels = dict(node_labels)
        self.tolerations = tolerations
        self.by_host = bool(levels) and levels[-1] == HOSTNAME
        self.by_level = [DomainLevel() for _ in levels]
        self.columns: dict[str, ResourceColumn] = {}
        self.first_node: list[Node | None] = []
        """By leaf: its node, of several the first by name."""
        self.changes = LeafChanges()
        """The leaves that have changed."""
        self.capacity_changes = LeafChanges()
        """Those of them that have changed also for who looks at an empty tree."""
        self.node_changes = LeafChanges()
        """Those of them whose node has changed, and not only its usage."""
        self._leaf_of: dict[Values, int] = {}
        self._parts: dict[str, _Part] = {}
        self._by_key: dict[Values, dict[str, _Part]] = {}
        self._foreign: dict[str, dict[str, int]] = {}

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def leaves(self) -> DomainLevel:
        """The lowest level."""
        return self.by_level[-1]

    @property
    def slots(self) -> int:
        """The number of leaf slots, also of leaves that do not exist."""
        return len(self.leaves.values)

    def leaf(self, values: Values) -> int | None:
        """The slot of a leaf by the values that assignments have: its hostname alone, or its value of each level."""
        return self._leaf_of.get(values)

    def known_as(self, leaf: int) -> Values:
        """The values by which assignments know a leaf."""
        values = self.leaves.values[leaf]
        return values[-1:] if self.by_host else values

    def ancestor(self, leaf: int, level: int) -> int:
        """The slot of the domain on a level that a leaf is in."""
        return self.by_level[level].slots[self.leaves.values[leaf][: level + 1]]

    def has(self, node: Node) -> bool:
        """Whether a node is part of the tree: ready, schedulable, with all labels of the flavor and of all levels."""
        return node.ready and not node.unschedulable and carries_labels(node, self.node_labels, self.levels)

    def free(self, leaf: int) -> dict[str, int]:
        """What is free in a leaf, exactly; negative where more is used than there is."""
        return {name: column.capacity[leaf] - column.used[leaf] for name, column in self.columns.items()}

    # --- nodes -------------------------------------------------------------------------------------------------------

    def set_node(self, name: str, node: Node | None, used: Callable[[Values], Amounts]) -> None:
        """
        A node exists, has changed, or (None) is gone. Costs its path.

        `used` tells what workloads use of a leaf that comes to be.
        """
        before = self._parts.get(name)
        after = _part(node, self.levels, by_host=self.by_host) if node is not None and self.has(node) else None
        if before is None and after is None:
            return
        self._parts.pop(name, None)
        if before is not None and (after is None or after.key != before.key):
            self._move(before.key, name, None, used)
        if after is not None:
            self._parts[name] = after
            self._move(after.key, name, after, used)

    def set_foreign_usage(self, name: str, usage: Amounts) -> None:
        """What pods without topology use on a node, `pods` counted; nodes that are not in the tree are kept in mind."""
        before = self._foreign.get(name, {})
        if usage:
            self._foreign[name] = dict(usage)
        else:
            self._foreign.pop(name, None)
        part = self._parts.get(name)
        if part is not None:
            leaf = self._leaf_of[part.key]
            self._add_capacity(leaf, before, 1)
            self._add_capacity(leaf, usage, -1)
            self._capacity_changed(leaf)

    def _move(self, key: Values, name: str, part: _Part | None, used: Callable[[Values], Amounts]) -> None:
        """
        Replace what a node adds to a leaf.

        Nodes with the same hostname are one leaf, which is where the first of them by name is.
        """
        parts = self._by_key.setdefault(key, {})
        before = parts.pop(name, None)
        leaf = self._leaf_of.get(key)
        foreign = self._foreign.get(name, {})
        if leaf is not None and before is not None:
            self._add_capacity(leaf, before.amounts, -1)
            self._add_capacity(leaf, foreign, 1)
            self._count(leaf, -1)
        if part is not None:
            parts[name] = part
        if not parts:
            del self._by_key[key], self._leaf_of[key]
            assert leaf is not None, f"leaf {key} had a node, and no slot"
            self._settle(leaf, None)
            return
        first = parts[min(parts)]
        place = self._slot(first.path)
        if leaf != place:
            self._leave(leaf, parts, name)
            self._leaf_of[key] = leaf = self._enter(place, parts, name, used(key))
        if part is not None:
            self._add_capacity(leaf, part.amounts, 1)
            self._add_capacity(leaf, foreign, -1)
            self._count(leaf, 1)
        self._settle(leaf, first.node)

    def _leave(self, leaf: int | None, parts: Mapping[str, _Part], besides: str) -> None:
        """The nodes of a hostname leave a slot, because the first of them is somewhere else."""
        if leaf is None:
            return
        for name, part in parts.items():
            if name != besides:
                self._add_capacity(leaf, part.amounts, -1)
                self._add_capacity(leaf, self._foreign.get(name, {}), 1)
                self._count(leaf, -1)
        self._settle(leaf, None)

    def _enter(self, leaf: int, parts: Mapping[str, _Part], besides: str, used: Amounts) -> int:
        """The nodes of a leaf enter a slot."""
        for resource, value in used.items():
            self._column(resource).used[leaf] = value
        for column in self.columns.values():
            column.changed(leaf)
        for name, part in parts.items():
            if name != besides:
                self._add_capacity(leaf, part.amounts, 1)
                self._add_capacity(leaf, self._foreign.get(name, {}), -1)
                self._count(leaf, 1)
        return leaf

    def _settle(self, leaf: int, node: Node | None) -> None:
        """Record the first node of a leaf; without one nothing is used there."""
        self.first_node[leaf] = node
        if node is None:
            for column in self.columns.values():
                column.capacity[leaf] = column.used[leaf] = 0
                column.changed(leaf)
        self._capacity_changed(leaf)
        self.node_changes.add(leaf)

    def _slot(self, path: Values) -> int:
        """The slot of a leaf, made when there is none."""
        slot = self.leaves.slots.get(path)
        if slot is not None:
            return slot
        parent = -1
        for depth, level in enumerate(self.by_level):
            values = path[: depth + 1]
            at = level.slots.get(values)
            if at is None:
                at = level.add(values, parent)
                if depth:
                    self.by_level[depth - 1].children[parent].append(at)
            parent = at
        self.first_node.append(None)
        for column in self.columns.values():
            column.grow(len(self.leaves.parent))
        return parent

    def _count(self, leaf: int, nodes: int) -> None:
        at = leaf
        for level in reversed(self.by_level):
            level.count(at, nodes)
            at = int(level.parent[at])

    # --- amounts -----------------------------------------------------------------------------------------------------

    def use(self, leaf: int, usage: Iterable[tuple[str, int]], sign: int) -> None:
        """Workloads use more (1) or less (-1) of a leaf."""
        for resource, value in usage:
            column = self._column(resource)
            column.used[leaf] += sign * value
            column.changed(leaf)
        self.changes.add(leaf)

    def reserve(self, leaf: int, usage: Iterable[tuple[str, int]], sign: int) -> None:
        """As `use`, for what counts also when no workload uses anything: pod sets that are placed together."""
        for resource, value in usage:
            column = self._column(resource)
            column.capacity[leaf] -= sign * value
            column.changed(leaf)
        self._capacity_changed(leaf)

    def set_used(self, leaf: int, used: Amounts) -> None:
        """Workloads use this of a leaf, and nothing else."""
        for resource in used:
            self._column(resource)
        for resource, column in self.columns.items():
            column.used[leaf] = used.get(resource, 0)
            column.changed(leaf)
        self.changes.add(leaf)

    def _add_capacity(self, leaf: int, amounts: Amounts, sign: int) -> None:
        for resource, value in amounts.items():
            column = self._column(resource)
            column.capacity[leaf] += sign * value
            column.changed(leaf)

    def _column(self, resource: str) -> ResourceColumn:
        column = self.columns.get(resource)
        if column is None:
            column = self.columns[resource] = ResourceColumn(self.slots, len(self.leaves.parent))
        return column

    def _capacity_changed(self, leaf: int) -> None:
        self.changes.add(leaf)
        self.capacity_changes.add(leaf)


def _part(node: Node, levels: Sequence[str], *, by_host: bool) -> _Part:
    path = tuple(node.labels[level] for level in levels)
    return _Part(node, path[-1:] if by_host else path, path)
