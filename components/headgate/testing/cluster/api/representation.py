"""
How a stored entry is shown to one client: which version of its kind, as an object or as a table row.

A `ObjectRenderer` is chosen once per request from the path's version and the `Accept` header and then used for gets,
lists and watches alike. Objects keep `apiVersion` first, so that another served version is a change of the first bytes
of the stored encoding.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from headgate.testing.cluster.api.tables import column_definitions, row
from headgate.testing.cluster.errors import bad_request, not_acceptable
from headgate.testing.cluster.kinds import Kind
from headgate.testing.cluster.storage.store import ObjectVersion

JsonObject = dict[str, Any]

_encode: Final = msgspec.json.Encoder().encode

_PARTIAL: Final = "PartialObjectMetadata"
_PARTIAL_LIST: Final = "PartialObjectMetadataList"
_TYPES: Final = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
_INCLUDED: Final = frozenset({"Metadata", "Object", "None", ""})
_SHAPES: Final = frozenset({"Table", _PARTIAL, _PARTIAL_LIST})
_NODE_INFO: Final = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)
_EMPTY: Final[dict[str, JsonObject]] = {
    "namespaces": {"spec": {}, "status": {}},
    "nodes": {
        "spec": {},
        "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": dict.fromkeys(_NODE_INFO, ""),
        },
    },
    "pods": {"spec": {"containers": None}, "status": {}},
    "events": {
        "involvedObject": {},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    },
    "limitranges": {"spec": {"limits": None}},
    "jobs.batch": {"spec": {"template": {"metadata": {}, "spec": {"containers": None}}}, "status": {}},
    "priorityclasses.scheduling.k8s.io": {"value": 0},
    "runtimeclasses.node.k8s.io": {"handler": ""},
    "leases.coordination.k8s.io": {"spec": {}},
    "events.events.k8s.io": {
        "eventTime": None,
        "regarding": {},
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
    },
    "poddisruptionbudgets.policy": {
        "spec": {},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
    },
    "customresourcedefinitions.apiextensions.k8s.io": {
        "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": "", "versions": None},
        "status": {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": None},
    },
}
"""What an object of nothing looks like, of kinds whose fields are typed: bookmarks are such objects."""


class ObjectRenderer:
    """Rendering of entries of one kind. `now_ms` is read when a table row shows an age."""

    __slots__ = ("_api_version", "_first", "_prefix", "_sent_columns", "_typed", "include", "kind", "shape")

    def __init__(self, kind: Kind, version: str, accept: str, include: str) -> None:
        self.kind = kind
        self._api_version = f"{kind.group}/{version}" if kind.group else version
        self._prefix = f'{{"apiVersion":"{kind.api_version}"'.encode()
        self._first = b"" if version == kind.version else f'{{"apiVersion":"{self._api_version}"'.encode()
        self._typed = f'{{"apiVersion":"{kind.api_version}","kind":"{kind.kind}",'.encode()
        self.include = include or "Metadata"
        self.shape = _shape(accept)
        if self.shape == "Table" and include not in _INCLUDED:
            raise bad_request(
                f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": '
                "must be 'Metadata', 'Object', 'None', or empty"
            )
        self._sent_columns = False

    def one(self, entry: ObjectVersion, now_ms: int) -> bytes:
        """One object in the representation that the client requested."""
        if self.shape == "Table":
            return self._table([entry], str(entry.rv), now_ms, {})
        if self.shape == _PARTIAL:
            return _encode(self._partial(entry))
        if self.shape == _PARTIAL_LIST:
            raise not_acceptable(f"you requested {_PARTIAL_LIST}, but the requested object is not a list")
        return self.plain(entry)

    def plain(self, entry: ObjectVersion) -> bytes:
        """One object in the requested version."""
        encoded = entry.encoded
        return self._first + encoded[len(self._prefix) :] if self._first else encoded

    def many(self, entries: Iterable[ObjectVersion], rv: str, now_ms: int, list_meta: JsonObject) -> bytes:
        """A list response. `list_meta` has `continue` and `remainingItemCount` when the list is cut."""
        if self.shape == "Table":
            return self._table(entries, rv, now_ms, list_meta)
        if self.shape == _PARTIAL:
            raise not_acceptable(f"you requested {_PARTIAL}, but the requested object is a list")
        metadata: JsonObject = {"resourceVersion": rv, **list_meta}
        if self.shape == _PARTIAL_LIST:
            partial = [self._partial(entry) for entry in entries]
            return _encode(
                {"kind": _PARTIAL_LIST, "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": partial}
            )
        if self.kind.custom:
            metadata = {"continue": "", **metadata}
        head = f'{{"kind":"{self.kind.kind}List","apiVersion":"{self._api_version}","metadata":'.encode()
        items = b",".join([self._item(entry) for entry in entries])
        return head + _encode(metadata) + b',"items":[' + items + b"]}"

    def _item(self, entry: ObjectVersion) -> bytes:
        """One object in a list, which has the type of all; custom objects have their own type as well."""
        if self.kind.custom:
            return self.plain(entry)
        return entry.encoded.replace(self._typed, b"{", 1)

    def event(self, type_: str, entry: ObjectVersion, now_ms: int) -> bytes:
        """One line of a watch stream, newline included."""
        shown = self.plain(entry) if self.shape == "" else self._event_object(entry, now_ms)
        return b'{"type":"' + type_.encode() + b'","object":' + shown + b"}\n"

    def _event_object(self, entry: ObjectVersion, now_ms: int) -> bytes:
        if self.shape in {_PARTIAL, _PARTIAL_LIST}:
            return _encode(self._partial(entry))
        # kubectl needs the columns once per watch; the API server sends them with the first row only.
        with_columns, self._sent_columns = not self._sent_columns, True
        return self._table([entry], str(entry.rv), now_ms, {}, with_columns=with_columns)

    def bookmark(self, rv: int, *, initial_events_end: bool) -> bytes:
        """A BOOKMARK line: everything up to `rv` has been sent."""
        metadata: JsonObject = {"resourceVersion": str(rv)}
        if initial_events_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        partial: JsonObject = {"kind": _PARTIAL, "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        if self.shape in {_PARTIAL, _PARTIAL_LIST}:
            obj = partial
        else:
            obj = {"kind": self.kind.kind, "apiVersion": self._api_version, "metadata": metadata}
            obj |= {} if self.kind.custom else _EMPTY.get(self.kind.resource, {})
        if self.shape == "Table":
            shown = {"None": None, "Object": obj}.get(self.include, partial)
            obj = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": str(rv)},
                "columnDefinitions": None,
                "rows": [{"cells": [""] * len(column_definitions(self.kind)), "object": shown}],
            }
        return _encode({"type": "BOOKMARK", "object": obj}) + b"\n"

    def _partial(self, entry: ObjectVersion) -> JsonObject:
        return {"kind": _PARTIAL, "apiVersion": "meta.k8s.io/v1", "metadata": entry.obj["metadata"]}

    def _table(
        self,
        entries: Iterable[ObjectVersion],
        rv: str,
        now_ms: int,
        list_meta: JsonObject,
        *,
        with_columns: bool = True,
    ) -> bytes:
        rows: list[JsonObject] = []
        for entry in entries:
            shown: JsonObject = {"cells": row(self.kind, entry.obj, now_ms), "object": None}
            if self.include == "Object":
                shown["object"] = msgspec.Raw(self.plain(entry))
            elif self.include == "Metadata":
                shown["object"] = self._partial(entry)
            rows.append(shown)
        return _encode(
            {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": rv, **list_meta},
                "columnDefinitions": column_definitions(self.kind) if with_columns else None,
                "rows": rows,
            }
        )


def _shape(accept: str) -> str:
    """
    The first representation of an `Accept` header that is served, empty for the object itself.

    Table, PartialObjectMetadata or PartialObjectMetadataList. Raises ApiStatusError 406 if there is none.
    """
    if "as=" not in accept:
        return ""
    for choice in accept.split(","):
        media, _, parameters = choice.strip().partition(";")
        values = dict(part.strip().partition("=")[::2] for part in parameters.split(";") if part.strip())
        if media not in {"application/json", "*/*", "application/*"}:
            continue
        shape = values.get("as", "")
        if not shape:
            return ""
        if shape in _SHAPES and values.get("g") == "meta.k8s.io" and values.get("v") == "v1":
            return shape
    raise not_acceptable(f"only the following media types are accepted: {_TYPES}")
