"""
The binder's seventh task: deletes objects after their configured retention period.

Finished Workloads, and the Jobs of workloads that Kueue has deactivated (`headgate.core.workload.retention`).
Level-triggered on the state: each workload that may have something to delete waits in the work queue for its time, and
is examined again then. The deletion returns as a fact; until then the answer is kept in memory. The uid in a call
protects an object that was created anew under the name.
"""

from typing import Final, Literal, NamedTuple

from headgate.core.api.job_kinds import path_of
from headgate.core.engine.work_queue import WorkQueue
from headgate.core.machine.api_results import CONFLICT, NOT_FOUND, is_success
from headgate.core.machine.contract import Call, Command, Completed, deletion_of
from headgate.core.state.attribution import about
from headgate.core.state.tables import State, Workload
from headgate.core.status.workload_status import workload_path
from headgate.core.workload.owners import job_key, job_of
from headgate.core.workload.retention import Due, due_of
from headgate.events import decisions, facts, queueing
from headgate.events.ids import UnixMs, WorkloadKey

CALLS_MAX: Final = 64
"""The maximum number of concurrent deletions."""


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
    """The working set of objects to delete. The binder's machine passes on what concerns them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._queue: WorkQueue[WorkloadKey] = WorkQueue(CALLS_MAX)
        self._calls: dict[str, _Call] = {}
        self._done: dict[WorkloadKey, str] = {}
        """The uid of the object that was deleted for a workload and that the watch still shows."""
        self.deleted: list[Deleted] = []
        """Deletions since this was last emptied, to be reported."""
        self._look_at_all()

    def _look_at_all(self) -> None:
        policies = self._state.configuration.object_retention_policies
        if policies.after_finished_ms is not None or policies.after_deactivated_by_kueue_ms is not None:
            self._queue.add_all(self._state.workloads)

    def on_event(
        self,
        event: facts.WorkloadObserved
        | facts.WorkloadDeleted
        | queueing.WorkloadEvicted
        | queueing.WorkloadFinished
        | decisions.QuotaReserved
        | facts.ConfigurationObserved,
    ) -> None:
        """Record events after which something may have to be deleted."""
        if isinstance(event, facts.ConfigurationObserved):
            self._look_at_all()
        else:
            self._queue.add(event.workload)

    def on_completed(self, completed: Completed) -> None:
        """A call has ended. A deleted or replaced object is done; after any other refusal the call is repeated."""
        call = self._calls.pop(completed.call_id, None)
        if call is None:
            return
        if is_success(completed):
            self.deleted.append(call.deleted)
        if is_success(completed) or completed.status in (NOT_FOUND, CONFLICT):
            self._done[call.workload] = call.deleted.uid
            self._queue.done(call.workload)
        else:
            self._queue.retry(call.workload)

    def settle(self, now_ms: UnixMs, calls: list[Command]) -> UnixMs | None:
        """Delete what is due, as far as the limit of calls permits. Returns when to check again."""
        for key in self._queue.ready(now_ms):
            with about("Workload", key):
                self._look_at(key, now_ms, calls)
        return self._queue.next_at(now_ms)

    def _look_at(self, key: WorkloadKey, now_ms: UnixMs, calls: list[Command]) -> None:
        workload = self._state.workloads.get(key)
        due = due_of(self._state, workload) if workload is not None else None
        if workload is None or due is None:
            self._done.pop(key, None)
            self._queue.forget(key)
        elif due.at_ms > now_ms:
            self._queue.add_at(key, due.at_ms)
        else:
            self._delete(workload, due, calls)

    def _delete(self, workload: Workload, due: Due, calls: list[Command]) -> None:
        key = workload.key
        found, path = self._object(workload, due)
        if self._done.get(key) == found.uid:
            return
        call_id = f"retention/{key}"
        self._queue.begin(key)
        self._calls[call_id] = _Call(key, found)
        body = deletion_of(found.uid) | {"propagationPolicy": "Background"}
        calls.append(Call(id=call_id, method="DELETE", path=path, body=body, lane=key))

    def _object(self, workload: Workload, due: Due) -> tuple[Deleted, str]:
        """The object that is due, and its path."""
        record = job_of(self._state, workload)
        job = job_key(self._state, workload)
        if due.what == "workload" or record is None or job is None:
            return Deleted("workload", workload.key, workload.uid), workload_path(workload.key)
        return Deleted("job", job, record.job.uid), path_of(job)
