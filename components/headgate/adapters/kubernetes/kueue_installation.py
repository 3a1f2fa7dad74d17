"""
What an installation of Kueue has registered with the API server, and changing it to Headgate's and back.

Kueue's controller can be stopped, but its webhook configurations, the conversion webhook of its definitions and its
APIServices go on to name it: creations are refused, v1beta1 cannot be read, and namespaces cannot be deleted. `detach`
takes these away and `reattach` puts them back. Definitions and objects stay where they are.

Contract: everything that is taken away is first recorded in a ConfigMap in Kueue's own namespace, so that `detach` may
be interrupted anywhere and run again, and the way back needs nothing but the cluster. Both yield every step when it is
done. Nothing here starts or stops a process; `kueue_runs` and `headgate_runs` say whether one does.

Called by `headgate takeover` and `headgate handback`.
"""

import datetime as dt
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import msgspec

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.crds.kinds import KUEUE_GROUP
from headgate.adapters.kubernetes.crds.render import CA_FROM, MANAGED_BY, MANAGER, Conversion
from headgate.adapters.kubernetes.errors import ApiError, KubernetesError
from headgate.adapters.kubernetes.resources import CONFIG_MAPS, LEASES, Resource
from headgate.adapters.kubernetes.server_resources import (
    API_SERVICES,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
)

Json = dict[str, Any]

FIELD_MANAGER: Final = "headgate-takeover"
"""Another than that of `headgate crds`, so that Kueue's definitions remain Kueue's."""

RECORD: Final = "headgate-takeover"
"""The name of the ConfigMap, and its label, with which it is found in whatever namespace Kueue has."""

RECORD_LABEL: Final = "headgate.dev/takeover"
DEFAULT_NAMESPACE: Final = "kueue-system"
FORMER: Final = "v1beta1"
_DROPPED: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
_TRIES_MAX: Final = 5
_PATH_OF_KUEUE: Final = "kueue-x-k8s-io"
"""In the path of a webhook for a kind of Kueue's own."""

REGISTERED: Final = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, API_SERVICES)
"""The kinds of objects that are deleted whole. Those that refuse requests come before what only answers them."""


class InstallationError(KubernetesError):
    """The cluster is in no state to change over. The message has the remedy."""


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """
    An object that leads the API server to Kueue. `body` is all of it; of a definition its `conversion` only.

    `owners` are its managed fields, so that whoever installed it can go on to apply it without conflicts.
    """

    kind: str
    name: str
    body: Json
    owners: list[Json] = []

    @property
    def key(self) -> str:
        """Its key in the record."""
        return f"{self.kind}.{self.name}"


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """What of Kueue is registered now: in which namespace it is installed, and what leads there."""

    namespace: str
    registrations: tuple[Registration, ...]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was done, or with a dry run would be: a verb in the past tense, and its object."""

    kind: str
    name: str
    done: str


async def find_installation(client: KubeClient) -> Installation:
    """What leads the API server to Kueue now. Raises ApiError, TransportError."""
    found: list[Registration] = []
    for resource in REGISTERED:
        found += [_registration(resource.kind, each) for each in await _all(client, resource) if _is_kueues(each)]
    for each in await _all(client, CUSTOM_RESOURCE_DEFINITIONS):
        conversion = each["spec"].get("conversion") or {}
        if each["spec"]["group"] == KUEUE_GROUP and conversion.get("strategy") == "Webhook" and not _is_ours(each):
            name = each["metadata"]["name"]
            found.append(Registration(kind="CustomResourceDefinition", name=name, body={"conversion": conversion}))
    namespaces = [namespace for each in found for namespace in _namespaces(each.body)]
    return Installation(namespace=next(iter(namespaces), DEFAULT_NAMESPACE), registrations=tuple(found))


async def recorded(client: KubeClient) -> Installation | None:
    """What `detach` took away; None where nothing is recorded. Raises ApiError, TransportError."""
    page = await client.list(CONFIG_MAPS, label_selector=RECORD_LABEL)
    for raw in page.items:
        found = msgspec.json.decode(raw)
        data = found.get("data") or {}
        registrations = [msgspec.json.decode(data[key], type=Registration) for key in sorted(data)]
        return Installation(namespace=found["metadata"]["namespace"], registrations=tuple(registrations))
    return None


async def kueue_runs(client: KubeClient, namespace: str, now: dt.datetime) -> str:
    """How it shows that Kueue's controller runs, with the command that stops it; empty when it does not."""
    for each in await _all(client, DEPLOYMENTS, namespace, label_selector="control-plane=controller-manager"):
        name, replicas = each["metadata"]["name"], each["spec"].get("replicas", 1)
        if replicas:
            remedy = f"kubectl -n {namespace} scale deployment {name} --replicas=0"
            return f"the Deployment {namespace}/{name} has {replicas} replica{'s' * (replicas != 1)}: {remedy}"
    for each in await _all(client, LEASES, namespace):
        spec, name = each["spec"], each["metadata"]["name"]
        if name.endswith(KUEUE_GROUP) and spec.get("holderIdentity") and spec.get("renewTime"):
            age_s = (now - dt.datetime.fromisoformat(spec["renewTime"])).total_seconds()
            if age_s < spec.get("leaseDurationSeconds", 15):
                holder = spec["holderIdentity"]
                return f"{holder} has renewed the Lease {namespace}/{name} {max(age_s, 0):.0f} s ago: stop it"
    return ""


async def headgate_runs(client: KubeClient) -> str:
    """How it shows that processes of Headgate run, with the command that stops them; empty when none does."""
    for each in await _all(client, DEPLOYMENTS, label_selector="app.kubernetes.io/name=headgate"):
        metadata = each["metadata"]
        component = (each["spec"]["template"]["metadata"].get("labels") or {}).get("app.kubernetes.io/component")
        replicas = each["spec"].get("replicas", 1)
        if replicas and component != "webhook":
            namespace = metadata["namespace"]
            remedy = (
                f"kubectl -n {namespace} scale deployment --replicas=0 -l "
                "'app.kubernetes.io/name=headgate,app.kubernetes.io/component!=webhook'"
            )
            return f"the Deployment {namespace}/{metadata['name']} has {replicas} replicas: {remedy}"
    return ""


async def detach(
    client: KubeClient, found: Installation, webhook: Conversion | None, *, dry_run: bool = False
) -> AsyncIterator[Step]:
    """
    Record what leads to Kueue, then take it away.

    `webhook` converts between the versions from now on; with None v1beta1 is no longer served. Raises ApiError,
    TransportError, InstallationError where objects may be stored in a version that nobody could convert.
    """
    definitions = [each for each in found.registrations if each.kind == "CustomResourceDefinition"]
    if webhook is None:
        for each in definitions:
            await _require_stored(client, each.name)
    if found.registrations:
        await _record(client, found, dry_run=dry_run)
        yield Step(kind="ConfigMap", name=f"{found.namespace}/{RECORD}", done="recorded")
    for each in definitions:
        await _convert(client, each.name, webhook, dry_run=dry_run)
        done = "converted by headgate" if webhook is not None else f"serves {FORMER} no longer"
        yield Step(kind=each.kind, name=each.name, done=done)
    for each in found.registrations:
        if each.kind != "CustomResourceDefinition":
            await _delete(client, _resource_of(each.kind), each.name, dry_run=dry_run)
            yield Step(kind=each.kind, name=each.name, done="removed")


async def reattach(client: KubeClient, found: Installation, *, dry_run: bool = False) -> AsyncIterator[Step]:
    """
    Put back what `detach` has recorded; the record goes last.

    What refuses requests comes first, so that none passes unseen. Raises ApiError, TransportError.
    """
    for each in found.registrations:
        if each.kind == "CustomResourceDefinition":
            continue
        done = await _put_back(client, each, dry_run=dry_run)
        yield Step(kind=each.kind, name=each.name, done=done)
    for each in found.registrations:
        if each.kind == "CustomResourceDefinition":
            await _convert_as_before(client, each, dry_run=dry_run)
            yield Step(kind=each.kind, name=each.name, done="converted by kueue")


async def forget(client: KubeClient, found: Installation, *, dry_run: bool = False) -> Step:
    """Delete the record, once everything is back. Raises ApiError, TransportError."""
    await client.delete(CONFIG_MAPS, RECORD, found.namespace, dry_run=dry_run)
    return Step(kind="ConfigMap", name=f"{found.namespace}/{RECORD}", done="removed")


# --- one object ------------------------------------------------------------------------------------------------------


def _is_ours(found: Json) -> bool:
    labels = found["metadata"].get("labels") or {}
    return CA_FROM in labels or labels.get(MANAGED_BY) == MANAGER


def _managed_by_us(found: Json) -> bool:
    owners = found["metadata"].get("managedFields") or ()
    return any(each.get("manager", "").startswith(MANAGER) for each in owners)


def _is_kueues(found: Json) -> bool:
    if _is_ours(found):
        return False
    spec = found.get("spec") or {}
    if spec.get("group") == f"visibility.{KUEUE_GROUP}":
        return spec.get("service") is not None
    clients = [each["clientConfig"] for each in found.get("webhooks") or ()]
    paths = [(each.get("service") or {}).get("path") or each.get("url", "") for each in clients]
    return any(_PATH_OF_KUEUE in each for each in paths)


def _namespaces(body: Json) -> Iterator[str]:
    """The namespaces of the Services that an object leads to."""
    hooks = [*(body.get("webhooks") or ()), (body.get("conversion") or {}).get("webhook") or {}]
    services = [(each.get("clientConfig") or {}).get("service") for each in hooks]
    services.append((body.get("spec") or {}).get("service"))
    return (each["namespace"] for each in services if each)


def _registration(kind: str, found: Json) -> Registration:
    metadata = {key: value for key, value in found["metadata"].items() if key not in _DROPPED}
    body = {key: value for key, value in found.items() if key != "status"} | {"metadata": metadata}
    owners = [each for each in found["metadata"].get("managedFields") or () if "subresource" not in each]
    return Registration(kind=kind, name=metadata["name"], body=body, owners=owners)


def _resource_of(kind: str) -> Resource:
    return next(each for each in REGISTERED if each.kind == kind)


async def _all(
    client: KubeClient, resource: Resource, namespace: str | None = None, *, label_selector: str = ""
) -> list[Json]:
    try:
        page = await client.list(resource, namespace, label_selector=label_selector)
    except ApiError as error:
        if error.is_unserved:  # an API server without an aggregator has no APIServices
            return []
        raise
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    return [{**kind, **msgspec.json.decode(raw, type=dict)} for raw in page.items]


async def _get(client: KubeClient, resource: Resource, name: str) -> Json | None:
    body = await client.find(resource, name)
    return None if body is None else msgspec.json.decode(body, type=dict)


async def _record(client: KubeClient, found: Installation, *, dry_run: bool) -> None:
    """Add to the record: what an earlier, interrupted run has recorded and taken away stays in it."""
    data = {each.key: msgspec.json.encode(each).decode() for each in found.registrations}
    metadata: Json = {"name": RECORD, "namespace": found.namespace, "labels": {RECORD_LABEL: "", MANAGED_BY: MANAGER}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    try:
        await client.patch(
            CONFIG_MAPS, RECORD, {"data": data}, found.namespace, field_manager=FIELD_MANAGER, dry_run=dry_run
        )
    except ApiError as error:
        if not error.is_not_found:
            raise
        await client.create(CONFIG_MAPS, body, found.namespace, field_manager=FIELD_MANAGER, dry_run=dry_run)


async def _delete(client: KubeClient, resource: Resource, name: str, *, dry_run: bool) -> None:
    try:
        await client.delete(resource, name, dry_run=dry_run)
    except ApiError as error:
        if not error.is_not_found:
            raise


async def _put_back(client: KubeClient, each: Registration, *, dry_run: bool) -> str:
    """Create an object anew, with its former owners. Somebody may have applied Kueue's manifests meanwhile."""
    resource = _resource_of(each.kind)
    there = await _get(client, resource, each.name)
    if there is not None and not _is_ours(there):
        if _managed_by_us(there) and not dry_run:  # created by a run that was cut off
            await _give_to(client, resource, each.name, each.owners)
        return "was there already"
    if there is not None:  # an APIService has one name, whoever serves it
        version = {"resourceVersion": there["metadata"]["resourceVersion"]}
        body = {**each.body, "metadata": {**each.body["metadata"], **version}}
        await client.update(resource, each.name, body, field_manager=FIELD_MANAGER, dry_run=dry_run)
    else:
        await client.create(resource, each.body, field_manager=FIELD_MANAGER, dry_run=dry_run)
    if not dry_run:
        await _give_to(client, resource, each.name, each.owners)
    return "restored"


# --- definitions -----------------------------------------------------------------------------------------------------


async def _require_stored(client: KubeClient, name: str) -> None:
    """Raises InstallationError where objects may be stored in a version that nobody will be able to convert."""
    found = await _get(client, CUSTOM_RESOURCE_DEFINITIONS, name) or {}
    if FORMER in (found.get("status", {}).get("storedVersions") or ()):
        raise InstallationError(
            f"customresourcedefinition {name} may have objects that are stored as {FORMER}, which only a conversion "
            "can read: run `headgate crds migrate` while Kueue runs, or take over with --conversion webhook"
        )


async def _convert(client: KubeClient, name: str, webhook: Conversion | None, *, dry_run: bool) -> None:
    """Let our webhook convert a definition's objects, or serve its former version no longer."""

    def change(found: Json) -> None:
        spec = found["spec"]
        if webhook is None:
            spec["conversion"] = {"strategy": "None"}
            for version in spec["versions"]:
                version["served"] = version["served"] and version["name"] != FORMER
        else:
            spec["conversion"] = webhook.to_spec()
        secret = webhook.secret if webhook is not None and not webhook.ca_bundle else ""
        found["metadata"]["labels"] = {**(found["metadata"].get("labels") or {}), CA_FROM: secret}

    await _change(client, name, change, dry_run=dry_run)


async def _convert_as_before(client: KubeClient, each: Registration, *, dry_run: bool) -> None:
    def change(found: Json) -> None:
        found["spec"]["conversion"] = each.body["conversion"]
        for version in found["spec"]["versions"]:
            version["served"] = version["served"] or version["name"] == FORMER
        (found["metadata"].get("labels") or {}).pop(CA_FROM, None)

    there = await _get(client, CUSTOM_RESOURCE_DEFINITIONS, each.name)
    if there is None:
        return
    found = await _change(client, each.name, change, dry_run=dry_run) if _is_ours(there) else there
    if found is not None and _managed_by_us(found) and not dry_run:
        owners = found["metadata"].get("managedFields") or []
        theirs = [owner for owner in owners if not owner.get("manager", "").startswith(MANAGER)]
        await _give_to(client, CUSTOM_RESOURCE_DEFINITIONS, each.name, theirs)


async def _change(client: KubeClient, name: str, change: Callable[[Json], None], *, dry_run: bool) -> Json | None:
    """Change a definition and write it at the resourceVersion that it was read at; None when there is none."""
    for left in reversed(range(_TRIES_MAX)):
        found = await _get(client, CUSTOM_RESOURCE_DEFINITIONS, name)
        if found is None:
            return None
        change(found)
        try:
            raw = await client.update(
                CUSTOM_RESOURCE_DEFINITIONS, name, found, field_manager=FIELD_MANAGER, dry_run=dry_run
            )
            return msgspec.json.decode(raw, type=dict)
        except ApiError as error:
            if error.status != 409 or not left:  # the API server writes its status meanwhile
                raise
    return None


async def _give_to(client: KubeClient, resource: Resource, name: str, owners: list[Json]) -> None:
    """Make the fields of an object belong to these managers, so that their next apply has no conflict with us."""
    await client.patch(resource, name, {"metadata": {"managedFields": owners}}, field_manager=FIELD_MANAGER)
