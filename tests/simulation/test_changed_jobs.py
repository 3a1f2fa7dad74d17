"""Jobs that their users, or other controllers, change at any time, in the whole system, whatever goes wrong."""

import random
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.simulation.scenarios import job as a_job
from tests.simulation.scenarios import kueue, node
from tests.simulation.test_seeds import JOBS, WORKLOADS, faults_of

from headgate.events.base import Producer
from headgate.events.configuration import Configuration
from headgate.events.facts import ConfigurationObserved
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.testing.cluster.kinds import BY_PLURAL
from headgate.testing.world.world import MACHINES, NO_FAULTS, World

PODS = BY_PLURAL["", "pods"]
NOW = "2026-01-15T10:00:00Z"

START_MS = 1_700_000_000_000
FAULTS_END_MS = START_MS + 150_000
"""After the last fault and every backoff that one may have led to."""
PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
SEEDS = [None, 1]
LONG_MS = 10**9
Json = dict[str, Any]


def cell(seed: int | None = None, configuration: Configuration = Configuration()) -> World:  # noqa: B008  (frozen)
    """A node, and a queue of four CPUs that preempts by priority."""
    observed = ConfigurationObserved(configuration=configuration)
    bridge = partial(InformerBridge, configuration=observed)
    world = World(
        seed=seed or 0,
        faults=NO_FAULTS if seed is None else faults_of(seed),
        machines={**MACHINES, Producer.INFORMER_BRIDGE: bridge},
    )
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


def submit(world: World, manifest: Json) -> Json:
    """Create a Job. Returns its spec as the API server keeps it."""
    world.create(manifest)
    found: Json = job_of(world, manifest["metadata"]["name"])["spec"]
    return msgspec.json.decode(msgspec.json.encode(found), type=Json)


def path_of(found: Json) -> str:
    name = found["metadata"]["name"]
    return f"/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/{name}"


def is_true(found: Json, kind: str) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def used(world: World) -> int:
    return world.state.index.usage.get("cq", {}).get(("spot", "cpu"), 0)


def pods(world: World, name: str) -> int:
    mine = [pod for pod in world.cluster.objects(PODS) if pod["metadata"]["name"].startswith(f"{name}-")]
    return len([pod for pod in mine if "deletionTimestamp" not in pod["metadata"]])


def stop_queue(world: World, policy: str) -> None:
    patch(world, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/cq", {"spec": {"stopPolicy": policy}})


def condition(kind: str, status: str, reason: str = "ByHand") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": "by hand", "lastTransitionTime": NOW}


def write(world: World, found: Json, *changed: Json) -> None:
    """Write conditions into a Workload's status as kubectl edit does."""
    kinds = {each["type"] for each in changed}
    kept = [each for each in found["status"]["conditions"] if each["type"] not in kinds]
    patch(world, f"{path_of(found)}/status", {"status": {"conditions": [*kept, *changed]}})


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


# --- admissions that are taken away ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("how", ["QuotaReserved", "Admitted", "both", "deleted"])
def test_a_job_whose_admission_is_taken_away_stops_and_is_as_its_user_made_it(how: str, seed: int | None) -> None:
    """It keeps no trace of its flavor, holds no quota, and runs again when its queue lets it."""
    world = cell(seed)
    made = submit(world, job("a", 2))
    settle(world)
    assert (runs(world, "a"), used(world)) == (True, 2000)
    stop_queue(world, "Hold")
    settle(world)
    before = workload(world, "a")
    match how:
        case "deleted":
            delete(world, path_of(before))
        case "both":
            write(world, before, condition("QuotaReserved", "False"), condition("Admitted", "False"))
        case _:
            write(world, before, condition(how, "False"))
    settle(world)
    assert job_of(world, "a")["spec"] == made
    assert (used(world), pods(world, "a")) == (0, 0)
    stop_queue(world, "None")
    settle(world)
    assert (runs(world, "a"), pods(world, "a"), used(world)) == (True, 2, 2000)


# --- deletion ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_the_workload_of_a_deleted_job_goes_with_it(policy: str, seed: int | None) -> None:
    """Its finalizer is removed and its quota is free; an orphan is finished."""
    world = cell(seed)
    world.create(job("a", 2))
    settle(world)
    assert used(world) == 2000
    query = {"propagationPolicy": policy}
    assert world.cluster.request("DELETE", "/apis/batch/v1/namespaces/team-a/jobs/a", query).status == 200
    settle(world)
    left = workloads(world, "a")
    assert [is_true(each, "Finished") for each in left] == ([True] if policy == "Orphan" else [])
    assert used(world) == 0
    world.create(job("a", 3))
    settle(world)
    assert (runs(world, "a"), used(world)) == (True, 3000)


# --- edits ---------------------------------------------------------------------------------------------------------


def cpu(amount: str) -> Json:
    return {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": amount}}}]}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("edited", "usage"),
    [
        ({"spec": {"parallelism": 2}}, 4000),
        ({"metadata": {"labels": {"kueue.x-k8s.io/max-exec-time-seconds": "77"}}, "spec": {"parallelism": 1}}, 3000),
        ({"spec": {"parallelism": 1, "template": {"spec": {"nodeSelector": {"flavor": "spot"}}}}}, 3000),
        ({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}, "spec": {"parallelism": 1}}, 3000),
    ],
)
def test_a_job_that_is_edited_while_it_waits_is_scheduled_by_its_new_form(
    edited: Json, usage: int, seed: int | None
) -> None:
    """Its Workload is the same object, with the new pod sets."""
    world = cell(seed)
    world.create(job("holder", 2))
    settle(world)
    world.create(job("a", 3))
    settle(world)
    before = workload(world, "a")
    assert not runs(world, "a")
    edit(world, "a", edited)
    settle(world)
    after = workload(world, "a")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert (runs(world, "a"), used(world)) == (True, usage)
    spec = job_of(world, "a")["spec"]
    assert pods(world, "a") == spec["parallelism"] == edited["spec"]["parallelism"]
    labels = job_of(world, "a")["metadata"]["labels"]
    assert after["spec"]["queueName"] == labels["kueue.x-k8s.io/queue-name"]
    assert after["spec"].get("maximumExecutionTimeSeconds") == (77 if len(labels) > 1 else None)
    assert after["spec"]["podSets"][0]["template"]["spec"] == {
        **before["spec"]["podSets"][0]["template"]["spec"],
        **edited["spec"].get("template", {}).get("spec", {}),
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_that_is_edited_while_it_runs_gets_another_workload(seed: int | None) -> None:
    """As in Kueue it stops first, for it runs with what was not admitted."""
    world = cell(seed)
    world.create(job("a", 2))
    settle(world)
    before = workload(world, "a")
    edit(world, "a", {"spec": {"parallelism": 3}})
    settle(world)
    after = workload(world, "a")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert (runs(world, "a"), pods(world, "a"), used(world)) == (True, 3, 3000)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_that_is_resumed_by_hand_stops_again(seed: int | None) -> None:
    """Whoever sets suspend to false does not get past the queue."""
    world = cell(seed)
    world.create(job("holder", 4))
    settle(world)
    made = submit(world, job("a", 2))
    settle(world)
    edit(world, "a", {"spec": {"suspend": False}})
    settle(world)
    assert job_of(world, "a")["spec"] == made
    assert (pods(world, "a"), used(world)) == (0, 4000)
    edit(world, "holder", {"spec": {"suspend": True}})
    settle(world)
    assert runs(world, "holder")


@pytest.mark.parametrize("seed", SEEDS)
def test_edits_and_decisions_at_the_same_time_leave_nothing_behind(seed: int | None) -> None:
    """A Job that is edited again and again while quota comes and goes ends with what it asks for last."""
    world = cell(seed)
    rng = random.Random(seed or 0)
    world.create(job("a", 2))
    for _ in range(30):
        edit(world, "a", {"spec": {"parallelism": rng.randint(1, 4)}})
        run(world, rng.choice([0, 1, 5, 50, 500]))
        if rng.random() < 0.3:
            edit(world, "a", {"spec": {"suspend": rng.random() < 0.5}})
    edit(world, "a", {"spec": {"parallelism": 3}})
    settle(world)
    assert (runs(world, "a"), pods(world, "a"), used(world)) == (True, 3, 3000)
    assert workload(world, "a")["spec"]["podSets"][0]["count"] == 3


# --- fewer pods ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_with_a_minimum_runs_with_fewer_pods_and_gets_all_back(seed: int | None) -> None:
    """The parallelism is what was admitted, and after an eviction what the user wants."""
    world = cell(seed)
    world.create(job("holder", 2))
    settle(world)
    made = submit(world, job("a", 4, job_min_parallelism="1"))
    settle(world)
    assert job_of(world, "a")["spec"]["parallelism"] == pods(world, "a") == 2
    assert used(world) == 4000
    stop_queue(world, "HoldAndDrain")
    settle(world)
    assert job_of(world, "a")["spec"] == made
    assert used(world) == 0


# --- more than one -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_second_workload_of_a_job_goes(seed: int | None) -> None:
    """One is the Job's; another that names it as its owner would hold quota that nothing uses."""
    world = cell(seed)
    world.create(job("a", 1))
    settle(world)
    first = workload(world, "a")
    second = {key: first[key] for key in ("apiVersion", "kind", "spec")}
    kept = {key: first["metadata"][key] for key in ("namespace", "ownerReferences", "labels", "annotations")}
    world.create({**second, "metadata": {**kept, "name": "job-a-second"}})
    settle(world)
    assert workload(world, "a")["metadata"]["uid"] == first["metadata"]["uid"]
    assert (runs(world, "a"), used(world)) == (True, 1000)


# --- jobs without a queue ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_without_a_queue_that_runs_is_stopped_until_it_is_admitted(seed: int | None) -> None:
    """By the default queue of its namespace, when that is there; until then it waits without one."""
    world = cell(seed, Configuration(manage_jobs_without_queue_name=True))
    made = job("a", 2)
    del made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    made["spec"]["suspend"] = False
    world.create(made)
    settle(world)
    assert (runs(world, "a"), pods(world, "a"), used(world)) == (False, 0, 0)
    world.apply(kueue("LocalQueue", "default", {"clusterQueue": "cq"}, "team-a"))
    settle(world)
    assert (runs(world, "a"), pods(world, "a"), used(world)) == (True, 2, 2000)
