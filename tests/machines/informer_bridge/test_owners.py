"""The bridge gets Jobs that no watch has shown, and only the API server's response proves them gone."""

from typing import Any

import pytest
from tests.machines.informer_bridge.test_decide import Bridge, raw, resumed, synced
from tests.support.playing import job

from headgate.core.machine.contract import Call, Completed, Listed
from headgate.events import facts

Json = dict[str, Any]
PATH = "/apis/batch/v1/namespaces/team-a/jobs/train"


def workload(uid: str = "j", **owner: Any) -> Json:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True, **owner}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "team-a", "ownerReferences": [reference]},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 1}]},
    }


def questions(bridge: Bridge) -> list[Call]:
    return [call for call in bridge.all_calls() if call.id.startswith("owner/")]


def asking() -> tuple[Bridge, Call]:
    bridge = synced(workloads=[raw(workload(), uid="w")])
    (call,) = questions(bridge)
    assert (call.method, call.path) == ("GET", PATH)
    return bridge, call


@pytest.mark.parametrize(
    ("status", "body", "is_gone"),
    [
        (404, b'{"kind": "Status", "code": 404}', True),
        (200, raw(job(), uid="another"), True),
        (200, raw(job(), uid="j"), False),
        (200, b"cut off", False),
        (403, b'{"kind": "Status", "code": 403}', False),
    ],
)
def test_only_what_the_api_server_denies_is_gone(status: int, body: bytes, is_gone: bool) -> None:
    """Not found, or another Job of that name. Everything else proves nothing, and is not requested again at once."""
    bridge, call = asking()
    bridge.machine.decide(Completed(call.id, status, body))
    events, calls = bridge.settle()
    gone = facts.OwnerGone(workload="team-a/w", uid="w", owner_uid="j")  # type: ignore[arg-type]
    assert (gone in events) == is_gone
    assert bridge.log.state.workloads["team-a/w"].owner_gone == is_gone  # type: ignore[index]
    assert questions(bridge) == []
    assert calls == []


def test_of_an_owner_of_another_group_nothing_is_asked() -> None:
    """Whether a Volcano Job exists proves nothing about a Job of its name, nor the other way round."""
    bridge = synced(workloads=[raw(workload(apiVersion="batch.volcano.sh/v1alpha1"), uid="w")])
    assert questions(bridge) == []
    bridge.change("jobs", job(), "DELETED", uid="j")
    assert questions(bridge) == []
    assert not bridge.log.state.workloads["team-a/w"].owner_gone  # type: ignore[index]


def test_nothing_is_asked_before_all_jobs_were_shown() -> None:
    """The list that is on its way may have it."""
    bridge = Bridge()
    bridge.machine.decide(Listed("workloads", (raw(workload(), uid="w"),), "1"))
    assert questions(bridge) == []
    bridge.machine.decide(Listed("jobs", (raw(job(), uid="j"),), "1"))
    assert questions(bridge) == []


def test_a_job_that_is_there_is_asked_for_again_when_one_of_its_name_is_deleted() -> None:
    """It names no queue, so nothing else shows its end; also when that comes while the request is under way."""
    bridge, call = asking()
    bridge.machine.decide(Completed(call.id, 200, raw(job(), uid="j")))
    assert questions(bridge) == []
    bridge.change("jobs", job(), "DELETED", uid="j")
    (again,) = questions(bridge)
    bridge.change("jobs", job(), "DELETED", uid="j")
    bridge.machine.decide(Completed(again.id, 200, raw(job(), uid="j")))
    (once_more,) = questions(bridge)
    assert once_more.path == PATH


def test_another_term_asks_again() -> None:
    """The response for a Job that exists is not in the log."""
    bridge, call = asking()
    bridge.machine.decide(Completed(call.id, 200, raw(job(), uid="j")))
    bridge.settle()
    assert len(questions(resumed(bridge.log))) == 1


@pytest.mark.parametrize("owner", [{"kind": "JobSet"}, {"apiVersion": "batch.volcano.sh/v1alpha1"}])
def test_owners_of_other_kinds_are_not_asked_for(owner: Json) -> None:
    """Whether they are there is not Headgate's to know."""
    bridge = synced(workloads=[raw(workload(**owner), uid="w")])
    assert questions(bridge) == []


def test_a_job_that_was_seen_to_go_need_not_be_asked_for() -> None:
    """Its deletion in the log is the proof; that it has ceased to name a queue is none."""
    bridge = synced(jobs=[raw(job(), uid="j")], workloads=[raw(workload(), uid="w")])
    bridge.change("jobs", job(), "DELETED", uid="j")
    assert questions(bridge) == []
    assert bridge.log.state.workloads["team-a/w"].owner_gone  # type: ignore[index]
    bridge = synced(jobs=[raw(job(), uid="j")], workloads=[raw(workload(), uid="w")])
    bridge.change("jobs", job(labels={"kueue.x-k8s.io/queue-name": ""}), uid="j")
    assert len(questions(bridge)) == 1
    assert not bridge.log.state.workloads["team-a/w"].owner_gone  # type: ignore[index]
