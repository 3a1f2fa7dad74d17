"""
The ungater's machine: a Job runs exactly while its workload is admitted.

Level-triggered on the state. The pods that wait for a topology domain, and those that wait for a failed node, are in
`topology_gates` and `stray_pods`. Four rules per Job:

- Its workload is admitted and it is suspended: resume it, with the node selectors and tolerations of its flavors.
- It is not suspended, or was resumed by us, and none of its workloads is admitted: suspend it.
- An elastic Job whose slice is not admitted may continue: its pods wait behind a gate (`pod_gates`).
- It has stopped and still carries what an admission has injected: restore the user's template. This leaves no event;
  the Job that returns through the watch shows it.

The API server allows changes of a Job's template only while it is suspended and has no start time. A Job that has run
before still has one, so restoring resets it first, and a refused start is tried once more after a reset (as Kueue
does).

Nothing is stopped before the state is synced, nor because a Job has no workload: it may not be observed yet. The
informer bridge creates one for a Job that has none, and the Job is stopped because that one is not admitted; at once
only where the API server has refused to create one. One action per Job is under way at a time, until its effect is
folded. An action that is refused is recorded, and tried again when the Job has changed; after a conflict it is repeated
later without a change.
"""

from typing import Final, Literal

import msgspec

from headgate.core.api import job_kinds
from headgate.core.engine.work_queue import WorkQueue
from headgate.core.fold.quarantine import about_event, has_workload_aside, is_about_aside, is_aside
from headgate.core.jobs.registry import integration_of
from headgate.core.machine.api_results import CONFLICT, INVALID, is_success, refusal
from headgate.core.machine.contract import (
    MERGE_PATCH,
    Append,
    Call,
    Changed,
    Command,
    Committed,
    Completed,
    Listed,
    Progressed,
    Resumed,
    Settled,
    Stimulus,
    WakeAt,
)
from headgate.core.state.attribution import about
from headgate.core.state.tables import JobRecord, Stage, State, Workload
from headgate.core.topology.pods import TopologyPods
from headgate.core.workload import owners
from headgate.core.workload.injection import InjectionError, needs_restoring, restore_patch, start_patch
from headgate.core.workload.matching import is_to_run
from headgate.core.workload.slices import is_elastic
from headgate.events import decisions, effects, facts, queueing
from headgate.events.base import Producer
from headgate.events.ids import JobKey, Uid, UnixMs, WorkloadKey
from headgate.events.objects import Job
from headgate.events.registry import Event
from headgate.machines.ungater.pod_gates import PodGates
from headgate.machines.ungater.stray_pods import StrayPods
from headgate.machines.ungater.topology_gates import TopologyGates

EVENTS_MAX: Final = 2000
"""The maximum number of events in one commit. The rest follows in the next."""

ACTIONS_MAX: Final = 256
"""The maximum number of Jobs with an action under way."""

_UNINJECTABLE: Final = "InvalidPodSetsInfo"
"""The reason of a start that Headgate itself refused: it is tried again when a flavor appears."""

_WorkloadEvent = (
    facts.WorkloadObserved
    | facts.WorkloadDeleted
    | queueing.WorkloadEvicted
    | queueing.WorkloadReleased
    | queueing.WorkloadFinished
    | decisions.QuotaReserved
    | decisions.WorkloadAdmitted
    | decisions.WorkloadPreempted
    | decisions.WorkloadMigrated
    | queueing.WorkloadFollowed
    | decisions.WorkloadReplaced
)
"""The events that may change whether a workload is admitted."""

_Kind = Literal["start", "stop", "restore"]
_Step = Literal["patch", "reset", "patch again"]


class _Action(msgspec.Struct, frozen=True):
    """An action on a Job, for which workload, and its progress."""

    kind: _Kind
    job: JobKey
    job_uid: Uid
    workload: WorkloadKey
    workload_uid: Uid
    reason: str = ""
    body: object = None
    step: _Step = "patch"


class Ungater:
    """The machine of the ungater. See the module's docstring."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._queue = WorkQueue(ACTIONS_MAX, keys=state.jobs)
        self._synced = state.synced
        self._effects: list[Event] = []
        self._actions: dict[str, _Action] = {}
        self._restored: dict[JobKey, Job] = {}
        self._stopped: dict[JobKey, None] = {}
        self._next_calls: list[Command] = []
        self._pod_gates = PodGates(state)
        topology_pods = TopologyPods(state)
        self._topology_gates = TopologyGates(state, topology_pods)
        self._stray_pods = StrayPods(state, topology_pods)

    def decide(self, stimulus: Stimulus) -> list[Command]:
        """The commands that follow from a stimulus."""
        match stimulus:
            case Committed():
                for event in stimulus.logged.commit.events:
                    if not is_about_aside(self.state, event, Producer.UNGATER):
                        with about_event(event):
                            self._on_event(event)
                return []
            case Completed():
                self._on_completed(stimulus)
                return []
            case Settled():
                return self._settle(stimulus.now_ms)
            case Listed() | Changed() | Resumed() | Progressed():
                return []

    # --- from the log ----------------------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        self._pod_gates.on_event(event)
        self._topology_gates.on_event(event)
        self._stray_pods.on_event(event)
        if isinstance(event, _WorkloadEvent):
            self._look_at_job_of(event)
            return
        match event:
            case facts.JobObserved():
                self._stopped.pop(event.job, None)
                self._queue.add(event.job)
            case effects.WorkloadCreateRejected():
                self._queue.add(event.job)
            case facts.JobDeleted():
                self._forget(event.job)
            case effects.JobStarted() | effects.JobStartRejected() | effects.JobStopped() | effects.JobStopRejected():
                self._queue.add(event.job)
                self._queue.done(event.job)
                if isinstance(event, effects.JobStopped):
                    # The Job in the state is the earlier version: it is not stopped again until the new one is
                    # observed.
                    self._stopped[event.job] = None
            case facts.InformersSynced():
                if not self._synced:
                    self._synced = True
                    self._queue.add_all(self.state.jobs)
            case facts.ResourceFlavorObserved():
                # A start may have waited for its flavor.
                self._queue.add_all(key for key, record in self.state.jobs.items() if record.action_refused)
            case _:
                pass

    def _look_at_job_of(self, event: _WorkloadEvent) -> None:
        workload = self.state.workloads.get(event.workload)
        if workload is not None:
            if workload.owner is not None:
                self._pod_gates.look_at(workload.owner.uid)
            job = owners.job_key(workload)
        else:
            job = event.job if isinstance(event, facts.WorkloadDeleted) else None
        if job:
            self._queue.add(job)

    def _forget(self, job: JobKey) -> None:
        self._restored.pop(job, None)
        self._stopped.pop(job, None)
        self._queue.forget(job)

    # --- deciding --------------------------------------------------------------------------------------------------

    def _settle(self, now_ms: UnixMs) -> list[Command]:
        calls, self._next_calls = self._next_calls, []
        for key in self._queue.ready(now_ms):
            with about("Job", key):
                self._look_at(key, calls)
        events: list[Event] = []
        wakes = (
            self._pod_gates.settle(now_ms, calls),
            self._topology_gates.settle(now_ms, events, calls),
            self._stray_pods.settle(now_ms, calls),
            self._queue.next_at(now_ms),
        )
        due = [at_ms for at_ms in wakes if at_ms is not None]
        events.extend(self._effects[:EVENTS_MAX])
        del self._effects[:EVENTS_MAX]
        commands: list[Command] = []
        if events:
            commands.append(Append(events=tuple(events), decided_at=self.state.position))
        commands.extend(calls)
        if due:
            commands.append(WakeAt(min(due)))
        return commands

    def _look_at(self, key: JobKey, calls: list[Command]) -> None:
        record = self.state.jobs.get(key)
        if record is None:
            return
        job = record.job
        if job.finished is not None or job.deleting:
            return
        if is_aside(self.state, "Job", key, Producer.UNGATER) or has_workload_aside(self.state, job.uid):
            # Running Jobs continue, and suspended Jobs stay suspended.
            return
        workload = owners.workload_of(self.state, key, job.uid)
        if workload is None:
            self._act_on(key, record, None, calls)
            return
        with about("Workload", workload.key):
            self._act_on(key, record, workload, calls)

    def _act_on(self, key: JobKey, record: JobRecord, workload: Workload | None, calls: list[Command]) -> None:
        job = record.job
        if workload is not None and is_to_run(workload):
            if job.suspended and record.started_for != workload.uid:
                self._start(key, record, workload, calls)
            return
        if not self.state.synced or (workload is not None and workload.stage is Stage.FINISHED):
            return
        if workload is None and not record.refused:
            return
        if workload is not None and workload.stage is not Stage.EVICTED and self._waits_gated(job, workload):
            return
        if (not job.suspended and key not in self._stopped) or record.started_for:
            if not record.action_refused:
                self._stop(key, record, workload, calls)
        elif workload is not None and needs_restoring(key, workload, job) and self._restored.get(key) != job:
            self._restored[key] = job
            body = restore_patch(self.state, key, workload, job)
            self._act(_action("restore", key, job, workload, body), calls, first="reset")

    def _waits_gated(self, job: Job, workload: Workload) -> bool:
        """A running elastic Job need not stop for a slice that is not admitted: its pods wait behind their gate."""
        return not job.suspended and is_elastic(self.state.configuration, workload.annotations)

    def _start(self, key: JobKey, record: JobRecord, workload: Workload, calls: list[Command]) -> None:
        if record.action_refused and _UNINJECTABLE not in record.action_refused:
            return
        try:
            body = start_patch(self.state, key, workload, record.job)
        except InjectionError as error:
            if record.action_refused:
                return
            self._queue.begin(key)
            self._effects.append(
                effects.JobStartRejected(
                    job=key,
                    job_uid=Uid(record.job.uid),
                    workload=workload.key,
                    workload_uid=workload.uid,
                    code=404,
                    reason=_UNINJECTABLE,
                    message=str(error),
                )
            )
            return
        self._act(_action("start", key, record.job, workload, body), calls)

    def _stop(self, key: JobKey, record: JobRecord, workload: Workload | None, calls: list[Command]) -> None:
        action = _action("stop", key, record.job, workload, integration_of(key).stop_patch(record.job))
        self._act(msgspec.structs.replace(action, reason=_why_stop(workload)), calls)

    # --- calls and outcomes ----------------------------------------------------------------------------------------

    def _act(self, action: _Action, calls: list[Command], first: _Step = "patch") -> None:
        """Make the next call of an action; the Job is busy until the action has ended and its effect is folded."""
        if not self._queue.is_in_flight(action.job):
            self._queue.begin(action.job)
        action = msgspec.structs.replace(action, step=first)
        call_id = f"{action.kind}/{action.job}"
        self._actions[call_id] = action
        path, body = job_kinds.path_of(action.job), action.body
        if action.step == "reset":
            path, body = (
                job_kinds.path_of(action.job, "status"),
                integration_of(action.job).reopen_patch(action.job_uid),
            )
        calls.append(Call(id=call_id, method="PATCH", path=path, body=body, content_type=MERGE_PATCH, lane=action.job))

    def _on_completed(self, completed: Completed) -> None:
        action = self._actions.pop(completed.call_id, None)
        self._pod_gates.on_completed(completed)
        self._topology_gates.on_completed(completed)
        self._stray_pods.on_completed(completed)
        if action is None:
            return
        if action.step == "reset":
            # Whatever its outcome, the patch that follows shows whether the template can be changed.
            self._act(action, self._next_calls, first="patch again")
        elif action.kind == "start" and action.step == "patch" and completed.status == INVALID:
            self._act(action, self._next_calls, first="reset")
        elif action.kind == "restore":
            self._queue.add(action.job)
            self._queue.done(action.job)
        elif completed.status == CONFLICT:
            self._queue.retry(action.job)
        else:
            self._effects.append(_effect(action, completed))


def _action(kind: _Kind, key: JobKey, job: Job, workload: Workload | None, body: object) -> _Action:
    return _Action(
        kind=kind,
        job=key,
        job_uid=Uid(job.uid),
        workload=workload.key if workload is not None else WorkloadKey(""),
        workload_uid=workload.uid if workload is not None else Uid(""),
        body=body,
    )


def _why_stop(workload: Workload | None) -> str:
    """Kueue's stop reasons."""
    if workload is None:
        return "NoMatchingWorkload"
    if workload.deleting:
        return "WorkloadDeleted"
    return "WorkloadEvicted" if workload.stage is Stage.EVICTED else "NotAdmitted"


def _effect(action: _Action, completed: Completed) -> Event:
    said = refusal(completed)
    if action.kind == "start":
        if is_success(completed):
            return effects.JobStarted(
                job=action.job, job_uid=action.job_uid, workload=action.workload, workload_uid=action.workload_uid
            )
        return effects.JobStartRejected(
            job=action.job,
            job_uid=action.job_uid,
            workload=action.workload,
            workload_uid=action.workload_uid,
            code=said.code,
            reason=said.reason,
            message=said.message,
        )
    if is_success(completed):
        return effects.JobStopped(
            job=action.job, job_uid=action.job_uid, workload=action.workload, reason=action.reason
        )
    return effects.JobStopRejected(
        job=action.job,
        job_uid=action.job_uid,
        workload=action.workload,
        code=said.code,
        reason=said.reason,
        message=said.message,
    )
