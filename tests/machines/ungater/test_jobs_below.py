"""Jobs that another job controls: they run while that one is admitted, and are suspended otherwise."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.machines.ungater.test_decide import BRIDGE, MANAGER, Gate, flavor, job, no_workload, workload

from headgate.core.machine.contract import Completed
from headgate.core.workload import owners
from headgate.events import effects, facts
from headgate.events.configuration import Configuration
from headgate.events.ids import JobKey, Uid, UnixMs
from headgate.events.objects import Job, OwnerReference
from headgate.events.queueing import WorkloadFinished

CHILD = JobKey("batch/Job/team-a/child")


def child(owner: str = "train", uid: str = "j", **more: Any) -> facts.JobObserved:
    """A job without a queue that the job `train` controls, or another one."""
    above = OwnerReference(api_version="batch/v1", kind="Job", name=owner, uid=uid)
    spec = Job(uid="c", created_ms=UnixMs(6), queue_name="", owner=above, **{"suspended": False, **more})
    return facts.JobObserved(job=CHILD, spec=spec)


def synced(*more: Any) -> Gate:
    gate = Gate()
    gate.say(BRIDGE, facts.ConfigurationObserved(configuration=Configuration()), flavor(), job(), *more)
    gate.say(BRIDGE, facts.InformersSynced(resources=("jobs",)))
    return gate


def paths(gate: Gate) -> list[tuple[str, Any]]:
    return [(call.path, call.body) for call in gate.rest()[1] if call.path.endswith("/child")]


def test_a_job_whose_parent_waits_is_suspended() -> None:
    """Its template is left as it is; the effect says why."""
    gate = synced(workload(), child())
    (call,) = [each for each in gate.rest()[1] if each.path.endswith("/child")]
    assert call.body == {"metadata": {"uid": "c"}, "spec": {"suspend": True}}
    gate.machine.decide(Completed(call.id, 200, b"{}"))
    (stopped,) = [each for each in gate.rest()[0] if isinstance(each, effects.JobStopped)]
    assert (stopped.job, stopped.reason) == (CHILD, "ParentNotAdmitted")
    assert paths(gate) == []


def test_a_job_whose_parent_is_admitted_runs() -> None:
    """Also while that one is evicted and has not stopped yet: it stops what is below it itself."""
    gate = synced(workload(), child(suspended=True))
    gate.admit()
    gate.say(BRIDGE, child())
    assert paths(gate) == []
    gate.evict()
    assert paths(gate) == []


def test_a_job_is_looked_at_when_its_parent_ends() -> None:
    """What outlives it must not run."""
    gate = synced(workload(), child(suspended=True))
    gate.admit()
    gate.say(BRIDGE, child())
    assert paths(gate) == []
    gate.say(MANAGER, WorkloadFinished(workload=workload().workload, uid=Uid("w"), reason="Failed", message="m"))
    assert len(paths(gate)) == 1


def far_below(**more: Any) -> facts.JobObserved:
    """The same job, below something that the log does not have, which `train` controls."""
    above = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="j")
    return child(owner="between", uid="b", ancestors=(above,), **more)


def test_a_job_far_below_another_one_runs_while_that_is_admitted() -> None:
    """What is between them need not be in the log."""
    gate = synced(workload(), far_below())
    assert len(paths(gate)) == 1
    gate = synced(workload(), far_below(suspended=True))
    gate.admit()
    gate.say(BRIDGE, far_below())
    assert paths(gate) == []
    gate.say(MANAGER, WorkloadFinished(workload=workload().workload, uid=Uid("w"), reason="Failed", message="m"))
    assert len(paths(gate)) == 1


def test_what_controls_the_job_in_the_log_counts_and_not_what_was_found_before() -> None:
    """The owner has got a queue since, and nothing is above it."""
    between = facts.JobObserved(job=JobKey("batch/Job/team-a/between"), spec=replace(child().spec, uid="b", owner=None))
    gate = synced(workload(), replace(between, spec=replace(between.spec, queue_name="main")))
    gate.say(BRIDGE, far_below())
    assert owners.runs_above(gate.log.state, CHILD, far_below().spec) == between.job


def test_before_the_workload_of_its_parent_was_seen_it_is_left_alone() -> None:
    """It may be there; where it cannot be made the child is suspended."""
    gate = synced(child())
    assert paths(gate) == []
    gate.say(BRIDGE, no_workload())
    gate.say(BRIDGE, child(active=1))
    assert len(paths(gate)) == 1


@pytest.mark.parametrize("more", [{"suspended": True}, {"finished": "Complete"}, {"deleting": True}])
def test_one_that_does_not_run_needs_nothing(more: Any) -> None:
    """Suspended, ended, or about to go."""
    assert paths(synced(workload(), child(**more))) == []


def test_one_of_another_parent_of_that_name_is_not_below_it() -> None:
    """A uid identifies the parent."""
    assert paths(synced(workload(), child(uid="other"))) == []
