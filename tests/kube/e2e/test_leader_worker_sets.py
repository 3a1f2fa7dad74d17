"""LeaderWorkerSets with their operator on a real control plane: a Workload for each group, through its life."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.kube.e2e.cells import Deployment, Json
from tests.kube.e2e.objects import condition, flavor, furnished
from tests.kube.e2e.racks import RACK, assigned, racks
from tests.kube.e2e.serving import LABELS, SELECTOR, TOLERATION, K, is_on_flavor, pods_are, seen, serving, template
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import Propagation
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import CLUSTER_QUEUES, OF_JOBS, PODS, WORKLOADS
from headgate.core.workload.names import workload_name
from headgate.events.ids import JobRef
from headgate.testing.control_plane.operators import find_operator, operator

pytestmark = [pytest.mark.anyio, pytest.mark.kube, pytest.mark.operators]

FRAMEWORK: Final = "leaderworkerset.x-k8s.io/leaderworkerset"
SETS: Final = OF_JOBS["leaderworkersets"]
GROUPS: Final = ("lws-0", "lws-0-1", "lws-1", "lws-1-1")


def leader_worker_set(
    team: str, *, replicas: int = 2, size: int = 2, cpu: str = "100m", annotations: Json | None = None
) -> Json:
    def of(role: str) -> Json:
        return template(cpu=cpu, labels={"role": role}, annotations=annotations or {})

    spec = {"size": size, "leaderTemplate": of("leader"), "workerTemplate": of("worker")}
    return {
        "apiVersion": SETS.api_version,
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "lws", "namespace": team, "labels": LABELS},
        "spec": {"replicas": replicas, "leaderWorkerTemplate": spec},
    }


@asynccontextmanager
async def running(deployment: Deployment, team: str, folder: Path, *queues: Json) -> AsyncIterator[None]:
    """The operator, our policies for its kind, and a cell that runs it."""
    find_operator("lws")
    async with operator(deployment.plane, "lws", folder), serving(deployment, team, FRAMEWORK, SETS):
        await deployment.apply(*queues)
        yield


async def made(deployment: Deployment, body: Json) -> str:
    """Create a LeaderWorkerSet; its uid."""
    await deployment.apply(body)
    found = await deployment.get(SETS, "lws", body["metadata"]["namespace"])
    return str(found["metadata"]["uid"])


async def workloads(deployment: Deployment, team: str) -> dict[str, Json]:
    """The Workloads of a namespace, by the number of their group."""
    found = await deployment.all(WORKLOADS, team)
    return {each["metadata"]["annotations"][f"{K}component-workload-index"]: each for each in found}


async def are(deployment: Deployment, team: str, expected: dict[str, tuple[str, str]]) -> dict[str, Json]:
    """Wait until the Workloads are those of these groups, with this condition each; them."""
    last: dict[str, Any] = {}

    async def holds() -> bool:
        nonlocal last
        last = await workloads(deployment, team)
        return last.keys() == expected.keys() and all(
            condition(last[group], kind)[0] == status for group, (kind, status) in expected.items()
        )

    await until(holds, lambda: {group: each.get("status") for group, each in last.items()})
    return last


HOLD: Final = "example.com/held"
ADMITTED: Final = ("Admitted", "True")
WAITS: Final = ("QuotaReserved", "False")
T2: Final = ("True", "True")


async def test_each_group_waits_runs_and_is_evicted_by_itself(deployment: Deployment, tmp_path: Path) -> None:
    """Two groups of a leader and a worker, with quota for both, then for one, then none is left."""
    team = deployment.fresh("team")
    queues = furnished(team)
    queues[1] = flavor(team, nodeLabels=SELECTOR, tolerations=[TOLERATION])
    queues[2]["spec"]["stopPolicy"] = "Hold"
    await deployment.plane.kubectl("label", "node", "--all", "tier=spot", "--overwrite")
    async with running(deployment, team, tmp_path / "operator", *queues):
        uid = await made(deployment, leader_worker_set(team))
        found = await are(deployment, team, {"0": WAITS, "1": WAITS})
        for group, each in found.items():
            ref = JobRef("leaderworkerset.x-k8s.io", "LeaderWorkerSet", team, f"lws-{group}")
            assert each["metadata"]["name"] == workload_name(ref, uid)
            assert [(it["name"], it["count"]) for it in each["spec"]["podSets"]] == [("leader", 1), ("worker", 1)]
            assert each["metadata"]["labels"] == {f"{K}job-uid": uid}
            owners = {(it["kind"], it.get("controller")) for it in each["metadata"]["ownerReferences"]}
            assert ("LeaderWorkerSet", None) in owners

        async def waits() -> bool:
            shown = await seen(deployment, team)
            return {"lws-0", "lws-1"} <= shown.keys() and set(shown.values()) == {"gated"}

        await until(waits)
        await deployment.merge(CLUSTER_QUEUES, team, None, {"spec": {"stopPolicy": "None"}})
        pods = await pods_are(deployment, team, dict.fromkeys(GROUPS, "Running"))
        assert all(map(is_on_flavor, pods))
        for pod in pods:
            given = pod["metadata"]["annotations"]
            group = pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-index"]
            role = "worker" if pod["metadata"]["name"].count("-") > 1 else "leader"
            name = found[group]["metadata"]["name"]
            assert (given[f"{K}pod-group-name"], given[f"{K}prebuilt-workload-name"]) == (name, name)
            assert (given[f"{K}role-hash"], given[f"{K}pod-group-total-count"]) == (role, "2")
        other = found["1"]["metadata"]["name"]
        await deployment.merge(WORKLOADS, other, team, {"spec": {"active": False}})
        await are(deployment, team, {"0": ADMITTED, "1": ("Evicted", "True")})

        async def first_alone() -> bool:
            shown = await seen(deployment, team)
            runs = {name for name, phase in shown.items() if phase == "Running"}
            return runs == {"lws-0", "lws-0-1"} and shown.get("lws-1") == "gated"

        await until(first_alone)
        await deployment.merge(WORKLOADS, other, team, {"spec": {"active": True}})
        await pods_are(deployment, team, dict.fromkeys(GROUPS, "Running"))
        await are(deployment, team, {"0": ADMITTED, "1": ADMITTED})
        await deployment.client.delete(SETS, "lws", team, propagation=Propagation.BACKGROUND)

        async def gone() -> bool:
            return await deployment.all(WORKLOADS, team) == [] and await deployment.all(PODS, team) == []

        await until(gone)


async def test_groups_come_and_go_with_the_replicas(deployment: Deployment, tmp_path: Path) -> None:
    """More groups wait for quota of their own; the Workloads of groups that are taken away are deleted."""
    team = deployment.fresh("team")
    async with running(deployment, team, tmp_path / "operator", *furnished(team)):
        await made(deployment, leader_worker_set(team, replicas=1, cpu="500m"))
        first = await are(deployment, team, {"0": ADMITTED})
        await deployment.merge(SETS, "lws", team, {"spec": {"replicas": 3}})

        async def one_waits() -> bool:
            states = {key: condition(each, "Admitted")[0] for key, each in (await workloads(deployment, team)).items()}
            return states.keys() == {"0", "1", "2"} and sorted(states.values()) in (["", *T2], ["False", *T2])

        await until(one_waits)
        with pytest.raises(ApiError, match="field is immutable"):
            await deployment.merge(SETS, "lws", team, {"spec": {"leaderWorkerTemplate": {"size": 3}}})
        await deployment.merge(SETS, "lws", team, {"spec": {"replicas": 1}})
        left = await are(deployment, team, {"0": ADMITTED})
        assert left["0"]["metadata"]["uid"] == first["0"]["metadata"]["uid"]
        await pods_are(deployment, team, dict.fromkeys(("lws-0", "lws-0-1"), "Running"))
        await deployment.merge(SETS, "lws", team, {"spec": {"replicas": 2}})
        await pods_are(deployment, team, dict.fromkeys(GROUPS, "Running"))


async def test_a_group_that_its_operator_makes_anew_keeps_its_workload(deployment: Deployment, tmp_path: Path) -> None:
    """A worker that is deleted takes its group with it; the new pods run in the same admission."""
    team = deployment.fresh("team")
    async with running(deployment, team, tmp_path / "operator", *furnished(team)):
        await made(deployment, leader_worker_set(team, replicas=1))
        before = await pods_are(deployment, team, dict.fromkeys(("lws-0", "lws-0-1"), "Running"))
        workload = (await are(deployment, team, {"0": ADMITTED}))["0"]
        leader, worker = before
        # Held until the operator has seen it: one that is gone before that is only made anew itself.
        held = {"metadata": {"finalizers": [*worker["metadata"].get("finalizers", []), HOLD]}}
        await deployment.merge(PODS, "lws-0-1", team, held)
        await deployment.client.delete(PODS, "lws-0-1", team)

        async def leader_goes() -> bool:
            found = [each["metadata"] for each in await deployment.all(PODS, team)]
            return not any(
                each["uid"] == leader["metadata"]["uid"] and "deletionTimestamp" not in each for each in found
            )

        await until(leader_goes)
        left = (await deployment.get(PODS, "lws-0-1", team))["metadata"]["finalizers"]
        free = {"metadata": {"finalizers": [each for each in left if each != HOLD]}}
        await deployment.merge(PODS, "lws-0-1", team, free)

        async def is_new() -> bool:
            pods = await deployment.all(PODS, team)
            uids = {each["metadata"]["uid"] for each in pods if each["status"].get("phase") == "Running"}
            return len(uids) == 2 and not uids & {each["metadata"]["uid"] for each in before}

        await until(is_new)
        after = (await are(deployment, team, {"0": ADMITTED}))["0"]
        assert after["metadata"]["uid"] == workload["metadata"]["uid"]


async def test_a_leader_and_its_workers_are_in_one_rack(deployment: Deployment, tmp_path: Path) -> None:
    """Each group in a rack of its own: the workers in the order of their numbers, the leader beside them."""
    team = deployment.fresh("rack")
    together = {f"{K}podset-required-topology": RACK, f"{K}podset-group-name": "all"}
    async with racks(deployment, team, {0: 3, 1: 3}), running(deployment, team, tmp_path / "operator"):
        await made(deployment, leader_worker_set(team, size=3, cpu="3", annotations=together))
        names = [f"lws-{group}{worker}" for group in range(2) for worker in ("", "-1", "-2")]
        pods = await pods_are(deployment, team, dict.fromkeys(names, "Running"))
        nodes = {each["metadata"]["name"]: each["spec"]["nodeName"] for each in pods}
        found = await are(deployment, team, {"0": ADMITTED, "1": ADMITTED})
        for group, workload in found.items():
            assert assigned(workload, "leader") == [nodes[f"lws-{group}"]]
            assert assigned(workload, "worker") == [nodes[f"lws-{group}-1"], nodes[f"lws-{group}-2"]]
            of = {node.rpartition("-")[0] for name, node in nodes.items() if name.startswith(f"lws-{group}")}
            assert len(of) == 1
