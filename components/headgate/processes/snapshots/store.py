"""
Stored snapshots, and how a process starts from one.

A snapshot is the canonical encoding of a state, preceded by one line of JSON that describes it (`SnapshotMeta`). It
speeds up a start and is never authoritative: it is only trusted if the log itself contains its hashes
(`snapshot.taken`). A snapshot with any defect (torn, changed, not in the log, written by another version) is skipped
for an older one, and in the end for folding the whole log. A defect that it proves in the *log* stops the process: a
stream that ends before the snapshot, that is another stream, or that holds another commit at the snapshot's position
has lost commits that this cell has already acted on.

Used by the host at its start, by the snapshotter when it stores and verifies, and by the read side for queries about
the past.
"""

import importlib.metadata
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from headgate.adapters.log import (
    BlobDamaged,
    BlobInfo,
    BlobNotFound,
    Blobs,
    EntryNotFound,
    Log,
    LogDamaged,
    LogEntry,
)
from headgate.core import fold
from headgate.core.fold import quarantine
from headgate.core.log.refusal import has_refused
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import UnreadableCommitError, decode_commit, digest
from headgate.events.effects import SnapshotTaken
from headgate.events.ids import Seq, UnixMs
from headgate.events.registry import Event
from headgate.events.remedy import REMEDY

_LOG: Final = logging.getLogger(__name__)

VERSION: Final = importlib.metadata.version("headgate")
FORMAT: Final = 3
"""The version of the blob's layout: 3 has references to jobs with their group and kind. Versions read one layout."""
TABLES: Final = 1
"""
The version of what the tables have to have, from 1 on.

They are read by field name, so they may grow without a new layout, and an older version may go on from a newer one's
snapshot. It leaves the fields that it does not know out of its own, so one with a lower number is not started from
where a state without the new field would not be that of the log: 1 has the settings and the labels that a configuration
has copied, and the Workloads that pods name.
"""


class SnapshotMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a snapshot. `log_identity` distinguishes the log's stream from a later one of the same name."""

    cell: str
    position: Seq
    state_hash: str
    log_hash: str
    log_identity: str
    taken_ms: UnixMs
    size_bytes: int
    format: int = FORMAT
    tables: int = 0
    version: str = VERSION


class SnapshotUnusableError(Exception):
    """Raised when a snapshot cannot be used for a start; use an older one. The log is not in doubt."""


class LogShorterThanSnapshotError(LogDamaged):
    """Raised when a snapshot proves that the log has lost or changed commits. The process must stop."""

    def __init__(self, log: str, meta: SnapshotMeta, why: str) -> None:
        super().__init__(
            f"{log}: there is a snapshot of position {meta.position}, but {why}. The log has lost commits that this "
            f"cell has acted on. {REMEDY}"
        )


_META = msgspec.json.Decoder(SnapshotMeta)


def pack(state: State, *, log_identity: str, taken_ms: UnixMs) -> tuple[SnapshotMeta, bytes]:
    """A snapshot of the state as it is now. Takes about a second for 100,000 workloads."""
    encoded = fold.encode(state)
    meta = SnapshotMeta(
        cell=state.cell,
        position=state.position,
        state_hash=digest(encoded),
        log_hash=state.log_hash,
        log_identity=log_identity,
        taken_ms=taken_ms,
        size_bytes=len(encoded),
        tables=TABLES,
    )
    return meta, msgspec.json.encode(meta) + b"\n" + encoded


def read_meta(blob: bytes) -> SnapshotMeta:
    """
    The description of a snapshot.

    Raises SnapshotUnusableError when it is none, of a layout that this version does not know, or its tables lack what
    this version needs.
    """
    line, newline, _ = blob.partition(b"\n")
    try:
        meta = _META.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SnapshotUnusableError(f"its first line is no header ({error})") from error
    if not newline or meta.format != FORMAT:
        raise SnapshotUnusableError(f"its layout is {meta.format}, and this version reads {FORMAT}")
    if meta.tables < TABLES:
        raise SnapshotUnusableError(f"its tables are of version {meta.tables}, and this version needs {TABLES}")
    return meta


def is_older(blob: bytes) -> bool:
    """Whether a snapshot is one of an older release, which is skipped and not damage."""
    try:
        meta = _META.decode(blob.partition(b"\n")[0])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return meta.format < FORMAT or (meta.format == FORMAT and meta.tables < TABLES)


def unpack(blob: bytes, cell: str) -> tuple[SnapshotMeta, State]:
    """
    The state in a snapshot.

    Raises SnapshotUnusableError when it cannot be read, or does not match its description.
    """
    meta = read_meta(blob)
    encoded = memoryview(blob)[blob.index(b"\n") + 1 :]
    if meta.cell != cell:
        raise SnapshotUnusableError(f"it belongs to the cell {meta.cell!r}")
    if digest(bytes(encoded)) != meta.state_hash:
        raise SnapshotUnusableError("its bytes are not those that were hashed when it was taken")
    try:
        state = fold.restore(cell, bytes(encoded))
    except Exception as error:  # a version can fold from the log whatever it cannot read
        why = f"version {meta.version} wrote it, and this one cannot read it ({error})"
        raise SnapshotUnusableError(why) from error
    if state.position != meta.position or state.log_hash != meta.log_hash:
        raise SnapshotUnusableError("its state is of another position than it says")
    return meta, state


def rebound(blob: bytes, log_identity: str) -> bytes:
    """A snapshot as one of another stream with the same log. Raises SnapshotUnusableError."""
    meta = read_meta(blob)
    line = msgspec.json.encode(msgspec.structs.replace(meta, log_identity=log_identity))
    return line + blob[blob.index(b"\n") :]


def name_of(position: Seq) -> str:
    """The blob's name."""
    return f"state-{position}"


Trusts = Callable[[bytes], bool]
"""Whether an entry of the snapshotter is signed so that it may vouch for a snapshot."""


async def newest(
    log: Log,
    blobs: Blobs,
    cell: str,
    *,
    up_to: int | None = None,
    tolerant: bool = False,
    trusts: Trusts = lambda _: True,
) -> tuple[State, SnapshotMeta | None]:
    """
    The newest usable snapshot's state (at `up_to` or before), or the empty state when there is none.

    Each snapshot is compared with the log; one that is not in the log is skipped. `trusts` decides whose entries in the
    log count for that: the keys in a snapshot cannot vouch for it.

    Raises LogShorterThanSnapshotError when one proves that the log is damaged; with `tolerant` (for tools that examine
    a damaged cell) it is skipped instead. A snapshot with a quarantined event that another version could not fold is
    skipped too, as long as the log goes back to its start: this version may be able to fold it.
    """
    last = await log.last_seq()
    kept: tuple[State, SnapshotMeta] | None = None
    for info in reversed(await blobs.listing()):
        if up_to is not None and info.position > up_to:
            continue
        try:
            meta, state = unpack(await blobs.get(info.name), cell)
            await _hold_against(log, meta, state, last, trusts)
        except (BlobNotFound, BlobDamaged, SnapshotUnusableError) as error:
            _LOG.warning("snapshot %s is passed over: %s", info.name, error, extra=_extra(info))
        except LogShorterThanSnapshotError as error:
            if not tolerant:
                raise
            _LOG.warning("snapshot %s is passed over: %s", info.name, error, extra=_extra(info))
        else:
            version = quarantine.version_to_retry(state)
            if not version:
                return state, meta
            kept = kept or (state, meta)
            _LOG.info("snapshot %s is passed over: %s could not fold all of it", info.name, version, extra=_extra(info))
    if kept is not None and await log.first_seq() > 1:
        return kept
    return fold.new_state(cell), None


async def check_announced(log: Log, meta: SnapshotMeta, trusts: Trusts = lambda _: True) -> None:
    """
    Check that the log contains the hashes of a snapshot: `snapshot.taken` follows each stored snapshot.

    Raises SnapshotUnusableError.
    """
    entry = await log.next_of(Producer.SNAPSHOTTER.value, meta.position + 1)
    while entry is not None:
        for event in _events(entry) if trusts(entry.payload) else ():
            if not isinstance(event, SnapshotTaken) or event.position < meta.position:
                continue
            if event.position > meta.position:
                raise SnapshotUnusableError(_NOT_ANNOUNCED)
            if (event.state_hash, event.log_hash) != (meta.state_hash, meta.log_hash):
                raise SnapshotUnusableError(
                    f"it was changed after it was taken: its state has the hash {meta.state_hash} and its log "
                    f"{meta.log_hash}, but by position {entry.seq} of the log these are {event.state_hash} and "
                    f"{event.log_hash}"
                )
            return
        entry = await log.next_of(Producer.SNAPSHOTTER.value, entry.seq + 1)
    raise SnapshotUnusableError(_NOT_ANNOUNCED)


_NOT_ANNOUNCED: Final = (
    "the log has no snapshot.taken for it: its snapshotter was stopped before it could append one, or another made it"
)


def _events(entry: LogEntry) -> tuple[Event, ...]:
    try:
        return decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms).commit.events
    except UnreadableCommitError:
        # The fold decides whether this stops a process, when it gets there.
        return ()


def _extra(info: BlobInfo) -> dict[str, str | int]:
    return {"snapshot": info.name, "position": info.position}


async def _hold_against(log: Log, meta: SnapshotMeta, state: State, last: int, trusts: Trusts) -> None:
    """Check that the log still is the one that the snapshot was taken from."""
    if meta.log_identity != log.identity:
        why = f"the stream is another one, created {log.identity}; the snapshot's was created {meta.log_identity}"
        raise LogShorterThanSnapshotError(log.name, meta, why)
    if meta.position > last and meta.position > await log.last_seq():
        raise LogShorterThanSnapshotError(log.name, meta, f"the stream ends at {last}")
    await check_announced(log, meta, trusts)
    try:
        entry = await log.get(meta.position)
    except EntryNotFound:
        first = await log.first_seq()
        if first <= meta.position:
            why = f"the stream, which begins at {first}, cannot deliver the commit at that position"
            raise LogShorterThanSnapshotError(log.name, meta, why) from None
        # Trimmed up to the snapshot: the tail checks that the next entry is the direct successor.
        return
    if has_refused(state, meta.position):
        return  # Not a commit of a producer: the log hash, which the log has just confirmed, covers it.
    expected = next((each.last_hash for each in state.producers.values() if each.last_seq == meta.position), "")
    if digest(entry.payload) != expected:
        why = f"the commit at that position has the hash {digest(entry.payload)}, not {expected or 'the one folded'}"
        raise LogShorterThanSnapshotError(log.name, meta, why)
