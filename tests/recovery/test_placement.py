"""What placement has in the log survives a backup and a restore: verdicts, attempts and places, as decided."""

from pathlib import Path

import pytest
from tests.recovery.conftest import CELL, Recorded, Stored
from tests.recovery.test_restore import backup_of, connection, read_all
from tests.simulation.scenarios import node
from tests.simulation.test_pods_placed import pod

from headgate.adapters.backup import BackupDirectory
from headgate.adapters.jetstream import Connection, open_log
from headgate.adapters.jetstream.blobs import open_blobs
from headgate.adapters.log import LogEntry
from headgate.adapters.logfile import read_log_file
from headgate.cli.deciding_again import checks
from headgate.core import fold
from headgate.core.audit.log import audit
from headgate.core.cycle import decide_cycle
from headgate.core.state.tables import State
from headgate.core.verification.replay import Plan, Replay
from headgate.events.commit import LoggedCommit, decode_commit
from headgate.events.ids import PodKey
from headgate.processes.recovery.restore import rebuild, restore
from headgate.processes.snapshots import store
from headgate.testing.world.world import MACHINES_PLACING, World

pytestmark = pytest.mark.anyio

__all__ = ["connection"]


class Placed(Recorded):
    """A cell whose two nodes are full; a pod has displaced others, one waits, and one cannot be read."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.world = World(
            cell=CELL, machines=MACHINES_PLACING, sink=lambda *entry: self.entries.append(LogEntry(*entry))
        )
        important = {"metadata": {"name": "important"}, "value": 1000}
        self.world.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **important},
            *(node(name, "x", 4, taint=False) for name in ("n1", "n2")),
        )
        self.world.create(*(pod(f"p{number}") for number in range(9)))
        self.world.run(until_ms=self.world.clock.now_ms + 100_000)
        self.world.create(pod("first", cpu="4", priorityClassName="important"))
        self.world.run(until_ms=self.world.clock.now_ms + 400_000)
        self.snapshots = dict(self.world.blobs)


@pytest.fixture(scope="module")
def placed() -> Placed:
    return Placed()


def decoded(entries: list[LogEntry]) -> list[LoggedCommit]:
    return [decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms) for entry in entries]


def folded(entries: list[LogEntry]) -> State:
    state = fold.new_state(CELL)
    for logged in decoded(entries):
        fold.apply(state, logged)
    return state


async def test_a_restored_cell_knows_its_pods_and_goes_on_with_them(
    placed: Placed, connection: Connection, tmp_path: Path
) -> None:
    """Its state is that of before: objects, places, verdicts, and how often each pod was tried."""
    stored = Stored(placed)
    await stored.grow(len(placed.entries))
    await backup_of(stored, tmp_path / "b")
    await restore(connection, CELL, BackupDirectory(tmp_path / "b"))
    restored, live = folded(await read_all(connection)), placed.world.state
    waiting = {key: record.tries for key, record in restored.placements.items() if record.verdict is not None}
    assert PodKey("team/p8") in waiting
    assert all(tries is not None and tries.attempts > 0 for tries in waiting.values())
    assert restored.objects == live.objects
    assert restored.placements == live.placements
    assert fold.state_hash(restored) == fold.state_hash(live)
    state, _ = await store.newest(await open_log(connection, CELL), await open_blobs(connection, CELL), CELL)
    assert state.scheduler_configuration == live.scheduler_configuration


async def test_a_restored_log_is_sound_and_decides_its_placements_again(
    placed: Placed, connection: Connection, tmp_path: Path
) -> None:
    """Audit and replay find nothing in it; a rebuilt one has what was there in the file that is set aside."""
    stored = Stored(placed)
    await stored.grow(len(placed.entries))
    await backup_of(stored, tmp_path / "b")
    await restore(connection, CELL, BackupDirectory(tmp_path / "b"))
    log = decoded(await read_all(connection))
    assert audit(log, CELL).findings == ()
    plan = Plan(checks())
    for logged in log:
        plan.feed(logged)
    replay = Replay(fold.new_state(CELL), plan, decide_cycle)
    for logged in log:
        replay.feed(logged)
    result = replay.result()
    assert result.differences == ()
    assert result.compared["placements"] > 9
    await rebuild(connection, CELL, why="lost", set_aside=tmp_path / "aside")
    assert fold.state_hash(folded([*read_log_file(tmp_path / "aside")])) == result.state_hash
