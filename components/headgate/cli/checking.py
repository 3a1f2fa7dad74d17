"""
Checking: whether an object of Kueue's conforms to its CustomResourceDefinition, without an API server.

Unknown and missing fields, types, enumerations and bounds of `spec`, each with its path and the valid form. The API
server checks the rules in CEL and those of Kueue's webhooks.
"""

import difflib
from collections.abc import Iterator
from typing import Any

from headgate.adapters.kubernetes.crds.kinds import KUEUE_KINDS
from headgate.adapters.kubernetes.crds.schema import QUANTITY, SchemaNode

_SCHEMAS = {kind.kind: kind.schema for kind in KUEUE_KINDS}
_UNCHECKED = frozenset({"apiVersion", "kind", "metadata", "status"})
_PYTHON_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "a text"),
    "boolean": ((bool,), "true or false"),
    "integer": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "object": ((dict,), "an object"),
    "map": ((dict,), "an object"),
    "list": ((list,), "a list"),
}


def wrong_fields(kind: str, body: dict[str, Any]) -> list[str]:
    """What is wrong with an object of a kind of Kueue's, `spec.podSets[0].count: ...`; nothing for other kinds."""
    schema = _SCHEMAS.get(kind)
    if schema is None:
        return []
    given = {key: value for key, value in body.items() if key not in _UNCHECKED}
    missing = [f"{name}: it is missing" for name in schema.required if name not in given and name not in _UNCHECKED]
    unknown = [name for name in given if name not in schema.fields]
    found = [*missing, *(_unknown(name, name, schema) for name in unknown)]
    for name, value in given.items():
        node = schema.fields.get(name)
        if node is not None and value is not None:
            found += _wrong(name, node, value)
    return found


def _wrong(path: str, node: SchemaNode, value: Any) -> Iterator[str]:
    """What is wrong with a value at a path and with everything below it."""
    if node.type in _PYTHON_TYPES:
        types, expected = _PYTHON_TYPES[node.type]
        if not isinstance(value, types) or (isinstance(value, bool) and node.type != "boolean"):
            yield f"{path}: {_shown(value)} is not {expected}"
            return
    match node.type:
        case "object":
            yield from _wrong_object(path, node, value)
        case "map":
            for key, each in value.items():
                if node.item is not None:
                    yield from _wrong(f"{path}.{key}", node.item, each)
        case "list":
            yield from _wrong_list(path, node, value)
        case _:
            yield from _wrong_scalar(path, node, value)


def _wrong_object(path: str, node: SchemaNode, value: dict[str, Any]) -> Iterator[str]:
    for name in node.required:
        if name not in value and name not in dict(node.defaults):
            yield f"{path}.{name}: it is missing"
    for name, each in value.items():
        child = node.fields.get(str(name))
        if child is not None:
            if each is not None:
                yield from _wrong(f"{path}.{name}", child, each)
        elif not node.open:
            yield _unknown(f"{path}.{name}", str(name), node)


def _wrong_list(path: str, node: SchemaNode, value: list[Any]) -> Iterator[str]:
    if node.min_items is not None and len(value) < node.min_items:
        yield f"{path}: it needs at least {node.min_items} items"
    if node.max_items is not None and len(value) > node.max_items:
        yield f"{path}: it may have {node.max_items} items at most, and has {len(value)}"
    for index, each in enumerate(value):
        if node.item is not None:
            yield from _wrong(f"{path}[{index}]", node.item, each)


def _wrong_scalar(path: str, node: SchemaNode, value: Any) -> Iterator[str]:
    if node.type == "quantity" and (isinstance(value, bool) or not QUANTITY.match(str(value))):
        yield f"{path}: {_shown(value)} is no quantity: write it as 500m, 2 or 4Gi"
    elif node.enum and value not in node.enum:
        yield f"{path}: {_shown(value)} is not one of {', '.join(node.enum)}{_like(str(value), node.enum)}"
    elif node.min is not None and value < node.min:
        yield f"{path}: {value} is less than {node.min}"
    elif node.max is not None and value > node.max:
        yield f"{path}: {value} is more than {node.max}"


def _unknown(path: str, name: str, node: SchemaNode) -> str:
    return f"{path}: there is no such field{_like(name, tuple(node.fields))}"


def _like(name: str, names: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {near[0]}?" if near else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
