"""
The assigner: the scan over the flavors of each resource group, and its results.

See the package for the rules. An `Assigner` is made for one workload on one state of quota; `assign` may be called
again with other counts of pods, and `ways` returns what would have to be available for any assignment to fit.
"""
# Over 400 lines: one scan over the flavors with the exits of each step, which share the charges of the pod sets before.

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from headgate.core.api.names import ALLOWED_FLAVORS
from headgate.core.config import feature_gates
from headgate.core.flavors.assignment import (
    EXCEEDS_MAX_QUOTA,
    NO_MATCHING_FLAVOR,
    SEVERITY,
    WAITING_FOR_QUOTA,
    Assignment,
    Attempt,
    Choice,
    PodSetResult,
    no_fit_reason_of,
)
from headgate.core.flavors.cluster_queue import ClusterQueueFlavors, Flavor, Matching, Part, Together
from headgate.core.flavors.matching import group_name, matching_of
from headgate.core.flavors.modes import Grade, Mode, Rank, goes_on, preferred
from headgate.core.flavors.placing import Placer
from headgate.core.kubernetes.quantities import add, canonical, limit_text, subtract
from headgate.core.quota.tree import Ledger, QuotaNode
from headgate.core.state.tables import FlavorResource, Workload
from headgate.core.workload.pod_requests import PodSetRequests
from headgate.events.configuration import Configuration
from headgate.events.objects import PodSet

WAYS_MAX = 32
"""
How many alternatives to admit a workload `Assigner.ways` distinguishes.

Beyond it, parts of the request are left out.
"""


class PreemptionOracle(Protocol):
    """Answers whether preemption could free enough quota."""

    def simulate(self, node: QuotaNode, fr: FlavorResource, value: int) -> tuple[Grade, int]:
        """NO_CANDIDATES, PREEMPT or RECLAIM for a request at a ClusterQueue, and the borrowing level after that."""
        ...


class NobodyToPreempt:
    """The oracle without preemption."""

    __slots__ = ("_ledger",)

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def simulate(self, node: QuotaNode, fr: FlavorResource, value: int) -> tuple[Grade, int]:
        """NO_CANDIDATES, always."""
        return Grade.NO_CANDIDATES, self._ledger.borrowing_level(node, fr, value).height


def allowed_flavors(workload: Workload, configuration: Configuration) -> frozenset[str] | None:
    """The flavors that a workload's annotation allows; None when it may get any."""
    text = workload.annotations.get(ALLOWED_FLAVORS)
    if text is None or not feature_gates.enabled(configuration, feature_gates.CONCURRENT_ADMISSION):
        return None
    return frozenset(name.strip() for name in text.split(",")) if text.strip() else frozenset()


class _Found(msgspec.Struct, frozen=True):
    """The outcome of a scan over one resource group, or over all of some pod sets."""

    choices: dict[str, Choice]
    reasons: tuple[str, ...]
    attempts: tuple[Attempt, ...]


class Assigner:
    """
    Assigns flavors to one workload on one state of quota.

    `last_tried` continues the scan of an earlier cycle. `only` restricts the scan to the flavors of a first nomination,
    `allowed` to some flavors. `replaced` is, by pod set, the usage of the slice of itself that the workload replaces:
    it must get the same flavors, and is charged the difference. `short` collects over all calls the flavor-resources
    that lacked unused quota: as long as none of them is freed, the answer does not change. `placer` finds the topology
    domains of the pods; without one, none are placed.
    """

    def __init__(
        self,
        queue: ClusterQueueFlavors,
        ledger: Ledger,
        pod_sets: Sequence[PodSet],
        requests: Sequence[PodSetRequests],
        *,
        configuration: Configuration,
        oracle: PreemptionOracle | None = None,
        last_tried: Sequence[dict[str, int]] = (),
        only: Mapping[str, Mapping[str, str]] | None = None,
        replaced: Mapping[str, Mapping[FlavorResource, int]] = {},
        allowed: frozenset[str] | None = None,
        placer: Placer | None = None,
    ) -> None:
        assert queue.node is not None, f"ClusterQueue {queue.name} has no quota tree"
        self._queue = queue
        self._node = queue.node
        self._ledger = ledger
        self._pod_sets = pod_sets
        self._requests = requests
        self._matching: Matching = matching_of(queue, pod_sets, requests)
        self._oracle = oracle if oracle is not None else NobodyToPreempt(ledger)
        self._last_tried = last_tried
        self._only = only
        self._allowed = allowed
        self._replaced = _Replaced(pod_sets, replaced) if replaced else None
        self._placer = placer
        self._fungibility = queue.spec.flavor_fungibility
        self._may_preempt_borrowing = _may_preempt_borrowing(queue, fair_sharing=configuration.fair_sharing is not None)
        self._ignores_undeclared = ignores_undeclared(configuration)
        self.short: dict[FlavorResource, None] = {}
        self.resumed = False
        """Whether a scan did not begin with the first flavor."""
        self.lacking_place: dict[str, None] = {}
        """The flavors in whose Topology the pods found no place, over all calls, although their quota sufficed."""

    def assign(self, counts: Sequence[int] | None = None) -> Assignment:
        """Flavors for every pod set, with all its pods or with these counts of them."""
        used: dict[FlavorResource, int] = {}
        results: dict[int, PodSetResult] = {}
        mode, borrowing = Mode.FIT, 0
        for together in self._matching.groups:
            totals = [self._total(i, counts) for i in together.members]
            total = totals[0] if len(totals) == 1 else _sum(totals)
            found = self._assign_together(together, total, used)
            for i, mine in zip(together.members, totals, strict=True):
                results[i] = result = self._pod_set(i, mine, found, counts)
                for resource, choice in result.flavors.items():
                    self._use(i, (choice.flavor, resource), mine.get(resource, 0), used)
                    borrowing = max(borrowing, choice.borrowing)
                mode = min(mode, result.mode)
            if mode is Mode.NO_FIT:
                break
        pod_sets = [results[i] for i in sorted(results)]
        if not results:
            mode = Mode.NO_FIT
        reason = no_fit_reason_of(pod_sets) if mode is Mode.NO_FIT else ""
        assignment = Assignment(tuple(pod_sets), used, borrowing, mode, reason)
        if mode is Mode.NO_FIT or self._placer is None or not self._matching.placed:
            return assignment
        placed = self._placer.place(assignment)
        if mode is Mode.FIT and placed.mode is not mode:
            self.lacking_place.update(dict.fromkeys(demand.flavor for demand in placed.demands))
        return placed

    def ways(self, counts: Sequence[int] | None = None) -> list[dict[FlavorResource, int]]:
        """
        All alternatives of what these pods could be charged, for any choice of flavors.

        Uncharged resources are left out. An assignment that fits is charged one of these, or more: so as long as each
        of them lacks something, no cycle can admit the workload. They follow from specs and requests alone.
        Alternatives that no quota would ever satisfy are left out; an empty result means that only a change of specs
        can help. Where there would be more than `WAYS_MAX`, parts of the request with many flavors to choose from are
        left out of all of them.
        """
        parts: list[list[dict[FlavorResource, int]]] = []
        for together in self._matching.groups:
            total = _sum(self._total(i, counts) for i in together.members)
            for part in together.parts:
                if part.group is None and not self._is_skipped(total[part.resource]):
                    return []
                if part.group is not None:
                    parts.append(self._charges(together, part, total))
        ways: list[dict[FlavorResource, int]] = [{}]
        for charges in sorted(parts, key=len):
            if len(ways) * len(charges) <= WAYS_MAX:
                ways = self._possible(_with(way, charge) for way in ways for charge in charges)
        return ways

    def _charges(self, together: Together, part: Part, total: dict[str, int]) -> list[dict[FlavorResource, int]]:
        """What one part of the request could be charged: one for each flavor that it may get."""
        assert part.group is not None
        charges = []
        for flavor, mismatch in zip(part.group.flavors, part.mismatches, strict=True):
            if mismatch or (self._allowed is not None and flavor.name not in self._allowed):
                continue
            if self._replaced is None:
                charges.append({(flavor.name, name): total[name] for name in part.names})
            elif not any(self._replaced.other_flavor(together.members, name, flavor.name) for name in part.names):
                less = self._replaced.amount
                charges.append(
                    {(flavor.name, name): subtract(total[name], less(together.members, name)) for name in part.names}
                )
        return charges

    def _possible(self, ways: Iterable[dict[FlavorResource, int]]) -> list[dict[FlavorResource, int]]:
        """
        The alternatives without duplicates and without impossible ones.

        Impossible is what exceeds the potentially available quota of the ClusterQueue in an otherwise idle tree.
        """
        most = self._ledger.tree.potential_available
        distinct = {tuple(sorted(way.items())): way for way in ways}
        return [way for way in distinct.values() if all(value <= most(self._node, fr) for fr, value in way.items())]

    # --- requests ----------------------------------------------------------------------------------------------------

    def _total(self, index: int, counts: Sequence[int] | None) -> dict[str, int]:
        """What a pod set requests, in the order of visiting; `pods` where the ClusterQueue covers them."""
        requests = self._requests[index]
        count = requests.count if counts is None else counts[index]
        total = requests.total(count)
        if "pods" in self._queue.group_of:
            total["pods"] = count
        return {resource: total[resource] for resource in self._matching.names[index]}

    def _is_skipped(self, value: int) -> bool:
        """Whether a resource that no resource group covers is ignored instead of never fitting."""
        return value == 0 or self._ignores_undeclared

    def _pod_set(self, index: int, total: dict[str, int], found: _Found, counts: Sequence[int] | None) -> PodSetResult:
        requests = self._requests[index]
        if total:
            choices = {resource: choice for resource, choice in found.choices.items() if resource in total}
        elif group_name(self._pod_sets[index]) is not None:
            # The leader of a group that requests nothing itself is placed with the others.
            levels = self._queue.topology_flavors
            choices = {resource: choice for resource, choice in found.choices.items() if choice.flavor in levels}
        else:
            choices = {}
        count = requests.count if counts is None else counts[index]
        return PodSetResult(requests.name, count, total, choices, found.reasons, found.attempts)

    def _use(self, index: int, fr: FlavorResource, value: int, used: dict[FlavorResource, int]) -> None:
        """Count what a pod set would be charged, beyond the slice that it replaces."""
        if self._replaced is not None:
            value = subtract(value, self._replaced.amount((index,), fr[1]))
        used[fr] = add(used.get(fr, 0), value)

    # --- the scan --------------------------------------------------------------------------------------------------

    def _assign_together(self, together: Together, total: dict[str, int], used: dict[FlavorResource, int]) -> _Found:
        """Flavors for the summed requests of some pod sets."""
        parts = together.parts
        if len(parts) == 1 and parts[0].group is not None:
            return self._scan(together, parts[0], total, used)
        choices: dict[str, Choice] = {}
        reasons: list[str] = []
        attempts: list[Attempt] = []
        for part in parts:
            if part.group is None:
                if self._is_skipped(total[part.resource]):
                    continue
                why = f"resource {part.resource} unavailable in ClusterQueue"
                return _Found({}, (why,), tuple(attempts))
            found = self._scan(together, part, total, used)
            attempts.extend(found.attempts)
            if not found.choices:
                return _Found({}, found.reasons, tuple(attempts))
            choices.update(found.choices)
            reasons.extend(found.reasons)
        return _Found(choices, tuple(reasons), tuple(attempts))

    def _scan(self, together: Together, part: Part, total: dict[str, int], used: dict[FlavorResource, int]) -> _Found:
        """Try the flavors of a resource group in order, from where the last cycle stopped, and keep the best."""
        group, fungibility = part.group, self._fungibility
        assert group is not None
        start = self._next_flavor(together.members[0], part.resource)
        self.resumed = self.resumed or start > 0
        best: dict[str, Rank] = {}
        best_rank: Rank = (Grade.NO_FIT, 0)
        best_flavor = ""
        reasons: list[str] = []
        attempts: list[Attempt] = []
        tried = -1
        for tried in range(start, len(group.flavors)):
            flavor = group.flavors[tried]
            if why := self._passed_over(flavor, together, part):
                reasons.append(why)
                continue
            if why := part.mismatches[tried]:
                reasons.append(why)
                attempts.append(Attempt(flavor.name, group.index, Grade.NO_FIT, 0, (why,), NO_MATCHING_FLAVOR))
                continue
            modes, rank, attempt = self._try(flavor, together, part, total, used)
            reasons.extend(attempt.reasons)
            attempts.append(attempt)
            stop = not goes_on(rank, fungibility)
            if stop or preferred(rank, best_rank, fungibility):
                best, best_rank, best_flavor = modes, rank, flavor.name
            if stop:
                break
        last = -1 if tried == len(group.flavors) - 1 else tried
        choices = {name: Choice(best_flavor, grade.mode, borrowing, last) for name, (grade, borrowing) in best.items()}
        return _Found(choices, () if best_rank[0] is Grade.FIT else tuple(reasons), tuple(attempts))

    def _next_flavor(self, pod_set: int, resource: str) -> int:
        if pod_set >= len(self._last_tried):
            return 0
        return self._last_tried[pod_set].get(resource, -1) + 1

    def _passed_over(self, flavor: Flavor, together: Together, part: Part) -> str:
        """Why a flavor is skipped in this scan; "" when it is not."""
        if self._only and all(
            self._only.get(self._requests[i].name, {}).get(part.resource) != flavor.name for i in together.members
        ):
            return (
                f"skipping flavor {flavor.name} as it is not found in the nomination mapping "
                f"for resource {part.resource}"
            )
        if self._allowed is not None and flavor.name not in self._allowed:
            return f"skipping flavor {flavor.name} due to WorkloadAllowedResourceFlavorAnnotation annotation"
        return ""

    def _try(
        self, flavor: Flavor, together: Together, part: Part, total: dict[str, int], used: dict[FlavorResource, int]
    ) -> tuple[dict[str, Rank], Rank, Attempt]:
        """How all requested resources would fit in one flavor; the flavor's grade is the worst of theirs."""
        modes: dict[str, Rank] = {}
        rank: Rank = (Grade.FIT, 0)
        farthest = 0
        reasons: list[str] = []
        no_fit_reason = ""
        for resource in part.names:
            fr, value = (flavor.name, resource), total[resource]
            if self._replaced is not None:
                if other := self._replaced.other_flavor(together.members, resource, flavor.name):
                    rank, no_fit_reason = (Grade.NO_FIT, 0), NO_MATCHING_FLAVOR
                    reasons.append(other)
                else:
                    value = subtract(value, self._replaced.amount(together.members, resource))
            grade, borrowing, why, what = self._fits(fr, used.get(fr, 0), value)
            if why:
                reasons.append(why)
                no_fit_reason = max(no_fit_reason, what, key=SEVERITY.__getitem__)
            farthest = max(farthest, borrowing)
            modes[resource] = found = (grade, borrowing)
            if preferred(rank, found, self._fungibility):
                rank = found
        attempt = Attempt(
            flavor.name,
            part.group.index if part.group is not None else -1,
            rank[0],
            farthest,
            tuple(reasons),
            no_fit_reason,
        )
        return modes if rank[0] is not Grade.NO_FIT else {}, rank, attempt

    def _fits(self, fr: FlavorResource, used: int, value: int) -> tuple[Grade, int, str, str]:
        """One flavor-resource: its grade, its borrowing level, why it does not fit at once, the reason of a NoFit."""
        flavor, resource = fr
        ledger, node = self._ledger, self._node
        wanted = add(used, value)
        most = ledger.tree.potential_available(node, fr)
        if wanted > most:
            why = (
                f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests "
                f"({limit_text(resource, used)}) + current podset request ({canonical(resource, value)}) > "
                f"maximum capacity ({limit_text(resource, most)})"
            )
            return Grade.NO_FIT, 0, why, EXCEEDS_MAX_QUOTA
        level = ledger.borrowing_level(node, fr, wanted)
        free = max(0, ledger.available(node, fr))
        if wanted <= free:
            return Grade.FIT, level.height, "", ""
        self.short[fr] = None
        lacking = limit_text(resource, subtract(wanted, free))
        why = f"insufficient unused quota for {resource} in flavor {flavor}, {lacking} more needed"
        if wanted <= node.quota(fr).nominal or level.may_reclaim or self._may_preempt_borrowing:
            grade, height = self._oracle.simulate(node, fr, wanted)
            return grade, height, why, ""
        return Grade.NO_FIT, level.height, why, WAITING_FOR_QUOTA


class _Replaced:
    """The slice that a workload replaces: what each pod set has of which flavor."""

    __slots__ = ("_amounts", "_flavors")

    def __init__(self, pod_sets: Sequence[PodSet], usage: Mapping[str, Mapping[FlavorResource, int]]) -> None:
        mine = [usage.get(pod_set.name, {}) for pod_set in pod_sets]
        self._flavors = [{resource: flavor for flavor, resource in each} for each in mine]
        self._amounts = [{resource: value for (_, resource), value in each.items()} for each in mine]

    def other_flavor(self, members: Iterable[int], resource: str, flavor: str) -> str:
        """Why a flavor cannot be used for a resource: the slice has another; "" when it can."""
        for i in members:
            original = self._flavors[i].get(resource, "")
            if original != flavor:
                return f"could not assign {flavor} flavor since the original workload is assigned: {original}"
        return ""

    def amount(self, members: Iterable[int], resource: str) -> int:
        """What the slice has of a resource."""
        total = 0
        for i in members:
            total = add(total, self._amounts[i].get(resource, 0))
        return total


def ignores_undeclared(configuration: Configuration) -> bool:
    """Whether requests for resources that a ClusterQueue does not cover are ignored."""
    strategy = configuration.resources.quota_check_strategy
    return strategy == "IgnoreUndeclared" and feature_gates.enabled(configuration, feature_gates.QUOTA_CHECK_STRATEGY)


def _may_preempt_borrowing(queue: ClusterQueueFlavors, *, fair_sharing: bool) -> bool:
    """Whether a ClusterQueue may preempt others while it borrows itself."""
    preemption = queue.spec.preemption
    borrow = preemption.borrow_within_cohort
    if borrow is not None and borrow.policy != "Never":
        return True
    return fair_sharing and preemption.reclaim_within_cohort != "Never"


def _sum(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for resource, value in part.items():
            total[resource] = add(total.get(resource, 0), value)
    return total


def _with(way: dict[FlavorResource, int], charge: dict[FlavorResource, int]) -> dict[FlavorResource, int]:
    """An alternative with one more part of the request."""
    more = dict(way)
    for fr, value in charge.items():
        if value > 0:
            more[fr] = add(more.get(fr, 0), value)
    return more
