"""What the samples of pods, serving workloads and topologies are checked for, and those of what Headgate lacks."""
# Over 400 lines: one check for each sample, as in `sample_checks`.

from collections.abc import Iterable
from typing import Final

from tests.kube.e2e import objects
from tests.kube.e2e.cells import Json
from tests.kube.e2e.objects import is_true, local_queue
from tests.kube.e2e.racks import assigned
from tests.kube.e2e.sample_checks import QUEUES, STORIES, TRIES, K, refused, tried
from tests.kube.e2e.samples import (
    BLOCK,
    GROUP,
    HERE,
    OTHER_RACK,
    RACK,
    ZONE,
    Bench,
    is_held,
    is_pending,
    message,
    node,
    pod_sets,
)
from tests.kube.e2e.seeing import has
from tests.kube.e2e.test_provisioning import answer, says
from tests.support.waiting import until

from headgate.adapters.kubernetes.resources import PROVISIONING_REQUESTS

__all__ = ["TRIES"]

CONFIG: Final = "ProvisioningRequestConfig"
LWS: Final = "leaderworkerset.x-k8s.io/leaderworkerset"

# --- pods -------------------------------------------------------------------------------------------------------------


@tried(QUEUES, "pods-kueue/kueue-pod.yaml")
async def a_pod_waits_behind_its_gate(bench: Bench, path: str) -> None:
    """It is managed and gated when it is made, and runs to its end once it is admitted."""
    await bench.apply(QUEUES)
    (planned,) = await bench.dry(path)
    assert is_held(planned)
    assert planned["metadata"]["labels"][f"{K}managed"] == "true"
    (name,) = await bench.apply(path)
    workload = await bench.workload(name, has("Admitted"))
    assert pod_sets(workload) == {"main": 1}
    async with bench.playing():
        await bench.workload(name, has("Finished", reason="Succeeded"))


@tried(QUEUES, "pods-kueue/kueue-pod-group.yaml")
async def a_group_of_pods_has_one_workload(bench: Bench, path: str) -> None:
    """Its name is that of the group; both pods are let go together."""
    await bench.apply(QUEUES)
    await bench.apply(path)
    workload = await bench.becomes("workload/sample-group", has("Admitted"))
    assert sum(pod_sets(workload).values()) == 2

    async def are_free() -> bool:
        pods = await bench.pods()
        return len(pods) == 2 and not any(map(is_held, pods))

    await until(are_free)
    if all(each["spec"].get("restartPolicy") == "Never" for each in bench.objects(path)):
        async with bench.playing():
            await bench.becomes("workload/sample-group", has("Finished", reason="Succeeded"))


@tried(QUEUES, "pods-kueue/prios.yaml", "pods-kueue/low-prio-pod.yaml", "pods-kueue/high-prio-pod.yaml")
async def a_pod_of_a_higher_priority_is_next(bench: Bench, path: str) -> None:
    """Each takes all 9 CPU, and the queue does not preempt: the high one waits, and goes before another low one."""
    await bench.apply(QUEUES)
    await bench.apply("pods-kueue/prios.yaml")
    await bench.apply("pods-kueue/low-prio-pod.yaml")
    low = await bench.workload("low-prio-1m-sleep", has("Admitted"))
    await bench.apply(path)
    high = await bench.workload("high-prio-1m-sleep", is_pending)
    assert (low["spec"]["priority"], high["spec"]["priority"]) == (100, 1_000_000)
    await bench.deployment.plane.kubectl("delete", "pod/low-prio-1m-sleep", "-n", HERE, "--wait=false")
    await bench.workload("high-prio-1m-sleep", has("Admitted"))


WAS: Final = "pods/was-podgroup-setup.yaml"


@tried(WAS, "pods/was-podgroup-sample.yaml")
@tried(WAS, "pods/was-podgroup-no-annotation-sample.yaml")
async def a_group_of_pods_is_admitted_with_and_without_its_annotation(bench: Bench, path: str) -> None:
    """Kueue 0.19 has no gate WASPodGroups: the annotation is ignored, and the group admitted like any other."""
    await bench.apply(WAS)
    pods = bench.objects(path)
    await bench.apply(path)
    group = pods[0]["metadata"]["labels"][f"{K}pod-group-name"]
    workload = await bench.becomes(f"workload/{group}", has("Admitted"))
    assert sum(pod_sets(workload).values()) == len(pods)
    assert all("schedulingGroup" not in each["spec"] for each in await bench.pods())


@tried("pods/podgroup.yaml")
async def a_dump_of_a_pod_group_is_of_another_kubernetes(bench: Bench, path: str) -> None:
    """It is the output of a command: Kubernetes has the kind in another version."""
    assert 'no matches for kind "PodGroup" in version "scheduling.k8s.io/v1alpha3"' in await refused(bench, path)


# --- serving ----------------------------------------------------------------------------------------------------------


@tried(QUEUES, "serving-workloads/sample-deployment.yaml")
async def each_pod_of_a_deployment_is_queued(bench: Bench, path: str) -> None:
    """Three pods of 3 CPU fit in the 9; a fourth waits behind its gate."""
    await bench.apply(QUEUES)
    (name,) = await bench.apply(path)
    await bench.count(3, lambda each: is_true(each, "Admitted"))
    await bench.deployment.plane.kubectl("scale", name, "-n", HERE, "--replicas=4")
    await bench.count(1, is_pending)

    async def one_is_held() -> bool:
        return [is_held(each) for each in await bench.pods()].count(True) == 1

    await until(one_is_held)
    async with bench.playing():
        await bench.becomes(name, lambda found: found["status"].get("readyReplicas") == 3)


HAMI: Final = {
    "transformations": [
        {
            "input": f"nvidia.com/{what}",
            "strategy": "Replace",
            "multiplyBy": "nvidia.com/gpu",
            "outputs": {f"nvidia.com/total-{what}": "1"},
        }
        for what in ("gpucores", "gpumem")
    ]
}


@tried("serving-workloads/sample-hami.yaml", resources=HAMI)
async def a_share_of_gpus_counts_in_total(bench: Bench, path: str) -> None:
    """Two GPUs with 30 cores and 1024 MiB each reserve 60 cores and 2048 MiB."""
    await bench.apply(path)
    assert await reserved(bench) == {
        "nvidia.com/gpu": "2",
        "nvidia.com/total-gpucores": "60",
        "nvidia.com/total-gpumem": "2048",
    }


@tried("gpu/hami.yaml")
async def shares_of_gpus_count_by_pod(bench: Bench, path: str) -> None:
    """Each of three pods reserves what it requests."""
    await bench.apply(path)
    assert await reserved(bench) == {"nvidia.com/gpu": "3", "nvidia.com/gpucores": "90", "nvidia.com/gpumem": "3072"}


async def reserved(bench: Bench) -> dict[str, str]:
    """What the queue of a sample has reserved once all its pods are admitted."""
    replicas = bench_replicas(await bench.get("deployment/gpu-burn", "kueue-test"))
    await bench.count(replicas, lambda each: is_true(each, "Admitted"), "kueue-test")

    def shown(found: Json) -> bool:
        return bool(found["status"].get("reservingWorkloads") == replicas)

    queue = await bench.becomes("clusterqueue/hami-queue", shown)
    (flavor,) = queue["status"]["flavorsReservation"]
    return {each["name"]: str(each["total"]) for each in flavor["resources"]}


def bench_replicas(deployment: Json) -> int:
    return int(deployment["spec"]["replicas"])


@tried(QUEUES, "deployment-kueue/kueue-statefulset.yaml", needs="statefulset")
async def a_stateful_set_is_queued_as_a_whole(bench: Bench, path: str) -> None:
    """One Workload for its three pods of 3 CPU, which come up behind their gates and are let go together."""
    await bench.apply(QUEUES)
    (name,) = await bench.apply(path)
    (workload,) = await bench.count(1, lambda each: is_true(each, "Admitted"))
    assert sum(pod_sets(workload).values()) == 3
    async with bench.playing():
        await bench.becomes(name, lambda found: found["status"].get("readyReplicas") == 3)


@tried(QUEUES, "serving-workloads/sample-leaderworkerset.yaml", needs=LWS, operator="lws")
async def each_group_of_a_set_has_a_workload(bench: Bench, path: str) -> None:
    """Two groups of a leader and two workers each; their pods are let go together."""
    await bench.apply(QUEUES)
    await bench.apply(path)
    found = await bench.count(2, lambda each: is_true(each, "Admitted"))
    assert [sorted(pod_sets(each).values()) for each in found] == [[1, 2], [1, 2]]
    async with bench.playing():
        await bench.becomes("leaderworkerset/nginx-leaderworkerset", has("Available"))


# --- topologies -------------------------------------------------------------------------------------------------------


def racks_of(cpu: int = 8, **labels: str) -> list[Json]:
    """Two blocks of two racks of two nodes each, as the page on topologies sets them up."""
    return [
        node(
            f"worker-{block}{rack}{number}",
            cpu,
            {GROUP: "tas-group", BLOCK: f"b{block}", RACK: f"b{block}r{rack}", **labels},
        )
        for block in (1, 2)
        for rack in (1, 2)
        for number in (1, 2)
    ]


def one_each(label: str, values: Iterable[str]) -> list[Json]:
    """A node of the topology for each value of a label."""
    return [node(f"worker-{value}", 8, {GROUP: "tas-group", label: value}) for value in values]


def racks_in(nodes: Iterable[str]) -> set[str]:
    """The racks of nodes."""
    return {each[:-1] for each in nodes}


TAS: Final = "tas/sample-queues.yaml"


@tried(
    TAS,
    "tas/sample-job-unconstrained.yaml",
    "tas/sample-job-preferred.yaml",
    "tas/sample-job-required.yaml",
    nodes=racks_of(),
)
async def pods_are_placed_as_the_page_shows(bench: Bench, path: str) -> None:
    """Ten pods in one rack, forty wherever there is room, ten more nowhere, and six in the gaps."""
    await bench.apply(TAS)
    (first,) = await bench.apply(path)
    required = await bench.workload(first, has("Admitted"))
    nodes = assigned(required)
    assert len(racks_in(nodes)) == 1
    assert sorted(nodes.count(each) for each in set(nodes)) == [2, 8]
    (second,) = await bench.apply("tas/sample-job-preferred.yaml")
    preferred = await bench.workload(second, has("Admitted"))
    assert len(assigned(preferred)) == 40
    (third,) = await bench.apply(path)
    waiting = await bench.workload(third, is_pending)
    said = message(waiting, "QuotaReserved")
    assert 'couldn\'t assign flavors to pod set main: topology "default" allows to fit only' in said
    assert 'out of 10 pod(s). Total nodes: 8; excluded: resource "cpu": 6' in said
    (fourth,) = await bench.apply("tas/sample-job-unconstrained.yaml")
    await bench.workload(fourth, has("Admitted"))
    async with bench.playing():
        await bench.workload(first, has("Finished", reason="Succeeded"))


@tried(TAS, "tas/sample-job-multi-layer.yaml", nodes=racks_of())
async def slices_of_two_layers_fill_the_topology(bench: Bench, path: str) -> None:
    """Sixteen pods in each rack, and so thirty-two in each block."""
    await bench.apply(TAS)
    (name,) = await bench.apply(path)
    nodes = assigned(await bench.workload(name, has("Admitted")))
    racks = [each[:-1] for each in nodes]
    assert {each: racks.count(each) for each in set(racks)} == dict.fromkeys(racks_in(nodes), 16)
    assert len(nodes) == 64


@tried("tas/sample-gpu-queues.yaml", nodes=racks_of())
async def a_flavor_of_gpus_gives_its_toleration(bench: Bench, path: str) -> None:
    """A Job that is placed in the topology tolerates the taint of its nodes."""
    await bench.apply(path)
    job = objects.job(HERE, "train", queue="tas-user-queue")
    job["spec"]["template"]["metadata"]["annotations"] |= {f"{K}podset-required-topology": RACK}
    await bench.make(job)
    await bench.workload("train", has("Admitted"))
    found = await bench.becomes("job.batch/train", lambda found: not found["spec"]["suspend"])
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert toleration in found["spec"]["template"]["spec"]["tolerations"]


@tried("dra/sample-dra-tas-queues.yaml", nodes=racks_of())
async def queues_of_devices_schedule_what_needs_none(bench: Bench, path: str) -> None:
    """The queues are active; a Job that claims no device is placed in their topology."""
    await bench.apply(path)
    job = objects.job(HERE, "train", queue="dra-tas-user-queue")
    job["spec"]["template"]["metadata"]["annotations"] |= {f"{K}podset-required-topology": RACK}
    await bench.make(job)
    assert len(assigned(await bench.workload("train", has("Admitted")))) == 1


JOB_SETS: Final = {"required": (4, 1), "sliced": (8, 2), "combined": (8, 2)}


@tried(TAS, "jobs/sample-jobset-tas-required.yaml", nodes=racks_of(4))
@tried(TAS, "jobs/sample-jobset-tas-sliced.yaml", nodes=racks_of(2))
@tried(TAS, "jobs/sample-jobset-tas-combined.yaml", nodes=racks_of(2))
async def the_jobs_of_a_set_are_placed(bench: Bench, path: str) -> None:
    """In one rack, in a rack for each slice of four pods, or in such racks of one block."""
    await bench.apply(TAS)
    await bench.make(local_queue(HERE, "tas-cluster-queue", "user-queue"))
    (name,) = await bench.apply(path)
    word = path.rpartition("-")[2].partition(".")[0]
    pods, racks = JOB_SETS[word]
    nodes = assigned(await bench.workload(name, has("Admitted")), "workers")
    assert (len(nodes), len(racks_in(nodes))) == (pods, racks)
    if word == "combined":
        assert len({each[: len("worker-1")] for each in nodes}) == 1
    await bench.becomes(name, lambda found: not found["spec"]["suspend"])


@tried(TAS, "serving-workloads/sample-leaderworkerset-tas.yaml", nodes=racks_of(), needs=LWS, operator="lws")
async def each_group_of_a_set_is_in_a_rack(bench: Bench, path: str) -> None:
    """The leader and the workers of a group together."""
    await bench.apply(TAS)
    await bench.apply(path)
    for each in await bench.count(2, lambda each: is_true(each, "Admitted")):
        nodes = [name for pod_set in pod_sets(each) for name in assigned(each, pod_set)]
        assert (len(nodes), len(racks_in(nodes))) == (3, 1)


# --- spreading, which Kueue 0.19 does not know ------------------------------------------------------------------------

ZONES: Final = one_each(ZONE, ("zone-a", "zone-b", "zone-c"))
RACKS: Final = one_each(OTHER_RACK, ("rack-a", "rack-b", "rack-c"))


async def are_placed(bench: Bench, team: str, workloads: int, pods: int) -> None:
    """That so many Workloads are admitted, each with all its pods in one domain."""
    found = await bench.count(workloads, lambda each: is_true(each, "Admitted"), team)
    for each in found:
        domains = [name for pod_set in pod_sets(each) for name in assigned(each, pod_set)]
        assert (len(domains), len(set(domains))) == (pods, 1)


async def story(bench: Bench, path: str, workloads: int, pods: int) -> None:
    """A story of spreading: the annotation is ignored, what it requires besides is kept."""
    await bench.apply(path.rpartition("/")[0] + "/sample-queues.yaml")
    await bench.apply(path)
    await are_placed(bench, bench.objects(path)[0]["metadata"]["namespace"], workloads, pods)


@tried(
    f"{STORIES}small-model-deployment/sample-queues.yaml",
    f"{STORIES}small-model-deployment/deployment.yaml",
    nodes=ZONES,
)
@tried(
    f"{STORIES}soft-spreading-preferred/sample-queues.yaml",
    f"{STORIES}soft-spreading-preferred/deployment.yaml",
    nodes=ZONES[:2],
)
async def pods_of_a_deployment_are_in_zones(bench: Bench, path: str) -> None:
    """Six Workloads, each in a zone."""
    await story(bench, path, 6, 1)


@tried(
    f"{STORIES}large-model-podgroup/sample-queues.yaml", f"{STORIES}large-model-podgroup/podgroups.yaml", nodes=RACKS
)
async def groups_of_pods_are_in_racks(bench: Bench, path: str) -> None:
    """Three Workloads of two pods, each in a rack."""
    await story(bench, path, 3, 2)


@tried(
    f"{STORIES}large-model-lws/sample-queues.yaml",
    f"{STORIES}large-model-lws/leaderworkerset.yaml",
    nodes=RACKS,
    needs=LWS,
    operator="lws",
)
@tried(
    "tas-topology-spreading/sample-queues.yaml",
    "tas-topology-spreading/sample-lws-topology-spreading.yaml",
    nodes=ZONES,
    needs=LWS,
    operator="lws",
)
async def groups_of_a_set_are_in_domains(bench: Bench, path: str) -> None:
    """Six Workloads, each of a leader and a worker in one domain."""
    await bench.apply(path.rpartition("/")[0] + "/sample-queues.yaml")
    (made,) = bench.objects(path)
    await bench.apply(path)
    await are_placed(bench, made["metadata"].get("namespace", HERE), 6, 2)


# --- capacity ---------------------------------------------------------------------------------------------------------


@tried("provisioning/provisioning-setup.yaml", "provisioning/sample-job.yaml")
async def a_job_waits_for_its_capacity(bench: Bench, path: str) -> None:
    """Its quota is reserved and capacity is asked for; it is admitted when the autoscaler has provided that."""
    await bench.apply("provisioning/provisioning-setup.yaml")
    await bench.becomes("admissioncheck/sample-prov", has("Active"))
    (job,) = await bench.apply(path)
    await bench.workload(job, has("QuotaReserved"))
    requests: list[Json] = []

    async def is_asked_for() -> bool:
        nonlocal requests
        requests = await bench.deployment.all(PROVISIONING_REQUESTS, HERE)
        return len(requests) == 1

    await until(is_asked_for)
    assert not is_true(await bench.workload(job), "Admitted")
    assert (await bench.get(job))["spec"]["suspend"]
    (request,) = requests
    config = next(each for each in bench.objects("provisioning/provisioning-setup.yaml") if each["kind"] == CONFIG)
    assert request["spec"]["provisioningClassName"] == config["spec"]["provisioningClassName"]
    await answer(bench.deployment, request, says("Accepted"), says("Provisioned"))
    await bench.workload(job, has("Admitted"))
    await bench.becomes(job, lambda found: not found["spec"]["suspend"])


# --- what Headgate does not run ---------------------------------------------------------------------------------------


async def waits_for_a_check(bench: Bench, queue: str, checks: str) -> None:
    """A ClusterQueue is not active, as its check is not, and what is queued there waits."""
    await bench.becomes(f"clusterqueue/{queue}", has("Active", "False", checks))


@tried("multikueue/multikueue-setup.yaml")
async def a_queue_of_other_clusters_waits(bench: Bench, path: str) -> None:
    """Everything is applied; the check has no controller, so the ClusterQueue is not active."""
    await bench.apply(path)
    await waits_for_a_check(bench, "cluster-queue", "AdmissionCheckInactive")
    (job,) = await bench.apply("jobs/sample-job.yaml")
    found = await bench.workload(job, has("QuotaReserved", "False"))
    assert "is inactive" in message(found, "QuotaReserved")


@tried("multikueue/tas/manager-setup.yaml")
async def clusters_in_a_field_of_v1beta1_are_refused(bench: Bench, path: str) -> None:
    """`kubeConfig` is in `clusterSource` in v1beta2, by Kueue's definition; the rest is applied."""
    assert 'unknown field "spec.kubeConfig"' in await refused(bench, path)
    await waits_for_a_check(bench, "cluster-queue", "AdmissionCheckInactive")


@tried("multikueue/gke/singlecluster-setup.yaml", "multikueue/gke/tas-dws-worker-setup.yaml")
@tried("multikueue/gke/singlecluster-setup.yaml")
@tried("multikueue/gke/tas-dws-manager-setup.yaml")
@tried("multikueue/gke/tas-manager-setup.yaml")
@tried("multikueue/gke/tas-worker-setup.yaml")
async def a_topology_of_v1alpha1_is_refused(bench: Bench, path: str) -> None:
    """Kueue 0.19 serves it no more; the other objects are applied."""
    said = await refused(bench, path)
    assert 'no matches for kind "Topology" in version "kueue.x-k8s.io/v1alpha1"' in said
    for each in bench.objects(path):
        if each["kind"] == "ClusterQueue":
            await bench.becomes(f"clusterqueue/{each['metadata']['name']}", has("Active", "False"))


@tried("multikueue/gke/job.yaml")
@tried("multikueue/gke/singlecluster-job.yaml")
@tried("multikueue/dev/sample-tas-job.yaml")
async def jobs_wait_for_a_queue(bench: Bench, path: str) -> None:
    """Without their queue they are suspended, and their Workloads say what is missing."""
    for name in await bench.apply(path):
        found = await bench.workload(name, has("QuotaReserved", "False"))
        assert message(found, "QuotaReserved") == "LocalQueue user-queue doesn't exist"
        assert (await bench.get(name))["spec"]["suspend"]


@tried("multikueue/tekton-pipelinerun-example.yaml")
@tried("pod-based-workloads/tekton-pipeline-run.yaml")
@tried("pod-based-workloads/tekton-sleep-task.yaml")
async def tekton_is_not_there(bench: Bench, path: str) -> None:
    """Its kinds are Tekton's. The pods of a PipelineRun are queued as pods, by their label."""
    assert "tekton.dev/v1" in await refused(bench, path)


@tried("dra/gpu-quota-setup.yaml")
async def an_old_configuration_of_devices_is_refused(bench: Bench, path: str) -> None:
    """The kind was never released; the queues are applied."""
    said = await refused(bench, path)
    assert 'no matches for kind "DynamicResourceAllocationConfig"' in said
    await bench.becomes("clusterqueue/gpu-cq", has("Active"))


@tried("dra/sample-dra-capacity-queues.yaml", "dra/sample-dra-counter-job.yaml")
@tried("dra/sample-dra-capacity-queues.yaml", "dra/sample-dra-firstavailable-job.yaml")
@tried("dra/gpu-quota-setup.yaml", "dra/gpu-job-admitted.yaml")
@tried("dra/gpu-quota-setup.yaml", "dra/gpu-job-suspended.yaml")
async def a_job_that_claims_devices_is_queued(bench: Bench, path: str) -> None:
    """It is admitted by its requests; what it claims is not counted."""
    queue = bench.objects(path)[-1]["metadata"]["labels"][f"{K}queue-name"]
    if queue == "user-queue":
        await bench.apply("dra/sample-dra-capacity-queues.yaml")
    else:
        await refused(bench, "dra/gpu-quota-setup.yaml")
    name = next(each for each in await bench.apply(path) if each.startswith("job"))
    found = await bench.workload(name, has("Admitted"))
    (assignment,) = found["status"]["admission"]["podSetAssignments"]
    assert set(assignment.get("resourceUsage", {})) <= {"cpu", "memory"}


@tried("dra/sample-dra-firstavailable-deviceclasses.yaml")
async def device_classes_are_kubernetes_own(bench: Bench, path: str) -> None:
    """They are applied."""
    assert len(await bench.apply(path)) == 2
