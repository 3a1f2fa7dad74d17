"""
Placing: the topology domains of an assignment's pods, after each pod set has its flavors.

Flavor assignment calls a `Placer` with flavors that fit, or would after preemption; the cycle once more with the
preemption targets removed. The rules are Kueue's (`kueue-semantics` section 4, "TAS afterwards"; KEP-2724): pods that
find no domains downgrade an assignment that fits to PREEMPT, and one that would not find them in an empty topology
either cannot fit. A pod set whose flavor has a ProvisioningRequest check, or whose ClusterQueue has a MultiKueue check,
gets its domains later: it is marked as delayed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from headgate.core.flavors.assignment import (
    TOPOLOGY_PLACEMENT_FAILED,
    Assignment,
    Choice,
    PodSetResult,
    no_fit_reason_of,
)
from headgate.core.flavors.cluster_queue import ClusterQueueFlavors
from headgate.core.flavors.matching import group_name, requests_topology
from headgate.core.flavors.modes import Mode
from headgate.core.kubernetes.effective_requests import pod_requests
from headgate.core.kubernetes.quantities import amount
from headgate.core.state.tables import HOLDS_QUOTA, DomainUsage, Workload
from headgate.core.topology.assignments import Placement, expand
from headgate.core.topology.demands import (
    Gates,
    Placements,
    PodSetDemand,
    Replacement,
    usage_of,
)
from headgate.core.topology.placing import can_place, find_assignments
from headgate.core.topology.what_if import WhatIf
from headgate.core.workload.pod_requests import PodSetRequests
from headgate.events.objects import Admission, PodSetUpdate

PENDING, READY = "Pending", "Ready"
"""Values of `delayedTopologyRequest`: the domains are still to be found; they were found in a second pass."""

_NO_REQUIRED = "required topology is not supported for elastic workloads"


class Topologies:
    """The topologies during a cycle, with what its entries occupy, and the gates that placement depends on."""

    __slots__ = ("gates", "what_if")

    def __init__(self, what_if: WhatIf, gates: Gates) -> None:
        self.what_if = what_if
        self.gates = gates

    def find(
        self, demands: Sequence[PodSetDemand], *, empty: bool = False, replacement: Replacement | None = None
    ) -> Placements:
        """The domains of these pod sets."""
        return find_assignments(self.what_if, demands, self.gates, empty=empty, replacement=replacement)

    def can_place(self, demands: Sequence[PodSetDemand]) -> bool:
        """Whether all of these pod sets would be placed."""
        return can_place(self.what_if, demands, self.gates)

    @contextmanager
    def without(self, usages: Iterable[DomainUsage]) -> Iterator[None]:
        """The topologies without what these occupy."""
        with self.what_if.without(usages):
            yield


class Placer:
    """
    Places the pods of one workload.

    `earlier` has, by pod set, the domains of the slice of itself that the workload replaces; its pods stay there.
    """

    def __init__(
        self,
        topologies: Topologies,
        queue: ClusterQueueFlavors,
        workload: Workload,
        requests: Sequence[PodSetRequests],
        *,
        earlier: Mapping[str, Placement] | None = None,
    ) -> None:
        self.topologies = topologies
        self._queue = queue
        self._workload = workload
        self._requests = requests
        self._earlier = earlier
        self.replacement = replacement_of(workload)
        self._in_empty: tuple[tuple[PodSetDemand, ...], Placements] | None = None
        """The last demands that were placed as if no workload occupied anything, and the answer."""

    def place(self, assignment: Assignment) -> Assignment:
        """An assignment with its domains; downgraded where its pods cannot be placed, now or ever."""
        pod_sets = {each.name: each for each in assignment.pod_sets}
        demands = tuple(self._demands(pod_sets))
        assignment = _with(assignment, pod_sets, demands=demands)
        if any(each.error for each in pod_sets.values()):
            return _no_fit(assignment)
        if assignment.mode is Mode.FIT and demands:
            found = self.topologies.find(demands, replacement=self.replacement)
            if found.failure is None:
                return self._placed(assignment, found)
            assignment = _downgraded(assignment, *found.failure)
        if assignment.mode is Mode.PREEMPT and self.replacement is None and demands:
            # Nothing is preempted for the replacement of a node.
            found = self._find_in_empty(demands)
            if found.failure is not None:
                return _impossible(assignment, found.failure[0])
            return _preempting(assignment)
        return assignment

    def reserve(self, assignment: Assignment, gone: Iterable[DomainUsage] | None) -> Assignment:
        """
        The domains that a preempting assignment will have, for the rest of the cycle (updateAssignmentForTAS).

        `gone` is what its targets occupy; None when it has no targets: then an empty topology is assumed.
        """
        if not assignment.demands or self.replacement is not None:
            return assignment
        if gone is None:
            return self._placed(assignment, self._find_in_empty(assignment.demands))
        with self.topologies.without(gone):
            return self._placed(assignment, self.topologies.find(assignment.demands))

    def _find_in_empty(self, demands: tuple[PodSetDemand, ...]) -> Placements:
        """The domains as if no workload occupied anything: the same for as long as the cycle lasts."""
        if self._in_empty is None or self._in_empty[0] is not demands:
            self._in_empty = demands, self.topologies.find(demands, empty=True)
        return self._in_empty[1]

    # --- demands -----------------------------------------------------------------------------------------------------

    def _demands(self, pod_sets: dict[str, PodSetResult]) -> Iterator[PodSetDemand]:
        """What is to be placed (WorkloadsTopologyRequests); errors and delays are noted in `pod_sets`."""
        for i, spec in enumerate(self._workload.spec.pod_sets):
            result = pod_sets.get(spec.name)
            explicit = requests_topology(spec.topology_request)
            if result is None or result.count == 0 or not (explicit or self._queue.is_topology_aware):
                continue
            if result.placement is not None and not self._leaves(result.placement):
                continue
            if self._earlier is not None and spec.topology_request is not None and spec.topology_request.required:
                pod_sets[spec.name] = msgspec.structs.replace(result, error=_NO_REQUIRED)
                continue
            flavor, error = self._flavor(result)
            if error:
                pod_sets[spec.name] = msgspec.structs.replace(result, error=error)
            elif self._is_delayed(flavor):
                pod_sets[spec.name] = msgspec.structs.replace(result, delayed=PENDING)
            else:
                yield PodSetDemand(
                    name=spec.name,
                    flavor=flavor,
                    requests=pod_requests(self._requests[i].spec),
                    count=result.count,
                    topology=spec.topology_request,
                    implied=not explicit,
                    group=group_name(spec),
                    spec=self._requests[i].spec,
                    updates=_updates(self._workload, spec.name),
                    previous=self._earlier.get(spec.name) if self._earlier is not None else None,
                )

    def _leaves(self, placement: Placement) -> bool:
        """Whether some of these pods are on an unhealthy node."""
        return any(domain.values[-1] in self._workload.unhealthy_nodes for domain in placement.domains)

    def _flavor(self, result: PodSetResult) -> tuple[str, str]:
        """The only flavor with a topology that a pod set was assigned, or an error."""
        known = self._queue.topology_flavors
        named = sorted({choice.flavor for choice in result.flavors.values() if choice.flavor in known})
        if len(named) == 1:
            return named[0], ""
        if not known:
            return "", "workload requires Topology, but there is no TAS cache information"
        if not named:
            return "", "no TAS flavor assigned"
        return "", f"more than one TAS flavor assigned: {', '.join(named)}"

    def _is_delayed(self, flavor: str) -> bool:
        if self._queue.is_multi_cluster:
            return True
        return self._workload.stage not in HOLDS_QUOTA and flavor in self._queue.provisioned_flavors

    # --- results -----------------------------------------------------------------------------------------------------

    def _placed(self, assignment: Assignment, found: Placements) -> Assignment:
        pod_sets = {each.name: each for each in assignment.pod_sets}
        for demand in assignment.demands:
            result, placement = pod_sets[demand.name], found.placements.get(demand.name)
            delayed = READY if placement is not None and result.delayed else result.delayed
            pod_sets[demand.name] = msgspec.structs.replace(result, placement=placement, delayed=delayed)
        return _with(assignment, pod_sets, occupies=self._occupied(pod_sets.values()))

    def _occupied(self, pod_sets: Iterable[PodSetResult]) -> tuple[DomainUsage, ...]:
        """What the placed pods will occupy, beyond what the workload's admission occupies already."""
        before = _counts(self._workload) if self._workload.stage in HOLDS_QUOTA else {}
        templates = {each.name: each.template.spec for each in self._workload.spec.pod_sets}
        usages: list[DomainUsage] = []
        for result in pod_sets:
            if result.placement is None:
                continue
            flavor, _ = self._flavor(result)
            demand = PodSetDemand(
                name=result.name, flavor=flavor, requests=pod_requests(templates[result.name]), count=result.count
            )
            for usage in usage_of(demand, result.placement):
                more = usage.pods - before.get((result.name, usage.values), 0)
                if more > 0:
                    usages.append(usage._replace(pods=more))
        return tuple(usages)


def replacement_of(workload: Workload) -> Replacement | None:
    """The node that an admitted workload has to leave, the first one; None when it has to leave none."""
    if workload.stage not in HOLDS_QUOTA or workload.admission is None or not workload.unhealthy_nodes:
        return None
    placements = placements_of(workload)
    nodes = {domain.values[-1] for each in placements.values() for domain in each.domains}
    if nodes.isdisjoint(workload.unhealthy_nodes):
        return None
    return Replacement(node=workload.unhealthy_nodes[0], placements=placements)


def placements_of(workload: Workload) -> dict[str, Placement]:
    """By pod set, the domains that a workload's admission gives it."""
    if workload.admission is None:
        return {}
    return {
        each.name: expand(each.topology_assignment)
        for each in workload.admission.pod_set_assignments
        if each.topology_assignment is not None
    }


def needs_second_pass(workload: Workload) -> bool:
    """Whether a workload that holds quota needs domains: delayed ones, its checks being Ready, or for a lost node."""
    if workload.admission is None:
        return False
    if lacks_delayed(workload.admission) and workload.checks and all(check.state == READY for check in workload.checks):
        return True
    return bool(workload.unhealthy_nodes) and replacement_of(workload) is not None


def lacks_delayed(admission: Admission) -> bool:
    """Whether an admission is still to get topology domains."""
    return any(
        each.delayed_topology_request == PENDING and each.topology_assignment is None
        for each in admission.pod_set_assignments
    )


def admitted_assignment(workload: Workload) -> Assignment:
    """The assignment that an admission records: the beginning of a second pass, which keeps the flavors."""
    assert workload.admission is not None, f"{workload.key} has no admission"
    placements = placements_of(workload)
    pod_sets = tuple(
        PodSetResult(
            name=each.name,
            count=each.count,
            requests={resource: amount(resource, value) for resource, value in each.resource_usage.items()},
            flavors={resource: Choice(flavor, Mode.FIT, 0, 0) for resource, flavor in each.flavors.items()},
            placement=placements.get(each.name),
            delayed=each.delayed_topology_request,
        )
        for each in workload.admission.pod_set_assignments
    )
    return Assignment(pod_sets, {}, 0, Mode.FIT)


def _updates(workload: Workload, pod_set: str) -> tuple[PodSetUpdate, ...]:
    """What the Ready checks of a workload change in the pods of a pod set."""
    return tuple(
        update
        for check in workload.checks
        if check.state == READY
        for update in check.pod_set_updates
        if update.name == pod_set
    )


def _counts(workload: Workload) -> dict[tuple[str, tuple[str, ...]], int]:
    """How many pods a workload's admission places in which domain, by pod set."""
    counts: dict[tuple[str, tuple[str, ...]], int] = {}
    for name, placement in placements_of(workload).items():
        for domain in placement.domains:
            counts[name, domain.values] = counts.get((name, domain.values), 0) + domain.pods
    return counts


# --- modes -----------------------------------------------------------------------------------------------------------


def _with(
    assignment: Assignment,
    pod_sets: Mapping[str, PodSetResult],
    *,
    demands: tuple[PodSetDemand, ...] | None = None,
    occupies: tuple[DomainUsage, ...] | None = None,
    mode: Mode | None = None,
) -> Assignment:
    return msgspec.structs.replace(
        assignment,
        pod_sets=tuple(pod_sets[each.name] for each in assignment.pod_sets),
        demands=assignment.demands if demands is None else demands,
        occupies=assignment.occupies if occupies is None else occupies,
        mode=assignment.mode if mode is None else mode,
    )


def _in_mode(result: PodSetResult, mode: Mode) -> PodSetResult:
    flavors = {resource: msgspec.structs.replace(choice, mode=mode) for resource, choice in result.flavors.items()}
    return msgspec.structs.replace(result, flavors=flavors)


def _no_fit(assignment: Assignment) -> Assignment:
    return msgspec.structs.replace(
        assignment, mode=Mode.NO_FIT, no_fit_reason=no_fit_reason_of(list(assignment.pod_sets))
    )


def _downgraded(assignment: Assignment, name: str, reason: str) -> Assignment:
    """An assignment whose quota fits, and one of whose pod sets finds no domains."""
    pod_sets = {each.name: each for each in assignment.pod_sets}
    for each in _sharing(assignment, name):
        pod_sets[each] = _in_mode(pod_sets[each], Mode.PREEMPT)
    result = pod_sets[name]
    pod_sets[name] = msgspec.structs.replace(result, reasons=(*result.reasons, reason))
    return _with(assignment, pod_sets, mode=Mode.PREEMPT)


def _preempting(assignment: Assignment) -> Assignment:
    """Every pod set with a topology may require preemption: its quota may suffice, and its domains be fragmented."""
    pod_sets = {each.name: each for each in assignment.pod_sets}
    for demand in assignment.demands:
        for each in _sharing(assignment, demand.name):
            pod_sets[each] = _in_mode(pod_sets[each], Mode.PREEMPT)
    return _with(assignment, pod_sets)


def _impossible(assignment: Assignment, name: str) -> Assignment:
    """An assignment of whose pod sets one could not be placed in an empty topology either."""
    pod_sets = {each.name: each for each in assignment.pod_sets}
    flavors = {demand.name: demand.flavor for demand in assignment.demands}
    for each in _sharing(assignment, name):
        pod_sets[each] = _in_mode(pod_sets[each], Mode.NO_FIT)
    attempts = tuple(
        msgspec.structs.replace(each, no_fit_reason=TOPOLOGY_PLACEMENT_FAILED) if each.flavor == flavors[name] else each
        for each in pod_sets[name].attempts
    )
    pod_sets[name] = msgspec.structs.replace(pod_sets[name], attempts=attempts)
    return _no_fit(_with(assignment, pod_sets))


def _sharing(assignment: Assignment, name: str) -> tuple[str, ...]:
    """The pod sets whose flavors were assigned together with those of this one, it included."""
    groups = {demand.name: demand.group for demand in assignment.demands}
    group = groups.get(name)
    if group is None:
        return (name,)
    return tuple(each for each, its_group in groups.items() if its_group == group)


__all__ = [
    "Placer",
    "Topologies",
    "admitted_assignment",
    "lacks_delayed",
    "needs_second_pass",
    "placements_of",
    "replacement_of",
]
