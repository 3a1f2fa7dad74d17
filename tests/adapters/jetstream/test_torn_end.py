"""A store that has lost its newest entries: every reader gets the error at once, and none waits."""

import os
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from headgate.adapters.jetstream import JetStreamLog, connect, open_log
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.log import Log, LogEntry, LogHole, LogTorn, LogTruncated
from headgate.events.base import Producer
from headgate.testing.memory_log import AsyncMemoryLog, MemoryLog

pytestmark = pytest.mark.anyio

PATIENCE_S = 15
ENTRIES = 60
PAYLOAD = b'{"x":"' + b"a" * 150 + b'"}'


def store_files(server: EmbeddedServer, pattern: str) -> list[Path]:
    return sorted(server.store_dir.glob(f"jetstream/*/streams/HEADGATE_main/msgs/{pattern}"))


def cut_last_block(server: EmbeddedServer) -> None:
    block = store_files(server, "*.blk")[-1]
    os.truncate(block, block.stat().st_size - 500)


def remove_last_block(server: EmbeddedServer) -> None:
    store_files(server, "*.blk")[-1].unlink()


async def fill(log: JetStreamLog, count: int) -> None:
    """Entries of one producer, written many at a time: what is in them does not matter."""
    for number in range(count):
        await log.append("scheduler", PAYLOAD, expected_last=number, commit_id=str(number))


async def damaged(server: EmbeddedServer, damage: Callable[[EmbeddedServer], None], *, keep_index: bool = True) -> None:
    """A log of `ENTRIES`, whose store is damaged while the server is down."""
    async with connect(server.url, name="writer") as connection:
        await fill(await open_log(connection, "main"), ENTRIES)
    await server.stop()  # the index is written when a server stops, and every two minutes
    assert store_files(server, "index.db")
    damage(server)
    if not keep_index:
        store_files(server, "index.db")[0].unlink()
    await server.start()


async def what_is_read(log: Log, start: int = 1, stop: int | None = None) -> tuple[list[LogEntry], Exception | None]:
    found: list[LogEntry] = []
    with anyio.fail_after(PATIENCE_S):
        try:
            async for batch in log.read(start, stop=stop):
                found += batch
        except (LogTorn, LogHole) as error:
            return found, error
    return found, None


async def test_a_torn_tail_is_read_as_far_as_it_goes_and_then_named(server: EmbeddedServer) -> None:
    """The block is cut, the index is not: the stream claims what it cannot deliver."""
    await damaged(server, cut_last_block)
    async with connect(server.url, name="reader") as connection:
        log = await open_log(connection, "main")
        claimed = await log.last_seq()
        found, error = await what_is_read(log)
        assert isinstance(error, LogTorn)
        assert (error.ends_at, error.claimed) == (len(found), claimed)
        assert len(found) < claimed == ENTRIES
        assert f"the log ends at {len(found)}, the stream claims {ENTRIES}" in str(error)
        assert "headgate restore" in str(error)
        with pytest.raises(LogTorn):
            await log.verify()
        # The present entries can be read without an error.
        assert (await what_is_read(log, stop=len(found))) == (found, None)
        with anyio.fail_after(PATIENCE_S):
            async with log.tail(ENTRIES + 1) as tail:
                with pytest.raises(LogTorn):
                    await tail.receive()


async def test_a_store_without_its_only_block_delivers_nothing_and_says_so(server: EmbeddedServer) -> None:
    """The block is gone and the index is there."""
    await damaged(server, remove_last_block)
    async with connect(server.url, name="reader") as connection:
        log = await open_log(connection, "main")
        found, error = await what_is_read(log)
        assert (found, str(error).split(": its")[0]) == (
            [],
            f"stream HEADGATE_main: the log ends at 0, the stream claims {ENTRIES}",
        )
        with pytest.raises(LogTorn):
            await log.verify()


@pytest.mark.parametrize("damage", [cut_last_block, remove_last_block])
async def test_without_an_index_the_log_is_shorter_and_who_had_read_more_is_stopped(
    server: EmbeddedServer, damage: Callable[[EmbeddedServer], None]
) -> None:
    """The broker itself cannot know; a position that was read before does."""
    await damaged(server, damage, keep_index=False)
    async with connect(server.url, name="reader") as connection:
        log = await open_log(connection, "main")
        last = await log.last_seq()
        assert last < ENTRIES
        await log.verify()
        with anyio.fail_after(PATIENCE_S), pytest.raises(LogTruncated, match=f"ends at {last}.*headgate restore"):
            async with log.tail(ENTRIES + 1) as tail:
                await tail.receive()


async def test_a_reader_that_was_running_is_told_when_the_broker_comes_back_torn(server: EmbeddedServer) -> None:
    """It has read everything, and the newest entries are gone from under it."""
    async with connect(server.url, name="both") as connection:
        log = await open_log(connection, "main")
        await fill(log, ENTRIES)
        async with log.tail(1) as tail:
            while tail.position < ENTRIES:
                await tail.receive()
            await server.stop()
            cut_last_block(server)
            await server.start()
            with anyio.fail_after(PATIENCE_S), pytest.raises(LogTorn, match=f"the stream claims {ENTRIES}"):
                await tail.receive()


async def test_a_block_missing_in_the_middle_is_found_before_it_is_reached(server: EmbeddedServer) -> None:
    """A reader that starts after the gap, from a snapshot, still gets the error."""
    async with connect(server.url, name="writer") as connection:
        log = await open_log(connection, "main")
        async with anyio.create_task_group() as tasks:
            for each_producer in Producer:

                async def fill_one(producer: str) -> None:
                    last = 0
                    for each in range(24):
                        payload = bytes(900_000)
                        outcome = await log.append(producer, payload, expected_last=last, commit_id=str(each))
                        last = outcome.seq  # type: ignore[union-attr]

                tasks.start_soon(fill_one, each_producer.value)
    await server.stop()
    blocks = sorted(store_files(server, "*.blk"), key=lambda file: int(file.stem))
    assert len(blocks) > 3
    blocks[1].unlink()
    await server.start()
    async with connect(server.url, name="reader") as connection:
        log = await open_log(connection, "main")
        with pytest.raises(LogHole) as hole:
            await log.verify()
        found, error = await what_is_read(log)
        assert isinstance(error, LogHole)
        assert (error.expected, error.found) == (hole.value.expected, hole.value.found) == (len(found) + 1, error.found)


async def test_the_log_in_memory_is_torn_in_the_same_way() -> None:
    """Simulated damage has the same answers as real damage."""
    memory = MemoryLog("main")
    for number in range(10):
        memory.append("scheduler", b"x", expected_last=number)
    memory.tear_end(3)
    log = AsyncMemoryLog(memory)
    found, error = await what_is_read(log, stop=7)
    assert (len(found), error) == (7, None)
    found, error = await what_is_read(log)
    assert isinstance(error, LogTorn)
    assert (error.ends_at, error.claimed) == (7, 10)
    with pytest.raises(LogTorn):
        await log.verify()
