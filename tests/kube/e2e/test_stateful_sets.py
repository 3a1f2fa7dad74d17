"""StatefulSets on a real control plane: one pod group with one Workload, through its life."""

import pytest
from tests.kube.e2e.cells import Deployment, Json
from tests.kube.e2e.objects import condition, flavor, furnished
from tests.kube.e2e.racks import RACK, assigned, racks
from tests.kube.e2e.seeing import becomes, has, workload_of
from tests.kube.e2e.serving import LABELS, SELECTOR, TOLERATION, K, is_on_flavor, pods_are, serving, template
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import Propagation
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import CLUSTER_QUEUES, OF_JOBS, PODS, WORKLOADS
from headgate.core.workload.names import workload_name
from headgate.events.ids import JobRef

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

STATEFUL_SETS = OF_JOBS["statefulsets"]
RUNNING = {"serve-0": "Running", "serve-1": "Running"}


def stateful_set(team: str, *, replicas: int = 2, cpu: str = "100m") -> Json:
    made = template(cpu=cpu, labels={"app": "serve"})
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "serve", "namespace": team, "labels": LABELS},
        "spec": {
            "replicas": replicas,
            "serviceName": "serve",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "serve"}},
            "template": made,
        },
    }


def owners_of(workload: Json) -> set[str]:
    return {each["uid"] for each in workload["metadata"]["ownerReferences"]}


async def scale(deployment: Deployment, team: str, replicas: int) -> None:
    await deployment.merge(STATEFUL_SETS, "serve", team, {"spec": {"replicas": replicas}})


async def test_a_stateful_set_waits_runs_is_evicted_and_runs_again(deployment: Deployment) -> None:
    """Its pods are one group, whose Workload is there before them; an eviction deletes them, and new ones wait."""
    team = deployment.fresh("team")
    queues = furnished(team)
    queues[1] = flavor(team, nodeLabels=SELECTOR, tolerations=[TOLERATION])
    queues[2]["spec"]["stopPolicy"] = "Hold"
    await deployment.plane.kubectl("label", "node", "--all", "tier=spot", "--overwrite")
    async with serving(deployment, team, "statefulset", STATEFUL_SETS):
        await deployment.apply(*queues, stateful_set(team))
        found = await workload_of(deployment, team, has("QuotaReserved", "False"))
        of = await deployment.get(STATEFUL_SETS, "serve", team)
        uid = of["metadata"]["uid"]
        assert found["metadata"]["name"] == workload_name(JobRef("apps", "StatefulSet", team, "serve"), uid)
        assert [(each["name"], each["count"]) for each in found["spec"]["podSets"]] == [("main", 2)]
        assert found["metadata"]["labels"] == {f"{K}job-uid": uid}
        assert found["metadata"]["annotations"] == {
            f"{K}is-group-workload": "true",
            f"{K}job-owner-gvk": "apps/v1, Kind=StatefulSet",
            f"{K}job-owner-name": "serve",
        }
        await pods_are(deployment, team, {"serve-0": "gated", "serve-1": "gated"})

        async def are_named() -> bool:
            pods = await deployment.all(PODS, team)
            return all(f"{K}pod-group-name" in each["metadata"]["annotations"] for each in pods)

        await until(are_named)
        for pod in await deployment.all(PODS, team):
            given, labels = pod["metadata"]["annotations"], pod["metadata"]["labels"]
            assert {key: given[K + key] for key in ("pod-group-name", "prebuilt-workload-name")} == dict.fromkeys(
                ("pod-group-name", "prebuilt-workload-name"), found["metadata"]["name"]
            )
            assert (given[f"{K}pod-group-total-count"], given[f"{K}role-hash"]) == ("2", "main")
            assert given[f"{K}pod-group-serving"] == given[f"{K}pod-group-fast-admission"] == "true"
            assert given[f"{K}pod-group-pod-index-label"] == "apps.kubernetes.io/pod-index"
            assert (labels[f"{K}managed"], labels[f"{K}queue-name"]) == ("true", "main")
        await deployment.merge(CLUSTER_QUEUES, team, None, {"spec": {"stopPolicy": "None"}})
        pods = await pods_are(deployment, team, RUNNING)
        assert all(map(is_on_flavor, pods))
        of_all = {uid, *(each["metadata"]["uid"] for each in pods)}
        found = await workload_of(deployment, team, has("PodsReady"), lambda it: owners_of(it) == of_all)
        await deployment.merge(WORKLOADS, found["metadata"]["name"], team, {"spec": {"active": False}})
        await workload_of(deployment, team, has("Evicted"), has("QuotaReserved", "False"))
        await pods_are(deployment, team, {"serve-0": "gated", "serve-1": "gated"})
        assert (await deployment.get(STATEFUL_SETS, "serve", team))["spec"] == of["spec"]
        await deployment.merge(WORKLOADS, found["metadata"]["name"], team, {"spec": {"active": True}})
        await pods_are(deployment, team, RUNNING)
        await deployment.client.delete(STATEFUL_SETS, "serve", team, propagation=Propagation.BACKGROUND)

        async def gone() -> bool:
            return await deployment.all(WORKLOADS, team) == [] and await deployment.all(PODS, team) == []

        await until(gone)


async def test_a_stateful_set_of_no_replicas_keeps_its_workload_without_quota(deployment: Deployment) -> None:
    """The Workload is on hold, and gets its quota anew when the StatefulSet is scaled up; other sizes are refused."""
    team = deployment.fresh("team")
    async with serving(deployment, team, "statefulset", STATEFUL_SETS):
        await deployment.apply(*furnished(team), stateful_set(team))
        await pods_are(deployment, team, RUNNING)
        before = await workload_of(deployment, team, has("Admitted"))
        with pytest.raises(ApiError, match="field is immutable"):
            await scale(deployment, team, 3)
        await scale(deployment, team, 0)
        held = await workload_of(
            deployment, team, has("QuotaReserved", "False", "OnHold"), has("Admitted", "False", "NoReservation")
        )
        assert (held["metadata"]["uid"], held["status"].get("admission")) == (before["metadata"]["uid"], None)
        assert condition(held, "Evicted") == ("", "")
        await becomes(deployment, CLUSTER_QUEUES, team, None, lambda it: not it["status"]["reservingWorkloads"])
        await becomes(deployment, STATEFUL_SETS, "serve", team, lambda it: not it["status"].get("replicas"))
        await scale(deployment, team, 2)
        await pods_are(deployment, team, RUNNING)
        again = await workload_of(deployment, team, has("Admitted"))
        assert again["metadata"]["uid"] == before["metadata"]["uid"]


async def test_a_changed_template_is_rolled_out_within_the_admission(deployment: Deployment) -> None:
    """Each pod is replaced by one of the new image, which waits for no other admission; the Workload stays."""
    team = deployment.fresh("team")
    async with serving(deployment, team, "statefulset", STATEFUL_SETS):
        await deployment.apply(*furnished(team), stateful_set(team))
        await pods_are(deployment, team, RUNNING)
        before = await workload_of(deployment, team, has("Admitted"))
        image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "registry/serve:2"}]
        body = str(image).replace("'", '"')
        await deployment.plane.kubectl("-n", team, "patch", "statefulset", "serve", "--type=json", "-p", body)

        async def are_new() -> bool:
            pods = await deployment.all(PODS, team)
            images = [each["spec"]["containers"][0]["image"] for each in pods]
            phases = [each["status"].get("phase") for each in pods]
            return images == ["registry/serve:2"] * 2 and phases == ["Running"] * 2

        await until(are_new)
        after = await workload_of(deployment, team, has("Admitted"))
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert not after["status"].get("schedulingStats", {}).get("evictions")


async def test_the_pods_of_a_stateful_set_are_in_one_rack_by_their_index(deployment: Deployment) -> None:
    """The nodes that the Workload was assigned to, in the order of the pods' numbers."""
    team = deployment.fresh("rack")
    required = {"kueue.x-k8s.io/podset-required-topology": RACK}
    async with serving(deployment, team, "statefulset", STATEFUL_SETS), racks(deployment, team, {0: 2, 1: 3}):
        made = stateful_set(team, replicas=3, cpu="3")
        made["spec"]["template"]["metadata"]["annotations"] |= required
        await deployment.apply(made)
        names = [f"serve-{number}" for number in range(3)]
        pods = await pods_are(deployment, team, dict.fromkeys(names, "Running"))
        nodes = {each["metadata"]["name"]: each["spec"]["nodeName"] for each in pods}
        workload = await workload_of(deployment, team, has("Admitted"))
        assert [nodes[name] for name in names] == assigned(workload) == [f"{team}-1-{each}" for each in range(3)]
