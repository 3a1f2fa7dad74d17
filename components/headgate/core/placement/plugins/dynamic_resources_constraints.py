"""
Constraints of a claim: attributes that have to be equal, or different, among the devices chosen for it.

Each is asked before a device is chosen, and told when it is given up again. Source: structured/internal/incubating
(matchAttributeConstraint, distinctAttributeConstraint).
"""

from collections.abc import Collection
from typing import Protocol

from headgate.core.placement.objects.devices import DeviceAttribute, DeviceConstraint
from headgate.core.placement.plugins.dynamic_resources_entries import AllocationError, DeviceEntry, attribute_of


class AttributeConstraint(Protocol):
    """A constraint during a search. `request` is the name of a request, `alternative` of one of its alternatives."""

    def add(self, request: str, alternative: str, entry: DeviceEntry) -> bool:
        """Whether a device can be chosen too; if so, it is."""
        ...

    def remove(self, request: str, alternative: str, entry: DeviceEntry) -> None:
        """A device that was added is given up."""
        ...


def constraint_of(constraint: DeviceConstraint, claim: str, index: int) -> AttributeConstraint:
    """A constraint at the start of a search. Raises AllocationError for one of a newer API."""
    if constraint.match_attribute is not None:
        return _Matching(constraint.requests, constraint.match_attribute)
    if constraint.distinct_attribute is not None:
        return _Distinct(constraint.requests, constraint.distinct_attribute)
    raise AllocationError(f"claim {claim}, constraint #{index}: empty constraint (unsupported constraint type?)")


def _concerns(requests: Collection[str], request: str, alternative: str) -> bool:
    """Whether a constraint is about a request: it names it, its alternative, or nothing."""
    if not requests or request in requests:
        return True
    return bool(alternative) and f"{request}/{alternative}" in requests


def _is_typed(attribute: DeviceAttribute) -> bool:
    return attribute != DeviceAttribute()


class _Matching:
    """All devices have one value."""

    def __init__(self, requests: Collection[str], name: str) -> None:
        self._requests = requests
        self._name = name
        self._value: DeviceAttribute | None = None
        self._devices = 0

    def add(self, request: str, alternative: str, entry: DeviceEntry) -> bool:
        if not _concerns(self._requests, request, alternative):
            return True
        value = attribute_of(entry, self._name)
        if value is None:
            return False
        if self._devices == 0:
            self._value = value
        elif not _is_typed(value) or value != self._value:
            return False
        self._devices += 1
        return True

    def remove(self, request: str, alternative: str, entry: DeviceEntry) -> None:  # noqa: ARG002 - whichever it is
        if _concerns(self._requests, request, alternative):
            self._devices -= 1


class _Distinct:
    """
    The requests have different values.

    As in the kube-scheduler one value is remembered per request, that of its last device: a third device of a request
    may have the value of the first.
    """

    def __init__(self, requests: Collection[str], name: str) -> None:
        self._requests = requests
        self._name = name
        self._values: dict[str, DeviceAttribute] = {}
        self._devices = 0

    def add(self, request: str, alternative: str, entry: DeviceEntry) -> bool:
        if not _concerns(self._requests, request, alternative):
            return True
        value = attribute_of(entry, self._name)
        if value is None:
            return False
        if self._devices and self._values and (not _is_typed(value) or value in self._values.values()):
            return False
        self._values[request] = value
        self._devices += 1
        return True

    def remove(self, request: str, alternative: str, entry: DeviceEntry) -> None:  # noqa: ARG002 - whichever it is
        if _concerns(self._requests, request, alternative):
            self._values.pop(request, None)
            self._devices -= 1
