"""
Where the pods of a pending workload could go in the topologies of its ClusterQueue, and what keeps them away.

Decided again on a state with the counts of placement (`headgate.core.topology.counts`): how many pods fit into the best
domain of each level, why nodes take none, and which workloads would have to leave. It looks at each pod set by itself,
with the leader of its group. `headgate explain` shows it. Costs the trees of the ClusterQueue's flavors, so lists of
workloads do without.
"""

from collections.abc import Iterator
from typing import Final

from headgate.core.config import feature_gates
from headgate.core.kubernetes.effective_requests import pod_requests
from headgate.core.state.tables import PENDING, State, Values, Workload
from headgate.core.topology.cache import TopologyCache
from headgate.core.topology.counts import CountedTree, ShapeCounts
from headgate.core.topology.demands import PodSetDemand
from headgate.core.topology.gates import gates_of
from headgate.core.topology.levels import has_levels
from headgate.core.topology.shaping import Gang, RefusedError, gang_of
from headgate.core.topology.what_if import WhatIf
from headgate.events.ids import WorkloadKey
from headgate.events.objects import PodSet, TopologyRequest

LEAVING_MAX: Final = 5
"""How many of the workloads that would have to leave are named; of more, the number is told."""


def places(state: State, workload: Workload) -> tuple[str, ...]:
    """Sentences on each pod set that requests a topology, for each flavor that has it; none for other workloads."""
    if workload.stage not in PENDING or not feature_gates.enabled(
        state.configuration, feature_gates.TOPOLOGY_AWARE_SCHEDULING
    ):
        return ()
    flavors = _flavors(state, workload)
    implied = all(state.flavors[each].spec.topology_name is not None for each in flavors if each in state.flavors)
    requesting = [each for each in workload.spec.pod_sets if implied or each.topology_request is not None]
    if not flavors or not requesting:
        return ()
    what_if = TopologyCache(state).what_if()
    return tuple(
        sentence
        for pod_set in requesting
        if not _is_leader(workload, pod_set)
        for flavor in flavors
        for sentence in _in_flavor(state, what_if, workload, pod_set, flavor)
    )


def _flavors(state: State, workload: Workload) -> tuple[str, ...]:
    queue = state.cluster_queues.get(workload.cluster_queue)
    groups = queue.spec.resource_groups if queue is not None else ()
    return tuple(dict.fromkeys(quotas.name for group in groups for quotas in group.flavors))


def _partner(workload: Workload, pod_set: PodSet) -> PodSet | None:
    """The other pod set of its group."""
    group = pod_set.topology_request.pod_set_group_name if pod_set.topology_request is not None else None
    if group is None:
        return None
    others = (each for each in workload.spec.pod_sets if each is not pod_set and each.topology_request is not None)
    return next((each for each in others if each.topology_request.pod_set_group_name == group), None)  # type: ignore[union-attr]


def _is_leader(workload: Workload, pod_set: PodSet) -> bool:
    """Whether it is placed with a larger pod set; of equal ones the second is the leader."""
    other = _partner(workload, pod_set)
    if other is None or other.count != pod_set.count:
        return other is not None and pod_set.count < other.count
    return workload.spec.pod_sets.index(other) < workload.spec.pod_sets.index(pod_set)


def _demand(pod_set: PodSet, flavor: str) -> PodSetDemand:
    """A pod set in a flavor; without a request of its own it goes anywhere, as in a ClusterQueue of such flavors."""
    spec = pod_set.template.spec
    return PodSetDemand(
        name=pod_set.name,
        flavor=flavor,
        requests=pod_requests(spec),
        count=pod_set.count,
        topology=pod_set.topology_request,
        implied=pod_set.topology_request is None,
        spec=spec,
    )


def _in_flavor(state: State, what_if: WhatIf, workload: Workload, pod_set: PodSet, flavor: str) -> Iterator[str]:
    tree = what_if.flavor(flavor)
    request, gates = pod_set.topology_request, gates_of(state.configuration)
    if tree is None or (request is not None and not has_levels(request, tree.levels, multi_layer=gates.multi_layer)):
        return
    counted, partner = what_if.counted(flavor), _partner(workload, pod_set)
    demand, leader = _demand(pod_set, flavor), _demand(partner, flavor) if partner is not None else None
    try:
        gang = gang_of(tree, demand, leader, gates, empty=False)
        if_empty = gang_of(tree, demand, leader, gates, empty=True)
    except RefusedError as error:
        yield f"pod set {pod_set.name}, flavor {flavor}: {error}"
        return
    counts = counted.counts(gang.shape, gang.fitness)
    best = [_best(counts, gang, level) for level in range(len(tree.levels))]
    told = ", ".join(
        f"{fits} in {'/'.join(values)} ({level})"
        for level, (fits, values) in zip(tree.levels, best, strict=True)
        if values
    )
    yield (
        f"pod set {pod_set.name}, flavor {flavor}: {pod_set.count} pods, {_wanted(request, gang, tree.levels)}; "
        f"at most fit {told or 'none: the topology has no node'}"
    )
    refused = _refused(counts)
    if refused:
        yield f"nodes of {flavor} that take none of these pods: {refused} (of {len(tree.leaves.alive())})"
    if not _fits(gang, counts):
        yield _leaving(state, counted, if_empty, flavor)


def _wanted(request: TopologyRequest | None, gang: Gang, levels: tuple[str, ...]) -> str:
    sliced = f", in slices of {gang.shape.slice_size} per {levels[gang.shape.slice_level]}"
    slices = sliced if gang.shape.slice_size > 1 else ""
    if gang.required:
        return f"required in one {levels[gang.level]}{slices}"
    if request is not None and request.preferred is not None:
        return f"preferred in one {levels[gang.level]}{slices}"
    return f"anywhere{slices}"


def _count(counts: ShapeCounts, gang: Gang, level: int, slot: int) -> int:
    """How many pods fit into a domain, in whole slices where it has some."""
    if level <= gang.shape.slice_level:
        beside = counts.slices_beside_leader if gang.leaders else counts.slices
        return int(beside[level][slot]) * gang.shape.slice_size
    return int(counts.pods[level][slot])


def _best(counts: ShapeCounts, gang: Gang, level: int) -> tuple[int, Values]:
    values = counts.tree.by_level[level].values
    slots = counts.tree.by_level[level].alive().tolist()
    ranked = min(slots, key=lambda slot: (-_count(counts, gang, level, slot), values[slot]), default=None)
    return (0, ()) if ranked is None else (_count(counts, gang, level, ranked), values[ranked])


def _fits(gang: Gang, counts: ShapeCounts) -> bool:
    slots = counts.tree.by_level[gang.level].alive().tolist()
    fits = [_count(counts, gang, gang.level, slot) for slot in slots]
    return (max(fits, default=0) if gang.required else sum(fits)) >= gang.pods


def _refused(counts: ShapeCounts) -> str:
    reasons: dict[str, int] = {}
    for leaf in counts.tree.leaves.alive().tolist():
        if counts.pods[-1][leaf] == 0:
            why = counts.filter.why.get(leaf) or f'resource "{counts.limiting(leaf)}"'
            reasons[why] = reasons.get(why, 0) + 1
    return ", ".join(f"{why}: {reasons[why]}" for why in sorted(reasons))


def _leaving(state: State, counted: CountedTree, gang: Gang, flavor: str) -> str:
    """Which workloads would have to leave the domain that is best without any; or that it would not help."""
    tree = counted.tree
    counts = counted.counts(gang.shape, gang.fitness)
    level = tree.levels[gang.level]
    if not _fits(gang, counts):
        fits, values = _best(counts, gang, gang.level)
        where = f"into {level} {'/'.join(values)}, the largest" if gang.required else "in all"
        total = (
            fits
            if gang.required
            else sum(_count(counts, gang, gang.level, slot) for slot in tree.by_level[gang.level].alive().tolist())
        )
        return f"it would not fit without any other workload either: {total} of {gang.pods} pods {where}"
    if not gang.required:
        return f"it would fit if enough workloads left ({len(_inside(state, counted, flavor, ()))} have pods there)"
    now = counted.counts(gang.shape._replace(empty=False), gang.fitness)
    values_of = tree.by_level[gang.level].values
    enough = [
        slot
        for slot in tree.by_level[gang.level].alive().tolist()
        if _count(counts, gang, gang.level, slot) >= gang.pods
    ]
    chosen = min(enough, key=lambda slot: (-_count(now, gang, gang.level, slot), values_of[slot]))
    inside = _inside(state, counted, flavor, values_of[chosen])
    told = [f"{key} ({pods})" for key, pods in list(inside.items())[:LEAVING_MAX]]
    left = len(inside) - len(told)
    names = ", ".join([*told, *([f"{left} more"] if left else [])])
    return f"it would fit into {level} {'/'.join(values_of[chosen])} if enough of these left: {names} (pods there)"


def _inside(state: State, counted: CountedTree, flavor: str, domain: Values) -> dict[WorkloadKey, int]:
    """The workloads with pods in a domain, and how many."""
    tree = counted.tree
    hosts = feature_gates.enabled(state.configuration, feature_gates.TAS_OVERLAPPING_FLAVORS) and tree.by_host
    found: dict[WorkloadKey, int] = {}
    for key, usages in state.index.topology_usage_of.items():
        for usage in usages:
            leaf = tree.leaf(usage.values) if hosts or usage.flavor == flavor else None
            if leaf is not None and tree.leaves.values[leaf][: len(domain)] == domain:
                found[key] = found.get(key, 0) + usage.pods
    return dict(sorted(found.items(), key=lambda item: (item[1], item[0])))
