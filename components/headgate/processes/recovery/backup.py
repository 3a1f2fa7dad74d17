"""
Backing a cell up, and verifying a backup.

`back_up` reads the log of a running cell up to its position at the beginning, so what is written is consistent whatever
is appended meanwhile: a prefix of a log is a log. A later backup into the same directory continues after the position
of the one before, once it has verified that this still is the same log. Before the manifest lists anything new, all
that was written is read again, chained and folded: an existing backup can be restored. `verify` does the same with a
whole backup, without a broker.

A snapshot belongs to a backup only if the log has a `snapshot.taken` of exactly this snapshot.

Used by `headgate backup`, and by `headgate restore` before it writes anything.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import anyio.to_thread
import msgspec

from headgate.adapters.backup import (
    BackupDirectory,
    BackupError,
    BackupManifest,
    SegmentFile,
    SnapshotFile,
    backup_id,
    chained,
)
from headgate.adapters.log import BlobDamaged, BlobNotFound, Blobs, EntryNotFound, Log, LogEntry
from headgate.core import fold
from headgate.core.fold import BrokenLogError
from headgate.core.fold.containment import Refolding, now
from headgate.core.fold.quarantine import EventFailedError
from headgate.core.state.tables import State
from headgate.events.commit import LoggedCommit, UnreadableCommitError, decode_entry
from headgate.events.effects import SnapshotTaken
from headgate.events.ids import Seq
from headgate.processes.snapshots import store
from headgate.processes.snapshots.store import SnapshotMeta, SnapshotUnusableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

SEGMENT_ENTRIES_MAX: Final = 100_000
"""The maximum number of entries in one file: damage in a backup is located, and copied again, per file."""
SNAPSHOTS_KEPT: Final = 2
FOLDED_AT_ONCE: Final = 500


class BackedUp(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a backup now, and how much of it is new."""

    manifest: BackupManifest
    added: int
    folded: int


class VerifiedBackup(msgspec.Struct, frozen=True, kw_only=True):
    """A verified backup: its content, the number of folded entries, and the terms in them."""

    manifest: BackupManifest
    folded: int
    state_hash: str
    epochs: dict[str, int]


async def back_up(
    log: Log, blobs: Blobs | None, cell: str, directory: BackupDirectory, *, epochs: dict[str, int], now_ms: int
) -> BackedUp:
    """
    Back the log up to its current end, and the newest snapshot that it vouches for.

    `epochs` are those of the leases.

    :raises BackupError: the directory's backup is damaged, is of another log, or what was written cannot be read back.
    :raises LogDamaged: the log itself is.
    """
    with directory.locked():
        before = directory.manifest()
        if before is not None:
            await _is_continued(log, cell, directory, before)
        first, last = await log.first_seq(), await log.last_seq()
        start = before.position + 1 if before is not None else first
        if before is None and last < first:
            raise BackupError(f"{log.name} has no entries yet: there is nothing to back up")
        packed = await _snapshots(log, blobs, cell, last)
        base, base_hash = _base(log, first, before, packed)
        log_hash = before.log_hash if before is not None else base_hash
        segments = await _write_segments(log, directory, start, last, base, log_hash)
        draft = BackupManifest(
            cell=cell,
            id="",
            version=store.VERSION,
            created_ms=now_ms,
            log_identity=log.identity,
            first=before.first if before is not None else first,
            position=last,
            log_hash=segments[-1].log_hash if segments else log_hash,
            base=base,
            base_hash=base_hash,
            segments=(*(before.segments if before is not None else ()), *segments),
            snapshots=before.snapshots if before is not None else (),
            epochs=epochs,
        )
        draft = msgspec.structs.replace(draft, id=backup_id(draft.log_identity, draft.position, draft.log_hash))
        checked = await anyio.to_thread.run_sync(_check_new, directory, draft, before, packed)
        directory.write_manifest(checked.manifest)
        return BackedUp(manifest=checked.manifest, added=sum(_size(each) for each in segments), folded=checked.folded)


def verify(directory: BackupDirectory) -> VerifiedBackup:
    """
    Read a whole backup, chain it and fold it.

    :raises BackupError: a file is missing, damaged, or not what the manifest says; the message names it.
    """
    manifest = directory.need_manifest()
    stored = {each.position: _opened(directory, each, manifest.cell) for each in manifest.snapshots}
    if manifest.base and manifest.base not in stored:
        raise BackupError(
            f"{directory.path}: the log was trimmed, and there is no snapshot of position {manifest.base}, from which "
            "on it could be folded"
        )
    for segment in manifest.segments:
        if segment.last <= manifest.base:
            # Before the first state that can be folded from, only the file digests can be checked.
            directory.check(segment)
    state = stored[manifest.base][1] if manifest.base else fold.new_state(manifest.cell)
    folding = _Folding(directory, manifest, state)
    folding.run({position: meta for position, (meta, _) in stored.items()})
    return _verified(manifest, folding)


def _size(segment: SegmentFile) -> int:
    return segment.last - segment.first + 1


# --- the log ---------------------------------------------------------------------------------------------------------


async def _is_continued(log: Log, cell: str, directory: BackupDirectory, before: BackupManifest) -> None:
    """
    Check that the log still is the one that was backed up, with more after it.

    Its last entry must be there, byte for byte. It follows that those before it are the same: the later commits contain
    the hashes of those before them, and these are folded from the backup's own state.
    """
    if before.cell != cell:
        raise BackupError(
            f"{directory.path} holds a backup of the cell {before.cell!r}, not of {cell!r}: name another directory"
        )
    last = await log.last_seq()
    if last < before.position:
        raise BackupError(
            f"{log.name} ends at {last}, and {directory.path} has it up to {before.position}: the broker has lost "
            f"entries. Stop every process of the cell, then `headgate restore --from {directory.path}` brings them back"
        )
    segment = before.segments[-1]
    stored = next(iter(directory.entries([segment], start=segment.last)), None)
    try:
        entry = await log.get(before.position)
    except EntryNotFound:
        raise BackupError(
            f"{log.name} was trimmed beyond position {before.position}, where the backup in {directory.path} ends: "
            "begin a new backup in an empty directory"
        ) from None
    if stored is None or (entry.subject, entry.payload) != (stored.subject, stored.payload):
        raise BackupError(
            f"{log.name} is not the log that was backed up to {directory.path}: they differ at position "
            f"{before.position}. Begin a new backup in an empty directory; if the log should be the same, stop every "
            "process of the cell and see `headgate audit`"
        )


async def _write_segments(
    log: Log, directory: BackupDirectory, start: int, last: int, base: int, log_hash: str
) -> tuple[SegmentFile, ...]:
    """Everything from `start` to `last`, in as many files as needed. Entries before `base` are not chained."""
    segments: list[SegmentFile] = []
    writer = directory.segment(start)
    reading: AsyncGenerator[list[LogEntry], None] = log.read(start, stop=last)  # type: ignore[assignment]
    try:
        async with aclosing(reading):
            async for entries in reading:
                for part in _parts(entries, writer.first + SEGMENT_ENTRIES_MAX):
                    writer.write(part)
                    log_hash = chained(log_hash, (entry for entry in part if entry.seq > base))
                    if writer.next == writer.first + SEGMENT_ENTRIES_MAX:
                        segments.append(writer.close(log_hash))
                        writer = directory.segment(writer.next)
    except BaseException:
        writer.abandon()
        raise
    if writer.next > writer.first:
        segments.append(writer.close(log_hash))
    else:
        writer.abandon()
    if (segments[-1].last if segments else start - 1) != last:
        raise BackupError(f"{log.name} claims to end at {last} and could be read up to {writer.next - 1} only")
    return tuple(segments)


def _parts(entries: list[LogEntry], end: int) -> Iterator[list[LogEntry]]:
    """Entries split at file boundaries: before position `end`, and after each SEGMENT_ENTRIES_MAX."""
    while entries and entries[-1].seq >= end:
        cut = end - entries[0].seq
        yield entries[:cut]
        entries, end = entries[cut:], end + SEGMENT_ENTRIES_MAX
    if entries:
        yield entries


# --- snapshots -------------------------------------------------------------------------------------------------------


class _Packed(msgspec.Struct, frozen=True):
    """A snapshot as it was stored, and its description."""

    name: str
    meta: SnapshotMeta
    blob: bytes


async def _snapshots(log: Log, blobs: Blobs | None, cell: str, last: int) -> list[_Packed]:
    """The newest readable snapshots, newest first. Whether the log vouches for them is checked elsewhere."""
    found: list[_Packed] = []
    for info in reversed(await blobs.listing() if blobs is not None else []):
        if info.position > last or len(found) == SNAPSHOTS_KEPT:
            continue
        try:
            blob = await blobs.get(info.name)  # type: ignore[union-attr]
            meta, _ = await anyio.to_thread.run_sync(store.unpack, blob, cell)
        except (BlobNotFound, BlobDamaged, SnapshotUnusableError):
            continue
        if meta.log_identity == log.identity:
            found.append(_Packed(info.name, meta, blob))
    return found


def _base(log: Log, first: int, before: BackupManifest | None, packed: list[_Packed]) -> tuple[int, str]:
    """The position from which the hash of the log is known: its beginning, or a snapshot of a trimmed log."""
    if before is not None:
        return before.base, before.base_hash
    if first == 1:
        return 0, ""
    within = [each for each in packed if each.meta.position >= first - 1]
    if not within:
        raise BackupError(
            f"{log.name} was trimmed: it begins at {first}, and there is no snapshot of position {first - 1} or later "
            "to fold it from. Wait for the next snapshot, and back it up then"
        )
    return within[-1].meta.position, within[-1].meta.log_hash


def _opened(directory: BackupDirectory, stored: SnapshotFile, cell: str) -> tuple[SnapshotMeta, State]:
    try:
        return store.unpack(directory.snapshot(stored), cell)
    except SnapshotUnusableError as error:
        raise BackupError(f"{directory.path / stored.file} cannot be used: {error}") from error


# --- checking --------------------------------------------------------------------------------------------------------


def _check_new(
    directory: BackupDirectory, draft: BackupManifest, before: BackupManifest | None, packed: list[_Packed]
) -> VerifiedBackup:
    """
    Read what was just written, from the newest state that an earlier backup has verified, and choose the snapshots.

    A trimmed log that is backed up for the first time is folded from the snapshot that it has.
    """
    kept = {each.position: each for each in draft.snapshots}
    if before is not None and kept:
        state = _opened(directory, kept[max(kept)], draft.cell)[1]
    elif draft.base:
        state = next(store.unpack(each.blob, draft.cell)[1] for each in packed if each.meta.position == draft.base)
    else:
        state = fold.new_state(draft.cell)
    folding = _Folding(directory, draft, state)
    folding.run({each.meta.position: each.meta for each in packed})
    for each in packed:
        if each.meta.position in folding.vouched or each.meta.position == draft.base:
            kept[each.meta.position] = directory.write_snapshot(each.name, each.meta.position, each.blob)
    newest = sorted(kept)[-SNAPSHOTS_KEPT:]
    # A trimmed log cannot be folded without the snapshot at its base.
    chosen = tuple(kept[position] for position in sorted({*newest, *([draft.base] if draft.base else [])}))
    manifest = msgspec.structs.replace(draft, snapshots=chosen)
    return _verified(manifest, folding)


def _verified(manifest: BackupManifest, folding: "_Folding") -> VerifiedBackup:
    state = folding.state
    epochs = {producer.value: int(record.epoch) for producer, record in state.producers.items()}
    return VerifiedBackup(manifest=manifest, folded=folding.folded, state_hash=fold.state_hash(state), epochs=epochs)


class _Folding:
    """
    Chains and folds the entries of a backup after a state, and compares them with the manifest and the snapshots.

    `vouched` are the positions of snapshots that the log itself has a `snapshot.taken` of, with the same hashes.
    """

    def __init__(self, directory: BackupDirectory, manifest: BackupManifest, state: State) -> None:
        self.state = state
        self.folded = 0
        self.vouched: set[Seq] = set()
        self._directory = directory
        self._manifest = manifest
        self._log_hash = state.log_hash
        self._refolding = Refolding(manifest.cell, self._begin, self._read)

    def run(self, metas: dict[int, SnapshotMeta]) -> None:
        """
        Read everything after the state.

        :raises BackupError: it cannot be read, does not chain, or differs from the manifest.
        """
        start, manifest = self.state.position + 1, self._manifest
        claims = {each.last: each for each in manifest.segments}
        for entries in _batches(self._directory.entries(manifest.segments, start=start), {*claims, *metas}):
            self._fold(entries, metas)
            at = entries[-1].seq
            if at in claims and claims[at].log_hash != self._log_hash:
                raise self._wrong(
                    at, f"the hash of the log up to there is {self._log_hash}, not {claims[at].log_hash} as was written"
                )
            if at in metas:
                self._compare(metas[at])
        if self.state.position != manifest.position or self._log_hash != manifest.log_hash:
            raise self._wrong(self.state.position, f"it ends there, and should end at {manifest.position}")

    def _fold(self, entries: list[LogEntry], metas: dict[int, SnapshotMeta]) -> None:
        for entry in entries:
            try:
                logged = decode_entry(entry.seq, entry.subject, entry.payload, entry.time_ms)
                applied = self._apply(logged)
            except (BrokenLogError, UnreadableCommitError, EventFailedError) as error:
                # An entry that stops the fold here would stop every process after a restore.
                raise self._wrong(entry.seq, f"the log cannot be folded: {error}") from error
            for event in logged.commit.events if applied else ():
                if isinstance(event, SnapshotTaken) and _is_of(metas.get(event.position), event):
                    self.vouched.add(event.position)
        self.folded += len(entries)
        self._log_hash = chained(self._log_hash, entries)

    def _apply(self, logged: LoggedCommit) -> bool:
        """Fold an entry, and quarantine what cannot be folded as every process does. Whether it was not refused."""
        try:
            return fold.apply(self.state, logged, self._refolding.treatments)
        except EventFailedError as failed:
            self.state = now(self._refolding.recover(failed))
            return True

    async def _begin(self, up_to: Seq) -> State:
        known = [each for each in self._manifest.snapshots if each.position <= up_to]
        if known:
            return _opened(self._directory, known[-1], self._manifest.cell)[1]
        return fold.new_state(self._manifest.cell)

    async def _read(self, first: Seq, last: Seq) -> AsyncIterator[LoggedCommit]:
        for entry in self._directory.entries(self._manifest.segments, start=first):
            if entry.seq > last:
                return
            yield decode_entry(entry.seq, entry.subject, entry.payload, entry.time_ms)

    def _compare(self, meta: SnapshotMeta) -> None:
        """Compare a snapshot with the log before it. Another version may encode the same state differently."""
        same_version = meta.version == store.VERSION
        if meta.log_hash != self._log_hash or (same_version and meta.state_hash != fold.state_hash(self.state)):
            raise self._wrong(
                meta.position,
                "the snapshot of this position is not the state of the log there. The log is not in doubt: remove the "
                "snapshot (its name is "
                f"{store.name_of(meta.position)}) and back up again",
            )

    def _wrong(self, position: int, why: str) -> BackupError:
        segment = next((each.file for each in self._manifest.segments if each.first <= position <= each.last), "")
        return BackupError(f"{self._directory.path / segment}, position {position}: {why}")


def _is_of(meta: SnapshotMeta | None, event: SnapshotTaken) -> bool:
    return meta is not None and (meta.state_hash, meta.log_hash) == (event.state_hash, event.log_hash)


def _batches(entries: Iterable[LogEntry], ends: set[int]) -> Iterator[list[LogEntry]]:
    """Entries in batches, of which none reaches beyond one of the `ends`."""
    batch: list[LogEntry] = []
    for entry in entries:
        batch.append(entry)
        if entry.seq in ends or len(batch) >= FOLDED_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
