"""
NodeName: a pod that names its node (`spec.nodeName`) goes there.

Such a pod is bound already and does not wait for a placement, so the filter passes whatever waits.
"""

from typing import Final

import numpy as np

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.columns import Columns
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import ActionType, EventHint, EventResource
from headgate.core.placement.framework.plugin import PluginFactory, Reads
from headgate.core.placement.framework.status import SUCCESS, PluginStatus
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.pods import PodShape

NAME: Final = "NodeName"


class NodeName:
    """The plugin."""

    name = NAME
    filter_reads = Reads.NODE

    def filter_key(self, shape: PodShape) -> None:
        """The same for all pods."""

    def filter(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:  # noqa: ARG002 - all pods and nodes are alike
        """Pass."""
        return SUCCESS

    def filter_columns(self, cycle: PlacementCycle, columns: Columns, rows: Rows) -> Ints:  # noqa: ARG002 - as above
        """Pass."""
        return np.zeros(len(rows), dtype=np.int64)

    def events(self) -> tuple[EventHint, ...]:
        """A node is added."""
        return (EventHint(EventResource.NODE, ActionType.ADD),)


FACTORY: Final = PluginFactory(NAME, lambda _: NodeName())
