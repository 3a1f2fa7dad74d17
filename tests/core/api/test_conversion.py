"""An object of v1beta1 means what Kueue's conversion makes of it; one of v1beta2 is left as it is."""

import copy
from typing import Any

import pytest

from headgate.core.api.conversion import VersionError, to_v1beta2

Json = dict[str, Any]


def manifest(kind: str, version: str = "v1beta1", spec: Json | None = None, status: Json | None = None) -> Json:
    found: Json = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": {"name": "x", "namespace": "n"}}
    return found | ({"spec": spec} if spec is not None else {}) | ({"status": status} if status is not None else {})


def topology(**assignment: Any) -> Json:
    return {
        "admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "topologyAssignment": assignment}]}
    }


HOSTS = ["block", "kubernetes.io/hostname"]
CASES: dict[str, tuple[str, Json, Json, Json, Json]] = {
    "cohort": ("ClusterQueue", {"cohort": "team"}, {}, {"cohortName": "team"}, {}),
    "no cohort": ("ClusterQueue", {"cohort": ""}, {}, {}, {}),
    "admission checks": (
        "ClusterQueue",
        {"admissionChecks": ["a", "b"]},
        {},
        {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}},
        {},
    ),
    "fungibility": (
        "ClusterQueue",
        {"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}},
        {},
        {"flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}},
        {},
    ),
    "fungibility that goes on": (
        "ClusterQueue",
        {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}},
        {},
        {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}},
        {},
    ),
    "pending status": (
        "ClusterQueue",
        {},
        {"pendingWorkloads": 1, "pendingWorkloadsStatus": {"clusterQueuePendingWorkload": []}},
        {},
        {"pendingWorkloads": 1},
    ),
    "usage of a LocalQueue": (
        "LocalQueue",
        {"clusterQueue": "q"},
        {"flavorUsage": [{"name": "f"}], "flavors": [{"name": "f"}]},
        {"clusterQueue": "q"},
        {"flavorsUsage": [{"name": "f"}]},
    ),
    "retry delay of a check": (
        "AdmissionCheck",
        {"controllerName": "c", "retryDelayMinutes": 15},
        {},
        {"controllerName": "c"},
        {},
    ),
    "workload priority class": (
        "Workload",
        {"priorityClassName": "high", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass", "priority": 9},
        {},
        {
            "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
            "priority": 9,
        },
        {},
    ),
    "pod priority class": (
        "Workload",
        {"priorityClassName": "high", "priorityClassSource": "scheduling.k8s.io/priorityclass"},
        {},
        {"priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}},
        {},
    ),
    "a priority class from nowhere": ("Workload", {"priorityClassName": "high"}, {}, {}, {}),
    "past execution": (
        "Workload",
        {},
        {"accumulatedPastExexcutionTimeSeconds": 7},
        {},
        {"accumulatedPastExecutionTimeSeconds": 7},
    ),
    "topology": (
        "Workload",
        {},
        topology(levels=HOSTS, domains=[{"values": ["b", "x"], "count": 1}, {"values": ["b", "y"], "count": 2}]),
        {},
        topology(
            levels=HOSTS,
            slices=[
                {
                    "domainCount": 2,
                    "valuesPerLevel": [{"universal": "b"}, {"individual": {"roots": ["x", "y"]}}],
                    "podCounts": {"individual": [1, 2]},
                }
            ],
        ),
    ),
    "a cohort": ("Cohort", {"parentName": "root"}, {}, {"parentName": "root"}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_v1beta1_is_said_in_v1beta2(case: str) -> None:
    """apis/kueue/v1beta1/*_conversion.go, field by field; what is given stays as it was."""
    kind, old_spec, old_status, spec, status = CASES[case]
    old = manifest(kind, spec=old_spec, status=old_status)
    before = copy.deepcopy(old)
    assert to_v1beta2(old) == manifest(kind, "v1beta2", spec, status)
    assert old == before


@pytest.mark.parametrize("case", CASES)
def test_what_is_said_in_v1beta2_stays(case: str) -> None:
    """Converting again changes nothing, so it does not matter which component converts first."""
    kind, _, _, spec, status = CASES[case]
    new = manifest(kind, "v1beta2", spec, status)
    assert to_v1beta2(new) == new


def test_objects_of_others_are_left_alone() -> None:
    """A Job, and other files of a directory."""
    other = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": {"cohort": "y"}}
    assert to_v1beta2(other) == other


REFUSED = {
    "a version that is not served": (
        {"apiVersion": "kueue.x-k8s.io/v1alpha1", "kind": "Cohort", "metadata": {"name": "x"}},
        "Cohort x: apiVersion: 'kueue.x-k8s.io/v1alpha1' is not served: write kueue.x-k8s.io/v1beta2",
    ),
    "two cohorts": (
        manifest("ClusterQueue", spec={"cohort": "a", "cohortName": "b"}),
        "ClusterQueue n/x: spec.cohort: spec.cohortName says another: keep that one only",
    ),
    "checks in both forms": (
        manifest("ClusterQueue", spec={"admissionChecks": ["a"], "admissionChecksStrategy": {"admissionChecks": [1]}}),
        "spec.admissionChecks: spec.admissionChecksStrategy is there as well",
    ),
    "a class of an unknown kind": (
        manifest("Workload", spec={"priorityClassName": "a", "priorityClassSource": "b"}),
        "spec.priorityClassSource: 'b' is not known: write kueue.x-k8s.io/workloadpriorityclass or",
    ),
    "a domain without a level": (
        manifest("Workload", status=topology(levels=HOSTS, domains=[{"values": ["b"], "count": 1}])),
        "one value a level",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_contradicts_itself_is_named(case: str) -> None:
    """Object, field, and what to write."""
    given, text = REFUSED[case]
    with pytest.raises(VersionError) as caught:
        to_v1beta2(given)
    assert text in str(caught.value)
