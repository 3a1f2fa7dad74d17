"""Headgate's processes place pods on a real control plane: victims within a budget, and volumes that wait for a pod."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.crds.install import install
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.resources import NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Resource
from headgate.cli.options import SourceOptions
from headgate.cli.source import Until, commits, open_source
from headgate.cli.supervisor import Supervisor, UpOptions
from headgate.events.decisions import PodNominated, PodPlaced, PodPrepared, Victim
from headgate.events.effects import PodPreempted
from headgate.events.ids import PodKey
from headgate.events.registry import Event
from headgate.testing.control_plane import Options, control_plane, find_assets

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

Json = dict[str, Any]

NAMESPACE = "team"
BUDGETS = Resource(
    group="policy", version="v1", plural="poddisruptionbudgets", kind="PodDisruptionBudget", namespaced=True
)
CLASSES = Resource(group="storage.k8s.io", version="v1", plural="storageclasses", kind="StorageClass", namespaced=False)
VOLUMES = Resource(group="", version="v1", plural="persistentvolumes", kind="PersistentVolume", namespaced=False)
CLAIMS = Resource(
    group="", version="v1", plural="persistentvolumeclaims", kind="PersistentVolumeClaim", namespaced=True
)


@asynccontextmanager
async def placing(folder: Path) -> AsyncIterator[tuple[KubeClient, Supervisor, str]]:
    """A control plane with one node of 4 CPU, and a cell that places the pods of every scheduler name; the node."""
    configuration = folder / "profiles.yaml"
    configuration.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    async with (
        control_plane(find_assets(), folder / "plane", options=Options(nodes=1)) as plane,
        open_transport(plane.access()) as transport,
    ):
        client = KubeClient(transport)
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        async for _ in install(client):
            pass
        up = UpOptions(data=folder / "cell", kubeconfig=str(plane.kubeconfig), placement=str(configuration))
        async with Supervisor(up) as cell:
            await cell.wait_ready()
            (node,) = await _all(client, NODES)
            yield client, cell, node["metadata"]["name"]


async def _all(client: KubeClient, resource: Resource) -> list[Json]:
    return [msgspec.json.decode(each) for each in (await client.list(resource)).items]


def pod(name: str, cpu: str = "1", **spec: Any) -> Json:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name.partition("-")[0]}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


async def nodes_of(client: KubeClient) -> dict[str, str]:
    """The nodes of the pods, "" for none."""
    pods = [each for each in await _all(client, PODS) if each["metadata"]["namespace"] == NAMESPACE]
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in pods}


async def told(cell: Supervisor, kinds: tuple[type[Event], ...]) -> list[Event]:
    """The events of the cell's log of some types."""
    found: list[Event] = []
    async with open_source(SourceOptions(data=cell.data)) as source:
        async for logged in commits(source, Until()):
            found += [event for event in logged.commit.events if isinstance(event, kinds)]
    return found


async def test_a_pod_takes_the_place_of_those_that_their_budget_lets_go(tmp_path: Path) -> None:
    """They are evicted: the API server charges the budget, which lets one of them go, and no more."""
    async with placing(tmp_path) as (client, cell, node):
        names = [f"web-{number}" for number in range(4)]
        budget = {"minAvailable": 3, "selector": {"matchLabels": {"app": "web"}}}
        await client.create(
            BUDGETS,
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": "web", "namespace": NAMESPACE},
                "spec": budget,
            },
            NAMESPACE,
        )
        important = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
        await client.create(PRIORITY_CLASSES, {**important, "metadata": {"name": "important"}})
        for name in names:
            await client.create(PODS, pod(name, cpu="900m"), NAMESPACE)

        async def lets_one_go() -> bool:
            (found,) = await _all(client, BUDGETS)
            status = found.get("status", {})
            return status.get("currentHealthy") == 4 and status.get("disruptionsAllowed") == 1

        await until(lets_one_go, lambda: _all(client, BUDGETS))
        await client.create(PODS, pod("first", cpu="900m", priorityClassName="important"), NAMESPACE)

        async def is_placed() -> bool:
            return (await nodes_of(client)).get("first") == node

        await until(is_placed, lambda: nodes_of(client))
        assert len((await nodes_of(client)).keys() & {*names}) == 3
        nominated: list[Victim] = []
        gone: list[PodKey] = []
        for event in await told(cell, (PodNominated, PodPreempted)):
            if isinstance(event, PodNominated):
                nominated += event.victims
            elif isinstance(event, PodPreempted):
                gone.append(event.pod)
        assert [victim.budgeted for victim in nominated] == [True]
        assert gone == [nominated[0].pod]


async def test_a_volume_is_bound_when_its_pod_has_a_node(tmp_path: Path) -> None:
    """The volume that the scheduler has chosen is claimed, the controller binds it, and then the pod is bound."""
    async with placing(tmp_path) as (client, cell, node):
        waiting = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
        kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"}}
        await client.create(CLASSES, {**kind, **waiting})
        for name, host in (("elsewhere", "no-such-node"), ("here", node)):
            await client.create(VOLUMES, volume(name, host))
        await client.create(CLAIMS, claim("data"), NAMESPACE)
        mounted = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        await client.create(PODS, pod("db", volumes=mounted), NAMESPACE)

        async def is_placed() -> bool:
            return (await nodes_of(client)).get("db") == node

        await until(is_placed, lambda: _all(client, CLAIMS))
        (bound,) = await _all(client, CLAIMS)
        assert (bound["spec"]["volumeName"], bound["status"]["phase"]) == ("here", "Bound")
        steps = await told(cell, (PodPlaced, PodPrepared))
        assert [type(step) for step in steps] == [PodPlaced, PodPrepared]
        assert [write.kind for write in writes_of(steps)] == ["PersistentVolume"]


def writes_of(steps: Iterable[Event]) -> list[Any]:
    return [write for step in steps if isinstance(step, PodPlaced) for write in step.writes]


def volume(name: str, host: str) -> Json:
    """A disk of one node."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "local": {"path": "/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


def claim(name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
