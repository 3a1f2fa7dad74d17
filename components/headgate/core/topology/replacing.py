"""
Replacing a node: where the pods of an unhealthy node may go.

All other pods of the workload stay, so the new domain has to be where the request still holds: in the required domain,
or where the slices are that have lost pods. Follows Kueue's findReplacementAssignment.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from headgate.core.topology.assignments import Domain, Placement
from headgate.core.topology.demands import PodSetDemand
from headgate.core.topology.levels import is_sliced, layers_of, requested_level, slice_level
from headgate.core.topology.shaping import slice_size
from headgate.core.topology.tree import FlavorTopology
from headgate.events.objects import SliceConstraint


class Confined(NamedTuple):
    """The pods to place, and the level and slot of the domain that they have to be in; None if any will do."""

    demand: PodSetDemand
    within: tuple[int, int] | None


def left_behind(placement: Placement, node: str) -> tuple[Placement, int]:
    """A placement without a node, and the number of pods that were there."""
    kept = tuple(domain for domain in placement.domains if domain.values[-1] != node)
    return Placement(placement.levels, kept), placement.pods - sum(domain.pods for domain in kept)


def stale_domain(tree: FlavorTopology, placement: Placement) -> str | None:
    """The first value of a domain that the tree does not have any more; None when it has all."""
    return next((domain.values[0] for domain in placement.domains if tree.leaf(domain.values) is None), None)


def confined(tree: FlavorTopology, demand: PodSetDemand, kept: Placement) -> Confined:
    """
    The lost pods as a demand, `demand.count` of them. Raises RefusedError.

    Where slices are incomplete, only what makes them whole again is asked for: the largest slices that the number of
    lost pods consists of.
    """
    size = slice_size(demand.topology)
    if not is_sliced(demand.topology) or demand.count % size == 0:
        return Confined(demand, _required(tree, demand, kept))
    within = _incomplete(tree, demand, kept, size)
    if within is None or demand.topology is None:
        return Confined(demand, within)
    layers = layers_of(demand.topology)
    whole = next((layer for layer in reversed(layers) if demand.count % layer.size == 0), None)
    topology = replace(
        demand.topology,
        podset_slice_required_topology_constraints=(),
        pod_set_slice_required_topology=whole.topology if whole is not None else None,
        pod_set_slice_size=whole.size if whole is not None else 1,
    )
    return Confined(replace(demand, topology=topology), within)


def _level(tree: FlavorTopology, demand: PodSetDemand) -> int | None:
    name = requested_level(demand.topology, tree.levels, implied=demand.implied)
    return tree.levels.index(name) if name in tree.levels else None


def _required(tree: FlavorTopology, demand: PodSetDemand, kept: Placement) -> tuple[int, int] | None:
    """The domain of the required level that the other pods are in."""
    level = _level(tree, demand)
    if level is None or not kept.domains or demand.topology is None or demand.topology.required is None:
        return None
    leaf = tree.leaf(kept.domains[0].values)
    return None if leaf is None else (level, tree.ancestor(leaf, level))


def _incomplete(tree: FlavorTopology, demand: PodSetDemand, kept: Placement, size: int) -> tuple[int, int] | None:
    """The domain that has an incomplete slice: of the innermost layer that lacks pods."""
    if _level(tree, demand) is None or not kept.domains:
        return None
    layers = layers_of(demand.topology)
    outermost = SliceConstraint(topology=slice_level(demand.topology, tree.levels), size=size)
    broken = [layer for layer in layers if demand.count % layer.size] if len(layers) > 1 else []
    layer = broken[-1] if broken else outermost
    if layer.topology not in tree.levels:
        return None
    level = tree.levels.index(layer.topology)
    pods: dict[int, int] = {}
    for domain in kept.domains:
        leaf = tree.leaf(domain.values)
        if leaf is not None:
            slot = tree.ancestor(leaf, level)
            pods[slot] = pods.get(slot, 0) + domain.pods
    values = tree.by_level[level].values
    whole = [slot for slot, count in pods.items() if (count + demand.count) % layer.size == 0]
    return (level, min(whole, key=lambda slot: values[slot])) if whole else None


def merged(tree: FlavorTopology, placements: Sequence[Placement]) -> Placement:
    """Placements of one pod set as one, ordered by the values of all levels."""
    pods: dict[int, int] = {}
    for placement in placements:
        for domain in placement.domains:
            leaf = tree.leaf(domain.values)
            assert leaf is not None, f"{domain.values} is not in the topology of {tree.name}"
            pods[leaf] = pods.get(leaf, 0) + domain.pods
    values = tree.leaves.values
    leaves = sorted(pods, key=lambda leaf: values[leaf])
    return Placement(placements[0].levels, tuple(Domain(tree.known_as(leaf), pods[leaf]) for leaf in leaves))
