"""Jobs without a queue below one with a queue: the log has them only while they run and must not."""

from typing import Any

import pytest
from tests.machines.informer_bridge.test_decide import Bridge
from tests.machines.informer_bridge.test_kinds import BOTH, TRAIN, job_set, listed, raw, team
from tests.support.job_kinds import job_object, pod_template

from headgate.core.machine.contract import Changed
from headgate.events import facts
from headgate.events.base import EventBase
from headgate.events.ids import JobKey

CHILD = JobKey("batch/Job/team-a/train-w-0")


def child(uid: str = "j", *, suspend: bool = False, **status: Any) -> bytes:
    """A Job of the JobSet `train`, as its controller makes it."""
    owner = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "train",
        "uid": uid,
        "controller": True,
    }
    times = {"creationTimestamp": "2026-01-15T10:00:00Z"}
    made = job_object("Job", {"suspend": suspend, "template": pod_template()}, status, **times, ownerReferences=[owner])
    made["metadata"] |= {"name": "train-w-0", "uid": "c", "labels": {}}
    return raw(made)


def bridge() -> Bridge:
    made = listed(Bridge(configuration=BOTH), namespaces=[team()], jobsets=[job_set()])
    (post,) = made.all_calls()
    body: Any = post.body
    body["metadata"] |= {"uid": "w", "creationTimestamp": "2026-01-15T10:00:00Z"}
    made.machine.decide(Changed("workloads", "ADDED", raw(body), "2"))
    made.all_calls()
    assert TRAIN in made.log.state.jobs
    return made


def told(made: Bridge, obj: bytes) -> list[EventBase]:
    made.machine.decide(Changed("jobs", "MODIFIED", obj, "2"))
    events, calls = made.settle()
    assert not [each for each in calls if each.method == "POST" and "train-w-0" in str(each.body)]
    return [each for each in events if isinstance(each, facts.JobObserved | facts.JobDeleted)]


def test_one_that_runs_while_its_parent_waits_is_in_the_log_until_it_is_suspended() -> None:
    """It gets no Workload; when it has stopped it is dropped, and not taken for deleted."""
    made = bridge()
    (seen,) = told(made, child(active=1))
    assert isinstance(seen, facts.JobObserved)
    assert (seen.job, seen.spec.queue_name) == (CHILD, "")
    (dropped,) = told(made, child(suspend=True))
    assert isinstance(dropped, facts.JobDeleted)
    assert not dropped.gone


@pytest.mark.parametrize(
    "obj",
    [
        child(suspend=True),
        child(conditions=[{"type": "Complete", "status": "True"}]),
        child(uid="of another JobSet of the name"),
    ],
    ids=["suspended", "ended", "another parent"],
)
def test_any_other_job_below_is_none_of_the_log(obj: bytes) -> None:
    """What its parent was admitted for is what counts."""
    assert told(bridge(), obj) == []


def test_one_that_outlives_its_parent_gets_no_workload() -> None:
    """It names no queue."""
    made = bridge()
    told(made, child(active=1))
    made.machine.decide(Changed("jobsets", "DELETED", job_set(), "3"))
    assert [each for each in made.all_calls() if each.method == "POST"] == []
