"""SparkApplication: the pods of its operator, and what an admission changes (jobs/sparkapplication of Kueue)."""

from typing import Any

import msgspec
import pytest
from tests.support.job_kinds import FLAVOR, applied, given, job_object, read, started, stopped

from headgate.core.jobs.spark_application import SparkApplication

IT = SparkApplication()


def application(status: Any = None, driver: Any = None, executor: Any = None, **spec: Any) -> dict[str, Any]:
    roles = {
        "driver": {"coreRequest": "500m", "memory": "512m", "labels": {"mine": "1"}, **(driver or {})},
        "executor": {"instances": 3, "coreRequest": "1", "coreLimit": "2", "memory": "1g", **(executor or {})},
    }
    return job_object("SparkApplication", {"suspend": True, "mode": "cluster", **roles, **spec}, status)


def said(state: str, **executors: str) -> dict[str, Any]:
    return {"applicationState": {"state": state, "errorMessage": "why"}, "executorState": executors}


def test_its_driver_and_its_executors_request_what_their_fields_say() -> None:
    """Memory as Java writes it; GPUs are limits; without a number of executors there is none."""
    job = read(IT, application(driver={"gpu": {"name": "nvidia.com/gpu", "quantity": 2}, "memoryLimit": "1G"}))
    assert IT.pod_counts(job) == {"driver": 1, "executor": 3}
    driver, executor = (each.template.spec.containers[0].resources for each in job.pod_sets)
    assert driver.requests == {"cpu": "500m", "memory": "512Mi"}
    assert driver.limits == {"memory": "1Gi", "nvidia.com/gpu": 2}
    assert executor.requests == {"cpu": "1", "memory": "1Gi"}
    assert executor.limits == {"cpu": "2"}
    assert IT.pod_counts(read(IT, application(executor={"instances": None})))["executor"] == 0


def test_sidecars_count_and_the_containers_of_its_template_do_not() -> None:
    """As Kueue composes the pod: a sidecar that is there already, by name and image, is one."""
    side = {"name": "s", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [{"name": "other", "resources": {"requests": {"cpu": "9"}}}]}}
    obj = application(driver={"sidecars": [side, side], "initContainers": [side], "template": template})
    spec = read(IT, obj).pod_sets[0].template.spec
    assert [each.resources.requests.get("cpu") for each in spec.containers] == ["500m", "1"]
    assert len(spec.init_containers) == 1


def test_a_topology_is_requested_by_a_role_or_by_its_template() -> None:
    """The role's own annotations come before those of its template."""
    key = "kueue.x-k8s.io/podset-required-topology"
    template = {"metadata": {"annotations": {key: "block"}}, "spec": {"containers": []}}
    job = read(IT, application(driver={"template": template}, executor={"annotations": {key: "rack"}}))
    requests = [each.topology_request for each in job.pod_sets]
    assert [each.required for each in requests if each is not None] == ["block", "rack"]


def test_an_admission_is_written_into_its_roles() -> None:
    """Node selectors, tolerations, labels and annotations of each role."""
    running = started(IT, application(executor={"nodeSelector": {"disk": "ssd"}}))["spec"]
    assert running["suspend"] is False
    assert running["driver"]["nodeSelector"] == FLAVOR
    assert running["executor"]["nodeSelector"] == {"disk": "ssd", **FLAVOR}
    for role in ("driver", "executor"):
        assert running[role]["tolerations"] == [{"key": "spot", "operator": "Exists"}]
        assert running[role]["annotations"] == {"kueue.x-k8s.io/workload": "w"}
        assert running[role]["labels"]["kueue.x-k8s.io/podset"] == role
        assert "template" not in running[role]


def test_gates_are_put_into_its_templates() -> None:
    """A template that there was not is made for them, with the container that Spark expects."""
    obj = application()
    states = given(read(IT, obj).pod_sets)
    for each in states:
        each.directives.scheduling_gates.append("kueue.x-k8s.io/topology")
    gated = applied(obj, *IT.start(read(IT, obj), states, msgspec.json.encode(obj)))["spec"]
    assert gated["driver"]["template"]["spec"] == {
        "containers": [{"name": "spark-kubernetes-driver"}],
        "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}],
    }


def test_a_node_selector_of_both_roles_moves_into_them() -> None:
    """The operator refuses one of the application beside one of a role."""
    running = started(IT, application(nodeSelector={"zone": "a"}))
    assert "nodeSelector" not in running["spec"]
    assert running["spec"]["driver"]["nodeSelector"] == {"zone": "a", **FLAVOR}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"nodeSelector": {"zone": "a"}},
        {"driver": {"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "k"}], "annotations": {"note": "x"}}},
        {
            "executor": {
                "template": {
                    "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}},
                    "spec": {"containers": [{"name": "c"}], "schedulingGates": [{"name": "mine"}]},
                }
            }
        },
    ],
    ids=["plain", "shared selector", "own fields", "template"],
)
def test_an_evicted_one_is_restored_exactly(more: Any) -> None:
    """Wherever its author wrote the fields."""
    before = application(**more)
    assert stopped(IT, started(IT, before), before) == before


def test_what_an_admission_has_injected_is_seen() -> None:
    """A stopped one that carries it has to be restored."""
    before = application()
    assert not read(IT, before).injected
    assert read(IT, started(IT, before)).injected


@pytest.mark.parametrize(
    ("status", "active", "ready"),
    [
        (said(""), False, False),
        (said("SUBMITTED"), True, False),
        (said("RUNNING", a="RUNNING", b="PENDING", c="RUNNING"), True, False),
        (said("RUNNING", a="RUNNING", b="COMPLETED", c="RUNNING"), True, True),
        (said("SUSPENDING"), True, False),
        (said("SUSPENDED"), False, False),
    ],
)
def test_it_is_ready_when_all_its_executors_are_there(status: Any, *, active: bool, ready: bool) -> None:
    """A driver alone is not enough. While it is being suspended its pods may run."""
    job = read(IT, application(status))
    assert (job.active == 1, job.pods_ready) == (active, ready)


@pytest.mark.parametrize(
    ("state", "finished"),
    [("COMPLETED", "Complete"), ("FAILED", "Failed"), ("SUBMISSION_FAILED", "Failed"), ("FAILING", None)],
)
def test_it_ends_as_its_operator_says(state: str, finished: str | None) -> None:
    """With the operator's message."""
    job = read(IT, application(said(state)))
    assert (job.finished, job.message) == (finished, "why" if finished else "")
