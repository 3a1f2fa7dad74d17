"""DefaultBinder: the pod is bound by a Binding, which the binder writes."""

from typing import Final

from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.plugin import PluginFactory
from headgate.core.placement.framework.status import SUCCESS, PluginStatus
from headgate.core.placement.nodes import NodeInfo

NAME: Final = "DefaultBinder"


class DefaultBinder:
    """The plugin."""

    name = NAME

    def bind(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:  # noqa: ARG002 - any pod, any node
        """Let the binder do it."""
        return SUCCESS


FACTORY: Final = PluginFactory(NAME, lambda _: DefaultBinder())
