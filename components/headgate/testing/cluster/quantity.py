"""
Resource quantities as exact integers (k8s.io/apimachinery/pkg/api/resource).

Its own few lines on purpose: the simulated cluster judges what the scheduler does, so it does not share the scheduler's
arithmetic. An amount is a whole number of billionths (`ONE` of them are 1), the smallest step that Kubernetes keeps;
anything finer is rounded up, as there.
"""

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


@lru_cache(maxsize=8192)
def _parsed(text: str) -> int:
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


def pod_requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """
    What a pod asks of a node: its containers' sum, or a larger init container, plus overhead; `pods` is always 1.

    Restartable init containers (sidecars) run beside the others and are added (KEP-753).
    """
    total: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    initial: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        requests = _requests(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, requests)
            _raise(initial, sidecars.items())
        else:
            _raise(initial, ((name, amount + sidecars.get(name, 0)) for name, amount in requests.items()))
    for container in spec.get("containers") or ():
        _add(total, _requests(container))
    _add(total, sidecars)
    _raise(total, initial.items())
    _add(total, {name: quantity(amount) for name, amount in (spec.get("overhead") or {}).items()})
    total["pods"] = ONE
    return total


def _requests(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources") or {}
    return {
        name: quantity(amount)
        for name, amount in {**resources.get("limits", {}), **resources.get("requests", {})}.items()
    }


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: dict[str, int], least: Iterable[tuple[str, int]]) -> None:
    for name, amount in least:
        if amount > total.get(name, 0):
            total[name] = amount
