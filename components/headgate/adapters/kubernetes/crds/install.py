"""
Installing Kueue's CustomResourceDefinitions into a cluster, and inspecting existing ones.

Called by `headgate crds install` and `diff`, and by `headgate up` before it starts anything (`missing_crds`). Contract:
definitions that others installed (Kueue itself, a Helm chart) are inspected and left unchanged unless `force` is given;
every step is reported when it is done, so that a later failure hides nothing; running it again is safe.
"""

import enum
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import anyio
import msgspec

from headgate.adapters.kubernetes.client import KubeClient, PatchType
from headgate.adapters.kubernetes.crds.compare import SchemaDifference, differences, missing_fields
from headgate.adapters.kubernetes.crds.kinds import KUEUE_GROUP, KUEUE_KINDS
from headgate.adapters.kubernetes.crds.render import (
    CA_FROM,
    MANAGED_BY,
    MANAGER,
    Conversion,
    custom_resource_definitions,
)
from headgate.adapters.kubernetes.errors import ApiError, KubernetesError
from headgate.adapters.kubernetes.resources import RESOURCES
from headgate.adapters.kubernetes.server_resources import CUSTOM_RESOURCE_DEFINITIONS

JsonObject = dict[str, Any]

ESTABLISH_TIMEOUT_S: Final = 30.0
"""How long an API server may take to serve a definition that it has accepted; it takes less than a second."""

WEBHOOK: Final = Conversion()
"""The webhook at its usual address."""

_POLL_S: Final = 0.1
_STORED: Final = KUEUE_KINDS[0].version


class CrdError(KubernetesError):
    """An existing definition keeps ours from being installed. The message has the remedy."""


class InstallOutcome(enum.Enum):
    """The outcome for a definition, or with a dry run the expected one."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    REPLACED = "replaced"
    LEFT = "left alone"


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """
    The outcome for one definition.

    `detail` is the reason; `usable` is whether Headgate can work with the installed one.
    """

    name: str
    state: InstallOutcome
    detail: str = ""
    usable: bool = True


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """How the definition in a cluster differs from ours; `there` is whether it has one at all."""

    name: str
    there: bool
    differences: tuple[SchemaDifference, ...] = ()


async def install(
    client: KubeClient,
    *,
    convert: bool | None = None,
    webhook: Conversion = WEBHOOK,
    dry_run: bool = False,
    force: bool = False,
    timeout_s: float = ESTABLISH_TIMEOUT_S,
) -> AsyncIterator[Installed]:
    """
    Install what is missing and bring what is ours up to date, one definition after the other.

    Each is yielded when the API server serves it. `dry_run` lets the server check everything and keep nothing; `force`
    replaces the definitions that others installed. `convert` is whether `webhook` converts between the versions; None
    leaves definitions of ours as they are in that.

    Raises ApiError, TransportError; CrdError for a definition that is being deleted, whose names another one has, that
    may have objects which only its present conversion can read, or that is not served in time.
    """
    plain, converted = custom_resource_definitions(), custom_resource_definitions(webhook)
    for without, with_webhook in zip(plain, converted, strict=True):
        found = await _read(client, without["metadata"]["name"])
        definition = with_webhook if convert else without
        if convert is None and found is not None and _is_ours(found) and _is_converted(found):
            kept = found["spec"]["conversion"]
            definition = {**with_webhook, "spec": {**with_webhook["spec"], "conversion": kept}}
        done = await _install_one(client, definition, found, dry_run=dry_run, force=force)
        if done.state is not InstallOutcome.LEFT and not dry_run:
            await _wait_served(client, definition, timeout_s)
        yield done


async def compare_installed(client: KubeClient) -> list[Compared]:
    """
    Every definition of ours beside the cluster's; with a conversion webhook where the cluster's has one.

    Raises ApiError and TransportError.
    """
    compared = []
    converted = {each["metadata"]["name"]: each for each in custom_resource_definitions(WEBHOOK)}
    for plain in custom_resource_definitions():
        name = plain["metadata"]["name"]
        found = await _read(client, name)
        definition = converted[name] if found is not None and _is_converted(found) else plain
        compared.append(
            Compared(name=name, there=False)
            if found is None
            else Compared(name=name, there=True, differences=tuple(differences(definition, found)))
        )
    return compared


async def missing_crds(client: KubeClient) -> tuple[str, ...]:
    """
    The resources of Kueue's API that Headgate works with and that the API server does not serve, by full name.

    Asks discovery, which everybody who may log in may read. Raises ApiError and TransportError.
    """
    served = await _served(client)
    needed = (each for each in RESOURCES.values() if each.group == KUEUE_GROUP)
    return tuple(f"{each.plural}.{each.group}" for each in needed if each.plural not in served)


async def _install_one(
    client: KubeClient, definition: JsonObject, found: JsonObject | None, *, dry_run: bool, force: bool
) -> Installed:
    name = definition["metadata"]["name"]
    if found is None:
        await _apply(client, definition, dry_run=dry_run)
        return Installed(name=name, state=InstallOutcome.CREATED)
    if found["metadata"].get("deletionTimestamp"):
        raise CrdError(
            f"customresourcedefinition {name} is being deleted, with all its objects: run this again when it is gone"
        )
    if not _is_ours(found):
        if not force:
            return _left_alone(name, definition, found)
        await _replace(client, definition, found, dry_run=dry_run)
        return Installed(name=name, state=InstallOutcome.REPLACED, detail=f"was installed by {_installer(found)}")
    differing = [*differences(definition, found), *_webhook_differences(definition, found)]
    if not differing and _descriptions(definition["spec"]) == _descriptions(found["spec"]):
        return Installed(name=name, state=InstallOutcome.UNCHANGED)
    if _is_converted(found) and not _is_converted(definition):
        _require_stored(found)
        await _replace(client, definition, found, dry_run=dry_run)
    else:
        await _apply(client, definition, dry_run=dry_run)
    if not differing:
        return Installed(name=name, state=InstallOutcome.UPDATED, detail="descriptions")
    more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
    return Installed(name=name, state=InstallOutcome.UPDATED, detail=differing[0].path + more)


def _left_alone(name: str, definition: JsonObject, found: JsonObject) -> Installed:
    """A definition that others installed, and whether it serves what we need."""
    by = f"installed by {_installer(found)}"
    served = {version["name"]: version for version in found["spec"]["versions"] if version["served"]}
    if _STORED not in served:
        detail = f"{by}, does not serve {_STORED}: upgrade it, or replace it with --force"
        return Installed(name=name, state=InstallOutcome.LEFT, detail=detail, usable=False)
    lacking = sorted(missing_fields(_stored_schema(definition), served[_STORED]["schema"]["openAPIV3Schema"]))
    if not lacking:
        return Installed(name=name, state=InstallOutcome.LEFT, detail=f"{by}, serves {_STORED} with every field we use")
    # A status field that the server drops would be written repeatedly; a spec field that it drops is unusable.
    usable = not any(field.startswith("status") for field in lacking)
    then = "objects cannot use them" if usable else "upgrade it, or replace it with --force"
    detail = f"{by}, serves {_STORED} without {', '.join(lacking)}: {then}"
    return Installed(name=name, state=InstallOutcome.LEFT, detail=detail, usable=usable)


def _stored_schema(definition: JsonObject) -> JsonObject:
    schemas = (each["schema"]["openAPIV3Schema"] for each in definition["spec"]["versions"] if each["storage"])
    schema: JsonObject = next(schemas)
    return schema


def _is_ours(found: JsonObject) -> bool:
    metadata = found["metadata"]
    labelled = (metadata.get("labels") or {}).get(MANAGED_BY) == MANAGER
    return labelled or MANAGER in _managers(metadata)


def _managers(metadata: JsonObject) -> Iterator[str]:
    return (each.get("manager", "") for each in metadata.get("managedFields") or () if not each.get("subresource"))


def _installer(found: JsonObject) -> str:
    """The installer of a definition, as far as it is recorded."""
    metadata = found["metadata"]
    release = (metadata.get("annotations") or {}).get("meta.helm.sh/release-name")
    by = (metadata.get("labels") or {}).get(MANAGED_BY)
    return f"the Helm release {release}" if release else by or next(_managers(metadata), "") or "somebody else"


async def _read(client: KubeClient, name: str) -> JsonObject | None:
    body = await client.find(CUSTOM_RESOURCE_DEFINITIONS, name)
    return None if body is None else msgspec.json.decode(body, type=dict)


async def _apply(client: KubeClient, definition: JsonObject, *, dry_run: bool) -> None:
    await client.patch(
        CUSTOM_RESOURCE_DEFINITIONS,
        definition["metadata"]["name"],
        definition,
        patch_type=PatchType.APPLY,
        field_manager=MANAGER,
        force=True,
        dry_run=dry_run,
    )


async def _replace(client: KubeClient, definition: JsonObject, found: JsonObject, *, dry_run: bool) -> None:
    """Replace another's spec with ours. An apply could not remove the conversion that another has set."""
    name = definition["metadata"]["name"]
    if not _is_converted(definition):
        _require_stored(found)
    metadata = found["metadata"]
    kept = {key: value for key, value in (metadata.get("labels") or {}).items() if key != CA_FROM}
    labels = {**kept, **definition["metadata"]["labels"]}
    body = {**found, "metadata": {**metadata, "labels": labels}, "spec": definition["spec"]}
    await client.update(CUSTOM_RESOURCE_DEFINITIONS, name, body, field_manager=MANAGER, dry_run=dry_run)


def _require_stored(found: JsonObject) -> None:
    """Raises CrdError where objects may be stored in a version that nobody converts any more."""
    others = [each for each in found.get("status", {}).get("storedVersions") or () if each != _STORED]
    if others:
        raise CrdError(
            f"customresourcedefinition {found['metadata']['name']} may have objects that are stored as "
            f"{', '.join(others)}, which only a conversion can read: run `headgate crds migrate` while its conversion "
            "works, or install ours with --conversion webhook, and run this again"
        )


def _is_converted(definition: JsonObject) -> bool:
    return (definition["spec"].get("conversion") or {}).get("strategy") == "Webhook"


def _webhook_differences(ours: JsonObject, theirs: JsonObject) -> Iterator[SchemaDifference]:
    """Another address of the webhook. The CA bundle counts where we give one: else the webhook process keeps it."""
    clients = [
        ((each["spec"].get("conversion") or {}).get("webhook") or {}).get("clientConfig") for each in (ours, theirs)
    ]
    if clients[0] is None or clients[1] is None:
        return
    for key in ("service", "url", "caBundle"):
        mine, others = clients[0].get(key), clients[1].get(key)
        if mine != others and not (key == "caBundle" and mine is None):
            path = f"conversion.webhook.clientConfig.{key}"
            yield SchemaDifference(path=path, ours=str(mine), theirs=str(others))


def _descriptions(spec: Any, path: str = "") -> dict[str, str]:
    """The descriptions of all versions, by the place where they are."""
    found: dict[str, str] = {}
    match spec:
        case dict():
            for key, value in spec.items():
                if key == "description" and isinstance(value, str):
                    found[path] = value
                else:
                    found |= _descriptions(value, f"{path}.{key}")
        case list():
            for index, each in enumerate(spec):
                place = each["name"] if isinstance(each, dict) and "schema" in each else index
                found |= _descriptions(each, f"{path}.{place}")
        case _:
            pass
    return found


async def _wait_served(client: KubeClient, definition: JsonObject, timeout_s: float) -> None:
    """Wait until the API server has established the definition, discovery lists it and its objects can be read."""
    name, plural = definition["metadata"]["name"], definition["spec"]["names"]["plural"]
    with anyio.move_on_after(timeout_s):
        while True:
            found = await _read(client, name)
            conditions = {each["type"]: each for each in (found or {}).get("status", {}).get("conditions") or ()}
            names = conditions.get("NamesAccepted", {})
            if names.get("status") == "False":
                raise CrdError(f"customresourcedefinition {name} is stored and not served: {names.get('message', '')}")
            established = conditions.get("Established", {}).get("status") == "True"
            if established and plural in await _served(client) and await _answers(client, plural):
                return
            await anyio.sleep(_POLL_S)
    raise CrdError(
        f"customresourcedefinition {name} is stored, and the API server has not served it in {timeout_s:g} s"
    )


async def _answers(client: KubeClient, plural: str) -> bool:
    """Whether a collection can be read: a server that has just begun to serve it answers 404, 429 or 503 at first."""
    try:
        await client.request("GET", f"/apis/{KUEUE_GROUP}/{_STORED}/{plural}", query={"limit": "1"})
    except ApiError as error:
        if error.status in (404, 429, 503):
            return False
        if error.is_access_denied:
            return True  # it is served, if not to us
        raise
    return True


class _Listed(msgspec.Struct):
    name: str


class _ResourceList(msgspec.Struct):
    resources: list[_Listed] = []


async def _served(client: KubeClient) -> set[str]:
    try:
        body = await client.request("GET", f"/apis/{KUEUE_GROUP}/{_STORED}")
    except ApiError as error:
        if error.is_not_found:
            return set()
        raise
    return {each.name for each in msgspec.json.decode(body, type=_ResourceList).resources}
