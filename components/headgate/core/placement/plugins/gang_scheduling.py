"""
GangScheduling: pods of a PodGroup with a gang policy are placed all or none.

A pod is kept out of the queue until its PodGroup and `minCount` pods of it exist, and it may be bound once so many of
them have a node. The pods of a group are decided together (`headgate.core.placement.group_deciding`). In the API server
groups are an alpha feature: without it pods name none, and this plugin does nothing.

Source: pkg/scheduler/framework/plugins/gangscheduling.
"""

from typing import Final

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import ActionType, EventHint, EventResource, Hint
from headgate.core.placement.framework.plugin import Permitted, PluginFactory
from headgate.core.placement.framework.status import SUCCESS, Code, PluginStatus, error, unresolvable
from headgate.core.placement.groups import group_of, lacks_members
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.groups import PodGroupObject
from headgate.core.placement.pods import PodInfo

NAME: Final = "GangScheduling"

WAIT_MS_MAX: Final = 5 * 60 * 1000
"""For so long a pod with a node waits for the others."""

_SHORT: Final = "waiting for minCount pods from a gang to appear in scheduling queue"
_WAITING: Final = "waiting for minCount pods from a gang to be scheduled"


class GangScheduling:
    """The plugin."""

    name = NAME

    def pre_enqueue(self, cycle: PlacementCycle) -> PluginStatus:
        """Rejected until its group, and enough of its pods, are there."""
        group = group_of(cycle.pod)
        if not group:
            return SUCCESS
        found = cycle.cluster.objects(PodGroupObject).get(group)
        if found is None:
            name = group.partition("/")[2]
            return unresolvable(f'waiting for pods\'s pod group "{name}" to appear in scheduling queue')
        return unresolvable(_SHORT) if lacks_members(cycle.cluster.groups, group, found) else SUCCESS

    def permit(self, cycle: PlacementCycle, node: NodeInfo) -> Permitted:  # noqa: ARG002 - any node
        """Wait until enough pods of the group, with this one, have a node."""
        group = group_of(cycle.pod)
        if not group:
            return Permitted()
        found = cycle.cluster.objects(PodGroupObject).get(group)
        if found is None:
            name = group.partition("/")[2]
            return Permitted(error(f'failed to get podGroup {group}: podgroup.scheduling.k8s.io "{name}" not found'))
        own = cycle.cluster.pods.get(cycle.pod.key)
        others = cycle.cluster.groups.count_placed(group) - bool(own is not None and own.node_name)
        if others + 1 < found.count_min:
            return Permitted(PluginStatus(Code.WAIT, (_WAITING,)), WAIT_MS_MAX)
        return Permitted()

    def events(self) -> tuple[EventHint, ...]:
        """Another pod of the group, or the group itself."""
        return (
            EventHint(EventResource.POD, ActionType.ADD, _after_pod),
            EventHint(EventResource.POD_GROUP, ActionType.ADD, _after_group),
        )


def _after_pod(pod: PodInfo, old: PodInfo | None, new: PodInfo, cluster: PlacementCluster) -> Hint:  # noqa: ARG001 - the form of hints
    return Hint.QUEUE if group_of(pod) and group_of(pod) == group_of(new) else Hint.SKIP


def _after_group(
    pod: PodInfo,
    old: PodGroupObject | None,  # noqa: ARG001 - the form of hints
    new: PodGroupObject,
    cluster: PlacementCluster,  # noqa: ARG001
) -> Hint:
    return Hint.QUEUE if group_of(pod) == new.metadata.key else Hint.SKIP


FACTORY: Final = PluginFactory(NAME, lambda _: GangScheduling())
