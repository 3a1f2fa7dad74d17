"""
What the API server says about itself: versions, groups, resources, and just enough OpenAPI for kubectl.

Everything is computed once from `KINDS`. The OpenAPI v3 documents carry the schemas of our kinds (for `kubectl
explain`) and the query parameters of PATCH, by which kubectl finds out that validation and dry run happen on the
server; they name no strategic merge patch, so that kubectl uses its built-in merge keys for Kubernetes' own kinds.
"""

from functools import cache
from typing import Any, Final

import msgspec

from headgate.testing.cluster.kinds import KINDS, Kind
from headgate.testing.cluster.schema import QUANTITY, Node

JsonObject = dict[str, Any]

VERSION: Final = "v1.36.3"
"""The Kubernetes version whose behaviour the simulated cluster follows."""

_VERBS: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


@cache
def document(path: str) -> bytes | None:
    """The body of a discovery path (`/version`, `/api…`, `/apis…`, `/openapi/…`) or None if there is none."""
    found = _document(path)
    return None if found is None else msgspec.json.encode(found)


def _document(path: str) -> JsonObject | None:
    steps = path.strip("/").split("/")
    match steps:
        case ["version"]:
            major, minor, _ = VERSION[1:].split(".")
            return {
                "major": major,
                "minor": minor,
                "gitVersion": VERSION,
                "gitCommit": "",
                "gitTreeState": "clean",
                "buildDate": "1970-01-01T00:00:00Z",
                "goVersion": "go1.26",
                "compiler": "gc",
                "platform": "linux/amd64",
            }
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(group) for group in _groups()]}
        case ["apis", group] if group in _groups():
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group)}
        case ["api", version]:
            return _resources("", version)
        case ["apis", group, version]:
            return _resources(group, version)
        case ["openapi", "v3"]:
            return {
                "paths": {
                    name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={VERSION}"} for name in _openapi_names()
                }
            }
        case ["openapi", "v3", *rest] if "/".join(rest) in _openapi_names():
            return _openapi(rest)
        case ["openapi", "v2"]:
            return {
                "swagger": "2.0",
                "info": {"title": "Kubernetes", "version": VERSION},
                "paths": {},
                "definitions": {},
            }
        case [""]:
            return {
                "paths": [
                    "/api",
                    "/api/v1",
                    "/apis",
                    *(f"/apis/{group}" for group in _groups()),
                    "/healthz",
                    "/livez",
                    "/openapi/v3",
                    "/readyz",
                    "/version",
                ]
            }
        case _:
            return None


def _groups() -> list[str]:
    return list(dict.fromkeys(kind.group for kind in KINDS if kind.group))


def _versions(group: str) -> list[str]:
    return list(dict.fromkeys(version for kind in KINDS if kind.group == group for version in kind.versions))


def _group(group: str) -> JsonObject:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in _versions(group)]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(group: str, version: str) -> JsonObject | None:
    resources: list[JsonObject] = []
    for kind in KINDS:
        if kind.group != group or version not in kind.versions:
            continue
        resource: JsonObject = {
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": _VERBS,
        }
        if kind.short_names:
            resource["shortNames"] = list(kind.short_names)
        if kind.categories:
            resource["categories"] = list(kind.categories)
        resources.append(resource)
        resources += [_subresource(kind, name) for name in kind.subresources]
    if not resources:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": resources,
    }


def _subresource(kind: Kind, name: str) -> JsonObject:
    shown: JsonObject = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
    match name:
        case "binding":
            return {**shown, "kind": "Binding", "verbs": ["create"]}
        case "eviction":
            return {**shown, "group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]}
        case "finalize":
            return {**shown, "kind": kind.kind, "verbs": ["update"]}
        case _:
            return {**shown, "kind": kind.kind, "verbs": ["get", "patch", "update"]}


def _openapi_names() -> list[str]:
    return ["api/v1", *(f"apis/{group}/{version}" for group in _groups() for version in _versions(group))]


def _openapi(steps: list[str]) -> JsonObject:
    group, version = ("", steps[1]) if steps[0] == "api" else (steps[1], steps[2])
    paths: JsonObject = {}
    schemas: JsonObject = {}
    for kind in KINDS:
        if kind.group != group or version not in kind.versions:
            continue
        base = "/" + "/".join(steps) + ("/namespaces/{namespace}" if kind.namespaced else "") + f"/{kind.plural}"
        gvk = {"group": group, "version": version, "kind": kind.kind}
        name = f"{'.'.join(reversed((group or 'core').split('.')))}.{version}.{kind.kind}"
        schemas[name] = {**object_schema(kind), "x-kubernetes-group-version-kind": [gvk]}
        reference = {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}
        response = {
            "responses": {"200": {"description": "OK", "content": reference}},
            "x-kubernetes-group-version-kind": gvk,
        }
        parameters = [
            {"name": parameter, "in": "query", "schema": {"type": "string"}}
            for parameter in ("dryRun", "fieldManager", "fieldValidation")
        ]
        paths[base] = {
            "get": {**response, "x-kubernetes-action": "list"},
            "post": {**response, "x-kubernetes-action": "post", "parameters": parameters},
        }
        paths[base + "/{name}"] = {
            "get": {**response, "x-kubernetes-action": "get"},
            "put": {**response, "x-kubernetes-action": "put", "parameters": parameters},
            "patch": {**response, "x-kubernetes-action": "patch", "parameters": parameters},
            "delete": {**response, "x-kubernetes-action": "delete"},
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def object_schema(kind: Kind) -> JsonObject:
    """The OpenAPI v3 schema of a whole object of a kind, as its CRD would publish it."""
    shown = node_schema(kind.schema)
    return {
        **shown,
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            **shown.get("properties", {}),
        },
    }


def node_schema(node: Node) -> JsonObject:
    """The OpenAPI v3 schema of one compiled field: types, bounds, enumerations, defaults and how its lists merge."""
    shown: JsonObject = {}
    match node.type:
        case "object":
            shown["type"] = "object"
            if node.fields:
                shown["properties"] = {name: node_schema(child) for name, child in node.fields.items()}
            if node.required:
                shown["required"] = list(node.required)
            if node.open or not node.fields:
                shown["x-kubernetes-preserve-unknown-fields"] = True
        case "map":
            shown["type"] = "object"
            shown["additionalProperties"] = node_schema(node.item) if node.item is not None else {}
        case "list":
            shown["type"] = "array"
            shown["items"] = node_schema(node.item) if node.item is not None else {}
            shown["x-kubernetes-list-type"] = "map" if node.list_keys else "set" if node.set else "atomic"
            if node.list_keys:
                shown["x-kubernetes-list-map-keys"] = list(node.list_keys)
        case "quantity":
            shown = {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "pattern": QUANTITY.pattern,
                "x-kubernetes-int-or-string": True,
            }
        case "intorstring":
            shown = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
        case "any":
            shown["x-kubernetes-preserve-unknown-fields"] = True
        case scalar:
            shown["type"] = scalar
    if node.atomic:
        shown["x-kubernetes-map-type"] = "atomic"
    bounds = (
        ("minimum", node.min),
        ("maximum", node.max),
        ("minItems", node.min_items),
        ("maxItems", node.max_items),
        ("maxLength", node.max_len),
        ("maxProperties", node.max_props),
    )
    shown |= {name: value for name, value in bounds if value is not None}
    if node.enum:
        shown["enum"] = list(node.enum)
    if node.has_default:
        shown["default"] = node.default
    return shown
