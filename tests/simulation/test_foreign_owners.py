"""Workloads of owners that Headgate does not run, in the whole system: the owner's word counts, as with Kueue."""

import random
from typing import Any

import pytest
from tests.simulation.scenarios import cluster_queue, kueue
from tests.simulation.test_deactivation import condition, patch, path_of
from tests.simulation.test_seeds import NOW, WORKLOADS, faults_of

from headgate.core.state.tables import HOLDS_QUOTA, State
from headgate.events.commit import LoggedCommit
from headgate.testing.world.world import FaultRates, World

Manifest = dict[str, Any]
CPU = 4
QUIET = FaultRates(until_ms=1)


def stays_within_quota(state: State, _: LoggedCommit) -> None:
    used = state.index.usage.get("team-a", {}).get(("spot", "cpu"), 0)
    assert used <= CPU * 1000, f"{used} at position {state.position}"


def cell(faults: FaultRates = QUIET, seed: int = 0) -> World:
    """A queue with quota for four CPUs, in which higher priorities preempt lower ones."""
    world = World(seed=seed, faults=faults, check=stays_within_quota)
    queue = cluster_queue("team-a", ["spot"], CPU, random.Random(1), cohort="", checks=False)
    queue["spec"] |= {"preemption": {"withinClusterQueue": "LowerPriority"}, "queueingStrategy": "BestEffortFIFO"}
    world.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
        kueue("ResourceFlavor", "spot", {}),
        queue,
        kueue("LocalQueue", "main", {"clusterQueue": "team-a"}, "team-a"),
    )
    return world


def submit(world: World, name: str, cpu: int = CPU, priority: int = 0, **spec: Any) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    body = {"queueName": "main", "priority": priority, "podSets": [pod_set], **spec}
    world.create(kueue("Workload", name, body, "team-a"))
    rest(world)


def rest(world: World, for_ms: int = 2000) -> None:
    world.run(until_ms=world.clock.now_ms + for_ms)


def shown(world: World, name: str) -> Manifest:
    (found,) = [each for each in world.cluster.objects(WORKLOADS) if each["metadata"]["name"] == name]
    return found


def write(world: World, name: str, *conditions: Manifest, **status: Any) -> None:
    """The owner sets conditions, by a merge patch of the whole list, as `Status().Update` does."""
    before = {each["type"]: each for each in shown(world, name).get("status", {}).get("conditions", [])}
    after = before | {each["type"]: {"lastTransitionTime": NOW, "message": "", **each} for each in conditions}
    patch(world, f"{path_of(shown(world, name))}/status", {"status": {"conditions": list(after.values()), **status}})


def give_back(world: World, name: str) -> None:
    """As Kueue's integrations do when the pods have stopped, and its tests (`FinishEvictionForWorkloads`)."""
    reserved = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "By test"}
    write(world, name, reserved, {"type": "Admitted", "status": "False", "reason": "NoReservation"}, admission=None)


def is_admitted(world: World, name: str) -> bool:
    return condition(shown(world, name), "Admitted") == "True"


def preempted() -> World:
    """A low priority holds all of the quota, a high one has preempted it."""
    world = cell()
    submit(world, "low")
    assert is_admitted(world, "low")
    submit(world, "high", priority=10)
    assert condition(shown(world, "low"), "Evicted") == "True"
    return world


def test_a_preempted_workload_keeps_its_quota_until_its_owner_gives_it_back() -> None:
    """Its status has Evicted=True, and still its reservation; its preemptor waits for the owner."""
    world = preempted()
    rest(world, 600_000)
    assert condition(shown(world, "low"), "QuotaReserved") == "True"
    assert not is_admitted(world, "high")
    give_back(world, "low")
    rest(world)
    assert is_admitted(world, "high")
    low = shown(world, "low")
    assert condition(low, "QuotaReserved") == "False"
    assert "admission" not in low["status"]
    assert condition(low, "Requeued") == "True"


@pytest.mark.parametrize("how", ["finished", "deleted"])
def test_its_end_and_its_deletion_give_it_back_too(how: str) -> None:
    """Whatever ends it ends what it holds."""
    world = preempted()
    if how == "finished":
        write(world, "low", {"type": "Finished", "status": "True", "reason": "Succeeded"})
    else:
        world.cluster.request("DELETE", path_of(shown(world, "low")), {})
    rest(world)
    assert is_admitted(world, "high")


def test_a_restart_of_everybody_changes_nothing() -> None:
    """The owner's report may come while no process runs."""
    world = preempted()
    for instance in list(world.instances):
        world.crash(instance)
    give_back(world, "low")
    rest(world, 10_000)
    assert is_admitted(world, "high")


def test_a_reservation_that_its_owner_gives_up_is_given_up() -> None:
    """Without any eviction: with Kueue, too, a workload without QuotaReserved waits in its queue."""
    world = cell()
    submit(world, "a")
    reserved = {"type": "QuotaReserved", "status": "False", "reason": "EvictedByTest", "message": "Evicted By Test"}
    write(world, "a", reserved, {"type": "Admitted", "status": "False", "reason": "NoReservation"}, admission=None)
    rest(world)
    told = [stat.reason for stat in world.state.workloads["team-a/a"].evictions]  # type: ignore[index]
    assert told == ["EvictedByTest"]


def test_a_foreign_eviction_is_an_eviction() -> None:
    """Any writer of Evicted=True evicts; the quota comes back with the owner's report."""
    world = cell()
    submit(world, "a")
    write(world, "a", {"type": "Evicted", "status": "True", "reason": "NodeFailures", "message": "a node is gone"})
    rest(world)
    assert condition(shown(world, "a"), "Evicted", "reason") == "NodeFailures"
    submit(world, "b")
    assert not is_admitted(world, "b")
    give_back(world, "a")
    rest(world)
    assert is_admitted(world, "a") != is_admitted(world, "b")


def test_a_workload_that_others_keep_out_waits_until_they_let_it_in() -> None:
    """Requeued=False with a reason of theirs stays until they set it to True."""
    world = cell()
    submit(world, "blocker")
    submit(world, "a")
    write(world, "a", {"type": "Requeued", "status": "False", "reason": "Maintenance", "message": "until noon"})
    rest(world)
    write(world, "blocker", {"type": "Finished", "status": "True", "reason": "Succeeded"})
    rest(world, 60_000)
    assert not is_admitted(world, "a")
    assert condition(shown(world, "a"), "Requeued", "reason") == "Maintenance"
    write(world, "a", {"type": "Requeued", "status": "True", "reason": "Over"})
    rest(world)
    assert is_admitted(world, "a")


def test_a_deactivated_workload_keeps_its_quota_until_its_owner_gives_it_back() -> None:
    """Switched off, it is evicted; switched on again after its owner has stopped, it queues again."""
    world = cell()
    submit(world, "a")
    patch(world, path_of(shown(world, "a")), {"spec": {"active": False}})
    rest(world)
    assert condition(shown(world, "a"), "Evicted", "reason") == "Deactivated"
    submit(world, "b")
    assert not is_admitted(world, "b")
    give_back(world, "a")
    rest(world)
    assert is_admitted(world, "b")


def test_an_owner_named_job_of_another_group_is_somebody_elses() -> None:
    """Only a Job of Kubernetes is run here: for another the owner has to speak, and its absence proves nothing."""
    world = cell()
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "v", "uid": "v-1", "controller": True}
    manifest = kueue("Workload", "v", {"queueName": "main", "podSets": [POD_SET]}, "team-a")
    manifest["metadata"] |= {"ownerReferences": [owner], "labels": {"kueue.x-k8s.io/job-uid": "v-1"}}
    world.create(manifest)
    rest(world)
    assert is_admitted(world, "v")
    submit(world, "high", priority=10)
    assert condition(shown(world, "v"), "Evicted") == "True"
    rest(world, 60_000)
    assert not is_admitted(world, "high")


def test_a_workload_that_is_scaled_down_in_place_gives_the_difference_back() -> None:
    """Its reservation stays as it was; what it is charged follows the pods that its spec still has."""
    world = cell()
    one = {**POD_SET, "count": CPU, "template": {"spec": {"containers": [container("1")]}}}
    world.create(kueue("Workload", "a", {"queueName": "main", "podSets": [one]}, "team-a"))
    rest(world)
    submit(world, "b", cpu=3)
    assert is_admitted(world, "a")
    assert not is_admitted(world, "b")
    patch(world, path_of(shown(world, "a")), {"spec": {"podSets": [{**one, "count": 1}]}})
    rest(world)
    assert is_admitted(world, "a")
    assert is_admitted(world, "b")
    assert world.state.index.usage["team-a"]["spot", "cpu"] == CPU * 1000


def container(cpu: str) -> Manifest:
    return {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}


POD_SET: Manifest = {
    "name": "main",
    "count": 1,
    "template": {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": str(CPU)}}}]}},
}


def test_whatever_goes_wrong_nobody_runs_on_quota_that_is_not_given_back(sampled_seed: int) -> None:
    """An owner that stops an evicted workload as soon as it is observed: all end, and no two at a time on one quota."""
    rng = random.Random(f"owners-{sampled_seed}")
    world = cell(faults_of(sampled_seed), sampled_seed)
    running: dict[str, int] = {}
    names = [f"w{number}" for number in range(8)]
    for number, name in enumerate(names):
        world.create(kueue("Workload", name, {"queueName": "main", "priority": number, "podSets": [POD_SET]}, "team-a"))
    for _ in range(900):
        world.run(until_ms=world.clock.now_ms + 200)
        world.advance(world.clock.now_ms + 200)
        for name in names:
            found = shown(world, name)
            if condition(found, "Finished") == "True":
                continue
            if condition(found, "Evicted") == "True" and condition(found, "QuotaReserved") == "True":
                if rng.random() < 0.5:
                    running.pop(name, None)
                    give_back(world, name)
            elif is_admitted(world, name):
                running.setdefault(name, world.clock.now_ms)
                if world.clock.now_ms - running[name] > 3000:
                    del running[name]
                    write(world, name, {"type": "Finished", "status": "True", "reason": "Succeeded"})
        assert len(running) <= 1, running
    assert all(condition(shown(world, name), "Finished") == "True" for name in names)
    assert not any(each.stage in HOLDS_QUOTA for each in world.state.workloads.values())
