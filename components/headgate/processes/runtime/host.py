"""
The loop that runs a machine as a process: the I/O around `headgate.core.engine.driver`.

The driver folds, decides when the machine decides, opens and ends terms and contains defects. The host passes it
external inputs and executes its outputs. Time is read, and waiting happens, only here.

A process folds the log from its start to its end, whether it leads or not, so a standby takes over without a pause. It
leads while it holds its producer's lease.

One task (`_loop`) owns the driver. Other tasks only queue inputs for it and set the bell: the reader of the log, the
candidate for the lease, the append under way, the calls and the feeder (`headgate.processes.runtime.leadership`). In
each turn the loop folds all that has arrived before the machine decides once, so load makes batches larger and not
queues longer; on a busy machine turns are spaced out, for the same reason (`headgate.processes.runtime.pacing`). Every
buffer is bounded (`LimitSettings`): a slow loop slows the log's reader, the feeder and the calls down, and nothing
grows.

A turn:

    fold the inbox ─▶ outcome of the append ─▶ lease and clock ─▶ driver.advance ─▶ driver.deliver ─▶ driver.settle
                                                                     (after each: execute the driver's outputs)

Damage to the log and defects that affect more than one object leave `run` as exceptions, and the entry explains them:
`BrokenLogError`, `UnreadableCommitError`, `LogDamaged`, `EventFailedError`, `ObjectFailedError`.
"""
# Over 400 lines: one loop and the tasks around it, which hand over to each other through the same fields.

import asyncio
import gc
import logging
import time
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from itertools import islice
from typing import Final, assert_never

import anyio
import anyio.abc
import anyio.lowlevel

from headgate.adapters.lease import Leadership
from headgate.adapters.log import Appended, AppendOutcome, Conflict, LogEntry, LogTail, LogTruncated
from headgate.core import fold
from headgate.core.engine.appends import LogRolledBackError
from headgate.core.engine.driver import Driver, DriverLimits, TermPhase
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
from headgate.core.fold.quarantine import EventFailedError
from headgate.core.machine.contract import AskExtender, Call, TakeSnapshot, WakeAt
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, decode_entry
from headgate.events.ids import Epoch, Seq
from headgate.events.signing import anchored
from headgate.processes.runtime.clock import ProcessClock
from headgate.processes.runtime.host_parts import (
    CellMembership,
    NoObserver,
    Observer,
    OpenGate,
    Parts,
    Stores,
    Trust,
    TurnTiming,
)
from headgate.processes.runtime.leadership import LeadershipTerm
from headgate.processes.runtime.process_status import Phase, Status
from headgate.processes.runtime.settings import LimitSettings
from headgate.processes.snapshots import store
from headgate.processes.snapshots.point_in_time import refolding

_LOG: Final = logging.getLogger(__name__)

DEPOSED_PAUSE_S: Final = 1.0
"""How long a deposed process waits before its next candidacy: two processes of one name must not race."""

REST_BEHIND_MAX: Final = 100
"""The maximum lag behind the log's end at which a process leaves the socket unread in its pauses."""

FOLD_SLICE_NS: Final = 20_000_000
"""How long the loop folds before it yields to other tasks (the lease, /healthz): 20 ms."""

_PHASES: Final[Mapping[TermPhase, Phase]] = {
    TermPhase.STANDBY: Phase.STANDBY,
    TermPhase.OPENING: Phase.OPENING,
    TermPhase.REMAKING: Phase.OPENING,
    TermPhase.LEADING: Phase.LEADING,
}


class Host:
    """
    Runs one machine. `run` returns when `stop` was called and the append under way has ended.

    `gate` may keep it from becoming a candidate; without one every process may.
    """

    # Large: the fields of the host, one line each.
    def __init__(
        self,
        producer: Producer,
        parts: Parts,
        stores: Stores,
        status: Status,
        *,
        observer: Observer | None = None,
        gate: CellMembership | None = None,
        trust: Trust = Trust(),  # noqa: B008  (frozen)
        rhythm: TurnTiming = TurnTiming(),  # noqa: B008  (frozen)
        limits: LimitSettings = LimitSettings(),  # noqa: B008  (frozen)
        clock: ProcessClock | None = None,
    ) -> None:
        self._producer = producer
        self._parts = parts
        self._log = stores.log
        self._blobs = stores.blobs
        self._lease = stores.lease
        self._status = status
        self._observer: Observer = observer if observer is not None else NoObserver()
        self._gate: CellMembership = gate if gate is not None else OpenGate()
        self._trusts = trust.vouches
        self._rhythm = rhythm
        self._entries_max = limits.entries_max
        self._clock = clock if clock is not None else ProcessClock(producer, status)
        self._refolding = refolding(self._log, status.cell, self._blobs, self._trusts, limited=True)
        self._driver = Driver(
            producer,
            fold.new_state(status.cell),
            parts.machine,
            bounds=DriverLimits(
                commit_bytes_max=limits.commit_bytes_max, calls_max=limits.calls_max, stimuli_max=parts.stimuli_max
            ),
            gate=self._gate,
            treatments=self._refolding.treatments,
            sign=trust.sign,
            trace=self._observer.deciding,
        )
        self._bell = asyncio.Event()
        self._inbox: deque[LogEntry] = deque()
        self._inbox_room = asyncio.Event()
        self._leadership: Leadership | None = None
        self._term_over = asyncio.Event()
        self._term: LeadershipTerm | None = None
        self._to_append: asyncio.Queue[Send] = asyncio.Queue(maxsize=1)
        self._outcome: AppendOutcome | None = None
        self._fold_to = Seq(0)
        """The end of the log when the process began: the process becomes a candidate when it has folded that far."""
        self._deposed_by_other = False
        self._why_remade = ""
        self.is_whole = True
        """Whether the state may be read: not while the log is folded again past an event that failed."""
        self._tasks: anyio.abc.TaskGroup | None = None

    # --- public interface ------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The folded state."""
        return self._driver.state

    @property
    def is_leading(self) -> bool:
        """Whether a term of this process is open."""
        return self._driver.machine is not None

    def stop(self) -> None:
        """End soon: no further decision, the append under way is awaited, the lease is released."""
        self._driver.stop()
        self._bell.set()

    async def run(self) -> None:
        """
        Fold the log, stand by, lead, until `stop`.

        Raises (possibly in an ExceptionGroup) what cannot be true of a sound log: see the module's docstring.
        """
        await self._log.verify()
        await self._clock.ask(self._log)
        state, meta = await store.newest(self._log, self._blobs, self._status.cell, trusts=self._trusts)
        self._driver.load(state)
        self._fold_to = Seq(await self._log.last_seq())
        self._status.counters.position = state.position
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
        return self._log.tail(self.state.position + 1, linger_s=self._rhythm.linger_s)

    # --- other tasks -----------------------------------------------------------------------------------------------

    async def _read(self, tail: LogTail) -> None:
        """Move entries of the log to the inbox, as far as there is room."""
        while True:
            entries = await tail.receive()
            self._inbox.extend(entries)
            self._status.log_end = tail.position + tail.lag
            self._status.counters.entries_waiting = len(self._inbox)
            self._bell.set()
            while len(self._inbox) >= self._entries_max:
                self._inbox_room.clear()
                await self._inbox_room.wait()

    async def _stand_for_election(self) -> None:
        """Wait for the lease, pass it to the loop, and hold it until the loop ends the term."""
        while True:
            await self._gate.prepare(self.state)
            await self._clock.until_right()
            async with self._lease.hold(epoch_min=self._driver.epoch_seen) as leadership:
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
        """One append after the other; each ends with its true outcome, however long the broker is away."""
        while True:
            send = await self._to_append.get()
            begun_ns = time.perf_counter_ns()
            outcome = await self._log.append(
                self._producer.value,
                send.payload,
                expected_last=send.expected_last,
                commit_id=send.commit.id,
            )
            self._status.counters.append_ns += time.perf_counter_ns() - begun_ns
            self._observer.appended(send.commit, outcome)
            self._outcome = outcome
            self._bell.set()

    # --- the loop --------------------------------------------------------------------------------------------------

    async def _loop(self, tasks: anyio.abc.TaskGroup) -> None:
        while True:
            await self._bell.wait()
            await self._pause()
            self._bell.clear()
            await self._fold_inbox()
            self._stand_by_if_folded(tasks)
            self._report_outcome()
            self._report_lease()
            await self._advance()
            if self._driver.is_stopped:
                self._end_term()
                self._status.phase = Phase.STOPPING
                return
            await self._tell()
            await self._settle()
            self._show()

    async def _pause(self) -> None:
        pace, rest = self._rhythm.pace, self._rhythm.rest
        if pace is not None and (pause_s := pace.pause_s(hurried=self._parts.hurries(self.state))):
            # A process that is far behind has to receive entries meanwhile.
            behind = self._status.log_end - self.state.position
            await (rest if behind <= REST_BEHIND_MAX else anyio.sleep)(pause_s)

    def _stand_by_if_folded(self, tasks: anyio.abc.TaskGroup) -> None:
        """A process has started when it has folded the log up to its end at the start: then it becomes a candidate."""
        if self._status.phase is not Phase.STARTING or self.state.position < self._fold_to or self._driver.is_stopped:
            return
        self._status.detail = self._gate.waits_for(self.state)
        if self._status.detail:
            return
        # Loaded and indexed objects are long-lived. Frozen, they cost nothing in the cyclic collector's full
        # collections; records are not tracked by it anyway.
        gc.freeze()
        self._status.phase = Phase.STANDBY
        _LOG.info("folded up to position %d; on standby", self.state.position, extra={"position": self.state.position})
        tasks.start_soon(self._stand_for_election)

    def _report_outcome(self) -> None:
        outcome, self._outcome = self._outcome, None
        match outcome:
            case None:
                pass
            case Appended(seq=seq):
                self._driver.appended(Seq(seq))
            case Conflict(actual_last=actual_last):
                try:
                    self._driver.conflicted(Seq(actual_last))
                except LogRolledBackError as error:
                    detail = f"the last entry on {self._log.subject(self._producer.value)} is {actual_last}"
                    raise LogTruncated(self._log.name, read_up_to=error.expected_last, detail=detail) from error
                self._status.counters.appends_refused += 1
            case _:
                assert_never(outcome)

    def _report_lease(self) -> None:
        leadership = self._leadership
        if leadership is None:
            return
        if self._driver.epoch is None:
            self._driver.lead(Epoch(leadership.epoch), leadership.holder)
        if leadership.lost.is_set():
            self._driver.lose(leadership.why_lost)
        verdict = self._clock.look()
        if verdict.own_is_off:
            self._driver.lose(verdict.text)

    async def _advance(self) -> None:
        begun_ns = time.perf_counter_ns()
        self._driver.advance(self._clock.now_ms())
        took_ms = (time.perf_counter_ns() - begun_ns) // 1_000_000
        outputs = self._driver.take()
        await self._carry_out(outputs)
        if any(isinstance(output, MachineMade) for output in outputs):
            _LOG.info(
                "leading: epoch %d begins at position %d (machine made in %d ms)",
                self._driver.epoch,
                self.state.position,
                took_ms,
                extra={"epoch": self._driver.epoch, "position": self.state.position},
            )
            await self._fold_inbox()

    async def _tell(self) -> None:
        if self._term is not None and self._term.failed is not None:
            self._driver.call_failed(self._term.failed)
        self._status.counters.stimuli += self._driver.deliver()
        if self._term is not None:
            self._term.make_room()
        await self._carry_out(self._driver.take())

    async def _settle(self) -> None:
        begun_ns = time.perf_counter_ns()
        if self._driver.settle(self._clock.now_ms()):
            self._status.counters.decide_ns += time.perf_counter_ns() - begun_ns
            self._status.counters.decisions += 1
            machine = self._driver.machine
            if machine is not None and self._parts.after_decision is not None:
                self._parts.after_decision(machine)
        await self._carry_out(self._driver.take())

    # --- folding ---------------------------------------------------------------------------------------------------

    async def _fold_inbox(self) -> None:
        """Fold what has arrived by now. Later entries are for the next turn, or a turn might never end."""
        count = len(self._inbox)
        if not count:
            return
        begun_ns = slice_ns = time.perf_counter_ns()
        entries = anchored(
            [decode_entry(each.seq, each.subject, each.payload, each.time_ms) for each in islice(self._inbox, count)]
        )
        for logged in entries:
            if self._driver.is_at_election:
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
        if self._inbox and not self._driver.is_at_election:
            self._bell.set()

    async def _fold(self, logged: LoggedCommit) -> None:
        leading = self.is_leading
        try:
            if not self._driver.fold(logged):
                return
        except EventFailedError as failed:
            await self._recover(failed, logged)
        counters = self._status.counters
        counters.commits_folded += 1
        counters.events_folded += len(logged.commit.events)
        if self._status.phase is not Phase.STARTING:
            if self._status.log_end - logged.seq <= REST_BEHIND_MAX:
                self._clock.observe(logged)
            self._observer.folded(self.state, logged, leading=leading)
        if self._driver.has_output:
            await self._carry_out(self._driver.take())

    async def _recover(self, failed: EventFailedError, logged: LoggedCommit) -> None:
        """Fold the log again up to here without the failed event. The machine is dropped with its state."""
        _LOG.error("%s. It is in quarantine; see `headgate quarantine`", failed, exc_info=failed.__cause__)
        await self._carry_out(self._driver.take())
        self.is_whole = False
        state = await self._refolding.recover(failed)
        self._driver.recovered(state, logged)
        self.is_whole = True

    # --- outputs of the driver -------------------------------------------------------------------------------------

    # Large: one case for each kind of output of the driver.
    async def _carry_out(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Send():
                    self._note_action()
                    # By an existing task: creating one for each commit costs as much as the sending.
                    self._to_append.put_nowait(output)
                case Call() | AskExtender():
                    self._note_action()
                    self._running.call(output)
                case WakeAt(at_ms=at_ms):
                    self._running.wake_at(at_ms)
                case TakeSnapshot():
                    self._running.snapshot(output)
                case CommitStored(commit):
                    self._status.counters.commits_appended += 1
                    self._status.counters.events_appended += len(commit.events)
                case CommitRefused():
                    pass
                case MachineMade(epoch):
                    await self._start_term(epoch)
                case MachineDropped(why):
                    self._why_remade = why
                    self._end_term()
                    self._bell.set()
                case ObjectSetAside(failed, name):
                    cause = failed.__cause__
                    _LOG.error("%s. %s is in quarantine; see `headgate quarantine`", failed, name, exc_info=cause)
                    self._bell.set()
                case SteppedDown():
                    self._step_down(output)
                case _:
                    assert_never(output)

    @property
    def _running(self) -> LeadershipTerm:
        assert self._term is not None, "calls and timers belong to a machine"
        return self._term

    def _note_action(self) -> None:
        if self._rhythm.pace is not None:
            self._rhythm.pace.acted()

    async def _start_term(self, epoch: Epoch) -> None:
        assert self._tasks is not None
        self._term = LeadershipTerm(
            self.state,
            carrier=self._parts.carrier,
            feeder=self._parts.feeder,
            counters=self._status.counters,
            receive=self._driver.receive,
            has_room=lambda: self._driver.has_room,
            ring=self._bell.set,
            now_ms=self._clock.now_ms,
        )
        await self._tasks.start(self._term.run)
        self._status.counters.terms += 1
        self._status.counters.epoch = epoch

    def _end_term(self) -> None:
        if self._term is not None:
            self._term.end()
            self._term = None
            self._status.counters.epoch = 0

    def _step_down(self, over: SteppedDown) -> None:
        extra = {"epoch": over.epoch, "position": self.state.position}
        _LOG.warning("our epoch %d is over: %s; on standby", over.epoch, over.why, extra=extra)
        leadership, self._leadership = self._leadership, None
        self._deposed_by_other = over.other_holder is not None
        if leadership is not None and over.other_holder == leadership.holder:
            _LOG.warning("another process leads under our name %s: give each a holder of its own", leadership.holder)
        self._term_over.set()
        # Entries that arrived after a refused election wait in the inbox.
        self._bell.set()

    # --- the status ------------------------------------------------------------------------------------------------

    def _show(self) -> None:
        """Update the status with the process's phase."""
        driver, status = self._driver, self._status
        status.counters.calls_unfinished = driver.calls_unanswered
        status.counters.stimuli_waiting = driver.stimuli_waiting
        if status.phase is Phase.STARTING:
            return
        status.phase = _PHASES[driver.phase]
        match driver.phase:
            case TermPhase.STANDBY:
                status.detail = "waiting for the lease"
            case TermPhase.OPENING:
                status.detail = f"opening epoch {driver.epoch}"
            case TermPhase.REMAKING:
                status.detail = self._why_remade
            case TermPhase.LEADING:
                status.detail = ""
            case _:
                assert_never(driver.phase)
        if driver.is_full:
            unanswered = driver.calls_unanswered
            status.detail = f"no decision until some of {unanswered} calls to the API server are answered"

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
            f"{refused.count} entries of the log are not of it and are refused; the newest is at position "
            f"{newest.position} on {newest.subject}: {newest.why}. Find out who can publish there besides the six "
            f"processes (`headgate audit` lists them)"
        )
        self._status.notice("refused", text)
        if self._status.phase is not Phase.STARTING:
            _LOG.warning("%s", text, extra={"position": newest.position})
