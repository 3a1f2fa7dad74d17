"""
Jobs that change while they run, on a real control plane: scaled, moved to a better flavor, in turn by what was used.

Jobs ask for a tenth of a CPU, so that the nodes have room for all of them beside those of other tests.
"""

from typing import Any

import pytest
from tests.kube.e2e.cells import Deployment, Json
from tests.kube.e2e.objects import cluster_queue, condition, flavor, furnished, is_true, local_queue, namespace
from tests.kube.e2e.seeing import becomes, has
from tests.kube.e2e.test_admission import configured, empty, of_class, priority, reasons, runs, small, waits
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import Propagation
from headgate.adapters.kubernetes.resources import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, NODES, PODS, WORKLOADS
from headgate.core.api.job_kinds import BATCH_JOB
from headgate.core.workload.names import workload_name
from headgate.processes.runtime.settings import BinderSettings

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

ELASTIC = "kueue.x-k8s.io/elastic-job"
ALLOWED = "kueue.x-k8s.io/workload-allowed-resource-flavors"
GATE = "kueue.x-k8s.io/concurrent-admission"
CONCURRENTLY = {"ConcurrentAdmission": True}


async def gone(deployment: Deployment, team: str, job_name: str) -> None:
    """Delete a Job with all that is its own."""
    await deployment.client.delete(JOBS, job_name, team, propagation=Propagation.BACKGROUND)


# --- elastic Jobs --------------------------------------------------------------------------------------------------


def elastic(team: str, name: str, pods: int) -> Json:
    """An elastic Job whose pods run until they are deleted."""
    made = small(team, name, pods=pods, annotations={ELASTIC: "true"})
    made["spec"]["completions"] = 20
    return made


async def scale(deployment: Deployment, team: str, name: str, pods: int) -> None:
    await deployment.merge(JOBS, name, team, {"spec": {"parallelism": pods}})


async def gated(deployment: Deployment, team: str, name: str) -> list[bool]:
    """Of each pod of a Job that is not on its way out, whether it waits behind the gate."""
    found = [
        each
        for each in await deployment.all(PODS, team)
        if each["metadata"]["labels"].get("batch.kubernetes.io/job-name") == name
        and "deletionTimestamp" not in each["metadata"]
    ]
    return sorted(any(gate["name"] == ELASTIC for gate in each["spec"].get("schedulingGates", ())) for each in found)


async def unfinished(deployment: Deployment, team: str, job_name: str) -> list[Json]:
    """A Job's Workloads that are not finished, those that hold quota first."""
    found = [
        each
        for each in await deployment.all(WORKLOADS, team)
        if each["metadata"]["ownerReferences"][0]["name"] == job_name and not is_true(each, "Finished")
    ]
    return sorted(found, key=lambda each: not is_true(each, "QuotaReserved"))


async def test_new_pods_wait_behind_their_gate_until_their_slice_fits(deployment: Deployment) -> None:
    """Scaled up beyond the quota a Job runs on in its old size; once there is room the slice takes its place."""
    team = deployment.fresh("team")
    async with deployment.cell(team):
        await deployment.apply(*furnished(team, cpu="400m"), small(team, "other"), elastic(team, "train", 2))
        await runs(deployment, team, "other")
        train = await runs(deployment, team, "train", 2)
        (old,) = await unfinished(deployment, team, "train")
        await scale(deployment, team, "train", 4)

        async def are_gated() -> bool:
            return await gated(deployment, team, "train") == [False, False, True, True]

        await until(are_gated)

        async def both() -> bool:
            found = await unfinished(deployment, team, "train")
            return [is_true(each, "QuotaReserved") for each in found] == [True, False] and bool(
                condition(found[1], "QuotaReserved")[1]
            )

        await until(both)
        running, waiting = await unfinished(deployment, team, "train")
        assert running["metadata"]["uid"] == old["metadata"]["uid"]
        scaled = await deployment.get(JOBS, "train", team)
        uid, generation = train["metadata"]["uid"], scaled["metadata"]["generation"]
        assert waiting["metadata"]["name"] == workload_name(BATCH_JOB.ref(team, "train"), uid, generation)
        annotations = waiting["metadata"]["annotations"]
        assert annotations["kueue.x-k8s.io/workload-slice-replacement-for"] == f"{team}/{old['metadata']['name']}"
        assert annotations["kueue.x-k8s.io/workload-slice-name"] == old["metadata"]["name"]
        (why,) = [each for each in waiting["status"]["conditions"] if each["type"] == "QuotaReserved"]
        assert why["message"].endswith(f"insufficient unused quota for cpu in flavor {team}, 100m more needed")
        await gone(deployment, team, "other")
        await runs(deployment, team, "train", 4)
        assert await gated(deployment, team, "train") == [False] * 4
        done = has("Finished", "True", "WorkloadSliceReplaced")
        await becomes(deployment, WORKLOADS, old["metadata"]["name"], team, done)
        (left,) = await unfinished(deployment, team, "train")
        assert left["metadata"]["uid"] == waiting["metadata"]["uid"]


async def test_a_job_that_is_scaled_down_keeps_its_workload_and_makes_room(deployment: Deployment) -> None:
    """Its Workload is edited in place; what it gave back goes to the next, and to itself when it grows again."""
    team = deployment.fresh("team")
    async with deployment.cell(team):
        await deployment.apply(*furnished(team, cpu="300m"), elastic(team, "train", 3))
        await runs(deployment, team, "train", 3)
        (before,) = await unfinished(deployment, team, "train")
        await deployment.apply(small(team, "next", pods=2))
        await waits(deployment, team, "next")
        await scale(deployment, team, "train", 1)
        await runs(deployment, team, "next", 2)
        await runs(deployment, team, "train", 1)
        (after,) = await unfinished(deployment, team, "train")
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert [each["count"] for each in after["spec"]["podSets"]] == [1]

        def shows(found: Json) -> bool:
            status = found["status"]
            (flavor,) = status["flavorsUsage"]
            (cpu,) = flavor["resources"]
            return (cpu["total"], status["admittedWorkloads"]) == ("300m", 2)

        await becomes(deployment, CLUSTER_QUEUES, team, None, shows)
        await gone(deployment, team, "next")
        await scale(deployment, team, "train", 3)
        await runs(deployment, team, "train", 3)
        assert await gated(deployment, team, "train") == [False] * 3
        (grown,) = await unfinished(deployment, team, "train")
        assert grown["metadata"]["uid"] != before["metadata"]["uid"]


# --- every flavor at once -------------------------------------------------------------------------------------------


async def concurrent(deployment: Deployment, team: str, preemption: str = "Never", **migration: Any) -> list[Json]:
    """
    Flavors `<team>-best` and `<team>-good`, a tenth of a CPU in each, and a queue that tries both at once.

    The nodes have the labels that the flavors ask for, every node those of both.
    """
    names = [f"{team}-best", f"{team}-good"]
    for node in await deployment.all(NODES):
        labels = {f"flavor/{name}": "yes" for name in names}
        await deployment.merge(NODES, node["metadata"]["name"], None, {"metadata": {"labels": labels}})
    quotas = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": "100m"}]} for name in names]
    queue = cluster_queue(team, names[0], preemption={"withinClusterQueue": preemption})
    queue["spec"]["resourceGroups"] = [{"coveredResources": ["cpu"], "flavors": quotas}]
    queue["spec"]["concurrentAdmissionPolicy"] = {"migration": {"mode": "TryPreferredFlavors", **migration}}
    flavors = [flavor(name, nodeLabels={f"flavor/{name}": "yes"}) for name in names]
    return [namespace(team), *flavors, queue, local_queue(team, team)]


async def family(deployment: Deployment, team: str, job_name: str) -> tuple[Json, dict[str, Json]]:
    """A Job's Workload, and its variants by the last word of their flavors."""
    found = await deployment.all(WORKLOADS, team)
    (parent,) = [each for each in found if each["metadata"]["ownerReferences"][0]["name"] == job_name]
    uid = parent["metadata"]["uid"]
    mine = [each for each in found if each["metadata"]["ownerReferences"][0]["uid"] == uid]
    return parent, {each["metadata"]["annotations"][ALLOWED].rpartition("-")[2]: each for each in mine}


async def active(deployment: Deployment, team: str, job_name: str) -> dict[str, bool]:
    """Which variants of a Job are pending, or run."""
    members = (await family(deployment, team, job_name))[1]
    return {name: each["spec"].get("active", True) for name, each in members.items()}


async def runs_on(deployment: Deployment, team: str, job_name: str, flavor: str) -> Json:
    """Wait until a Job's pods run with a flavor's node selector."""
    selector = {f"flavor/{team}-{flavor}": "yes"}
    return await becomes(
        deployment,
        JOBS,
        job_name,
        team,
        lambda found: found["status"].get("ready") == 1,
        lambda found: found["spec"]["template"]["spec"].get("nodeSelector") == selector,
    )


def flavor_in(found: Json) -> str:
    """The last word of the flavor that a Job's pods run with."""
    (label,) = found["spec"]["template"]["spec"]["nodeSelector"]
    return str(label).rpartition("-")[2]


async def test_a_job_moves_to_a_better_flavor_that_becomes_free(deployment: Deployment) -> None:
    """It takes what fits first, and stays in line for the better one; its queue counts each Job once."""
    team = deployment.fresh("team")
    with configured(featureGates=CONCURRENTLY) as bridge:
        async with deployment.cell(team, bridge=bridge, binder=BinderSettings(events="all")):
            await deployment.apply(*await concurrent(deployment, team), small(team, "first"))
            await runs_on(deployment, team, "first", "best")
            parent, members = await family(deployment, team, "first")
            assert parent["metadata"]["labels"]["kueue.x-k8s.io/concurrent-admission-parent"] == "true"
            assert parent["status"]["admission"] == members["best"]["status"]["admission"]
            assert members["good"]["spec"]["preemptionGates"] == [{"name": GATE}]
            await deployment.apply(small(team, "second"))
            await runs_on(deployment, team, "second", "good")
            assert await active(deployment, team, "second") == {"best": True, "good": True}

            def counts_jobs(found: Json) -> bool:
                shown = found["status"]
                return (shown["admittedWorkloads"], shown["reservingWorkloads"], shown["pendingWorkloads"]) == (2, 2, 1)

            await becomes(deployment, CLUSTER_QUEUES, team, None, counts_jobs)
            await becomes(deployment, LOCAL_QUEUES, "main", team, counts_jobs)
            await gone(deployment, team, "first")
            await runs_on(deployment, team, "second", "best")
            parent, members = await family(deployment, team, "second")
            assert is_true(parent, "Admitted")
            assert is_true(members["best"], "Admitted")
            assert condition(members["good"], "Evicted")[1] in {"FlavorMigration", "Deactivated"}
            assert await active(deployment, team, "second") == {"best": True, "good": False}

            async def is_told() -> bool:
                about_parent = await reasons(deployment, team, parent["metadata"]["name"])
                about_good = await reasons(deployment, team, members["good"]["metadata"]["name"])
                return "CreatedVariant" in about_parent and "DeactivatedVariant" in about_good

            await until(is_told)


async def test_a_job_stays_where_it_was_admitted_first(deployment: Deployment) -> None:
    """RetainFirstAdmission: once it runs nothing else is tried, and what becomes free goes to the next Job."""
    team = deployment.fresh("team")
    with configured(featureGates=CONCURRENTLY) as bridge:
        async with deployment.cell(team, bridge=bridge):
            await deployment.apply(*await concurrent(deployment, team, mode="RetainFirstAdmission"))
            await deployment.apply(small(team, "first"), small(team, "second"))
            running = [await runs(deployment, team, name) for name in ("first", "second")]
            ahead, stays = sorted(running, key=lambda each: flavor_in(each) != "best")
            assert (flavor_in(ahead), flavor_in(stays)) == ("best", "good")

            async def others_are_off() -> bool:
                return await active(deployment, team, stays["metadata"]["name"]) == {"best": False, "good": True}

            await until(others_are_off)
            await gone(deployment, team, ahead["metadata"]["name"])
            await deployment.apply(small(team, "third"))
            await runs_on(deployment, team, "third", "best")
            again = await runs_on(deployment, team, stays["metadata"]["name"], "good")
            assert again["status"]["startTime"] == stays["status"]["startTime"]


async def test_a_family_preempts_in_its_best_flavor_only(deployment: Deployment) -> None:
    """One gate is opened, and who runs in the other flavor is left alone; variants show that their pods are ready."""
    team = deployment.fresh("team")
    waits_for_pods = {"timeout": "10m", "blockAdmission": True}
    with configured(featureGates=CONCURRENTLY, waitForPodsReady=waits_for_pods) as bridge:
        async with deployment.cell(team, bridge=bridge):
            await empty(deployment)
            await deployment.apply(*await concurrent(deployment, team, "LowerPriority", mode="RetainFirstAdmission"))
            await deployment.apply(priority(f"{team}-high", 1000), small(team, "first"), small(team, "second"))
            running = [await runs(deployment, team, name) for name in ("first", "second")]
            (yields, stays) = (each["metadata"]["name"] for each in sorted(running, key=flavor_in))
            _, members = await family(deployment, team, stays)
            good = members["good"]["metadata"]["name"]
            await becomes(deployment, WORKLOADS, good, team, has("PodsReady", "True", "Started"))
            await deployment.apply(small(team, "urgent", labels=of_class(f"{team}-high")))
            await runs_on(deployment, team, "urgent", "best")
            await waits(deployment, team, yields)
            await runs_on(deployment, team, stays, "good")
            _, members = await family(deployment, team, "urgent")
            opened = [
                name
                for name, each in members.items()
                if any(gate["position"] == "Open" for gate in each["status"].get("preemptionGates", ()))
            ]
            assert opened == ["best"]


# --- in turn by what was used ---------------------------------------------------------------------------------------


async def test_who_has_used_less_goes_first(deployment: Deployment) -> None:
    """Of two LocalQueues that wait the one that has used nothing is served first, though it came last."""
    team = deployment.fresh("team")
    fair = {"usageHalfLifeTime": "10m", "usageSamplingInterval": "1s"}
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    with configured(admissionFairSharing=fair) as bridge:
        async with deployment.cell(team, bridge=bridge):
            queue = cluster_queue(team, team, cpu="100m", admissionScope=scope)
            names = [local_queue(team, team, "greedy"), local_queue(team, team, "modest")]
            await deployment.apply(namespace(team), flavor(team), queue, *names)
            await deployment.apply(small(team, "greedy-0", queue="greedy"))
            await runs(deployment, team, "greedy-0")
            greedy = await becomes(deployment, LOCAL_QUEUES, "greedy", team, lambda found: bool(consumed(found)))
            assert greedy["status"]["fairSharing"]["admissionFairSharingStatus"]["lastUpdate"]
            await deployment.apply(small(team, "greedy-1", queue="greedy"))
            await waits(deployment, team, "greedy-1")
            await deployment.apply(small(team, "modest-0", queue="modest"))
            await waits(deployment, team, "modest-0")
            # Both are in the queue before there is room: otherwise the first to arrive is admitted.
            for name in ("greedy", "modest"):
                await becomes(deployment, LOCAL_QUEUES, name, team, lambda found: pending(found) == 1)
            assert not consumed(await deployment.get(LOCAL_QUEUES, "modest", team))
            await gone(deployment, team, "greedy-0")
            await runs(deployment, team, "modest-0")
            await waits(deployment, team, "greedy-1")
            await becomes(deployment, LOCAL_QUEUES, "modest", team, lambda found: bool(consumed(found)))
            await gone(deployment, team, "modest-0")
            await runs(deployment, team, "greedy-1")


def pending(found: Json) -> int:
    """How many workloads are pending in a LocalQueue's status."""
    count: int = found.get("status", {}).get("pendingWorkloads", 0)
    return count


def consumed(found: Json) -> dict[str, str]:
    """The recent usage in a LocalQueue's status."""
    shown = found.get("status", {}).get("fairSharing", {}).get("admissionFairSharingStatus", {})
    resources: dict[str, str] = shown.get("consumedResources", {})
    return resources
