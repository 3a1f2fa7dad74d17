"""
Matching: which flavors the pods of a workload may get in a ClusterQueue, whatever its quota.

It follows from specs alone, so it is computed once for all workloads with equal pod sets and cached with the
ClusterQueue of the catalog (`matching_of`); a change of a spec discards the catalog. A `Matching` defines the scans and
their order: the pod sets that are assigned together, and for each of their resource groups the requested resources, and
why each of its flavors does not match.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from headgate.core.flavors.cluster_queue import ClusterQueueFlavors, Flavor, Group, Matching, Part, Together
from headgate.core.kubernetes.effective_requests import pod_requests
from headgate.core.kubernetes.selectors import matches_flavor, taint_text, untolerated_taint
from headgate.core.topology.levels import has_levels
from headgate.core.workload.pod_requests import PodSetRequests
from headgate.events.objects import PodSet, TopologyRequest

MATCHINGS_MAX = 64
"""How many matchings one ClusterQueue caches; beyond it, the oldest is dropped."""

_FNV_OFFSET, _FNV_PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1


@lru_cache(maxsize=4096)
def visit_rank(resource: str) -> tuple[int, str]:
    """The visiting order of a resource: by the 64-bit FNV-1a hash of its name."""
    value = _FNV_OFFSET
    for byte in resource.encode():
        value = ((value ^ byte) * _FNV_PRIME) & _MASK
    return value, resource


class _Matcher:
    """Computes one matching."""

    __slots__ = ("_names", "_pod_sets", "_queue", "_requests")

    def __init__(
        self, queue: ClusterQueueFlavors, pod_sets: Sequence[PodSet], requests: Sequence[PodSetRequests]
    ) -> None:
        self._queue = queue
        self._pod_sets = pod_sets
        self._requests = requests
        implied = ("pods",) if "pods" in queue.group_of else ()
        self._names = tuple(
            tuple(sorted(dict.fromkeys((*each.per_pod, *implied)), key=visit_rank)) for each in requests
        )

    def matching(self) -> Matching:
        """The matching."""
        groups: dict[str | int, list[int]] = {}
        for i, pod_set in enumerate(self._pod_sets):
            name = group_name(pod_set)
            groups.setdefault(i if name is None else name, []).append(i)
        placed = tuple(
            i
            for i, pod_set in enumerate(self._pod_sets)
            if self._queue.is_topology_aware
            or (self._queue.gates is not None and requests_topology(pod_set.topology_request))
        )
        together = tuple(Together(tuple(members), tuple(self._parts(members))) for members in groups.values())
        return Matching(together, self._names, placed)

    def _parts(self, members: list[int]) -> Iterator[Part]:
        names = sorted(dict.fromkeys(name for i in members for name in self._names[i]), key=visit_rank)
        placed: set[str] = set()
        for name in names:
            group = self._queue.group_of.get(name)
            if group is None:
                yield Part(name, None, ())
            elif name not in placed:
                covered = tuple(other for other in names if other in group.covered)
                placed.update(covered)
                mismatches = tuple(self._mismatch(flavor, group, members) for flavor in group.flavors)
                yield Part(name, group, covered, mismatches)

    def _mismatch(self, flavor: Flavor, group: Group, members: list[int]) -> str:
        """Why a flavor does not match some pod sets, in Kueue's wording; "" when it does."""
        if flavor.spec is None:
            return f"flavor {flavor.name} not found"
        for i in members:
            if why := self._topology_mismatch(flavor, group, i):
                return why
            spec = self._requests[i].spec
            taint = untolerated_taint(flavor.spec.node_taints, spec.tolerations + flavor.spec.tolerations)
            if taint is not None:
                return f"untolerated taint {taint_text(taint)} in flavor {flavor.name}"
            if not matches_flavor(spec, flavor.spec.node_labels):
                return f"flavor {flavor.name} doesn't match node affinity"
        return ""

    def _topology_mismatch(self, flavor: Flavor, group: Group, index: int) -> str:
        """Why a flavor does not match the topology request of a pod set, in Kueue's wording; "" when it does."""
        gates = self._queue.gates
        if gates is None:
            return ""
        request = self._pod_sets[index].topology_request
        if not requests_topology(request):
            if flavor.is_topology_aware and not self._queue.is_topology_aware:
                return f'Flavor "{flavor.name}" supports only TopologyAwareScheduling'
            return ""
        if not flavor.is_topology_aware:
            # A flavor for resources that pods do not request, but that transformations produce, is pure quota.
            if not group.covered & pod_requests(self._requests[index].spec).keys():
                return ""
            return f'Flavor "{flavor.name}" does not support TopologyAwareScheduling'
        if not flavor.levels:
            return f'Flavor "{flavor.name}" information missing in TAS cache'
        if not has_levels(request, flavor.levels, multi_layer=gates.multi_layer):
            return f'Flavor "{flavor.name}" does not contain the requested level'
        return ""


def matching_of(queue: ClusterQueueFlavors, pod_sets: Sequence[PodSet], requests: Sequence[PodSetRequests]) -> Matching:
    """The matching of pod sets with these requests, cached for the next workload of the kind."""
    kinds = tuple([each.kind for each in requests])
    if not all(kinds):
        return _Matcher(queue, pod_sets, requests).matching()
    kept = queue.matchings
    matching = kept.get(kinds)
    if matching is None:
        if len(kept) >= MATCHINGS_MAX:
            del kept[next(iter(kept))]
        matching = kept[kinds] = _Matcher(queue, pod_sets, requests).matching()
    return matching


def group_name(pod_set: PodSet) -> str | None:
    """The podSetGroupName of a pod set."""
    return pod_set.topology_request.pod_set_group_name if pod_set.topology_request is not None else None


def requests_topology(request: TopologyRequest | None) -> bool:
    """Whether a pod set requests placement within a Topology (IsExplicitlyRequestingTAS)."""
    if request is None:
        return False
    named = (request.required, request.preferred, request.pod_set_slice_required_topology)
    return (
        any(named)
        or request.unconstrained is not None
        or request.pod_set_slice_size is not None
        or bool(request.podset_slice_required_topology_constraints)
    )
