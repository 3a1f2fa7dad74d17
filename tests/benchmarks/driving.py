"""
Driving a whole cell from outside: six processes, broker and simulated cluster as processes of the operating system.

`running_cell` starts one and gives a `Driver`: a client of its API server and a reader of its log, which is all that
an outsider has. Every wait has a deadline; one that passes raises `Late`, whose message names what was missing.
"""

import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.abc
import msgspec
from tests.benchmarks.manifests import Manifest

from headgate.adapters.jetstream import connect, open_log
from headgate.adapters.jetstream.permissions import READER
from headgate.cli.supervisor import Supervisor, UpOptions
from headgate.core import fold
from headgate.core.state.tables import State
from headgate.events.commit import LoggedCommit, decode_commit

PATHS = {
    "Namespace": "api/v1/namespaces",
    "Node": "api/v1/nodes",
    "ResourceFlavor": "apis/kueue.x-k8s.io/v1beta2/resourceflavors",
    "ClusterQueue": "apis/kueue.x-k8s.io/v1beta2/clusterqueues",
    "LocalQueue": "apis/kueue.x-k8s.io/v1beta2/namespaces/{}/localqueues",
    "Job": "apis/batch/v1/namespaces/{}/jobs",
    "Pod": "api/v1/namespaces/{}/pods",
}
IN_FLIGHT = 16
JSON = {"Content-Type": "application/json"}


class Late(AssertionError):  # noqa: N818 - it names what happened
    """Raised when something took longer than its deadline."""


async def eventually(condition: Callable[[], bool], what: Callable[[], str], timeout_s: float) -> None:
    """Wait for a condition that other tasks bring about. Raises Late with what is missing."""
    with anyio.move_on_after(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other processes
            await anyio.sleep(0.01)
        return
    raise Late(f"not within {timeout_s:g} s: {what()}")


class Driver:
    """An outsider's view of a running cell. `state` is the log as folded here, `seen_at` when each commit came."""

    def __init__(self, cell: Supervisor, session: aiohttp.ClientSession, server: str = "") -> None:
        self.cell = cell
        self.url = server or cell.info().server
        self.session = session
        self.state: State = fold.new_state(cell.options.cell)
        self.listeners: list[Callable[[LoggedCommit, float], None]] = []
        self.events = 0

    async def create(self, manifest: Manifest) -> float:
        """Create an object; the moment (perf_counter) before it was sent. A server that is away is waited for."""
        metadata = manifest["metadata"]
        path = PATHS[manifest["kind"]].format(metadata.get("namespace", ""))
        data = msgspec.json.encode(manifest)
        while True:
            begun = time.perf_counter()
            try:
                async with self.session.post(f"{self.url}/{path}", data=data, headers=JSON) as answer:
                    body = await answer.read()
                    if answer.status < 500 and answer.status != 429:
                        assert answer.status in (200, 201, 409), (answer.status, body)
                        return begun
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
                pass
            await anyio.sleep(0.1)

    async def create_all(self, manifests: Iterable[Manifest], in_flight: int = IN_FLIGHT) -> None:
        """Create many, several at a time."""
        left = iter(list(manifests))

        async def worker() -> None:
            for manifest in left:
                await self.create(manifest)

        async with anyio.create_task_group() as tasks:
            for _ in range(in_flight):
                tasks.start_soon(worker)

    async def items(self, path: str) -> list[dict[str, Any]]:
        """The objects of a list."""
        async with self.session.get(f"{self.url}/{path}") as answer:
            listing: dict[str, Any] = msgspec.json.decode(await answer.read())
            return listing["items"] or []

    async def follow(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Fold the log as it grows, for ever, and notify the listeners."""
        async with connect(self.cell.nats_url, name="driver", options=self.cell.nats_options(READER)) as connection:
            log = await open_log(connection, self.cell.options.cell)
            async with log.tail(1) as tail:
                task_status.started()
                while True:
                    for entry in await tail.receive():
                        at = time.perf_counter()
                        logged = decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms)
                        fold.apply(self.state, logged)
                        self.events += len(logged.commit.events)
                        for listener in self.listeners:
                            listener(logged, at)

    async def watch_workloads(self, seen: Callable[[dict[str, Any], float], None]) -> None:
        """Call `seen` with each Workload that the API server shows, and the time."""
        url = f"{self.url}/apis/kueue.x-k8s.io/v1beta2/workloads?watch=1"
        async with self.session.get(url, timeout=aiohttp.ClientTimeout(total=None)) as answer:
            async for line in answer.content:
                at = time.perf_counter()
                event = msgspec.json.decode(line)
                if event["type"] in ("ADDED", "MODIFIED"):
                    seen(event["object"], at)


@asynccontextmanager
async def running_cell(
    data: Path,
    *,
    told: Callable[[str], None] = lambda _: None,
    server: str = "",
    token: str = "",
    tls: ssl.SSLContext | None = None,
    **options: Any,
) -> AsyncIterator[Driver]:
    """
    A cell that is ready, and its driver, until the block ends.

    The driver uses the cell's own cluster, or the API server that `server`, `token` and `tls` name.
    """
    async with Supervisor(UpOptions(data=data, **options), told) as cell:
        await cell.wait_ready()
        connector = aiohttp.TCPConnector(limit=64, ssl=tls or True)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession(connector=connector, headers=headers) as session,
            anyio.create_task_group() as tasks,
        ):
            driver = Driver(cell, session, server)
            await tasks.start(driver.follow)
            yield driver
            tasks.cancel_scope.cancel()


def run_driver(act: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    """Run with the event loop that the processes use."""
    return anyio.run(act, *args, backend_options={"use_uvloop": True})
