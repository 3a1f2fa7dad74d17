"""Jobs that name the Workload by which they run, in the whole system, whatever goes wrong."""

from typing import Any

import pytest
from tests.simulation.scenarios import kueue
from tests.simulation.test_changed_jobs import (
    SEEDS,
    Json,
    cell,
    delete,
    edit,
    job,
    job_of,
    patch,
    priority_class,
    run,
    runs,
    settle,
    submit,
)
from tests.simulation.test_seeds import WORKLOADS
from tests.support.forging import verified

from headgate.adapters.log import LogEntry
from headgate.testing.cluster.kinds import BY_PLURAL
from headgate.testing.world.world import World

CLUSTER_QUEUES = BY_PLURAL["kueue.x-k8s.io", "clusterqueues"]
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
MADE = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/made"


def recorded(seed: int | None) -> tuple[World, list[LogEntry]]:
    """A cell, and what will be in its log."""
    entries: list[LogEntry] = []
    world = cell(seed)
    world._sink = lambda seq, subject, time_ms, payload: entries.append(LogEntry(seq, subject, time_ms, payload))
    return world, entries


def named(name: str, pods: int = 1, **more: Any) -> Json:
    """A job that names the Workload `made`."""
    found = job(name, pods, **more)
    found["metadata"]["labels"][PREBUILT] = "made"
    return found


def made(of: Json, **spec: Any) -> Json:
    """A Workload for a job, made by somebody else."""
    pods = of["spec"]["parallelism"]
    pod_set = {"name": "main", "count": pods, "template": of["spec"]["template"]}
    built: Json = kueue("Workload", "made", {"queueName": "main", "podSets": [pod_set], **spec}, "team-a")
    return built


def owned_by_queue(world: World, built: Json) -> Json:
    """The same, with an owner that does not control it."""
    (queue,) = world.cluster.objects(CLUSTER_QUEUES)
    owner = {"apiVersion": queue["apiVersion"], "kind": "ClusterQueue", "name": "cq", "uid": queue["metadata"]["uid"]}
    built["metadata"]["ownerReferences"] = [owner]
    return built


def workload(world: World) -> Json | None:
    found = world.cluster.objects(WORKLOADS)
    assert all(each["metadata"]["name"] == "made" for each in found)
    return found[0] if found else None


def condition(world: World, kind: str) -> tuple[str, str] | None:
    found = workload(world)
    listed = found.get("status", {}).get("conditions", []) if found is not None else []
    return next(((each["status"], each["reason"]) for each in listed if each["type"] == kind), None)


def message(world: World) -> str:
    found = workload(world)
    assert found is not None
    return next(str(each["message"]) for each in found["status"]["conditions"] if each["type"] == "Finished")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_job_runs_by_the_workload_that_it_names(seed: int | None, *, is_first: bool) -> None:
    """Whichever of the two comes first: the job takes it over, and gets none of its own. Its other owners stay."""
    world, entries = recorded(seed)
    obj = named("a", 2, run_ms=5_000)
    obj["spec"]["completions"] = 2
    built = owned_by_queue(world, made(obj))
    if is_first:
        world.create(built)
        run(world, 2_000)
    submit(world, obj)
    run(world, 2_000)
    if not is_first:
        assert not runs(world, "a")
        world.create(built)
    settle(world)
    found = workload(world)
    assert found is not None
    owners = {each["kind"]: each.get("controller", False) for each in found["metadata"]["ownerReferences"]}
    assert owners == {"ClusterQueue": False, "Job": True}
    assert found["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] == job_of(world, "a")["metadata"]["uid"]
    assert condition(world, "Finished") == ("True", "Succeeded")
    assert verified(tuple(entries)).differences == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_without_the_workload_that_it_names_a_job_does_not_run(seed: int | None) -> None:
    """One that was resumed by hand is suspended; when its Workload is deleted it stops, and waits for another."""
    world, entries = recorded(seed)
    obj = named("a")
    submit(world, obj)
    edit(world, "a", {"spec": {"suspend": False}})
    settle(world)
    assert not runs(world, "a")
    assert workload(world) is None
    world.create(made(obj))
    settle(world)
    assert runs(world, "a")
    delete(world, MADE)
    settle(world)
    assert not runs(world, "a")
    assert workload(world) is None
    assert verified(tuple(entries)).differences == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_workload_that_another_job_controls_is_not_taken_over(seed: int | None) -> None:
    """The job that was first keeps it."""
    world = cell(seed)
    world.create(made(named("a")))
    submit(world, named("a"))
    settle(world)
    submit(world, named("b"))
    settle(world)
    assert runs(world, "a")
    assert not runs(world, "b")
    delete(world, "/apis/batch/v1/namespaces/team-a/jobs/a")
    settle(world)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_workload_that_is_out_of_sync_with_its_job_is_finished(seed: int | None) -> None:
    """With Kueue's reason and message; the job does not run, and gets no other Workload."""
    world, entries = recorded(seed)
    world.create(made(named("a", 1)))
    submit(world, named("a", 2))
    settle(world)
    assert condition(world, "Finished") == ("True", "OutOfSync")
    assert message(world) == "The prebuilt workload is out of sync with its user job"
    assert not runs(world, "a")
    assert verified(tuple(entries)).differences == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_running_job_that_is_edited_loses_its_workload_and_stops(seed: int | None) -> None:
    """More pods than were admitted do not run on."""
    world, entries = recorded(seed)
    obj = named("a")
    world.create(made(obj))
    submit(world, obj)
    settle(world)
    assert runs(world, "a")
    edit(world, "a", {"spec": {"parallelism": 3}})
    settle(world)
    assert condition(world, "Finished") == ("True", "OutOfSync")
    assert not runs(world, "a")
    assert verified(tuple(entries)).differences == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_prebuilt_workload_follows_its_job_by_the_queue_only(seed: int | None) -> None:
    """Its priority is that which its author gave it."""
    world = cell(seed)
    world.apply(priority_class("mine", 7))
    obj = named("a", priority="high")
    patch(world, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/cq", {"spec": {"stopPolicy": "Hold"}})
    world.create(made(obj, priority=7))
    submit(world, obj)
    settle(world)
    edit(world, "a", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}})
    settle(world)
    found = workload(world)
    assert found is not None
    assert (found["spec"]["queueName"], found["spec"]["priority"]) == ("other", 7)
    assert found["spec"].get("priorityClassRef") is None


@pytest.mark.parametrize("seed", SEEDS)
def test_an_evicted_job_is_restored_and_runs_again(seed: int | None) -> None:
    """By the same Workload."""
    world = cell(seed)
    obj = named("a")
    world.create(made(obj))
    before = submit(world, obj)
    settle(world)
    patch(world, MADE, {"spec": {"active": False}})
    settle(world)
    assert job_of(world, "a")["spec"] == before
    patch(world, MADE, {"spec": {"active": True}})
    settle(world)
    assert runs(world, "a")
