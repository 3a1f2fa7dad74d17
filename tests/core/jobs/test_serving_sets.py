"""StatefulSets and LeaderWorkerSets as sets of pod groups: what is read of them, and the pod sets of a group."""

from typing import Any

import msgspec
import pytest

from headgate.core.jobs.integration import Integration
from headgate.core.jobs.serving_sets import LeaderWorkerSet, StatefulSet
from headgate.events.objects import Job

Json = dict[str, Any]
POD: Json = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
PARENT = "kueue.x-k8s.io/pod-suspending-parent"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"


def obj(spec: Json, **status: Any) -> bytes:
    meta = {"name": "s", "namespace": "team-a", "uid": "u", "creationTimestamp": "2026-01-15T10:00:00Z"}
    meta["labels"] = {"kueue.x-k8s.io/queue-name": "q"}  # type: ignore[assignment]
    return msgspec.json.encode({"metadata": meta, "spec": spec, "status": status})


def read(integration: Integration, raw: bytes) -> Job:
    job = integration.read(raw)[1]
    assert job is not None
    return job


def stateful(template: Json | None = None, **spec: Any) -> bytes:
    return obj({"template": {"spec": POD, **(template or {})}, **spec})


def leaders(size: int = 3, leader: Json | None = None, worker: Json | None = None, **spec: Any) -> Json:
    template: Json = {"size": size, "workerTemplate": {"spec": POD, **(worker or {})}}
    if leader is not None:
        template["leaderTemplate"] = {"spec": POD, **leader}
    return {"leaderWorkerTemplate": template, **spec}


def shape(integration: Integration, raw: bytes) -> list[tuple[str, int]]:
    return [(each["name"], each["count"]) for each in integration.pod_sets(read(integration, raw), raw)]


def test_a_stateful_set_is_one_group_of_its_replicas() -> None:
    """The Workload's template has the pods' spec alone; a request of a topology counts them by Kubernetes' label."""
    raw = stateful({"metadata": {"labels": {"a": "b"}, "annotations": {REQUIRED: "rack"}}}, replicas=3)
    job = read(StatefulSet(), raw)
    assert (job.groups, job.on_hold, job.suspended) == (1, False, True)
    (pod_set,) = StatefulSet().pod_sets(job, raw)
    request = {"required": "rack", "podIndexLabel": "apps.kubernetes.io/pod-index"}
    assert pod_set == {"name": "main", "count": 3, "template": {"spec": POD}, "topologyRequest": request}


@pytest.mark.parametrize(("spec", "on_hold"), [({}, False), ({"replicas": 0}, True), ({"replicas": 1}, False)])
def test_a_stateful_set_of_no_replicas_is_on_hold(spec: Json, on_hold: bool) -> None:
    """It has one where it says nothing."""
    assert read(StatefulSet(), stateful(**spec)).on_hold is on_hold


def test_a_stateful_set_of_another_kind_is_left_to_it() -> None:
    """Its pods wait for the LeaderWorkerSet that has made it."""
    of = {"metadata": {"annotations": {PARENT: "leaderworkerset.x-k8s.io/leaderworkerset"}}}
    assert StatefulSet().read(stateful(of))[1] is None
    assert StatefulSet().read(stateful({"metadata": {"annotations": {PARENT: "statefulset"}}}))[1] is not None


def test_a_group_has_a_leader_and_workers_or_equal_pods() -> None:
    """Size counts the leader."""
    assert shape(LeaderWorkerSet(), obj(leaders(3))) == [("main", 3)]
    assert shape(LeaderWorkerSet(), obj(leaders(3, leader={}))) == [("leader", 1), ("worker", 2)]


def test_workers_are_counted_by_the_operators_label() -> None:
    """Leader and workers of one podset group are placed together; what the operator marks is not in a Workload."""
    marks = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}
    of = {"metadata": {"annotations": {REQUIRED: "rack", "kueue.x-k8s.io/podset-group-name": "g", **marks}}}
    raw = obj(leaders(3, leader=of, worker=of))
    leader, worker = LeaderWorkerSet().pod_sets(read(LeaderWorkerSet(), raw), raw)
    together = {"required": "rack", "podSetGroupName": "g"}
    assert leader["topologyRequest"] == together
    assert worker["topologyRequest"] == {**together, "podIndexLabel": "leaderworkerset.sigs.k8s.io/worker-index"}
    assert not marks.keys() & worker["template"]["metadata"]["annotations"].keys()


SURGE = {"rolloutStrategy": {"rollingUpdateConfiguration": {"maxSurge": 2}}}


@pytest.mark.parametrize(
    ("spec", "status", "groups"),
    [
        ({}, {}, 1),
        ({"replicas": 3}, {}, 3),
        ({"replicas": 0}, {}, 0),
        ({"replicas": 1}, {"replicas": 3}, 1),
        ({"replicas": 2, **SURGE}, {"replicas": 3, "updatedReplicas": 1}, 3),
        ({"replicas": 2, **SURGE}, {"replicas": 3, "updatedReplicas": 2}, 2),
    ],
)
def test_groups_follow_the_replicas_and_a_surge(spec: Json, status: Json, groups: int) -> None:
    """One that is scaled down loses its groups at once; those of a surge stay until the update is done."""
    assert read(LeaderWorkerSet(), obj(leaders(**spec), **status)).groups == groups
