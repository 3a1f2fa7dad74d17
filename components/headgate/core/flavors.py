"""
Flavor assignment: which flavor each resource of a workload gets, and how well it would fit there.

The cycle calls `Assigner` once per head. Its answer, an `Assignment`, says for each pod set and resource the flavor,
the mode (fits now; needs preemption; cannot fit), how far up the cohort tree it borrows, and for what does not fit the
reasons, in Kueue's order and words. Nothing is charged here.

The rules are Kueue's (`kueue-semantics` section 4, `kueue-observed` "Flavor assignment"; KEP-79, KEP-582 flavor
fungibility, KEP-420 partial admission). Resources are visited in the order of the FNV-1a hash of their names, as Kueue
does since it vectorized requests: which resource group fails first, and so the message, depends on it.

Whether somebody could be preempted is asked of a `PreemptionOracle`. `NobodyToPreempt` is the answer of a cell without
preemption: a workload that lacks unused quota, but would fit if others left, is in mode PREEMPT without candidates.
"""

import enum
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Protocol

import msgspec

from headgate.core.amounts import add, canonical, subtract
from headgate.core.catalog import Flavor, Group, Queue
from headgate.core.quota import Ledger, Node
from headgate.core.requests import PodSetRequests
from headgate.core.selectors import matches_flavor, taint_text, untolerated_taint
from headgate.core.state import FlavorResource
from headgate.events.objects import FlavorFungibility, PodSet, TopologyRequest

NO_MATCHING_FLAVOR = "NoMatchingFlavor"
EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
WAITING_FOR_QUOTA = "WaitingForQuota"

WAYS_MAX = 32
"""How many ways to admit a workload `Assigner.ways` tells apart. Beyond it, it leaves parts of the request out."""

_SEVERITY = {"": 0, WAITING_FOR_QUOTA: 1, EXCEEDS_MAX_QUOTA: 2, NO_MATCHING_FLAVOR: 3}


class Mode(enum.IntEnum):
    """How a workload, or a part of it, can be admitted. Ascending: the worst part is the mode of the whole."""

    NO_FIT = 0
    PREEMPT = 1
    FIT = 2

    @property
    def label(self) -> str:
        """As Kueue writes it: NoFit, Preempt, Fit."""
        return _LABELS[self]


_LABELS = {Mode.NO_FIT: "NoFit", Mode.PREEMPT: "Preempt", Mode.FIT: "Fit"}


class Grade(enum.IntEnum):
    """`Mode` in more detail, ascending: the scan over flavors prefers reclaiming to other preemption."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    """Would fit if others left, but nobody may be preempted."""
    PREEMPT = 2
    """Somebody in the own ClusterQueue has to go."""
    RECLAIM = 3
    """Only workloads that borrow in other ClusterQueues have to go."""
    FIT = 4

    @property
    def mode(self) -> Mode:
        """The mode that it is a detail of."""
        return Mode.FIT if self is Grade.FIT else Mode.NO_FIT if self is Grade.NO_FIT else Mode.PREEMPT


class PreemptionOracle(Protocol):
    """Answers whether preemption could make room."""

    def simulate(self, node: Node, fr: FlavorResource, value: int) -> tuple[Grade, int]:
        """NO_CANDIDATES, PREEMPT or RECLAIM for a request at a ClusterQueue, and how far up it then borrows."""
        ...


class NobodyToPreempt:
    """The oracle of a cell without preemption."""

    __slots__ = ("_ledger",)

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def simulate(self, node: Node, fr: FlavorResource, value: int) -> tuple[Grade, int]:
        """NO_CANDIDATES, always."""
        return Grade.NO_CANDIDATES, self._ledger.borrowing_level(node, fr, value).height


# --- the answer ----------------------------------------------------------------------------------------------------


class Choice(msgspec.Struct, frozen=True, gc=False):
    """The flavor of one resource. `tried` is the index that the scan stopped at, -1 when no flavor is left to try."""

    flavor: str
    mode: Mode
    borrowing: int
    tried: int


class Attempt(msgspec.Struct, frozen=True):
    """One flavor that was looked at for a resource group, and why it was not simply taken."""

    flavor: str
    group: int
    grade: Grade
    borrowing: int
    reasons: tuple[str, ...] = ()
    no_fit_reason: str = ""


class PodSetResult(msgspec.Struct, frozen=True):
    """
    What one pod set gets.

    `requests` are the amounts of all `count` pods. No `flavors` though something is requested means that it cannot fit.
    """

    name: str
    count: int
    requests: dict[str, int]
    flavors: dict[str, Choice] = {}
    reasons: tuple[str, ...] = ()
    attempts: tuple[Attempt, ...] = ()

    @property
    def mode(self) -> Mode:
        """The worst of its resources."""
        if not self.reasons:
            return Mode.FIT
        return min((choice.mode for choice in self.flavors.values()), default=Mode.NO_FIT)


class Assignment(msgspec.Struct, frozen=True):
    """
    What a whole workload gets.

    `pod_sets` ends with the first one that found no flavor. `usage` is what it would be charged, `borrowing` the height
    of the subtree that it borrows from (0: none). `no_fit_reason` is the reason of the QuotaReserved condition when it
    cannot fit.
    """

    pod_sets: tuple[PodSetResult, ...]
    usage: dict[FlavorResource, int]
    borrowing: int
    mode: Mode
    no_fit_reason: str = ""

    @property
    def message(self) -> str:
        """Why it does not simply fit, in Kueue's words; "" when it does."""
        return "; ".join(
            f"couldn't assign flavors to pod set {pod_set.name}: {', '.join(sorted(pod_set.reasons))}"
            for pod_set in self.pod_sets
            if pod_set.reasons
        )

    @property
    def last_tried(self) -> tuple[dict[str, int], ...]:
        """Per pod set and resource, the index that the scan stopped at; -1 when it came to the end."""
        return tuple(
            {resource: choice.tried for resource, choice in pod_set.flavors.items()} for pod_set in self.pod_sets
        )


class _Found(msgspec.Struct, frozen=True):
    """The outcome of a scan over one resource group."""

    choices: dict[str, Choice]
    reasons: tuple[str, ...]
    attempts: tuple[Attempt, ...]


# --- order and preference ------------------------------------------------------------------------------------------

_FNV_OFFSET, _FNV_PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1


@lru_cache(maxsize=4096)
def visit_rank(resource: str) -> tuple[int, str]:
    """Where a resource comes in the order of visiting: by the 64-bit FNV-1a hash of its name."""
    value = _FNV_OFFSET
    for byte in resource.encode():
        value = ((value ^ byte) * _FNV_PRIME) & _MASK
    return value, resource


def _preferred(left: tuple[Grade, int], right: tuple[Grade, int], fungibility: FlavorFungibility) -> bool:
    """Whether (grade, borrowing level) left is strictly better than right under a fungibility preference."""
    for hopeless in (Grade.NO_FIT, Grade.NO_CANDIDATES):
        if (left[0] is hopeless) != (right[0] is hopeless):
            return right[0] is hopeless
    if left[0] is Grade.NO_FIT:
        return False
    if fungibility.preference == "PreemptionOverBorrowing" and left[1] != right[1]:
        return left[1] < right[1]
    return left[0] > right[0] if left[0] != right[0] else left[1] < right[1]


def _goes_on(found: tuple[Grade, int], fungibility: FlavorFungibility) -> bool:
    """Whether the scan tries the next flavor after this one."""
    grade, borrowing = found
    if grade in (Grade.NO_FIT, Grade.NO_CANDIDATES):
        return True
    if grade in (Grade.PREEMPT, Grade.RECLAIM) and fungibility.when_can_preempt == "TryNextFlavor":
        return True
    return borrowing > 0 and fungibility.when_can_borrow == "TryNextFlavor"


# --- assigning -----------------------------------------------------------------------------------------------------


class Assigner:
    """
    Assigns flavors to one workload on one state of quota.

    `last_tried` continues the scan of an earlier cycle. `short` collects over all calls the flavor-resources that
    lacked unused quota: as long as none of them is freed, the answer stays what it is.
    """

    def __init__(
        self,
        queue: Queue,
        ledger: Ledger,
        pod_sets: Sequence[PodSet],
        requests: Sequence[PodSetRequests],
        *,
        last_tried: Sequence[dict[str, int]] = (),
        oracle: PreemptionOracle | None = None,
        fair_sharing: bool = False,
    ) -> None:
        assert queue.node is not None, f"ClusterQueue {queue.name} has no quota tree"
        self._queue = queue
        self._node = queue.node
        self._ledger = ledger
        self._pod_sets = pod_sets
        self._requests = requests
        self._last_tried = last_tried
        self._oracle = oracle if oracle is not None else NobodyToPreempt(ledger)
        self._fungibility = queue.spec.flavor_fungibility
        self._may_preempt_borrowing = _may_preempt_borrowing(queue, fair_sharing=fair_sharing)
        self.short: dict[FlavorResource, None] = {}
        self.resumed = False
        """Whether a scan did not begin with the first flavor."""

    def assign(self, counts: Sequence[int] | None = None) -> Assignment:
        """Flavors for every pod set, with all its pods or with these counts of them."""
        used: dict[FlavorResource, int] = {}
        results: dict[int, PodSetResult] = {}
        unavailable: dict[int, None] = {}
        for members in self._groups_of_pod_sets():
            totals = {i: self._total(i, counts) for i in members}
            found, available = self._assign_together(members, _sum(totals.values()), used)
            for i in members:
                count = self._requests[i].count if counts is None else counts[i]
                mine = {resource: choice for resource, choice in found.choices.items() if resource in totals[i]}
                results[i] = PodSetResult(self._requests[i].name, count, totals[i], mine, found.reasons, found.attempts)
                for resource, choice in mine.items():
                    fr = (choice.flavor, resource)
                    used[fr] = add(used.get(fr, 0), totals[i][resource])
                if not available:
                    unavailable[i] = None
            if any(results[i].mode is Mode.NO_FIT for i in members):
                break
        return self._result([results[i] for i in sorted(results)], used, bool(unavailable))

    def ways(self, counts: Sequence[int] | None = None) -> list[dict[FlavorResource, int]]:
        """
        All that these pods could be charged, however their flavors are chosen; what is not charged is left out.

        An assignment that fits is charged one of these, or more: so as long as for each of them something is lacking,
        no cycle can admit the workload. They follow from specs and requests alone. Ways that no quota would ever be
        enough for are left out; none at all means that only a change of specs can help. Where there would be more
        than `WAYS_MAX`, parts of the request with many flavors to choose from are left out of all of them.
        """
        parts: list[tuple[list[str], dict[str, int]]] = []
        for members in self._groups_of_pod_sets():
            total = _sum(self._total(i, counts) for i in members)
            placed: dict[str, None] = {}
            for resource, value in total.items():
                group = self._queue.group_of.get(resource)
                if group is None and value:
                    return []
                if group is None or resource in placed:
                    continue
                wanted = {name: amount for name, amount in total.items() if name in group.covered}
                placed.update(dict.fromkeys(wanted))
                flavors = [flavor.name for flavor in group.flavors if not self._mismatch(flavor, group, members)]
                parts.append((flavors, wanted))
        ways: list[dict[FlavorResource, int]] = [{}]
        for flavors, wanted in sorted(parts, key=lambda part: len(part[0])):
            if len(ways) * len(flavors) <= WAYS_MAX:
                ways = self._possible(_with(way, flavor, wanted) for way in ways for flavor in flavors)
        return ways

    def _possible(self, ways: Iterable[dict[FlavorResource, int]]) -> list[dict[FlavorResource, int]]:
        """Each of the ways once, but for those that exceed what the ClusterQueue could use if nobody else did."""
        most = self._ledger.tree.potential_available
        distinct = {tuple(sorted(way.items())): way for way in ways}
        return [way for way in distinct.values() if all(value <= most(self._node, fr) for fr, value in way.items())]

    def _result(self, pod_sets: list[PodSetResult], used: dict[FlavorResource, int], unavailable: bool) -> Assignment:
        mode = min((pod_set.mode for pod_set in pod_sets), default=Mode.NO_FIT)
        borrowing = max((choice.borrowing for each in pod_sets for choice in each.flavors.values()), default=0)
        reason = ""
        if mode is Mode.NO_FIT:
            reasons = [_no_fit_reason(pod_set) for pod_set in pod_sets if pod_set.mode is Mode.NO_FIT]
            reason = NO_MATCHING_FLAVOR if unavailable else max(reasons, key=_SEVERITY.__getitem__, default="")
        return Assignment(tuple(pod_sets), used, borrowing, mode, reason)

    def _groups_of_pod_sets(self) -> list[list[int]]:
        """Pod sets that are assigned together, by their first member: those of one podSetGroupName, or each alone."""
        groups: dict[str | int, list[int]] = {}
        for i, pod_set in enumerate(self._pod_sets):
            request = pod_set.topology_request
            name = request.pod_set_group_name if request is not None else None
            groups.setdefault(i if name is None else name, []).append(i)
        return list(groups.values())

    def _total(self, index: int, counts: Sequence[int] | None) -> dict[str, int]:
        """What a pod set requests, in the order of visiting; `pods` where the ClusterQueue covers them."""
        requests = self._requests[index]
        count = requests.count if counts is None else counts[index]
        total = requests.total(count)
        if "pods" in self._queue.group_of:
            total["pods"] = count
        return {resource: total[resource] for resource in sorted(total, key=visit_rank)}

    def _assign_together(
        self, members: list[int], total: dict[str, int], used: dict[FlavorResource, int]
    ) -> tuple[_Found, bool]:
        """Flavors for the summed requests of some pod sets; False when the ClusterQueue lacks a resource."""
        choices: dict[str, Choice] = {}
        reasons: list[str] = []
        attempts: list[Attempt] = []
        for resource, value in total.items():
            group = self._queue.group_of.get(resource)
            if group is None:
                if value == 0:
                    continue
                why = f"resource {resource} unavailable in ClusterQueue"
                return _Found({}, (why,), tuple(attempts)), False
            if resource in choices:
                continue
            found = self._scan(members, resource, group, total, used)
            attempts.extend(found.attempts)
            if not found.choices:
                return _Found({}, found.reasons, tuple(attempts)), True
            choices.update(found.choices)
            reasons.extend(found.reasons)
        return _Found(choices, tuple(reasons), tuple(attempts)), True

    def _scan(
        self,
        members: list[int],
        resource: str,
        group: Group,
        total: dict[str, int],
        used: dict[FlavorResource, int],
    ) -> _Found:
        """Try the flavors of a resource group in order, from where the last cycle stopped, and keep the best."""
        wanted = {name: value for name, value in total.items() if name in group.covered}
        start = self._next_flavor(members[0], resource)
        self.resumed = self.resumed or start > 0
        best: dict[str, tuple[Grade, int]] = {}
        best_rank: tuple[Grade, int] = (Grade.NO_FIT, 0)
        best_flavor = ""
        reasons: list[str] = []
        attempts: list[Attempt] = []
        tried = -1
        for tried in range(start, len(group.flavors)):
            flavor = group.flavors[tried]
            if why := self._mismatch(flavor, group, members):
                reasons.append(why)
                attempts.append(Attempt(flavor.name, group.index, Grade.NO_FIT, 0, (why,), NO_MATCHING_FLAVOR))
                continue
            modes, rank, attempt = self._try(flavor, group, wanted, used)
            reasons.extend(attempt.reasons)
            attempts.append(attempt)
            stop = not _goes_on(rank, self._fungibility)
            if stop or _preferred(rank, best_rank, self._fungibility):
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

    def _mismatch(self, flavor: Flavor, group: Group, members: list[int]) -> str:
        """Why a flavor is none for these pod sets, whatever its quota; "" when it is one."""
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
        """Whether a pod set that is placed within a Topology meets one that is not, or lacks a level it names."""
        request = self._pod_sets[index].topology_request
        levels = _levels_requested(request)
        if levels is None:
            if flavor.is_topology_aware and not self._queue.is_topology_aware:
                return f'Flavor "{flavor.name}" supports only TopologyAwareScheduling'
            return ""
        if not group.covered & self._requests[index].per_pod.keys():
            return ""
        if not flavor.is_topology_aware:
            return f'Flavor "{flavor.name}" does not support TopologyAwareScheduling'
        if not levels <= flavor.levels:
            return f'Flavor "{flavor.name}" does not contain the requested level'
        return ""

    def _try(
        self, flavor: Flavor, group: Group, wanted: dict[str, int], used: dict[FlavorResource, int]
    ) -> tuple[dict[str, tuple[Grade, int]], tuple[Grade, int], Attempt]:
        """How every wanted resource would fit in one flavor; the flavor is as good as its worst."""
        modes: dict[str, tuple[Grade, int]] = {}
        rank: tuple[Grade, int] = (Grade.FIT, 0)
        farthest = 0
        reasons: list[str] = []
        no_fit_reason = ""
        for resource, value in wanted.items():
            fr = (flavor.name, resource)
            grade, borrowing, why, what = self._fits(fr, used.get(fr, 0), value)
            if why:
                reasons.append(why)
                no_fit_reason = max(no_fit_reason, what, key=_SEVERITY.__getitem__)
            farthest = max(farthest, borrowing)
            if _preferred(rank, (grade, borrowing), self._fungibility):
                rank = (grade, borrowing)
            modes[resource] = (grade, borrowing)
        attempt = Attempt(flavor.name, group.index, rank[0], farthest, tuple(reasons), no_fit_reason)
        return modes if rank[0] is not Grade.NO_FIT else {}, rank, attempt

    def _fits(self, fr: FlavorResource, used: int, value: int) -> tuple[Grade, int, str, str]:
        """One flavor-resource: its grade, its borrowing level, why it does not simply fit, the reason of a NoFit."""
        flavor, resource = fr
        ledger, node = self._ledger, self._node
        wanted = add(used, value)
        most = ledger.tree.potential_available(node, fr)
        if wanted > most:
            why = (
                f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests "
                f"({canonical(resource, used)}) + current podset request ({canonical(resource, value)}) > "
                f"maximum capacity ({canonical(resource, most)})"
            )
            return Grade.NO_FIT, 0, why, EXCEEDS_MAX_QUOTA
        level = ledger.borrowing_level(node, fr, wanted)
        free = max(0, ledger.available(node, fr))
        if wanted <= free:
            return Grade.FIT, level.height, "", ""
        self.short[fr] = None
        lacking = canonical(resource, subtract(wanted, free))
        why = f"insufficient unused quota for {resource} in flavor {flavor}, {lacking} more needed"
        if wanted <= node.quota(fr).nominal or level.may_reclaim or self._may_preempt_borrowing:
            grade, height = self._oracle.simulate(node, fr, wanted)
            return grade, height, why, ""
        return Grade.NO_FIT, level.height, why, WAITING_FOR_QUOTA


def _may_preempt_borrowing(queue: Queue, *, fair_sharing: bool) -> bool:
    """Whether a ClusterQueue may preempt others while it borrows itself."""
    preemption = queue.spec.preemption
    borrow = preemption.borrow_within_cohort
    if borrow is not None and borrow.policy != "Never":
        return True
    return fair_sharing and preemption.reclaim_within_cohort != "Never"


def _levels_requested(request: TopologyRequest | None) -> frozenset[str] | None:
    """The topology levels that a pod set names; None when it does not ask to be placed within a Topology."""
    if request is None:
        return None
    named = (request.required, request.preferred, request.pod_set_slice_required_topology)
    if not any(named) and not request.unconstrained:
        return None
    return frozenset(level for level in named if level)


def _sum(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for resource, value in part.items():
            total[resource] = add(total.get(resource, 0), value)
    return {resource: total[resource] for resource in sorted(total, key=visit_rank)}


def _with(way: dict[FlavorResource, int], flavor: str, wanted: dict[str, int]) -> dict[FlavorResource, int]:
    """A way with one more part of the request in a flavor."""
    more = dict(way)
    for resource, value in wanted.items():
        if value > 0:
            fr = (flavor, resource)
            more[fr] = add(more.get(fr, 0), value)
    return more


def _no_fit_reason(pod_set: PodSetResult) -> str:
    """The least severe reason among a group's alternatives, the most severe among groups that are all needed."""
    least: dict[int, str] = {}
    for attempt in pod_set.attempts:
        if attempt.grade is Grade.NO_FIT:
            old = least.get(attempt.group)
            if old is None or _SEVERITY[attempt.no_fit_reason] < _SEVERITY[old]:
                least[attempt.group] = attempt.no_fit_reason
    return max(least.values(), key=_SEVERITY.__getitem__, default=NO_MATCHING_FLAVOR)


# --- partial admission ---------------------------------------------------------------------------------------------


def may_be_reduced(pod_sets: Sequence[PodSet]) -> bool:
    """Whether a workload may be admitted with fewer pods."""
    return any(pod_set.min_count is not None for pod_set in pod_sets)


def spare_pods(pod_sets: Sequence[PodSet], counts: Sequence[int]) -> list[int]:
    """How many pods each pod set may go without."""
    return [
        max(0, count - pod_set.min_count) if pod_set.min_count is not None else 0
        for pod_set, count in zip(pod_sets, counts, strict=True)
    ]


def reduced(
    pod_sets: Sequence[PodSet], counts: Sequence[int], accept: Callable[[list[int]], Assignment | None]
) -> Assignment | None:
    """
    The acceptable assignment with the most pods, when fewer than all are allowed; None when there is none.

    A binary search over how many pods go without: all pod sets shrink evenly towards their minimum (KEP-420). `accept`
    gives the assignment of some counts, or None when they are not acceptable either.
    """
    spare = spare_pods(pod_sets, counts)
    total = sum(spare)
    if not total:
        return None
    best: Assignment | None = None
    low, high = 0, total + 1
    while low < high:
        middle = (low + high) // 2
        assignment = accept([count - each * middle // total for count, each in zip(counts, spare, strict=True)])
        if assignment is None:
            low = middle + 1
        else:
            best, high = assignment, middle
    return best
