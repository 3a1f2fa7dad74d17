"""The feed across a restore: it marks the break, repeats nothing, and never continues from a log that lost its end."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import nats
import pytest
from tests.support.logs import TestLog
from tests.support.waiting import until

from headgate.adapters.jetstream import Connection, DependencyHealth, connect
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.jetstream.feed import open_feed
from headgate.adapters.log import LogDamaged
from headgate.core.log.branches import parse_event_id
from headgate.core.machine.contract import Stimulus
from headgate.events.base import EventBase, Producer
from headgate.events.commit import Position, encode_commit
from headgate.events.effects import LeaderElected
from headgate.events.facts import NamespaceObserved
from headgate.events.identity import CellFounded, CellRestored
from headgate.events.ids import Seq
from headgate.processes.runtime.process_status import Status
from headgate.processes.snapshotter.feed import FeedBeyondLogError, Feeding
from headgate.processes.snapshotter.feed_writer import FeedWriter
from headgate.testing.memory_log import AsyncMemoryLog, MemoryLog

pytestmark = pytest.mark.anyio

BRIDGE = Producer.INFORMER_BRIDGE


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def connection(server: EmbeddedServer) -> AsyncIterator[Connection]:
    async with connect(server.url, name="test") as connection:
        yield connection


class History(TestLog):
    """A log that can be published from, and cut back."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryLog("main")

    def says(self, *names: str) -> "History":
        """One commit for each name."""
        for name in names:
            self.write(NamespaceObserved(name=name))
        return self

    def write(self, *events: EventBase) -> None:
        logged = self.append(BRIDGE, *events)
        payload = encode_commit(logged.commit)
        self.memory.append(BRIDGE.value, payload, expected_last=self.memory.last_seq(BRIDGE.value))

    def cut(self, position: int) -> "History":
        """The log as a backup has it."""
        shorter = History()
        for logged in self.commits[:position]:
            shorter.write(*logged.commit.events)
        return shorter

    def restored(self, backup: str = "b") -> "History":
        """As the bridge begins behind a backup."""
        event = CellRestored(backup=backup, position=self.state.position, stream=f"stream of {backup}")
        self.write(event, LeaderElected(holder="one"))
        return self


async def unheard(stimulus: Stimulus) -> None:
    """Nothing listens."""


async def publish(connection: Connection, log: History) -> None:
    """What a snapshotter does in one term, until all is published."""
    feed = await open_feed(connection, "main")
    status = Status(process="snapshotter", cell="main", holder="one", health=DependencyHealth())
    writer = FeedWriter(connection, feed.name)
    feeding = Feeding(writer, AsyncMemoryLog(log.memory), status, batch_max=7)
    last = log.commits[-1]
    end = Position(last.seq, len(last.commit.events) - 1)

    async def is_published() -> bool:
        found = await FeedWriter(connection, feed.name).last()
        return found is not None and found.id.position == end

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feeding, log.state, unheard)
        await until(is_published)
        tasks.cancel_scope.cancel()


async def feed_of(server: EmbeddedServer) -> list[tuple[str, str]]:
    client = await nats.connect(server.url)
    try:
        stream = client.jetstream()
        last = (await stream.stream_info("HEADGATE_main_FEED")).state.last_seq
        found = [await stream.get_msg("HEADGATE_main_FEED", seq) for seq in range(1, last + 1)]
    finally:
        await client.close()
    return [((each.headers or {})["ce-id"], (each.data or b"").decode()) for each in found]


async def test_behind_a_restore_the_feed_goes_on_with_the_break_and_never_reuses_an_id(
    server: EmbeddedServer, connection: Connection
) -> None:
    """
    The feed had more than the backup: `cell.restored` is its next message, and then what is new.

    Nothing of before is repeated, and nothing new is swallowed for bearing the position of something lost.
    """
    before = History().says("a", "b", "c", "d", "e")
    await publish(connection, before)
    after = before.cut(3).restored().says("x", "y", "z")
    await publish(connection, after)
    feed = await feed_of(server)
    ids = [text for text, _ in feed]
    assert ids[:5] == ["1.0", "2.0", "3.0", "4.0", "5.0"]
    token = parse_event_id(ids[5]).token
    assert ids[5:] == [f"{token}:{place}" for place in ("4.0", "4.1", "5.0", "6.0", "7.0")]
    assert '"type":"cell.restored"' in feed[5][1]
    assert '"position":3' in feed[5][1]
    assert [name for name in "xyz" if any(f'"name":"{name}"' in body for _, body in feed)] == ["x", "y", "z"]


async def test_a_feed_that_was_behind_the_backup_gets_everything_up_to_the_break(
    server: EmbeddedServer, connection: Connection
) -> None:
    """What the feed did not have yet is under its old id, what comes behind the break under a new one."""
    before = History().says("a", "b", "c", "d", "e")
    await publish(connection, before.cut(2))
    await publish(connection, before.cut(4).restored())
    ids = [text for text, _ in await feed_of(server)]
    assert ids[:4] == ["1.0", "2.0", "3.0", "4.0"]
    assert [parse_event_id(text).position for text in ids[4:]] == [Position(Seq(5), 0), Position(Seq(5), 1)]
    assert all(parse_event_id(text).token for text in ids[4:])


async def test_a_second_restore_from_before_the_first_is_a_break_of_its_own(
    server: EmbeddedServer, connection: Connection
) -> None:
    """The feed ends in a branch that the log does not know any more; the new one begins with its own mark."""
    before = History().says("a", "b", "c", "d")
    first = before.cut(3).restored("first").says("x")
    await publish(connection, first)
    await publish(connection, before.cut(2).restored("second").says("y"))
    feed = await feed_of(server)
    ids = [text for text, _ in feed]
    tokens = [parse_event_id(text).token for text in ids]
    assert tokens[:3] == ["", "", ""]
    assert len({*tokens}) == 3
    assert len({*ids}) == len(ids)
    behind = next(index for index, token in enumerate(tokens) if token == tokens[-1])
    assert '"backup":"second"' in feed[behind][1]
    assert parse_event_id(ids[behind]).position == Position(Seq(3), 0)


async def test_a_restart_behind_a_restore_publishes_nothing_twice(
    server: EmbeddedServer, connection: Connection
) -> None:
    """The next writer continues where the feed ends, in its branch."""
    before = History().says("a", "b", "c")
    await publish(connection, before)
    after = before.cut(2).restored().says("x")
    await publish(connection, after)
    await publish(connection, after.says("y"))
    ids = [text for text, _ in await feed_of(server)]
    assert len({*ids}) == len(ids) == 3 + 4


async def test_the_feed_of_a_rebuilt_log_shares_no_id_with_the_one_before(
    server: EmbeddedServer, connection: Connection
) -> None:
    """All of the new log is published, behind all that the old one had."""
    await publish(connection, History().says("a", "b", "c"))
    rebuilt = History()
    rebuilt.write(
        LeaderElected(holder="one"),
        CellFounded(cell="main", cluster="c", stream="s", log_id="new", resumes="old"),
    )
    await publish(connection, rebuilt.says("x"))
    ids = [text for text, _ in await feed_of(server)]
    assert ids[:3] == ["1.0", "2.0", "3.0"]
    assert [parse_event_id(text).position for text in ids[3:]] == [
        Position(Seq(1), 0), Position(Seq(1), 1), Position(Seq(2), 0),
    ]  # fmt: skip
    assert all(parse_event_id(text).token for text in ids[3:])


@pytest.mark.parametrize("grown", [(), ("x",), ("x", "y", "z", "u")])
async def test_a_log_that_was_rolled_back_without_a_word_is_not_published_from(
    grown: tuple[str, ...], server: EmbeddedServer, connection: Connection
) -> None:
    """Shorter than the feed, or as long and longer with other events: the process stops and names the ways on."""
    before = History().says("a", "b", "c", "d", "e")
    await publish(connection, before)
    rolled_back = before.cut(3).says(*grown)
    feed = await feed_of(server)
    with pytest.raises(ExceptionGroup) as caught:
        await publish(connection, rolled_back)
    (error,) = caught.value.exceptions
    assert isinstance(error, FeedBeyondLogError)
    assert isinstance(error, LogDamaged)
    assert "5.0" in str(error)
    assert "`headgate restore --from" in str(error)
    assert await feed_of(server) == feed


async def test_the_feed_of_another_log_is_not_gone_on_with(server: EmbeddedServer, connection: Connection) -> None:
    """Its last event is in a branch that this log never had, without a restore that explains it."""
    await publish(connection, History().says("a", "b").restored())
    with pytest.raises(ExceptionGroup) as caught:
        await publish(connection, History().says("a", "b", "c", "d", "e"))
    assert "an event of another log" in str(caught.value.exceptions[0])
