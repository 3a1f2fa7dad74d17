"""Devices: their classes, the slices that drivers publish, and the claims to them (dynamic resource allocation)."""

from typing import Any

import msgspec

from headgate.core.placement.objects.metadata import MetadataObject
from headgate.events.objects import ApiBranch, NodeSelector

QuantityText = str | int | float


# --- what all of them share ----------------------------------------------------------------------------------------


class CelSelector(ApiBranch, frozen=True):
    """`resourcev1.CELDeviceSelector`."""

    expression: str = ""


class DeviceSelector(ApiBranch, frozen=True):
    """`resourcev1.DeviceSelector`: one that is no expression is of a newer API."""

    cel: CelSelector | None = None


class DeviceToleration(ApiBranch, frozen=True):
    """`resourcev1.DeviceToleration`."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class DeviceConfiguration(ApiBranch, frozen=True):
    """`resourcev1.DeviceClaimConfiguration`, and that of classes: for the driver, and passed on as it is."""

    requests: tuple[str, ...] = ()
    opaque: dict[str, Any] | None = None


# --- classes -------------------------------------------------------------------------------------------------------


class DeviceClassSpec(ApiBranch, frozen=True):
    """`resourcev1.DeviceClassSpec`: `extended_resource_name` is the resource that its devices are requested by, too."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(ApiBranch, frozen=True):
    """`resourcev1.DeviceClass`."""

    metadata: MetadataObject
    spec: DeviceClassSpec = DeviceClassSpec()


# --- slices --------------------------------------------------------------------------------------------------------


class DeviceAttribute(ApiBranch, frozen=True):
    """`resourcev1.DeviceAttribute`: one of the values. Lists of them (DRAListTypeAttributes, off) are not read."""

    int_value: int | None = msgspec.field(name="int", default=None)
    bool_value: bool | None = msgspec.field(name="bool", default=None)
    string_value: str | None = msgspec.field(name="string", default=None)
    version_value: str | None = msgspec.field(name="version", default=None)


class CapacityRange(ApiBranch, frozen=True):
    """`resourcev1.CapacityRequestPolicyRange`."""

    min: QuantityText | None = None
    max: QuantityText | None = None
    step: QuantityText | None = None


class CapacityPolicy(ApiBranch, frozen=True):
    """`resourcev1.CapacityRequestPolicy`: which parts of a capacity can be requested."""

    default: QuantityText | None = None
    valid_values: tuple[QuantityText, ...] | None = None
    valid_range: CapacityRange | None = None


class DeviceCapacity(ApiBranch, frozen=True):
    """`resourcev1.DeviceCapacity`."""

    value: QuantityText = 0
    request_policy: CapacityPolicy | None = None


class Counter(ApiBranch, frozen=True):
    """`resourcev1.Counter`."""

    value: QuantityText = 0


class CounterSet(ApiBranch, frozen=True):
    """`resourcev1.CounterSet`: what the devices of a pool share."""

    name: str = ""
    counters: dict[str, Counter] = {}


class CounterConsumption(ApiBranch, frozen=True):
    """`resourcev1.DeviceCounterConsumption`."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(ApiBranch, frozen=True):
    """`resourcev1.DeviceTaint`."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Device(ApiBranch, frozen=True):
    """`resourcev1.Device`. What it maps node allocatable resources to is not read: the gate for it is off."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[CounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] | None = None
    allow_multiple_allocations: bool = False


class ResourcePool(ApiBranch, frozen=True):
    """`resourcev1.ResourcePool`."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(ApiBranch, frozen=True):
    """`resourcev1.ResourceSliceSpec`."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: tuple[Device, ...] = ()
    per_device_node_selection: bool = False
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(ApiBranch, frozen=True):
    """`resourcev1.ResourceSlice`."""

    metadata: MetadataObject
    spec: ResourceSliceSpec = ResourceSliceSpec()


# --- claims --------------------------------------------------------------------------------------------------------


class CapacityRequirements(ApiBranch, frozen=True):
    """`resourcev1.CapacityRequirements`."""

    requests: dict[str, QuantityText] = {}


class ExactRequest(ApiBranch, frozen=True):
    """`resourcev1.ExactDeviceRequest`."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class SubRequest(ApiBranch, frozen=True):
    """`resourcev1.DeviceSubRequest`: one of several alternatives."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceRequest(ApiBranch, frozen=True):
    """`resourcev1.DeviceRequest`: `exactly`, or the first of several that can be had."""

    name: str = ""
    exactly: ExactRequest | None = None
    first_available: tuple[SubRequest, ...] = ()


class DeviceConstraint(ApiBranch, frozen=True):
    """`resourcev1.DeviceConstraint`."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(ApiBranch, frozen=True):
    """`resourcev1.DeviceClaim`."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceConfiguration, ...] = ()


class ResourceClaimSpec(ApiBranch, frozen=True):
    """`resourcev1.ResourceClaimSpec`."""

    devices: DeviceClaim = DeviceClaim()


class AllocatedDevice(ApiBranch, frozen=True):
    """`resourcev1.DeviceRequestAllocationResult`."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: dict[str, QuantityText] | None = None


class AllocatedConfiguration(ApiBranch, frozen=True):
    """`resourcev1.DeviceAllocationConfiguration`."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: dict[str, Any] | None = None


class AllocatedDevices(ApiBranch, frozen=True):
    """`resourcev1.DeviceAllocationResult`."""

    results: tuple[AllocatedDevice, ...] = ()
    config: tuple[AllocatedConfiguration, ...] = ()


class ClaimAllocation(ApiBranch, frozen=True):
    """`resourcev1.AllocationResult`."""

    devices: AllocatedDevices = AllocatedDevices()
    node_selector: NodeSelector | None = None


class ClaimConsumer(ApiBranch, frozen=True):
    """`resourcev1.ResourceClaimConsumerReference`."""

    api_group: str = msgspec.field(name="apiGroup", default="")
    resource: str = ""
    name: str = ""
    uid: str = ""


class DeviceCondition(ApiBranch, frozen=True):
    """`metav1.Condition` of an allocated device."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class AllocatedDeviceStatus(ApiBranch, frozen=True):
    """`resourcev1.AllocatedDeviceStatus`."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: tuple[DeviceCondition, ...] = ()


class ResourceClaimStatus(ApiBranch, frozen=True):
    """`resourcev1.ResourceClaimStatus`."""

    allocation: ClaimAllocation | None = None
    reserved_for: tuple[ClaimConsumer, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ClaimMetadata(MetadataObject, frozen=True):
    """The metadata of a claim. A finalizer keeps one with an allocation from being deleted."""

    finalizers: tuple[str, ...] = ()


class ResourceClaim(ApiBranch, frozen=True):
    """
    `resourcev1.ResourceClaim`.

    `pending_for` is in no manifest: it is the uid of the pod that an allocation was decided for, until it is written.
    """

    metadata: ClaimMetadata
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()
    pending_for: str = ""


def supposed_claim(found: ResourceClaim, written: ResourceClaim) -> ResourceClaim:
    """A claim as it will be, for the last of its consumers while it has no allocation yet."""
    consumers = written.status.reserved_for
    if found.status.allocation is not None or written.status.allocation is None or not consumers:
        return written
    return msgspec.structs.replace(written, pending_for=consumers[-1].uid)
