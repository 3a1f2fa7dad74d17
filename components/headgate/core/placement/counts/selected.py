"""
Counts of the pods that selections select.

Pods of equal namespace and labels are one kind. A pod that comes or goes is counted in the few counts that its kind is
listed in; a new selection is held against kinds of pods, never against pods.
"""

from collections.abc import Mapping
from typing import Final

from headgate.core.placement.counts.selections import Holders, LabelPair, Requirers, Selection
from headgate.core.placement.counts.sums import RowCounts, SumsTable
from headgate.core.placement.pods import SHAPES_MAX, PodInfo, PodShape
from headgate.events.objects import LabelSelector

SELECTIONS_MAX: Final = 20_000
"""Selections that are kept. Those used least recently go first; asked for again they are counted again, by kind."""


class SelectedCounts(RowCounts):
    """The counts of one selection."""

    __slots__ = ("kinds", "selection")

    def __init__(self, selection: Selection) -> None:
        super().__init__()
        self.selection = selection
        self.kinds: dict[PodKind, None] = {}
        """The kinds of pods that are counted."""

    @property
    def selectors(self) -> tuple[LabelSelector | None, ...]:
        """The selectors that pods have to match."""
        return self.selection.selectors


class PodKind:
    """The pods on nodes that have the same namespace and the same labels: how many by row, and who counts them."""

    __slots__ = ("counted_in", "key", "labels", "namespace", "running", "size", "terminating")

    def __init__(self, key: "KindKey", labels: Mapping[str, str]) -> None:
        self.key = key
        self.namespace = key[0]
        self.labels = labels
        self.running: dict[int, int] = {}
        self.terminating: dict[int, int] = {}
        self.size = 0
        self.counted_in: dict[SelectedCounts, None] = {}

    def add(self, row: int, pods: int, *, is_terminating: bool) -> None:
        """So many more pods of the kind are on a node."""
        by_row = self.terminating if is_terminating else self.running
        count = by_row.get(row, 0) + pods
        if count:
            by_row[row] = count
        else:
            del by_row[row]
        self.size += pods
        for counts in self.counted_in:
            if not is_terminating or counts.selection.counts_terminating:
                counts.add(row, pods)


KindKey = tuple[str, tuple[LabelPair, ...]]


class SelectedTable:
    """All selections, and all kinds of pods."""

    def __init__(self, sums: SumsTable) -> None:
        self._sums = sums
        self._counts: dict[bytes, SelectedCounts] = {}
        """From the least recently used to the most."""
        self._requirers: Requirers[SelectedCounts] = Requirers()
        self._kinds: dict[KindKey, PodKind] = {}
        self._holders: Holders[PodKind] = Holders()
        self._kind_keys: dict[int, KindKey] = {}

    def counts_of(self, selection: Selection) -> RowCounts:
        """The counts of a selection."""
        known = self._counts.pop(selection.key, None)
        if known is None:
            if len(self._counts) >= SELECTIONS_MAX:
                self._forget(next(iter(self._counts.values())))
            known = self._count(selection)
        self._counts[selection.key] = known
        return known

    def add(self, pod: PodInfo, row: int, pods: int) -> None:
        """A pod is on a node (1), or no longer (-1)."""
        key = self._key_of(pod.shape)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._add_kind(key, pod.labels)
        kind.add(row, pods, is_terminating=pod.is_terminating)
        if not kind.size:
            self._remove_kind(kind)

    def _count(self, selection: Selection) -> SelectedCounts:
        counts = SelectedCounts(selection)
        for kind in self._holders.candidates(selection.selectors):
            if not selection.selects(kind.namespace, kind.labels):
                continue
            counts.kinds[kind] = None
            kind.counted_in[counts] = None
            for by_row in (kind.running, kind.terminating) if selection.counts_terminating else (kind.running,):
                for row, pods in by_row.items():
                    counts.add(row, pods)
        self._requirers.add(counts)
        return counts

    def _forget(self, counts: SelectedCounts) -> None:
        del self._counts[counts.selection.key]
        self._requirers.remove(counts)
        for kind in counts.kinds:
            del kind.counted_in[counts]
        self._sums.forget(counts)

    def _add_kind(self, key: KindKey, labels: Mapping[str, str]) -> PodKind:
        kind = self._kinds[key] = PodKind(key, labels)
        for counts in self._requirers.candidates(labels):
            if counts.selection.selects(kind.namespace, labels):
                counts.kinds[kind] = None
                kind.counted_in[counts] = None
        self._holders.add(kind)
        return kind

    def _remove_kind(self, kind: PodKind) -> None:
        del self._kinds[kind.key]
        self._holders.remove(kind)
        for counts in kind.counted_in:
            del counts.kinds[kind]

    def _key_of(self, shape: PodShape) -> KindKey:
        known = self._kind_keys.get(shape.number)
        if known is None:
            if len(self._kind_keys) >= SHAPES_MAX:
                self._kind_keys.clear()
            known = self._kind_keys[shape.number] = (shape.namespace, tuple(sorted(shape.labels.items())))
        return known
