"""
Replay: the proof that the same log gives the same state and the same state the same decisions.

This module covers the cycles of the scheduler and the hashes of snapshots; all other records are compared by the checks
of `headgate.core.verification`.

A recorded cycle names the position it was decided at, but comes later in the log: others have appended in between. So a
replay takes two passes. `Plan` reads the log and records at which positions there is something to check; `Replay` folds
the log again, repeats each cycle when the fold is at its position, keeps the decision until the recorded one is read,
and compares. State hashes are compared where snapshots have recorded them.

What an older release did not record in a cycle is not compared: its verdicts name no `needs`.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from headgate.core import fold
from headgate.core.fold.quarantine import Treatments
from headgate.core.log import refusal
from headgate.core.log.authority import overstepped
from headgate.core.log.refusal import CommitFilter
from headgate.core.log.rules_version import CYCLES_SINCE, RULES, SNAPSHOTS_SINCE, WAITING_CYCLES_SINCE, decides_alike
from headgate.core.machine.commits import election_of
from headgate.core.state.tables import State
from headgate.core.verification.check import NOTHING, Check, OtherRules, ReplayDifference, opens_term
from headgate.core.verification.placements import PLACEMENT_EVENTS
from headgate.events.base import Producer
from headgate.events.commit import Commit, LoggedCommit, Position, decode_entry, encode_event
from headgate.events.decisions import CycleDecided, PodTried, WorkloadSkipped
from headgate.events.effects import DivergenceFound, LeaderElected, ObjectQuarantined, ObjectReleased, SnapshotTaken
from headgate.events.extenders import ExtenderAnswered
from headgate.events.ids import Seq
from headgate.events.registry import Event

DecideCycle = Callable[[State], Sequence[Event] | None]
"""The scheduler's decision on a state: the events of one cycle's commit, or None when there is nothing to decide."""


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """
    The result of a replay. `position` and the hashes are those of its end.

    `compared` counts what else was repeated or justified, by its name; `passed_over` are the commits that a process has
    decided by rules other than this release's (`headgate.core.log.rules_version`), which are not compared;
    `other_rules` are the terms of such rules in the log, with all their commits. `snapshots_alike` is whether the last
    term of the snapshotter was one by the rules of this release.
    """

    position: int
    commits: int
    events: int
    cycles: int
    snapshots: int
    state_hash: str
    log_hash: str
    differences: tuple[ReplayDifference, ...] = ()
    compared: dict[str, int] = {}
    passed_over: int = 0
    other_rules: tuple[OtherRules, ...] = ()
    snapshots_alike: bool = True


class Plan:
    """What to check where. Feed it every commit that is not of the informer bridge; those are allowed, too."""

    def __init__(self, checks: Sequence[Check] = (), gate: CommitFilter | None = None) -> None:
        self.checks = checks
        self._gate = gate
        self.cycles: dict[Seq, int] = {}
        """Position decided at -> how many cycles were decided there."""
        self.snapshots: dict[Seq, None] = {}

    def feed(self, logged: LoggedCommit) -> None:
        """
        Record what a commit requires.

        Raises UnreadableCommitError.
        """
        if self._gate is not None and not self._gate.admits(logged):
            return
        for event in logged.commit.events:
            if type(event) is CycleDecided:
                self.cycles[event.decided_at] = self.cycles.get(event.decided_at, 0) + 1
            elif type(event) is SnapshotTaken or type(event) is DivergenceFound:
                self.snapshots[event.position] = None
        for check in self.checks:
            check.plan(logged)


class Replay:
    """
    Folds a log again and compares, from position `first` on.

    `state` is the state before the first commit that is fed, and belongs to the replay from then on. Cycles decided
    before it cannot be checked and are skipped.
    """

    def __init__(
        self,
        state: State,
        plan: Plan,
        decide: DecideCycle | None,
        treatments: Treatments = fold.NO_TREATMENTS,
        *,
        first: int = 1,
    ) -> None:
        self.state = state
        self._plan = plan
        self._decide = decide
        self._treatments = treatments
        self._first = first
        self._start = state.position
        self._decided: dict[Seq, tuple[Event, ...]] = {}
        self._names_needs = False
        """Whether a recorded verdict has named its needs: from then on every verdict with needs must."""
        self._rules = RULES[Producer.SCHEDULER]
        """The rules of the scheduler's term."""
        self._terms: dict[Producer, LeaderElected] = {}
        self._other_rules: dict[tuple[Producer, int, str], int] = {}
        self._hashes: dict[Seq, tuple[str, str]] = {}
        self._commits = self._events = self._cycles = self._snapshots = self._passed_over = 0
        self.differences: list[ReplayDifference] = []
        self._look()

    def feed(self, logged: LoggedCommit) -> None:
        """
        Compare the records of a commit, then fold it; a refused entry has no records.

        Raises what `headgate.core.fold.apply` raises.
        """
        why = refusal.refusal(self.state, logged)
        if why is not None:
            self._pass_by(logged, why)
            return
        self._commits += 1
        self._events += len(logged.commit.events)
        version = self._note_term(logged.commit)
        found = [*self._compare(logged)]
        for check in self._plan.checks:
            found += self._guarded(logged, lambda check=check: [*check.compare(self.state, logged)])  # type: ignore[misc]
        fold.apply(self.state, logged, self._treatments)
        found += self._guarded(logged, self._look)
        for check in self._plan.checks:
            found += self._guarded(logged, lambda check=check: check.look(self.state, logged))  # type: ignore[misc]
        if logged.seq >= self._first:
            self.differences += [msgspec.structs.replace(each, version=version) for each in found]

    def _note_term(self, commit: Commit) -> str:
        """The version by which a commit was decided; "" when unknown."""
        producer = commit.producer
        election = election_of(commit) or self._terms.get(producer)
        if election is None:
            return ""
        self._terms[producer] = election
        if election.rules != RULES[producer]:
            term = producer, election.rules, election.version
            self._other_rules[term] = self._other_rules.get(term, 0) + 1
        return election.version

    def _compares_snapshots(self) -> bool:
        """Whether the term of the snapshotter is one by the rules of this release."""
        election = self._terms.get(Producer.SNAPSHOTTER)
        return election is None or decides_alike(Producer.SNAPSHOTTER, election.rules, SNAPSHOTS_SINCE)

    def _pass_by(self, logged: LoggedCommit, why: str) -> None:
        """A refused entry: none of the six processes has appended it. Others may have decided at its position."""
        if logged.seq >= self._first:
            what = f"an entry that no process of this cell has appended: {why}"
            recorded = f"an entry on {logged.subject}"
            self.differences.append(
                ReplayDifference(what=what, position=Position(logged.seq), recorded=recorded, replayed=NOTHING)
            )
        fold.apply(self.state, logged, self._treatments)
        nothing = decode_entry(logged.seq, logged.subject, b"")
        self._guarded(nothing, self._look)
        for check in self._plan.checks:
            self._guarded(nothing, lambda check=check: check.look(self.state, nothing))  # type: ignore[misc]

    def result(self) -> Replayed:
        """The findings, and the hashes of the current state."""
        return Replayed(
            position=self.state.position,
            commits=self._commits,
            events=self._events,
            cycles=self._cycles,
            snapshots=self._snapshots,
            state_hash=fold.state_hash(self.state),
            log_hash=self.state.log_hash,
            differences=tuple(self.differences),
            compared={name: count for check in self._plan.checks for name, count in check.counts.items()},
            passed_over=self._passed_over + sum(check.passed_over for check in self._plan.checks),
            other_rules=tuple(
                OtherRules(producer=producer, rules=rules, version=version, commits=commits)
                for (producer, rules, version), commits in sorted(self._other_rules.items())
            ),
            snapshots_alike=self._compares_snapshots(),
        )

    def _guarded(
        self, logged: LoggedCommit, compare: Callable[[], Sequence[ReplayDifference] | None]
    ) -> Sequence[ReplayDifference]:
        """The differences of a comparison. One that raises is a difference: no process would have continued there."""
        try:
            return compare() or ()
        except Exception as error:  # noqa: BLE001 - whatever a log holds, the rest of it is to be compared
            what = "what follows from this position, which cannot be decided again"
            said = f"{type(error).__name__}: {error}"
            return [ReplayDifference(what=what, position=Position(logged.seq), recorded=NOTHING, replayed=said)]

    def _look(self) -> None:
        """At the current position: repeat the cycles decided here, compute the hashes recorded here."""
        here = self.state.position
        if self._decide is not None and here in self._plan.cycles:
            self._decided[here] = tuple(self._decide(self.state) or ())
        if here in self._plan.snapshots:
            self._hashes[here] = (fold.state_hash(self.state), self.state.log_hash)

    def _compare(self, logged: LoggedCommit) -> Iterator[ReplayDifference]:
        election = opens_term(logged, Producer.SCHEDULER)
        if election is not None:
            self._rules = election.rules
        elif logged.commit.producer is Producer.SCHEDULER:
            yield from self._compare_cycle(logged)
        producer = logged.commit.producer
        term = self._terms.get(producer)
        rules = term.rules if term is not None else 0
        for index, event in enumerate(logged.commit.events):
            author = overstepped(producer, event, rules)
            if author is not None:
                yield ReplayDifference(
                    what=f"what the {producer.value} says for the {author.value}",
                    position=Position(logged.seq, index),
                    recorded=encode_event(event).decode(),
                    replayed=f"an event of the {author.value}",
                )
            if type(event) is SnapshotTaken:
                yield from self._compare_snapshot(Position(logged.seq, index), event)
            elif type(event) is DivergenceFound:
                yield from self._compare_divergence(Position(logged.seq, index), event)

    # Large: one exit for each reason not to compare a recorded cycle, and one for each difference.
    def _compare_cycle(self, logged: LoggedCommit) -> Iterator[ReplayDifference]:
        events = logged.commit.events
        cycle = events[0] if events else None
        recorded = tuple(map(encode_event, events))
        if any(isinstance(event, ObjectQuarantined | ObjectReleased) for event in events):
            return
        if events and all(isinstance(event, (*PLACEMENT_EVENTS, PodTried, ExtenderAnswered)) for event in events):
            return  # PlacementCheck compares what is decided. What an extender answers follows from nothing.
        if type(cycle) is not CycleDecided:
            yield ReplayDifference(
                what="a commit of the scheduler that is no cycle",
                position=Position(logged.seq),
                recorded=_at(recorded, 0),
                replayed=NOTHING,
            )
            return
        waits = self.state.configuration.preemption_waits
        if not decides_alike(Producer.SCHEDULER, self._rules, WAITING_CYCLES_SINCE if waits else CYCLES_SINCE):
            self._passed_over += 1
            return
        since = self.state.producers[Producer.SCHEDULER].last_seq
        decided = self._decided.get(cycle.decided_at)
        if cycle.decided_at < since or (decided is None and cycle.decided_at > self.state.position):
            ground = "before its own last commit" if cycle.decided_at < since else "on what is not in the log yet"
            yield ReplayDifference(
                what=f"cycle {cycle.cycle}, decided at {cycle.decided_at}, {ground}",
                position=Position(logged.seq),
                recorded=_at(recorded, 0),
                replayed=NOTHING,
            )
            return
        if decided is None:
            return
        self._names_needs = self._names_needs or any(map(_names_needs, events))
        left = self._plan.cycles[cycle.decided_at] - 1
        self._plan.cycles[cycle.decided_at] = left
        if not left:
            del self._decided[cycle.decided_at]
        self._cycles += 1
        again = tuple(encode_event(each if self._names_needs else _without_needs(each)) for each in decided)
        if again == recorded:
            return
        index = next(
            (i for i, (one, other) in enumerate(zip(recorded, again, strict=False)) if one != other),
            min(len(recorded), len(again)),
        )
        yield ReplayDifference(
            what=f"cycle {cycle.cycle}, decided at {cycle.decided_at}",
            position=Position(logged.seq, index),
            recorded=_at(recorded, index),
            replayed=_at(again, index),
        )

    def _compare_snapshot(self, at: Position, event: SnapshotTaken) -> Iterator[ReplayDifference]:
        again = self._hashes.get(event.position)
        if again is None:
            return
        if not self._compares_snapshots():
            self._passed_over += 1
            return
        self._snapshots += 1
        recorded = (event.state_hash, event.log_hash)
        if again != recorded:
            what = f"snapshot {event.name} of position {event.position} (state hash, log hash)"
            yield ReplayDifference(what=what, position=at, recorded=" ".join(recorded), replayed=" ".join(again))

    def _compare_divergence(self, at: Position, event: DivergenceFound) -> Iterator[ReplayDifference]:
        again = self._hashes.get(event.position)
        if again is not None and again[0] != event.refolded_hash and self._compares_snapshots():
            what = f"the snapshotter's second fold up to position {event.position} (state hash)"
            yield ReplayDifference(what=what, position=at, recorded=event.refolded_hash, replayed=again[0])


def _names_needs(event: Event) -> bool:
    return isinstance(event, WorkloadSkipped) and bool(event.needs)


def _without_needs(event: Event) -> Event:
    """A decision as a release without `WorkloadSkipped.needs` recorded it."""
    return msgspec.structs.replace(event, needs=()) if isinstance(event, WorkloadSkipped) else event


def _at(encoded: tuple[bytes, ...], index: int) -> str:
    return encoded[index].decode() if index < len(encoded) else NOTHING
