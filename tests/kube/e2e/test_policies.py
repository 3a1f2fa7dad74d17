"""What a stolen token of the ungater or the binder cannot change, though RBAC lets it patch the object."""

import json
from typing import Any

import pytest
from tests.kube.e2e.cells import KUEUE, Deployment
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kubeconfig import resolve
from headgate.adapters.kubernetes.resources import PODS, RESOURCES

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

CLUSTER_QUEUES = next(each for each in RESOURCES.values() if each.kind == "ClusterQueue")


async def refused(deployment: Deployment, thief: str, path: str, patch: Any) -> str:
    """The API server's words to a patch by the token of a process; empty when it was carried out."""
    async with open_transport(resolve(kubeconfig=str(deployment.kubeconfigs[thief]))) as transport:
        try:
            await KubeClient(transport).request("PATCH", path, body=patch, content_type="application/merge-patch+json")
        except ApiError as error:
            return str(error)
    return ""


async def test_a_stolen_ungater_cannot_change_what_runs(deployment: Deployment) -> None:
    """Neither the image of a gated pod nor anything of one without a gate; nor may it say that a pod has succeeded."""
    namespace, plane = deployment.fresh("stolen"), deployment.plane
    await plane.kubectl("create", "namespace", namespace)
    container = {"name": "c", "image": "theirs"}
    for name, gates in (("gated", [{"name": "kueue.x-k8s.io/admission"}]), ("free", [])):
        pod = {"containers": [container], "schedulingGates": gates, "restartPolicy": "Never"}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": pod}
        await plane.kubectl("create", "-f", "-", stdin=json.dumps(body))
    gated, free = (f"/api/v1/namespaces/{namespace}/pods/{name}" for name in ("gated", "free"))
    mine = {"spec": {"containers": [{**container, "image": "mine"}]}}

    async def is_held() -> bool:  # a policy counts a moment after it was made
        return "may not change images" in await refused(deployment, "ungater", gated, mine)

    await until(is_held)
    lift = {"metadata": {"labels": {"a": "b"}}}
    assert "behind a scheduling gate only" in await refused(deployment, "ungater", free, lift)
    said = await refused(deployment, "ungater", f"{gated}/status", {"status": {"phase": "Succeeded"}})
    assert "may only fail pods that have no node" in said
    assert not await refused(deployment, "ungater", gated, {"spec": {"schedulingGates": []}})


async def test_a_stolen_ungater_can_say_of_a_queued_pod_only_that_it_is_to_stop(deployment: Deployment) -> None:
    """By the condition TerminationTarget, which it sets before it deletes a pod that has lost its admission."""
    namespace, plane = deployment.fresh("stolen"), deployment.plane
    await plane.kubectl("create", "namespace", namespace)
    for name, labels in (("queued", {"kueue.x-k8s.io/managed": "true"}), ("other", {})):
        meta = {"name": name, "namespace": namespace, "labels": labels}
        spec = {"containers": [{"name": "c", "image": "theirs"}], "nodeName": "node-0"}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        await plane.kubectl("create", "-f", "-", stdin=json.dumps(body))
    queued, other = (f"/api/v1/namespaces/{namespace}/pods/{name}/status" for name in ("queued", "other"))
    stops = {"status": {"conditions": [{"type": "TerminationTarget", "status": "True"}]}}
    ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}

    async def runs() -> bool:
        found = await deployment.get(PODS, "queued", namespace)
        return bool(found["status"]["phase"] == "Running")

    await until(runs)
    conditions = (await deployment.get(PODS, "queued", namespace))["status"]["conditions"]
    stops["status"]["conditions"] += conditions
    for path, patch in ((queued, ready), (queued, {"status": {"phase": "Failed"}}), (other, stops)):

        async def is_held(path: str = path, patch: Any = patch) -> bool:
            return "only fail pods that have no node" in await refused(deployment, "ungater", path, patch)

        await until(is_held)
    assert not await refused(deployment, "ungater", queued, stops)


async def test_a_stolen_binder_cannot_change_quotas(deployment: Deployment) -> None:
    """It takes finalizers off ClusterQueues; their specs are not its own."""
    name = deployment.fresh("stolen-cq")
    queue = {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}}
    await deployment.apply({**queue, "spec": {"namespaceSelector": {}, "queueingStrategy": "StrictFIFO"}})
    patch: dict[str, Any] = {"spec": {"stopPolicy": "HoldAndDrain"}}

    async def is_held() -> bool:
        said = await refused(deployment, "binder", CLUSTER_QUEUES.path(name=name), patch)
        return "may not change specs" in said

    await until(is_held)
    for finalizers in (["kueue.x-k8s.io/resource-in-use"], []):
        patch = {"metadata": {"finalizers": finalizers}}
        assert not await refused(deployment, "binder", CLUSTER_QUEUES.path(name=name), patch)
    found = await deployment.get(CLUSTER_QUEUES, name)
    assert found["spec"].get("stopPolicy", "None") == "None"
