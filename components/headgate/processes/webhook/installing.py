"""
The objects that make an API server apply the rules: webhook configurations, or admission policies.

`install` applies those of one way and removes those of the other, so that no request is checked twice. Only objects
with our label are removed. Bundles of authorities that are in the configurations already stay.
"""

import enum
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec

from headgate.adapters.kubernetes.client import KubeClient, PatchType
from headgate.adapters.kubernetes.crds.render import CA_FROM, MANAGED_BY, MANAGER
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import Resource
from headgate.adapters.kubernetes.server_resources import (
    MUTATING_BINDINGS,
    MUTATING_POLICIES,
    MUTATING_WEBHOOKS,
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
    VALIDATING_WEBHOOKS,
)
from headgate.core.admission.kinds import TARGETS
from headgate.core.admission.policies import policies
from headgate.core.admission.settings import AdmissionSettings
from headgate.core.admission.webhooks import configurations

Json = dict[str, Any]

CERT_MANAGER: Final = "cert-manager.io/inject-ca-from"
ADMISSION_LABEL: Final = "headgate.dev/admission"
"""On all objects of this module; its value is the way."""


class Way(enum.StrEnum):
    """How objects are admitted by the rules."""

    WEBHOOK = "webhook"
    POLICY = "policy"
    OFF = "off"


RESOURCES: Final = (
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    MUTATING_POLICIES,
    MUTATING_BINDINGS,
    VALIDATING_POLICIES,
    VALIDATING_BINDINGS,
)
_BY_KIND: Final = {each.kind: each for each in RESOURCES}


class AdmissionChange(msgspec.Struct, frozen=True, kw_only=True):
    """One object that was applied or removed."""

    kind: str
    name: str
    removed: bool = False


def objects(
    way: Way,
    settings: AdmissionSettings,
    *,
    namespace: str,
    service: str,
    secret: str,
    certificate: str = "",
) -> list[Json]:
    """
    The objects of a way.

    With the name of cert-manager's Certificate in `certificate`, that writes the authority into them; else the webhook
    server does.
    """
    labels = {MANAGED_BY: MANAGER, ADMISSION_LABEL: way.value}
    match way:
        case Way.WEBHOOK:
            annotations = {CERT_MANAGER: f"{namespace}/{certificate}"} if certificate else {}
            trusting = labels if certificate else {**labels, CA_FROM: secret}
            return configurations(
                TARGETS, namespace=namespace, service=service, labels=trusting, annotations=annotations
            )
        case Way.POLICY:
            return policies(TARGETS, settings, namespace=namespace, labels=labels)
        case Way.OFF:
            return []


async def install_admission(
    client: KubeClient, wanted: Sequence[Json], *, dry_run: bool = False
) -> AsyncIterator[AdmissionChange]:
    """
    Apply the objects and remove what others of ours are there, one after the other.

    What refuses comes last and goes first: a policy before its binding. Raises ApiError, TransportError.
    """
    for each in wanted:
        resource, name = _BY_KIND[each["kind"]], each["metadata"]["name"]
        body = await _with_bundles(client, resource, each)
        await client.patch(
            resource, name, body, patch_type=PatchType.APPLY, field_manager=MANAGER, force=True, dry_run=dry_run
        )
        yield AdmissionChange(kind=each["kind"], name=name)
    kept = {(each["kind"], each["metadata"]["name"]) for each in wanted}
    for resource in reversed(RESOURCES):
        async for name in _ours(client, resource):
            if (resource.kind, name) not in kept:
                await client.delete(resource, name, dry_run=dry_run)
                yield AdmissionChange(kind=resource.kind, name=name, removed=True)


async def _ours(client: KubeClient, resource: Resource) -> AsyncIterator[str]:
    try:
        page = await client.list(resource, label_selector=ADMISSION_LABEL)
    except ApiError as error:
        if error.is_unserved:  # an API server without policies
            return
        raise
    for raw in page.items:
        yield msgspec.json.decode(raw)["metadata"]["name"]


async def _with_bundles(client: KubeClient, resource: Resource, wanted: Json) -> Json:
    """A webhook configuration with the bundles that the API server has already: without them it would trust nobody."""
    if "webhooks" not in wanted:
        return wanted
    try:
        found = msgspec.json.decode(await client.get(resource, wanted["metadata"]["name"]))
    except ApiError as error:
        if error.is_not_found:
            return wanted
        raise
    bundles = [each["clientConfig"].get("caBundle") for each in found.get("webhooks") or ()]
    bundle = next((each for each in bundles if each), None)
    if bundle is None:
        return wanted
    webhooks = [{**each, "clientConfig": {**each["clientConfig"], "caBundle": bundle}} for each in wanted["webhooks"]]
    return {**wanted, "webhooks": webhooks}
