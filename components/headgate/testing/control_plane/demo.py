"""
`make demo-kube`: the demo on a real control plane.

The same teams, queues and jobs as in `headgate demo`, with the real API server, the real Job controller and kubectl in
place of the simulated cluster. There is no kube-scheduler: Headgate places the pods. The state of the API server at the
end is checked, as well as the log.
"""

import shutil
import time
from typing import Final

import anyio
import msgspec

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.crds.install import install
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.resources import JOBS, WORKLOADS, Resource
from headgate.cli import cell
from headgate.cli.demo import make_room, show
from headgate.cli.demo_objects import TEAMS
from headgate.cli.output import console, say
from headgate.cli.supervisor import Supervisor, UpOptions, place_all, until_signal
from headgate.cli.up import greet
from headgate.testing.control_plane.assets import Assets
from headgate.testing.control_plane.flags import Options
from headgate.testing.control_plane.plane import ControlPlane, control_plane

NAME: Final = "demo-kube"
TIMEOUT_S: Final = 600.0
"""The Job controller of a busy machine takes its time: more than the simulated cluster's demo needs."""
_ROWS: Final = 8
"""How many workloads are shown of many."""


async def demo(assets: Assets, jobs: int, seed: int, *, keep: bool) -> bool:
    """
    Run it; whether anything was found wrong. The log stays in ./.headgate/demo-kube, the control plane's data do not.

    Raises CliError when the jobs do not finish in time, StartError when the control plane does not start.
    """
    out = console()
    directory = cell.ROOT / NAME
    make_room(directory, NAME)
    begun = time.monotonic()
    folder = directory / "control-plane"
    async with until_signal(), control_plane(assets, folder, options=Options(nodes=0)) as plane:
        out.print(
            f"[bold]headgate demo[/bold] on a real control plane: etcd, kube-apiserver {await plane.version()}, "
            f"kube-controller-manager and kwok are up after {time.monotonic() - begun:.1f} s"
        )
        since = time.monotonic()
        await _install(plane)
        options = UpOptions(
            data=directory, cell=NAME, kubeconfig=str(plane.kubeconfig), placement=place_all(plane.folder)
        )
        async with Supervisor(options, say) as running:
            await running.wait_ready()
            out.print(
                f"Kueue's kinds are installed, broker and six processes are up after {time.monotonic() - since:.1f} s "
                f"more; {jobs} jobs of {len(TEAMS)} teams"
            )
            seen = _Seen(plane, jobs)
            failed = await show(
                running, jobs, seed, half_way=seen.half_way, finished=seen.finished, timeout_s=TIMEOUT_S
            )
            out.print(f"\n[dim]all of it took {time.monotonic() - begun:.1f} s; the log stays in {directory}[/dim]")
            if keep:
                greet(running)
                await anyio.sleep_forever()
    if not failed:
        shutil.rmtree(folder)
    return failed


async def _install(plane: ControlPlane) -> None:
    async with open_transport(plane.access()) as transport:
        async for _ in install(KubeClient(transport)):
            pass


class _Seen:
    """What kubectl shows, half way and at the end."""

    def __init__(self, plane: ControlPlane, jobs: int) -> None:
        self._plane = plane
        self._jobs = jobs
        self._half_way = ""

    async def half_way(self) -> None:
        """Keep what the queues and some of their workloads look like while there is work."""
        queues = await self._plane.kubectl("get", "clusterqueues,localqueues", "--all-namespaces")
        workloads = await self._plane.kubectl("get", "workloads", "--all-namespaces")
        self._half_way = f"{queues.stdout.strip()}\n\n{_some(workloads.stdout)}"

    async def finished(self) -> bool:
        """Show both moments, and count what the API server has; whether something is not finished there."""
        out = console()
        out.print("\n[bold]Half way[/bold], `kubectl get clusterqueues,localqueues,workloads --all-namespaces` said:\n")
        out.print(self._half_way, markup=False)
        async with open_transport(self._plane.access()) as transport:
            client = KubeClient(transport)
            complete = await _count(client, JOBS, "Complete")
            over = await _count(client, WORKLOADS, "Finished")
        queues = await self._plane.kubectl("get", "clusterqueues,localqueues", "--all-namespaces")
        out.print("\n[bold]Now[/bold] it says:\n")
        out.print(queues.stdout.strip(), markup=False)
        out.print(
            f"\nthe API server has {complete} of {self._jobs} Jobs with the condition Complete, "
            f"{over} Workloads with the condition Finished"
        )
        return complete != self._jobs or over != self._jobs


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Object(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


async def _count(client: KubeClient, resource: Resource, condition: str) -> int:
    """How many objects have a condition that is True."""
    objects = [msgspec.json.decode(item, type=_Object) for item in (await client.list(resource)).items]
    return sum(any(c.type == condition and c.status == "True" for c in each.status.conditions) for each in objects)


def _some(table: str) -> str:
    """The head of a long table, and how much more there is."""
    lines = table.rstrip().splitlines()
    more = len(lines) - 1 - _ROWS
    return "\n".join(lines[: 1 + _ROWS] + ([f"... and {more} more"] if more > 0 else []))
