"""A defect with one Workload on a real API server: its condition, its Events, another try, and the others' jobs."""

import pytest
from tests.kube.e2e.cells import Deployment, Json
from tests.kube.e2e.objects import condition, furnished, job
from tests.kube.e2e.seeing import becomes, has
from tests.support.defects import DefectError, raises_if, swapped
from tests.support.waiting import until

import headgate.machines.binder.workload_statuses as statuses
from headgate.adapters.kubernetes.resources import EVENTS, JOBS, WORKLOADS
from headgate.core.fold.quarantine import QUARANTINED, RETRY

pytestmark = [pytest.mark.anyio, pytest.mark.kube]


async def test_the_cluster_is_told_what_is_set_aside_until_it_is_back(deployment: Deployment) -> None:
    """The condition is accepted with its words and goes with the quarantine; the other job does not wait for it."""
    team = deployment.fresh("team")
    async with deployment.cell(team) as cell:
        with swapped(statuses, "workload_status", raises_if(lambda _, it: it.key.startswith(f"{team}/job-bad-"))):
            await deployment.apply(*furnished(team), job(team, "bad"), job(team, "good"))
            await becomes(deployment, JOBS, "good", team, has("Complete"))
            names = [each["metadata"]["name"] for each in await deployment.all(WORKLOADS, team)]
            (name,) = [each for each in names if each.startswith("job-bad-")]
            shown = await becomes(deployment, WORKLOADS, name, team, has(QUARANTINED))
            assert condition(shown, QUARANTINED) == ("True", "DefectFound")
            (message,) = [each["message"] for each in shown["status"]["conditions"] if each["type"] == QUARANTINED]
            assert f"{DefectError.__name__}: planted" in message

            async def told() -> bool:
                return {"Workload", "Job"} <= {kind_told_of(each) for each in await deployment.all(EVENTS, team)}

            await until(told)
            assert all(runner.status.report().ready for runner in cell.runners.values())
            assert {runner.status.report().quarantined for runner in cell.runners.values()} == {1}
        await deployment.merge(WORKLOADS, name, team, {"metadata": {"annotations": {RETRY: "mended"}}})
        await becomes(deployment, JOBS, "bad", team, has("Complete"))
        await becomes(deployment, WORKLOADS, name, team, lambda found: condition(found, QUARANTINED) == ("", ""))
        assert cell.holds(lambda state: not state.quarantine)


def kind_told_of(event: Json) -> str:
    """The kind of the object that is set aside by an Event; "" for another Event."""
    kind: str = event["involvedObject"]["kind"] if event["reason"] == "Quarantined" else ""
    return kind
