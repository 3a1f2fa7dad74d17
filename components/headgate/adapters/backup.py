"""
A backup in a directory: its files, its manifest, and reading both back with verification.

`headgate backup` writes one and `headgate restore` reads it. A backup is a whole log up to a position, in segments, and
the newest snapshots that the log itself vouches for:

    manifest.json                             the contents: written last, so that a torn backup is the one before it
    log-000000000001-000000000812.jsonl.gz    entries 1 to 812, in the format of `headgate events --export`
    snapshot-000000000800.bin                 the snapshot of position 800, as it was stored

The manifest names every file with its size and its SHA-256, and holds a digest of itself. So any later truncation,
change or mix-up is detected, and the error names the file. Segments chain: the hash of the log up to the last entry of
each is in the manifest, and follows from the entries themselves (`headgate.events.commit.chain`).

A later backup into the same directory adds segments and never rewrites one. Files that no manifest names (the remains
of a killed backup) are removed by the next backup.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from headgate.adapters.log import LogEntry, LogError
from headgate.adapters.logfile import LogFileError, LogFileWriter, read_log_file
from headgate.events.commit import chain, digest

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
LOCK: Final = "backup.lock"
READ_BYTES: Final = 1 << 20


class BackupError(LogError):
    """Raised when a backup cannot be written, read or continued; the message names the file and the next move."""


class SegmentFile(msgspec.Struct, frozen=True, kw_only=True):
    """Some entries of the log in a file. `log_hash` is that of the log up to its last entry."""

    file: str
    first: int
    last: int
    log_hash: str
    time_ms_last: int
    size_bytes: int
    sha256: str


class SnapshotFile(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of a position of the log, in a file. `name` is that of its blob."""

    file: str
    name: str
    position: int
    size_bytes: int
    sha256: str


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a backup holds.

    `id` follows from what was backed up, so that one of the same log up to the same position has the same. `position`
    is the last entry's, `log_hash` that of the log up to it. A log that was trimmed begins at `first`, and its hash is
    known from the position `base` on, by a snapshot (`base_hash`); a whole log begins at 1, with base 0. `log_identity`
    is that of the stream; `epochs` are those of the leases by producer.
    """

    cell: str
    id: str
    version: str
    created_ms: int
    log_identity: str
    first: int
    position: int
    log_hash: str
    base: int = 0
    base_hash: str = ""
    segments: tuple[SegmentFile, ...] = ()
    snapshots: tuple[SnapshotFile, ...] = ()
    epochs: dict[str, int] = {}
    format: int = FORMAT


class _Sealed(msgspec.Struct, frozen=True):
    """The manifest as it is written: with the digest of its own bytes, so that changes are detected."""

    digest: str
    manifest: msgspec.Raw


def backup_id(log_identity: str, position: int, log_hash: str) -> str:
    """The id of a backup: this log up to this position."""
    return digest(f"{log_identity} {position} {log_hash}".encode())[:16]


class BackupDirectory:
    """The files of one backup. Reading verifies each file before using any byte of it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # --- the manifest ----------------------------------------------------------------------------------------------

    def manifest(self) -> BackupManifest | None:
        """
        The contents of the directory; None when there is no backup in it yet.

        :raises BackupError: its manifest is invalid.
        """
        path = self.path / MANIFEST
        try:
            sealed = msgspec.json.decode(path.read_bytes(), type=_Sealed)
            # The lines between the braces are for people; what is hashed is the value.
            plain = msgspec.json.format(bytes(sealed.manifest), indent=-1)
            manifest = msgspec.json.decode(plain, type=BackupManifest)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BackupError(f"{path} cannot be read: {error.strerror}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BackupError(f"{path} is no manifest of a backup ({error}): {_ELSEWHERE}") from error
        if digest(plain) != sealed.digest:
            raise BackupError(f"{path} was changed after it was written (its digest differs): {_ELSEWHERE}")
        if manifest.format != FORMAT:
            raise BackupError(
                f"{path} is of format {manifest.format}, and this version reads {FORMAT}: use the version of Headgate "
                f"that wrote it ({manifest.version})"
            )
        return manifest

    def need_manifest(self) -> BackupManifest:
        """
        As `manifest`, where there has to be one.

        :raises BackupError: there is none.
        """
        manifest = self.manifest()
        if manifest is None:
            raise BackupError(f"{self.path} holds no backup: there is no {MANIFEST} in it")
        return manifest

    def write_manifest(self, manifest: BackupManifest) -> None:
        """Atomically make a backup of the files that the manifest names; remove other files."""
        plain = msgspec.json.encode(manifest)
        sealed = msgspec.json.encode(_Sealed(digest=digest(plain), manifest=msgspec.Raw(plain)))
        self._replace(MANIFEST, msgspec.json.format(sealed, indent=1))
        named = {each.file for each in manifest.segments} | {each.file for each in manifest.snapshots}
        for path in self.path.iterdir():
            if path.name.startswith(("log-", "snapshot-")) and path.name not in named:
                path.unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """
        Lock the directory against other writers while the block runs. Creates the directory.

        :raises BackupError: it is locked, or cannot be created.
        """
        try:
            # Read access to a backup is read access to all tenants' data in the log.
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BackupError(f"{self.path} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise BackupError(f"another backup is being written to {self.path}: wait for its end") from None
        finally:
            os.close(file)

    # --- writing ---------------------------------------------------------------------------------------------------

    def segment(self, first: int) -> "SegmentWriter":
        """A writer of a new segment; its `close` returns the entry of the manifest."""
        return SegmentWriter(self.path, first)

    def write_snapshot(self, name: str, position: int, blob: bytes) -> SnapshotFile:
        """Store a snapshot's bytes."""
        file = f"snapshot-{position:012d}.bin"
        self._replace(file, blob)
        return SnapshotFile(
            file=file,
            name=name,
            position=position,
            size_bytes=len(blob),
            sha256=hashlib.sha256(blob).hexdigest(),
        )

    def _replace(self, name: str, data: bytes) -> None:
        part = self.path / f"{name}.part"
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.path / name)
        except OSError as error:
            raise BackupError(f"{self.path / name} cannot be written: {error.strerror}") from error

    # --- reading ---------------------------------------------------------------------------------------------------

    def check(self, stored: SegmentFile | SnapshotFile) -> None:
        """
        Check that a file is, byte for byte, what was written.

        :raises BackupError: it is not; the message names it.
        """
        path = self.path / stored.file
        found, size = hashlib.sha256(), 0
        try:
            with path.open("rb") as file:
                while piece := file.read(READ_BYTES):
                    found.update(piece)
                    size += len(piece)
        except FileNotFoundError:
            raise BackupError(f"{path} is missing from the backup: {_ELSEWHERE}") from None
        except OSError as error:
            raise BackupError(f"{path} cannot be read: {error.strerror}") from error
        if size != stored.size_bytes:
            what = "was cut off" if size < stored.size_bytes else "has grown"
            raise BackupError(f"{path} {what}: it has {size} bytes, not {stored.size_bytes}: {_ELSEWHERE}")
        if found.hexdigest() != stored.sha256:
            raise BackupError(f"{path} is not what was written (its SHA-256 differs): {_ELSEWHERE}")

    def snapshot(self, stored: SnapshotFile) -> bytes:
        """
        A snapshot's bytes, checked.

        :raises BackupError: they are not those that were written.
        """
        self.check(stored)
        return (self.path / stored.file).read_bytes()

    def entries(self, segments: Iterable[SegmentFile], *, start: int = 1) -> Iterator[LogEntry]:
        """
        The entries of segments from `start` on, in order; each file is checked before its first.

        :raises BackupError: a file is damaged, or its entries are not those that the manifest names.
        """
        for segment in segments:
            if segment.last < start:
                continue
            self.check(segment)
            expected, path = segment.first, self.path / segment.file
            try:
                for entry in read_log_file(path):
                    if entry.seq != expected or entry.seq > segment.last:
                        raise BackupError(
                            f"{path} has entry {entry.seq} where {expected} is due (it should hold {segment.first} to "
                            f"{segment.last}): {_ELSEWHERE}"
                        )
                    expected += 1
                    if entry.seq >= start:
                        yield entry
            except LogFileError as error:
                raise BackupError(f"{error}: {_ELSEWHERE}") from error
            if expected != segment.last + 1:
                raise BackupError(f"{path} ends at entry {expected - 1}, not at {segment.last}: {_ELSEWHERE}")


_ELSEWHERE: Final = "take another copy of this backup, or make a new one into an empty directory"


class SegmentWriter:
    """Writes consecutive entries, and chains them."""

    def __init__(self, directory: Path, first: int) -> None:
        self._path = directory / f"log-{first:012d}-open.jsonl.gz"
        self._writer = LogFileWriter(self._path)
        self._writer.__enter__()
        self.first = first
        self.next = first
        self._time_ms = 0

    def write(self, entries: list[LogEntry]) -> None:
        """
        Add entries.

        :raises BackupError: they do not follow on those before.
        """
        for entry in entries:
            if entry.seq != self.next:
                raise BackupError(f"the log has entry {entry.seq} where {self.next} is due: see `headgate audit`")
            self.next += 1
        self._time_ms = entries[-1].time_ms if entries else self._time_ms
        try:
            self._writer.write(entries)
        except OSError as error:
            raise BackupError(f"{self._path} cannot be written: {error.strerror}") from error

    def close(self, log_hash: str) -> SegmentFile:
        """The finished segment, at whose last entry the log has this hash."""
        try:
            self._writer.__exit__(None, None, None)
            path = self._path.with_name(f"log-{self.first:012d}-{self.next - 1:012d}.jsonl.gz")
            self._path.replace(path)
            path.chmod(0o600)
            with path.open("rb") as file:
                os.fsync(file.fileno())
            size, sha256 = path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise BackupError(f"{self._path} cannot be written: {error.strerror}") from error
        return SegmentFile(
            file=path.name,
            first=self.first,
            last=self.next - 1,
            log_hash=log_hash,
            time_ms_last=self._time_ms,
            size_bytes=size,
            sha256=sha256,
        )

    def abandon(self) -> None:
        """Remove the file."""
        with suppress(OSError):
            # A full disk refuses the last bytes too.
            self._writer.__exit__(BackupError, None, None)


def chained(log_hash: str, entries: Iterable[LogEntry]) -> str:
    """The hash of a log with this hash after these entries."""
    for entry in entries:
        log_hash = chain(log_hash, digest(entry.payload))
    return log_hash
