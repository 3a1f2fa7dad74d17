"""
The log's time: no single clock can move it.

Each process and the broker have a clock. Each commit claims a time, and the broker records when it stored the commit.
The fold lets the log's time follow a claim only as far as another clock confirms it: the broker's, or the claims of two
other producers, plus CLOCK_SKEW_MS_MAX. A claim far behind the log's time counts as that far behind it and no more, so
a slow clock does not let deadlines pass that have only just been set. `effective_ms` is that rule, and everything that
is folded from a commit takes its time from there, not from the claim.

`Clocks` is the same for a running process: it decides by its own clock as far as the broker and the other producers
confirm it, and reports when its own is wrong. All times are arguments: the wall clock's, and a monotonic one by which
the others' times are extrapolated between two commits.
"""

from typing import Final

import msgspec

from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.ids import UnixMs

CLOCK_SKEW_MS_MAX: Final = 10_000
"""The maximum difference between the clocks of one cell."""

WINDOW_MS: Final = 15_000
"""For how long, at least, a clock is judged by its best observation: an entry may come late, never early."""


def effective_ms(state: State, producer: Producer, claimed_ms: UnixMs, stored_ms: UnixMs) -> UnixMs:
    """The effective time of a commit on this state. Its claim, where `stored_ms` is unknown (0)."""
    if not stored_ms:
        return claimed_ms
    if claimed_ms > stored_ms + CLOCK_SKEW_MS_MAX:
        others_ms = sorted(record.last_ms for other, record in state.producers.items() if other is not producer)
        # Of several the second: a wrong claim of one other producer stays until its next commit.
        borne_out_ms = max(stored_ms, others_ms[-2:][0] if others_ms else stored_ms)
        claimed_ms = min(claimed_ms, UnixMs(borne_out_ms + CLOCK_SKEW_MS_MAX))
    return max(claimed_ms, UnixMs(state.now_ms - CLOCK_SKEW_MS_MAX))


def commit_ms(state: State, producer: Producer, now_ms: UnixMs) -> UnixMs:
    """
    The time that a producer's next commit claims, by its clock.

    Never before its last one: a clock that is set back does not set the log back. If the log itself did not follow the
    last one, that was an error, and does not count.
    """
    record = state.producers.get(producer)
    return now_ms if record is None else max(now_ms, min(record.last_ms, state.now_ms))


class ClockVerdict(msgspec.Struct, frozen=True):
    """The verdict on the clocks. `own_is_off`: ours is wrong, by all others. `text`: "" if nothing is wrong."""

    own_is_off: bool = False
    text: str = ""


SOUND: Final = ClockVerdict()


class _Observed:
    """
    Observations of one clock: how far it is ahead of the monotonic clock.

    Delays make a clock look slow, so the greatest value of a window counts; and only recent ones, so that a clock that
    is set back is followed.
    """

    __slots__ = ("_before", "_begun_ms", "_best")

    def __init__(self) -> None:
        self._best: int | None = None
        self._before: int | None = None
        self._begun_ms = 0

    def observe(self, time_ms: int, mono_ms: int) -> None:
        """An observation of this clock."""
        if self._best is not None and mono_ms - self._begun_ms >= WINDOW_MS:
            self._before, self._best = self._best, None
        if self._best is None:
            self._begun_ms = mono_ms
        ahead = time_ms - mono_ms
        self._best = ahead if self._best is None else max(self._best, ahead)

    def at(self, mono_ms: int) -> int | None:
        """What it shows now; None before the first observation."""
        known = [ahead for ahead in (self._best, self._before) if ahead is not None]
        return max(known) + mono_ms if known else None


class Clocks:
    """
    The clocks of a cell as observed by one process.

    `producer` is its own, whose commits give no information about other clocks.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._broker = _Observed()
        self._others: dict[Producer, _Observed] = {}

    def observe_broker(self, broker_ms: int, mono_ms: int) -> None:
        """An observation of the broker's clock."""
        self._broker.observe(broker_ms, mono_ms)

    def observe(self, producer: Producer, claimed_ms: int, stored_ms: int, mono_ms: int) -> None:
        """A commit that was just received from the broker."""
        if stored_ms:
            self._broker.observe(stored_ms, mono_ms)
        if producer is not self._producer:
            observed = self._others.get(producer)
            if observed is None:
                observed = self._others[producer] = _Observed()
            observed.observe(claimed_ms, mono_ms)

    def now_ms(self, wall_ms: int, mono_ms: int) -> UnixMs:
        """
        The time to decide with: the wall clock's, within the bound given by the broker and other producers.

        The broker alone can hold it back, because a deadline should rather pass too late than too early; raising it
        also requires another producer.
        """
        others = [shown_ms for observed in self._others.values() if (shown_ms := observed.at(mono_ms)) is not None]
        broker_ms = self._broker.at(mono_ms)
        shown = others if broker_ms is None else [broker_ms, *others]
        if not shown:
            return UnixMs(wall_ms)
        held_ms = min(wall_ms, max(shown) + CLOCK_SKEW_MS_MAX)
        return UnixMs(max(held_ms, min(shown) - CLOCK_SKEW_MS_MAX) if others else held_ms)

    def judge(self, wall_ms: int, mono_ms: int) -> ClockVerdict:
        """Whose clock is wrong, if one is. With only one other clock the wrong one cannot be identified."""
        broker_ms = self._broker.at(mono_ms)
        others = {
            producer: shown_ms
            for producer, observed in self._others.items()
            if (shown_ms := observed.at(mono_ms)) is not None
        }
        agreeing = [producer for producer, shown_ms in others.items() if abs(shown_ms - wall_ms) <= CLOCK_SKEW_MS_MAX]
        if broker_ms is None or abs(broker_ms - wall_ms) <= CLOCK_SKEW_MS_MAX:
            return SOUND
        off = _by(wall_ms - broker_ms)
        if others and not agreeing:
            nearest = min(others, key=lambda each: (abs(others[each] - wall_ms), each))
            return ClockVerdict(
                own_is_off=True,
                text=(
                    f"the clock of this machine is {off} the broker's and {_by(wall_ms - others[nearest])} "
                    f"{nearest.value}'s: set it right; until then this process does not lead"
                ),
            )
        whose = "set whichever is wrong"
        if agreeing:
            whose = f"it agrees with that of {', '.join(sorted(agreeing))}: set the broker's"
        return ClockVerdict(text=f"the clock of this machine is {off} the broker's; {whose}")


def _by(difference_ms: int) -> str:
    return f"{abs(difference_ms) / 1000:.0f} s {'ahead of' if difference_ms > 0 else 'behind'}"
