"""
Kinds and compiled schemas in the API server's form: OpenAPI v3 schemas and CustomResourceDefinitions.

With a conversion webhook (`conversion=Conversion(...)`) a former version has its own spellings in place of those of the
storage version. Without one every version of a kind has all fields of the storage version, so that nothing is lost
between them, and a former version has its own spellings as well, only to refuse them with the name of the field to use.
"""

import enum
from typing import Any, Final, assert_never

import msgspec

from headgate.adapters.kubernetes.crds.kinds import AGE, KUEUE_KINDS, Column, Kind
from headgate.adapters.kubernetes.crds.schema import QUANTITY, SchemaNode

JsonObject = dict[str, Any]

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
"""The label by which `headgate crds` recognises the definitions that it installed."""

MANAGER: Final = "headgate"
"""The value of that label, and the field manager of the definitions."""

CA_FROM: Final = "headgate.dev/ca-from"
"""The label of objects whose `caBundle` a server keeps; the value is the name of the Secret with its certificate."""

CONVERTED: Final = frozenset(
    {"AdmissionCheck", "ClusterQueue", "Cohort", "LocalQueue", "MultiKueueCluster", "Workload"}
)
"""The kinds whose versions differ in more than their names; the API server asks no webhook for the others."""

_FORMER_ITEMS_MAX: Final = 1000
"""Lists of former fields are bounded, so that the API server can bound the cost of the rule that refuses them."""


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """
    The webhook that converts between the versions (`headgate.core.versions`): a Service, or a URL.

    `ca_bundle` is base64 of PEM. Without it the webhook process fills in the authority of its certificate in `secret`.
    """

    namespace: str = "headgate-system"
    service: str = "headgate-webhook"
    port: int = 443
    path: str = "/convert"
    url: str = ""
    ca_bundle: str = ""
    secret: str = "headgate-webhook-certificates"  # noqa: S105 - a name

    def to_spec(self) -> JsonObject:
        """As `spec.conversion` has it."""
        service = {"namespace": self.namespace, "name": self.service, "port": self.port, "path": self.path}
        client: JsonObject = {"url": self.url} if self.url else {"service": service}
        if self.ca_bundle:
            client["caBundle"] = self.ca_bundle
        return {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}


class Spelling(enum.Enum):
    """
    How a schema spells what the versions spell differently.

    CURRENT is the storage version. REFUSING is a former version without conversion: the current spelling, and former
    ones only to refuse them. FORMER is a former version that is converted.
    """

    CURRENT = enum.auto()
    REFUSING = enum.auto()
    FORMER = enum.auto()


def custom_resource_definitions(conversion: Conversion | None = None) -> list[JsonObject]:
    """One CustomResourceDefinition manifest per Kueue kind."""
    return [_definition(kind, conversion if kind.kind in CONVERTED else None) for kind in KUEUE_KINDS]


def _definition(kind: Kind, conversion: Conversion | None) -> JsonObject:
    labels = {MANAGED_BY: MANAGER} | ({CA_FROM: conversion.secret} if conversion and not conversion.ca_bundle else {})
    former = Spelling.REFUSING if conversion is None else Spelling.FORMER
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource, "labels": labels},
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
            "versions": [_version(kind, version, former) for version in kind.versions],
            "conversion": {"strategy": "None"} if conversion is None else conversion.to_spec(),
        },
    }


def _version(kind: Kind, version: str, former: Spelling) -> JsonObject:
    stored = version == kind.version
    spelling = Spelling.CURRENT if stored else former
    shown: JsonObject = {
        "name": version,
        "served": True,
        "storage": stored,
        "schema": {"openAPIV3Schema": object_schema(kind, spelling)},
    }
    if not stored:
        shown["deprecated"] = True
        shown["deprecationWarning"] = f"This version is deprecated. Use {kind.version} instead."
    if kind.columns != (AGE,):
        shown["additionalPrinterColumns"] = [_column(column, spelling) for column in kind.columns]
    if kind.status_subresource:
        shown["subresources"] = {"status": {}}
    # On every version the API server would count them as one list of the definition, and refuse it.
    if kind.selectable and stored:
        shown["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    return shown


def _column(column: Column, spelling: Spelling) -> JsonObject:
    path = column.former_path if spelling is Spelling.FORMER and column.former_path else column.path
    shown: JsonObject = {"name": column.name, "type": column.type, "jsonPath": path}
    if column.description:
        shown["description"] = column.description
    if column.priority:
        shown["priority"] = column.priority
    return shown


def object_schema(kind: Kind, spelling: Spelling = Spelling.CURRENT) -> JsonObject:
    """The OpenAPI v3 schema of a whole object of a kind."""
    shown = node_schema(kind.schema, spelling)
    return {
        **shown,
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string", "description": "Group and version of the schema of this object."},
            "kind": {"type": "string", "description": "Kind of this object."},
            "metadata": {"type": "object"},  # described by the API server
            **shown.get("properties", {}),
        },
    }


def node_schema(node: SchemaNode, spelling: Spelling = Spelling.CURRENT) -> JsonObject:
    """The OpenAPI v3 schema of one compiled field: types, bounds, defaults, rules, and how its lists merge."""
    shown = _typed(node, spelling)
    if node.description:
        shown["description"] = node.description
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
    if node.enum:
        former = () if spelling is Spelling.CURRENT else node.former_values
        shown["enum"] = [*node.enum, *former]
    if node.has_default:
        shown["default"] = node.default
    rules = _rules(node, spelling)
    if rules:
        shown["x-kubernetes-validations"] = rules
    return shown


def _rules(node: SchemaNode, spelling: Spelling) -> list[JsonObject]:
    written = node.former_rules if spelling is Spelling.FORMER else node.rules
    rules = [{"rule": rule.rule, "message": rule.message} for rule in written]
    if spelling is Spelling.REFUSING:
        rules += [
            {"rule": f"self != '{value}'", "message": f"{value} is {now} in {KUEUE_KINDS[0].version}"}
            for value, now in node.former_values.items()
        ]
    return rules


def _typed(node: SchemaNode, spelling: Spelling) -> JsonObject:
    match node.type:
        case "object":
            return _object(node, spelling)
        case "map":
            return {"type": "object", "additionalProperties": _item(node, spelling)}
        case "list":
            shown: JsonObject = {"type": "array", "items": _item(node, spelling)}
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


def _item(node: SchemaNode, spelling: Spelling) -> JsonObject:
    return node_schema(node.item, spelling) if node.item is not None else {}


def _object(node: SchemaNode, spelling: Spelling) -> JsonObject:
    shown: JsonObject = {"type": "object"}
    hidden = node.renamed if spelling is Spelling.FORMER else frozenset()
    properties = {name: node_schema(child, spelling) for name, child in node.fields.items() if name not in hidden}
    match spelling:
        case Spelling.CURRENT:
            pass
        case Spelling.REFUSING:
            properties |= {name: _refused(child, message) for name, (child, message) in node.former.items()}
        case Spelling.FORMER:
            properties |= {name: node_schema(child, spelling) for name, (child, _) in node.former.items()}
        case _:
            assert_never(spelling)
    if properties:
        shown["properties"] = properties
    needed = [name for name in node.required if name not in hidden]
    if needed:
        shown["required"] = needed
    if node.open or not node.fields:
        shown["x-kubernetes-preserve-unknown-fields"] = True
    return shown


def _refused(node: SchemaNode, message: str) -> JsonObject:
    """A field that is always refused unless it is empty, whatever it holds."""
    shown: JsonObject = {"type": node.type, "description": node.description or message}
    match node.type:
        case "list":
            empty = "size(self) == 0"
            item = {"type": "string"} if node.item is not None and node.item.type == "string" else _ANYTHING
            shown = {**shown, "type": "array", "items": item, "maxItems": _FORMER_ITEMS_MAX}
            shown["x-kubernetes-list-type"] = "atomic"
        case "object":
            empty = "false"
            shown |= _ANYTHING
        case "string":
            empty = "self == ''"
        case _:
            empty = "false"
            if node.format:
                shown["format"] = node.format
    return {**shown, "x-kubernetes-validations": [{"rule": empty, "message": message}]}


_ANYTHING: Final[JsonObject] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
