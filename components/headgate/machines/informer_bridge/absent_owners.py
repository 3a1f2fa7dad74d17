"""
The bridge's owner checks: whether the Job of a Workload, which no watch has shown, is really deleted.

Each resource has a separate watch, and one may lag behind another; a log may be older than the cluster, and a Job may
no longer name a queue. So a Job that is absent from the state proves nothing, and its Workload is not finished for
that. When all observed Jobs are in the log and one is still missing, the API server is queried for it: a single read
returns the current object, never a cached one. Not found, or another Job under the name, is the proof, and is recorded
in the log (`workload.owner_gone`). For a Job that exists the bridge waits; it is queried again when its Workload
changes, when a Job of its name is deleted, and after each list of Jobs.

Level-triggered on the state. Answers are kept here until then, at most one entry per Workload.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from headgate.core.api.job_kinds import path_of
from headgate.core.engine.backlog import Backlog
from headgate.core.machine.api_results import NOT_FOUND, is_success
from headgate.core.machine.contract import Call, Command, Completed
from headgate.core.state.tables import Stage, State
from headgate.core.workload import owners
from headgate.core.workload.pod_jobs import is_group
from headgate.events import facts
from headgate.events.ids import JobKey, Uid, WorkloadKey
from headgate.events.registry import Event

CALLS_MAX: Final = 64
"""The maximum number of concurrent queries."""


class _Question(msgspec.Struct, frozen=True):
    workload: WorkloadKey
    uid: Uid
    job: JobKey
    job_uid: str


class _Metadata(msgspec.Struct, frozen=True):
    uid: str = ""


class _Found(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class AbsentOwners:
    """The Workloads whose Job is unknown. The bridge's machine passes on what concerns them."""

    def __init__(self, state: State, is_there: Callable[[JobKey], bool]) -> None:
        self._state = state
        self._is_there = is_there
        """Whether a pod group has a pod, or is one of a set: that is what there is of it."""
        self._dirty: Backlog[WorkloadKey] = Backlog(state.workloads)
        self._calls: dict[str, _Question] = {}
        self._known: dict[WorkloadKey, _Question] = {}
        """Workloads whose Jobs were queried, with an answer other than deleted."""
        self._again: dict[WorkloadKey, None] = {}
        """Workloads that changed while their query was under way."""
        self.effects: list[Event] = []

    def on_event(
        self, event: facts.WorkloadObserved | facts.WorkloadDeleted | facts.OwnerGone | facts.JobDeleted
    ) -> None:
        """Record events after which a Workload may have lost its Job."""
        match event:
            case facts.WorkloadObserved() | facts.WorkloadDeleted() | facts.OwnerGone():
                self._known.pop(event.workload, None)
                self._dirty.add(event.workload)
            case facts.JobDeleted():
                self._dirty.add_all(self._state.index.owned(event.uid))
                self.on_deletion(event.job)

    def on_deletion(self, job: JobKey) -> None:
        """A Job of this name was deleted: Workloads that wait for one of that name are checked again."""
        self._again |= {each.workload: None for each in self._calls.values() if each.job == job}
        for key, question in list(self._known.items()):
            if question.job == job:
                del self._known[key]
                self._dirty.add(key)

    def on_list(self) -> None:
        """All Jobs were listed: earlier answers may be outdated."""
        self._dirty.add_all(self._known)
        self._known.clear()

    def settle(self, calls: list[Command]) -> None:
        """Send queries, as far as the limit of calls permits."""
        while self._dirty and len(self._calls) < CALLS_MAX:
            self._look_at(self._dirty.take(), calls)

    def _look_at(self, key: WorkloadKey, calls: list[Command]) -> None:
        workload = self._state.workloads.get(key)
        is_open = workload is not None and workload.stage is not Stage.FINISHED
        unknown = owners.unknown_job(self._state, workload) if workload is not None and is_open else None
        if workload is None or unknown is None:
            self._known.pop(key, None)
            return
        job, job_uid = unknown
        question = _Question(key, workload.uid, job, job_uid)
        call_id = f"owner/{key}"
        if call_id in self._calls:
            self._again[key] = None
            return
        if self._known.get(key) == question:
            return
        if is_group(job):
            self._known[key] = question
            if not self._is_there(job):
                self.effects.append(facts.OwnerGone(workload=key, uid=workload.uid, owner_uid=Uid(job_uid)))
            return
        self._calls[call_id] = question
        calls.append(Call(id=call_id, method="GET", path=path_of(job), lane=job))

    def on_completed(self, completed: Completed) -> None:
        """A query was answered."""
        question = self._calls.pop(completed.call_id, None)
        if question is None:
            return
        # Not queried again without need; the proof is an event about this Workload, after which it is examined anew.
        self._known[question.workload] = question
        found = _uid_in(completed.body) if is_success(completed) else ""
        if completed.status == NOT_FOUND or (found and found != question.job_uid):
            owner_uid = Uid(question.job_uid)
            self._again.pop(question.workload, None)
            self.effects.append(facts.OwnerGone(workload=question.workload, uid=question.uid, owner_uid=owner_uid))
        if question.workload in self._again:
            del self._again[question.workload]
            del self._known[question.workload]
            self._dirty.add(question.workload)


def _uid_in(body: bytes) -> str:
    """The uid of an object that was read; "" when the answer cannot be read."""
    try:
        return msgspec.json.decode(body, type=_Found).metadata.uid
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
