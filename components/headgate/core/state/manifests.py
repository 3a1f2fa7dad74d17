"""
Manifests: reading the objects that the state has as JSON (`Tables.objects`).

Called by the fold, the machines and the views. What is decoded is not kept: whoever needs an object again and again, as
placement does, keeps what it has read.
"""

from typing import Any, Final

import msgspec

from headgate.core.kubernetes.pod_manifests import ShownPod, shown_pod
from headgate.core.state.tables import State

PODS: Final = "pods"
"""The resource."""

NOT_READABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError)
"""Raised for a manifest that is no object of its kind. The bridge appends none."""

Json = dict[str, Any]

_SORTED: Final = msgspec.json.Encoder(order="deterministic")


def raw_object(state: State, resource: str, name: str) -> msgspec.Raw | None:
    """An object as the log has it; None if it does not have it."""
    objects = state.objects.get(resource)
    return objects.get(name) if objects is not None else None


def object_of(state: State, resource: str, name: str) -> Json | None:
    """An object, decoded; None if the log does not have it. Raises msgspec.MsgspecError."""
    raw = raw_object(state, resource, name)
    return decoded(raw) if raw is not None else None


def decoded(raw: msgspec.Raw) -> Json:
    """The manifest of an object. Raises msgspec.MsgspecError when it is none."""
    return msgspec.json.decode(raw, type=Json)


def pod_of(state: State, name: str) -> ShownPod | None:
    """What the object of a pod shows; None if the log does not have it. Raises msgspec.MsgspecError."""
    raw = raw_object(state, PODS, name)
    return shown_pod(raw) if raw is not None else None


def canonical(raw: msgspec.Raw) -> msgspec.Raw:
    """The same manifest with its keys in order. Raises msgspec.MsgspecError."""
    return msgspec.Raw(_SORTED.encode(msgspec.json.decode(raw)))


def is_equal(raw: msgspec.Raw, other: msgspec.Raw | None) -> bool:
    """Whether two manifests are equal, in whatever order their keys are: snapshots have them in order."""
    return other is not None and (raw == other or msgspec.json.decode(raw) == msgspec.json.decode(other))


def encoded(manifest: Json) -> msgspec.Raw:
    """A manifest as the log has it."""
    return msgspec.Raw(msgspec.json.encode(manifest))
