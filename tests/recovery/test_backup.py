"""Backups: what is written is a prefix of the log, is added to and never rewritten, and nothing wrong with it hides."""

import errno
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.recovery.conftest import CELL, Recorded, Stored

from headgate.adapters.backup import MANIFEST, BackupDirectory, BackupError
from headgate.adapters.logfile import LogFileWriter
from headgate.core import fold
from headgate.core.state.tables import State
from headgate.events.commit import Commit, decode_commit
from headgate.events.facts import WorkloadObserved
from headgate.events.ids import Seq
from headgate.processes.recovery import backup
from headgate.processes.recovery.backup import BackedUp, back_up, verify

pytestmark = pytest.mark.anyio


async def backed_up(stored: Stored, path: Path) -> BackedUp:
    return await back_up(stored.log, stored.blobs, CELL, BackupDirectory(path), epochs={"scheduler": 3}, now_ms=7)


def files_of(path: Path) -> list[Path]:
    return sorted(path for path in path.iterdir() if path.suffix in (".gz", ".bin", ".json"))


async def test_a_backup_holds_every_entry_with_its_time_and_exact_bytes(
    recorded: Recorded, stored: Callable[[], Stored], tmp_path: Path
) -> None:
    """What comes out is what the log had, and its fold is the cell's state."""
    log = stored()
    await log.grow(len(recorded.entries))
    done = await backed_up(log, tmp_path)
    assert [*BackupDirectory(tmp_path).entries(done.manifest.segments)] == recorded.entries
    checked = verify(BackupDirectory(tmp_path))
    assert checked.folded == len(recorded.entries)
    assert checked.state_hash == fold.state_hash(recorded.world.state)
    assert checked.manifest.log_hash == recorded.world.state.log_hash
    assert checked.manifest.epochs == {"scheduler": 3}


async def test_a_backup_has_the_newest_snapshots_that_the_log_vouches_for(
    recorded: Recorded, stored: Callable[[], Stored], tmp_path: Path
) -> None:
    """A snapshot whose event is not in the log yet, or that was changed since, is left out."""
    log = stored()
    newest = recorded.world.state.snapshot
    assert newest is not None
    announced = next(
        entry.seq
        for entry in recorded.entries
        if b'"snapshot.taken"' in entry.payload and f'"position":{newest.position},'.encode() in entry.payload
    )
    await log.grow(announced - 1)
    assert newest.position not in {each.position for each in (await backed_up(log, tmp_path / "a")).manifest.snapshots}
    await log.grow(announced)
    done = await backed_up(log, tmp_path / "b")
    assert newest.position in {each.position for each in done.manifest.snapshots}
    assert BackupDirectory(tmp_path / "b").snapshot(done.manifest.snapshots[-1]) == recorded.snapshots[newest.position]


@pytest.mark.parametrize("seed", range(3))
async def test_backups_in_steps_hold_what_one_at_the_end_holds_and_rewrite_nothing(
    seed: int, recorded: Recorded, stored: Callable[[], Stored], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each adds only what is new; files of before stay as they are; the chain continues."""
    monkeypatch.setattr(backup, "SEGMENT_ENTRIES_MAX", 100)
    log, last = stored(), len(recorded.entries)
    steps = sorted({*random.Random(seed).sample(range(1, last), 5), last})
    before: dict[str, bytes] = {}
    position = 0
    for step in steps:
        await log.grow(step)
        done = await backed_up(log, tmp_path)
        assert done.added == step - position
        position = step
        for name, content in before.items():
            assert (tmp_path / name).read_bytes() == content
        before = {path.name: path.read_bytes() for path in files_of(tmp_path) if path.suffix == ".gz"}
    nothing_new = await backed_up(log, tmp_path)
    assert nothing_new.added == 0
    assert [*BackupDirectory(tmp_path).entries(nothing_new.manifest.segments)] == recorded.entries
    assert verify(BackupDirectory(tmp_path)).state_hash == fold.state_hash(recorded.world.state)


async def test_a_log_that_is_shorter_than_its_backup_is_refused_with_the_way_back(
    stored: Callable[[], Stored], tmp_path: Path
) -> None:
    """It has lost entries: the backup is not changed, and the message has the way to restore them."""
    longer, shorter = stored(), stored()
    await longer.grow(60)
    await backed_up(longer, tmp_path)
    await shorter.grow(40)
    with pytest.raises(BackupError, match=rf"ends at 40, .* up to 60: .*`headgate restore --from {tmp_path}`"):
        await backed_up(shorter, tmp_path)
    assert verify(BackupDirectory(tmp_path)).manifest.position == 60


async def test_another_log_never_continues_a_backup(stored: Callable[[], Stored], tmp_path: Path) -> None:
    """It must have the very entry that the backup ends with."""
    log, other = stored(), stored()
    await log.grow(60)
    await backed_up(log, tmp_path)
    await other.grow(59)
    other.memory.append("binder", b"{}", expected_last=other.memory.last_seq("binder"))
    with pytest.raises(BackupError, match="differ at position 60"):
        await backed_up(other, tmp_path)


async def test_a_log_that_cannot_be_folded_is_no_backup(stored: Callable[[], Stored], tmp_path: Path) -> None:
    """What no process could start from is not kept as if one could; the directory stays as it was."""
    log = stored()
    await log.grow(50)
    await backed_up(log, tmp_path)
    log.memory.append("binder", b'{"nonsense":1}', expected_last=log.memory.last_seq("binder"))
    with pytest.raises(BackupError, match="position 51: the log cannot be folded"):
        await backed_up(log, tmp_path)
    assert verify(BackupDirectory(tmp_path)).manifest.position == 50


async def test_an_event_that_cannot_be_folded_costs_its_object_and_not_the_backup(
    recorded: Recorded, stored: Callable[[], Stored], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is set aside as in every process, and the rest is checked as ever."""
    victim = next(iter(recorded.world.state.workloads))
    observed = fold.HANDLERS.find()(WorkloadObserved)
    assert observed is not None

    def fails(state: State, event: WorkloadObserved, commit: Commit, seq: Seq) -> None:
        if event.workload == victim:
            raise ZeroDivisionError
        observed(state, event, commit, seq)

    handlers: Any = fold.HANDLERS
    monkeypatch.setitem(handlers, WorkloadObserved, fails)
    log = stored()
    await log.grow(len(recorded.entries))
    done = await back_up(log.log, None, CELL, BackupDirectory(tmp_path), epochs={}, now_ms=7)
    assert done.folded == len(recorded.entries)
    assert [*BackupDirectory(tmp_path).entries(done.manifest.segments)] == recorded.entries


async def test_a_full_disk_leaves_the_backup_of_before(
    stored: Callable[[], Stored], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the file and the cause; what was whole stays so."""
    log = stored()
    await log.grow(50)
    await backed_up(log, tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    await log.grow(70)
    with monkeypatch.context() as patched:
        patched.setattr(LogFileWriter, "write", full)
        with pytest.raises(BackupError, match=r"log-000000000051.* cannot be written: No space left on device"):
            await backed_up(log, tmp_path)
    assert verify(BackupDirectory(tmp_path)).manifest.position == 50
    await backed_up(log, tmp_path)
    assert verify(BackupDirectory(tmp_path)).manifest.position == 70


async def test_an_empty_log_is_not_backed_up(stored: Callable[[], Stored], tmp_path: Path) -> None:
    """There would be nothing to restore."""
    with pytest.raises(BackupError, match="no entries yet"):
        await backed_up(stored(), tmp_path)


async def test_the_remains_of_a_backup_that_was_killed_do_no_harm(stored: Callable[[], Stored], tmp_path: Path) -> None:
    """What no manifest names is not part of the backup, and goes with the next."""
    log = stored()
    await log.grow(50)
    await backed_up(log, tmp_path)
    (tmp_path / "log-000000000051-000000000099.jsonl.gz").write_bytes(b"half")
    (tmp_path / "log-000000000051-open.jsonl.gz.part").write_bytes(b"half")
    assert verify(BackupDirectory(tmp_path)).manifest.position == 50
    await log.grow(70)
    await backed_up(log, tmp_path)
    assert verify(BackupDirectory(tmp_path)).manifest.position == 70
    assert [path.name for path in files_of(tmp_path) if path.suffix != ".json"] == [
        "log-000000000001-000000000050.jsonl.gz",
        "log-000000000051-000000000070.jsonl.gz",
    ]


@pytest.mark.parametrize("how", ["cut", "flip", "drop", "swap"])
async def test_any_damage_to_any_file_is_found_and_the_file_is_named(
    how: str, recorded: Recorded, stored: Callable[[], Stored], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--verify` finds a file that was cut off, changed in one bit, removed, or exchanged for another."""
    monkeypatch.setattr(backup, "SEGMENT_ENTRIES_MAX", 100)
    log = stored()
    await log.grow(len(recorded.entries))
    await backed_up(log, tmp_path)
    files = files_of(tmp_path)
    assert len(files) >= 4
    for path in files:
        whole = path.read_bytes()
        match how:
            case "cut":
                path.write_bytes(whole[: len(whole) // 2])
            case "flip":
                at = random.Random(path.name).randrange(len(whole))
                path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            case "drop":
                path.unlink()
            case _:
                path.write_bytes(files[0].read_bytes() if path != files[0] else files[1].read_bytes())
        if path.name == MANIFEST and how == "flip" and _is_same_manifest(whole, path):
            path.write_bytes(whole)
            continue  # a blank between two fields
        with pytest.raises(BackupError) as caught:
            verify(BackupDirectory(tmp_path))
        assert path.name in str(caught.value)
        path.write_bytes(whole)
    verify(BackupDirectory(tmp_path))


def _is_same_manifest(whole: bytes, path: Path) -> bool:
    try:
        return bool(msgspec.json.decode(whole) == msgspec.json.decode(path.read_bytes()))
    except msgspec.DecodeError:
        return False


async def test_a_trimmed_log_is_backed_up_from_its_snapshot_on(
    recorded: Recorded, stored: Callable[[], Stored], tmp_path: Path
) -> None:
    """Its hash is known from the snapshot on; the backup can be folded, and continues like any other."""
    log = stored()
    newest = recorded.world.state.snapshot
    assert newest is not None
    await log.grow(len(recorded.entries) - 1)
    log.memory.lose_middle(1, newest.position - 3)
    done = await backed_up(log, tmp_path)
    assert (done.manifest.first, done.manifest.base) == (newest.position - 2, newest.position)
    await log.grow(len(recorded.entries))
    done = await backed_up(log, tmp_path)
    assert done.added == 1
    checked = verify(BackupDirectory(tmp_path))
    assert checked.state_hash == fold.state_hash(recorded.world.state)


async def test_a_backup_reads_the_same_whatever_the_log_gains_meanwhile(
    recorded: Recorded, stored: Callable[[], Stored], tmp_path: Path
) -> None:
    """A running cell appends while it is read: the backup ends where the log ended when it began."""
    log = stored()
    await log.grow(100)
    read = log.log.read

    async def grows(start: int, *, stop: int | None = None):
        await log.grow(150)
        async for entries in read(start, stop=stop):
            yield entries

    log.log.read = grows  # type: ignore[method-assign]
    assert (await backed_up(log, tmp_path)).manifest.position == 100
    state = fold.new_state(CELL)
    for entry in recorded.entries[:100]:
        fold.apply(state, decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms))
    assert verify(BackupDirectory(tmp_path)).state_hash == fold.state_hash(state)
