"""What the bridge makes of StatefulSets and LeaderWorkerSets: pod groups, and the Workload of each."""

from typing import Any

import msgspec
from tests.machines.informer_bridge.test_decide import Bridge, Json
from tests.machines.informer_bridge.test_kinds import listed, raw, team
from tests.support.job_kinds import pod_template
from tests.support.logs import TestLog

from headgate.core.machine.contract import Changed, Completed, Resumed
from headgate.core.workload.names import workload_name
from headgate.events import facts
from headgate.events.configuration import Configuration, IntegrationsConfiguration
from headgate.events.ids import JobKey, JobRef, Uid

LWS = "leaderworkerset.x-k8s.io"
SETS = Configuration(integrations=IntegrationsConfiguration(frameworks=("statefulset", f"{LWS}/leaderworkerset")))
K = "kueue.x-k8s.io/"


def metadata(name: str, **more: Any) -> Json:
    labels = {f"{K}queue-name": "main"}
    created = "2026-01-15T10:00:00Z"
    return {"name": name, "namespace": "team-a", "uid": "s", "labels": labels, "creationTimestamp": created, **more}


def stateful_set(replicas: int = 2, **meta: Any) -> bytes:
    spec = {"replicas": replicas, "template": pod_template()}
    return raw({"kind": "StatefulSet", "metadata": metadata("web", **meta), "spec": spec})


def leader_worker_set(replicas: int) -> bytes:
    template = {"size": 3, "leaderTemplate": pod_template(), "workerTemplate": pod_template()}
    spec = {"replicas": replicas, "leaderWorkerTemplate": template}
    return raw({"kind": "LeaderWorkerSet", "metadata": metadata("llm"), "spec": spec})


def name_of(kind: str, name: str) -> str:
    return workload_name(JobRef("apps" if kind == "StatefulSet" else LWS, kind, "team-a", name), "s")


def group(kind: str, name: str) -> JobKey:
    return JobKey(f"/PodGroup/team-a/{name_of(kind, name)}")


def shown(body: Json, uid: str) -> bytes:
    """A Workload that was created, as the API server shows it."""
    meta = {**body["metadata"], "uid": uid, "creationTimestamp": "2026-01-15T10:00:01Z", "generation": 1}
    return raw({**body, "metadata": meta})


def made(bridge: Bridge) -> list[Json]:
    """The Workloads that the bridge creates; each call is answered, and each Workload shown."""
    bodies: list[Json] = []
    for number, call in enumerate(bridge.all_calls()):
        assert call.method == "POST"
        body: Any = call.body
        bodies.append(body)
        bridge.machine.decide(Completed(call.id, 201, b"{}"))
        bridge.machine.decide(Changed("workloads", "ADDED", shown(body, f"w{number}"), ""))
    bridge.settle()
    return bodies


def test_a_stateful_set_gets_a_workload_before_it_has_pods() -> None:
    """It is that of its pod group, named and marked as Kueue does, and owned by the set without being controlled."""
    bridge = listed(Bridge(configuration=SETS), namespaces=[team()], statefulsets=[stateful_set()])
    (body,) = made(bridge)
    assert body["metadata"] == {
        "name": name_of("StatefulSet", "web"),
        "namespace": "team-a",
        "labels": {f"{K}job-uid": "s"},
        "annotations": {
            f"{K}job-owner-gvk": "apps/v1, Kind=StatefulSet",
            f"{K}job-owner-name": "web",
            f"{K}is-group-workload": "true",
        },
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "s"}],
        "finalizers": [f"{K}resource-in-use"],
    }
    assert body["spec"]["queueName"] == "main"
    assert [(each["name"], each["count"]) for each in body["spec"]["podSets"]] == [("main", 2)]
    assert bridge.all_calls() == []


def test_each_group_of_a_leader_worker_set_gets_a_workload() -> None:
    """With its number in an annotation."""
    bridge = listed(Bridge(configuration=SETS), namespaces=[team()], leaderworkersets=[leader_worker_set(2)])
    bodies = made(bridge)
    assert [each["metadata"]["name"] for each in bodies] == [
        name_of("LeaderWorkerSet", "llm-0"),
        name_of("LeaderWorkerSet", "llm-1"),
    ]
    numbers = [each["metadata"]["annotations"][f"{K}component-workload-index"] for each in bodies]
    assert numbers == ["0", "1"]
    shapes = [[(it["name"], it["count"]) for it in each["spec"]["podSets"]] for each in bodies]
    assert shapes == [[("leader", 1), ("worker", 2)]] * 2


def test_the_workload_of_a_group_that_is_taken_away_is_deleted_and_made_anew_when_it_returns() -> None:
    """Also by a bridge that did not see it go; the Workloads of the others stay."""
    log = TestLog()
    bridge = listed(Bridge(log, SETS), namespaces=[team()], leaderworkersets=[leader_worker_set(2)])
    made(bridge)
    bridge.machine.decide(Changed("leaderworkersets", "MODIFIED", leader_worker_set(1), ""))
    bridge.settle()
    later = Bridge(log, SETS)
    for resource in later.machine.resources:
        later.machine.decide(Resumed(resource, "1"))
    (call,) = later.all_calls()
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/{name_of('LeaderWorkerSet', 'llm-1')}"
    assert (call.method, call.path, call.body["preconditions"]) == ("DELETE", path, {"uid": "w1"})
    later.machine.decide(Completed(call.id, 200, b"{}"))
    gone = msgspec.json.encode({"metadata": {"name": path.rpartition("/")[2], "namespace": "team-a", "uid": "w1"}})
    later.machine.decide(Changed("workloads", "DELETED", gone, ""))
    assert later.all_calls() == []
    later.machine.decide(Changed("leaderworkersets", "MODIFIED", leader_worker_set(2), ""))
    assert [each["metadata"]["name"] for each in made(later)] == [name_of("LeaderWorkerSet", "llm-1")]


def test_a_stateful_set_of_no_replicas_is_on_hold() -> None:
    """It gets no Workload, and one that it has stays."""
    bridge = listed(Bridge(configuration=SETS), namespaces=[team()], statefulsets=[stateful_set(0)])
    assert bridge.all_calls() == []
    bridge.machine.decide(Changed("statefulsets", "MODIFIED", stateful_set(2), ""))
    assert len(made(bridge)) == 1
    bridge.machine.decide(Changed("statefulsets", "MODIFIED", stateful_set(0), ""))
    assert bridge.all_calls() == []
    assert bridge.log.state.jobs[group("StatefulSet", "web")].job.on_hold


def test_a_set_that_is_deleted_takes_its_groups_from_the_log() -> None:
    """Their Workloads are the garbage collector's: nothing that is listed owns them any more."""
    bridge = listed(Bridge(configuration=SETS), namespaces=[team()], statefulsets=[stateful_set()])
    made(bridge)
    bridge.machine.decide(Changed("statefulsets", "DELETED", stateful_set(), ""))
    events, calls = bridge.settle()
    more, _ = bridge.settle()
    key = group("StatefulSet", "web")
    assert facts.JobDeleted(job=key, uid=Uid(key.removeprefix("/")), gone=True) in (*events, *more)
    assert calls == []


def test_a_workload_follows_the_queue_of_its_set() -> None:
    """While it waits."""
    bridge = listed(Bridge(configuration=SETS), namespaces=[team()], statefulsets=[stateful_set()])
    made(bridge)
    moved = stateful_set(labels={f"{K}queue-name": "other"})
    bridge.machine.decide(Changed("statefulsets", "MODIFIED", moved, ""))
    (call,) = bridge.all_calls()
    assert (call.method, call.body["spec"]) == ("PATCH", {"queueName": "other"})
