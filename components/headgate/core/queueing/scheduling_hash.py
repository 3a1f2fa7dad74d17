"""
Shape: which workloads get the same verdict.

Two pending workloads of one ClusterQueue whose quota evaluation must have the same result have the same shape, so that
one verdict covers all of them (Kueue's scheduling equivalence hashing, KEP-9694). The queue manager assigns each
workload its shape when it queues it; the pending queue (`headgate.core.state.pending_queue`) groups the workloads of a
shape.

The input is what Kueue hashes (`hash_of`): effective priority; per pod set its name, count and minCount, topology
request, its quota requests, and of its pods the selectors, affinity, tolerations, RuntimeClass, priority, overhead and
the requests of each container after LimitRanges; under ConcurrentAdmission the annotation of allowed flavors.
Quantities count by amount, so `1` and `1000m` are equal. What a pod runs, its limits, and all its own names are
excluded. A shape also includes whether the workload is valid in its namespace: an invalid one never shares a shape with
a valid one, and gets another shape as soon as a LimitRange makes it valid. With the gate SchedulingEquivalenceHashing
off every workload has its own shape.

The digest is computed once for each distinct input: a hundred thousand workloads from a few templates cost a hundred
thousand encodings and a few digests.
"""

from functools import lru_cache

import msgspec

from headgate.core.config import feature_gates
from headgate.core.flavors import allowed_flavors
from headgate.core.kubernetes.quantities import QuantityError
from headgate.core.state.tables import State, Workload
from headgate.core.workload.ordering import priority_of
from headgate.core.workload.pod_requests import Limits, PodSetRequests, limits_of, pod_set_requests, why_invalid
from headgate.events.commit import digest
from headgate.events.ids import Shape, split_key

SHAPES_CACHED_MAX = 8192
"""How many distinct inputs are cached with their shapes."""


def shape_of(workload: Workload, state: State, limits: Limits | None = None) -> Shape:
    """
    The shape of a workload in this state.

    `limits` are the LimitRanges of its namespace (`limits_of`), for callers that cache them; looked up when not given.
    """
    if not feature_gates.enabled(state.configuration, feature_gates.SCHEDULING_EQUIVALENCE_HASHING):
        return _alone(workload)
    try:
        requests = _requests(workload, state, limits)
    except QuantityError:
        # The manifest was not validated; that must not stop the queue.
        return _alone(workload)
    return _hash(workload, requests, state, why_invalid(requests))


def hash_of(workload: Workload, state: State, limits: Limits | None = None) -> Shape:
    """Kueue's scheduling hash of a workload: as `shape_of`, but regardless of validity. Raises QuantityError."""
    return _hash(workload, _requests(workload, state, limits), state, "")


def _requests(workload: Workload, state: State, limits: Limits | None) -> tuple[PodSetRequests, ...]:
    if limits is None:
        limits = limits_of(state, split_key(workload.key)[0])
    return pod_set_requests(workload, limits, state.runtime_classes, state.configuration)


def _hash(workload: Workload, requests: tuple[PodSetRequests, ...], state: State, invalid: str) -> Shape:
    allowed = allowed_flavors(workload, state.configuration)
    return _digest(
        priority_of(workload, state.configuration),
        tuple([each.kind for each in requests]),
        None if allowed is None else tuple(sorted(allowed)),
        invalid,
    )


def _alone(workload: Workload) -> Shape:
    return Shape(digest(workload.key.encode()))


@lru_cache(maxsize=SHAPES_CACHED_MAX)
def _digest(priority: int, kinds: tuple[str, ...], allowed: tuple[str, ...] | None, invalid: str) -> Shape:
    return Shape(digest(msgspec.json.encode([priority, kinds, allowed, invalid])))
