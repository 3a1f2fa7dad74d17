"""
The binder's seventh task: what has been kept for as long as the configuration says is deleted.

Finished Workloads, and the Jobs of workloads that Kueue has switched off (`headgate.core.retention`). Level-triggered
on the state: each workload that may have something to delete waits in a heap for its time (one entry a workload), and
is asked again then. That the object is gone comes back as a fact; until then the answer is remembered. The uid in a
call keeps it from an object that was made anew under the name.
"""

import heapq
from collections import OrderedDict
from typing import Final, Literal, NamedTuple

from headgate.core.about import about
from headgate.core.jobs.kinds import path_of
from headgate.core.machine import Call, Command, Completed
from headgate.core.outcomes import CONFLICT, NOT_FOUND, backoff_ms, is_success
from headgate.core.owners import job_key, job_of
from headgate.core.retention import Due, due_of
from headgate.core.state import State, Workload
from headgate.core.status import workload_path
from headgate.events import decisions, facts, queueing
from headgate.events.ids import UnixMs, WorkloadKey
from headgate.events.registry import Event

CALLS_MAX: Final = 64
"""The most objects that are being deleted at a time."""

_EVENTS: Final = (
    facts.WorkloadObserved,
    facts.WorkloadDeleted,
    queueing.WorkloadEvicted,
    queueing.WorkloadFinished,
    decisions.QuotaReserved,
)
"""The events after which a workload's time may be another one."""


class Deleted(NamedTuple):
    """An object that has been deleted: a Workload, or a Job by its own key and uid."""

    what: Literal["workload", "job"]
    key: str
    uid: str


class _Call(NamedTuple):
    workload: WorkloadKey
    deleted: Deleted
    """What is being deleted."""


class Retention:
    """The working set of objects to delete. The binder's machine hands on what concerns them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._dirty: OrderedDict[WorkloadKey, None] = OrderedDict()
        self._line: list[tuple[UnixMs, WorkloadKey]] = []
        """A heap over `_due`; may hold times that no longer count."""
        self._due: dict[WorkloadKey, UnixMs] = {}
        self._calls: dict[str, _Call] = {}
        self._done: dict[WorkloadKey, str] = {}
        """The uid of what was deleted for a workload and still shows."""
        self.deleted: list[Deleted] = []
        """What has been deleted since this was last emptied, to be told."""
        self._failures: dict[WorkloadKey, int] = {}
        self._failed: list[WorkloadKey] = []
        self._look_at_all()

    def _look_at_all(self) -> None:
        policies = self._state.configuration.object_retention_policies
        if policies.after_finished_ms is not None or policies.after_deactivated_by_kueue_ms is not None:
            self._dirty.update(dict.fromkeys(self._state.workloads))

    def on_event(self, event: Event) -> None:
        """Note after what something may have to be deleted."""
        if isinstance(event, facts.ConfigurationObserved):
            self._look_at_all()
        elif isinstance(event, _EVENTS):
            self._dirty[event.workload] = None

    def on_completed(self, completed: Completed) -> None:
        """A call has ended. What is gone, or another object by now, is done with; another refusal is tried again."""
        call = self._calls.pop(completed.call_id, None)
        if call is None:
            return
        if is_success(completed):
            self.deleted.append(call.deleted)
        if is_success(completed) or completed.status in (NOT_FOUND, CONFLICT):
            self._done[call.workload] = call.deleted.uid
            self._failures.pop(call.workload, None)
        else:
            self._failed.append(call.workload)

    def settle(self, now_ms: UnixMs, calls: list[Command]) -> UnixMs | None:
        """Delete what is due, as far as there is room for calls. Returns when to look again."""
        for key in self._failed:
            self._failures[key] = self._failures.get(key, 0) + 1
            self._wait(key, UnixMs(now_ms + backoff_ms(self._failures[key])))
        self._failed.clear()
        while self._dirty:
            key = self._dirty.popitem(last=False)[0]
            with about("Workload", key):
                self._look_at(key)
        while self._line and len(self._calls) < CALLS_MAX:
            at_ms, key = self._line[0]
            if self._due.get(key) != at_ms:
                heapq.heappop(self._line)
                continue
            if at_ms > now_ms:
                return at_ms
            heapq.heappop(self._line)
            del self._due[key]
            with about("Workload", key):
                self._delete(key, now_ms, calls)
        return None

    def _look_at(self, key: WorkloadKey) -> None:
        workload = self._state.workloads.get(key)
        due = due_of(self._state, workload) if workload is not None else None
        if workload is None or due is None:
            for table in (self._due, self._done, self._failures):
                table.pop(key, None)
            return
        if key not in self._failures:
            self._wait(key, due.at_ms)

    def _wait(self, key: WorkloadKey, at_ms: UnixMs) -> None:
        if self._due.get(key) != at_ms:
            self._due[key] = at_ms
            heapq.heappush(self._line, (at_ms, key))

    def _delete(self, key: WorkloadKey, now_ms: UnixMs, calls: list[Command]) -> None:
        workload = self._state.workloads.get(key)
        due = due_of(self._state, workload) if workload is not None else None
        if workload is None or due is None:
            return
        if due.at_ms > now_ms:
            self._wait(key, due.at_ms)
            return
        found, path = self._object(workload, due)
        call_id = f"retention/{key}"
        if call_id in self._calls or self._done.get(key) == found.uid:
            return
        self._calls[call_id] = _Call(key, found)
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": found.uid},
            "propagationPolicy": "Background",
        }
        calls.append(Call(id=call_id, method="DELETE", path=path, body=body, lane=key))

    def _object(self, workload: Workload, due: Due) -> tuple[Deleted, str]:
        """What is due, and its path."""
        record = job_of(self._state, workload)
        job = job_key(workload)
        if due.what == "workload" or record is None or job is None:
            return Deleted("workload", workload.key, workload.uid), workload_path(workload.key)
        return Deleted("job", job, record.job.uid), path_of(job)
