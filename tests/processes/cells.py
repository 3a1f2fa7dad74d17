"""A whole cell in one event loop: embedded NATS, the simulated cluster behind HTTP, and processes as `Runner`s."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio

from headgate.processes.entry import NAMES, Routes, Runner, processes
from headgate.processes.settings import KubernetesSettings, NatsSettings, Settings
from headgate.testing.cluster import Cluster
from headgate.testing.cluster.server import serve, wall_clock_ms


class Cell:
    """What the test may touch."""

    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self.settings = settings
        self.cluster = cluster
        self.runners: dict[str, Runner] = {}

    def apply(self, *objects: Mapping[str, Any]) -> None:
        for each in objects:
            self.cluster.apply(dict(each))


@asynccontextmanager
async def cell_of(
    nats_url: str,
    cell: str,
    *,
    cluster: Cluster | None = None,
    names: tuple[str, ...] = NAMES,
    routes: Routes | None = None,
    **sections: Any,
) -> AsyncIterator[Cell]:
    """A cell that runs while the block does, and is then stopped in good order."""
    cluster = cluster if cluster is not None else Cluster(wall_clock_ms)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serve(cluster))
        settings = Settings(
            cell=cell,
            holder="test",
            nats=NatsSettings(url=nats_url),
            kubernetes=KubernetesSettings(server=server),
            **sections,
        )
        running = Cell(settings, cluster)
        async with anyio.create_task_group() as tasks:
            for name in names:
                runner = Runner(processes()[name], settings, routes=routes if name == "snapshotter" else None)
                running.runners[name] = runner
                tasks.start_soon(runner.run)
            yield running
            for runner in running.runners.values():
                runner.stop()
