"""AppWrapper: the pod sets of its components, and what an admission writes beside them (Kueue's jobs/appwrapper)."""

from typing import Any

import pytest
from tests.support.job_kinds import FLAVOR, job_object, pod_template, read, started, stopped

from headgate.core.jobs.app_wrapper import AppWrapper

IT = AppWrapper()
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "spec": {"parallelism": 3, "completions": 2, "template": pod_template()},
}
POD = {"apiVersion": "v1", "kind": "Pod", **pod_template()}
JOB_SET = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "spec": {
        "replicatedJobs": [
            {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 4, "template": pod_template()}}}
        ]
    },
}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}


def wrapper(*templates: Any, status: Any = None, **component: Any) -> dict[str, Any]:
    components = [{"template": each, **component} for each in templates]
    return job_object("AppWrapper", {"suspend": True, "components": components}, status)


def test_the_pod_sets_of_known_kinds_follow_from_their_templates() -> None:
    """Numbered through over all components; one without pods has none."""
    job = read(IT, wrapper(POD, CONFIG_MAP, JOB, JOB_SET))
    assert IT.pod_counts(job) == {"train-0": 1, "train-1": 2, "train-2": 8}
    request = job.pod_sets[2].topology_request
    assert request is not None
    assert (request.sub_group_count, request.sub_group_index_label) == (2, "jobset.sigs.k8s.io/job-index")


@pytest.mark.parametrize(
    ("template", "counts"),
    [
        ({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 4, "template": pod_template()}}, [4]),
        (
            {
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 5, "template": pod_template()}}},
            },
            [5],
        ),
        (
            {
                "apiVersion": "ray.io/v1",
                "kind": "RayJob",
                "spec": {
                    "rayClusterSpec": {
                        "headGroupSpec": {"template": pod_template()},
                        "workerGroupSpecs": [{"replicas": 2, "template": pod_template()}, {"template": pod_template()}],
                    }
                },
            },
            [1, 2, 1],
        ),
    ],
    ids=["Deployment", "PyTorchJob", "RayJob"],
)
def test_each_known_kind_has_its_counts(template: Any, counts: list[int]) -> None:
    """As the operator infers them."""
    assert list(IT.pod_counts(read(IT, wrapper(template))).values()) == counts


def test_declared_pod_sets_count_and_what_the_operator_has_found_before_counts_more() -> None:
    """A path that leads to no template is none of its pod sets."""
    unknown = {"apiVersion": "example.com/v1", "kind": "X", "spec": {"parts": [{"pods": pod_template()}]}}
    declared: list[dict[str, Any]] = [
        {"path": "template.spec.parts[0].pods", "replicas": 3},
        {"path": "template.spec.parts[1].pods"},
    ]
    obj = wrapper(unknown, podSets=declared)
    assert IT.pod_counts(read(IT, obj)) == {"train-0": 3}
    obj["status"]["componentStatus"] = [{"podSets": [{**declared[0], "replicas": 7}]}]
    assert IT.pod_counts(read(IT, obj)) == {"train-0": 7}


def test_a_start_writes_beside_the_templates_and_a_restore_takes_it_away() -> None:
    """Only what a template does not have; components without pods get nothing."""
    before = wrapper(POD, CONFIG_MAP, JOB)
    running = started(IT, before)
    assert running["spec"]["suspend"] is False
    pod, config_map, job = running["spec"]["components"]
    assert (pod["template"], job["template"]) == (POD, JOB)
    assert "podSetInfos" not in config_map
    (info,) = job["podSetInfos"]
    assert info["nodeSelector"] == FLAVOR
    assert info["labels"] == {"kueue.x-k8s.io/podset": "train-1"}
    assert info["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert read(IT, running).injected
    assert stopped(IT, running, before) == before


@pytest.mark.parametrize(
    ("phase", "true", "finished", "active"),
    [
        ("Suspended", [], None, 0),
        ("Running", ["QuotaReserved", "ResourcesDeployed", "PodsReady"], None, 1),
        ("Succeeded", ["ResourcesDeployed"], "Complete", 0),
        ("Failed", ["ResourcesDeployed"], None, 0),
        ("Failed", [], "Failed", 0),
    ],
)
def test_it_ends_by_its_phase(phase: str, true: list[str], finished: str | None, active: int) -> None:
    """A failure is its end when nothing is left of what it has created."""
    status = {"phase": phase, "conditions": [{"type": each, "status": "True"} for each in true]}
    job = read(IT, wrapper(JOB, status=status))
    assert (job.finished, job.active, job.pods_ready) == (finished, active, "PodsReady" in true)


@pytest.mark.parametrize(("written", "count"), [("3", 3), ("²", None), ("9" * 5000, None)])
def test_a_count_of_sub_groups_that_is_no_number_counts_as_missing(written: str, count: int | None) -> None:
    """As in Kueue; the AppWrapper is run."""
    prefix = "workload.codeflare.dev.appwrapper/tas-"
    annotations = {prefix + "sub-group-count": written, prefix + "sub-group-index-label": "group"}
    job = read(IT, wrapper(POD, podSets=[{"path": "template", "annotations": annotations}]))
    request = job.pod_sets[0].topology_request
    assert request is not None
    assert (request.sub_group_index_label, request.sub_group_count) == ("group", count)


@pytest.mark.parametrize("written", ["²", "9" * 5000])
def test_slices_of_a_size_that_is_no_number_are_none(written: str) -> None:
    """The pod set asks for no topology then."""
    annotations = {
        f"kueue.x-k8s.io/podset-slice-{key}": value for key, value in (("required-topology", "rack"), ("size", written))
    }
    pod = {**POD, "metadata": {"annotations": annotations}}
    assert read(IT, wrapper(pod)).pod_sets[0].topology_request is None
