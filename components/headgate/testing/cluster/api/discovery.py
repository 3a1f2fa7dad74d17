"""
Discovery: versions, groups, resources, and just enough OpenAPI for kubectl.

Everything is computed once from `KINDS`. The OpenAPI v3 documents carry the schemas of our kinds (for `kubectl
explain`) and the query parameters of PATCH, by which kubectl finds out that validation and dry run happen on the
server; they name no strategic merge patch, so that kubectl uses its built-in merge keys for Kubernetes' own kinds.
"""

from functools import cache
from typing import Any, Final

import msgspec

from headgate.adapters.kubernetes.crds.render import object_schema
from headgate.testing.cluster.kinds import KINDS, Kind

JsonObject = dict[str, Any]

VERSION: Final = "v1.36.3"
"""The Kubernetes version whose behaviour the simulated cluster follows."""

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""The content type of aggregated discovery."""

_VERBS: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


@cache
def document(path: str) -> bytes | None:
    """The body of a discovery path (`/version`, `/api…`, `/apis…`, `/openapi/…`) or None if there is none."""
    found = _document(path)
    return None if found is None else msgspec.json.encode(found)


# Large: one case for each path of discovery, with its document.
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
            "verbs": _verbs(kind),
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


def _verbs(kind: Kind) -> list[str]:
    return [verb for verb in _VERBS if verb != "deletecollection" or kind.plural != "namespaces"]


@cache
def _aggregated(root: str) -> bytes:
    groups = [""] if root == "api" else _groups()
    items = [_aggregated_group(group) for group in groups]
    return msgspec.json.encode(
        {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}
    )


def aggregated(steps: list[str]) -> bytes | None:
    """Every group under `/api` or `/apis` with its versions and resources in one answer; None for other paths."""
    return _aggregated(steps[0]) if steps in (["api"], ["apis"]) else None


def _aggregated_group(group: str) -> JsonObject:
    versions = []
    for version in _versions(group):
        kinds = [kind for kind in KINDS if kind.group == group and version in kind.versions]
        resources = [_aggregated_resource(kind, version) for kind in kinds]
        versions.append({"version": version, "resources": resources, "freshness": "Current"})
    metadata = {"creationTimestamp": None} | ({"name": group} if group else {})
    return {"metadata": metadata, "versions": versions}


def _aggregated_resource(kind: Kind, version: str) -> JsonObject:
    # Kubernetes' own kinds leave out the group and version that the reader has just passed.
    own = {"group": kind.group, "version": version} if kind.custom else {"group": "", "version": ""}
    subresources = []
    for name in kind.subresources:
        shown = _subresource(kind, name)
        given = {"group": shown["group"], "version": shown["version"]} if "group" in shown else own
        subresources.append(
            {"subresource": name, "responseKind": {**given, "kind": shown["kind"]}, "verbs": shown["verbs"]}
        )
    found: JsonObject = {
        "resource": kind.plural,
        "responseKind": {**own, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": _verbs(kind),
    }
    if kind.short_names:
        found["shortNames"] = list(kind.short_names)
    if kind.categories:
        found["categories"] = list(kind.categories)
    return found | ({"subresources": subresources} if subresources else {})


def _subresource(kind: Kind, name: str) -> JsonObject:
    shown: JsonObject = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
    match name:
        case "binding":
            return {**shown, "kind": "Binding", "verbs": ["create"]}
        case "eviction":
            return {**shown, "group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]}
        case "finalize":
            return {**shown, "kind": kind.kind, "verbs": ["update"]}
        case "log":
            return {**shown, "kind": kind.kind, "verbs": ["get"]}
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
            for parameter in ("dryRun", "fieldManager", "fieldValidation", "force")
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
