"""
The catalog: what follows from specs alone, computed once and cached until a spec changes.

Cycles need the same data of the same ClusterQueues thousands of times a minute: which resource group covers cpu, which
taints a flavor has, whether the queue is active, which ClusterQueues share quota. None of it depends on workloads. The
scheduler's machine keeps one catalog and passes it the structural events (`Catalog.change`), so that it drops
exactly what they have made out of date; a catalog computes on demand. Deciding with a cached catalog or with a new one
gives the same events.
"""

from collections.abc import Mapping
from typing import assert_never

from headgate.core.flavors.cluster_queue import ClusterQueueFlavors, Flavor, Group
from headgate.core.quota.activeness import CLUSTER_QUEUE, cluster_queue_active, is_left_alone
from headgate.core.quota.cache import Forest
from headgate.core.quota.holders import Rankings
from headgate.core.quota.structural import Structural
from headgate.core.state.attribution import about
from headgate.core.state.tables import State
from headgate.core.workload.pod_requests import Limits, limits_of
from headgate.events import facts
from headgate.events.ids import split_key
from headgate.events.objects import ResourceGroup


class Catalog:
    """What follows from the specs of one state. Use it with that state, or with later ones of unchanged specs."""

    __slots__ = ("_limits", "_queues", "_state", "forest", "rankings")

    def __init__(self, state: State) -> None:
        self._state = state
        self._queues: dict[str, ClusterQueueFlavors] = {}
        self._limits: dict[str, Limits] = {}
        self.forest = Forest(state)
        self.rankings = Rankings(state)

    def change(self, event: Structural) -> None:
        """Drop what an event has made out of date; the state has folded it."""
        concerned = self.forest.change(event)
        match event:
            case (
                facts.ClusterQueueObserved()
                | facts.ClusterQueueDeleted()
                | facts.CohortObserved()
                | facts.CohortDeleted()
            ):
                for name in concerned:
                    self._queues.pop(name, None)
                    self.rankings.forget(name)
            case facts.LimitRangeObserved() | facts.LimitRangeDeleted():
                self._limits.pop(split_key(event.limit_range)[0], None)
            case facts.ConfigurationObserved():
                self._queues, self.rankings = {}, Rankings(self._state)
            case (
                facts.ResourceFlavorObserved()
                | facts.ResourceFlavorDeleted()
                | facts.TopologyObserved()
                | facts.TopologyDeleted()
                | facts.AdmissionCheckObserved()
                | facts.AdmissionCheckDeleted()
            ):
                self._queues = {}
                self.rankings.forget_all()
            case _:
                assert_never(event)

    def queue(self, name: str) -> ClusterQueueFlavors | None:
        """A ClusterQueue; None when there is none of this name, or it is in quarantine."""
        queue = self._queues.get(name)
        if queue is None and name in self._state.cluster_queues and not is_left_alone(self._state, CLUSTER_QUEUE, name):
            with about(CLUSTER_QUEUE, name):
                queue = self._queues[name] = self._work_out(name)
        return queue

    def limits(self, namespace: str) -> Limits:
        """The LimitRanges of a namespace."""
        limits = self._limits.get(namespace)
        if limits is None:
            limits = self._limits[namespace] = limits_of(self._state, namespace)
        return limits

    def runtime_classes(self) -> Mapping[str, Mapping[str, str | int | float]]:
        """Pod overhead by RuntimeClass."""
        return self._state.runtime_classes

    def _work_out(self, name: str) -> ClusterQueueFlavors:
        state = self._state
        spec = state.cluster_queues[name].spec
        active = cluster_queue_active(state, name)
        groups = tuple(self._group(index, group) for index, group in enumerate(spec.resource_groups))
        has_tree = active.active or not self.forest.has_cycle(state.index.trees[name])
        node = self.forest.tree_of(name).cluster_queues[name] if has_tree else None
        return ClusterQueueFlavors(name, spec, groups, node, active)

    def _group(self, index: int, group: ResourceGroup) -> Group:
        flavors = tuple(self._flavor(quotas.name) for quotas in group.flavors)
        return Group(index, frozenset(group.covered_resources), flavors)

    def _flavor(self, name: str) -> Flavor:
        record = self._state.flavors.get(name)
        spec = record.spec if record is not None else None
        topology = None
        if spec is not None and spec.topology_name is not None:
            topology = self._state.topologies.get(spec.topology_name)
        levels = frozenset(level.node_label for level in topology.levels) if topology is not None else frozenset()
        return Flavor(name, spec, levels)
