"""
Clients that follow events: limits on their number, their lag, and their total memory.

New events are read once, encoded once and shared by all (`Recent`, a ring of at most `RECENT_BYTES_MAX`). A client that
requests older events, or has fallen out of the ring, reads the log itself, in slices of about `SLICE_BYTES`; only
`READING_MAX` clients do so at a time, the others wait in a queue. At most `PIECE_BYTES` are passed to each at once, and
a client that takes none of them for `WRITE_TIMEOUT_S` is disconnected. So a client that reads slowly, or not at all,
costs two pieces and a place, whatever the log holds; `CLIENTS_MAX` bounds the places.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import anyio
import msgspec
from aiohttp import web

from headgate.adapters.log import Log, LogEntry, LogError
from headgate.events.commit import Position
from headgate.web.events import Admits, Filter, ServerSentEvent, told_by

CLIENTS_MAX: Final = 128
READING_MAX: Final = 4
RECENT_BYTES_MAX: Final = 8 * 1024 * 1024
SLICE_BYTES: Final = 1024 * 1024
SLICE_ENTRIES_MAX: Final = 2_000
PIECE_BYTES: Final = 64 * 1024
WRITE_TIMEOUT_S: Final = 20.0
HEARTBEAT_S: Final = 15.0
RECHECK_S: Final = 60.0
"""The interval between two checks of whether a client may still see what it follows."""

ALIVE: Final = b": alive\n\n"


class CutOffError(Exception):
    """Raised when a client took nothing for too long, is gone, or has lost its permission."""


class _Kept(msgspec.Struct, frozen=True):
    seq: int
    told: tuple[ServerSentEvent, ...]
    size: int


class Recent:
    """The end of the log, encoded, shared by all followers. Runs while there is one."""

    def __init__(self, log: Log, admits: Admits) -> None:
        self.size = 0
        self._log = log
        self._admits = admits
        self._kept: deque[_Kept] = deque()
        self._next = 0
        self._news = asyncio.Event()
        self._clients = 0
        self._reader: asyncio.Task[None] | None = None
        self._why_ended: BaseException | None = None

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Keep the ring filled, for as long as the block runs."""
        self._clients += 1
        try:
            if self._reader is None or self._reader.done():
                self._forget()
                self._next = await self._log.last_seq() + 1
                if self._reader is None or self._reader.done():  # no other client was faster
                    self._reader = asyncio.create_task(self._read(self._next))
            yield
        finally:
            self._clients -= 1
            if not self._clients:
                await self._stop()

    @property
    def next_seq(self) -> int:
        """The position that comes next."""
        return self._next

    def has(self, seq: int) -> bool:
        """Whether everything from a position on is here, or is still to be appended."""
        first = self._kept[0].seq if self._kept else self._next
        return first <= seq <= self._next

    def since(self, seq: int) -> tuple[list[ServerSentEvent], int]:
        """Some of the data from a position on, about a piece, and the position after it."""
        told: list[ServerSentEvent] = []
        size = 0
        for kept in self._kept:
            if kept.seq < seq:
                continue
            if size and size + kept.size > PIECE_BYTES:
                break
            told += kept.told
            size += kept.size
            seq = kept.seq + 1
        return told, seq

    async def wait(self, seq: int) -> None:
        """
        Until there is something from a position on.

        Raises CutOffError when the log can no longer be read.
        """
        while self._next <= seq:
            if self._reader is None or self._reader.done():
                raise CutOffError(f"the log cannot be followed: {self._why_ended or 'it is no longer read'}")
            news = self._news
            await news.wait()

    async def _read(self, start: int) -> None:
        try:
            async with self._log.tail(start) as tail:
                while True:
                    for entry in await tail.receive():
                        self._keep(entry)
                    self._tell()
        except LogError as error:
            self._why_ended = error
        finally:
            self._tell()

    def _keep(self, entry: LogEntry) -> None:
        told = tuple(told_by(entry, self._admits))
        kept = _Kept(entry.seq, told, sum(len(each.data) for each in told))
        self._kept.append(kept)
        self.size += kept.size
        self._next = entry.seq + 1
        while self.size > RECENT_BYTES_MAX and len(self._kept) > 1:
            self.size -= self._kept.popleft().size

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _forget(self) -> None:
        self._kept.clear()
        self.size = 0

    async def _stop(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader
        self._forget()


class Streams:
    """All clients of one process that follow events. `admits` tells commits from entries that are refused."""

    def __init__(self, admits: Admits) -> None:
        self._admits = admits
        self.clients = 0
        self.reading = 0
        self.cut_off = 0
        self._recent: Recent | None = None
        self._places = anyio.Semaphore(READING_MAX)

    @property
    def has_room(self) -> bool:
        """Whether another client may follow."""
        return self.clients < CLIENTS_MAX

    async def serve(
        self,
        response: web.StreamResponse,
        request: web.Request,
        log: Log,
        *,
        begin: int,
        end: int | None,
        wanted: Filter,
        after: Position | None,
        may_go_on: Callable[[], Awaitable[bool]],
    ) -> None:
        """Send a client the events from `begin` on, to the position `end` or as they happen, until it disconnects."""
        self.clients += 1
        client = _Client(response, request, wanted, after, may_go_on)
        try:
            if end is not None:
                await self._from_log(client, log, begin, end)
            else:
                await self._follow(client, log, begin)
        except CutOffError:
            self.cut_off += 1
            client.abort()
        except (ConnectionResetError, BrokenPipeError):
            pass
        finally:
            self.clients -= 1

    async def _follow(self, client: "_Client", log: Log, seq: int) -> None:
        recent = self._recent = self._recent or Recent(log, self._admits)
        async with recent.following():
            while True:
                if not recent.has(seq):
                    seq = await self._from_log(client, log, seq, recent.next_seq - 1)
                    continue
                with anyio.move_on_after(HEARTBEAT_S):
                    await recent.wait(seq)
                if not recent.has(seq):
                    continue  # more has arrived at once than is kept
                told, behind = recent.since(seq)
                if behind > seq:
                    await client.tell(told)
                    seq = behind
                else:
                    await client.write(ALIVE)

    async def _from_log(self, client: "_Client", log: Log, seq: int, last: int) -> int:
        """Read the log for one client, slice by slice; the position after what was read."""
        await self._take_place(client)
        count = 16
        try:
            while seq <= last:
                stop, size = min(last, seq + count - 1), 0
                async for entries in log.read(seq, stop=stop):
                    for entry in entries:
                        size += len(entry.payload)
                        await client.tell(list(told_by(entry, self._admits)))
                per_entry = max(size // (stop - seq + 1), 1)
                seq, count = stop + 1, max(1, min(SLICE_BYTES // per_entry, SLICE_ENTRIES_MAX))
        finally:
            self.reading -= 1
            self._places.release()
        return seq

    async def _take_place(self, client: "_Client") -> None:
        """Wait in the queue; keep-alives are sent to waiting clients."""
        while True:
            with anyio.move_on_after(HEARTBEAT_S):
                await self._places.acquire()
                self.reading += 1
                return
            await client.write(ALIVE)


class _Client:
    """One client: its filter, and its connection."""

    def __init__(
        self,
        response: web.StreamResponse,
        request: web.Request,
        wanted: Filter,
        after: Position | None,
        may_go_on: Callable[[], Awaitable[bool]],
    ) -> None:
        self._response = response
        self._request = request
        self._wanted = wanted
        self._after = after
        self._may_go_on = may_go_on
        self._checked_at = anyio.current_time()

    async def tell(self, told: Sequence[ServerSentEvent]) -> None:
        """Write those that match its filter."""
        after = self._after
        data = b"".join(
            each.data for each in told if (after is None or each.position > after) and self._wanted.admits(each)
        )
        if data:
            await self.write(data)

    async def write(self, data: bytes) -> None:
        """
        Write, piece by piece.

        Raises CutOffError when a piece is not taken in time, or the client may no longer see what it follows.
        """
        if anyio.current_time() - self._checked_at > RECHECK_S:
            self._checked_at = anyio.current_time()
            if not await self._may_go_on():
                raise CutOffError("it may no longer see this")
        view = memoryview(data)
        for start in range(0, len(view), PIECE_BYTES):
            with anyio.move_on_after(WRITE_TIMEOUT_S) as scope:
                await self._response.write(view[start : start + PIECE_BYTES])
            if scope.cancelled_caught:
                raise CutOffError(f"it received nothing for {WRITE_TIMEOUT_S:g} s")

    def abort(self) -> None:
        """Drop the connection with its unsent data."""
        if self._request.transport is not None:
            self._request.transport.abort()
