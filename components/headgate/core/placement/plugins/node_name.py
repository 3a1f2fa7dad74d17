"""
NodeName: a pod that names its node (`spec.nodeName`) goes there.

Such a pod is bound already and does not wait for a placement, so the filter passes whatever waits.
"""

from typing import Final

import numpy as np

from headgate.core.placement.columns import Columns
from headgate.core.placement.framework.cycle import Cycle
from headgate.core.placement.framework.events import Action, EventHint, Resource
from headgate.core.placement.framework.plugin import Ints, PluginFactory, Reads, Rows
from headgate.core.placement.framework.status import SUCCESS, Status
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.pods import Shape

NAME: Final = "NodeName"


class NodeName:
    """The plugin."""

    name = NAME
    filter_reads = Reads.NODE

    def filter_key(self, shape: Shape) -> None:
        """The same for all pods."""

    def filter(self, cycle: Cycle, node: NodeInfo) -> Status:  # noqa: ARG002 - all pods and nodes are alike
        """Pass."""
        return SUCCESS

    def filter_columns(self, cycle: Cycle, columns: Columns, rows: Rows) -> Ints:  # noqa: ARG002 - as above
        """Pass."""
        return np.zeros(len(rows), dtype=np.int64)

    def events(self) -> tuple[EventHint, ...]:
        """A node is added."""
        return (EventHint(Resource.NODE, Action.ADD),)


FACTORY: Final = PluginFactory(NAME, lambda _: NodeName())
