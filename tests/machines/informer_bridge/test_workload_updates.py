"""The Workload of an edited Job follows it: in place while it is pending, by another one when it holds quota."""

from typing import Any

import pytest
from tests.machines.informer_bridge.test_decide import Bridge, answer, raw, synced, with_workload
from tests.support.playing import job

from headgate.core.machine.contract import Call, Committed, Completed
from headgate.core.state.tables import Workload
from headgate.core.workload.matching import is_match, is_to_run
from headgate.events.base import EventBase, Producer
from headgate.events.decisions import QuotaReserved, WorkloadAdmitted
from headgate.events.effects import JobStarted
from headgate.events.ids import JobKey, Uid
from headgate.events.objects import Admission, PodSetAssignment

JOB = JobKey("batch/Job/team-a/train")
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads"
Json = dict[str, Any]


def the_workload(bridge: Bridge) -> Workload:
    (found,) = bridge.log.state.workloads.values()
    return found


def reserve(bridge: Bridge, count: int = 2, *, decided_at: int = 0, admitted: bool = False) -> None:
    """A cycle reserves quota for so many pods."""
    workload = the_workload(bridge)
    assignment = PodSetAssignment(flavors={"cpu": "spot"}, resource_usage={"cpu": str(count)}, count=count)
    admission = Admission(cluster_queue="cq", pod_set_assignments=(assignment,))
    about: Json = {"workload": workload.key, "uid": workload.uid, "cluster_queue": "cq", "message": "m"}
    events: list[EventBase] = [QuotaReserved(**about, admission=admission)]
    if admitted:
        events.append(WorkloadAdmitted(**about))
    bridge.machine.decide(Committed(bridge.log.append(Producer.SCHEDULER, *events, decided_at=decided_at)))


def whole(bridge: Bridge, manifest: Json) -> Call:
    """The Job is edited; the bridge reads it, and makes one call."""
    bridge.change("jobs", manifest)
    (get,) = bridge.all_calls()
    assert (get.method, get.path) == ("GET", "/apis/batch/v1/namespaces/team-a/jobs/train")
    bridge.machine.decide(Completed(get.id, 200, raw(manifest)))
    (call,) = bridge.all_calls()
    return call


def is_deletion(call: Call) -> bool:
    return call.method == "DELETE" and call.path.startswith(WORKLOADS) and call.body["preconditions"] == {"uid": "w"}


def test_a_pending_workload_gets_the_pod_sets_of_its_edited_job() -> None:
    """The whole template, the limit and the queue in one patch; what is equal afterwards is asked for no more."""
    bridge = with_workload()
    labels = {"kueue.x-k8s.io/queue-name": "other", "kueue.x-k8s.io/max-exec-time-seconds": "60"}
    edited = job(parallelism=5, cpu="3", labels=labels)
    call = whole(bridge, edited)
    assert (call.method, call.body["metadata"]) == ("PATCH", {"uid": "w"})
    spec = call.body["spec"]
    assert (spec["queueName"], spec["maximumExecutionTimeSeconds"], spec["priorityClassRef"]) == ("other", 60, None)
    (pod_set,) = spec["podSets"]
    (container,) = pod_set["template"]["spec"]["containers"]
    assert (pod_set["count"], container["resources"]["requests"]["cpu"]) == (5, "3")
    assert container["image"] == "registry/train:1"
    answer(bridge, call, 200)
    assert bridge.all_calls() == []
    made = {"metadata": {**raw_meta(bridge), "uid": "w"}, "spec": {k: v for k, v in spec.items() if v is not None}}
    bridge.change("workloads", made, uid="w")
    assert bridge.all_calls() == []


def raw_meta(bridge: Bridge) -> Json:
    """The metadata of the only Workload, as the API server has it."""
    workload = the_workload(bridge)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    namespace, name = workload.key.split("/")
    return {"namespace": namespace, "name": name, "ownerReferences": [owner]}


def test_a_refused_change_is_not_repeated_before_something_changes() -> None:
    """Asking again and again would not change the answer."""
    bridge = with_workload()
    call = whole(bridge, job(parallelism=5))
    answer(bridge, call, 422)
    assert bridge.all_calls() == []
    call = whole(bridge, job(parallelism=6))
    assert call.body["spec"]["podSets"][0]["count"] == 6


@pytest.mark.parametrize("admitted", [False, True])
def test_a_workload_that_holds_quota_for_another_form_is_deleted(admitted: bool) -> None:
    """Once, by its uid; the Job gets another Workload when this one is gone."""
    bridge = with_workload()
    reserve(bridge, admitted=admitted)
    bridge.change("jobs", job(parallelism=5))
    (call,) = bridge.all_calls()
    assert is_deletion(call)
    answer(bridge, call, 200)
    assert bridge.all_calls() == []


@pytest.mark.parametrize("order", ["seen, then reserved", "reserved, then seen"])
def test_a_reservation_that_was_decided_for_an_older_form_does_not_count(order: str) -> None:
    """Whichever comes first in the log: the Job is not started with it, and the Workload is deleted."""
    bridge = with_workload()
    before = bridge.log.state.position
    call = whole(bridge, job(parallelism=5))
    answer(bridge, call, 200)
    edited = {"metadata": {**raw_meta(bridge), "uid": "w"}, "spec": call.body["spec"]}
    if order == "reserved, then seen":
        reserve(bridge, admitted=True)
    bridge.change("workloads", edited, uid="w")
    bridge.settle()
    if order == "seen, then reserved":
        reserve(bridge, decided_at=before, admitted=True)
    workload = the_workload(bridge)
    assert workload.outdated
    assert not is_to_run(workload)
    (deletion,) = bridge.all_calls()
    assert is_deletion(deletion)


def test_a_reservation_that_was_decided_for_the_new_form_counts() -> None:
    """The cycle had seen the edit."""
    bridge = with_workload()
    call = whole(bridge, job(parallelism=5))
    answer(bridge, call, 200)
    bridge.change("workloads", {"metadata": {**raw_meta(bridge), "uid": "w"}, "spec": call.body["spec"]}, uid="w")
    bridge.settle()
    reserve(bridge, 5, decided_at=bridge.log.state.position, admitted=True)
    assert is_to_run(the_workload(bridge))
    assert bridge.all_calls() == []


PARTIAL = {"kueue.x-k8s.io/job-min-parallelism": "1"}


@pytest.mark.parametrize(
    ("annotations", "running", "matches"),
    [({}, 2, True), ({}, 3, False), (PARTIAL, 1, True), (PARTIAL, 2, False), (PARTIAL, 3, False)],
)
def test_a_running_job_is_compared_with_what_was_admitted(annotations: Json, running: int, matches: bool) -> None:
    """With a minimum one of two pods was admitted; what an admission has injected makes no difference."""
    bridge = synced(jobs=[raw(job(annotations=annotations))])
    (call,) = bridge.all_calls()
    answer(bridge, call, 201)
    made = {**call.body, "metadata": {**call.body["metadata"], "uid": "w"}}
    bridge.change("workloads", made, "ADDED", uid="w")
    bridge.all_calls()
    reserve(bridge, 1 if annotations else 2, admitted=True)
    workload = the_workload(bridge)
    started = JobStarted(job=JOB, job_uid=Uid("u"), workload=workload.key, workload_uid=workload.uid)
    bridge.machine.decide(Committed(bridge.log.append(Producer.UNGATER, started)))
    record = bridge.log.state.jobs[JOB]
    assert is_match(bridge.log.state, JOB, record, workload), "its start is under way"
    manifest = job(parallelism=running, suspend=False, annotations=annotations, nodeSelector={"tier": "spot"})
    manifest["spec"]["template"]["metadata"] = {"annotations": {"kueue.x-k8s.io/workload": "w"}}
    bridge.change("jobs", manifest)
    calls = bridge.all_calls()
    assert [is_deletion(each) for each in calls] == ([] if matches else [True])


def test_a_second_workload_of_a_job_is_deleted_and_the_first_stays() -> None:
    """Also when the second one has got quota, which nothing would use."""
    bridge = with_workload()
    first = the_workload(bridge).key
    second = {
        "metadata": {**raw_meta(bridge), "name": "second"},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 9}]},
    }
    bridge.change("workloads", second, "ADDED", uid="w2")
    (call,) = bridge.all_calls()
    assert (call.method, call.path, call.body["preconditions"]) == ("DELETE", f"{WORKLOADS}/second", {"uid": "w2"})
    answer(bridge, call, 200)
    assert bridge.all_calls() == []
    bridge.change("workloads", second, "DELETED", uid="w2")
    bridge.settle()
    assert list(bridge.log.state.workloads) == [first]
    assert bridge.all_calls() == []
