"""
The parts of phase 2 for gangs with a leader: one pod of another pod set that has to be in the same domain.

Kueue's rule is that the leader goes first, to a domain where it takes the least from the others. Here domains are
objects (`Seat`), because gangs with leaders are few, and balanced placement changes what fits.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headgate.core.topology.counts import ShapeCounts
from headgate.core.topology.shaping import Gang
from headgate.core.topology.slots import IntArray


class Chosen(NamedTuple):
    """A domain, by its slot, with the pods and the leaders that it gets."""

    slot: int
    pods: int
    leaders: int = 0


class Seat:
    """A domain with what fits there, as `ShapeCounts` has it. Changing it changes nothing else."""

    __slots__ = ("beside", "leaders", "order", "pods", "score", "slices", "slices_beside", "slot")

    def __init__(
        self, slot: int, order: int, score: int, pods: int, slices: int, beside: int, slices_beside: int, leaders: int
    ) -> None:
        self.slot = slot
        self.order = order
        self.score = score
        self.pods = pods
        self.slices = slices
        self.beside = beside
        self.slices_beside = slices_beside
        self.leaders = leaders


def seats(counts: ShapeCounts, scores: list[IntArray] | None, level: int, domains: IntArray) -> list[Seat]:
    """Domains of a level as objects, in this order. `scores` has, by level, how much pods prefer a domain."""
    columns = (
        counts.pods[level],
        counts.slices[level],
        counts.beside_leader[level],
        counts.slices_beside_leader[level],
        counts.leaders[level],
    )
    order = counts.tree.by_level[level].order[domains].tolist()
    preferred = scores[level][domains].tolist() if scores is not None else [0] * len(domains)
    rows = zip(domains.tolist(), order, preferred, *(column[domains].tolist() for column in columns), strict=True)
    return [Seat(*row) for row in rows]


def sort_with_leader(given: Sequence[Seat], gang: Gang) -> list[Seat]:
    """Seats in the order in which they are considered for the leader."""
    sign = 1 if gang.least_free else -1
    return sorted(
        given, key=lambda seat: (-seat.leaders, -seat.score, sign * seat.slices_beside, seat.beside, seat.order)
    )


def sort(given: Sequence[Seat], gang: Gang) -> list[Seat]:
    """Seats in the order in which they are filled."""
    sign = 1 if gang.least_free else -1
    return sorted(given, key=lambda seat: (-seat.score, sign * seat.slices, seat.pods, seat.order))


def several(ordered: list[Seat], gang: Gang) -> tuple[list[int] | None, int]:
    """
    The domains to fill for a gang that fits into no single one, leaders first.

    None when they do not fit, and how much of them does, as Kueue's message says it.
    """
    needed, leaders = gang.slices, gang.leaders
    ordered = _leader_first(ordered, gang.pods, leaders, gang.shape.slice_size, by_slices=True)
    found: list[int] = []
    at = 0
    while leaders > 0 and at < len(ordered) and ordered[at].leaders > 0:
        seat = ordered[at]
        if not gang.least_free and seat.slices_beside >= needed:
            seat = _tightest(ordered[at:], gang, needed, leaders, by_slices=True)
        found.append(seat.slot)
        leaders -= seat.leaders
        needed -= seat.slices_beside
        at += 1
    if leaders > 0:
        return None, gang.leaders - leaders
    rest = sort(ordered[at:], gang)
    for place, each in enumerate(rest):
        if needed <= 0:
            break
        seat = each
        if not gang.least_free and seat.slices >= needed:
            seat = _tightest(rest[place:], gang, needed, 0, by_slices=True)
        found.append(seat.slot)
        needed -= seat.slices
    return (found, 0) if needed <= 0 else (None, gang.slices - needed)


def split(given: list[Seat], gang: Gang, pods: int, leaders: int, size: int, *, by_slices: bool) -> list[Chosen]:
    """Distribute pods and leaders over seats, in this order, as few as possible; empty when they do not fit."""
    ordered = _leader_first(given, pods, leaders, size, by_slices=by_slices)
    left, unit = (pods // size, size) if by_slices else (pods, 1)
    chosen: list[Chosen] = []
    for place, each in enumerate(ordered):
        seat = each
        room = _room(seat, leaders, by_slices=by_slices)
        if not gang.least_free and room >= left and seat.leaders >= leaders:
            seat = _tightest(ordered[place:], gang, left, leaders, by_slices=by_slices)
            room = _room(seat, leaders, by_slices=by_slices)
        if room >= left and seat.leaders >= leaders:
            chosen.append(Chosen(seat.slot, left * unit, leaders))
            return chosen
        taken, led = min(room, left), min(seat.leaders, leaders)
        chosen.append(Chosen(seat.slot, taken * unit, led))
        left -= taken
        leaders -= led
    return []


def _room(seat: Seat, leaders: int, *, by_slices: bool) -> int:
    """What fits there, beside a leader while one has no place yet."""
    if leaders:
        return seat.slices_beside if by_slices else seat.beside
    return seat.slices if by_slices else seat.pods


def _tightest(rest: Sequence[Seat], gang: Gang, needed: int, leaders: int, *, by_slices: bool) -> Seat:
    """Of the seats that are preferred as much as the first, the tightest that is enough; the first if none is."""
    best: Seat | None = None
    least = 0
    for seat in rest:
        if gang.gates.preferred_affinity and seat.score != rest[0].score:
            break
        room = _room(seat, leaders, by_slices=by_slices)
        if seat.leaders >= leaders and room >= needed and (best is None or room < least):
            best, least = seat, room
    return rest[0] if best is None else best


def _leader_first(given: list[Seat], pods: int, leaders: int, size: int, *, by_slices: bool) -> list[Seat]:
    """The seats with one in front where the leader leaves enough room for all others in all of them."""
    if not leaders or len(given) < 2:
        return given
    needed = pods // size if by_slices else pods
    room = sum(seat.slices if by_slices else seat.pods for seat in given)
    for place, seat in enumerate(given):
        lost = seat.slices - seat.slices_beside if by_slices else seat.pods - seat.beside
        if seat.leaders >= leaders and room - lost >= needed:
            return [seat, *given[:place], *given[place + 1 :]]
    return given
