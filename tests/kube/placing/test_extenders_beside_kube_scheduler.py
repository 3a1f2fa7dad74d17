"""
One extender, called by the kube-scheduler and then by Headgate, on the same control plane.

It is an HTTP server of this test. What it is sent, the nodes that pods get, and what a failed binding says in the pod's
condition must be the same.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.crds.install import install
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.resources import NODES, PODS
from headgate.cli.supervisor import Supervisor, UpOptions
from headgate.testing.control_plane import NoAssetsError, Options, control_plane, find_assets
from headgate.testing.control_plane.kube_scheduler import find_kube_scheduler, kube_scheduler

pytestmark = [pytest.mark.anyio, pytest.mark.kube, pytest.mark.operators]

Json = dict[str, Any]
NAMESPACE = "default"
SCORES = {"n1": 2, "n2": 7}
REFUSED = "no licence"
FAILING = "-failing"


@pytest.fixture(autouse=True, scope="module")
def _built() -> None:
    try:
        find_kube_scheduler()
    except NoAssetsError as error:
        pytest.skip(str(error))


class Webhook:
    """The extender. `calls` are the verbs and bodies by pod; binding those that are called so fails with 500."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.calls: dict[str, list[tuple[str, Json]]] = {}
        self.url = ""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        verb, args = request.path.rpartition("/")[2], await request.json()
        pod = args["PodName"] if verb == "bind" else args["Pod"]["metadata"]["name"]
        self.calls.setdefault(pod, []).append((verb, args))
        if verb == "bind":
            return web.Response(status=500) if pod.endswith(FAILING) else web.json_response(await self._bind(args))
        names = args["NodeNames"]
        if verb == "filter":
            left = [name for name in names if name in SCORES]
            failed = {name: REFUSED for name in names if name not in SCORES}
            return web.json_response({"NodeNames": left, "FailedNodes": failed})
        return web.json_response([{"Host": name, "Score": SCORES[name]} for name in names])

    async def _bind(self, args: Json) -> Json:
        metadata = {"name": args["PodName"], "namespace": args["PodNamespace"], "uid": args["PodUID"]}
        target = {"apiVersion": "v1", "kind": "Node", "name": args["Node"]}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        path = PODS.path(namespace=NAMESPACE, name=args["PodName"], subresource="binding")
        answer = await self.client.transport.request(
            "POST", path, body=msgspec.json.encode(body), content_type="application/json"
        )
        return {"Error": "" if answer.status == 201 else msgspec.json.decode(answer.body)["message"]}


@asynccontextmanager
async def serving(client: KubeClient) -> AsyncIterator[Webhook]:
    webhook = Webhook(client)
    runner = web.ServerRunner(web.Server(webhook.handle), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    webhook.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield webhook
    await runner.cleanup()


def pod(name: str) -> Json:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


async def tried(client: KubeClient, webhook: Webhook, who: str) -> tuple[list[Any], Json]:
    """The calls about a pod that gets its node, as far as all agree on them; the condition of one that does not."""
    for name in (f"{who}-bound", f"{who}{FAILING}"):
        await client.create(PODS, pod(name), NAMESPACE)

    async def shown(name: str) -> Json:
        found: Json = msgspec.json.decode(await client.get(PODS, name, NAMESPACE))
        return found

    async def is_bound() -> bool:
        return (await shown(f"{who}-bound"))["spec"].get("nodeName") == "n2"

    async def has_failed() -> bool:
        return bool(condition_of(await shown(f"{who}{FAILING}")))

    await until(is_bound, lambda: str(webhook.calls.get(f"{who}-bound")))
    await until(has_failed, lambda: str(webhook.calls.get(f"{who}{FAILING}")))
    calls = [(verb, summary(verb, args)) for verb, args in webhook.calls[f"{who}-bound"]]
    return calls, condition_of(await shown(f"{who}{FAILING}"))


def condition_of(shown: Json) -> Json:
    conditions = shown["status"].get("conditions") or []
    found = [each for each in conditions if each["type"] == "PodScheduled" and each["status"] == "False"]
    return {name: found[0][name] for name in ("status", "reason", "message")} if found else {}


def summary(verb: str, args: Json) -> Any:
    if verb == "bind":
        return sorted(args), args["Node"], args["PodNamespace"]
    metadata, spec = args["Pod"]["metadata"], args["Pod"]["spec"]
    resources = [container["resources"]["requests"] for container in spec["containers"]]
    return sorted(args), sorted(args["NodeNames"]), metadata["namespace"], resources


async def test_the_same_extender_is_asked_the_same_and_decides_the_same(tmp_path: Path) -> None:
    """Filter, prioritize and bind, in this order; its failure to bind is the reason that the pod shows."""
    async with (
        control_plane(find_assets(), tmp_path / "plane", options=Options(nodes=0)) as plane,
        open_transport(plane.access()) as transport,
    ):
        client = KubeClient(transport)
        for name in ("n1", "n2", "n3"):
            resources = {"cpu": "4", "memory": "8Gi", "pods": "110"}
            status = {"capacity": resources, "allocatable": resources}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
            await client.create(NODES, node)
        async with serving(client) as webhook:
            verbs = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "bindVerb": "bind"}
            extenders = [{"urlPrefix": webhook.url, **verbs, "weight": 10, "nodeCacheCapable": True}]
            scheduler = await kube_scheduler(plane, tmp_path / "scheduler", {"extenders": extenders})
            scheduler.launch()
            await scheduler.wait_ready()
            expected = await tried(client, webhook, "kube")
            await scheduler.stop()
            await client.delete(PODS, f"kube{FAILING}", NAMESPACE)
            async for _ in install(client):
                pass
            document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
            file = tmp_path / "profiles.yaml"
            file.write_text(yaml.safe_dump({**document, "extenders": extenders}))
            up = UpOptions(data=tmp_path / "cell", kubeconfig=str(plane.kubeconfig), placement=str(file))
            async with Supervisor(up) as cell:
                await cell.wait_ready()
                found = await tried(client, webhook, "ours")
    assert found == expected
    assert [verb for verb, _ in expected[0]] == ["filter", "prioritize", "bind"]
    assert expected[1]["reason"] == "SchedulerError"
