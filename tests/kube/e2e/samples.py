"""
What a test of a sample works with: a control plane as Kueue's documentation assumes it, and Headgate beside it.

Samples are applied as they are, by kubectl. They name the namespace `default` and queues of the same names, so each is
tried alone: `Bench.tidy` removes what was applied. Nobody schedules the pods of the default scheduler here; where a
check needs them to run, `Bench.playing` binds them.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import yaml
from tests.kube.admission.servers import with_webhook
from tests.kube.e2e.cells import NAMESPACE, Deployment, Json
from tests.kube.e2e.cells import deployment as deployment_of
from tests.kube.e2e.objects import condition, cpu_of, is_true
from tests.kube.e2e.seeing import Condition
from tests.support.brokers import Broker
from tests.support.waiting import until

from headgate.adapters.kubernetes.crds.install import install
from headgate.adapters.kubernetes.crds.render import Conversion
from headgate.adapters.kubernetes.resources import NODES, PODS, WORKLOADS
from headgate.adapters.kubernetes.server_resources import SECRETS
from headgate.core.admission.settings import settings_of
from headgate.core.config.frameworks import SUPPORTED
from headgate.core.kubernetes.quantities import parse_quantity
from headgate.processes.runtime.settings import WebhookSettings
from headgate.testing.control_plane import Options, control_plane, find_assets
from headgate.testing.control_plane.samples import definitions

HERE: Final = "default"
BLOCK, RACK, ZONE = (
    "cloud.provider.com/topology-block",
    "cloud.provider.com/topology-rack",
    "topology.kubernetes.io/zone",
)
GROUP, OTHER_RACK = "cloud.provider.com/node-group", "cloud.provider.com/rack"

COMMON: Final[Json] = {
    "integrations": {"frameworks": list(SUPPORTED)},
    "featureGates": {
        "ElasticJobsViaWorkloadSlices": True,
        "ConcurrentAdmission": True,
        "TASMultiLayerTopology": True,
        "SparkApplicationIntegration": True,
    },
}
"""Of the Configuration: all kinds of jobs, and the gates that the documentation of a sample asks for."""

HEADER: Final = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}

PROJECTS: Final = (
    "jobset",
    "lws",
    "training-operator",
    "mpi-operator",
    "kuberay",
    "appwrapper",
    "spark-operator",
    "cluster-autoscaler",
)


class RefusedError(Exception):
    """What kubectl, or the API server, has said against a sample."""


class Bench:
    """A control plane with Headgate's definitions, policies and webhook, and a folder of samples."""

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        self.deployment = deployment
        self.folder = folder
        self._made: list[tuple[str, str]] = []

    def objects(self, path: str) -> list[Json]:
        """The objects of a sample."""
        return [each for each in yaml.safe_load_all((self.folder / path).read_text()) if each]

    async def apply(self, path: str) -> list[str]:
        """
        Apply a sample as it is; the names of its objects, with their kinds.

        Raises RefusedError when anything of it is refused; what was taken is there.
        """
        objects = self.objects(path)
        verb = "create" if any("generateName" in each["metadata"] for each in objects) else "apply"
        done = await self.deployment.plane.kubectl(verb, "-f", str(self.folder / path), "-o", "name", check=False)
        named = done.stdout.split()
        for name in named:
            kind = name.partition("/")[0]
            found = [each for each in objects if kind.startswith(each["kind"].lower())]
            self._made.append((name, (found or objects)[0]["metadata"].get("namespace", HERE)))
        if done.returncode != 0:
            raise RefusedError(done.stderr.strip())
        return named

    async def make(self, *objects: Json) -> None:
        """Apply objects that a sample's documentation takes for granted."""
        await self.deployment.apply(*objects)
        for each in objects:
            group = each["apiVersion"].rpartition("/")[0]
            kind = each["kind"].lower() + (f".{group}" if group else "")
            meta = each["metadata"]
            self._made.append((f"{kind}/{meta['name']}", meta.get("namespace", HERE)))

    async def dry(self, path: str) -> list[Json]:
        """What the API server would make of the objects of a sample."""
        done = await self.deployment.plane.kubectl(
            "create", "--dry-run=server", "-f", str(self.folder / path), "-o", "json", check=False
        )
        if done.returncode != 0:
            raise RefusedError(done.stderr.strip())
        decoder, text, found = json.JSONDecoder(), done.stdout.strip(), []
        while text:
            one, end = decoder.raw_decode(text)
            found += one.get("items", [one])
            text = text[end:].strip()
        return found

    async def get(self, name: str, namespace: str = HERE) -> Json:
        """An object by its kind and name, by kubectl; empty when it is not there."""
        done = await self.deployment.plane.kubectl("get", name, "-n", namespace, "-o", "json", "--ignore-not-found")
        found: Json = json.loads(done.stdout or "{}")
        return found

    async def becomes(self, name: str, *conditions: Condition, namespace: str = HERE) -> Json:
        """Wait until an object fulfils all conditions; the object."""
        found: Json = {}

        async def holds() -> bool:
            nonlocal found
            found = await self.get(name, namespace)
            return bool(found) and all(each(found) for each in conditions)

        await until(holds, lambda: f"{name}: {json.dumps(found)}")
        return found

    async def workloads(self, namespace: str = HERE) -> list[Json]:
        """All Workloads, the oldest first."""
        found = await self.deployment.all(WORKLOADS, namespace)
        return sorted(found, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))

    async def workload(self, owner: str, *conditions: Condition, namespace: str = HERE) -> Json:
        """Wait until the Workload of a job, named with or without its kind, fulfils all conditions; the Workload."""
        found: list[Json] = []
        name = owner.rpartition("/")[2]

        async def holds() -> bool:
            nonlocal found
            everything = await self.workloads(namespace)
            found = [
                each
                for each in everything
                if name in [it["name"] for it in each["metadata"].get("ownerReferences", ())]
            ]
            return len(found) == 1 and all(each(found[0]) for each in conditions)

        await until(holds, lambda: f"the Workload of {owner}: {said_of(found)}")
        return found[0]

    async def count(self, number: int, condition: Condition, namespace: str = HERE) -> list[Json]:
        """Wait until so many Workloads fulfil a condition; these."""
        everything: list[Json] = []
        found: list[Json] = []

        async def holds() -> bool:
            nonlocal everything, found
            everything = await self.workloads(namespace)
            found = [each for each in everything if condition(each)]
            return len(found) == number

        await until(holds, lambda: f"{len(found)} of {number} Workloads: {said_of(everything)}")
        return found

    async def pods(self, namespace: str = HERE) -> list[Json]:
        """All pods."""
        return await self.deployment.all(PODS, namespace)

    @asynccontextmanager
    async def playing(self) -> AsyncIterator[None]:
        """The default scheduler, for as long as the block runs: each pod without gates gets a node that it fits on."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._bind)
            yield
            tasks.cancel_scope.cancel()

    async def _bind(self) -> None:
        while True:
            nodes, pods = await self.deployment.all(NODES), await self.deployment.all(PODS)
            free = {each["metadata"]["name"]: parse_quantity(each["status"]["allocatable"]["cpu"]) for each in nodes}
            labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in nodes}
            for pod in pods:
                if pod["spec"].get("nodeName") in free and pod["status"]["phase"] in ("Pending", "Running"):
                    free[pod["spec"]["nodeName"]] -= cpu_of(pod)
            for pod in filter(is_waiting, pods):
                wanted = pod["spec"].get("nodeSelector", {}).items()
                fitting = (name for name in free if free[name] >= cpu_of(pod) and wanted <= labels[name].items())
                if (node := next(fitting, None)) is not None:
                    free[node] -= cpu_of(pod)
                    target = {"target": {"apiVersion": "v1", "kind": "Node", "name": node}}
                    meta = pod["metadata"]
                    await self.deployment.client.request(
                        "POST",
                        f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding",
                        body={"metadata": {"name": meta["name"]}, **target},
                    )
            await anyio.sleep(0.05)

    async def tidy(self) -> None:
        """Remove everything that was applied: first what runs, then the queues, while the cell takes finalizers off."""
        made, self._made = list(dict.fromkeys(self._made)), []
        kubectl = self.deployment.plane.kubectl
        spaces = {HERE, *(namespace for _, namespace in made)}
        for name, namespace in made:
            if ".kueue.x-k8s.io/" not in name and not name.startswith("namespace/"):
                await kubectl("delete", "--ignore-not-found", "--wait=false", "-n", namespace, name)
        for namespace in spaces:
            await kubectl("delete", "--wait=false", "-n", namespace, "workloads.kueue.x-k8s.io,pods,jobs", "--all")

        left: list[Json] = []

        async def are_gone() -> bool:
            nonlocal left
            left = [each for space in spaces for each in (*await self.workloads(space), *await self.pods(space))]
            return not left

        await until(are_gone, lambda: said_of(left))
        for name, namespace in reversed(made):
            await kubectl("delete", "--ignore-not-found", "-n", namespace, name)


def said_of(objects: Sequence[Json]) -> str:
    """What is told of objects where a check waits in vain."""
    told = []
    for each in objects:
        status = each.get("status", {})
        conditions = [
            f"{it['type']}={it['status']} {it['reason']}: {it['message']}" for it in status.get("conditions", ())
        ]
        told.append(f"{each['metadata']['name']} ({each['metadata'].get('finalizers')}): {conditions}")
    return "; ".join(told)


def owners(obj: Json) -> list[str]:
    """The names of the objects that own one."""
    return [each["name"] for each in obj["metadata"].get("ownerReferences", ())]


def is_waiting(pod: Json) -> bool:
    """Whether the default scheduler would place a pod."""
    spec, meta = pod["spec"], pod["metadata"]
    return not (
        spec.get("nodeName")
        or spec.get("schedulingGates")
        or meta.get("deletionTimestamp")
        or meta["namespace"] == NAMESPACE
        or spec["schedulerName"] != "default-scheduler"
    )


def is_held(pod: Json) -> bool:
    """Whether a pod waits for its admission."""
    return {"name": "kueue.x-k8s.io/admission"} in pod["spec"].get("schedulingGates", ())


def message(found: Json, kind: str) -> str:
    """The message of a condition; empty when there is none of this type."""
    return next((str(each["message"]) for each in found["status"].get("conditions", ()) if each["type"] == kind), "")


def pod_sets(workload: Json) -> dict[str, int]:
    """The pod sets of a Workload, with their counts."""
    return {each["name"]: each["count"] for each in workload["spec"]["podSets"]}


def is_pending(workload: Json) -> bool:
    """Whether a Workload has been tried, and waits for quota."""
    return condition(workload, "QuotaReserved")[0] == "False" and bool(message(workload, "QuotaReserved"))


def node(name: str, cpu: int, labels: Mapping[str, str]) -> Json:
    """A node as a kubelet registers it."""
    room = {"cpu": str(cpu), "memory": "256Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {"capacity": room, "allocatable": room},
    }


async def add_nodes(deployment: Deployment, nodes: Sequence[Json]) -> None:
    """Make nodes, and wait until they are Ready."""
    for each in nodes:
        await deployment.client.create(NODES, each)
    names = {each["metadata"]["name"] for each in nodes}

    async def are_ready() -> bool:
        return names <= {each["metadata"]["name"] for each in await deployment.all(NODES) if is_true(each, "Ready")}

    await until(are_ready)


@asynccontextmanager
async def samples_plane(folder: Path) -> AsyncIterator[Deployment]:
    """A control plane with both versions of the API, the rules of admission, and a node of 64 CPU."""
    async with AsyncExitStack() as stack:
        options = Options(nodes=0)
        plane = await stack.enter_async_context(control_plane(find_assets(), folder / "plane", options=options))
        broker = await stack.enter_async_context(Broker(folder / "nats"))
        deployed = await stack.enter_async_context(deployment_of(plane, broker))
        for project in PROJECTS:
            for file in definitions(project):
                await plane.kubectl("apply", "--server-side", "-f", str(file))
        server = await stack.enter_async_context(
            with_webhook(plane, deployed.client, settings_of({**HEADER, **COMMON}))
        )
        secret = await deployed.get(SECRETS, WebhookSettings().secret, NAMESPACE)
        webhook = Conversion(url=f"https://localhost:{server.port}/convert", ca_bundle=secret["data"]["ca.crt"])
        assert [each async for each in install(deployed.client, convert=True, webhook=webhook)]
        await add_nodes(deployed, [node("large", 64, {"instance-type": "on-demand"})])
        yield deployed
