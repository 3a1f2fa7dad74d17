"""
What the broker may do to us, and what must hold all the same.

Nothing is lost, nothing is doubled, and each wait is reported.
"""

import shutil
import signal
from pathlib import Path

import anyio
import anyio.lowlevel
import msgspec
import pytest

from headgate.adapters.jetstream import (
    BrokerClosed,
    BrokerError,
    Connection,
    DependencyHealth,
    NatsOptions,
    connect,
    open_log,
)
from headgate.adapters.jetstream.appender import append
from headgate.adapters.jetstream.embedded import EmbeddedCluster, EmbeddedServer
from headgate.adapters.jetstream.errors import NotSent, OutcomeUnknown
from headgate.adapters.jetstream.feed import FeedMessage, open_feed
from headgate.adapters.jetstream.jetstream_log import JetStreamLog
from headgate.adapters.jetstream.lease import open_leases
from headgate.adapters.jetstream.stream import StreamInfo, log_stream
from headgate.adapters.jetstream.tail import TailOptions
from headgate.adapters.log import Appended, Conflict, LogEntry, LogHole, LogTruncated
from headgate.events.base import Producer

pytestmark = pytest.mark.anyio

QUICK = NatsOptions(request_timeout_s=0.5, reconnect_wait_s=0.02)
PATIENCE_S = 20


async def until(condition: object) -> None:
    """Waits for a condition that others bring about."""
    assert callable(condition)
    with anyio.fail_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - conditions are polled, whatever causes them
            await anyio.sleep(0.005)


PRODUCERS = tuple(producer.value for producer in Producer)


async def append_each(log: JetStreamLog, producer: str, count: int, acknowledged: dict[int, bytes]) -> None:
    """Appends `count` commits one after the other; each must land at the first attempt of its caller."""
    last = 0
    for number in range(count):
        payload = f"{producer}/{number}".encode()
        outcome = await log.append(producer, payload, expected_last=last, commit_id=payload.decode())
        assert isinstance(outcome, Appended), f"{payload!r}: {outcome}"
        last = outcome.seq
        acknowledged[last] = payload


async def collect(log: JetStreamLog, count: int, into: list[LogEntry], linger_s: float = 0.0) -> None:
    async with log.tail(1, linger_s=linger_s) as tail:
        while len(into) < count:
            into += await tail.receive()


@pytest.mark.parametrize("linger_s", [0.0, 0.02])
async def test_nothing_is_missing_and_nothing_doubled_over_kills_of_the_server(
    server: EmbeddedServer, linger_s: float
) -> None:
    """Commits keep landing while the server is killed again and again, and a tail sees each exactly once."""
    producers, count, kills = 6, 400, 8
    acknowledged: dict[int, bytes] = {}
    seen: list[LogEntry] = []
    async with (
        connect(server.url, name="writer", options=QUICK) as writer,
        connect(server.url, name="reader", options=QUICK) as reader,
    ):
        log, log_of_reader = await open_log(writer, "main"), await open_log(reader, "main")
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(collect, log_of_reader, producers * count, seen, linger_s)
                for number in range(producers):
                    tasks.start_soon(append_each, log, PRODUCERS[number], count, acknowledged)
                for kill in range(1, kills + 1):
                    await until(lambda kill=kill: len(acknowledged) >= kill * producers * count // (kills + 1))
                    await server.kill()
                    await server.start()
        replayed = [entry async for batch in log.read(1) for entry in batch]
    assert {entry.seq: entry.payload for entry in seen} == acknowledged
    assert [entry.seq for entry in seen] == list(range(1, producers * count + 1))
    assert replayed == seen


async def test_an_idle_tail_survives_a_kill(server: EmbeddedServer) -> None:
    """A tail that waits for news when the server dies gets the first entry after its return."""
    async with connect(server.url, name="test", options=QUICK) as connection:
        log = await open_log(connection, "main")
        await log.append("scheduler", b"1", expected_last=0, commit_id="1")
        async with log.tail(1) as tail:
            assert [entry.seq for entry in await tail.receive()] == [1]
            await server.kill()
            await server.start()
            await log.append("scheduler", b"2", expected_last=1, commit_id="2")
            with anyio.fail_after(PATIENCE_S):
                assert [entry.seq for entry in await tail.receive()] == [2]
            assert tail.repairs >= 1


async def test_a_tail_recovers_when_its_consumer_vanishes(connection: Connection, cell: str) -> None:
    """
    The tail's consumer is deleted by another client.

    Heartbeats stop or a status comes, and the tail makes another.
    """
    log = await open_log(connection, cell, tail_options=TailOptions(heartbeat_s=0.1))
    await log.append("scheduler", b"1", expected_last=0, commit_id="1")
    async with log.tail(1) as tail:
        await tail.receive()
        await connection.call_once(
            f"CONSUMER.DELETE.{log.name}.{tail._consumer}", b"", msgspec.json.Decoder(dict[str, object])
        )
        await log.append("scheduler", b"2", expected_last=1, commit_id="2")
        with anyio.fail_after(PATIENCE_S):
            assert [entry.seq for entry in await tail.receive()] == [2]
        assert tail.repairs >= 1


async def test_a_frozen_server_delays_an_append_and_does_not_double_it(
    server: EmbeddedServer, health: DependencyHealth
) -> None:
    """The server is stopped (SIGSTOP) with a commit in its socket; when it thaws the commit is there once."""
    async with connect(server.url, name="test", options=QUICK, health=health) as connection:
        log = await open_log(connection, "main")
        server.send_signal(signal.SIGSTOP)
        outcomes = []

        async def write() -> None:
            outcomes.append(await log.append("scheduler", b"once", expected_last=0, commit_id="once"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            # The append misses its answer, or the client's ping does first: then the connection is what is unwell.
            await until(lambda: not health.ok)
            assert outcomes == []
            server.send_signal(signal.SIGCONT)
        assert outcomes == [Appended(1)]
        assert await log.last_seq() == 1
        assert health.ok


async def test_an_append_waits_for_a_lost_broker_and_says_so(server: EmbeddedServer, health: DependencyHealth) -> None:
    """
    While the broker is away nothing fails: health has since when and why.

    When it is back the append goes through.
    """
    async with connect(server.url, name="test", options=QUICK, health=health) as connection:
        log = await open_log(connection, "main")
        await server.kill()
        await until(lambda: not connection.is_connected)
        outcomes = []

        async def write() -> None:
            outcomes.append(await log.append("scheduler", b"x", expected_last=0, commit_id="x"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            await until(lambda: any(not each.ok and "Refused" in each.error for each in health.dependencies()))
            assert outcomes == []
            await server.start()
        assert outcomes == [Appended(1)]
        await until(lambda: health.ok)


async def test_connecting_waits_for_a_server_that_is_not_there_yet(
    server: EmbeddedServer, health: DependencyHealth
) -> None:
    """A process may be started before its broker."""
    await server.kill()
    async with anyio.create_task_group() as tasks:

        async def come_up() -> None:
            await until(lambda: any(not each.ok for each in health.dependencies()))
            await server.start()

        tasks.start_soon(come_up)
        async with connect(server.url, name="test", options=QUICK, health=health) as connection:
            assert (await open_log(connection, "main")).name == "HEADGATE_main"
    assert health.ok


async def test_a_full_stream_delays_appends_until_there_is_room(
    connection: Connection, cell: str, health: DependencyHealth
) -> None:
    """
    Discard-new at its limit refuses.

    The append waits, health shows the broker's reason, and it lands when there is room.
    """
    small = msgspec.structs.replace(log_stream(cell), max_bytes=5_000)
    connection.health = health
    log = await open_log(connection, cell, config=small)
    last = 0
    with anyio.move_on_after(1.0):
        while True:
            outcome = await log.append("scheduler", bytes(1_000), expected_last=last, commit_id="filler")
            assert isinstance(outcome, Appended)
            last = outcome.seq
    assert last > 0
    [unwell] = [each for each in health.dependencies() if not each.ok]
    assert "maximum bytes" in unwell.error
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append_one, log, last)
        roomy = msgspec.json.encode(msgspec.structs.replace(small, max_bytes=-1))
        await connection.call_once(f"STREAM.UPDATE.{log.name}", roomy, msgspec.json.Decoder(StreamInfo))
    assert await log.last_seq() == last + 1
    assert health.ok


async def append_one(log: JetStreamLog, last: int) -> None:
    assert await log.append("scheduler", bytes(1_000), expected_last=last, commit_id="x") == Appended(last + 1)


async def test_a_deposed_leader_is_refused_by_the_log(server: EmbeddedServer) -> None:
    """
    A leader cut off for longer than its term loses the lease.

    What it appends later at its old position does not land.
    """
    async with (
        connect(server.url, name="old", options=QUICK) as old,
        connect(server.url, name="new", options=QUICK) as new,
    ):
        log_of_old, log_of_new = await open_log(old, "main"), await open_log(new, "main")
        clock_ms = [0]
        lease_of_old = (await open_leases(old, "main")).lease("scheduler", "old", term_ms=500)
        lease_of_old._now_ms = lambda: clock_ms[0]
        async with lease_of_old.hold() as leadership:
            before = await log_of_old.append("scheduler", b"epoch 1", expected_last=0, commit_id="1")
            assert isinstance(before, Appended)
            clock_ms[0] = 10_000
            assert not leadership.is_valid()
        async with (await open_leases(new, "main")).lease("scheduler", "new", term_ms=500).hold() as successor:
            assert successor.epoch == leadership.epoch + 1
            await log_of_new.append("scheduler", b"epoch 2", expected_last=before.seq, commit_id="2")
        late = await log_of_old.append("scheduler", b"epoch 1, late", expected_last=before.seq, commit_id="3")
        assert late == Conflict(before.seq, before.seq + 1)
        assert await log_of_new.last_seq() == 2


async def test_a_leader_without_a_broker_steps_down_within_its_term(server: EmbeddedServer) -> None:
    """No renewal gets through: leadership is lost by the leader's own clock, without the broker's help."""
    async with connect(server.url, name="test", options=QUICK) as connection:
        lease = (await open_leases(connection, "main")).lease("scheduler", "a", term_ms=600)
        async with lease.hold() as leadership:
            await server.kill()
            with anyio.fail_after(PATIENCE_S):
                await leadership.lost.wait()
            assert "not renewed" in leadership.why_lost
            await server.start()
        async with lease.hold() as again:
            assert again.epoch > leadership.epoch


async def test_a_stream_that_lost_its_end_is_not_read_on(server: EmbeddedServer, tmp_path: Path) -> None:
    """The store is set back to an earlier copy, as after a power failure: the tail stops with the remedy."""
    async with connect(server.url, name="test", options=QUICK) as connection:
        log = await open_log(connection, "main")
        acknowledged: dict[int, bytes] = {}
        await append_each(log, "scheduler", 3, acknowledged)
        await server.stop()
        shutil.copytree(server.store_dir / "jetstream", tmp_path / "copy")
        await server.start()
        await append_each(log, "binder", 2, acknowledged)
        async with log.tail(1) as tail:
            while tail.position < 5:
                await tail.receive()
            await server.stop()
            shutil.rmtree(server.store_dir / "jetstream")
            shutil.copytree(tmp_path / "copy", server.store_dir / "jetstream")
            await server.start()
            with anyio.fail_after(PATIENCE_S), pytest.raises(LogTruncated, match="ends at 3, but entries up to 5"):
                await tail.receive()
        assert await log.append("binder", b"next", expected_last=5, commit_id="x") == Conflict(5, 0)


async def test_another_stream_of_the_same_name_is_not_read_on(server: EmbeddedServer) -> None:
    """
    The store was wiped and the stream recreated, and it is even longer than before.

    It is another log all the same.
    """
    async with connect(server.url, name="test", options=QUICK) as connection:
        log = await open_log(connection, "main")
        await append_each(log, "scheduler", 2, {})
        async with log.tail(1) as tail:
            while tail.position < 2:
                await tail.receive()
            await server.stop()
            shutil.rmtree(server.store_dir / "jetstream")
            await server.start()
            other = await open_log(connection, "main")
            await append_each(other, "scheduler", 4, {})
            assert other.identity != log.identity
            with anyio.fail_after(PATIENCE_S), pytest.raises(LogTruncated, match="another stream"):
                await tail.receive()


async def test_a_hole_in_the_stream_stops_its_reader(connection: Connection, cell: str) -> None:
    """The entries before the gap are delivered; then the error names the gap."""
    careless = msgspec.structs.replace(log_stream(cell), deny_delete=False)
    log = await open_log(connection, cell, config=careless)
    await append_each(log, "scheduler", 5, {})
    await connection.call_once(
        f"STREAM.MSG.DELETE.{log.name}", msgspec.json.encode({"seq": 3}), msgspec.json.Decoder(dict[str, object])
    )
    seen: list[LogEntry] = []
    with pytest.raises(LogHole, match="entry 3 is missing") as caught:
        await collect(log, 5, seen)
    assert [entry.seq for entry in seen] == [1, 2]
    assert (caught.value.expected, caught.value.found) == (3, 4)


async def test_a_slow_reader_bounds_what_is_buffered_for_it(connection: Connection, cell: str) -> None:
    """The buffer never holds more than its bound, the broker keeps the rest, and the reader still gets all in order."""
    options = TailOptions(buffer_entries_max=40, pull_entries_max=10)
    log = await open_log(connection, cell, tail_options=options)
    await append_each(log, "scheduler", 300, {})
    seen: list[int] = []
    async with log.tail(1) as tail:
        await tail.ready()
        while len(seen) < 300:
            due = min(40, 300 - len(seen))
            await until(lambda due=due: len(tail._buffer) == due)
            await anyio.sleep(0.02)
            assert len(tail._buffer) <= 40
            assert tail.lag == 300 - len(seen)
            seen += [entry.seq for entry in await tail.receive()]
        assert seen == list(range(1, 301))
        assert tail.caught_up
        assert tail.repairs == 0


async def test_what_is_sent_while_gathering_is_read_afterwards(
    connection: Connection, shared_server: EmbeddedServer, cell: str
) -> None:
    """Nothing of it before, however long that is; all of it in order after."""
    seen: list[LogEntry] = []
    log = await open_log(connection, cell)
    async with connect(shared_server.url, name="writer") as other, anyio.create_task_group() as tasks:
        writing = await open_log(other, cell)
        await append_each(writing, "binder", 3, {})
        tasks.start_soon(collect, log, 53, seen)
        await until(lambda: len(seen) == 3)
        async with anyio.create_task_group() as gathering:
            gathering.start_soon(connection.gather, 3600.0)
            await anyio.wait_all_tasks_blocked()
            await append_each(writing, "scheduler", 50, {})
            await anyio.wait_all_tasks_blocked()
            assert len(seen) == 3
            gathering.cancel_scope.cancel()
        await until(lambda: len(seen) == 53)
    assert [entry.seq for entry in seen] == list(range(1, 54))


async def test_gathering_goes_on_over_the_loss_of_the_connection(server: EmbeddedServer) -> None:
    """A connection that breaks meanwhile heals, and can be gathered on again."""
    async with connect(server.url, name="test", options=QUICK) as connection:
        log = await open_log(connection, "main")
        for number in range(3):
            async with anyio.create_task_group() as gathering:
                gathering.start_soon(connection.gather, 3600.0)
                await anyio.lowlevel.checkpoint()
                await server.kill()
                await server.start()
                gathering.cancel_scope.cancel()
            with anyio.fail_after(PATIENCE_S):
                outcome = await log.append("binder", b"x", expected_last=number, commit_id=str(number))
            assert outcome == Appended(seq=number + 1)


async def test_large_entries_are_bounded_by_bytes(connection: Connection, cell: str) -> None:
    """Requests end at their byte limit without the consumer being thrown away; everything arrives."""
    options = TailOptions(buffer_bytes_max=1_500_000, pull_bytes_max=1_200_000)
    log = await open_log(connection, cell, tail_options=options)
    last = 0
    for number in range(12):
        outcome = await log.append("binder", bytes([number]) * 400_000, expected_last=last, commit_id=str(number))
        assert isinstance(outcome, Appended)
        last = outcome.seq
    seen: list[LogEntry] = []
    async with log.tail(1) as tail:
        with anyio.fail_after(PATIENCE_S):
            while len(seen) < 12:
                await anyio.sleep(0.05)
                assert tail._buffer_bytes <= 1_500_000 + 2 * 1_200_000
                seen += await tail.receive()
        assert tail.repairs == 0
    assert [entry.payload[0] for entry in seen] == list(range(12))


async def test_what_is_in_flight_stays_within_the_window(shared_server: EmbeddedServer, cell: str) -> None:
    """Thousands of callers, a window of eight: never more are under way, and all are served."""
    options = NatsOptions(window_messages_max=8)
    async with connect(shared_server.url, name="test", options=options) as connection:
        feed = await open_feed(connection, cell)
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, connection.requests.in_flight)
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await feed.publish_all([message(cell, number) for number in range(2_000)])
            tasks.cancel_scope.cancel()
        assert most == 8
        assert await feed.count() == 2_000


def message(cell: str, number: int) -> FeedMessage:
    return FeedMessage(
        subject=f"headgate.{cell}.workload.admitted.team-a.w{number}",
        payload=b"{}",
        message_id=f"{number}.0",
        headers={"ce-id": f"{number}.0", "ce-type": "workload.admitted"},
    )


async def test_the_feed_stores_each_message_once_over_kills(server: EmbeddedServer) -> None:
    """Messages sent again after a crash, or by a snapshotter that starts over, are dropped by their id."""
    messages = [message("main", number) for number in range(3_000)]
    async with connect(server.url, name="test", options=QUICK) as connection:
        feed = await open_feed(connection, "main")
        assert await feed.last_message_id() is None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(feed.publish_all, messages)
            for _ in range(2):
                await anyio.sleep(0.05)
                await server.kill()
                await server.start()
        await feed.publish_all(messages[-100:])
        assert await feed.count() == 3_000
        await feed.publish(message("main", 3_000))
        assert await feed.last_message_id() == "3000.0"


async def test_every_request_ends(server: EmbeddedServer) -> None:
    """
    No listener, no response, a connection that breaks, a connection that is closed.

    Each error names its cause.
    """
    async with connect(server.url, name="test", options=QUICK) as connection:
        await connection.client.subscribe("silence")
        with pytest.raises(NotSent, match="no responder"):
            await connection.requests.request("nobody", b"")
        with pytest.raises(OutcomeUnknown, match="no answer"):
            await connection.requests.request("silence", b"")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.kill)
            with pytest.raises((OutcomeUnknown, NotSent)):
                await connection.requests.request("silence", b"", timeout_s=PATIENCE_S)
        await until(lambda: not connection.is_connected)
        with pytest.raises(NotSent, match="not connected"):
            await connection.requests.request("silence", b"")
        assert connection.requests.in_flight == 0
    with pytest.raises(BrokerClosed):
        await connection.requests.request("silence", b"")
    with pytest.raises(BrokerClosed):
        await append(connection, "S", "s", b"", expected_last=0, commit_id="x")


async def test_refused_credentials_are_an_error_and_not_a_wait(tmp_path: Path) -> None:
    """A wrong token will not become right by trying again; the right one works. No secret is in the message."""
    async with EmbeddedServer(tmp_path, extra_config='authorization { token: "s3cret" }') as server:
        with anyio.fail_after(PATIENCE_S), pytest.raises(BrokerError, match="refuses this client") as caught:
            async with connect(server.url, name="test", options=NatsOptions(token="wrong-one")):
                pytest.fail("connected")
        assert "wrong-one" not in str(caught.value)
        async with connect(server.url, name="test", options=NatsOptions(token="s3cret")) as connection:
            await open_log(connection, "main")
        assert "s3cret" not in repr(NatsOptions(token="s3cret"))


async def test_the_leader_of_a_replicated_stream_may_be_killed(tmp_path: Path) -> None:
    """
    Three replicas: the server that leads the log is killed under load.

    Nothing acknowledged is lost, nothing doubled.
    """
    acknowledged: dict[int, bytes] = {}
    seen: list[LogEntry] = []
    async with (
        EmbeddedCluster(tmp_path, sync_interval="always") as cluster,
        connect(cluster.url, name="test", options=QUICK) as connection,
    ):
        log = await open_log(connection, "main", replicas=3)
        leader = await cluster.leader_of(log.name)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collect, log, 600, seen)
            for number in range(3):
                tasks.start_soon(append_each, log, PRODUCERS[number], 200, acknowledged)
            await until(lambda: len(acknowledged) >= 150)
            await cluster.kill(leader)
            await until(lambda: len(acknowledged) >= 400)
            await cluster.restart(leader)
    assert {entry.seq: entry.payload for entry in seen} == acknowledged
    assert [entry.seq for entry in seen] == list(range(1, 601))
