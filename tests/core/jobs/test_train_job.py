"""TrainJob: the pod sets that follow from its runtime, and the patch of an admission (jobs/trainjob of Kueue)."""

from typing import Any

import msgspec
import pytest
from tests.support.job_kinds import FLAVOR, job_object, pod_template, read, started, stopped

from headgate.core.jobs.train_job import MANAGER, TrainJob, runtime_of, with_runtime

IT = TrainJob()
OURS = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {}}}}
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def replicated(name: str, step: str = "", parallelism: int | None = None, **spec: Any) -> dict[str, Any]:
    template = pod_template(**spec)
    template["spec"]["containers"][0]["name"] = "node" if step == "trainer" else step or "c"
    job: dict[str, Any] = {"spec": {"template": template}}
    if parallelism is not None:
        job["spec"]["parallelism"] = parallelism
    if step:
        job["metadata"] = {"labels": {STEP: step}}
    return {"name": name, "replicas": 1, "template": job}


def runtime(*jobs: Any, **policy: Any) -> dict[str, Any]:
    policies = {"mlPolicy": policy} if policy else {}
    return {
        "kind": "ClusterTrainingRuntime",
        "spec": {**policies, "template": {"spec": {"replicatedJobs": list(jobs)}}},
    }


def train_job(status: Any = None, **spec: Any) -> dict[str, Any]:
    given = {"suspend": True, "runtimeRef": {"name": "torch"}, "runtimePatches": [OURS], **spec}
    return job_object("TrainJob", given, status)


def resolved(obj: Any, of: Any) -> Any:
    return msgspec.json.decode(with_runtime(msgspec.json.encode(obj), msgspec.json.encode(of)))


TORCH = runtime(replicated("node", "trainer"), torch={"numProcPerNode": "auto"}, numNodes=2)


def test_its_nodes_are_those_of_the_runtime_or_its_own() -> None:
    """`spec.trainer.numNodes` comes before the policy's; a Job that does not train keeps its parallelism."""
    both = runtime(replicated("dataset", "dataset-initializer"), replicated("node", "trainer"), torch={}, numNodes=2)
    assert IT.pod_counts(read(IT, resolved(train_job(), both))) == {"dataset": 1, "node": 2}
    assert IT.pod_counts(read(IT, resolved(train_job(trainer={"numNodes": 5}), both))) == {"dataset": 1, "node": 5}
    plain = runtime(replicated("node", "trainer", parallelism=3))
    assert IT.pod_counts(read(IT, resolved(train_job(), plain))) == {"node": 3}


@pytest.mark.parametrize(("as_node", "nodes"), [(False, 4), (True, 3)])
def test_with_mpi_the_nodes_are_a_job_of_their_own(*, as_node: bool, nodes: int) -> None:
    """A launcher that is a node itself is one of them."""
    mpi = runtime(replicated("launcher", "trainer"), replicated("node"), mpi={"runLauncherAsNode": as_node}, numNodes=1)
    job = read(IT, resolved(train_job(trainer={"numNodes": 4}), mpi))
    assert IT.pod_counts(job) == {"launcher": 1, "node": nodes}


def test_its_resources_and_its_image_are_those_of_the_containers_that_train() -> None:
    """Everything else of the runtime's template stays."""
    resources = {"requests": {"cpu": "3"}, "limits": {"nvidia.com/gpu": 1}}
    env = [{"name": "LR", "value": "1"}]
    obj = resolved(train_job(trainer={"image": "mine", "resourcesPerNode": resources, "env": env}), TORCH)
    (container,) = IT.pod_sets(read(IT, obj), msgspec.json.encode(obj))[0]["template"]["spec"]["containers"]
    assert container == {"name": "node", "image": "mine", "resources": resources, "env": env}


def test_an_initializer_has_the_address_and_the_secret_of_its_data() -> None:
    """Of the dataset and of the model."""
    said = {"dataset": {"storageUri": "hf://d", "secretRef": {"name": "key"}}}
    obj = resolved(train_job(initializer=said), runtime(replicated("data", "dataset-initializer")))
    (container,) = IT.pod_sets(read(IT, obj), msgspec.json.encode(obj))[0]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "STORAGE_URI", "value": "hf://d"}]
    assert container["envFrom"] == [{"secretRef": {"name": "key"}}]


def test_runtime_patches_are_laid_over_the_template_in_their_order() -> None:
    """Lists of named objects are merged, tolerations are replaced, labels of a pod count for its topology."""
    required = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    spec = {
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "b"}],
        "containers": [{"name": "node", "env": [{"name": "A", "value": "1"}]}],
    }
    part = {"name": "node", "template": {"spec": {"template": {"metadata": {"annotations": required}, "spec": spec}}}}
    patch = {"manager": "me", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [part]}}}}
    base = runtime(replicated("node", "trainer", nodeSelector={"disk": "ssd"}, tolerations=[{"key": "a"}]), torch={})
    pod_set = read(IT, resolved(train_job(runtimePatches=[OURS, patch]), base)).pod_sets[0]
    assert pod_set.template.spec.node_selector == {"disk": "ssd", "zone": "a"}
    assert [each.key for each in pod_set.template.spec.tolerations] == ["b"]
    assert len(pod_set.template.spec.containers) == 1
    assert pod_set.topology_request is not None
    assert pod_set.topology_request.required == "rack"


def test_without_its_runtime_it_has_no_pod_sets_and_says_so() -> None:
    """In Kueue's words; so does one of a kind that nobody knows."""
    job = read(IT, train_job())
    assert (job.pod_sets, job.problem) == ((), "runtime 'torch' not found")
    other = read(IT, train_job(runtimeRef={"name": "x", "kind": "Other", "apiGroup": "example.com"}))
    assert other.problem == "unsupported runtime: Other.example.com"
    assert read(IT, resolved(train_job(), TORCH)).problem == ""
    assert read(IT, resolved(train_job(), runtime())).problem == "the runtime 'torch' has no Jobs"


def test_the_runtime_that_it_names_is_one_of_the_cluster_by_default() -> None:
    """As the API defaults the reference."""
    assert runtime_of(msgspec.json.encode(train_job())) == (
        "ClusterTrainingRuntime.trainer.kubeflow.org",
        "torch",
    )


def test_an_admission_is_a_runtime_patch_that_is_there_before_it_is_resumed() -> None:
    """The Trainer accepts changes of patches only while a TrainJob is suspended: two writes, in this order."""
    obj = resolved(train_job(), TORCH)
    job = read(IT, obj)
    running = started(IT, obj)
    assert running["spec"]["suspend"] is False
    (patch,) = running["spec"]["runtimePatches"]
    (part,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert part["name"] == "node"
    template = part["template"]["spec"]["template"]
    assert template["spec"] == {"nodeSelector": FLAVOR, "tolerations": [{"key": "spot", "operator": "Exists"}]}
    assert template["metadata"]["annotations"] == {"kueue.x-k8s.io/workload": "w"}
    first, second = IT.start(job, [], msgspec.json.encode(obj))
    assert "suspend" not in first.body["spec"]
    assert second.body == {"metadata": {"uid": "j"}, "spec": {"suspend": False}}


def test_an_evicted_one_is_restored_exactly() -> None:
    """The patches of others stay as they are."""
    other = {"manager": "me", "trainingRuntimeSpec": {"template": {"metadata": {"labels": {"a": "b"}}}}}
    before = resolved(train_job(runtimePatches=[other, OURS]), TORCH)
    running = started(IT, before)
    assert read(IT, running).injected
    assert stopped(IT, running, before) == before


def test_it_is_ready_by_its_jobs_and_gives_back_those_that_have_succeeded() -> None:
    """Its status has the counters of its Jobs."""

    def seen(**counts: int) -> Any:
        status = {"jobsStatus": [{"name": "node", "ready": 0, "succeeded": 0, "active": 0, **counts}]}
        return read(IT, resolved(train_job(status), TORCH))

    assert not seen().pods_ready
    assert seen(ready=1).pods_ready
    assert seen(active=1).active == 1
    assert IT.reclaimable(seen(succeeded=1)) == {"node": 2}


@pytest.mark.parametrize(("condition", "finished"), [("Complete", "Complete"), ("Failed", "Failed")])
def test_it_ends_by_its_condition(condition: str, finished: str) -> None:
    """With that condition's message, whether its runtime is still there or not."""
    status = {"conditions": [{"type": condition, "status": "True", "message": "done"}]}
    job = read(IT, train_job(status))
    assert (job.finished, job.message) == (finished, "done")
