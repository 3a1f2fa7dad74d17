"""
Replay: the proof that the same log gives the same state and the same state the same decisions.

A recorded cycle names the position it was decided at, but stands in the log later: others have appended in between.
So a replay takes two passes. `Plan` looks over the log and notes at which positions there is something to check;
`Replay` folds the log again, decides each cycle anew when the fold stands where the cycle was decided, keeps the
decision until the recorded one comes by, and compares. State hashes are compared where snapshots have recorded them.

What a cycle of an older release could not say yet is not compared: its verdicts name no `needs`.
"""

from collections.abc import Callable, Sequence

import msgspec

from headgate.core import fold
from headgate.core.state import State
from headgate.events.commit import LoggedCommit, Position, encode_event
from headgate.events.decisions import CycleDecided, WorkloadSkipped
from headgate.events.effects import SnapshotTaken
from headgate.events.ids import Seq
from headgate.events.registry import Event

DecideCycle = Callable[[State], Sequence[Event] | None]
"""The scheduler's decision on a state: the events of one cycle's commit, or nothing to decide."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Where the replay differs from the record: what was compared, and both values."""

    what: str
    position: Position
    recorded: str
    replayed: str


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay did. `position` and the hashes are those of its end."""

    position: int
    commits: int
    events: int
    cycles: int
    snapshots: int
    state_hash: str
    log_hash: str
    differences: tuple[Difference, ...] = ()


class Plan:
    """What is to be checked where. Feed it every commit that holds a cycle or a snapshot; others are welcome."""

    def __init__(self) -> None:
        self.cycles: dict[Seq, int] = {}
        """Position decided at -> how many cycles were decided there."""
        self.snapshots: dict[Seq, None] = {}

    def feed(self, logged: LoggedCommit) -> None:
        """Note what a commit asks for."""
        for event in logged.commit.events:
            if type(event) is CycleDecided:
                self.cycles[event.decided_at] = self.cycles.get(event.decided_at, 0) + 1
            elif type(event) is SnapshotTaken:
                self.snapshots[event.position] = None


class Replay:
    """
    Folds a log again and compares.

    `state` is the state before the first commit that is fed, and belongs to the replay from then on. Cycles decided
    before it cannot be checked and are passed over.
    """

    def __init__(self, state: State, plan: Plan, decide: DecideCycle | None) -> None:
        self.state = state
        self._plan = plan
        self._decide = decide
        self._start = state.position
        self._decided: dict[Seq, tuple[Event, ...]] = {}
        self._names_needs = False
        """Whether a recorded verdict has named what it needs: from then on all that should must."""
        self._hashes: dict[Seq, tuple[str, str]] = {}
        self._commits = self._events = self._cycles = self._snapshots = 0
        self.differences: list[Difference] = []
        self._look()

    def feed(self, logged: LoggedCommit) -> None:
        """
        Compare what a commit has recorded, then fold it.

        Raises what `headgate.core.fold.apply` raises.
        """
        self._commits += 1
        self._events += len(logged.commit.events)
        for index, event in enumerate(logged.commit.events):
            if type(event) is CycleDecided:
                self._compare_cycle(Position(logged.seq, index), event, logged)
            elif type(event) is SnapshotTaken:
                self._compare_snapshot(Position(logged.seq, index), event)
        fold.apply(self.state, logged)
        self._look()

    def result(self) -> Replayed:
        """What was found, and the hashes of the state as it is now."""
        return Replayed(
            position=self.state.position,
            commits=self._commits,
            events=self._events,
            cycles=self._cycles,
            snapshots=self._snapshots,
            state_hash=fold.state_hash(self.state),
            log_hash=self.state.log_hash,
            differences=tuple(self.differences),
        )

    def _look(self) -> None:
        """Where the fold stands now: decide what was decided here, hash what was hashed here."""
        here = self.state.position
        if self._decide is not None and here in self._plan.cycles:
            self._decided[here] = tuple(self._decide(self.state) or ())
        if here in self._plan.snapshots:
            self._hashes[here] = (fold.state_hash(self.state), self.state.log_hash)

    def _compare_cycle(self, at: Position, event: CycleDecided, logged: LoggedCommit) -> None:
        self._names_needs = self._names_needs or any(map(_names_needs, logged.commit.events))
        decided = self._decided.get(event.decided_at)
        if decided is None:
            return
        left = self._plan.cycles[event.decided_at] - 1
        self._plan.cycles[event.decided_at] = left
        if not left:
            del self._decided[event.decided_at]
        self._cycles += 1
        recorded = tuple(encode_event(each) for each in logged.commit.events)
        again = tuple(encode_event(each if self._names_needs else _without_needs(each)) for each in decided)
        if again == recorded:
            return
        index = next(
            (i for i, (one, other) in enumerate(zip(recorded, again, strict=False)) if one != other),
            min(len(recorded), len(again)),
        )
        self.differences.append(
            Difference(
                what=f"cycle {event.cycle}, decided at {event.decided_at}",
                position=Position(at.seq, index),
                recorded=_at(recorded, index),
                replayed=_at(again, index),
            )
        )

    def _compare_snapshot(self, at: Position, event: SnapshotTaken) -> None:
        again = self._hashes.get(event.position)
        if again is None:
            return
        self._snapshots += 1
        recorded = (event.state_hash, event.log_hash)
        if again != recorded:
            what = f"snapshot {event.name} of position {event.position} (state hash, log hash)"
            self.differences.append(
                Difference(what=what, position=at, recorded=" ".join(recorded), replayed=" ".join(again))
            )


def _names_needs(event: Event) -> bool:
    return isinstance(event, WorkloadSkipped) and bool(event.needs)


def _without_needs(event: Event) -> Event:
    """A decision as a release without `WorkloadSkipped.needs` has recorded it."""
    return msgspec.structs.replace(event, needs=()) if isinstance(event, WorkloadSkipped) else event


def _at(encoded: tuple[bytes, ...], index: int) -> str:
    return encoded[index].decode() if index < len(encoded) else "nothing"
