"""AdmissionReviews answered: when owners and runtimes are looked up, and how far."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.doors import Answering

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.transport import InProcessTransport
from headgate.core.admission.rules import Params
from headgate.core.admission.settings import AdmissionSettings
from headgate.processes.webhook.admission import AdmissionHandlers

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
QUEUE = {"kueue.x-k8s.io/queue-name": "main"}
JOB_SET = "jobset.x-k8s.io/v1alpha2"


class Facts:
    """A cluster without queues called `default`."""

    def default_of(self, kind: Params, namespace: str) -> Json | None:
        return None

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        return {}


class Owners(Answering):
    """An API server with these owners, that counts the reads."""

    def __init__(self, *owners: Json) -> None:
        self.owners = {each["metadata"]["name"]: each for each in owners}
        self.reads: list[str] = []
        self.paths: list[str] = []

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Json]:
        name = path.rpartition("/")[2]
        self.reads.append(name)
        self.paths.append(path)
        found = self.owners.get(name)
        missing = {"kind": "Status", "apiVersion": "v1", "code": 404, "reason": "NotFound", "details": {"name": name}}
        return (200, found) if found else (404, missing)


def owned(name: str, by: str = "", **labels: str) -> Json:
    """An object, and the JobSet that controls it."""
    metadata: Json = {"name": name, "uid": name, "labels": labels}
    if by:
        metadata["ownerReferences"] = [
            {"apiVersion": JOB_SET, "kind": "JobSet", "name": by, "uid": by, "controller": True}
        ]
    return {"metadata": metadata, "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}


async def answered(server: Owners, job: Json, *frameworks: str, before: Json | None = None) -> Json:
    """The answer of the defaults to a new Job, or with `before` to a changed one."""
    client = KubeClient(InProcessTransport(server))
    settings = AdmissionSettings(frameworks=("batch/job", *frameworks))
    handlers = AdmissionHandlers(settings, Facts(), client).handlers()
    request = {"uid": "1", "operation": "UPDATE" if before else "CREATE", "namespace": "a", "object": job}
    answer = handlers["/mutate-batch-v1-job"]({"request": {**request, "oldObject": before}})
    assert not isinstance(answer, dict)
    response: Json = (await answer)["response"]
    return response


async def test_owners_are_not_read_where_nothing_depends_on_them() -> None:
    """A Job without a queue is left as it is, whoever owns it."""
    server = Owners(owned("above", **QUEUE))
    assert (await answered(server, owned("j", "above"), "jobset.x-k8s.io/jobset"))["allowed"]
    assert server.reads == []


async def test_the_first_owner_that_is_managed_ends_the_search() -> None:
    """The Job is run by it, and not suspended."""
    server = Owners(owned("above", "top", **QUEUE), owned("top", **QUEUE))
    response = await answered(server, owned("j", "above", **QUEUE), "jobset.x-k8s.io/jobset")
    assert (response["allowed"], "patch" in response, server.reads) == (True, False, ["above"])


async def test_an_owner_without_a_queue_is_followed_to_its_own() -> None:
    """The Job is suspended if none of them is managed."""
    server = Owners(owned("above", "top"), owned("top"))
    response = await answered(server, owned("j", "above", **QUEUE), "jobset.x-k8s.io/jobset")
    assert ("patch" in response, server.reads) == (True, ["above", "top"])


async def test_an_owner_of_a_kind_that_is_not_enabled_manages_nothing() -> None:
    """Though it names a queue: its Job is one of its own, as for Kueue."""
    server = Owners(owned("above", **QUEUE))
    assert "patch" in await answered(server, owned("j", "above", **QUEUE))


async def test_an_owner_that_cannot_be_read_refuses_the_object() -> None:
    """It might be one that has to wait; so do owners that own each other."""
    response = await answered(Owners(), owned("j", "above", **QUEUE), "jobset.x-k8s.io/jobset")
    assert (response["allowed"], "its owner JobSet above cannot be read" in response["status"]["message"]) == (
        False,
        True,
    )
    server = Owners(owned("above", "top"), owned("top", "above"))
    response = await answered(server, owned("j", "above", **QUEUE), "jobset.x-k8s.io/jobset")
    assert (response["allowed"], "without end" in response["status"]["message"]) == (False, True)


async def test_the_owner_of_an_object_that_was_there_before_may_be_gone() -> None:
    """The object can be changed: somebody has to take its finalizers off."""
    job = owned("j", "above", **QUEUE)
    assert (await answered(Owners(), job, "jobset.x-k8s.io/jobset", before=job))["allowed"]


# --- the runtimes of TrainJobs ---------------------------------------------------------------------------------------


def runtime(name: str, *, nodes: int = 2, **annotations: str) -> Json:
    """A runtime of one Job, whose pods have these annotations of Kueue's."""
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    asked = {f"kueue.x-k8s.io/podset-{key.replace('_', '-')}": value for key, value in annotations.items()}
    pods = {"metadata": {"annotations": asked}, "spec": {"containers": [{"name": "node"}]}}
    job = {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": pods}}}
    spec = {"mlPolicy": {"numNodes": nodes}, "template": {"spec": {"replicatedJobs": [job]}}}
    return {"metadata": {"name": name}, "spec": spec}


async def checked(server: Owners, *, before: bool = False, is_on: bool = True, **spec: Any) -> Json:
    """The answer of the rules to a TrainJob that names the runtime `torch`."""
    gates = {"TopologyAwareScheduling": is_on}
    settings = AdmissionSettings(frameworks=("trainer.kubeflow.org/trainjob",), gates=gates)
    handlers = AdmissionHandlers(settings, Facts(), KubeClient(InProcessTransport(server))).handlers()
    obj = {"metadata": {"name": "train", "namespace": "a"}, "spec": {"runtimeRef": {"name": "torch"}, **spec}}
    request = {"uid": "1", "operation": "UPDATE" if before else "CREATE", "namespace": "a", "object": obj}
    answer = handlers["/validate-trainer-kubeflow-org-v1alpha1-trainjob"](
        {"request": {**request, "oldObject": obj if before else None}}
    )
    assert not isinstance(answer, dict)
    response: Json = (await answer)["response"]
    return response


ADJUST = (
    '. Adjust either the "TrainJob.spec.runtimePatches" or the "TrainingRuntime.Template" annotations for the '
    "corresponding Job"
)


async def test_the_topology_that_a_runtime_requests_is_checked_with_the_train_job() -> None:
    """By the words of Kueue, with the Job that it is about; also when the TrainJob is changed."""
    server = Owners(runtime("torch", required_topology="rack", preferred_topology="zone"))
    for before in (False, True):
        response = await checked(server, before=before)
        assert not response["allowed"]
        (cause,) = response["status"]["details"]["causes"]
        assert cause["field"] == "job[node].annotations"
        assert cause["message"].startswith("Invalid value: must not contain more than one topology annotation")
        assert cause["message"].endswith(ADJUST)
    assert server.reads == ["torch", "torch"]


async def test_a_slice_is_no_larger_than_the_train_job_has_nodes() -> None:
    """Its own number of nodes comes before that of the runtime."""
    server = Owners(runtime("torch", required_topology="zone", slice_required_topology="rack", slice_size="4"))
    response = await checked(server)
    assert f"must not be greater than pod set count 2{ADJUST}" in response["status"]["message"]
    assert (await checked(server, trainer={"numNodes": 4}))["allowed"]


async def test_layers_in_a_runtime_are_checked_too() -> None:
    """They are JSON, which the expressions of rules cannot read."""
    server = Owners(runtime("torch", required_topology="zone", slice_required_topology_constraints="[]"))
    message = (await checked(server))["status"]["message"]
    assert "job[node].annotations[kueue.x-k8s.io/podset-slice-required-topology-constraints]" in message
    assert message.endswith(ADJUST)


async def test_a_train_job_without_its_runtime_is_refused() -> None:
    """Kueue cannot tell its pod sets then; with the gate of topologies off nobody looks."""
    server = Owners()
    response = await checked(server)
    assert (response["allowed"], response["status"]["message"]) == (False, "runtime 'torch' not found")
    assert (await checked(server, is_on=False))["allowed"]
    assert server.reads == ["torch"]
    response = await checked(server, runtimeRef={"name": "torch", "kind": "Runtime", "apiGroup": "example.com"})
    assert response["status"]["message"] == "unsupported runtime: Runtime.example.com"


async def test_a_runtime_that_requests_nothing_refuses_nothing() -> None:
    """It is read where it is: in the namespace, or in the cluster."""
    server = Owners(runtime("torch"))
    assert (await checked(server))["allowed"]
    assert (await checked(server, runtimeRef={"name": "torch", "kind": "TrainingRuntime"}))["allowed"]
    assert server.paths == [
        "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch",
        "/apis/trainer.kubeflow.org/v1alpha1/namespaces/a/trainingruntimes/torch",
    ]
