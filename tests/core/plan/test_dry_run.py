"""A dry run of a cell: its own machines over manifests, until nothing changes any more."""

from typing import Any

import pytest
from tests.support.plan_manifests import LOWER, read_again, running, scenario, workload
from tests.support.rounds import MACHINES

from headgate.core import fold
from headgate.core.kubernetes import conditions
from headgate.core.plan.dry_run import DryRun, Stop, state_of
from headgate.events.base import Producer
from headgate.events.ids import WorkloadKey
from headgate.testing.reference.scenario import read_scenario

CYCLES_MAX = 200


def play(given: dict[str, Any], cycles_max: int = CYCLES_MAX) -> tuple[DryRun, Stop]:
    read = read_scenario(given)
    dry_run = DryRun(read.facts, read.configuration, read.now_ms, MACHINES)
    return dry_run, dry_run.run(cycles_max)


def states(dry_run: DryRun) -> dict[str, str]:
    return {key.partition("/")[2]: state_of(each) for key, each in dry_run.state.workloads.items()}


def test_the_machines_of_the_cell_decide() -> None:
    """In queue order, a cycle for each head of one ClusterQueue, until nothing is left to decide."""
    dry_run, stop = play(scenario(workload("b", "1", at=2), workload("a", "1", at=1)))
    assert dry_run.reserved_in == {"team/a": 1, "team/b": 2}
    assert (stop, dry_run.cycles) == ("stable", 2)
    assert {logged.commit.producer for logged in dry_run.log.commits} == {
        Producer.INFORMER_BRIDGE,
        Producer.QUEUE_MANAGER,
        Producer.SCHEDULER,
    }


def test_a_workload_that_cannot_be_admitted_takes_no_more_cycles() -> None:
    """The head of a StrictFIFO queue is decided once and then waits, where Kueue decides it in each cycle."""
    dry_run, stop = play(scenario(workload("big", "9"), workload("small", "1", at=1), queueingStrategy="StrictFIFO"))
    assert states(dry_run) == {"big": "Pending", "small": "Pending"}
    assert (stop, dry_run.cycles) == ("stable", 1)


@pytest.mark.parametrize("owner", [None, {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}])
def test_a_preempted_workload_gives_its_quota_back_at_once(owner: dict[str, Any] | None) -> None:
    """Under any owner, and so the one that preempted it is admitted in the next cycle."""
    old = running("old", "4")
    if owner is not None:
        old["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    dry_run, stop = play(scenario(old, workload("new", "3", priority=9), preemption=LOWER))
    assert stop == "stable"
    assert states(dry_run) == {"new": "Admitted", "old": "Pending"}
    (preempted,) = dry_run.preempted
    assert (preempted.workload, preempted.by, preempted.cycle) == ("team/old", "team/new", 1)
    old_one = dry_run.state.workloads[WorkloadKey("team/old")]
    assert conditions.is_true(old_one.conditions, conditions.EVICTED)


def test_cycles_max_ends_a_run_that_has_more_to_decide() -> None:
    """And it is reported."""
    given = scenario(*(workload(f"w{i}", "1", at=i) for i in range(4)))
    dry_run, stop = play(given, 2)
    assert (stop, dry_run.cycles) == ("limit", 2)
    assert sorted(dry_run.reserved_in) == ["team/w0", "team/w1"]


def test_the_clock_goes_on_to_the_end_of_a_backoff() -> None:
    """A workload that may not queue yet is admitted when it may, though nothing else happens in between."""
    requeued = {
        "type": "Requeued",
        "status": "False",
        "reason": "AdmissionCheck",
        "message": "",
        "lastTransitionTime": "2026-01-15T09:30:00Z",
    }
    state = {"count": 1, "requeueAt": "2026-01-15T10:50:00Z"}
    late = workload("late", "1", status={"requeueState": state, "conditions": [requeued]})
    dry_run, _ = play(scenario(late, workload("w", "1")))
    assert states(dry_run) == {"late": "Admitted", "w": "Admitted"}
    assert (
        conditions.rfc3339(dry_run.state.workloads[WorkloadKey("team/late")].reserved_at_ms) >= "2026-01-15T10:50:00Z"
    )


def test_admitted_workloads_never_finish() -> None:
    """Not by their maximum execution time either: what waits for their quota waits at the end."""
    short = workload("short", "4", spec={"maximumExecutionTimeSeconds": 5})
    dry_run, stop = play(scenario(short, workload("next", "4", at=1)))
    assert stop == "stable"
    assert states(dry_run) == {"short": "Admitted", "next": "Pending"}


def test_a_run_with_samples_of_usage_comes_to_an_end() -> None:
    """The usage of LocalQueues is sampled for ever; no admission follows from it."""
    given = scenario(workload("a", "4"), workload("b", "4", at=1))
    given["config"] = {"admissionFairSharing": {"usageHalfLifeTime": "1h", "usageSamplingInterval": "5m"}}
    given["objects"][2]["spec"]["admissionScope"] = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    dry_run, stop = play(given)
    assert stop == "stable"
    assert states(dry_run) == {"a": "Admitted", "b": "Pending"}


def test_the_log_of_a_dry_run_is_a_log() -> None:
    """It folds to the same state again, and explains each workload."""
    dry_run, _ = play(scenario(running("old", "4"), workload("new", "3", priority=9), preemption=LOWER))
    state, events = read_again(dry_run.log.commits, "old")
    assert fold.encode(state) == fold.encode(dry_run.state)
    assert "workload.preempted" in events
    assert "workload.released" in events


def test_the_order_of_the_manifests_does_not_matter() -> None:
    """Equal manifests end alike, and by the same decisions."""
    given = scenario(
        running("old", "4"), workload("a", "3", priority=9, at=1), workload("b", "2", at=2), preemption=LOWER
    )
    first, second = (play({**given, "objects": objects})[0] for objects in (given["objects"], given["objects"][::-1]))
    assert states(first) == states(second)
    assert (first.reserved_in, first.preempted) == (second.reserved_in, second.preempted)


def test_the_quota_of_a_victim_is_held_until_its_work_has_stopped() -> None:
    """The workload that preempted it is admitted then, and not before."""
    read = read_scenario(scenario(running("old", "4"), workload("new", "3", priority=9), preemption=LOWER))
    dry_run = DryRun(read.facts, read.configuration, read.now_ms, MACHINES, stops_after_ms=30_000)
    assert dry_run.run(CYCLES_MAX) == "stable"
    assert states(dry_run) == {"new": "Admitted", "old": "Pending"}
    assert dry_run.state.workloads[WorkloadKey("team/new")].reserved_at_ms >= read.now_ms + 30_000
