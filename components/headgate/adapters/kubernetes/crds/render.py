"""
Kinds and compiled schemas in the API server's form: OpenAPI v3 schemas and CustomResourceDefinitions.

Every version of a kind has all fields of the storage version, so that nothing is lost between them without a
conversion. A former version also has its own spellings, only to refuse them with the name of the field to use.
"""

from typing import Any, Final

from headgate.adapters.kubernetes.crds.kinds import AGE, KUEUE_KINDS, Column, Kind
from headgate.adapters.kubernetes.crds.schema import QUANTITY, SchemaNode

JsonObject = dict[str, Any]

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
"""The label by which `headgate crds` recognises the definitions that it installed."""

MANAGER: Final = "headgate"
"""The value of that label, and the field manager of the definitions."""

_FORMER_ITEMS_MAX: Final = 1000
"""Lists of former fields are bounded, so that the API server can bound the cost of the rule that refuses them."""


def custom_resource_definitions() -> list[JsonObject]:
    """One CustomResourceDefinition manifest per Kueue kind."""
    return [_definition(kind) for kind in KUEUE_KINDS]


def _definition(kind: Kind) -> JsonObject:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource, "labels": {MANAGED_BY: MANAGER}},
        "spec": {
            "group": kind.group,
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": list(kind.short_names),
            },
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_version(kind, version) for version in kind.versions],
            "conversion": {"strategy": "None"},
        },
    }


def _version(kind: Kind, version: str) -> JsonObject:
    stored = version == kind.version
    shown: JsonObject = {
        "name": version,
        "served": True,
        "storage": stored,
        "schema": {"openAPIV3Schema": object_schema(kind, former=not stored)},
    }
    if not stored:
        shown["deprecated"] = True
        shown["deprecationWarning"] = f"This version is deprecated. Use {kind.version} instead."
    if kind.columns != (AGE,):
        shown["additionalPrinterColumns"] = [_column(column) for column in kind.columns]
    if kind.status_subresource:
        shown["subresources"] = {"status": {}}
    # On every version the API server would count them as one list of the definition, and refuse it.
    if kind.selectable and stored:
        shown["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    return shown


def _column(column: Column) -> JsonObject:
    shown: JsonObject = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        shown["description"] = column.description
    if column.priority:
        shown["priority"] = column.priority
    return shown


def object_schema(kind: Kind, *, former: bool = False) -> JsonObject:
    """The OpenAPI v3 schema of a whole object of a kind; `former`: as a version before the storage version has it."""
    shown = node_schema(kind.schema, former=former)
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


def node_schema(node: SchemaNode, *, former: bool = False) -> JsonObject:
    """The OpenAPI v3 schema of one compiled field: types, bounds, defaults, rules, and how its lists merge."""
    shown = _typed(node, former=former)
    if node.format:
        shown["format"] = node.format
    if node.pattern:
        shown["pattern"] = node.pattern
    if node.atomic:
        shown["x-kubernetes-map-type"] = "atomic"
    bounds = (
        ("minimum", node.min),
        ("maximum", node.max),
        ("minItems", node.min_items),
        ("maxItems", node.max_items),
        ("minLength", node.min_len),
        ("maxLength", node.max_len),
        ("maxProperties", node.max_props),
    )
    shown |= {name: value for name, value in bounds if value is not None}
    rules = [{"rule": rule.rule, "message": rule.message} for rule in node.rules]
    if node.enum:
        shown["enum"] = list(node.enum)
        if former and node.former_values:
            shown["enum"] += list(node.former_values)
            rules += [
                {"rule": f"self != '{value}'", "message": f"{value} is {now} in {KUEUE_KINDS[0].version}"}
                for value, now in node.former_values.items()
            ]
    if node.has_default:
        shown["default"] = node.default
    if rules:
        shown["x-kubernetes-validations"] = rules
    return shown


def _typed(node: SchemaNode, *, former: bool) -> JsonObject:
    match node.type:
        case "object":
            return _object(node, former=former)
        case "map":
            return {"type": "object", "additionalProperties": _item(node, former=former)}
        case "list":
            shown: JsonObject = {"type": "array", "items": _item(node, former=former)}
            shown["x-kubernetes-list-type"] = "map" if node.list_keys else "set" if node.set else "atomic"
            if node.list_keys:
                shown["x-kubernetes-list-map-keys"] = list(node.list_keys)
            return shown
        case "quantity":
            either = [{"type": "integer"}, {"type": "string"}]
            return {"anyOf": either, "pattern": QUANTITY.pattern, "x-kubernetes-int-or-string": True}
        case "intorstring":
            return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
        case "any":
            return {"x-kubernetes-preserve-unknown-fields": True}
        case scalar:
            return {"type": scalar}


def _item(node: SchemaNode, *, former: bool) -> JsonObject:
    return node_schema(node.item, former=former) if node.item is not None else {}


def _object(node: SchemaNode, *, former: bool) -> JsonObject:
    shown: JsonObject = {"type": "object"}
    properties = {name: node_schema(child, former=former) for name, child in node.fields.items()}
    if former:
        properties |= {name: _refused(child, message) for name, (child, message) in node.former.items()}
    if properties:
        shown["properties"] = properties
    if node.required:
        shown["required"] = list(node.required)
    if node.open or not node.fields:
        shown["x-kubernetes-preserve-unknown-fields"] = True
    return shown


def _refused(node: SchemaNode, message: str) -> JsonObject:
    """A field that is always refused unless it is empty."""
    shown = node_schema(node)
    match node.type:
        case "list":
            empty = "size(self) == 0"
            shown["maxItems"] = _FORMER_ITEMS_MAX
        case "string":
            empty = "self == ''"
        case _:
            empty = "false"
    return {**shown, "x-kubernetes-validations": [{"rule": empty, "message": message}]}
