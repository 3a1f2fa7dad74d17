"""All six processes, each with its own token, on a real control plane: what users do, and what they then see."""

from collections.abc import Callable

import msgspec
import pytest
from tests.kube.e2e.cells import Cell, Deployment, Json
from tests.kube.e2e.checks import active, answer, check, check_state
from tests.kube.e2e.objects import cluster_queue, condition, flavor, furnished, is_true, job, local_queue, namespace
from tests.kube.e2e.seeing import becomes, has, workload_of
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import Propagation
from headgate.adapters.kubernetes.resources import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, PODS, WORKLOADS

pytestmark = [pytest.mark.anyio, pytest.mark.kube]


def is_quiet(team: str) -> Callable[[Cell], bool]:
    """Nothing of a ClusterQueue holds quota."""
    return lambda cell: cell.holds(lambda state: not any(state.index.usage.get(team, {}).values()))


async def test_jobs_run_within_their_quota_to_their_end(deployment: Deployment) -> None:
    """Four Jobs, quota for two: each runs, never more than two at once, and all tables read as with Kueue."""
    team = deployment.fresh("team")
    async with deployment.cell(team) as cell:
        await deployment.apply(*furnished(team), *(job(team, f"j{n}") for n in range(4)))
        for n in range(4):
            await becomes(deployment, JOBS, f"j{n}", team, has("Complete"))
        await until(lambda: is_quiet(team)(cell))

        async def all_finished() -> bool:
            return all(is_true(each, "Finished") for each in await deployment.all(WORKLOADS, team))

        await until(all_finished)
        shown = await becomes(deployment, CLUSTER_QUEUES, team, None, lambda found: not _count(found))
        assert condition(shown, "Active") == ("True", "Ready")
        table = (await deployment.plane.kubectl("get", "workloads", "-n", team)).stdout.splitlines()
        assert table[0].split() == ["NAME", "QUEUE", "RESERVED", "IN", "ADMITTED", "FINISHED", "AGE"]
        assert len(table) == 5
        assert all(line.split()[1:5] == ["main", team, "True", "True"] for line in table[1:])
        (queue,) = (await deployment.plane.kubectl("get", "clusterqueues", team, "--no-headers")).stdout.splitlines()
        assert queue.split() == [team, "0"]


def _count(found: Json) -> int:
    status = found.get("status", {})
    return sum(status.get(key, 1) for key in ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads"))


async def test_a_flavor_is_injected_and_an_eviction_gives_the_template_back(deployment: Deployment) -> None:
    """Admission adds the flavor's labels and tolerations; deactivation stops the Job; reactivation runs it again."""
    team = deployment.fresh("team")
    spot = flavor(team, nodeLabels={"tier": "spot"}, tolerations=[{"key": "spot", "operator": "Exists"}])
    await deployment.plane.kubectl("label", "node", "--all", "tier=spot", "--overwrite")
    async with deployment.cell(team):
        await deployment.apply(namespace(team), spot, cluster_queue(team, team), local_queue(team, team))
        await deployment.apply(job(team, "train", run_ms=600_000))
        running = await becomes(deployment, JOBS, "train", team, lambda found: found["status"].get("ready"))
        template = running["spec"]["template"]
        assert template["spec"]["nodeSelector"] == {"tier": "spot"}
        assert {"key": "spot", "operator": "Exists"} in template["spec"]["tolerations"]
        workload = await workload_of(deployment, team, has("Admitted"))
        name = workload["metadata"]["name"]
        await deployment.merge(WORKLOADS, name, team, {"spec": {"active": False}})
        # Suspended first; the template may change once no pod is left of it.
        await becomes(
            deployment,
            JOBS,
            "train",
            team,
            lambda found: found["spec"]["suspend"],
            lambda found: not {"nodeSelector", "tolerations"} & found["spec"]["template"]["spec"].keys(),
        )
        evicted = await workload_of(deployment, team, has("Evicted"), has("QuotaReserved", "False"))
        assert condition(evicted, "Evicted") == ("True", "Deactivated")
        assert "admission" not in evicted["status"]
        assert await deployment.all(PODS, team) == []
        await deployment.merge(WORKLOADS, name, team, {"spec": {"active": True}})
        await becomes(deployment, JOBS, "train", team, lambda found: found["status"].get("ready"))


async def test_a_stopped_cluster_queue_drains_and_goes_on(deployment: Deployment) -> None:
    """HoldAndDrain stops what runs; None lets it run again."""
    team = deployment.fresh("team")
    async with deployment.cell(team):
        await deployment.apply(*furnished(team), job(team, "train", run_ms=600_000))
        await becomes(deployment, JOBS, "train", team, lambda found: found["status"].get("ready"))
        await deployment.merge(CLUSTER_QUEUES, team, None, {"spec": {"stopPolicy": "HoldAndDrain"}})
        await becomes(deployment, JOBS, "train", team, lambda found: found["spec"]["suspend"])
        await becomes(deployment, CLUSTER_QUEUES, team, None, has("Active", "False", "Stopped"))
        await workload_of(deployment, team, has("Evicted", "True", "ClusterQueueStopped"))
        await deployment.merge(CLUSTER_QUEUES, team, None, {"spec": {"stopPolicy": "None"}})
        await becomes(deployment, JOBS, "train", team, lambda found: found["status"].get("ready"))


async def test_an_admission_check_is_waited_for_retried_and_final(deployment: Deployment) -> None:
    """Retry evicts and the check starts again, Ready admits, Rejected deactivates."""
    team = deployment.fresh("team")
    queue = furnished(team, admissionChecksStrategy={"admissionChecks": [{"name": team}]})
    async with deployment.cell(team):
        await deployment.apply(check(team), *queue)
        await becomes(deployment, CLUSTER_QUEUES, team, None, has("Active", "False"))
        await active(deployment, team)
        await deployment.apply(job(team, "train", run_ms=600_000))
        waiting = await workload_of(
            deployment, team, has("QuotaReserved"), lambda found: check_state(found) == "Pending"
        )
        assert (await deployment.get(JOBS, "train", team))["spec"]["suspend"] is True
        await answer(deployment, waiting, "Retry")
        again = await workload_of(
            deployment,
            team,
            lambda found: found["status"].get("requeueState") or found["status"].get("schedulingStats"),
            has("QuotaReserved"),
            lambda found: check_state(found) == "Pending",
        )
        await answer(deployment, again, "Ready")
        await becomes(deployment, JOBS, "train", team, lambda found: found["status"].get("ready"))
        running = await workload_of(deployment, team, has("Admitted"))
        await answer(deployment, running, "Rejected")
        final = await workload_of(deployment, team, lambda found: not found["spec"]["active"], has("Evicted"))
        assert condition(final, "Evicted")[1].startswith("Deactivated")
        await becomes(deployment, JOBS, "train", team, lambda found: found["spec"]["suspend"])


async def test_a_job_that_fails_says_so_in_its_workload(deployment: Deployment) -> None:
    """The Workload is Finished with the reason Failed, and the quota is free."""
    team = deployment.fresh("team")
    async with deployment.cell(team) as cell:
        await deployment.apply(*furnished(team), job(team, "train", exit_code=3))
        await becomes(deployment, JOBS, "train", team, has("Failed"))
        await workload_of(deployment, team, has("Finished", "True", "Failed"))
        await until(lambda: is_quiet(team)(cell))


async def test_a_job_that_was_created_running_is_suspended_until_its_turn(deployment: Deployment) -> None:
    """A Job without suspend does not bypass the queue."""
    team = deployment.fresh("team")
    async with deployment.cell(team):
        await deployment.apply(*furnished(team, cpu="1"), job(team, "first", run_ms=600_000))
        await becomes(deployment, JOBS, "first", team, lambda found: found["status"].get("ready"))
        await deployment.apply(job(team, "second", suspend=False))
        await becomes(deployment, JOBS, "second", team, lambda found: found["spec"]["suspend"])
        await deployment.client.delete(JOBS, "first", team, propagation=Propagation.BACKGROUND)
        await becomes(deployment, JOBS, "second", team, has("Complete"))


async def test_what_makes_no_sense_becomes_a_condition(deployment: Deployment) -> None:
    """Missing flavors and queues are reported in conditions, which clear when they are created."""
    team = deployment.fresh("team")
    async with deployment.cell(team):
        await deployment.apply(namespace(team), local_queue(team, team), job(team, "train"))
        await becomes(deployment, LOCAL_QUEUES, "main", team, has("Active", "False", "ClusterQueueDoesNotExist"))
        workload = await workload_of(deployment, team, has("QuotaReserved", "False"))
        assert "ClusterQueue" in msgspec.json.encode(workload["status"]["conditions"]).decode()
        await deployment.apply(cluster_queue(team, team))
        await becomes(deployment, CLUSTER_QUEUES, team, None, has("Active", "False", "FlavorNotFound"))
        await deployment.apply(flavor(team))
        await becomes(deployment, JOBS, "train", team, has("Complete"))
        await becomes(deployment, CLUSTER_QUEUES, team, None, has("Active", "True", "Ready"))
        await workload_of(deployment, team, has("Finished", "True", "Succeeded"))


async def test_a_deleted_job_takes_its_workload_along_and_its_quota_is_free(deployment: Deployment) -> None:
    """The garbage collector deletes the Workload; its finalizer does not hold it for ever."""
    # Last in this file: a garbage collector looks for new kinds of objects every 30 s.
    team = deployment.fresh("team")
    async with deployment.cell(team) as cell:
        await deployment.apply(*furnished(team), job(team, "train", run_ms=600_000))
        await becomes(deployment, JOBS, "train", team, lambda found: found["status"].get("ready"))
        await deployment.client.delete(JOBS, "train", team, propagation=Propagation.BACKGROUND)

        async def gone() -> bool:
            return not await deployment.all(WORKLOADS, team) and not await deployment.all(PODS, team)

        await until(gone)
        await until(lambda: is_quiet(team)(cell))


async def test_a_deleted_workload_of_a_waiting_job_is_made_anew_after_a_restart(deployment: Deployment) -> None:
    """A Headgate that continues from its log has not read the Job itself; the new Workload is whole all the same."""
    team = deployment.fresh("team")
    async with deployment.cell(team) as cell:
        await deployment.apply(*furnished(team, stopPolicy="Hold"), job(team, "train"))
        first = await workload_of(deployment, team)
        versions = {"jobs": await deployment.get(JOBS, "train", team), "workloads": first}

        def is_marked() -> bool:
            marks = cell.state.resource_versions if cell.state is not None else {}
            return all(
                int(marks.get(plural, 0)) >= int(found["metadata"]["resourceVersion"])
                for plural, found in versions.items()
            )

        await until(is_marked)
    async with deployment.cell(team):
        await deployment.client.delete(WORKLOADS, first["metadata"]["name"], team)
        again = await workload_of(deployment, team, lambda found: found["metadata"]["uid"] != first["metadata"]["uid"])
        assert again["spec"]["podSets"] == first["spec"]["podSets"]
        assert again["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["image"] == "registry/train:1"
