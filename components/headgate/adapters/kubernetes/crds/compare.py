"""
Differences in meaning between two CustomResourceDefinitions.

Called by `headgate crds` with ours and the server's, and by the test that compares ours with Kueue's. Descriptions of
fields do not affect which objects are accepted and are left out, as is everything that a server fills in; orders matter
only where the API server keeps them (columns).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

JsonObject = dict[str, Any]

_ABSENT: Final = "-"
_IMPLIED: Final = {("x-kubernetes-list-type", "atomic"), ("x-kubernetes-map-type", "granular")}
"""The implied values of a schema."""

_OPEN: Final = "x-kubernetes-preserve-unknown-fields"
"""Where this is set, every field is kept unchecked: named fields on the other side are the same difference."""

_WALKED: Final = {"properties", "items", "additionalProperties", "required", "description", "x-kubernetes-validations"}


class SchemaDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One place where two definitions differ: the value of either; `-` where it has none."""

    path: str
    ours: str
    theirs: str


def differences(ours: JsonObject, theirs: JsonObject) -> list[SchemaDifference]:
    """Every difference between two CustomResourceDefinition manifests, in the order of their paths."""
    return list(_definitions(ours["spec"], theirs["spec"]))


def missing_fields(needed: JsonObject, served: JsonObject, path: str = "") -> Iterator[str]:
    """The fields of the OpenAPI schema `needed` that `served` does not have and would drop, as paths."""
    if served.get(_OPEN):
        return
    have = served.get("properties", {})
    for name, child in needed.get("properties", {}).items():
        place = f"{path}.{name}" if path else name
        if name in have:
            yield from missing_fields(child, have[name], place)
        elif not isinstance(served.get("additionalProperties"), dict):
            yield place
    for key in ("items", "additionalProperties"):
        inner, other = needed.get(key), served.get(key)
        if isinstance(inner, dict) and isinstance(other, dict):
            yield from missing_fields(inner, other, path + "[]")


def _definitions(ours: JsonObject, theirs: JsonObject) -> Iterator[SchemaDifference]:
    names, their_names = ours["names"], theirs["names"]
    for key in ("kind", "listKind", "plural", "singular", "shortNames", "categories"):
        yield from _values(f"names.{key}", _sorted(names.get(key)), _sorted(their_names.get(key)))
    yield from _values("scope", ours["scope"], theirs["scope"])
    yield from _values("conversion.strategy", _conversion(ours), _conversion(theirs))
    versions = {version["name"]: version for version in ours["versions"]}
    their_versions = {version["name"]: version for version in theirs["versions"]}
    for name in sorted({*versions, *their_versions}, reverse=True):
        if name in versions and name in their_versions:
            yield from _versions(name, versions[name], their_versions[name])
        else:
            yield from _values(name, *("served" if name in each else None for each in (versions, their_versions)))


def _conversion(spec: JsonObject) -> str:
    return str((spec.get("conversion") or {}).get("strategy", "None"))


def _sorted(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value


def _versions(name: str, ours: JsonObject, theirs: JsonObject) -> Iterator[SchemaDifference]:
    for key in ("served", "storage", "deprecated", "deprecationWarning"):
        yield from _values(f"{name} {key}", ours.get(key) or None, theirs.get(key) or None)
    for key in ("subresources", "selectableFields"):
        yield from _values(f"{name} {key}", ours.get(key) or None, theirs.get(key) or None)
    columns = [_column(each) for each in ours.get("additionalPrinterColumns") or ()]
    yield from _values(
        f"{name} columns", columns or None, [_column(each) for each in theirs.get("additionalPrinterColumns") or ()]
    )
    yield from _schemas(f"{name} ", "", ours["schema"]["openAPIV3Schema"], theirs["schema"]["openAPIV3Schema"])


def _column(column: JsonObject) -> str:
    wide = " wide" if column.get("priority") else ""
    return f"{column['name']} ({column['type']}{wide} {column['jsonPath']})"


def _schemas(version: str, path: str, ours: JsonObject, theirs: JsonObject) -> Iterator[SchemaDifference]:
    place = version + (path or "object")
    for key in sorted({*ours, *theirs} - _WALKED):
        yield from _values(f"{place} {key}", _said(key, ours.get(key)), _said(key, theirs.get(key)))
    yield from _members(f"{place} required", ours.get("required"), theirs.get("required"))
    yield from _members(f"{place} rule", _rules(ours), _rules(theirs))
    properties, their_properties = ours.get("properties", {}), theirs.get("properties", {})
    for name in sorted({*properties, *their_properties}):
        inner = f"{path}.{name}" if path else name
        if name in properties and name in their_properties:
            yield from _schemas(version, inner, properties[name], their_properties[name])
        elif not (ours if name in their_properties else theirs).get(_OPEN):
            found = (_kind(properties.get(name)), _kind(their_properties.get(name)))
            yield SchemaDifference(path=version + inner, ours=found[0], theirs=found[1])
    for key, step in (("items", "[]"), ("additionalProperties", "{}")):
        inner_ours, inner_theirs = ours.get(key), theirs.get(key)
        if isinstance(inner_ours, dict) and isinstance(inner_theirs, dict):
            yield from _schemas(version, path + step, inner_ours, inner_theirs)
        else:
            yield from _values(f"{place} {key}", _kind(inner_ours), _kind(inner_theirs))


def _kind(schema: object) -> str:
    """The description of a field that only one side has."""
    if not isinstance(schema, Mapping):
        return _ABSENT
    rules = schema.get("x-kubernetes-validations") or ()
    refused = f", refused: {rules[0]['message']}" if rules and rules[0]["rule"] in _REFUSING else ""
    return str(schema.get("type", "any")) + refused


_REFUSING: Final = {"false", "self == ''", "size(self) == 0"}


def _said(key: str, value: Any) -> Any:
    if isinstance(value, str) and (key, value) in _IMPLIED:
        return None
    return sorted(value) if key in ("enum", "x-kubernetes-list-map-keys") and value is not None else value


def _rules(schema: JsonObject) -> list[str]:
    """Rules by their message: two spellings of one condition are the same rule."""
    rules = schema.get("x-kubernetes-validations") or ()
    return [rule.get("message") or re.sub(r"\s+", "", rule["rule"]) for rule in rules]


def _members(path: str, ours: list[str] | None, theirs: list[str] | None) -> Iterator[SchemaDifference]:
    for member in sorted({*(ours or ()), *(theirs or ())}):
        sides = (member in (each or ()) for each in (ours, theirs))
        yield from _values(f"{path} {member!r}", *("yes" if side else None for side in sides))


def _values(path: str, ours: Any, theirs: Any) -> Iterator[SchemaDifference]:
    ours, theirs = ours or (ours if ours in (0, "") else None), theirs or (theirs if theirs in (0, "") else None)
    if ours != theirs:
        yield SchemaDifference(path=path, ours=_shown(ours), theirs=_shown(theirs))


def _shown(value: Any) -> str:
    match value:
        case None:
            return _ABSENT
        case str():
            return value
        case _:
            return msgspec.json.encode(value).decode()
