"""
Whether the configuration of an apply fits the schema of its kind, in the words of structured-merge-diff.

Other writes are decoded leniently and then judged; an apply is typed first, because ownership is about declared fields.
"""

from collections.abc import Mapping
from typing import Any, Final

from headgate.adapters.kubernetes.crds.schema import SchemaNode
from headgate.testing.cluster.api.apply import shown_path, step_of
from headgate.testing.cluster.errors import json_type
from headgate.testing.cluster.storage.metadata import KNOWN_FIELDS

JsonObject = dict[str, Any]


def typing_problem(config: JsonObject, root: SchemaNode) -> str:
    """What keeps a configuration from being one of its kind: undeclared fields, wrong types, keys that occur twice."""
    found: list[str] = []
    for name, value in config.items():
        if name == "metadata":
            found += [f".metadata.{key}: {_UNDECLARED}" for key in value or () if key not in KNOWN_FIELDS]
        elif name not in {"apiVersion", "kind"}:
            child = root.fields.get(name)
            if child is None:
                found.append(f".{name}: {_UNDECLARED}")
            else:
                _check_types(value, child, f".{name}", found)
    if len(found) > 1:
        return "errors:\n" + "\n".join(f"  {text}" for text in found)
    return found[0] if found else ""


_UNDECLARED: Final = "field not declared in schema"
_SCALARS: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "string": ((str,), "expected string, got &value.valueUnstructured{{Value:{}}}"),
    "boolean": ((bool,), "expected boolean, got &{{{}}}"),
    "integer": ((int,), "expected numeric (int or float), got {}"),
    "number": ((int, float), "expected numeric (int or float), got {}"),
}


# Large: one case for each type of the schema.
def _check_types(value: Any, node: SchemaNode, where: str, out: list[str]) -> None:
    if value is None:
        return
    match node.type:
        case "object" | "map":
            if not isinstance(value, dict):
                out.append(f"{where}: expected map, got &{{{value}}}")
                return
            for name, item in value.items():
                child = node.child(name)
                if child is not None:
                    _check_types(item, child, f"{where}.{name}", out)
                elif node.type == "object" and node.fields and not node.open:
                    out.append(f"{where}.{name}: {_UNDECLARED}")
        case "list":
            if not isinstance(value, list):
                out.append(f"{where}: expected list, got &{{{value}}}")
                return
            _check_items(value, node, where, out)
        case scalar if scalar in _SCALARS:
            types, text = _SCALARS[scalar]
            if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
                out.append(f"{where}: {text.format(json_type(value) if 'numeric' in text else value)}")
        case _:
            pass


def _check_items(items: list[Any], node: SchemaNode, where: str, out: list[str]) -> None:
    seen: set[str] = set()
    for index, item in enumerate(items):
        if not (node.list_keys or node.set) or (node.list_keys and not isinstance(item, dict)):
            shown = f"[{index}]"
        else:
            shown = "".join(shown_path((step_of(item, node),)))
            if shown in seen:
                out.append(f"{where}: duplicate entries for key {shown}")
            seen.add(shown)
        if node.item is not None:
            _check_types(item, node.item, where + shown, out)
