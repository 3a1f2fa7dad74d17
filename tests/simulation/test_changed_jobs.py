"""Jobs that their users, or other controllers, change at any time, in the whole system, whatever goes wrong."""

import random
from typing import Any

import msgspec
import pytest
from tests.simulation.scenarios import job as a_job
from tests.simulation.scenarios import kueue, node
from tests.simulation.test_seeds import JOBS, WORKLOADS, faults_of

from headgate.testing.world.world import NO_FAULTS, World

START_MS = 1_700_000_000_000
FAULTS_END_MS = START_MS + 150_000
"""After the last fault and every backoff that one may have led to."""
PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
SEEDS = [None, 1, 2]
LONG_MS = 10**9
Json = dict[str, Any]


def cell(seed: int | None = None) -> World:
    """A node, and a queue of four CPUs that preempts by priority."""
    world = World(seed=seed or 0, faults=NO_FAULTS if seed is None else faults_of(seed))
    quotas = [{"name": "cpu", "nominalQuota": "4"}, {"name": "memory", "nominalQuota": "64Gi"}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "spot", "resources": quotas}]}]
    queue = {"namespaceSelector": {}, "resourceGroups": groups, "preemption": {"withinClusterQueue": "LowerPriority"}}
    world.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
        kueue("ResourceFlavor", "spot", {"nodeLabels": {"flavor": "spot"}, "tolerations": [{"key": "spot"}]}),
        node("n", "spot", 16, taint=False),
        kueue("ClusterQueue", "cq", queue),
        kueue("LocalQueue", "main", {"clusterQueue": "cq"}, "team-a"),
        kueue("LocalQueue", "other", {"clusterQueue": "cq"}, "team-a"),
        priority_class("low", 10),
        priority_class("high", 100),
    )
    return world


def priority_class(name: str, value: int) -> Json:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def job(name: str, pods: int = 1, *, run_ms: int = LONG_MS, priority: str = "", **annotations: str) -> Json:
    made: Json = a_job(name, "team-a", random.Random(1), 1, pods, run_ms, priority)
    made["spec"]["completions"] = 20
    made["metadata"]["annotations"] = {f"kueue.x-k8s.io/{key.replace('_', '-')}": v for key, v in annotations.items()}
    return made


def patch(world: World, path: str, body: Json) -> None:
    answer = world.cluster.request("PATCH", path, {}, msgspec.json.encode(body), "application/merge-patch+json")
    assert answer.status == 200, answer.body


def edit(world: World, name: str, body: Json) -> None:
    patch(world, f"/apis/batch/v1/namespaces/team-a/jobs/{name}", body)


def delete(world: World, path: str) -> None:
    assert world.cluster.request("DELETE", path).status == 200


def run(world: World, for_ms: int = 10_000) -> None:
    until_ms = world.clock.now_ms + for_ms
    world.run(until_ms=until_ms)
    world.advance(until_ms)


def settle(world: World) -> None:
    """Until no fault is left that anything may wait for."""
    run(world, max(20_000, FAULTS_END_MS + 150_000 - world.clock.now_ms))


def job_of(world: World, name: str) -> Json:
    (found,) = [each for each in world.cluster.objects(JOBS) if each["metadata"]["name"] == name]
    return found


def workloads(world: World, name: str) -> list[Json]:
    return [each for each in world.cluster.objects(WORKLOADS) if each["metadata"]["name"].startswith(f"job-{name}-")]


def workload(world: World, name: str) -> Json:
    (found,) = workloads(world, name)
    return found


def runs(world: World, name: str) -> bool:
    return not job_of(world, name)["spec"]["suspend"]


# --- priority ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_changed_priority_class_changes_who_preempts_whom(seed: int | None) -> None:
    """Its value reaches the Workloads that name it, those that wait and those that run; also when it is made anew."""
    world = cell(seed)
    world.create(job("holder", 4, priority="high"))
    run(world)
    world.create(job("waiter", 4, priority="low"))
    settle(world)
    assert (runs(world, "holder"), runs(world, "waiter")) == (True, False)
    world.apply(priority_class("low", 1000))
    settle(world)
    assert (runs(world, "holder"), runs(world, "waiter")) == (False, True)
    assert workload(world, "waiter")["spec"]["priority"] == 1000
    delete(world, "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses/high")
    run(world)
    world.create(priority_class("high", 5000))
    settle(world)
    assert (runs(world, "holder"), runs(world, "waiter")) == (True, False)
    world.apply(priority_class("high", 1))
    settle(world)
    assert (runs(world, "holder"), runs(world, "waiter")) == (False, True)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_of_another_priority_class_is_ranked_by_that(seed: int | None) -> None:
    """The label is changed before the class is there; the class decides when it appears."""
    world = cell(seed)
    world.create(job("holder", 4, priority="low"))
    run(world)
    world.create(job("waiter", 4))
    settle(world)
    edit(world, "waiter", {"metadata": {"labels": {PRIORITY_CLASS: "later"}}})
    settle(world)
    assert runs(world, "holder")
    world.create(priority_class("later", 20))
    settle(world)
    assert (runs(world, "holder"), runs(world, "waiter")) == (False, True)
    assert workload(world, "waiter")["spec"]["priorityClassRef"]["name"] == "later"
