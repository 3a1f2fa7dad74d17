"""
Schemas as short text, and the one walk that checks, defaults and prunes an object.

Owns the schema language of the simulated API server. A kind's fields are written as indented lines,

    spec: object
      queueName: string (maxLen=253)
      podSets: []object (minItems=1, maxItems=18, map=name)
        count: integer (default=1, min=0)
        template*: $PodTemplate

with `*` for required, `$Name` for a shared type, and options in parentheses: `default` (JSON), `enum` (A|B), `min`,
`max`, `minItems`, `maxItems`, `maxLen`, `maxProps`, `map` (keys of a list that server-side apply treats as a map),
`set`, `merge` (key of a list that strategic merge merges), `union` (strategic merge adds to a primitive list),
`atomic`, `open` (unknown fields are kept). The same tree tells server-side apply and strategic merge how lists
combine, and the OpenAPI documents are written from it.

`Checker.check` promises: the value is not written into; the result shares every part that needed no change with the
input; a part that *is* the same object as in the stored version was checked before and is skipped, so a small patch
costs little.
"""

import re
from typing import Any, Final

import msgspec

from headgate.testing.cluster.errors import (
    FieldError,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_many,
    wrong_type,
)

QUANTITY: Final = re.compile(
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_LINE: Final = re.compile(r"^( *)([A-Za-z$0-9/_.-]+)(\*?): (\S+)(?: \((.*)\))?$")
_MISSING: Final = object()


class Node:
    """
    One field's schema, compiled.

    `type` is one of string, integer, boolean, number, quantity, intorstring, any, object, list, map.
    """

    __slots__ = (
        "atomic",
        "default",
        "defaults",
        "enum",
        "fields",
        "finished",
        "has_default",
        "item",
        "list_keys",
        "max",
        "max_items",
        "max_len",
        "max_props",
        "merge_key",
        "min",
        "min_items",
        "open",
        "required",
        "set",
        "type",
        "union",
    )

    def __init__(self, type_: str) -> None:
        self.type = type_
        self.fields: dict[str, Node] = {}
        self.item: Node | None = None
        self.required: tuple[str, ...] = ()
        self.defaults: tuple[tuple[str, Any], ...] = ()
        self.finished = False
        self.has_default = False
        self.default: Any = None
        self.enum: tuple[str, ...] = ()
        self.min: int | None = None
        self.max: int | None = None
        self.min_items: int | None = None
        self.max_items: int | None = None
        self.max_len: int | None = None
        self.max_props: int | None = None
        self.list_keys: tuple[str, ...] = ()
        self.set = False
        self.merge_key = ""
        self.union = False
        self.atomic = False
        self.open = False

    def child(self, name: str) -> "Node | None":
        """The schema below a key: a field of an object, the values of a map, or nothing known."""
        if self.type == "object":
            return self.fields.get(name)
        return self.item if self.type == "map" else None


def compile_schemas(text: str, shared: dict[str, Node] | None = None) -> dict[str, Node]:
    """
    Compile every top-level type of `text` (lines `Name: object` at column 0).

    `$Name` refers to one of these or of `shared`.

    Raises ValueError on a line that is not in the language or a reference to an unknown type.
    """
    types: dict[str, Node] = dict(shared or {})
    stack: list[tuple[int, Node]] = []
    compiled: dict[str, Node] = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:
            raise ValueError(f"schema line is not `name: type (options)`: {line!r}")
        indent, name, star, type_name, options = len(match[1]), match[2], match[3], match[4], match[5]
        node, holder = _compile_type(type_name, types)
        _set_options(node, options or "")
        while stack and stack[-1][0] >= indent:
            stack.pop()
        if not stack:
            types[name] = compiled[name] = node
        else:
            parent = stack[-1][1]
            parent.fields[name] = node
            if star:
                parent.required = (*parent.required, name)
        if holder is not None:
            stack.append((indent, holder))
    for node in compiled.values():
        _finish(node)
    return compiled


def _compile_type(name: str, types: dict[str, Node]) -> tuple[Node, Node | None]:
    """The node of a type, and the object node that the following, deeper lines fill (None if none)."""
    if name.startswith("[]"):
        node = Node("list")
        node.item, holder = _compile_type(name[2:], types)
        return node, holder
    if name.startswith("map["):
        node = Node("map")
        node.item, holder = _compile_type(name[4:-1], types)
        return node, holder
    if name.startswith("$"):
        try:
            return _copy(types[name[1:]]), None
        except KeyError:
            raise ValueError(f"schema refers to an unknown type {name}") from None
    node = Node(name)
    return node, node if name == "object" else None


def _copy(node: Node) -> Node:
    # Options such as `default` belong to the place of use, so a shared type is copied at its top only.
    copy = Node(node.type)
    for slot in Node.__slots__:
        setattr(copy, slot, getattr(node, slot))
    return copy


def _set_options(node: Node, options: str) -> None:
    for option in re.split(r", (?=[a-zA-Z]+(?:=|,|$))", options) if options else []:
        name, _, value = option.partition("=")
        match name:
            case "default":
                node.has_default, node.default = True, msgspec.json.decode(value)
            case "enum":
                node.enum = tuple(value.split("|"))
            case "min":
                node.min = int(value)
            case "max":
                node.max = int(value)
            case "minItems":
                node.min_items = int(value)
            case "maxItems":
                node.max_items = int(value)
            case "maxLen":
                node.max_len = int(value)
            case "maxProps":
                node.max_props = int(value)
            case "map":
                node.list_keys = tuple(value.split("+"))
                node.merge_key = node.merge_key or node.list_keys[0]
            case "merge":
                node.merge_key = value
            case "set":
                node.set = True
            case "union":
                node.union = True
            case "atomic":
                node.atomic = True
            case "open":
                node.open = True
            case _:
                raise ValueError(f"unknown schema option {option!r}")


def _finish(node: Node) -> None:
    """Expand defaults bottom-up, so that checking assigns ready values."""
    if node.finished:
        return
    node.finished = True
    for child in node.fields.values():
        _finish(child)
    if node.item is not None:
        _finish(node.item)
    node.defaults = tuple(
        (name, {**child.default, **_expanded(child, child.default)} if child.type == "object" else child.default)
        for name, child in node.fields.items()
        if child.has_default
    )


def _expanded(node: Node, given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in node.defaults if name not in given}


class Checker:
    """One walk over one object. `errors` and `unknown` (field paths) fill while it walks."""

    __slots__ = ("_path", "errors", "type_errors", "unknown")

    def __init__(self) -> None:
        self._path: list[str] = []
        self.errors: list[FieldError] = []
        self.type_errors: list[FieldError] = []
        self.unknown: list[str] = []

    def check(self, node: Node, value: Any, old: Any = _MISSING) -> Any:
        """The value, checked, defaulted and pruned; `old` is the stored value at the same place, if any."""
        if value is old:
            return value
        match node.type:
            case "object":
                return self._object(node, value, old)
            case "list":
                return self._list(node, value, old)
            case "map":
                return self._map(node, value, old)
            case "any":
                return value
            case _:
                self._scalar(node, value)
                return value

    def field(self, name: str, node: Node, value: Any, old: Any = _MISSING) -> Any:
        """`check` one step below the current path."""
        self._path.append(name if not self._path else "." + name)
        result = self.check(node, value, old)
        self._path.pop()
        return result

    def _where(self) -> str:
        return "".join(self._path)

    def _object(self, node: Node, value: Any, old: Any) -> Any:
        if type(value) is not dict:
            self.type_errors.append(wrong_type(self._where(), value, "object"))
            return value
        if not node.fields:
            return value
        olds = old if type(old) is dict else {}
        changed: dict[str, Any] | None = None
        path = self._path
        for name, item in value.items():
            child = node.fields.get(name)
            if child is None or item is None:
                if child is None and not node.open:
                    path.append(name if not path else "." + name)
                    self.unknown.append(self._where())
                    path.pop()
                elif child is None:
                    continue
                if changed is None:
                    changed = dict(value)
                del changed[name]
                continue
            before = olds.get(name, _MISSING)
            if item is before:
                continue
            path.append(name if not path else "." + name)
            result = self.check(child, item, before)
            path.pop()
            if result is not item:
                if changed is None:
                    changed = dict(value)
                changed[name] = result
        result_value = value if changed is None else changed
        for name in node.required:
            if name not in result_value:
                self.errors.append(required(".".join(filter(None, [self._where(), name]))))
        for name, default in node.defaults:
            if name not in result_value:
                if changed is None:
                    changed = result_value = dict(value)
                result_value[name] = default
        return result_value

    def _list(self, node: Node, value: Any, old: Any) -> Any:
        where = self._where
        if type(value) is not list:
            self.type_errors.append(wrong_type(where(), value, "array"))
            return value
        if node.max_items is not None and len(value) > node.max_items:
            self.errors.append(too_many(where(), len(value), node.max_items))
        if node.min_items is not None and len(value) < node.min_items:
            self.errors.append(
                invalid_value(where(), len(value), f"{where()} in body should have at least {node.min_items} items")
            )
        item_node = node.item
        if item_node is None or item_node.type == "any":
            return value
        olds = old if type(old) is list and len(old) == len(value) else None
        changed: list[Any] | None = None
        for index, item in enumerate(value):
            before = olds[index] if olds is not None else _MISSING
            if item is before:
                continue
            self._path.append(f"[{index}]")
            result = self.check(item_node, item, before)
            self._path.pop()
            if result is not item:
                if changed is None:
                    changed = list(value)
                changed[index] = result
        result_value = value if changed is None else changed
        if node.list_keys or node.set:
            self._unique(node, result_value)
        return result_value

    def _unique(self, node: Node, items: list[Any]) -> None:
        seen: list[Any] = []
        for index, item in enumerate(items):
            if node.list_keys:
                if type(item) is not dict:
                    continue
                key: Any = {name: item[name] for name in node.list_keys if name in item}
            else:
                key = item
            if key in seen:
                self.errors.append(
                    FieldError(
                        reason="FieldValueDuplicate",
                        field=f"{self._where()}[{index}]",
                        message=f"Duplicate value: {msgspec.json.encode(key).decode()}",
                    )
                )
            seen.append(key)

    def _map(self, node: Node, value: Any, old: Any) -> Any:
        if type(value) is not dict:
            self.type_errors.append(wrong_type(self._where(), value, "object"))
            return value
        if node.max_props is not None and len(value) > node.max_props:
            self.errors.append(too_many(self._where(), len(value), node.max_props))
        item_node = node.item
        if item_node is not None and item_node.type != "any":
            olds = old if type(old) is dict else {}
            for name, item in value.items():
                self._path.append(f".{name}")
                self.check(item_node, item, olds.get(name, _MISSING))
                self._path.pop()
        return value

    def _scalar(self, node: Node, value: Any) -> None:
        kind = type(value)
        match node.type:
            case "string":
                if kind is not str:
                    self.type_errors.append(wrong_type(self._where(), value, "string"))
                elif node.enum and value not in node.enum:
                    self.errors.append(not_supported(self._where(), value, node.enum))
                elif node.max_len is not None and len(value) > node.max_len:
                    self.errors.append(too_long(self._where(), node.max_len))
            case "integer":
                if kind is not int:
                    self.type_errors.append(wrong_type(self._where(), value, "integer"))
                else:
                    self._bounds(node, value)
            case "boolean":
                if kind is not bool:
                    self.type_errors.append(wrong_type(self._where(), value, "boolean"))
            case "number":
                if kind is not int and kind is not float:
                    self.type_errors.append(wrong_type(self._where(), value, "number"))
            case "quantity":
                self._quantity(value)
            case "intorstring":
                if kind is not int and kind is not str:
                    self.type_errors.append(wrong_type(self._where(), value, "integer"))
            case other:
                raise AssertionError(f"schema type {other} has no check")

    def _bounds(self, node: Node, value: int) -> None:
        where = self._where()
        if node.min is not None and value < node.min:
            self.errors.append(
                invalid_value(where, value, f"{where} in body should be greater than or equal to {node.min}")
            )
        if node.max is not None and value > node.max:
            self.errors.append(
                invalid_value(where, value, f"{where} in body should be less than or equal to {node.max}")
            )

    def _quantity(self, value: Any) -> None:
        where = self._where()
        if type(value) is int or type(value) is float:
            return
        if type(value) is not str:
            self.type_errors.append(wrong_type(where, value, "string"))
        elif QUANTITY.match(value) is None:
            self.errors.append(invalid_value(where, value, f"{where} in body should match '{QUANTITY.pattern}'"))
