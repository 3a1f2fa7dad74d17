"""
Topologies for the duration of a cycle, with usage added and removed for simulation.

The cycle and the preemption search add what entries would occupy and remove what their victims do. Nothing is copied:
changes are applied to the cached trees, recorded, and undone.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from headgate.core.topology.demands import DomainUsage
from headgate.core.topology.tree import FlavorTopology


class WhatIf:
    """The trees of all flavors, with usage that can be changed and undone. Valid until the next one is made."""

    def flavor(self, name: str) -> FlavorTopology | None:
        """The tree of a flavor; None when it has no topology."""
        raise NotImplementedError

    def add(self, usages: Iterable[DomainUsage]) -> None:
        """
        Occupy domains. With TASHandleOverlappingFlavors those of hosts are occupied in all flavors that have the host.

        Domains that a tree does not have (their nodes are gone, or not ready) are skipped. Costs O(levels) for each.
        """
        raise NotImplementedError

    def remove(self, usages: Iterable[DomainUsage]) -> None:
        """Free what was added, or what a workload occupies (`Index.topology_usage_of`)."""
        raise NotImplementedError

    def fits(self, usages: Iterable[DomainUsage]) -> bool:
        """Whether each of these fits by itself into what is free in its domain, and the domain exists."""
        raise NotImplementedError

    def mark(self) -> int:
        """The current point in the record of changes, for `undo`."""
        raise NotImplementedError

    def undo(self, mark: int) -> None:
        """Undo every change since a mark."""
        raise NotImplementedError

    @contextmanager
    def without(self, usages: Iterable[DomainUsage]) -> Iterator[None]:
        """The topologies without these; all changes made inside are undone at the end."""
        at = self.mark()
        try:
            self.remove(usages)
            yield
        finally:
            self.undo(at)
