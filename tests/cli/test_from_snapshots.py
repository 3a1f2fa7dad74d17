"""Commands that ask for a state begin at the newest snapshot before it, and answer as after reading the whole log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from headgate.adapters.log import LogEntry
from headgate.cli import explain
from headgate.cli.cell import CellInfo
from headgate.cli.demo_objects import cluster_objects, job_objects
from headgate.cli.folding import state_at
from headgate.cli.options import SourceOptions
from headgate.cli.source import Until, decoded
from headgate.core import fold
from headgate.core.views.lookup import UnknownWorkloadError
from headgate.events.effects import SnapshotTaken
from headgate.processes.snapshots.store import name_of, pack
from headgate.testing.memory_log import AsyncMemoryLog, MemoryBlobs, MemoryLog
from headgate.testing.world.world import World

pytestmark = pytest.mark.anyio


class StoredLog:
    """A log with its snapshots, that counts which entries are read."""

    name = "a broker"
    info: CellInfo | None = None

    def __init__(self, cell: str, entries: list[LogEntry]) -> None:
        self.cell = cell
        self._now_ms = 0
        self.memory = MemoryLog(cell, now_ms=lambda: self._now_ms)
        self.log = AsyncMemoryLog(self.memory)
        self.blobs = MemoryBlobs()
        self.starts: list[int] = []
        for entry in entries:
            self._now_ms = entry.time_ms
            self.memory.publish(entry.subject, entry.payload)

    async def read(self, start: int = 1, stop: int | None = None) -> AsyncIterator[list[LogEntry]]:
        self.starts.append(start)
        async for entries in self.log.read(start, stop=stop):
            yield entries

    async def last_seq(self) -> int:
        return await self.log.last_seq()

    def follow(self, start: int) -> AsyncIterator[list[LogEntry]]:
        return self.read(start)

    async def snapshots(self) -> tuple[AsyncMemoryLog, MemoryBlobs]:
        return self.log, self.blobs

    async def store_snapshots(self) -> list[int]:
        """Store the snapshots that the log says were taken; their positions."""
        taken: list[int] = []
        said = {
            int(event.position)
            for logged in decoded(self.memory.read(1))
            for event in logged.commit.events
            if isinstance(event, SnapshotTaken)
        }
        state = fold.new_state(self.cell)
        for logged in decoded(self.memory.read(1)):
            fold.apply(state, logged)
            if state.position in said:
                _, blob = pack(state, log_identity=self.log.identity, taken_ms=state.now_ms)
                await self.blobs.put(name_of(state.position), blob, position=state.position)
                taken.append(state.position)
        return taken


@pytest.fixture(scope="module")
def entries() -> list[LogEntry]:
    """The log of a cell that got half of its jobs after it had snapshots of the others."""
    entries: list[LogEntry] = []
    world = World(cell="demo", sink=lambda *entry: entries.append(LogEntry(*entry)))
    world.apply(*cluster_objects())
    jobs = list(job_objects(24, seed=1))
    for some in (jobs[:12], jobs[12:]):
        world.run(until_ms=world.clock.now_ms + 600_000)
        world.apply(*some)
    assert world.run(until_ms=world.clock.now_ms + 600_000)
    return entries


@pytest.fixture
def stored(entries: list[LogEntry]) -> tuple[StoredLog, list[int]]:
    log = StoredLog("demo", entries)
    return log, anyio.run(log.store_snapshots)


@pytest.fixture
def stored_source(stored: tuple[StoredLog, list[int]], monkeypatch: pytest.MonkeyPatch) -> StoredLog:
    """The log in the place of the one that the options name."""

    @asynccontextmanager
    async def opened(_: SourceOptions) -> AsyncIterator[StoredLog]:
        yield stored[0]

    monkeypatch.setattr(explain, "open_source", opened)
    return stored[0]


async def test_a_state_is_folded_from_the_newest_snapshot_before_it(stored: tuple[StoredLog, list[int]]) -> None:
    """At the end, at a position and at a time: the hash of a fold from the start, with only the entries since read."""
    source, taken = stored
    last = await source.last_seq()
    middle = taken[-1] - 1
    time_ms = (await source.log.get(middle)).time_ms
    for until, newest in (
        (Until(), taken[-1]),
        (Until(seq=last - 1), taken[-1]),
        (Until(seq=middle), max([0, *(each for each in taken if each <= middle)])),
        (Until(time_ms=time_ms), None),
    ):
        source.starts.clear()
        found = await state_at(source, until)
        whole = fold.new_state(source.cell)
        for logged in decoded(source.memory.read(1)):
            if not until.includes(logged):
                break
            fold.apply(whole, logged)
        assert fold.state_hash(found) == fold.state_hash(whole)
        assert newest is None or source.starts == [newest + 1]


async def test_a_history_begins_at_the_newest_snapshot_before_its_workload(stored_source: StoredLog) -> None:
    """Each line of it is that of a reading from the beginning, and so is what the workload waits for now."""
    state = await state_at(stored_source)
    begun: set[int] = set()
    for workload in list(state.workloads)[:: max(1, len(state.workloads) // 8)]:
        stored_source.starts.clear()
        story = await explain.tell(SourceOptions(), workload, "", None)
        begun.add(stored_source.starts[-1])
        whole = await explain.tell(SourceOptions(), workload, "", None, whole=True)
        assert story == whole
    assert max(begun) > 1


async def test_a_deleted_workload_is_looked_for_in_the_whole_log(stored_source: StoredLog) -> None:
    """A name that nothing has any more, and one that nothing ever had."""
    with pytest.raises(UnknownWorkloadError, match="nope"):
        await explain.tell(SourceOptions(), "nope", "", None)
    assert stored_source.starts[-1] == 1
