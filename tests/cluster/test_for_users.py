"""What a user of kubectl meets in the simulated cluster: Events in both groups, logs, reviews, a node to run on."""

import msgspec
import pytest

from headgate.testing.cluster import Cluster, ControllerOptions
from headgate.testing.cluster.kinds import BY_PLURAL
from headgate.testing.cluster.serve import CONTROLLERS

PODS = "/api/v1/namespaces/default/pods"
GROUPED = "/apis/events.k8s.io/v1/namespaces/default/events"
CORE = "/api/v1/namespaces/default/events"
REGARDING = {"kind": "Job", "namespace": "default", "name": "j", "uid": "u"}


@pytest.fixture
def grouped():
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "j.1", "namespace": "default"},
        "eventTime": "2026-01-31T12:00:00.000000Z",
        "regarding": REGARDING,
        "reason": "Started",
        "action": "Start",
        "note": "hello",
        "type": "Normal",
        "reportingController": "headgate.dev/binder",
        "reportingInstance": "binder-0",
    }


def test_an_event_of_one_group_is_served_by_the_other(client, grouped):
    """Written to events.k8s.io, read from core under the names of that group, and selected by its subject."""
    made = client.create(grouped)
    assert client.status == 201, made
    (shown,) = client.call("GET", CORE, fieldSelector="involvedObject.uid=u")["items"]
    assert (shown["message"], shown["involvedObject"], shown["reportingComponent"]) == (
        "hello",
        REGARDING,
        "headgate.dev/binder",
    )
    assert shown["metadata"] == made["metadata"]
    assert {"note", "regarding", "reportingController"}.isdisjoint(shown)


def test_a_change_and_a_deletion_of_an_event_reach_both_groups(client, grouped):
    """A watch of core/v1 sees what is written to events.k8s.io, and the other way round."""
    watch = client.cluster.watch(CORE)
    client.create(grouped)
    client.patch(grouped, "merge", {"series": {"count": 2, "lastObservedTime": "2026-01-31T12:05:00.000000Z"}})
    core = client.call("GET", f"{CORE}/j.1")
    assert core["series"]["count"] == 2
    client.call("DELETE", f"{CORE}/j.1")
    client.get(grouped)
    assert client.status == 404
    seen = watch.poll_events()
    assert [type_ for type_, _ in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert {obj["apiVersion"] for _, obj in seen} == {"v1"}


def test_the_log_of_a_container_says_what_it_did(client, pod):
    """400 before it has started, as from a kubelet; then its start and its end."""
    pod["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", "sleep 1"]
    client.create(pod)
    assert client.call("GET", f"{PODS}/p/log")["message"] == "pod p does not have a host assigned"
    assert client.status == 400
    client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    client.settle()
    log = client.cluster.request("GET", f"{PODS}/p/log").body.decode().splitlines()
    assert [line.partition(" ")[2] for line in log] == [
        "simulated container main started: /bin/sh -c sleep 1",
        "simulated container main ended with exit code 0",
    ]
    assert client.cluster.request("GET", f"{PODS}/p/log", {"tailLines": "1"}).body.decode().splitlines() == log[1:]
    assert client.call("GET", f"{PODS}/p/log", container="x")["message"] == "container x is not valid for pod p"
    assert client.call("DELETE", f"{PODS}/p/log")["code"] == 405


@pytest.mark.parametrize("plural", ["selfsubjectaccessreviews", "subjectaccessreviews"])
def test_everything_is_allowed_in_a_cluster_without_users(client, plural):
    """As `kubectl auth can-i` asks."""
    spec = {"resourceAttributes": {"verb": "create", "resource": "jobs", "group": "batch"}}
    answer = client.call("POST", f"/apis/authorization.k8s.io/v1/{plural}", {"spec": spec})
    assert (client.status, answer["status"]["allowed"], answer["spec"]) == (201, True, spec)


@pytest.fixture
def cluster(clock):
    """As `headgate up` has it, where a scheduler of the cluster's own stands in for Headgate."""
    return Cluster(clock, controllers=msgspec.structs.replace(CONTROLLERS, default_scheduler=True))


def _phase(cluster, clock):
    while (due := cluster.next_due_ms()) is not None:
        clock.now_ms = max(clock.now_ms, due)
        cluster.step(clock.now_ms)
    return cluster.objects(BY_PLURAL[("", "pods")])[0]["status"]["phase"]


def test_a_pod_runs_in_a_cluster_without_nodes(cluster, clock, pod):
    """One node is there as soon as a pod waits, and not before."""
    assert not cluster.objects(BY_PLURAL[("", "nodes")])
    cluster.create(pod)
    assert _phase(cluster, clock) == "Succeeded"
    assert [node["metadata"]["name"] for node in cluster.objects(BY_PLURAL[("", "nodes")])] == ["node-1"]


def test_a_gated_pod_makes_no_node(cluster, clock, pod):
    """It waits for its gate, not for a node."""
    pod["spec"]["schedulingGates"] = [{"name": "g"}]
    cluster.create(pod)
    assert _phase(cluster, clock) == "Pending"
    assert not cluster.objects(BY_PLURAL[("", "nodes")])


def test_no_node_is_added_to_those_of_the_user(cluster, clock, pod):
    """Where there are nodes, a pod that none of them can take waits."""
    cluster.create(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "small"}, "status": {"capacity": {"cpu": "500m"}}}
    )
    cluster.create(pod)
    assert _phase(cluster, clock) == "Pending"


def test_simulations_place_only_what_they_place(clock, pod):
    """Without the options of a served cluster nothing but Headgate's binder gives a pod a node."""
    cluster = Cluster(clock, controllers=ControllerOptions())
    cluster.create(pod)
    assert _phase(cluster, clock) == "Pending"
