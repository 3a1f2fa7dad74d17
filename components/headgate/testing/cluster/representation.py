"""
How a stored entry is shown to one client: which version of its kind, as an object or as a table row.

A `View` is chosen once per request from the path's version and the `Accept` header and then used for gets, lists and
watches alike. Objects keep `apiVersion` first, so that another served version is a change of the first bytes of the
stored encoding.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from headgate.testing.cluster.kinds import Kind
from headgate.testing.cluster.store import Entry
from headgate.testing.cluster.tables import column_definitions, row

JsonObject = dict[str, Any]

_encode: Final = msgspec.json.Encoder().encode


class View:
    """Rendering of entries of one kind. `now_ms` is read when a table row shows an age."""

    __slots__ = ("_api_version", "_first", "_prefix", "_sent_columns", "include", "kind", "shape")

    def __init__(self, kind: Kind, version: str, accept: str, include: str) -> None:
        self.kind = kind
        self._api_version = f"{kind.group}/{version}" if kind.group else version
        self._prefix = f'{{"apiVersion":"{kind.api_version}"'.encode()
        self._first = b"" if version == kind.version else f'{{"apiVersion":"{self._api_version}"'.encode()
        self.include = include or "Metadata"
        self.shape = _shape(accept)
        self._sent_columns = False

    def one(self, entry: Entry, now_ms: int) -> bytes:
        """One object as the client asked for it."""
        if self.shape == "Table":
            return self._table([entry], str(entry.rv), now_ms, {})
        if self.shape == "PartialObjectMetadata":
            return _encode(self._partial(entry))
        return self.plain(entry)

    def plain(self, entry: Entry) -> bytes:
        """One object in the requested version."""
        encoded = entry.encoded
        return self._first + encoded[len(self._prefix) :] if self._first else encoded

    def many(self, entries: Iterable[Entry], rv: str, now_ms: int, list_meta: JsonObject) -> bytes:
        """A list response. `list_meta` has `continue` and `remainingItemCount` when the list is cut."""
        if self.shape == "Table":
            return self._table(entries, rv, now_ms, list_meta)
        metadata = _encode({"resourceVersion": rv, **list_meta})
        if self.shape == "PartialObjectMetadata":
            items = b",".join(_encode(self._partial(entry)) for entry in entries)
            return (
                b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":'
                + metadata
                + b',"items":['
                + items
                + b"]}"
            )
        head = f'{{"kind":"{self.kind.kind}List","apiVersion":"{self._api_version}","metadata":'.encode()
        return head + metadata + b',"items":[' + b",".join([self.plain(entry) for entry in entries]) + b"]}"

    def event(self, type_: str, entry: Entry, now_ms: int) -> bytes:
        """One line of a watch stream, newline included."""
        shown = self.plain(entry) if self.shape == "" else self._event_object(entry, now_ms)
        return b'{"type":"' + type_.encode() + b'","object":' + shown + b"}\n"

    def _event_object(self, entry: Entry, now_ms: int) -> bytes:
        if self.shape == "PartialObjectMetadata":
            return _encode(self._partial(entry))
        # kubectl needs the columns once per watch; the API server sends them with the first row only.
        definitions = [] if self._sent_columns else column_definitions(self.kind)
        self._sent_columns = True
        return self._table([entry], str(entry.rv), now_ms, {}, definitions)

    def bookmark(self, rv: int, *, initial_events_end: bool) -> bytes:
        """A BOOKMARK line: everything up to `rv` has been sent."""
        metadata: JsonObject = {"resourceVersion": str(rv), "creationTimestamp": None}
        if initial_events_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj: JsonObject = {"kind": self.kind.kind, "apiVersion": self._api_version, "metadata": metadata}
        if self.shape == "Table":
            obj = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": str(rv)},
                "columnDefinitions": None,
                "rows": [
                    {"cells": None, "object": {**obj, "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}}
                ],
            }
        return _encode({"type": "BOOKMARK", "object": obj}) + b"\n"

    def _partial(self, entry: Entry) -> JsonObject:
        return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": entry.obj["metadata"]}

    def _table(
        self,
        entries: Iterable[Entry],
        rv: str,
        now_ms: int,
        list_meta: JsonObject,
        definitions: list[JsonObject] | None = None,
    ) -> bytes:
        rows: list[JsonObject] = []
        for entry in entries:
            shown: JsonObject = {"cells": row(self.kind, entry.obj, now_ms)}
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
                "columnDefinitions": column_definitions(self.kind) if definitions is None else definitions,
                "rows": rows,
            }
        )


def _shape(accept: str) -> str:
    """
    The first representation of an `Accept` header that is served.

    Table, PartialObjectMetadata, or empty for the object.
    """
    if "as=" not in accept:
        return ""
    for choice in accept.split(","):
        media, _, parameters = choice.strip().partition(";")
        values = dict(part.strip().partition("=")[::2] for part in parameters.split(";") if part.strip())
        if media not in {"application/json", "*/*", "application/*"}:
            continue
        match values.get("as"):
            case "Table":
                return "Table"
            case "PartialObjectMetadata" | "PartialObjectMetadataList":
                return "PartialObjectMetadata"
            case None:
                return ""
            case _:
                continue
    return ""
