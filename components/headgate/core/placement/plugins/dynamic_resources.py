"""
DynamicResources: pods with resource claims (`spec.resourceClaims`) are refused, with the reason.

Devices are not allocated here, so a pod that needs a claim would start without it. All other pods pass. The answer of
the post-filter for them is the kube-scheduler's, and part of the message of a pod that fits nowhere.
"""

from typing import Final

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import ActionType, EventHint, EventResource, Hint
from headgate.core.placement.framework.plugin import (
    NodeStatuses,
    PluginFactory,
    PostFiltered,
    PreBound,
    PreFiltered,
    Reads,
    Reserved,
)
from headgate.core.placement.framework.status import SKIP, SUCCESS, PluginStatus, error, unresolvable, unschedulable
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.pods import PodInfo

NAME: Final = "DynamicResources"

_REFUSED: Final = unresolvable(
    "pod has resource claims, which this scheduler does not allocate: remove spec.resourceClaims, "
    "or name another scheduler in spec.schedulerName"
)


class DynamicResources:
    """The plugin."""

    name = NAME
    filter_reads = Reads.NODE
    score_reads = Reads.NODE

    def pre_enqueue(self, cycle: PlacementCycle) -> PluginStatus:  # noqa: ARG002 - any pod
        """Never holds a pod back: what is wrong with it is said by the attempt."""
        return SUCCESS

    def pre_filter(self, cycle: PlacementCycle) -> PreFiltered:
        """Skip for pods without claims."""
        return PreFiltered(_REFUSED if cycle.pod.spec.resource_claims else SKIP)

    def filter(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:  # noqa: ARG002 - it is skipped
        """Any node."""
        return SUCCESS

    def post_filter(self, cycle: PlacementCycle, statuses: NodeStatuses) -> PostFiltered:  # noqa: ARG002
        """Nothing to give back. An error, where the pod was rejected before this plugin was asked about it."""
        if NAME not in cycle.skipped_filters and NAME not in cycle.filter_states:
            return PostFiltered(error("not found"))
        return PostFiltered(unschedulable("no new claims to deallocate"))

    def score(self, cycle: PlacementCycle, node: NodeInfo) -> int:  # noqa: ARG002 - no claims, no difference
        """Nodes are alike."""
        return 0

    def reserve(self, cycle: PlacementCycle, node: NodeInfo) -> Reserved:  # noqa: ARG002
        """Nothing to set aside."""
        return Reserved()

    def pre_bind(self, cycle: PlacementCycle, node: NodeInfo) -> PreBound:  # noqa: ARG002
        """Nothing to write."""
        return PreBound()

    def events(self) -> tuple[EventHint, ...]:
        """What may change for a pod with claims: it, its claims, and devices."""
        return (
            EventHint(
                EventResource.NODE,
                ActionType.ADD | ActionType.UPDATE_NODE_LABEL | ActionType.UPDATE_NODE_ALLOCATABLE,
                _never,
            ),
            EventHint(EventResource.POD, ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM, _never),
        )


def _never(pod: PodInfo, old: object, new: object, cluster: PlacementCluster) -> Hint:  # noqa: ARG001 - the form of hints
    return Hint.SKIP


FACTORY: Final = PluginFactory(NAME, lambda _: DynamicResources())
