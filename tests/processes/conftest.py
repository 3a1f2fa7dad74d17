"""Hosts over a log in memory, and their surroundings."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.support.waiting import until

from headgate.adapters.jetstream.health import DependencyHealth
from headgate.core.machine.contract import AskExtender, Call, Completed, Machine, TakeSnapshot
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.processes.runtime.clock import ProcessClock, mono_ms, wall_ms
from headgate.processes.runtime.host import Host
from headgate.processes.runtime.host_parts import Parts, Stores
from headgate.processes.runtime.leadership import Report
from headgate.processes.runtime.process_status import Status
from headgate.testing.memory_log import AsyncMemoryLog, MemoryBlobs, MemoryLeases, MemoryLog


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


class Carrier:
    """Answers calls when the test lets it; `answer` is the status, `gate` holds answers back."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.gate: anyio.Event | None = None
        self.running = 0
        self.running_max = 0

    async def call(self, call: Call) -> Completed:
        self.calls.append(call)
        self.running += 1
        self.running_max = max(self.running, self.running_max)
        try:
            if self.gate is not None:
                await self.gate.wait()
            await anyio.lowlevel.checkpoint()
        finally:
            self.running -= 1
        return Completed(call.id, 200, b"{}")

    async def ask(self, ask: AskExtender) -> Completed:
        return Completed(ask.id, 0, f"{ask.extender}/{ask.path} is not there".encode())

    def snapshot(self, command: TakeSnapshot, state: State, report: Report) -> Callable[[], Any]:
        position = state.position

        async def store() -> None:
            report(Completed(command.call_id, 200, str(position).encode()))

        return store


class Surroundings:
    """What the processes of one cell share, in memory."""

    def __init__(self) -> None:
        self.memory = MemoryLog("main")
        self.log = AsyncMemoryLog(self.memory)
        self.blobs = MemoryBlobs()
        self.leases = MemoryLeases()

    def host(
        self,
        make_machine: Callable[[State], Machine],
        *,
        producer: Producer = Producer.INFORMER_BRIDGE,
        holder: str = "one",
        term_ms: int = 600,
        log: Any = None,
        now_ms: Callable[[], int] = wall_ms,
        mono_ms: Callable[[], int] = mono_ms,
        **more: Any,
    ) -> tuple[Host, Status, Carrier]:
        status = Status(process=producer.value, cell="main", holder=holder, health=DependencyHealth())
        carrier = Carrier()
        host = Host(
            producer,
            Parts(machine=make_machine, carrier=carrier),
            Stores(
                log=log if log is not None else self.log,
                blobs=self.blobs,
                lease=self.leases.lease(producer.value, holder, term_ms=term_ms),
            ),
            status,
            clock=ProcessClock(producer, status, wall=now_ms, mono=mono_ms),
            **more,
        )
        return host, status, carrier


@pytest.fixture
def around() -> Surroundings:
    return Surroundings()


@asynccontextmanager
async def running(*hosts: Host) -> AsyncIterator[None]:
    """The hosts run while the block does, and are stopped after it."""
    async with anyio.create_task_group() as tasks:
        for host in hosts:
            tasks.start_soon(host.run)
        yield
        for host in hosts:
            host.stop()


@pytest.fixture(name="until")
def until_fixture() -> Callable[[Callable[[], bool]], Any]:
    return until


@pytest.fixture(name="running")
def running_fixture() -> Callable[..., Any]:
    return running
