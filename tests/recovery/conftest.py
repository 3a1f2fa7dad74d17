"""A recorded cell in memory, with its snapshots: what a backup is made of."""

from collections.abc import Callable

import pytest

from headgate.adapters.log import LogEntry
from headgate.cli.demo_objects import cluster_objects, job_objects
from headgate.testing.memory_log import AsyncMemoryLog, MemoryBlobs, MemoryLog
from headgate.testing.world.world import World

CELL = "demo"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


class Recorded:
    """A simulated demo: its entries, and the snapshots that it has stored, by position."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.world = World(cell=CELL, sink=lambda *entry: self.entries.append(LogEntry(*entry)))
        self.world.apply(*cluster_objects())
        self.world.run(until_ms=self.world.clock.now_ms + 1000)
        self.world.apply(*job_objects(30, seed=1))
        assert self.world.run(until_ms=self.world.clock.now_ms + 600_000)
        self.snapshots = dict(self.world.blobs)


@pytest.fixture(scope="session")
def recorded() -> Recorded:
    return Recorded()


class Stored:
    """A log in memory, of the first entries of a recorded one, and the blobs beside it."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        self._time_ms = 0
        self.memory = MemoryLog(CELL, now_ms=lambda: self._time_ms, identity=CELL)
        self.log = AsyncMemoryLog(self.memory)
        self.blobs = MemoryBlobs()

    async def grow(self, position: int) -> None:
        """Append what was recorded up to a position, and store the snapshots of up to there."""
        for entry in self._recorded.entries[self.memory.last_seq() : position]:
            self._time_ms = entry.time_ms
            producer = entry.subject.rpartition(".")[2]
            self.memory.append(producer, entry.payload, expected_last=self.memory.last_seq(producer))
        for at, blob in self._recorded.snapshots.items():
            if at <= position:
                await self.blobs.put(f"state-{at}", blob, position=at)


@pytest.fixture
def stored(recorded: Recorded) -> Callable[[], Stored]:
    """Makes an empty log to be filled from the recorded one."""
    return lambda: Stored(recorded)
