"""
The syntax of CEL, the expression language of Kubernetes' admission policies: text in, a tree out.

Covered is what `headgate.core.kubernetes.cel` evaluates: literals, field and index access with their optional forms
(`a.?b`, `a[?b]`), calls, the operators, lists and maps. Macros such as `all` are calls here. Anything else raises
CelSyntaxError with the place, so that no expression is passed over in silence.
"""

import re
from functools import lru_cache
from typing import Any, Final

import msgspec

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<text>[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"""
    r"""|(?P<sign>&&|\|\||==|!=|<=|>=|\.\?|\[\?|[-+*/%!?:<>()\[\]{}.,]))"""
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
_LEVELS: Final = (("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">=", "in"), ("+", "-"), ("*", "/", "%"))
"""BinaryOperation operators, from the loosest to the tightest."""


class CelSyntaxError(ValueError):
    """Raised for text that is no expression, or uses what is not covered."""

    def __init__(self, text: str, found: str) -> None:
        super().__init__(f"CEL is not covered at {found or 'the end'!r}: {text}")


class Literal(msgspec.Struct, frozen=True):
    """A string, number, boolean or null."""

    value: Any


class VariableName(msgspec.Struct, frozen=True):
    """A variable."""

    name: str


class FieldAccess(msgspec.Struct, frozen=True):
    """`of.field`; optional: `of.?field`."""

    of: "Node"
    field: str
    is_optional: bool


class IndexAccess(msgspec.Struct, frozen=True):
    """`of[key]`; optional: `of[?key]`."""

    of: "Node"
    key: "Node"
    is_optional: bool


class FunctionCall(msgspec.Struct, frozen=True):
    """`function(...)`, or with `of` the method `of.function(...)`."""

    of: "Node | None"
    function: str
    arguments: tuple["Node", ...]


class UnaryOperation(msgspec.Struct, frozen=True):
    """`!of` or `-of`."""

    sign: str
    of: "Node"


class BinaryOperation(msgspec.Struct, frozen=True):
    """`left sign right`."""

    sign: str
    left: "Node"
    right: "Node"


class Conditional(msgspec.Struct, frozen=True):
    """`condition ? then : otherwise`."""

    condition: "Node"
    then: "Node"
    otherwise: "Node"


class ListOf(msgspec.Struct, frozen=True):
    """`[...]`."""

    items: tuple["Node", ...]


class MapOf(msgspec.Struct, frozen=True):
    """`{key: value, ...}`."""

    items: tuple[tuple["Node", "Node"], ...]


Node = (
    Literal
    | VariableName
    | FieldAccess
    | IndexAccess
    | FunctionCall
    | UnaryOperation
    | BinaryOperation
    | Conditional
    | ListOf
    | MapOf
)


@lru_cache(maxsize=4096)
def parse(text: str) -> Node:
    """The tree of an expression. Raises CelSyntaxError."""
    parser = _Parser(text)
    node = parser.conditional()
    if parser.peek():
        raise CelSyntaxError(text, parser.peek())
    return node


class _Parser:
    """Recursive descent; one method a form."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0

    def peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise CelSyntaxError(self._text, token)
        self._next += 1
        return token

    def conditional(self) -> Node:
        condition = self._binary(0)
        if self.peek() != "?":
            return condition
        self._take()
        then = self.conditional()
        self._take(":")
        return Conditional(condition, then, self.conditional())

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        left = self._binary(level + 1)
        while self.peek() in _LEVELS[level]:
            sign = self._take()
            left = BinaryOperation(sign, left, self._binary(level + 1))
        return left

    def _unary(self) -> Node:
        if self.peek() in {"!", "-"}:
            return UnaryOperation(self._take(), self._unary())
        return self._member(self._primary())

    def _member(self, node: Node) -> Node:
        while self.peek() in {".", ".?", "[", "[?"}:
            sign = self._take()
            if sign in {"[", "[?"}:
                node = IndexAccess(node, self.conditional(), sign == "[?")
                self._take("]")
                continue
            name = self._take()
            if self.peek() == "(" and sign == ".":
                node = FunctionCall(node, name, self._arguments())
            else:
                node = FieldAccess(node, name, sign == ".?")
        return node

    def _arguments(self) -> tuple[Node, ...]:
        self._take("(")
        return self._items(")")

    def _items(self, closing: str) -> tuple[Node, ...]:
        items: list[Node] = []
        while self.peek() != closing:
            items.append(self.conditional())
            if self.peek() == ",":
                self._take()
        self._take(closing)
        return tuple(items)

    def _primary(self) -> Node:
        token = self._take()
        match token[0]:
            case "(":
                node = self.conditional()
                self._take(")")
                return node
            case "[":
                return ListOf(self._items("]"))
            case "{":
                return self._map()
            case "'" | '"':
                return Literal(re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), token[1:-1]))
            case "r" | "R" if token[-1] in "'\"":
                return Literal(token[2:-1])
            case digit if digit.isdigit():
                return Literal(float(token) if "." in token else int(token))
            case letter if letter.isalpha() or letter == "_":
                return self._named(token)
            case _:
                raise CelSyntaxError(self._text, token)

    def _named(self, name: str) -> Node:
        constants = {"true": True, "false": False, "null": None}
        if name in constants:
            return Literal(constants[name])
        return FunctionCall(None, name, self._arguments()) if self.peek() == "(" else VariableName(name)

    def _map(self) -> Node:
        items: list[tuple[Node, Node]] = []
        while self.peek() != "}":
            key = self.conditional()
            self._take(":")
            items.append((key, self.conditional()))
            if self.peek() == ",":
                self._take()
        self._take("}")
        return MapOf(tuple(items))


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise CelSyntaxError(text, text[at : at + 10])
        found.append(match[match.lastgroup or 0])
        at = match.end()
    return found
