"""Plain pods and pod groups with a topology on a real control plane, gated as admission leaves them."""

import pytest
from tests.kube.e2e.cells import Deployment, Json
from tests.kube.e2e.objects import furnished
from tests.kube.e2e.racks import FOR_EVER_MS, HOST, RACK, assigned, racks, tolerations
from tests.kube.e2e.seeing import becomes, has, workload_of
from tests.kube.e2e.test_admission import configured
from tests.kube.e2e.test_pods import K, grouped
from tests.kube.e2e.test_pods import pod as plain
from tests.support.waiting import until

from headgate.adapters.kubernetes.resources import PODS, WORKLOADS

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

FRAMEWORKS = {"frameworks": ["pod"]}


def gated(team: str, made: Json, **annotations: str) -> Json:
    """The pod for the nodes of its team, behind the gates of admission and of the topology."""
    made["metadata"]["annotations"] |= {f"{K}{key.replace('_', '-')}": value for key, value in annotations.items()}
    made["spec"]["schedulingGates"].append({"name": f"{K}topology"})
    made["spec"]["tolerations"] = tolerations(team)
    return made


def member(team: str, number: int, total: int, *, run_ms: int) -> Json:
    """A pod of a group that is to be in one rack, ranked by its index."""
    made = grouped(team, f"p{number}", total, run_ms=run_ms)
    made["metadata"]["labels"] |= {"rank": str(number), f"{K}pod-group-pod-index": str(number)}
    return gated(team, made, podset_required_topology=RACK, pod_group_pod_index_label="rank")


async def running(deployment: Deployment, team: str, pods: int) -> dict[str, str]:
    """Wait until so many pods run, each on the host that its selector names; their nodes by name."""
    nodes: dict[str, str] = {}

    async def do_run() -> bool:
        found = [each for each in await deployment.all(PODS, team) if each["status"]["phase"] == "Running"]
        nodes.update((each["metadata"]["name"], each["spec"]["nodeName"]) for each in found)
        assert all(each["spec"]["nodeSelector"][HOST] == each["spec"]["nodeName"] for each in found)
        return len(nodes) == pods

    await until(do_run, lambda: f"{len(nodes)} of {pods} pods run")
    return nodes


async def test_a_plain_pod_runs_on_the_host_that_it_was_assigned_to(deployment: Deployment) -> None:
    """Both of its gates go, with the host as its node selector; it runs to its end and loses its finalizer."""
    team = deployment.fresh("pods")
    with configured(integrations=FRAMEWORKS) as bridge:
        async with racks(deployment, team, {0: 1}), deployment.cell(team, bridge=bridge):
            await deployment.apply(gated(team, plain(team, "one", run_ms=500), podset_required_topology=RACK))
            workload = await workload_of(deployment, team, has("Finished", reason="Succeeded"))
            assert workload["spec"]["podSets"][0]["topologyRequest"]["required"] == RACK
            found = await becomes(deployment, PODS, "one", team, lambda it: not it["metadata"].get("finalizers"))
            assert found["spec"]["nodeName"] == found["spec"]["nodeSelector"][HOST] == f"{team}-0-0"
            assert "schedulingGates" not in found["spec"]


async def test_the_pods_of_a_group_are_in_one_rack_by_their_index(deployment: Deployment) -> None:
    """Twelve pods of half a CPU, made in another order: only the second rack has room. A host gets adjacent ranks."""
    team = deployment.fresh("pods")
    with configured(integrations=FRAMEWORKS) as bridge:
        async with racks(deployment, team, {0: 1, 1: 2}), deployment.cell(team, bridge=bridge):
            for number in (5, 11, 0, 7, 3, 9, 1, 10, 2, 8, 4, 6):
                await deployment.client.create(PODS, member(team, number, 12, run_ms=FOR_EVER_MS), team)
            workload = await workload_of(deployment, team, has("Admitted"))
            nodes = await running(deployment, team, 12)
            (pod_set,) = workload["spec"]["podSets"]
            by_rank = [nodes[f"p{number}"] for number in range(12)]
            assert by_rank == assigned(workload, pod_set["name"])
            assert set(by_rank) == {f"{team}-1-0", f"{team}-1-1"}


async def test_an_evicted_group_frees_its_rack_for_its_replacements(deployment: Deployment) -> None:
    """The rack has room for one group: the pods that replace the evicted ones get the places that those have left."""
    team = deployment.fresh("pods")
    with configured(integrations=FRAMEWORKS) as bridge:
        async with racks(deployment, team, {0: 1}), deployment.cell(team, bridge=bridge):
            first = [member(team, number, 8, run_ms=FOR_EVER_MS) for number in range(8)]
            for each in first:
                await deployment.client.create(PODS, each, team)
            assert set((await running(deployment, team, 8)).values()) == {f"{team}-0-0"}
            name = (await workload_of(deployment, team, has("Admitted")))["metadata"]["name"]
            await deployment.merge(WORKLOADS, name, team, {"spec": {"active": False}})
            await workload_of(deployment, team, has("Evicted"), has("QuotaReserved", "False"))
            await deployment.merge(WORKLOADS, name, team, {"spec": {"active": True}})
            for number in range(8):
                replacement = member(team, number, 8, run_ms=500)
                replacement["metadata"]["name"] = f"r{number}"
                await deployment.client.create(PODS, replacement, team)
            await workload_of(deployment, team, has("Finished", reason="Succeeded"))
            ended = {each["metadata"]["name"]: each for each in await deployment.all(PODS, team)}
            assert {ended[f"r{number}"]["spec"]["nodeName"] for number in range(8)} == {f"{team}-0-0"}


async def test_a_flavor_without_a_topology_lifts_both_gates_at_once(deployment: Deployment) -> None:
    """Admission gates every queued pod for a topology; one whose flavor has none runs like any other."""
    team = deployment.fresh("pods")
    with configured(integrations=FRAMEWORKS) as bridge:
        async with deployment.cell(team, bridge=bridge):
            await deployment.apply(*furnished(team), gated(team, plain(team, "one", run_ms=500)))
            await workload_of(deployment, team, has("Finished", reason="Succeeded"))
            found = await becomes(deployment, PODS, "one", team, lambda it: it["status"]["phase"] == "Succeeded")
            assert HOST not in found["spec"].get("nodeSelector", {})
