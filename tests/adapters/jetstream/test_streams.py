"""Setting up and verifying the streams of a cell."""

import urllib.request
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import pytest

from headgate.adapters.jetstream import Connection, connect, open_log
from headgate.adapters.jetstream.blobs import open_blobs
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.jetstream.errors import StreamMismatch
from headgate.adapters.jetstream.feed import FeedMessage, open_feed
from headgate.adapters.jetstream.lease import open_leases
from headgate.adapters.jetstream.stream import ensure_stream, log_stream, sync_warnings, time_ms_of, token

pytestmark = pytest.mark.anyio


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url) as response:
        return bytes(response.read())


async def test_all_streams_of_a_cell_live_side_by_side(connection: Connection, cell: str) -> None:
    """Their subjects do not overlap, whatever entity the feed carries; opening them again changes nothing."""
    for _ in range(2):
        log, feed = await open_log(connection, cell), await open_feed(connection, cell)
        blobs, leases = await open_blobs(connection, cell), await open_leases(connection, cell)
        assert [feed.warnings, blobs.warnings, leases.warnings] == [[], [], []]
    await log.append("scheduler", b"x", expected_last=0, commit_id="x")
    await blobs.put("s", b"x", position=1)
    async with leases.lease("scheduler", "a").hold():
        for entity in ("workload", "log", "lease", "snapshot"):
            await feed.publish(
                FeedMessage(subject=f"headgate.{cell}.{entity}.e._.n", payload=b"", message_id=entity, headers={})
            )
    assert await feed.count() == 4
    assert await log.last_seq() == 1


async def test_a_stream_with_other_subjects_is_refused(connection: Connection, cell: str) -> None:
    """The name is taken by something that is not our log: nothing is changed, and the error names the fault."""
    await ensure_stream(connection, msgspec.structs.replace(log_stream(cell), subjects=[f"other.{cell}"]))
    with pytest.raises(StreamMismatch, match="its subjects are"):
        await open_log(connection, cell)


async def test_a_stream_that_forgets_what_was_read_is_refused(connection: Connection, cell: str) -> None:
    """A work queue cannot be a log."""
    await ensure_stream(connection, msgspec.structs.replace(log_stream(cell), retention="workqueue"))
    with pytest.raises(StreamMismatch, match="retention is workqueue"):
        await open_log(connection, cell)


async def test_subjects_taken_by_another_stream_are_named(connection: Connection, cell: str) -> None:
    """Two streams cannot store the same subjects; the broker's reason reaches the user."""
    await ensure_stream(connection, msgspec.structs.replace(log_stream(cell), name=f"X{cell}"))
    with pytest.raises(StreamMismatch, match=r"cannot create stream HEADGATE_.*overlap"):
        await open_log(connection, cell)


async def test_three_replicas_need_a_cluster(connection: Connection, cell: str) -> None:
    """A single server cannot give them; that is an error at the start and not a silent single replica."""
    with pytest.raises(StreamMismatch, match="replicas"):
        await open_log(connection, cell, replicas=3)


async def test_an_existing_stream_is_used_with_warnings(connection: Connection, cell: str) -> None:
    """Each shortcoming of a stream that others made is reported in one sentence."""
    weak = msgspec.structs.replace(
        log_stream(cell), storage="memory", deny_delete=False, deny_purge=False, discard="old", max_msgs=10
    )
    await ensure_stream(connection, weak)
    warnings = (await open_log(connection, cell)).warnings
    for part in ("stored in memory", "allows deletes", "history will be lost", "cannot be seen"):
        assert len([warning for warning in warnings if part in warning]) == 1, (part, warnings)
    status = await ensure_stream(connection, log_stream(cell, replicas=3))
    assert any("3 were asked for" in warning for warning in status.warnings)


@pytest.mark.parametrize(("sync", "expected"), [(None, "sync_interval is 120 s"), ("always", "")])
async def test_sync_interval_is_seen_through_the_monitoring_port(
    tmp_path: Path, sync: str | None, expected: str
) -> None:
    """`always` is well, the default is warned about."""
    async with EmbeddedServer(tmp_path, sync_interval=sync) as server, connect(server.url, name="test") as connection:
        varz = await anyio.to_thread.run_sync(fetch, server.monitor_url + "/varz")
        warnings = (await open_log(connection, "main", varz=varz)).warnings
    assert [expected in warning for warning in warnings] == ([True] if expected else [])


def test_a_server_without_jetstream_is_pointed_out() -> None:
    """The monitoring URL of another server would say nothing about the log."""
    assert "without JetStream" in sync_warnings(b"{}", replicas=1)[0]


def test_tokens_are_checked() -> None:
    """What would change the meaning of a subject cannot be a cell or a producer."""
    assert token("main-1_x") == "main-1_x"
    for bad in ("", "a.b", "a*", ">", "a b", "a\n"):
        with pytest.raises(ValueError, match="subject token"):
            token(bad)


def test_times_of_the_broker_are_read_to_the_millisecond() -> None:
    """Nanoseconds are cut, and any number of digits will do."""
    assert time_ms_of("1970-01-01T00:00:01.234567891Z") == 1234
    assert time_ms_of("1970-01-01T00:00:02Z") == 2000
    assert time_ms_of("1970-01-01T01:00:00.5+01:00") == 500
