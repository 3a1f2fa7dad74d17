"""
The history of one workload, read from the log.

`Explainer` folds a log commit by commit and records, for one workload and its job, everything that moved it or kept it
in place: its own events, events of its job and pods, and events of its ClusterQueue that affect it (its shape was put
to sleep by another, its queue was blocked by a head before it, what woke them). Each line has its log position, its
producer, the reason, and how long the workload had waited for it and for what. The history ends with the current status
and what would change it (`headgate.core.views.diagnosis`).

The command line uses it (`headgate explain`); it is pure, so an old log always gives the same history. A name is first
resolved with `headgate.core.views.lookup`, in a separate pass: a job's events precede those of its Workload.
"""
# Over 400 lines: one sentence for each event type that can concern a workload.

from collections.abc import Iterable
from typing import Final, assert_never

import msgspec

from headgate.core import fold
from headgate.core.api.job_kinds import kind_name, shown_name, title
from headgate.core.fold.quarantine import Treatments
from headgate.core.fold.transitions import rank_of
from headgate.core.kubernetes import conditions
from headgate.core.state.lifecycle import next_stage
from headgate.core.state.tables import Parked, Stage, State, Workload
from headgate.core.views.descriptions import (
    describe_admission,
    describe_configuration,
    describe_short,
    describe_wake,
    describe_wakes,
    place_in_line,
    sleep_of,
)
from headgate.core.views.diagnosis import Standing, standing
from headgate.core.views.explain_jobs import JobNotes
from headgate.core.views.explain_pods import PodVerdict
from headgate.core.views.explain_provisioning import provisioning_message, provisioning_text
from headgate.core.views.explain_topology import describe_topology, topology_text
from headgate.core.views.lookup import HistorySubject, Lookup, UnknownWorkloadError
from headgate.core.views.places import places
from headgate.core.views.timeline import EventPlace, Line, Mark, Notes, Story, condensed
from headgate.events import decisions, effects, facts, queueing
from headgate.events.commit import LoggedCommit, Position
from headgate.events.registry import Event

_WITH_EQUALS: Final = ", as are all with the same scheduling hash"


class Explainer:
    """
    Follows one workload through the log.

    It owns its state and folds every commit that it is fed into it; begin with the state before the first commit, or
    the history begins with the state's position.
    """

    def __init__(self, state: State, target: HistorySubject, treatments: Treatments = fold.NO_TREATMENTS) -> None:
        self.state = state
        self._target = target
        self._treatments = treatments
        self._notes = Notes(target.workload)
        self._add = self._notes.add
        self._jobs = JobNotes(state, target, self._notes)
        self._stage: Stage | None = None
        self._queue_wait: Mark | None = None
        self._sleep: Mark | None = None
        self._running: Mark | None = None

    def feed(self, logged: LoggedCommit) -> None:
        """
        Fold a commit and record its events about the workload.

        Raises what `headgate.core.fold.apply` raises.
        """
        before = self._workload()
        self._stage = before.stage if before is not None else None
        stood = _Stood.of(before)
        job_before = self.state.jobs.get(self._target.job)
        job_was = job_before.job if job_before is not None else None
        if not fold.apply(self.state, logged, self._treatments):
            return
        commit = logged.commit
        for index, event in enumerate(commit.events):
            at = EventPlace(Position(logged.seq, index), commit.time_ms, commit.producer.value)
            if type(event) is facts.JobObserved:
                if event.job == self._target.job:
                    self._jobs.on_job(at, event, job_was)
                    job_was = event.spec
            else:
                self._note(at, event, stood)

    def story(self) -> Story:
        """The lines so far, and the current status."""
        stands = standing(self.state, self._target.workload, self._target.job)
        workload = self._workload()
        if workload is not None:
            stands = msgspec.structs.replace(stands, places=places(self.state, workload))
        return Story(
            workload=self._target.workload,
            job=shown_name(self._target.job),
            job_kind=kind_name(self._target.job) if self._target.job else "",
            position=self.state.position,
            now_ms=self.state.now_ms,
            lines=tuple(self._notes.lines),
            standing=stands,
            configuration=describe_configuration(self.state.configuration),
            pod=self._target.pod,
        )

    # --- relevant events ---------------------------------------------------------------------------------------------

    def _workload(self) -> Workload | None:
        return self.state.workloads.get(self._target.workload)

    # Large: one case for each event type that can concern the workload.
    def _note(self, at: EventPlace, event: Event, stood: "_Stood") -> None:
        match event:
            case (
                facts.WorkloadObserved()
                | facts.WorkloadDeleted()
                | queueing.WorkloadQueued()
                | queueing.WorkloadEvicted()
                | queueing.WorkloadReleased()
                | queueing.WorkloadHeld()
                | queueing.WorkloadRequeued()
                | queueing.WorkloadFinished()
                | queueing.DeadlinePassed()
                | queueing.WorkloadFollowed()
                | queueing.PreemptionGateOpened()
                | queueing.WorkloadNodeFailed()
                | queueing.WorkloadNodeRecovered()
                | decisions.PodsAssigned()
                | decisions.TopologyAssigned()
                | decisions.SecondPassFailed()
                | decisions.QuotaReserved()
                | decisions.WorkloadAdmitted()
                | effects.StatusApplied()
                | effects.StatusRejected()
                | effects.WorkloadCreated()
                | effects.WorkloadCreateRejected()
                | effects.JobStarted()
                | effects.JobStartRejected()
                | effects.JobStopped()
                | effects.JobStopRejected()
            ):
                if event.workload == self._target.workload:
                    self._own(at, event)
            case effects.VariantChanged():
                if self._target.workload in (event.variant, event.parent):
                    self._variant_changed(at, event)
            case queueing.WorkloadParked() | queueing.WorkloadWoken() | decisions.WorkloadSkipped():
                if event.workload == self._target.workload:
                    self._own(at, event)
                else:
                    self._other(at, event, stood)
            case queueing.HeadsOffered():
                if any(head.workload == self._target.workload for head in event.heads):
                    self._offered(at, event)
            case queueing.HeadsWithdrawn():
                if stood.stage is Stage.OFFERED and stood.cluster_queue in event.cluster_queues:
                    text = f"taken back from the scheduler into ClusterQueue {stood.cluster_queue}: {event.reason}"
                    self._add(at, event, text, reason=event.reason, detail=True)
            case decisions.WorkloadPreempted() | decisions.WorkloadMigrated() | decisions.WorkloadReplaced():
                if event.workload == self._target.workload:
                    self._own(at, event)
                else:
                    self._made_way(at, event)
            case facts.ProvisioningRequestObserved() | facts.ProvisioningRequestDeleted():
                if event.owner == self._target.workload:
                    self._add(at, event, provisioning_text(event), message=provisioning_message(event))
            case facts.ConfigurationObserved():
                if stood.stage is not None:
                    text = f"the configuration is now: {describe_configuration(event.configuration)}"
                    self._add(at, event, text, about="configuration")
            case facts.JobDeleted():
                if event.job == self._target.job:
                    text = "the Job was deleted" if event.gone else "the Job is deleted, or names no queue any more"
                    self._add(at, event, text, about=shown_name(event.job))
            case facts.PodObserved() | facts.PodDeleted() | decisions.PodPlaced() | effects.PodBound():
                self._jobs.on_pod(at, event)
            case effects.PodBindRejected():
                self._jobs.on_pod(at, event)
            case _ if isinstance(event, PodVerdict):
                self._jobs.on_placement(at, event)
            case _:
                pass

    def _overtaken(self, event: Event) -> bool:
        """Whether the fold ignores the event as overtaken; keeps our copy of the stage current."""
        stage = self._stage
        if stage is None:
            return True
        try:
            end = next_stage(stage, type(event))
        except LookupError:  # the fold has refused it already
            return True
        if end is None:
            return True
        match event:
            case queueing.WorkloadParked() if event.scope != "workload":
                end = Stage.QUEUED
            case queueing.WorkloadWoken() if event.scope != "workload":
                end = Stage.QUEUED
            case decisions.WorkloadSkipped() if event.scope == "immediate":
                end = stage
            case _:
                pass
        self._stage = end
        return False

    # --- its own events --------------------------------------------------------------------------------------------

    # Large: one case for each event type about the workload, with its sentence.
    def _own(self, at: EventPlace, event: Event) -> None:
        match event:
            case facts.WorkloadObserved():
                self._observed(at, event)
            case facts.OwnerGone():
                self._add(at, event, "the API server has no such owner of the Workload any more")
            case facts.WorkloadDeleted():
                self._add(at, event, "the Workload was deleted")
            case queueing.PreemptionGateOpened():
                self._add(at, event, f"it may preempt others from now on: its gate {event.gate} was opened")
            case effects.WorkloadCreated():
                self._add(at, event, f"the Workload was created for {title(event.job)}")
            case effects.WorkloadCreateRejected():
                text = f"the API server refused the Workload of {title(event.job)} ({event.code})"
                self._add(at, event, text, reason=event.reason, message=event.message)
            case (
                queueing.WorkloadNodeFailed()
                | queueing.WorkloadNodeRecovered()
                | decisions.PodsAssigned()
                | decisions.TopologyAssigned()
                | decisions.SecondPassFailed()
            ):
                text = topology_text(event, self.state, self._workload())
                self._add(at, event, text, message=getattr(event, "message", ""))
            case (
                queueing.CheckUpdated()
                | queueing.ProvisioningRequested()
                | queueing.ProvisioningWithdrawn()
                | effects.ProvisioningCreated()
                | effects.ProvisioningRejected()
                | effects.ProvisioningRemoved()
            ):
                self._add(at, event, provisioning_text(event), message=provisioning_message(event))
            case effects.StatusApplied():
                self._add(at, event, "its status was written to the API server", detail=True)
            case effects.StatusRejected():
                text = f"the API server refused its status ({event.code})"
                self._add(at, event, text, reason=event.reason, message=event.message)
            case effects.JobStarted():
                self._add(
                    at, event, f"{title(event.job)} was resumed", about=shown_name(event.job), waited=self._running
                )
            case effects.JobStartRejected() | effects.JobStopRejected():
                verb = "resume" if isinstance(event, effects.JobStartRejected) else "suspend"
                text = f"the API server refused to {verb} {title(event.job)} ({event.code})"
                self._add(at, event, text, about=shown_name(event.job), reason=event.reason, message=event.message)
            case effects.JobStopped():
                self._add(
                    at, event, f"{title(event.job)} was suspended", about=shown_name(event.job), reason=event.reason
                )
            case _:
                if self._overtaken(event):
                    text = "came too late and changed nothing: the workload was in another state already"
                    self._add(at, event, text, reason=getattr(event, "reason", ""), detail=True)
                else:
                    self._moved(at, event)

    def _variant_changed(self, at: EventPlace, event: effects.VariantChanged) -> None:
        verb = {"activated": "switched on", "deactivated": "switched off"}.get(event.change, event.change)
        why = f": {event.why}" if event.why else ""
        its_own = event.variant == self._target.workload
        whose = f"as the variant of {event.parent}" if its_own else f"its variant {event.variant} was {verb}"
        text = f"{verb} {whose} for flavor {event.flavor}" if its_own else f"{whose} for flavor {event.flavor}"
        self._add(at, event, text + why)

    def _observed(self, at: EventPlace, event: facts.WorkloadObserved) -> None:
        if self._stage is None:
            self._stage = Stage.NEW
            pods = ", ".join(f"{each.count} x {each.name}" for each in event.spec.pod_sets) or "no pods"
            text = f"first seen: asks LocalQueue {event.spec.queue_name or '(none)'} for {pods}"
            taken = " (taken over with the status it had)" if event.taken_over is not None else ""
            self._add(at, event, text + taken)
            workload = self._workload()
            if workload is not None:
                self._stage = workload.stage
            return
        said = []
        if event.finished is not None:
            said.append(f"it is marked finished ({event.finished.reason})")
        if not event.spec.active:
            said.append("it is deactivated")
        if event.deleting:
            said.append("it is being deleted")
        if event.deactivation_target is not None:
            said.append(
                f"DeactivationTarget is {event.deactivation_target.status}: {event.deactivation_target.message}"
            )
        said += [f"check {check.name} is {check.state}" for check in event.checks]
        said += [f"{pods.count} pods of {pods.name} are done" for pods in event.reclaimable_pods]
        self._add(at, event, f"changed: {', '.join(said) or 'its spec or metadata'}")

    # Large: one case for each event type that moves the workload, with its sentence.
    def _moved(self, at: EventPlace, event: Event) -> None:
        match event:
            case queueing.WorkloadQueued():
                self._queued(at, event)
            case queueing.WorkloadParked():
                self._parked(at, event)
            case queueing.WorkloadWoken():
                self._woken(at, event, event.scope)
            case decisions.WorkloadSkipped():
                self._skipped(at, event)
            case decisions.QuotaReserved():
                self._reserved(at, event)
            case decisions.WorkloadAdmitted():
                text = f"admitted by ClusterQueue {event.cluster_queue}: its job may run"
                self._add(at, event, text, message=event.message, waited=self._running)
                self._running = Mark(at.position, at.time_ms, "its Job to be resumed")
            case queueing.WorkloadFollowed():
                text = f"admitted as its variant {event.variant} is, by ClusterQueue {event.cluster_queue}"
                self._add(at, event, f"{text}: its job may run", waited=self._queue_wait)
                self._queue_wait = None
                self._running = Mark(at.position, at.time_ms, "its Job to be resumed")
            case queueing.WorkloadEvicted():
                cause = f" ({event.underlying_cause})" if event.underlying_cause else ""
                self._add(at, event, f"evicted{cause}", reason=event.reason, message=event.message)
                self._running = Mark(at.position, at.time_ms, "its Job to stop")
            case decisions.WorkloadPreempted():
                text = f"preempted by {event.preemptor}: its quota in ClusterQueue {event.cluster_queue} is needed"
                self._lost(at, event, text, reason=event.reason)
            case decisions.WorkloadMigrated():
                text = f"evicted so that {event.by}, its variant in a better flavor, can take its place"
                self._lost(at, event, text, reason="FlavorMigration")
            case decisions.WorkloadReplaced():
                text = f"its place was taken by {event.by}, a larger slice of the same job"
                self._lost(at, event, text, reason="WorkloadSliceReplaced")
                self._running = None
            case queueing.WorkloadReleased():
                again = "it may queue again" if event.requeued else "it does not queue again by itself"
                text = "its reservation was cancelled" if event.cancelled else f"its quota was given back; {again}"
                self._add(at, event, text, reason=event.reason, message=event.message, waited=self._running)
                self._running = None
            case queueing.WorkloadHeld():
                text = "its quota was given back while its job is on hold"
                self._add(at, event, text, reason=conditions.ON_HOLD, message=event.message)
                self._running = None
            case queueing.WorkloadRequeued():
                self._add(at, event, "may queue again", reason=event.reason, message=event.message)
            case queueing.WorkloadFinished():
                ran = self._running
                waited = None if ran is None else Mark(ran.position, ran.time_ms, "its Job to finish")
                self._add(at, event, "finished", reason=event.reason, message=event.message, waited=waited)
            case queueing.DeadlinePassed():
                self._add(at, event, f"a time was over: {event.deadline}", reason=event.deadline)
            case _:
                pass

    def _queued(self, at: EventPlace, event: queueing.WorkloadQueued) -> None:
        workload = self._workload()
        waited, self._sleep = self._sleep, None
        text = f"entered ClusterQueue {event.cluster_queue} with priority {event.priority}"
        asleep: Parked | None = None
        if workload is not None and workload.stage in (Stage.QUEUED, Stage.OFFERED):
            place, of = place_in_line(self.state, workload)
            text += f", at position {place} of {of}"
            asleep = sleep_of(self.state, workload)
        self._queue_wait = self._queue_wait or Mark(at.position, at.time_ms, f"quota in {event.cluster_queue}")
        if asleep is not None:
            waits = describe_wakes(asleep, self.state, event.cluster_queue)
            text += f"; not tried yet, because {asleep.by or 'another workload'} was not admitted; waiting for {waits}"
            self._sleep = Mark(at.position, at.time_ms, waits)
            self._add(at, event, text, reason=asleep.reason, message=asleep.message, waited=waited)
        else:
            self._add(at, event, text, waited=waited)

    def _parked(self, at: EventPlace, event: queueing.WorkloadParked) -> None:
        waits = ", or ".join(describe_wake(wake, self.state, event.cluster_queue) for wake in event.wake)
        match event.scope:
            case "workload":
                text = f"inadmissible, waiting for {waits}"
            case "shape":
                text = f"inadmissible in ClusterQueue {event.cluster_queue}{_WITH_EQUALS}, waiting for {waits}"
            case "queue":
                text = f"stays head of ClusterQueue {event.cluster_queue} and blocks it, waiting for {waits}"
            case _:
                assert_never(event.scope)
        self._add(at, event, text, reason=event.reason, message=event.message)
        self._sleep = Mark(at.position, at.time_ms, waits)

    def _woken(self, at: EventPlace, event: queueing.WorkloadWoken, scope: str) -> None:
        ways = {"shape": " with all that have its scheduling hash", "queue": ": its ClusterQueue is no longer blocked"}
        with_whom = ways.get(scope, "")
        text = f"requeued{with_whom}, by {event.by} (position {event.by_position})"
        self._add(at, event, text, reason=event.by, waited=self._sleep)
        self._sleep = None

    def _skipped(self, at: EventPlace, event: decisions.WorkloadSkipped) -> None:
        then = {
            "immediate": "it stays head and is tried again",
            "workload": "it is inadmissible until something changes",
            "shape": "it is inadmissible" + _WITH_EQUALS,
            "queue": "it stays head and blocks its ClusterQueue",
        }[event.scope]
        if event.targets:
            then = f"it waits for {', '.join(event.targets)} to release quota"
        text = f"not admitted by ClusterQueue {event.cluster_queue}{describe_short(event.short)}; {then}"
        self._add(at, event, text, reason=f"{event.reason}/{event.requeue_reason}", message=event.message)

    def _reserved(self, at: EventPlace, event: decisions.QuotaReserved) -> None:
        self._sleep = None
        text = f"quota reserved in ClusterQueue {event.cluster_queue}: {describe_admission(event.admission)}"
        pending = [check.name for check in event.checks if check.state != "Ready"]
        if pending:
            text += f"; checks to pass: {', '.join(pending)}"
        text += describe_topology(self.state, event.admission)
        self._add(at, event, text, message=event.message, waited=self._queue_wait)
        self._queue_wait = None
        waiting_for = f"checks {', '.join(pending)}" if pending else "the scheduler to admit it"
        self._running = Mark(at.position, at.time_ms, waiting_for)

    def _lost(
        self,
        at: EventPlace,
        event: decisions.WorkloadPreempted | decisions.WorkloadMigrated | decisions.WorkloadReplaced,
        text: str,
        *,
        reason: str,
    ) -> None:
        """Its quota is reserved for another workload from here on."""
        self._add(at, event, text, reason=reason, message=event.message)
        self._running = Mark(at.position, at.time_ms, "its Job to stop")

    def _made_way(
        self,
        at: EventPlace,
        event: decisions.WorkloadPreempted | decisions.WorkloadMigrated | decisions.WorkloadReplaced,
    ) -> None:
        """Another workload is evicted on its behalf, or not."""
        match event:
            case decisions.WorkloadPreempted() if event.preemptor == self._target.workload:
                text = f"preempts {event.workload} in ClusterQueue {event.cluster_queue}, and waits for its quota"
                self._add(at, event, text, about=event.workload, reason=event.reason, message=event.message)
            case decisions.WorkloadMigrated() if event.by == self._target.workload:
                text = f"{event.workload}, its variant in another flavor, is evicted in its favor"
                self._add(at, event, text, about=event.workload, message=event.message)
            case decisions.WorkloadReplaced() if event.by == self._target.workload:
                text = f"takes the place of {event.workload}, a smaller slice of the same job"
                self._add(at, event, text, about=event.workload, message=event.message)
            case _:
                pass

    def _offered(self, at: EventPlace, event: queueing.HeadsOffered) -> None:
        workload = self._workload()
        if workload is None or workload.stage is not Stage.OFFERED:
            text = "offered to the scheduler too late: it was no longer pending"
            self._add(at, event, text, detail=True)
            return
        place, _ = place_in_line(self.state, workload)
        text = f"offered to the scheduler, at position {place} of ClusterQueue {workload.cluster_queue}"
        if any(head.alone and head.workload == workload.key for head in event.heads):
            text += "; enough quota for it alone, others with its scheduling hash stay inadmissible"
        self._stage = Stage.OFFERED
        waited, self._sleep = self._sleep, None
        self._add(at, event, text, waited=waited)

    # --- events of others that affect it ------------------------------------------------------------------------------

    def _other(
        self,
        at: EventPlace,
        event: queueing.WorkloadParked | queueing.WorkloadWoken | decisions.WorkloadSkipped,
        stood: "_Stood",
    ) -> None:
        if event.scope not in ("shape", "queue") or event.cluster_queue != stood.cluster_queue or not stood.waits:
            return
        if not self._shares(event, stood):
            return
        alike = "with the same scheduling hash" if event.scope == "shape" else "the head of the queue"
        match event:
            case decisions.WorkloadSkipped():
                if stood.stage is Stage.OFFERED:
                    text = f"taken back from the scheduler: {event.workload}, {alike}, was not admitted"
                    self._add(at, event, text, about=event.workload, reason=event.reason, message=event.message)
            case queueing.WorkloadParked():
                waits = ", or ".join(describe_wake(wake, self.state, event.cluster_queue) for wake in event.wake)
                text = (
                    f"inadmissible in ClusterQueue {event.cluster_queue}: {event.workload}, {alike}, waits for {waits}"
                )
                self._add(at, event, text, about=event.workload, reason=event.reason, message=event.message)
                self._sleep = Mark(at.position, at.time_ms, waits)
            case queueing.WorkloadWoken():
                if self._sleep is not None:
                    self._woken(at, event, event.scope)
            case _:
                assert_never(event)

    def _shares(
        self, event: queueing.WorkloadParked | queueing.WorkloadWoken | decisions.WorkloadSkipped, stood: "_Stood"
    ) -> bool:
        """Whether a verdict on another applies to this workload: the same shape, or a blocking head before it."""
        if event.scope == "shape":
            if isinstance(event, queueing.WorkloadWoken):
                return event.shape == stood.shape
            other = self.state.workloads.get(event.workload)
            return other is not None and other.shape == stood.shape
        other = self.state.workloads.get(event.workload)
        ours = self._workload()
        if isinstance(event, queueing.WorkloadWoken):
            return self._sleep is not None
        return other is not None and ours is not None and rank_of(self.state, other) < rank_of(self.state, ours)


class _Stood(msgspec.Struct, frozen=True):
    """The status of the workload before a commit."""

    stage: Stage | None = None
    cluster_queue: str = ""
    shape: str = ""
    waits: bool = False

    @staticmethod
    def of(workload: Workload | None) -> "_Stood":
        if workload is None:
            return _Stood()
        waits = workload.stage in (Stage.QUEUED, Stage.OFFERED, Stage.SKIPPED)
        return _Stood(workload.stage, workload.cluster_queue, workload.shape, waits)


def explain(commits: Iterable[LoggedCommit], name: str, *, namespace: str = "", cell: str = "main") -> Story:
    """
    The history of a workload or job in a log that is completely available, from its first commit.

    Raises UnknownWorkloadError, and what `headgate.core.fold.apply` raises.
    """
    whole = tuple(commits)
    lookup = Lookup()
    for logged in whole:
        lookup.feed(logged)
    explainer = Explainer(fold.new_state(cell), lookup.find(name, namespace))
    for logged in whole:
        explainer.feed(logged)
    return explainer.story()


__all__ = [
    "Explainer",
    "HistorySubject",
    "Line",
    "Lookup",
    "Standing",
    "Story",
    "UnknownWorkloadError",
    "condensed",
    "explain",
]
