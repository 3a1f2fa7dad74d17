"""
The topologies of a state: one tree of domains for each flavor with a topology, cached from cycle to cycle.

A tree is built on first use and then kept current: a change of a node, of the pods on it, or of what a workload
occupies costs the path of its domain. When a flavor or a topology changes, its trees are built anew. The catalog keeps
one cache for the scheduler.

The owner must pass it every folded event; changes of usage are read from the indexes of the state.
"""

from headgate.core.state.tables import State
from headgate.core.topology.tree import FlavorTopology
from headgate.core.topology.what_if import WhatIf
from headgate.events.base import EventBase


class TopologyCache:
    """The trees of domains of a state, with what is free in them."""

    def __init__(self, state: State) -> None:
        self._state = state

    def change(self, event: EventBase) -> None:
        """Apply an event that the state has folded: nodes, flavors and topologies; others have no effect."""
        raise NotImplementedError

    def flavor(self, name: str) -> FlavorTopology | None:
        """The tree of a flavor; None when there is none of this name, or it has no topology that exists."""
        raise NotImplementedError

    def what_if(self) -> WhatIf:
        """
        The current usage, free to be changed until the next call, which undoes what was changed.

        Costs what has changed since the last call.
        """
        raise NotImplementedError
