"""
The functions of CEL, and those that Kubernetes adds to it, on values.

A function raises CelError where it has no value; TypeError, ValueError and AttributeError for operands of another type,
which the evaluation turns into CelError (`headgate.core.kubernetes.cel`).
"""

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final

from headgate.core.kubernetes.cel_values import (
    NONE,
    CelError,
    CelOptional,
    CelQuantity,
    CelSemver,
    quantity_of,
    semver_of,
)


def equal(left: Any, right: Any) -> bool:
    """Whether two values are equal. A boolean equals no number, though Python counts with it."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value)
        case _:
            raise CelError(f"{value!r} is no text")


def _integer(value: Any) -> int:
    if isinstance(value, str) and not re.fullmatch(r"[-+]?[0-9]+", value):
        raise CelError(f"{value!r} is no integer")
    if not -(2**63) <= int(value) < 2**63:
        raise CelError(f"{value!r} is out of range")
    return int(value)


def _pattern(pattern: str) -> re.Pattern[str]:
    # `$` is the end of the text in RE2, and not a place before a last newline.
    try:
        return re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", pattern))
    except re.error as error:
        raise CelError(f"{pattern!r}: {error}") from None


def _find(value: str, pattern: str) -> str:
    found = _pattern(pattern).search(value)
    return found[0] if found is not None else ""


def _find_all(value: str, pattern: str, count: int = -1) -> list[str]:
    found = [each[0] for each in _pattern(pattern).finditer(value)]
    return found if count < 0 else found[:count]


def _is(parse: Callable[..., Any]) -> Callable[..., bool]:
    """Whether a text can be read."""

    def can_be(value: str, *options: bool) -> bool:
        try:
            parse(value, *options)
        except CelError:
            return False
        return True

    return can_be


def _semver(value: str, *normalize: bool) -> CelSemver:
    return semver_of(value, normalize=any(normalize))


def _rank(value: Any) -> Any:
    """What quantities and versions are compared by."""
    match value:
        case CelQuantity():
            return value.value
        case CelSemver():
            return value.rank
        case _:
            raise CelError(f"{value!r} is no quantity and no version")


def _compare(left: Any, right: Any) -> int:
    if type(left) is not type(right):
        raise CelError(f"{left!r} and {right!r} cannot be compared")
    return int(_rank(left) > _rank(right)) - int(_rank(left) < _rank(right))


def _amount(value: CelQuantity | int) -> Any:
    return value if isinstance(value, int) else value.value


def _split(value: str, by: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    return list(value) if not by else value.split(by, count - 1 if count > 0 else -1)


def _index_of(of: Any, part: Any, start: int = 0) -> int:
    if isinstance(of, str):
        return of.find(part, start)
    return next((place for place, each in enumerate(of) if equal(each, part)), -1)


def _last_index_of(of: Any, part: Any) -> int:
    if isinstance(of, str):
        return of.rfind(part)
    return max((place for place, each in enumerate(of) if equal(each, part)), default=-1)


def _substring(value: str, start: int, end: int | None = None) -> str:
    end = len(value) if end is None else end
    if not 0 <= start <= end <= len(value):
        raise CelError(f"there is no part from {start} to {end} of {value!r}")
    return value[start:end]


def _char_at(value: str, place: int) -> str:
    if not 0 <= place <= len(value):
        raise CelError(f"{value!r} has no character {place}")
    return value[place : place + 1]


def _ascii(value: str, change: Callable[[str], str]) -> str:
    return "".join(change(each) if each.isascii() else each for each in value)


def _includes(of: Any, item: Any) -> bool:
    return any(equal(each, item) for each in of) if isinstance(of, list) else equal(of, item)


def _is_integer(of: CelQuantity) -> bool:
    return of.value.denominator == 1 and -(2**63) <= of.value < 2**63


def _as_integer(of: CelQuantity) -> int:
    if of.value.denominator != 1:
        raise CelError(f"{of.value} is no integer")
    return _integer(of.value)


def _is_sorted(of: list[Any]) -> bool:
    return all(left <= right for left, right in pairwise(of))


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "size": len,
    "sign": lambda of: (of.value > 0) - (of.value < 0),
    "int": _integer,
    "double": float,
    "string": _text,
    "dyn": lambda value: value,
    "quantity": quantity_of,
    "isQuantity": _is(quantity_of),
    "semver": _semver,
    "isSemver": _is(_semver),
    "sets.contains": lambda of, items: all(_includes(of, item) for item in items),
    "sets.intersects": lambda of, items: any(_includes(of, item) for item in items),
    "sets.equivalent": lambda of, items: (
        all(_includes(of, item) for item in items) and all(_includes(items, item) for item in of)
    ),
    "optional.of": lambda value: CelOptional((value,)),
    "optional.none": lambda: NONE,
}
"""By name, with its namespace."""

METHODS: Final[Mapping[str, Callable[..., Any]]] = {
    "size": len,
    "hasValue": lambda of: bool(of.values),
    "value": lambda of: of.values[0],
    "contains": lambda of, part: part in of,
    "startsWith": lambda of, part: of.startswith(part),
    "endsWith": lambda of, part: of.endswith(part),
    "matches": lambda of, pattern: _pattern(pattern).search(of) is not None,
    "find": _find,
    "findAll": _find_all,
    "split": _split,
    "trim": lambda of: of.strip(),
    "join": lambda of, by="": by.join(of),
    "replace": lambda of, old, new, count=-1: of.replace(old, new, count),
    "lowerAscii": lambda of: _ascii(of, str.lower),
    "upperAscii": lambda of: _ascii(of, str.upper),
    "charAt": _char_at,
    "substring": _substring,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "sum": sum,
    "max": max,
    "min": min,
    "isSorted": _is_sorted,
    "includes": _includes,
    "compareTo": _compare,
    "isLessThan": lambda of, other: _compare(of, other) < 0,
    "isGreaterThan": lambda of, other: _compare(of, other) > 0,
    "add": lambda of, other: CelQuantity(of.value + _amount(other)),
    "sub": lambda of, other: CelQuantity(of.value - _amount(other)),
    "isInteger": _is_integer,
    "asInteger": _as_integer,
    "asApproximateFloat": lambda of: float(of.value),
    "major": lambda of: of.major,
    "minor": lambda of: of.minor,
    "patch": lambda of: of.patch,
}
