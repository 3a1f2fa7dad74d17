"""
Which domains a gang gets: phase 2 of placement (`kueue-semantics` section 9), for gangs without a leader.

First the level at which it fits, and the domains there; then, level by level downwards, the domains below. Two
profiles: best fit takes the domain with the least room that is enough, or fills the largest ones and then takes the
tightest for what is left; least free capacity takes the smallest domains first. Among equal domains the first by its
level values is taken. `headgate.core.topology.leading` has the parts for gangs with a leader.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.core.topology import leading
from headgate.core.topology.counts import ShapeCounts
from headgate.core.topology.leading import Chosen
from headgate.core.topology.messages import not_fit
from headgate.core.topology.shaping import Gang, RefusedError
from headgate.core.topology.slots import IntArray

_BIG: Final = np.int64(2**62)


class FitDomains(NamedTuple):
    """The level at which a gang fits, and the domains there, in the order in which they are to be filled."""

    level: int
    domains: list[int]


class GangSearch:
    """
    A gang, and what fits where.

    `scores` has, by level, how much the pods prefer a domain; it is None when preferences do not count.
    """

    def __init__(self, gang: Gang, counts: ShapeCounts) -> None:
        self.gang = gang
        self.counts = counts
        self.tree = counts.tree
        self.scores = _scores(counts)

    # --- where it fits -----------------------------------------------------------------------------------------------

    def find(self, *, explain: bool = True) -> FitDomains:
        """
        The domains to fill: one, or for gangs that need not be together several. Raises RefusedError.

        The message of the error is Kueue's, unless it need not `explain`.
        """
        gang = self.gang
        level = gang.level
        while True:
            alive = self.tree.by_level[level].alive()
            if not len(alive):
                raise RefusedError(f"no topology domains at level: {self.tree.levels[level]}")
            one = self._one(level, alive)
            if one is not None:
                return FitDomains(level, [one])
            if gang.required:
                raise RefusedError(
                    not_fit(self.counts, gang, level, self._most(level, alive)) if explain else "does not fit"
                )
            if level == 0 or gang.unconstrained:
                return FitDomains(level, self._several(level, alive, explain=explain))
            level -= 1

    def fits(self) -> bool:
        """Whether `find` has a result."""
        try:
            self.find(explain=False)
        except RefusedError:
            return False
        return True

    def _one(self, level: int, alive: IntArray) -> int | None:
        """The domain that the whole gang goes to."""
        gang, counts = self.gang, self.counts
        room = counts.slices_beside_leader[level][alive]
        fits = room >= gang.slices
        if gang.leaders:
            fits &= counts.leaders[level][alive] >= gang.leaders
        fitting = alive[fits]
        if not len(fitting):
            return None
        if self.scores is not None:
            scores = self.scores[level]
            best = scores[fitting].max()
            if not (gang.required or gang.least_free) and best < self._top_score(level, alive):
                return None
            fitting = fitting[scores[fitting] == best]
        order = self.tree.by_level[level].order
        return lowest(fitting, counts.slices_beside_leader[level], counts.beside_leader[level], order)

    def _top_score(self, level: int, alive: IntArray) -> int:
        """The best score of the domains that a leader fits into, or of all."""
        assert self.scores is not None, "asked for preferences, without any"
        if self.gang.leaders:
            able = alive[self.counts.leaders[level][alive] >= self.gang.leaders]
            alive = able if len(able) else alive
        return int(self.scores[level][alive].max())

    def _most(self, level: int, alive: IntArray) -> int:
        """How many slices fit into the domain that comes first, for messages."""
        counts, order = self.counts, self.tree.by_level[level].order
        beside, slices = counts.beside_leader[level], counts.slices_beside_leader[level]
        keys = [-counts.leaders[level]]
        if self.scores is not None:
            keys.append(-self.scores[level])
        if self.gang.least_free:
            last = lowest(alive, *(-key for key in keys), -slices, -beside, -order[: len(slices)])
            return int(counts.pods[level][last])
        return int(counts.slices[level][lowest(alive, *keys, -slices, beside, order)])

    def _several(self, level: int, alive: IntArray, *, explain: bool) -> list[int]:
        gang, counts = self.gang, self.counts
        if gang.leaders:
            seats = leading.sort_with_leader(leading.seats(counts, self.scores, level, alive), gang)
            found, fitting = leading.several(seats, gang)
            if found is None:
                raise RefusedError(not_fit(counts, gang, level, fitting) if explain else "does not fit")
            return found
        total = int(counts.slices[level][alive].sum())
        if total < gang.slices:
            raise RefusedError(not_fit(counts, gang, level, total) if explain else "does not fit")
        ordered = self.sort(level, alive)
        taken = self._fill(level, ordered, counts.slices[level][ordered], gang.slices, 1)
        return [each.slot for each in taken]

    # --- downwards ---------------------------------------------------------------------------------------------------

    def descend(self, found: FitDomains) -> list[Chosen]:
        """The leaves of the domains that were found, and the pods that each gets."""
        gang, shape, level = self.gang, self.counts.shape, found.level
        domains = np.array(found.domains, np.int64)
        chosen = self.split(level, domains, gang.pods, gang.leaders, shape.slice_size, by_slices=True)
        bottom = len(self.tree.levels) - 1
        while level < min(bottom, shape.slice_level):
            # Above the level of the slices it does not matter which of the domains above they are in.
            children = self.children(level, [each.slot for each in chosen])
            level += 1
            ordered = self.sort(level, children)
            chosen = self.split(level, ordered, gang.pods, gang.leaders, shape.slice_size, by_slices=True)
        return self.descend_within(level, chosen)

    def descend_within(self, level: int, chosen: list[Chosen]) -> list[Chosen]:
        """The same for domains each of which keeps the pods that it has."""
        shape = self.counts.shape
        for at in range(level, len(self.tree.levels) - 1):
            size = shape.slice_size if at < shape.slice_level else max(1, shape.inner[at + 1])
            below: list[Chosen] = []
            if size == 1:
                chosen, below = self._take_full(at, chosen)
            for each in chosen:
                if not each.pods and not each.leaders:
                    continue
                ordered = self.sort(at + 1, self.children(at, [each.slot]))
                below += self.split(at + 1, ordered, each.pods, each.leaders, size, by_slices=size > 1, anew=True)
            chosen = below
        return chosen

    def _take_full(self, level: int, chosen: list[Chosen]) -> tuple[list[Chosen], list[Chosen]]:
        """What is left of the domains without those that get as many pods as fit; and what is in those, at once."""
        room = self.counts.pods[level]
        full = [each.slot for each in chosen if not each.leaders and each.pods == room[each.slot]]
        if not full:
            return chosen, []
        children = self.children(level, full)
        pods = self.counts.pods[level + 1][children].tolist()
        below = [Chosen(slot, count) for slot, count in zip(children.tolist(), pods, strict=True) if count]
        return [each for each in chosen if each.leaders or each.pods != room[each.slot]], below

    def split(
        self,
        level: int,
        ordered: IntArray,
        pods: int,
        leaders: int,
        size: int,
        *,
        by_slices: bool,
        anew: bool = False,
    ) -> list[Chosen]:
        """
        Distribute pods over domains, in this order, as few as possible.

        `by_slices` keeps slices of this size together; `anew` counts them from the pods that fit.
        """
        if leaders:
            seats = leading.seats(self.counts, self.scores, level, ordered)
            if by_slices and anew:
                for seat in seats:
                    seat.slices, seat.slices_beside = seat.pods // size, seat.beside // size
            return leading.split(seats, self.gang, pods, leaders, size, by_slices=by_slices)
        if not by_slices:
            return self._fill(level, ordered, self.counts.pods[level][ordered], pods, 1)
        room = self.counts.pods[level][ordered] // size if anew else self.counts.slices[level][ordered]
        return self._fill(level, ordered, room, pods // size, size)

    def _fill(self, level: int, ordered: IntArray, room: IntArray, needed: int, size: int) -> list[Chosen]:
        """Fill domains in this order; with best fit the last one is the tightest of those that are left."""
        filled = int(np.searchsorted(np.cumsum(room), needed))
        if filled >= len(room):
            return []
        taken = [
            Chosen(slot, count * size)
            for slot, count in zip(ordered[:filled].tolist(), room[:filled].tolist(), strict=True)
            if count
        ]
        left = needed - int(room[:filled].sum())
        last = filled
        if not self.gang.least_free:
            rest = room[filled:]
            if self.scores is not None:
                scores = self.scores[level][ordered[filled:]]
                rest = np.where(np.logical_and.accumulate(scores == scores[0]), rest, -1)
            last += int(np.where(rest >= left, rest, _BIG).argmin())
        taken.append(Chosen(int(ordered[last]), left * size))
        return taken

    def sort(self, level: int, domains: IntArray) -> IntArray:
        """
        Domains in the order in which they are filled.

        By preference, then by slices (the most first; with least free capacity the fewest), then fewest pods, then by
        their values.
        """
        if len(domains) < 2:
            return domains
        slices = self.counts.slices[level][domains]
        keys = [
            self.tree.by_level[level].order[domains],
            self.counts.pods[level][domains],
            slices if self.gang.least_free else -slices,
        ]
        if self.scores is not None:
            keys.append(-self.scores[level][domains])
        return domains[np.lexsort(keys)]

    def children(self, level: int, domains: list[int]) -> IntArray:
        """The domains of the next level in these."""
        children, nodes = self.tree.by_level[level].children, self.tree.by_level[level + 1].nodes
        below = [child for domain in domains for child in children[domain] if nodes[child]]
        return np.array(below, np.int64)


def lowest(domains: IntArray, *keys: IntArray) -> int:
    """The domain with the lowest first key, of several the one with the lowest second key, and so on."""
    for key in keys:
        if len(domains) == 1:
            break
        values: npt.NDArray[np.int64] = key[domains]
        domains = domains[values == values.min()]
    return int(domains[0])


def _scores(counts: ShapeCounts) -> list[IntArray] | None:
    """By level, the sums of how much the pods prefer the leaves of each domain; None when preferences do not count."""
    scores = counts.filter.scores
    if scores is None:
        return None
    by_level = [scores]
    for level in reversed(counts.tree.by_level[1:]):
        parent = level.parent[: len(level.values)]
        above = len(counts.tree.by_level[len(counts.tree.by_level) - 1 - len(by_level)].values)
        by_level.append(np.bincount(parent, by_level[-1], above).astype(np.int64))
    return by_level[::-1]
