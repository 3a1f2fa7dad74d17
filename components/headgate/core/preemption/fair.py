"""
Fair preemption: borrowed quota is returned to nodes with a smaller share.

The preemptor's usage is counted as if it ran already. From the root down, the search descends into the child with the
largest share that still has candidates and borrows, until it reaches a ClusterQueue. Its candidates may be preempted if
it is the preemptor's own ClusterQueue, or if the preemptor's needs no more than its nominal quota; otherwise the shares
of the two children of the lowest common cohort are compared, by the configured strategies (KEP-1714, rules S2-a and
S2-b):

    LessThanOrEqualToFinalShare   the preemptor's share is at most the other's after the candidate has gone
    LessThanInitialShare          the preemptor's share is less than the other's before

The first strategy is applied candidate by candidate. When it does not free enough and LessThanInitialShare is the
second, the candidates that it rejected are checked again, one of each ClusterQueue. Finally, unnecessary targets are
restored. Among equal shares a cohort comes before a ClusterQueue, ClusterQueues in the order of their candidates, and
of cohorts the last by name (Kueue takes the last of an unordered set; the recordings, of a sorted one).
"""

import heapq
from collections import deque
from collections.abc import Iterator

from headgate.core.config import feature_gates
from headgate.core.preemption.messages import IN_CLUSTER_QUEUE, IN_COHORT_FAIR_SHARING, IN_COHORT_RECLAMATION
from headgate.core.preemption.policy import NEVER
from headgate.core.preemption.search import Found, Search
from headgate.core.quota.fair_shares import Share, share_of
from headgate.core.quota.holders import Holder, Size
from headgate.core.quota.tree import QuotaNode

LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


def fair_search(search: Search) -> Found:
    """The workloads to preempt; none when preempting all candidates is not enough."""
    candidates = _candidates(search)
    if not any(candidates.values()):
        return []
    fair = search.snapshot.configuration.fair_sharing
    strategies = fair.preemption_strategies if fair is not None else ()
    first, *others = strategies or (LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, LESS_THAN_INITIAL_SHARE)
    search.charge()
    fits, retry = _first(search, _Targets(search, candidates), first)
    if not fits and others:
        fits = _second(search, _Targets(search, retry))
    search.uncharge()
    if fits:
        search.fill_back(borrowing=True)
    found = search.put_back()
    return found if fits else []


def _candidates(search: Search) -> dict[int, list[Holder]]:
    """By the index of their ClusterQueue, in their order: of the own one, and of all that borrow what is contested."""
    policies = search.queue.spec.preemption
    candidates = {search.node.index: list(search.candidates(search.node, policies.within_cluster_queue))}
    if search.node.parent is not None and policies.reclaim_within_cohort != NEVER:
        for node in search.ledger.tree.cluster_queues.values():
            if node is not search.node and not search.within_quota(node):
                candidates[node.index] = list(search.candidates(node, policies.reclaim_within_cohort))
    return {index: holders for index, holders in candidates.items() if holders}


def _first(search: Search, targets: "_Targets", strategy: str) -> tuple[bool, dict[int, list[Holder]]]:
    """Whether the workload fits by the first strategy, and the candidates that it rejected."""
    turned_down: dict[int, list[Holder]] = {}
    configuration = search.snapshot.configuration
    entitled = (
        feature_gates.enabled(configuration, feature_gates.FAIR_SHARING_PREEMPT_WITHIN_NOMINAL)
        and search.within_nominal()
    )
    for cluster_queue in targets:
        if cluster_queue is search.node:
            targets.preempt(targets.pop(cluster_queue), IN_CLUSTER_QUEUE)
        elif entitled:
            targets.preempt(targets.pop(cluster_queue), IN_COHORT_RECLAMATION)
        else:
            refused = turned_down.setdefault(cluster_queue.index, [])
            chosen = _first_allowed(targets, cluster_queue, strategy, refused)
            if chosen is None:
                continue
            targets.preempt(chosen, IN_COHORT_FAIR_SHARING)
        if search.fits_when_charged():
            return True, {}
    return False, turned_down


def _first_allowed(
    targets: "_Targets", cluster_queue: QuotaNode, strategy: str, refused: list[Holder]
) -> Holder | None:
    """The first candidate of a ClusterQueue that a strategy allows; those before it are rejected."""
    ours, theirs = targets.compared(cluster_queue)
    our_share, their_share = targets.share(ours).key, targets.share(theirs).key
    # An infinite share is above every finite one, and removing a candidate never raises another's share.
    hopeless = our_share[0] and not their_share[0]
    while targets.has_any(cluster_queue):
        holder = targets.pop(cluster_queue)
        if hopeless:
            allowed = False
        elif strategy == LESS_THAN_INITIAL_SHARE:
            allowed = our_share < their_share
        else:
            allowed = our_share <= targets.share_without(theirs, holder).key
        if allowed:
            return holder
        refused.append(holder)
    return None


def _second(search: Search, targets: "_Targets") -> bool:
    """Whether it fits by rule S2-b among the rejected candidates: one of each ClusterQueue, whichever comes first."""
    for cluster_queue in targets:
        ours, theirs = targets.compared(cluster_queue)
        holder = targets.pop(cluster_queue)
        if targets.share(ours).key < targets.share(theirs).key:
            targets.preempt(holder, IN_COHORT_FAIR_SHARING)
            if search.fits_when_charged():
                return True
        targets.drop(cluster_queue)
    return False


Order = tuple[bool, float, bool, tuple[object, ...]]


class _Targets:
    """
    The ClusterQueues to take candidates from, each time the next one by share.

    The caller must take a candidate of the returned ClusterQueue, or drop it. Nodes without further candidates are left
    out: usage only decreases, so a node that does not borrow any more never will again. Taking a candidate changes only
    the shares of its ClusterQueue and of the cohorts above it: those are moved among their siblings, the others keep
    their places.
    """

    __slots__ = ("_above_preemptor", "_children", "_left", "_orders", "_search", "_shares", "_without")

    def __init__(self, search: Search, candidates: dict[int, list[Holder]]) -> None:
        self._search = search
        self._left = {index: deque(holders) for index, holders in candidates.items()}
        self._shares: dict[int, Share] = {}
        self._without: dict[tuple[int, int, Size], Share] = {}
        self._above_preemptor = {cohort.index for cohort in search.node.ancestors()}
        self._children: dict[int, list[QuotaNode]] = {}
        """By the index of a cohort: its children with candidates below them."""
        self._orders: dict[int, list[tuple[Order, QuotaNode]]] = {}
        """By the index of a cohort, once it was visited: the heap of its children, the next one first."""
        listed: set[int] = set()
        for index in self._left:
            at = search.ledger.tree.nodes[index]
            while at.parent is not None and at.index not in listed:
                listed.add(at.index)
                self._children.setdefault(at.parent.index, []).append(at)
                at = at.parent

    def __iter__(self) -> Iterator[QuotaNode]:
        node = self._search.node
        if node.parent is None:
            while self.has_any(node):
                yield node
            return
        root = self._search.ledger.tree.nodes[-1]
        while self._order(root):
            chosen = self._next_below(root)
            if chosen is not None:
                yield chosen
                self._reorder(chosen)

    def has_any(self, cluster_queue: QuotaNode) -> bool:
        """Whether a ClusterQueue has candidates left."""
        return bool(self._left.get(cluster_queue.index))

    def pop(self, cluster_queue: QuotaNode) -> Holder:
        """Take the first candidate of a ClusterQueue off the list."""
        return self._left[cluster_queue.index].popleft()

    def drop(self, cluster_queue: QuotaNode) -> None:
        """Forget the other candidates of a ClusterQueue."""
        self._left.pop(cluster_queue.index, None)

    def preempt(self, holder: Holder, reason: str) -> None:
        """Take a candidate out of the snapshot."""
        self._search.preempt(holder, reason)
        self._forget_shares(holder.node)

    # --- shares ------------------------------------------------------------------------------------------------------

    def share(self, node: QuotaNode) -> Share:
        """A node's current share."""
        share = self._shares.get(node.index)
        if share is None:
            share = self._shares[node.index] = share_of(self._search.ledger, node)
        return share

    def share_without(self, node: QuotaNode, holder: Holder) -> Share:
        """The share of a node above a candidate without that candidate; the same for all of one size."""
        key = (node.index, holder.node.index, holder.size)
        share = self._without.get(key)
        if share is None:
            snapshot = self._search.snapshot
            snapshot.take_out(holder)
            share = self._without[key] = share_of(self._search.ledger, node)
            snapshot.put_back(holder)
        return share

    def _forget_shares(self, node: QuotaNode) -> None:
        self._without.clear()
        self._shares.pop(node.index, None)
        for cohort in node.ancestors():
            self._shares.pop(cohort.index, None)

    def compared(self, cluster_queue: QuotaNode) -> tuple[QuotaNode, QuotaNode]:
        """The nodes whose shares are compared: the preemptor's and the other's, just below the lowest common cohort."""
        theirs = cluster_queue
        while theirs.parent is not None and theirs.parent.index not in self._above_preemptor:
            theirs = theirs.parent
        ours = self._search.node
        while ours.parent is not theirs.parent:
            assert ours.parent is not None, f"{cluster_queue.name} is in another tree than {self._search.node.name}"
            ours = ours.parent
        return ours, theirs

    # --- the way down ------------------------------------------------------------------------------------------------

    def _next_below(self, cohort: QuotaNode) -> QuotaNode | None:
        """The ClusterQueue to take from next; None after a step in which a cohort was left out instead."""
        at = cohort
        while at.is_cohort:
            order = self._order(at)
            if not order:
                assert at.parent is not None, "the root has children, or there is nothing to ask for"
                heapq.heappop(self._order(at.parent))
                return None
            at = order[0][1]
        return at

    def _order(self, cohort: QuotaNode) -> list[tuple[Order, QuotaNode]]:
        """The children of a cohort, as a heap."""
        order = self._orders.get(cohort.index)
        if order is None:
            children = self._children.get(cohort.index, ())
            order = [(self._place(each), each) for each in children if self._stays(each)]
            heapq.heapify(order)
            self._orders[cohort.index] = order
        return order

    def _reorder(self, cluster_queue: QuotaNode) -> None:
        """Move a ClusterQueue and the cohorts above it, each the first of its siblings so far, to their new places."""
        at = cluster_queue
        while at.parent is not None:
            order = self._orders[at.parent.index]
            if self._stays(at):
                heapq.heapreplace(order, (self._place(at), at))
            else:
                heapq.heappop(order)
            at = at.parent

    def _stays(self, node: QuotaNode) -> bool:
        """Whether a node may have further candidates."""
        if node.is_cohort:
            return node.index in self._above_preemptor or self.share(node).borrowing
        return self.has_any(node) and (node is self._search.node or self.share(node).borrowing)

    def _place(self, node: QuotaNode) -> Order:
        """
        A node's place among its siblings, smaller ones first: the larger share, then a cohort before a ClusterQueue.

        Of equal cohorts the last by name comes first, as in Kueue a later one wins; siblings are ordered by name in the
        tree. Equal ClusterQueues come in the order of their first candidates: already evicted ones before all others,
        those of other ClusterQueues before the preemptor's own, then by their rank.
        """
        infinite, value = self.share(node).key
        if node.is_cohort:
            return not infinite, -value, False, (-node.index,)
        first = self._left[node.index][0]
        return not infinite, -value, True, (not first.evicted, node is self._search.node, *first.rank)
