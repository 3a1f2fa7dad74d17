"""
What each sample of Kueue's documentation is checked for: what the page that shows it says of it.

A check has the samples that it is about, in the order in which their page applies them. `docs/reference/samples.md` has
a row for each.
"""
# Over 400 lines: one check for each sample, read beside the table of the documentation.

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
import pytest
from tests.kube.e2e import objects
from tests.kube.e2e.cells import KUEUE, Json
from tests.kube.e2e.objects import cluster_queue, condition, is_true, local_queue
from tests.kube.e2e.samples import (
    HERE,
    Bench,
    RefusedError,
    is_pending,
    message,
    pod_sets,
)
from tests.kube.e2e.seeing import has
from tests.support.waiting import until

K: Final = "kueue.x-k8s.io/"
QUEUES: Final = "admin/single-clusterqueue-setup.yaml"
"""A flavor, a ClusterQueue of 9 CPU and 36Gi, and the LocalQueue `user-queue`."""

STORIES: Final = "tas-topology-spreading/user-stories/"


class Try(msgspec.Struct, frozen=True, kw_only=True):
    """One check: its samples, what the Configuration has beside the common one, and the nodes that it needs."""

    paths: tuple[str, ...]
    check: Callable[[Bench, str], Awaitable[None]]
    parts: Json = {}
    nodes: tuple[Json, ...] = ()
    needs: str = ""
    operator: str = ""

    def __str__(self) -> str:
        return self.paths[-1]


TRIES: Final[list[Try]] = []
CONFIGURATIONS: Final = {
    f"{STORIES}{story}/kueue-config-patch.yaml"
    for story in ("large-model-lws", "large-model-podgroup", "small-model-deployment", "soft-spreading-preferred")
} | {"tas-topology-spreading/kueue-config-patch-label-keys-to-copy.yaml", "multikueue/external-frameworks-config.yaml"}
"""Files of Kueue's Configuration, or parts of it."""

CLUSTERS: Final = {
    "multikueue/dev/worker-kind-config.yaml",
    "tas-topology-spreading/kind-cluster.yaml",
    *(
        f"{STORIES}{story}/kind-cluster.yaml"
        for story in ("large-model-lws", "large-model-podgroup", "small-model-deployment", "soft-spreading-preferred")
    ),
}
"""Files for `kind create cluster`: nothing that an API server is given."""

Check = Callable[[Bench, str], Awaitable[None]]


def tried(
    *paths: str, nodes: Sequence[Json] = (), needs: str = "", operator: str = "", **parts: Any
) -> Callable[[Check], Check]:
    """Register a check of samples; `needs` is a framework without which it is skipped, `operator` one that runs."""

    def register(check: Check) -> Check:
        TRIES.append(Try(paths=paths, check=check, parts=parts, nodes=tuple(nodes), needs=needs, operator=operator))
        return check

    return register


async def refused(bench: Bench, path: str) -> str:
    """What is said against a sample."""
    with pytest.raises(RefusedError) as said:
        await bench.apply(path)
    return str(said.value)


def at(obj: Json, *path: str) -> Any:
    found: Any = obj
    for key in path:
        found = found.get(key, {})
    return found


async def runs_as(bench: Bench, path: str, sets: dict[str, int], *suspended: str) -> Json:
    """
    A job is suspended when it is made, gets a Workload with these pod sets, and is resumed on its admission.

    Its Workload.
    """
    (planned,) = (each for each in await bench.dry(path) if each["kind"] not in ("ConfigMap", "ResourceClaimTemplate"))
    assert at(planned, *suspended) is True
    queue = planned["metadata"]["labels"][f"{K}queue-name"]
    if queue != "user-queue":
        await bench.make(local_queue(HERE, "cluster-queue", queue))
    name = next(each for each in await bench.apply(path) if planned["kind"].lower() in each)
    workload = await bench.workload(name, has("Admitted"))
    assert pod_sets(workload) == sets
    assert workload["spec"]["queueName"] == queue
    await bench.becomes(name, lambda found: not at(found, *suspended))
    return workload


# --- quotas and Jobs --------------------------------------------------------------------------------------------------


@tried("getting-started/quick-start-setup.yaml", "getting-started/quick-start-job.yaml")
async def a_job_runs_to_its_end(bench: Bench, path: str) -> None:
    """It does not say that it is suspended, and is; it is admitted, its pods run, and its Workload is finished."""
    await bench.apply("getting-started/quick-start-setup.yaml")
    await runs_as(bench, path, {"main": 3}, "spec", "suspend")
    async with bench.playing():
        await bench.becomes("job.batch/sample-job", has("Complete"))
        await bench.workload("sample-job", has("Finished", reason="Succeeded"))
    queue = await bench.becomes("clusterqueue/cluster-queue", lambda found: not found["status"]["admittedWorkloads"])
    assert condition(queue, "Active")[0] == "True"


@tried(QUEUES, "jobs/sample-job.yaml")
@tried(QUEUES, "sample-job.yaml")
async def three_of_six_jobs_wait(bench: Bench, path: str) -> None:
    """Three of them use up the 9 CPU; the other three are pending."""
    await bench.apply(QUEUES)
    for _ in range(6):
        await bench.apply(path)
    await bench.count(3, lambda each: is_true(each, "Admitted"))
    await bench.becomes("localqueue/user-queue", lambda found: found["status"].get("pendingWorkloads") == 3)
    said = "insufficient unused quota for cpu in flavor default-flavor, 3 more needed"

    async def one_says_why() -> bool:  # its equals wait with it
        return any(said in message(each, "QuotaReserved") for each in await bench.workloads() if is_pending(each))

    await until(one_says_why)
    await bench.count(3, lambda each: not is_true(each, "Admitted"))


@tried(QUEUES, "jobs/sample-job-partial-admission.yaml")
async def a_job_runs_with_fewer_pods(bench: Bench, path: str) -> None:
    """Twenty pods of a CPU do not fit in 9 CPU, five would do: it runs with nine at a time."""
    await bench.apply(QUEUES)
    (name,) = await bench.apply(path)
    workload = await bench.workload(name, has("Admitted"))
    (assignment,) = workload["status"]["admission"]["podSetAssignments"]
    assert assignment["count"] == 9
    found = await bench.becomes(name, lambda found: not found["spec"]["suspend"])
    assert (found["spec"]["parallelism"], found["spec"]["completions"]) == (9, 20)


@tried(QUEUES, "jobs/sample-cronjob.yaml")
async def each_run_of_a_cron_job_gets_a_workload(bench: Bench, path: str) -> None:
    """The Job of a run is queued like any other."""
    await bench.apply(QUEUES)
    await bench.apply(path)
    await bench.deployment.plane.kubectl("create", "job", "run", "--from=cronjob/sample-cronjob", "-n", HERE)
    workload = await bench.workload("run", has("Admitted"))
    assert pod_sets(workload) == {"main": 3}


@tried(QUEUES, "jobs/sample-scalable-job.yaml")
async def an_elastic_job_grows(bench: Bench, path: str) -> None:
    """More parallelism makes a new slice, which replaces the first without stopping the job."""
    await bench.apply(QUEUES)
    (name,) = await bench.apply(path)
    await bench.workload(name, has("Admitted"))
    await bench.becomes(name, lambda found: not found["spec"]["suspend"])
    await bench.deployment.plane.kubectl("patch", name, "-n", HERE, "--type=merge", "-p", '{"spec":{"parallelism":5}}')
    (old,) = await bench.count(1, lambda each: is_true(each, "Finished"))
    (new,) = await bench.count(1, lambda each: is_true(each, "Admitted") and not is_true(each, "Finished"))
    assert (pod_sets(old), pod_sets(new)) == ({"main": 3}, {"main": 5})
    assert condition(old, "Finished")[1] == "WorkloadSliceReplaced"
    assert not (await bench.get(name))["spec"]["suspend"]


@tried("admin/concurrent-admission-setup.yaml")
async def a_job_tries_all_flavors_at_once(bench: Bench, path: str) -> None:
    """Its Workload is a parent with a variant for each flavor; the most preferred one with room is its flavor."""
    await bench.apply(path)
    await bench.make(objects.job(HERE, "train", queue="team-queue", cpu="1"))

    async def has_variants() -> bool:
        owners = [each["metadata"]["ownerReferences"][0]["kind"] for each in await bench.workloads()]
        return sorted(owners) == ["Job", "Workload", "Workload", "Workload"]

    await until(has_variants)
    (parent,) = (
        each for each in await bench.workloads() if f"{K}concurrent-admission-parent" in each["metadata"]["labels"]
    )
    assert parent["metadata"]["ownerReferences"][0]["name"] == "train"

    async def is_reserved() -> bool:
        name = parent["metadata"]["name"]
        found = await bench.get(f"workload/{name}")
        return is_true(found, "Admitted") and flavors_of(found) == {"reservation"}

    await until(is_reserved)


def flavors_of(workload: Json) -> set[str]:
    """The flavors that a Workload was assigned."""
    assignments = workload["status"]["admission"]["podSetAssignments"]
    return {flavor for each in assignments for flavor in each["flavors"].values()}


CREDITS: Final = {
    "transformations": [{"input": "cpu", "strategy": "Retain", "outputs": {"cpu_credits": "1"}}],
}


@tried("admin/shared-quota-setup.yaml", resources=CREDITS)
async def flavors_share_a_quota(bench: Bench, path: str) -> None:
    """Nine CPU in each of two flavors, and fourteen of both together."""
    await bench.apply(path)
    for name, cpu in (("first", "9"), ("second", "5"), ("third", "1")):
        await bench.make(objects.job(HERE, name, queue="team-queue", cpu=cpu))
        if name != "third":
            workload = await bench.workload(name, has("Admitted"))
            assert flavors_of(workload) == {"on-demand" if name == "first" else "spot", "credits"}
    waiting = await bench.workload("third", is_pending)
    assert "cpu_credits" in message(waiting, "QuotaReserved")


FAIR: Final = {"usageHalfLifeTime": "10m", "usageSamplingInterval": "1s"}


@tried(
    "admission-fs/admission-fair-sharing-setup.yaml",
    "admission-fs/lq-b-simple-job.yaml",
    "admission-fs/lq-a-simple-job.yaml",
    admissionFairSharing=FAIR,
)
async def the_queue_that_has_used_less_is_next(bench: Bench, path: str) -> None:
    """Three jobs of one LocalQueue fill the ClusterQueue; of what waits then, the other's first goes first."""
    await bench.apply("admission-fs/admission-fair-sharing-setup.yaml")
    running = [name for _ in range(3) for name in await bench.apply(path)]
    await bench.count(3, lambda each: is_true(each, "Admitted"))
    status = ("status", "fairSharing", "admissionFairSharingStatus", "consumedResources")
    await bench.becomes("localqueue/lq-a", lambda found: at(found, *status).get("cpu"))
    (later,) = await bench.apply(path)
    await bench.workload(later, is_pending)
    (other,) = await bench.apply("admission-fs/lq-b-simple-job.yaml")
    await bench.workload(other, has("QuotaReserved", "False"))
    await bench.deployment.plane.kubectl("delete", running[0], "-n", HERE)
    await bench.workload(other, has("Admitted"))
    await bench.workload(later, has("QuotaReserved", "False"))


# --- flavors, access and policies -------------------------------------------------------------------------------------


@tried("admin/resource-flavor-empty.yaml")
async def a_flavor_without_labels_changes_no_pods(bench: Bench, path: str) -> None:
    """A Job on it keeps its template."""
    template = (await job_on(bench, path, "default-flavor"))["spec"]["template"]["spec"]
    assert "nodeSelector" not in template
    assert "tolerations" not in template


@tried("admin/resource-flavor-tolerations.yaml")
async def a_flavor_gives_its_tolerations(bench: Bench, path: str) -> None:
    """A Job on it gets its labels as a node selector, and its tolerations."""
    template = (await job_on(bench, path, "spot"))["spec"]["template"]["spec"]
    assert template["nodeSelector"] == {"instance-type": "spot"}
    assert template["tolerations"] == [{"key": "spot-taint", "operator": "Exists", "effect": "NoSchedule"}]


async def job_on(bench: Bench, path: str, flavor: str) -> Json:
    """A Job that has been admitted to the flavor of a sample."""
    await bench.apply(path)
    await bench.make(cluster_queue("cluster-queue", flavor), local_queue(HERE, "cluster-queue", "user-queue"))
    await bench.make(objects.job(HERE, "train", queue="user-queue"))
    return await bench.becomes("job.batch/train", lambda found: not found["spec"]["suspend"])


@tried("admin/resource-flavor-taints.yaml")
async def a_taint_of_a_flavor_is_to_be_tolerated(bench: Bench, path: str) -> None:
    """A Job without the toleration waits, and its Workload says why; one with it is admitted."""
    await bench.apply(path)
    await bench.make(cluster_queue("cluster-queue", "spot"), local_queue(HERE, "cluster-queue", "user-queue"))
    tolerant = objects.job(HERE, "tolerant", queue="user-queue")
    toleration = {"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
    tolerant["spec"]["template"]["spec"]["tolerations"] = [toleration]
    await bench.make(objects.job(HERE, "plain", queue="user-queue"), tolerant)
    waiting = await bench.workload("plain", is_pending)
    assert "untolerated taint {spot true NoSchedule <nil>} in flavor spot" in message(waiting, "QuotaReserved")
    await bench.workload("tolerant", has("Admitted"))


@tried("admin/minimal-cq.yaml")
async def a_field_that_kueue_never_had_is_refused(bench: Bench, path: str) -> None:
    """It was proposed, and is in no release."""
    assert 'unknown field "spec.flavorFallbackStrategy"' in await refused(bench, path)


@tried("admin/cluster-role-and-binding.yaml")
async def a_binding_without_a_namespace_is_refused(bench: Bench, path: str) -> None:
    """Kubernetes wants the namespace of the ServiceAccount; the ClusterRole is made."""
    assert "subjects[0].namespace: Required value" in await refused(bench, path)
    role = await bench.get("clusterrole/kueue-api-get")
    assert role["rules"][0]["apiGroups"] == ["visibility.kueue.x-k8s.io"]


@tried("sample-validating-policy.yaml", "sample-validating-policy-binding.yaml")
async def a_policy_refuses_jobs_without_a_queue(bench: Bench, path: str) -> None:
    """With the words of the policy."""
    await bench.apply("sample-validating-policy.yaml")
    await bench.apply(path)
    plain = objects.job(HERE, "plain")
    plain["metadata"]["labels"] = {"a": "b"}
    body = msgspec.json.encode(plain).decode()

    async def says() -> str:
        done = await bench.deployment.plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=body, check=False)
        return done.stderr

    await until(says)  # a policy counts a moment after it was made
    assert "The label 'kueue.x-k8s.io/queue-name' is either missing or does not have a value set." in await says()


@tried(QUEUES, "sample-enforce-requests-policy.yaml", "sample-enforce-requests-policy-binding.yaml")
async def a_policy_keeps_jobs_without_requests_out(bench: Bench, path: str) -> None:
    """The Workload of one is refused, so that it stays suspended; one with requests is admitted."""
    await bench.apply(QUEUES)
    await bench.apply("sample-enforce-requests-policy.yaml")
    await bench.apply(path)
    team = bench.deployment.fresh("managed")
    space = objects.namespace(team)
    space["metadata"]["labels"] = {"kueue-managed": "true"}
    await bench.make(space, local_queue(team, "cluster-queue", "user-queue"))
    probe = {"apiVersion": KUEUE, "kind": "Workload", "metadata": {"name": "probe", "namespace": team}}
    container: Json = {"name": "c", "image": "i", "resources": {}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    probe["spec"] = {"queueName": "none", "podSets": [{"name": "main", "count": 1, "template": template}]}
    body = msgspec.json.encode(probe).decode()

    async def is_refused() -> bool:
        done = await bench.deployment.plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=body, check=False)
        return "Every container in the workload must specify" in done.stderr

    await until(is_refused)
    bare = objects.job(team, "bare", queue="user-queue")
    del bare["spec"]["template"]["spec"]["containers"][0]["resources"]
    await bench.make(bare)
    await bench.make(objects.job(team, "sized", queue="user-queue"))
    await bench.workload("sized", has("Admitted"), namespace=team)
    assert len(await bench.workloads(team)) == 1
    assert (await bench.get("job.batch/bare", team))["spec"]["suspend"]


# --- admission checks -------------------------------------------------------------------------------------------------


@tried("sample-admission-check.yaml")
async def a_check_of_an_unknown_controller_is_not_active(bench: Bench, path: str) -> None:
    """Both objects are there as they are written; nobody says that the check is active."""
    await bench.apply(path)
    config = await bench.get("provisioningrequestconfig/prov-test-config")
    assert config["spec"]["parameters"] == {"parma1": "value1"}
    check = await bench.get("admissioncheck/prov-test")
    assert check["spec"]["controllerName"] == "ProvisioningRequestController"
    assert not is_true({"status": {}, **check}, "Active")


# --- other kinds of jobs ----------------------------------------------------------------------------------------------

TRAINING: Final = {
    "jobs/sample-pytorchjob.yaml": {"master": 1, "worker": 1},
    "jobs/sample-tfjob.yaml": {"ps": 1, "worker": 2},
    "jobs/sample-paddlejob.yaml": {"worker": 2},
    "jobs/sample-mpijob.yaml": {"launcher": 1, "worker": 2},
}


@tried(QUEUES, "jobs/sample-pytorchjob.yaml")
@tried(QUEUES, "jobs/sample-tfjob.yaml")
@tried(QUEUES, "jobs/sample-paddlejob.yaml")
@tried(QUEUES, "jobs/sample-mpijob.yaml")
async def a_training_job_is_queued(bench: Bench, path: str) -> None:
    """A pod set for each of its replica types."""
    await bench.apply(QUEUES)
    await runs_as(bench, path, TRAINING[path], "spec", "runPolicy", "suspend")


@tried("jobs/sample-xgboostjob.yaml")
@tried("sample-xgboostjob.yaml")
async def half_a_cpu_is_to_be_quoted(bench: Bench, path: str) -> None:
    """The Training Operator's definition takes integers and strings for amounts, and the sample has a fraction."""
    assert "requests.cpu in body must be of type integer,string" in await refused(bench, path)


@tried("jobs/sample-mxjob.yaml")
async def an_mx_job_has_no_kind_any_more(bench: Bench, path: str) -> None:
    """The Training Operator and Kueue have dropped it."""
    assert 'no matches for kind "MXJob"' in await refused(bench, path)


def ray_sets(cluster: Json, **more: int) -> dict[str, int]:
    """The pod sets of a Ray cluster."""
    return {"head": 1, **{each["groupName"]: each["replicas"] for each in cluster["workerGroupSpecs"]}, **more}


@tried(QUEUES, "jobs/ray-cluster-sample.yaml")
async def a_ray_cluster_is_queued(bench: Bench, path: str) -> None:
    """Pod sets for its head and each group of workers."""
    await bench.apply(QUEUES)
    (cluster,) = bench.objects(path)
    await runs_as(bench, path, ray_sets(cluster["spec"]), "spec", "suspend")


@tried(QUEUES, "jobs/ray-job-code-sample.yaml", "jobs/ray-job-sample.yaml")
async def a_ray_job_is_queued(bench: Bench, path: str) -> None:
    """Pod sets for its cluster, and for the pod that submits it. v0.6.3's is of a version that KubeRay dropped."""
    await bench.apply(QUEUES)
    await bench.apply("jobs/ray-job-code-sample.yaml")
    (job,) = bench.objects(path)
    if job["apiVersion"] == "ray.io/v1alpha1":
        assert "unknown field" in await refused(bench, path)
        return
    await runs_as(bench, path, ray_sets(job["spec"]["rayClusterSpec"], submitter=1), "spec", "suspend")


@tried(QUEUES, "jobs/ray-job-autoscaling-code-sample.yaml", "jobs/ray-job-autoscaling-sample.yaml")
async def an_elastic_ray_job_is_queued(bench: Bench, path: str) -> None:
    """It may scale itself, as it says that it is elastic."""
    await bench.apply(QUEUES)
    await bench.apply("jobs/ray-job-autoscaling-code-sample.yaml")
    (job,) = bench.objects(path)
    await runs_as(bench, path, ray_sets(job["spec"]["rayClusterSpec"], submitter=1), "spec", "suspend")


@tried(QUEUES, "jobs/ray-service-sample.yaml")
async def a_ray_service_is_queued(bench: Bench, path: str) -> None:
    """Pod sets for its cluster."""
    await bench.apply(QUEUES)
    (service,) = bench.objects(path)
    await runs_as(bench, path, ray_sets(service["spec"]["rayClusterConfig"]), "spec", "rayClusterConfig", "suspend")


WRAPPED: Final = {
    "appwrapper/deployment-sample.yaml": [3],
    "jobs/appwrapper-leaderworkerset-sample.yaml": [2, 3],
    "jobs/appwrapper-pytorch-sample.yaml": [1, 1],
}


@tried(QUEUES, "appwrapper/deployment-sample.yaml")
@tried(QUEUES, "jobs/appwrapper-leaderworkerset-sample.yaml")
@tried(QUEUES, "jobs/appwrapper-pytorch-sample.yaml")
async def an_app_wrapper_is_queued(bench: Bench, path: str) -> None:
    """A pod set for each template that its components declare, or that is known of their kinds."""
    await bench.apply(QUEUES)
    (planned,) = await bench.dry(path)
    assert planned["spec"]["suspend"] is True
    (name,) = await bench.apply(path)
    workload = await bench.workload(name, has("Admitted"))
    assert list(pod_sets(workload).values()) == WRAPPED[path]
    await bench.becomes(name, lambda found: not found["spec"]["suspend"])


@tried(QUEUES, "jobs/sample-sparkapplication.yaml", needs="sparkoperator.k8s.io/sparkapplication")
async def a_spark_application_is_queued(bench: Bench, path: str) -> None:
    """Pod sets for its driver and its executors."""
    await bench.apply(QUEUES)
    await runs_as(bench, path, {"driver": 1, "executor": 2}, "spec", "suspend")
