"""
Logs of simulated runs, and what an attacker who may append would make of them.

`recorded` runs a scenario and keeps its log as it would be in the stream. `forged` cuts it off at a position and
puts one more commit there, numbered, chained and attested as that of the real producer would be.
"""

from collections.abc import Callable
from functools import lru_cache

from tests.simulation.scenarios import Scenario, contended, scenario
from tests.simulation.test_seeds import Run, faults_of

from headgate.adapters.log import LogEntry
from headgate.cli.deciding_again import checks
from headgate.core import fold
from headgate.core.cycle import decide_cycle
from headgate.core.log.refusal import CommitFilter
from headgate.core.machine.commits import next_commit
from headgate.core.machine.contract import Append
from headgate.core.state.tables import Stage, State, Workload
from headgate.core.verification.replay import Plan, Replay, Replayed
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, decode_commit, encode_commit
from headgate.events.ids import Seq
from headgate.events.registry import Event
from headgate.events.subjects import log_subject
from headgate.testing.world.world import NO_FAULTS

CELL = "sim"


@lru_cache(maxsize=8)
def recorded(seed: int, *, wild: bool = False, make: Callable[[int], Scenario] = contended) -> tuple[LogEntry, ...]:
    """The log of a run, with what went wrong in it if `wild`."""
    entries: list[LogEntry] = []
    run = Run(make(seed), faults_of(seed) if wild else NO_FAULTS, seed, round_ms=0 if make is scenario else 10)
    run.world._sink = lambda seq, subject, time_ms, payload: entries.append(LogEntry(seq, subject, time_ms, payload))
    run.play()
    return tuple(entries)


def decoded(entries: tuple[LogEntry, ...]) -> list[LoggedCommit]:
    """Entries as commits."""
    return [decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms) for entry in entries]


def folded(entries: tuple[LogEntry, ...]) -> State:
    """The state at their end."""
    state = fold.new_state(CELL)
    for logged in decoded(entries):
        fold.apply(state, logged)
    return state


def cut_where(entries: tuple[LogEntry, ...], is_there: Callable[[State], bool]) -> tuple[tuple[LogEntry, ...], State]:
    """The log up to the first position whose state is the wanted one, and that state."""
    state = fold.new_state(CELL)
    for index, logged in enumerate(decoded(entries)):
        fold.apply(state, logged)
        if is_there(state):
            return entries[: index + 1], state
    raise AssertionError("there is no such position in the log")


def forged(
    entries: tuple[LogEntry, ...], state: State, producer: Producer, *events: Event, decided_at: int | None = None
) -> tuple[LogEntry, ...]:
    """The log with one more commit at its end. `state` is the one there."""
    at = Seq(state.position if decided_at is None else decided_at)
    epoch = state.producers[producer].epoch
    commit, _ = next_commit(state, producer, epoch, Append(events=events, decided_at=at), state.now_ms)
    subject = log_subject(CELL, producer)
    return (*entries, LogEntry(state.position + 1, subject, state.now_ms, encode_commit(commit)))


@lru_cache(maxsize=4)
def waiting_and_running(seed: int) -> tuple[tuple[LogEntry, ...], State, Workload, Workload]:
    """A log up to a position at which one workload waits and one runs; its state, and these two."""

    def is_there(state: State) -> bool:
        stages = {each.stage for each in state.workloads.values()}
        return Stage.ADMITTED in stages and bool(stages & {Stage.QUEUED, Stage.OFFERED}) and state.cycle > 5

    entries, state = cut_where(recorded(seed), is_there)
    waits = next(each for each in state.workloads.values() if each.stage in (Stage.QUEUED, Stage.OFFERED))
    return entries, state, waits, next(each for each in state.workloads.values() if each.stage is Stage.ADMITTED)


def verified(entries: tuple[LogEntry, ...]) -> Replayed:
    """What `headgate replay --verify` makes of a log."""
    commits = decoded(entries)
    plan = Plan(checks(), CommitFilter(CELL))
    for logged in commits:
        plan.feed(logged)
    replay = Replay(fold.new_state(CELL), plan, decide_cycle)
    for logged in commits:
        replay.feed(logged)
    return replay.result()
