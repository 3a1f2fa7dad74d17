"""
A configuration document, field by field: what is read has the right type, and unread fields are an error.

`headgate.core.config.reader` reads each section of Kueue's Configuration with a `Fields`: it reads the supported fields
and calls `done`, which refuses the rest by name. Every error is a ConfigurationError that names the field as Kueue
writes its path (`waitForPodsReady.requeuingStrategy.timestamp`) and what to write instead.
"""

import difflib
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from headgate.core.kubernetes.quantities import QuantityError, parse_quantity

_UNITS_MS = {
    "ns": Fraction(1, 1_000_000),
    "us": Fraction(1, 1_000),
    "µs": Fraction(1, 1_000),
    "μs": Fraction(1, 1_000),
    "ms": Fraction(1),
    "s": Fraction(1_000),
    "m": Fraction(60_000),
    "h": Fraction(3_600_000),
}

_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION = re.compile(rf"([+-]?)(?:0|((?:{_PART.pattern})+))")

DURATION_MS_MAX = (2**63 - 1) // 1_000_000
"""Go's longest duration: its nanoseconds are 64-bit integers."""


class ConfigurationError(ValueError):
    """Raised when a configuration is invalid or not supported: the path of the field, the problem and the remedy."""

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{field}: {problem}: {remedy}" if field else f"{problem}: {remedy}")
        self.field = field
        self.problem = problem
        self.remedy = remedy


def nearest(word: str, known: list[str]) -> str:
    """What to write instead of an unknown name: the most similar of the known names, else all of them."""
    folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), sorted(folded), n=1, cutoff=0.6)
    return f"did you mean {folded[close[0]]!r}?" if close else f"write one of {', '.join(sorted(known))}"


def duration_ms(field: str, value: Any) -> int:
    """A Go duration (`5m30s`) in milliseconds, rounded up. Raises ConfigurationError when it is none, or negative."""
    form = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if form is None:
        raise ConfigurationError(field, f"{value!r} is not a duration", "write one like 30s, 5m or 1h30m")
    exact = sum((Fraction(part[1]) * _UNITS_MS[part[2]] for part in _PART.finditer(form[2] or "")), Fraction(0))
    if form[1] == "-" and exact:
        raise ConfigurationError(field, f"{value!r} is negative", "write a duration of 0s or longer")
    rounded = -((-exact.numerator) // exact.denominator)
    if rounded > DURATION_MS_MAX:
        raise ConfigurationError(field, f"{value!r} is longer than 292 years", "write a shorter duration")
    return rounded


class Fields:
    """
    One mapping of a configuration, and its path.

    A getter returns its default when the field is absent or null, as Kueue reads them. Raises ConfigurationError when
    the value is of another type.
    """

    def __init__(self, document: Any, path: str = "") -> None:
        if not isinstance(document, Mapping):
            raise ConfigurationError(path, f"{_shown(document)} is not a mapping", "write fields as `name: value`")
        wrong = next((key for key in document if not isinstance(key, str)), None)
        if wrong is not None:
            raise ConfigurationError(path, f"the key {wrong!r} is not a string", "put it in quotes")
        self.path = path
        self._document: Mapping[str, Any] = document
        self._known: list[str] = []

    def at(self, name: str) -> str:
        """The path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def names(self) -> list[str]:
        """The names of the fields that are set, in order."""
        return sorted(self._document)

    def raw(self, name: str) -> Any:
        """The value of a field, or None."""
        self._known.append(name)
        return self._document.get(name)

    def has(self, name: str) -> bool:
        """Whether the field is set, even to null."""
        self._known.append(name)
        return name in self._document

    def section(self, name: str) -> "Fields | None":
        """The mapping of a field."""
        value = self.raw(name)
        return None if value is None else Fields(value, self.at(name))

    def sections(self, name: str) -> list["Fields"]:
        """The mappings of a list."""
        return [Fields(value, f"{self.at(name)}[{index}]") for index, value in enumerate(self._list(name))]

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ConfigurationError(self.at(name), f"{_shown(value)} is not a boolean", "write true or false")
        return value

    def text(self, name: str, default: str = "") -> str:
        """A string."""
        value = self.raw(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise ConfigurationError(self.at(name), f"{_shown(value)} is not a string", "put it in quotes")
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """One of several permitted strings."""
        value = self.text(name, default) or default
        if value not in {*choices, default}:
            raise ConfigurationError(self.at(name), f"{value!r} is not supported", f"write {' or '.join(choices)}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        values = self._list(name)
        for index, value in enumerate(values):
            if not isinstance(value, str):
                at = f"{self.at(name)}[{index}]"
                raise ConfigurationError(at, f"{_shown(value)} is not a string", "put it in quotes")
        return tuple(values)

    def count(self, name: str) -> int | None:
        """A whole number of 32 bits, not negative."""
        value = self.raw(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
            remedy = "write a whole number from 0 to 2147483647"
            raise ConfigurationError(self.at(name), f"{_shown(value)} cannot be", remedy)
        return value

    def duration_ms(self, name: str) -> int | None:
        """A duration in milliseconds."""
        value = self.raw(name)
        return None if value is None else duration_ms(self.at(name), value)

    def quantities(self, name: str) -> dict[str, str | int | float]:
        """Quantities by resource, as they are written."""
        section = self.section(name)
        if section is None:
            return {}
        found: dict[str, str | int | float] = {}
        for resource in section.names():
            value = section.raw(resource)
            try:
                parse_quantity("" if isinstance(value, bool) else value)
            except QuantityError as error:
                remedy = "write a quantity, e.g. 500m, 2 or 4Gi"
                raise ConfigurationError(section.at(resource), f"{_shown(value)} is not a quantity", remedy) from error
            found[resource] = value
        return found

    def weights(self, name: str) -> dict[str, float]:
        """Numbers by resource, none of them negative."""
        section = self.section(name)
        if section is None:
            return {}
        found: dict[str, float] = {}
        for resource in section.names():
            value = section.raw(resource)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise ConfigurationError(
                    section.at(resource), f"{_shown(value)} cannot be a weight", "write a number of 0 or more"
                )
            found[resource] = float(value)
        return found

    def flags(self, name: str) -> dict[str, bool]:
        """True or false by name."""
        section = self.section(name)
        return {} if section is None else {key: section.flag(key) for key in section.names()}

    def ignore(self, *names: str) -> None:
        """Fields without effect in Headgate: any value is allowed."""
        self._known.extend(names)

    def done(self) -> None:
        """Refuse every field that was not read."""
        for name in sorted(self._document):
            if name not in self._known:
                raise ConfigurationError(self.at(name), "Kueue has no such field", nearest(name, self._known))

    def _list(self, name: str) -> list[Any]:
        value = self.raw(name)
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            raise ConfigurationError(self.at(name), f"{_shown(value)} is not a list", "write items as `- value`")
        return list(value)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
