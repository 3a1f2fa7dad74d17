"""
Storage migration: every object of Kueue's kinds stored in the storage version, and no other version recorded.

An object stays in etcd in the version in which it was last written. Before a version can be dropped, or a conversion
removed, every object has to be written once more, and `status.storedVersions` of its definition has to say so.

Called by `headgate crds migrate`. It may be interrupted at any moment and run again: an object that is up to date costs
one request and no write, and `storedVersions` changes only after the last object, at the resourceVersion that the
definition had before the first.
"""

from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
import msgspec

from headgate.adapters.kubernetes.client import KubeClient, PatchType
from headgate.adapters.kubernetes.crds.install import CrdError
from headgate.adapters.kubernetes.crds.kinds import KUEUE_GROUP
from headgate.adapters.kubernetes.errors import ApiError, KubernetesError
from headgate.adapters.kubernetes.resources import Resource
from headgate.adapters.kubernetes.server_resources import CUSTOM_RESOURCE_DEFINITIONS

JsonObject = dict[str, Any]

WRITES_AT_ONCE: Final = 8
"""Objects that are written at the same time: a small part of what an API server accepts at once."""


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """What was done for one definition: `stored` are the versions before, `objects` how many were written anew."""

    name: str
    version: str
    stored: tuple[str, ...]
    objects: int = 0

    @property
    def is_needed(self) -> bool:
        """Whether objects may have been stored in another version."""
        return self.stored != (self.version,)


class _Meta(msgspec.Struct):
    name: str
    namespace: str | None = None


class _Object(msgspec.Struct):
    metadata: _Meta


async def migrate(client: KubeClient, *, dry_run: bool = False) -> AsyncIterator[Migrated]:
    """
    Migrate what is served of Kueue's group, one definition after the other, whoever has installed it.

    Raises ApiError and TransportError, also where an object cannot be read because its conversion webhook does not
    answer; CrdError for a definition that somebody changes meanwhile.
    """
    page = await client.list(CUSTOM_RESOURCE_DEFINITIONS)
    found = [msgspec.json.decode(raw, type=dict) for raw in page.items]
    for definition in found:
        if definition["spec"]["group"] == KUEUE_GROUP and not definition["metadata"].get("deletionTimestamp"):
            yield await _migrate_one(client, definition, dry_run=dry_run)


async def _migrate_one(client: KubeClient, definition: JsonObject, *, dry_run: bool) -> Migrated:
    spec = definition["spec"]
    version = next(each["name"] for each in spec["versions"] if each["storage"])
    stored = tuple(sorted(definition.get("status", {}).get("storedVersions") or ()))
    before = Migrated(name=definition["metadata"]["name"], version=version, stored=stored)
    if not before.is_needed:
        return before
    resource = Resource(
        group=KUEUE_GROUP,
        version=version,
        plural=spec["names"]["plural"],
        kind=spec["names"]["kind"],
        namespaced=spec["scope"] == "Namespaced",
    )
    count = 0
    async for page in client.pages(resource):
        metas = [msgspec.json.decode(raw, type=_Object).metadata for raw in page.items]
        count += len(metas)
        if not dry_run:
            await _write_anew(client, resource, metas)
    if not dry_run:
        await _record(client, definition, version)
    return msgspec.structs.replace(before, objects=count)


async def _write_anew(client: KubeClient, resource: Resource, metas: list[_Meta]) -> None:
    """Write a page of objects as they are, a few at a time. Raises KubernetesError for the first that fails."""
    limiter = anyio.CapacityLimiter(WRITES_AT_ONCE)
    errors: list[KubernetesError] = []

    async def write(meta: _Meta) -> None:
        async with limiter:
            if errors:
                return
            try:
                # An empty patch: the server encodes what it has in the storage version, and writes it if that differs.
                await client.patch(resource, meta.name, {}, meta.namespace, patch_type=PatchType.MERGE)
            except KubernetesError as error:
                if not (isinstance(error, ApiError) and error.is_not_found):  # deleted meanwhile
                    errors.append(error)

    async with anyio.create_task_group() as tasks:
        for meta in metas:
            tasks.start_soon(write, meta)
    if errors:
        raise errors[0]


async def _record(client: KubeClient, definition: JsonObject, version: str) -> None:
    name = definition["metadata"]["name"]
    status = {**definition["status"], "storedVersions": [version]}
    try:
        await client.update(CUSTOM_RESOURCE_DEFINITIONS, name, {**definition, "status": status}, subresource="status")
    except ApiError as error:
        if error.status == 409:
            raise CrdError(
                f"customresourcedefinition {name} was changed meanwhile: its objects are stored as {version}; run "
                "this again to record it"
            ) from error
        raise
