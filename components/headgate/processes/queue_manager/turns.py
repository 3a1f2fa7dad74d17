"""
Turns: of those that may wake, who wakes now.

When quota comes free there may be enough for each of a dozen sleeping shapes, and not for two of them. Waking all
means a vain cycle for every one but the first, each time. Within a ClusterQueue the order in which cycles come to them
is known: so whoever is behind others that are awake, and would find too little after them, waits until they are
decided. Either they take the quota, and then there is not enough for it any more; or they do not, and then its turn
has come. Who is ahead of all that is on offer never waits here, and nobody waits for another ClusterQueue.

What those ahead would take is read off the needs of their last verdicts; one without a verdict takes nothing here. So
the answer follows from the state, and is asked for again when something has happened in the ClusterQueue.
"""

from collections import deque
from collections.abc import Iterable

from headgate.core.pending import Rank
from headgate.core.places import rank_of
from headgate.core.quota import Forest
from headgate.core.state import State
from headgate.core.waking import Sleeper, Unused
from headgate.events.ids import WorkloadKey
from headgate.events.queueing import Needs


class Turns:
    """One pass over those that may wake, in the order of `in_line`. Made anew for each decision."""

    __slots__ = ("_at", "_left", "_offers", "_state")

    def __init__(self, state: State, forest: Forest) -> None:
        self._state = state
        self._left = Unused(state, forest)
        """What is left of unused quota after those ahead in the ClusterQueue that the pass has come to."""
        self._at = ""
        self._offers: deque[tuple[Rank, Needs]] = deque()
        """Its heads on offer that the pass has not come to yet, with what they need."""

    def in_line(self, due: Iterable[Sleeper]) -> list[Sleeper]:
        """ClusterQueue by ClusterQueue, in queue order; first those of which nobody is there any more."""
        ranks = {sleeper: self._rank(sleeper) for sleeper in due}
        return sorted(ranks, key=lambda sleeper: (sleeper.cluster_queue, ranks[sleeper] or (), sleeper))

    def has_come(self, sleeper: Sleeper, needs: Needs) -> bool:
        """Whether there is enough for it after those ahead of it. If so, those behind it find less."""
        cluster_queue, rank = sleeper.cluster_queue, self._rank(sleeper)
        if rank is None or not needs:
            return True
        if cluster_queue != self._at:
            self._left.give_back()
            self._at, self._offers = cluster_queue, self._on_offer(cluster_queue)
        while self._offers and self._offers[0][0] < rank:
            self._left.take(cluster_queue, self._offers.popleft()[1])
        if not self._left.enough(cluster_queue, needs):
            return False
        self._left.take(cluster_queue, needs)
        return True

    def _on_offer(self, cluster_queue: str) -> deque[tuple[Rank, Needs]]:
        offers: list[tuple[Rank, Needs]] = []
        for key in self._state.index.offered.get(cluster_queue, ()):
            workload = self._state.workloads[key]
            if workload.verdict is not None and workload.verdict.needs:
                offers.append((rank_of(workload), workload.verdict.needs))
        return deque(sorted(offers, key=lambda each: each[0]))

    def _rank(self, sleeper: Sleeper) -> Rank | None:
        """The rank of the first who would wake; None when nobody is there."""
        if sleeper.shape:
            pending = self._state.index.pending.get(sleeper.cluster_queue)
            key = next(pending.members(sleeper.shape), WorkloadKey("")) if pending is not None else WorkloadKey("")
        else:
            sleep = self._state.sleeps.get(sleeper.cluster_queue)
            key = sleeper.workload or (sleep.blocked_by if sleep is not None else WorkloadKey(""))
        workload = self._state.workloads.get(key)
        return rank_of(workload) if workload is not None else None
