"""PrioritySort: pods of higher priority first, then those that have waited longer."""

from typing import Final

from headgate.core.placement.framework.plugin import PluginFactory
from headgate.core.placement.pods import PodInfo

NAME: Final = "PrioritySort"


class PrioritySort:
    """The plugin."""

    name = NAME

    def sort_key(self, pod: PodInfo, queued_ms: int) -> tuple[int, int]:
        """Ascending: the negated priority, then the time."""
        return (-pod.priority, queued_ms)


FACTORY: Final = PluginFactory(NAME, lambda _: PrioritySort())
