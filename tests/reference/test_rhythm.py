"""Kueue's rhythm over manifests, as scenarios in YAML."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.support.plan_manifests import LOWER, read_again, running, scenario, workload

from headgate.core import fold
from headgate.core.kubernetes import conditions
from headgate.core.plan.reading import PlanInputError
from headgate.core.queueing.scheduling_hash import shape_of
from headgate.events.ids import WorkloadKey
from headgate.testing.reference.outcome import outcome_of
from headgate.testing.reference.rhythm import ReferencePlan
from headgate.testing.reference.scenario import read_scenario
from headgate.testing.reference.stopping import run


def play(given: dict[str, Any]) -> tuple[ReferencePlan, dict[str, Any]]:
    read = read_scenario(given)
    rhythm = ReferencePlan(read.facts, read.configuration, read.now_ms)
    stop = run(rhythm, read.cycles_max)
    return rhythm, msgspec.json.decode(msgspec.json.encode(outcome_of(read.name, rhythm, stop)))


def states(outcome: dict[str, Any]) -> dict[str, str]:
    return {
        key.partition("/")[2]: " ".join(filter(None, (each["state"], each.get("queue"))))
        for key, each in outcome["final"]["workloads"].items()
    }


def test_one_head_of_a_cluster_queue_is_admitted_in_each_cycle() -> None:
    """A second each, in queue order, until none is left to try."""
    _, outcome = play(scenario(workload("b", "1", at=2), workload("a", "1", at=1)))
    assert [cycle["admitted"] for cycle in outcome["trace"]] == [["team/a"], ["team/b"]]
    assert [cycle["time"][-3:] for cycle in outcome["trace"]] == ["00Z", "01Z"]
    assert (outcome["stop"], outcome["cyclesRun"]) == ("no-heads", 2)


def test_a_preempted_workload_gives_its_quota_back_and_queues_again() -> None:
    """In the same instant, as if its job had stopped; its preemptor is admitted in the next cycle."""
    _, outcome = play(scenario(running("old", "4"), workload("new", "3", priority=9), preemption=LOWER))
    first, second, *_ = outcome["trace"]
    assert first["preempted"]["team/old"]["by"] == "team/new"
    assert first["queued"] == {"cq": ["team/new", "team/old"]}
    assert second["admitted"] == ["team/new"]
    assert states(outcome) == {"new": "Admitted", "old": "Pending inadmissible"}
    shown = outcome["final"]["workloads"]["team/old"]["conditions"]
    assert {kind: each["status"] for kind, each in shown.items()} == {
        "Admitted": "False",
        "Evicted": "True",
        "Preempted": "True",
        "QuotaReserved": "False",
        "Requeued": "True",
    }


@pytest.mark.parametrize(("queue", "tries"), [("main", 2), ("gone", 1)])
def test_only_what_workloads_of_a_running_local_queue_give_back_makes_others_due(queue: str, tries: int) -> None:
    """
    Kueue finds whom to retry by way of the LocalQueue, and its queue manager has none that is gone or stopped.

    QueueAssociatedInadmissibleWorkloadsAfter, pkg/cache/queue/manager.go.
    """
    old = running("old", "4")
    old["spec"]["queueName"] = queue
    waiting = (workload("huge", "5", priority=20), workload("new", "4", priority=10))
    rhythm, _ = play(scenario(old, *waiting, preemption={"withinClusterQueue": "LowerPriority"}))
    assert [entry.key for ran in rhythm.ran for entry in ran.cycle.entries].count(WorkloadKey("team/huge")) == tries


def test_who_comes_back_into_a_class_set_aside_is_told_that_it_was_bypassed() -> None:
    """And is tried in the next cycle all the same, for the quota that it gave back is free."""
    read = read_scenario(scenario(running("old", "2"), workload("new", "2", priority=9), cpu=2, preemption=LOWER))
    rhythm = ReferencePlan(read.facts, read.configuration, read.now_ms)
    rhythm.look()
    old = rhythm.state.workloads[WorkloadKey("team/old")]
    rhythm.queues["cq"].bulk_moved[shape_of(old, rhythm.state)] = "WaitingForQuota"
    ran = rhythm.run_cycle()
    reserved = conditions.find(old.conditions, conditions.QUOTA_RESERVED)
    assert reserved is not None
    assert (reserved.reason, reserved.message) == ("WaitingForQuota", conditions.BYPASSED)
    assert ran.queued == {"cq": ["team/new", "team/old"]}


@pytest.mark.parametrize(
    ("given", "stop", "cycles"),
    [
        (scenario(workload("big", "9"), queueingStrategy="StrictFIFO"), "stable", 3),
        (scenario(workload("big", "9")), "no-heads", 1),
        (scenario(*(workload(f"w{i}", "1", at=i) for i in range(4)), cycles=2), "limit", 2),
        (scenario(), "no-heads", 0),
    ],
    ids=["stable", "all-aside", "limit", "empty"],
)
def test_a_plan_stops_when_nothing_more_can_come(given: dict[str, Any], stop: str, cycles: int) -> None:
    """None to try; two cycles that change nothing; the given number of cycles."""
    _, outcome = play(given)
    assert (outcome["stop"], outcome["cyclesRun"]) == (stop, cycles)


def test_a_drained_queue_evicts_before_the_first_cycle() -> None:
    """The eviction is recorded first, and the workload is in no queue."""
    _, outcome = play(scenario(running("old", "1"), queue="HoldAndDrain"))
    assert [told["reason"] for told in outcome["initialEvents"]] == ["EvictedDueToLocalQueueStopped"]
    assert outcome["trace"] == []
    assert states(outcome) == {"old": "Pending none"}
    assert outcome["final"]["workloads"]["team/old"]["conditions"]["QuotaReserved"]["reason"] == "Suspended"


def test_workloads_of_a_stopped_cluster_queue_stay_in_its_heap() -> None:
    """They are not popped, and have the reason."""
    _, outcome = play(scenario(workload("a", "1"), stopPolicy="Hold"))
    assert states(outcome) == {"a": "Pending active"}
    assert outcome["final"]["queued"] == {"cq": ["team/a"]}
    reserved = outcome["final"]["workloads"]["team/a"]["conditions"]["QuotaReserved"]
    assert (reserved["reason"], reserved["message"]) == ("Suspended", "ClusterQueue cq is inactive")


def test_a_deactivated_workload_is_evicted_though_it_never_ran() -> None:
    """Kueue counts that eviction."""
    _, outcome = play(scenario(workload("a", "1", spec={"active": False})))
    shown = outcome["final"]["workloads"]["team/a"]
    assert shown["state"] == "Inactive"
    assert shown["evictions"] == [{"reason": "Deactivated", "underlyingCause": "", "count": 1}]
    assert shown["conditions"]["QuotaReserved"]["reason"] == "Deactivated"


def test_a_workload_whose_job_is_not_among_the_manifests_is_planned() -> None:
    """A dump of Workloads alone is enough, also of one that had a Job and has no owner: that proves nothing."""
    owned, orphan = workload("owned", "1"), workload("orphan", "1")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}
    owned["metadata"]["ownerReferences"] = [owner]
    for each in (owned, orphan):
        each["metadata"]["labels"] = {"kueue.x-k8s.io/job-uid": "1"}
    _, outcome = play(scenario(owned, orphan))
    assert states(outcome) == {"owned": "Admitted", "orphan": "Admitted"}


def test_a_workload_that_waits_for_its_backoff_is_tried_when_it_is_over() -> None:
    """Its place in the queue is reported with the others until then."""
    requeued = {
        "type": "Requeued",
        "status": "False",
        "reason": "AdmissionCheck",
        "message": "",
        "lastTransitionTime": "2026-01-15T09:30:00Z",
    }
    state = {"count": 1, "requeueAt": "2026-01-15T10:00:02Z"}
    waits = workload("late", "1", status={"requeueState": state, "conditions": [requeued]})
    others = [workload(f"w{i}", "1", at=i + 1) for i in range(3)]
    _, outcome = play(scenario(waits, *others))
    assert [cycle["admitted"] for cycle in outcome["trace"]] == [["team/w0"], ["team/w1"], ["team/late"], ["team/w2"]]


def test_admitted_quota_is_never_more_than_there_is() -> None:
    """Whatever was preempted on the way."""
    workloads = [workload(f"w{i:02}", str(i % 3 + 1), priority=i % 4, at=i) for i in range(20)]
    rhythm, _ = play(scenario(*workloads, preemption=LOWER, cycles=200))
    assert rhythm.state.index.usage["cq"]["spot", "cpu"] <= 4000


def test_the_log_of_a_plan_is_a_log() -> None:
    """It folds to the same state again, and explains each workload."""
    rhythm, _ = play(scenario(running("old", "4"), workload("new", "3", priority=9), preemption=LOWER))
    state, told = read_again(rhythm.log.commits, "old")
    assert fold.encode(state) == fold.encode(rhythm.state)
    assert "workload.preempted" in told
    assert "workload.released" in told


def test_the_order_of_the_manifests_does_not_matter() -> None:
    """Equal scenarios have equal outcomes, byte for byte."""
    given = scenario(
        running("old", "4"), workload("a", "3", priority=9, at=1), workload("b", "2", at=2), preemption=LOWER
    )
    turned = {**given, "objects": given["objects"][::-1]}
    first, second = (msgspec.json.encode(play(each)[1]) for each in (given, turned))
    assert first == second


WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no name": (lambda s: s.pop("name"), "field name"),
    "no objects": (lambda s: s.pop("objects"), "scenario s: field objects: a list is expected"),
    "a time that is none": (lambda s: s.update(now="noon"), "field now: 'noon' is no time"),
    "cycles as text": (lambda s: s.update(cycles="7"), "field cycles: a number is expected"),
    "unknown kind": (lambda s: s["objects"].append({"kind": "Deployment", "metadata": {"name": "w"}}), "Deployment w"),
    "twice": (lambda s: s["objects"].append(s["objects"][0]), "Namespace team: there are two objects of this name"),
    "bad quantity": (lambda s: s["objects"].append(workload("x", "1z")), "Workload team/x, field"),
    "unknown config": (lambda s: s.update(config={"fairSharin": {}}), "scenario s: config: "),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_bad_scenario_is_one_error_that_names_object_and_field(wrong: str) -> None:
    """Nothing is half-read."""
    spoil, said = WRONG[wrong]
    given = scenario(workload("a", "1"))
    spoil(given)
    with pytest.raises(PlanInputError) as raised:
        read_scenario(given)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
