"""
A demand as placement computes with it: levels by number, sizes of slices, requirements on nodes.

Its refusals are Kueue's messages for requests that the topology of a flavor cannot serve.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headgate.core.topology.counts import Requests, Shape
from headgate.core.topology.demands import PODS, Gates, PodSetDemand
from headgate.core.topology.filters import Fitness, fitness_of
from headgate.core.topology.levels import is_unconstrained, layers_of, requested_level, slice_level
from headgate.core.topology.tree import FlavorTopology
from headgate.events.objects import Affinity, NodeAffinity, PodSpec, SliceConstraint, TopologyRequest


class RefusedError(Exception):
    """Raised when a pod set cannot be placed; the message is Kueue's."""


class Gang(NamedTuple):
    """
    What has to be placed in one tree: the pods of a pod set, and a leader pod beside them.

    `least_free` prefers the domains with the least free capacity, otherwise the fullest that are enough.
    """

    shape: Shape
    fitness: Fitness
    pods: int
    level: int
    required: bool
    unconstrained: bool
    least_free: bool
    leaders: int
    layers: tuple[SliceConstraint, ...]
    gates: Gates

    @property
    def slices(self) -> int:
        """The number of slices, single pods where there are none."""
        return self.pods // self.shape.slice_size


def gang_of(
    tree: FlavorTopology, workers: PodSetDemand, leader: PodSetDemand | None, gates: Gates, *, empty: bool
) -> Gang:
    """What has to be placed for a pod set and its leader. Raises RefusedError."""
    request = workers.topology
    fitness = _fitness(tree, workers, gates)
    size = slice_size(request)
    name = requested_level(request, tree.levels, implied=workers.implied)
    if name is None:
        raise RefusedError("topology level not specified")
    if name not in tree.levels:
        raise RefusedError(f"no requested topology level: {name}")
    sliced = slice_level(request, tree.levels)
    if sliced not in tree.levels:
        raise RefusedError(f"no requested topology level for slices: {sliced}")
    level, at = tree.levels.index(name), tree.levels.index(sliced)
    if level > at:
        raise RefusedError(f"podset slice topology {sliced} is above the podset topology {name}")
    layers = layers_of(request) if gates.multi_layer else ()
    inner = _inner_sizes(tree.levels, layers, size, at)
    unconstrained = is_unconstrained(request, implied=workers.implied)
    leading = _of_one_pod(leader) if leader is not None else None
    shape = Shape(_of_one_pod(workers), leading, size, at, inner, fitness.key, empty)
    return Gang(
        shape=shape,
        fitness=fitness,
        pods=workers.count,
        level=level,
        required=request is not None and request.required is not None,
        unconstrained=unconstrained,
        least_free=unconstrained and gates.profile_mixed,
        leaders=int(leader is not None),
        layers=layers if any(inner) else (),
        gates=gates,
    )


def slice_size(request: TopologyRequest | None) -> int:
    """The size of the outermost slices; 1 without slices. Raises RefusedError when it is missing."""
    if request is None:
        return 1
    layers = layers_of(request)
    if layers:
        size = layers[0].size
    elif request.pod_set_slice_required_topology is None:
        return 1
    else:
        size = request.pod_set_slice_size or 0
    if size <= 0:
        raise RefusedError("slice topology requested, but slice size not provided")
    return size


def _of_one_pod(demand: PodSetDemand) -> Requests:
    requests = dict(demand.requests)
    requests[PODS] = requests.get(PODS, 0) + 1
    return tuple(sorted(requests.items()))


def _inner_sizes(levels: Sequence[str], layers: Sequence[SliceConstraint], size: int, level: int) -> tuple[int, ...]:
    """By level, the size of the slices within the outermost ones; 0 where there are none."""
    inner = [0] * len(levels)
    for layer in layers[1:]:
        if layer.topology not in levels:
            raise RefusedError(f"no requested topology level for additional slice layer: {layer.topology}")
        at = levels.index(layer.topology)
        if at <= level:
            why = f"must be at a lower level than {levels[level]}"
            raise RefusedError(f"additional slice layer topology {layer.topology} {why}")
        if layer.size <= 0 or size % layer.size:
            why = f"must evenly divide parent layer size {size}"
            raise RefusedError(f"additional slice layer size {layer.size} {why}")
        # Levels in between distribute in multiples of the smaller size, too.
        inner[level + 1 : at + 1] = [layer.size] * (at - level)
        size, level = layer.size, at
    return tuple(inner)


def _fitness(tree: FlavorTopology, demand: PodSetDemand, gates: Gates) -> Fitness:
    """The requirements of a pod set on nodes, with what admission checks and the flavor add."""
    if not tree.by_host:
        return Fitness()
    spec = demand.spec
    selector, tolerations = dict(spec.node_selector), list(spec.tolerations)
    for update in demand.updates:
        for key, value in sorted(update.node_selector.items()):
            if selector.setdefault(key, value) != value:
                raise RefusedError(
                    f"invalid podSetUpdate for PodSet {demand.name}, error: invalid admission check PodSetUpdate: "
                    f"conflict for nodeSelector: conflict for key={key}, value1={selector[key]}, value2={value}"
                )
        tolerations.extend(update.tolerations)
    tolerations.extend(tree.tolerations)
    affinity, preferred = spec.affinity, False
    if affinity is not None and affinity.node_affinity is not None:
        terms = affinity.node_affinity.preferred_during_scheduling_ignored_during_execution
        preferred = gates.preferred_affinity and bool(terms)
        if terms and not preferred:
            required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
            affinity = Affinity(
                node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required)
            )
    unique = tuple(dict.fromkeys(tolerations))
    only = PodSpec(node_selector=selector, affinity=affinity, tolerations=unique)
    return fitness_of(only, by_preference=preferred)
