"""The page of events: every type of the contract with its fields, and the structures that the fields hold."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headgate.events.registry import MODULES, TAGS
from tools.reference.text import code, docstring, page, safe, table

FAMILIES: Final = {
    "fact": ("Facts", "What exists in the cluster. Appended by the informer bridge."),
    "queue event": ("Queue events", "Where a pending workload stands. Appended by the queue manager."),
    "decision": ("Decisions", "What was decided. Appended by the scheduler, and by the binder for pods."),
    "effect": ("Effects", "What became of a decision outside of the log, and the processes' own records."),
}
INTRODUCTION: Final = """
Every event of the log and of the feed. `schemas/events/<tag>.json` has each as JSON Schema, `schemas/asyncapi.yaml`
describes the feed. A field with a default may be absent. Keys of objects are written `<namespace>/<name>`, times are
milliseconds since 1970 (`_ms`), and a field that ends in another unit says so in its name.
"""
Json = dict[str, Any]


def events_page() -> str:
    """`docs/reference/events.md`."""
    schemas, components = msgspec.json.schema_components(tuple(TAGS.values()), ref_template="#{name}")
    del schemas
    parts = []
    for family, (title, about) in FAMILIES.items():
        parts.append(f"## {title}\n\n{about}")
        parts += [_event(tag, components) for tag in sorted(TAGS) if MODULES[tag] == family]
    names = {event.__name__ for event in TAGS.values()}
    parts.append("## Structures\n\nWhat fields of events hold.")
    parts += [_structure(name, schema) for name, schema in sorted(components.items()) if name not in names]
    return page("Events", INTRODUCTION, *parts)


def _event(tag: str, components: Mapping[str, Json]) -> str:
    event = TAGS[tag]
    return f"### `{tag}` {{ #{tag.replace('.', '-')} }}\n\n{docstring(event)}\n\n{_fields(components[event.__name__])}"


def _structure(name: str, schema: Json) -> str:
    about = safe(schema.get("description", ""))
    if "enum" in schema:
        values = ", ".join(code(value) for value in schema["enum"])
        return f"### {name} {{ #{name} }}\n\n{about}\n\nOne of {values}."
    return f"### {name} {{ #{name} }}\n\n{about}\n\n{_fields(schema)}"


def _fields(schema: Json) -> str:
    required = set(schema.get("required", ()))
    rows = []
    for name, field in schema.get("properties", {}).items():
        if name == "type" and len(field.get("enum", ())) == 1:
            continue
        rows.append((code(name), _type(field), "required" if name in required else _default(field)))
    return table(("field", "type", "default"), rows) if rows else "It has no fields."


def _default(field: Json) -> str:
    return code(msgspec.json.encode(field["default"]).decode()) if "default" in field else "none"


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#")
        return f"[{name}](#{name})"
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(code(value) for value in schema["enum"])
    match schema.get("type"):
        case "array" if "items" in schema and schema["items"] is not False:
            return f"list of {_type(schema['items'])}"
        case "array":
            return f"({', '.join(_type(each) for each in schema.get('prefixItems', ()))})"
        case "object":
            values = schema.get("additionalProperties")
            return f"map to {_type(values)}" if isinstance(values, dict) else "object"
        case None:
            return "any"
        case other:
            return str(other)
