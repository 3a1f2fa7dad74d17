"""
What would have to go from a node for a pod to fit there: the definition.

All pods of lower priority leave the node in a hypothesis; if the pod fits then, they come back one by one, the most
important first, as long as it still fits. Source: SelectVictimsOnNode of DefaultPreemption.
"""

from typing import Final

import msgspec

from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.status import SUCCESS, PluginError, PluginStatus, error, unresolvable
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.preemption_budgets import Budgets
from headgate.events.ids import UnixMs

NO_VICTIMS: Final = unresolvable("No preemption victims found for incoming pod")

NOT_STARTED: Final = UnixMs(2**62)
"""The start of pods that have not started: after all others."""


class PreemptionDryRun(msgspec.Struct, frozen=True):
    """
    What preemption on a node comes to.

    `status` is why it is of no use. Otherwise `victims` are the pods that have to go, from the most important to the
    least, and `violations` how many of them have a disruption budget that does not allow it.
    """

    status: PluginStatus = SUCCESS
    victims: tuple[PodInfo, ...] = ()
    violations: int = 0


def importance(pod: PodInfo) -> tuple[int, int, str]:
    """Ascending from the most important pod: by priority, then those that have run longer, then by name."""
    return (-pod.priority, NOT_STARTED if pod.started_ms is None else pod.started_ms, pod.key)


def dry_run(cycle: PlacementCycle, node: NodeInfo) -> PreemptionDryRun:
    """Preemption on one node, simulated with all filters. Where one of them fails, preemption is of no use."""
    try:
        return _simulated(cycle, node)
    except PluginError as failure:
        return PreemptionDryRun(failure.status)


def _simulated(cycle: PlacementCycle, node: NodeInfo) -> PreemptionDryRun:
    lower = [pod for pod in node.pods.values() if pod.priority < cycle.pod.priority]
    if not lower:
        return PreemptionDryRun(NO_VICTIMS)
    hypothesis = _Hypothesis(cycle, node)
    for pod in lower:
        hypothesis.remove(pod)
    status = hypothesis.status()
    if not status.is_success:
        return PreemptionDryRun(status)
    lower.sort(key=importance)
    violating = cycle.cluster.index(Budgets).violating(lower)
    victims: list[PodInfo] = []
    violations = 0
    for is_violating in (True, False):
        for pod, violates in zip(lower, violating, strict=True):
            if violates == is_violating and not hypothesis.spares(pod):
                victims.append(pod)
                violations += violates
    if not victims:
        return PreemptionDryRun(no_victim(node.name))
    return PreemptionDryRun(SUCCESS, tuple(sorted(victims, key=importance)), violations)


def no_victim(node: str) -> PluginStatus:
    """That the pod was rejected, and fits although all pods stay: the filters contradict each other."""
    return error(f'expected at least one victim pod on node "{node}"')


class _Hypothesis:
    """A copy of a node and of what the pre-filters found, from which pods are taken and to which they come back."""

    def __init__(self, cycle: PlacementCycle, node: NodeInfo) -> None:
        self._cycle = cycle.clone()
        self._node = node.clone()

    def status(self) -> PluginStatus:
        """What the filters say now."""
        return self._cycle.framework.filter_with_nominated(self._cycle, self._node)

    def remove(self, pod: PodInfo) -> None:
        """A pod leaves."""
        self._node.remove(pod)
        self._cycle.framework.remove_pod(self._cycle, pod, self._node)

    def spares(self, pod: PodInfo) -> bool:
        """Bring a pod back, if the filters pass with it; whether they do."""
        self._node.add(pod)
        self._cycle.framework.add_pod(self._cycle, pod, self._node)
        if self.status().is_success:
            return True
        self.remove(pod)
        return False
