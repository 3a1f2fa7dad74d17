"""
Plain pods and pod groups that name the Workload by which they run, in the whole system.

The cases are those of Kueue's integration tests of pods (test/integration/singlecluster/controller/jobs/pod) and of the
unit tests of its reconciler (pkg/controller/jobs/pod/pod_controller_test.go).
"""

from typing import Any

import pytest
from tests.simulation.scenarios import kueue
from tests.simulation.test_changed_jobs import patch
from tests.simulation.test_pod_groups import (
    FAULTS_END_MS,
    PODS,
    WILD,
    K,
    cell,
    condition,
    delete,
    pod,
    run,
    shown,
    used,
)
from tests.simulation.test_seeds import WORKLOADS
from tests.support.forging import verified

from headgate.adapters.log import LogEntry
from headgate.core.audit.invariants import forgotten
from headgate.testing.cluster.kinds import BY_PLURAL
from headgate.testing.world.world import World

CLUSTER_QUEUES = BY_PLURAL["kueue.x-k8s.io", "clusterqueues"]
Json = dict[str, Any]
MADE = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/made"


def recorded(**more: Any) -> tuple[World, list[LogEntry]]:
    """A cell, and what will be in its log."""
    entries: list[LogEntry] = []
    world = cell(**more)
    world._sink = lambda seq, subject, time_ms, payload: entries.append(LogEntry(seq, subject, time_ms, payload))
    return world, entries


def named(name: str, *, group: bool = False, total: int = 2, **more: Any) -> Json:
    """A pod that names the Workload `made`, alone or of the group of that name."""
    found = pod(name, group="made" if group else "", total=total if group else 0, **more)
    found["metadata"]["annotations"][f"{K}prebuilt-workload-name"] = "made"
    return found


def made(*pods: Json, is_marked: bool = False, **spec: Any) -> Json:
    """A Workload for pods, made by somebody else: of a group with a pod set for each role."""
    roles: dict[str, Json] = {}
    for each in pods:
        role = each["metadata"]["annotations"].get(f"{K}role-hash", "main")
        found = roles.setdefault(role, {"name": role, "count": 0, "template": {"spec": each["spec"]}})
        found["count"] += 1
    pod_sets = [roles[role] for role in sorted(roles)]
    built: Json = kueue("Workload", "made", {"queueName": "main", "podSets": pod_sets, **spec}, "team-a")
    if is_marked:
        built["metadata"]["annotations"] = {f"{K}is-group-workload": "true"}
    return built


def workload(world: World) -> Json | None:
    """The Workload, which is the only one."""
    found = world.cluster.objects(WORKLOADS)
    assert all(each["metadata"]["name"] == "made" for each in found)
    return found[0] if found else None


def told(world: World, kind: str) -> tuple[str, str] | None:
    """Status and reason of a condition of the Workload."""
    found = workload(world)
    said = condition(found, kind) if found is not None else None
    return said[:2] if said is not None else None


def owners(world: World) -> dict[str, bool]:
    """What owns the Workload, and whether it controls it."""
    found = workload(world)
    assert found is not None
    return {each["name"]: each.get("controller", False) for each in found["metadata"].get("ownerReferences", [])}


def why_ended(world: World, name: str) -> tuple[str, str] | None:
    """Reason and message of the condition by which a pod was stopped."""
    (seen,) = [each for each in world.cluster.objects(PODS) if each["metadata"]["name"] == name]
    for each in seen.get("status", {}).get("conditions", []):
        if each["type"] == "TerminationTarget":
            return each["reason"], each["message"]
    return None


def finalizers(world: World) -> dict[str, list[str]]:
    return {each["metadata"]["name"]: each["metadata"].get("finalizers", []) for each in world.cluster.objects(PODS)}


# --- plain pods ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_first", [True, False])
def test_a_plain_pod_runs_by_the_workload_that_it_names(*, is_first: bool) -> None:
    """Whichever comes first. It controls the Workload, gets none of its own, and finishes it."""
    world, entries = recorded()
    one = named("one", run_ms=10_000)
    if is_first:
        world.create(made(one))
        run(world, 5_000)
        assert told(world, "Finished") is None
    world.create(one)
    run(world, 5_000)
    if not is_first:
        assert (workload(world), shown(world)) == (None, {"one": "gated"})
        world.create(made(one))
        run(world, 5_000)
    assert shown(world) == {"one": "Running"}
    assert owners(world) == {"one": True}
    found = workload(world)
    assert found is not None
    (seen,) = world.cluster.objects(PODS)
    assert found["metadata"]["labels"][f"{K}job-uid"] == seen["metadata"]["uid"]
    assert seen["spec"]["nodeSelector"] == {"flavor": "spot"}
    assert used(world) == 1000
    run(world, 20_000)
    assert told(world, "Finished") == ("True", "Succeeded")
    assert finalizers(world) == {"one": []}
    assert verified(tuple(entries)).differences == ()


def test_a_plain_pod_whose_workload_is_deleted_is_stopped() -> None:
    """With Kueue's reason and message; a pod that was made in its place waits for another Workload."""
    world, entries = recorded()
    world.create(made(named("one")))
    world.create(named("one"))
    run(world, 5_000)
    assert shown(world) == {"one": "Running"}
    seen = [each["metadata"]["uid"] for each in world.cluster.objects(PODS)]
    world.cluster.request("DELETE", MADE, {}, b"")
    run(world, 60_000)
    assert (workload(world), shown(world), used(world)) == (None, {}, 0)
    assert seen
    world.create(named("one"))
    run(world, 5_000)
    assert shown(world) == {"one": "gated"}
    assert verified(tuple(entries)).differences == ()


def test_a_workload_that_another_object_controls_is_not_taken_over() -> None:
    """The first pod keeps it; the second waits, and one that runs without its gate is deleted."""
    world, entries = recorded()
    world.create(made(named("one")))
    world.create(named("one"))
    run(world, 5_000)
    other, running = named("two"), named("three")
    running["spec"]["schedulingGates"] = []
    world.create(other)
    world.create(running)
    run(world, 60_000)
    assert shown(world) == {"one": "Running", "two": "gated"}
    assert owners(world) == {"one": True}
    assert verified(tuple(entries)).differences == ()


@pytest.mark.parametrize(
    ("why", "spec"),
    [
        ("more pods", {"podSets": [{"name": "main", "count": 2}]}),
        ("another request", {"podSets": [{"name": "main", "count": 1, "cpu": "2"}]}),
        ("two pod sets", {"podSets": [{"name": "main", "count": 1}, {"name": "more", "count": 1}]}),
        ("another limit", {"maximumExecutionTimeSeconds": 60}),
    ],
)
def test_a_workload_that_is_not_that_of_its_pod_is_finished(why: str, spec: Json) -> None:
    """The pod waits, with its finalizer, and is free to go."""
    world, entries = recorded()
    one = named("one")
    for each in spec.get("podSets", ()):
        each["template"] = {"spec": pod("-", cpu=each.pop("cpu", "1"))["spec"]}
    world.create(made(one, **spec))
    world.create(one)
    run(world, 30_000)
    assert told(world, "Finished") == ("True", "OutOfSync"), why
    found = workload(world)
    said = condition(found, "Finished") if found is not None else None
    assert said is not None
    assert said[2] == "The prebuilt workload is out of sync with its user job"
    assert (shown(world), used(world)) == ({"one": "gated"}, 0)
    assert finalizers(world) == {"one": [f"{K}managed"]}
    delete(world, "one")
    run(world, 30_000)
    assert shown(world) == {}
    assert verified(tuple(entries)).differences == ()


def test_quantities_are_compared_by_value() -> None:
    """As Kubernetes does: a thousand milli-cpu are one."""
    world = cell()
    world.create(made(named("one", cpu="1000m")))
    world.create(named("one"))
    run(world, 10_000)
    assert shown(world) == {"one": "Running"}


def test_an_evicted_pod_is_deleted_and_its_workload_with_it() -> None:
    """Its pod was the last that controlled it."""
    world, entries = recorded()
    world.create(made(named("one")))
    world.create(named("one"))
    run(world, 5_000)
    patch(world, MADE, {"spec": {"active": False}})
    run(world, 60_000)
    assert (shown(world), used(world)) == ({}, 0)
    assert verified(tuple(entries)).differences == ()


# --- groups --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_marked", [True, False])
def test_a_group_runs_by_the_workload_that_it_names(*, is_marked: bool) -> None:
    """Whether its author has marked it or not. A pod starts before the group is whole; all own it."""
    world, entries = recorded()
    leader, worker = named("leader", group=True), named("worker", group=True, cpu="2", run_ms=10_000)
    leader["metadata"]["annotations"]["headgate.dev/run-ms"] = "10000"
    world.create(leader)
    run(world, 5_000)
    assert (workload(world), shown(world)) == (None, {"leader": "gated"})
    world.create(made(leader, worker, is_marked=is_marked))
    run(world, 5_000)
    assert shown(world) == {"leader": "Running"}
    world.create(worker)
    run(world, 5_000)
    assert shown(world)["worker"] == "Running"
    assert owners(world) == {"leader": False, "worker": False}
    run(world, 30_000)
    assert told(world, "Finished") == ("True", "Succeeded")
    assert finalizers(world) == {"leader": [], "worker": []}
    assert used(world) == 0
    assert verified(tuple(entries)).differences == ()


def test_a_group_keeps_the_other_owners_of_its_workload() -> None:
    """Those that do not control it."""
    world = cell()
    (queue,) = world.cluster.objects(CLUSTER_QUEUES)
    built = made(named("a", group=True), named("b", group=True))
    owner = {"apiVersion": queue["apiVersion"], "kind": "ClusterQueue", "name": "cq", "uid": queue["metadata"]["uid"]}
    built["metadata"]["ownerReferences"] = [owner]
    world.create(built)
    for name in "ab":
        world.create(named(name, group=True))
        run(world, 5_000)
    assert owners(world) == {"cq": False, "a": False, "b": False}
    assert shown(world) == {"a": "Running", "b": "Running"}


def test_pods_that_run_before_their_workload_is_admitted_are_stopped() -> None:
    """Kueue's "when the prebuilt workload exists its owner info is updated": stopped as not admitted, both owners."""
    world = cell(quota=1)
    world.create(made(named("a", group=True), named("b", group=True)))
    for name in "ab":
        running = named(name, group=True)
        running["spec"]["schedulingGates"] = []
        running["metadata"]["finalizers"].append("example.com/hold")
        world.create(running)
    run(world, 20_000)
    assert owners(world) == {"a": False, "b": False}
    assert [why_ended(world, name) for name in "ab"] == [("NotAdmitted", "Not admitted by cluster queue")] * 2
    assert told(world, "Finished") is None


def test_a_workload_of_other_roles_is_finished_and_its_pods_are_stopped() -> None:
    """Kueue's "when the prebuilt workload is not equivalent to the job"."""
    world, entries = recorded()
    world.create(made(named("a", group=True, cpu="2"), named("b", group=True, cpu="2")))
    for name in "ab":
        running = named(name, group=True)
        running["spec"]["schedulingGates"] = []
        running["metadata"]["finalizers"].append("example.com/hold")
        world.create(running)
    run(world, 20_000)
    assert told(world, "Finished") == ("True", "OutOfSync")
    assert owners(world) == {"a": False, "b": False}
    assert [why_ended(world, name) for name in "ab"] == [("NoMatchingWorkload", "missing workload")] * 2
    assert verified(tuple(entries)).differences == ()


def test_a_group_with_more_pods_than_its_workload_is_out_of_sync() -> None:
    """None is removed as too many: they run by a Workload of somebody else. All of them stop."""
    world, entries = recorded()
    world.create(made(named("a", group=True), named("b", group=True)))
    for name in "ab":
        world.create(named(name, group=True))
    run(world, 10_000)
    assert shown(world) == {"a": "Running", "b": "Running"}
    world.create(named("c", group=True))
    run(world, 60_000)
    assert told(world, "Finished") == ("True", "OutOfSync")
    assert (shown(world), used(world)) == ({"c": "gated"}, 0)
    assert finalizers(world) == {"c": []}
    assert verified(tuple(entries)).differences == ()


def test_a_failed_pod_of_a_group_is_replaced() -> None:
    """The failed one stays until the end of the group, and none is reported absent."""
    world, entries = recorded()
    world.create(made(named("a", group=True), named("b", group=True)))
    world.create(named("a", group=True, run_ms=5_000, exit_code=1))
    world.create(named("b", group=True, run_ms=30_000))
    run(world, 15_000)
    assert shown(world) == {"a": "Failed", "b": "Running"}
    assert told(world, "WaitingForReplacementPods") is None
    world.create(named("c", group=True, run_ms=20_000))
    run(world, 60_000)
    assert told(world, "Finished") == ("True", "Succeeded")
    assert finalizers(world) == {"a": [], "b": [], "c": []}
    assert verified(tuple(entries)).differences == ()


def test_a_group_whose_workload_is_deleted_stops_and_waits_for_another() -> None:
    """Its pods are deleted; new ones run by the next Workload of the name."""
    world, entries = recorded()
    pods = [named(name, group=True) for name in "ab"]
    world.create(made(*pods))
    for each in pods:
        world.create(each)
    run(world, 10_000)
    assert shown(world) == {"a": "Running", "b": "Running"}
    world.cluster.request("DELETE", MADE, {}, b"")
    run(world, 60_000)
    assert (workload(world), shown(world), used(world)) == (None, {}, 0)
    for name in "cd":
        world.create(named(name, group=True))
    run(world, 5_000)
    assert shown(world) == {"c": "gated", "d": "gated"}
    world.create(made(*pods))
    run(world, 10_000)
    assert shown(world) == {"c": "Running", "d": "Running"}
    assert verified(tuple(entries)).differences == ()


def test_a_group_of_another_name_than_its_workload_waits() -> None:
    """Admission refuses such pods; where nothing did, they wait, and the Workload is nobody's."""
    world = cell()
    other = pod("a", group="others", total=1)
    other["metadata"]["annotations"][f"{K}prebuilt-workload-name"] = "made"
    world.create(made(other))
    world.create(other)
    run(world, 10_000)
    assert (owners(world), shown(world)) == ({}, {"a": "gated"})
    assert any("prebuilt workload and pod group should be equal" in each.refused for each in world.state.jobs.values())


def test_a_group_without_a_workload_of_its_own_choice_leaves_a_foreign_one_alone() -> None:
    """Kueue's "Should not adopt or delete a foreign non-pod-group Workload sharing the group name"."""
    world = cell()
    world.create(made(pod("a", group="made", total=1)))
    world.create(pod("a", group="made", total=1))
    run(world, 10_000)
    assert (owners(world), shown(world)) == ({}, {"a": "gated"})


# --- with faults ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_whatever_goes_wrong_pods_run_by_the_workloads_that_they_name(seed: int) -> None:
    """Crashes, rivals, lost answers and cut watches change nothing of the end."""
    world, entries = recorded(faults=WILD, seed=seed)
    pods = [named(name, group=True, run_ms=20_000) for name in "ab"]
    world.create(pods[0])
    run(world, 20_000)
    world.create(made(*pods))
    run(world, 20_000)
    world.create(pods[1])
    run(world, FAULTS_END_MS - world.clock.now_ms + 600_000)
    assert told(world, "Finished") == ("True", "Succeeded")
    assert finalizers(world) == {"a": [], "b": []}
    assert used(world) == 0
    assert not list(forgotten(world.state))
    assert verified(tuple(entries)).differences == ()
