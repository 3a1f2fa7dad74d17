"""A scheduler of pods for control planes that have none: any node with the labels that a pod asks for will do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
from tests.kube.e2e.cells import Json

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import NODES, PODS

_PAUSE_S = 0.1


@asynccontextmanager
async def pod_scheduler(client: KubeClient) -> AsyncIterator[None]:
    """Binds pods of the default scheduler for as long as the block runs."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_schedule, client)
        yield
        tasks.cancel_scope.cancel()


async def _schedule(client: KubeClient) -> None:
    while True:
        nodes = [msgspec.json.decode(each)["metadata"] for each in (await client.list(NODES)).items]
        for raw in (await client.list(PODS, field_selector="spec.nodeName=")).items:
            pod: Json = msgspec.json.decode(raw)
            spec, meta = pod["spec"], pod["metadata"]
            if spec.get("schedulingGates") or "deletionTimestamp" in meta:
                continue
            wanted = (spec.get("nodeSelector") or {}).items()
            fitting = [each["name"] for each in nodes if wanted <= (each.get("labels") or {}).items()]
            if spec["schedulerName"] == "default-scheduler" and fitting:
                await _bind(client, meta, fitting[0])
        await anyio.sleep(_PAUSE_S)


async def _bind(client: KubeClient, meta: Json, node: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]}, "target": target}
    path = PODS.path(namespace=meta["namespace"], name=meta["name"], subresource="binding")
    try:
        await client.request("POST", path, body=body)
    except ApiError as error:
        if error.status not in (404, 409):  # gone, or bound meanwhile
            raise
