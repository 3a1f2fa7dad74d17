"""Processes on a real broker: it dies and comes back, leaders die, stop and are deposed."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.waiting import until

from headgate.adapters.jetstream import connect, open_log
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.core import fold
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.ids import Seq
from headgate.processes.entry import Exit
from headgate.processes.snapshots.point_in_time import fold_on, refolding

pytestmark = pytest.mark.anyio
TOY = Path(__file__).parents[1] / "toy_process.py"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(tmp_path / "nats") as server:
        yield server


class Toys:
    """Real processes, and what they say."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, url: str, holder: str, goal: int, stop_at: int = 0) -> "subprocess.Popen[bytes]":
        arguments = [sys.executable, str(TOY), url, "main", holder, str(goal), *([str(stop_at)] if stop_at else [])]
        with (self._folder / f"{holder}.log").open("ab") as log:
            process = subprocess.Popen(arguments, stderr=log, stdout=log)
        self.started.append(process)
        return process

    def said(self, holder: str) -> str:
        return (self._folder / f"{holder}.log").read_text()

    async def says(self, holder: str, text: str) -> None:
        await until(lambda: text in self.said(holder))


async def ends(process: "subprocess.Popen[bytes]") -> int:
    await until(lambda: process.poll() is not None)
    assert process.returncode is not None
    return process.returncode


@pytest.fixture
def toys(tmp_path: Path) -> Iterator[Toys]:
    toys = Toys(tmp_path)
    yield toys
    for process in toys.started:
        process.kill()
        process.wait()


async def folded(server: EmbeddedServer) -> State:
    """The log's state, folded from the beginning by an independent reader."""
    state = fold.new_state("main")
    async with connect(server.url, name="test") as connection:
        log = await open_log(connection, "main")
        return await fold_on(log, state, Seq(await log.last_seq()), refolding(log, "main"))


async def until_counted(server: EmbeddedServer, goal: int) -> State:
    async def is_reached() -> bool:
        return len((await folded(server)).namespaces) >= goal

    await until(is_reached)
    return await folded(server)


async def test_a_leader_stopped_for_longer_than_its_lease_is_refused_and_steps_down(
    server: EmbeddedServer, toys: Toys
) -> None:
    """It stops between deciding and appending; another takes over; continued, its append is refused by the broker."""
    first = toys.start(server.url, "one", goal=50, stop_at=20)
    await toys.says("one", "stopping myself")
    toys.start(server.url, "two", goal=40)
    state = await until_counted(server, 40)
    assert state.producers[Producer.INFORMER_BRIDGE].holder == "two"
    first.send_signal(signal.SIGCONT)
    await toys.says("one", "our epoch 1 is over: the log refused commit")
    after = await folded(server)
    assert len(after.namespaces) == 40
    assert after.producers[Producer.INFORMER_BRIDGE].epoch == 2
    first.send_signal(signal.SIGTERM)
    assert await ends(first) == Exit.OK


async def test_a_standby_takes_over_from_a_killed_leader(server: EmbeddedServer, toys: Toys) -> None:
    """Kill -9 of the leader: the standby continues at the end of the log, within the lease's term."""
    first = toys.start(server.url, "one", goal=30)
    await until_counted(server, 30)
    toys.start(server.url, "two", goal=60)
    await toys.says("two", "on standby")
    os.kill(first.pid, signal.SIGKILL)
    state = await until_counted(server, 60)
    assert state.producers[Producer.INFORMER_BRIDGE].epoch == 2


async def test_a_restarted_leader_of_the_same_name_goes_on_at_once(server: EmbeddedServer, toys: Toys) -> None:
    """Killed and started again under its own name, a process does not wait for its own lease to expire."""
    first = toys.start(server.url, "one", goal=1_000)
    await until_counted(server, 20)
    first.kill()
    first.wait()
    before = len((await folded(server)).namespaces)
    toys.start(server.url, "one", goal=before + 20)
    state = await until_counted(server, before + 20)
    assert len(state.namespaces) == before + 20
    assert state.producers[Producer.INFORMER_BRIDGE].epoch == 2


async def test_a_broker_that_is_killed_under_load_costs_nothing_but_time(server: EmbeddedServer, toys: Toys) -> None:
    """Each count is in the log exactly once, over five crashes of the broker in mid-stream."""
    process = toys.start(server.url, "one", goal=5_000)
    for crash in range(5):
        await until_counted(server, 200 * (crash + 1))
        await server.kill()
        await server.start()
    before = len((await folded(server)).namespaces)
    state = await until_counted(server, min(before + 100, 5_000))
    assert state.producers[Producer.INFORMER_BRIDGE].number >= len(state.namespaces)
    process.send_signal(signal.SIGTERM)
    assert await ends(process) == Exit.OK


async def test_a_process_waits_for_its_broker_and_can_be_stopped_meanwhile(server: EmbeddedServer, toys: Toys) -> None:
    """No broker is no reason to end; SIGTERM is."""
    await server.kill()
    process = toys.start(server.url, "one", goal=1)
    await toys.says("one", "waiting for nats")
    process.send_signal(signal.SIGTERM)
    assert await ends(process) == Exit.OK


async def test_an_unreadable_log_ends_with_its_own_exit_code(server: EmbeddedServer, toys: Toys) -> None:
    """Position, subject, reason and remedy are on stderr; the exit code means that a restart does not help."""
    async with connect(server.url, name="test") as connection:
        log = await open_log(connection, "main")
        await log.append("scheduler", b'{"events":[{"type":"no.such"}]}', expected_last=0, commit_id="x")
    process = toys.start(server.url, "one", goal=1)
    assert await ends(process) == Exit.BROKEN
    assert "cannot read the log entry at position 1 on headgate.main.log.scheduler" in toys.said("one")
    assert "Traceback" not in toys.said("one")
