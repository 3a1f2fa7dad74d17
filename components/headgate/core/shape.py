"""
Shape: which workloads stand or fall together.

Two pending workloads of one ClusterQueue whose quota evaluation can only end alike have the same shape, so that one
verdict does for all of them (Kueue's scheduling equivalence hashing, KEP-9694). The queue manager gives each workload
its shape when it queues it; the pending queue (`headgate.core.pending`) keeps the workloads of a shape together.

What goes in: effective priority; per pod set its name, count and minCount, topology request, the selectors, affinity
and tolerations of its pods and their containers' effective requests and limits, in amounts, so that `1` and `1000m`
are one; and the LimitRanges of the namespace where it has any, since they decide what is valid there. What a pod
runs, and every name of its own, stays out.

The digest is taken once for each distinct input: a hundred thousand workloads from a few templates cost a hundred
thousand encodings and a few digests.
"""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from headgate.core.amounts import QuantityError, amount
from headgate.core.requests import Limits, Quantities, adjusted, limits_of
from headgate.core.state import State, Workload
from headgate.events.commit import digest
from headgate.events.ids import Shape, split_key
from headgate.events.objects import Container, LimitRangeItem, PodSet, ReclaimablePod, Resources

SHAPES_CACHED_MAX = 8192
"""How many distinct inputs are remembered with their shapes."""


class _Input(msgspec.Struct, frozen=True, kw_only=True):
    """All that a shape follows from, as it stands in the state."""

    priority: int
    pod_sets: tuple[PodSet, ...]
    reclaimable: tuple[ReclaimablePod, ...]
    limits: dict[str, LimitRangeItem]
    runtime_classes: dict[str, dict[str, str | int | float]]


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder: msgspec.json.Decoder[_Input] = msgspec.json.Decoder(_Input)


def priority_of(workload: Workload) -> int:
    """The effective priority of a workload: its spec's, or 0."""
    return workload.spec.priority or 0


def shape_of(workload: Workload, state: State, limits: Limits | None = None) -> Shape:
    """
    The shape of a workload in this state.

    `limits` are the LimitRanges of its namespace (`limits_of`), for callers that keep them; found when not given.
    """
    if limits is None:
        limits = limits_of(state, split_key(workload.key)[0])
    return _shape(
        _encoder.encode(
            _Input(
                priority=priority_of(workload),
                pod_sets=workload.spec.pod_sets,
                reclaimable=workload.reclaimable_pods,
                limits=dict(limits),
                runtime_classes=_runtime_classes(workload, state) if state.runtime_classes else {},
            )
        )
    )


def _runtime_classes(workload: Workload, state: State) -> dict[str, dict[str, str | int | float]]:
    names = {pod_set.template.spec.runtime_class_name for pod_set in workload.spec.pod_sets}
    return {name: state.runtime_classes[name] for name in sorted(filter(None, names)) if name in state.runtime_classes}


@lru_cache(maxsize=SHAPES_CACHED_MAX)
def _shape(encoded: bytes) -> Shape:
    given = _decoder.decode(encoded)
    done = {pods.name: pods.count for pods in given.reclaimable}
    canonical = [
        given.priority,
        [
            _canonical(pod_set, done.get(pod_set.name, 0), given.limits, given.runtime_classes)
            for pod_set in given.pod_sets
        ],
        given.limits,
    ]
    return Shape(digest(_encoder.encode(canonical)))


def _canonical(
    pod_set: PodSet, done: int, limits: Limits, runtime_classes: Mapping[str, Quantities]
) -> dict[str, object]:
    spec = adjusted(pod_set.template.spec, limits, runtime_classes)
    return {
        "name": pod_set.name,
        "count": max(0, pod_set.count - done),
        "minCount": pod_set.min_count,
        "topologyRequest": pod_set.topology_request,
        "nodeSelector": spec.node_selector,
        "affinity": spec.affinity,
        "tolerations": spec.tolerations,
        "overhead": _amounts(spec.overhead),
        "resources": spec.resources and _resources(spec.resources),
        "containers": [_container(container) for container in spec.containers],
        "initContainers": [_container(container) for container in spec.init_containers],
    }


def _container(container: Container) -> dict[str, object]:
    return {"restartPolicy": container.restart_policy, **_resources(container.resources)}


def _resources(resources: Resources) -> dict[str, object]:
    return {"requests": _amounts(resources.requests), "limits": _amounts(resources.limits)}


def _amounts(quantities: Quantities) -> dict[str, int | str]:
    return {resource: _amount(resource, quantity) for resource, quantity in quantities.items()}


def _amount(resource: str, quantity: str | int | float) -> int | str:
    """An amount; the text itself when it is no quantity, so that one bad manifest does not stop the queue."""
    try:
        return amount(resource, quantity)
    except QuantityError:
        return str(quantity)
