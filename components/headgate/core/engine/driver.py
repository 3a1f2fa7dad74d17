"""
The driver of a machine: everything a process does between reading the log and doing I/O, without doing any I/O.

A machine only decides (`headgate.core.machine`). The driver folds the log for it, passes stimuli to it, requests
decisions at the right moment, makes fenced commits of them, opens and ends its terms, limits what is under way, and
contains its defects. It reads no clock and opens no connection, as `RawNode` in etcd's raft library. A shell around it
does the I/O: `headgate.processes.runtime.host` for a process, `headgate.testing.world` for simulations, small ones for
tests. All of them run this code, so what a simulation shows holds for production.

The shell reports what has happened, lets the driver work, and carries out its outputs:

    driver.fold(logged)                                an entry was read from the log
    driver.lead(epoch, holder) / driver.lose(why)      the lease was won / lost
    driver.appended(seq) / conflicted(last) / timed_out()     the outcome of a `Send`
    driver.receive(stimulus)                           a call ended, a watch event arrived, a snapshot was stored

    driver.advance(now_ms)     end appends; open, continue and end terms; make the machine
    driver.deliver()           pass the queued stimuli to the machine
    driver.settle(now_ms)      let the machine decide, if it may

    for output in driver.take(): ...                   before anything else is passed to the driver

A term goes through these phases:

                 lead: append                    folded: make
                 leader.elected                  the machine
    STANDBY ───────────────────────▶ OPENING ───────────────────────▶ LEADING
       ▲  ▲                             │                              │    ▲
       │  └──── refused by the log ─────┘                  quarantine  │    │ the machine
       │                                              begins or ends  ▼    │ is rebuilt
       └──────── lease lost, append refused, newer epoch ──────────── REMAKING

What machines rely on:

- Every commit is folded, in order, before it is passed to the machine.
- `Settled` comes only when no append is under way and no part of a split one is left, so a machine never decides twice
  on a state that lacks its own last decision. It comes when something has changed or the time of the last `WakeAt` has
  come, and not while `calls_max` calls are unanswered.
- A call that follows from a commit is made only after the commit is durable: calls are derived from folded state.

What operators rely on:

- Fencing. A term opens with `leader.elected` under an epoch newer than any in the log. Every append names the last
  entry on the producer's subject. When the broker refuses one, or a newer epoch appears, the term is over.
- Containment. When the machine fails over one object (`headgate.core.state.attribution`), `object.quarantined` is
  appended and the machine is rebuilt from the state without it. A failure that names no object, one that quarantine
  does not end, and one that too many objects show (`headgate.core.fold.quarantine_limit`) is raised: the process stops
  with it. `fold` raises EventFailedError for an event that cannot be folded; the shell folds the log again without it
  (`headgate.core.fold.containment`) and passes the state to `recovered`.
"""
# Over 400 lines: one state machine; terms, commits, calls and defects begin and end in each other's handlers.

import enum
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, assert_never

import msgspec

from headgate.core import fold
from headgate.core.engine.appends import Appends, OwnCommitRefusedError, Sign, Trace
from headgate.core.engine.calls import Calls
from headgate.core.engine.outputs import (
    CommitRefused,
    CommitStored,
    MachineDropped,
    MachineMade,
    ObjectSetAside,
    Output,
    Send,
    SteppedDown,
)
from headgate.core.fold import quarantine
from headgate.core.fold.quarantine import EventFailedError, Failure, Treatments
from headgate.core.fold.quarantine_limit import Limit
from headgate.core.log.log_time import commit_ms
from headgate.core.machine.call_object import object_of
from headgate.core.machine.commits import is_deposed
from headgate.core.machine.contract import (
    Append,
    AskExtender,
    Call,
    Command,
    Committed,
    Completed,
    Machine,
    Settled,
    Stimulus,
    TakeSnapshot,
    WakeAt,
)
from headgate.core.state.attribution import ObjectFailedError
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit
from headgate.events.effects import ObjectQuarantined, ObjectReleased
from headgate.events.ids import Epoch, Seq, UnixMs
from headgate.events.registry import Event

FAILURES_MAX: Final = 3
"""How often the machine may fail over one object whose quarantine does not reach the log."""

ATOMIC: Final = frozenset({Producer.SCHEDULER})
"""Producers whose appends are never split: the decisions of one cycle must be seen together."""

_REMAKES: Final = frozenset({ObjectQuarantined, ObjectReleased})
"""Events that change the state in a way that requires a new machine."""


class TermPhase(enum.Enum):
    """The phase of this process's term; see the diagram above."""

    STANDBY = "standby"
    OPENING = "opening"
    REMAKING = "remaking"
    LEADING = "leading"


class DriverLimits(msgspec.Struct, frozen=True, kw_only=True):
    """
    The limits on what is under way.

    `commit_bytes_max`: a larger commit is split. `calls_max`: calls that run at once; no decision is taken while that
    many are unanswered. `stimuli_max`: stimuli that may wait before `has_room` is False.
    """

    commit_bytes_max: int = 900_000
    calls_max: int = 2_048
    stimuli_max: int = 2_000


class TermGate(Protocol):
    """Whether this process may lead in the cell of the log, and which events have to come first."""

    def check(self, state: State) -> None:
        """Called before each term. Raises when this process may not lead."""
        ...

    def opening(self, state: State) -> tuple[Event, ...]:
        """The events before `leader.elected` in the commit that opens the term."""
        ...


class OpenTermGate:
    """Every process may lead, and no events have to come first."""

    def check(self, state: State) -> None:
        """Nothing to check."""

    def opening(self, state: State) -> tuple[Event, ...]:  # noqa: ARG002
        """No events."""
        return ()


class Driver:
    """
    Drives the machines of one producer, one term after the other.

    With `treatments` defects are contained; without, they are raised, so that tests and simulations find them.
    """

    # Large: the fields of the driver, one line each.
    def __init__(
        self,
        producer: Producer,
        state: State,
        make_machine: Callable[[State], Machine],
        *,
        bounds: DriverLimits = DriverLimits(),  # noqa: B008  (frozen)
        gate: TermGate | None = None,
        treatments: Treatments | None = None,
        sign: Sign | None = None,
        trace: Trace | None = None,
    ) -> None:
        self.producer = producer
        self.state = state
        self.phase = TermPhase.STANDBY
        self.epoch: Epoch | None = None
        """The epoch of the lease that this process holds; None while it holds none."""
        self.machine: Machine | None = None
        """Set while the phase is LEADING."""
        self.wake_at_ms: UnixMs | None = None
        """When the machine has to decide again at the latest."""
        self._make_machine = make_machine
        self._bounds = bounds
        self._gate: TermGate = gate if gate is not None else OpenTermGate()
        self._treatments = treatments if treatments is not None else fold.NO_TREATMENTS
        self._contains = treatments is not None
        self._appends = Appends(
            producer, bytes_max=bounds.commit_bytes_max, splits=producer not in ATOMIC, sign=sign, trace=trace
        )
        self._calls = Calls(bounds.calls_max)
        self._stimuli: deque[Stimulus] = deque()
        self._outputs: deque[Output] = deque()
        self._holder = ""
        self._deposed = ""
        """Why the term is over; "" while it is not."""
        self._dirty = False
        """Whether the machine got a stimulus since its last decision."""
        self._decided_ms = UnixMs(0)
        """The time of the last decision; the resulting commits are written with it."""
        self._to_quarantine: ObjectQuarantined | None = None
        self._failures: dict[str, int] = {}
        """Objects that the machine has failed over and that are not in quarantine yet, with the number of failures."""
        self._stopping = False

    # --- what the shell reports ------------------------------------------------------------------------------------

    def load(self, state: State) -> None:
        """Start from this state: the newest snapshot."""
        assert self.machine is None, "a machine keeps the state that it was made from"
        self.state = state

    def fold(self, logged: LoggedCommit) -> bool:
        """
        Fold a commit and pass it to the machine. False for an entry that the fold refuses.

        Raises EventFailedError after the machine was dropped; continue with `recovered`. Raises BrokenLogError.
        """
        try:
            if not fold.apply(self.state, logged, self._treatments):
                return False
        except EventFailedError:
            self._drop_machine("an event could not be folded")
            raise
        self.folded(logged)
        return True

    def recovered(self, state: State, logged: LoggedCommit) -> None:
        """The state after a commit over which `fold` failed, with the object of the failed event in quarantine."""
        self._drop_machine("an event could not be folded")
        self.state = state
        self.folded(logged)

    def folded(self, logged: LoggedCommit) -> None:
        """A commit is folded into the state. Only a shell that shares one state among its drivers calls this."""
        commit = logged.commit
        if commit.producer is self.producer:
            self._appends.folded(logged)
        if self.machine is None or self._deposed:
            return
        if commit.producer is self.producer and commit.epoch != self.epoch:
            self._deposed = f"epoch {commit.epoch} has begun at position {logged.seq}"
            return
        if any(type(event) in _REMAKES for event in commit.events):
            self._drop_machine("an object was set aside or released")
            return
        self._dirty = True
        self._decide(Committed(logged))

    def lead(self, epoch: Epoch, holder: str) -> None:
        """The lease was won. `advance` opens the term in the log."""
        self.epoch = epoch
        self._holder = holder
        self._deposed = ""

    def resume_term(self, epoch: Epoch) -> None:
        """Lead at once, for a log in which this is the only writer of its producer and no term has to be opened."""
        self.epoch = epoch
        self.phase = TermPhase.REMAKING

    def lose(self, why: str) -> None:
        """The lease is lost, or this process may no longer lead. The term ends after an append under way has ended."""
        self._deposed = self._deposed or why

    def appended(self, seq: Seq) -> None:
        """The broker stored the commit that was sent."""
        self._appends.appended(seq)

    def conflicted(self, actual_last: Seq) -> None:
        """The broker refused it: the subject ends at another entry. Raises LogRolledBackError."""
        self._appends.conflicted(actual_last)

    def timed_out(self) -> None:
        """The outcome is unknown: it is sent again."""
        self._outputs.append(self._appends.again())

    def receive(self, stimulus: Stimulus) -> None:
        """An outside event. Queued for `deliver`; ignored while there is no machine."""
        if self.machine is None:
            return
        self._stimuli.append(stimulus)
        if isinstance(stimulus, Completed):
            self._calls.end(stimulus.call_id)
            self._outputs.extend(self._calls.start())

    def call_failed(self, failed: ObjectFailedError) -> None:
        """A call cannot be made because of its object: a defect of the machine that requested it."""
        if self.machine is not None:
            self._set_aside(failed)

    def stop(self) -> None:
        """Take no further decision. `is_stopped` when the append under way has ended."""
        self._stopping = True

    # --- what the shell may query ----------------------------------------------------------------------------------

    @property
    def epoch_seen(self) -> Epoch:
        """The newest epoch of this producer in the log; a lease has to have a newer one."""
        record = self.state.producers.get(self.producer)
        return record.epoch if record is not None else Epoch(0)

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called and nothing is under way to the log."""
        return self._stopping and self._appends.is_idle

    @property
    def is_appending(self) -> bool:
        """Whether an append is under way."""
        return not self._appends.is_idle

    @property
    def is_deposed(self) -> bool:
        """Whether the term is over; `advance` steps down when no append is under way."""
        return bool(self._deposed)

    @property
    def is_at_election(self) -> bool:
        """
        Whether the commit that opens the term is the last one folded, and the machine is not made yet.

        Fold nothing more then: a machine made from exactly this state can be rebuilt by every reader of the log.
        """
        return self.phase is TermPhase.OPENING and self._appends.is_last_folded(self.state)

    @property
    def has_room(self) -> bool:
        """Whether the sources of stimuli may continue. A shell that ignores it only uses more memory."""
        return len(self._stimuli) < self._bounds.stimuli_max

    @property
    def stimuli_waiting(self) -> int:
        """Stimuli that were not passed to the machine yet."""
        return len(self._stimuli)

    @property
    def calls_unanswered(self) -> int:
        """Calls without an answer."""
        return self._calls.unanswered

    @property
    def is_full(self) -> bool:
        """Whether no decision is taken until calls are answered."""
        return self._calls.is_full

    @property
    def has_output(self) -> bool:
        """Whether `take` returns anything."""
        return bool(self._outputs)

    def take(self) -> list[Output]:
        """What is to be carried out now, in order."""
        outputs = list(self._outputs)
        self._outputs.clear()
        return outputs

    def is_due(self, now_ms: UnixMs) -> bool:
        """Whether the time of the machine's last `WakeAt` has come."""
        return self.wake_at_ms is not None and self._time(now_ms) >= self.wake_at_ms

    # --- one turn --------------------------------------------------------------------------------------------------

    def advance(self, now_ms: UnixMs) -> None:
        """
        End an append whose outcome is known; open, continue or end the term.

        Raises what must stop the process: what the gate raises, OwnCommitRefusedError, a defect that is not contained.
        """
        self._end_append()
        if self.epoch is None or self._stopping or not self._appends.is_idle:
            # The outcome of an append is awaited even when the lease is lost: the log shows whether the epoch is over.
            return
        if self.phase is not TermPhase.STANDBY and is_deposed(self.state, self.producer, self.epoch):
            self.lose("a newer epoch has begun")
        if self._deposed:
            self._step_down(self.epoch)
        elif self.phase is TermPhase.STANDBY:
            self._open_term(self.epoch, now_ms)
        elif self.machine is None:
            self._begin(self.epoch, now_ms)

    def deliver(self, count_max: int | None = None) -> int:
        """Pass the queued stimuli to the machine, in order; at most `count_max`. Returns how many."""
        delivered = 0
        while self._stimuli and self._may_work and (count_max is None or delivered < count_max):
            delivered += 1
            self._dirty = True
            self._decide(self._stimuli.popleft())
        return delivered

    def settle(self, now_ms: UnixMs) -> bool:
        """
        Let the machine decide if there is something new and a decision is allowed. Returns whether it decided.

        Where a part of a split append is left, that is sent instead.
        """
        if not self._may_work or self._stopping or not self._appends.is_idle:
            return False
        assert self.epoch is not None
        if self._appends.has_parts:
            self._outputs.append(self._appends.next_part(self.state, self.epoch, self._decided_ms))
            return False
        if self._calls.is_full or not (self._dirty or self.is_due(now_ms)):
            return False
        if self.is_due(now_ms):
            self.wake_at_ms = None
        self._dirty = False
        self._decided_ms = self._time(now_ms)
        self._decide(Settled(self._decided_ms))
        return True

    @property
    def _may_work(self) -> bool:
        return self.machine is not None and not self._deposed

    def _time(self, now_ms: UnixMs) -> UnixMs:
        """The clock, never before our last commit: a decision is written with its time."""
        return commit_ms(self.state, self.producer, now_ms)

    def _decide(self, stimulus: Stimulus) -> None:
        assert self.machine is not None
        try:
            commands = self.machine.decide(stimulus)
        except ObjectFailedError as failed:
            self._set_aside(failed)
        except Exception as error:
            # The machine handles the end of a call on behalf of the object of the call.
            call = self._calls.completed(stimulus.call_id) if isinstance(stimulus, Completed) else None
            subject = object_of(call) if call is not None else None
            if subject is None:
                raise
            self._set_aside(ObjectFailedError(subject.kind, subject.key, error))
        else:
            if isinstance(stimulus, Completed):
                self._calls.completed(stimulus.call_id)
            self._carry_out(commands)

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Append():
                    assert self.epoch is not None
                    self._outputs.append(self._appends.append(self.state, self.epoch, command, self._decided_ms))
                case Call() | AskExtender():
                    self._calls.add(command)
                    self._outputs.extend(self._calls.start())
                case WakeAt(at_ms=at_ms):
                    self.wake_at_ms = at_ms
                    self._outputs.append(command)
                case TakeSnapshot():
                    self._outputs.append(command)
                case _:
                    assert_never(command)

    # --- appends and terms -----------------------------------------------------------------------------------------

    def _end_append(self) -> None:
        try:
            ended = self._appends.end(self.state, resends=not (self._deposed or self._stopping))
        except OwnCommitRefusedError:
            self._gate.check(self.state)  # Its error may be more precise.
            raise
        match ended:
            case None:
                return
            case Send() | CommitStored():
                pass
            case CommitRefused(commit, expected_last, actual_last):
                refused = f"the log refused commit {commit.id}, which was fenced on {expected_last}"
                self._deposed = f"{refused}; {self._deposed or f'the subject ends at {actual_last}'}"
            case _:
                assert_never(ended)
        self._outputs.append(ended)

    def _open_term(self, epoch: Epoch, now_ms: UnixMs) -> None:
        self._gate.check(self.state)
        before = self._gate.opening(self.state)
        try:
            opening = self._appends.open_term(self.state, epoch, self._holder, now_ms, before)
        except ValueError as error:
            self.lose(str(error))
            self._step_down(epoch)
            return
        self.phase = TermPhase.OPENING
        self._outputs.append(opening)

    def _begin(self, epoch: Epoch, now_ms: UnixMs) -> None:
        """Make the machine. Quarantines and retries have to be in the log before."""
        self._appends.drop_parts()  # The rest of them is derived again as events.
        events = self._before_the_machine()
        if events:
            append = Append(events=events)
            self._outputs.append(self._appends.append(self.state, epoch, append, self._time(now_ms)))
            self.phase = TermPhase.REMAKING
            return
        try:
            self.machine = self._make_machine(self.state)
        except ObjectFailedError as failed:
            self._set_aside(failed)
            return
        self.phase = TermPhase.LEADING
        self._dirty = True
        self._outputs.append(MachineMade(epoch))

    def _step_down(self, epoch: Epoch) -> None:
        record = self.state.producers.get(self.producer)
        other = record.holder if record is not None and record.epoch > epoch else None
        self._drop_machine(self._deposed)
        self._outputs.append(SteppedDown(epoch, self._deposed, other))
        self.phase, self.epoch, self._deposed = TermPhase.STANDBY, None, ""

    # --- defects ---------------------------------------------------------------------------------------------------

    def _drop_machine(self, why: str) -> None:
        """Drop the machine with all that is under way for it. The term continues with another one."""
        self._appends.drop_parts()
        if self.machine is None:
            return
        self.machine = None
        self.wake_at_ms = None
        self._stimuli.clear()
        self._calls.clear()
        self.phase = TermPhase.REMAKING
        self._outputs.append(MachineDropped(why))

    def _set_aside(self, failed: ObjectFailedError) -> None:
        """
        Put the object into quarantine that the machine has failed over.

        Raises the failure when that has not helped, TooManyFailedError when too many show the same defect.
        """
        blamed = quarantine.to_blame(self.state, failed, self.producer)
        if not self._contains or blamed is None:
            raise failed
        in_vain = self._failures[blamed.name] = self._failures.get(blamed.name, 0) + 1
        if in_vain > FAILURES_MAX:
            raise failed
        Limit(self.state, self.producer.value).check(Failure(blamed, failed.error, failed.where))
        self._to_quarantine = quarantine.event_of(self.state, blamed, failed)
        self._drop_machine(f"it has failed over {blamed.kind} {blamed.key}")
        self._outputs.append(ObjectSetAside(failed, blamed.name))

    def _before_the_machine(self) -> tuple[Event, ...]:
        for name in [name for name in self._failures if name in self.state.quarantine]:
            # It is in quarantine. If it is released and fails again, counting restarts.
            del self._failures[name]
        aside, self._to_quarantine = self._to_quarantine, None
        if aside is not None:
            return (aside,)
        return quarantine.to_retry(self.state, self.producer)
