"""
The ungater's fifth task: starts, stops and finalizes pods that are queued themselves, alone or in groups.

What each pod needs follows from the state (`headgate.core.workload.pod_actions`). Level-triggered: a job is examined
when one of its pods, its Workload or what an admission depends on changes. One call is under way for a pod at a time; a
refused one is repeated with backoff, after the pod has been examined anew.

Once the pods of an admitted Workload are ungated, the log gets `job.started`; once those of one that lost its admission
are stopped, `job.stopped`; and `pod.removed` for each that was too many in its group. Nothing is stopped or removed
before the state is synced.
"""

from typing import Final

from headgate.core.engine.budget import Budget, BudgetSettings, Load
from headgate.core.engine.work_queue import WorkQueue
from headgate.core.fold.quarantine import has_workload_aside, is_aside
from headgate.core.kubernetes.pod_paths import pod_path
from headgate.core.machine.api_results import NOT_FOUND, is_success
from headgate.core.machine.contract import APPLY_PATCH, MERGE_PATCH, Call, Command, Completed, deletion_of
from headgate.core.state.attribution import about
from headgate.core.state.tables import PodRecord, Stage, State, Workload
from headgate.core.status.server_side_apply import apply_query
from headgate.core.workload import owners, pod_groups, pod_jobs
from headgate.core.workload.injection import InjectionError, Templates, injected
from headgate.core.workload.matching import is_to_run
from headgate.core.workload.pod_actions import (
    PodStep,
    due,
    finalizing_patch,
    stopping_status,
    ungating_patch,
    workload_of_pods,
)
from headgate.core.workload.pod_groups import Members
from headgate.core.workload.stops import why_stop
from headgate.events import effects, facts
from headgate.events.base import Producer
from headgate.events.families import NamesWorkload
from headgate.events.ids import JobKey, PodKey, Uid, UnixMs, WorkloadKey
from headgate.events.registry import Event
from headgate.machines.ungater.job_actions import UNINJECTABLE
from headgate.machines.ungater.pod_patches import PodPatches

CALLS_MAX: Final = 256
"""The maximum number of pods with a call under way."""

JOBS_MAX: Final = 1 << 30
"""No limit: jobs are examined, and the limit is that of their pods."""

BUDGET: Final = BudgetSettings(rate_max=5_000, rate_min=500, burst=1_000)
"""Calls about pods a second, and at once."""


class _Wanted:
    """What each pod of a job needs in this turn, and its Workload."""

    def __init__(self, workload: Workload | None, steps: dict[PodKey, PodStep]) -> None:
        self.workload = workload
        self.steps = steps
        self._templates: Templates | None = None

    def templates(self, state: State) -> Templates:
        """Those of the Workload, which is admitted: the same for all of the pods. Raises InjectionError."""
        assert self.workload is not None
        if self._templates is None:
            self._templates = injected(state, self.workload)
        return self._templates


class ManagedPods:
    """The pods that are queued themselves. The ungater's machine passes on what concerns them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._pods = pod_jobs.JobPods(state)
        self._jobs: WorkQueue[JobKey] = WorkQueue(JOBS_MAX, keys=self._pods.jobs())
        """Jobs to be examined."""
        self._queue: WorkQueue[PodKey] = WorkQueue(CALLS_MAX, budget=Budget(BUDGET, Load()))
        self._patches = PodPatches(state, "pod", self._queue)
        self._doing: dict[PodKey, tuple[JobKey, PodStep, Uid]] = {}
        """What the calls under way do, and the uid of the pod."""
        self._acted: dict[JobKey, str] = {}
        """Jobs of which a pod was started or stopped since the log has a record of it: which of the two."""
        self._effects: list[Event] = []
        self._synced = state.synced

    # --- from the log ----------------------------------------------------------------------------------------------

    def on_event(
        self,
        event: facts.PodObserved
        | facts.PodDeleted
        | facts.JobObserved
        | facts.JobDeleted
        | facts.ResourceFlavorObserved
        | facts.ConfigurationObserved
        | facts.InformersSynced
        | NamesWorkload,
    ) -> None:
        """Record events after which a pod may need something."""
        match event:
            case facts.PodObserved() | facts.PodDeleted():
                before = self._pods.job(event.pod)
                concerned = self._pods.see(event.pod)
                if before is not None or concerned:
                    self._patches.see(event.pod)
                    self._jobs.add_all(concerned)
            case facts.JobObserved() | facts.JobDeleted() | effects.JobStarted() | effects.JobStopped():
                self._look_at(event.job)
            case facts.ResourceFlavorObserved() | facts.ConfigurationObserved():
                self._jobs.add_all(self._pods.jobs())
            case facts.InformersSynced():
                if not self._synced:
                    self._synced = True
                    self._jobs.add_all(self._pods.jobs())
            case facts.WorkloadDeleted() | effects.WorkloadCreateRejected():
                self._look_at(event.job)
            case _:
                self._look_at_job_of(event.workload)

    def _look_at_job_of(self, key: WorkloadKey) -> None:
        workload = self._state.workloads.get(key)
        job = owners.job_key(self._state, workload) if workload is not None else None
        if job is not None:
            self._look_at(job)

    def _look_at(self, job: JobKey) -> None:
        if pod_jobs.is_of_pods(job):
            self._jobs.add(job)

    # --- deciding --------------------------------------------------------------------------------------------------

    def settle(self, now_ms: UnixMs, events: list[Event], calls: list[Command]) -> UnixMs | None:
        """Do what is due. Returns when the next is tried again."""
        calls += self._patches.following
        self._patches.following.clear()
        wanted: dict[JobKey, _Wanted] = {}
        for job in list(self._jobs.ready(now_ms)):
            with about("Job", job):
                wanted[job] = self._examine(job, events)
        for key in self._queue.ready(now_ms):
            with about("Pod", key):
                self._do(key, wanted, now_ms, events, calls)
        events += self._effects
        self._effects.clear()
        return self._queue.next_at(now_ms)

    def _examine(self, job: JobKey, events: list[Event]) -> _Wanted:
        """Queue the pods of a job that need something; record when none does. Returns what they need."""
        members = self._pods.of(job)
        wanted = self._wanted(job, members)
        needing = [key for key in wanted.steps if not self._patches.is_patched(key)]
        self._queue.add_all(needing)
        if not needing and not any(self._queue.is_in_flight(key) for key in wanted.steps):
            self._record(job, members, wanted.workload, events)
        return wanted

    def _wanted(self, job: JobKey, members: Members) -> _Wanted:
        return _Wanted(workload_of_pods(self._state, job, members), self._due(job, members))

    def _due(self, job: JobKey, members: Members) -> dict[PodKey, PodStep]:
        first = next(iter(members.values()), None)
        if first is None or is_aside(self._state, "Job", job, Producer.UNGATER):
            return {}
        if has_workload_aside(self._state, pod_jobs.uid_of(job, first.pod)):
            return {}
        return due(self._state, job, members)

    def _do(
        self,
        key: PodKey,
        wanted: dict[JobKey, _Wanted],
        now_ms: UnixMs,
        events: list[Event],
        calls: list[Command],
    ) -> None:
        """Make the call about a pod that is due."""
        job, record = self._pods.job(key), self._state.pods.get(key)
        if job is None or record is None or self._patches.is_patched(key):
            return
        if job not in wanted:
            wanted[job] = self._wanted(job, self._pods.of(job))
        what = wanted[job].steps.get(key)
        if what is None or is_aside(self._state, "Pod", key, Producer.UNGATER):
            return
        if what.what not in {"stop", "remove"} or self._state.synced:
            self._act(job, key, record, what, wanted[job], now_ms, events, calls)

    # The parts of one decision, which live no longer than the call.
    def _act(
        self,
        job: JobKey,
        key: PodKey,
        record: PodRecord,
        what: PodStep,
        wanted: _Wanted,
        now_ms: UnixMs,
        events: list[Event],
        calls: list[Command],
    ) -> None:
        match what.what:
            case "ungate":
                assert wanted.workload is not None
                try:
                    body = ungating_patch(self._state, record, wanted.workload, wanted.templates(self._state))
                except InjectionError as error:
                    self._refuse(job, wanted.workload, error, events)
                    return
                call = self._patches.begin(key, body, _is_gated, content_type=MERGE_PATCH)
            case "stop":
                body = stopping_status(key, record, what, now_ms)
                call = self._patches.begin(
                    key,
                    body,
                    _is_there,
                    content_type=APPLY_PATCH,
                    subresource="status",
                    query=apply_query(force=True),
                    then=_deletion(key, record),
                )
            case "remove" if pod_groups.is_held(record.pod):
                then = _deletion(key, record) if not record.pod.deleting else None
                call = self._patches.begin(key, finalizing_patch(record), _is_left, then=then)
            case "remove":
                call = self._patches.begin_call(key, _deletion(key, record), _is_there)
            case "finalize":
                call = self._patches.begin(key, finalizing_patch(record), _is_held)
        self._doing[key] = job, what, Uid(record.pod.uid)
        calls.append(call)

    def _refuse(self, job: JobKey, workload: Workload, error: InjectionError, events: list[Event]) -> None:
        """Record once that the pods of a job cannot be started as admitted; a flavor that appears starts them."""
        record = self._state.jobs.get(job)
        if record is None or record.action_refused:
            return
        refused = effects.JobStartRejected(
            job=job,
            job_uid=Uid(record.job.uid),
            workload=workload.key,
            workload_uid=workload.uid,
            code=404,
            reason=UNINJECTABLE,
            message=str(error),
        )
        if refused not in events:
            events.append(refused)

    def _record(self, job: JobKey, members: Members, workload: Workload | None, events: list[Event]) -> None:
        """Record that the pods of a job were started or stopped, when no more of it is due."""
        record, acted = self._state.jobs.get(job), self._acted.pop(job, "")
        if record is None or workload is None or workload.stage is Stage.FINISHED:
            return
        uid = Uid(record.job.uid)
        if is_to_run(workload):
            if acted == "started" and record.started_for != workload.uid:
                events.append(
                    effects.JobStarted(job=job, job_uid=uid, workload=workload.key, workload_uid=workload.uid)
                )
        elif self._state.synced and (acted == "stopped" or record.started_for) and (members or record.job.made_for):
            reason = why_stop(workload)
            events.append(effects.JobStopped(job=job, job_uid=uid, workload=workload.key, reason=reason))

    def on_completed(self, completed: Completed) -> None:
        """A call has ended. After a failure the pod is examined again with backoff."""
        key = self._patches.on_completed(completed)
        if key is None or self._queue.is_in_flight(key):
            return
        job, what, uid = self._doing.pop(key)
        if is_success(completed):
            if what.what in {"ungate", "stop"}:
                self._acted[job] = "started" if what.what == "ungate" else "stopped"
            elif what.what == "remove":
                self._effects.append(effects.PodRemoved(pod=key, uid=uid))
        elif completed.status != NOT_FOUND:
            return
        self._jobs.add(job)


def _is_gated(record: PodRecord) -> bool:
    return pod_groups.is_gated(record.pod)


def _is_there(record: PodRecord) -> bool:
    return not record.pod.deleting


def _is_held(record: PodRecord) -> bool:
    return pod_groups.is_held(record.pod)


def _is_left(record: PodRecord) -> bool:
    return _is_there(record) or _is_held(record)


def _deletion(key: PodKey, record: PodRecord) -> Call:
    return Call(id="", method="DELETE", path=pod_path(key), body=deletion_of(record.pod.uid), lane=key)
