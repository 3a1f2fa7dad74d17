"""
What Headgate has written into objects of Kueue's kinds that Kueue does not know, and removing it.

The condition and the annotation of objects in quarantine (`headgate.core.fold.quarantine`), and the annotation that
keeps what only v1beta1 can say (`headgate.core.versions`). Everything else that Headgate writes is Kueue's own: status,
finalizers, labels, and what an admission puts into a job.

Called by `headgate handback`. It may be interrupted and run again.
"""

from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from headgate.adapters.kubernetes.client import KubeClient, PatchType
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import RESOURCES, Resource
from headgate.core.fold.quarantine import QUARANTINED, RETRY
from headgate.core.versions.converting import KEPT

Json = dict[str, Any]

_ANNOTATIONS: Final = (RETRY, KEPT)
_KUEUE: Final = "kueue.x-k8s.io"


async def clean(client: KubeClient, *, dry_run: bool = False) -> AsyncIterator[tuple[str, str]]:
    """Remove it from every object; yields kind and name of each that had something. Raises ApiError, TransportError."""
    for resource in RESOURCES.values():
        if resource.group != _KUEUE:
            continue
        async for page in client.pages(resource):
            for raw in page.items:
                found = msgspec.json.decode(raw, type=dict)
                writes = list(_writes(found))
                for subresource, patch in writes:
                    await _patch(client, resource, found, subresource, patch, dry_run=dry_run)
                if writes:
                    metadata = found["metadata"]
                    name = "/".join(each for each in (metadata.get("namespace"), metadata["name"]) if each)
                    yield resource.kind, name


def _writes(found: Json) -> list[tuple[str | None, list[Json]]]:
    """JSON patches, each with the subresource that it is for. They change nothing if somebody else was faster."""
    writes: list[tuple[str | None, list[Json]]] = []
    conditions = (found.get("status") or {}).get("conditions") or []
    for index, each in enumerate(conditions):
        if each["type"] == QUARANTINED:
            path = f"/status/conditions/{index}"
            removal = [{"op": "test", "path": f"{path}/type", "value": QUARANTINED}, {"op": "remove", "path": path}]
            writes.append(("status", removal))
    there = found["metadata"].get("annotations") or {}
    paths = [f"/metadata/annotations/{each.replace('/', '~1')}" for each in _ANNOTATIONS if each in there]
    if paths:
        writes.append((None, [{"op": "remove", "path": path} for path in paths]))
    return writes


async def _patch(
    client: KubeClient, resource: Resource, found: Json, subresource: str | None, patch: list[Json], *, dry_run: bool
) -> None:
    name, namespace = found["metadata"]["name"], found["metadata"].get("namespace")
    try:
        await client.patch(
            resource, name, patch, namespace, patch_type=PatchType.JSON, subresource=subresource, dry_run=dry_run
        )
    except ApiError as error:
        if not error.is_not_found:
            raise
