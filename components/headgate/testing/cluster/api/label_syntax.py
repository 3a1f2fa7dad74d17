"""
The text form of label selectors: `a=b,c!=d,e in (x,y),!f`, read as the API server reads it and refused in its words.

Source: k8s.io/apimachinery/pkg/labels/selector.go. `selectors.py` is the only caller.
"""

import re
from typing import Final, NamedTuple

from headgate.testing.cluster.errors import bad_request

_TOKEN: Final = re.compile(r"[ \t\r\n]*(?:(==|!=|[=!<>(),])|([^ \t\r\n=!<>(),]+)|$)")
_OPERATORS: Final = {
    "in": "In",
    "notin": "NotIn",
    "=": "In",
    "==": "In",
    "!=": "NotIn",
    ">": "Gt",
    "<": "Lt",
}
_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SHAPE: Final = (
    "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_NAME_FORM: Final = (
    f"name part must {_SHAPE} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_FORM: Final = (
    f"a valid label must be an empty string or {_SHAPE} (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
    "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_PREFIX_FORM: Final = (
    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


class SelectorTerm(NamedTuple):
    """One requirement: a key, one of In, NotIn, Exists, DoesNotExist, Gt and Lt, and values in order."""

    key: str
    operator: str
    values: tuple[str, ...]


class _SyntaxError(Exception):
    """What does not parse, in the server's words."""


def parse(text: str) -> list[SelectorTerm]:
    """The requirements of a selector. Raises ApiStatusError 400."""
    try:
        return _Parser(text).terms()
    except _SyntaxError as error:
        raise bad_request(str(error)) from None


class _Parser:
    def __init__(self, text: str) -> None:
        # Symbols and words alike, then an empty one for the end; a word is what is no symbol.
        self._tokens: list[str] = [symbol or word for symbol, word in _TOKEN.findall(text)]
        self._at = 0

    def _look(self) -> str:
        return self._tokens[min(self._at, len(self._tokens) - 1)]

    def _take(self) -> str:
        token = self._look()
        self._at += 1
        return token

    def terms(self) -> list[SelectorTerm]:
        found: list[SelectorTerm] = []
        while begin := self._look():
            if not _is_word(begin) and begin != "!":
                raise _SyntaxError(f"found '{begin}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._term())
            except _SyntaxError as error:
                raise _SyntaxError(f"unable to parse requirement: {error}") from None
            end = self._take()
            if not end:
                break
            if end != ",":
                raise _SyntaxError(f"found '{end}', expected: ',' or 'end of string'")
            after = self._look()
            if not _is_word(after) and after != "!":
                raise _SyntaxError(f"found '{after}', expected: identifier after ','")
        return found

    def _term(self) -> SelectorTerm:
        key = self._take()
        absent = key == "!"
        if absent:
            key = self._take()
        if not _is_word(key):
            raise _SyntaxError(f"found '{key}', expected: identifier")
        _check_key(key)
        if absent:
            return SelectorTerm(key, "DoesNotExist", ())
        if self._look() in {"", ","}:
            return SelectorTerm(key, "Exists", ())
        sign = self._take()
        operator = _OPERATORS.get(sign)
        if operator is None:
            raise _SyntaxError(f"found '{sign}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._values() if sign in {"in", "notin"} else (self._value(),)
        for index, value in enumerate(values):
            _check_value(key, operator, index, value)
        return SelectorTerm(key, operator, values)

    def _value(self) -> str:
        if self._look() in {"", ","}:
            return ""
        value = self._take()
        if not _is_word(value):
            raise _SyntaxError(f"found '{value}', expected: identifier")
        return value

    def _values(self) -> tuple[str, ...]:
        opened = self._take()
        if opened != "(":
            raise _SyntaxError(f"found '{opened}' expected: '('")
        values = {""} if self._look() in {")", ","} else set()
        while (item := self._take()) != ")":
            if item == ",":
                if self._look() in {")", ","}:
                    values.add("")
            elif _is_word(item):
                values.add(item)
                if (after := self._look()) not in {",", ")"}:
                    raise _SyntaxError(f"found '{after}', expected: ',' or ')'")
            else:
                raise _SyntaxError(f"found '{item}', expected: ',', ')' or identifier")
        return tuple(sorted(values))


def _is_word(token: str) -> bool:
    return bool(token) and token not in {"(", ")", ",", "!", "=", "==", "!=", "<", ">"}


def _check_key(key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    problems = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash and _PREFIX.fullmatch(prefix) is None:
        problems.append(_PREFIX_FORM)
    if not name:
        problems.append("name part must be non-empty")
    if len(name) > 63:
        problems.append("name part must be no more than 63 bytes")
    if _NAME.fullmatch(name) is None:
        problems.append(_NAME_FORM)
    if problems:
        raise _SyntaxError(f'<nil>: Invalid value: "{key}": {"; ".join(problems)}')


def _check_value(key: str, operator: str, index: int, value: str) -> None:
    if operator in {"Gt", "Lt"} and re.fullmatch(r"[-+]?\d+", value) is None:
        raise _SyntaxError(
            f"values[{index}]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
        )
    problems = []
    if len(value) > 63:
        problems.append("must be no more than 63 bytes")
    if value and _NAME.fullmatch(value) is None:
        problems.append(_VALUE_FORM)
    if problems:
        raise _SyntaxError(f'values[{index}][{key}]: Invalid value: "{value}": {"; ".join(problems)}')
