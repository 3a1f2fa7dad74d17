"""
The ungater's machine: a Job runs exactly while its workload is admitted.

Level-triggered on the state. The pods that wait for a topology domain, and those that wait for a failed node, are in
`topology_gates` and `stray_pods`, those that are queued themselves in `managed_pods` and `set_pods`. Five rules per
Job:

- Its workload is admitted and it is suspended: resume it, with the node selectors and tolerations of its flavors.
- It is not suspended, or was resumed by us, and none of its workloads is admitted: suspend it.
- An elastic Job whose slice is not admitted may continue: its pods wait behind a gate (`pod_gates`).
- It is controlled by a job that has a queue: that one runs it. While that is not admitted it is suspended.
- It has stopped and still carries what an admission has injected: restore the user's template. This leaves no event;
  the Job that returns through the watch shows it.

The API server allows changes of a Job's template only while it is suspended and has no start time. A Job that has run
before still has one, so restoring resets it first, and a refused start is tried once more after a reset (as Kueue
does). Jobs of other kinds are read before they are started or restored, and patched in the version that was read
(`headgate.core.jobs.integration`): the steps of an action are made one after the other, each when the one before it has
succeeded.

Nothing is stopped before the state is synced, nor because a Job has no workload: it may not be observed yet. The
informer bridge creates one for a Job that has none, and the Job is stopped because that one is not admitted; at once
only where the API server has refused to create one. One action per Job is under way at a time, until its effect is
folded. An action that is refused is recorded, and tried again when the Job has changed; after a conflict it is repeated
later without a change.
"""

from typing import Final

from msgspec.structs import replace

from headgate.core.api import job_kinds
from headgate.core.engine.work_queue import WorkQueue
from headgate.core.fold.quarantine import about_event, has_workload_aside, is_about_aside, is_aside
from headgate.core.jobs.registry import integration_of
from headgate.core.machine.api_results import CONFLICT, INVALID, NOT_FOUND, is_success
from headgate.core.machine.contract import (
    JSON_PATCH,
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
from headgate.core.machine.listeners import Listeners
from headgate.core.state.attribution import about
from headgate.core.state.tables import JobRecord, Stage, State, Workload
from headgate.core.topology.pods import TopologyPods
from headgate.core.workload import owners
from headgate.core.workload.injection import InjectionError, needs_restoring, restore_patch, start_patches
from headgate.core.workload.matching import is_to_run
from headgate.core.workload.pod_jobs import is_of_pods
from headgate.core.workload.prebuilt import is_out_of_sync
from headgate.core.workload.slices import is_elastic
from headgate.core.workload.stops import PARENT_NOT_ADMITTED, why_stop
from headgate.events import decisions, effects, facts, queueing
from headgate.events.base import Producer
from headgate.events.ids import JobKey, UnixMs
from headgate.events.objects import Job
from headgate.events.registry import Event
from headgate.machines.ungater.job_actions import (
    UNINJECTABLE,
    Action,
    Step,
    action_of,
    effect_of,
    is_due,
    uninjectable,
)
from headgate.machines.ungater.jobs_below import JobsBelow
from headgate.machines.ungater.managed_pods import ManagedPods
from headgate.machines.ungater.pod_gates import PodGates
from headgate.machines.ungater.set_pods import SetPods
from headgate.machines.ungater.stray_pods import StrayPods
from headgate.machines.ungater.topology_gates import TopologyGates

EVENTS_MAX: Final = 2000
"""The maximum number of events in one commit. The rest follows in the next."""

ACTIONS_MAX: Final = 256
"""The maximum number of Jobs with an action under way."""

_WorkloadEvent = (
    facts.WorkloadObserved
    | facts.WorkloadDeleted
    | queueing.WorkloadEvicted
    | queueing.WorkloadReleased
    | queueing.WorkloadHeld
    | queueing.WorkloadFinished
    | decisions.QuotaReserved
    | decisions.WorkloadAdmitted
    | decisions.WorkloadPreempted
    | decisions.WorkloadMigrated
    | queueing.WorkloadFollowed
    | decisions.WorkloadReplaced
)
"""The events that may change whether a workload is admitted."""


class Ungater:
    """The machine of the ungater. See the module's docstring."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._queue = WorkQueue(ACTIONS_MAX, keys=state.jobs)
        self._synced = state.synced
        self._effects: list[Event] = []
        self._actions: dict[str, Action] = {}
        self._restored: dict[JobKey, Job] = {}
        self._stopped: dict[JobKey, None] = {}
        self._next_calls: list[Command] = []
        self._pod_gates = PodGates(state)
        topology_pods = TopologyPods(state)
        self._topology_gates = TopologyGates(state, topology_pods)
        self._stray_pods = StrayPods(state, topology_pods)
        self._managed_pods = ManagedPods(state)
        self._set_pods = SetPods(state)
        self._below = JobsBelow(state)
        self._listeners = Listeners(
            self._pod_gates.on_event,
            self._topology_gates.on_event,
            self._stray_pods.on_event,
            self._managed_pods.on_event,
            self._set_pods.on_event,
            self._look_at_job_of,
            self._on_event,
        )

    def decide(self, stimulus: Stimulus) -> list[Command]:
        """The commands that follow from a stimulus."""
        match stimulus:
            case Committed():
                for event in stimulus.logged.commit.events:
                    if self._listeners.are_for(event) and not is_about_aside(self.state, event, Producer.UNGATER):
                        with about_event(event):
                            self._listeners.on_event(event)
                return []
            case Completed():
                self._on_completed(stimulus)
                return []
            case Settled():
                return self._settle(stimulus.now_ms)
            case Listed() | Changed() | Resumed() | Progressed():
                return []

    # --- from the log ----------------------------------------------------------------------------------------------

    def _on_event(
        self,
        event: facts.JobObserved
        | facts.JobDeleted
        | facts.InformersSynced
        | facts.ResourceFlavorObserved
        | effects.WorkloadCreateRejected
        | effects.JobStarted
        | effects.JobStartRejected
        | effects.JobStopped
        | effects.JobStopRejected,
    ) -> None:
        match event:
            case facts.JobObserved():
                self._stopped.pop(event.job, None)
                self._queue.add(event.job)
                self._below.see(event.job)
            case effects.WorkloadCreateRejected():
                self._queue.add(event.job)
            case facts.JobDeleted():
                self._restored.pop(event.job, None)
                self._stopped.pop(event.job, None)
                self._queue.forget(event.job)
                self._below.see(event.job)
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

    def _look_at_job_of(self, event: _WorkloadEvent) -> None:
        workload = self.state.workloads.get(event.workload)
        if workload is not None:
            if workload.owner is not None:
                self._pod_gates.look_at(workload.owner.uid)
            job = owners.job_key(self.state, workload)
        else:
            job = event.job if isinstance(event, facts.WorkloadDeleted) else None
        if job:
            self._queue.add(job)
            self._queue.add_all(self._below.of(job))

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
            self._stray_pods.settle(now_ms, events, calls),
            self._managed_pods.settle(now_ms, events, calls),
            self._set_pods.settle(now_ms, calls),
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
        if record is None or is_of_pods(key):
            return
        job = record.job
        if job.finished is not None or job.deleting:
            return
        if is_aside(self.state, "Job", key, Producer.UNGATER) or has_workload_aside(self.state, job.uid):
            # Running Jobs continue, and suspended Jobs stay suspended.
            return
        above = owners.runs_above(self.state, key, job)
        if above is not None:
            self._stop_below(key, record, above, calls)
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
            is_refused = record.action_refused != "" and UNINJECTABLE not in record.action_refused
            if job.suspended and record.started_for != workload.uid and not is_refused:
                self._begin(action_of("start", key, job, workload), calls)
            return
        if not self.state.synced or (workload is None and not record.refused):
            return
        if workload is not None and workload.stage is Stage.FINISHED and not is_out_of_sync(job, workload):
            return
        if workload is not None and workload.stage is not Stage.EVICTED and self._waits_gated(job, workload):
            return
        if (not job.suspended and key not in self._stopped) or record.started_for:
            if not record.action_refused:
                self._stop(key, job, workload, why_stop(workload), calls)
            return
        if workload is None or workload.stage is Stage.FINISHED or self._restored.get(key) == job:
            return
        if needs_restoring(key, workload, job):
            self._restored[key] = job
            self._begin(action_of("restore", key, job, workload), calls)

    def _stop_below(self, key: JobKey, record: JobRecord, above: JobKey, calls: list[Command]) -> None:
        """Suspend a job that runs although the one that controls it is not admitted; that one resumes it."""
        job = record.job
        if not self.state.synced or job.suspended or key in self._stopped or record.action_refused:
            return
        if not owners.may_run_below(self.state, job, above):
            self._stop(key, job, None, PARENT_NOT_ADMITTED, calls)

    def _waits_gated(self, job: Job, workload: Workload) -> bool:
        """A running elastic Job need not stop for a slice that is not admitted: its pods wait behind their gate."""
        return not job.suspended and is_elastic(self.state.configuration, workload.annotations)

    def _stop(self, key: JobKey, job: Job, workload: Workload | None, why: str, calls: list[Command]) -> None:
        action = action_of("stop", key, job, workload)
        self._act(replace(action, reason=why, patches=(integration_of(key).stop(job),)), calls)

    # --- calls and outcomes ----------------------------------------------------------------------------------------

    def _begin(self, action: Action, calls: list[Command]) -> None:
        """Make the first call of a start or of a restore."""
        if integration_of(action.job).reads_first:
            self._act(action, calls, "read")
        else:
            self._inject(action, b"", calls)

    def _inject(self, action: Action, raw: bytes, calls: list[Command]) -> None:
        """Patch the templates of a job, if that is still due. `raw` is the job as it was read."""
        record, workload = self.state.jobs.get(action.job), self.state.workloads.get(action.workload)
        if not is_due(action, record, workload):
            self._end(action, again=True)
            return
        assert record is not None
        assert workload is not None
        try:
            if action.kind == "restore":
                patch = restore_patch(self.state, action.job, workload, record.job, raw)
                first: Step = "reset" if integration_of(action.job).reopen(record.job.uid) is not None else "patch"
                self._act(replace(action, patches=(patch,)), calls, first)
            else:
                patches = start_patches(self.state, action.job, workload, record.job, raw)
                self._act(replace(action, patches=patches), calls)
        except InjectionError as error:
            if action.kind == "restore" or record.action_refused:
                self._end(action, again=False)
                return
            if not self._queue.is_in_flight(action.job):
                self._queue.begin(action.job)
            self._effects.append(uninjectable(action, error))

    def _end(self, action: Action, *, again: bool) -> None:
        """An action has ended without an effect; one that was begun leaves its job free, to be examined `again`."""
        if not self._queue.is_in_flight(action.job):
            return
        if again:
            self._queue.add(action.job)
        self._queue.done(action.job)

    def _act(self, action: Action, calls: list[Command], step: Step = "patch") -> None:
        """Make the next call of an action; the Job is busy until the action has ended and its effect is folded."""
        if not self._queue.is_in_flight(action.job):
            self._queue.begin(action.job)
        call_id = f"{action.kind}/{action.job}"
        self._actions[call_id] = replace(action, step=step)
        if step == "read":
            calls.append(Call(id=call_id, method="GET", path=job_kinds.path_of(action.job), lane=action.job))
            return
        patch = integration_of(action.job).reopen(action.job_uid) if step == "reset" else action.patches[0]
        assert patch is not None
        calls.append(
            Call(
                id=call_id,
                method="PATCH",
                path=job_kinds.path_of(action.job, patch.subresource),
                body=patch.body,
                content_type=MERGE_PATCH if patch.form == "merge" else JSON_PATCH,
                lane=action.job,
            )
        )

    def _on_completed(self, completed: Completed) -> None:
        action = self._actions.pop(completed.call_id, None)
        self._pod_gates.on_completed(completed)
        self._topology_gates.on_completed(completed)
        self._stray_pods.on_completed(completed)
        self._managed_pods.on_completed(completed)
        self._set_pods.on_completed(completed)
        if action is None:
            return
        if action.step == "read":
            self._on_read(action, completed)
        elif action.step == "reset":
            # Whatever its outcome, the patch that follows shows whether the template can be changed.
            self._act(action, self._next_calls, "patch again")
        elif is_success(completed) and len(action.patches) > 1:
            self._act(replace(action, patches=action.patches[1:]), self._next_calls)
        elif self._may_reopen(action, completed):
            self._act(action, self._next_calls, "reset")
        elif completed.status == CONFLICT:
            self._restored.pop(action.job, None)
            self._queue.retry(action.job)
        elif action.kind == "restore":
            self._end(action, again=True)
        else:
            self._effects.append(effect_of(action, completed))

    def _may_reopen(self, action: Action, completed: Completed) -> bool:
        """Whether a start was refused that may succeed once the job's start time is reset."""
        is_refused = action.kind == "start" and action.step == "patch" and completed.status == INVALID
        return is_refused and integration_of(action.job).reopen(action.job_uid) is not None

    def _on_read(self, action: Action, completed: Completed) -> None:
        """A job was read that is to be started or restored. One that is gone, or another one, the watch reports."""
        if is_success(completed):
            with about("Job", action.job):
                self._inject(action, completed.body, self._next_calls)
        elif completed.status == NOT_FOUND or action.kind == "restore":
            self._end(action, again=False)
        else:
            self._effects.append(effect_of(action, completed))
