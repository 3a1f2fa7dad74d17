"""
Resource quantities as exact integers (k8s.io/apimachinery/pkg/api/resource).

Its own few lines on purpose: the simulated cluster judges what the scheduler does, so it does not share the scheduler's
arithmetic. An amount is a whole number of billionths (`ONE` of them are 1), the smallest step that Kubernetes keeps;
anything finer is rounded up, as there.
"""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any, Final

ONE: Final = 10**9
"""The amount 1: one CPU, one byte, one pod."""

_SUFFIXES: Final = {
    "Ki": ONE << 10,
    "Mi": ONE << 20,
    "Gi": ONE << 30,
    "Ti": ONE << 40,
    "Pi": ONE << 50,
    "Ei": ONE << 60,
    "n": 1,
    "u": 10**3,
    "m": 10**6,
    "k": 10**12,
    "M": 10**15,
    "G": 10**18,
    "T": 10**21,
    "P": 10**24,
    "E": 10**27,
}


_EXPONENT: Final = re.compile(r"(.+)[eE]([+-]?[0-9]+)")
_EXPONENT_MAX: Final = 1000
"""Beyond it an amount is the maximum or the minimum, whatever its digits are."""
_MOST: Final = (2**63 - 1) * ONE


@lru_cache(maxsize=8192)
def _parsed(text: str) -> int:
    form = _EXPONENT.fullmatch(text)
    if form is not None:
        # Go keeps the low 32 bits of an exponent.
        exponent = (int(form[2]) + 2**31) % 2**32 - 2**31
        if abs(exponent) > _EXPONENT_MAX:
            number = Fraction(form[1])
            return 0 if not number else (_MOST if exponent > 0 else 1) * (1 if number > 0 else -(exponent > 0))
        return ceil(Fraction(f"{form[1]}e{exponent}") * ONE)
    for length in (2, 1):
        unit = _SUFFIXES.get(text[-length:])
        if unit is not None:
            return ceil(Fraction(text[:-length]) * unit)
    return ceil(Fraction(text) * ONE)


def quantity(value: Any) -> int:
    """The amount of `"2"`, `"500m"`, `"4Gi"`, `1e3` or a JSON number, in billionths. Raises ValueError on others."""
    if type(value) is str:
        return _parsed(value)
    return value * ONE if type(value) is int else ceil(Fraction(value) * ONE)


_FINEST: Final = ONE // 1000
"""What resource lists are rounded up to."""
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")


@lru_cache(maxsize=8192)
def _canonical(text: str) -> str:
    amount, sign = _parsed(text), ""
    if amount < 0:
        amount, sign = -amount, "-"
    amount = -(-amount // _FINEST) * _FINEST
    if text[-1:] == "i" and amount >= 1024 * ONE:
        whole, power = -(-amount // ONE), 0
        while whole % 1024 == 0 and power < len(_BINARY) - 1:
            whole, power = whole // 1024, power + 1
        return f"{sign}{whole}{_BINARY[power]}"
    power = 0
    while amount and amount % 1000 == 0 and power < len(_DECIMAL) - 1:
        amount, power = amount // 1000, power + 1
    if not amount:
        return "0"
    if text[0] == "+":
        return text
    if "e" in text or "E" in text[:-1]:
        exponent = 3 * power - 9
        return f"{sign}{amount}e{exponent}" if exponent else f"{sign}{amount}"
    return f"{sign}{amount}{_DECIMAL[power]}"


def canonical(value: Any) -> str:
    """
    The one spelling in which Kubernetes gives an amount back: `"1000m"` is `"1"`, `"0.5Gi"` is `"512Mi"`.

    Amounts in lists of resources are whole thousandths, so anything finer is rounded up.
    """
    return _canonical(value if type(value) is str else repr(value))


def amount_text(amount: int, like: str) -> str:
    """An amount in billionths, spelled in binary or decimal units as `like` is."""
    if like[-1:] == "i" and amount % ONE == 0:
        return _canonical(f"{Fraction(amount, ONE << 10)}Ki")
    return _canonical(f"{amount}n")


def pod_requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """What a pod requests of a node: `total_of` its requests, plus overhead; `pods` is always 1."""
    total = total_of(spec, "requests")
    _add(total, {name: quantity(amount) for name, amount in (spec.get("overhead") or {}).items()})
    total["pods"] = ONE
    return total


def total_of(spec: Mapping[str, Any], field: str) -> dict[str, int]:
    """
    The requests or limits of a whole pod: its containers' sum, or a larger init container.

    Restartable init containers (sidecars) run beside the others and are added (KEP-753). A request that is not given
    is as large as the limit.
    """
    total: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    initial: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        requests = _amounts(container, field)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, requests)
            _raise(initial, sidecars.items())
        else:
            _raise(initial, ((name, amount + sidecars.get(name, 0)) for name, amount in requests.items()))
    for container in spec.get("containers") or ():
        _add(total, _amounts(container, field))
    _add(total, sidecars)
    _raise(total, initial.items())
    return total


def _amounts(container: Mapping[str, Any], field: str) -> dict[str, int]:
    resources = container.get("resources") or {}
    given = resources.get(field) or {}
    if field == "requests":
        given = {**(resources.get("limits") or {}), **given}
    return {name: quantity(amount) for name, amount in given.items()}


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: dict[str, int], least: Iterable[tuple[str, int]]) -> None:
    for name, amount in least:
        if amount > total.get(name, 0):
            total[name] = amount
