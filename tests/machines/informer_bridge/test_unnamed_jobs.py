"""Jobs that name no queue, where the configuration asks for them; and jobs that other jobs control."""

from typing import Any

import pytest
from tests.machines.informer_bridge.test_decide import Bridge, answer, observed, raw, synced
from tests.support.playing import job, local_queue, namespace

from headgate.core.machine.contract import Completed, Listed
from headgate.events import facts
from headgate.events.configuration import Configuration, IntegrationsConfiguration
from headgate.events.objects import LabelSelector
from headgate.machines.informer_bridge.decide import InformerBridge

ALL = Configuration(manage_jobs_without_queue_name=True)
SOME = Configuration(
    manage_jobs_without_queue_name=True, managed_jobs_namespace_selector=LabelSelector(match_labels={"batch": "yes"})
)
JOBS = "/apis/batch/v1/namespaces/team-a/jobs"
Json = dict[str, Any]


def unnamed(name: str = "train", **more: Any) -> Json:
    found = job(name, **more)
    del found["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    return found


def managing(configuration: Configuration, **objects: list[bytes]) -> Bridge:
    bridge = Bridge(configuration=configuration)
    bridge.list_all(**objects)
    bridge.settle()
    return bridge


def test_a_job_without_a_queue_is_left_alone_by_default() -> None:
    """It is no fact, so nothing in the log depends on it."""
    bridge = synced(jobs=[raw(unnamed(suspend=False))])
    assert bridge.all_calls() == []
    assert bridge.log.state.jobs == {}


def test_a_job_without_a_queue_gets_a_workload_without_one() -> None:
    """Nobody gets past the queue by naming none: the Workload waits until its Job has one."""
    bridge = managing(ALL, jobs=[raw(unnamed(suspend=False))])
    (call,) = bridge.all_calls()
    assert call.method == "POST"
    assert "queueName" not in call.body["spec"]
    answer(bridge, call, 201)
    made = {**call.body, "metadata": {**call.body["metadata"], "uid": "w"}}
    bridge.change("workloads", made, "ADDED", uid="w")
    assert bridge.all_calls() == []
    bridge.change("jobs", job(suspend=False))
    (call,) = bridge.all_calls()
    assert call.body["spec"] == {"queueName": "main"}


def test_it_is_queued_in_the_default_queue_of_its_namespace() -> None:
    """Whether that is there first, or appears later."""
    bridge = managing(ALL, localqueues=[raw(local_queue("default"))], jobs=[raw(unnamed())])
    (call,) = bridge.all_calls()
    assert call.body["spec"]["queueName"] == "default"
    bridge = managing(ALL, jobs=[raw(unnamed())])
    (call,) = bridge.all_calls()
    answer(bridge, call, 201)
    bridge.change("workloads", {**call.body, "metadata": {**call.body["metadata"], "uid": "w"}}, "ADDED", uid="w")
    bridge.change("localqueues", local_queue("default", namespace="team-b"))
    assert bridge.all_calls() == []
    bridge.change("localqueues", local_queue("default"))
    (call,) = bridge.all_calls()
    assert call.body["spec"] == {"queueName": "default"}


def test_only_jobs_of_the_selected_namespaces_are_managed() -> None:
    """Those of others run as if there were no queue."""
    bridge = managing(SOME, namespaces=[raw(namespace())], jobs=[raw(unnamed(suspend=False))])
    assert bridge.all_calls() == []
    selected = namespace()
    selected["metadata"]["labels"] = {"batch": "yes"}
    bridge.change("namespaces", selected)
    assert [call.method for call in bridge.all_calls()] == ["POST"]


def test_a_term_by_another_configuration_lists_the_jobs_anew() -> None:
    """A resumed watch would not show what has become relevant; the mark goes with the configuration, for a crash."""
    log = synced().log
    machine = InformerBridge(log.state, observed(ALL))
    assert machine.listed_anew() == ("jobs",)
    bridge = Bridge(log, configuration=ALL)
    events, _ = bridge.settle()
    (mark,) = [event for event in events if isinstance(event, facts.InformersSynced)]
    assert mark.resource_versions == {"jobs": ""}
    assert log.state.resource_versions.get("jobs", "") == ""
    assert InformerBridge(log.state, observed(ALL)).listed_anew() == ()
    back = Bridge(log, configuration=Configuration())
    assert back.machine.listed_anew() == ("jobs",)
    back.list_all(jobs=[raw(unnamed())])
    back.all_calls()
    assert log.state.jobs == {}


OWNED = {
    "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "above", "uid": "p", "controller": True}]
}


@pytest.mark.parametrize(
    ("found", "is_made"),
    [
        ((200, job("above")), False),
        ((200, unnamed("above")), True),
        ((404, {}), True),
    ],
)
def test_a_job_whose_parent_is_not_shown_yet_waits_for_what_it_is(found: tuple[int, Json], is_made: bool) -> None:
    """Its parent is read once: one with a queue will be shown, and runs it; without one it is a job of its own."""
    bridge = synced(jobs=[raw(job(), **OWNED)])
    (get,) = bridge.all_calls()
    assert (get.method, get.path) == ("GET", f"{JOBS}/above")
    status, manifest = found
    bridge.machine.decide(Completed(get.id, status, raw(manifest, uid="p") if manifest else b"{}"))
    assert [call.method for call in bridge.all_calls()] == (["POST"] if is_made else [])
    if not is_made:
        bridge.change("jobs", job("above"), uid="p")
        (post,) = bridge.all_calls()
        assert post.body["metadata"]["ownerReferences"][0]["name"] == "above"


def test_a_parent_that_names_its_queue_in_an_annotation_runs_its_jobs() -> None:
    """It gets a Workload like any other, so that what it controls is charged once."""
    bridge = synced(jobs=[raw(job(), **OWNED)])
    (get,) = bridge.all_calls()
    above = unnamed("above")
    above["metadata"]["annotations"] = {"kueue.x-k8s.io/queue-name": "main"}
    bridge.machine.decide(Completed(get.id, 200, raw(above, uid="p")))
    assert bridge.all_calls() == []
    bridge.change("jobs", above, uid="p")
    assert [call.body["metadata"]["ownerReferences"][0]["name"] for call in bridge.all_calls()] == ["above"]


def test_a_ray_job_on_a_cluster_that_is_there_runs_no_jobs() -> None:
    """Headgate makes no Workload for it, so its submitter does not wait for one."""
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "above", "uid": "p", "controller": True}
    frameworks = IntegrationsConfiguration(frameworks=("batch/job", "ray.io/rayjob"))
    bridge = Bridge(configuration=Configuration(integrations=frameworks))
    for resource in bridge.machine.resources:
        found = (raw(job(), ownerReferences=[owner]),) if resource == "jobs" else ()
        bridge.machine.decide(Listed(resource, found, "1"))
    (get,) = bridge.all_calls()
    above = {
        "metadata": {"name": "above", "namespace": "team-a", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"clusterSelector": {"ray.io/cluster": "there"}},
    }
    bridge.machine.decide(Completed(get.id, 200, raw(above, uid="p")))
    assert [call.method for call in bridge.all_calls()] == ["POST"]


def test_a_job_does_not_wait_for_a_parent_that_loses_its_queue_before_it_is_shown() -> None:
    """It is a job of its own then."""
    bridge = synced(jobs=[raw(job(), **OWNED)])
    (get,) = bridge.all_calls()
    bridge.machine.decide(Completed(get.id, 200, raw(job("above"), uid="p")))
    assert bridge.all_calls() == []
    bridge.change("jobs", unnamed("above"), uid="p")
    (post,) = bridge.all_calls()
    assert post.body["metadata"]["ownerReferences"][0]["name"] == "train"


def test_a_parent_of_a_kind_that_is_not_run_here_is_no_parent() -> None:
    """A CronJob's Jobs are jobs of their own."""
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "above", "uid": "p", "controller": True}
    bridge = synced(jobs=[raw(job(), ownerReferences=[owner])])
    assert [call.method for call in bridge.all_calls()] == ["POST"]
