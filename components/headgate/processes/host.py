"""
The loop that runs a machine as a process.

It keeps what `headgate.core.machine` promises to machines: every commit is folded in order before the machine is told
of it; `Settled` is only sent when everything read is folded and no append of ours is on its way; a call is only made
after the commit it follows from is durable. It is the only place of a process where time is read and where it waits.

A process folds the log from its start to its end, whether it leads or not, so a standby takes over without a pause. It
leads while it holds its producer's lease: it opens a term by appending `leader.elected`, whose epoch is newer than any
in the log and whose append is fenced by the last sequence of the producer's subject. From then on a former leader's
append is refused by the broker. When ours is refused, or a newer term shows up in the log, or the lease is lost, the
term is over: the machine is dropped, and the process stands by again.

One task (`_loop`) owns state, machine and term. Others only put things where it finds them and ring the bell: the
reader of the log, the candidate for the lease, the append under way, the term's calls. In each turn it folds all that
has arrived before it decides once, so load makes batches larger and not queues longer; on a busy machine turns are kept
apart, for the same reason (`headgate.processes.pace`). Every buffer has its bound
(`LimitSettings`): a slow loop slows the log's reader, the feeder and the answers down, and nothing grows.

A defect costs its object, not the process. An event that cannot be folded is set aside as every reader does
(`headgate.core.containment`); over an object that the machine has failed over (`headgate.core.about`) an
`object.quarantined` is appended. In both cases, and when another process has appended one, the machine is dropped and
made anew from the state without the object; the term goes on. What names no object, or fails again over one that is set
aside, stops the process, as does damage to the log: `BrokenLogError`, `UnreadableCommitError`, `LogDamaged` and
`EventFailedError` leave `run`, and the entry tells the story.
"""

import asyncio
import gc
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from itertools import islice
from typing import Final, Protocol, assert_never

import anyio
import anyio.abc
import anyio.lowlevel
import msgspec

from headgate.adapters.lease import Leadership
from headgate.adapters.log import Appended, AppendOutcome, Blobs, Conflict, Entry, Log, LogTail, LogTruncated
from headgate.core import fold, quarantine
from headgate.core.about import ObjectFailedError
from headgate.core.appending import attested_anew, first_of_term, next_commit
from headgate.core.call_object import object_of
from headgate.core.machine import (
    Append,
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
from headgate.core.quarantine import EventFailedError, Failure
from headgate.core.quarantine_limit import Limit
from headgate.core.state import State
from headgate.core.timekeeping import commit_ms
from headgate.events.base import Producer
from headgate.events.commit import Commit, LoggedCommit, decode_entry, encode_commit
from headgate.events.effects import ObjectQuarantined, ObjectReleased
from headgate.events.ids import Epoch, Seq, UnixMs
from headgate.events.registry import Event
from headgate.events.signing import anchored
from headgate.processes import snapshots
from headgate.processes.clock import Clock, mono_ms, wall_ms
from headgate.processes.pace import Pace
from headgate.processes.past import refolding
from headgate.processes.settings import LimitSettings
from headgate.processes.status import Phase, Status
from headgate.processes.term import Carrier, Feeder, Term

_LOG: Final = logging.getLogger(__name__)

DEPOSED_PAUSE_S: Final = 1.0
"""How long a process that was deposed by another waits before it stands again: two of one name must not race."""

REST_BEHIND_MAX: Final = 100
"""How many commits behind the log's end a process may be to leave the socket alone in its pauses."""

BLAMED_MAX: Final = 3
"""How often the machine may fail over one object that does not come to stand in quarantine."""

_REMAKES: Final = frozenset({ObjectQuarantined, ObjectReleased})
"""Events after which a machine that was made before has another state than it knows of."""

FOLD_SLICE_NS: Final = 20_000_000
"""How long the loop folds before it lets others (the lease, /healthz) have a turn: 20 ms."""


class Candidate(Protocol):
    """What the host needs of a lease (`headgate.adapters.lease.Lease`)."""

    def hold(self, *, epoch_min: int = 0) -> AbstractAsyncContextManager[Leadership]:
        """Wait for the lease, and keep it until the block ends."""
        ...


class Gate(Protocol):
    """Whether this process belongs to the cell of the log (`headgate.processes.identity`)."""

    def waits_for(self, state: State) -> str:
        """What has to be in the log before it may stand for election; "" when nothing is missing."""
        ...

    async def prepare(self, state: State) -> None:
        """Asked each time before it stands for election. Raises what speaks against that."""
        ...

    def check(self, state: State) -> None:
        """Asked before each term, for the log may have changed since. Raises what speaks against it."""
        ...

    def opening(self, state: State) -> tuple[Event, ...]:
        """What has to stand in the log in front of the term that is about to be opened."""
        ...


class OwnCommitRefusedError(Exception):
    """Raised when the fold refuses what this process has appended itself: it oversteps what its key is good for."""


class OpenGate:
    """Everybody may stand, whatever the log says."""

    def waits_for(self, state: State) -> str:  # noqa: ARG002
        """Nothing."""
        return ""

    async def prepare(self, state: State) -> None:
        """Nothing to find out."""

    def check(self, state: State) -> None:
        """Nothing to object to."""

    def opening(self, state: State) -> tuple[Event, ...]:  # noqa: ARG002
        """Nothing to say."""
        return ()


class Observer(Protocol):
    """Told of everything that is folded after the start; for metrics, traces and the read side. Must not block."""

    def folded(self, state: State, logged: LoggedCommit, *, leading: bool) -> None:
        """A commit has been folded into the state."""
        ...

    def deciding(self, append: Append) -> str | None:
        """An append is about to be made; the traceparent of its span, if there is one."""
        ...

    def appended(self, commit: Commit, outcome: AppendOutcome) -> None:
        """That append has ended."""
        ...


class NoObserver:
    """Nobody watches."""

    def folded(self, state: State, logged: LoggedCommit, *, leading: bool) -> None:
        """Nothing."""

    def deciding(self, append: Append) -> str | None:  # noqa: ARG002
        """No span."""
        return None

    def appended(self, commit: Commit, outcome: AppendOutcome) -> None:
        """Nothing."""


class Outstanding:
    """An append on its way: over when the broker has answered and the commit, if it was stored, is folded."""

    def __init__(self, commit: Commit, payload: bytes, expected_last: Seq) -> None:
        self.commit = commit
        self.payload = payload
        self.expected_last = expected_last
        self.begun_ns = time.perf_counter_ns()
        self.outcome: AppendOutcome | None = None


class Host:
    """
    Runs one machine. `run` returns when `stop` was called and the append under way has ended.

    `make_machine` makes the machine from the folded state at the start of each term. `splits` says that an append too
    large for one message may be written as several commits, because its events do not have to be seen together.
    `gate` may keep it from standing for election; without one everybody may stand. `after_decision` is shown the
    machine after each `Settled`, to report what it could not use. Without a `pace` each turn begins as soon as there is
    something to do; the pauses that it sets are spent in `rest`, which need not take in what the log has meanwhile.
    `linger_s` is how much later than others it may read the log.
    """

    def __init__(
        self,
        *,
        producer: Producer,
        cell: str,
        make_machine: Callable[[State], Machine],
        log: Log,
        blobs: Blobs,
        lease: Candidate,
        carrier: Carrier,
        status: Status,
        feeder: Feeder | None = None,
        observer: Observer | None = None,
        pace: Pace | None = None,
        rest: Callable[[float], Awaitable[None]] = anyio.sleep,
        linger_s: float = 0.0,
        limits: LimitSettings = LimitSettings(),  # noqa: B008  (frozen)
        stimuli_max: int = 2_000,
        splits: bool = True,
        after_decision: Callable[[Machine], None] | None = None,
        gate: Gate | None = None,
        sign: Callable[[State, bytes], bytes] | None = None,
        trusts: snapshots.Trusts = lambda _: True,
        now_ms: Callable[[], int] = wall_ms,
        mono_ms: Callable[[], int] = mono_ms,
    ) -> None:
        self.state = fold.new_state(cell)
        self._producer = producer
        self._cell = cell
        self._make_machine = make_machine
        self._log = log
        self._blobs = blobs
        self._lease = lease
        self._carrier = carrier
        self._status = status
        self._feeder = feeder
        self._observer: Observer = observer if observer is not None else NoObserver()
        self._pace = pace
        self._rest = rest
        self._linger_s = linger_s
        self._limits = limits
        self._stimuli_max = stimuli_max
        self._splits = splits
        self._after_decision = after_decision
        self._sign = sign
        self._trusts = trusts
        self._gate: Gate = gate if gate is not None else OpenGate()
        self._clock = Clock(producer, status, wall=now_ms, mono=mono_ms)
        self._bell = asyncio.Event()
        self._inbox: deque[Entry] = deque()
        self._inbox_room = asyncio.Event()
        self._leadership: Leadership | None = None
        self._term_over = asyncio.Event()
        self._term: Term | None = None
        self._outstanding: Outstanding | None = None
        self._to_append: asyncio.Queue[Outstanding] = asyncio.Queue(maxsize=1)
        self._parts: deque[Append] = deque()
        self._decided_ms = UnixMs(0)
        """The time of the last decision, which is that of the commits that it leads to."""
        self._fold_to = Seq(0)
        self._deposed = ""
        self._deposed_by_other = False
        self._refolding = refolding(log, cell, blobs, trusts, limited=True)
        self._to_quarantine: ObjectQuarantined | None = None
        self._blamed: dict[str, int] = {}
        """Objects that the machine has failed over and that are not in quarantine yet, and how often."""
        self.is_whole = True
        """Whether the state may be read: not while the log is folded again past an event that failed."""
        self._stopping = False
        self._tasks: anyio.abc.TaskGroup | None = None

    # --- from outside ----------------------------------------------------------------------------------------------

    @property
    def is_leading(self) -> bool:
        """Whether a term of ours is open."""
        return self._term is not None

    def stop(self) -> None:
        """End soon: no further decision, the append under way is awaited, the lease given up."""
        self._stopping = True
        self._bell.set()

    async def run(self) -> None:
        """
        Fold the log, stand by, lead, until `stop`.

        Raises (possibly in an ExceptionGroup) what cannot be true of a sound log: see the module's docstring.
        """
        await self._log.verify()
        await self._clock.ask(self._log)
        self.state, meta = await snapshots.newest(self._log, self._blobs, self._cell, trusts=self._trusts)
        self._fold_to = Seq(await self._log.last_seq())
        self._status.counters.position = self.state.position
        self._note_refused()
        source = f"the snapshot of position {meta.position}" if meta is not None else "the beginning"
        _LOG.info("starting from %s; the log ends at %d", source, self._fold_to)
        async with self._tail() as tail, anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._read, tail)
            tasks.start_soon(self._append)
            tasks.start_soon(self._clock.watch, self._log, self._bell.set)
            self._bell.set()
            await self._loop(tasks)
            tasks.cancel_scope.cancel()

    def _tail(self) -> AbstractAsyncContextManager[LogTail]:
        return self._log.tail(self.state.position + 1, linger_s=self._linger_s)

    # --- other tasks -----------------------------------------------------------------------------------------------

    async def _read(self, tail: LogTail) -> None:
        """Move what the log has to the inbox, as far as there is room."""
        while True:
            entries = await tail.receive()
            self._inbox.extend(entries)
            self._status.log_end = tail.position + tail.lag
            self._status.counters.entries_waiting = len(self._inbox)
            self._bell.set()
            while len(self._inbox) >= self._limits.entries_max:
                self._inbox_room.clear()
                await self._inbox_room.wait()

    async def _stand_for_election(self) -> None:
        """Wait for the lease, hand it to the loop, and hold it until the loop says that the term is over."""
        while True:
            await self._gate.prepare(self.state)
            await self._clock.until_right()
            async with self._lease.hold(epoch_min=self._epoch_seen) as leadership:
                self._term_over.clear()
                self._leadership = leadership
                self._bell.set()
                await self._until_over(leadership)
            if self._deposed_by_other:
                self._deposed_by_other = False
                await anyio.sleep(DEPOSED_PAUSE_S)

    async def _until_over(self, leadership: Leadership) -> None:
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                await leadership.lost.wait()
                self._bell.set()

            tasks.start_soon(watch)
            await self._term_over.wait()
            tasks.cancel_scope.cancel()

    async def _append(self) -> None:
        """One append after the other; each ends in the truth, however long the broker is away."""
        while True:
            outstanding = await self._to_append.get()
            outstanding.outcome = await self._log.append(
                self._producer.value,
                outstanding.payload,
                expected_last=outstanding.expected_last,
                commit_id=outstanding.commit.id,
            )
            self._status.counters.append_ns += time.perf_counter_ns() - outstanding.begun_ns
            self._observer.appended(outstanding.commit, outstanding.outcome)
            self._bell.set()

    # --- the loop --------------------------------------------------------------------------------------------------

    async def _loop(self, tasks: anyio.abc.TaskGroup) -> None:
        while True:
            await self._bell.wait()
            if self._pace is not None and (pause_s := self._pace.pause_s()):
                # Who is far behind wants the log to come in meanwhile.
                behind = self._status.log_end - self.state.position
                await (self._rest if behind <= REST_BEHIND_MAX else anyio.sleep)(pause_s)
            self._bell.clear()
            await self._fold_inbox()
            if self._status.phase is Phase.STARTING and self.state.position >= self._fold_to and not self._stopping:
                self._status.detail = self._gate.waits_for(self.state)
                if not self._status.detail:
                    self._stand_by()
                    tasks.start_soon(self._stand_for_election)
            self._look_at_append()
            if self._stopping and self._outstanding is None:
                self._end_term()
                self._status.phase = Phase.STOPPING
                return
            await self._look_at_lease()
            if self._term is not None and not self._deposed:
                self._tell_heard(self._term)
            if self._term is not None and not self._deposed:
                self._settle(self._term)

    async def _fold_inbox(self) -> None:
        """Fold what had arrived when this began. What comes meanwhile is for the next turn, or none would end."""
        count = len(self._inbox)
        if not count:
            return
        begun_ns = slice_ns = time.perf_counter_ns()
        entries = anchored(
            [decode_entry(each.seq, each.subject, each.payload, each.time_ms) for each in islice(self._inbox, count)]
        )
        for logged in entries:
            if self._makes_machine_here():
                break
            self._inbox.popleft()
            await self._fold(logged)
            if time.perf_counter_ns() - slice_ns > FOLD_SLICE_NS:
                self._note_progress()
                await anyio.lowlevel.checkpoint()
                slice_ns = time.perf_counter_ns()
        self._status.counters.fold_ns += time.perf_counter_ns() - begun_ns
        self._note_progress()
        self._inbox_room.set()
        if self._inbox and not self._makes_machine_here():
            self._bell.set()

    def _makes_machine_here(self) -> bool:
        """
        Whether our election is what was folded last, and its append has not ended yet.

        The machine is made from just this state, so that whoever reads the log can make the same.
        """
        elected, record = self._outstanding, self.state.producers.get(self._producer)
        if self._status.phase is not Phase.OPENING or elected is None or record is None:
            return False
        return record.last_seq == self.state.position and record.number == elected.commit.number

    def _note_progress(self) -> None:
        counters = self._status.counters
        self._note_refused()
        counters.position = self.state.position
        counters.entries_waiting = len(self._inbox)
        if self._status.phase is Phase.STARTING:
            self._status.detail = f"folding the log: {self.state.position} of {self._fold_to}"

    def _note_refused(self) -> None:
        refused, counters = self.state.refused, self._status.counters
        if refused is None or refused.count == counters.entries_refused:
            return
        counters.entries_refused = refused.count
        newest = refused.newest[-1]
        text = (
            f"{refused.count} entries of the log are not of it and are refused; the newest stands at position "
            f"{newest.position} on {newest.subject}: {newest.why}. Find out who can publish there besides the six "
            f"processes (`headgate audit` lists them)"
        )
        self._status.notice("refused", text)
        if self._status.phase is not Phase.STARTING:
            _LOG.warning("%s", text, extra={"position": newest.position})

    async def _fold(self, logged: LoggedCommit) -> None:
        try:
            if not fold.apply(self.state, logged, self._refolding.treatments):
                return
        except EventFailedError as failed:
            await self._come_past(failed)
        commit = logged.commit
        counters = self._status.counters
        counters.commits_folded += 1
        counters.events_folded += len(commit.events)
        term = self._term
        if self._status.phase is not Phase.STARTING:
            if self._status.log_end - logged.seq <= REST_BEHIND_MAX:
                self._clock.hear(logged)
            self._observer.folded(self.state, logged, leading=term is not None)
        if term is None or self._deposed:
            return
        if commit.producer is self._producer and commit.epoch != term.epoch:
            self._deposed = f"epoch {commit.epoch} has begun at position {logged.seq}"
            return
        if any(type(event) in _REMAKES for event in commit.events):
            self._remake("an object was set aside or released")
            return
        term.dirty = True
        self._decide(term, Committed(logged))

    async def _come_past(self, failed: EventFailedError) -> None:
        """Fold the log again up to here without what failed. The machine goes with the state that it read."""
        _LOG.error("%s. It is set aside; see `headgate quarantine`", failed, exc_info=failed.__cause__)
        self._remake("an event could not be folded")
        self.is_whole = False
        self.state = await self._refolding.recover(failed)
        self.is_whole = True

    def _look_at_append(self) -> None:
        """Whether the append under way is over, and how."""
        outstanding = self._outstanding
        if outstanding is None or outstanding.outcome is None:
            return
        match outstanding.outcome:
            case Appended(seq=seq):
                if self.state.position < seq:
                    return
                self._stop_if_refused(outstanding)
                self._outstanding = None
                self._status.counters.commits_appended += 1
                self._status.counters.events_appended += len(outstanding.commit.events)
            case Conflict(actual_last=actual_last):
                if actual_last < outstanding.expected_last:
                    subject = self._log.subject(self._producer.value)
                    detail = f"the last entry on {subject} is {actual_last}"
                    raise LogTruncated(self._log.name, read_up_to=outstanding.expected_last, detail=detail)
                if self.state.position < actual_last:
                    return
                self._outstanding = None
                self._status.counters.appends_refused += 1
                if self._append_behind(outstanding):
                    return
                self._fold_to = Seq(max(self._fold_to, actual_last))
                refused = (
                    f"the log refused commit {outstanding.commit.id}, which was fenced on {outstanding.expected_last}"
                )
                self._deposed = f"{refused}; {self._deposed or f'the subject ends at {actual_last}'}"
            case _:
                assert_never(outstanding.outcome)

    def _stop_if_refused(self, outstanding: Outstanding) -> None:
        """Nothing of ours may be refused: whoever goes on would append the same again and again."""
        record, refused = self.state.producers.get(self._producer), self.state.refused
        if record is not None and record.number >= outstanding.commit.number:
            return
        self._gate.check(self.state)
        why = refused.newest[-1].why if refused is not None else "it is not in the state"
        raise OwnCommitRefusedError(f"our commit {outstanding.commit.id} was appended and refused: {why}")

    def _append_behind(self, outstanding: Outstanding) -> bool:
        """
        Append again behind entries on our subject that the fold has refused; whether that is what stood in the way.

        They are nobody's decisions, so ours holds: only its fence and its attestation are of an earlier position.
        """
        leadership, record = self._leadership, self.state.producers.get(self._producer)
        if leadership is None or leadership.lost.is_set() or self._stopping or record is None:
            return False
        if record.last_seq <= outstanding.expected_last or record.number != outstanding.commit.number - 1:
            return False
        commit = attested_anew(self.state, outstanding.commit)
        self._send(commit, self._encoded(commit), record.last_seq)
        return True

    # --- terms -----------------------------------------------------------------------------------------------------

    @property
    def _epoch_seen(self) -> Epoch:
        record = self.state.producers.get(self._producer)
        return record.epoch if record is not None else Epoch(0)

    def _stand_by(self) -> None:
        # What is loaded and indexed by now stays for long. Out of the cyclic collector's sight it costs its full
        # collections nothing; records are invisible to it anyway.
        gc.freeze()
        self._status.phase = Phase.STANDBY
        self._status.detail = "waiting for the lease"
        _LOG.info("folded up to position %d; standing by", self.state.position, extra={"position": self.state.position})

    async def _look_at_lease(self) -> None:
        leadership = self._leadership
        if leadership is None or self._outstanding is not None or self._stopping:
            # While an append is on its way its outcome is awaited first, also when the lease is lost: it is the log
            # that says whether the epoch is over.
            return
        if leadership.lost.is_set():
            self._deposed = self._deposed or leadership.why_lost
        verdict = self._clock.look()
        if verdict.own_is_off:
            self._deposed = self._deposed or verdict.text
        if self._deposed:
            self._step_down(leadership)
        elif self._term is None:
            await self._open_term(leadership)

    async def _open_term(self, leadership: Leadership) -> None:
        """Append `leader.elected`; when it is folded, make the machine."""
        epoch = Epoch(leadership.epoch)
        if self._status.phase is Phase.OPENING and self._epoch_seen == epoch:
            await self._begin(epoch)
            await self._fold_inbox()
            return
        if self.state.position < self._fold_to:
            return
        self._gate.check(self.state)
        self._status.phase = Phase.OPENING
        self._status.detail = f"opening epoch {epoch}"
        try:
            commit, expected_last = first_of_term(
                self.state,
                self._producer,
                epoch,
                leadership.holder,
                self._clock.now_ms(),
                before=self._gate.opening(self.state),
            )
        except ValueError as error:
            self._deposed = str(error)
            self._step_down(leadership)
            return
        self._send(commit, self._encoded(commit), expected_last)

    async def _begin(self, epoch: Epoch) -> None:
        assert self._tasks is not None
        events = self._before_the_machine()
        if events:
            commit, expected_last = next_commit(
                self.state, self._producer, epoch, Append(events=events), self._now_ms()
            )
            self._send(commit, self._encoded(commit), expected_last)
            return
        begun_ns = time.perf_counter_ns()
        try:
            machine = self._make_machine(self.state)
        except ObjectFailedError as failed:
            self._quarantine(failed)
            return
        term = Term(
            epoch,
            machine,
            carrier=self._carrier,
            feeder=self._feeder,
            counters=self._status.counters,
            ring=self._bell.set,
            now_ms=self._clock.now_ms,
            calls_max=self._limits.calls_max,
            stimuli_max=self._stimuli_max,
        )
        await self._tasks.start(term.run)
        self._term = term
        self._status.phase = Phase.LEADING
        self._status.detail = ""
        self._status.counters.terms += 1
        self._status.counters.epoch = epoch
        took_ms = (time.perf_counter_ns() - begun_ns) // 1_000_000
        _LOG.info(
            "leading: epoch %d begins at position %d (machine made in %d ms)",
            epoch,
            self.state.position,
            took_ms,
            extra={"epoch": epoch, "position": self.state.position},
        )

    def _step_down(self, leadership: Leadership) -> None:
        _LOG.warning(
            "our epoch %d is over: %s; standing by",
            leadership.epoch,
            self._deposed,
            extra={"epoch": leadership.epoch, "position": self.state.position},
        )
        record = self.state.producers.get(self._producer)
        if record is not None and record.epoch > leadership.epoch:
            self._deposed_by_other = True
            if record.holder == leadership.holder:
                _LOG.warning(
                    "another process leads under our name %s: give each a holder of its own", leadership.holder
                )
        self._end_term()
        self._deposed = ""
        self._leadership = None
        self._status.phase = Phase.STANDBY
        self._status.detail = "waiting for the lease"
        self._term_over.set()
        # What came behind an election that was refused waits in the inbox.
        self._bell.set()

    def _end_term(self) -> None:
        self._parts.clear()
        if self._term is not None:
            self._term.end()
            self._term = None
            self._status.counters.epoch = 0

    def _remake(self, why: str) -> None:
        """Drop the machine. The term goes on with one that is made from the state as it will be."""
        if self._term is None:
            return
        _LOG.info("the machine is made anew: %s", why, extra={"position": self.state.position})
        self._end_term()
        self._status.phase = Phase.OPENING
        self._status.detail = why
        self._bell.set()

    def _quarantine(self, failed: ObjectFailedError) -> None:
        """
        Set the object aside that the machine has failed over.

        Raises the failure when that has not helped, TooManyFailedError when too many show the same defect.
        """
        blamed = quarantine.to_blame(self.state, failed, self._producer)
        if blamed is None:
            raise failed
        in_vain = self._blamed[blamed.name] = self._blamed.get(blamed.name, 0) + 1
        if in_vain > BLAMED_MAX:
            raise failed
        Limit(self.state, self._producer.value).check(Failure(blamed, failed.error, failed.where))
        _LOG.error("%s. %s is set aside; see `headgate quarantine`", failed, blamed.name, exc_info=failed.__cause__)
        self._to_quarantine = quarantine.event_of(self.state, blamed, failed)
        self._remake(f"it has failed over {blamed.kind} {blamed.key}")
        self._bell.set()

    def _before_the_machine(self) -> tuple[Event, ...]:
        """What has to be in the log before a machine is made: who is set aside, and who is tried again."""
        for name in [name for name in self._blamed if name in self.state.quarantine]:
            # It is set aside. Should it come back and fail again, that is another story.
            del self._blamed[name]
        aside, self._to_quarantine = self._to_quarantine, None
        if aside is not None:
            return (aside,)
        return quarantine.to_retry(self.state, self._producer)

    # --- deciding --------------------------------------------------------------------------------------------------

    def _decide(self, term: Term, stimulus: Stimulus) -> None:
        """Tell the machine, and carry out what it wants."""
        try:
            commands = term.machine.decide(stimulus)
        except ObjectFailedError as failed:
            self._quarantine(failed)
        except Exception as error:
            # What a machine is told of the end of a call is about the object that the call was about.
            call = term.ended(stimulus.call_id) if isinstance(stimulus, Completed) else None
            subject = object_of(call) if call is not None else None
            if subject is None:
                raise
            self._quarantine(ObjectFailedError(subject.kind, subject.key, error))
        else:
            if isinstance(stimulus, Completed):
                term.ended(stimulus.call_id)
            self._carry_out(term, commands)

    def _now_ms(self) -> UnixMs:
        """The clock, never before our last commit: what is decided with it is written with it."""
        return commit_ms(self.state, self._producer, self._clock.now_ms())

    def _tell_heard(self, term: Term) -> None:
        if term.failed is not None:
            self._quarantine(term.failed)
            return
        for stimulus in term.take_heard():
            if self._term is not term:
                return
            self._status.counters.stimuli += 1
            term.dirty = True
            self._decide(term, stimulus)

    def _settle(self, term: Term) -> None:
        """Send `Settled` if there is something new and nothing of ours is on its way."""
        if self._outstanding is not None or self._stopping:
            return
        if self._parts:
            self._append_events(self._parts.popleft())
            return
        if term.is_full:
            self._status.detail = (
                f"no decision until some of {term.calls_unfinished} calls to the API server are answered"
            )
            return
        self._status.detail = ""
        now_ms = self._now_ms()
        due = term.is_due(now_ms)
        if not (term.dirty or due):
            return
        term.dirty = False
        begun_ns = time.perf_counter_ns()
        self._decided_ms = now_ms
        self._decide(term, Settled(now_ms))
        self._status.counters.decide_ns += time.perf_counter_ns() - begun_ns
        self._status.counters.decisions += 1
        if self._after_decision is not None and self._term is term:
            self._after_decision(term.machine)

    def _carry_out(self, term: Term, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Append():
                    self._note_action()
                    assert self._outstanding is None, "an append is only asked for by Settled"
                    self._append_events(command)
                case Call():
                    self._note_action()
                    term.call(command)
                case WakeAt(at_ms=at_ms):
                    term.wake_at(at_ms)
                case TakeSnapshot():
                    term.snapshot(command)
                case _:
                    assert_never(command)

    def _note_action(self) -> None:
        if self._pace is not None:
            self._pace.acted()

    def _append_events(self, append: Append) -> None:
        """Send an append; one that is too large for a message goes in halves, each when the one before is folded."""
        term = self._term
        assert term is not None
        trace = self._observer.deciding(append)
        while True:
            commit, expected_last = next_commit(self.state, self._producer, term.epoch, append, self._decided_ms, trace)
            payload = self._encoded(commit)
            count = len(append.events)
            if len(payload) <= self._limits.commit_bytes_max or not self._splits or count < 2:
                break
            self._parts.appendleft(msgspec.structs.replace(append, events=append.events[count // 2 :]))
            append = msgspec.structs.replace(append, events=append.events[: count // 2])
        self._send(commit, payload, expected_last)

    def _encoded(self, commit: Commit) -> bytes:
        payload = encode_commit(commit)
        return payload if self._sign is None else self._sign(self.state, payload)

    def _send(self, commit: Commit, payload: bytes, expected_last: Seq) -> None:
        # By a task that is there already: making one for each commit costs as much as the sending.
        self._outstanding = Outstanding(commit, payload, expected_last)
        self._to_append.put_nowait(self._outstanding)
