"""
The stores of a cell: the log, and everything beside it that has a record of the log.

`recorded` gives the stores of a simulated run; `Cell` is changed by the damages, a copy each. `judged` runs every
check: the audit of the log alone (as from a file) and with the other stores, a verifying replay, and a
process start.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
from tests.simulation.scenarios import contended
from tests.simulation.test_seeds import Run

from headgate.adapters.jetstream.health import DependencyHealth
from headgate.adapters.lease import Leadership
from headgate.adapters.log import Blobs, Log, LogDamaged, LogEntry
from headgate.cli import audit, folding, source
from headgate.cli.cell import CellInfo
from headgate.cli.deciding_again import checks
from headgate.core import fold
from headgate.core.audit.log import Audit, AuditFinding, AuditReport
from headgate.core.audit.stores import Evidence, FeedJudge, SeenLease, SeenRecord, SeenSnapshot, SeenStream, judge
from headgate.core.cycle import decide_cycle
from headgate.core.fold import BrokenLogError
from headgate.core.fold.quarantine import Treatments
from headgate.core.log.refusal import CommitFilter
from headgate.core.state.lifecycle import IllegalTransitionError
from headgate.core.state.tables import State
from headgate.core.verification.replay import Plan, Replay
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, UnreadableCommitError
from headgate.events.ids import Seq
from headgate.machines.scheduler.decide import Scheduler
from headgate.processes.runtime.host import Host
from headgate.processes.runtime.host_parts import Parts, Stores
from headgate.processes.runtime.process_status import Phase, Status
from headgate.processes.snapshots import store
from headgate.processes.snapshots.store import SnapshotUnusableError
from headgate.processes.snapshotter.feed import messages_of
from headgate.testing.memory_log import AsyncMemoryLog, MemoryBlobs, MemoryLog
from headgate.testing.world.world import NO_FAULTS

CELL = "sim"
"""The name of the simulated cell, and the identity of its stream."""

HANG_S = 20.0
"""A check without a result by then hangs."""

BROKEN = (BrokenLogError, UnreadableCommitError, IllegalTransitionError, LogDamaged)
"""The error of a process or command for a log that cannot be true."""


class Message(msgspec.Struct, frozen=True):
    """One message of the feed."""

    id: str
    subject: str
    payload: bytes


@dataclass
class Cell:
    """The stores of a cell. `blobs` are snapshots by name; `record` is the cluster's record."""

    entries: list[LogEntry]
    blobs: dict[str, bytes] = field(default_factory=dict)
    feed: list[Message] = field(default_factory=list)
    leases: dict[Producer, SeenLease] = field(default_factory=dict)
    record: SeenRecord | None = None

    def copy(self) -> "Cell":
        """The same, to be damaged."""
        return replace(self, entries=[*self.entries], blobs={**self.blobs}, feed=[*self.feed], leases={**self.leases})


def decoded(entries: list[LogEntry]) -> list[LoggedCommit]:
    """Entries as commits, as every reading command decodes them."""
    return list(source.decoded(entries))


@lru_cache(maxsize=4)
def recorded(seed: int) -> Cell:
    """The stores of a run at its end. Never to be changed: take a copy."""
    return recorded_on(seed, CELL)


def recorded_on(seed: int, stream: str) -> Cell:
    """The same, of a cell whose log is on this stream."""
    entries: list[LogEntry] = []
    run = Run(contended(seed), NO_FAULTS, seed, round_ms=10)
    assert run.world._founding is not None
    run.world._founding = msgspec.structs.replace(run.world._founding, stream=stream)
    run.world._sink = lambda *entry: entries.append(LogEntry(*entry))
    run.play()
    state = run.world.state
    feed = [
        Message(message.message_id, message.subject, message.payload)
        for logged in decoded(entries)
        for message in messages_of(CELL, logged)
    ]
    leases = {
        producer: SeenLease(
            producer=producer, epoch=record.epoch, position=Seq(state.position), log_hash=state.log_hash
        )
        for producer, record in state.producers.items()
    }
    blobs = {store.name_of(position): blob for position, blob in run.world.blobs.items()}
    assert blobs, "a run with snapshots is wanted"
    assert state.identity is not None
    record = SeenRecord(
        where="ConfigMap", log_id=state.identity.log_id, position=state.position, log_hash=state.log_hash
    )
    return Cell(entries, blobs, feed, leases, record)


# --- asking --------------------------------------------------------------------------------------------------------


class _Source:
    """The log of a cell, as the reading commands see one."""

    name, cell = CELL, CELL
    info: CellInfo | None = None

    def __init__(self, entries: list[LogEntry]) -> None:
        self._entries = entries

    async def read(self, start: int = 1, stop: int | None = None) -> AsyncIterator[list[LogEntry]]:
        yield [each for each in self._entries if each.seq >= start and (stop is None or each.seq <= stop)]

    async def last_seq(self) -> int:
        return max((entry.seq for entry in self._entries), default=0)

    def follow(self, start: int) -> AsyncIterator[list[LogEntry]]:
        return self.read(start)

    async def snapshots(self) -> None:
        return None


async def _audited(entries: list[LogEntry], positions: list[Seq]) -> tuple[Audit, FeedJudge]:
    """As the command does it: once more where an event cannot be folded."""
    log = _Source(entries)
    auditor, feed = Audit(CELL, positions), FeedJudge(CELL)
    await audit._judge_log(log, auditor, feed)
    if (again := await audit._past_failures(log, auditor)) is not None:
        auditor, feed = Audit(CELL, positions, again), FeedJudge(CELL)
        await audit._judge_log(log, auditor, feed)
    return auditor, feed


def audited(cell: Cell, *, alone: bool = False) -> AuditReport:
    """What `headgate audit` finds: of the log in a file, or (not `alone`) with all other stores."""
    seen = () if alone else tuple(_seen(name, blob) for name, blob in cell.blobs.items())
    auditor, feed = anyio.run(_audited, cell.entries, [each.position for each in seen])
    if alone:
        return auditor.report()
    evidence = Evidence(
        stream=SeenStream(name="HEADGATE_sim", identity=CELL),
        snapshots=seen,
        leases=tuple(cell.leases.values()),
        record=cell.record,
    )
    return auditor.report([*judge(auditor, evidence), *_fed(cell, auditor, feed)])


def _fed(cell: Cell, auditor: Audit, feed: FeedJudge) -> list[AuditFinding]:
    if not auditor.folds or not cell.feed:
        return []
    feed.begin(cell.feed[0].id)
    for number, message in enumerate(cell.feed, 1):
        if feed.is_next(message.subject, message.payload):
            continue
        if not feed.message(number, message.id, auditor.state.branches):
            feed.beyond(cell.feed[-1].id, auditor.last)
            break
    return feed.findings


def _seen(name: str, blob: bytes) -> SeenSnapshot:
    try:
        meta, _ = store.unpack(blob, CELL)
    except SnapshotUnusableError as error:
        return SeenSnapshot(name=name, position=Seq(int(name.rpartition("-")[2])), why=str(error))
    return SeenSnapshot(
        name=name,
        position=meta.position,
        state_hash=meta.state_hash,
        log_hash=meta.log_hash,
        log_identity=meta.log_identity,
    )


def replayed(cell: Cell) -> list[str]:
    """The result of `headgate replay --verify`: each difference, or the error that ends it."""
    try:
        return anyio.run(_replayed, _Source(cell.entries))
    except BROKEN as error:
        return [str(error)]


async def _replayed(log: _Source) -> list[str]:
    commits = [logged async for logged in source.commits(log)]

    async def read(treatments: Treatments) -> list[str]:
        plan = Plan(checks(), CommitFilter(CELL))
        for logged in commits:
            plan.feed(logged)
        replay = Replay(fold.new_state(CELL), plan, decide_cycle, treatments)
        for logged in commits:
            replay.feed(logged)
        return [f"{each.position}: {each.what}" for each in replay.differences]

    return await folding.contained(log, source.Until(), read)


class _NeverLeads:
    """A lease that is never to be had: the process stands by."""

    def hold(self, *, epoch_min: int = 0) -> Any:
        return self

    async def __aenter__(self) -> Leadership:
        await anyio.sleep_forever()
        raise AssertionError

    async def __aexit__(self, *_: object) -> None:
        return None


def stored(cell: Cell) -> tuple[AsyncMemoryLog, MemoryBlobs]:
    """The log and the snapshots of a cell, as a process finds them."""
    memory = MemoryLog(CELL, identity=CELL)
    memory._entries = {entry.seq: entry for entry in cell.entries}
    for entry in cell.entries:
        memory._by_subject.setdefault(entry.subject, []).append(entry.seq)
    memory._last_seq = max(memory._entries, default=0)
    return AsyncMemoryLog(memory), MemoryBlobs()


async def started(cell: Cell) -> State | str:
    """The state of a process that has started on the stores of a cell, or why it has not."""
    log, blobs = stored(cell)
    for name, blob in cell.blobs.items():
        await blobs.put(name, blob, position=int(name.rpartition("-")[2]))
    return await start_on(log, blobs)


async def start_on(log: Log, blobs: Blobs) -> State | str:
    """The state of a process that has started on a log and its snapshots, or why it has not."""
    status = Status(process="scheduler", cell=CELL, holder="one", health=DependencyHealth())
    stores = Stores(log=log, blobs=blobs, lease=_NeverLeads())
    host = Host(Producer.SCHEDULER, Parts(machine=Scheduler), stores, status)
    try:
        with anyio.fail_after(HANG_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(host.run)
                while status.phase is not Phase.STANDBY:
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, BROKEN):
            return str(error)
        raise error from None
    return host.state


@dataclass
class Verdict:
    """The result of each check: "" or nothing if it finds nothing wrong."""

    audit: list[AuditFinding]
    alone: list[AuditFinding]
    replay: list[str]
    start: str
    state: State | None

    @property
    def is_found(self) -> bool:
        """Whether any check found anything."""
        aside = self.state is not None and self.state.quarantine
        return bool(self.audit or self.alone or self.replay or self.start or aside)


def judged(cell: Cell) -> Verdict:
    """Ask everybody."""
    start = anyio.run(started, cell)
    said = start if isinstance(start, str) else ""
    return Verdict(
        audit=list(audited(cell).findings),
        alone=list(audited(cell, alone=True).findings),
        replay=replayed(cell),
        start=said,
        state=None if isinstance(start, str) else start,
    )


def meaning(state: State) -> dict[str, Any]:
    """A state but for what follows from the bytes of its log, and not from what they say."""
    tables: dict[str, Any] = msgspec.json.decode(fold.encode(state))
    for hashes in ("log_hash", "log_hashes", "snapshot"):
        tables.pop(hashes, None)
    for producer in tables["producers"].values():
        producer.pop("last_hash", None)
    return tables
