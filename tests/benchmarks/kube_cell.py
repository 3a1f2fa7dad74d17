"""
A whole cell on a real control plane, for the benchmarks: etcd, kube-apiserver, broker, the six processes.

`running` starts all of it in a folder and gives a `KubeCell`; with `sampled` each of our processes is sampled 100 times
a second of its CPU time (`profiling/sitecustomize.py`), which costs it less than one percent.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
from tests.benchmarks.kube_meter import Api, Meter
from tests.benchmarks.manifests import Manifest

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.crds.install import install
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.cli.supervisor import NATS, PROCESSES, Supervisor, UpOptions
from headgate.testing.control_plane import ControlPlane, Options, control_plane, find_assets

PROFILING: Final = Path(__file__).parent / "profiling"
PATHS: Final = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "ResourceFlavor": "/apis/kueue.x-k8s.io/v1beta2/resourceflavors",
    "ClusterQueue": "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
    "LocalQueue": "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/localqueues",
}


class KubeCell:
    """A running cell and the control plane that it works on."""

    def __init__(self, plane: ControlPlane, cell: Supervisor, api: Api, samples: Path) -> None:
        self.plane = plane
        self.cell = cell
        self.api = api
        self.samples = samples

    def pids(self) -> dict[str, int]:
        """Every process that runs, by name."""
        ours = {name: self.cell.pid(name) or 0 for name in (*PROCESSES, NATS)}
        return self.plane.pids() | ours

    def meter(self) -> Meter:
        """A meter of all of them."""
        return Meter(self.api, self.pids())

    async def create(self, manifests: list[Manifest]) -> None:
        """Create the objects of a cluster, in their order."""
        for manifest in manifests:
            path = PATHS[manifest["kind"]].format(manifest["metadata"].get("namespace", ""))
            await self.api.post(path, msgspec.json.encode(manifest))


@asynccontextmanager
async def running(folder: Path, *, options: Options, sampled: bool) -> AsyncIterator[KubeCell]:
    """A cell that is ready, until the block ends. Raises NoAssetsError, StartError, CliError."""
    samples = folder / "samples"
    samples.mkdir(parents=True)
    env = {"PYTHONPATH": _before(PROFILING), "BENCH_SAMPLES": str(samples)} if sampled else {}
    async with control_plane(find_assets(), folder / "plane", options=options) as plane:
        await install_crds(plane)
        up = UpOptions(data=folder / "cell", kubeconfig=str(plane.kubeconfig), env=env)
        async with Supervisor(up) as cell, aiohttp.ClientSession() as session:
            await cell.wait_ready()
            yield KubeCell(plane, cell, Api(session, plane.url, plane.token, plane.ca_file), samples)


def _before(folder: Path) -> str:
    """PYTHONPATH with a folder in front."""
    return os.pathsep.join(part for part in (str(folder), os.environ.get("PYTHONPATH", "")) if part)


async def install_crds(plane: ControlPlane) -> None:
    """Put our CustomResourceDefinitions into the cluster."""
    async with open_transport(plane.access()) as transport:
        async for _ in install(KubeClient(transport)):
            pass
