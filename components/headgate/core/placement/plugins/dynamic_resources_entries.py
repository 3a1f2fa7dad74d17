"""
Devices of slices as the allocation of claims sees them: identified, with quantities read and selectors remembered.

An entry lives as long as its slice does not change, so that a selector is evaluated once per device and not once per
node and attempt.
"""

from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

from headgate.core.kubernetes.cel import STEPS, compiled
from headgate.core.kubernetes.cel_syntax import CelSyntaxError
from headgate.core.kubernetes.cel_values import CelError, MapWithDefault, quantity_of, semver_of
from headgate.core.kubernetes.quantities import parse_quantity
from headgate.core.placement.objects.devices import Counter, Device, DeviceAttribute, ResourceSlice

VERDICTS_MAX: Final = 256
"""Selectors that are remembered per device. Beyond it they are evaluated anew, which costs time and nothing else."""


SELECTOR_STEPS_MAX: Final = 50_000
"""How many items macros of one selector look at for one device; the kube-scheduler limits the cost of the whole one."""


class DeviceId(NamedTuple):
    """A device in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return "/".join(self)


class PoolId(NamedTuple):
    """A pool in the cluster. Pools of two drivers may have one name."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return "/".join(self)


class AllocationError(Exception):
    """Raised when something is wrong with a claim, a class or a device, so that no node is worth trying."""


class SelectorError(Exception):
    """Raised for a selector that does not compile, or has no value for a device. Who asks knows where it stands."""


class Consumption(msgspec.Struct, frozen=True):
    """How much a device takes of a counter of its pool."""

    counter_set: str
    counter: str
    value: Fraction


class DeviceEntry:
    """A device of a slice."""

    def __init__(self, piece: ResourceSlice, device: Device) -> None:
        self.id = DeviceId(piece.spec.driver, piece.spec.pool.name, device.name)
        self.slice = piece
        self.device = device
        self._verdicts: dict[str, bool | str] = {}

    @cached_property
    def consumptions(self) -> tuple[Consumption, ...]:
        """What it takes of the counters of its pool. Raises QuantityError."""
        return tuple(
            Consumption(consumed.counter_set, name, value_of(counter))
            for consumed in self.device.consumes_counters
            for name, counter in consumed.counters.items()
        )

    @cached_property
    def has_policies(self) -> bool:
        """Whether parts of any capacity can be requested by rules of its own."""
        return any(capacity.request_policy is not None for capacity in self.device.capacity.values())

    @cached_property
    def _variables(self) -> Mapping[str, Any]:
        """The variables of a selector. Raises SelectorError for an attribute that has no value."""
        driver = self.id.driver
        attributes: dict[str, dict[str, Any]] = {}
        for name, attribute in self.device.attributes.items():
            domain, key = _qualified(name, driver)
            attributes.setdefault(domain, {})[key] = _attribute_value(name, attribute)
        capacity: dict[str, dict[str, Any]] = {}
        for name, each in self.device.capacity.items():
            domain, key = _qualified(name, driver)
            capacity.setdefault(domain, {})[key] = quantity_of(each.value)
        device = {
            "driver": driver,
            "allowMultipleAllocations": self.device.allow_multiple_allocations,
            "attributes": MapWithDefault(attributes),
            "capacity": MapWithDefault(capacity),
        }
        return {"device": device}

    def matches(self, expression: str) -> bool:
        """Whether a selector selects the device. Raises SelectorError."""
        known = self._verdicts.get(expression)
        if known is None:
            if len(self._verdicts) >= VERDICTS_MAX:
                self._verdicts.clear()
            known = self._verdicts[expression] = self._evaluated(expression)
        if isinstance(known, str):
            raise SelectorError(known)
        return known

    def _evaluated(self, expression: str) -> bool | str:
        """What a selector says, or why it says nothing."""
        try:
            evaluate = compiled(expression)
        except CelSyntaxError as error:
            return f"CEL compile error: {error}"
        try:
            value = evaluate({**self._variables, STEPS: [SELECTOR_STEPS_MAX]})
        except (CelError, SelectorError) as error:
            return f"CEL runtime error: {error}"
        if not isinstance(value, bool):
            return f"CEL runtime error: CEL result of type {type(value).__name__} could not be converted to bool"
        return value


class SliceEntry:
    """A slice with its devices."""

    def __init__(self, piece: ResourceSlice) -> None:
        self.slice = piece
        self.name = piece.metadata.name
        self.pool = PoolId(piece.spec.driver, piece.spec.pool.name)
        self.devices = tuple(DeviceEntry(piece, device) for device in piece.spec.devices)


def value_of(counter: Counter) -> Fraction:
    """The value of a counter. Raises QuantityError."""
    return parse_quantity(counter.value)


def attribute_of(entry: DeviceEntry, name: str) -> DeviceAttribute | None:
    """An attribute by its qualified name; the driver's own may lack the domain."""
    attributes = entry.device.attributes
    if name in attributes:
        return attributes[name]
    domain, slash, key = name.partition("/")
    return attributes.get(key) if slash and domain == entry.id.driver else None


def _qualified(name: str, driver: str) -> tuple[str, str]:
    """Domain and identifier of a qualified name, whose domain is the driver's where it has none."""
    domain, slash, key = name.partition("/")
    return (domain, key) if slash else (driver, name)


def _attribute_value(name: str, attribute: DeviceAttribute) -> Any:
    match attribute:
        case DeviceAttribute(int_value=int() as number):
            return number
        case DeviceAttribute(bool_value=bool() as flag):
            return flag
        case DeviceAttribute(string_value=str() as text):
            return text
        case DeviceAttribute(version_value=str() as version):
            try:
                return semver_of(version)
            except CelError as error:
                raise SelectorError(f"attribute {name}: parse semantic version: {error}") from None
        case _:
            raise SelectorError(f"attribute {name}: unsupported attribute value")
