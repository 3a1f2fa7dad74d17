"""
Classical preemption: by priority within the ClusterQueue, and of quota that others have borrowed, by distance.

Candidates are of three kinds. *Own*: of the preemptor's ClusterQueue, by `withinClusterQueue`. *Hierarchical*: in other
ClusterQueues, using quota of a subtree that has enough quota for the request and contains the preemptor but not them;
they are preempted regardless of priority, as far as `reclaimWithinCohort` allows. *By priority*: other borrowers;
unless `borrowWithinCohort` allows more, they are preempted only when the preemptor does not borrow itself.

Candidates are removed one by one, already evicted ones first, until the workload fits; then those that turn out to be
unnecessary are restored. The heuristic is Kueue's (KEP-1337 preemption, KEP-79 hierarchical cohorts).
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from headgate.core.kubernetes.quantities import add, subtract
from headgate.core.preemption.messages import IN_CLUSTER_QUEUE, IN_COHORT_RECLAIM_WHILE_BORROWING, IN_COHORT_RECLAMATION
from headgate.core.preemption.policy import NEVER
from headgate.core.preemption.search import Found, Search
from headgate.core.quota.holders import Holder
from headgate.core.quota.tree import QuotaNode
from headgate.core.state.tables import FlavorResource


class _Region(NamedTuple):
    """A ClusterQueue that borrows, and the lowest cohort above it that is also above the preemptor."""

    cluster_queue: QuotaNode
    common: QuotaNode


class _Candidate(NamedTuple):
    """
    A candidate. `common` is None for one of the own ClusterQueue.

    `always` means that it may be preempted even if the preemptor borrows.
    """

    holder: Holder
    common: QuotaNode | None
    reason: str
    always: bool


def classical_search(search: Search) -> Found:
    """The workloads to preempt; none when preempting all candidates is not enough."""
    candidates = _Candidates(search)
    for borrowing in candidates.attempts():
        for candidate in candidates.in_order():
            if not _still_valid(search, candidate, borrowing=borrowing):
                continue
            search.preempt(candidate.holder, candidate.reason)
            if search.fits(borrowing=borrowing):
                search.fill_back(borrowing=borrowing)
                return search.put_back()
        search.put_back()
    return []


def _still_valid(search: Search, candidate: _Candidate, *, borrowing: bool) -> bool:
    """Whether a candidate may be preempted in this attempt, after the removal of those before it."""
    if candidate.common is None:
        return True
    if borrowing and not candidate.always:
        return False
    at = candidate.holder.node
    while at is not candidate.common:
        if search.within_quota(at):
            return False
        assert at.parent is not None, f"{candidate.common.name} is not above {candidate.holder.node.name}"
        at = at.parent
    return True


class _Candidates:
    """
    All candidates of a search in its initial state, and their preemption order.

    Which ClusterQueues they come from is determined at once; the candidates themselves are read as far as needed.
    """

    __slots__ = ("_by_priority", "_hierarchical", "_own", "_search")

    def __init__(self, search: Search) -> None:
        self._search = search
        policies = search.queue.spec.preemption
        hierarchical: list[_Region] = []
        by_priority: list[_Region] = []
        if search.node.parent is not None and policies.reclaim_within_cohort != NEVER:
            self._find_regions(hierarchical, by_priority)
        self._hierarchical = _Kind(self._of_others(hierarchical, always=True))
        self._by_priority = _Kind(self._of_others(by_priority, always=False))
        own = search.candidates(search.node, policies.within_cluster_queue)
        self._own = _Kind(_Candidate(holder, None, IN_CLUSTER_QUEUE, True) for holder in own)

    def attempts(self) -> tuple[bool, ...]:
        """Whether the preemptor may borrow: in the first attempt, and in the second when there are two."""
        hierarchical = self._hierarchical.has_any()
        forbidden = self._may_not_borrow()
        if not (hierarchical or self._by_priority.has_any()) or (forbidden and not self._search.below_nominal()):
            return (True,)
        return (False, True) if forbidden and not hierarchical else (True, False)

    def in_order(self) -> Iterator[_Candidate]:
        """Already evicted ones before all others; in each half hierarchical, by priority, then own ones."""
        kinds = (self._hierarchical, self._by_priority, self._own)
        for kind in kinds:
            yield from kind.evicted()
        for kind in kinds:
            yield from kind.rest()

    def _may_not_borrow(self) -> bool:
        borrow = self._search.queue.spec.preemption.borrow_within_cohort
        return borrow is None or borrow.policy == NEVER

    def _of_others(self, regions: list[_Region], *, always: bool) -> Iterator[_Candidate]:
        """The candidates of other ClusterQueues, all of one kind, in their order."""
        search = self._search
        policy = search.queue.spec.preemption.reclaim_within_cohort
        common = {region.cluster_queue.index: region.common for region in regions}
        for holder in _merged(search.candidates(region.cluster_queue, policy) for region in regions):
            above = common[holder.node.index]
            if always:
                yield _Candidate(holder, above, IN_COHORT_RECLAMATION, True)
            elif self._goes_for_borrower(holder):
                yield _Candidate(holder, above, IN_COHORT_RECLAIM_WHILE_BORROWING, True)
            else:
                yield _Candidate(holder, above, IN_COHORT_RECLAMATION, False)

    def _goes_for_borrower(self, holder: Holder) -> bool:
        """Whether `borrowWithinCohort` allows a borrowing preemptor to preempt this one."""
        borrow = self._search.queue.spec.preemption.borrow_within_cohort
        if borrow is None or borrow.policy == NEVER or holder.priority >= self._search.preemptor.priority:
            return False
        return borrow.max_priority_threshold is None or holder.priority <= borrow.max_priority_threshold

    def _find_regions(self, hierarchical: list[_Region], by_priority: list[_Region]) -> None:
        """
        Go up from the preemptor, and collect the borrowers below each cohort, but not below the previous ones.

        From the first subtree whose quota minus usage is enough for the rest of the request, the preemptor has the
        advantage over all that borrow from farther away.
        """
        search = self._search
        advantage, remaining = _fits_in_quota(search, search.node, search.requests)
        below = search.node
        for cohort in search.node.ancestors():
            regions = hierarchical if advantage else by_priority
            regions.extend(_Region(each, cohort) for each in _borrowers(search, cohort, below))
            fits, remaining = _fits_in_quota(search, cohort, remaining)
            advantage, below = advantage or fits, cohort


def _borrowers(search: Search, cohort: QuotaNode, skipped: QuotaNode) -> Iterator[QuotaNode]:
    """The ClusterQueues below a cohort, except a subtree, that use more than their quota, in cohorts that all do."""
    left = [cohort]
    while left:
        at = left.pop()
        left.extend(each for each in at.cohorts if each is not skipped and not search.within_quota(each))
        for each in at.cluster_queues:
            if each is not skipped and not search.within_quota(each):
                yield each


def _fits_in_quota(
    search: Search, node: QuotaNode, requests: Mapping[FlavorResource, int]
) -> tuple[bool, dict[FlavorResource, int]]:
    """Whether requests fit in the quota of a node's subtree, and what part of them would have to come from above it."""
    ledger, fits = search.ledger, True
    remaining: dict[FlavorResource, int] = {}
    for fr, value in requests.items():
        if ledger.tree.limits(fr).subtree[node.index] < add(ledger.usage(node, fr), value):
            fits = False
        remaining[fr] = max(0, subtract(value, ledger.local_available(node, fr)))
    return fits, remaining


def _merged(streams: Iterable[Iterator[Holder]]) -> Iterator[Holder]:
    """
    The holders of several ClusterQueues merged: always the best in preemption order among the first ones of each.

    `heapq.merge` does the same, but its start is much slower with thousands of streams.
    """
    heads = [(first.rank, first, stream) for stream in streams if (first := next(stream, None)) is not None]
    heapq.heapify(heads)
    while heads:
        _, holder, stream = heads[0]
        yield holder
        following = next(stream, None)
        if following is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, (following.rank, following, stream))


class _Kind:
    """Candidates of one kind in their order, the evicted ones first, read as far as needed and only once."""

    __slots__ = ("_left", "_seen")

    def __init__(self, candidates: Iterator[_Candidate]) -> None:
        self._left = candidates
        self._seen: list[_Candidate] = []

    def has_any(self) -> bool:
        """Whether there is one."""
        return bool(self._seen) or self._look_on()

    def evicted(self) -> Iterator[_Candidate]:
        """The already evicted ones."""
        return self._from(0, lambda candidate: candidate.holder.evicted)

    def rest(self) -> Iterator[_Candidate]:
        """All others."""
        first = next((i for i, each in enumerate(self._seen) if not each.holder.evicted), len(self._seen))
        return self._from(first, lambda candidate: not candidate.holder.evicted)

    def _from(self, i: int, wanted: Callable[[_Candidate], bool]) -> Iterator[_Candidate]:
        while (i < len(self._seen) or self._look_on()) and wanted(self._seen[i]):
            yield self._seen[i]
            i += 1

    def _look_on(self) -> bool:
        candidate = next(self._left, None)
        if candidate is not None:
            self._seen.append(candidate)
        return candidate is not None
