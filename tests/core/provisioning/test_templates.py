"""The objects of a request: PodTemplates of pod sets on their flavors, merged by the policy, and its parameters."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from tests.core.provisioning.test_deciding import CONFIG, Provisioned

from headgate.core.provisioning.templates import RequestObjects, UnreadableWorkloadError, objects_for, transferred
from headgate.core.state.tables import State, Workload
from headgate.events.ids import RequestKey, Uid, WorkloadKey
from headgate.events.objects import (
    Admission,
    PodSet,
    PodSetAssignment,
    ProvisioningConfigSpec,
    ResourceFlavorSpec,
    Toleration,
    WorkloadSpec,
)

Json = dict[str, Any]
REQUEST = RequestKey("team/w-prov-1")


def pod_set(name: str, count: int = 1, **spec: Any) -> Json:
    """A pod set of one container that requests a CPU."""
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    return {"name": name, "count": count, "template": {"spec": {"containers": [container], **spec}}}


def made(
    *pod_sets: Json,
    config: ProvisioningConfigSpec = CONFIG,
    counts: Mapping[str, int] = MappingProxyType({}),
    **metadata: Any,
) -> RequestObjects:
    """The objects for a workload with these pod sets, on a flavor with a label and a toleration."""
    state: State = Provisioned().cell.state
    flavor = ResourceFlavorSpec(node_labels={"pool": "new"}, tolerations=(Toleration(key="new", operator="Exists"),))
    state.flavors["default"] = msgspec.structs.replace(state.flavors["default"], spec=flavor)
    decoded = tuple(msgspec.convert(each, PodSet) for each in pod_sets)
    assignments = tuple(
        PodSetAssignment(name=each["name"], flavors={"cpu": "default"}, count=counts.get(each["name"], each["count"]))
        for each in pod_sets
    )
    workload = Workload(
        key=WorkloadKey("team/w"),
        uid=Uid("uid-w"),
        created_ms=state.now_ms,
        spec=WorkloadSpec(pod_sets=decoded),
        admission=Admission(cluster_queue="cq", pod_set_assignments=assignments),
    )
    raw = {"metadata": {"uid": "uid-w", **metadata}, "spec": {"podSets": list(pod_sets)}}
    return objects_for(state, workload, REQUEST, config, msgspec.json.encode(raw))


def asked(found: RequestObjects) -> list[tuple[str, int]]:
    """The pod sets of a request: the end of the template's name, and the number of pods."""
    prefix = "ppt-w-prov-1-"
    return [
        (each["podTemplateRef"]["name"].removeprefix(prefix), each["count"])
        for each in found.request["spec"]["podSets"]
    ]


def test_a_template_is_the_users_on_the_flavor_of_the_reservation() -> None:
    """With everything that it has; limits are requests where these are missing."""
    given = pod_set("main", 2, nodeSelector={"zone": "a"}, priorityClassName="high")
    given["template"]["metadata"] = {"labels": {"app": "x"}, "annotations": {"note": "y"}}
    given["template"]["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "2", "example.com/gpu": "1"}
    (template,) = made(given).templates
    spec = template["template"]["spec"]
    assert spec["nodeSelector"] == {"zone": "a", "pool": "new"}
    assert spec["tolerations"] == [{"key": "new", "operator": "Exists"}]
    assert spec["priorityClassName"] == "high"
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1", "example.com/gpu": "1"}
    assert template["template"]["metadata"] == {"labels": {"app": "x"}, "annotations": {"note": "y"}}
    (owner,) = template["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Workload", "uid-w", True)


def test_parameters_are_those_of_the_configuration_and_of_the_annotations() -> None:
    """An annotation takes precedence."""
    config = msgspec.structs.replace(CONFIG, parameters={"a": "1", "b": "1"})
    annotations = {"provreq.kueue.x-k8s.io/b": "2", "provreq.kueue.x-k8s.io/c": "3", "other": "4"}
    found = made(pod_set("main"), config=config, annotations=annotations)
    assert found.request["spec"]["parameters"] == {"a": "1", "b": "2", "c": "3"}
    assert found.request["spec"]["provisioningClassName"] == "class"


def quantity(value: str) -> Json:
    """Containers that request that many CPUs."""
    return {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": value}}}]}


MERGES = [
    # what the second pod set has besides -> merged by IdenticalPodTemplates, by IdenticalWorkloadSchedulingRequirements
    ({}, True, True),
    (quantity("1000m"), True, True),
    ({"tolerations": []}, True, True),
    ({"containers": [{"name": "c", "image": "y", "resources": {"requests": {"cpu": "1"}}}]}, False, True),
    ({"priorityClassName": "high"}, False, True),
    (quantity("2"), False, False),
    ({"nodeSelector": {"a": "b"}}, False, False),
    ({"affinity": {"podAffinity": {"x": []}}, "tolerations": []}, True, True),
    ({"affinity": {"podAffinity": {"x": ["y"]}}}, False, False),
    ({"resourceClaims": [{"name": "r"}]}, False, False),
    ({"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "1"}}}]}, False, False),
]


@pytest.mark.parametrize(("second", "templates", "requirements"), MERGES)
def test_pod_sets_that_are_identical_are_merged(second: Json, templates: bool, requirements: bool) -> None:
    """By the policy of the configuration; without one, none."""
    for policy, merged in (
        (None, False),
        ("IdenticalPodTemplates", templates),
        ("IdenticalWorkloadSchedulingRequirements", requirements),
    ):
        config = msgspec.structs.replace(CONFIG, pod_set_merge_policy=policy)
        found = made(pod_set("one", 2), pod_set("two", 3, **second), config=config)
        assert asked(found) == ([("one", 5)] if merged else [("one", 2), ("two", 3)]), policy
        assert len(found.templates) == len(asked(found))


def test_only_pods_that_were_admitted_and_need_it_are_requested() -> None:
    """A pod set without pods, or without a managed resource, has no part in the request."""
    gpu = pod_set("gpu")
    gpu["template"]["spec"]["containers"][0]["resources"]["limits"] = {"example.com/gpu": "1"}
    config = msgspec.structs.replace(CONFIG, managed_resources=("example.com/gpu",))
    assert asked(made(pod_set("cpu"), gpu, config=config)) == [("gpu", 1)]
    found = made(pod_set("none", 3), pod_set("fewer", 3), counts={"none": 0, "fewer": 2})
    assert asked(found) == [("fewer", 2)]


def test_another_workload_of_that_name_is_not_taken_for_it() -> None:
    """It was created anew since the decision."""
    with pytest.raises(UnreadableWorkloadError, match="created anew"):
        made(pod_set("main"), uid="another")


def test_a_template_is_handed_over_to_its_request() -> None:
    """Only that owns it then."""
    (owner,) = transferred(REQUEST, "uid-request")
    assert (owner["kind"], owner["name"], owner["uid"]) == ("ProvisioningRequest", "w-prov-1", "uid-request")
