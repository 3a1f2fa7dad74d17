"""
A gang on a real control plane when nodes fail: in one rack, by rank, and moved within it.

Each test has racks of its own, whose nodes only its pods tolerate. A node has 4 CPU.
"""

from collections import Counter

import pytest
from tests.kube.e2e.cells import Deployment
from tests.kube.e2e.objects import condition, is_true
from tests.kube.e2e.racks import HOST, RACK, alive, assigned, evictions, explained, gang, landed, racks
from tests.kube.e2e.seeing import has, workload_of
from tests.support.waiting import until

from headgate.adapters.kubernetes.resources import NODES, PODS

pytestmark = [pytest.mark.anyio, pytest.mark.kube]


async def are_sent(deployment: Deployment, team: str, node: str, pods: int) -> str:
    """Wait until all pods of the gang can go to one node only: this one, or one whose name begins so; the node."""
    found: list[tuple[str, str, str]] = []

    async def holds() -> bool:
        nonlocal found
        found = [
            (each["metadata"]["name"], each["status"]["phase"], each["spec"].get("nodeSelector", {}).get(HOST, ""))
            for each in await alive(deployment, team)
        ]
        names = [name for _, _, name in found]
        return names == [names[0]] * pods and names[0].startswith(node) if names else False

    await until(holds, lambda: f"pods of {node}: {found}")
    return found[0][2]


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
    async with racks(deployment, team, {0: 9, 1: 10}), deployment.cell(team):
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
        told = await explained(deployment, team, "train")
        for step in (
            f"topology: main on 8 hosts in {RACK} {team}-0: {team}-0-0, ",
            f"node {before[0]} of its topology assignment has failed: another node is sought for its pods there",
            f"topology domains assigned anew; topology: main on 8 hosts in {RACK} {team}-0: {team}-0-1, ",
            f"node {team}-0-8 of its topology assignment has failed: another node is sought for its pods there",
            "workload.evicted evicted",
            f"topology: main on 8 hosts in {RACK} {team}-1: ",
        ):
            before_it, found, told = told.partition(step)
            assert found, f"{step!r} is not told after: {before_it}"


async def test_pods_that_wait_for_a_node_that_will_not_take_them_are_sent_to_another(deployment: Deployment) -> None:
    """They are pinned to it and not bound; they are failed with Kueue's condition, and their Job creates them again."""
    team = deployment.fresh("gang")
    async with racks(deployment, team, {0: 2}), deployment.cell(team):
        await deployment.apply(gang(team, 8, schedulerName="nobody"))

        # The cell may know the other node first.
        node = await are_sent(deployment, team, f"{team}-0-", 8)
        other = f"{team}-0-{1 if node.endswith('0') else 0}"
        first = {each["metadata"]["uid"] for each in await alive(deployment, team)}
        taints = [
            {"key": "pool", "value": team, "effect": "NoSchedule"},
            {"key": "broken", "effect": "NoSchedule"},
        ]
        await deployment.merge(NODES, node, None, {"spec": {"taints": taints}})

        await are_sent(deployment, team, other, 8)
        failed = [each for each in await deployment.all(PODS, team) if each["metadata"]["uid"] in first]
        assert {condition(each, "TerminatedByKueue") for each in failed} <= {("True", "UnschedulableOnAssignedNode")}
        assert not is_true(await workload_of(deployment, team), "Evicted")
