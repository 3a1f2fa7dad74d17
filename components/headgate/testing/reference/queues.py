"""
Kueue's pending queues, by Kueue's own rules (pkg/cache/queue of Kueue 0.19).

Each ClusterQueue has a heap of the workloads to try, those set aside as inadmissible until something changes, the one
that is in flight while a cycle decides it, the equivalence classes that were set aside as a whole, and the record of
its preemptor, which in BestEffortFIFO stays at the head until it is admitted or gone. The driver
(`rhythm`) calls what Kueue's queue manager and controllers would call; whether a backoff is over or
a namespace matches is its to know.

The queues hold keys and ranks; the workloads are in the state.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from sortedcontainers import SortedList

from headgate.core.cycle import FAILED_AFTER_NOMINATION, NAMESPACE_MISMATCH, NO_CANDIDATES, NO_FIT, PREEMPTS
from headgate.events.ids import Shape, UnixMs, WorkloadKey

IMMEDIATE: Final = PREEMPTS | {FAILED_AFTER_NOMINATION, "PreemptionFailed"}
"""Requeue reasons after which a workload of a BestEffortFIFO ClusterQueue goes straight back to the heap."""
PENDING_EVALUATION: Final = "PendingEvaluation"

Rank = tuple[int, UnixMs, str, WorkloadKey]
"""Negated effective priority, queue-order timestamp, uid, key: a unique order, first comes first."""


class Waiting(msgspec.Struct, frozen=True):
    """A workload in a queue. Without the gate SchedulingEquivalenceHashing `shape` is "": it equals no other."""

    key: WorkloadKey
    rank: Rank
    shape: Shape = Shape("")


class PreemptingHead(msgspec.Struct, frozen=True):
    """The workload that preempts for a ClusterQueue; `sticky`: it is its head until it is admitted or gone."""

    key: WorkloadKey
    sticky: bool


Usage = Callable[[WorkloadKey], float]
"""The usage of a workload's LocalQueue that ranks before everything in admission fair sharing."""


class QueueOfOne:
    """The pending queue of one ClusterQueue."""

    def __init__(self, *, best_effort: bool, usage: Usage | None = None) -> None:
        self.best_effort = best_effort
        self.inadmissible: dict[WorkloadKey, Waiting] = {}
        self.bulk_moved: dict[Shape, str] = {}
        """Equivalence class -> why it was set aside as a whole."""
        self.preemptor: PreemptingHead | None = None
        self.in_flight: Waiting | None = None
        self._heap: dict[WorkloadKey, Waiting] = {}
        self._order: SortedList[Rank] = SortedList()
        self._usage = usage
        self._pop_cycle = 0
        self._inadmissible_cycle = -1

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, key: WorkloadKey) -> bool:
        return key in self._heap or key in self.inadmissible

    # --- in and out ------------------------------------------------------------------------------------------------

    def push(self, waiting: Waiting, *, may_be_tried: bool) -> None:
        """
        A workload that has become admissible, or has changed (PushOrUpdate).

        `may_be_tried`: its backoff is over. One in flight is left to its cycle.
        """
        if self.in_flight is not None and self.in_flight.key == waiting.key:
            return
        self.inadmissible.pop(waiting.key, None)
        in_heap = waiting.key in self._heap
        if not in_heap and (not may_be_tried or self._is_bulk_moved(waiting)):
            self.inadmissible[waiting.key] = waiting
            return
        self._into_heap(waiting)

    def pop(self) -> Waiting | None:
        """The head, in flight from now on."""
        self._pop_cycle += 1
        head = self.head()
        self.in_flight = head
        if head is not None:
            self._out_of_heap(head.key)
        return head

    def requeue(
        self, waiting: Waiting, reason: str, condition_reason: str, *, untried_flavors: bool, may_be_tried: bool
    ) -> list[WorkloadKey]:
        """
        A head that a cycle did not admit (RequeueIfNotPresent). The workloads of its class set aside with it.

        `condition_reason` is the reason of its condition; its class is kept with it. `untried_flavors`: its scan over
        flavors stopped before the last.
        """
        if reason in PREEMPTS:
            self.preemptor = PreemptingHead(waiting.key, self.best_effort)
        self._forget_in_flight(waiting.key)
        immediate = reason in IMMEDIATE if self.best_effort else reason != NAMESPACE_MISMATCH
        if may_be_tried and (immediate or self._inadmissible_cycle >= self._pop_cycle or untried_flavors):
            self.inadmissible.pop(waiting.key, None)
            self._into_heap(waiting)
            return []
        if waiting.key in self:
            return []
        self.inadmissible[waiting.key] = waiting
        if not self.best_effort or not waiting.shape or reason not in (NO_FIT, NO_CANDIDATES):
            return []
        self.bulk_moved[waiting.shape] = condition_reason or PENDING_EVALUATION
        alike = [key for key, each in self._heap.items() if each.shape == waiting.shape]
        for key in alike:
            self.inadmissible[key] = self._out_of_heap(key)
        return alike

    def delete(self, key: WorkloadKey) -> None:
        """A workload that was admitted, deactivated or deleted."""
        self.inadmissible.pop(key, None)
        if key in self._heap:
            self._out_of_heap(key)
        self._forget_in_flight(key)
        if self.preemptor is not None and self.preemptor.key == key:
            self.preemptor = None

    def retry(self, may_move: Callable[[WorkloadKey], bool]) -> list[WorkloadKey]:
        """Move workloads that may be tried back to the heap, and open all classes, after a change. Those moved."""
        self._inadmissible_cycle = self._pop_cycle
        self.bulk_moved.clear()
        moved = [key for key in self.inadmissible if may_move(key)]
        for key in moved:
            self._into_heap(self.inadmissible.pop(key))
        return moved

    # --- questions -------------------------------------------------------------------------------------------------

    def bulk_reason(self, key: WorkloadKey) -> str | None:
        """Why the class of an inadmissible workload was set aside; None when it was not (GetNoFitReason)."""
        waiting = self.inadmissible.get(key)
        return None if waiting is None else self.bulk_moved.get(waiting.shape)

    def active_in_order(self) -> list[WorkloadKey]:
        """The heap, first to try first."""
        if self._usage is not None:
            return self._in_order(self._heap.values())
        keys = [rank[-1] for rank in self._order]
        sticky = self._sticky
        if sticky is not None and sticky in self._heap:
            keys.remove(sticky)
            keys.insert(0, sticky)
        return keys

    def inadmissible_in_order(self) -> list[WorkloadKey]:
        """What is set aside, in queue order."""
        return self._in_order(self.inadmissible.values())

    # --- order -----------------------------------------------------------------------------------------------------

    def _in_order(self, waiting: Iterable[Waiting]) -> list[WorkloadKey]:
        return [each.key for each in sorted(waiting, key=self._rank)]

    def _rank(self, waiting: Waiting) -> tuple[float, bool, Rank]:
        usage = 0.0 if self._usage is None else self._usage(waiting.key)
        return (usage, waiting.key != self._sticky, waiting.rank)

    @property
    def _sticky(self) -> WorkloadKey | None:
        return self.preemptor.key if self.preemptor is not None and self.preemptor.sticky else None

    def head(self) -> Waiting | None:
        """The workload that `pop` would return."""
        if not self._heap:
            return None
        if self._usage is not None:
            return min(self._heap.values(), key=self._rank)
        sticky = self._sticky
        if sticky is not None and sticky in self._heap:
            return self._heap[sticky]
        return self._heap[self._order[0][-1]]

    def _is_bulk_moved(self, waiting: Waiting) -> bool:
        return self.best_effort and bool(waiting.shape) and waiting.shape in self.bulk_moved

    def _into_heap(self, waiting: Waiting) -> None:
        if waiting.key in self._heap:
            self._out_of_heap(waiting.key)
        self._heap[waiting.key] = waiting
        self._order.add(waiting.rank)

    def _out_of_heap(self, key: WorkloadKey) -> Waiting:
        waiting = self._heap.pop(key)
        self._order.remove(waiting.rank)
        return waiting

    def _forget_in_flight(self, key: WorkloadKey) -> None:
        if self.in_flight is not None and self.in_flight.key == key:
            self.in_flight = None
