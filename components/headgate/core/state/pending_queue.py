"""
The pending queue of one ClusterQueue: the queue order, by shapes that may sleep.

Workloads of one shape get the same verdict: what does not fit for one fits for none (Kueue's scheduling equivalence
hashing, KEP-9694). So the queue is a queue of shapes, each with its members in order, and putting a thousand workloads
to sleep or waking them costs the same as one: O(log shapes).

A workload that is offered to the scheduler, or was skipped by it, is not in the queue; but most return to their former
place. So it only steps out of its place and back into it (O(1)), and the order changes only with real insertions and
removals.

It is an index of the state: the fold pushes and removes, the queue manager looks ahead, the read side counts places.
The order itself takes most of its memory, and is kept only where it is asked for: by the queue manager.

Order (Kueue, `kueue-semantics` section 2): less usage of its LocalQueue where that counts
(`headgate.core.quota.usage_order`), higher priority, earlier queue-order timestamp, earlier arrival, lower uid.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from sortedcontainers import SortedList

from headgate.events.ids import Shape, UnixMs, WorkloadKey

Rank = tuple[float, int, UnixMs, int, str, WorkloadKey]
"""
(usage of its LocalQueue, -priority, queue-order timestamp, arrival, uid, key): smaller is nearer to the head.

Unique, since keys are. The usage is 0 except in ClusterQueues that order by it.
"""


LINE_MAX = 512
"""Up to so many workloads of one shape are a plain list, which takes a tenth of the memory of a SortedList."""

Line: TypeAlias = "list[Rank] | SortedList[Rank]"


class _Order:
    """The order of a pending queue: the ranks, and each shape's members in order."""

    __slots__ = ("awake", "lines", "ranks")

    def __init__(self) -> None:
        self.ranks: dict[WorkloadKey, Rank] = {}
        self.lines: dict[Shape, Line] = {}
        self.awake: list[tuple[Rank, Shape]] = []  # sorted; each with its first place, in or out

    def add(self, rank: Rank, shape: Shape, *, asleep: bool) -> None:
        """Put a workload at its place."""
        self.ranks[rank[-1]] = rank
        line = self.lines.get(shape)
        if line is None:
            line = self.lines[shape] = []
        first = line[0] if line else None
        if not isinstance(line, list):
            line.add(rank)
        elif len(line) < LINE_MAX:
            insort(line, rank)
        else:
            line = self.lines[shape] = SortedList(line)
            line.add(rank)
        if not asleep and (first is None or rank < first):
            if first is not None:
                self.unlist(first, shape)
            insort(self.awake, (rank, shape))

    def discard(self, key: WorkloadKey, shape: Shape, *, asleep: bool) -> None:
        """Take a workload from its place."""
        rank = self.ranks.pop(key)
        line = self.lines[shape]
        was_first = line[0] == rank
        if isinstance(line, list):
            place = bisect_left(line, rank)
            assert line[place] == rank, f"{key} is not among its shape"
            del line[place]
        else:
            line.remove(rank)
        if was_first and not asleep:
            self.unlist(rank, shape)
            if line:
                insort(self.awake, (line[0], shape))
        if not line:
            del self.lines[shape]

    def unlist(self, first: Rank, shape: Shape) -> None:
        """A shape no longer stands awake at its first member's place."""
        place = bisect_left(self.awake, (first, shape))
        assert self.awake[place][1] == shape, f"shape {shape} does not stand awake at {first}"
        del self.awake[place]


class PendingQueue:
    """
    The QUEUED workloads of one ClusterQueue by shape. `blocked` is the rank that nothing behind it may pass.

    Those that have stepped out keep a place, and are in no answer: not in the length, nor ahead, nor a shape's members.

    `rank` gives the rank of a workload, the same as long as it has a place. It is asked from the first question about
    the order on: most processes only count.
    """

    __slots__ = ("_asleep", "_counts", "_order", "_out", "_rank", "_shapes", "blocked")

    def __init__(self, rank: Callable[[WorkloadKey], Rank]) -> None:
        self._rank = rank
        self._shapes: dict[WorkloadKey, Shape] = {}
        self._counts: dict[Shape, int] = {}
        """How many workloads of a shape are in the queue, without those that have stepped out."""
        self._out: dict[WorkloadKey, None] = {}
        self._asleep: dict[Shape, None] = {}
        self._order: _Order | None = None
        self.blocked: Rank | None = None

    def __len__(self) -> int:
        return len(self._shapes) - len(self._out)

    def __contains__(self, key: WorkloadKey) -> bool:
        return key in self._shapes and key not in self._out

    def push(self, key: WorkloadKey, shape: Shape) -> None:
        """Put a workload at its place. Joins its shape, awake or asleep."""
        assert key not in self._shapes, f"{key} is in the pending queue already"
        self._shapes[key] = shape
        self._counts[shape] = self._counts.get(shape, 0) + 1
        if self._order is not None:
            self._order.add(self._rank(key), shape, asleep=shape in self._asleep)

    def step_out(self, key: WorkloadKey) -> None:
        """Let a workload leave the queue temporarily and keep its place."""
        assert key in self._shapes, f"{key} is not in the pending queue"
        assert key not in self._out, f"{key} is not in the pending queue"
        self._out[key] = None
        self._count_less(self._shapes[key])

    def step_back(self, key: WorkloadKey) -> None:
        """Return a workload that has stepped out to its place. Raises KeyError."""
        del self._out[key]
        shape = self._shapes[key]
        self._counts[shape] = self._counts.get(shape, 0) + 1

    def _count_less(self, shape: Shape) -> None:
        left = self._counts[shape] - 1
        if left:
            self._counts[shape] = left
        else:
            del self._counts[shape]

    def remove(self, key: WorkloadKey) -> bool:
        """Remove a workload and its place. False when it had none."""
        shape = self._shapes.pop(key, None)
        if shape is None:
            return False
        if key in self._out:
            del self._out[key]
        else:
            self._count_less(shape)
        if self._order is not None:
            self._order.discard(key, shape, asleep=shape in self._asleep)
        return True

    def sleep(self, shape: Shape) -> None:
        """Let a shape, and later members, sleep. Nothing changes when it sleeps already."""
        if shape in self._asleep:
            return
        if self._order is not None and (line := self._order.lines.get(shape)):
            self._order.unlist(line[0], shape)
        self._asleep[shape] = None

    def wake(self, shape: Shape) -> None:
        """Return a shape to the queue. Nothing changes when it is awake."""
        if shape not in self._asleep:
            return
        del self._asleep[shape]
        if self._order is not None and (line := self._order.lines.get(shape)):
            insort(self._order.awake, (line[0], shape))

    def is_asleep(self, shape: Shape) -> bool:
        """Whether a shape sleeps."""
        return shape in self._asleep

    def _ordered(self) -> _Order:
        """The order, made at the first question about it."""
        order = self._order
        if order is None:
            order = self._order = _Order()
            for rank, shape in sorted((self._rank(key), shape) for key, shape in self._shapes.items()):
                order.add(rank, shape, asleep=shape in self._asleep)
        return order

    def asleep_before(self, key: WorkloadKey) -> Iterator[Shape]:
        """The sleeping shapes with a workload before one that has a place in the queue. Raises KeyError."""
        rank = self.rank_of(key)
        return (shape for shape in self._asleep if next(self.member_ranks(shape), rank) < rank)

    def members(self, shape: Shape) -> Iterator[WorkloadKey]:
        """The workloads of a shape, in order."""
        return (rank[-1] for rank in self.member_ranks(shape))

    def member_ranks(self, shape: Shape) -> Iterator[Rank]:
        """The ranks of `members()`."""
        return (rank for rank in self._ordered().lines.get(shape, ()) if rank[-1] not in self._out)

    def has_members(self, shape: Shape) -> bool:
        """Whether a workload of a shape is in the queue."""
        return shape in self._counts

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
        order = self._ordered()
        heap: list[tuple[Rank, int, Shape, int]] = []
        if order.awake:
            heap.append((order.awake[0][0], 0, order.awake[0][1], 0))
        for shape in also:
            line = order.lines.get(shape)
            if line and shape in self._asleep:
                heap.append((line[0], len(order.awake), shape, 0))
        heapq.heapify(heap)
        blocked = None if unblocked else self.blocked
        while heap:
            rank, nth_shape, shape, nth = heapq.heappop(heap)
            if blocked is not None and rank >= blocked:
                return
            if rank[-1] not in self._out:
                yield rank
            line = order.lines[shape]
            if nth + 1 < len(line):
                heapq.heappush(heap, (line[nth + 1], nth_shape, shape, nth + 1))
            if nth == 0 and nth_shape + 1 < len(order.awake):
                next_rank, next_shape = order.awake[nth_shape + 1]
                heapq.heappush(heap, (next_rank, nth_shape + 1, next_shape, 0))

    def first(self) -> Rank | None:
        """The rank of the next workload, None when none may be offered."""
        return next(self.ranks_ahead(), None)

    def rank_of(self, key: WorkloadKey) -> Rank:
        """The rank of a workload that has a place in the queue. Raises KeyError."""
        if self._order is not None:
            return self._order.ranks[key]
        if key not in self._shapes:
            raise KeyError(key)
        return self._rank(key)

    def in_order(self) -> list[tuple[WorkloadKey, bool]]:
        """Every workload in queue order, with whether its shape is awake."""
        return [(rank[-1], shape not in self._asleep) for rank, shape in self.ordered()]

    def ordered(self) -> list[tuple[Rank, Shape]]:
        """Every workload's rank and shape, in queue order."""
        return sorted((self.rank_of(key), shape) for key, shape in self._shapes.items() if key not in self._out)

    def places(self) -> Iterator[tuple[WorkloadKey, Shape, bool]]:
        """All workloads that have a place, in no order: key, shape, and whether they have stepped out of it."""
        return ((key, shape, key in self._out) for key, shape in self._shapes.items())

    def each(self) -> Iterator[tuple[WorkloadKey, bool]]:
        """Every workload, in no order, with whether it is among those of `ahead()`. Makes no order."""
        blocked = self.blocked
        for key, shape, is_out in self.places():
            if not is_out:
                is_awake = shape not in self._asleep
                yield key, is_awake and (blocked is None or self.rank_of(key) < blocked)

    def shapes_asleep(self) -> tuple[Shape, ...]:
        """The shapes that sleep, with members or without, in no order."""
        return tuple(self._asleep)

    def count_asleep(self) -> int:
        """How many workloads belong to a sleeping shape."""
        return sum(self._counts.get(shape, 0) for shape in self._asleep)
