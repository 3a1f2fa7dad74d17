"""
How much of the capacity of a device a request takes: as asked for, rounded as the policy of the capacity wants it.

Source: structured/internal/incubating/consumable_capacity.go.
"""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil

from headgate.core.kubernetes.quantities import canonical, parse_quantity
from headgate.core.placement.objects.devices import (
    CapacityPolicy,
    CapacityRange,
    Device,
    DeviceCapacity,
    QuantityText,
)

Requests = Mapping[str, QuantityText]


def consumption_of(requests: Requests, device: Device) -> dict[str, QuantityText]:
    """What a request takes of each capacity of a device. Raises QuantityError."""
    return {name: _taken(requests.get(name), capacity) for name, capacity in device.capacity.items()}


def has_capacity(
    requests: Requests, device: Device, consumed: Mapping[str, Fraction], taken: Mapping[str, Fraction]
) -> bool:
    """
    Whether a device has what is requested of it.

    `consumed` is allocated already, `taken` was chosen before in the same search. Raises QuantityError.
    """
    if any(name not in device.capacity for name in requests):
        return False
    for name, capacity in device.capacity.items():
        wanted = parse_quantity(_taken(requests.get(name), capacity))
        if _violates(wanted, capacity.request_policy):
            return False
        if wanted + consumed.get(name, 0) + taken.get(name, 0) > parse_quantity(capacity.value):
            return False
    return True


def _taken(requested: QuantityText | None, capacity: DeviceCapacity) -> QuantityText:
    policy = capacity.request_policy
    if requested is None:
        return policy.default if policy is not None and policy.default is not None else capacity.value
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _rounded_up(requested, policy.valid_range, policy.valid_range.min)
    wanted = parse_quantity(requested)
    return next((valid for valid in policy.valid_values or () if wanted <= parse_quantity(valid)), requested)


def _rounded_up(requested: QuantityText, valid: CapacityRange, lowest: QuantityText) -> QuantityText:
    if parse_quantity(requested) < parse_quantity(lowest):
        return lowest
    step = _whole(valid.step) if valid.step is not None else 0
    if step <= 0:
        return requested
    start = _whole(lowest)
    steps = -((start - _whole(requested)) // step)
    # Quantities with binary suffixes, whatever the resource is.
    return canonical("memory", start + step * steps)


def _violates(wanted: Fraction, policy: CapacityPolicy | None) -> bool:
    if policy is None or (policy.default is not None and wanted == parse_quantity(policy.default)):
        return False
    if policy.valid_range is not None:
        return _is_out_of(wanted, policy.valid_range)
    return bool(policy.valid_values) and all(wanted != parse_quantity(valid) for valid in policy.valid_values or ())


def _is_out_of(wanted: Fraction, valid: CapacityRange) -> bool:
    if valid.max is not None and wanted > parse_quantity(valid.max):
        return True
    step = _whole(valid.step) if valid.step is not None else 0
    return step > 0 and (ceil(wanted) - _whole(valid.min or 0)) % step != 0


def _whole(quantity: QuantityText) -> int:
    """A quantity in whole units, rounded up."""
    return ceil(parse_quantity(quantity))
