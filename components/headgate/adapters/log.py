"""
The log as its users see it: the contract of all implementations, and the types that cross the boundary.

Processes append commits and read them back. They do so through `Log`, of which there are two implementations: JetStream
(`headgate.adapters.jetstream`) and memory (`headgate.testing.memory_log`); one contract suite runs over both. The log
moves opaque bytes: `headgate.events` defines the meaning of a commit.

The contract:

- `append` is a compare-and-set on the producer's subject. It ends as `Appended` or `Conflict` and as nothing else: it
  waits internally while the broker is lost, the disk is full or a request timed out, the health of the dependency
  reports that, and the true outcome is determined by reading. A commit is never lost once `Appended` was returned, and
  never stored twice.
- `tail` and `read` return each entry exactly once and in order, across any number of broker crashes.
- A log that has lost entries which a reader has already seen is not read further: the reader gets `LogTruncated` or
  `LogHole`. One that claims entries which it cannot deliver is read to its readable end, and then `LogTorn` is raised:
  no reader waits for entries that never arrive.
"""

# ruff: noqa: N818 - exceptions here are named for what happened (LogTruncated), which is what the reader needs to see.

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from headgate.events.remedy import REMEDY


class LogEntry(Struct, frozen=True, gc=False):
    """
    One message of the log.

    `seq` is its position in the stream (from 1), `time_ms` the broker's wall clock when it was stored.
    """

    seq: int
    subject: str
    time_ms: int
    payload: bytes


class Appended(Struct, frozen=True):
    """The commit is durable at stream sequence `seq`; its decisions may now become visible outside."""

    seq: int


class Conflict(Struct, frozen=True):
    """
    Another writer wrote to the producer's subject since `expected`.

    The caller was deposed, or has not read far enough.

    `actual_last` is the last sequence of the subject as the broker saw it. When it is *smaller* than `expected` the
    broker has lost entries. The caller has to stop acting, read the log up to `actual_last`, and decide again if it
    still leads.
    """

    expected: int
    actual_last: int


AppendOutcome = Appended | Conflict


class LogError(Exception):
    """Any condition that stops a user of the log; transient operating errors are never raised."""


class EntryNotFound(LogError):
    """Raised by `get` when no entry has this sequence."""

    def __init__(self, log: str, seq: int) -> None:
        super().__init__(f"{log} has no entry {seq}")
        self.seq = seq


class CommitTooLarge(LogError):
    """Raised by `append` when the broker can never accept a payload of this size; the caller splits the commit."""

    def __init__(self, subject: str, size_bytes: int, size_bytes_max: int) -> None:
        super().__init__(
            f"a message of {size_bytes} bytes for {subject} exceeds the broker's limit of {size_bytes_max} bytes: "
            "split it, or raise max_payload of the NATS server"
        )


class LogDamaged(LogError):
    """The broker no longer holds what was read before. The process must stop; an operator decides."""


class LogTruncated(LogDamaged):
    """Raised when the stream ends before an entry that was already read, was replaced, or is gone."""

    def __init__(self, log: str, *, read_up_to: int, detail: str) -> None:
        super().__init__(f"{log}: {detail}, but entries up to {read_up_to} were already read. {REMEDY}")
        self.read_up_to = read_up_to


class StreamGone(LogDamaged):
    """Raised when a stream that was opened does not exist any more."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream} does not exist any more: the broker has lost its store. {REMEDY}")


class LogTorn(LogDamaged):
    """Raised when the broker claims entries at the end of the log that it cannot deliver."""

    def __init__(self, log: str, *, ends_at: int, claimed: int) -> None:
        super().__init__(
            f"{log}: the log ends at {ends_at}, the stream claims {claimed}: its storage has lost entries "
            f"{ends_at + 1} to {claimed}, as after a power failure. {REMEDY}"
        )
        self.ends_at = ends_at
        self.claimed = claimed


class LogHole(LogDamaged):
    """Raised when the broker skips entries that must be there: the middle of the log is missing."""

    def __init__(self, log: str, *, expected: int, found: int) -> None:
        super().__init__(
            f"{log}: entry {expected} is missing, the next one there is {found}: the log is damaged, or was trimmed. "
            f"{REMEDY}"
        )
        self.expected = expected
        self.found = found


class LogTail(Protocol):
    """
    A reader that follows the log without end.

    One task owns it; its buffer is bounded and the broker waits when it is full.
    """

    async def receive(self) -> list[LogEntry]:
        """
        The next entries in order, at least one; waits for as long as there is none.

        :raises LogDamaged: when the log lost what was already read.
        """
        ...

    @property
    def position(self) -> int:
        """The sequence of the last entry that `receive` returned; `start - 1` before the first."""
        ...

    @property
    def lag(self) -> int:
        """The number of entries known to be in the log and not yet returned by `receive`."""
        ...

    @property
    def caught_up(self) -> bool:
        """Whether `receive` has returned everything that the broker held at its last message."""
        ...


class Log(Protocol):
    """One cell's append-only log."""

    @property
    def name(self) -> str:
        """The stream's name, for messages."""
        ...

    @property
    def identity(self) -> str:
        """Distinguishes this stream from a later one of the same name; a snapshot records it."""
        ...

    def subject(self, producer: str) -> str:
        """The subject which commits of `producer` are stored under."""
        ...

    async def append(self, producer: str, payload: bytes, *, expected_last: int, commit_id: str) -> AppendOutcome:
        """
        Appends one commit if the last entry of the producer's subject still is `expected_last`.

        0 means that there is none yet.

        Appending the same bytes at the same `expected_last` again is the same append: it returns the same `Appended`.
        The outcome of a cancelled call is open; the same call again returns it.

        :raises CommitTooLarge: the broker will never accept it.
        """
        ...

    def read(self, start: int, *, stop: int | None = None) -> AsyncIterator[list[LogEntry]]:
        """
        Entries from `start` (from 1) up to and including `stop`.

        By default the last one there is when the first batch is asked for.

        :raises LogDamaged: when the log is shorter than `start - 1` or entries are missing in its middle.
        """
        ...

    def tail(self, start: int, *, linger_s: float = 0.0) -> AbstractAsyncContextManager[LogTail]:
        """
        Follows the log from entry `start` on, which need not exist yet; `start - 1` must.

        A reader that can take entries by `linger_s` later gets larger batches, which is cheaper for all.
        """
        ...

    async def verify(self) -> None:
        """
        Checks that the broker can deliver all entries from the first to the last.

        :raises LogTorn: it claims entries at the end that it does not have. :raises LogHole: entries are missing in the
        middle.
        """
        ...

    async def now_ms(self) -> int:
        """The time of the broker's clock, which stamps the entries; 0 if it does not return it."""
        ...

    async def last_seq(self, producer: str | None = None) -> int:
        """The last sequence of the log, or of one producer's subject; 0 if there is none."""
        ...

    async def first_seq(self) -> int:
        """The first sequence that is still stored; `last + 1` if the log is empty (1 when it always was)."""
        ...

    async def get(self, seq: int) -> LogEntry:
        """
        One entry.

        :raises EntryNotFound: there is none.
        """
        ...

    async def next_of(self, producer: str, start: int) -> LogEntry | None:
        """The first entry on a producer's subject at or after `start`, or None."""
        ...


class BlobInfo(Struct, frozen=True, kw_only=True):
    """Metadata of a stored blob: its name, the log position it belongs to, and its required size and digest."""

    name: str
    position: int
    size_bytes: int
    stored_bytes: int
    sha256: str
    created_ms: int


class BlobNotFound(LogError):
    """
    Raised when no complete blob has this name, or it was removed while being read.

    List again and take a newer one.
    """


class BlobDamaged(LogError):
    """Raised when a blob's bytes are not what was stored: use an older one."""


class Blobs(Protocol):
    """Large byte strings by name, for snapshots. Blobs are atomic."""

    async def put(self, name: str, data: bytes, *, position: int) -> BlobInfo:
        """Stores `data`; returns once a reader on any machine can get it. Storing a name again replaces it."""
        ...

    async def get(self, name: str) -> bytes:
        """
        The bytes of a blob.

        :raises BlobNotFound: there is no such blob.
        :raises BlobDamaged: its bytes are not those that were stored.
        """
        ...

    async def listing(self) -> list[BlobInfo]:
        """Every complete blob, oldest position first."""
        ...

    async def delete(self, name: str) -> None:
        """Removes a blob; nothing happens if there is none."""
        ...

    async def keep_last(self, count: int) -> list[str]:
        """Removes all but the `count` newest by position, and the remains of torn writes; returns the names removed."""
        ...
