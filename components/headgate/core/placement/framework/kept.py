"""
Answers of plugins that are kept: per key an array with one answer per row, and how far the journals were read.

An answer is given anew only for rows that have changed since, by what the plugin declares to read (`Reads`). A key is
kept from the second time on that it is asked for: pods that are all different are answered for the rows in question and
cost no more than that.
"""

from collections.abc import Callable, Collection, Hashable
from typing import Final

import numpy as np

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.cluster import PlacementCluster, distinct
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.plugin import Reads
from headgate.core.placement.nodes import NodeInfo

KEPT_BYTES_MAX: Final = 32 * 1024 * 1024
"""What the kept answers of one plugin of a profile take up at most."""

KEYS_MIN: Final = 16
"""So many keys are kept, however many nodes there are."""

SEEN_MAX: Final = 8192
"""Keys that were asked for once and are remembered."""

STALE_AFTER: Final = 4
"""A key gives way to another one when it was last asked for this many times as many questions ago as keys are kept."""

FEW: Final = 8
"""Up to so many rows are cheaper one by one than as arrays."""

Rowwise = Callable[[PlacementCycle, NodeInfo], int]
Columnwise = Callable[[PlacementCycle, Rows], Ints]


class _Kept:
    """The answers for one key."""

    __slots__ = ("asked", "node_position", "pod_position", "values", "version")

    def __init__(self, values: Ints) -> None:
        self.values = values
        self.node_position = -1
        self.pod_position = -1
        self.version = 0
        self.asked = 0
        """When it was asked for last, in questions."""


class KeptAnswers:
    """
    The answers of one plugin, or of several together, by key.

    `rowwise` gives the answer for one node, `columnwise` (None where there is no such form) for many rows at once.
    `object_kinds` are the kinds of objects that are read beside nodes and pods.
    """

    def __init__(
        self,
        cluster: PlacementCluster,
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
        self._seen: dict[Hashable, None] = {}
        self._questions = 0

    def answers(self, cycle: PlacementCycle, key: Hashable, rows: Rows) -> Ints:
        """The answers for some rows."""
        self._questions += 1
        kept = self._by_key.get(key)
        if kept is None:
            if not self._is_to_be_kept(key):
                return self._asked(cycle, rows)
            kept = _Kept(np.zeros(self._cluster.columns.size, dtype=np.int64))
        else:
            del self._by_key[key]
        self._by_key[key] = kept
        kept.asked = self._questions
        self._bring_up_to_date(cycle, kept)
        return kept.values[rows]

    def clear(self) -> None:
        """Forget all."""
        self._by_key.clear()

    def _is_to_be_kept(self, key: Hashable) -> bool:
        """Whether a key was asked for before, and there is room; the first is the one not asked for the longest."""
        if key not in self._seen:
            if len(self._seen) >= SEEN_MAX:
                self._seen.clear()
            self._seen[key] = None
            return False
        keys_max = max(KEYS_MIN, KEPT_BYTES_MAX // (8 * (self._cluster.columns.size or 1)))
        if len(self._by_key) < keys_max:
            return True
        oldest = next(iter(self._by_key))
        if self._questions - self._by_key[oldest].asked <= STALE_AFTER * keys_max:
            return False
        del self._by_key[oldest]
        return True

    def _bring_up_to_date(self, cycle: PlacementCycle, kept: _Kept) -> None:
        touched = self._touched(kept)
        if touched is None or touched:
            cluster = self._cluster
            more = cluster.columns.size - len(kept.values)
            if more > 0:
                kept.values = np.concatenate((kept.values, np.zeros(max(more, len(kept.values)), dtype=np.int64)))
            if touched is None:
                rows = cluster.columns.all_rows()
                kept.values[rows] = self._asked(cycle, rows)
            else:
                self._answer_again(cycle, kept.values, touched)
        kept.node_position = self._cluster.node_journal.end
        kept.pod_position = self._cluster.pod_journal.end
        kept.version = self._version()

    def _version(self) -> int:
        return sum(map(self._cluster.version, self._object_kinds)) if self._object_kinds else 0

    def _touched(self, kept: _Kept) -> list[int] | None:
        """The rows to be looked at again; None for all of them."""
        if self._object_kinds and kept.version != self._version():
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

    def _answer_again(self, cycle: PlacementCycle, values: Ints, touched: list[int]) -> None:
        if len(touched) > FEW:
            rows = distinct(touched)
            rows = rows[self._cluster.columns.alive[rows]]
            values[rows] = self._asked(cycle, rows)
            return
        infos = self._cluster.columns.infos
        for row in dict.fromkeys(touched):
            info = infos[row]
            if info is not None:
                values[row] = self._rowwise(cycle, info)

    def _asked(self, cycle: PlacementCycle, rows: Rows) -> Ints:
        """The answers for some rows, none of which is free, asked now."""
        if self._columnwise is not None and len(rows) > FEW:
            return self._columnwise(cycle, rows)
        rowwise, info_of = self._rowwise, self._cluster.info_of
        return np.array([rowwise(cycle, info_of(row)) for row in rows.tolist()], dtype=np.int64)
