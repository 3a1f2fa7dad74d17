"""Namespaces as facts: their labels, for selectors, and whether they are being deleted."""

from headgate.core.api.watched_objects import Metadata, WatchedObject, decode
from headgate.events.facts import Fact, NamespaceObserved
from headgate.events.objects import ApiObject


class _NamespaceStatus(ApiObject, frozen=True):
    phase: str = ""


class _Namespace(WatchedObject, frozen=True):
    status: _NamespaceStatus = _NamespaceStatus()


def read_namespace(raw: bytes) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one Namespace."""
    seen = decode(_Namespace, raw)
    meta = seen.metadata
    terminating = seen.status.phase == "Terminating" or meta.deletion_timestamp is not None
    return meta, NamespaceObserved(name=meta.name, labels=meta.labels or {}, terminating=terminating)
