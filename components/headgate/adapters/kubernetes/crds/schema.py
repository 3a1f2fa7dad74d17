"""
Schemas as short text, compiled into a tree.

Owns the language in which the fields of a kind are written, as indented lines,

    spec: object
      queueName: string (maxLen=253, pattern=subdomain)
      podSets: []object (minItems=1, maxItems=18, map=name)
        count: int32 (default=1, min=0)
        template*: $PodTemplate
      priorityClassName~: string (former="use priorityClassRef")

with `*` for required, `~` for a field that only former versions of the API have, `^` for one that they spell otherwise,
`$Name` for a shared type, and options in parentheses: `default` (JSON), `enum` (A|B), `min`, `max`, `minItems`,
`maxItems`, `minLen`, `maxLen`, `maxProps`, `pattern` (a name of `PATTERNS`), `map` (keys of a list that server-side
apply treats as a map), `set`, `merge` (key of a list that strategic merge merges), `union` (strategic merge adds to a
primitive list), `atomic`, `open` (unknown fields are kept). `int32`, `int64` and `time` are integers and strings with
that format.

A former field is known, so that it is not dropped in silence. Where a conversion webhook converts the versions, former
versions have it in place of what is marked `^`; without one it is refused with its message. On an enumerated field
`former` holds the values that only former versions have, with what they are now: `former={"Borrow":"MayStopSearch"}`.

The same tree tells server-side apply and strategic merge how lists combine; CustomResourceDefinitions and OpenAPI
documents are rendered from it, and the simulated API server checks objects by it.
"""

import enum
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

QUANTITY: Final = re.compile(
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"

PATTERNS: Final = {
    "label": f"^{_LABEL}$",
    "subdomain": f"^{_SUBDOMAIN}$",
    "qualified": rf"^({_SUBDOMAIN}/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
    "kind": "^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$",
    "reason": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
}
"""The patterns that the texts name, as Go spells them."""

_LINE: Final = re.compile(r"^( *)([A-Za-z$0-9/_.-]+)([*~^]*): (\S+)(?: \((.*)\))?$")
_OPTION: Final = re.compile(r", (?=[a-zA-Z]+(?:=|,|$))")
_FORMATS: Final = {"int32": ("integer", "int32"), "int64": ("integer", "int64"), "time": ("string", "date-time")}


class RuleScope(enum.Enum):
    """The versions that have a rule, where their spellings differ."""

    ALL = enum.auto()
    CURRENT = enum.auto()
    FORMER = enum.auto()


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A validation in CEL: `rule` is true for good values of the field it stands at (`self`, before: `oldSelf`)."""

    rule: str
    message: str
    reach: RuleScope = RuleScope.ALL


Descriptions = Mapping[str, str]
"""What fields are for, by their path: `Workload.spec.podSets.count`; a top-level type by its name."""

Rules = Mapping[str, tuple[Rule, ...]]
"""Rules by their place: `Workload.spec`, `Workload.spec.podSets[]` for each item of a list."""


class SchemaNode:
    """
    One field's schema, compiled.

    `type` is one of string, integer, boolean, number, quantity, intorstring, any, object, list, map. `former` are the
    fields that only former versions have, each with the message that refuses it, `former_values` the values, and
    `renamed` the fields that only the current version has, because former versions spell them otherwise. `rules` are
    those of the current version, `former_rules` those of the others.
    """

    __slots__ = (
        "atomic",
        "default",
        "defaults",
        "description",
        "enum",
        "fields",
        "finished",
        "format",
        "former",
        "former_rules",
        "former_values",
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
        "min_len",
        "open",
        "pattern",
        "renamed",
        "required",
        "rules",
        "set",
        "type",
        "union",
    )

    def __init__(self, type_: str) -> None:
        self.type = type_
        self.fields: dict[str, SchemaNode] = {}
        self.item: SchemaNode | None = None
        self.required: tuple[str, ...] = ()
        self.defaults: tuple[tuple[str, Any], ...] = ()
        self.finished = False
        self.has_default = False
        self.default: Any = None
        self.enum: tuple[str, ...] = ()
        self.format = ""
        self.pattern = ""
        self.rules: tuple[Rule, ...] = ()
        self.description = ""
        self.former_rules: tuple[Rule, ...] = ()
        self.renamed: frozenset[str] = frozenset()
        self.former: dict[str, tuple[SchemaNode, str]] = {}
        self.former_values: dict[str, str] = {}
        self.min_len: int | None = None
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

    def child(self, name: str) -> "SchemaNode | None":
        """The schema below a key: a field of an object, the values of a map, or an empty one."""
        if self.type == "object":
            return self.fields.get(name)
        return self.item if self.type == "map" else None


class _Places:
    """The rules and descriptions that have not found their place in the text yet."""

    def __init__(self, rules: Rules, descriptions: Descriptions) -> None:
        self.rules = dict(rules)
        self.descriptions = dict(descriptions)

    def require_empty(self) -> None:
        """Raises ValueError."""
        for what, left in (("rules", self.rules), ("descriptions", self.descriptions)):
            if left:
                raise ValueError(f"{what} for places that are not in the text: {', '.join(left)}")


def compile_schemas(
    text: str, rules: Rules | None = None, descriptions: Descriptions | None = None
) -> dict[str, SchemaNode]:
    """
    Compile every top-level type of `text` (lines `Name: object` at column 0), with the CEL rules of its places.

    `$Name` refers to a type above.

    Raises ValueError on a line that is not in the language, a reference to an unknown type, or rules or descriptions
    without a place.
    """
    types: dict[str, SchemaNode] = {}
    stack: list[tuple[int, str, SchemaNode]] = []
    places = _Places(rules or {}, descriptions or {})
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:
            raise ValueError(f"schema line is not `name: type (options)`: {line!r}")
        indent, name, mark, type_name, options = len(match[1]), match[2], match[3], match[4], match[5]
        while stack and stack[-1][0] >= indent:
            stack.pop()
        place = f"{stack[-1][1]}.{name}" if stack else name
        node, holder = _compile_type(type_name, types, place, places)
        node.description = places.descriptions.pop(place.replace("[]", ""), node.description)
        former = _set_options(node, options or "")
        if not stack:
            types[name] = node
        elif mark == "~":
            stack[-1][2].former[name] = (node, former)
        else:
            _add_field(stack[-1][2], name, node, mark)
        if holder is not None:
            stack.append((indent, place + "[]" * type_name.count("[]"), holder))
    places.require_empty()
    for node in types.values():
        _finish(node)
    return types


def _add_field(parent: SchemaNode, name: str, node: SchemaNode, marks: str) -> None:
    parent.fields[name] = node
    if "*" in marks:
        parent.required = (*parent.required, name)
    if "^" in marks:
        parent.renamed |= {name}


def _compile_type(
    name: str, types: dict[str, SchemaNode], place: str, places: _Places
) -> tuple[SchemaNode, SchemaNode | None]:
    """The node of a type, and the object node that the following, deeper lines fill (None if none)."""
    holder: SchemaNode | None = None
    if name.startswith("[]"):
        node = SchemaNode("list")
        node.item, holder = _compile_type(name[2:], types, place + "[]", places)
    elif name.startswith("map["):
        node = SchemaNode("map")
        node.item, holder = _compile_type(name[4:-1], types, place + "[]", places)
    elif name.startswith("$"):
        try:
            node = _copy(types[name[1:]])
        except KeyError:
            raise ValueError(f"schema refers to an unknown type {name}") from None
    else:
        type_, format_ = _FORMATS.get(name, (name, ""))
        node = SchemaNode(type_)
        node.format = format_
        holder = node if name == "object" else None
    rules = places.rules.pop(place, ())
    node.rules = (*node.rules, *(rule for rule in rules if rule.reach is not RuleScope.FORMER))
    node.former_rules = (*node.former_rules, *(rule for rule in rules if rule.reach is not RuleScope.CURRENT))
    return node, holder


def _copy(node: SchemaNode) -> SchemaNode:
    # Options such as `default` belong to the place of use, so a shared type is copied at its top only.
    copy = SchemaNode(node.type)
    for slot in SchemaNode.__slots__:
        setattr(copy, slot, getattr(node, slot))
    return copy


# Large: one case for each option of the schema language.
def _set_options(node: SchemaNode, options: str) -> str:
    """Set what stands in parentheses; the message of a former field is returned."""
    message = ""
    for option in _OPTION.split(options) if options else []:
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
            case "pattern":
                node.pattern = PATTERNS[value]
            case "former":
                former = msgspec.json.decode(value)
                if isinstance(former, dict):
                    node.former_values = former
                else:
                    message = former
            case "minLen":
                node.min_len = int(value)
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
    return message


def _finish(node: SchemaNode) -> None:
    """Expand defaults bottom-up, so that checking assigns ready values."""
    if node.finished:
        return
    node.finished = True
    for child in node.fields.values():
        _finish(child)
    for child, _ in node.former.values():
        _finish(child)
    if node.item is not None:
        _finish(node.item)
    node.defaults = tuple(
        (name, {**child.default, **_expanded(child, child.default)} if child.type == "object" else child.default)
        for name, child in node.fields.items()
        if child.has_default
    )


def _expanded(node: SchemaNode, given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in node.defaults if name not in given}
