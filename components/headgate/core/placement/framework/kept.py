"""
Answers of plugins that are kept: per key an array with one answer per row, and how far the journals were read.

An answer is given anew only for rows that have changed since, by what the plugin declares to read (`Reads`). Arrays are
handed out as they are and change with the next call for the same key: who keeps something of them copies it.
"""

from collections.abc import Callable, Collection, Hashable
from typing import Final

import numpy as np

from headgate.core.placement.cluster import Cluster, distinct
from headgate.core.placement.framework.cycle import Cycle
from headgate.core.placement.framework.plugin import Ints, Reads, Rows
from headgate.core.placement.nodes import NodeInfo

KEYS_MAX: Final = 256
"""Keys that answers are kept for, per plugin and profile; that which was used least recently goes first."""

FEW: Final = 8
"""Up to so many rows are cheaper one by one than as arrays."""

Rowwise = Callable[[Cycle, NodeInfo], int]
Columnwise = Callable[[Cycle, Rows], Ints]


class _Kept:
    """The answers for one key."""

    __slots__ = ("node_position", "pod_position", "values", "version")

    def __init__(self, values: Ints) -> None:
        self.values = values
        self.node_position = -1
        self.pod_position = -1
        self.version = 0


class KeptAnswers:
    """
    The answers of one plugin, or of several together, by key.

    `rowwise` gives the answer for one node, `columnwise` (None where there is no such form) for many rows at once.
    `object_kinds` are the kinds of objects that are read beside nodes and pods.
    """

    def __init__(
        self,
        cluster: Cluster,
        reads: Collection[Reads],
        object_kinds: tuple[type, ...],
        rowwise: Rowwise,
        columnwise: Columnwise | None,
    ) -> None:
        self._cluster = cluster
        self._object_kinds = object_kinds
        self._reads_nodes = Reads.NODES in reads
        self._reads_pods = Reads.NODE_AND_PODS in reads
        self._rowwise = rowwise
        self._columnwise = columnwise
        self._by_key: dict[Hashable, _Kept] = {}

    def values(self, cycle: Cycle, key: Hashable) -> Ints:
        """The answers for all rows, those of free ones without meaning."""
        kept = self._by_key.pop(key, None)
        if kept is None:
            if len(self._by_key) >= KEYS_MAX:
                del self._by_key[next(iter(self._by_key))]
            kept = _Kept(np.zeros(self._cluster.columns.size, dtype=np.int64))
        self._by_key[key] = kept
        self._bring_up_to_date(cycle, kept)
        return kept.values[: self._cluster.columns.size]

    def clear(self) -> None:
        """Forget all."""
        self._by_key.clear()

    def _bring_up_to_date(self, cycle: Cycle, kept: _Kept) -> None:
        touched = self._touched(kept)
        if touched is None or touched:
            cluster = self._cluster
            more = cluster.columns.size - len(kept.values)
            if more > 0:
                kept.values = np.concatenate((kept.values, np.zeros(max(more, len(kept.values)), dtype=np.int64)))
            if touched is None:
                self._answer(cycle, kept.values, cluster.columns.all_rows())
            elif len(touched) <= FEW:
                self._answer_each(cycle, kept.values, touched)
            else:
                rows = distinct(touched)
                self._answer(cycle, kept.values, rows[cluster.columns.alive[rows]])
        kept.node_position = self._cluster.node_journal.end
        kept.pod_position = self._cluster.pod_journal.end
        kept.version = self._version()

    def _version(self) -> int:
        return sum(map(self._cluster.version, self._object_kinds)) if self._object_kinds else 0

    def _touched(self, kept: _Kept) -> list[int] | None:
        """The rows to be looked at again; None for all of them."""
        if kept.version != self._version():
            return None
        nodes, pods = self._cluster.node_journal, self._cluster.pod_journal
        rows: list[int] = []
        if kept.node_position != nodes.end:
            changed = nodes.since(kept.node_position) if kept.node_position >= 0 else None
            if changed is None or self._reads_nodes:
                return None
            rows = changed
        if self._reads_pods and kept.pod_position != pods.end:
            changed = pods.since(kept.pod_position) if kept.pod_position >= 0 else None
            if changed is None:
                return None
            rows = rows + changed if rows else changed
        return rows

    def _answer_each(self, cycle: Cycle, values: Ints, rows: list[int]) -> None:
        infos = self._cluster.columns.infos
        for row in dict.fromkeys(rows):
            info = infos[row]
            if info is not None:
                values[row] = self._rowwise(cycle, info)

    def _answer(self, cycle: Cycle, values: Ints, rows: Rows) -> None:
        if self._columnwise is None or len(rows) <= FEW:
            self._answer_each(cycle, values, rows.tolist())
        else:
            values[rows] = self._columnwise(cycle, rows)
