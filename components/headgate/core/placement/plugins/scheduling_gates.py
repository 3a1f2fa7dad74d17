"""SchedulingGates: a pod with gates (`spec.schedulingGates`) does not enter the queue."""

from typing import Final

from headgate.core.placement.cluster import Cluster
from headgate.core.placement.framework.cycle import Cycle
from headgate.core.placement.framework.events import Action, EventHint, Hint, Resource
from headgate.core.placement.framework.plugin import PluginFactory
from headgate.core.placement.framework.status import SUCCESS, Status, unresolvable
from headgate.core.placement.pods import Pod

NAME: Final = "SchedulingGates"


class SchedulingGates:
    """The plugin."""

    name = NAME

    def pre_enqueue(self, cycle: Cycle) -> Status:
        """Rejected while there are gates."""
        gates = [gate.name for gate in cycle.pod.spec.scheduling_gates]
        return unresolvable(f"waiting for scheduling gates: [{' '.join(gates)}]") if gates else SUCCESS

    def events(self) -> tuple[EventHint, ...]:
        """The last gate of the pod itself is gone."""
        return (EventHint(Resource.POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, _after_gates),)


def _after_gates(pod: Pod, old: Pod | None, new: Pod, cluster: Cluster) -> Hint:  # noqa: ARG001 - the form of hints
    return Hint.QUEUE if new.uid == pod.uid else Hint.SKIP


FACTORY: Final = PluginFactory(NAME, lambda _: SchedulingGates())
