"""Workloads follow the value of the WorkloadPriorityClass that they name, each with one patch."""

from typing import Any

from tests.machines.informer_bridge.test_decide import Bridge, answer, raw, resumed, synced
from tests.support.playing import job

from headgate.core.machine.contract import Call, Completed

Json = dict[str, Any]
LABELS = {"kueue.x-k8s.io/priority-class": "high"}
REFERENCE = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}


def priority_class(value: int) -> Json:
    return {"metadata": {"name": "high"}, "value": value}


def workload(name: str, priority: int, *, reference: Json = REFERENCE, status: Json | None = None) -> Json:
    """A Workload that no Job owns."""
    return {
        "metadata": {"name": name, "namespace": "team-a", "uid": f"uid-of-{name}"},
        "spec": {"queueName": "main", "priority": priority, "priorityClassRef": reference, "podSets": []},
        "status": status or {},
    }


def priorities(calls: list[Call]) -> dict[str, int]:
    """The priorities that are written, by the name of the Workload; each patch tests which one it changes."""
    written = {}
    for call in calls:
        uid, name, priority = call.body
        assert (uid["op"], uid["path"]) == ("test", "/metadata/uid")
        assert name == {"op": "test", "path": "/spec/priorityClassRef/name", "value": "high"}
        assert priority["path"] == "/spec/priority"
        written[call.path.rpartition("/")[2]] = priority["value"]
    return written


def with_workloads(*found: Json) -> Bridge:
    return synced(
        workloadpriorityclasses=[raw(priority_class(10))],
        workloads=[raw(each, uid=each["metadata"]["uid"]) for each in found],
    )


def done(bridge: Bridge, calls: list[Call]) -> None:
    for call in calls:
        bridge.machine.decide(Completed(call.id, 200, b"{}"))


def test_a_changed_class_changes_the_unfinished_workloads_that_name_it() -> None:
    """Pods' classes of the same name are another kind, and a finished Workload competes with nobody."""
    pods_class = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}
    over = {"conditions": [{"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}]}
    bridge = with_workloads(
        workload("a", 10),
        workload("b", 10),
        workload("pods", 10, reference=pods_class),
        workload("over", 10, status=over),
    )
    assert bridge.all_calls() == []
    bridge.change("workloadpriorityclasses", priority_class(70))
    calls = bridge.all_calls()
    assert priorities(calls) == {"a": 70, "b": 70}
    done(bridge, calls)
    for name in "ab":
        bridge.change("workloads", workload(name, 70), uid=f"uid-of-{name}")
    assert bridge.all_calls() == []


def test_a_class_that_is_made_anew_is_followed_and_one_that_is_gone_is_not() -> None:
    """Until it is there again, a Workload keeps the priority that it had."""
    bridge = with_workloads(workload("a", 10))
    bridge.change("workloadpriorityclasses", priority_class(10), "DELETED")
    assert bridge.all_calls() == []
    bridge.change("workloadpriorityclasses", priority_class(3), "ADDED")
    assert priorities(bridge.all_calls()) == {"a": 3}


def test_what_a_crash_left_undone_is_done_by_the_next_machine() -> None:
    """A class is compared with every Workload when a machine starts."""
    bridge = with_workloads(workload("a", 10))
    bridge.change("workloadpriorityclasses", priority_class(70))
    bridge.settle()
    assert priorities(resumed(bridge.log).all_calls()) == {"a": 70}


def test_a_priority_that_is_set_by_hand_stays_until_the_class_changes() -> None:
    """As in Kueue the class is no rule for the Workload, only the source of its value."""
    bridge = with_workloads(workload("a", 10))
    assert bridge.all_calls() == []
    bridge.change("workloads", workload("a", 55), uid="uid-of-a")
    assert bridge.all_calls() == []
    bridge.change("workloadpriorityclasses", priority_class(70))
    assert priorities(bridge.all_calls()) == {"a": 70}


def test_a_class_that_changes_while_its_workload_is_made_or_patched_is_not_missed() -> None:
    """The newest value arrives, whichever answer comes first."""
    bridge = synced(workloadpriorityclasses=[raw(priority_class(10))], jobs=[raw(job(labels=LABELS))])
    (post,) = bridge.all_calls()
    assert post.body["spec"]["priority"] == 10
    bridge.change("workloadpriorityclasses", priority_class(20))
    assert bridge.all_calls() == []
    made = {**post.body, "metadata": {**post.body["metadata"], "uid": "w"}}
    answer(bridge, post, 201)
    bridge.change("workloads", made, "ADDED", uid="w")
    (first,) = bridge.all_calls()
    assert list(priorities([first]).values()) == [20]
    bridge.change("workloadpriorityclasses", priority_class(30))
    assert bridge.all_calls() == []
    bridge.machine.decide(Completed(first.id, 200, b"{}"))
    (second,) = bridge.all_calls()
    assert list(priorities([second]).values()) == [30]


def test_a_workload_that_has_come_to_name_another_class_is_not_reached() -> None:
    """The API server refuses the patch, and it is not repeated."""
    bridge = with_workloads(workload("a", 10))
    bridge.change("workloadpriorityclasses", priority_class(70))
    (call,) = bridge.all_calls()
    bridge.machine.decide(Completed(call.id, 422, b"{}"))
    assert bridge.all_calls() == []
