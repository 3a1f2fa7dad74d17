"""
From Kueue to Headgate in a running cluster and back, with Kueue itself: no running pod is disturbed either way.

The steps are those of docs/guides/moving-from-kueue.md.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import msgspec
import pytest
from tests.kube.e2e.cells import KUEUE, Cell, Json
from tests.kube.e2e.cells import deployment as deployment_of
from tests.kube.e2e.objects import cluster_queue, condition, flavor, is_true, job, local_queue, namespace
from tests.kube.e2e.pod_scheduler import pod_scheduler
from tests.support.brokers import Broker
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import KubeClient, PatchType, Propagation
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.resources import JOBS, PODS, RESOURCES, WORKLOADS, Resource
from headgate.adapters.kubernetes.server_resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
)
from headgate.cli.main import run
from headgate.core.admission.settings import settings_of
from headgate.processes.runtime.serving_certificates import ServingCertificates, clients_in
from headgate.processes.runtime.settings import BridgeSettings, KubernetesSettings, Settings, WebhookSettings
from headgate.processes.webhook.process import WebhookServer
from headgate.testing.control_plane import ControlPlane, Options, control_plane, find_assets
from headgate.testing.control_plane.kueue_manager import FRAMEWORKS, Kueue, install_kueue
from headgate.testing.control_plane.kueue_programs import MANAGER, find_program
from headgate.testing.control_plane.operators import find_operator, operator

pytestmark = [pytest.mark.anyio, pytest.mark.kube, pytest.mark.operators]

TEAM = "team"
RACK = "example.com/rack"
HOST = "kubernetes.io/hostname"
FOR_EVER_MS = 10**9
POOL = {"pool": "general"}
READY_IN_TIME = {
    "timeout": "20s",
    "requeuingStrategy": {"backoffBaseSeconds": 3600, "backoffMaxSeconds": 3600},
}
_NOT_READY = ("True", "PodsReadyTimeout")
QUEUE = "kueue.x-k8s.io/queue-name"
CLASS = "kueue.x-k8s.io/priority-class"


class Cluster(NamedTuple):
    """A control plane on which Kueue runs."""

    plane: ControlPlane
    client: KubeClient
    kueue: Kueue
    folder: Path

    async def headgate(self, *args: str) -> int:
        """Run the command line against the cluster; its exit code."""
        return await anyio.to_thread.run_sync(run, [*args, "--kubeconfig", str(self.plane.kubeconfig)])

    async def apply(self, *objects: Json) -> None:
        await self.plane.kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=msgspec.json.encode(_list(objects)).decode()
        )

    async def create(self, each: Json) -> str:
        """Create an object; the API server's refusal, or nothing."""
        done = await self.plane.kubectl("create", "-f", "-", stdin=msgspec.json.encode(each).decode(), check=False)
        return done.stderr if done.returncode else ""

    async def get(self, resource: Resource, name: str, team: str | None = TEAM) -> Json:
        found: Json = msgspec.json.decode(await self.client.get(resource, name, team))
        return found

    async def all(self, resource: Resource, team: str | None = TEAM) -> list[Json]:
        return [msgspec.json.decode(each) for each in (await self.client.list(resource, team)).items]

    async def workload(self, owner: str) -> Json:
        """The Workload of a job or pod group; an empty object while there is none."""
        for each in await self.all(WORKLOADS):
            owners = [owned["name"] for owned in each["metadata"].get("ownerReferences") or ()]
            if owner in owners or each["metadata"]["name"] == owner:
                return each
        return {}

    async def becomes(self, owner: str, *holds: Callable[[Json], Any]) -> Json:
        """Wait until the Workload of a job fulfils all conditions."""
        found: Json = {}

        async def do_hold() -> bool:
            nonlocal found
            found = await self.workload(owner)
            return bool(found) and all(each(found) for each in holds)

        await until(do_hold, lambda: f"the Workload of {owner}: {msgspec.json.encode(found).decode()}")
        return found

    async def pods_run(self, owner: str, count: int) -> None:
        async def do_run() -> bool:
            return len([each for each in await self.running() if each.startswith(owner)]) == count

        await until(do_run, lambda: f"{count} pods of {owner} run")

    async def has_template(self, name: str, spec: Json) -> None:
        """Wait until the template of a Job is this one, to the letter."""
        found: Json = {}

        async def does_have() -> bool:
            nonlocal found
            found = (await self.get(JOBS, name))["spec"]["template"]["spec"]
            return found == spec

        await until(does_have, lambda: f"the template of {name}: {found}")

    async def running(self) -> dict[str, tuple[str, str, int]]:
        """By name, the uid, the node and the restarts of the pods that run."""
        return {
            each["metadata"]["name"]: (
                each["metadata"]["uid"],
                each["spec"]["nodeName"],
                sum(one["restartCount"] for one in each["status"].get("containerStatuses") or ()),
            )
            for each in await self.all(PODS)
            if each["status"]["phase"] == "Running" and "deletionTimestamp" not in each["metadata"]
        }


def _list(objects: tuple[Json, ...]) -> Json:
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}


def is_admitted(found: Json) -> bool:
    return is_true(found, "Admitted")


def is_reserved(found: Json) -> bool:
    return is_true(found, "QuotaReserved")


def is_pending(found: Json) -> bool:
    return bool(found.get("status", {}).get("conditions")) and not is_reserved(found)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Kueue on a control plane of its own, with a scheduler of pods."""
    find_program(MANAGER)
    find_operator("jobset")
    async with control_plane(find_assets(), tmp_path / "plane", options=Options(nodes=0)) as plane:
        await _racks(plane)
        kueue = await install_kueue(plane, tmp_path / "kueue", waitForPodsReady=READY_IN_TIME)
        async with open_transport(plane.access()) as transport, operator(plane, "jobset", tmp_path / "jobset"):
            client = KubeClient(transport)
            async with pod_scheduler(client):
                await kueue.start()
                try:
                    yield Cluster(plane, client, kueue, tmp_path)
                finally:
                    await kueue.stop()


async def _racks(plane: ControlPlane) -> None:
    """Two racks of two nodes."""
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": (name := f"node-{rack}-{number}"), "labels": {**POOL, RACK: rack, HOST: name}},
        }
        for rack in ("a", "b")
        for number in range(2)
    ]
    await plane.kubectl("apply", "-f", "-", stdin=msgspec.json.encode(_list(tuple(nodes))).decode())


def queues() -> list[Json]:
    """Three ClusterQueues of a cohort: `plain`, `checked` with an admission check, and `packed` with a topology."""
    check = {
        "apiVersion": KUEUE,
        "kind": "AdmissionCheck",
        "metadata": {"name": "manual"},
        "spec": {"controllerName": "example.com/manual"},
    }
    topology = {
        "apiVersion": KUEUE,
        "kind": "Topology",
        "metadata": {"name": "racks"},
        "spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]},
    }
    high = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 1000}
    strategy = {"admissionChecks": [{"name": "manual"}]}
    no_borrowing = {"cohortName": "all"}
    return [
        namespace(TEAM),
        high,
        check,
        topology,
        flavor("general", nodeLabels=POOL),
        flavor("racked", nodeLabels=POOL, topologyName="racks"),
        cluster_queue("plain", "general", cpu="3200m", **no_borrowing),
        cluster_queue("checked", "general", cpu="2", admissionChecksStrategy=strategy, **no_borrowing),
        cluster_queue("packed", "racked", cpu="4", **no_borrowing),
        *(local_queue(TEAM, each, each) for each in ("plain", "checked", "packed")),
    ]


def waiting_job(name: str, queue: str, *, run_ms: int = FOR_EVER_MS, cpu: str = "1", **more: Any) -> Json:
    """A Job as a user writes it: admission suspends it."""
    made = job(TEAM, name, queue=queue, run_ms=run_ms, cpu=cpu, **more)
    del made["spec"]["suspend"], made["spec"]["template"]["spec"]["schedulerName"]
    return made


def packed_job(name: str) -> Json:
    """A Job of two pods in one rack."""
    made = waiting_job(name, "packed", pods=2)
    made["spec"]["template"]["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] = RACK
    return made


def job_set(name: str) -> Json:
    """A JobSet of two Jobs of one pod, a tenth of a CPU each."""
    spec = waiting_job("", "", cpu="100m")["spec"]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": TEAM, "labels": {QUEUE: "plain"}},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": {"spec": spec}}]},
    }


def grouped_pods(name: str, count: int) -> list[Json]:
    """The pods of a pod group, half a CPU each."""
    container = {"name": "main", "image": "registry/train:1", "resources": {"requests": {"cpu": "500m"}}}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{index}",
                "namespace": TEAM,
                "labels": {QUEUE: "plain", "kueue.x-k8s.io/pod-group-name": name},
                "annotations": {
                    "kueue.x-k8s.io/pod-group-total-count": str(count),
                    "headgate.dev/run-ms": str(FOR_EVER_MS),
                },
            },
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        for index in range(count)
    ]


async def populate(cluster: Cluster) -> None:
    """Workloads in every state, made by Kueue."""
    await cluster.apply(*queues())
    active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": now()}
    await cluster.client.patch(
        RESOURCES["admissionchecks"], "manual", {"status": {"conditions": [active]}}, subresource="status"
    )

    async def is_active() -> bool:
        found = [await cluster.get(RESOURCES["clusterqueues"], each, None) for each in ("plain", "checked", "packed")]
        return all(is_true(each, "Active") for each in found)

    await until(is_active, lambda: "the ClusterQueues become active")
    await cluster.apply(waiting_job("done", "plain", run_ms=200))
    await cluster.becomes("done", lambda found: is_true(found, "Finished"))
    await cluster.apply(waiting_job("runs", "plain"), *grouped_pods("group", 2), packed_job("packed"), job_set("set"))
    for name, count in (("runs", 1), ("group", 2), ("packed", 2), ("set", 2)):
        await cluster.pods_run(name, count)
        await cluster.becomes(name, is_admitted, lambda found: is_true(found, "PodsReady"))
    # One whose pod does not become ready in time is sent back, for an hour.
    await cluster.apply(waiting_job("backoff", "plain", start_ms=FOR_EVER_MS), waiting_job("reserved", "checked"))
    await cluster.becomes("reserved", is_reserved, lambda found: not is_admitted(found))
    await cluster.becomes("backoff", is_pending, lambda found: condition(found, "Evicted") == _NOT_READY)
    # What is left of the cohort's quota is taken, so that the others wait.
    await cluster.apply(waiting_job("fills", "plain", cpu="2"))
    await cluster.becomes("fills", is_admitted)
    await cluster.pods_run("fills", 1)
    await cluster.becomes("fills", lambda found: is_true(found, "PodsReady"))
    for name, labels in (("waits-1", {}), ("waits-2", {}), ("urgent", {CLASS: "high"})):
        await cluster.apply(waiting_job(name, "plain", run_ms=3000 if labels else FOR_EVER_MS, labels=labels))
        await cluster.becomes(name, is_pending)
        # Times of creation have a resolution of a second, and decide the order.
        await anyio.sleep(1.1)


def now() -> str:
    """A check that is to be tried again counts from its answer."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def answer(cluster: Cluster, owner: str, state: str, **more: Any) -> None:
    """The admission check `manual` answers."""
    found = await cluster.becomes(owner, lambda it: it["status"].get("admissionChecks"))
    (check,) = found["status"]["admissionChecks"]
    answered = {**check, "state": state, "message": "by hand", "lastTransitionTime": now(), **more}
    name = found["metadata"]["name"]
    await cluster.client.patch(WORKLOADS, name, {"status": {"admissionChecks": [answered]}}, TEAM, subresource="status")


@asynccontextmanager
async def headgate_runs(cluster: Cluster, file: Path) -> AsyncIterator[Cell]:
    """Headgate as it is deployed, with Kueue's Configuration, on an empty log."""
    async with (
        Broker(cluster.folder / "nats") as broker,
        deployment_of(cluster.plane, broker) as deployed,
        deployed.cell("main", bridge=BridgeSettings(configuration=str(file))) as cell,
    ):
        yield cell


async def states(cluster: Cluster) -> dict[str, Json]:
    """What of each Workload must not change by itself: its conditions and its admission."""
    kept = ("conditions", "admission", "admissionChecks", "requeueState")
    return {
        each["metadata"]["name"]: {key: each.get("status", {}).get(key) for key in kept}
        for each in await cluster.all(WORKLOADS)
    }


async def test_headgate_takes_over_from_kueue_and_hands_back(cluster: Cluster) -> None:
    """
    Kueue runs, with workloads in every state; it is stopped, Headgate takes over, and later Kueue takes over again.

    Pods run on, admissions and quota stay, what waits keeps its order, evictions restore templates; each of the two
    admits and finishes what the other has left.
    """
    await populate(cluster)
    pods, before = await cluster.running(), await states(cluster)
    assert len(pods) == 8

    # Kueue runs: nothing is done.
    assert await cluster.headgate("takeover") == 1
    await cluster.kueue.stop()
    await cluster.apply(*cluster.kueue.api_services)
    assert "connection refused" in await cluster.create(waiting_job("refused", "plain"))
    file = cluster.folder / "kueue-config.yaml"
    file.write_bytes(msgspec.json.encode(configuration()))
    ways = ("--admission", "policy", "--conversion", "none", "--configuration", str(file))
    assert await cluster.headgate("takeover", *ways) == 0
    assert await cluster.headgate("takeover", *ways) == 0  # again: nothing is left to do
    assert await cluster.running() == pods
    async with headgate_runs(cluster, file) as cell:
        await until(
            lambda: cell.holds(lambda state: state.index.usage.get("plain") == {("general", "cpu"): 4200}),
            lambda: cell.state and cell.state.index.usage,
        )
        await under_headgate(cluster, before)
        gone = pods.items() - (await cluster.running()).items()
        assert gone == {each for each in pods.items() if _is_of(each, "runs")}
    pods, before = await cluster.running(), await states(cluster)
    assert len(pods) == 9  # group, packed and set, fills, reserved, waits-1

    assert await cluster.headgate("handback") == 0
    assert "connection refused" in await cluster.create(waiting_job("refused", "plain"))
    # Whoever has installed Kueue can go on to apply its manifests.
    await cluster.kueue.apply_manifests()
    assert await cluster.headgate("handback") == 1  # nothing is recorded any more
    await cluster.kueue.start()
    await under_kueue(cluster, before)
    left = {each for each in (await cluster.running()).items() if not _is_of(each, "waits-2", "runs")}
    assert left == {each for each in pods.items() if not _is_of(each, "fills", "group")}


def _is_of(pod: tuple[str, Any], *owners: str) -> bool:
    return pod[0].startswith(owners)


def configuration() -> Json:
    """The Configuration of both."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": list(FRAMEWORKS)},
        "waitForPodsReady": READY_IN_TIME,
    }


async def under_headgate(cluster: Cluster, before: dict[str, Json]) -> None:
    """What Kueue has left goes on: nothing changes by itself, and every change is Headgate's to make."""
    await cluster.apply(waiting_job("new", "plain", run_ms=200))
    await cluster.becomes("new", lambda found: True)
    assert (await cluster.get(JOBS, "new"))["spec"]["suspend"]
    after = await states(cluster)
    assert {name: after[name] for name in before if _settled(name)} == {
        name: was for name, was in before.items() if _settled(name)
    }
    # Its check is answered: it runs.
    await answer(cluster, "reserved", "Ready")
    await cluster.pods_run("reserved", 1)
    await cluster.becomes("reserved", lambda found: is_true(found, "PodsReady"))
    # An eviction restores the template; the place goes to the most urgent, then to the first.
    made = (await cluster.workload("runs"))["spec"]["podSets"][0]["template"]["spec"]
    assert (await cluster.get(JOBS, "runs"))["spec"]["template"]["spec"] == {**made, "nodeSelector": POOL}
    await activate(cluster, "runs", active=False)
    await cluster.becomes("runs", is_pending)
    await cluster.has_template("runs", made)
    await cluster.becomes("urgent", is_admitted)
    assert not is_admitted(await cluster.workload("waits-1"))
    await cluster.becomes("urgent", lambda found: is_true(found, "Finished"))
    await cluster.pods_run("waits-1", 1)
    # What becomes ready while nobody looks may be too late for whoever looks next.
    await cluster.becomes("waits-1", lambda found: is_true(found, "PodsReady"))
    assert not is_admitted(await cluster.workload("waits-2"))


async def under_kueue(cluster: Cluster, before: dict[str, Json]) -> None:
    """What Headgate has left goes on."""
    after = await states(cluster)
    kept = [name for name in before if _settled(name) and "backoff" not in name]
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    # Kueue looks at everything once when it starts, and then waits for the time that was set.
    backoff = (await cluster.workload("backoff"))["metadata"]["name"]
    assert after[backoff]["requeueState"] == before[backoff]["requeueState"]
    assert (await cluster.plane.kubectl("get", "-n", TEAM, "localqueues.v1beta1.kueue.x-k8s.io", "plain")).stdout
    await cluster.client.delete(JOBS, "fills", TEAM, propagation=Propagation.BACKGROUND)
    await cluster.pods_run("waits-2", 1)
    await cluster.becomes("new", lambda found: is_true(found, "Finished"))
    await activate(cluster, "runs", active=True)
    await cluster.pods_run("runs", 1)
    made = (await cluster.workload("runs"))["spec"]["podSets"][0]["template"]["spec"]
    await cluster.has_template("runs", {**made, "nodeSelector": POOL})
    # A group ends with its Workload.
    await cluster.client.delete(WORKLOADS, "group", TEAM)

    async def are_gone() -> bool:
        names = {each["metadata"]["name"] for each in await cluster.all(PODS)}
        return not names & {"group-0", "group-1"} and not await cluster.workload("fills")

    await until(are_gone, lambda: "the finalizers of what is deleted to be removed")


def _settled(name: str) -> bool:
    """Whether the Workload of this name has nothing to wait for but its job, its check or its time."""
    parts = ("done", "runs", "group", "packed", "set", "fills", "reserved", "backoff")
    return any(each in name for each in parts)


async def activate(cluster: Cluster, owner: str, *, active: bool) -> None:
    name = (await cluster.workload(owner))["metadata"]["name"]
    await cluster.client.patch(WORKLOADS, name, {"spec": {"active": active}}, TEAM)


async def former_version(cluster: Cluster) -> Json:
    """The ClusterQueue `plain` as a client of v1beta1 reads it; its error in place of a spec."""
    kind = "clusterqueues.v1beta1.kueue.x-k8s.io"
    done = await cluster.plane.kubectl("get", kind, "plain", "-o", "json", check=False)
    return {"error": done.stderr} if done.returncode else msgspec.json.decode(done.stdout)["spec"]


@asynccontextmanager
async def webhook_runs(cluster: Cluster) -> AsyncIterator[None]:
    """`headgate run webhook` behind the Service that the API server is told of."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "headgate-webhook", "namespace": "headgate-system"},
        "spec": {"type": "ExternalName", "externalName": "127.0.0.1"},
    }
    await cluster.apply(namespace("headgate-system"), service)
    settings = Settings(
        kubernetes=KubernetesSettings(kubeconfig=str(cluster.plane.kubeconfig)),
        webhook=WebhookSettings(host="127.0.0.1", port=0),
    )
    server = WebhookServer(settings, "test", settings_of(configuration()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.run)
        with anyio.fail_after(60):
            await server.serving.wait()
        await _at_port(cluster, server.port)
        assert isinstance(server.certificates, ServingCertificates)
        await server.certificates.round()
        yield
        tasks.cancel_scope.cancel()


async def _at_port(cluster: Cluster, port: int) -> None:
    """Where the Service of a cluster would forward to: a Service of the type ExternalName forwards to no other port."""
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, CUSTOM_RESOURCE_DEFINITIONS):
        for each in (await cluster.client.list(resource, label_selector="headgate.dev/ca-from")).items:
            found = {"kind": resource.kind, **msgspec.json.decode(each)}
            writes = [{"op": "add", "path": f"{path}/service/port", "value": port} for path, _ in clients_in(found)]
            await cluster.client.patch(resource, found["metadata"]["name"], writes, patch_type=PatchType.JSON)


async def test_the_former_version_and_the_rules_are_served_by_whoever_runs(cluster: Cluster) -> None:
    """With the webhook in place of Kueue's, v1beta1 reads the same, and a Job that names a queue is suspended."""
    await cluster.apply(*queues())
    spec = await former_version(cluster)
    assert spec["cohort"] == "all"
    await cluster.kueue.stop()
    assert "connection refused" in (await former_version(cluster))["error"]
    assert await cluster.headgate("takeover") == 0
    async with webhook_runs(cluster):

        async def reads() -> bool:
            return await former_version(cluster) == spec

        await until(reads, lambda: "v1beta1 to be served by the webhook")

        async def creates() -> bool:
            return not await cluster.create(waiting_job("waits", "plain"))

        await until(creates, lambda: "the webhook to answer")
        assert (await cluster.get(JOBS, "waits"))["spec"]["suspend"]
    assert await cluster.headgate("handback") == 0
    await cluster.kueue.start()
    assert await former_version(cluster) == spec
    await cluster.pods_run("waits", 1)
