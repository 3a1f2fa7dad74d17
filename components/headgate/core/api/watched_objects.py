"""
What the readers of all kinds of API objects share: metadata, decoding, and the checks of quantities and times.

`headgate.core.reading.decoding` lists the readers. Each kind's Struct extends WatchedObject by the fields that a
decision can depend on, and its reader returns the metadata and the fact. A reader raises WrongFieldError, or msgspec's
errors, for an object that does not have the form of its kind; `decoding.read` adds the name of the object to the error.
"""

from typing import TypeVar

import msgspec
from msgspec.structs import replace

from headgate.core.api.conversion import OLD_FIELDS, VersionError, renew
from headgate.core.api.names import FINALIZER, KUEUE
from headgate.core.kubernetes.conditions import parse_rfc3339
from headgate.core.kubernetes.quantities import QuantityError, parse_quantity
from headgate.events.ids import UnixMs
from headgate.events.objects import ApiBranch, ApiObject, OwnerReference, PodSpec, PodTemplate, TemplateMeta


class _Owner(ApiObject, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(ApiBranch, frozen=True):
    """The decoded metadata of every object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None
    owner_references: tuple[_Owner, ...] | None = None


class WatchedObject(ApiBranch, frozen=True):
    """An object of any kind, of which only the metadata is read."""

    metadata: Metadata = Metadata()


class WrongFieldError(ValueError):
    """An invalid value that decodes, with its field."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


METADATA_DECODER = msgspec.json.Decoder(WatchedObject)
_DECODERS: dict[type, msgspec.json.Decoder[WatchedObject]] = {}
_Kind = TypeVar("_Kind", bound=WatchedObject)


def decode(kind: type[_Kind], raw: bytes) -> _Kind:
    """One object as its kind's Struct. Raises MsgspecError, UnicodeDecodeError."""
    decoder = _DECODERS.get(kind)
    if decoder is None:
        decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
    decoded = decoder.decode(raw)
    assert isinstance(decoded, kind)
    return decoded


def renewed(kind: str, raw: bytes) -> bytes:
    """An object in the form of v1beta2. Most are, and are decoded only once."""
    if not any(field in raw for field in OLD_FIELDS[kind]):
        return raw
    manifest = msgspec.json.decode(raw)
    if not isinstance(manifest, dict):
        return raw
    try:
        return msgspec.json.encode(renew(kind, manifest))
    except VersionError as error:
        raise WrongFieldError(error.field, error.why) from error


def key_in(metadata: Metadata) -> str:
    """The key of an object by its metadata: `<namespace>/<name>`, or its name where it has no namespace."""
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def created_ms(meta: Metadata) -> UnixMs:
    """When an object was created; 0 when it has no creation time. Raises WrongFieldError."""
    if meta.creation_timestamp is None:
        return UnixMs(0)
    try:
        return parse_rfc3339(meta.creation_timestamp)
    except ValueError as error:
        why = f"{meta.creation_timestamp!r} is not a time such as 2026-01-15T10:00:00Z"
        raise WrongFieldError("metadata.creationTimestamp", why) from error


def controller_of(meta: Metadata) -> OwnerReference | None:
    """The owner that controls an object, if there is one."""
    for owner in meta.owner_references or ():
        if owner.controller:
            return OwnerReference(api_version=owner.api_version, kind=owner.kind, name=owner.name, uid=owner.uid)
    return None


def is_held(meta: Metadata) -> bool:
    """Whether an object has Kueue's finalizer."""
    return FINALIZER in (meta.finalizers or ())


def kueue_only(labels: dict[str, str] | None) -> dict[str, str]:
    """The labels or annotations that are Kueue's."""
    return {key: value for key, value in (labels or {}).items() if key.startswith(KUEUE)}


def trimmed(template: PodTemplate) -> PodTemplate:
    """A pod template with no labels and annotations but those of Kueue."""
    metadata = TemplateMeta(
        labels=kueue_only(template.metadata.labels), annotations=kueue_only(template.metadata.annotations)
    )
    return replace(template, metadata=metadata)


def check_requests(where: str, spec: PodSpec) -> None:
    """Check every quantity in a pod's spec at the path `where`. Raises WrongFieldError."""
    for number, container in enumerate((*spec.containers, *spec.init_containers)):
        check_quantities(f"{where}.containers[{number}].resources.requests", container.resources.requests)
        check_quantities(f"{where}.containers[{number}].resources.limits", container.resources.limits)
    check_quantities(f"{where}.overhead", spec.overhead)
    if spec.resources is not None:
        check_quantities(f"{where}.resources.requests", spec.resources.requests)
        check_quantities(f"{where}.resources.limits", spec.resources.limits)


def check_quantities(where: str, quantities: dict[str, str | int | float]) -> None:
    """Check quantities by the name of their resource, at the path `where`. Raises WrongFieldError."""
    for name, quantity in quantities.items():
        try:
            parse_quantity(quantity)
        except QuantityError as error:
            raise WrongFieldError(f"{where}.{name}", str(error)) from error
