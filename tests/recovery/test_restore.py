"""Restore into a broker: the log is as it was, no reader sees it before it is whole, and restoring loses nothing."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.recovery.conftest import CELL, Recorded, Stored

from headgate.adapters.backup import BackupDirectory, BackupError, BackupManifest
from headgate.adapters.jetstream import Connection, connect, open_log
from headgate.adapters.jetstream.blobs import open_blobs
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.jetstream.errors import BrokerError, NotSent
from headgate.adapters.jetstream.lease import open_leases
from headgate.adapters.jetstream.refill import fill, marker_of
from headgate.adapters.jetstream.stream import find_stream, log_stream, stream_info, stream_name
from headgate.adapters.lease import LeaseRecord
from headgate.adapters.log import Appended, LogEntry
from headgate.adapters.logfile import read_log_file
from headgate.events.base import Producer
from headgate.processes.recovery.backup import back_up
from headgate.processes.recovery.restore import EPOCHS_SPARE, RestoreRefusedError, rebuild, restore
from headgate.processes.snapshots import store

pytestmark = pytest.mark.anyio


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    """A broker that has nothing."""
    async with EmbeddedServer(tmp_path / "nats") as server, connect(server.url, name="test") as connection:
        yield connection


async def backup_of(stored: Stored, path: Path) -> BackupManifest:
    done = await back_up(stored.log, stored.blobs, CELL, BackupDirectory(path), epochs={"scheduler": 40}, now_ms=7)
    return done.manifest


async def read_all(connection: Connection) -> list[LogEntry]:
    log = await open_log(connection, CELL)
    return [entry async for entries in log.read(await log.first_seq()) for entry in entries]


async def test_a_restored_log_is_the_log_that_was_backed_up(
    recorded: Recorded, stored: Callable[[], Stored], connection: Connection, tmp_path: Path
) -> None:
    """The same sequences, subjects, bytes and times, read either way; so the same state, from either end."""
    log = stored()
    await log.grow(len(recorded.entries))
    manifest = await backup_of(log, tmp_path / "b")
    done = await restore(connection, CELL, BackupDirectory(tmp_path / "b"))
    assert await read_all(connection) == recorded.entries
    restored = await open_log(connection, CELL)
    for seq in (1, manifest.position // 2, manifest.position):
        assert await restored.get(seq) == recorded.entries[seq - 1]
    state, meta = await store.newest(restored, await open_blobs(connection, CELL), CELL)
    assert meta is not None
    assert meta.position in done.snapshots
    marker = marker_of(await stream_info(connection, stream_name(CELL)))
    assert marker is not None
    assert (marker.kind, marker.backup, marker.position) == ("restored", manifest.id, manifest.position)
    assert marker.log_hash == recorded.world.state.log_hash
    assert state.position == meta.position


async def test_the_fences_of_a_restored_log_hold(
    recorded: Recorded, stored: Callable[[], Stored], connection: Connection, tmp_path: Path
) -> None:
    """A producer appends behind its last entry, and nowhere else."""
    log = stored()
    await log.grow(60)
    await backup_of(log, tmp_path / "b")
    await restore(connection, CELL, BackupDirectory(tmp_path / "b"))
    restored = await open_log(connection, CELL)
    last = max(entry.seq for entry in recorded.entries[:60] if entry.subject.endswith(".binder"))
    assert await restored.append("binder", b"{}", expected_last=last, commit_id="next") == Appended(61)


async def test_epochs_of_a_restored_cell_are_above_all_that_were_ever_given(
    recorded: Recorded, stored: Callable[[], Stored], connection: Connection, tmp_path: Path
) -> None:
    """Those of the log, of the leases when it was backed up, and of leases that are still there."""
    leases = await open_leases(connection, CELL)
    await leases.register("binder").write(LeaseRecord(holder="", epoch=10**9, term_ms=5_000), expected=0)
    log = stored()
    await log.grow(60)
    await backup_of(log, tmp_path / "b")
    done = await restore(connection, CELL, BackupDirectory(tmp_path / "b"))
    for producer in Producer:
        held = await leases.holder(producer.value)
        assert held is not None
        assert held.holder == ""
        assert held.epoch == done.epochs[producer.value]
    assert done.epochs["scheduler"] >= 40 + EPOCHS_SPARE
    assert done.epochs["binder"] == 10**9


async def test_a_trimmed_log_comes_back_at_its_sequences(
    recorded: Recorded, stored: Callable[[], Stored], connection: Connection, tmp_path: Path
) -> None:
    """Its first entry is at its old position, and a process starts from the snapshot."""
    log = stored()
    newest = recorded.world.state.snapshot
    assert newest is not None
    await log.grow(len(recorded.entries))
    log.memory.lose_middle(1, newest.position - 1)
    await backup_of(log, tmp_path / "b")
    await restore(connection, CELL, BackupDirectory(tmp_path / "b"))
    assert await read_all(connection) == recorded.entries[newest.position - 1 :]
    restored = await open_log(connection, CELL)
    state, _ = await store.newest(restored, await open_blobs(connection, CELL), CELL)
    assert state.position == newest.position


async def test_nobody_can_append_to_a_log_that_is_being_restored(recorded: Recorded, connection: Connection) -> None:
    """Its subjects do not exist yet, and opening it is an error: it is not the log."""
    await fill(
        connection,
        CELL,
        log_stream(CELL),
        lambda start: iter(recorded.entries[start - 1 :]),
        first=1,
        last=30,
        token="t",
    )
    with pytest.raises(NotSent):
        await connection.publish(f"headgate.{CELL}.log.binder", b"{}")
    with pytest.raises(BrokerError, match=r"is being restored.*run it again"):
        await open_log(connection, CELL)


async def test_a_restore_that_was_broken_off_goes_on(
    recorded: Recorded, stored: Callable[[], Stored], connection: Connection, tmp_path: Path
) -> None:
    """What has been written stays; the rest follows."""
    log = stored()
    await log.grow(60)
    manifest = await backup_of(log, tmp_path / "b")
    await fill(
        connection, CELL, log_stream(CELL), lambda start: iter(recorded.entries[start - 1 :]),
        first=1, last=30, token=manifest.id,
    )  # fmt: skip
    await restore(connection, CELL, BackupDirectory(tmp_path / "b"))
    assert await read_all(connection) == recorded.entries[:60]


async def test_a_log_that_is_there_is_never_lost_by_a_restore(
    recorded: Recorded, stored: Callable[[], Stored], connection: Connection, tmp_path: Path
) -> None:
    """It is refused, with the way on; with a file named, what was there is in that file, byte for byte."""
    log = stored()
    await log.grow(80)
    await backup_of(log, tmp_path / "b")
    await restore(connection, CELL, BackupDirectory(tmp_path / "b"))
    before = await read_all(connection)
    with pytest.raises(RestoreRefusedError, match=r"holds 80 entries.*--set-aside FILE"):
        await restore(connection, CELL, BackupDirectory(tmp_path / "b"))
    assert await read_all(connection) == before
    taken = tmp_path / "taken"
    taken.touch()
    with pytest.raises(RestoreRefusedError, match="exists already"):
        await restore(connection, CELL, BackupDirectory(tmp_path / "b"), set_aside=taken)
    done = await restore(connection, CELL, BackupDirectory(tmp_path / "b"), set_aside=tmp_path / "aside")
    assert done.set_aside == 80
    assert [*read_log_file(tmp_path / "aside")] == before
    assert await read_all(connection) == before


async def test_a_backup_that_is_not_whole_changes_nothing(
    stored: Callable[[], Stored], connection: Connection, tmp_path: Path
) -> None:
    """It is read to its end before the broker is touched."""
    log = stored()
    await log.grow(60)
    manifest = await backup_of(log, tmp_path / "b")
    path = tmp_path / "b" / manifest.segments[0].file
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(BackupError, match="was cut off"):
        await restore(connection, CELL, BackupDirectory(tmp_path / "b"))
    assert await find_stream(connection, stream_name(CELL)) is None


async def test_a_backup_is_only_restored_as_the_cell_that_it_is_of(
    stored: Callable[[], Stored], connection: Connection, tmp_path: Path
) -> None:
    """The cell's name is in all subjects."""
    log = stored()
    await log.grow(60)
    await backup_of(log, tmp_path / "b")
    with pytest.raises(BackupError, match=f"of the cell '{CELL}', not of 'other'"):
        await restore(connection, "other", BackupDirectory(tmp_path / "b"))


async def test_nothing_is_restored_over_a_cell_that_runs(
    stored: Callable[[], Stored], connection: Connection, tmp_path: Path
) -> None:
    """A process that renews a lease runs; the message names it."""
    log = stored()
    await log.grow(60)
    await backup_of(log, tmp_path / "b")
    await restore(connection, CELL, BackupDirectory(tmp_path / "b"))
    leases = await open_leases(connection, CELL)
    async with leases.lease("binder", "me", term_ms=900).hold():
        with pytest.raises(RestoreRefusedError, match="binder renew"):
            await restore(connection, CELL, BackupDirectory(tmp_path / "b"), set_aside=tmp_path / "aside")
    assert len(await read_all(connection)) == 60


async def test_a_rebuilt_log_is_empty_and_says_so(
    recorded: Recorded, stored: Callable[[], Stored], connection: Connection, tmp_path: Path
) -> None:
    """What was there is in a file first; without one the log stays."""
    log = stored()
    await log.grow(60)
    await backup_of(log, tmp_path / "b")
    await restore(connection, CELL, BackupDirectory(tmp_path / "b"))
    with pytest.raises(RestoreRefusedError, match="--set-aside FILE"):
        await rebuild(connection, CELL, why="lost")
    done = await rebuild(connection, CELL, why="lost", set_aside=tmp_path / "aside")
    assert done.set_aside == 60
    assert [*read_log_file(tmp_path / "aside")] == recorded.entries[:60]
    restored = await open_log(connection, CELL)
    assert await restored.last_seq() == 0
    marker = marker_of(await stream_info(connection, stream_name(CELL)))
    assert marker is not None
    assert (marker.kind, marker.why) == ("rebuilt", "lost")
    assert await (await open_blobs(connection, CELL)).listing() == []
