"""
The wake order of the policy `Bounded`: which of the sleepers that may wake do so now.

Freed quota may be enough for each of a dozen sleeping shapes, but not for two of them. Waking all would cost a
fruitless cycle for each but the first. The order in which cycles would decide them is known: one per ClusterQueue at a
time, in queue order; among those, first the one that borrows from nearer, then the higher priority, then the longer
queueing time (Kueue's classical order). A workload wakes if enough is unused after the awake workloads before it in the
cohort tree. Otherwise it is examined again when they are decided. With fair sharing each admission changes the shares
that decide which ClusterQueue comes next, so there only workloads of the same ClusterQueue wait for each other.

**Of one shape, as many workloads wake as quota suffices for**, one per round of cycles; the rest sleeps on. They are
offered alone (`headgate.events.queueing.Head`). Waking all of them would cost one cycle each time to find that nothing
is left for the next. A shape wakes as a whole when the free amount is not known: after a change of specs or the end of
a claim.

The demand of workloads ahead is read from the needs of their last verdicts; one without a verdict counts as zero. So
the answer follows from the state.

**Preemption.** Workloads that can only be admitted by preempting others wake one at a time in a ClusterQueue. None
wakes behind a head that blocks its ClusterQueue, because none may pass it.

**Nominal quota before borrowing.** A workload that borrows is preempted when another ClusterQueue of its cohort
reclaims its nominal quota. So workloads that fill the nominal quota of a ClusterQueue that reclaims come before all
that borrow, including those that are too many to be offered now. The gate HeadgatePreemptionWaits turns this off.

**Freed by preemption.** The preemptor wakes first, in any order of sharing. A workload that would not find enough after
it sleeps until the preemptor has been decided. Otherwise a workload that borrows less could take the freed quota, the
victim would be queued again and reclaim it, and so on without end. Kueue has the same order, because the preemptor
stays in the heap and others return a second later (`requeueBatchPeriod`).
"""

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headgate.core.fold.transitions import rank_of
from headgate.core.queueing.wake_conditions import Sleeper, Unused, Woken, came_true
from headgate.core.quota.cache import Forest
from headgate.core.quota.cohorts import tree_of
from headgate.core.state.attribution import about
from headgate.core.state.pending_queue import Rank
from headgate.core.state.tables import Parked, Stage, State, Workload
from headgate.events.ids import Seq, Shape, UnixMs, WorkloadKey
from headgate.events.queueing import Needs, QuotaFreed, Wake
from headgate.machines.queue_manager.offering import OFFER_DEPTH

Place = tuple[bool, int, int, int, UnixMs, int, str, WorkloadKey]
"""
The position in the wake order.

Whether its quota may be reclaimed, how many of its ClusterQueue come before it, borrowing level, then Kueue's order.
"""


class _Offered(NamedTuple):
    """A head of the next cycles, and its needs."""

    place: Place
    cluster_queue: str
    rank: Rank
    needs: Needs


class Turns:
    """
    One pass over the sleepers that may wake, in the order of `in_order`. Created for each decision.

    It is the pass of the bounded policy (`headgate.machines.queue_manager.wake_policy.WakePass`).
    """

    __slots__ = (
        "_at",
        "_blocked",
        "_first",
        "_forest",
        "_heads",
        "_left",
        "_line",
        "_members",
        "_next",
        "_now_ms",
        "_offers",
        "_places",
        "_preempts",
        "_state",
        "_unused",
    )

    def __init__(self, state: State, forest: Forest, unused: Unused, now_ms: UnixMs) -> None:
        self._state = state
        self._forest = forest
        self._unused = unused
        self._now_ms = now_ms
        self._left = Unused(state, forest)
        """The unused quota that remains after those ahead in the current group of the pass."""
        self._at = ""
        self._heads: dict[Sleeper, Workload | None] = {}
        self._members: dict[Sleeper, Iterator[WorkloadKey]] = {}
        """The workloads of a sleeping shape that the pass has not reached."""
        self._line: list[tuple[bool, str, Place, Sleeper]] = []
        """A heap of the sleepers that the pass has not reached."""
        self._places: dict[Sleeper, Place] = {}
        self._offers: list[_Offered] = []
        """
        Its offered heads, in the order in which cycles decide them; `_next` is the first that the pass has not reached.
        """
        self._next = 0
        self._preempts: dict[str, None] = {}
        """ClusterQueues in which a workload ahead may have to preempt."""
        self._first: dict[str, list[Workload]] | None = None
        """By cohort tree, the preemptors that do not sleep or are woken in this pass."""
        self._blocked: dict[str, Rank | None] = {}
        """The rank that no workload behind it may pass, of the ClusterQueues that the pass has reached."""

    def group_of(self, cluster_queue: str) -> str:
        """
        See `WakePass`.

        With fair sharing sleepers wait for others of their ClusterQueue, and for preemptors of their cohort tree.
        """
        tree = tree_of(cluster_queue, self._state)
        return tree if self._first_in(tree) else self._group_of(cluster_queue)

    def _group_of(self, cluster_queue: str) -> str:
        """The scope in which cycles decide in order: the cohort tree, or with fair sharing the ClusterQueue."""
        is_fair = self._state.configuration.fair_sharing is not None
        return cluster_queue if is_fair else tree_of(cluster_queue, self._state)

    def came_true(self, wakes: tuple[Wake, ...], since: Seq, workload: Workload) -> Woken | None:
        """See `WakePass`."""
        return self._came_true(wakes, since, workload.cluster_queue, workload)

    def sleeper_came_true(self, sleeper: Sleeper, parked: Parked) -> Woken | None:
        """See `WakePass`."""
        return self._came_true(parked.wake, parked.decided_at, sleeper.cluster_queue, self.first(sleeper))

    def _came_true(
        self, wakes: tuple[Wake, ...], since: Seq, cluster_queue: str, workload: Workload | None
    ) -> Woken | None:
        return came_true(wakes, cluster_queue, since, self._state, self._now_ms, self._unused, workload)

    def in_order(self, due: Iterable[Sleeper]) -> Iterator[Sleeper]:
        """
        Preemptors first, then group by group, in the order in which cycles decide them.

        Sleepers whose workload is gone come before all others. One that is queued again is reached in the same pass.
        """
        lines: dict[str, list[tuple[Rank, Sleeper, Workload]]] = {}
        gone: list[Sleeper] = []
        for sleeper in due:
            workload = self.first(sleeper)
            if workload is None:
                gone.append(sleeper)
            else:
                line = lines.setdefault(sleeper.cluster_queue, [])
                line.append((self._rank(workload), sleeper, workload))
        for cluster_queue, line in lines.items():
            with about("ClusterQueue", cluster_queue):
                group, on_offer = self._group_of(cluster_queue), sorted(self._ranks_on_offer(cluster_queue))
            ahead = 0
            for nth, (rank, sleeper, workload) in enumerate(sorted(line, key=lambda each: (each[0], each[1]))):
                while ahead < len(on_offer) and on_offer[ahead] < rank:
                    ahead += 1
                place = self._place(nth + ahead, cluster_queue, workload, self._needs_of(sleeper))
                self._places[sleeper] = place
                self._line.append((not _has_preempted(sleeper, workload), group, place, sleeper))
        heapq.heapify(self._line)
        yield from sorted(gone)
        while self._line:
            yield heapq.heappop(self._line)[-1]

    def next_of(self, sleeper: Sleeper, woken: Woken) -> Workload | None:
        """See `WakePass`. If quota suffices for it, the workload behind it becomes the shape's first."""
        workload = self.first(sleeper)
        if workload is not None and not woken.preempts:
            self._stand_again(sleeper)
        return workload

    def _stand_again(self, sleeper: Sleeper) -> None:
        """Its first workload has woken alone: the next of its shape, if any, comes one round of cycles later."""
        _, nth, *_ = self._places[sleeper]
        workload = self._heads[sleeper] = self._next_of(sleeper)
        if workload is None:
            return
        cluster_queue, needs = sleeper.cluster_queue, self._needs_of(sleeper)
        if nth + 1 >= OFFER_DEPTH:
            self._keep(sleeper, needs)
            return
        left = self._left if self._reclaims(cluster_queue) else None
        place = self._places[sleeper] = self._place(nth + 1, cluster_queue, workload, needs, left)
        heapq.heappush(self._line, (True, self._group_of(cluster_queue), place, sleeper))

    def _keep(self, sleeper: Sleeper, needs: Needs) -> None:
        """
        Reserve unused quota for the other workloads of a shape that would not borrow, before they are offered.

        A workload that borrowed it meanwhile would be preempted as soon as they are offered.
        """
        cluster_queue = sleeper.cluster_queue
        if not needs or not self._reclaims(cluster_queue):
            return
        while self._left.level(cluster_queue, needs) == 0 and self._left.take(cluster_queue, needs):
            if self._next_of(sleeper) is None:
                return

    def may_wake(self, sleeper: Sleeper, woken: Woken) -> bool:
        """Whether enough is free after those ahead of it. If so, its demand is subtracted for those behind it."""
        place, workload = self._places.get(sleeper), self.first(sleeper)
        return place is None or workload is None or self._may_wake(sleeper, workload, place, woken)

    def may_go_on(self, workload: Workload, woken: Woken) -> bool:
        """The same for a workload that a cycle has just skipped: it may be retried instead of being set aside."""
        verdict, cluster_queue = workload.verdict, workload.cluster_queue
        assert verdict is not None, f"{workload.key} was skipped without a verdict"
        rank = self._rank(workload)
        ahead = sum(each < rank for each in self._ranks_on_offer(cluster_queue))
        sleeper = Sleeper(cluster_queue, shape=workload.shape if verdict.scope == "shape" else Shape(""))
        place = self._place(ahead, cluster_queue, workload, verdict.needs)
        return self._may_wake(sleeper, workload, place, woken)

    def _may_wake(self, sleeper: Sleeper, workload: Workload, place: Place, woken: Woken) -> bool:
        cluster_queue = sleeper.cluster_queue
        first = self._first_in(tree_of(cluster_queue, self._state))
        if _has_preempted(sleeper, workload):
            first.append(workload)
            self._blocked[cluster_queue] = None
            return True
        group = self._group_of(cluster_queue)
        if group != self._at:
            self._begin(group, cluster_queue, first)
        rank, blocked = self._rank(workload), self._blocked_in(cluster_queue)
        if sleeper.shape and blocked is not None and rank >= blocked:
            return False
        if first and not (woken.needs and self._left.enough(cluster_queue, woken.needs)):
            return False
        if woken.needs and not self._is_next(cluster_queue, place, rank, woken):
            return False
        if not sleeper.shape:
            self._blocked[cluster_queue] = None
        return True

    def first(self, sleeper: Sleeper) -> Workload | None:
        """The first workload that would wake; None when there is none."""
        if sleeper not in self._heads:
            self._heads[sleeper] = self._look_up(sleeper)
        return self._heads[sleeper]

    def _look_up(self, sleeper: Sleeper) -> Workload | None:
        if sleeper.shape:
            return self._next_of(sleeper)
        sleep = self._state.sleeps.get(sleeper.cluster_queue)
        key = sleeper.workload or (sleep.blocked_by if sleep is not None else WorkloadKey(""))
        return self._state.workloads.get(key)

    def _next_of(self, sleeper: Sleeper) -> Workload | None:
        members = self._members.get(sleeper)
        if members is None:
            pending = self._state.index.pending.get(sleeper.cluster_queue)
            members = self._members[sleeper] = pending.members(sleeper.shape) if pending is not None else iter(())
        return self._state.workloads.get(next(members, WorkloadKey("")))

    # --- those ahead -----------------------------------------------------------------------------------------------

    def _first_in(self, tree: str) -> list[Workload]:
        """The preemptors in a cohort tree that do not sleep."""
        if self._first is None:
            self._first = {}
            for cluster_queue, key in sorted(self._state.index.preemptors.items()):
                workload = self._state.workloads[key]
                if workload.stage is not Stage.QUEUED:
                    self._first.setdefault(tree_of(cluster_queue, self._state), []).append(workload)
        return self._first.setdefault(tree, [])

    def _begin(self, group: str, cluster_queue: str, first: Iterable[Workload]) -> None:
        self._left.give_back()
        for workload in first:
            if workload.verdict is not None:
                with about("Workload", workload.key):
                    self._left.take(workload.cluster_queue, workload.verdict.needs)
        self._at, self._next = group, 0
        members: Iterable[str] = (cluster_queue,)
        if group != cluster_queue and not self._forest.has_cycle(group):
            members = self._forest.tree(group).cluster_queues
        self._offers = sorted(each for name in members for each in self._on_offer(name))

    def _is_next(self, cluster_queue: str, place: Place, rank: Rank, woken: Woken) -> bool:
        while self._next < len(self._offers) and self._offers[self._next].place < place:
            offered = self._offers[self._next]
            self._next += 1
            if offered.cluster_queue != cluster_queue or offered.rank < rank:
                self._try(offered.cluster_queue, offered.needs)
        if self._left.take(cluster_queue, woken.needs):
            return True
        if not woken.preempts or cluster_queue in self._preempts:
            return False
        self._preempts[cluster_queue] = None
        return True

    def _try(self, cluster_queue: str, needs: Needs) -> None:
        """A head that is decided earlier takes what it needs, or will look for others to preempt."""
        if not self._left.take(cluster_queue, needs):
            self._preempts[cluster_queue] = None

    def _on_offer(self, cluster_queue: str) -> list[_Offered]:
        heads: list[tuple[Rank, Workload, Needs]] = []
        for key in self._state.index.offered.get(cluster_queue, ()):
            with about("Workload", key):
                workload = self._state.workloads[key]
                needs = self._needed_by(workload)
                if needs and not workload.preemptor:
                    heads.append((rank_of(self._state, workload), workload, needs))
        heads.sort(key=lambda head: head[0])
        found: list[_Offered] = []
        for nth, (rank, workload, needs) in enumerate(heads):
            place = self._place(nth, cluster_queue, workload, needs)
            found.append(_Offered(place, cluster_queue, rank, needs))
        return found

    def _needed_by(self, workload: Workload) -> Needs:
        """The needs of its last verdict, or of the verdict on its shape, which sleeps while it is offered alone."""
        if workload.verdict is not None:
            return workload.verdict.needs
        return self._needs_of(Sleeper(workload.cluster_queue, shape=workload.shape))

    def _ranks_on_offer(self, cluster_queue: str) -> list[Rank]:
        offered = self._state.index.offered.get(cluster_queue, ())
        return [self._rank(self._state.workloads[key]) for key in offered]

    def _rank(self, workload: Workload) -> Rank:
        with about("Workload", workload.key):
            return rank_of(self._state, workload)

    def _blocked_in(self, cluster_queue: str) -> Rank | None:
        if cluster_queue not in self._blocked:
            pending = self._state.index.pending.get(cluster_queue)
            self._blocked[cluster_queue] = pending.blocked if pending is not None else None
        return self._blocked[cluster_queue]

    def _place(
        self, nth: int, cluster_queue: str, workload: Workload, needs: Needs, unused: Unused | None = None
    ) -> Place:
        with about("Workload", workload.key):
            level = (self._unused if unused is None else unused).level(cluster_queue, needs)
            lent = level > 0 or not self._reclaims(cluster_queue)
        return (
            lent,
            nth,
            level,
            -workload.priority,
            workload.queued_at_ms,
            workload.arrival,
            workload.uid,
            workload.key,
        )

    def _reclaims(self, cluster_queue: str) -> bool:
        """Whether a ClusterQueue reclaims lent quota by preemption, and such preemptions are to be avoided."""
        queue = self._state.cluster_queues.get(cluster_queue)
        avoided = self._state.configuration.preemption_waits
        return avoided and queue is not None and queue.spec.preemption.reclaim_within_cohort != "Never"

    def _needs_of(self, sleeper: Sleeper) -> Needs:
        sleep = self._state.sleeps.get(sleeper.cluster_queue)
        parked = None
        if sleep is not None and not sleeper.workload:
            parked = sleep.shapes.get(sleeper.shape) if sleeper.shape else sleep.blocked
        wakes = parked.wake if parked is not None else ()
        return next((wake.needs for wake in wakes if isinstance(wake, QuotaFreed)), ())


def _has_preempted(sleeper: Sleeper, workload: Workload) -> bool:
    """Whether it waits for its preemption victims to leave, and its whole ClusterQueue with it."""
    return workload.preemptor and not sleeper.shape
