"""The feed: CloudEvents of every event, once each and in order, under any writer and any crash."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import nats
import pytest
from tests.support.logs import TestLog

from headgate.adapters.jetstream import Connection, connect
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.jetstream.errors import BrokerError
from headgate.adapters.jetstream.feed import FeedMessage, open_feed
from headgate.core.log.branches import parse_event_id
from headgate.events.base import Producer
from headgate.events.commit import Position
from headgate.events.facts import NamespaceObserved
from headgate.events.ids import Seq
from headgate.processes.snapshotter.feed import messages_of
from headgate.processes.snapshotter.feed_writer import BEGINNING, FeedWriter

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def connection(server: EmbeddedServer) -> AsyncIterator[Connection]:
    async with connect(server.url, name="test") as connection:
        yield connection


def made(commits: int, events: int = 3) -> list[FeedMessage]:
    log = TestLog()
    messages: list[FeedMessage] = []
    for commit in range(commits):
        facts = [NamespaceObserved(name=f"n{commit}-{index}") for index in range(events)]
        messages += messages_of("main", log.append(Producer.INFORMER_BRIDGE, *facts))
    return messages


async def stored(server: EmbeddedServer, count: int) -> list[tuple[str, dict[str, str], bytes]]:
    """The feed as another client reads it: subject, headers, body."""
    client = await nats.connect(server.url)
    try:
        jetstream = client.jetstream()
        found = []
        for seq in range(1, count + 1):
            message = await jetstream.get_msg("HEADGATE_main_FEED", seq)
            found.append((message.subject or "", dict(message.headers or {}), message.data or b""))
        info = await jetstream.stream_info("HEADGATE_main_FEED")
        assert info.state.messages == count
        return found
    finally:
        await client.close()


async def test_an_event_is_a_cloud_event_in_binary_mode(server: EmbeddedServer, connection: Connection) -> None:
    """Attributes are headers, the body is the event as in its commit, the subject names event and object."""
    feed = await open_feed(connection, "main")
    writer = FeedWriter(connection, feed.name)
    await writer.resume()
    log = TestLog()
    event = NamespaceObserved(name="team-a", labels={"x": "y"})
    assert await writer.store(messages_of("main", log.append(Producer.INFORMER_BRIDGE, event))) == 1
    ((subject, headers, body),) = await stored(server, 1)
    assert subject == "headgate.main.namespace.observed._.team-a"
    assert body == b'{"type":"namespace.observed","name":"team-a","labels":{"x":"y"}}'
    assert headers["ce-specversion"] == "1.0"
    assert headers["ce-id"] == headers["Nats-Msg-Id"] == "1.0"
    assert headers["ce-type"] == "namespace.observed"
    assert headers["ce-source"] == "headgate.main.log.informer-bridge"
    assert headers["ce-subject"] == "team-a"
    assert headers["ce-time"] == "2023-11-14T22:13:20.000Z"


async def test_a_writer_goes_on_after_the_last_event_in_the_feed(
    server: EmbeddedServer, connection: Connection
) -> None:
    """The next writer gets the end of the feed, and stores only what comes after it."""
    feed = await open_feed(connection, "main")
    messages = made(10)
    first = FeedWriter(connection, feed.name)
    assert await first.resume() == BEGINNING
    await first.store(messages[:14])
    second = FeedWriter(connection, feed.name)
    assert await second.resume() == (0, Position(Seq(5), 1))
    assert await second.store(messages) == 16
    ids = [headers["ce-id"] for _, headers, _ in await stored(server, 30)]
    assert ids == [message.message_id for message in messages]


async def test_two_writers_at_once_store_everything_once_and_in_order(
    server: EmbeddedServer, connection: Connection
) -> None:
    """A deposed snapshotter that has not noticed yet does no harm."""
    feed = await open_feed(connection, "main")
    messages = made(40)

    async def write(batch: int) -> None:
        writer = FeedWriter(connection, feed.name)
        await writer.resume()
        for start in range(0, len(messages), batch):
            await writer.store(messages[start : start + batch])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write, 7)
        tasks.start_soon(write, 11)
    ids = [headers["ce-id"] for _, headers, _ in await stored(server, 120)]
    assert ids == [message.message_id for message in messages]


async def test_a_crash_of_the_broker_in_mid_batch_loses_and_repeats_nothing(
    server: EmbeddedServer, connection: Connection
) -> None:
    """The writer finds out what the broker took and continues behind it."""
    feed = await open_feed(connection, "main")
    messages = made(1_000)
    writer = FeedWriter(connection, feed.name)
    await writer.resume()
    done = 0

    async def write() -> None:
        nonlocal done
        for start in range(0, len(messages), 100):
            await writer.store(messages[start : start + 100])
            done = start

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        for goal in (300, 1_000, 1_700):
            while done < goal:
                await anyio.lowlevel.checkpoint()
            await server.kill()
            await server.start()
    assert await writer.resume() == (0, parse_event_id(messages[-1].message_id).position)
    ids = [headers["ce-id"] for _, headers, _ in await stored(server, 3_000)]
    assert ids == [message.message_id for message in messages]


async def test_a_strangers_message_in_the_feed_is_refused(connection: Connection) -> None:
    """A message whose id is no position means that another client writes there."""
    feed = await open_feed(connection, "main")
    await connection.publish("headgate.main.namespace.observed._.x", b"{}", {"Nats-Msg-Id": "hello"})
    with pytest.raises(BrokerError, match="somebody else writes there"):
        await FeedWriter(connection, feed.name).resume()
