"""The values of CEL that JSON does not have: optional ones, quantities, versions; and maps that miss no key."""

import re
from fractions import Fraction
from typing import Any, Final

import msgspec

from headgate.core.kubernetes.quantities import QuantityError, parse_quantity


class CelError(ValueError):
    """Raised when an expression has no value for these variables."""


class CelOptional(msgspec.Struct, frozen=True):
    """An optional value: an empty tuple for none."""

    values: tuple[Any, ...] = ()


NONE: Final = CelOptional()


class CelQuantity(msgspec.Struct, frozen=True):
    """A quantity of Kubernetes."""

    value: Fraction


class CelSemver(msgspec.Struct, frozen=True):
    """A version by semver 2.0.0. What is behind a `+` does not count when two are compared."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...] = ()

    @property
    def rank(self) -> tuple[Any, ...]:
        """The place in the order of versions: a pre-release comes before what it leads to, numbers before names."""
        parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.prerelease)
        return (self.major, self.minor, self.patch, not parts, parts)


class MapWithDefault(dict[str, Any]):
    """A map in which a key that it lacks has an empty map; `in` and macros see the keys that there are."""

    def __missing__(self, key: str) -> Any:
        return {}


def quantity_of(text: str | int | float) -> CelQuantity:
    """A quantity. Raises CelError."""
    try:
        return CelQuantity(parse_quantity(text))
    except QuantityError as error:
        raise CelError(str(error)) from None


_NUMBER: Final = r"(0|[1-9][0-9]*)"
_NAMES: Final = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_SEMVER: Final = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_NAMES}))?(?:\+{_NAMES})?", re.ASCII)
_LEADING_ZERO: Final = re.compile(r"0[0-9]+")


def semver_of(text: str, *, normalize: bool = False) -> CelSemver:
    """A version. Normalized, it may begin with a `v`, lack minor and patch, and have leading zeros. Raises CelError."""
    form = _SEMVER.fullmatch(_normalized(text) if normalize else text)
    prerelease = tuple(form[4].split(".")) if form is not None and form[4] else ()
    if form is None or any(_LEADING_ZERO.fullmatch(part) for part in prerelease):
        raise CelError(f"{text!r} is no semantic version")
    return CelSemver(int(form[1]), int(form[2]), int(form[3]), prerelease)


def _normalized(text: str) -> str:
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and re.search("[-+]", parts[-1]):
        raise CelError(f"{text!r}: a short version has no pre-release")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _without_zeros(part: str) -> str:
    bare = part.lstrip("0") if len(part) > 1 else part
    return bare if bare[:1].isdigit() else f"0{bare}" if len(part) > 1 else part
