"""
The binder's third task: statuses of ClusterQueues and LocalQueues with pending and running workloads and usage.

With fair sharing enabled, ClusterQueues and Cohorts show their shares as well.

These statuses follow from the state, are written by server-side apply at most once per INTERVAL_MS and queue, and leave
no event in the log: they contain nothing that the log does not. The last state of a queue is always written.

Each workload changes two queues, and intermediate counts are rarely read. So all queues together have a budget that
shrinks when the API server is busy with admissions; queues are served in the order in which they changed, and the more
there are, the longer each waits. A change of whether a queue is active is more important than a count, and needs no
budget.

The existing status of a queue is read once, when the binder first handles it, so that a restart writes nothing that is
already there, and a condition keeps the time at which it changed.

Counting is incremental: `_Tally` stores for each workload its class and its queues, so that a change costs the same in
a queue of ten as in one of a hundred thousand. A workload is counted once a turn, whatever has happened to it.
"""
# Over 400 lines: counts, turns and writes of one status; the budget is about all queues together.

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from headgate.core.engine.budget import Budget, BudgetSettings, Load
from headgate.core.engine.work_queue import backoff_ms
from headgate.core.fold.quarantine import is_aside
from headgate.core.kubernetes import conditions
from headgate.core.machine.api_results import NOT_FOUND, is_success
from headgate.core.machine.contract import APPLY_PATCH, Call, Command, Completed
from headgate.core.quota.activeness import ACTIVE
from headgate.core.quota.fair_shares import Share
from headgate.core.state.attribution import about
from headgate.core.state.tables import State, local_queue_of
from headgate.core.status.queue_shares import QueueShares
from headgate.core.status.queue_status import (
    Counts,
    cluster_queue_status,
    count_holders,
    holds_in_queue,
    is_pending_in_queue,
    local_queue_status,
    queue_patch,
    queue_status_path,
)
from headgate.core.status.server_side_apply import Json, apply_query
from headgate.events import facts, queueing
from headgate.events.base import Producer
from headgate.events.ids import LocalQueueKey, UnixMs, WorkloadKey
from headgate.events.objects import Condition, ReclaimablePod
from headgate.machines.binder.workload_statuses import WorkloadEvent

INTERVAL_MS: Final = 1000
"""The shortest time between two writes of one queue's status."""

QUEUES_BUDGET: Final = BudgetSettings(rate_max=60, rate_min=2, burst=120, share=2.0)
"""Writes of queue statuses."""

LOOKS_MAX: Final = 32
"""The maximum number of concurrent reads of queues."""

ALIKE_MAX: Final = 4096
"""How many different places of workloads are remembered, to keep equal ones once. Beyond it, all are forgotten."""

_Configuration = (
    facts.ClusterQueueObserved
    | facts.ClusterQueueDeleted
    | facts.LocalQueueObserved
    | facts.LocalQueueDeleted
    | facts.ResourceFlavorObserved
    | facts.ResourceFlavorDeleted
    | facts.TopologyObserved
    | facts.TopologyDeleted
    | facts.CohortObserved
    | facts.CohortDeleted
    | facts.AdmissionCheckObserved
    | facts.AdmissionCheckDeleted
    | facts.ConfigurationObserved
)
"""The events that may change whether a queue is active, or its status. Rare, so all queues are examined."""


class StatusOwner(NamedTuple):
    """
    A queue, or a Cohort, which takes part in fair sharing like a queue.

    `kind` is ClusterQueue, LocalQueue or Cohort, `key` its name or `<namespace>/<name>`.
    """

    kind: str
    key: str


class _Place(NamedTuple):
    """How a workload is counted, and in which queues."""

    local_queue: str
    cluster_queue: str
    pending: bool
    holds: bool
    admitted: bool
    reclaimable: tuple[ReclaimablePod, ...]

    def queues(self) -> tuple[StatusOwner, StatusOwner]:
        """The LocalQueue and the ClusterQueue."""
        return StatusOwner("LocalQueue", self.local_queue), StatusOwner("ClusterQueue", self.cluster_queue)


class _Tally:
    """Pending workloads by queue, and the workloads that hold quota by LocalQueue."""

    def __init__(self) -> None:
        self.pending: dict[StatusOwner, int] = {}
        self.holders: dict[StatusOwner, dict[WorkloadKey, None]] = {}
        self._places: dict[WorkloadKey, _Place] = {}
        self._alike: dict[_Place, _Place] = {}
        """One of all equal places."""

    def recount(self, state: State, key: WorkloadKey) -> tuple[StatusOwner, ...]:
        """Count a workload anew. Returns the queues whose counts have changed."""
        old, new = self._places.get(key), _place_of(state, key)
        if old == new:
            return ()
        for place, sign in ((old, -1), (new, 1)):
            if place is not None and place.pending:
                for queue in place.queues():
                    self.pending[queue] = self.pending.get(queue, 0) + sign
        if old is not None and old.holds:
            self.holders[old.queues()[0]].pop(key)
        if new is None:
            del self._places[key]
        else:
            if len(self._alike) >= ALIKE_MAX:
                self._alike.clear()
            self._places[key] = self._alike.setdefault(new, new)
            if new.holds:
                self.holders.setdefault(new.queues()[0], {})[key] = None
        changed = [queue for place in (old, new) if place is not None for queue in place.queues()]
        return tuple(dict.fromkeys(changed))


def _place_of(state: State, key: WorkloadKey) -> _Place | None:
    workload = state.workloads.get(key)
    if workload is None:
        return None
    pending, holds = is_pending_in_queue(workload), holds_in_queue(workload)
    if not pending and not holds:
        return None
    return _Place(
        local_queue=local_queue_of(workload),
        cluster_queue=workload.cluster_queue,
        pending=pending,
        holds=holds,
        admitted=conditions.is_true(workload.conditions, conditions.ADMITTED),
        reclaimable=workload.reclaimable_pods,
    )


class _Written(msgspec.Struct):
    """
    The queue status that the API server has, when it may be written next, and since when its condition holds.

    `status` is None when it is not known for certain; `is_read` is set once it was read.
    """

    status: Json | None = None
    due_ms: UnixMs = UnixMs(0)
    active: str = ""
    since: str = ""
    failures: int = 0
    is_read: bool = False


class QueueStatuses:
    """The working set of queue statuses. The binder's machine passes on what concerns them."""

    def __init__(self, state: State, load: Load) -> None:
        self._state = state
        self._budget = Budget(QUEUES_BUDGET, load)
        self._shares = QueueShares(state)
        self._tally = _Tally()
        for key in state.workloads:
            self._tally.recount(state, key)
        self._moved: dict[WorkloadKey, None] = {}
        """Workloads that are to be recounted."""
        self._dirty: OrderedDict[StatusOwner, None] = OrderedDict()
        """Queues whose status may be outdated, oldest change first."""
        self._pressing: dict[StatusOwner, None] = {}
        """Queues among them that may have become active or inactive."""
        self._written: dict[StatusOwner, _Written] = {}
        self._writes: dict[str, StatusOwner] = {}
        self._looks: dict[str, StatusOwner] = {}
        self._failed: list[StatusOwner] = []
        self._rest_until: UnixMs | None = None
        """The next time at which something can be written if nothing else happens."""
        self._look_at_all()

    def _look_at_all(self) -> None:
        for name in self._state.cluster_queues:
            self._pressing[StatusOwner("ClusterQueue", name)] = None
        for key in self._state.local_queues:
            self._pressing[StatusOwner("LocalQueue", key)] = None
        self._note(self._pressing)
        self._note(StatusOwner("Cohort", name) for name in self._state.cohorts)

    def _note(self, queues: Iterable[StatusOwner]) -> None:
        for queue in queues:
            if queue not in self._dirty:
                self._dirty[queue] = None
                self._rest_until = None

    def on_workload(self, event: WorkloadEvent) -> None:
        """Record that a workload may be counted otherwise."""
        self._moved[event.workload] = None

    def on_event(self, event: queueing.LocalQueuesSampled | _Configuration) -> None:
        """Record events that may have changed a queue's status."""
        if isinstance(event, queueing.LocalQueuesSampled):
            self._note(StatusOwner("LocalQueue", key) for key in event.queues)
            return
        if isinstance(event, facts.ClusterQueueObserved):
            self._forget_if_new(StatusOwner("ClusterQueue", event.name), event.uid)
        elif isinstance(event, facts.LocalQueueObserved):
            self._forget_if_new(StatusOwner("LocalQueue", event.queue), event.uid)
        elif isinstance(event, facts.CohortDeleted):
            self._forget(StatusOwner("Cohort", event.name))
        self._shares.forget()
        self._look_at_all()
        self._rest_until = None

    def _recount(self) -> None:
        """Recount what has changed, and mark the queues whose status changes by it."""
        for key in self._moved:
            changed = self._tally.recount(self._state, key)
            if changed:
                self._note(changed)
                if self._shares.is_on:
                    self._note_cohorts(changed)
        self._moved.clear()

    def _note_cohorts(self, changed: Iterable[StatusOwner]) -> None:
        """The shares of the ancestor cohorts change with the usage of a ClusterQueue."""
        for queue in changed:
            if queue.kind == "ClusterQueue":
                above = self._shares.cohorts_above(queue.key)
                self._note(StatusOwner("Cohort", name) for name in above if name in self._state.cohorts)

    def _forget_if_new(self, queue: StatusOwner, uid: str) -> None:
        """An object that was created anew under its name has no status."""
        written = self._written.get(queue)
        if written is not None and written.status is not None and written.status["uid"] != uid:
            del self._written[queue]

    # --- outcomes --------------------------------------------------------------------------------------------------

    def on_completed(self, completed: Completed) -> None:
        """A call has ended. A refused one is repeated with backoff; one about a deleted queue is not."""
        looked_at = self._looks.pop(completed.call_id, None)
        queue = looked_at or self._writes.pop(completed.call_id, None)
        if queue is None:
            return
        self._rest_until = None
        written = self._written.setdefault(queue, _Written())
        if is_success(completed):
            written.failures = 0
            if looked_at is not None:
                _read(queue.kind, written, completed.body)
            return
        written.status = None
        if completed.status == NOT_FOUND:
            self._dirty.pop(queue, None)
            self._pressing.pop(queue, None)
        else:
            self._failed.append(queue)

    # --- writing ---------------------------------------------------------------------------------------------------

    def settle(self, now_ms: UnixMs, calls: list[Command]) -> UnixMs | None:
        """Write what is due. Returns when the next write is due."""
        self._recount()
        for queue in self._failed:
            failed = self._written.setdefault(queue, _Written())
            failed.failures += 1
            failed.due_ms = UnixMs(now_ms + backoff_ms(failed.failures, queue.key))
            self._note((queue,))
        self._failed.clear()
        if not self._state.synced:
            return None
        if self._rest_until is None or self._rest_until <= now_ms:
            self._rest_until = self._settle(now_ms, calls)
        return self._rest_until if self._dirty and self._rest_until < _NEVER else None

    def _settle(self, now_ms: UnixMs, calls: list[Command]) -> UnixMs:
        """Examine every queue that has changed; the urgent ones need no budget. Returns when to check again."""
        wake_ms = _NEVER
        under_way = {*self._writes.values(), *self._looks.values()}
        ready_ms = self._budget.ready_at(now_ms)
        for queue in list(self._dirty if ready_ms <= now_ms else self._pressing):
            if queue in under_way or (ready_ms > now_ms and queue not in self._pressing):
                continue
            written = self._written.get(queue) or _Written()
            if written.due_ms > now_ms:
                wake_ms = min(wake_ms, written.due_ms)
            elif not written.is_read:
                self._look(queue, calls)
            else:
                del self._dirty[queue]
                if not self._write(queue, written, now_ms, calls):
                    self._dirty[queue] = None
                ready_ms = self._budget.ready_at(now_ms)
        return min(wake_ms, ready_ms) if self._dirty and ready_ms > now_ms else wake_ms

    def _look(self, queue: StatusOwner, calls: list[Command]) -> None:
        with about(queue.kind, queue.key):
            is_gone = self._status(queue) is None
        if is_gone:
            self._forget(queue)
        elif len(self._looks) < LOOKS_MAX:
            self._written.setdefault(queue, _Written())
            call_id = f"queue-look/{queue.kind}/{queue.key}"
            self._looks[call_id] = queue
            path = queue_status_path(queue.kind, queue.key).removesuffix("/status")
            calls.append(Call(id=call_id, method="GET", path=path, lane=_call_id(queue)))

    def _forget(self, queue: StatusOwner) -> None:
        self._dirty.pop(queue, None)
        self._pressing.pop(queue, None)
        self._written.pop(queue, None)

    def _write(self, queue: StatusOwner, written: _Written, now_ms: UnixMs, calls: list[Command]) -> bool:
        """Write a queue's status if it has changed. False when there is no budget for it."""
        with about(queue.kind, queue.key):
            return self._write_found(queue, written, self._status(queue), now_ms, calls)

    def _write_found(
        self,
        queue: StatusOwner,
        written: _Written,
        found: tuple[str, Json] | None,
        now_ms: UnixMs,
        calls: list[Command],
    ) -> bool:
        if found is None:
            self._forget(queue)
            return True
        uid, status = found
        is_pressing = self._pressing.pop(queue, _ABSENT) is None
        identity: Json = {"uid": uid, **status}
        if written.status == identity:
            return True
        shown = dict(status)
        is_news = is_pressing and (written.status is None or written.status["conditions"] != status["conditions"])
        if not self._budget.take(now_ms) and not is_news:
            return False
        if "conditions" in status:
            condition: dict[str, Any] = status["conditions"][0]
            if written.active != condition["status"]:
                written.active, written.since = condition["status"], conditions.rfc3339(now_ms)
            shown["conditions"] = [{**condition, "lastTransitionTime": written.since}]
        written.status, written.due_ms = identity, UnixMs(now_ms + INTERVAL_MS)
        call_id = _call_id(queue)
        self._writes[call_id] = queue
        calls.append(
            Call(
                id=call_id,
                method="PATCH",
                path=queue_status_path(queue.kind, queue.key),
                query=apply_query(force=True),
                body=queue_patch(queue.kind, queue.key, uid, shown),
                content_type=APPLY_PATCH,
                lane=call_id,
            )
        )
        return True

    def _status(self, queue: StatusOwner) -> tuple[str, Json] | None:
        """Uid and status of a queue; None when there is no such queue. Cohorts have no uid, and only shares."""
        state = self._state
        if is_aside(state, queue.kind, queue.key, Producer.BINDER):
            return None
        if queue.kind == "Cohort":
            return ("", _fair_sharing(self._shares.of_cohort(queue.key))) if queue.key in state.cohorts else None
        if queue.kind == "ClusterQueue":
            record = state.cluster_queues.get(queue.key)
            if record is None:
                return None
            counts = self._counts(queue, state.index.holders.get(queue.key, {}))
            shares = _fair_sharing(self._shares.of_cluster_queue(queue.key))
            return record.uid, {**cluster_queue_status(state, queue.key, counts), **shares}
        local = state.local_queues.get(LocalQueueKey(queue.key))
        if local is None:
            return None
        counts = self._counts(queue, self._tally.holders.get(queue, {}))
        return local.uid, local_queue_status(state, LocalQueueKey(queue.key), counts)

    def _counts(self, queue: StatusOwner, holders: dict[WorkloadKey, None]) -> Counts:
        return count_holders(self._state, holders, self._tally.pending.get(queue, 0))


_NEVER: Final = UnixMs(1 << 62)
_ABSENT: Final = "absent"


def _fair_sharing(share: Share | None) -> Json:
    """The part of a status that contains a share; empty without one."""
    return {} if share is None else {"fairSharing": {"weightedShare": share.rounded}}


def _call_id(queue: StatusOwner) -> str:
    return f"queue-status/{queue.kind}/{queue.key}"


class _Shown(msgspec.Struct, frozen=True, rename="camel"):
    conditions: tuple[Condition, ...] = ()
    pending_workloads: int = 0
    reserving_workloads: int = 0
    admitted_workloads: int = 0
    flavors_reservation: list[Json] = []
    flavors_usage: list[Json] = []
    fair_sharing: Json | None = None


class _Metadata(msgspec.Struct, frozen=True):
    uid: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    status: _Shown = _Shown()


def _read(kind: str, written: _Written, body: bytes) -> None:
    """Take over the existing status of a queue. A status that cannot be read is written anew."""
    written.is_read = True
    try:
        seen = msgspec.json.decode(body, type=_Object)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return
    fair_sharing: Json = {} if seen.status.fair_sharing is None else {"fairSharing": seen.status.fair_sharing}
    if kind == "Cohort":
        written.status = {"uid": "", **fair_sharing}
        return
    active = conditions.find(seen.status.conditions, ACTIVE)
    if active is None:
        return
    written.active, written.since = active.status, active.last_transition_time
    condition: Json = msgspec.to_builtins(msgspec.structs.replace(active, last_transition_time=""))
    written.status = {
        "uid": seen.metadata.uid,
        "conditions": [{"reason": "", "message": "", **condition}],
        "pendingWorkloads": seen.status.pending_workloads,
        "reservingWorkloads": seen.status.reserving_workloads,
        "admittedWorkloads": seen.status.admitted_workloads,
        "flavorsReservation": seen.status.flavors_reservation,
        "flavorsUsage": seen.status.flavors_usage,
        **fair_sharing,
    }
