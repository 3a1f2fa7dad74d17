"""
The binder's first task: each Workload's status in the API server equals the status derived from the state.

Level-triggered: a workload is examined after each of its events; when the digest of its status is neither that of the
last one applied nor of the last one refused, it is written, one write per workload at a time. Changes during a write
lead to one more write that contains all of them.

Not every change has a write of its own. Changes that others act upon (quota reserved, admitted, released, finished) are
written at once, together with everything that has changed by then. An eviction is written with the release that follows
it, which is soon where a Job has to stop, and is written alone when none has followed after WAITING_DELAY_MS: until
then only Headgate itself, which reads it from the log, acts upon it. For an owner that Headgate does not run it is
written at once. The reason why a workload waits is for people: it is written after it has been the same for
WAITING_DELAY_MS, so that a very short wait costs no write; with the same reason only every REPEAT_MS, since the numbers
in its message change with every other workload; and within a budget that shrinks under load. Status from a running
Job's counters (PodsReady, reclaimable pods) is read by people and tools, while Headgate's own reaction to it follows
from the log: it is written after it has been the same for RUNNING_DELAY_MS, within a separate budget, and is merged
into the end of a Job that finishes earlier. The last state is always written. Once another client has marked a Workload
finished, nothing is written for it any more.

After a conflict (the object was created anew under its name, or the controller of an admission check has answered
meanwhile) the write is repeated later with the state of that time. Any other refusal is final until the status changes,
with one exception: a reservation that was refused is written once more after a status without it, since a reservation
may be removed but not changed.

An eviction resets the admission checks. When the workload has quota again before the reset was written, the API server
still has the answers to the reservation before, and would refuse our write forever. So after a conflict over checks the
object is read, and what an eviction has reset is overwritten, at exactly the version that was read: an answer given
meanwhile makes it a conflict again. The read is a patch that changes nothing, which needs no further permission.

The owner of a Workload that Headgate does not run may release its quota (QuotaReserved=False) at any time after it has
seen the reservation, and need not write it twice. So a status that still shows the reservation is written only at the
version of our last write: after a conflict the object is read, and either the owner has released the quota, and the
write is dropped, or it is repeated at the version that was read. A reservation that follows the release is another one,
and is written at any version, also where the release itself was never written.

The last status of a finished workload is recorded in the log together with the removal of its finalizer, which directly
follows it: so the removal is no separate fact, and a restart does not request it again.
"""
# Over 400 lines: one state machine for each status: waiting, being written, refused, taken over, repeated.

import heapq
from collections import OrderedDict
from typing import Final

import msgspec

from headgate.core.engine.budget import Budget, BudgetSettings, Load
from headgate.core.engine.work_queue import backoff_ms
from headgate.core.fold.quarantine import QUARANTINED
from headgate.core.machine.api_results import CONFLICT, INVALID, Refusal, field_conflicts, is_success, refusal
from headgate.core.machine.contract import APPLY_PATCH, MERGE_PATCH, Call, Command, Completed
from headgate.core.state.attribution import about
from headgate.core.state.tables import PENDING, State, Workload
from headgate.core.status.server_side_apply import Json, apply_query
from headgate.core.status.workload_status import (
    ADMISSION_MANAGER,
    answered_checks,
    applied_digest,
    digest_of,
    forces,
    has_released,
    is_empty,
    left_behind,
    removal_patch,
    status_patch,
    status_path,
    version_in,
    without_reservation,
    workload_status,
)
from headgate.core.workload.concurrent_admission import relatives
from headgate.core.workload.owners import is_run_here, workload_of
from headgate.core.workload.shown_conditions import shows_release
from headgate.core.workload.variants import is_parent
from headgate.events import decisions, effects, facts, queueing
from headgate.events.ids import Uid, UnixMs, WorkloadKey
from headgate.events.objects import WorkloadStatus
from headgate.events.registry import Event
from headgate.machines.binder.finalizers import Finalizers
from headgate.machines.binder.set_aside import lifted

WRITES_MAX: Final = 256
"""The maximum number of concurrent writes of Workload statuses."""

WAITING_DELAY_MS: Final = 500
"""How long a workload has waited before the reason is written."""

RUNNING_DELAY_MS: Final = 2_000
"""
How long a Job's counters have been the same before they are written: longer than the second for which the Job
controller batches changes of pods, so that a short Job's PodsReady is written with its end.
"""

REPEAT_MS: Final = 30_000
"""How long a reason is kept before it is written again with another message."""

WAITING_BUDGET: Final = BudgetSettings(rate_max=50, rate_min=1, burst=100, share=2.0)
"""Budget for writes of the reasons why workloads wait."""

RUNNING_BUDGET: Final = BudgetSettings(rate_max=100, rate_min=4, burst=200)
"""Budget for writes of the counters of running Jobs."""

_Urgent = (
    queueing.WorkloadReleased
    | queueing.WorkloadHeld
    | queueing.WorkloadRequeued
    | queueing.WorkloadFinished
    | decisions.QuotaReserved
    | decisions.WorkloadAdmitted
    | decisions.TopologyAssigned
    | queueing.WorkloadFollowed
    | queueing.PreemptionGateOpened
    | decisions.WorkloadReplaced
)
_Patient = (
    facts.WorkloadObserved
    | facts.WorkloadDeleted
    | queueing.WorkloadQueued
    | queueing.WorkloadParked
    | queueing.WorkloadWoken
    | queueing.DeadlinePassed
    | queueing.WorkloadEvicted
    | queueing.CheckUpdated
    | decisions.WorkloadSkipped
    | decisions.SecondPassFailed
    | decisions.WorkloadPreempted
    | decisions.WorkloadMigrated
)
WorkloadEvent = _Urgent | _Patient
"""The events that change the record of a single workload."""


class _Write(msgspec.Struct, frozen=True):
    workload: WorkloadKey
    uid: Uid
    digest: str
    status: Json
    version: int = 0
    """The version of the object after this write, once it is answered."""
    is_versioned: bool = False
    """Whether it is refused when the object has changed since the version that it names."""


class _Told(msgspec.Struct, frozen=True):
    """The reason why a workload waits, as last written, and the time of the write."""

    reason: str
    at_ms: UnixMs


class WorkloadStatuses:
    """The working set of Workload statuses. The binder's machine passes on what concerns them."""

    # Large: the fields of the task, one line each with what it holds.
    def __init__(self, state: State, load: Load, finalizers: Finalizers) -> None:
        self._state = state
        self._load = load
        self._finalizers = finalizers
        self._budget = Budget(WAITING_BUDGET, load)
        self._running_budget = Budget(RUNNING_BUDGET, load)
        self._dirty: OrderedDict[WorkloadKey, None] = OrderedDict()
        """To be examined now."""
        self._news: dict[WorkloadKey, None] = {}
        """To be examined after a period without change."""
        for key, workload in state.workloads.items():
            (self._news if workload.stage in PENDING else self._dirty)[key] = None
        self._soon: OrderedDict[WorkloadKey, UnixMs] = OrderedDict()
        """Those that do not wait for quota, with the time to examine them; in that order."""
        self._counted: dict[WorkloadKey, None] = {}
        """Those whose Job has been observed, to be examined after a period without change."""
        self._running: OrderedDict[WorkloadKey, UnixMs] = OrderedDict()
        """Those of them that do not wait for quota, with the time to examine them; in that order."""
        self._due: dict[WorkloadKey, UnixMs] = {}
        """Those that wait for quota, with the time to write the reason."""
        self._line: list[tuple[UnixMs, int, WorkloadKey]] = []
        """A heap over `_due`; may contain obsolete times."""
        self._count = 0
        self._told: dict[WorkloadKey, _Told] = {}
        self._writes: dict[str, _Write] = {}
        self._removals: list[Command] = []
        self._busy: dict[WorkloadKey, bool] = {}
        """Workloads with a write under way, and whether another has to follow at once."""
        self._unreported: dict[WorkloadKey, _Write] = {}
        """Writes that have succeeded and are recorded in the log with the outcome for the workload's finalizer."""
        self._taken: dict[WorkloadKey, str] = {}
        """
        Workloads in whose status other managers hold fields of ours: the next write takes them over.

        With the only resource version at which it may, "" for any.
        """
        self._reads: dict[str, _Write] = {}
        """Reads under way, with the write that was refused because others have written the same object."""
        self._reserved: dict[WorkloadKey, Uid] = {}
        """
        Workloads of owners that Headgate does not run, whose status shows their reservation since a write of ours.

        After a restart it is empty: until the next write an owner's answer can be overwritten, as the last status that
        was written is not known.
        """
        self._conflicts: dict[WorkloadKey, int] = {}
        self._retry_at: dict[WorkloadKey, UnixMs] = {}
        self._to_retry: list[WorkloadKey] = []

    def on_urgent(self, event: _Urgent) -> None:
        """Record events after which a status is written at once."""
        if event.workload in self._busy:
            self._busy[event.workload] = True
        self._dirty[event.workload] = None
        if isinstance(event, queueing.WorkloadFollowed):
            self._note_variants(event.workload)
        elif isinstance(event, queueing.WorkloadReleased):
            workload = self._state.workloads.get(event.workload)
            if workload is not None and shows_release(workload):
                # Its next reservation is one that the owner has not seen, and cannot have released.
                self._reserved.pop(event.workload, None)

    def on_patient(self, event: _Patient) -> None:
        """Record events after which a status may be written later."""
        (self._dirty if self._is_waited_for(event) else self._news)[event.workload] = None
        if isinstance(event, facts.WorkloadObserved):
            self._note_variants(event.workload)

    def on_event(
        self,
        event: effects.StatusApplied | effects.StatusRejected | facts.JobObserved | facts.ClusterQueueObserved,
    ) -> None:
        """Record other events that may have changed a status, or its object."""
        match event:
            case effects.StatusApplied():
                self._conflicts.pop(event.workload, None)
                if self._busy.pop(event.workload, True):
                    self._dirty[event.workload] = None
            case effects.StatusRejected():
                self._busy.pop(event.workload, None)
                self._conflicts.pop(event.workload, None)
                self._dirty[event.workload] = None
            case facts.JobObserved():
                # A Job's counters determine its Workload's reclaimable pods, and whether the pods are ready.
                workload = workload_of(self._state, event.job, event.spec.uid)
                if workload is not None:
                    self._counted[workload.key] = None
                    self._note_variants(workload.key)
            case facts.ClusterQueueObserved():
                # With its list of admission checks those of its workloads may have changed.
                self._news |= self._state.index.holders.get(event.name, {})

    def _is_waited_for(self, event: _Patient) -> bool:
        """Whether an eviction has to be written at once: its owner, not run by Headgate, has to stop the work."""
        if not isinstance(event, queueing.WorkloadEvicted | decisions.WorkloadPreempted):
            return False
        workload = self._state.workloads.get(event.workload)
        return workload is not None and not is_run_here(self._state, workload)

    def _note_variants(self, key: WorkloadKey) -> None:
        """The variants of a workload have the same PodsReady condition as the workload."""
        workload = self._state.workloads.get(key)
        if workload is not None and is_parent(workload) and self._state.configuration.wait_for_pods_ready is not None:
            self._news.update((each.key, None) for each in relatives(self._state, workload))

    def on_completed(self, completed: Completed, out: list[Event]) -> None:
        """The effect of a write that has ended. Its workload stays busy until the effect is folded."""
        read = self._reads.pop(completed.call_id, None)
        if read is not None:
            with about("Workload", read.workload):
                self._on_read(read, completed, out)
        write = self._writes.pop(completed.call_id, None)
        if write is not None:
            with about("Workload", write.workload):
                self._on_written(write, completed, out)

    def _on_written(self, write: _Write, completed: Completed, out: list[Event]) -> None:
        if is_success(completed):
            if QUARANTINED.encode() in completed.body:
                # It was released from quarantine; otherwise its status would not be written.
                self._removals.append(lifted(write.workload, write.uid))
            write = msgspec.structs.replace(write, version=version_in(completed.body))
            self._note_reservation(write)
            left = left_behind(write.status, completed.body)
            if left and not completed.call_id.endswith(_REMOVAL):
                self._remove(write, left)
                return
            if self._finalizers.is_busy_with(write.workload):
                self._unreported[write.workload] = write
            else:
                out.append(self._applied(write))
        elif completed.status == CONFLICT:
            fields = field_conflicts(completed)
            if self._are_ours(write.workload, fields):
                self._taken[write.workload] = ""
            elif (fields or write.is_versioned) and self._read(write):
                return
            self._repeat(write.workload)
        else:
            out.append(_rejected(write, refusal(completed)))

    def _are_ours(self, key: WorkloadKey, fields: tuple[str, ...]) -> bool:
        """Whether a write has failed over fields that may be taken over: any but a check that others answer."""
        workload = self._state.workloads.get(key)
        decided = workload.decided_checks if workload is not None else ()
        ours = tuple(f'{_CHECKS}[name="{name}"]' for name in decided)
        others = [field for field in fields if field.startswith(_CHECKS)]
        return len(others) < len(fields) or (bool(fields) and all(field.startswith(ours) for field in others))

    def _note_reservation(self, write: _Write) -> None:
        workload = self._state.workloads.get(write.workload)
        if "admission" in write.status and workload is not None and not is_run_here(self._state, workload):
            self._reserved[write.workload] = write.uid
        else:
            self._reserved.pop(write.workload, None)

    def _repeat(self, key: WorkloadKey) -> None:
        """Write a workload's status again after a moment."""
        self._busy.pop(key, None)
        self._to_retry.append(key)

    def _read(self, write: _Write) -> bool:
        """Read a workload that others have written, if that can tell whether our write is still right."""
        workload = self._state.workloads.get(write.workload)
        if workload is None or not (workload.stale_checks or write.is_versioned):
            return False
        call_id = f"status/{write.workload}{_READ}"
        self._reads[call_id] = write
        self._removals.append(
            Call(
                id=call_id,
                method="PATCH",
                path=status_path(write.workload),
                query={"fieldManager": ADMISSION_MANAGER},
                body=removal_patch(write.uid, ()),
                content_type=MERGE_PATCH,
                lane=write.workload,
            )
        )
        return True

    def _on_read(self, write: _Write, completed: Completed, out: list[Event]) -> None:
        if is_success(completed):
            if write.is_versioned and has_released(completed.body):
                message = "its owner has released the quota"
                out.append(_rejected(write, Refusal(code=CONFLICT, reason="Conflict", message=message)))
                return
            self._take(write, completed.body)
        self._repeat(write.workload)

    def _take(self, write: _Write, answer: bytes) -> None:
        """Let the next write overwrite the version that was read, unless a check has been answered since."""
        workload = self._state.workloads.get(write.workload)
        version = version_in(answer)
        if workload is None or not version:
            return
        others = [each for each in answered_checks(answer) if each not in workload.checks]
        if all(each in workload.stale_checks for each in others) and (others or write.is_versioned):
            self._taken[write.workload] = str(version)

    def on_finalizer(self, key: WorkloadKey, out: list[Event]) -> None:
        """The effect of a write after which the workload's finalizer was removed: both are recorded in one event."""
        if key in self._unreported:
            out.append(self._applied(self._unreported.pop(key)))

    def _applied(self, write: _Write) -> Event:
        removed = self._finalizers.has_removed(write.workload, write.uid)
        return effects.StatusApplied(
            workload=write.workload,
            uid=write.uid,
            digest=write.digest,
            finalizer_removed=removed,
            version=write.version,
        )

    def settle(self, now_ms: UnixMs, calls: list[Command]) -> UnixMs | None:
        """Write what is due, as far as the limit of calls permits. Returns when to check again."""
        for key in self._to_retry:
            self._conflicts[key] = self._conflicts.get(key, 0) + 1
            self._retry_at[key] = UnixMs(now_ms + backoff_ms(self._conflicts[key], key))
        self._to_retry.clear()
        for key in [key for key, at_ms in self._retry_at.items() if at_ms <= now_ms]:
            del self._retry_at[key]
            self._dirty[key] = None
        calls += self._removals
        self._removals.clear()
        self._sort_news(now_ms)
        while self._soon and next(iter(self._soon.values())) <= now_ms:
            self._dirty[self._soon.popitem(last=False)[0]] = None
        begun = len(self._writes)
        while self._dirty and len(self._writes) < WRITES_MAX:
            self._look_at(self._dirty.popitem(last=False)[0], calls, now_ms)
        self._load.note(now_ms, len(self._writes) - begun, len(self._writes))
        self._look_at_running(now_ms, calls)
        self._look_at_waiting(now_ms, calls)
        soon = list(self._soon.values())[:1]
        running = [max(due_ms, self._running_budget.ready_at(now_ms)) for due_ms in list(self._running.values())[:1]]
        return min([*self._retry_at.values(), *soon, *running, *self._next_due(now_ms)], default=None)

    # --- what can wait ---------------------------------------------------------------------------------------------

    def _sort_news(self, now_ms: UnixMs) -> None:
        for key in self._counted:
            workload = self._state.workloads.get(key)
            if workload is not None and workload.stage in PENDING:
                self._news[key] = None
            else:
                self._running.setdefault(key, UnixMs(now_ms + RUNNING_DELAY_MS))
        self._counted.clear()
        due_ms = UnixMs(now_ms + WAITING_DELAY_MS)
        for key in self._news:
            workload = self._state.workloads.get(key)
            if workload is None or workload.stage not in PENDING:
                self._soon.setdefault(key, due_ms)
            elif key not in self._due and (workload.conditions or workload.applied or workload.taken_over):
                self._wait(key, due_ms)
        self._news.clear()

    def _look_at_running(self, now_ms: UnixMs, calls: list[Command]) -> None:
        while self._running and len(self._writes) < WRITES_MAX:
            if next(iter(self._running.values())) > now_ms or self._running_budget.ready_at(now_ms) > now_ms:
                return
            begun = len(self._writes)
            self._look_at(self._running.popitem(last=False)[0], calls, now_ms)
            if len(self._writes) > begun:
                self._running_budget.take(now_ms)

    def _look_at_waiting(self, now_ms: UnixMs, calls: list[Command]) -> None:
        while self._line and len(self._writes) < WRITES_MAX:
            due_ms, _, key = self._line[0]
            if self._due.get(key) != due_ms:
                heapq.heappop(self._line)
                continue
            if due_ms > now_ms or self._budget.ready_at(now_ms) > now_ms:
                return
            heapq.heappop(self._line)
            del self._due[key]
            self._look_at(key, calls, now_ms, waiting=True)

    def _wait(self, key: WorkloadKey, due_ms: UnixMs) -> None:
        self._due[key] = due_ms
        self._count += 1
        heapq.heappush(self._line, (due_ms, self._count, key))

    def _next_due(self, now_ms: UnixMs) -> list[UnixMs]:
        while self._line and self._due.get(self._line[0][2]) != self._line[0][0]:
            heapq.heappop(self._line)
        return [max(self._line[0][0], self._budget.ready_at(now_ms))] if self._line else []

    def _is_told(self, workload: Workload, status: WorkloadStatus, now_ms: UnixMs) -> bool:
        """Whether a workload's reason to wait was written so recently that a new message has to wait."""
        told = self._told.get(workload.key)
        reason = _reason(status)
        if told is not None and told.reason == reason and now_ms < told.at_ms + REPEAT_MS:
            self._wait(workload.key, UnixMs(told.at_ms + REPEAT_MS))
            return True
        self._budget.take(now_ms)
        return False

    # --- writing ---------------------------------------------------------------------------------------------------

    def _look_at(self, key: WorkloadKey, calls: list[Command], now_ms: UnixMs, *, waiting: bool = False) -> None:
        with about("Workload", key):
            self._bring_up_to_date(key, calls, now_ms, waiting=waiting)

    # Large: one exit for each reason not to write a status now, in the order of their precedence.
    def _bring_up_to_date(self, key: WorkloadKey, calls: list[Command], now_ms: UnixMs, *, waiting: bool) -> None:
        workload = self._state.workloads.get(key)
        if workload is None:
            for table in (self._retry_at, self._conflicts, self._told, self._taken, self._due, self._reserved):
                table.pop(key, None)
            return
        self._soon.pop(key, None)
        self._running.pop(key, None)
        self._due.pop(key, None)
        if key in self._busy:
            if waiting:
                self._news[key] = None
            else:
                # The write under way may be older than the change to be examined.
                self._busy[key] = True
            return
        if key in self._retry_at or workload.observed_finished is not None:
            return
        status = workload_status(self._state, workload)
        applied = applied_digest(workload)
        if is_empty(status) and not applied:
            return
        digest = digest_of(workload, status)
        between = digest in workload.refused and workload.refused_code == INVALID and status.admission is not None
        if between:
            # The API server may still have another reservation, which may be removed but not changed.
            status = without_reservation(status)
            digest = digest_of(workload, status)
        if digest in (applied, *workload.refused):
            return
        if workload.stage not in PENDING:
            self._told.pop(key, None)
        elif waiting and self._is_told(workload, status, now_ms):
            return
        else:
            self._told[key] = _Told(_reason(status), now_ms)
        self._busy[key] = between
        calls.append(self._write(workload, digest, status))

    def _write(self, workload: Workload, digest: str, status: WorkloadStatus) -> Call:
        call_id = f"status/{workload.key}"
        body = status_patch(workload, status)
        version = self._taken.pop(workload.key, None)
        force = version is not None or forces(status)
        is_versioned = status.admission is not None and self._reserved.get(workload.key) == workload.uid
        if is_versioned:
            version = version or str(workload.applied_version or "")
        self._writes[call_id] = _Write(workload.key, workload.uid, digest, body["status"], is_versioned=is_versioned)
        if version:
            body["metadata"]["resourceVersion"] = version
        return Call(
            id=call_id,
            method="PATCH",
            path=status_path(workload.key),
            query=apply_query(force=force, manager=ADMISSION_MANAGER),
            body=body,
            content_type=APPLY_PATCH,
            lane=workload.key,
        )

    def _remove(self, write: _Write, fields: list[str]) -> None:
        """Remove by name the fields that others have written into a status and that no longer apply."""
        call_id = f"status/{write.workload}{_REMOVAL}"
        self._writes[call_id] = write
        self._removals.append(
            Call(
                id=call_id,
                method="PATCH",
                path=status_path(write.workload),
                query={"fieldManager": ADMISSION_MANAGER},
                body=removal_patch(write.uid, fields),
                content_type=MERGE_PATCH,
                lane=write.workload,
            )
        )


_CHECKS: Final = ".status.admissionChecks"
_REMOVAL: Final = "/removal"
_READ: Final = "/read"


def _rejected(write: _Write, why: Refusal) -> Event:
    return effects.StatusRejected(
        workload=write.workload,
        uid=write.uid,
        digest=write.digest,
        code=why.code,
        reason=why.reason,
        message=why.message,
    )


def _reason(status: WorkloadStatus) -> str:
    """The reason why a workload waits, without the numbers."""
    return ", ".join(f"{each.type}={each.status}/{each.reason}" for each in status.conditions)
