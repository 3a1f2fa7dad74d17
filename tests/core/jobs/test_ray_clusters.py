"""RayCluster, RayJob and RayService, as Kueue's integrations take them (pkg/controller/jobs/ray*)."""

from typing import Any

import msgspec
import pytest
from tests.support.job_kinds import FLAVOR, job_object, pod_template, read, started, stopped

from headgate.core.jobs.ray_clusters import RayCluster, RayJob, RayService
from headgate.core.jobs.suspendable import Suspendable

PLACES: dict[str, tuple[str, ...]] = {
    "RayCluster": (),
    "RayJob": ("rayClusterSpec",),
    "RayService": ("rayClusterConfig",),
}
"""Where each kind has the specification of its cluster, below `spec`."""

kinds = pytest.mark.parametrize("it", [RayCluster(), RayJob(), RayService()], ids=lambda it: it.kind.kind)


def cluster(**more: Any) -> dict[str, Any]:
    groups = [
        {"groupName": "Small", "replicas": 3, "template": pod_template()},
        {"groupName": "wide", "replicas": 2, "numOfHosts": 4, "template": pod_template()},
        {"groupName": "plain", "template": pod_template()},
    ]
    return {"headGroupSpec": {"template": pod_template("100m")}, "workerGroupSpecs": groups, **more}


def ray(it: Suspendable, status: Any = None, of_cluster: Any = None, **spec: Any) -> dict[str, Any]:
    within = cluster(**(of_cluster or {}))
    place = PLACES[it.kind.kind]
    obj = job_object(it.kind.kind, {**({place[0]: within} if place else within), **spec}, status)
    inner = obj["spec"][place[0]] if it.kind.kind == "RayService" else obj["spec"]
    inner["suspend"] = True
    return obj


def pods_of(it: Suspendable, obj: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The containers of each pod set of the Workload."""
    job = read(it, obj)
    made = it.pod_sets(job, msgspec.json.encode(obj))
    return {each["name"]: each["template"]["spec"]["containers"] for each in made}


@kinds
def test_a_cluster_has_a_head_and_groups_of_workers(it: Suspendable) -> None:
    """A worker with several hosts has a pod for each; one replica where none is written."""
    assert it.pod_counts(read(it, ray(it))) == {"head": 1, "small": 3, "wide": 8, "plain": 1}


@kinds
def test_a_start_puts_every_group_on_its_flavor_and_a_restore_gives_back_what_was_there(it: Suspendable) -> None:
    """Head and workers; what the log does not have of the cluster stays."""
    before = ray(it, of_cluster={"rayVersion": "2.9.0"})
    running = started(it, before)
    within = running["spec"] if it.kind.kind == "RayCluster" else running["spec"][PLACES[it.kind.kind][0]]
    for each in (within["headGroupSpec"], *within["workerGroupSpecs"]):
        assert each["template"]["spec"]["nodeSelector"] == FLAVOR
    assert not read(it, running).suspended
    assert stopped(it, running, before) == before


@kinds
def test_what_kuberay_adds_to_the_head_counts(it: Suspendable) -> None:
    """The autoscaler as a container, with the resources that the cluster gives it or KubeRay's."""
    head = pods_of(it, ray(it, of_cluster={"enableInTreeAutoscaling": True}))["head"]
    assert head[1] == {
        "name": "autoscaler",
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "500m", "memory": "512Mi"}},
    }
    options = {"enableInTreeAutoscaling": True, "autoscalerOptions": {"resources": {"requests": {"cpu": "1"}}}}
    assert pods_of(it, ray(it, of_cluster=options))["head"][1]["resources"] == {"requests": {"cpu": "1"}}


@kinds
def test_the_head_of_a_cluster_that_cleans_up_its_redis_has_room_for_that(it: Suspendable) -> None:
    """At least what the cleanup requests, of each resource."""
    head = pods_of(it, ray(it, of_cluster={"gcsFaultToleranceOptions": {}}))["head"]
    assert head[0]["resources"]["requests"] == {"cpu": "200m", "memory": "256Mi"}


@pytest.mark.parametrize(("state", "is_ready"), [("ready", True), ("suspended", False), ("failed", False)])
def test_a_ray_cluster_is_ready_by_its_state_and_never_ends(state: str, is_ready: bool) -> None:
    """A cluster serves until somebody deletes it; its failure is no end either."""
    job = read(RayCluster(), ray(RayCluster(), {"state": state}))
    assert (job.pods_ready, job.active, job.finished) == (is_ready, int(is_ready), None)


def test_a_ray_service_is_ready_by_its_condition_and_never_ends() -> None:
    """The condition Ready."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    job = read(RayService(), ray(RayService(), ready))
    assert (job.pods_ready, job.active, job.finished) == (True, 1, None)
    assert not read(RayService(), ray(RayService())).pods_ready


@pytest.mark.parametrize(
    ("status", "active", "finished"),
    [
        ({}, 0, None),
        ({"jobDeploymentStatus": "Suspended"}, 0, None),
        ({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}, 1, None),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "m"}, 1, "Complete"),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED", "message": "m"}, 1, "Failed"),
        ({"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": "m"}, 1, "Failed"),
    ],
)
def test_a_ray_job_ends_as_its_deployment_and_its_job_say(status: Any, active: int, finished: str | None) -> None:
    """The deployment says that it has ended, the job how."""
    job = read(RayJob(), ray(RayJob(), status))
    assert (job.active, job.finished, job.message) == (active, finished, "m" if finished else "")


def test_a_ray_job_that_is_submitted_by_a_job_has_a_pod_for_that() -> None:
    """KubeRay's default template, which is written out at the start and taken back with it."""
    it, before = RayJob(), ray(RayJob(), submissionMode="K8sJobMode")
    assert list(it.pod_counts(read(it, before)).items())[-1] == ("submitter", 1)
    (container,) = pods_of(it, before)["submitter"]
    assert (container["image"], container["resources"]["requests"]["cpu"]) == ("i", "500m")
    running = started(it, before)
    assert running["spec"]["submitterPodTemplate"]["spec"]["nodeSelector"] == FLAVOR
    assert stopped(it, running, before) == before


def test_a_submitter_with_a_template_of_its_own_keeps_it() -> None:
    """It is put on its flavor like the others."""
    it = RayJob()
    before = ray(it, submissionMode="K8sJobMode", submitterPodTemplate=pod_template("2"))
    running = started(it, before)
    assert running["spec"]["submitterPodTemplate"]["metadata"]["labels"]["mine"] == "1"
    assert stopped(it, running, before) == before


def test_a_submitter_in_the_head_counts_there() -> None:
    """In SidecarMode it is a container of the head."""
    head = pods_of(RayJob(), ray(RayJob(), submissionMode="SidecarMode"))["head"]
    assert [each["name"] for each in head] == ["c", "ray-job-submitter"]


def test_a_ray_job_that_selects_a_cluster_is_none_of_headgates() -> None:
    """Its pods are there already."""
    obj = ray(RayJob(), clusterSelector={"ray.io/cluster": "x"})
    assert RayJob().read(msgspec.json.encode(obj))[1] is None
