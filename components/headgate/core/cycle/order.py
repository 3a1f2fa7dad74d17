"""
Order: the processing order of the nominated heads of a cycle.

Without fair sharing it is computed once for the whole cycle (`classical`, `kueue-semantics` section 3): less borrowing
first, then higher priority, earlier in the queue. With fair sharing a tournament is held before each head
(`Tournament`, KEP-1714): at each cohort the child with the smaller dominant resource share wins, computed with its
candidate admitted. Where Kueue leaves a tie to chance, the order of arrival, then the uid breaks it; of unrelated
trees, where Kueue's order is random, that of the smallest ClusterQueue name comes first.

The tournament first costs one share per head and level, and after each turn only those on the winner's path to the
root: no other share can have changed, since usage is charged to the winner's ClusterQueue alone.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from headgate.core.config import feature_gates
from headgate.core.cycle.entries import CycleEntry
from headgate.core.quota.fair_shares import Share, share_of
from headgate.core.quota.tree import Ledger, QuotaNode
from headgate.core.state.attribution import about
from headgate.core.state.tables import PENDING
from headgate.core.workload.ordering import priority_of, queued_at
from headgate.events.configuration import Configuration

Seniority = tuple[int, int, int, str, str]
"""Priority (the higher the smaller), queue timestamp, arrival, uid, key: unique, since keys are."""


def in_order(
    entries: Sequence[CycleEntry], configuration: Configuration, ledger_of: Callable[[str], Ledger]
) -> Iterable[CycleEntry]:
    """
    The entries in processing order. With fair sharing it depends on the charges made between the turns.

    Those that hold quota already come first; Kueue has them compete under fair sharing, where one and another head of
    its ClusterQueue cannot both take part.
    """
    if configuration.fair_sharing is None:
        return classical(entries, configuration)
    again = classical((entry for entry in entries if entry.second_pass), configuration)
    once = [entry for entry in entries if not entry.second_pass]
    return (
        chain(again, Tournament(once, configuration, ledger_of))
        if again
        else Tournament(once, configuration, ledger_of)
    )


def seniority(entry: CycleEntry, configuration: Configuration) -> Seniority:
    """The order among equals: by priority, if cohorts are sorted by it, then by time."""
    workload = entry.workload
    with about("Workload", entry.key):
        by_priority = feature_gates.enabled(configuration, feature_gates.PRIORITY_SORTING_WITHIN_COHORT)
        priority = priority_of(workload, configuration) if by_priority else 0
        return (-priority, queued_at(workload, configuration), workload.arrival, workload.uid, workload.key)


def _goes_last(entry: CycleEntry, configuration: Configuration) -> bool:
    """Whether preemptors come before this entry."""
    first = feature_gates.enabled(configuration, feature_gates.PRIORITIZE_PREEMPTOR_WORKLOADS)
    return first and not entry.is_preemptor


# --- classical -----------------------------------------------------------------------------------------------------


def classical(entries: Iterable[CycleEntry], configuration: Configuration) -> list[CycleEntry]:
    """Entries that hold quota already (a second pass), preemptors (by their gate), less borrowing, then seniority."""

    def rank(entry: CycleEntry) -> tuple[bool, bool, int, Seniority]:
        with about("Workload", entry.key):
            first_pass = entry.workload.stage in PENDING
            return first_pass, _goes_last(entry, configuration), entry.borrowing, seniority(entry, configuration)

    return sorted(entries, key=rank)


# --- fair sharing --------------------------------------------------------------------------------------------------

Standing = tuple[bool, bool, tuple[bool, float], Seniority]
"""The comparison key of a candidate at a cohort; the smaller wins."""


class Tournament:
    """The order under fair sharing. Iterating over it consumes it."""

    def __init__(
        self, entries: Sequence[CycleEntry], configuration: Configuration, ledger_of: Callable[[str], Ledger]
    ) -> None:
        self._configuration = configuration
        self._ledger_of = ledger_of
        self._nominal_first = feature_gates.enabled(configuration, feature_gates.FAIR_SHARING_PRIORITIZE_NON_BORROWING)
        self._entries = {entry.queue.name: entry for entry in entries}
        self._seniority = {entry.key: seniority(entry, configuration) for entry in entries}
        self._candidates: dict[QuotaNode, dict[QuotaNode, tuple[Standing, CycleEntry]]] = {}
        """Per cohort, for each child that has one, its candidate and the candidate's comparison key there."""

    def __iter__(self) -> Iterator[CycleEntry]:
        for entry in self._entries.values():
            self._enter(entry)
        names = list(self._entries)
        heapq.heapify(names)
        while names:
            if names[0] not in self._entries:
                heapq.heappop(names)
                continue
            entry = self._winner(self._node_of(self._entries[names[0]]))
            del self._entries[entry.queue.name]
            yield entry
            self._leave(entry)

    def _node_of(self, entry: CycleEntry) -> QuotaNode:
        node = entry.queue.node
        assert node is not None, f"ClusterQueue {entry.queue.name} has no quota tree"
        return node

    def _winner(self, node: QuotaNode) -> CycleEntry:
        root = node
        for root in node.ancestors():  # noqa: B007 - the last one is the result
            pass
        if root is node:
            return self._entries[node.name]
        return min(self._candidates[root].values(), key=lambda each: each[0])[1]

    def _enter(self, entry: CycleEntry) -> None:
        """Add an entry at its cohort, and at those above as far as it wins."""
        node = self._node_of(entry)
        if node.parent is not None:
            self._candidates.setdefault(node.parent, {})[node] = (self._standing(entry, node), entry)
            self._promote(node.parent)

    def _leave(self, entry: CycleEntry) -> None:
        """Remove a processed entry, and determine the candidate of each cohort above it again."""
        node = self._node_of(entry)
        if node.parent is not None:
            del self._candidates[node.parent][node]
            self._promote(node.parent)

    def _promote(self, cohort: QuotaNode) -> None:
        """Promote the winner of a cohort, and of each one above, to the next."""
        while cohort.parent is not None:
            above = self._candidates.setdefault(cohort.parent, {})
            candidates = self._candidates[cohort]
            if candidates:
                entry = min(candidates.values(), key=lambda each: each[0])[1]
                above[cohort] = (self._standing(entry, cohort), entry)
            else:
                above.pop(cohort, None)
            cohort = cohort.parent

    def _standing(self, entry: CycleEntry, node: QuotaNode) -> Standing:
        """The comparison key of an entry as the candidate of a child: by the child's share with the entry admitted."""
        with about("Workload", entry.key):
            share = self._share_with(entry, node)
            borrows = self._nominal_first and share.borrows_any(entry.usage)
            return _goes_last(entry, self._configuration), borrows, share.key, self._seniority[entry.key]

    def _share_with(self, entry: CycleEntry, node: QuotaNode) -> Share:
        ledger, own = self._ledger_of(entry.queue.name), self._node_of(entry)
        usage = entry.usage
        if node is own:
            return share_of(ledger, node, usage)
        for fr, value in usage.items():
            ledger.add(own, fr, value)
        share = share_of(ledger, node)
        for fr, value in usage.items():
            ledger.remove(own, fr, value)
        return share
