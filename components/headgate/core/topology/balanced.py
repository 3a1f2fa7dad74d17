"""
Balanced placement: a gang that prefers a level is spread evenly over its domains (gate TASBalancedPlacement).

Among the domains below each single parent of the level above, it looks for the largest number of slices that every
domain can get at least, drops the domains with less, and takes as few of the others as possible, with the least left
over. `headgate.core.topology.placing` falls back to best fit where that is not possible. The algorithm is Kueue's
(KEP-2724, balanced placement).
"""

from collections.abc import Sequence
from math import log2
from typing import NamedTuple

from headgate.core.topology.choosing import GangSearch
from headgate.core.topology.leading import Chosen, Seat, seats, sort, sort_with_leader, split


class _Greedy(NamedTuple):
    """The result of filling domains one after the other: how many it takes, and the last ones."""

    domains: int
    last_with_leader: Seat | None
    last: Seat | None


class _Candidates(NamedTuple):
    """Sibling domains of the preferred level, and by slot those of the next level in each, as far as there is one."""

    domains: list[Seat]
    children: dict[int, list[Seat]]


class Balanced:
    """
    The search for a balanced placement.

    `plain` counts without slices within slices, by which pruned domains are counted; it is `search` if there are none.
    """

    def __init__(self, search: GangSearch, plain: GangSearch) -> None:
        self._search = search
        self._plain = plain
        self._gang = search.gang
        self._shape = search.counts.shape
        self._by_children = search.gang.level < self._shape.slice_level

    def place(self) -> list[Chosen] | None:
        """The leaves for a gang; None when there is no balanced placement."""
        gang = self._gang
        if gang.required or gang.unconstrained or gang.slices <= 0:
            return None
        candidates, threshold = self._best()
        if candidates is None:
            return None
        level, domains = gang.level, candidates.domains
        if self._by_children:
            kept = self._fewest(domains, candidates.children, by_entropy=True)
            if kept is None:
                return None
            level, domains = level + 1, [child for seat in kept for child in candidates.children[seat.slot]]
        filled = self._fill(domains, threshold)
        if filled is None:
            return None
        chosen = split(filled, gang, gang.pods, gang.leaders, self._shape.slice_size, by_slices=True)
        return self._plain.descend_within(level, chosen)

    # --- which domains -----------------------------------------------------------------------------------------------

    def _best(self) -> tuple[_Candidates | None, int]:
        """The siblings with the highest threshold, and of several those that need the fewest domains."""
        best: _Candidates | None = None
        best_threshold = best_domains = 0
        for parent in self._parents():
            candidates = self._candidates(parent)
            below = [child for seat in candidates.domains for child in candidates.children[seat.slot]]
            greedy = self._greedy(below if self._by_children else candidates.domains)
            if greedy is None:
                continue
            for threshold in self._thresholds(greedy):
                if threshold < max(1, best_threshold):
                    break
                pruned = self._pruned(self._candidates(parent), threshold)
                after = self._greedy(pruned.domains)
                if after is None:
                    continue
                if threshold > best_threshold or after.domains < best_domains:
                    best, best_threshold, best_domains = pruned, threshold, after.domains
                break
        return best, best_threshold

    def _parents(self) -> list[int | None]:
        """The domains above the preferred level, in order; None for the top of the tree."""
        if self._gang.level == 0:
            return [None]
        above = self._search.tree.by_level[self._gang.level - 1]
        return sorted(above.alive().tolist(), key=lambda slot: above.values[slot])

    def _candidates(self, parent: int | None) -> _Candidates:
        search, level = self._search, self._gang.level
        slots = search.tree.by_level[0].alive() if parent is None else search.children(level - 1, [parent])
        domains = sorted(seats(search.counts, search.scores, level, slots), key=lambda seat: seat.order)
        children: dict[int, list[Seat]] = {seat.slot: [] for seat in domains}
        if level < len(search.tree.levels) - 1:
            for seat in domains:
                below = seats(search.counts, search.scores, level + 1, search.children(level, [seat.slot]))
                children[seat.slot] = sorted(below, key=lambda each: each.order)
        return _Candidates(domains, children)

    def _greedy(self, given: Sequence[Seat]) -> _Greedy | None:
        """Fill the largest domains first, leaders before all; None when the gang does not fit."""
        needed, leaders, count = self._gang.slices, self._gang.leaders, 0
        last_with_leader: Seat | None = None
        last: Seat | None = None
        rest = list(given)
        if leaders:
            ordered = sort_with_leader(given, self._gang)
            while leaders > 0 and count < len(ordered) and ordered[count].leaders > 0:
                last_with_leader = ordered[count]
                leaders -= last_with_leader.leaders
                needed -= last_with_leader.slices_beside
                count += 1
            rest = ordered[count:]
        if leaders > 0:
            return None
        for seat in sort(rest, self._gang):
            if needed <= 0 or seat.slices <= 0:
                break
            last = seat
            needed -= seat.slices
            count += 1
        return None if needed > 0 else _Greedy(count, last_with_leader, last)

    def _thresholds(self, greedy: _Greedy) -> list[int]:
        """The least number of slices that each domain is to get; then a lower one that leaves room for the leader."""
        threshold = self._gang.slices // greedy.domains
        if greedy.last_with_leader is not None:
            threshold = min(threshold, greedy.last_with_leader.slices_beside)
        if greedy.last is not None:
            threshold = min(threshold, greedy.last.slices)
        if self._gang.leaders and greedy.last is not None and greedy.last.slices_beside < threshold:
            return [threshold, greedy.last.slices_beside]
        return [threshold]

    def _pruned(self, candidates: _Candidates, threshold: int) -> _Candidates:
        """The domains without those that cannot get that many slices."""
        level = self._gang.level
        for seat in candidates.domains:
            children = candidates.children[seat.slot]
            for child in children:
                self._recount(child, level + 1, threshold)
            if children:
                self._join(seat, children, level)
            self._prune(seat, threshold)
            if self._gang.leaders and not seat.leaders:
                for child in children:
                    _bar_leader(child)
        return candidates

    def _recount(self, child: Seat, level: int, threshold: int) -> None:
        """Prune a child; what is kept of it is counted without slices within slices."""
        self._prune(child, threshold)
        plain = self._plain.counts
        if child.pods and self._plain is not self._search:
            child.pods, child.slices = int(plain.pods[level][child.slot]), int(plain.slices[level][child.slot])
            if child.leaders:
                child.beside = int(plain.beside_leader[level][child.slot])
                child.slices_beside = int(plain.slices_beside_leader[level][child.slot])

    def _prune(self, seat: Seat, threshold: int) -> None:
        if seat.slices < threshold:
            seat.pods = seat.slices = 0
            _bar_leader(seat)
        elif self._gang.leaders and seat.slices_beside < threshold:
            _bar_leader(seat)

    def _join(self, seat: Seat, children: list[Seat], level: int) -> None:
        """Count a domain anew from the domains in it."""
        seat.pods = sum(child.pods for child in children)
        seat.slices = sum(child.slices for child in children)
        able = [child for child in children if child.leaders or not self._gang.leaders]
        seat.leaders = max(child.leaders for child in children)
        seat.beside = seat.pods - min(child.pods - child.beside for child in able) if able else 0
        lost = min((child.slices - child.slices_beside for child in able), default=seat.slices)
        seat.slices_beside = seat.slices - lost
        if level == self._shape.slice_level:
            size = self._shape.slice_size
            seat.slices, seat.slices_beside = seat.pods // size, seat.beside // size

    # --- how many each -----------------------------------------------------------------------------------------------

    def _fewest(
        self, domains: list[Seat], children: dict[int, list[Seat]], *, by_entropy: bool = False
    ) -> list[Seat] | None:
        """The fewest domains that the gang fits into, with the least room left over; None when it does not fit."""
        greedy = self._greedy(domains)
        if greedy is None:
            return None
        ordered = sorted(domains, key=lambda seat: seat.order)
        if by_entropy:
            ordered.sort(key=lambda seat: (-seat.leaders, -seat.slices_beside, -_entropy(children[seat.slot])))
        # By the number of domains taken, the leaders and the pods that are still to be placed: the domains.
        table: list[dict[tuple[int, int], tuple[Seat, ...]]] = [{} for _ in range(greedy.domains + 1)]
        table[0][self._gang.leaders, self._gang.slices * self._shape.slice_size] = ()
        for seat in ordered:
            for taken in range(greedy.domains, 0, -1):
                for leaders, pods in sorted(table[taken - 1]):
                    if leaders <= 0 and pods <= 0:
                        continue
                    placed = (*table[taken - 1][leaders, pods], seat)
                    if leaders > 0 and seat.leaders > 0:
                        table[taken].setdefault((leaders - seat.leaders, pods - seat.beside), placed)
                    if seat.slices > 0:
                        table[taken].setdefault((leaders, pods - seat.pods), placed)
        fitting = [pods for leaders, pods in table[-1] if leaders == 0 and pods <= 0]
        return list(table[-1][0, max(fitting)]) if fitting else None

    def _fill(self, domains: list[Seat], threshold: int) -> list[Seat] | None:
        """Give each domain the threshold, and what is left to the first; None when it does not work out."""
        kept = self._fewest(domains, {})
        if kept is None or self._gang.slices < len(kept) * threshold:
            return None
        extra, leaders, size = self._gang.slices - len(kept) * threshold, self._gang.leaders, self._shape.slice_size
        ordered = sort_with_leader(kept, self._gang)
        for seat in ordered:
            room = seat.slices_beside if leaders else seat.slices
            more = min(room - threshold, extra) if leaders or extra else 0
            seat.leaders = 1 if leaders else 0
            leaders -= seat.leaders
            seat.slices = seat.slices_beside = threshold + more
            seat.pods = seat.slices * size
            seat.beside = seat.pods - seat.leaders
            extra -= more
        return None if extra > 0 or leaders > 0 else ordered


def _bar_leader(seat: Seat) -> None:
    seat.beside = seat.slices_beside = seat.leaders = 0


def _entropy(domains: Sequence[Seat]) -> float:
    """How evenly pods fit into domains, in bits."""
    total = sum(seat.pods for seat in domains)
    shares = [seat.pods / total for seat in domains if seat.pods > 0] if total else []
    return -sum(share * log2(share) for share in shares)
