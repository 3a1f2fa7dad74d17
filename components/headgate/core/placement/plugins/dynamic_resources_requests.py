"""
Requests of claims, ready for a search: checked, with their class, and with the devices that "all" stands for on a node.

Source: structured/internal/incubating/allocator_incubating.go (`validateDeviceRequest`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from headgate.core.placement.objects.devices import (
    CapacityRequirements,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    DeviceTaint,
    DeviceToleration,
    ExactRequest,
    QuantityText,
    ResourceClaim,
    SubRequest,
)
from headgate.core.placement.plugins.dynamic_resources_entries import (
    AllocationError,
    DeviceEntry,
    DeviceId,
    SelectorError,
)

RESULTS_MAX: Final = 32
"""Devices of one claim (AllocationResultsMaxSize)."""

ALL: Final = "All"
_EXACT: Final = "ExactCount"
_EFFECTS: Final = ("NoSchedule", "NoExecute")


class RequestView(msgspec.Struct, frozen=True, eq=False):
    """
    A request, or (with a `parent`) one of its alternatives.

    `claim` is `namespace/name`. Selectors are those of the class first.
    """

    claim: str
    name: str
    parent: str
    device_class: DeviceClass
    selectors: tuple[str, ...]
    is_all: bool
    count: int
    is_admin: bool
    tolerations: tuple[DeviceToleration, ...]
    capacity: Mapping[str, QuantityText]

    @property
    def base(self) -> str:
        """The name of the request, whichever alternative this is."""
        return self.parent or self.name

    @property
    def alternative(self) -> str:
        """The name of the alternative, "" of a request without any."""
        return self.name if self.parent else ""

    @property
    def reference(self) -> str:
        """The name as results have it: `request`, or `request/alternative`."""
        return f"{self.parent}/{self.name}" if self.parent else self.name

    def selects(self, entry: DeviceEntry) -> bool:
        """Whether class and request select a device. Raises AllocationError for a selector without an answer."""
        for place, expression in enumerate(self.selectors):
            try:
                if not entry.matches(expression):
                    return False
            except SelectorError as error:
                raise AllocationError(f"{self._whose(place)}: {error}") from None
        return True

    def _whose(self, place: int) -> str:
        of_class = len(self.device_class.spec.selectors)
        if place < of_class:
            return f"class {self.device_class.metadata.name}: selector #{place}"
        return f"claim {self.claim}: selector #{place - of_class}"

    def tolerates(self, taints: Sequence[DeviceTaint]) -> bool:
        """Whether no taint of a device keeps the request from it. Unknown effects keep nothing away."""
        return all(
            taint.effect not in _EFFECTS or any(_tolerated(each, taint) for each in self.tolerations)
            for taint in taints
        )


class RequestSlot(msgspec.Struct, frozen=True, eq=False):
    """A request of a claim: its alternatives in the order of preference, or the one form that it has."""

    views: tuple[RequestView, ...]
    is_list: bool


def slots_of(claim: ResourceClaim, classes: Mapping[str, DeviceClass]) -> tuple[RequestSlot, ...]:
    """The requests of a claim. Raises AllocationError for one that cannot be met anywhere."""
    slots: list[RequestSlot] = []
    for request in claim.spec.devices.requests:
        views = tuple(_views_of(claim.metadata.key, request, classes))
        slots.append(RequestSlot(views, is_list=bool(request.first_available)))
    return tuple(slots)


def _views_of(claim: str, request: DeviceRequest, classes: Mapping[str, DeviceClass]) -> Iterator[RequestView]:
    for alternative in request.first_available:
        yield _view_of(claim, alternative.name, request.name, alternative, classes)
    if not request.first_available:
        yield _view_of(claim, request.name, "", request.exactly or ExactRequest(), classes)


def _view_of(
    claim: str, name: str, parent: str, request: ExactRequest | SubRequest, classes: Mapping[str, DeviceClass]
) -> RequestView:
    where = f"claim {claim}, request {name}"
    own = _expressions(request.selectors, where)
    if not request.device_class_name:
        raise AllocationError(f"{where}: missing device class name (unsupported request type?)")
    device_class = classes.get(request.device_class_name)
    if device_class is None:
        raise AllocationError(f"{where}: could not retrieve device class {request.device_class_name}: not found")
    if request.allocation_mode not in (_EXACT, ALL):
        raise AllocationError(f"{where}: unsupported count mode {request.allocation_mode}")
    inherited = _expressions(device_class.spec.selectors, f"class {device_class.metadata.name}")
    return RequestView(
        claim=claim,
        name=name,
        parent=parent,
        device_class=device_class,
        selectors=inherited + own,
        is_all=request.allocation_mode == ALL,
        count=request.count,
        is_admin=isinstance(request, ExactRequest) and bool(request.admin_access),
        tolerations=request.tolerations,
        capacity=(request.capacity or CapacityRequirements()).requests,
    )


def _expressions(selectors: Sequence[DeviceSelector], where: str) -> tuple[str, ...]:
    expressions: list[str] = []
    for index, selector in enumerate(selectors):
        if selector.cel is None:
            raise AllocationError(f"{where}, selector #{index}: CEL expression empty (unsupported selector type?)")
        expressions.append(selector.cel.expression)
    return tuple(expressions)


def _tolerated(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


# --- what a search has chosen --------------------------------------------------------------------------------------


class ChosenDevice(msgspec.Struct, frozen=True, eq=False):
    """A device for a request. `consumed` is what it takes of a device that several claims share, None of its own."""

    view: RequestView
    entry: DeviceEntry
    consumed: Mapping[str, QuantityText] | None = None

    @property
    def id(self) -> DeviceId:
        """The device."""
        return self.entry.id


class ChosenClaim(msgspec.Struct, frozen=True, eq=False):
    """All devices for a claim, in the order of choice, and the view of each request that was met."""

    claim: ResourceClaim
    devices: tuple[ChosenDevice, ...]
    views: tuple[RequestView, ...]
