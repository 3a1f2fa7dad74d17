"""
An independent judge of topologies: what workloads occupy, computed naively from their admissions and the nodes.

It shares with the product how an assignment is expanded and what a pod requests, and nothing of trees, indexes and
placement: every sum is made anew from the tables.
"""

from collections import Counter
from collections.abc import Iterator

from headgate.core.config import feature_gates
from headgate.core.kubernetes.effective_requests import pod_requests
from headgate.core.kubernetes.quantities import amount
from headgate.core.state.tables import HOLDS_QUOTA, State, Workload
from headgate.core.topology.assignments import HOSTNAME, Placement, expand
from headgate.core.workload.pod_requests import adjusted, limits_of
from headgate.events.decisions import PodsAssigned
from headgate.events.ids import WorkloadKey, split_key
from headgate.events.objects import Node, PodSet

Use = dict[str, int]


class Held:
    """What one pod set of a workload holds in a topology."""

    def __init__(self, state: State, workload: Workload, pod_set: PodSet, placement: Placement, flavor: str) -> None:
        self.workload, self.pod_set, self.placement, self.flavor = workload, pod_set, placement, flavor
        spec = adjusted(pod_set.template.spec, limits_of(state, split_key(workload.key)[0]), state.runtime_classes)
        self.requests = {**{name: value for name, value in pod_requests(spec).items() if value}, "pods": 1}


def held_by(state: State, workload: Workload) -> Iterator[Held]:
    """What a workload that holds quota has been assigned."""
    if workload.stage not in HOLDS_QUOTA or workload.followed or workload.admission is None or workload.spec is None:
        return
    pod_sets = {pod_set.name: pod_set for pod_set in workload.spec.pod_sets}
    for each in workload.admission.pod_set_assignments:
        if each.topology_assignment is None or each.name not in pod_sets:
            continue
        placement = expand(each.topology_assignment)
        for flavor in sorted(set(each.flavors.values())):
            yield Held(state, workload, pod_sets[each.name], placement, flavor)


def levels_of(state: State, flavor: str) -> tuple[str, ...]:
    """The levels of a flavor's topology."""
    record = state.flavors.get(flavor)
    topology = state.topologies.get(record.spec.topology_name or "") if record is not None else None
    return () if topology is None else tuple(level.node_label for level in topology.levels)


def nodes_in(state: State, flavor: str, levels: tuple[str, ...], values: tuple[str, ...]) -> dict[str, Node]:
    """The nodes of a domain: of the flavor, with all labels of its levels, ready and schedulable."""
    labels = {**state.flavors[flavor].spec.node_labels, **dict(zip(levels, values, strict=True))}
    return {
        name: node
        for name, node in state.nodes.items()
        if node.ready and not node.unschedulable and set(levels_of(state, flavor)) <= node.labels.keys()
        if all(node.labels.get(key) == value for key, value in labels.items())
    }


def overfull(state: State, key: WorkloadKey) -> list[str]:
    """The domains of a workload that hold more than their nodes have, in what it requests."""
    found = []
    for mine in held_by(state, state.workloads[key]):
        levels = levels_of(state, mine.flavor)
        if mine.placement.levels != (levels[-1:] if levels[-1:] == (HOSTNAME,) else levels):
            continue
        for values, _ in mine.placement.domains:
            nodes = nodes_in(state, mine.flavor, mine.placement.levels, values)
            used = _used(state, mine, values)
            for resource in mine.requests:
                there = sum(amount(resource, node.allocatable.get(resource, "0")) for node in nodes.values())
                foreign = sum(state.index.taken.get(name, {}).get(resource, 0) for name in nodes)
                if used[resource] + foreign > there:
                    what = f"{used[resource]} + {foreign} of {there} {resource}"
                    found.append(f"{key} is assigned to {'/'.join(values)} of {mine.flavor}, which then holds {what}")
    return found


def _used(state: State, mine: Held, values: tuple[str, ...]) -> Counter[str]:
    """What is held of a domain; of a host in all flavors, where those may overlap."""
    shared = feature_gates.enabled(state.configuration, feature_gates.TAS_OVERLAPPING_FLAVORS)
    total: Counter[str] = Counter()
    for workload in state.workloads.values():
        for held in held_by(state, workload):
            if held.flavor != mine.flavor and not (shared and mine.placement.levels == held.placement.levels):
                continue
            for other, pods in held.placement.domains:
                if other == values:
                    total.update({resource: value * pods for resource, value in held.requests.items()})
    return total


def scattered(state: State, key: WorkloadKey) -> list[str]:
    """The groups of pod sets of a workload that require one domain and are in several."""
    domains: dict[str, set[tuple[str, ...]]] = {}
    for mine in held_by(state, state.workloads[key]):
        request, levels = mine.pod_set.topology_request, levels_of(state, mine.flavor)
        if request is None or request.required is None or request.required not in levels:
            continue
        upto = levels[: levels.index(request.required) + 1]
        group = request.pod_set_group_name or mine.pod_set.name
        for values, _ in mine.placement.domains:
            for node in nodes_in(state, mine.flavor, mine.placement.levels, values).values():
                domains.setdefault(group, set()).add(tuple(node.labels[level] for level in upto))
    return [
        f"{key} requires one domain for {group} and has {sorted(of)}" for group, of in domains.items() if len(of) > 1
    ]


def indexed_otherwise(state: State) -> list[str]:
    """The domains in the index of what workloads occupy that are not what their admissions say."""
    naive: dict[tuple[str, tuple[str, ...]], Counter[str]] = {}
    for workload in state.workloads.values():
        for held in held_by(state, workload):
            for values, pods in held.placement.domains:
                used = naive.setdefault((held.flavor, values), Counter())
                used.update({resource: value * pods for resource, value in held.requests.items()})
    index = {(flavor, values): use for flavor, of in state.index.topology_usage.items() for values, use in of.items()}
    found = []
    for flavor, values in sorted(naive.keys() | index.keys()):
        held_there = {name: value for name, value in naive.get((flavor, values), Counter()).items() if value}
        indexed = index.get((flavor, values), {})
        if indexed != held_there:
            found.append(f"{flavor} {values}: {indexed} in the index, {held_there} held")
    return found


def crowded(state: State, event: PodsAssigned) -> list[str]:
    """
    The domains that pods were sent to just now, and that now have more pods of their pod set than the assignment has.

    Others may have more: a pod that still ends on a node that was replaced does not make way for the next one.
    """
    key, name = event.workload, event.pod_set
    room: Counter[tuple[str, ...]] = Counter()
    admission = state.workloads[key].admission
    for each in admission.pod_set_assignments if admission is not None else ():
        if each.name == name and each.topology_assignment is not None:
            room.update(dict(expand(each.topology_assignment).domains))
    sent = Counter(
        record.domain
        for record in state.pods.values()
        if record.pod.workload == key and record.pod.pod_set == name and not record.pod.deleting
    )
    named = dict.fromkeys(each.values for each in event.domains)
    return [
        f"{key}: {sent[values]} pods of {name} in {'/'.join(values)} for {room[values]}"
        for values in named
        if sent[values] > room[values]
    ]
