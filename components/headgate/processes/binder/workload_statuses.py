"""
The binder's first task: each Workload's status in the API server is the one that the state gives.

Level-triggered: a workload that something happened to is looked at again; when the digest of its status is neither that
of the last one applied nor of the last one refused, it is written, one write a workload at a time. What happens while a
write is under way leads to one more write with all of it. A conflict (the object was made anew under its name) is tried
again later with the state of then; any other refusal is final until the status changes, but for one: a reservation that
was refused is written once more after a status without it, since a reservation may go and not change.
"""

from collections import OrderedDict
from typing import Final

import msgspec

from headgate.core.machine import Call, Command, Completed
from headgate.core.outcomes import CONFLICT, backoff_ms, is_success, refusal
from headgate.core.state import State, Workload
from headgate.core.status import (
    FIELD_MANAGER,
    is_empty,
    status_digest,
    status_patch,
    status_path,
    without_reservation,
    workload_status,
)
from headgate.events import decisions, effects, facts, queueing
from headgate.events.ids import Uid, UnixMs, WorkloadKey
from headgate.events.registry import Event

WRITES_MAX: Final = 256
"""The most writes of Workload statuses under way at a time."""

WORKLOAD_EVENTS: Final = (
    facts.WorkloadObserved,
    facts.WorkloadDeleted,
    queueing.WorkloadQueued,
    queueing.WorkloadParked,
    queueing.WorkloadWoken,
    queueing.WorkloadEvicted,
    queueing.WorkloadReleased,
    queueing.WorkloadRequeued,
    queueing.WorkloadFinished,
    queueing.DeadlinePassed,
    decisions.QuotaReserved,
    decisions.WorkloadAdmitted,
    decisions.WorkloadSkipped,
)
"""The events after which a single workload's record is another one than before."""

INVALID: Final = 422
"""The HTTP status of an object that the API server finds wrong."""

APPLY_QUERY: Final = {"fieldManager": FIELD_MANAGER, "force": "true"}
APPLY_TYPE: Final = "application/apply-patch+yaml"
"""The media type of server-side apply. JSON is YAML."""


class _Write(msgspec.Struct, frozen=True):
    workload: WorkloadKey
    uid: Uid
    digest: str


class WorkloadStatuses:
    """The working set of Workload statuses. The binder's machine hands on what concerns them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._dirty: OrderedDict[WorkloadKey, None] = OrderedDict.fromkeys(state.workloads)
        self._writes: dict[str, _Write] = {}
        self._busy: dict[WorkloadKey, None] = {}
        self._conflicts: dict[WorkloadKey, int] = {}
        self._retry_at: dict[WorkloadKey, UnixMs] = {}
        self._to_retry: list[WorkloadKey] = []

    def on_event(self, event: Event) -> None:
        """Note what may have changed a status."""
        if isinstance(event, WORKLOAD_EVENTS):
            self._dirty[event.workload] = None
        elif isinstance(event, effects.StatusApplied | effects.StatusRejected):
            self._busy.pop(event.workload, None)
            self._conflicts.pop(event.workload, None)
            self._dirty[event.workload] = None
        elif isinstance(event, facts.JobObserved):
            # A Job's counters give its Workload's reclaimable pods.
            key = self._state.index.by_owner.get(event.spec.uid)
            if key is not None:
                self._dirty[key] = None

    def on_completed(self, completed: Completed, out: list[Event]) -> None:
        """The effect of a write that has ended. Its workload stays busy until the effect is folded."""
        write = self._writes.pop(completed.call_id, None)
        if write is None:
            return
        if is_success(completed):
            out.append(effects.StatusApplied(workload=write.workload, uid=write.uid, digest=write.digest))
        elif completed.status == CONFLICT:
            del self._busy[write.workload]
            self._to_retry.append(write.workload)
        else:
            said = refusal(completed)
            out.append(
                effects.StatusRejected(
                    workload=write.workload,
                    uid=write.uid,
                    digest=write.digest,
                    code=said.code,
                    reason=said.reason,
                    message=said.message,
                )
            )

    def settle(self, now_ms: UnixMs, calls: list[Command]) -> UnixMs | None:
        """Write what has to be written, as far as there is room for calls. Returns when to look again."""
        for key in self._to_retry:
            self._conflicts[key] = self._conflicts.get(key, 0) + 1
            self._retry_at[key] = UnixMs(now_ms + backoff_ms(self._conflicts[key]))
        self._to_retry.clear()
        for key in [key for key, at_ms in self._retry_at.items() if at_ms <= now_ms]:
            del self._retry_at[key]
            self._dirty[key] = None
        while self._dirty and len(self._writes) < WRITES_MAX:
            self._look_at(self._dirty.popitem(last=False)[0], calls)
        return min(self._retry_at.values(), default=None)

    def _look_at(self, key: WorkloadKey, calls: list[Command]) -> None:
        workload = self._state.workloads.get(key)
        if workload is None:
            self._retry_at.pop(key, None)
            self._conflicts.pop(key, None)
            return
        if key in self._busy or key in self._retry_at:
            return
        status = workload_status(self._state, workload)
        if is_empty(status) and not workload.applied:
            return
        digest = status_digest(status)
        if digest in workload.refused and workload.refused_code == INVALID and status.admission is not None:
            # Perhaps the API server still has another reservation, which may only go, not change.
            status = without_reservation(status)
            digest = status_digest(status)
        if digest not in (workload.applied, *workload.refused):
            self._busy[key] = None
            calls.append(self._write(workload, digest, status_patch(workload, status)))

    def _write(self, workload: Workload, digest: str, body: object) -> Call:
        call_id = f"status/{workload.key}"
        self._writes[call_id] = _Write(workload.key, workload.uid, digest)
        return Call(
            id=call_id,
            method="PATCH",
            path=status_path(workload.key),
            query=APPLY_QUERY,
            body=body,
            content_type=APPLY_TYPE,
            lane=workload.key,
        )
