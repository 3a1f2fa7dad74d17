"""NodeUnschedulable: cordoned nodes (`spec.unschedulable`) are for pods that tolerate the taint of that name."""

from typing import Final

import numpy as np

from headgate.core.kubernetes.selectors import tolerates
from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.columns import Columns
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import ActionType, EventHint, EventResource, Hint
from headgate.core.placement.framework.plugin import PluginFactory, Reads
from headgate.core.placement.framework.status import SUCCESS, PluginStatus, unresolvable
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.objects.pods import PodSpecObject
from headgate.core.placement.pods import PodInfo, PodShape
from headgate.events.objects import Taint

NAME: Final = "NodeUnschedulable"
_TAINT: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_REJECTED: Final = unresolvable("node(s) were unschedulable")


class NodeUnschedulable:
    """The plugin."""

    name = NAME
    filter_reads = Reads.NODE

    def filter_key(self, shape: PodShape) -> bool:
        """Whether the pod may go to cordoned nodes."""
        return _tolerates_it(shape.spec)

    def filter(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """Whether the node is open to the pod."""
        return _REJECTED if node.node.spec.unschedulable and not _tolerates_it(cycle.pod.spec) else SUCCESS

    def filter_columns(self, cycle: PlacementCycle, columns: Columns, rows: Rows) -> Ints:
        """The same for many nodes."""
        if _tolerates_it(cycle.pod.spec):
            return np.zeros(len(rows), dtype=np.int64)
        return columns.unschedulable[rows] * np.int64(cycle.statuses.id_of(_REJECTED))

    def events(self) -> tuple[EventHint, ...]:
        """A node is opened or added, or the pod tolerates more."""
        return (
            EventHint(
                EventResource.NODE,
                ActionType.ADD | ActionType.UPDATE_NODE_TAINT,
                _after_node_change,
                key=lambda _: None,
            ),
            EventHint(EventResource.POD, ActionType.UPDATE_POD_TOLERATION, _after_toleration_change),
        )


def _tolerates_it(spec: PodSpecObject) -> bool:
    return any(tolerates(toleration, _TAINT) for toleration in spec.tolerations)


def _after_node_change(pod: PodInfo, old: NodeObject | None, new: NodeObject, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    was_closed = old is None or old.spec.unschedulable
    return Hint.QUEUE if was_closed and not new.spec.unschedulable else Hint.SKIP


def _after_toleration_change(pod: PodInfo, old: PodInfo | None, new: PodInfo, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    return Hint.QUEUE if pod.uid == new.uid and _tolerates_it(new.spec) else Hint.SKIP


FACTORY: Final = PluginFactory(NAME, lambda _: NodeUnschedulable())
