"""Extended resources that device classes provide, on nodes that do not have them themselves."""

from typing import Final

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.objects.devices import DeviceClass
from headgate.core.placement.requests import Amounts

_PREFIX: Final = "deviceclass.resource.kubernetes.io/"


def delegated(cluster: PlacementCluster, requests: Amounts) -> tuple[str, ...]:
    """The resources of some requests that device classes provide (shouldDelegateResourceToDRA)."""
    classes = cluster.objects(DeviceClass).values()
    if not classes:
        return ()
    provided = [name for each in classes for name in provided_names(each)]
    return tuple(resource for resource in requests if resource in provided)


def provided_names(device_class: DeviceClass) -> tuple[str | None, str]:
    """The names of the resource that a class provides: its own, and the one that every class has."""
    return device_class.spec.extended_resource_name, f"{_PREFIX}{device_class.metadata.name}"
