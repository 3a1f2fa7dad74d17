"""
Gangs on a real control plane: leader and workers by rank, preemption for a rack, and an upgrade of the nodes.

Each test has racks of its own, whose nodes only its pods tolerate. A node has 4 CPU.
"""

from collections import Counter
from typing import Any

import pytest
from tests.kube.e2e.cells import KUEUE, Cell, Deployment, Json
from tests.kube.e2e.objects import condition, is_true
from tests.kube.e2e.racks import HOST, RACK, assigned, explained, gang, landed, node_names, racks, tolerations
from tests.kube.e2e.seeing import becomes, has
from tests.kube.e2e.test_admission import of_class, priority
from tests.support.waiting import until

from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import JOBS, NODES, PODS, WORKLOADS
from headgate.core.state.tables import State
from headgate.core.views.topology import topology_view

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

WORKER = "leaderworkerset.sigs.k8s.io/worker-index"
INDEX, JOB = "batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/job-index"


def pod_spec(team: str, cpu: str) -> Json:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "schedulerName": "headgate",
        "nodeSelector": {"pool": team},
        "tolerations": tolerations(team),
        "containers": [container],
    }


def pod_set(team: str, name: str, count: int, cpu: str, **request: Any) -> Json:
    template = {"spec": {"restartPolicy": "Never", **pod_spec(team, cpu)}}
    return {"name": name, "count": count, "template": template, "topologyRequest": {"required": RACK, **request}}


def pod(team: str, name: str, pod_set: str, cpu: str, **labels: int) -> Json:
    """A pod as the webhook of Kueue leaves it: with its gate, its Workload `ring`, its pod set and its indexes."""
    indexes = {label: str(number) for label, number in labels.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": team,
            "labels": {"kueue.x-k8s.io/podset": pod_set, **indexes},
            "annotations": {
                "kueue.x-k8s.io/workload": "ring",
                "kueue.x-k8s.io/podset-required-topology": RACK,
                "headgate.dev/run-ms": str(10**9),
            },
        },
        "spec": {**pod_spec(team, cpu), "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]},
    }


def ring(team: str, *pod_sets: Json) -> Json:
    """A Workload whose owner is the test."""
    metadata = {"name": "ring", "namespace": team}
    spec = {"queueName": "main", "podSets": list(pod_sets)}
    return {"apiVersion": KUEUE, "kind": "Workload", "metadata": metadata, "spec": spec}


async def nodes_of(deployment: Deployment, team: str, *pods: str) -> list[str]:
    """Wait until these pods run; their nodes."""
    nodes: list[str] = []

    async def do_run() -> bool:
        nonlocal nodes
        found = {each["metadata"]["name"]: each for each in await deployment.all(PODS, team)}
        running = [found[name] for name in pods if found[name]["status"]["phase"] == "Running"]
        nodes = [each["spec"]["nodeName"] for each in running]
        assert all(each["spec"]["nodeSelector"][HOST] == each["spec"]["nodeName"] for each in running)
        return len(nodes) == len(pods)

    await until(do_run, lambda: f"{len(nodes)} of {len(pods)} pods run")
    return nodes


async def test_a_leader_and_its_workers_are_in_one_rack_by_rank(deployment: Deployment) -> None:
    """
    A leader of 2 CPU and 63 workers of half a CPU, one pod-set group: only the second rack has room for all of them.

    The leader has rank 0, its workers 1 to 63; their pods are created in another order.
    """
    team = deployment.fresh("gang")
    group = {"podIndexLabel": WORKER, "podSetGroupName": "ring"}
    async with racks(deployment, team, {0: 8, 1: 9}), deployment.cell(team):
        leader = pod_set(team, "leader", 1, "2", **group)
        await deployment.apply(ring(team, leader, pod_set(team, "workers", 63, "500m", **group)))
        workload = await becomes(deployment, WORKLOADS, "ring", team, has("Admitted"))
        for number in reversed(range(64)):
            name, cpu = ("workers", "500m") if number else ("leader", "2")
            await deployment.client.create(PODS, pod(team, f"{name}-{number}", name, cpu, **{WORKER: number}), team)
        workers = await nodes_of(deployment, team, *[f"workers-{number}" for number in range(1, 64)])
        assert workers == assigned(workload, "workers")
        assert await nodes_of(deployment, team, "leader-0") == assigned(workload, "leader")
        assert {node.rpartition("-")[0] for node in [*workers, *assigned(workload, "leader")]} == {f"{team}-1"}
        load = Counter(workers) + Counter(dict.fromkeys(assigned(workload, "leader"), 4))
        assert max(load.values()) <= 8
        told = await explained(deployment, team, "ring")
        assert f"leader on 1 host: {assigned(workload, 'leader')[0]} with 1 pod; workers on " in told
        assert f"hosts in {RACK} {team}-1: " in told
        assert f"1 pod of leader may be scheduled, to {assigned(workload, 'leader')[0]} with 1 pod" in told


async def test_pods_of_several_jobs_are_placed_by_job_and_index(deployment: Deployment) -> None:
    """Four replicated jobs of four pods of 1 CPU each, as of a JobSet: one job to a node, whichever pod comes first."""
    team = deployment.fresh("gang")
    ranks = {"podIndexLabel": INDEX, "subGroupIndexLabel": JOB, "subGroupCount": 4}
    async with racks(deployment, team, {0: 3, 1: 4}), deployment.cell(team):
        await deployment.apply(ring(team, pod_set(team, "workers", 16, "1", **ranks)))
        workload = await becomes(deployment, WORKLOADS, "ring", team, has("Admitted"))
        places = [(number, index) for number in range(4) for index in range(4)]
        for number, index in sorted(places, key=lambda place: place[::-1]):
            name, labels = f"workers-{number}-{index}", {JOB: number, INDEX: index}
            await deployment.client.create(PODS, pod(team, name, "workers", "1", **labels), team)
        nodes = await nodes_of(deployment, team, *[f"workers-{number}-{index}" for number, index in places])
        assert nodes == assigned(workload, "workers") == [f"{team}-1-{number}" for number in range(4) for _ in range(4)]


async def test_a_job_gives_way_for_a_rack_though_there_is_quota(deployment: Deployment) -> None:
    """Two of lower priority use half of the quota and a part of both racks: the later one gives its rack away."""
    team = deployment.fresh("gang")
    preemption = {"withinClusterQueue": "LowerPriority"}
    async with racks(deployment, team, {0: 2, 1: 3}, preemption=preemption), deployment.cell(team):
        await deployment.apply(priority(f"{team}-high", 1000), gang(team, 4, "first", cpu="2"))
        assert {node.rpartition("-")[0] for node in await landed(deployment, team, 4, "first")} == {f"{team}-0"}
        await deployment.apply(gang(team, 2, "second", cpu="2"))
        assert await landed(deployment, team, 2, "second") == [f"{team}-1-0"] * 2

        high = gang(team, 6, "high", cpu="2", run_ms=2_000)
        high["metadata"]["labels"] |= of_class(f"{team}-high")
        await deployment.apply(high)
        nodes = await landed(deployment, team, 6, "high")
        assert Counter(nodes) == {f"{team}-1-{number}": 2 for number in range(3)}
        assert len(await landed(deployment, team, 4, "first")) == 4
        second = await workload_named(deployment, team, "job-second-")
        assert condition(second, "Preempted") == ("True", "InClusterQueue")
        first = await workload_named(deployment, team, "job-first-")
        assert not is_true(first, "Evicted")
        told = await explained(deployment, team, "high")
        assert (
            f'topology "{team}" allows to fit only 4 out of 6 pod(s). Total nodes: 5; excluded: resource "cpu": 3'
            in told
        )
        assert f"workload.preempted preempts {team}/{second['metadata']['name']} in ClusterQueue {team}" in told
        assert f"waiting for unused quota in ClusterQueue {team}: 12 cpu of {team} (52 available), and room" in told
        assert f"topology: main on 3 hosts in {RACK} {team}-1: {team}-1-0, {team}-1-1, {team}-1-2 with 2 pods" in told
        told = await explained(deployment, team, "second")
        assert f"workload.preempted preempted by {team}/job-high-" in told
        assert f"at most fit 0 in {team}-0 ({RACK})" in told

        await becomes(deployment, JOBS, "high", team, has("Complete"))
        assert await landed(deployment, team, 2, "second") == [f"{team}-1-0"] * 2


async def workload_named(deployment: Deployment, team: str, start: str) -> Json:
    """The Workload whose name begins so."""
    (found,) = [each for each in await deployment.all(WORKLOADS, team) if each["metadata"]["name"].startswith(start)]
    return found


async def cordon(deployment: Deployment, name: str, *, unschedulable: bool = True) -> None:
    await deployment.merge(NODES, name, None, {"spec": {"unschedulable": unschedulable}})


async def on_node(deployment: Deployment, team: str, name: str) -> list[Json]:
    """The pods on a node that have not ended."""
    found = await deployment.all(PODS, team)
    return [
        each
        for each in found
        if each["spec"].get("nodeName") == name and each["status"]["phase"] in {"Pending", "Running"}
    ]


async def drain(deployment: Deployment, cell: Cell, team: str, name: str) -> None:
    """Cordon a node, evict the pods on it, and those that were on their way to it, and wait until they are gone."""
    await cordon(deployment, name)

    async def is_empty() -> bool:
        binds = cell.runners["binder"].view.state
        found = await on_node(deployment, team, name)
        for each in found:
            if "deletionTimestamp" not in each["metadata"]:
                try:
                    await deployment.client.evict(each["metadata"]["name"], team)
                except ApiError as error:
                    if error.status != 404:
                        raise
        if found or binds is None or not binds.nodes[name].unschedulable:
            return False
        return not any(record.placed == name for record in binds.pods.values())

    await until(is_empty)


async def test_an_upgrade_that_drains_20_nodes_one_after_another_loses_nothing(deployment: Deployment) -> None:
    """
    Ten jobs of four pods, two to a node, on three racks of eight nodes; a node is back when the third after it goes.

    Every job ends. A node has no pod from when it is drained until it is uncordoned. In the end nothing is charged, and
    all nodes are free.
    """
    team = deployment.fresh("upgrade")
    jobs = [f"train-{number}" for number in range(10)]
    async with racks(deployment, team, {0: 8, 1: 8, 2: 8}), deployment.cell(team) as cell:
        await deployment.apply(*[gang(team, 4, name=name, cpu="2", run_ms=4_000) for name in jobs])
        await until(lambda: cell.holds(lambda state: len(state.index.topology_usage_of) == 8))
        cordoned: list[str] = []
        for name in node_names(team, {0: 8, 1: 8, 2: 4}):
            await drain(deployment, cell, team, name)
            cordoned.append(name)
            if len(cordoned) > 3:
                await cordon(deployment, cordoned.pop(0), unschedulable=False)
            for each in cordoned:
                assert await on_node(deployment, team, each) == []
        for name in jobs:
            await becomes(deployment, JOBS, name, team, has("Complete"))
            assert all([await on_node(deployment, team, each) == [] for each in cordoned])
        await until(lambda: cell.holds(lambda state: is_all_free(state, team)))
        told = [await explained(deployment, team, name) for name in jobs]
        assert all(each.endswith("\nFinished: Succeeded: Reached expected number of succeeded pods") for each in told)
        assert any(
            " of its topology assignment has failed: another node is sought for its pods there " in each
            for each in told
        )
        assert any(
            "workload.topology_assigned topology domains assigned anew; topology: main on " in each for each in told
        )
        assert all("evicted [NodeFailures]" in each for each in told if "workload.evicted" in each)


def is_all_free(state: State, team: str) -> bool:
    """Whether no quota is charged, and every node but the three that are cordoned still has its 4 CPU."""
    view = topology_view(state, team)
    cpu = view.resources["cpu"]
    used = state.index.usage.get(team, {}).get((team, "cpu"), 0)
    return (used, view.nodes, cpu.capacity, cpu.free) == (0, 21, 84_000, 84_000)
