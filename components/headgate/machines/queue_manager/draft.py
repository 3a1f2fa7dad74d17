"""
The draft: the events of the commit in progress, and the pending queues as they will be once it is folded.

The queue manager offers, in the same commit, workloads that it queues or wakes in it. The state does not contain those
yet, so the draft tracks what its own events change in the pending queue of each ClusterQueue: which workloads enter and
leave, which shapes wake. It is discarded when the commit is complete.
"""

import heapq
from collections.abc import Iterator

from headgate.core.fold.transitions import rank_of, usage_in
from headgate.core.quota.admission_fair_sharing import orders_by_usage
from headgate.core.state.pending_queue import PendingQueue, Rank
from headgate.core.state.tables import Stage, State, Workload
from headgate.events.ids import Shape, WorkloadKey
from headgate.events.queueing import (
    QueueEvent,
    WorkloadEvicted,
    WorkloadFinished,
    WorkloadParked,
    WorkloadQueued,
    WorkloadWoken,
)

_NO_RANKS: dict[WorkloadKey, Rank] = {}
_NOBODY = PendingQueue(_NO_RANKS.__getitem__)


class Draft:
    """Events in the order in which they will be folded. Reads the state that they are decided on."""

    __slots__ = ("_alone", "_awake", "_entering", "_leaving", "_state", "_unblocked", "events")

    def __init__(self, state: State) -> None:
        self.events: list[QueueEvent] = []
        self._state = state
        self._entering: dict[str, dict[WorkloadKey, tuple[Rank, Shape]]] = {}
        self._leaving: dict[WorkloadKey, None] = {}
        self._awake: dict[str, dict[Shape, None]] = {}
        self._unblocked: dict[str, None] = {}
        self._alone: dict[str, dict[Rank, Shape]] = {}
        """
        The workloads that may be offered while their shape sleeps, by this shape; no shape if the workload itself is
        meant.
        """

    def __len__(self) -> int:
        return len(self.events)

    def say(self, event: QueueEvent) -> None:
        """Add an event and its changes to the pending queue of its ClusterQueue."""
        self.events.append(event)
        match event:
            case WorkloadQueued():
                workload = self._state.workloads[event.workload]
                usage = usage_in(self._state, event.cluster_queue, workload)
                rank = (usage, -event.priority, event.queued_at_ms, workload.arrival, event.uid, event.workload)
                self._entering.setdefault(event.cluster_queue, {})[event.workload] = rank, event.shape
            case WorkloadEvicted() | WorkloadFinished():
                self._leaving[event.workload] = None
            case WorkloadParked():
                if event.scope == "workload":
                    self._leaving[event.workload] = None
            case WorkloadWoken():
                self._wake(event)
            case _:
                pass

    def _wake(self, event: WorkloadWoken) -> None:
        if event.scope == "shape":
            self._awake.setdefault(event.cluster_queue, {})[event.shape] = None
        elif event.scope == "queue":
            self._unblocked[event.cluster_queue] = None
        workload = self._state.workloads.get(event.workload)
        if event.scope == "queue" and workload is not None and workload.uid == event.uid:
            self._alone.setdefault(event.cluster_queue, {})[rank_of(self._state, workload)] = Shape("")
        stands_aside = workload is not None and workload.uid == event.uid and workload.stage is Stage.SKIPPED
        if workload is not None and stands_aside and event.workload not in self._leaving:
            self._entering.setdefault(event.cluster_queue, {})[event.workload] = (
                rank_of(self._state, workload),
                workload.shape,
            )

    def wake_alone(self, workload: Workload) -> None:
        """Allow one workload to be offered while its shape sleeps, or one of its shape that is queued before it."""
        self._alone.setdefault(workload.cluster_queue, {})[rank_of(self._state, workload)] = workload.shape

    def is_asleep(self, cluster_queue: str, key: WorkloadKey) -> bool:
        """Whether the shape of a workload in the pending queue of a ClusterQueue will sleep."""
        queue = self._state.index.pending.get(cluster_queue, _NOBODY)
        entering = self._entering.get(cluster_queue, {}).get(key)
        shape = entering[1] if entering is not None else self._state.workloads[key].shape
        return queue.is_asleep(shape) and shape not in self._awake.get(cluster_queue, {})

    def orders_by_usage(self, cluster_queue: str) -> bool:
        """Whether a ClusterQueue's order changes with each of its admissions."""
        return orders_by_usage(self._state, cluster_queue)

    def outstanding(self, cluster_queue: str) -> list[Rank]:
        """The ranks of the heads that stay offered, in the order of their offers."""
        return [
            rank_of(self._state, self._state.workloads[key])
            for key in self._state.index.offered.get(cluster_queue, ())
            if key not in self._leaving
        ]

    def ahead(self, cluster_queue: str) -> Iterator[Rank]:
        """The workloads that may be offered next in a ClusterQueue, best first, after the events so far. Lazy."""
        queue = self._state.index.pending.get(cluster_queue, _NOBODY)
        awake = self._awake.get(cluster_queue, {})
        unblocked = cluster_queue in self._unblocked
        blocked = None if unblocked else queue.blocked
        coming = [
            (rank, shape)
            for rank, shape in self._entering.get(cluster_queue, {}).values()
            if blocked is None or rank < blocked
        ]
        entering = sorted(rank for rank, shape in coming if shape in awake or not queue.is_asleep(shape))
        alone = sorted(rank for rank in self._may_go_alone(cluster_queue, coming) if rank[-1] not in self._leaving)
        standing = queue.ranks_ahead(awake, unblocked=unblocked)
        if self._leaving:
            standing = (rank for rank in standing if rank[-1] not in self._leaving)
        return heapq.merge(standing, entering, alone) if entering or alone else standing

    def _may_go_alone(self, cluster_queue: str, coming: list[tuple[Rank, Shape]]) -> Iterator[Rank]:
        """Of each sleeping shape the best, as many as were allowed: of those and of newly queued ones."""
        let: dict[Shape, list[Rank]] = {}
        for rank, shape in self._alone.get(cluster_queue, {}).items():
            if self.is_asleep(cluster_queue, rank[-1]):
                let.setdefault(shape, []).append(rank)
        themselves = let.get(Shape(""), [])
        for shape, ranks in let.items():
            others = [rank for rank, entered in coming if entered == shape and rank not in themselves]
            yield from heapq.nsmallest(len(ranks), [*ranks, *others])
