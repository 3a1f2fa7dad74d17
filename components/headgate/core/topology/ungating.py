"""
Ungating: which topology domain each gated pod of an admitted workload gets (KEP-2724, Kueue's topology ungater).

The domains of an assignment are in order, and so are the pods of a pod set where they have indexes: the pod of rank i
gets the domain of the i-th pod of the assignment. The rank is the pod's index, in a pod set of several jobs that of its
job before it, without the offset of its pod set. Ranks apply only if all are valid: each pod has one, no two have the
same, the assignment has a domain for it, and each pod without a gate is in the domain of its rank. Otherwise pods fill
the domains in order, as far as pods that have one leave room.

A pod that has ended holds no place, so that the pod created in its stead gets it. No pod gets a node that has failed:
it waits until its node is replaced or has recovered.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from headgate.core.state.tables import PodRecord, State, Values, Workload
from headgate.core.topology.assignments import HOSTNAME, Placement
from headgate.core.topology.pods import waits_at_gate
from headgate.events.ids import PodKey
from headgate.events.objects import PodSet, PodSetAssignment, TopologyRequest


class PodInSet(NamedTuple):
    """
    A pod of a pod set that has not ended.

    `domain` is the one that it has got, None if it has none. With `is_gated` it may still get another. `indexes` are
    its labels that are numbers.
    """

    key: PodKey
    is_gated: bool
    domain: Values | None = None
    indexes: Mapping[str, int] = {}


class Ranks(NamedTuple):
    """The indexes of the pods of a pod set: `offset` is the smallest one, all are below `end`."""

    offset: int
    end: int

    def shifted(self, by: int) -> "Ranks":
        """The ranks of pods whose indexes begin at a higher number (annotation `pod-index-offset`)."""
        return Ranks(self.offset + by, self.end + by)


def ranks_of(pod_sets: Sequence[PodSet], assignments: Sequence[PodSetAssignment]) -> dict[str, Ranks]:
    """The ranks in each pod set. In a group of two pod sets the smaller one, the leader's, comes first."""
    requests = {pod_set.name: pod_set.topology_request for pod_set in pod_sets}
    groups: dict[str, list[PodSetAssignment]] = {}
    found: dict[str, Ranks] = {}
    for each in assignments:
        request = requests.get(each.name)
        group = request.pod_set_group_name if request is not None else None
        found[each.name] = Ranks(0, each.count)
        if group is not None:
            groups.setdefault(group, []).append(each)
    for group_of_two in groups.values():
        if len(group_of_two) > 1:
            leader, workers = sorted(group_of_two[:2], key=lambda each: each.count)
            found[workers.name] = Ranks(leader.count, leader.count + workers.count)
    return found


def pods_of_set(state: State, pods: Iterable[PodKey], pod_set: str) -> dict[PodKey, PodRecord]:
    """Those of these pods that are of a pod set, in order, without gated ones that are deleted: these never run."""
    found = ((key, state.pods.get(key)) for key in sorted(pods))
    return {
        key: record
        for key, record in found
        if record is not None and record.pod.pod_set == pod_set and not (record.pod.deleting and waits_at_gate(record))
    }


def domains_of_set(
    workload: Workload,
    assignment: PodSetAssignment,
    placement: Placement,
    pods: Mapping[PodKey, PodRecord],
    may_get_another: Callable[[PodKey, PodRecord], bool],
) -> dict[PodKey, Values]:
    """
    The domains of the gated pods of a pod set of an admitted workload, as far as they get one now.

    `placement` is that of the assignment. `may_get_another` says it of a pod at its gate: not so when that is being
    removed.
    """
    offset = next((record.pod.index_offset for record in pods.values()), 0)
    requests = {pod_set.name: pod_set.topology_request for pod_set in workload.spec.pod_sets}
    assignments = workload.admission.pod_set_assignments if workload.admission is not None else ()
    return domains_of_gated(
        placement,
        assignment.count,
        [_pod_in_set(placement, key, record, may_get_another) for key, record in pods.items()],
        requests.get(assignment.name),
        ranks_of(workload.spec.pod_sets, assignments)[assignment.name].shifted(offset),
        workload.unhealthy_nodes,
    )


def _pod_in_set(
    placement: Placement, key: PodKey, record: PodRecord, may_get_another: Callable[[PodKey, PodRecord], bool]
) -> PodInSet:
    if waits_at_gate(record):
        is_gated = may_get_another(key, record)
        return PodInSet(key, is_gated=is_gated, domain=record.domain or None, indexes=record.pod.indexes)
    selector = record.pod.spec.node_selector
    domain = tuple(selector.get(level, "") for level in placement.levels)
    return PodInSet(key, is_gated=False, domain=domain, indexes=record.pod.indexes)


def is_on_any(levels: tuple[str, ...], domain: Values, nodes: Collection[str]) -> bool:
    """Whether a domain is one of these nodes. Only domains of the level of host names are nodes."""
    return bool(nodes) and levels[-1:] == (HOSTNAME,) and domain[-1] in nodes


def domains_of_gated(
    placement: Placement,
    count: int,
    pods: Sequence[PodInSet],
    request: TopologyRequest | None,
    ranks: Ranks,
    failed: Collection[str] = (),
) -> dict[PodKey, Values]:
    """
    The domains of the gated pods of a pod set, as far as they get one now.

    `count` is the number of pods of the pod set, `failed` the failed nodes of the workload. The caller determines the
    order of the pods.
    """
    pod_of = _pods_by_rank(placement, count, pods, request, ranks) if request is not None else None
    if pod_of is None:
        found = _fill(placement, pods)
    else:
        domains = _domain_of_each(placement)
        found = {pod.key: domains[rank] for rank, pod in pod_of.items() if pod.is_gated}
    return {key: domain for key, domain in found.items() if not is_on_any(placement.levels, domain, failed)}


def _domain_of_each(placement: Placement) -> list[Values]:
    return [domain.values for domain in placement.domains for _ in range(domain.pods)]


def _pods_by_rank(
    placement: Placement, count: int, pods: Sequence[PodInSet], request: TopologyRequest, ranks: Ranks
) -> dict[int, PodInSet] | None:
    """The pods by their rank; None when the ranks are not valid."""
    domains = _domain_of_each(placement)
    found: dict[int, PodInSet] = {}
    for pod in pods:
        rank = _rank(pod, count, request, ranks)
        if rank is None or rank in found or not 0 <= rank < min(count, len(domains)):
            return None
        if not pod.is_gated and pod.domain != domains[rank]:
            return None
        found[rank] = pod
    return found


def _rank(pod: PodInSet, count: int, request: TopologyRequest, ranks: Ranks) -> int | None:
    index = pod.indexes.get(request.pod_index_label or "")
    if index is None or index >= ranks.end:
        return None
    if request.sub_group_index_label is None:
        return index - ranks.offset
    if not request.sub_group_count:
        return None
    size = count // request.sub_group_count
    job = pod.indexes.get(request.sub_group_index_label)
    if job is None or job >= request.sub_group_count or index >= size:
        return None
    return index + job * size - ranks.offset


def _fill(placement: Placement, pods: Sequence[PodInSet]) -> dict[PodKey, Values]:
    """Fill the domains in order. A gated pod that was given a domain keeps it while there is room."""
    room = {domain.values: 0 for domain in placement.domains}
    for domain in placement.domains:
        room[domain.values] += domain.pods
    for pod in pods:
        if not pod.is_gated and pod.domain is not None and pod.domain in room:
            room[pod.domain] -= 1
    found: dict[PodKey, Values] = {}
    waiting: list[PodKey] = []
    for pod in pods:
        if not pod.is_gated:
            continue
        if pod.domain is not None and room.get(pod.domain, 0) > 0:
            room[pod.domain] -= 1
            found[pod.key] = pod.domain
        else:
            waiting.append(pod.key)
    for values, left in room.items():
        taken, waiting = waiting[: max(0, left)], waiting[max(0, left) :]
        found.update(dict.fromkeys(taken, values))
    return found
