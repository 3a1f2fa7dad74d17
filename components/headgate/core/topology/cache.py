"""
The topologies of a state: one tree of domains for each flavor with a topology, cached from cycle to cycle.

A tree is built on first use and then kept current: a change of a node, of the pods on it, or of what a workload
occupies costs the path of its domain. When a flavor or a topology changes, its trees are built anew; all of them when
another set of flavors shares the hosts. The catalog keeps one cache for the scheduler.

The owner must pass it every folded event; changes of usage are read from the indexes of the state.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headgate.core.config import feature_gates
from headgate.core.state.tables import State, Values
from headgate.core.topology.assignments import HOSTNAME
from headgate.core.topology.counts import CountedTree
from headgate.core.topology.tree import Amounts, FlavorTopology
from headgate.core.topology.what_if import WhatIf
from headgate.events import facts
from headgate.events.base import EventBase
from headgate.events.objects import Toleration

_SLOTS_SPARE = 64
"""A tree may have this many leaves more than twice those that exist, before it is built anew."""


class _Spec(NamedTuple):
    """What a flavor's tree is built from, apart from nodes and usage."""

    topology: str
    levels: tuple[str, ...]
    node_labels: Mapping[str, str]
    tolerations: tuple[Toleration, ...]


class TopologyCache:
    """The trees of domains of a state, with what is free in them."""

    __slots__ = ("_overlapping", "_seen_taken", "_seen_usage", "_specs", "_state", "_trees", "_what_if")

    def __init__(self, state: State) -> None:
        self._state = state
        self._trees: dict[str, CountedTree] = {}
        self._specs = _specs_of(state)
        self._overlapping = _overlapping(state)
        self._what_if: WhatIf | None = None
        self._seen_usage = state.index.topology_changes
        self._seen_taken = state.index.taken_changes

    def change(self, event: EventBase) -> None:
        """Apply an event that the state has folded: nodes, flavors, topologies, gates; others have no effect."""
        match event:
            case facts.NodeObserved() | facts.NodeDeleted():
                self._end()
                for counted in self._trees.values():
                    self._set_node(counted.tree, event.name)
            case (
                facts.ResourceFlavorObserved()
                | facts.ResourceFlavorDeleted()
                | facts.TopologyObserved()
                | facts.TopologyDeleted()
                | facts.ConfigurationObserved()
            ):
                self._end()
                self._follow_specs()
            case _:
                pass

    def flavor(self, name: str) -> FlavorTopology | None:
        """The tree of a flavor; None when there is none of this name, or it has no topology that exists."""
        counted = self._counted(name)
        return None if counted is None else counted.tree

    def what_if(self) -> WhatIf:
        """
        The current usage, free to be changed until the next call, which undoes what was changed.

        Costs what has changed since the last call.
        """
        self._end()
        self._catch_up()
        self._what_if = WhatIf(self._counted, self._host_flavors(), overlapping=self._overlapping)
        return self._what_if

    def _end(self) -> None:
        """Undo what the last what-if has changed."""
        if self._what_if is not None:
            self._what_if.undo(0)
            self._what_if = None

    def _follow_specs(self) -> None:
        """Drop the trees that are to be built anew."""
        hosts, before, overlapping = self._host_flavors(), self._specs, _overlapping(self._state)
        self._specs = _specs_of(self._state)
        if overlapping != self._overlapping or (overlapping and hosts != self._host_flavors()):
            # What is used on hosts counts in several trees, so one that comes or goes concerns the others.
            self._trees.clear()
        self._overlapping = overlapping
        for name in tuple(self._trees):
            if self._specs.get(name) != before.get(name):
                del self._trees[name]

    # --- building ----------------------------------------------------------------------------------------------------

    def _counted(self, name: str) -> CountedTree | None:
        counted = self._trees.get(name)
        if counted is None:
            tree = self._build(name)
            if tree is None:
                return None
            counted = self._trees[name] = CountedTree(tree)
        return counted

    def _build(self, name: str) -> FlavorTopology | None:
        state, spec = self._state, self._specs.get(name)
        if spec is None:
            return None
        tree = FlavorTopology(name, spec.topology, spec.levels, spec.node_labels, spec.tolerations)
        for node, taken in state.index.taken.items():
            tree.set_foreign_usage(node, taken)
        for node in sorted(state.nodes):
            self._set_node(tree, node)
        return tree

    def _host_flavors(self) -> tuple[str, ...]:
        """The flavors whose lowest level is the hostname."""
        return tuple(name for name, spec in self._specs.items() if spec.levels[-1] == HOSTNAME)

    # --- keeping current ---------------------------------------------------------------------------------------------

    def _set_node(self, tree: FlavorTopology, node: str) -> None:
        tree.set_node(node, self._state.nodes.get(node), lambda values: self._used(tree, values))

    def _used(self, tree: FlavorTopology, values: Values) -> Amounts:
        """What workloads use of a leaf."""
        usage = self._state.index.topology_usage
        if not (tree.by_host and self._overlapping):
            return usage.get(tree.name, {}).get(values, {})
        total: dict[str, int] = {}
        for flavor in self._host_flavors():
            for resource, value in usage.get(flavor, {}).get(values, {}).items():
                total[resource] = total.get(resource, 0) + value
        return total

    def _catch_up(self) -> None:
        """Bring what is used up to date: the newest changes are the last."""
        index = self._state.index
        for flavor, values in reversed(index.topology_changed):
            if index.topology_changed[flavor, values] <= self._seen_usage:
                break
            for tree in self._trees_using(flavor):
                leaf = tree.leaf(values)
                if leaf is not None:
                    tree.set_used(leaf, self._used(tree, values))
        self._seen_usage = index.topology_changes
        for node in reversed(index.taken_changed):
            if index.taken_changed[node] <= self._seen_taken:
                break
            for counted in self._trees.values():
                counted.tree.set_foreign_usage(node, index.taken.get(node, {}))
        self._seen_taken = index.taken_changes
        for name, counted in tuple(self._trees.items()):
            if counted.tree.slots > _SLOTS_SPARE + 2 * len(counted.tree.leaves.alive()):
                del self._trees[name]

    def _trees_using(self, flavor: str) -> Iterator[FlavorTopology]:
        """The trees that have been built in which usage of a flavor counts."""
        shared = self._overlapping and flavor in self._host_flavors()
        for name in self._host_flavors() if shared else (flavor,):
            if name in self._trees:
                yield self._trees[name].tree


def _specs_of(state: State) -> dict[str, _Spec]:
    """The flavors whose topology exists and has levels, by name."""
    found: dict[str, _Spec] = {}
    for name in sorted(state.flavors):
        flavor = state.flavors[name].spec
        topology = state.topologies.get(flavor.topology_name) if flavor.topology_name is not None else None
        if topology is not None and topology.levels:
            levels = tuple(level.node_label for level in topology.levels)
            found[name] = _Spec(flavor.topology_name or "", levels, flavor.node_labels, flavor.tolerations)
    return found


def _overlapping(state: State) -> bool:
    return feature_gates.enabled(state.configuration, feature_gates.TAS_OVERLAPPING_FLAVORS)
