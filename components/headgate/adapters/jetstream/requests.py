"""
The pipelined requester: many requests in flight on one connection, answers matched by token, and every call ends.

`Connection` owns one; appends, publishes and API calls all go through it. A call ends in one of four ways: the reply;
`NotSent` (no effect, certainly); `OutcomeUnknown` (its deadline passed or the connection broke after it was sent);
`BrokerClosed`. The number of requests in flight and their bytes are bounded; callers wait for room, first come first
served.

Writing to a lost connection is refused here rather than buffered by the client, so that a command cannot stay buffered
for minutes and be executed when it is obsolete. (What the client had in its socket buffer when the connection broke may
still arrive late; it is no more than the window, and the fences make it harmless.)
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from headgate.adapters.jetstream.errors import BrokerClosed, BrokerError, NotSent, OutcomeUnknown
from headgate.adapters.jetstream.frames import frame

SWEEP_INTERVAL_S = 0.1


class Wire(Protocol):
    """The part of the client that requests need."""

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed permanently."""
        ...

    def write(self, data: bytes) -> None:
        """Write whole frames to the socket, now. Only while connected."""
        ...


class _InFlight(Struct):
    future: asyncio.Future[bytes]
    subject: str
    deadline: float


class Window:
    """Bounds what is in flight, in messages and bytes. One message is always allowed, however large."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.messages = 0
        self.bytes = 0
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    @property
    def waiting(self) -> int:
        """How many callers wait for room."""
        return len(self._waiting)

    async def enter(self, size: int) -> None:
        """Takes room for one message of `size` bytes, in order of arrival."""
        if not self._waiting and self._fits(size):
            self._take(size)
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((granted, size))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.leave(size)
            else:
                # It may have been dropped already: freed room skips cancelled callers.
                with contextlib.suppress(ValueError):
                    self._waiting.remove((granted, size))
                self._grant()
            raise

    def leave(self, size: int) -> None:
        """Returns room and admits the next callers."""
        self.messages -= 1
        self.bytes -= size
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._fits(self._waiting[0][1]):
            granted, size = self._waiting.popleft()
            if not granted.done():
                self._take(size)
                granted.set_result(None)

    def _fits(self, size: int) -> bool:
        return self.messages < self.messages_max and (self.messages == 0 or self.bytes + size <= self.bytes_max)

    def _take(self, size: int) -> None:
        self.messages += 1
        self.bytes += size


class Requests:
    """The requester of one connection. The owner reports each message to `inbox`.*, and a broken connection."""

    def __init__(self, wire: Wire, inbox: str, *, messages_max: int, bytes_max: int, timeout_s: float) -> None:
        self.inbox = inbox
        self._wire = wire
        self._timeout_s = timeout_s
        self._window = Window(messages_max, bytes_max)
        self._in_flight: dict[str, _InFlight] = {}
        self._token = 0
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = ""

    @property
    def in_flight(self) -> int:
        """The number of requests that wait for their answer."""
        return len(self._in_flight)

    async def request(
        self,
        subject: str,
        payload: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        before: bytes = b"",
        timeout_s: float | None = None,
    ) -> bytes:
        """
        Sends one request and waits for its reply. `before` are frames that are sent before it, in the same write.

        :raises NotSent: it had no effect. :raises OutcomeUnknown: it was sent and not answered. :raises BrokerClosed:
        the connection is closed permanently. :raises PermissionDenied: this user may not publish on the subject.
        """
        size = len(payload) + len(before)
        await self._window.enter(size)
        try:
            return await self._send(subject, payload, headers, before, timeout_s or self._timeout_s)
        finally:
            self._window.leave(size)

    async def on_reply(
        self,
        subject: bytes,
        reply: bytes,  # noqa: ARG002
        payload: bytes,
        status: dict[str, str] | None,
    ) -> None:
        """A message has arrived in the inbox (a `Handler` of the connection)."""
        waiting = self._in_flight.get(subject.rpartition(b".")[2].decode())
        if waiting is None or waiting.future.done():
            return
        if not payload and status is not None and status.get("Status") == "503":
            waiting.future.set_exception(
                NotSent(f"no responder on {waiting.subject} (no JetStream, or the stream has no leader now)")
            )
        else:
            waiting.future.set_result(payload)

    def subject_of(self, lower: str) -> str | None:
        """The subject of a pending request, by its lower case."""
        return next((each.subject for each in self._in_flight.values() if each.subject.lower() == lower), None)

    def deny(self, subject: str, error: BrokerError) -> None:
        """The broker has dropped what was sent on a subject: there will be no answer."""
        for waiting in self._in_flight.values():
            if waiting.subject == subject and not waiting.future.done():
                waiting.future.set_exception(error)

    def connection_lost(self) -> None:
        """Ends everything in flight as unknown: no answer can arrive any more."""
        for waiting in self._in_flight.values():
            if not waiting.future.done():
                waiting.future.set_exception(
                    OutcomeUnknown(f"the connection broke before {waiting.subject} was answered")
                )

    def close(self, reason: str) -> None:
        """Ends everything in flight and refuses all that follows."""
        self._closed = reason
        self.connection_lost()
        if self._sweep is not None:
            self._sweep.cancel()

    async def _send(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None, before: bytes, timeout_s: float
    ) -> bytes:
        self._check_connected()
        loop = asyncio.get_running_loop()
        self._token += 1
        token = str(self._token)
        data = before + frame(subject, payload, headers, reply=f"{self.inbox}.{token}")
        future: asyncio.Future[bytes] = loop.create_future()
        self._in_flight[token] = _InFlight(future, subject, loop.time() + timeout_s)
        self._arm()
        try:
            self._wire.write(data)
            return await future
        finally:
            del self._in_flight[token]

    def _check_connected(self) -> None:
        if self._closed or self._wire.is_closed:
            raise BrokerClosed(self._closed or "the connection to NATS is closed")
        if not self._wire.is_connected:
            raise NotSent("not connected to NATS")

    def _arm(self) -> None:
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_INTERVAL_S, self._on_sweep)

    def _on_sweep(self) -> None:
        self._sweep = None
        now = asyncio.get_running_loop().time()
        for waiting in self._in_flight.values():
            if waiting.deadline <= now and not waiting.future.done():
                waiting.future.set_exception(OutcomeUnknown(f"no answer on {waiting.subject} within the time allowed"))
        if self._in_flight and not self._closed:
            self._arm()
