"""Jobs that name their Workload, and jobs below others, on a real control plane."""

from typing import Any

import msgspec
import pytest
from tests.kube.e2e.cells import KUEUE, Deployment, Json
from tests.kube.e2e.objects import condition, furnished, job
from tests.kube.e2e.seeing import becomes, has, workload_of
from tests.kube.e2e.test_admission import configured
from tests.support.waiting import until

from headgate.adapters.kubernetes.resources import CLUSTER_QUEUES, EVENTS, JOBS, OF_JOBS, WORKLOADS, Resource
from headgate.testing.control_plane.operators import define

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

LONG_MS = 600_000
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"


def workload(team: str, of: Json) -> Json:
    """A Workload for a job, made by somebody else."""
    spec = of["spec"]
    pod_set = {"name": "main", "count": spec["parallelism"], "template": spec["template"]}
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": "made", "namespace": team},
        "spec": {"queueName": "main", "podSets": [pod_set]},
    }


async def create(deployment: Deployment, obj: Json) -> None:
    await deployment.plane.kubectl("create", "-f", "-", stdin=msgspec.json.encode(obj).decode())


async def test_a_job_waits_for_the_workload_that_it_names_and_runs_by_it(deployment: Deployment) -> None:
    """It becomes its controlling owner, beside the owners that it has; their end is one, and so are their pods."""
    team = deployment.fresh("team")
    async with deployment.cell(team):
        await deployment.apply(*furnished(team))
        given = job(team, "train", run_ms=LONG_MS, cpu="100m", suspend=False, labels={PREBUILT: "made"})
        given["spec"]["completions"] = 3
        await create(deployment, given)
        await becomes(deployment, JOBS, "train", team, lambda found: found["spec"]["suspend"])
        assert await deployment.all(WORKLOADS, team) == []

        built = workload(team, given)
        queue = await deployment.get(CLUSTER_QUEUES, team)
        owner = {"apiVersion": KUEUE, "kind": "ClusterQueue", "name": team, "uid": queue["metadata"]["uid"]}
        built["metadata"]["ownerReferences"] = [owner]
        await create(deployment, built)
        await becomes(deployment, JOBS, "train", team, lambda found: found.get("status", {}).get("ready") == 1)
        found = await workload_of(deployment, team, has("Admitted"))
        uid = (await deployment.get(JOBS, "train", team))["metadata"]["uid"]
        assert found["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] == uid
        owners: Any = {each["kind"]: each.get("controller", False) for each in found["metadata"]["ownerReferences"]}
        assert owners == {"ClusterQueue": False, "Job": True}

        await deployment.merge(JOBS, "train", team, {"spec": {"parallelism": 2}})
        ended = await workload_of(deployment, team, has("Finished"))
        assert condition(ended, "Finished") == ("True", "OutOfSync")
        await becomes(deployment, JOBS, "train", team, lambda found: found["spec"]["suspend"])


async def test_a_job_below_one_that_waits_is_suspended(deployment: Deployment) -> None:
    """Whoever has resumed it, and though it names no queue itself; it gets no Workload."""
    team, job_sets = deployment.fresh("team"), OF_JOBS["jobsets"]
    await define(deployment.plane, "jobset")
    with configured(integrations={"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]}) as bridge:
        async with deployment.cell(team, bridge=bridge):
            queues = furnished(team)
            queues[2]["spec"]["stopPolicy"] = "Hold"
            await deployment.apply(*queues)
            below = job(team, "train-w-0", run_ms=LONG_MS, cpu="100m", suspend=False)
            below["metadata"]["labels"] = {}
            replicated = {"name": "w", "template": {"spec": below["spec"]}}
            labels = {"kueue.x-k8s.io/queue-name": "main"}
            above = {
                "apiVersion": job_sets.api_version,
                "kind": "JobSet",
                "metadata": {"name": "train", "namespace": team, "labels": labels},
                "spec": {"suspend": True, "replicatedJobs": [replicated]},
            }
            await create(deployment, above)
            await workload_of(deployment, team, has("QuotaReserved", "False"))
            uid = (await deployment.get(job_sets, "train", team))["metadata"]["uid"]
            owner = {
                "apiVersion": job_sets.api_version,
                "kind": "JobSet",
                "name": "train",
                "uid": uid,
                "controller": True,
            }
            below["metadata"]["ownerReferences"] = [owner]
            await create(deployment, below)
            await becomes(deployment, JOBS, "train-w-0", team, lambda found: found["spec"]["suspend"])
            await workload_of(deployment, team)
            await deployment.merge(CLUSTER_QUEUES, team, None, {"spec": {"stopPolicy": "None"}})
            await becomes(deployment, job_sets, "train", team, lambda found: found["spec"]["suspend"] is False)
            await deployment.merge(JOBS, "train-w-0", team, {"spec": {"suspend": False}})

            async def runs() -> bool:
                return bool((await deployment.get(JOBS, "train-w-0", team)).get("status", {}).get("active"))

            await until(runs)
            found = await deployment.get(JOBS, "train-w-0", team)
            assert found["spec"]["suspend"] is False


async def owner(deployment: Deployment, resource: Resource, team: str, name: str) -> Json:
    """The reference by which an object controls another."""
    found = await deployment.get(resource, name, team)
    made = {"apiVersion": resource.api_version, "kind": resource.kind, "name": name, "controller": True}
    return {**made, "uid": found["metadata"]["uid"]}


async def test_owners_are_followed_through_what_names_no_queue(deployment: Deployment) -> None:
    """Through a ReplicaSet, which the bridge may only read; and no further than Kueue follows them."""
    team = deployment.fresh("team")
    sets = msgspec.structs.replace(JOBS, group="apps", plural="replicasets", kind="ReplicaSet")
    async with deployment.cell(team):
        queues = furnished(team)
        queues[2]["spec"]["stopPolicy"] = "Hold"
        await deployment.apply(*queues)
        await create(deployment, job(team, "top", run_ms=LONG_MS, cpu="100m"))
        await workload_of(deployment, team, has("QuotaReserved", "False"))
        labels = {"matchLabels": {"app": "none"}}
        template = {"metadata": {"labels": {"app": "none"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"replicas": 0, "selector": labels, "template": template}
        meta = {"name": "between", "namespace": team, "ownerReferences": [await owner(deployment, JOBS, team, "top")]}
        await create(deployment, {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": spec})
        low = job(team, "low", run_ms=LONG_MS, cpu="100m", suspend=False)
        low["metadata"]["ownerReferences"] = [await owner(deployment, sets, team, "between")]
        await create(deployment, low)
        await becomes(deployment, JOBS, "low", team, lambda found: found["spec"]["suspend"])
        await workload_of(deployment, team)

        above = "low"
        for number in range(9):
            nested = job(team, f"deep-{number}", cpu="100m")
            nested["metadata"]["labels"] = {}
            nested["metadata"]["ownerReferences"] = [await owner(deployment, JOBS, team, above)]
            above = nested["metadata"]["name"]
            if number == 8:
                nested["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "main"}
            await create(deployment, nested)

        async def is_told() -> bool:
            events = await deployment.all(EVENTS, team)
            return any(
                each["reason"] == "JobNestingTooDeep" and each["involvedObject"]["name"] == above for each in events
            )

        await until(is_told)
        await workload_of(deployment, team)
