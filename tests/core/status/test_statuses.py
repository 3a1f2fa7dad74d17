"""Statuses: field by field what Kueue was recorded to write, and a digest that changes when there is a need to."""

import gzip
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.support import conformance
from tests.support.conformance import fact_of
from tests.support.logs import TestLog

from headgate.core.kubernetes.quantities import amount
from headgate.core.state.tables import State, Workload
from headgate.core.status.queue_status import cluster_queue_status, count_local_queue, local_queue_status
from headgate.core.status.workload_status import is_empty, status_digest, status_json, status_patch, workload_status
from headgate.events import facts
from headgate.events.base import Producer
from headgate.events.decisions import QuotaReserved, WorkloadAdmitted
from headgate.events.ids import JobKey, LocalQueueKey, Shape, Uid, UnixMs, WorkloadKey, split_key
from headgate.events.objects import (
    Admission,
    CheckState,
    Condition,
    Job,
    OwnerReference,
    PodSet,
    PodSetAssignment,
    ReclaimablePod,
    RequeueState,
    WorkloadSpec,
    WorkloadStatus,
)
from headgate.events.queueing import DeadlinePassed, WorkloadEvicted, WorkloadParked, WorkloadQueued

BRIDGE, MANAGER, SCHEDULER = Producer.INFORMER_BRIDGE, Producer.QUEUE_MANAGER, Producer.SCHEDULER
recorded = pytest.mark.skipif(
    not conformance.CASES.is_dir(), reason="the recordings of Kueue are not next to the repository"
)
W = WorkloadKey("team-a/w")
SPEC = WorkloadSpec(queue_name="main", pod_sets=(PodSet(count=4),))
OWNER = OwnerReference(api_version="batch/v1", kind="Job", name="j", uid="job")
Json = dict[str, Any]


def observed(**more: Any) -> facts.WorkloadObserved:
    return facts.WorkloadObserved(workload=W, uid=Uid("u"), created_ms=UnixMs(5), spec=SPEC, **more)


def reserved(*checks: str) -> QuotaReserved:
    assignment = PodSetAssignment(flavors={"cpu": "spot"}, resource_usage={"cpu": "4"}, count=4)
    return QuotaReserved(
        workload=W,
        uid=Uid("u"),
        cluster_queue="cq",
        admission=Admission(cluster_queue="cq", pod_set_assignments=(assignment,)),
        message="Quota reserved in ClusterQueue cq",
        checks=tuple(CheckState(name=name, state="Pending") for name in checks),
    )


def status_of(log: TestLog) -> WorkloadStatus:
    return workload_status(log.state, log.state.workloads[W])


# --- Workloads -----------------------------------------------------------------------------------------------------


def _without_topology(status: Json) -> Json:
    assignments = status.get("admission", {}).get("podSetAssignments", ())
    return status if not any("topologyAssignment" in each for each in assignments) else {}


@recorded
def test_recorded_statuses_are_written_as_they_were_recorded() -> None:
    """Taken over and written again, the statuses of Kueue's own scheduling tests come out field by field."""
    count = 0
    for case in conformance.cases("TestSchedule", "TestScheduleForFairSharing", "TestScheduleForAFS"):
        for key, status in case["want"].get("statuses", {}).items():
            if not _without_topology(status) or _has_other_fields(status):
                continue
            taken_over = msgspec.convert(status, WorkloadStatus)
            fact = msgspec.structs.replace(observed(taken_over=taken_over), workload=WorkloadKey(key))
            log = TestLog()
            log.append(BRIDGE, fact)
            written = status_json(workload_status(log.state, log.state.workloads[WorkloadKey(key)]))
            as_json = msgspec.json.decode(msgspec.json.encode(written))
            assert as_json == _completed(status), f"{case['file']} {key}"
            count += 1
    assert count > 100


def _has_other_fields(status: Json) -> bool:
    """Fields of features that Headgate does not have: the reader of a taken over status leaves them to others."""
    known = {"conditions", "admission", "admissionChecks", "requeueState", "reclaimablePods", "resourceRequests"}
    if status.get("admission") and status.get("resourceRequests"):
        return True
    return not status.keys() <= known | {"schedulingStats"}


def _completed(status: Json) -> Json:
    """The recorded status with the fields that the CRD requires, which the recordings leave out when empty."""
    for condition in status.get("conditions", ()):
        for field in ("reason", "message"):
            condition.setdefault(field, "")
        condition.setdefault("lastTransitionTime", "1970-01-01T00:00:00Z")
    for check in status.get("admissionChecks", ()):
        check.setdefault("message", "")
        check["lastTransitionTime"] = check.get("lastTransitionTime") or "1970-01-01T00:00:00Z"
    for assignment in status.get("admission", {}).get("podSetAssignments", ()):
        assignment.setdefault("count", 0)
    return status


def test_a_workload_that_was_never_looked_at_has_no_status() -> None:
    """Nothing is written for a workload that waits for its first evaluation."""
    log = TestLog()
    log.append(BRIDGE, observed())
    assert is_empty(status_of(log))
    key = WorkloadKey("team-a/w")
    queued = WorkloadQueued(
        workload=key, uid=Uid("u"), cluster_queue="cq", priority=0, queued_at_ms=UnixMs(5), shape=Shape("s")
    )
    log.append(MANAGER, queued)
    assert is_empty(status_of(log))


def test_every_step_that_shows_changes_the_digest() -> None:
    """Reserved, admitted, evicted: each is another status; looking at it twice is not."""
    log = TestLog()
    log.append(BRIDGE, observed())
    digests = [status_digest(status_of(log))]
    for producer, event in (
        (SCHEDULER, reserved()),
        (SCHEDULER, WorkloadAdmitted(workload=W, uid=Uid("u"), cluster_queue="cq", message="The workload is admitted")),
        (MANAGER, WorkloadEvicted(workload=W, uid=Uid("u"), reason="Deactivated", message="m")),
    ):
        log.append(producer, event)
        assert status_digest(status_of(log)) == status_digest(status_of(log))
        digests.append(status_digest(status_of(log)))
    assert len(set(digests)) == 4


def test_what_a_check_controller_writes_is_no_reason_to_write() -> None:
    """A check that became Ready changes our record and not the digest; the state is echoed when something else is."""
    log = TestLog()
    log.append(BRIDGE, observed())
    log.append(SCHEDULER, reserved("a", "b"))
    before = status_digest(status_of(log))
    log.append(BRIDGE, observed(checks=(CheckState(name="a", state="Ready", message="ok"),)))
    assert status_digest(status_of(log)) == before
    assert [check["state"] for check in status_json(status_of(log))["admissionChecks"]] == ["Ready", "Pending"]


def test_a_jobs_finished_pods_are_reclaimable() -> None:
    """With fewer completions left than parallel pods the rest of the quota is given back; the count never falls."""
    log = TestLog()
    log.append(BRIDGE, observed(owner=OWNER))
    for succeeded, reclaimable in ((0, 0), (4, 0), (6, 2), (7, 3)):
        job = Job(uid="job", created_ms=UnixMs(5), parallelism=4, completions=8, succeeded=succeeded)
        log.append(BRIDGE, facts.JobObserved(job=JobKey("batch/Job/team-a/j"), spec=job))
        shown = status_of(log).reclaimable_pods
        assert shown == ((ReclaimablePod(name="main", count=reclaimable),) if reclaimable else ())
    log.append(BRIDGE, observed(owner=OWNER, reclaimable_pods=(ReclaimablePod(name="main", count=4),)))
    assert status_of(log).reclaimable_pods[0].count == 4


def test_required_fields_are_written_even_when_empty() -> None:
    """What the CRD requires of list entries is there, so that the API server takes the status."""
    status = WorkloadStatus(
        conditions=(Condition(type="Evicted", status="True"),),
        admission_checks=(CheckState(name="a", state="Pending"),),
    )
    written = status_json(status)
    assert {"type", "status", "reason", "message", "lastTransitionTime"} <= written["conditions"][0].keys()
    assert {"name", "state", "message", "lastTransitionTime"} <= written["admissionChecks"][0].keys()


def test_a_requeue_state_that_says_nothing_is_not_written() -> None:
    """Where a time was written before, an apply that leaves empty braces makes null of the field, which is invalid."""
    log = TestLog()
    log.append(BRIDGE, observed())
    log.append(SCHEDULER, reserved())
    about: Json = {"workload": W, "uid": Uid("u")}
    backoff = RequeueState(requeue_at="2026-01-01T00:00:00Z")
    log.append(MANAGER, WorkloadEvicted(**about, reason="AdmissionCheck", message="m", requeue_state=backoff))
    assert status_json(status_of(log))["requeueState"] == {"requeueAt": "2026-01-01T00:00:00Z"}
    log.append(MANAGER, DeadlinePassed(**about, deadline="RequeueAt", at_ms=UnixMs(0)))
    assert "requeueState" not in status_json(status_of(log))


def test_a_patch_names_the_very_object() -> None:
    """Name, namespace and uid, so that a Workload recreated under the name is not given another's status."""
    log = TestLog()
    log.append(BRIDGE, observed())
    patch = status_patch(log.state.workloads[W], status_of(log))
    assert patch["metadata"] == {"namespace": "team-a", "name": "w", "uid": "u"}
    assert (patch["apiVersion"], patch["kind"]) == ("kueue.x-k8s.io/v1beta2", "Workload")


# --- queues --------------------------------------------------------------------------------------------------------


def scenarios(classes: str) -> Iterator[Json]:
    for letter in classes:
        path = conformance.SCENARIOS / f"{letter}.jsonl.gz"
        with gzip.open(path, "rt") as lines:
            for line in lines:
                yield msgspec.json.decode(line)


def at_its_end(scenario: Json) -> State:
    """The state that a recorded scenario ended in: its objects, and its workloads where they ended up."""
    log = TestLog()
    given, final = scenario["scenario"]["objects"], scenario["outcome"]["final"]
    log.append(BRIDGE, *(fact_of(each) for each in given if each["kind"] != "Workload"), facts.InformersSynced())
    for manifest in given:
        if manifest["kind"] != "Workload":
            continue
        fact = fact_of({**manifest, "status": {}})
        assert isinstance(fact, facts.WorkloadObserved)
        end = final["workloads"][fact.workload]
        log.append(BRIDGE, msgspec.structs.replace(fact, taken_over=_taken_over(end)))
        if end["state"] == "Pending" and end.get("queue") != "none":
            queue = log.state.local_queues[LocalQueueKey(f"{split_key(fact.workload)[0]}/{fact.spec.queue_name}")]
            log.append(MANAGER, _queued(log.state.workloads[fact.workload], queue.spec.cluster_queue))
    return log.state


def _taken_over(end: Json) -> WorkloadStatus | None:
    if end["state"] not in ("Admitted", "QuotaReserved"):
        return None
    conditions = tuple(
        msgspec.convert({"type": kind, **condition}, Condition) for kind, condition in end["conditions"].items()
    )
    pod_sets = tuple(
        msgspec.convert({k: v for k, v in each.items() if k != "topologyAssignment"}, PodSetAssignment)
        for each in end["podSets"]
    )
    return WorkloadStatus(
        conditions=conditions,
        admission=Admission(cluster_queue=end["clusterQueue"], pod_set_assignments=pod_sets),
    )


def _queued(workload: Workload, cluster_queue: str) -> WorkloadQueued:
    return WorkloadQueued(
        workload=workload.key,
        uid=workload.uid,
        cluster_queue=cluster_queue,
        priority=0,
        queued_at_ms=workload.created_ms,
        shape=Shape("s"),
    )


@recorded
def test_cluster_queue_statuses_are_as_recorded() -> None:
    """Counts, usage, borrowing and the Active condition of every ClusterQueue at the end of 120 recorded scenarios."""
    count = 0
    for scenario in scenarios("abcfg"):
        state = at_its_end(scenario)
        for name, wanted in scenario["outcome"]["final"]["clusterQueues"].items():
            status = cluster_queue_status(state, name)
            where = f"{scenario['scenario']['name']} {name}"
            (condition,) = status.pop("conditions")
            active = "True" if wanted["active"] else "False"
            assert (condition["status"], condition["reason"], condition["message"]) == (
                active,
                wanted["reason"],
                wanted["message"],
            ), where
            assert status == {field: wanted[field] for field in status}, where
            count += 1
    assert count > 300


@recorded
def test_local_queues_add_up_to_their_cluster_queue() -> None:
    """What the LocalQueues of a ClusterQueue hold and wait for is what it does."""
    for scenario in scenarios("b"):
        state = at_its_end(scenario)
        for name in state.cluster_queues:
            whole = cluster_queue_status(state, name)
            parts = [key for key, record in state.local_queues.items() if record.spec.cluster_queue == name]
            counts = [count_local_queue(state, key) for key in parts]
            assert sum(each.reserving for each in counts) == whole["reservingWorkloads"]
            assert sum(each.admitted for each in counts) == whole["admittedWorkloads"]
            for flavor in whole["flavorsReservation"]:
                for resource in flavor["resources"]:
                    key = (flavor["name"], resource["name"])
                    used = sum(each.reserved_usage.get(key, 0) for each in counts)
                    assert used == amount(resource["name"], resource["total"])


def test_a_stopped_local_queue_shows_nothing_pending() -> None:
    """Kueue takes a stopped LocalQueue out of its queues, and the Active condition has the reason."""
    log = TestLog()
    queue = {"metadata": {"name": "main", "namespace": "team-a"}, "spec": {"clusterQueue": "cq", "stopPolicy": "Hold"}}
    log.append(BRIDGE, fact_of({"kind": "LocalQueue", **queue}), observed())
    parked = WorkloadParked(
        workload=W, uid=Uid("u"), reason="Suspended", message="m", wake=(), cluster_queue="cq", writes_condition=True
    )
    log.append(MANAGER, parked)
    assert count_local_queue(log.state, LocalQueueKey("team-a/main")).pending == 1
    status = local_queue_status(log.state, LocalQueueKey("team-a/main"))
    assert status["pendingWorkloads"] == 0
    assert (status["conditions"][0]["status"], status["conditions"][0]["reason"]) == ("False", "Stopped")
