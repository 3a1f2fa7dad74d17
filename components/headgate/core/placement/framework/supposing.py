"""
Filters that tell what their answer depends on well enough for others to compute it.

Preemption supposes nodes without some of their pods, many times for each pod; with these it need not run the filters.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from headgate.core.placement.framework.plugin import FilterPlugin
from headgate.core.placement.framework.status import PluginStatus

if TYPE_CHECKING:
    from headgate.core.placement.framework.cycle import PlacementCycle


@runtime_checkable
class AmountsFilter(FilterPlugin, Protocol):
    """
    A filter that asks for free amounts alone.

    Whoever supposes other pods on nodes can compute what it would answer, for many nodes at once.
    """

    def amounts(self, cycle: "PlacementCycle") -> Mapping[str, int] | None:
        """What has to be free of each resource, one of `pods` among them; None if the answer depends on more."""
        ...

    def lacking(self, resources: Iterable[str], *, is_final: bool) -> PluginStatus:
        """The rejection for want of some resources. `is_final`: of one of them, even the empty node has too little."""
        ...


@runtime_checkable
class EasedFilter(FilterPlugin, Protocol):
    """
    A filter that pods hinder and do not help.

    Where it passes with all pods of a node, it passes with fewer of them too, so preemption need not ask it again.
    """

    def is_eased(self, cycle: "PlacementCycle") -> bool:
        """Whether that holds for the pod of the cycle."""
        ...
