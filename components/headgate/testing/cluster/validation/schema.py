"""
The one walk that checks, defaults and prunes an object by its kind's schema, and the CEL rules after it.

`Checker.check` promises: the value is not written into; the result shares every part that needed no change with the
input; a part that *is* the same object as in the stored version was checked before and is skipped, so a small patch
costs little, and what an earlier schema admitted stays valid until it is changed.

Kubernetes' own kinds are decoded into structs and then judged by rules of their own (`rules`), custom resources by
their schema. So the first wrong type of the former is `undecodable`, with the message of Go's decoder, and `errors` has
only what is missing; of the latter each mistake is one of `errors`.
"""
# Over 400 lines: one recursive walk; each type of node descends into the others and reports in the same lists.

import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, Final

import msgspec

from headgate.adapters.kubernetes.crds.schema import QUANTITY, SchemaNode
from headgate.testing.cluster.errors import (
    FieldError,
    bare_value,
    duplicate,
    invalid_value,
    json_type,
    not_supported,
    required,
    too_long,
    too_many,
    wrong_type,
)
from headgate.testing.cluster.quantity import canonical
from headgate.testing.cluster.validation.cel import compile_rule, is_transition

_MISSING: Final = object()
_GO_TYPES: Final = {"string": "string", "integer": "int32", "boolean": "bool", "number": "float64"}
_GO_VALUES: Final = {"integer": "number", "boolean": "bool"}
_QUANTITIES: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_FRACTION: Final = re.compile(r"[eE][+-]?[0-9]*\.")
"""An exponent that is no whole number: the pattern lets it through, and Go does not."""
_SUFFIX: Final = "unable to parse quantity's suffix"
_TIME: Final = re.compile(r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$")
_UNCHECKED: Final = FieldError(
    reason="FieldValueInvalid",
    field="<nil>",
    message="Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
    "existing errors to complete validation",
)
_BLOCKING: Final = frozenset(
    {"FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"}
)


class Checker:
    """
    One walk over one object. `errors`, `unknown` (field paths) and `undecodable` fill while it walks.

    `custom` selects which of the two ways of an API server it is. `below` is the field that messages leave out: the
    status endpoint of a custom resource checks the status alone, and its texts begin there. `former`, if not empty, is
    the storage version that an object of a version before it is compared with. Decoding drops nulls; what an apply has
    emptied is null and not decoded any more (`keeps_nulls`).
    """

    __slots__ = (
        "_below",
        "_custom",
        "_former",
        "_former_errors",
        "_is_map_value",
        "_keeps_nulls",
        "_kind",
        "_path",
        "_ruled",
        "errors",
        "undecodable",
        "unknown",
    )

    def __init__(
        self, kind: str, *, custom: bool, below: str = "", former: str = "", keeps_nulls: bool = False
    ) -> None:
        self._path: list[str] = []
        self._kind = kind
        self._custom = custom
        self._is_map_value = False
        self._below = below
        self._former = former
        self._keeps_nulls = keeps_nulls
        self._former_errors: list[FieldError] = []
        self._ruled: list[tuple[SchemaNode, str, Any, Any]] = []
        self.errors: list[FieldError] = []
        self.unknown: list[str] = []
        self.undecodable = ""

    def check(self, node: SchemaNode, value: Any, old: Any = _MISSING) -> Any:
        """The value, checked, defaulted and pruned; `old` is the stored value at the same place, if any."""
        if value is old:
            return value
        match node.type:
            case "object":
                result = self._object(node, value, old)
            case "list":
                result = self._list(node, value, old)
            case "map":
                result = self._map(node, value, old)
            case "any":
                result = value
            case _:
                self._scalar(node, value)
                # Kubernetes' own types give an amount back in its one spelling; JSON stays as it is.
                native = node.type == "quantity" and not self._custom and not self.undecodable
                result = canonical(value) if native else value
        if node.rules:
            self._ruled.append((node, self._where(), result, _MISSING if old is None else old))
        return result

    def field(self, name: str, node: SchemaNode, value: Any, old: Any = _MISSING) -> Any:
        """`check` one step below the current path."""
        self._path.append(name if not self._path else "." + name)
        result = self.check(node, value, old)
        self._path.pop()
        return result

    def whole(self, node: SchemaNode, value: Any, old: Any) -> None:
        """Queue the rules of a whole object, whose fields were checked one by one; `old` is None on create."""
        if node.rules:
            self._ruled.insert(0, (node, "", value, _MISSING if old is None else old))

    def broken_rules(self) -> Iterator[FieldError]:
        """What the CEL rules of the parts that were walked say, in the order of the walk."""
        yield from self._former_errors
        for node, where, value, old in self._ruled:
            for rule in node.rules:
                if old is _MISSING and is_transition(rule.rule):
                    continue
                try:
                    holds = compile_rule(rule.rule)(value, None if old is _MISSING else old)
                except (KeyError, IndexError, TypeError) as error:
                    why = f"no such key: {error.args[0]}" if isinstance(error, KeyError) else str(error)
                    text = f"{why} evaluating rule: {rule.message}"
                    yield bare_value(where, text, shown=f'"{json_type(value)}"')
                    continue
                if not holds:
                    scalar = not isinstance(value, dict | list)
                    yield bare_value(where, rule.message, shown=msgspec.json.encode(value).decode() if scalar else "")

    def _where(self) -> str:
        return "".join(self._path)

    def _text(self, where: str) -> str:
        return f"{where}.".removeprefix(self._below).removesuffix(".")

    def _mistyped(self, value: Any, expected: str, node: SchemaNode) -> None:
        where = self._where()
        if self._custom:
            self.errors.append(wrong_type(where, value, expected, shown=self._text(where)))
        elif not self.undecodable:
            path = self._path[:-1] if self._is_map_value else self._path
            go_text = _go_mismatch(self._kind, "".join(path), value, node)
            self.undecodable = _QUANTITIES if node.type == "quantity" else go_text

    # Large: one pass over the fields, which copies the object only when one of them changes.
    def _object(self, node: SchemaNode, value: Any, old: Any) -> Any:
        if type(value) is not dict:
            self._mistyped(value, "object", node)
            return value
        if not node.fields:
            return value
        olds = old if type(old) is dict else {}
        changed: dict[str, Any] | None = None
        path = self._path
        for name, item in value.items():
            child = node.fields.get(name)
            if child is None and node.open:
                continue
            before = olds.get(name, _MISSING)
            if item is before:
                continue
            if child is None:
                self._unlisted(node, name, item)
            if (
                child is None
                or (item is None and not self._keeps_nulls)
                or (not item and self._is_left_out(node, name, child, item))
            ):
                if changed is None:
                    changed = dict(value)
                del changed[name]
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

    def _unlisted(self, node: SchemaNode, name: str, item: Any) -> None:
        """A field that the storage version does not have: unknown, or of former versions and refused by its rule."""
        where = f"{self._where()}.{name}" if self._path else name
        if not self._former or name not in node.former:
            self.unknown.append(where)
        elif item is not None and item not in ([], ""):
            shown = "" if isinstance(item, dict | list) else msgspec.json.encode(item).decode()
            self._former_errors.append(bare_value(where, node.former[name][1], shown=shown))

    def _is_left_out(self, node: SchemaNode, name: str, child: SchemaNode, item: Any) -> bool:
        """Whether an empty list or map vanishes, as in Kubernetes' own kinds, whose structs omit them."""
        return (
            not self._custom and isinstance(item, dict | list) and child.type in _OMITTED and name not in node.required
        )

    def _list(self, node: SchemaNode, value: Any, old: Any) -> Any:
        if type(value) is not list:
            self._mistyped(value, "array", node)
            return value
        if self._custom:
            self._count(node, value)
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
        if self._custom and (node.list_keys or node.set):
            self._unique(node, result_value)
        return result_value

    def _count(self, node: SchemaNode, items: list[Any]) -> None:
        if node.max_items is not None and len(items) > node.max_items:
            self.errors.append(too_many(self._where(), len(items), node.max_items))
        if node.min_items is not None and len(items) < node.min_items:
            self._refuse(len(items), f"should have at least {node.min_items} items")

    def _unique(self, node: SchemaNode, items: list[Any]) -> None:
        seen: list[Any] = []
        for index, item in enumerate(items):
            if node.list_keys:
                if type(item) is not dict:
                    text = "must be an object for an array of list-type map"
                    self.errors.append(invalid_value(f"{self._where()}[{index}]", item, text))
                    continue
                key: Any = {name: item[name] for name in node.list_keys if name in item}
            else:
                key = item
            if key in seen:
                self.errors.append(duplicate(f"{self._where()}[{index}]", key))
            seen.append(key)

    def _map(self, node: SchemaNode, value: Any, old: Any) -> Any:
        if type(value) is not dict:
            self._mistyped(value, "object", node)
            return value
        if self._custom and node.max_props is not None and len(value) > node.max_props:
            self.errors.append(too_many(self._where(), len(value), node.max_props))
        item_node = node.item
        if item_node is None or item_node.type == "any":
            return value
        olds = old if type(old) is dict else {}
        changed: dict[str, Any] | None = None
        self._is_map_value = True
        for name, item in value.items():
            before = olds.get(name, _MISSING)
            if item is before:
                continue
            if item is None and not self._custom and item_node.type == "string":
                # Go decodes null into what a map of strings holds anyway.
                changed = {**(changed or value), name: ""}
                continue
            self._path.append(f".{name}")
            result = self.check(item_node, item, before)
            self._path.pop()
            if result is not item:
                changed = {**(changed or value), name: result}
        self._is_map_value = False
        return value if changed is None else changed

    # Large: one case for each type of the schema.
    def _scalar(self, node: SchemaNode, value: Any) -> None:
        kind = type(value)
        match node.type:
            case "string":
                if kind is not str:
                    self._mistyped(value, "string", node)
                elif self._custom:
                    self._string(node, value)
            case "integer":
                if kind is not int:
                    self._mistyped(value, "integer", node)
                elif self._custom:
                    self._bounds(node, value)
            case "boolean":
                if kind is not bool:
                    self._mistyped(value, "boolean", node)
            case "number":
                if kind is not int and kind is not float:
                    self._mistyped(value, "number", node)
            case "quantity":
                self._quantity(node, value)
            case "intorstring":
                if kind is not int and kind is not str:
                    self._mistyped(value, "integer,string", node)
            case other:
                raise AssertionError(f"schema type {other} has no check")

    def _string(self, node: SchemaNode, value: str) -> None:
        if node.enum:
            if self._former and value in node.former_values:
                shown = msgspec.json.encode(value).decode()
                text = f"{value} is {node.former_values[value]} in {self._former}"
                self._former_errors.append(bare_value(self._where(), text, shown=shown))
            elif value not in node.enum:
                self.errors.append(not_supported(self._where(), value, node.enum))
        if node.max_len is not None and len(value) > node.max_len:
            self.errors.append(too_long(self._where(), node.max_len))
        elif node.min_len is not None and len(value) < node.min_len:
            self._refuse(value, f"should be at least {node.min_len} chars long")
        elif node.pattern and not _pattern(node.pattern).search(value):
            self._refuse(value, f"should match '{node.pattern}'")
        if node.format == "date-time" and not _is_time(value):
            where = self._where()
            shown = msgspec.json.encode(value).decode()
            text = f"Invalid value: {shown}: {self._text(where)} in body must be of type date-time: {shown}"
            self.errors.append(FieldError(reason="FieldValueTypeInvalid", field=where, message=text))

    def _refuse(self, value: Any, why: str) -> None:
        where = self._where()
        self.errors.append(invalid_value(where, value, f"{self._text(where)} in body {why}"))

    def _bounds(self, node: SchemaNode, value: int) -> None:
        if node.format == "int32" and not -(2**31) <= value < 2**31:
            text = "Checked value must be of type integer with format int32 in value"
            self.errors.append(bare_value("", text, shown='""'))
            return
        if node.min is not None and value < node.min:
            self._refuse(value, f"should be greater than or equal to {node.min}")
        if node.max is not None and value > node.max:
            self._refuse(value, f"should be less than or equal to {node.max}")

    def _quantity(self, node: SchemaNode, value: Any) -> None:
        if type(value) is int or (type(value) is float and not self._custom):
            return
        if type(value) is str:
            if QUANTITY.match(value) is None:
                if self._custom:
                    self._refuse(value, f"should match '{QUANTITY.pattern}'")
                else:
                    self.undecodable = self.undecodable or _QUANTITIES
            elif not self._custom and _FRACTION.search(value):
                self.undecodable = self.undecodable or _SUFFIX
            return
        self._mistyped(value, "integer,string", node)
        if self._custom:
            where = self._where()
            text = f'"{self._text(where)}" must validate at least one schema (anyOf)'
            self.errors += [
                bare_value("", text, shown='""'),
                wrong_type(where, value, "integer", shown=self._text(where)),
            ]
            if type(value) is float:
                text = f"Checked value must be of type integer (default format) in {self._text(where)}"
                self.errors.append(bare_value("", text, shown='""'))


_OMITTED: Final = frozenset({"list", "map"})


def unchecked_rules(found: list[FieldError]) -> list[FieldError]:
    """What is added when other errors keep the CEL rules from being checked; empty if they can be."""
    return [_UNCHECKED] if any(error.reason in _BLOCKING for error in found) else []


@cache
def has_rules(node: SchemaNode) -> bool:
    """Whether a schema has CEL rules anywhere."""
    return bool(node.rules) or any(
        has_rules(child) for child in (*node.fields.values(), *([node.item] if node.item is not None else []))
    )


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    # Go accepts a flag anywhere; Python requires it first. Python's `$` also matches before a last line feed.
    flags = re.IGNORECASE if "(?i)" in text else 0
    return re.compile(text.replace("(?i)", "").removesuffix("$") + (r"\Z" if text.endswith("$") else ""), flags)


def _is_time(value: str) -> bool:
    if _TIME.match(value) is None:
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _go_mismatch(kind: str, where: str, value: Any, node: SchemaNode) -> str:
    """The error of Go's JSON decoder for a value of the wrong type. Names of Go's types are guessed from the path."""
    steps = [re.sub(r"\[\d+\]", "", step) for step in where.split(".")]
    word = _GO_VALUES.get(json_type(value), json_type(value))
    if isinstance(value, float):
        word = f"number {value:g}"
    go_type = "int64" if node.format == "int64" else _GO_TYPES.get(node.type, "")
    if not go_type:
        inner = _GO_TYPES.get(node.item.type if node.item is not None else "", f"v1.{_struct(kind, [*steps, ''])}")
        go_type = {"list": f"[]{inner}", "map": f"map[string]{inner}"}.get(node.type, inner)
    return (
        f"json: cannot unmarshal {word} into Go struct field {_struct(kind, steps)}.{'.'.join(steps)} of type {go_type}"
    )


def _struct(kind: str, steps: list[str]) -> str:
    """The name of the Go struct that has the last step as its field."""
    match steps[:-1]:
        case []:
            return kind
        case [part]:
            return kind + part.title()
        case [*_, "template"]:
            return "PodTemplateSpec"
        case [*_, "template", "spec"]:
            return "PodSpec"
        case [*_, part]:
            return part[:1].upper() + part[1:].removesuffix("s")
        case _:
            return ""
