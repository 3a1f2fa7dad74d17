"""Jobs that users and other controllers change, on a real control plane: nobody gets past the queue."""

from typing import Any

import msgspec
import pytest
from tests.kube.e2e.cells import NAMESPACE, Deployment, Json
from tests.kube.e2e.objects import condition, flavor, furnished, job
from tests.kube.e2e.seeing import becomes, has, workload_of
from tests.kube.e2e.test_admission import of_class, priority, runs, small, waits, workload_of_job
from tests.kube.policies import in_effect
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import Propagation
from headgate.adapters.kubernetes.resources import (
    CLUSTER_QUEUES,
    JOBS,
    PODS,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
)
from headgate.core.admission.settings import AdmissionSettings
from headgate.processes.webhook.installing import Way, objects

pytestmark = [pytest.mark.anyio, pytest.mark.kube]


async def restored(deployment: Deployment, team: str, name: str, made: Json) -> None:
    """Wait until a Job is stopped and its spec is that with which it was created, to the letter."""
    await becomes(deployment, JOBS, name, team, lambda found: found["spec"] == made)


async def is_free(deployment: Deployment, team: str) -> None:
    """Wait until nothing is admitted in a team's ClusterQueue."""
    await becomes(deployment, CLUSTER_QUEUES, team, None, lambda found: found["status"].get("admittedWorkloads") == 0)


async def hold(deployment: Deployment, team: str, policy: str = "Hold") -> None:
    await deployment.merge(CLUSTER_QUEUES, team, None, {"spec": {"stopPolicy": policy}})


async def waiting(deployment: Deployment, team: str, name: str) -> Json:
    """Wait until a Job's Workload has been tried in vain; the Workload."""
    found: list[Json] = []

    async def holds() -> bool:
        nonlocal found
        found = [
            each
            for each in await deployment.all(WORKLOADS, team)
            if each["metadata"]["ownerReferences"][0]["name"] == name
        ]
        return len(found) == 1 and condition(found[0], "QuotaReserved")[0] == "False"

    await until(holds, lambda: f"the Workload of {name}: {found}")
    return found[0]


async def write(deployment: Deployment, workload: Json, **changed: str) -> None:
    """Set the status of conditions as `kubectl edit --subresource=status` does."""
    conditions = [
        {**each, "status": changed.get(each["type"], each["status"])}
        | ({"reason": "ByHand", "message": "by hand"} if each["type"] in changed else {})
        for each in workload["status"]["conditions"]
    ]
    name, team = workload["metadata"]["name"], workload["metadata"]["namespace"]
    await deployment.merge(WORKLOADS, name, team, {"status": {"conditions": conditions}}, subresource="status")


async def test_a_changed_priority_class_changes_who_preempts_whom(deployment: Deployment) -> None:
    """The class of the one that waits is raised above that of the one that runs, and made anew below it."""
    team = deployment.fresh("team")
    low, high = f"{team}-low", f"{team}-high"
    queue = furnished(team, cpu="100m", preemption={"withinClusterQueue": "LowerPriority"})
    async with deployment.cell(team):
        await deployment.apply(priority(low, 1), priority(high, 10), *queue)
        await deployment.apply(small(team, "holder", labels=of_class(high)))
        await runs(deployment, team, "holder")
        await deployment.apply(small(team, "waiter", labels=of_class(low)))
        await waiting(deployment, team, "waiter")
        await deployment.apply(priority(low, 1000))
        await runs(deployment, team, "waiter")
        await waits(deployment, team, "holder")
        assert (await workload_of_job(deployment, team, "waiter"))["spec"]["priority"] == 1000
        await deployment.client.delete(WORKLOAD_PRIORITY_CLASSES, low)
        await deployment.apply(priority(low, 2))
        await runs(deployment, team, "holder")
        await waits(deployment, team, "waiter")


@pytest.mark.parametrize("how", ["QuotaReserved", "Admitted", "deleted"])
async def test_a_job_whose_admission_is_taken_away_is_as_its_user_made_it(deployment: Deployment, how: str) -> None:
    """Stopped and restored; nothing is admitted any more; and it runs again when its queue lets it."""
    team = deployment.fresh("team")
    spot = flavor(team, nodeLabels={"kubernetes.io/os": "linux"}, tolerations=[{"key": "spot", "operator": "Exists"}])
    await deployment.plane.kubectl("label", "node", "--all", "kubernetes.io/os=linux", "--overwrite")
    async with deployment.cell(team):
        await deployment.apply(*furnished(team), spot)
        await hold(deployment, team)
        await deployment.apply(small(team, "train"))
        made = (await deployment.get(JOBS, "train", team))["spec"]
        await hold(deployment, team, "None")
        running = await runs(deployment, team, "train")
        assert running["spec"]["template"]["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
        await hold(deployment, team)
        # What is written while Headgate writes the same status is overwritten: the last of its writes comes first.
        found = await workload_of(deployment, team, has("PodsReady", "True"))
        if how == "deleted":
            await deployment.client.delete(WORKLOADS, found["metadata"]["name"], team)
        else:
            await write(deployment, found, **{how: "False"})
        await restored(deployment, team, "train", made)
        await is_free(deployment, team)
        await hold(deployment, team, "None")
        await runs(deployment, team, "train")


@pytest.mark.parametrize("policy", list(Propagation))
async def test_the_workload_of_a_job_that_is_deleted_while_it_runs_goes(
    deployment: Deployment, policy: Propagation
) -> None:
    """However the Job is deleted, its quota is free; an orphaned Workload is finished and has no finalizer."""
    team = deployment.fresh("team")
    async with deployment.cell(team):
        await deployment.apply(*furnished(team), small(team, "train"))
        await runs(deployment, team, "train")
        await deployment.client.delete(JOBS, "train", team, propagation=policy)

        async def is_over() -> bool:
            left = await deployment.all(WORKLOADS, team)
            if policy is not Propagation.ORPHAN:
                return not left
            return [condition(each, "Finished")[0] for each in left] == ["True"] and not any(
                each["metadata"].get("finalizers") for each in left
            )

        await until(is_over)
        await is_free(deployment, team)
        await deployment.apply(small(team, "train"))
        await runs(deployment, team, "train")


async def test_an_edited_job_is_scheduled_by_its_new_form(deployment: Deployment) -> None:
    """While it waits in place; while it runs by another Workload; and resumed by hand it stops again."""
    team = deployment.fresh("team")
    async with deployment.cell(team):
        await deployment.apply(*furnished(team, cpu="300m"), small(team, "holder", pods=2))
        await runs(deployment, team, "holder", 2)
        edited: dict[str, Any] = small(team, "train", pods=2)
        edited["spec"]["completions"] = 9
        await deployment.apply(edited)
        before = await waiting(deployment, team, "train")
        await deployment.merge(JOBS, "train", team, {"spec": {"suspend": False}})
        await waits(deployment, team, "train")
        selector = {"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/os": "linux"}}}}}
        await deployment.plane.kubectl("label", "node", "--all", "kubernetes.io/os=linux", "--overwrite")
        await deployment.merge(JOBS, "train", team, selector)
        await deployment.merge(JOBS, "train", team, {"spec": {"parallelism": 1}})
        await runs(deployment, team, "train", 1)
        after = await workload_of_job(deployment, team, "train")
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        (pod_set,) = after["spec"]["podSets"]
        assert pod_set["count"] == 1
        assert pod_set["template"]["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
        await deployment.client.delete(JOBS, "holder", team, propagation=Propagation.BACKGROUND)
        await deployment.merge(JOBS, "train", team, {"spec": {"parallelism": 3}})
        await runs(deployment, team, "train", 3)
        last = await workload_of_job(deployment, team, "train")
        assert last["metadata"]["uid"] != after["metadata"]["uid"]
        assert last["spec"]["podSets"][0]["count"] == 3


async def test_the_resources_of_a_waiting_job_may_be_lowered_until_it_fits(deployment: Deployment) -> None:
    """The API server lets users change what the pods of a suspended Job request."""
    team = deployment.fresh("team")
    async with deployment.cell(team):
        await deployment.apply(*furnished(team, cpu="300m"), job(team, "train", cpu="400m", run_ms=600_000))
        await waiting(deployment, team, "train")
        found = await deployment.get(JOBS, "train", team)
        (container,) = found["spec"]["template"]["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": "200m"}}
        spec = {"template": {"spec": {"containers": [container]}}}
        await deployment.merge(JOBS, "train", team, {"spec": spec})
        await runs(deployment, team, "train")
        workload = await workload_of(deployment, team)
        (assignment,) = workload["status"]["admission"]["podSetAssignments"]
        assert assignment["resourceUsage"]["cpu"] == "200m"


async def test_a_manifest_is_applied_again_without_conflict_unless_it_suspends_the_job(deployment: Deployment) -> None:
    """
    As with Kueue: what the rules of admission set is nobody's, and Headgate's from the start of the job on.

    A manifest that says `suspend: true` is in conflict then. Whoever forces it has the pods restarted.
    """
    team = deployment.fresh("team")
    rules = objects(Way.POLICY, AdmissionSettings(), namespace=NAMESPACE, service="", secret="")

    async def apply(manifest: Json, *flags: str) -> str:
        done = await deployment.plane.kubectl(
            "apply", "--server-side", *flags, "-f", "-", stdin=msgspec.json.encode(manifest).decode(), check=False
        )
        return done.stderr

    async def pod_of(name: str) -> str:
        (pod,) = (each for each in await deployment.all(PODS, team) if each["metadata"]["labels"]["job-name"] == name)
        uid: str = pod["metadata"]["uid"]
        return uid

    async with in_effect(deployment.client, rules), deployment.cell(team):
        await deployment.apply(*furnished(team))
        plain, says = small(team, "plain"), small(team, "says")
        del plain["spec"]["suspend"]
        pods = {}
        for manifest in (plain, says):
            assert await apply(manifest) == ""
            name = manifest["metadata"]["name"]
            await runs(deployment, team, name)
            pods[name] = await pod_of(name)
        assert await apply(plain) == ""
        assert 'conflict with "headgate" using batch/v1: .spec.suspend' in await apply(says)
        for name, before in pods.items():
            await runs(deployment, team, name)
            assert await pod_of(name) == before
        assert await apply(says, "--force-conflicts") == ""

        async def is_replaced() -> bool:
            found = [each["metadata"] for each in await deployment.all(PODS, team)]
            return any(each["labels"]["job-name"] == "says" and each["uid"] != pods["says"] for each in found)

        await until(is_replaced)
        await runs(deployment, team, "says")
