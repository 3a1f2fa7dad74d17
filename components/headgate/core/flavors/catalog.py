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

from headgate.core.config import feature_gates
from headgate.core.flavors.cluster_queue import ClusterQueueFlavors, Flavor, Group
from headgate.core.flavors.placing import Topologies
from headgate.core.flavors.provisioning import provisioning_checks
from headgate.core.quota.activeness import CLUSTER_QUEUE, cluster_queue_active, is_left_alone
from headgate.core.quota.cache import Forest
from headgate.core.quota.holders import Rankings
from headgate.core.quota.structural import Structural
from headgate.core.state.attribution import about
from headgate.core.state.tables import State
from headgate.core.topology.cache import TopologyCache
from headgate.core.topology.demands import Gates
from headgate.core.topology.gates import gates_of
from headgate.core.workload.pod_requests import Limits, limits_of
from headgate.events import facts
from headgate.events.ids import split_key
from headgate.events.objects import ResourceGroup


class Catalog:
    """What follows from the specs of one state. Use it with that state, or with later ones of unchanged specs."""

    __slots__ = ("_limits", "_queues", "_state", "_topologies", "forest", "rankings")

    def __init__(self, state: State) -> None:
        self._state = state
        self._queues: dict[str, ClusterQueueFlavors] = {}
        self._limits: dict[str, Limits] = {}
        self.forest = Forest(state)
        self.rankings = Rankings(state)
        self._topologies: TopologyCache | None = None

    @property
    def _gates(self) -> Gates | None:
        """The gates of placement within a Topology; None when pods are not placed."""
        configuration = self._state.configuration
        on = feature_gates.enabled(configuration, feature_gates.TOPOLOGY_AWARE_SCHEDULING)
        return gates_of(configuration) if on else None

    def topologies(self) -> Topologies | None:
        """
        The topologies of the state, for one cycle; None when no flavor has any.

        The one before is not to be used any more.
        """
        gates = self._gates
        if gates is None or not self._state.topologies:
            return None
        if self._topologies is None:
            self._topologies = TopologyCache(self._state)
        return Topologies(self._topologies.what_if(), gates)

    def note_node(self, event: facts.NodeObserved | facts.NodeDeleted) -> None:
        """A node has changed; the state has folded it."""
        if self._topologies is not None:
            self._topologies.change(event)

    def change(self, event: Structural) -> None:
        """Drop what an event has made out of date; the state has folded it."""
        concerned = self.forest.change(event)
        if self._topologies is not None:
            self._topologies.change(event)
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
        checks = provisioning_checks(state, spec)
        return ClusterQueueFlavors(
            name,
            spec,
            groups,
            node,
            active,
            gates=self._gates,
            provisioned_flavors=checks.provisioned_flavors,
            is_multi_cluster=checks.is_multi_cluster,
        )

    def _group(self, index: int, group: ResourceGroup) -> Group:
        flavors = tuple(self._flavor(quotas.name) for quotas in group.flavors)
        return Group(index, frozenset(group.covered_resources), flavors)

    def _flavor(self, name: str) -> Flavor:
        record = self._state.flavors.get(name)
        spec = record.spec if record is not None else None
        if spec is None or spec.topology_name is None or self._gates is None:
            return Flavor(name, spec, (), is_topology_aware=False)
        topology = self._state.topologies.get(spec.topology_name)
        levels = tuple(level.node_label for level in topology.levels) if topology is not None else ()
        return Flavor(name, spec, levels, is_topology_aware=True)
