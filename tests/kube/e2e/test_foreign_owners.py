"""
Clients written for Kueue, on a real control plane: Workloads without jobs, whose owner is the test.

They do what the suites of Kueue do with theirs: create Workloads, finish evictions and Workloads, answer checks, switch
off and on. Each writes the status as Kueue's own code does, by server-side apply as `kueue-admission` or by a patch of
its own, and reads conditions as its users do.
"""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.kube.e2e.cells import KUEUE, Cell, Deployment, Json
from tests.kube.e2e.checks import active, answer, check, check_state
from tests.kube.e2e.objects import condition, furnished, is_true
from tests.kube.e2e.seeing import becomes, has
from tests.kube.e2e.test_admission import configured
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import PatchType
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import WORKLOADS
from headgate.core.state.tables import State

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

PREEMPTS = {"withinClusterQueue": "LowerPriority"}


def workload(team: str, name: str, cpu: str = "1", **spec: Any) -> Json:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    body = {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": template}], **spec}
    metadata = {"name": name, "namespace": team}
    return {"apiVersion": KUEUE, "kind": "Workload", "metadata": metadata, "spec": body}


def said(kind: str, status: str, reason: str = "ByTest", message: str = "By test") -> Json:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}


async def patch_admission_status(deployment: Deployment, found: Json, *conditions: Json, keeps_admission: bool) -> None:
    """What `workload.PatchAdmissionStatus` of Kueue does: the whole status, applied as kueue-admission."""
    before = {each["type"]: each for each in found["status"].get("conditions", ())}
    after = before | {each["type"]: each for each in conditions}
    kept = ("admissionChecks", "requeueState", "schedulingStats", *(("admission",) if keeps_admission else ()))
    status = {field: found["status"][field] for field in kept if field in found["status"]}
    meta = found["metadata"]
    body = {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": meta["name"], "uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
        "status": {**status, "conditions": list(after.values())},
    }
    how: dict[str, Any] = {"patch_type": PatchType.APPLY, "subresource": "status", "field_manager": "kueue-admission"}
    await deployment.merge(WORKLOADS, meta["name"], meta["namespace"], body, **how, force=True)


async def finish_eviction(deployment: Deployment, team: str, name: str) -> None:
    """Kueue's `FinishEvictionForWorkloads`: wait for Evicted, and unset the reservation."""
    reserved = said("QuotaReserved", "False", "Pending")
    lost = said("Admitted", "False", "NoReservation", "The workload has no reservation")
    while True:
        found = await becomes(deployment, WORKLOADS, name, team, has("Evicted"), has("QuotaReserved"))
        try:
            await patch_admission_status(deployment, found, reserved, lost, keeps_admission=False)
            return
        except ApiError as error:
            if error.status != 409:
                raise
            # A write came between the read and the patch. Kueue's helper reads again, too.


async def finish(deployment: Deployment, team: str, name: str) -> None:
    """Kueue's `FinishWorkloads`."""
    found = await deployment.get(WORKLOADS, name, team)
    conditions = [*found["status"]["conditions"], said("Finished", "True")]
    status = {"status": {"conditions": conditions}}
    await deployment.merge(WORKLOADS, name, team, status, subresource="status")


async def admitted(deployment: Deployment, team: str, name: str) -> Json:
    return await becomes(deployment, WORKLOADS, name, team, has("QuotaReserved"), has("Admitted"))


async def uses(cell: Cell, team: str, cpu: int) -> None:
    """Wait until so many milli-CPU of the ClusterQueue are charged."""

    def charged(state: State) -> bool:
        return state.index.usage.get(team, {}).get((team, "cpu"), 0) == cpu

    await until(lambda: cell.holds(charged))


async def test_preempted_workloads_hold_their_quota_until_their_owner_finishes_the_eviction(
    deployment: Deployment,
) -> None:
    """Two give way to one: it is admitted when both have stopped, not before; they queue again at their place."""
    team = deployment.fresh("team")
    async with deployment.cell(team) as cell:
        low = [workload(team, name) for name in ("low-1", "low-2")]
        await deployment.apply(*furnished(team, preemption=PREEMPTS), *low)
        for name in ("low-1", "low-2"):
            await admitted(deployment, team, name)
        await deployment.apply(workload(team, "high", cpu="2", priority=100))
        for name in ("low-1", "low-2"):
            found = await becomes(deployment, WORKLOADS, name, team, has("Evicted"))
            assert condition(found, "Evicted") == ("True", "Preempted")
            assert condition(found, "Preempted") == ("True", "InClusterQueue")
            assert condition(found, "QuotaReserved")[0] == condition(found, "Admitted")[0] == "True"
            assert found["status"]["admission"]["clusterQueue"] == team
        await finish_eviction(deployment, team, "low-1")
        gone = await becomes(deployment, WORKLOADS, "low-1", team, has("Requeued", "True", "Preempted"))
        assert condition(gone, "QuotaReserved")[0] == condition(gone, "Admitted")[0] == "False"
        assert "admission" not in gone["status"]
        await uses(cell, team, 1000)
        assert not is_true(await deployment.get(WORKLOADS, "high", team), "QuotaReserved")
        await finish_eviction(deployment, team, "low-2")
        await admitted(deployment, team, "high")
        await uses(cell, team, 2000)
        await finish(deployment, team, "high")
        for name in ("low-1", "low-2"):
            back = await admitted(deployment, team, name)
            assert condition(back, "Evicted")[0] == condition(back, "Preempted")[0] == "False"
        column = "custom-columns=:regarding.name,:reason,:series.count"
        for_high: list[list[str]] = []

        async def is_series() -> bool:
            nonlocal for_high
            asked = ("get", "events.events.k8s.io", "-n", team, "--no-headers", "-o", column)
            listed = await deployment.plane.kubectl(*asked)
            lines = [line.split() for line in listed.stdout.splitlines()]
            for_high = [line for line in lines if line[:2] == ["high", "PreemptedWorkload"]]
            return for_high == [["high", "PreemptedWorkload", "2"]]

        await until(is_series, lambda: for_high)


async def test_a_workload_switched_off_and_on_again_by_its_owner(deployment: Deployment) -> None:
    """Evicted as Deactivated, released by its owner, out of the queues; Reactivated, and admitted again."""
    team = deployment.fresh("team")
    async with deployment.cell(team) as cell:
        await deployment.apply(*furnished(team), workload(team, "w"))
        await admitted(deployment, team, "w")
        await deployment.merge(WORKLOADS, "w", team, {"spec": {"active": False}})
        found = await becomes(deployment, WORKLOADS, "w", team, has("Evicted", "True", "Deactivated"))
        assert is_true(found, "QuotaReserved")
        await finish_eviction(deployment, team, "w")
        await becomes(deployment, WORKLOADS, "w", team, has("Requeued", "False", "Deactivated"))
        await uses(cell, team, 0)
        await deployment.merge(WORKLOADS, "w", team, {"spec": {"active": True}})
        back = await admitted(deployment, team, "w")
        assert condition(back, "Requeued") == ("True", "Reactivated")
        assert back["status"]["schedulingStats"]["evictions"] == [
            {"reason": "Deactivated", "underlyingCause": "", "count": 1}
        ]


async def test_checks_of_a_workload_without_a_job(deployment: Deployment) -> None:
    """Ready admits; Retry evicts, and the owner finishes that; Rejected switches off."""
    team = deployment.fresh("team")
    rules = {"admissionChecksStrategy": {"admissionChecks": [{"name": team}]}}
    async with deployment.cell(team):
        await deployment.apply(check(team), *furnished(team, **rules), workload(team, "w"))
        await active(deployment, team)
        waits = await becomes(
            deployment, WORKLOADS, "w", team, has("QuotaReserved"), lambda found: check_state(found) == "Pending"
        )
        assert condition(waits, "Admitted") == ("False", "UnsatisfiedAdmissionChecks")
        await answer(deployment, waits, "Retry")
        await becomes(deployment, WORKLOADS, "w", team, has("Evicted", "True", "AdmissionCheck"))
        await finish_eviction(deployment, team, "w")
        again = await becomes(
            deployment,
            WORKLOADS,
            "w",
            team,
            has("QuotaReserved"),
            has("Evicted", "False"),
            lambda found: check_state(found) == "Pending",
        )
        await answer(deployment, again, "Ready", at="2026-01-01T00:00:01Z")
        await admitted(deployment, team, "w")
        await answer(deployment, await deployment.get(WORKLOADS, "w", team), "Rejected", at="2026-01-01T00:00:02Z")
        off = await becomes(
            deployment, WORKLOADS, "w", team, has("Evicted"), lambda found: found["spec"]["active"] is False
        )
        assert condition(off, "Evicted") == ("True", "DeactivatedDueToAdmissionCheck")
        assert is_true(off, "QuotaReserved")


async def test_evicted_and_kept_out_by_others(deployment: Deployment) -> None:
    """Evicted=True of theirs evicts; Requeued=False of theirs keeps out, until they set it to True."""
    team = deployment.fresh("team")
    async with deployment.cell(team) as cell:
        await deployment.apply(*furnished(team), workload(team, "w"))
        found = await admitted(deployment, team, "w")
        evicted = said("Evicted", "True", "Maintenance", "the rack moves")
        await patch_admission_status(deployment, found, evicted, keeps_admission=True)
        await until(lambda: cell.holds(lambda state: _evictions(state, f"{team}/w") == ["Maintenance"]))
        await finish_eviction(deployment, team, "w")
        out = await becomes(deployment, WORKLOADS, "w", team, has("Requeued", "False", "Maintenance"))
        await uses(cell, team, 0)
        assert not is_true(out, "QuotaReserved")
        over = said("Requeued", "True", "MaintenanceOver")
        await patch_admission_status(deployment, out, over, keeps_admission=False)
        await admitted(deployment, team, "w")


def _evictions(state: State, key: str) -> list[str]:
    return [stat.reason for each in state.workloads.values() if each.key == key for stat in each.evictions]


async def test_workloads_made_one_after_the_other_are_admitted_in_that_order(deployment: Deployment) -> None:
    """Within one second, with names in the opposite order; and a label that names a job makes no orphan."""
    team = deployment.fresh("team")
    async with deployment.cell(team):
        await deployment.apply(*furnished(team, cpu="3"))
        names = ["f", "b", "e", "a", "d", "c"]
        for name in names:
            made = workload(team, name)
            made["metadata"]["labels"] = {"kueue.x-k8s.io/job-uid": f"job-{name}"}
            await deployment.client.create(WORKLOADS, made, team)
        for name in names[:3]:
            await admitted(deployment, team, name)
        await finish(deployment, team, "b")
        await admitted(deployment, team, "a")
        for name in ("d", "c"):
            assert not is_true(await deployment.get(WORKLOADS, name, team), "QuotaReserved")


async def test_a_workload_is_explicit_where_the_gate_says_so(deployment: Deployment) -> None:
    """Behind another of its ClusterQueue, never evaluated: with the gate it has both conditions all the same."""
    team = deployment.fresh("team")
    with configured(featureGates={"UnadmittedWorkloadsExplicitStatus": True}) as bridge:
        async with deployment.cell(team, bridge=bridge):
            stopped = furnished(team, queueingStrategy="StrictFIFO")
            await deployment.apply(*stopped, workload(team, "large", cpu="3"), workload(team, "small"))
            found = await becomes(deployment, WORKLOADS, "small", team, has("QuotaReserved", "False"))
            assert condition(found, "Admitted") == ("False", "NoReservation")
