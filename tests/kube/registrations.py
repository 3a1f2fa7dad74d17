"""
What is registered with an API server for the whole cluster, and decides about the requests of everybody.

That is servers which it calls (webhooks, conversions, aggregated APIs) and admission policies. A test that leaves one
behind on a shared control plane disturbs those after it, at the latest when the server has ended.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.server_resources import API_SERVICES, CUSTOM_RESOURCE_DEFINITIONS
from headgate.processes.webhook.installing import RESOURCES as ADMISSION
from headgate.testing.control_plane import ControlPlane

_SHARED: Final[dict[ControlPlane, frozenset[str]]] = {}
"""The control planes that several tests work with, and what was registered with them when they were last checked."""


@asynccontextmanager
async def shared(plane: ControlPlane) -> AsyncIterator[None]:
    """Let `left_behind` check a control plane for as long as the block runs."""
    _SHARED[plane] = await registered(plane)
    try:
        yield
    finally:
        del _SHARED[plane]


async def left_behind() -> list[str]:
    """What was registered with shared control planes since they were last checked, and what was removed."""
    found: list[str] = []
    for plane, before in _SHARED.items():
        now = await registered(plane)
        found += [f"{each} is left" for each in sorted(now - before)]
        found += [f"{each} is gone" for each in sorted(before - now)]
        _SHARED[plane] = now
    return found


async def registered(plane: ControlPlane) -> frozenset[str]:
    """The kinds and names of what is registered."""
    async with open_transport(plane.access()) as transport:
        client = KubeClient(transport)
        return frozenset(
            [
                f"{resource.kind} {each['metadata']['name']}"
                for resource in (*ADMISSION, CUSTOM_RESOURCE_DEFINITIONS, API_SERVICES)
                for each in map(msgspec.json.decode, (await client.list(resource)).items)
                if _decides(resource.kind, each)
            ]
        )


def _decides(kind: str, found: dict[str, Any]) -> bool:
    """Whether an object has any effect on the requests of others."""
    match kind:
        case "CustomResourceDefinition":
            return bool(found["spec"].get("conversion", {}).get("strategy") == "Webhook")
        case "APIService":
            return "service" in found["spec"]
        case "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration":
            return bool(found.get("webhooks"))
        case _:
            return True
