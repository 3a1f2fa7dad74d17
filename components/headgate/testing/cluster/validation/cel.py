"""
The part of CEL that validation rules of CustomResourceDefinitions are written in, compiled to Python.

`compile_rule` takes the text of one rule (`x-kubernetes-validations[].rule`) and returns a function of `self` and
`oldSelf`. Covered: field and index access, `has`, `size`, the macros `all`, `exists` and `filter`, `in`, arithmetic,
comparison, `&&`, `||`, `!`, the conditional, and string, number, boolean and list literals. Anything else raises
ValueError when the rule is compiled, so that no rule is passed over in silence.

Access to a field that is not there raises KeyError, as it is an error in CEL; `has` checks first.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<text>'[^'\\]*'|"[^"\\]*")|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"""
    r"""|(?P<sign>&&|\|\||==|!=|<=|>=|[-+!?:<>()\[\].,]))"""
)
_COMPARISONS: Final = frozenset({"==", "!=", "<=", ">=", "<", ">", "in"})
_CONSTANTS: Final = {"true": "True", "false": "False", "null": "None"}
_ROOTS: Final = frozenset({"self", "oldSelf"})
_MACROS: Final = {"all": "all({each})", "exists": "any({each})"}

CompiledRule = Callable[[Any, Any], Any]


@lru_cache(maxsize=1024)
def compile_rule(text: str) -> CompiledRule:
    """A rule as a function of (self, oldSelf). Raises ValueError if it uses what is not covered here."""
    source = _Parser(text).parse()
    # The expression consists of operators, literals and checked names, put together by the parser below.
    compiled: CompiledRule = eval(f"lambda self, oldSelf: {source}", {"__builtins__": {}, **_BUILTINS})  # noqa: S307
    return compiled


def is_transition(text: str) -> bool:
    """Whether a rule compares with the value before: it is not checked on create."""
    return re.search(r"\boldSelf\b", text) is not None


_BUILTINS: Final = {"all": all, "any": any, "len": len}


class _Parser:
    """Recursive descent, one method a level of precedence; each returns Python source in parentheses where needed."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0
        self._variables: list[str] = []

    def parse(self) -> str:
        source = self._conditional()
        if self._peek():
            raise self._error(self._peek())
        return source

    def _error(self, found: str) -> ValueError:
        return ValueError(f"CEL rule is not covered by the simulated API server at {found!r}: {self._text}")

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self, *expected: str) -> str:
        token = self._peek()
        if not token or (expected and token not in expected):
            raise self._error(token)
        self._next += 1
        return token

    def _conditional(self) -> str:
        condition = self._either()
        if self._peek() != "?":
            return condition
        self._take("?")
        then = self._conditional()
        self._take(":")
        return f"({then} if {condition} else {self._conditional()})"

    def _either(self) -> str:
        parts = [self._both()]
        while self._peek() == "||":
            self._take()
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"

    def _both(self) -> str:
        parts = [self._comparison()]
        while self._peek() == "&&":
            self._take()
            parts.append(self._comparison())
        return parts[0] if len(parts) == 1 else f"({' and '.join(parts)})"

    def _comparison(self) -> str:
        left = self._sum()
        while self._peek() in _COMPARISONS:
            sign = self._take()
            left = f"({left} {sign} {self._sum()})"
        return left

    def _sum(self) -> str:
        left = self._unary()
        while self._peek() in {"+", "-"}:
            sign = self._take()
            left = f"({left} {sign} {self._unary()})"
        return left

    def _unary(self) -> str:
        if self._peek() == "!":
            self._take()
            return f"(not {self._unary()})"
        if self._peek() == "-":
            self._take()
            return f"(-{self._unary()})"
        return self._member(self._primary())

    def _member(self, value: str) -> str:
        while self._peek() in {".", "["}:
            if self._take() == "[":
                value = f"{value}[{self._conditional()}]"
                self._take("]")
                continue
            name = self._take()
            value = self._method(value, name) if self._peek() == "(" else f"{value}[{name!r}]"
        return value

    def _method(self, value: str, name: str) -> str:
        self._take("(")
        if name == "size":
            self._take(")")
            return f"len({value})"
        if name not in _MACROS and name != "filter":
            raise self._error(name)
        variable = self._take()
        self._take(",")
        self._variables.append(variable)
        body = self._conditional()
        self._variables.pop()
        self._take(")")
        if name == "filter":
            return f"[{variable} for {variable} in {value} if {body}]"
        return _MACROS[name].format(each=f"{body} for {variable} in {value}")

    def _primary(self) -> str:
        part = self._take()
        if part == "(":
            inner = self._conditional()
            self._take(")")
            return f"({inner})"
        if part == "[":
            items = []
            while self._peek() != "]":
                items.append(self._conditional())
                if self._peek() == ",":
                    self._take()
            self._take("]")
            return f"[{', '.join(items)}]"
        if part in {"has", "size"} and self._peek() == "(":
            return self._asked(part)
        if part[0].isdigit() or part[0] in "'\"":
            return part
        if part in _CONSTANTS:
            return _CONSTANTS[part]
        if part in _ROOTS or part in self._variables:
            return part
        raise self._error(part)

    def _asked(self, function: str) -> str:
        self._take("(")
        inner = self._conditional()
        self._take(")")
        if function == "size":
            return f"len({inner})"
        # `has(a.b)` is about the last step: the source of `a.b` ends with `['b']`.
        holder, _, name = inner.rpartition("[")
        if not holder or not inner.endswith("']"):
            raise self._error("has")
        return f"({name[:-1]} in {holder})"


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"CEL rule is not covered by the simulated API server at {text[at : at + 10]!r}: {text}")
        found.append(match[match.lastgroup or 0])
        at = match.end()
    return found
