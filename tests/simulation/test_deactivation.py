"""Workloads that were evicted for good, in the whole system: switched off in the API server, whatever goes wrong."""

import random
from typing import Any

import msgspec
import pytest
from tests.simulation.scenarios import GATE, cluster_queue, job, kueue, node
from tests.simulation.test_seeds import NOW, WORKLOADS, faults_of

from headgate.core.state.tables import Stage
from headgate.testing.world.world import NO_FAULTS, FaultRates, World

START_MS = 1_700_000_000_000
OVER_MS = START_MS + 150_000
"""After the last fault and every backoff that one may have led to."""


def cell(faults: FaultRates, seed: int, *, checks: bool) -> World:
    """One node, one queue, quota for four CPUs; with `checks` an admission check, which the test plays."""
    world, rng = World(seed=seed, faults=faults), random.Random(seed)
    world.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
        kueue("ResourceFlavor", "spot", {}),
        node("n", "spot", 16, taint=False),
        kueue("AdmissionCheck", GATE, {"controllerName": "tests/gate"}),
        cluster_queue("team-a", ["spot"], 4, rng, cohort="", checks=checks),
        kueue("LocalQueue", "main", {"clusterQueue": "team-a"}, "team-a"),
    )
    active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": NOW}
    patch(world, f"/apis/kueue.x-k8s.io/v1beta2/admissionchecks/{GATE}/status", {"status": {"conditions": [active]}})
    return world


def patch(world: World, path: str, body: dict[str, Any]) -> None:
    answer = world.cluster.request("PATCH", path, {}, msgspec.json.encode(body), "application/merge-patch+json")
    assert answer.status == 200, answer.body


def workload(world: World) -> dict[str, Any]:
    (found,) = world.cluster.objects(WORKLOADS)
    return found


def path_of(found: dict[str, Any]) -> str:
    metadata = found["metadata"]
    return f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{metadata['namespace']}/workloads/{metadata['name']}"


def condition(found: dict[str, Any], kind: str, field: str = "status") -> str:
    conditions = found.get("status", {}).get("conditions", [])
    return next((str(each[field]) for each in conditions if each["type"] == kind), "")


def run_until(world: World, at_ms: int, *, answer: str = "") -> None:
    """Run in slices; in between, the check's controller gives its answer to every reservation that waits for it."""
    while world.clock.now_ms < at_ms:
        until_ms = min(at_ms, world.clock.now_ms + 500)
        world.run(until_ms=until_ms)
        world.advance(until_ms)
        for found in world.cluster.objects(WORKLOADS):
            checks = found.get("status", {}).get("admissionChecks", [])
            waits = condition(found, "QuotaReserved") == "True" and any(each["state"] == "Pending" for each in checks)
            if answer and waits:
                said = [{**check, "state": answer, "message": "no", "lastTransitionTime": NOW} for check in checks]
                patch(world, f"{path_of(found)}/status", {"status": {"admissionChecks": said}})


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_rejected_workload_is_switched_off_until_somebody_switches_it_on(seed: int | None) -> None:
    """It holds nothing and stays out; switched on again, and its check Ready this time, its job runs."""
    world = cell(NO_FAULTS if seed is None else faults_of(seed), seed or 0, checks=True)
    world.create(job("j", "team-a", random.Random(1), 1, 1, 2000, ""))
    run_until(world, OVER_MS, answer="Rejected")
    found = workload(world)
    assert found["spec"]["active"] is False
    said = f'The workload is deactivated due to AdmissionCheck in Rejected state: "{GATE}" (no)'
    assert [condition(found, "Evicted", field) for field in ("status", "reason", "message")] == [
        "True",
        "DeactivatedDueToAdmissionCheck",
        said,
    ]
    assert condition(found, "QuotaReserved") == "False"
    assert not any(world.state.index.usage.get("team-a", {}).values())
    assert [each.stage for each in world.state.workloads.values()] == [Stage.PARKED]
    patch(world, path_of(found), {"spec": {"active": True}})
    run_until(world, world.clock.now_ms + 60_000, answer="Ready")
    assert workload(world)["spec"]["active"] is True
    assert [each.stage for each in world.state.workloads.values()] == [Stage.FINISHED]


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_job_that_runs_for_too_long_is_stopped_and_switched_off(seed: int | None) -> None:
    """Its pods are gone, its quota is free, and its Workload has the reason."""
    world = cell(NO_FAULTS if seed is None else faults_of(seed), seed or 0, checks=False)
    manifest = job("j", "team-a", random.Random(1), 1, 1, 3_600_000, "")
    manifest["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = "10"
    world.create(manifest)
    run_until(world, OVER_MS)
    found = workload(world)
    assert found["spec"]["active"] is False
    assert condition(found, "Evicted", "reason") == "DeactivatedDueToMaximumExecutionTimeExceeded"
    assert not any(world.state.index.usage.get("team-a", {}).values())
    (record,) = world.state.jobs.values()
    assert (record.job.suspended, record.job.active) == (True, 0)
