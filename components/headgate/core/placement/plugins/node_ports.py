"""NodePorts: the host ports that a pod wants are free on the node."""

from collections.abc import Collection
from typing import Final

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import ActionType, EventHint, EventResource, Hint
from headgate.core.placement.framework.plugin import PluginFactory, PreFiltered, Reads
from headgate.core.placement.framework.status import SKIP, SUCCESS, PluginStatus, unschedulable
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.pods import HostPort, PodInfo, PodShape

NAME: Final = "NodePorts"
_ALL_ADDRESSES: Final = "0.0.0.0"  # noqa: S104 - the address in a pod's spec that stands for all of the node
_REJECTED: Final = unschedulable("node(s) didn't have free ports for the requested pod ports")


class NodePorts:
    """The plugin."""

    name = NAME
    filter_reads = Reads.NODE_AND_PODS

    def filter_key(self, shape: PodShape) -> tuple[HostPort, ...]:
        """The ports."""
        return shape.host_ports

    def pre_filter(self, cycle: PlacementCycle) -> PreFiltered:
        """Skip for pods without host ports."""
        return PreFiltered() if cycle.pod.shape.host_ports else PreFiltered(SKIP)

    def filter(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """Whether none of the ports is occupied."""
        return _REJECTED if _conflict(cycle.pod.shape.host_ports, node.ports) else SUCCESS

    def is_eased(self, cycle: PlacementCycle) -> bool:  # noqa: ARG002 - any pod
        """Pods occupy ports."""
        return True

    def events(self) -> tuple[EventHint, ...]:
        """A pod with one of the ports is gone, or a node is added."""
        return (
            EventHint(EventResource.POD, ActionType.DELETE, _after_pod_deleted, key=self.filter_key),
            EventHint(EventResource.NODE, ActionType.ADD),
        )


def _conflict(wanted: tuple[HostPort, ...], occupied: Collection[HostPort]) -> bool:
    """Whether a port is occupied: at the same address, or at all of them."""
    for address, protocol, port in wanted:
        if address == _ALL_ADDRESSES:
            if any(each[1:] == (protocol, port) for each in occupied):
                return True
        elif (address, protocol, port) in occupied or (_ALL_ADDRESSES, protocol, port) in occupied:
            return True
    return False


def _after_pod_deleted(pod: PodInfo, old: PodInfo, new: PodInfo | None, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    if not old.node_name and not old.nominated_node_name:
        return Hint.SKIP
    return Hint.QUEUE if _conflict(pod.shape.host_ports, old.shape.host_ports) else Hint.SKIP


FACTORY: Final = PluginFactory(NAME, lambda _: NodePorts())
