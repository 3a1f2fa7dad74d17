"""
Job kinds by their definitions alone, on a real control plane: each through its life, with a topology.

There is no operator: the test writes the status that it would write. What suspends a job when it is created are the
admission policies. The definitions are taken from the operators' modules, which Go fetches.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import pytest
from tests.kube.e2e.cells import Cell, Deployment, Json
from tests.kube.e2e.racks import RACK, racks, tolerations
from tests.kube.e2e.seeing import becomes, has, workload_of
from tests.kube.e2e.test_admission import configured
from tests.kube.policies import in_effect
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import Propagation
from headgate.adapters.kubernetes.resources import CLUSTER_QUEUES, OF_JOBS, WORKLOADS, Resource
from headgate.core.admission.settings import AdmissionSettings
from headgate.processes.webhook.installing import Way, objects
from headgate.testing.control_plane.operators import define, fetch_definitions

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

REQUIRED: Final = {"kueue.x-k8s.io/podset-required-topology": RACK}
GATE: Final = {"name": "kueue.x-k8s.io/topology"}
NOW: Final = "2026-01-15T10:00:00Z"


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """
    A kind of job.

    `spec` is that of a job, without a field that suspends it; `places` are the parts of it that have the node selector,
    tolerations and scheduling gates of its pod sets, which are `pod_sets`, by name and count. `suspend` is the path of
    the field that suspends it. `running`, `stopped` and `ended` are what its operator writes into its status; one that
    never ends has no `ended`. `needs` are objects that it refers to.
    """

    definitions: str
    framework: str
    resource: str
    spec: Json
    places: Callable[[Json], list[Json]]
    pod_sets: dict[str, int]
    running: Json
    stopped: Json
    ended: Json | None = None
    suspend: tuple[str, ...] = ("spec", "suspend")
    needs: tuple[Json, ...] = ()
    gates: dict[str, bool] = {}


def template(name: str = "main") -> Json:
    container = {"name": name, "image": "registry/train:1", "resources": {"requests": {"cpu": "100m"}}}
    return {"metadata": {"annotations": REQUIRED}, "spec": {"containers": [container]}}


def condition(kind: str, status: str = "True") -> Json:
    return {"type": kind, "status": status, "reason": "Told", "message": "told", "lastTransitionTime": NOW}


def counters(**counts: int) -> Json:
    return {"ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0, **counts}


# --- the Training Operator's -----------------------------------------------------------------------------------------


def replicas(field: str, **counts: int) -> Json:
    made = {each: {"replicas": count, "template": template()} for each, count in counts.items()}
    return {field: made}


def trained(kind: str, field: str, **counts: int) -> Kind:
    def said(active: int, *conditions: str) -> Json:
        listed = [{"type": each, "status": "True"} for each in conditions]
        return {"replicaStatuses": {"Worker": {"active": active}}, "conditions": listed}

    return Kind(
        definitions="training-operator",
        framework=f"kubeflow.org/{kind}",
        resource=f"{kind}s",
        spec=replicas(field, **counts),
        places=lambda spec: [spec[field][each]["template"]["spec"] for each in counts],
        pod_sets={each.lower(): count for each, count in counts.items()},
        running=said(2, "Running"),
        stopped=said(0, "Suspended"),
        ended=said(0, "Succeeded"),
        suspend=("spec", "runPolicy", "suspend"),
    )


# --- Ray's -----------------------------------------------------------------------------------------------------------


def ray_cluster() -> Json:
    workers = {"groupName": "small", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, "rayStartParams": {}}
    head = {"rayStartParams": {}, "template": template()}
    return {"headGroupSpec": head, "workerGroupSpecs": [{**workers, "template": template()}]}


def of_cluster(cluster: Json) -> list[Json]:
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [each["template"]["spec"] for each in groups]


RAY_JOB: Final = Kind(
    definitions="kuberay",
    framework="ray.io/rayjob",
    resource="rayjobs",
    spec={
        "entrypoint": "python train.py",
        "shutdownAfterJobFinishes": True,
        "submitterPodTemplate": {**template(), "spec": {**template()["spec"], "restartPolicy": "Never"}},
        "rayClusterSpec": ray_cluster(),
    },
    places=lambda spec: [*of_cluster(spec["rayClusterSpec"]), spec["submitterPodTemplate"]["spec"]],
    pod_sets={"head": 1, "small": 2, "submitter": 1},
    running={"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}},
    stopped={"jobDeploymentStatus": "Suspended", "rayClusterStatus": {"state": "suspended"}},
    ended={"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "done"},
)
RAY_SERVICE: Final = Kind(
    definitions="kuberay",
    framework="ray.io/rayservice",
    resource="rayservices",
    spec={"rayClusterConfig": ray_cluster()},
    places=lambda spec: of_cluster(spec["rayClusterConfig"]),
    pod_sets={"head": 1, "small": 2},
    running={"conditions": [condition("Ready")]},
    stopped={"conditions": [condition("Ready", "False")]},
    suspend=("spec", "rayClusterConfig", "suspend"),
)

# --- others ----------------------------------------------------------------------------------------------------------


def wrapped() -> Json:
    pods = template()
    pods["spec"]["restartPolicy"] = "Never"
    spec = {"parallelism": 2, "completions": 2, "template": pods}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "inside"}, "spec": spec}
    return {"components": [{"template": job}]}


APP_WRAPPER: Final = Kind(
    definitions="appwrapper",
    framework="workload.codeflare.dev/appwrapper",
    resource="appwrappers",
    spec=wrapped(),
    places=lambda spec: spec["components"][0]["podSetInfos"],
    pod_sets={"train-0": 2},
    running={"phase": "Running", "conditions": [condition("QuotaReserved"), condition("PodsReady")]},
    stopped={"phase": "Suspended", "conditions": [condition("QuotaReserved", "False")]},
    ended={"phase": "Succeeded", "conditions": [condition("QuotaReserved", "False")]},
)

TRAIN_JOB: Final = Kind(
    definitions="trainer",
    framework="trainer.kubeflow.org/trainjob",
    resource="trainjobs",
    needs=(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainingRuntime",
            "metadata": {"name": "torch"},
            "spec": {
                "mlPolicy": {"numNodes": 1, "torch": {}},
                "template": {
                    "spec": {
                        "replicatedJobs": [
                            {
                                "name": "node",
                                "template": {
                                    "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                                    "spec": {"template": template("node")},
                                },
                            }
                        ]
                    }
                },
            },
        },
    ),
    spec={"runtimeRef": {"name": "torch", "kind": "TrainingRuntime"}, "trainer": {"numNodes": 2}},
    places=lambda spec: [
        each["template"]["spec"]["template"]["spec"]
        for each in spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    ],
    pod_sets={"node": 2},
    running={"jobsStatus": [{"name": "node", **counters(ready=1, active=1)}]},
    stopped={"jobsStatus": [{"name": "node", **counters(suspended=1)}]},
    ended={"conditions": [condition("Complete")], "jobsStatus": [{"name": "node", **counters(succeeded=1)}]},
)


def spark(state: str) -> Json:
    ran = {"executorState": {"one": "RUNNING", "two": "RUNNING"}} if state == "RUNNING" else {}
    return {"applicationState": {"state": state}, "driverInfo": {}, **ran}


def spark_place(role: Json) -> Json:
    return {**role, "schedulingGates": role["template"]["spec"]["schedulingGates"]}


SPARK_APPLICATION: Final = Kind(
    definitions="spark-operator",
    framework="sparkoperator.k8s.io/sparkapplication",
    resource="sparkapplications",
    spec={
        "type": "Python",
        "mode": "cluster",
        "sparkVersion": "3.5.0",
        "mainApplicationFile": "local:///train.py",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "driver": {"coreRequest": "100m", "annotations": REQUIRED},
        "executor": {"coreRequest": "100m", "instances": 2, "annotations": REQUIRED},
    },
    places=lambda spec: [spark_place(spec["driver"]), spark_place(spec["executor"])],
    pod_sets={"driver": 1, "executor": 2},
    running=spark("RUNNING"),
    stopped=spark("SUSPENDED"),
    ended=spark("COMPLETED"),
    gates={"SparkApplicationIntegration": True},
)

KINDS: Final = {
    "TFJob": trained("tfjob", "tfReplicaSpecs", PS=1, Worker=2),
    "XGBoostJob": trained("xgboostjob", "xgbReplicaSpecs", Master=1, Worker=2),
    "PaddleJob": trained("paddlejob", "paddleReplicaSpecs", Master=1, Worker=2),
    "JAXJob": trained("jaxjob", "jaxReplicaSpecs", Worker=2),
    "RayJob": RAY_JOB,
    "RayService": RAY_SERVICE,
    "AppWrapper": APP_WRAPPER,
    "TrainJob": TRAIN_JOB,
    "SparkApplication": SPARK_APPLICATION,
}


# --- a kind on the control plane -------------------------------------------------------------------------------------


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind whose definitions are there."""
    found = KINDS[request.param]
    fetch_definitions(found.definitions)
    return found


@asynccontextmanager
async def running(deployment: Deployment, kind: Kind, team: str) -> AsyncIterator[Cell]:
    """The definitions of a kind, its admission policies, and a cell that runs it."""
    await define(deployment.plane, kind.definitions)
    settings = AdmissionSettings(frameworks=(kind.framework,))
    rules = objects(Way.POLICY, settings, namespace="headgate-system", service="", secret="")
    plural = OF_JOBS[kind.resource].plural
    ours = [each for each in rules if plural in msgspec.json.encode(each).decode()]
    assert ours
    parts: Json = {
        "integrations": {"frameworks": ["batch/job", kind.framework]},
        "featureGates": kind.gates,
        "waitForPodsReady": {"timeout": "1h"},
    }
    async with in_effect(deployment.client, ours, OF_JOBS[kind.resource]):
        with configured(**parts) as bridge:
            async with deployment.cell(team, bridge=bridge) as cell:
                yield cell


def job_of(kind: Kind, team: str) -> Json:
    resource = OF_JOBS[kind.resource]
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    metadata = {"name": "train", "namespace": team, "labels": labels}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": kind.spec}


def is_suspended(kind: Kind) -> Callable[[Json], bool]:
    def holds(found: Any) -> bool:
        for step in kind.suspend:
            found = found.get(step) or {}
        return found is True

    return holds


def is_placed(kind: Kind, team: str) -> Callable[[Json], bool]:
    """That it is resumed, and every pod set is on the nodes of the team and waits for its rack."""

    def holds(found: Json) -> bool:
        if is_suspended(kind)(found):
            return False
        places = kind.places(found["spec"])
        return len(places) == len(kind.pod_sets) and all(
            each["nodeSelector"]["pool"] == team
            and tolerations(team)[0] in each["tolerations"]
            and GATE in each["schedulingGates"]
            for each in places
        )

    return holds


async def say(deployment: Deployment, resource: Resource, team: str, status: Json) -> None:
    """Write what the operator would."""
    await deployment.merge(resource, "train", team, {"status": status}, subresource="status")


async def test_a_kind_is_queued_started_evicted_restored_finished_and_deleted(
    deployment: Deployment, kind: Kind
) -> None:
    """Suspended when created, placed in a rack, ready by its status, restored to the letter, and ended with its job."""
    team, resource = deployment.fresh("team"), OF_JOBS[kind.resource]
    async with racks(deployment, team, {0: 2}, stopPolicy="Hold"), running(deployment, kind, team):
        for each in kind.needs:
            needed = {**each, "metadata": {**each["metadata"], "namespace": team}}
            await deployment.plane.kubectl("apply", "-f", "-", stdin=msgspec.json.encode(needed).decode())
        body = msgspec.json.encode(job_of(kind, team)).decode()
        await deployment.plane.kubectl("create", "-f", "-", stdin=body)
        given = await deployment.get(resource, "train", team)
        assert is_suspended(kind)(given)

        waiting = await workload_of(deployment, team, has("QuotaReserved", "False"))
        assert {each["name"]: each["count"] for each in waiting["spec"]["podSets"]} == kind.pod_sets
        await deployment.merge(CLUSTER_QUEUES, team, None, {"spec": {"stopPolicy": "None"}})
        await becomes(deployment, resource, "train", team, is_placed(kind, team))
        admitted = await workload_of(deployment, team, has("Admitted"), has("PodsReady", "False"))
        assignments = admitted["status"]["admission"]["podSetAssignments"]
        assert all(each["topologyAssignment"]["levels"] for each in assignments)

        await say(deployment, resource, team, kind.running)
        await workload_of(deployment, team, has("PodsReady"))
        name = waiting["metadata"]["name"]
        await deployment.merge(WORKLOADS, name, team, {"spec": {"active": False}})
        await becomes(deployment, resource, "train", team, is_suspended(kind))
        await say(deployment, resource, team, kind.stopped)
        await becomes(deployment, resource, "train", team, lambda found: found["spec"] == given["spec"])
        await workload_of(deployment, team, has("Evicted"), has("QuotaReserved", "False"))

        await deployment.merge(WORKLOADS, name, team, {"spec": {"active": True}})
        await becomes(deployment, resource, "train", team, is_placed(kind, team))
        await say(deployment, resource, team, kind.running)
        if kind.ended is not None:
            await say(deployment, resource, team, kind.ended)
            await workload_of(deployment, team, has("Finished", reason="Succeeded"))
        await deployment.client.delete(resource, "train", team, propagation=Propagation.BACKGROUND)

        async def is_gone() -> bool:
            return not await deployment.all(WORKLOADS, team)

        await until(is_gone, lambda: f"the Workload of a {resource.kind} that was deleted")
