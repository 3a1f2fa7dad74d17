"""
The pending queue of a ClusterQueue that orders by the usage of LocalQueues (admission fair sharing).

A LocalQueue's usage changes with each of its admissions and with time, and the rank of all its workloads with it. So
there is one line per LocalQueue, each in the usual order; which line comes first is determined on read. A change of
usage costs nothing here. Lines of equal usage count as one.

`headgate.core.fold.transitions` creates a queue of the right kind (`new_queue`); when the ClusterQueue or the
configuration changes the fold calls `renew`.
"""

import heapq
from collections.abc import Iterable, Iterator
from itertools import groupby

from headgate.core.quota.admission_fair_sharing import local_queue_usage, orders_by_usage
from headgate.core.state.pending_queue import PendingQueue, Rank
from headgate.core.state.tables import State, Workload
from headgate.events.ids import LocalQueueKey, Shape, WorkloadKey, split_key


class UsageOrderedQueue(PendingQueue):
    """A `PendingQueue` in which workloads rank by the usage of their LocalQueues first."""

    __slots__ = ("_blocked", "_line_of", "_lines", "_state")

    def __init__(self, state: State) -> None:
        self._state = state
        self._lines: dict[LocalQueueKey, PendingQueue] = {}
        self._line_of: dict[WorkloadKey, LocalQueueKey] = {}
        self._blocked: Rank | None = None
        super().__init__(lambda key: rank_in(state.workloads[key]))

    @property
    def blocked(self) -> Rank | None:
        """The rank that nothing behind it may pass, at the current usage of its LocalQueue."""
        if self._blocked is None:
            return None
        line = self._line_of.get(self._blocked[-1])
        return self._blocked if line is None else self._with(line, self._blocked)

    @blocked.setter
    def blocked(self, rank: Rank | None) -> None:
        self._blocked = rank

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    def __contains__(self, key: WorkloadKey) -> bool:
        return key in self._line_of and key in self._lines[self._line_of[key]]

    def push(self, key: WorkloadKey, shape: Shape) -> None:
        """As of `PendingQueue`."""
        assert key not in self._line_of, f"{key} is in the pending queue already"
        queue_name = self._state.workloads[key].spec.queue_name
        name = self._line_of[key] = LocalQueueKey(f"{split_key(key)[0]}/{queue_name}")
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = PendingQueue(self._rank)
            for asleep in self._asleep:
                line.sleep(asleep)
        line.push(key, shape)

    def step_out(self, key: WorkloadKey) -> None:
        """As of `PendingQueue`."""
        self._lines[self._line_of[key]].step_out(key)

    def step_back(self, key: WorkloadKey) -> None:
        """As of `PendingQueue`."""
        self._lines[self._line_of[key]].step_back(key)

    def remove(self, key: WorkloadKey) -> bool:
        """As of `PendingQueue`."""
        name = self._line_of.pop(key, None)
        if name is None:
            return False
        line = self._lines[name]
        line.remove(key)
        if not any(True for _ in line.places()):
            del self._lines[name]
        return True

    def sleep(self, shape: Shape) -> None:
        """As of `PendingQueue`."""
        self._asleep[shape] = None
        for line in self._lines.values():
            line.sleep(shape)

    def wake(self, shape: Shape) -> None:
        """As of `PendingQueue`."""
        self._asleep.pop(shape, None)
        for line in self._lines.values():
            line.wake(shape)

    def member_ranks(self, shape: Shape) -> Iterator[Rank]:
        """As of `PendingQueue`."""
        lines = [[self._with(name, rank) for rank in line.member_ranks(shape)] for name, line in self._lines.items()]
        return heapq.merge(*lines)

    def has_members(self, shape: Shape) -> bool:
        """As of `PendingQueue`."""
        return any(line.has_members(shape) for line in self._lines.values())

    def ranks_ahead(self, also: Iterable[Shape] = (), *, unblocked: bool = False) -> Iterator[Rank]:
        """As of `PendingQueue`. With n LocalQueues in line the first item costs an additional O(n log n)."""
        awake = tuple(also)
        blocked = None if unblocked else self.blocked
        by_usage = sorted((local_queue_usage(self._state, name), name) for name in self._lines)
        for usage, group in groupby(by_usage, key=lambda each: each[0]):
            for rank in heapq.merge(*(self._lines[name].ranks_ahead(awake) for _, name in group)):
                ranked = (usage, *rank[1:])
                if blocked is not None and ranked >= blocked:
                    return
                yield ranked

    def rank_of(self, key: WorkloadKey) -> Rank:
        """As of `PendingQueue`."""
        name = self._line_of[key]
        return self._with(name, self._lines[name].rank_of(key))

    def ordered(self) -> list[tuple[Rank, Shape]]:
        """As of `PendingQueue`."""
        return sorted(
            (self._with(name, rank), shape) for name, line in self._lines.items() for rank, shape in line.ordered()
        )

    def places(self) -> Iterator[tuple[WorkloadKey, Shape, bool]]:
        """As of `PendingQueue`."""
        return (place for line in self._lines.values() for place in line.places())

    def count_asleep(self) -> int:
        """As of `PendingQueue`."""
        return sum(line.count_asleep() for line in self._lines.values())

    def _with(self, line: LocalQueueKey, rank: Rank) -> Rank:
        return (local_queue_usage(self._state, line), *rank[1:])


_FIRST = -(1 << 62)
"""Smaller than every priority."""


def rank_in(workload: Workload) -> Rank:
    """
    A workload's rank among those of equal usage: higher priority, earlier queue-order timestamp, arrival, then uid.

    A sticky preemptor comes before all of them: what was freed for it must not go to others of its queue (Kueue #6929).
    """
    priority = _FIRST if workload.sticky else -workload.priority
    return (0.0, priority, workload.queued_at_ms, workload.arrival, workload.uid, workload.key)


def new_queue(state: State, cluster_queue: str) -> PendingQueue:
    """An empty pending queue for a ClusterQueue, of the kind that its order requires."""
    if orders_by_usage(state, cluster_queue):
        return UsageOrderedQueue(state)
    return PendingQueue(lambda key: rank_in(state.workloads[key]))


def renew(state: State, cluster_queue: str) -> None:
    """Replace the queue of a ClusterQueue whose kind of order has changed; all its workloads are kept."""
    old = state.index.pending.get(cluster_queue)
    if old is None or isinstance(old, UsageOrderedQueue) == orders_by_usage(state, cluster_queue):
        return
    new = state.index.pending[cluster_queue] = new_queue(state, cluster_queue)
    for key, shape, is_out in old.places():
        new.push(key, shape)
        if is_out:
            new.step_out(key)
    for shape in old.shapes_asleep():
        new.sleep(shape)
    blocked = old.blocked
    new.blocked = None if blocked is None else (0.0, *blocked[1:])
