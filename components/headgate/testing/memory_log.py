"""
The log, the leases and the snapshots in memory.

The twins of `headgate.adapters.jetstream`, under the same contract suite.

Simulations use the synchronous, deterministic `MemoryLog`: no event loop, no clock of its own (the caller gives one),
nothing random. `AsyncMemoryLog` puts the adapter's interface around it, for processes that run inside one event loop.
`MemoryLog.lose_suffix`, `tear_end` and `lose_middle` damage it the way a broken broker would.
"""

import bisect
import hashlib
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
import anyio.lowlevel

from headgate.adapters.lease import Lease, LeaseRecord, LeaseRegister, Registered
from headgate.adapters.log import (
    Appended,
    AppendOutcome,
    BlobInfo,
    BlobNotFound,
    CommitTooLarge,
    Conflict,
    EntryNotFound,
    LogEntry,
    LogHole,
    LogTorn,
    LogTruncated,
)

if TYPE_CHECKING:
    from headgate.adapters.log import Blobs, Log, LogTail

PAYLOAD_BYTES_MAX = 1024 * 1024
"""What a NATS server takes by default."""


class MemoryLog:
    """
    A cell's log as a list. `now_ms` gives the time of each entry; by default the time is always 0.

    Listeners are called after each append, in the order they were added; that is how a tail wakes up.
    """

    def __init__(
        self,
        cell: str = "main",
        *,
        now_ms: Callable[[], int] = lambda: 0,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        identity: str = "memory",
    ) -> None:
        self.cell = cell
        self.name = f"HEADGATE_{cell}"
        self.identity = identity
        self.listeners: list[Callable[[], None]] = []
        self.now_ms = now_ms
        self._payload_bytes_max = payload_bytes_max
        self._entries: dict[int, LogEntry] = {}
        self._by_subject: dict[str, list[int]] = {}
        self._last_seq = 0

    def __len__(self) -> int:
        return len(self._entries)

    def subject(self, producer: str) -> str:
        """The subject of a producer's commits."""
        return f"headgate.{self.cell}.log.{producer}"

    def append(self, producer: str, payload: bytes, *, expected_last: int) -> AppendOutcome:
        """See `Log.append`."""
        subject = self.subject(producer)
        if len(payload) > self._payload_bytes_max:
            raise CommitTooLarge(subject, len(payload), self._payload_bytes_max)
        mine = self._by_subject.setdefault(subject, [])
        last = mine[-1] if mine else 0
        if last != expected_last:
            successor = next((seq for seq in mine if seq > expected_last), 0)
            repeated = successor > 0 and self._entries[successor].payload == payload
            return Appended(successor) if repeated else Conflict(expected_last, last)
        return Appended(self.publish(subject, payload))

    def publish(self, subject: str, payload: bytes) -> int:
        """What any user with the broker's permission can do: store a message on a subject, without a fence."""
        self._last_seq += 1
        self._entries[self._last_seq] = LogEntry(self._last_seq, subject, self.now_ms(), payload)
        self._by_subject.setdefault(subject, []).append(self._last_seq)
        for listener in tuple(self.listeners):
            listener()
        return self._last_seq

    def read(self, start: int, *, stop: int | None = None, count_max: int | None = None) -> list[LogEntry]:
        """
        Entries from `start` up to and including `stop` (by default the last), at most `count_max`.

        :raises LogTruncated: the log ends before `start - 1`.
        :raises LogHole: an entry is missing.
        :raises LogTorn: an entry is missing, and all after it.
        """
        if self._last_seq < start - 1:
            raise LogTruncated(
                f"stream {self.name}", read_up_to=start - 1, detail=f"the stream ends at {self._last_seq}"
            )
        last = self._last_seq if stop is None else min(stop, self._last_seq)
        if count_max is not None:
            last = min(last, start + count_max - 1)
        found: list[LogEntry] = []
        for seq in range(start, last + 1):
            entry = self._entries.get(seq)
            if entry is None:
                if found:
                    break
                raise self._missing(seq)
            found.append(entry)
        return found

    def _missing(self, seq: int) -> LogHole | LogTorn:
        """The error for an entry that is missing."""
        beyond = min((other for other in self._entries if other > seq), default=0)
        if not beyond:
            return LogTorn(f"stream {self.name}", ends_at=max(self._entries, default=0), claimed=self._last_seq)
        return LogHole(f"stream {self.name}", expected=seq, found=beyond)

    def verify(self) -> None:
        """See `Log.verify`."""
        if self._last_seq and self._last_seq not in self._entries:
            raise self._missing(self._last_seq)
        for seq in range(self.first_seq(), self._last_seq):
            if seq not in self._entries:
                raise self._missing(seq)

    def last_seq(self, producer: str | None = None) -> int:
        """See `Log.last_seq`."""
        if producer is None:
            return self._last_seq
        mine = self._by_subject.get(self.subject(producer))
        return mine[-1] if mine else 0

    def first_seq(self) -> int:
        """See `Log.first_seq`."""
        return next(iter(self._entries), self._last_seq + 1)

    def get(self, seq: int) -> LogEntry:
        """See `Log.get`."""
        entry = self._entries.get(seq)
        if entry is None:
            raise EntryNotFound(self.name, seq)
        return entry

    def next_of(self, producer: str, start: int) -> LogEntry | None:
        """See `Log.next_of`."""
        mine = self._by_subject.get(self.subject(producer), [])
        at = bisect.bisect_left(mine, start)
        return self._entries[mine[at]] if at < len(mine) else None

    def lose_suffix(self, count: int) -> None:
        """Damage: the last `count` entries are gone, without a trace in the store."""
        kept = max(self._last_seq - count, 0)
        self._forget(lambda seq: seq > kept)
        self._last_seq = kept

    def tear_end(self, count: int) -> None:
        """Damage: the last `count` entries are gone and still claimed, as after a power failure."""
        kept = max(self._last_seq - count, 0)
        self._forget(lambda seq: seq > kept)

    def lose_middle(self, first: int, last: int) -> None:
        """Damage: the entries from `first` to `last` are gone; the log's end is not."""
        self._forget(lambda seq: first <= seq <= last)

    def _forget(self, gone: Callable[[int], bool]) -> None:
        self._entries = {seq: entry for seq, entry in self._entries.items() if not gone(seq)}
        self._by_subject = {
            subject: [seq for seq in seqs if not gone(seq)] for subject, seqs in self._by_subject.items()
        }


class MemoryTail:
    """A tail of a `MemoryLog`, an async context manager; hands out at most `batch_max` entries at a time."""

    def __init__(self, log: MemoryLog, start: int, *, batch_max: int = 2_000) -> None:
        if start < 1:
            raise ValueError(f"the log starts at 1, not {start}")
        self._log = log
        self._position = start - 1
        self._identity = log.identity
        self._batch_max = batch_max
        self._wake = anyio.Event()

    async def __aenter__(self) -> Self:
        self._log.listeners.append(self._on_append)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.listeners.remove(self._on_append)

    @property
    def position(self) -> int:
        """See `LogTail.position`."""
        return self._position

    @property
    def lag(self) -> int:
        """See `LogTail.lag`."""
        return max(self._log.last_seq() - self._position, 0)

    @property
    def caught_up(self) -> bool:
        """See `LogTail.caught_up`."""
        return self.lag == 0

    async def receive(self) -> list[LogEntry]:
        """See `LogTail.receive`."""
        await anyio.lowlevel.checkpoint()
        while True:
            entries = self._log.read(self._position + 1, count_max=self._batch_max)
            if entries:
                self._position = entries[-1].seq
                return entries
            await self._wake.wait()
            self._wake = anyio.Event()

    def _on_append(self) -> None:
        self._wake.set()


class AsyncMemoryLog:
    """`headgate.adapters.log.Log` over a `MemoryLog`, which several of these may share, as processes share a stream."""

    def __init__(self, memory: MemoryLog | None = None) -> None:
        self.memory = memory if memory is not None else MemoryLog()

    @property
    def name(self) -> str:
        """See `Log.name`."""
        return self.memory.name

    @property
    def identity(self) -> str:
        """See `Log.identity`."""
        return self.memory.identity

    def subject(self, producer: str) -> str:
        """See `Log.subject`."""
        return self.memory.subject(producer)

    async def append(self, producer: str, payload: bytes, *, expected_last: int, commit_id: str) -> AppendOutcome:  # noqa: ARG002
        """See `Log.append`."""
        await anyio.lowlevel.checkpoint()
        return self.memory.append(producer, payload, expected_last=expected_last)

    async def read(self, start: int, *, stop: int | None = None) -> AsyncGenerator[list[LogEntry], None]:
        """See `Log.read`."""
        last = self.memory.last_seq() if stop is None else min(stop, self.memory.last_seq())
        position = start - 1
        while position < last or position > self.memory.last_seq():
            await anyio.lowlevel.checkpoint()
            entries = self.memory.read(position + 1, stop=last, count_max=2_000)
            position = entries[-1].seq
            yield entries

    def tail(self, start: int, *, linger_s: float = 0.0) -> MemoryTail:  # noqa: ARG002
        """See `Log.tail`."""
        return MemoryTail(self.memory, start)

    async def verify(self) -> None:
        """See `Log.verify`."""
        await anyio.lowlevel.checkpoint()
        self.memory.verify()

    async def now_ms(self) -> int:
        """See `Log.now_ms`."""
        await anyio.lowlevel.checkpoint()
        return self.memory.now_ms()

    async def last_seq(self, producer: str | None = None) -> int:
        """See `Log.last_seq`."""
        return self.memory.last_seq(producer)

    async def first_seq(self) -> int:
        """See `Log.first_seq`."""
        return self.memory.first_seq()

    async def get(self, seq: int) -> LogEntry:
        """See `Log.get`."""
        return self.memory.get(seq)

    async def next_of(self, producer: str, start: int) -> LogEntry | None:
        """See `Log.next_of`."""
        return self.memory.next_of(producer, start)


class MemoryRegister:
    """A lease's register in memory. `read_now` and `write_now` serve simulations with `LeaseRules`."""

    def __init__(self) -> None:
        self._registered = Registered(0, None)

    def read_now(self) -> Registered:
        """What the register holds."""
        return self._registered

    def write_now(self, record: LeaseRecord, *, expected: int) -> int | None:
        """Compare and set."""
        if self._registered.revision != expected:
            return None
        self._registered = Registered(expected + 1, record)
        return expected + 1

    async def read(self) -> Registered:
        """See `LeaseRegister.read`."""
        await anyio.lowlevel.checkpoint()
        return self.read_now()

    async def write(self, record: LeaseRecord, *, expected: int) -> int | None:
        """See `LeaseRegister.write`."""
        await anyio.lowlevel.checkpoint()
        return self.write_now(record, expected=expected)


class MemoryLeases:
    """The leases of a cell in memory, by producer."""

    def __init__(self) -> None:
        self._registers: dict[str, MemoryRegister] = {}

    def register(self, producer: str) -> MemoryRegister:
        """The register of one producer's lease."""
        return self._registers.setdefault(producer, MemoryRegister())

    def lease(self, producer: str, holder: str, *, term_ms: int = 5_000) -> Lease:
        """A candidate for a producer's lease."""
        return Lease(self.register(producer), holder, term_ms=term_ms)

    async def holder(self, producer: str) -> LeaseRecord | None:
        """The record of a producer's lease; None if it was never held."""
        return self.register(producer).read_now().record


class MemoryBlobs:
    """`headgate.adapters.log.Blobs` in memory."""

    def __init__(self, *, now_ms: Callable[[], int] = lambda: 0) -> None:
        self._now_ms = now_ms
        self._blobs: dict[str, tuple[BlobInfo, bytes]] = {}

    async def put(self, name: str, data: bytes, *, position: int) -> BlobInfo:
        """See `Blobs.put`."""
        info = BlobInfo(
            name=name,
            position=position,
            size_bytes=len(data),
            stored_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            created_ms=self._now_ms(),
        )
        self._blobs[name] = (info, data)
        return info

    async def get(self, name: str) -> bytes:
        """See `Blobs.get`."""
        if name not in self._blobs:
            raise BlobNotFound(f"there is no blob {name}")
        return self._blobs[name][1]

    async def listing(self) -> list[BlobInfo]:
        """See `Blobs.listing`."""
        return sorted((info for info, _ in self._blobs.values()), key=lambda info: (info.position, info.name))

    async def delete(self, name: str) -> None:
        """See `Blobs.delete`."""
        self._blobs.pop(name, None)

    async def keep_last(self, count: int) -> list[str]:
        """See `Blobs.keep_last`."""
        if count < 1:
            raise ValueError(f"at least one blob must be kept, not {count}")
        superfluous = [info.name for info in (await self.listing())[:-count]]
        for name in superfluous:
            del self._blobs[name]
        return superfluous


if TYPE_CHECKING:

    def _keep_the_promises(
        log: AsyncMemoryLog, tail: MemoryTail, blobs: MemoryBlobs, register: MemoryRegister
    ) -> tuple[Log, LogTail, Blobs, LeaseRegister]:
        return log, tail, blobs, register
