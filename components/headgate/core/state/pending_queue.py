"""
The pending queue of one ClusterQueue: the queue order, by shapes that may sleep.

Workloads of one shape get the same verdict: what does not fit for one fits for none (Kueue's scheduling equivalence
hashing, KEP-9694). So the queue is a queue of shapes, each with its members in order, and putting a thousand workloads
to sleep or waking them costs the same as one: O(log shapes).

A workload that is offered to the scheduler, or was skipped by it, is not in the queue; but most return to their former
place. So it only steps out of its place and back into it (O(1)), and the order changes only with real insertions and
removals.

It is an index of the state: the fold pushes and removes, the queue manager looks ahead, the read side counts places.

Order (Kueue, `kueue-semantics` section 2): less usage of its LocalQueue where that counts
(`headgate.core.quota.usage_order`), higher priority, earlier queue-order timestamp, earlier arrival, lower uid.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from sortedcontainers import SortedList

from headgate.events.ids import Shape, UnixMs, WorkloadKey

Rank = tuple[float, int, UnixMs, int, str, WorkloadKey]
"""
(usage of its LocalQueue, -priority, queue-order timestamp, arrival, uid, key): smaller is nearer to the head.

Unique, since keys are. The usage is 0 except in ClusterQueues that order by it.
"""


class PendingQueue:
    """
    The QUEUED workloads of one ClusterQueue by shape. `blocked` is the rank that nothing behind it may pass.

    Those that have stepped out keep a place, and are in no answer: not in the length, nor ahead, nor a shape's members.
    """

    __slots__ = ("_asleep", "_awake", "_out", "_ranks", "_shapes", "blocked")

    def __init__(self) -> None:
        self._ranks: dict[WorkloadKey, tuple[Rank, Shape]] = {}
        self._shapes: dict[Shape, SortedList[Rank]] = {}
        self._out: dict[WorkloadKey, None] = {}
        self._awake: list[tuple[Rank, Shape]] = []  # sorted; each with its first place, in or out
        self._asleep: dict[Shape, None] = {}
        self.blocked: Rank | None = None

    def __len__(self) -> int:
        return len(self._ranks) - len(self._out)

    def __contains__(self, key: WorkloadKey) -> bool:
        return key in self._ranks and key not in self._out

    def push(self, key: WorkloadKey, rank: Rank, shape: Shape) -> None:
        """Put a workload at its place. Joins its shape, awake or asleep."""
        assert key not in self._ranks, f"{key} is in the pending queue already"
        self._ranks[key] = (rank, shape)
        members = self._shapes.get(shape)
        if members is None:
            members = self._shapes[shape] = SortedList()
        first = members[0] if members else None
        members.add(rank)
        if shape not in self._asleep and (first is None or rank < first):
            if first is not None:
                self._unlist(first, shape)
            insort(self._awake, (rank, shape))

    def step_out(self, key: WorkloadKey) -> None:
        """Let a workload leave the queue temporarily and keep its place."""
        assert key in self._ranks, f"{key} is not in the pending queue"
        assert key not in self._out, f"{key} is not in the pending queue"
        self._out[key] = None

    def step_back(self, key: WorkloadKey) -> None:
        """Return a workload that has stepped out to its place. Raises KeyError."""
        del self._out[key]

    def remove(self, key: WorkloadKey) -> bool:
        """Remove a workload and its place. False when it had none."""
        entry = self._ranks.pop(key, None)
        if entry is None:
            return False
        rank, shape = entry
        self._out.pop(key, None)
        members = self._shapes[shape]
        was_first = members[0] == rank
        members.remove(rank)
        if was_first and shape not in self._asleep:
            self._unlist(rank, shape)
            if members:
                insort(self._awake, (members[0], shape))
        if not members:
            del self._shapes[shape]
        return True

    def sleep(self, shape: Shape) -> None:
        """Let a shape, and later members, sleep. Nothing changes when it sleeps already."""
        if shape in self._asleep:
            return
        members = self._shapes.get(shape)
        if members:
            self._unlist(members[0], shape)
        self._asleep[shape] = None

    def _unlist(self, first: Rank, shape: Shape) -> None:
        place = bisect_left(self._awake, (first, shape))
        assert self._awake[place][1] == shape, f"shape {shape} does not stand awake at {first}"
        del self._awake[place]

    def wake(self, shape: Shape) -> None:
        """Return a shape to the queue. Nothing changes when it is awake."""
        if shape not in self._asleep:
            return
        del self._asleep[shape]
        members = self._shapes.get(shape)
        if members:
            insort(self._awake, (members[0], shape))

    def is_asleep(self, shape: Shape) -> bool:
        """Whether a shape sleeps."""
        return shape in self._asleep

    def asleep_before(self, key: WorkloadKey) -> Iterator[Shape]:
        """The sleeping shapes with a workload before one that has a place in the queue. Raises KeyError."""
        rank = self.rank_of(key)
        return (shape for shape in self._asleep if next(self.member_ranks(shape), rank) < rank)

    def members(self, shape: Shape) -> Iterator[WorkloadKey]:
        """The workloads of a shape, in order."""
        return (rank[-1] for rank in self.member_ranks(shape))

    def member_ranks(self, shape: Shape) -> Iterator[Rank]:
        """The ranks of `members()`."""
        return (rank for rank in self._shapes.get(shape, ()) if rank[-1] not in self._out)

    def has_members(self, shape: Shape) -> bool:
        """Whether a workload of a shape is in the queue."""
        return next(self.members(shape), None) is not None

    def ahead(self) -> Iterator[WorkloadKey]:
        """
        The workloads that may be offered, best first: awake, and not behind a blocked head.

        Lazy: the first n cost O(n log shapes), and as much for each stepped-out workload between them.
        """
        return (rank[-1] for rank in self.ranks_ahead())

    def ranks_ahead(self, also: Iterable[Shape] = (), *, unblocked: bool = False) -> Iterator[Rank]:
        """
        The ranks of `ahead()`, as if the sleeping shapes `also` were awake and, with `unblocked`, no head blocked.

        So a caller that is about to wake them sees the resulting queue.
        """
        heap: list[tuple[Rank, int, Shape, int]] = []
        if self._awake:
            heap.append((self._awake[0][0], 0, self._awake[0][1], 0))
        for shape in also:
            members = self._shapes.get(shape)
            if members and shape in self._asleep:
                heap.append((members[0], len(self._awake), shape, 0))
        heapq.heapify(heap)
        blocked = None if unblocked else self.blocked
        while heap:
            rank, nth_shape, shape, nth = heapq.heappop(heap)
            if blocked is not None and rank >= blocked:
                return
            if rank[-1] not in self._out:
                yield rank
            members = self._shapes[shape]
            if nth + 1 < len(members):
                heapq.heappush(heap, (members[nth + 1], nth_shape, shape, nth + 1))
            if nth == 0 and nth_shape + 1 < len(self._awake):
                next_rank, next_shape = self._awake[nth_shape + 1]
                heapq.heappush(heap, (next_rank, nth_shape + 1, next_shape, 0))

    def first(self) -> Rank | None:
        """The rank of the next workload, None when none may be offered."""
        return next(self.ranks_ahead(), None)

    def rank_of(self, key: WorkloadKey) -> Rank:
        """The rank of a workload that has a place in the queue. Raises KeyError."""
        return self._ranks[key][0]

    def in_order(self) -> list[tuple[WorkloadKey, bool]]:
        """Every workload in queue order, with whether its shape is awake."""
        return [(rank[-1], shape not in self._asleep) for rank, shape in self.ordered()]

    def ordered(self) -> list[tuple[Rank, Shape]]:
        """Every workload's rank and shape, in queue order."""
        return sorted((rank, shape) for rank, shape in self._ranks.values() if rank[-1] not in self._out)

    def places(self) -> Iterator[tuple[Rank, Shape, bool]]:
        """All workloads that have a place, in no order: rank, shape, and whether they have stepped out of it."""
        return ((rank, shape, key in self._out) for key, (rank, shape) in self._ranks.items())

    def shapes_asleep(self) -> tuple[Shape, ...]:
        """The shapes that sleep, with members or without, in no order."""
        return tuple(self._asleep)

    def count_asleep(self) -> int:
        """How many workloads belong to a sleeping shape."""
        placed = sum(len(self._shapes[shape]) for shape in self._asleep if shape in self._shapes)
        return placed - sum(self._ranks[key][1] in self._asleep for key in self._out)
