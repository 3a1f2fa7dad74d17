"""Clients that do not read: what they cost together has a bound, and they are cut off."""

import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
from tests.support.read_side import ReadSide
from tests.support.waiting import until

from headgate.core.log.refusal import CommitFilter
from headgate.events.base import Producer
from headgate.events.commit import encode_commit
from headgate.events.facts import NamespaceObserved
from headgate.testing.memory_log import AsyncMemoryLog, MemoryLog
from headgate.web import guard, routes, streams
from headgate.web.streams import CLIENTS_MAX, PIECE_BYTES, READING_MAX, RECENT_BYTES_MAX, SLICE_BYTES, Streams

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
COMMIT_BYTES = 256 * 1024


class Side(ReadSide):
    """With a log of large commits, and a look at its streams."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.memory = MemoryLog("main")
        self.view.log = AsyncMemoryLog(self.memory)
        self.streams = Streams(CommitFilter("main").admits)
        monkeypatch.setattr(routes, "Streams", lambda _: self.streams)

    def append(self, mib: int) -> None:
        for _ in range(mib * MIB // COMMIT_BYTES):
            last = self.memory.last_seq("informer-bridge")
            name = f"{last:08}".ljust(COMMIT_BYTES, "n")
            logged = self.log.append(Producer.INFORMER_BRIDGE, NamespaceObserved(name=name))
            self.memory.append("informer-bridge", encode_commit(logged.commit), expected_last=last)

    @asynccontextmanager
    async def stalled(self, path: str, count: int) -> AsyncIterator[None]:
        """Clients that ask and never read."""
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        clients: list[anyio.abc.SocketStream] = []
        try:
            for _ in range(count):
                client = await anyio.connect_tcp(host, int(port))
                clients.append(client)
                await client.send(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            yield
        finally:
            for client in clients:
                await client.aclose()


@pytest.fixture
async def side(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Side]:
    side = Side(monkeypatch)
    async with side.serving():
        yield side


def at_most(clients: int) -> int:
    """What the module's text promises, in bytes: Python's objects for a slice are a few times its text."""
    return clients * 8 * PIECE_BYTES + READING_MAX * 6 * SLICE_BYTES + 2 * RECENT_BYTES_MAX


async def test_clients_that_read_nothing_of_a_long_log_cost_a_bounded_memory(side: Side) -> None:
    """
    As many as may follow, each asking for all of a log of 64 MiB: a few read it, the others wait in line.

    One copy of the log for each, as a tail of its own would keep, would be gigabytes.
    """
    side.append(64)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        async with side.stalled("/events?from=1", CLIENTS_MAX):
            await until(lambda: side.streams.clients == CLIENTS_MAX and side.streams.reading == READING_MAX)
            for _ in range(200):  # those that can get on with something have had every chance to
                await anyio.lowlevel.checkpoint()
            _, peak = tracemalloc.get_traced_memory()
            async with side.session.get(f"{side.url}/events") as answer:
                assert answer.status == 503
        assert peak - before < at_most(CLIENTS_MAX)
        await until(lambda: side.streams.clients == 0)
    finally:
        tracemalloc.stop()


async def test_clients_that_stop_reading_keep_only_the_end_of_the_log_alive(side: Side) -> None:
    """What is read for all of them is kept once, and the oldest of it goes."""
    side.append(1)
    async with side.stalled("/events", 8):
        await until(lambda: side.streams.clients == 8)
        side.append(32)
        recent = side.streams._recent
        assert recent is not None
        await until(lambda: recent.next_seq == side.memory.last_seq() + 1)
        assert recent.size <= RECENT_BYTES_MAX
    await until(lambda: side.streams.clients == 0)
    assert recent.size == 0


@pytest.mark.parametrize("path", ["/events?from=1", "/events?from=1&follow=false"])
async def test_who_takes_nothing_for_too_long_is_cut_off(
    side: Side, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And gives its place to the next in line."""
    monkeypatch.setattr(streams, "WRITE_TIMEOUT_S", 0.05)
    side.append(32)
    async with side.stalled(path, READING_MAX + 2):
        await until(lambda: side.streams.cut_off == READING_MAX + 2)
    assert side.streams.clients == side.streams.reading == 0


async def test_a_slow_client_that_falls_behind_still_misses_nothing(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It falls out of what is kept for all, and reads the log until it is back."""
    monkeypatch.setattr(streams, "RECENT_BYTES_MAX", 2 * COMMIT_BYTES)
    side.append(1)
    seen: list[str] = []
    async with side.session.get(f"{side.url}/events?from=1") as answer:
        side.append(4)
        async for line in answer.content.iter_any():
            seen += [part.split(b"\n")[0].decode() for part in line.split(b"id: ")[1:]]
            await anyio.lowlevel.checkpoint()
            if seen and seen[-1] == f"{side.memory.last_seq()}.0":
                break
    assert seen == [f"{seq + 1}.0" for seq in range(side.memory.last_seq())]


async def test_an_answer_that_nobody_takes_ends_and_frees_its_place(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any answer, not only a stream; beyond the limit of concurrent requests the next gets 503."""
    monkeypatch.setattr(guard, "REQUESTS_MAX", 2)
    side.append(32)
    path = "/state?table=namespaces&limit=10000"
    first: Any = await side.get("/state")
    assert first["position"] == side.log.state.position
    async with side.stalled(path, 2):
        await until(lambda: _is_busy(side))
        monkeypatch.setattr(guard, "WRITE_TIMEOUT_S", 0.05)
    await side.get("/state")


async def _is_busy(side: Side) -> bool:
    async with side.session.get(f"{side.url}/state") as answer:
        return answer.status == 503
