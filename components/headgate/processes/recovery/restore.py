"""
Restoring a cell's log: from a backup (`restore`), or as a new one from the API server alone (`rebuild`).

`restore` creates a stream with the entries of a backup at their former sequences, with their former times, invisible
until it is complete; stores the snapshots; and sets the leases to epochs above any that the lost broker can have given.
Events after the backup are not in the log. The informer bridge records that with `cell.restored`, its first event there
(from `headgate.adapters.jetstream.refill.Marker`), and then observes all objects in the API server, which are newer:
running workloads keep running, and are charged.

`rebuild` creates an empty stream with a marker for the reason, so that the bridge begins a new log in it although the
cluster has a record of the old one.

Neither removes anything irrecoverable: an existing log is written to a file first, and only if one is named. Nothing is
touched while a process of the cell holds its lease. The feed stays as it is: consumers see where it breaks
(`headgate.processes.snapshotter.feed`).
"""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from headgate.adapters.backup import BackupDirectory, BackupError, BackupManifest, chained
from headgate.adapters.jetstream import Connection
from headgate.adapters.jetstream.blobs import open_blobs
from headgate.adapters.jetstream.feed import open_feed
from headgate.adapters.jetstream.jetstream_log import JetStreamLog
from headgate.adapters.jetstream.lease import JetStreamLeases, lease_epochs, open_leases
from headgate.adapters.jetstream.refill import Marker, begin, delete_stream, fill, filled_by, reveal
from headgate.adapters.jetstream.stream import (
    StreamInfo,
    find_stream,
    identity_of,
    lease_stream,
    log_stream,
    snapshot_stream,
)
from headgate.adapters.lease import LeaseRecord
from headgate.adapters.log import LogDamaged, LogEntry, LogError, LogHole
from headgate.adapters.logfile import LogFileWriter
from headgate.events.base import Producer
from headgate.processes.recovery.backup import VerifiedBackup, verify
from headgate.processes.snapshots import store as snapshots

EPOCHS_SPARE: Final = 1_000
"""
How far the epochs of a restored cell are above those of its backup, in addition to one per second since.

No producer has more terms than that: one begins when a process has started, read the log and taken the lease.
"""
LEASE_TERM_MS: Final = 5_000
LOOK_S: Final = 0.5


class RestoreRefusedError(LogError):
    """Raised when something prevents a restore. Nothing was changed; the message has the reason and the remedy."""


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `restore`. `set_aside` is the number of former entries, now in a file."""

    manifest: BackupManifest
    log_identity: str
    snapshots: tuple[int, ...]
    epochs: dict[str, int]
    set_aside: int = 0


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `rebuild`."""

    log_identity: str
    set_aside: int = 0


# Large: the steps of a restore in their order, which decides what a broken-off one leaves behind.
async def restore(
    connection: Connection, cell: str, directory: BackupDirectory, *, replicas: int = 1, set_aside: Path | None = None
) -> Restored:
    """
    Restore a cell from a backup.

    :raises BackupError: the backup is not complete; nothing was changed. :raises RestoreRefusedError: a log exists
    already and `set_aside` names no file for it, or the cell is running.
    """
    checked = await anyio.to_thread.run_sync(verify, directory)
    manifest = checked.manifest
    if manifest.cell != cell:
        raise BackupError(
            f"{directory.path} holds a backup of the cell {manifest.cell!r}, not of {cell!r}: name it with "
            f"--cell {manifest.cell}"
        )
    wanted = log_stream(cell, replicas=replicas)
    token = manifest.id
    there = await find_stream(connection, wanted.name)
    aside = 0
    if there is None or filled_by(there) != token:
        # Otherwise this same restore was interrupted: all that was there before it was moved to a file then.
        aside = await _make_room(connection, cell, there, set_aside)
    info = await fill(
        connection,
        cell,
        wanted,
        lambda start: directory.entries(manifest.segments, start=start),
        first=manifest.first,
        last=manifest.position,
        token=token,
    )
    await _compare(connection, cell, info, manifest)
    identity = identity_of(info)
    kept = await _store_snapshots(connection, cell, directory, manifest, identity, replicas)
    epochs = await _raise_epochs(connection, cell, checked, replicas)
    marker = Marker(
        kind="restored",
        at_ms=_now_ms(),
        backup=manifest.id,
        position=manifest.position,
        log_hash=manifest.log_hash,
        why="the broker had lost the log" if not aside else f"{aside} entries that were there were set aside",
    )
    await open_feed(connection, cell, replicas=replicas)
    await reveal(connection, wanted, marker, first=manifest.first)
    return Restored(manifest=manifest, log_identity=identity, snapshots=kept, epochs=epochs, set_aside=aside)


async def rebuild(
    connection: Connection, cell: str, *, why: str, replicas: int = 1, set_aside: Path | None = None
) -> Rebuilt:
    """
    Make room for a new log of a cell, which begins with the objects of the API server.

    :raises RestoreRefusedError: a log exists already and `set_aside` names no file for it, or the cell is running.
    """
    wanted = log_stream(cell, replicas=replicas)
    there = await find_stream(connection, wanted.name)
    aside = await _make_room(connection, cell, there, set_aside)
    await delete_stream(connection, snapshot_stream(cell).name)
    await open_blobs(connection, cell, replicas=replicas)
    await open_leases(connection, cell, replicas=replicas)
    await open_feed(connection, cell, replicas=replicas)
    info = await begin(connection, wanted, Marker(kind="rebuilt", at_ms=_now_ms(), why=why))
    return Rebuilt(log_identity=identity_of(info), set_aside=aside)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- existing data ---------------------------------------------------------------------------------------------------


async def _make_room(connection: Connection, cell: str, there: StreamInfo | None, set_aside: Path | None) -> int:
    """Remove the existing log, once it is in a file; the number of its entries."""
    if there is None:
        return 0
    name, held = there.config.name, there.state.messages
    if held and not filled_by(there):
        if set_aside is None:
            raise RestoreRefusedError(
                f"stream {name} holds {held} entries, {there.state.first_seq} to {there.state.last_seq}: they would be "
                "lost. If they are to be given up, add --set-aside FILE, which writes them to a file first"
            )
        if await anyio.Path(set_aside).exists():
            raise RestoreRefusedError(f"--set-aside {set_aside} exists already: name a file that does not")
    await _refuse_running(connection, cell)
    if held and not filled_by(there) and set_aside is not None:
        held = await _set_aside(connection, cell, there, set_aside)
    else:
        held = 0
    await delete_stream(connection, name)
    return held


async def _refuse_running(connection: Connection, cell: str) -> None:
    """A leading process renews its lease three times in its term: if none does, nothing of the cell runs."""
    name = lease_stream(cell).name
    before = await find_stream(connection, name)
    if before is None or not any((await _holders(connection, cell, name)).values()):
        return
    for _ in range(int(LEASE_TERM_MS / 1000 / LOOK_S)):
        await anyio.sleep(LOOK_S)
        now = await find_stream(connection, name)
        if now is not None and now.state.last_seq != before.state.last_seq:
            running = ", ".join(
                sorted(each for each, holder in (await _holders(connection, cell, name)).items() if holder)
            )
            raise RestoreRefusedError(
                f"cell {cell} is running ({running} renew their leases): stop every process of it first"
            )


async def _holders(connection: Connection, cell: str, name: str) -> dict[str, str]:
    leases = JetStreamLeases(connection, cell, name, [])
    records = {each.value: await leases.holder(each.value) for each in Producer}
    return {producer: record.holder for producer, record in records.items() if record is not None}


async def _set_aside(connection: Connection, cell: str, there: StreamInfo, path: Path) -> int:
    """Write all that a log can still deliver to a file."""
    log = JetStreamLog(connection, cell, there, [], None)
    with LogFileWriter(path) as writer:
        async for entries in _deliverable(log, there.state.first_seq, there.state.last_seq):
            writer.write(entries)
        return writer.entries


async def _deliverable(log: JetStreamLog, first: int, last: int) -> AsyncIterator[list[LogEntry]]:
    """The readable part of a log that may be damaged: it continues after a hole and ends at a torn end."""
    start = first
    while start <= last:
        try:
            async for entries in log.read(start, stop=last):
                yield entries
                start = entries[-1].seq + 1
        except LogHole as hole:
            start = max(hole.found, start + 1)
        except LogDamaged:
            return
        else:
            return


# --- restored data ---------------------------------------------------------------------------------------------------


async def _compare(connection: Connection, cell: str, info: StreamInfo, manifest: BackupManifest) -> None:
    """Read back what was written: each entry, and so the hash of the whole log, must equal that of the backup."""
    log = JetStreamLog(connection, cell, info, [], None)
    log_hash, at = manifest.base_hash, manifest.first - 1
    async for entries in log.read(manifest.first, stop=manifest.position):
        log_hash = chained(log_hash, (entry for entry in entries if entry.seq > manifest.base))
        at = entries[-1].seq
    if at != manifest.position or log_hash != manifest.log_hash:
        raise RestoreRefusedError(
            f"{log.name} does not give back what was written to it (it ends at {at}, hash {log_hash}; the backup ends "
            f"at {manifest.position}, hash {manifest.log_hash}). It is not in use yet: mend the broker's storage, "
            "remove the stream, and restore again"
        )


async def _store_snapshots(
    connection: Connection,
    cell: str,
    directory: BackupDirectory,
    manifest: BackupManifest,
    identity: str,
    replicas: int,
) -> tuple[int, ...]:
    """Replaces the existing ones, which may belong to the lost log."""
    blobs = await open_blobs(connection, cell, replicas=replicas)
    for info in await blobs.listing():
        await blobs.delete(info.name)
    for stored in manifest.snapshots:
        blob = snapshots.rebound(directory.snapshot(stored), identity)
        await blobs.put(stored.name, blob, position=stored.position)
    return tuple(stored.position for stored in manifest.snapshots)


async def _raise_epochs(connection: Connection, cell: str, checked: VerifiedBackup, replicas: int) -> dict[str, int]:
    """No term of the restored cell has a number that the lost log may have used."""
    manifest = checked.manifest
    leases = await open_leases(connection, cell, replicas=replicas)
    known = await lease_epochs(connection, cell, tuple(each.value for each in Producer))
    last_ms = manifest.segments[-1].time_ms_last if manifest.segments else manifest.created_ms
    spare = EPOCHS_SPARE + max(0, _now_ms() - last_ms) // 1000
    epochs = {}
    for producer in Producer:
        name = producer.value
        backed_up = max(checked.epochs.get(name, 0), manifest.epochs.get(name, 0)) + spare
        epochs[name] = max(backed_up, known.get(name, 0))
        register = leases.register(name)
        seen = await register.read()
        record = LeaseRecord(holder="", epoch=epochs[name], term_ms=LEASE_TERM_MS, instance="headgate restore")
        if await register.write(record, expected=seen.revision) is None:
            raise RestoreRefusedError(f"the lease of the {name} was taken meanwhile: stop every process of the cell")
    return epochs
