"""
Job kinds with their own operators on a real control plane: each through its life. JobSet is in `test_job_sets`.

The operators are built by `make operators`; where one is not, its tests are skipped.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from tests.kube.e2e.cells import Cell, Deployment, Json
from tests.kube.e2e.objects import flavor, furnished
from tests.kube.e2e.seeing import becomes, has, workload_of
from tests.kube.e2e.test_admission import configured
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import Propagation
from headgate.adapters.kubernetes.resources import CLUSTER_QUEUES, OF_JOBS, PODS, WORKLOADS, Resource
from headgate.testing.control_plane.operators import find_operator, operator

pytestmark = [pytest.mark.anyio, pytest.mark.kube, pytest.mark.operators]

LONG_MS: Final = 600_000
SELECTOR: Final = {"tier": "spot"}
TOLERATION: Final = {"key": "spot", "operator": "Exists"}


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """
    A kind of job and its operator.

    `spec` makes the spec of a job whose pods run for so many milliseconds and request 2.1 CPU at most; `pod_sets` are
    the names and counts of its Workload, `templates` its pod templates, and `ends` whether its operator finishes it
    when its pods have succeeded.
    """

    operator: str
    framework: str
    resource: str
    api_version: str
    spec: Callable[[int], Json]
    templates: Callable[[Json], list[Json]]
    pod_sets: dict[str, int]
    is_suspended: Callable[[Json], bool]
    ends: bool = True


def template(run_ms: int, *, name: str = "main") -> Json:
    container = {"name": name, "image": "registry/train:1", "resources": {"requests": {"cpu": "100m"}}}
    return {
        "metadata": {"annotations": {"headgate.dev/run-ms": str(run_ms)}},
        "spec": {"restartPolicy": "Never", "schedulerName": "headgate", "containers": [container]},
    }


def pytorch_job(run_ms: int) -> Json:
    def of(replicas: int) -> Json:
        return {"replicas": replicas, "restartPolicy": "Never", "template": template(run_ms, name="pytorch")}

    return {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Master": of(1), "Worker": of(2)}}


def mpi_job(run_ms: int) -> Json:
    def of(replicas: int) -> Json:
        return {"replicas": replicas, "restartPolicy": "Never", "template": template(run_ms)}

    policy = {"suspend": True, "cleanPodPolicy": "Running"}
    return {"runPolicy": policy, "mpiReplicaSpecs": {"Launcher": of(1), "Worker": of(2)}}


def ray_cluster(run_ms: int) -> Json:
    def of(**group: Any) -> Json:
        made = template(run_ms)
        del made["spec"]["restartPolicy"]
        return {"rayStartParams": {}, "template": made, **group}

    workers = of(groupName="small", replicas=2, minReplicas=2, maxReplicas=2)
    return {"suspend": True, "rayVersion": "2.46.0", "headGroupSpec": of(), "workerGroupSpecs": [workers]}


def replicas_in(field: str) -> Callable[[Json], list[Json]]:
    """The templates of the replica types in a field."""
    return lambda spec: [each["template"] for each in spec[field].values()]


KINDS: Final = {
    "PyTorchJob": Kind(
        operator="training-operator",
        framework="kubeflow.org/pytorchjob",
        resource="pytorchjobs",
        api_version="kubeflow.org/v1",
        spec=pytorch_job,
        templates=replicas_in("pytorchReplicaSpecs"),
        pod_sets={"master": 1, "worker": 2},
        is_suspended=lambda spec: bool(spec["runPolicy"]["suspend"]),
    ),
    "MPIJob": Kind(
        operator="mpi-operator",
        framework="kubeflow.org/mpijob",
        resource="mpijobs",
        api_version="kubeflow.org/v2beta1",
        spec=mpi_job,
        templates=replicas_in("mpiReplicaSpecs"),
        pod_sets={"launcher": 1, "worker": 2},
        is_suspended=lambda spec: bool(spec["runPolicy"]["suspend"]),
    ),
    "RayCluster": Kind(
        operator="kuberay",
        framework="ray.io/raycluster",
        resource="rayclusters",
        api_version="ray.io/v1",
        spec=ray_cluster,
        templates=lambda spec: [spec["headGroupSpec"]["template"], *(w["template"] for w in spec["workerGroupSpecs"])],
        pod_sets={"head": 1, "small": 2},
        is_suspended=lambda spec: bool(spec["suspend"]),
        ends=False,
    ),
}


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind whose operator is built."""
    found = KINDS[request.param]
    find_operator(found.operator)
    return found


@asynccontextmanager
async def running(deployment: Deployment, kind: Kind, team: str, folder: Path) -> AsyncIterator[Cell]:
    """The operator, and a cell that runs its kind."""
    frameworks = {"frameworks": ["batch/job", kind.framework]}
    async with operator(deployment.plane, kind.operator, folder):
        with configured(integrations=frameworks) as bridge:
            async with deployment.cell(team, bridge=bridge) as cell:
                yield cell


def resource_of(kind: Kind) -> Resource:
    return OF_JOBS[kind.resource]


def job_of(kind: Kind, team: str, name: str, run_ms: int) -> Json:
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    return {
        "apiVersion": kind.api_version,
        "kind": resource_of(kind).kind,
        "metadata": {"name": name, "namespace": team, "labels": labels},
        "spec": kind.spec(run_ms),
    }


async def made(deployment: Deployment, kind: Kind, team: str, name: str, run_ms: int) -> Json:
    """Create a job; it, with the defaults of its operator."""
    body = msgspec.json.encode(job_of(kind, team, name, run_ms)).decode()
    await deployment.plane.kubectl("create", "-f", "-", stdin=body)
    return await deployment.get(resource_of(kind), name, team)


def carries(spec: Json) -> Callable[[Any], bool]:
    """That each pod template of a job is on the flavor's nodes."""

    def holds(kind: Kind) -> bool:
        return all(
            each["spec"].get("nodeSelector") == SELECTOR and TOLERATION in each["spec"].get("tolerations", [])
            for each in kind.templates(spec)
        )

    return holds


async def are_gone(deployment: Deployment, team: str) -> None:
    """Wait until no pod of a namespace runs."""

    async def holds() -> bool:
        pods = await deployment.all(PODS, team)
        return all(each["status"]["phase"] in ("Succeeded", "Failed") for each in pods)

    await until(holds)


async def test_a_job_is_queued_started_evicted_restored_and_finished(
    deployment: Deployment, kind: Kind, tmp_path: Path
) -> None:
    """Its operator makes no pod before the admission; an eviction gives the user's templates back, to the letter."""
    team = deployment.fresh("team")
    queues = furnished(team)
    queues[1] = flavor(team, nodeLabels=SELECTOR, tolerations=[TOLERATION])
    queues[2]["spec"]["stopPolicy"] = "Hold"
    await deployment.plane.kubectl("label", "node", "--all", "tier=spot", "--overwrite")
    resource = resource_of(kind)
    async with running(deployment, kind, team, tmp_path / "operator"):
        await deployment.apply(*queues)
        given = await made(deployment, kind, team, "train", LONG_MS)
        workload = await workload_of(deployment, team, has("QuotaReserved", "False"))
        sets = {each["name"]: each["count"] for each in workload["spec"]["podSets"]}
        assert sets == kind.pod_sets
        assert await deployment.all(PODS, team) == []
        await deployment.merge(CLUSTER_QUEUES, team, None, {"spec": {"stopPolicy": "None"}})
        started = await becomes(deployment, resource, "train", team, lambda found: not kind.is_suspended(found["spec"]))
        assert carries(started["spec"])(kind)

        async def run() -> bool:
            pods = await deployment.all(PODS, team)
            on_flavor = all(each["spec"]["nodeSelector"].items() >= SELECTOR.items() for each in pods)
            phases = [each["status"]["phase"] for each in pods]
            return on_flavor and phases == ["Running"] * sum(kind.pod_sets.values())

        await until(run)
        name = workload["metadata"]["name"]
        await deployment.merge(WORKLOADS, name, team, {"spec": {"active": False}})
        await becomes(deployment, resource, "train", team, lambda found: found["spec"] == given["spec"])
        await workload_of(deployment, team, has("Evicted"), has("QuotaReserved", "False"))
        await are_gone(deployment, team)
        await deployment.merge(WORKLOADS, name, team, {"spec": {"active": True}})
        await becomes(deployment, resource, "train", team, lambda found: not kind.is_suspended(found["spec"]))
        await until(run)
        await deployment.client.delete(resource, "train", team, propagation=Propagation.BACKGROUND)

        async def gone() -> bool:
            return await deployment.all(WORKLOADS, team) == [] and await deployment.all(PODS, team) == []

        await until(gone)


async def test_a_job_runs_to_its_end_and_gives_its_quota_back(
    deployment: Deployment, kind: Kind, tmp_path: Path
) -> None:
    """Its Workload is finished when its operator says that the job is."""
    if not kind.ends:
        pytest.skip(f"{kind.resource} do not end by themselves")
    team = deployment.fresh("team")
    async with running(deployment, kind, team, tmp_path / "operator"):
        await deployment.apply(*furnished(team))
        await made(deployment, kind, team, "short", 200)
        await workload_of(deployment, team, has("Finished"))
        await becomes(deployment, CLUSTER_QUEUES, team, None, lambda found: not found["status"]["admittedWorkloads"])
