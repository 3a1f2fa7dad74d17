"""
A history as data: its lines, its final status, and a form with repeated cycles collapsed.

`headgate.core.views.explain` creates it from a log; the command line and the read side show it.
"""

from collections.abc import Sequence

import msgspec

from headgate.core.views.diagnosis import Standing
from headgate.events.base import tag_of
from headgate.events.commit import Position
from headgate.events.ids import PodKey, UnixMs, WorkloadKey
from headgate.events.registry import Event


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    One entry of a history.

    `event` is its tag, `about` the object concerned. `waited_for` and `waited_ms` are what the workload had been
    waiting for until then, and how long. `detail` marks bookkeeping that most readers skip. Immediate repetitions are
    one line with `times` and the position and time of the last.
    """

    position: Position
    time_ms: UnixMs
    producer: str
    event: str
    about: str
    text: str
    reason: str = ""
    message: str = ""
    waited_for: str = ""
    waited_ms: int | None = None
    detail: bool = False
    times: int = 1
    until: Position | None = None
    until_ms: UnixMs | None = None


class Story(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A workload's complete history, up to `position`, and the configuration that applies there.

    `job` is namespace and name of its job, `job_kind` the kind, with its group where the kind alone is ambiguous. `pod`
    is a pod of the same name, which has a history of its own.
    """

    workload: WorkloadKey
    job: str
    position: int
    now_ms: UnixMs
    lines: tuple[Line, ...]
    standing: Standing
    configuration: str = "defaults"
    job_kind: str = ""
    pod: PodKey = PodKey("")


class Mark(msgspec.Struct, frozen=True):
    """The beginning of a wait, and what for."""

    position: Position
    time_ms: UnixMs
    waiting_for: str


class EventPlace(msgspec.Struct, frozen=True):
    """The current event and its place."""

    position: Position
    time_ms: UnixMs
    producer: str


class Notes:
    """The lines of a history while it is read. `subject` is the object of a line that names no other."""

    def __init__(self, subject: WorkloadKey | PodKey) -> None:
        self.lines: list[Line] = []
        self._subject = subject

    def add(
        self,
        at: EventPlace,
        event: Event,
        text: str,
        *,
        about: str = "",
        reason: str = "",
        message: str = "",
        waited: Mark | None = None,
        detail: bool = False,
    ) -> None:
        """Add a line; a repetition of the line before only counts."""
        if waited is not None and waited.position.seq == at.position.seq:
            waited = None  # Decided in one commit: there was no wait.
        line = Line(
            position=at.position,
            time_ms=at.time_ms,
            producer=at.producer,
            event=tag_of(event),
            about=about or self._subject,
            text=text,
            reason=reason,
            message=message,
            waited_for=waited.waiting_for if waited is not None else "",
            waited_ms=max(0, at.time_ms - waited.time_ms) if waited is not None else None,
            detail=detail,
        )
        last = self.lines[-1] if self.lines else None
        if last is not None and _same(last, line):
            self.lines[-1] = msgspec.structs.replace(last, times=last.times + 1, until=at.position, until_ms=at.time_ms)
        else:
            self.lines.append(line)


def _same(one: Line, other: Line) -> bool:
    """Whether a line repeats the one before."""
    return (one.event, one.about, one.text, one.reason, one.message, one.waited_for) == (
        other.event,
        other.about,
        other.text,
        other.reason,
        other.message,
        other.waited_for,
    )


_ROUND = frozenset({"heads.offered", "heads.withdrawn", "workload.skipped", "workload.parked", "workload.woken"})
"""The repeated events of a pending workload until it fits."""

_ROUNDS_TOLD = 2


def condensed(lines: Sequence[Line]) -> list[Line]:
    """
    A history with repeated cycles collapsed: of many rounds of waking, trying and sleeping, the first and last remain.

    The rounds between are one line: how many, from where to where, and the total time asleep.
    """
    told: list[Line] = []
    rounds: list[Line] = []
    for line in lines:
        if line.event in _ROUND or (line.detail and rounds):
            rounds.append(line)
        else:
            told += _condensed_rounds(rounds)
            told.append(line)
            rounds = []
    return told + _condensed_rounds(rounds)


def _condensed_rounds(lines: list[Line]) -> list[Line]:
    ends = [index for index, line in enumerate(lines) if line.event == "workload.woken"]
    if len(ends) < _ROUNDS_TOLD + 2:
        return lines
    between = lines[ends[0] + 1 : ends[-2] + 1]
    woken = [line for line in between if line.event == "workload.woken"]
    tried = sum(line.times for line in between if line.event == "workload.skipped" and "not admitted" in line.text)
    last = next(
        (line for line in reversed(between) if line.event in ("workload.skipped", "workload.parked")), woken[-1]
    )
    text = f"{len(woken)} more rounds like this: requeued, and {tried} times not admitted"
    line = msgspec.structs.replace(
        last,
        position=between[0].position,
        time_ms=between[0].time_ms,
        text=text,
        waited_for=woken[-1].waited_for,
        waited_ms=sum(line.waited_ms or 0 for line in woken),
        until=between[-1].position,
        until_ms=between[-1].time_ms,
    )
    return [*lines[: ends[0] + 1], line, *lines[ends[-2] + 1 :]]
