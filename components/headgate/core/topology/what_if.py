"""
Topologies for the duration of a cycle, with usage added and removed for simulation.

The cycle and the preemption search add what entries would occupy and remove what their victims do. Nothing is copied:
changes are applied to the cached trees, recorded, and undone.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from headgate.core.state.tables import DomainUsage
from headgate.core.topology.counts import PODS_MAX, CountedTree
from headgate.core.topology.demands import PODS
from headgate.core.topology.tree import FlavorTopology

_Change = tuple[FlavorTopology, int, tuple[tuple[str, int], ...], int, bool]
"""A tree, its leaf, amounts, their sign, and whether they count also when no workload uses anything."""


class WhatIf:
    """
    The trees of all flavors, with usage that can be changed and undone. Valid until the next one is made.

    `overlapping` (TASHandleOverlappingFlavors): what is occupied on a host is occupied in all flavors that have it.
    """

    __slots__ = ("_changes", "_counted", "_hosts", "_overlapping")

    def __init__(
        self, counted: Callable[[str], CountedTree | None], hosts: Iterable[str], *, overlapping: bool
    ) -> None:
        self._counted = counted
        self._hosts = tuple(hosts)
        self._overlapping = overlapping
        self._changes: list[_Change] = []

    def flavor(self, name: str) -> FlavorTopology | None:
        """The tree of a flavor; None when it has no topology."""
        counted = self._counted(name)
        return None if counted is None else counted.tree

    def counted(self, name: str) -> CountedTree:
        """The tree of a flavor with its counts. Raises KeyError when it has no topology."""
        counted = self._counted(name)
        if counted is None:
            raise KeyError(name)
        return counted

    # --- usage -------------------------------------------------------------------------------------------------------

    def add(self, usages: Iterable[DomainUsage]) -> None:
        """
        Occupy domains. With TASHandleOverlappingFlavors those of hosts are occupied in all flavors that have the host.

        Domains that a tree does not have (their nodes are gone, or not ready) are skipped. Costs O(levels) for each.
        """
        for usage in usages:
            self._apply(usage, 1, is_reserved=False)

    def remove(self, usages: Iterable[DomainUsage]) -> None:
        """Free what was added, or what a workload occupies (`Index.topology_usage_of`)."""
        for usage in usages:
            self._apply(usage, -1, is_reserved=False)

    def reserve(self, usages: Iterable[DomainUsage]) -> None:
        """Occupy domains also for searches as if no workload occupied anything: for pod sets of one workload."""
        for usage in usages:
            self._apply(usage, 1, is_reserved=True)

    def fits(self, usages: Iterable[DomainUsage]) -> bool:
        """
        Whether each of these fits by itself into what is free in its domain, and the domain exists.

        As in Kueue, `pods` do not count, and pods that request nothing never fit.
        """
        for usage in usages:
            tree = self.flavor(usage.flavor)
            leaf = None if tree is None else tree.leaf(usage.values)
            if tree is None or leaf is None:
                return False
            free = tree.free(leaf)
            ratios = [
                max(0, free.get(resource, 0)) // value if value > 0 else PODS_MAX for resource, value in usage.requests
            ]
            if usage.pods > min(ratios, default=0):
                return False
        return True

    def _apply(self, usage: DomainUsage, sign: int, *, is_reserved: bool) -> None:
        amounts = _total(usage)
        for tree in self._trees(usage.flavor):
            leaf = tree.leaf(usage.values)
            if leaf is not None:
                (tree.reserve if is_reserved else tree.use)(leaf, amounts, sign)
                self._changes.append((tree, leaf, amounts, sign, is_reserved))

    def _trees(self, flavor: str) -> Iterator[FlavorTopology]:
        """The trees in which usage of a flavor counts."""
        own = self.flavor(flavor)
        if own is None:
            return
        yield own
        if self._overlapping and own.by_host:
            for name in self._hosts:
                other = self.flavor(name)
                if other is not None and other is not own:
                    yield other

    # --- undoing -----------------------------------------------------------------------------------------------------

    def mark(self) -> int:
        """The current point in the record of changes, for `undo`."""
        return len(self._changes)

    def undo(self, mark: int) -> None:
        """Undo every change since a mark."""
        while len(self._changes) > mark:
            tree, leaf, amounts, sign, is_reserved = self._changes.pop()
            (tree.reserve if is_reserved else tree.use)(leaf, amounts, -sign)

    @contextmanager
    def without(self, usages: Iterable[DomainUsage]) -> Iterator[None]:
        """The topologies without these; all changes made inside are undone at the end."""
        at = self.mark()
        try:
            self.remove(usages)
            yield
        finally:
            self.undo(at)


def _total(usage: DomainUsage) -> tuple[tuple[str, int], ...]:
    """What all pods of a usage occupy, one of `pods` each included."""
    total = {resource: value * usage.pods for resource, value in usage.requests}
    total[PODS] = total.get(PODS, 0) + usage.pods
    return tuple(total.items())
