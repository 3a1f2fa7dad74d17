"""
Counts of pods by node, and their sums by topology domain.

`RowCounts` is the truth, and as small as the pods that it counts: it has only the nodes where there are any.
`DomainSums` are arrays that follow it, made when they are first asked for and forgotten when there are too many
(`SumsTable`).
"""

from typing import Final

import numpy as np

from headgate.core.placement.arrays import Ints
from headgate.core.placement.columns import Columns
from headgate.core.placement.counts.domains import OUTSIDE, Domains, Partition, grown
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.nodes import NodeObject

CELLS_MAX: Final = 8_000_000
"""Domains that sums are kept for, over all of them. Those used least recently go first, and are made again if asked."""


class RowCounts:
    """How many pods of some kind each node has, by row; rows without any are absent."""

    __slots__ = ("by_row", "sums", "total")

    def __init__(self) -> None:
        self.by_row: dict[int, int] = {}
        self.total = 0
        self.sums: dict[bytes, DomainSums] = {}
        """The sums that follow, by the key of their partition."""

    def add(self, row: int, pods: int) -> None:
        """So many more pods are on a node; fewer if negative."""
        count = self.by_row.get(row, 0) + pods
        if count:
            self.by_row[row] = count
        else:
            del self.by_row[row]
        self.total += pods
        for sums in self.sums.values():
            sums.add(row, pods)


class DomainSums:
    """The sums of counts by domain. `values` is by domain; `total` is over all nodes that belong to one."""

    __slots__ = ("_minimum", "cells", "counts", "domains", "total", "values")

    def __init__(self, counts: RowCounts, domains: Domains) -> None:
        self.cells = domains.ids_len
        """How long the array was when it was last asked for."""
        self.counts = counts
        self.domains = domains
        self.total = 0
        self.values: Ints = np.zeros(domains.ids_len, dtype=np.int64)
        self._minimum: int | None = None
        for row, pods in counts.by_row.items():
            self.add(row, pods)

    def by_domain(self) -> Ints:
        """The sums, for all ids of domains that there are."""
        self.values = grown(self.values, self.domains.ids_len, 0)
        return self.values

    def minimum(self) -> int:
        """The lowest sum of the domains that nodes belong to; 0 if there are none."""
        if self._minimum is None:
            existing = self.domains.existing
            self._minimum = int(self.by_domain()[existing].min()) if len(existing) else 0
        return self._minimum

    def add(self, row: int, pods: int) -> None:
        """So many more pods are on a node."""
        self._add(int(self.domains.places[row]), pods)

    def moved(self, row: int, old: int, new: int) -> None:
        """A node belongs to another domain."""
        self._minimum = None
        pods = self.counts.by_row.get(row, 0)
        if pods:
            self._add(old, -pods)
            self._add(new, pods)

    def _add(self, domain: int, pods: int) -> None:
        if domain == OUTSIDE:
            return
        if domain >= len(self.values):
            self.values = grown(self.values, self.domains.ids_len, 0)
        self.values[domain] += pods
        self.total += pods
        self._minimum = None


class SumsTable:
    """All sums, and the domains that they are by."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._domains: dict[bytes, Domains] = {}
        self._recent: dict[DomainSums, None] = {}
        """From the least recently used to the most."""
        self._cells = 0

    def of(self, counts: RowCounts, partition: Partition) -> DomainSums:
        """The sums of counts by a partition, current until the next change of the cluster, and then again."""
        sums = counts.sums.get(partition.key)
        if sums is None:
            sums = DomainSums(counts, self._domains_of(partition))
            sums.domains.dependents[sums] = None
            counts.sums[partition.key] = sums
            self._cells += sums.cells
        else:
            del self._recent[sums]
            self._cells += len(sums.values) - sums.cells
            sums.cells = len(sums.values)
        self._recent[sums] = None
        while self._cells > CELLS_MAX and len(self._recent) > 1:
            self._forget(next(iter(self._recent)))
        return sums

    def forget(self, counts: RowCounts) -> None:
        """Counts are no longer kept, and no sums of them."""
        for sums in list(counts.sums.values()):
            self._forget(sums)

    def node_set(self, node: NodeInfo, old: NodeObject | None) -> None:
        """A node exists or has changed. Its pods are as they were, or have not been counted yet."""
        labels, spec = node.node.metadata.labels, node.node.spec
        if old is not None and old.metadata.labels == labels and old.spec.taints == spec.taints:
            return
        for domains in self._domains.values():
            domains.node_set(node.row, node.node)

    def node_removed(self, row: int) -> None:
        """A node is gone, and its pods are counted no more."""
        for domains in self._domains.values():
            domains.node_removed(row)

    def _domains_of(self, partition: Partition) -> Domains:
        known = self._domains.get(partition.key)
        if known is None:
            known = self._domains[partition.key] = Domains(partition, self._columns)
        return known

    def _forget(self, sums: DomainSums) -> None:
        domains, key = sums.domains, sums.domains.partition.key
        del self._recent[sums], sums.counts.sums[key], domains.dependents[sums]
        self._cells -= sums.cells
        if not domains.dependents:
            del self._domains[key]
