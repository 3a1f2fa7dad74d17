"""
Amounts: Kubernetes quantities as integers.

CPU is counted in milli-units, everything else in whole units, rounded up as Kubernetes does. Quantities appear in facts
as the manifest has them; all arithmetic is on these integers, and `canonical` writes them back in readable form.

Kueue computes with 64-bit integers that saturate, and its largest one means "unlimited". Python's integers are
unbounded, so `add`, `subtract` and `multiply` saturate on purpose: a quota of 10 E cores stays unlimited here as it
does there (`kueue-semantics` section 1).
"""

import re
from fractions import Fraction
from functools import lru_cache

UNLIMITED = 2**63 - 1
"""The largest amount. As a quota it means unlimited."""

LOWEST = -(2**63)
"""The smallest amount: what is left when an unlimited amount is subtracted from a bounded one."""

_SUFFIX = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}


class QuantityError(ValueError):
    """Raised when a string is no Kubernetes quantity."""

    def __init__(self, quantity: object) -> None:
        super().__init__(f"{quantity!r} is not a quantity: write e.g. 500m, 2, 4Gi or 1e3")
        self.quantity = quantity


_FORM = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)(|n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)")


@lru_cache(maxsize=65536)
def parse_quantity(quantity: str | int | float) -> Fraction:
    """The exact value of a quantity. Raises QuantityError."""
    form = _FORM.fullmatch(str(quantity))
    if form is None:
        raise QuantityError(quantity)
    return Fraction(form[1]) * _SUFFIX[form[2]]


@lru_cache(maxsize=65536)
def amount(resource: str, quantity: str | int | float) -> int:
    """A quantity of a resource as an integer: milli-units of cpu, whole units (rounded up) of all else; saturated."""
    return to_amount(resource, parse_quantity(quantity))


def to_amount(resource: str, value: Fraction) -> int:
    """`amount` of an exact value."""
    if resource == "cpu":
        value = value * 1000
    return _saturate(-((-value.numerator) // value.denominator))


def parse_weight(quantity: str | int | float) -> float:
    """A weight in fair sharing as a number; saturated, as Kubernetes caps each quantity. Raises QuantityError."""
    value = parse_quantity(quantity)
    return float(UNLIMITED if value > UNLIMITED else LOWEST if value < LOWEST else value)


# --- arithmetic ----------------------------------------------------------------------------------------------------


def _saturate(value: int) -> int:
    return UNLIMITED if value > UNLIMITED else LOWEST if value < LOWEST else value


def add(left: int, right: int) -> int:
    """The sum; anything with an unlimited part is unlimited."""
    if left == UNLIMITED or right == UNLIMITED:
        return UNLIMITED
    value = left + right
    return value if LOWEST < value < UNLIMITED else _saturate(value)


def subtract(left: int, right: int) -> int:
    """The difference. Unlimited minus unlimited is 0; a bounded amount minus unlimited is the lowest amount."""
    if left == UNLIMITED:
        return 0 if right == UNLIMITED else UNLIMITED
    if right == UNLIMITED:
        return LOWEST
    value = left - right
    return value if LOWEST < value < UNLIMITED else _saturate(value)


def multiply(value: int, factor: int) -> int:
    """The product, saturated."""
    return _saturate(value * factor)


# --- canonical form ------------------------------------------------------------------------------------------------

_DECIMAL = {-3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def canonical(resource: str, value: int) -> str:
    """
    An amount as Kubernetes and Kueue write it: "2500m" and "60" of cpu, "4Gi" of memory, "1k" of all else.

    The largest suffix that leaves a whole number (apimachinery's canonical form). Memory, ephemeral storage and huge
    pages use powers of 1024, where one leaves a whole number.
    """
    if resource == "cpu":
        return _decimal(value, -3)
    if value and value % 1024 == 0 and _is_binary(resource):
        return _binary(value)
    return _decimal(value, 0)


def limit_text(resource: str, value: int) -> str:
    """`canonical` of an amount that may be unlimited: Kueue's messages then have `<unlimited>`."""
    return "<unlimited>" if value == UNLIMITED else canonical(resource, value)


def _is_binary(resource: str) -> bool:
    return resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")


def _decimal(value: int, exponent: int) -> str:
    if value == 0:
        return "0"
    while value % 1000 == 0 and exponent < 18:
        value //= 1000
        exponent += 3
    return f"{value}{_DECIMAL[exponent]}"


def _binary(value: int) -> str:
    power = 0
    while value % 1024 == 0 and power < len(_BINARY) - 1:
        value //= 1024
        power += 1
    return f"{value}{_BINARY[power]}"
