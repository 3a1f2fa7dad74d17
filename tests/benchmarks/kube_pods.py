"""
`python -m tests.benchmarks.kube_pods [--pods N] [--nodes N] [--alone] [--save DIR] [--json]`: pods, a real API server.

5,000 pods of four shapes arrive at once on 1,000 nodes that kwok plays: Headgate places them, and in the same run the
kube-scheduler does on an equal cluster; not with `--alone`. What is printed: pods a second from the first creation to
the last binding, writes for each pod, CPU for each pod of the scheduler, of its processes and of the API server.
"""

import argparse
import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import anyio
import msgspec
from tests.benchmarks.kube_cell import install_crds
from tests.benchmarks.kube_entry import options_of, run
from tests.benchmarks.kube_meter import Api, Costs, Meter, load_of_machine
from tests.benchmarks.measure import Report, Row

from headgate.cli.supervisor import NATS, PROCESSES, Supervisor, UpOptions
from headgate.testing.control_plane import API_SERVER, ControlPlane, Options, control_plane, find_assets
from headgate.testing.control_plane.kube_scheduler import KUBE_SCHEDULER, find_kube_scheduler, kube_scheduler

PODS: Final = 5_000
NODES: Final = 1_000
ZONES: Final = 10
IN_FLIGHT: Final = 16
POLL_S: Final = 0.25
SETTLE_S: Final = 3.0
DEADLINE_S: Final = 3_600.0
OF_PODS: Final = ("pods", "pods/status", "pods/binding", "events")
CONFIGURATION: Final = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

Json = dict[str, Any]


class PodsPlaced(msgspec.Struct, kw_only=True):
    """One scheduler's run: its processes by name, seconds until all pods had a node, and what it cost."""

    name: str
    own: tuple[str, ...]
    took_s: float
    costs: Costs


class MeasuredPods(msgspec.Struct, kw_only=True):
    """Both runs."""

    pods: int
    nodes: int
    runs: list[PodsPlaced]


def node_manifest(number: int) -> Json:
    resources = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    labels = {"topology.kubernetes.io/zone": f"zone-{number % ZONES}", "kubernetes.io/hostname": f"n{number:05}"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"n{number:05}", "labels": labels},
        "status": {"capacity": resources, "allocatable": resources},
    }


def pod_manifest(number: int) -> Json:
    """A pod of one of four shapes: plain, of a zone, spread over the zones, away from its equals."""
    app = f"app-{number % 4}-{number // 400}"
    selector = {"matchLabels": {"app": app}}
    zone = "topology.kubernetes.io/zone"
    spread = {"maxSkew": 1, "topologyKey": zone, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    preferred = [{"weight": 10, "podAffinityTerm": term}]
    more: list[Json] = [
        {},
        {"nodeSelector": {zone: f"zone-{number % ZONES}"}},
        {"topologySpreadConstraints": [spread]},
        {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}},
    ]
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"p{number:05}", "namespace": "default", "labels": {"app": app}},
        "spec": {"containers": [container], **more[number % 4]},
    }


async def _create(api: Api, path: str, manifests: list[Json]) -> None:
    left = iter(manifests)

    async def worker() -> None:
        for each in left:
            await api.post(path, msgspec.json.encode(each))

    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))


async def _count(api: Api, path: str) -> int:
    """How many objects a list has, by one page of one object."""
    listed = msgspec.json.decode(await api.get(path))
    return len(listed["items"]) + listed["metadata"].get("remainingItemCount", 0)


@asynccontextmanager
async def _cluster(folder: Path, nodes: int) -> AsyncIterator[tuple[ControlPlane, Api]]:
    async with control_plane(find_assets(), folder, options=Options(nodes=0)) as plane, aiohttp.ClientSession() as http:
        api = Api(http, plane.url, plane.token, plane.ca_file)
        await _create(api, "/api/v1/nodes", [node_manifest(number) for number in range(nodes)])
        while True:
            if b"node.kubernetes.io/not-ready" not in await api.get("/api/v1/nodes"):
                break
            await anyio.sleep(POLL_S)
        yield plane, api


async def _place(name: str, api: Api, plane: ControlPlane, own: dict[str, int], pods: int) -> PodsPlaced:
    await anyio.sleep(SETTLE_S)
    meter = Meter(api, plane.pids() | own)
    await meter.begin()
    begun = time.perf_counter()
    await _create(api, "/api/v1/namespaces/default/pods", [pod_manifest(number) for number in range(pods)])
    with anyio.fail_after(DEADLINE_S):
        while True:
            if not await _count(api, "/api/v1/pods?fieldSelector=spec.nodeName%3D&resourceVersion=0"):
                break
            await anyio.sleep(POLL_S)
    took_s = time.perf_counter() - begun
    await anyio.sleep(SETTLE_S)
    return PodsPlaced(name=name, own=tuple(own), took_s=took_s, costs=await meter.end())


async def measure(folder: Path, options: argparse.Namespace) -> MeasuredPods:
    """Ours, then the kube-scheduler."""
    if not options.alone:
        find_kube_scheduler()
    configuration = anyio.Path(folder) / "profiles.yaml"
    await configuration.parent.mkdir(parents=True, exist_ok=True)
    await configuration.write_text(CONFIGURATION)
    async with _cluster(folder / "ours", options.nodes) as (plane, api):
        await install_crds(plane)
        up = UpOptions(data=folder / "cell", kubeconfig=str(plane.kubeconfig), placement=str(configuration))
        async with Supervisor(up) as cell:
            await cell.wait_ready()
            own = {name: cell.pid(name) or 0 for name in (*PROCESSES, NATS)}
            runs = [await _place("Headgate", api, plane, own, options.pods)]
    if not options.alone:
        async with _cluster(folder / "theirs", options.nodes) as (plane, api):
            scheduler = await kube_scheduler(plane, folder / "scheduler", {})
            scheduler.launch()
            await scheduler.wait_ready()
            runs.append(await _place(KUBE_SCHEDULER, api, plane, {KUBE_SCHEDULER: scheduler.pid or 0}, options.pods))
            await scheduler.stop()
    return MeasuredPods(pods=options.pods, nodes=options.nodes, runs=runs)


def _parts(run: PodsPlaced, pods: int) -> list[Row]:
    """CPU and memory by process, and writes by sort, of a run."""
    costs = run.costs
    rows = [
        Row(
            what=f"{run.name}: {name}",
            figure=f"{1000 * costs.cpu_s[name] / pods:.2f} ms a pod",
            compared=f"peak {costs.peak_mib[name]:.0f} MiB",
        )
        for name in run.own
    ]
    for request, count in sorted(costs.writes("", "events.k8s.io").items()):
        if request.resource in OF_PODS:
            what = f"{run.name}: {request.verb} {request.resource}, answered {request.code}"
            rows.append(Row(what=what, figure=f"{count / pods:.2f} a pod", compared=""))
    return rows


def report(measured: MeasuredPods, took_s: float) -> Report:
    """The figures, a row for each scheduler."""
    done = Report(name="bench-kube-pods", took_s=took_s)
    pods = measured.pods
    for each in measured.runs:
        cpu_s = sum(each.costs.cpu_s[name] for name in each.own)
        written = each.costs.writes("", "events.k8s.io")
        writes = sum(count for request, count in written.items() if request.resource in OF_PODS)
        done.rows.append(
            Row(
                what=f"{each.name}: {pods:,} pods on {measured.nodes:,} nodes",
                figure=f"{pods / each.took_s:.0f} pods/s",
                compared=f"CPU per pod {1000 * cpu_s / pods:.1f} ms, the API server's "
                f"{1000 * each.costs.cpu_s[API_SERVER] / pods:.1f} ms; writes of pods and Events {writes / pods:.2f} "
                "a pod, with the driver's creation and kwok's status",
            )
        )
        done.rows += _parts(each, pods)
    done.notes.append(load_of_machine())
    return done


def main() -> None:
    """Run once and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.kube_pods", description="Measure; judge nothing.")
    parser.add_argument("--pods", type=int, default=PODS, help=f"how many (default {PODS})")
    parser.add_argument("--nodes", type=int, default=NODES, help=f"how many (default {NODES})")
    parser.add_argument("--alone", action="store_true", help="Headgate only, without the kube-scheduler beside it")
    run(measure, report, options_of(parser))


if __name__ == "__main__":
    main()
