"""
A defect that one object of many shows costs this one: the others end as without it, through restarts.

Every process of the cell has the same defect, as they do when it is in the code that they run.
"""

import random
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest
from tests.simulation.scenarios import job, kueue, node
from tests.support.defects import in_fold, is_of, over, raises_if, swapped

import headgate.machines.binder.workload_statuses as statuses
import headgate.machines.informer_bridge.decide as bridge
import headgate.machines.queue_manager.decide as manager
import headgate.machines.ungater.decide as ungater
from headgate.core import fold
from headgate.core.audit.invariants import forgotten
from headgate.core.cycle.nominating import Nominator
from headgate.core.fold import quarantine
from headgate.core.state.tables import State
from headgate.events.facts import JobObserved, WorkloadObserved
from headgate.events.queueing import WorkloadFinished, WorkloadQueued
from headgate.testing.cluster import BY_PLURAL
from headgate.testing.world.world import FaultRates, World

JOBS = BY_PLURAL["batch", "jobs"]
WORKLOADS = BY_PLURAL["kueue.x-k8s.io", "workloads"]
EVENTS = BY_PLURAL["events.k8s.io", "events"]
START_MS = 1_700_000_000_000
BAD = "j7"
RUN_MS = 4_000
HORIZON_MS = 1_200_000


def cell(jobs: int, *, faults: FaultRates | None = None, seed: int = 0) -> World:
    """A cell with room for a twentieth of its jobs at a time."""
    world = World(seed=seed, faults=faults or FaultRates(), contain=True)
    quotas = [{"name": "cpu", "nominalQuota": str(max(2, jobs // 20))}, {"name": "memory", "nominalQuota": "64Gi"}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "spot", "resources": quotas}]}]
    world.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        kueue("ResourceFlavor", "spot", {}),
        node("n", "spot", 1000, taint=False),
        kueue("ClusterQueue", "q", {"namespaceSelector": {}, "resourceGroups": groups}),
        kueue("LocalQueue", "main", {"clusterQueue": "q"}, "team"),
    )
    rng = random.Random(0)
    world.create(*(job(f"j{number}", "team", rng, 1, 1, RUN_MS, "") for number in range(jobs)))
    return world


def run(world: World, for_ms: int = HORIZON_MS) -> World:
    until_ms = world.clock.now_ms + for_ms
    world.run(until_ms=until_ms)
    return world


def ended(world: World) -> set[str]:
    """The Jobs that are Complete, and whose Workload is Finished."""
    jobs = {
        each["metadata"]["name"]
        for each in world.cluster.objects(JOBS)
        for condition in each.get("status", {}).get("conditions", [])
        if (condition["type"], condition["status"]) == ("Complete", "True")
    }
    told = {
        each["metadata"]["ownerReferences"][0]["name"]
        for each in world.cluster.objects(WORKLOADS)
        for condition in each.get("status", {}).get("conditions", [])
        if (condition["type"], condition["status"]) == ("Finished", "True")
    }
    return jobs & told


# --- the defects ---------------------------------------------------------------------------------------------------


DEFECTS: dict[str, Callable[[str], Any]] = {
    "fold: seen first": lambda name: in_fold(WorkloadObserved, name),
    "fold: queued": lambda name: in_fold(WorkloadQueued, name),
    "fold: finished": lambda name: in_fold(WorkloadFinished, name),
    "fold: its Job": lambda name: in_fold(JobObserved, name),
    "machine of the queue manager": lambda name: over(manager, "steps", name),
    "machine of the scheduler": lambda name: over(Nominator, "nominate", name),
    "status": lambda name: over(statuses, "workload_status", name),
    "call of the binder": lambda name: swapped(
        statuses, "status_patch", raises_if(lambda workload, _: is_of(name, workload.key))
    ),
    "call of the ungater": lambda name: over(ungater, "start_patches", name),
    "call of the informer bridge": lambda name: over(bridge, "workload_of", name),
    "reading of the informer bridge": lambda name: swapped(
        bridge, "read", raises_if(lambda resource, raw, *_: resource == "workloads" and f"job-{name}-".encode() in raw)
    ),
}


FAULTS = FaultRates(crash=0.01, call_error=0.05, call_lost=0.02, lag=0.2, until_ms=START_MS + 30_000)


@pytest.mark.parametrize("name", DEFECTS)
@pytest.mark.parametrize("faulty", [False, True], ids=["calm", "restarts"])
def test_the_others_end_as_without_it(name: str, faulty: bool) -> None:
    """The object is set aside, alike in every process; no other is, nor waits longer than that takes."""
    jobs = 20
    faults = FAULTS if faulty else None
    world = cell(jobs, faults=faults, seed=1)
    with DEFECTS[name](BAD):
        run(world)
        others = {f"j{number}" for number in range(jobs)} - {BAD}
        assert ended(world) - {BAD} == others
        aside = world.state.quarantine
        assert all(is_of(BAD, each.key) for each in aside.values())
        assert forgotten(world.state, settled=True) == []
        for instance in world.instances:
            assert fold.encode(instance.state) == fold.encode(world.state)
        assert world.has_contained, "the defect has shown"
        assert BAD not in ended(world)
        assert aside
        assert world.crashes == 0 or faulty
        restored = fold.restore(world.cell, fold.encode(world.state))
        assert used(restored) == used(world.state)


def used(state: State) -> dict[str, object]:
    return {name: usage for name, usage in state.index.usage.items() if usage}


def restart(world: World) -> None:
    """Every process is killed, and starts again from a snapshot or from the beginning of the log."""
    for instance in list(world.instances):
        world.crash(instance)


@pytest.mark.parametrize("name", DEFECTS)
def test_a_mended_version_takes_the_object_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a command: what could not be folded is folded, and what a machine has failed over is tried again."""
    jobs = 12
    world = cell(jobs)
    with DEFECTS[name](BAD):
        run(world)
        restart(world)
        run(world)
        assert world.state.quarantine, "the same version fails as before"
    monkeypatch.setattr(quarantine, "VERSION", "mended")
    # The world's own state is a process, too.
    world.upgrade()
    restart(world)
    run(world)
    assert world.state.quarantine == {}
    assert ended(world) == {f"j{number}" for number in range(jobs)}
    assert forgotten(world.state, settled=True) == []


def test_four_of_a_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the fold, a machine, a status and a call, through restarts: 996 end, and the four when it is corrected."""
    bad = {"fold: queued": "j7", "machine of the scheduler": "j100", "status": "j500", "call of the ungater": "j900"}
    every = {f"j{number}" for number in range(1000)}
    world = cell(1000, faults=FaultRates(crash=0.001, until_ms=START_MS + 60_000), seed=3)
    with ExitStack() as defects:
        for name, job_name in bad.items():
            defects.enter_context(DEFECTS[name](job_name))
        run(world)
        assert world.crashes > 0
        assert ended(world) == every - set(bad.values())
        aside = world.state.quarantine.values()
        assert len(aside) == len(bad)
        assert all(any(is_of(name, each.key) for name in bad.values()) for each in aside)
        for instance in world.instances:
            assert fold.encode(instance.state) == fold.encode(world.state)
    monkeypatch.setattr(quarantine, "VERSION", "mended")
    world.upgrade()
    restart(world)
    run(world)
    assert ended(world) == every
    assert world.state.quarantine == {}


def workload_of(world: World, name: str) -> Any:
    (found,) = [each for each in world.cluster.objects(WORKLOADS) if is_of(name, f"team/{each['metadata']['name']}")]
    return found


def quarantined(workload: Any) -> list[Any]:
    return [each for each in workload["status"]["conditions"] if each["type"] == quarantine.QUARANTINED]


@pytest.mark.parametrize("name", ["fold: queued", "status", "call of the ungater"])
def test_the_cluster_is_told_and_may_ask_for_another_try(name: str) -> None:
    """A condition and Events say what has failed; an annotation has it tried again, and the condition goes."""
    world = cell(6)
    bad = "j3"
    with DEFECTS[name](bad):
        run(world)
        (condition,) = quarantined(workload_of(world, bad))
        assert condition["status"] == "True"
        assert "DefectError: planted" in condition["message"]
        assert f"headgate quarantine show Workload team/job-{bad}-" in condition["message"]
        told = [each for each in world.cluster.objects(EVENTS) if each["reason"] == "Quarantined"]
        assert {(each["regarding"]["kind"], each["type"]) for each in told} == {
            ("Workload", "Warning"),
            ("Job", "Warning"),
        }
        restart(world)
        run(world)
        assert quarantined(workload_of(world, bad)) == [condition]
        ask(world, workload_of(world, bad), "first")
        run(world)
        (record,) = world.state.quarantine.values()
        assert world.state.position > record.position > 0
    ask(world, workload_of(world, bad), "second")
    run(world)
    assert world.state.quarantine == {}
    assert ended(world) == {f"j{number}" for number in range(6)}
    assert quarantined(workload_of(world, bad)) == []


def ask(world: World, workload: Any, request: str) -> None:
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/{workload['metadata']['name']}"
    body = msgspec.json.encode({"metadata": {"annotations": {quarantine.RETRY: request}}})
    assert world.cluster.request("PATCH", path, {}, body, "application/merge-patch+json").status == 200


@pytest.mark.parametrize("name", ["fold: queued", "status", "call of the ungater"])
def test_what_is_set_aside_can_be_deleted(name: str) -> None:
    """With its Job it goes from the cluster and from the quarantine, and what it held is free."""
    world = cell(6)
    bad = "j3"
    with DEFECTS[name](bad):
        run(world)
        assert world.state.quarantine
        path = f"/apis/batch/v1/namespaces/team/jobs/{bad}"
        assert world.cluster.request("DELETE", path, {"propagationPolicy": "Background"}).status == 200
        run(world)
    assert world.state.quarantine == {}
    assert used(world.state) == {}
    assert not [each for each in world.cluster.objects(WORKLOADS) if is_of(bad, f"team/{each['metadata']['name']}")]
