"""A whole cell in one event loop: NATS with a user for each process, the simulated cluster, processes as `Runner`s."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import msgspec
from tests.support.brokers import Broker

from headgate.processes.entry import NAMES, Routes, Runner, processes
from headgate.processes.runtime.settings import KubernetesSettings, Settings
from headgate.testing.cluster import Cluster
from headgate.testing.cluster.api.server import serve, wall_clock_ms
from headgate.testing.world.world import CONTROLLERS


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
    broker: Broker,
    cell: str,
    *,
    cluster: Cluster | None = None,
    names: tuple[str, ...] = NAMES,
    routes: Routes | None = None,
    **sections: Any,
) -> AsyncIterator[Cell]:
    """
    A cell that runs while the block does, each process as its own NATS user, and is then stopped in good order.

    Nothing that they do may have been refused by the broker.
    """
    await broker.admit(cell)
    cluster = cluster if cluster is not None else Cluster(wall_clock_ms, controllers=CONTROLLERS)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serve(cluster))
        settings = Settings(
            cell=cell,
            holder="test",
            kubernetes=KubernetesSettings(server=server),
            **sections,
        )
        running = Cell(settings, cluster)
        async with anyio.create_task_group() as tasks:
            for name in names:
                mine = msgspec.structs.replace(settings, nats=broker.settings(cell, name))
                runner = Runner(processes()[name], mine, routes=routes if name == "snapshotter" else None)
                running.runners[name] = runner
                tasks.start_soon(runner.run)
            yield running
            for runner in running.runners.values():
                runner.stop()
    assert broker.violations() == []
