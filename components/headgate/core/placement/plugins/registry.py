"""
All plugins by name: those of the kube-scheduler.

Plugins of other packages are added by whoever starts placement (entry points `headgate.placement_plugins`).
"""

from collections.abc import Mapping
from typing import Final

from headgate.core.placement.framework.plugin import PluginFactory
from headgate.core.placement.plugins import (
    default_binder,
    default_preemption,
    dynamic_resources,
    gang_scheduling,
    image_locality,
    inter_pod_affinity,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resources_balanced_allocation,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    priority_sort,
    scheduling_gates,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)

REGISTRY: Final[Mapping[str, PluginFactory]] = {
    factory.name: factory
    for factory in (
        scheduling_gates.FACTORY,
        priority_sort.FACTORY,
        node_unschedulable.FACTORY,
        node_name.FACTORY,
        taint_toleration.FACTORY,
        node_affinity.FACTORY,
        node_ports.FACTORY,
        node_resources_fit.FACTORY,
        node_resources_balanced_allocation.FACTORY,
        image_locality.FACTORY,
        inter_pod_affinity.FACTORY,
        pod_topology_spread.FACTORY,
        default_binder.FACTORY,
        default_preemption.FACTORY,
        dynamic_resources.FACTORY,
        node_volume_limits.FACTORY,
        volume_binding.FACTORY,
        volume_restrictions.FACTORY,
        volume_zone.FACTORY,
        node_declared_features.FACTORY,
        gang_scheduling.FACTORY,
    )
}
