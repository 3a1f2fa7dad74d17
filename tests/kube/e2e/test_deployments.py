"""Deployments on a real control plane: each pod queued by itself, through its life."""

import pytest
from tests.kube.e2e.cells import Deployment, Json
from tests.kube.e2e.objects import condition, flavor, furnished
from tests.kube.e2e.serving import LABELS, SELECTOR, TOLERATION, K, is_on_flavor, seen, serving, template
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import Propagation
from headgate.adapters.kubernetes.resources import CLUSTER_QUEUES, PODS, WORKLOADS
from headgate.adapters.kubernetes.server_resources import DEPLOYMENTS

pytestmark = [pytest.mark.anyio, pytest.mark.kube]


def served(team: str, replicas: int) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": team, "labels": LABELS},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template(cpu="100m", labels={"app": "web"}),
        },
    }


async def test_each_pod_of_a_deployment_waits_runs_and_is_replaced(deployment: Deployment) -> None:
    """An evicted pod is deleted, its Workload goes with it, and the pod in its place runs by a Workload of its own."""
    team = deployment.fresh("team")
    queues = furnished(team)
    queues[1] = flavor(team, nodeLabels=SELECTOR, tolerations=[TOLERATION])
    queues[2]["spec"]["stopPolicy"] = "Hold"
    await deployment.plane.kubectl("label", "node", "--all", "tier=spot", "--overwrite")

    async def phases() -> list[str]:
        return sorted((await seen(deployment, team)).values())

    async def run(count: int) -> bool:
        return await phases() == ["Running"] * count

    async with serving(deployment, team, "deployment", DEPLOYMENTS):
        await deployment.apply(*queues)
        await deployment.client.create(DEPLOYMENTS, served(team, 2), team)

        async def waits() -> bool:
            found = await deployment.all(WORKLOADS, team)
            reserved = [condition(each, "QuotaReserved")[0] for each in found]
            return reserved == ["False"] * 2 and await phases() == ["gated"] * 2

        await until(waits)
        await deployment.merge(CLUSTER_QUEUES, team, None, {"spec": {"stopPolicy": "None"}})
        await until(lambda: run(2))
        pods = await deployment.all(PODS, team)
        assert all(map(is_on_flavor, pods))
        assert all(each["metadata"]["labels"][f"{K}podset"] == "main" for each in pods)
        evicted, *_ = await deployment.all(WORKLOADS, team)
        (owner,) = evicted["metadata"]["ownerReferences"]
        await deployment.merge(WORKLOADS, evicted["metadata"]["name"], team, {"spec": {"active": False}})

        async def replaced() -> bool:
            names = {each["metadata"]["name"] for each in await deployment.all(WORKLOADS, team)}
            is_new = owner["name"] not in await seen(deployment, team)
            return is_new and evicted["metadata"]["name"] not in names and len(names) == 2 and await run(2)

        await until(replaced)
        await deployment.merge(DEPLOYMENTS, "web", team, {"spec": {"replicas": 1}})

        async def one_is_left() -> bool:
            return len(await deployment.all(WORKLOADS, team)) == 1 and await run(1)

        await until(one_is_left)
        await deployment.client.delete(DEPLOYMENTS, "web", team, propagation=Propagation.BACKGROUND)

        async def gone() -> bool:
            return await deployment.all(WORKLOADS, team) == [] and await deployment.all(PODS, team) == []

        await until(gone)
