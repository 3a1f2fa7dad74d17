"""An empty log on a cluster with objects in every state: what runs continues, what waits keeps its order."""

from datetime import UTC, datetime
from typing import Any

import anyio
import pytest
from tests.kube.e2e.cells import KUEUE, Deployment, Json
from tests.kube.e2e.objects import condition, furnished, is_true, job
from tests.kube.e2e.seeing import becomes, has
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import PatchType, Propagation
from headgate.adapters.kubernetes.resources import JOBS, PODS, WORKLOADS
from headgate.core.state.tables import Stage

pytestmark = [pytest.mark.anyio, pytest.mark.kube]


async def by_job(deployment: Deployment, team: str) -> dict[str, Json]:
    """The Workloads of a namespace by the name of their Job."""
    return {each["metadata"]["ownerReferences"][0]["name"]: each for each in await deployment.all(WORKLOADS, team)}


async def test_an_empty_log_takes_over_without_disturbing_anything(deployment: Deployment) -> None:
    """Running pods stay, admissions stay, finished stays finished, and the waiting are queued by priority and age."""
    team = deployment.fresh("team")
    classes: list[Json] = [
        {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": f"{team}-high"}, "value": 1000}
    ]
    urgent = {"kueue.x-k8s.io/priority-class": f"{team}-high"}
    async with deployment.cell(f"{team}-before"):
        await deployment.apply(*classes, *furnished(team), job(team, "done"))
        await becomes(deployment, JOBS, "done", team, has("Complete"))
        for name in ("runs-a", "runs-b"):
            await deployment.apply(job(team, name, run_ms=600_000))
            await becomes(deployment, JOBS, name, team, lambda found: found["status"].get("ready"))
        for name, labels in (("waits-1", {}), ("waits-2", {}), ("urgent", urgent), ("off", {})):
            await deployment.apply(job(team, name, run_ms=1500, labels=labels))

            async def exists(name: str = name) -> bool:
                return name in await by_job(deployment, team)

            await until(exists)
            # Times of creation have a resolution of a second, and decide the order.
            await anyio.sleep(1.1)
        off = (await by_job(deployment, team))["off"]["metadata"]["name"]
        await deployment.merge(WORKLOADS, off, team, {"spec": {"active": False}})
    # Between the two, a change that neither saw: a Job without a Workload.
    await deployment.apply(job(team, "late", run_ms=1500))
    pods = {each["metadata"]["uid"] for each in await deployment.all(PODS, team)}
    before = await by_job(deployment, team)
    async with deployment.cell(f"{team}-after") as cell:
        await until(
            lambda: cell.holds(lambda state: _stages(state, team).get(Stage.QUEUED, 0) + _waiting(state, team) >= 4)
        )
        assert cell.holds(lambda state: state.index.usage[team] == {(team, "cpu"): 2000})
        after = await by_job(deployment, team)
        for name in ("runs-a", "runs-b", "done"):
            assert after[name]["status"]["conditions"] == before[name]["status"]["conditions"], name
            assert after[name]["status"]["admission"] == before[name]["status"]["admission"], name
        assert pods <= {each["metadata"]["uid"] for each in await deployment.all(PODS, team)}
        # One place becomes free, and they pass through it one after the other.
        await deployment.client.delete(JOBS, "runs-a", team, propagation=Propagation.BACKGROUND)
        waiting = ("urgent", "waits-1", "waits-2", "late")
        ended = [await becomes(deployment, JOBS, name, team, has("Complete")) for name in waiting]
        started = [found["status"]["startTime"] for found in ended]
        assert started == sorted(started)
        assert len(set(started)) == len(waiting)
        assert not is_true((await by_job(deployment, team))["off"], "QuotaReserved")


def _stages(state: Any, team: str) -> dict[Stage, int]:
    found: dict[Stage, int] = {}
    for workload in state.workloads.values():
        if workload.key.startswith(f"{team}/"):
            found[workload.stage] = found.get(workload.stage, 0) + 1
    return found


def _waiting(state: Any, team: str) -> int:
    stages = _stages(state, team)
    return sum(stages.get(stage, 0) for stage in (Stage.OFFERED, Stage.SKIPPED, Stage.PARKED))


async def test_what_kueue_has_admitted_is_taken_over_and_can_be_evicted(deployment: Deployment) -> None:
    """The status that Kueue's managers own is continued, and goes when the workload is evicted."""
    team = deployment.fresh("team")
    await deployment.apply(*furnished(team))
    # Lately: half an hour after its admission its pods have to be ready, as with Kueue.
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    template = {
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        }
    }
    workload = {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": "theirs", "namespace": team},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": template}]},
    }
    assignment = {"name": "main", "flavors": {"cpu": team}, "resourceUsage": {"cpu": "1"}, "count": 1}
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": "by Kueue", "lastTransitionTime": now}
        for kind in ("QuotaReserved", "Admitted")
    ]
    status = {"admission": {"clusterQueue": team, "podSetAssignments": [assignment]}, "conditions": conditions}
    await deployment.apply(workload)
    theirs = {"apiVersion": KUEUE, "kind": "Workload", "metadata": {"name": "theirs"}, "status": status}
    await deployment.merge(
        WORKLOADS, "theirs", team, theirs, patch_type=PatchType.APPLY, subresource="status",
        field_manager="kueue-admission", force=True,
    )  # fmt: skip
    async with deployment.cell(team) as cell:
        await until(lambda: cell.holds(lambda state: state.index.usage.get(team) == {(team, "cpu"): 1000}))
        assert (await deployment.get(WORKLOADS, "theirs", team))["status"] == status
        await deployment.merge(WORKLOADS, "theirs", team, {"spec": {"active": False}})
        evicted = await becomes(deployment, WORKLOADS, "theirs", team, has("Evicted"))
        # No controller runs it here: its owner has to report when it has stopped.
        stopped = {**conditions[0], "status": "False", "reason": "Pending"}
        kept = [each for each in evicted["status"]["conditions"] if each["type"] != "QuotaReserved"]
        patch = {"status": {"conditions": [stopped, *kept]}}
        await deployment.merge(WORKLOADS, "theirs", team, patch, subresource="status")
        no_admission = [has("QuotaReserved", "False"), lambda found: "admission" not in found["status"]]
        gone = await becomes(deployment, WORKLOADS, "theirs", team, *no_admission)
        assert condition(gone, "Evicted") == ("True", "Deactivated")
        await until(lambda: cell.holds(lambda state: not any(state.index.usage.get(team, {}).values())))
