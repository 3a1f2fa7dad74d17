"""
A whole cell on a real control plane, for the benchmarks: etcd, kube-apiserver, broker, the six processes.

`running` starts all of it in a folder and gives a `KubeCell`; with `sampled` each of our processes is sampled 100 times
a second of its CPU time (`profiling/sitecustomize.py`), which costs it less than one percent. `running_kueue` starts
Kueue's scheduler and core controllers in place of ours (`kube_reference.py`).
"""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import anyio
import msgspec
from tests.benchmarks import kube_reference
from tests.benchmarks.kube_meter import Api, Meter
from tests.benchmarks.kube_reference import KUEUE
from tests.benchmarks.manifests import Manifest

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.crds.install import install
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.cli.supervisor import NATS, PROCESSES, Supervisor, UpOptions, place_all
from headgate.testing.control_plane import ControlPlane, Options, control_plane, find_assets
from headgate.testing.control_plane.component import Component
from headgate.testing.control_plane.operators import operator

PROFILING: Final = Path(__file__).parent / "profiling"
OPERATOR: Final = "operator"
"""The operator of the jobs' kind among the processes."""
CONFIGURATION: Final = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
PATHS: Final = {
    "Namespace": "/api/v1/namespaces",
    "Topology": "/apis/kueue.x-k8s.io/v1beta2/topologies",
    "Node": "/api/v1/nodes",
    "ResourceFlavor": "/apis/kueue.x-k8s.io/v1beta2/resourceflavors",
    "ClusterQueue": "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
    "LocalQueue": "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/localqueues",
}


class KubeCell:
    """
    A running scheduler and the control plane that it works on.

    `own` gives the process ids of the scheduler by name, as they are when it is called.
    """

    def __init__(self, plane: ControlPlane, own: Callable[[], dict[str, int]], api: Api) -> None:
        self.plane = plane
        self.own = own
        self.api = api

    def pids(self) -> dict[str, int]:
        """Every process that runs, by name."""
        return self.plane.pids() | self.own()

    def meter(self) -> Meter:
        """A meter of all of them."""
        return Meter(self.api, self.pids())

    async def create(self, manifests: list[Manifest]) -> None:
        """Create the objects of a cluster, in their order."""
        for manifest in manifests:
            path = PATHS[manifest["kind"]].format(manifest["metadata"].get("namespace", ""))
            await self.api.post(path, msgspec.json.encode(manifest))
            if manifest["kind"] == "Node":
                # The API server taints each new node as not ready, and no controller is there to remove that.
                await self.api.patch(f"{path}/{manifest['metadata']['name']}", b'{"spec":{"taints":null}}')


@asynccontextmanager
async def running(
    folder: Path,
    *,
    options: Options,
    sampled: bool,
    framework: str = "",
    with_operator: str = "",
    placing: bool = False,
) -> AsyncIterator[KubeCell]:
    """
    A cell that is ready, until the block ends. Raises NoAssetsError, StartError, CliError.

    `framework` is the only kind of jobs that it runs, "" for batch/v1 Jobs; `with_operator` names that of the kind.
    `placing`: it places all pods, for there is no kube-scheduler.
    """
    samples = folder / "samples"
    samples.mkdir(parents=True)
    env = {"PYTHONPATH": _before(PROFILING), "BENCH_SAMPLES": str(samples)} if sampled else {}
    configuration = ""
    if framework:
        file = folder / "configuration.json"
        file.write_bytes(msgspec.json.encode({**CONFIGURATION, "integrations": {"frameworks": [framework]}}))
        configuration = str(file)
    async with _with_crds(folder, options) as (plane, api), AsyncExitStack() as stack:
        beside: dict[str, Component] = {}
        if with_operator:
            beside[OPERATOR] = await stack.enter_async_context(operator(plane, with_operator, folder / "operator"))
        up = UpOptions(
            data=folder / "cell",
            kubeconfig=str(plane.kubeconfig),
            env=env,
            configuration=configuration,
            placement=place_all(folder) if placing else "",
        )
        async with Supervisor(up) as cell:
            await cell.wait_ready()

            def pids() -> dict[str, int]:
                own = {name: cell.pid(name) or 0 for name in (*PROCESSES, NATS)}
                return own | {name: each.pid or 0 for name, each in beside.items()}

            yield KubeCell(plane, pids, api)


@asynccontextmanager
async def running_kueue(folder: Path, *, options: Options, topologies: bool) -> AsyncIterator[KubeCell]:
    """Kueue in place of a cell, until the block ends. Raises NoAssetsError, StartError, BuildError."""
    binary = await anyio.to_thread.run_sync(kube_reference.build)
    async with _with_crds(folder, options) as (plane, api):
        kueue = kube_reference.component(binary, plane.kubeconfig, folder / "kueue.log", topologies=topologies)
        kueue.launch()
        try:
            await kueue.wait_ready()
            yield KubeCell(plane, lambda: {KUEUE: kueue.pid or 0}, api)
        finally:
            await kueue.stop()


@asynccontextmanager
async def _with_crds(folder: Path, options: Options) -> AsyncIterator[tuple[ControlPlane, Api]]:
    async with control_plane(find_assets(), folder / "plane", options=options) as plane:
        await install_crds(plane)
        async with aiohttp.ClientSession() as session:
            yield plane, Api(session, plane.url, plane.token, plane.ca_file)


def _before(folder: Path) -> str:
    """PYTHONPATH with a folder in front."""
    return os.pathsep.join(part for part in (str(folder), os.environ.get("PYTHONPATH", "")) if part)


async def install_crds(plane: ControlPlane) -> None:
    """Put our CustomResourceDefinitions into the cluster."""
    async with open_transport(plane.access()) as transport:
        async for _ in install(KubeClient(transport)):
            pass
