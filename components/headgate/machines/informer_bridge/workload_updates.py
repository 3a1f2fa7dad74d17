"""
The bridge's work for edited jobs: the Workload of a job follows it, as in Kueue.

- To another queue while it is pending, to another priority class, and to what holds the job back.
- To other pod sets (`headgate.core.workload.matching`): a pending Workload gets those of the job in place. One that
  holds quota is deleted: the ungater stops the job first, and the job gets another Workload when this one is gone. The
  parent of variants is deleted too, for they are copies of it.
- A prebuilt Workload follows by its queue only (`headgate.core.workload.prebuilt`).
- The slices of an elastic job follow its size (`headgate.core.workload.slices`).
- A job has one Workload. Others that name it as their owner would hold quota that nothing uses, and are deleted.

Level-triggered: the bridge's machine passes a job on whenever it or its Workload has changed. A call is not repeated
before either has changed again. A Workload in the log is trimmed, so that new pod sets need the whole job: as it was
observed last, or as it is read.
"""

from collections.abc import Callable
from typing import Any, Final

from headgate.core.jobs.registry import integration_of
from headgate.core.machine.contract import JSON_PATCH, MERGE_PATCH, Call, Command, Completed, deletion_of
from headgate.core.state.tables import PENDING, JobRecord, Stage, State, Workload
from headgate.core.status.workload_status import workload_path
from headgate.core.workload import owners
from headgate.core.workload.job_workload import (
    NoSuchPriorityClassError,
    is_sliced,
    queue_of,
    resize_patch,
    wanted_slice,
    workload_changes,
    workload_of,
)
from headgate.core.workload.matching import is_match
from headgate.core.workload.slices import is_elastic
from headgate.core.workload.variants import is_parent
from headgate.events import facts
from headgate.events.ids import JobKey, Uid, WorkloadKey
from headgate.events.objects import Job

_FROM_JOB: Final = ("podSets", "queueName", "priority", "priorityClassRef", "maximumExecutionTimeSeconds")
"""The fields of a Workload's spec that come from its job. Whether it is active is not one of them."""

Whole = Callable[[JobKey, JobRecord], tuple[Job | None, bytes]]
"""A job as last observed, parsed and as JSON; None when it is not available."""


class WorkloadUpdates:
    """The calls by which Workloads follow their jobs. The bridge's machine passes on what concerns them."""

    def __init__(self, state: State, whole: Whole, expect: Callable[[WorkloadKey], None]) -> None:
        self._state = state
        self._whole = whole
        self._expect = expect
        """Called with a Workload that is written with the value of its priority class."""
        self._calls: dict[str, None] = {}
        self._asked: dict[Uid, object] = {}
        """By uid of a job or Workload: what was asked for since either changed."""

    @property
    def in_flight(self) -> int:
        """How many calls are under way."""
        return len(self._calls)

    def on_event(
        self, event: facts.JobObserved | facts.JobDeleted | facts.WorkloadObserved | facts.WorkloadDeleted
    ) -> None:
        """Record that a job or its Workload has changed."""
        match event:
            case facts.JobObserved():
                self._asked.pop(Uid(event.spec.uid), None)
            case facts.WorkloadObserved():
                self._asked.pop(event.uid, None)
                if event.owner is not None:
                    self._asked.pop(Uid(event.owner.uid), None)
            case facts.JobDeleted() | facts.WorkloadDeleted():
                self._asked.pop(event.uid, None)

    def on_completed(self, completed: Completed) -> None:
        """Done or refused, the Workload and the job show the next step."""
        self._calls.pop(completed.call_id, None)

    # --- what a job needs ------------------------------------------------------------------------------------------

    def needs_whole(self, key: JobKey, record: JobRecord, calls: list[Command]) -> bool:
        """
        Let the Workloads of a job follow it.

        True when that takes the whole job, which has to be read first.
        """
        if is_sliced(self._state, record.job):
            self._resize(key, record, calls)
        if record.job.finished is not None or record.job.deleting:
            return False
        workload = owners.workload_of(self._state, key, record.job.uid)
        if workload is None or workload.stage is Stage.FINISHED or workload.deleting:
            return False
        self._drop_others(key, record, workload, calls)
        if not record.job.prebuilt and not is_match(self._state, key, record, workload):
            return self._reshape(key, record, workload, calls)
        changes = workload_changes(self._state, key, record.job, workload)
        if changes:
            self._change(key, record, workload, changes, calls)
        return False

    def _reshape(self, key: JobKey, record: JobRecord, workload: Workload, calls: list[Command]) -> bool:
        """Give a Workload the pod sets of its job, or delete it where it holds quota for others."""
        if workload.stage not in PENDING or is_parent(workload):
            self._delete(key, workload, calls)
            return False
        if f"update/{workload.key}" in self._calls or ("shape", record.job) == self._asked.get(workload.uid):
            return False
        job, raw = self._whole(key, record)
        if job is None:
            return True
        try:
            composed = workload_of(self._state, key, job, raw)["spec"]
            spec = {field: composed.get(field) for field in _FROM_JOB}
        except NoSuchPriorityClassError:
            # Its priority stays until the class is there.
            spec = {"podSets": integration_of(key).pod_sets(job, raw)}
            spec["queueName"] = queue_of(self._state, key, job) or None
            spec["maximumExecutionTimeSeconds"] = job.max_execution_time_seconds
        self._change(key, record, workload, {"spec": spec}, calls)
        self._asked[workload.uid] = ("shape", record.job)
        return False

    def _change(
        self, key: JobKey, record: JobRecord, workload: Workload, changes: dict[str, Any], calls: list[Command]
    ) -> None:
        uid = Uid(record.job.uid)
        if self._asked.get(uid) == changes:
            return
        body = {**changes, "metadata": {"uid": workload.uid, **changes.get("metadata", {})}}
        if self._call(f"update/{workload.key}", "PATCH", workload, body, MERGE_PATCH, key, calls):
            self._asked[uid] = changes
            self._expect(workload.key)

    def _resize(self, key: JobKey, record: JobRecord, calls: list[Command]) -> None:
        """Give a slice of an elastic job the job's size: it holds no quota yet, or the job was scaled down."""
        wanted = wanted_slice(self._state, key, record.job)
        slice_ = wanted.selected
        if slice_ is None or not wanted.resize or slice_.deleting or record.job.finished is not None:
            return
        body = resize_patch(slice_, integration_of(key).pod_counts(record.job))
        asked = {"resize": body}
        if self._asked.get(slice_.uid) == asked:
            return
        if self._call(f"resize/{slice_.key}", "PATCH", slice_, body, JSON_PATCH, key, calls):
            self._asked[slice_.uid] = asked

    def _drop_others(self, key: JobKey, record: JobRecord, workload: Workload, calls: list[Command]) -> None:
        """Delete the other Workloads of a job that has no slices."""
        owned = self._state.index.owned(record.job.uid)
        if len(owned) < 2:
            return
        for each in [self._state.workloads[other] for other in owned]:
            is_over = each.stage is Stage.FINISHED or each.deleting
            if each is workload or is_over or is_elastic(self._state.configuration, each.annotations):
                continue
            if owners.job_key(self._state, each) == key:
                self._delete(key, each, calls)

    def _delete(self, key: JobKey, workload: Workload, calls: list[Command]) -> None:
        if self._asked.get(workload.uid) == "delete":
            return
        if self._call(f"delete/{workload.key}", "DELETE", workload, deletion_of(workload.uid), "", key, calls):
            self._asked[workload.uid] = "delete"

    def _call(
        self,
        call_id: str,
        method: str,
        workload: Workload,
        body: object,
        content_type: str,
        job: JobKey,
        calls: list[Command],
    ) -> bool:
        """Make a call, unless one of its kind is under way about the Workload."""
        if call_id in self._calls:
            return False
        self._calls[call_id] = None
        path = workload_path(workload.key)
        calls.append(Call(id=call_id, method=method, path=path, body=body, content_type=content_type, lane=job))
        return True
