"""Device classes, as far as placement reads them (dynamic resource allocation)."""

from headgate.core.placement.objects.metadata import MetadataObject
from headgate.events.objects import ApiBranch


class DeviceClassSpec(ApiBranch, frozen=True):
    """`resourcev1.DeviceClassSpec`: the extended resource that devices of the class are requested by, if any."""

    extended_resource_name: str | None = None


class DeviceClass(ApiBranch, frozen=True):
    """`resourcev1.DeviceClass`."""

    metadata: MetadataObject
    spec: DeviceClassSpec = DeviceClassSpec()
