"""
Topology-aware scheduling on a real control plane: a gang in one rack, and what becomes of it when nodes fail.

Each test has racks of its own, whose nodes only its pods tolerate. A node has 4 CPU.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.kube.e2e.cells import KUEUE, Deployment, Json
from tests.kube.e2e.objects import cluster_queue, condition, flavor, is_true, job, local_queue, namespace
from tests.kube.e2e.seeing import has, workload_of
from tests.support.waiting import until

from headgate.adapters.kubernetes.resources import NODES, PODS

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

HOST, RACK = "kubernetes.io/hostname", "example.com/rack"
INDEX = "batch.kubernetes.io/job-completion-index"


def node(team: str, rack: int, number: int) -> Json:
    name = f"{team}-{rack}-{number}"
    labels = {"pool": team, RACK: f"{team}-{rack}", HOST: name}
    taints = [{"key": "pool", "value": team, "effect": "NoSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
    }


@asynccontextmanager
async def racks(deployment: Deployment, team: str, sizes: Mapping[int, int]) -> AsyncIterator[None]:
    """A queue whose only flavor is so many nodes in each rack, all Ready, for as long as the block runs."""
    nodes = [node(team, rack, number) for rack, size in sizes.items() for number in range(size)]
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
    tolerations = [{"key": "pool", "value": team, "effect": "NoSchedule"}]
    topology = {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": team}, "spec": {"levels": levels}}
    await deployment.apply(
        namespace(team),
        *nodes,
        topology,
        flavor(team, nodeLabels={"pool": team}, tolerations=tolerations, topologyName=team),
        cluster_queue(team, team, cpu="64"),
        local_queue(team, team),
    )
    names = {each["metadata"]["name"] for each in nodes}

    async def are_ready() -> bool:
        found = await deployment.all(NODES)
        return names <= {each["metadata"]["name"] for each in found if is_true(each, "Ready")}

    try:
        await until(are_ready)
        yield
    finally:
        for each in await deployment.all(NODES):
            if each["metadata"]["name"] in names:
                await deployment.client.delete(NODES, each["metadata"]["name"])


def gang(team: str, pods: int, **more: Any) -> Json:
    """An Indexed Job whose pods run for ever, each half a CPU, in one rack. Each index has a backoff of its own."""
    made = job(team, "train", cpu="500m", pods=pods, run_ms=10**9)
    made["spec"] |= {"completionMode": "Indexed", "backoffLimit": 1000, "backoffLimitPerIndex": 100}
    made["spec"]["template"]["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] = RACK
    made["spec"]["template"]["spec"] |= more
    return made


async def alive(deployment: Deployment, team: str) -> list[Json]:
    """The pods of the gang that have not ended, by index."""
    found = [
        each
        for each in await deployment.all(PODS, team)
        if "deletionTimestamp" not in each["metadata"] and each["status"]["phase"] in {"Pending", "Running"}
    ]
    return sorted(found, key=lambda each: int(each["metadata"]["labels"][INDEX]))


async def landed(deployment: Deployment, team: str, pods: int) -> list[str]:
    """Wait until so many pods run; their nodes, by index."""
    nodes: list[str] = []

    async def do_run() -> bool:
        nonlocal nodes
        found = await alive(deployment, team)
        nodes = [each["spec"].get("nodeName", "") for each in found if each["status"]["phase"] == "Running"]
        return len(nodes) == pods

    await until(do_run, lambda: f"{len(nodes)} of {pods} pods run")
    return nodes


def assigned(workload: Json) -> list[str]:
    """The nodes that the gang was assigned to, in order."""
    (pod_set,) = workload["status"]["admission"]["podSetAssignments"]
    found: list[str] = []
    for each in pod_set["topologyAssignment"]["slices"]:
        counts, values = each["podCounts"], each["valuesPerLevel"][-1]
        names = values.get("individual", {})
        roots = names.get("roots", [values.get("universal")] * each["domainCount"])
        pods = counts.get("individual") or [counts["universal"]] * each["domainCount"]
        for root, count in zip(roots, pods, strict=True):
            found += [f"{names.get('prefix', '')}{root}{names.get('suffix', '')}"] * count
    return found


def evictions(workload: Json) -> list[str]:
    """Why it was evicted so far."""
    return [each["reason"] for each in workload["status"].get("schedulingStats", {}).get("evictions", ())]


async def are_sent(deployment: Deployment, team: str, node: str, pods: int) -> None:
    """Wait until all pods of the gang can go to one node only."""
    found: list[tuple[str, str, str]] = []

    async def holds() -> bool:
        nonlocal found
        found = [
            (each["metadata"]["name"], each["status"]["phase"], each["spec"].get("nodeSelector", {}).get(HOST, ""))
            for each in await alive(deployment, team)
        ]
        return [name for _, _, name in found] == [node] * pods

    await until(holds, lambda: f"pods of {node}: {found}")


async def lose(deployment: Deployment, team: str, name: str) -> None:
    """A node is gone, and the pods that were on it."""
    await deployment.client.delete(NODES, name)
    for each in await deployment.all(PODS, team):
        if each["spec"].get("nodeName") == name:
            await deployment.client.delete(PODS, each["metadata"]["name"], team, grace_period_s=0)


async def test_a_gang_lands_in_one_rack_by_rank_and_moves_when_nodes_fail(deployment: Deployment) -> None:
    """
    The tightest rack that it fits in has one node to spare, which takes the pods of one that is lost.

    When another one is lost there is none left: the workload is evicted, queued again, and lands in the other rack.
    """
    team = deployment.fresh("gang")
    async with deployment.cell(team), racks(deployment, team, {0: 9, 1: 10}):
        await deployment.apply(gang(team, 64))
        before = await landed(deployment, team, 64)
        workload = await workload_of(deployment, team, has("Admitted"))
        assert before == assigned(workload)
        assert Counter(before) == {f"{team}-0-{number}": 8 for number in range(8)}
        pods = await alive(deployment, team)
        assert [each["spec"]["nodeSelector"][HOST] for each in pods] == before

        await lose(deployment, team, before[0])

        async def has_moved() -> bool:
            found = await alive(deployment, team)
            nodes = [each["spec"].get("nodeName") for each in found if each["status"]["phase"] == "Running"]
            return len(nodes) == 64 and nodes.count(f"{team}-0-8") == 8

        await until(has_moved)
        moved = await landed(deployment, team, 64)
        stayed = [each for each in before if each != before[0]]
        assert sorted(moved) == sorted([*stayed, *[f"{team}-0-8"] * 8])
        assert not is_true(await workload_of(deployment, team), "Evicted")

        await lose(deployment, team, f"{team}-0-8")
        await workload_of(
            deployment,
            team,
            has("Admitted"),
            lambda found: "NodeFailures" in evictions(found),
            lambda found: all(each.startswith(f"{team}-1-") for each in assigned(found)),
        )
        assert {each.rpartition("-")[0] for each in await landed(deployment, team, 64)} == {f"{team}-1"}


async def test_pods_that_wait_for_a_node_that_will_not_take_them_are_sent_to_another(deployment: Deployment) -> None:
    """They are pinned to it and not bound; they are failed with Kueue's condition, and their Job creates them again."""
    team = deployment.fresh("gang")
    async with deployment.cell(team), racks(deployment, team, {0: 2}):
        await deployment.apply(gang(team, 8, schedulerName="nobody"))

        await are_sent(deployment, team, f"{team}-0-0", 8)
        first = {each["metadata"]["uid"] for each in await alive(deployment, team)}
        taints = [
            {"key": "pool", "value": team, "effect": "NoSchedule"},
            {"key": "broken", "effect": "NoSchedule"},
        ]
        await deployment.merge(NODES, f"{team}-0-0", None, {"spec": {"taints": taints}})

        await are_sent(deployment, team, f"{team}-0-1", 8)
        failed = [each for each in await deployment.all(PODS, team) if each["metadata"]["uid"] in first]
        assert {condition(each, "TerminatedByKueue") for each in failed} <= {("True", "UnschedulableOnAssignedNode")}
        assert not is_true(await workload_of(deployment, team), "Evicted")
