"""Plain pods on a real control plane, gated as admission leaves them: run and finished."""

import pytest
from tests.kube.e2e.cells import KUEUE, Deployment, Json
from tests.kube.e2e.objects import flavor, furnished, job
from tests.kube.e2e.seeing import becomes, has, workload_of
from tests.kube.e2e.serving import SELECTOR, TOLERATION, is_on_flavor
from tests.kube.e2e.test_admission import configured
from tests.support.waiting import until

from headgate.adapters.kubernetes.resources import CLUSTER_QUEUES, PODS, WORKLOADS

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

K = "kueue.x-k8s.io/"


def pod(team: str, name: str, *, run_ms: int) -> Json:
    """A pod of half a CPU."""
    template = job(team, name, run_ms=run_ms, cpu="500m")["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": team,
            "labels": {f"{K}queue-name": "main", f"{K}managed": "true"},
            "annotations": template["metadata"]["annotations"],
            "finalizers": [f"{K}managed"],
        },
        "spec": {**template["spec"], "schedulingGates": [{"name": f"{K}admission"}]},
    }


async def test_a_plain_pod_runs_to_its_end_and_loses_its_finalizer(deployment: Deployment) -> None:
    """It is ungated on its admission; the ungater may remove the finalizer of a pod without a gate."""
    team = deployment.fresh("team")
    with configured(integrations={"frameworks": ["pod"]}) as bridge:
        async with deployment.cell(team, bridge=bridge):
            await deployment.apply(*furnished(team), pod(team, "one", run_ms=500))
            await becomes(
                deployment,
                PODS,
                "one",
                team,
                lambda found: found["status"].get("phase") == "Succeeded",
                lambda found: not found["metadata"].get("finalizers"),
            )
            await workload_of(deployment, team, has("Finished", reason="Succeeded"))


def grouped(team: str, name: str, total: int, *, run_ms: int, group: str = "gang") -> Json:
    """A pod of a pod group."""
    made = pod(team, name, run_ms=run_ms)
    made["metadata"]["labels"][f"{K}pod-group-name"] = group
    made["metadata"]["annotations"] |= {f"{K}pod-group-total-count": str(total)}
    return made


async def test_an_evicted_pod_group_leaves_and_its_replacements_run(deployment: Deployment) -> None:
    """Its pods are deleted; once as many others are there the Workload is admitted again, and finishes with them."""
    team = deployment.fresh("team")
    with configured(integrations={"frameworks": ["pod"]}) as bridge:
        async with deployment.cell(team, bridge=bridge):
            await deployment.apply(*furnished(team), *(grouped(team, f"a{n}", 2, run_ms=600_000) for n in range(2)))

            async def run(expected: set[str]) -> bool:
                pods = await deployment.all(PODS, team)
                return {each["metadata"]["name"] for each in pods if each["status"]["phase"] == "Running"} == expected

            await until(lambda: run({"a0", "a1"}))
            workload = await workload_of(deployment, team, has("Admitted"))
            name = workload["metadata"]["name"]
            await deployment.merge(WORKLOADS, name, team, {"spec": {"active": False}})
            await workload_of(deployment, team, has("Evicted"), has("QuotaReserved", "False"))
            await until(lambda: run(set()))
            assert {each["metadata"]["name"] for each in await deployment.all(PODS, team)} == {"a0", "a1"}
            await deployment.merge(WORKLOADS, name, team, {"spec": {"active": True}})
            await deployment.apply(*(grouped(team, f"b{n}", 2, run_ms=500) for n in range(2)))
            await workload_of(deployment, team, has("Finished", reason="Succeeded"))


async def test_an_evicted_plain_pod_is_deleted_and_its_workload_with_it(deployment: Deployment) -> None:
    """It carries the flavor while it runs; it cannot be started again, so nothing of it is left."""
    team = deployment.fresh("team")
    queues = furnished(team)
    queues[1] = flavor(team, nodeLabels=SELECTOR, tolerations=[TOLERATION])
    await deployment.plane.kubectl("label", "node", "--all", "tier=spot", "--overwrite")
    with configured(integrations={"frameworks": ["pod"]}) as bridge:
        async with deployment.cell(team, bridge=bridge):
            await deployment.apply(*queues, pod(team, "one", run_ms=600_000))
            found = await becomes(deployment, PODS, "one", team, lambda it: it["status"].get("phase") == "Running")
            assert is_on_flavor(found)
            workload = await workload_of(deployment, team, has("Admitted"))
            await deployment.merge(WORKLOADS, workload["metadata"]["name"], team, {"spec": {"active": False}})

            async def gone() -> bool:
                return await deployment.all(WORKLOADS, team) == [] and await deployment.all(PODS, team) == []

            await until(gone)
            await becomes(deployment, CLUSTER_QUEUES, team, None, lambda it: not it["status"]["reservingWorkloads"])


def named(made: Json) -> Json:
    """A pod that names the Workload `made`."""
    made["metadata"]["annotations"] |= {f"{K}prebuilt-workload-name": "made"}
    return made


def workload_for(team: str, roles: dict[str, Json]) -> Json:
    """A Workload for pods by their roles, with what the API server has given them; made by somebody else."""
    pod_sets = [{"name": role, "count": 1, "template": {"spec": each["spec"]}} for role, each in roles.items()]
    spec = {"queueName": "main", "podSets": pod_sets}
    return {"apiVersion": KUEUE, "kind": "Workload", "metadata": {"name": "made", "namespace": team}, "spec": spec}


async def test_a_plain_pod_waits_for_the_workload_that_it_names_and_runs_by_it(deployment: Deployment) -> None:
    """It controls the Workload and gets none of its own; when the Workload is deleted, the pod is."""
    team = deployment.fresh("team")
    with configured(integrations={"frameworks": ["pod"]}) as bridge:
        async with deployment.cell(team, bridge=bridge):
            await deployment.apply(*furnished(team), named(pod(team, "one", run_ms=600_000)))
            given = await deployment.get(PODS, "one", team)
            assert await deployment.all(WORKLOADS, team) == []
            await deployment.apply(workload_for(team, {"main": given}))
            await becomes(deployment, PODS, "one", team, lambda it: it["status"].get("phase") == "Running")
            found = await workload_of(deployment, team, has("Admitted"))
            (owner,) = found["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", given["metadata"]["uid"], True)
            assert found["metadata"]["labels"][f"{K}job-uid"] == given["metadata"]["uid"]
            await deployment.plane.kubectl("delete", "workloads.kueue.x-k8s.io", "made", "-n", team)

            async def gone() -> bool:
                return await deployment.all(PODS, team) == []

            await until(gone)


async def test_a_pod_group_runs_by_the_workload_that_it_names(deployment: Deployment) -> None:
    """The first pod runs before the second is there. All own the Workload, none controls it; it ends with them."""
    team = deployment.fresh("team")
    with configured(integrations={"frameworks": ["pod"]}) as bridge:
        async with deployment.cell(team, bridge=bridge):
            pods = [named(grouped(team, name, 2, run_ms=500, group="made")) for name in ("leader", "worker")]
            for each in pods:
                each["metadata"]["annotations"] |= {f"{K}role-hash": each["metadata"]["name"]}
            roles = dict(zip(("leader", "worker"), pods, strict=True))
            await deployment.apply(*furnished(team), workload_for(team, roles), pods[0])
            await becomes(deployment, PODS, "leader", team, lambda it: it["status"].get("phase") == "Succeeded")
            await deployment.apply(pods[1])
            found = await workload_of(deployment, team, has("Finished", reason="Succeeded"))
            owners = {each["name"]: each.get("controller", False) for each in found["metadata"]["ownerReferences"]}
            assert owners == {"leader": False, "worker": False}
            for name in ("leader", "worker"):
                await becomes(deployment, PODS, name, team, lambda it: not it["metadata"].get("finalizers"))
