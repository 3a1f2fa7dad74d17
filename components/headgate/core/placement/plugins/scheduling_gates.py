"""SchedulingGates: a pod with gates (`spec.schedulingGates`) does not enter the queue."""

from typing import Final

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import ActionType, EventHint, EventResource, Hint
from headgate.core.placement.framework.plugin import PluginFactory
from headgate.core.placement.framework.status import SUCCESS, PluginStatus, unresolvable
from headgate.core.placement.pods import PodInfo

NAME: Final = "SchedulingGates"


class SchedulingGates:
    """The plugin."""

    name = NAME

    def pre_enqueue(self, cycle: PlacementCycle) -> PluginStatus:
        """Rejected while there are gates."""
        gates = [gate.name for gate in cycle.pod.spec.scheduling_gates]
        return unresolvable(f"waiting for scheduling gates: [{' '.join(gates)}]") if gates else SUCCESS

    def events(self) -> tuple[EventHint, ...]:
        """The last gate of the pod itself is gone."""
        return (EventHint(EventResource.POD, ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, _after_gates),)


def _after_gates(pod: PodInfo, old: PodInfo | None, new: PodInfo, cluster: PlacementCluster) -> Hint:  # noqa: ARG001 - the form of hints
    return Hint.QUEUE if new.uid == pod.uid else Hint.SKIP


FACTORY: Final = PluginFactory(NAME, lambda _: SchedulingGates())
