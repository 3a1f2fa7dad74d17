"""
The binder's third task: ClusterQueues and LocalQueues show how many workloads wait and run, and what is used.

These statuses follow from the state, are written by server-side apply at most once in INTERVAL_MS a queue, and leave no
event in the log: they say nothing that the log does not. The last state of a queue is always written in the end. After
a restart each is written once.

Counting is incremental: `_Tally` knows for each workload what it counts as, and where, so that a change costs the same
in a queue of ten as in one of a hundred thousand.
"""

from typing import Any, Final, NamedTuple

import msgspec

from headgate.core import conditions
from headgate.core.machine import Call, Command, Completed
from headgate.core.outcomes import NOT_FOUND, backoff_ms, is_success
from headgate.core.places import local_queue_of
from headgate.core.state import State
from headgate.core.status import (
    Counts,
    Json,
    cluster_queue_status,
    count_holders,
    holds_in_queue,
    is_pending_in_queue,
    local_queue_status,
    queue_patch,
    queue_status_path,
)
from headgate.events import facts
from headgate.events.ids import LocalQueueKey, UnixMs, WorkloadKey
from headgate.events.objects import ReclaimablePod
from headgate.events.registry import Event
from headgate.processes.binder.workload_statuses import APPLY_QUERY, APPLY_TYPE, WORKLOAD_EVENTS

INTERVAL_MS: Final = 1000
"""The least time between two writes of one queue's status."""

_CONFIGURATION: Final = (
    facts.ClusterQueueObserved,
    facts.ClusterQueueDeleted,
    facts.LocalQueueObserved,
    facts.LocalQueueDeleted,
    facts.ResourceFlavorObserved,
    facts.ResourceFlavorDeleted,
    facts.TopologyObserved,
    facts.TopologyDeleted,
    facts.CohortObserved,
    facts.CohortDeleted,
    facts.AdmissionCheckObserved,
    facts.AdmissionCheckDeleted,
)
"""The events that may change whether a queue is active, or what it shows. Rare, so all queues are looked at."""


class Queue(NamedTuple):
    """A queue: `kind` is ClusterQueue or LocalQueue, `key` its name or `<namespace>/<name>`."""

    kind: str
    key: str


class _Place(NamedTuple):
    """What a workload counts as, and in which queues."""

    local_queue: Queue
    cluster_queue: Queue
    pending: bool
    holds: bool
    admitted: bool
    reclaimable: tuple[ReclaimablePod, ...]


class _Tally:
    """Pending workloads by queue, and who holds quota by LocalQueue."""

    def __init__(self) -> None:
        self.pending: dict[Queue, int] = {}
        self.holders: dict[Queue, dict[WorkloadKey, None]] = {}
        self._places: dict[WorkloadKey, _Place] = {}

    def recount(self, state: State, key: WorkloadKey) -> tuple[Queue, ...]:
        """Count a workload anew. Returns the queues of which something has changed."""
        old, new = self._places.get(key), _place_of(state, key)
        if old == new:
            return ()
        for place, sign in ((old, -1), (new, 1)):
            if place is not None and place.pending:
                for queue in (place.local_queue, place.cluster_queue):
                    self.pending[queue] = self.pending.get(queue, 0) + sign
        if old is not None and old.holds:
            self.holders[old.local_queue].pop(key)
        if new is None:
            del self._places[key]
        else:
            self._places[key] = new
            if new.holds:
                self.holders.setdefault(new.local_queue, {})[key] = None
        changed = [queue for place in (old, new) if place is not None for queue in place[:2]]
        return tuple(dict.fromkeys(changed))


def _place_of(state: State, key: WorkloadKey) -> _Place | None:
    workload = state.workloads.get(key)
    if workload is None:
        return None
    pending, holds = is_pending_in_queue(workload), holds_in_queue(workload)
    if not pending and not holds:
        return None
    return _Place(
        local_queue=Queue("LocalQueue", local_queue_of(workload)),
        cluster_queue=Queue("ClusterQueue", workload.cluster_queue),
        pending=pending,
        holds=holds,
        admitted=conditions.is_true(workload.conditions, conditions.ADMITTED),
        reclaimable=workload.reclaimable_pods,
    )


class _Written(msgspec.Struct):
    """What was last written of a queue's status, when, and since when its condition has its status."""

    status: Json | None = None
    due_ms: UnixMs = UnixMs(0)
    active: str = ""
    since: str = ""
    failures: int = 0


class QueueStatuses:
    """The working set of queue statuses. The binder's machine hands on what concerns them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._tally = _Tally()
        for key in state.workloads:
            self._tally.recount(state, key)
        self._dirty: dict[Queue, None] = {}
        self._written: dict[Queue, _Written] = {}
        self._writes: dict[str, Queue] = {}
        self._failed: list[Queue] = []
        self._look_at_all()

    def _look_at_all(self) -> None:
        for name in self._state.cluster_queues:
            self._dirty[Queue("ClusterQueue", name)] = None
        for key in self._state.local_queues:
            self._dirty[Queue("LocalQueue", key)] = None

    def on_event(self, event: Event) -> None:
        """Note what may have changed a queue's status."""
        if isinstance(event, WORKLOAD_EVENTS):
            self._dirty.update(dict.fromkeys(self._tally.recount(self._state, event.workload)))
        elif isinstance(event, _CONFIGURATION):
            if isinstance(event, facts.ClusterQueueObserved):
                self._forget_if_new(Queue("ClusterQueue", event.name), event.uid)
            elif isinstance(event, facts.LocalQueueObserved):
                self._forget_if_new(Queue("LocalQueue", event.queue), event.uid)
            self._look_at_all()

    def _forget_if_new(self, queue: Queue, uid: str) -> None:
        """An object that was made anew under its name has no status."""
        written = self._written.get(queue)
        if written is not None and written.status is not None and written.status["uid"] != uid:
            del self._written[queue]

    def on_completed(self, completed: Completed) -> None:
        """A write has ended. A refused one is tried again, later each time; one of a queue that is gone is not."""
        queue = self._writes.pop(completed.call_id, None)
        if queue is None:
            return
        written = self._written.setdefault(queue, _Written())
        if is_success(completed):
            written.failures = 0
        else:
            written.status = None
            if completed.status != NOT_FOUND:
                self._failed.append(queue)

    def settle(self, now_ms: UnixMs, calls: list[Command]) -> UnixMs | None:
        """Write what is due. Returns when the next is."""
        for queue in self._failed:
            failed = self._written.setdefault(queue, _Written())
            failed.failures += 1
            failed.due_ms = UnixMs(now_ms + backoff_ms(failed.failures))
            self._dirty[queue] = None
        self._failed.clear()
        if not self._state.synced:
            return None
        wake_ms: UnixMs | None = None
        under_way = set(self._writes.values())
        for queue in list(self._dirty):
            written = self._written.get(queue)
            if queue in under_way:
                continue
            if written is not None and written.due_ms > now_ms:
                wake_ms = written.due_ms if wake_ms is None else min(wake_ms, written.due_ms)
                continue
            del self._dirty[queue]
            self._write(queue, now_ms, calls)
        return wake_ms

    def _write(self, queue: Queue, now_ms: UnixMs, calls: list[Command]) -> None:
        found = self._status(queue)
        if found is None:
            self._written.pop(queue, None)
            return
        uid, status = found
        written = self._written.setdefault(queue, _Written())
        identity: Json = {"uid": uid, **status}
        if written.status == identity:
            return
        condition: dict[str, Any] = status["conditions"][0]
        if written.active != condition["status"]:
            written.active, written.since = condition["status"], conditions.rfc3339(now_ms)
        written.status, written.due_ms = identity, UnixMs(now_ms + INTERVAL_MS)
        shown = {**status, "conditions": [{**condition, "lastTransitionTime": written.since}]}
        call_id = f"queue-status/{queue.kind}/{queue.key}"
        self._writes[call_id] = queue
        calls.append(
            Call(
                id=call_id,
                method="PATCH",
                path=queue_status_path(queue.kind, queue.key),
                query=APPLY_QUERY,
                body=queue_patch(queue.kind, queue.key, uid, shown),
                content_type=APPLY_TYPE,
                lane=call_id,
            )
        )

    def _status(self, queue: Queue) -> tuple[str, Json] | None:
        """Uid and status of a queue; None when there is no such queue."""
        state = self._state
        if queue.kind == "ClusterQueue":
            record = state.cluster_queues.get(queue.key)
            if record is None:
                return None
            counts = self._counts(queue, state.index.holders.get(queue.key, {}))
            return record.uid, cluster_queue_status(state, queue.key, counts)
        local = state.local_queues.get(LocalQueueKey(queue.key))
        if local is None:
            return None
        counts = self._counts(queue, self._tally.holders.get(queue, {}))
        return local.uid, local_queue_status(state, LocalQueueKey(queue.key), counts)

    def _counts(self, queue: Queue, holders: dict[WorkloadKey, None]) -> Counts:
        return count_holders(self._state, holders, self._tally.pending.get(queue, 0))
