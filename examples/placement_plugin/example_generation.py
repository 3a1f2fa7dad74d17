"""
A placement plugin from a package of its own: pods that ask for a generation of hardware get it or a newer one.

    [project.entry-points."headgate.placement_plugins"]
    Generation = "example_generation:Generation"
"""

from typing import Any

from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import ActionType, EventHint, EventResource
from headgate.core.placement.framework.plugin import Reads
from headgate.core.placement.framework.status import SUCCESS, PluginStatus, unresolvable
from headgate.core.placement.nodes import NodeInfo

OLD = unresolvable("node(s) were of an older generation")


class Generation:
    """Nodes and pods have the generation in a label; of the nodes that are new enough, the oldest is the best."""

    name = "Generation"
    filter_reads = score_reads = Reads.NODE

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._label = arguments.get("label", "example.com/generation")

    def filter(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """Whether the node is new enough."""
        return SUCCESS if self._of(node) >= int(cycle.pod.labels.get(self._label, 0)) else OLD

    def score(self, cycle: PlacementCycle, node: NodeInfo) -> int:  # noqa: ARG002 - of the node alone
        """The newer a node is, the rather it is kept for pods that ask for it."""
        return max(100 - self._of(node), 0)

    def events(self) -> tuple[EventHint, ...]:
        """A node comes, or its labels change."""
        return (EventHint(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL),)

    def _of(self, node: NodeInfo) -> int:
        return int(node.node.metadata.labels.get(self._label, 0))
