"""
The levels of a topology that a request names, and the nodes that have them.

Called by flavor assignment, to choose flavors whose topology has the levels of a pod set, by placement and by the fold.
Follows Kueue's HasLevel, levelKey and sliceLevelKeyWithDefault.
"""

from collections.abc import Iterable, Mapping, Sequence

from headgate.events.objects import Node, SliceConstraint, TopologyRequest


def carries_labels(node: Node, node_labels: Mapping[str, str], levels: Iterable[str]) -> bool:
    """Whether a node carries all labels of a flavor, and a label of each level of its topology."""
    labels = node.labels
    return all(labels.get(key) == value for key, value in node_labels.items()) and all(
        level in labels for level in levels
    )


def is_sliced_only(request: TopologyRequest | None) -> bool:
    """Whether a request has slices, and neither a required nor a preferred level."""
    if request is None or request.required is not None or request.preferred is not None:
        return False
    return request.pod_set_slice_required_topology is not None or bool(
        request.podset_slice_required_topology_constraints
    )


def is_sliced(request: TopologyRequest | None) -> bool:
    """Whether a request has slices whose size is known."""
    if request is None:
        return False
    if request.podset_slice_required_topology_constraints:
        return True
    return request.pod_set_slice_required_topology is not None and request.pod_set_slice_size is not None


def is_unconstrained(request: TopologyRequest | None, *, implied: bool) -> bool:
    """Whether the pods may go anywhere, apart from their slices."""
    return implied or is_sliced_only(request) or (request is not None and request.unconstrained is True)


def requested_level(request: TopologyRequest | None, levels: Sequence[str], *, implied: bool = False) -> str | None:
    """The level at which a pod set has to be together. None when nothing is requested; it may not be in `levels`."""
    if request is not None:
        if request.required is not None:
            return request.required
        if request.preferred is not None:
            return request.preferred
        if is_sliced_only(request):
            return levels[0]
        if request.unconstrained:
            return levels[-1]
    return levels[-1] if implied else None


def slice_level(request: TopologyRequest | None, levels: Sequence[str]) -> str:
    """The level of the outermost slices; the lowest one without slices. It may not be in `levels`."""
    if request is not None:
        if request.pod_set_slice_required_topology is not None:
            return request.pod_set_slice_required_topology
        if request.podset_slice_required_topology_constraints:
            return request.podset_slice_required_topology_constraints[0].topology
    return levels[-1]


def layers_of(request: TopologyRequest | None) -> tuple[SliceConstraint, ...]:
    """The layers of slices, outermost first, as far as the request has them as a list."""
    return () if request is None else request.podset_slice_required_topology_constraints


def has_levels(request: TopologyRequest | None, levels: Sequence[str], *, multi_layer: bool) -> bool:
    """Whether a topology has every level that a request names. False for a request that names none."""
    level = requested_level(request, levels) if levels else None
    if level is None or level not in levels or slice_level(request, levels) not in levels:
        return False
    return not multi_layer or all(layer.topology in levels for layer in layers_of(request))
