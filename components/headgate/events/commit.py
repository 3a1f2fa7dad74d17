"""
The commit: the unit of append.

A commit is one JetStream message that carries a list of events and is acknowledged as a whole, so that related events
are never visible in part. Its envelope records the producer, its term, the time, the cause and the state that it was
decided on. This module owns the envelope, its encoding and the hash chain; every process reads and writes the log
through it.

Bodies are JSON, because people read these streams during incidents. An unknown field is ignored, so that a newer writer
does not stop an older reader over an addition; an unknown event type stops the reader, because a fold that skips
unknown events does not produce the state of this log.
"""

from hashlib import sha256

import msgspec

from headgate.events.base import EventBase, Producer
from headgate.events.ids import CommitId, Epoch, Seq, UnixMs
from headgate.events.registry import TAGS, Event
from headgate.events.remedy import REMEDY


class Position(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """The position of an event: its commit's stream sequence and its index in it, from 0. Written `<seq>.<index>`."""

    seq: Seq
    index: int = 0

    def __str__(self) -> str:
        return f"{self.seq}.{self.index}"


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """
    The content of one append.

    `number` counts the producer's commits from 1 over all its terms; `prev` is the hash of its commit before this one,
    "" for the first. `time_ms` is the producer's clock at the append, never smaller than in its commit before. `cause`
    is the position of the event that made the producer append, `decided_at` the last sequence whose state it decided
    on. `trace` is a W3C traceparent. `log` is the hash of the whole log up to the position `at`, the last that the
    producer had folded when it encoded the commit: so each commit attests everything before it, of all producers.
    """

    id: CommitId
    producer: Producer
    epoch: Epoch
    number: int
    time_ms: UnixMs
    prev: str
    events: tuple[Event, ...]
    decided_at: Seq = Seq(0)
    cause: Position | None = None
    trace: str | None = None
    log: str = ""
    at: Seq = Seq(0)


class LoggedCommit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """
    A commit as stored in the log: at its stream sequence, with the hash of its bytes.

    `stored_ms` is the broker's time when it was stored, 0 where that is not known; `subject` is its subject, "" where
    it was not read from a stream. An entry that does not decode has an empty commit and the reason in `flaw`: whether
    that stops its reader or the entry is refused depends on its position (`headgate.core.log.refusal`). `payload` are
    the bytes of an entry that claims to be signed, `anchor` those of a later commit that vouches for it
    (`headgate.events.signing`).
    """

    seq: Seq
    hash: str
    commit: Commit
    stored_ms: UnixMs = UnixMs(0)
    subject: str = ""
    flaw: str = ""
    payload: bytes = b""
    anchor: bytes = b""


class UnreadableCommitError(Exception):
    """
    Raised when a log entry does not decode or contains an event type that is unknown to this version.

    The reader must stop: state beyond this position would not be the state of this log.
    """

    def __init__(self, *, seq: int, subject: str, why: str) -> None:
        super().__init__(
            f"cannot read the log entry at position {seq} on {subject}: {why}. Nothing after it was folded. "
            f"If a newer Headgate wrote it, run that version or newer; otherwise look at the entry with "
            f"`nats stream get`. {REMEDY}."
        )
        self.seq = seq
        self.subject = subject
        self.why = why


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Commit] = msgspec.json.Decoder(Commit)
_event_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)

HASH_HEX_LEN = 32
"""Hashes are the first 128 bits of SHA-256, in hex."""


def digest(data: bytes) -> str:
    """The project's one content hash: SHA-256, first 128 bits, hex."""
    return sha256(data).hexdigest()[:HASH_HEX_LEN]


def chain(log_hash: str, commit_hash: str) -> str:
    """The hash of a log prefix that ends with this commit: the hash before it, hashed together with the commit's."""
    return digest(f"{log_hash}{commit_hash}".encode())


def commit_id(producer: Producer, epoch: Epoch, number: int) -> CommitId:
    """The deterministic id of a producer's number-th commit."""
    # A StrEnum formats as its value, several times faster than reading `.value`.
    return CommitId(f"{producer}-{epoch}-{number}")


def encode_commit(commit: Commit) -> bytes:
    """The bytes that are appended."""
    return _encoder.encode(commit)


def encode_event(event: EventBase) -> bytes:
    """One event as JSON, as in its commit."""
    return _encoder.encode(event)


def decode_event(payload: bytes) -> Event:
    """One event of JSON, whichever version wrote it. Raises msgspec.DecodeError, also for an unknown type."""
    return _event_decoder.decode(payload)


def decode_commit(seq: int, subject: str, payload: bytes, stored_ms: int = 0) -> LoggedCommit:
    """
    The commit at a position of the log, which the broker stored at `stored_ms`.

    Raises UnreadableCommitError when the bytes are no commit, or contain an unknown event type or value.
    """
    logged = decode_entry(seq, subject, payload, stored_ms)
    if logged.flaw:
        raise UnreadableCommitError(seq=seq, subject=subject, why=logged.flaw)
    return logged


def decode_entry(seq: int, subject: str, payload: bytes, stored_ms: int = 0) -> LoggedCommit:
    """An entry of the log, whatever it contains: for the fold, and for readers that check whether it is refused."""
    flaw = ""
    try:
        commit = _decoder.decode(payload)
    except msgspec.MsgspecError as error:
        commit, flaw = _NOTHING, _explain(payload, error)
    except UnicodeDecodeError as error:
        commit, flaw = _NOTHING, f"it is not UTF-8 ({error.reason})"
    except RecursionError:
        commit, flaw = _NOTHING, "it is nested too deeply"
    return LoggedCommit(
        seq=Seq(seq),
        hash=digest(payload),
        commit=commit,
        stored_ms=UnixMs(stored_ms),
        subject=subject,
        flaw=flaw,
        payload=payload if payload.startswith(_SIGNED) else b"",
    )


_SIGNED = b'{"sig":'
_NOTHING = Commit(
    id=CommitId(""),
    producer=Producer.INFORMER_BRIDGE,
    epoch=Epoch(0),
    number=0,
    time_ms=UnixMs(0),
    prev="",
    events=(),
)


class _BareEvent(msgspec.Struct, frozen=True):
    type: str = ""


class _BareCommit(msgspec.Struct, frozen=True):
    events: tuple[_BareEvent, ...] = ()


def _explain(payload: bytes, error: msgspec.MsgspecError) -> str:
    """The flaw of an entry, with the tag of an unknown event type."""
    try:
        bare = msgspec.json.decode(payload, type=_BareCommit)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return f"it is not a commit ({error})"
    unknown = sorted({event.type for event in bare.events} - TAGS.keys())
    if unknown:
        return f"this version does not know the event type{'s' if len(unknown) > 1 else ''} {', '.join(unknown)}"
    return str(error)
