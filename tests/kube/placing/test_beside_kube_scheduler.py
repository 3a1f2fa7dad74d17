"""
200 pods of all sorts, placed by the kube-scheduler and by Headgate on equal clusters.

Neither may choose a node that is worse than another by the kube-scheduler's scoring at that moment. The choice among
equals is free, and so is the order of pods of one priority: the clusters part ways with the first tie. So each sequence
is decided again by the engine, attempt by attempt; in that of the kube-scheduler the engine must find its very scores.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from tests.kube.placing.mixed import NAMESPACE, nodes, pods, priority_classes
from tests.kube.placing.reference_log import LEVEL, attempts
from tests.kube.placing.sequences import Sequence
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.crds.install import install
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.resources import NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Resource
from headgate.cli.options import SourceOptions
from headgate.cli.source import Until, commits, open_source
from headgate.cli.supervisor import Supervisor, UpOptions
from headgate.events.decisions import PodPlaced
from headgate.testing.control_plane import ControlPlane, NoAssetsError, Options, control_plane, find_assets
from headgate.testing.control_plane.kube_scheduler import find_kube_scheduler, kube_scheduler

pytestmark = [pytest.mark.anyio, pytest.mark.kube, pytest.mark.operators]

Json = dict[str, Any]

SEED: Final = 1
NODES_COUNT: Final = 40
PODS_COUNT: Final = 200


@pytest.fixture(autouse=True, scope="module")
def _built() -> None:
    try:
        find_kube_scheduler()
    except NoAssetsError as error:
        pytest.skip(str(error))


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[tuple[ControlPlane, KubeClient]]:
    """A control plane with the nodes, ready, and the pods, none of them placed."""
    async with (
        control_plane(find_assets(), folder, options=Options(nodes=0)) as plane,
        open_transport(plane.access()) as transport,
    ):
        client = KubeClient(transport)
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for each in priority_classes():
            await client.create(PRIORITY_CLASSES, each)
        for each in nodes(SEED, NODES_COUNT):
            await client.create(NODES, each)
        await until(lambda: _are_ready(client))
        for each in pods(SEED, PODS_COUNT):
            await client.create(PODS, each, NAMESPACE)
        yield plane, client


async def _all(client: KubeClient, resource: Resource) -> list[Json]:
    return [msgspec.json.decode(each) for each in (await client.list(resource)).items]


def _conditions(manifest: Json) -> list[Json]:
    return manifest["status"].get("conditions") or []


async def _are_ready(client: KubeClient) -> bool:
    """All nodes are, and have lost the taint of those that are not."""
    found = await _all(client, NODES)
    taints = [taint["key"] for node in found for taint in node["spec"].get("taints") or ()]
    conditions = [each for node in found for each in _conditions(node) if each["type"] == "Ready"]
    return len(conditions) == NODES_COUNT and "node.kubernetes.io/not-ready" not in taints


async def _placements(client: KubeClient) -> dict[str, str]:
    """The node of each pod that has one."""
    found = await _all(client, PODS)
    return {f"{NAMESPACE}/{pod['metadata']['name']}": node for pod in found if (node := pod["spec"].get("nodeName"))}


async def _settled(client: KubeClient) -> None:
    """Wait until each pod has a node, or a condition that says why it has none."""

    async def is_settled() -> bool:
        return all(
            pod["spec"].get("nodeName") or any(each["type"] == "PodScheduled" for each in _conditions(pod))
            for pod in await _all(client, PODS)
        )

    await until(is_settled, lambda: _placements(client))


async def _sequence(client: KubeClient) -> Sequence:
    return Sequence(
        {
            "namespaces": await _all(client, NAMESPACES),
            "nodes": await _all(client, NODES),
            "pods": await _all(client, PODS),
        }
    )


async def test_the_engine_scores_as_the_kube_scheduler_and_finds_its_choices_among_the_best(tmp_path: Path) -> None:
    """At every attempt of its sequence: each feasible node has the same total, and the best are equally good."""
    async with cluster(tmp_path / "plane") as (plane, client):
        # Batching reuses the scores of an equal pod; without it each attempt is one by itself.
        flags = (f"--v={LEVEL}", "--feature-gates=OpportunisticBatching=false")
        scheduler = await kube_scheduler(plane, tmp_path / "scheduler", {}, flags=flags)
        scheduler.launch()
        await scheduler.wait_ready()
        await _settled(client)
        await scheduler.stop()
        placed = await _placements(client)
        sequence = await _sequence(client)
    tried = list(attempts(scheduler.log_file))
    assert {each.pod for each in tried if each.fits} == placed.keys()
    assert PODS_COUNT * 0.8 < len(placed) < PODS_COUNT, "some are to fit nowhere, and most somewhere"
    scored = 0
    for each in tried:
        ours = sequence.decide(each.pod)
        assert ours.totals == each.totals, each.pod
        assert bool(ours.best) == each.fits, each.pod
        if each.fits:
            assert placed[each.pod] in ours.best, each.pod
            sequence.place(each.pod, placed[each.pod])
        scored += bool(each.totals)
    assert scored > PODS_COUNT / 2


async def test_headgate_takes_a_node_of_the_best_score_at_each_attempt(tmp_path: Path) -> None:
    """In the order of its own log, by the engine whose scores are those of the kube-scheduler; as many pods fit."""
    configuration = tmp_path / "profiles.yaml"
    configuration.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    async with cluster(tmp_path / "plane") as (plane, client):
        async for _ in install(client):
            pass
        up = UpOptions(data=tmp_path / "cell", kubeconfig=str(plane.kubeconfig), placement=str(configuration))
        async with Supervisor(up) as cell:
            await cell.wait_ready()
            await _settled(client)
            chosen = await _chosen(cell)
        placed = await _placements(client)
        sequence = await _sequence(client)
    assert PODS_COUNT * 0.8 < len(placed) < PODS_COUNT
    assert {pod for pod, _ in chosen} == placed.keys()
    for pod, node in chosen:
        assert node == placed[pod]
        assert node in sequence.decide(pod).best, pod
        sequence.place(pod, node)


async def _chosen(cell: Supervisor) -> list[tuple[str, str]]:
    """The pods that were placed with their nodes, in the order of the log."""
    where = SourceOptions(data=cell.data)
    async with open_source(where) as source:
        return [
            (event.pod, event.node)
            async for logged in commits(source, Until())
            for event in logged.commit.events
            if isinstance(event, PodPlaced)
        ]
