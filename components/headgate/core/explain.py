"""
The story of one workload, read back from the log.

`Explainer` folds a log commit by commit and notes, for one workload and its job, everything that moved it or kept it
where it was: its own events, what happened to its job and pods, and what happened to its ClusterQueue on its behalf
(its shape was put to sleep by another, its queue was blocked by a head in front of it, what woke them). Each line
says where it stands in the log, who wrote it, why, and how long the workload had waited for it and for what. The
story ends with how things stand and what would change that (`headgate.core.standing`).

The command line feeds it (`headgate explain`); it is pure, so an old log tells the same story for ever. A name is
first looked up with `headgate.core.lookup`, in a pass of its own: a job's events precede those of the Workload that
is made for it.
"""

from collections.abc import Iterable, Sequence
from typing import assert_never

import msgspec

from headgate.core import fold
from headgate.core.lifecycle import next_stage
from headgate.core.lookup import Lookup, Target, UnknownWorkloadError
from headgate.core.places import rank_of
from headgate.core.standing import Standing, standing
from headgate.core.state import Parked, Stage, State, Workload
from headgate.core.wording import describe_short, describe_wake, describe_wakes, place_in_line, sleep_of
from headgate.events import decisions, effects, facts, queueing
from headgate.events.base import tag_of
from headgate.events.commit import LoggedCommit, Position
from headgate.events.ids import JobKey, PodKey, UnixMs, WorkloadKey, split_key
from headgate.events.objects import Admission
from headgate.events.registry import Event


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    One thing that happened.

    `event` is its tag, `about` the object it happened to. `waited_for` and `waited_ms` say what the workload had been
    waiting for until then, and how long. `detail` marks bookkeeping that most readers leave out. The same thing
    happening again and again is one line with `times` and the position and time of the last.
    """

    position: Position
    time_ms: UnixMs
    producer: str
    event: str
    about: str
    text: str
    reason: str = ""
    message: str = ""
    waited_for: str = ""
    waited_ms: int | None = None
    detail: bool = False
    times: int = 1
    until: Position | None = None
    until_ms: UnixMs | None = None


class Story(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workload's whole story, up to `position`."""

    workload: WorkloadKey
    job: JobKey
    position: int
    now_ms: UnixMs
    lines: tuple[Line, ...]
    standing: Standing


class _Mark(msgspec.Struct, frozen=True):
    """Since when something is being waited for."""

    position: Position
    time_ms: UnixMs
    waiting_for: str


class _At(msgspec.Struct, frozen=True):
    """The event at hand and its place."""

    position: Position
    time_ms: UnixMs
    producer: str


class Explainer:
    """
    Follows one workload through the log.

    It owns the state that it is made with and folds every commit it is fed into it; begin with the state before the
    first commit, or the story begins where the state does.
    """

    def __init__(self, state: State, target: Target) -> None:
        self.state = state
        self._target = target
        self._lines: list[Line] = []
        self._stage: Stage | None = None
        self._queue_wait: _Mark | None = None
        self._sleep: _Mark | None = None
        self._running: _Mark | None = None
        self._placed: dict[PodKey, _Mark] = {}

    def feed(self, logged: LoggedCommit) -> None:
        """
        Fold a commit and note what it says about the workload.

        Raises what `headgate.core.fold.apply` raises.
        """
        before = self._workload()
        self._stage = before.stage if before is not None else None
        stood = _Stood.of(before)
        job_before = self.state.jobs.get(self._target.job)
        job_was = job_before.job if job_before is not None else None
        fold.apply(self.state, logged)
        commit = logged.commit
        for index, event in enumerate(commit.events):
            at = _At(Position(logged.seq, index), commit.time_ms, commit.producer.value)
            if type(event) is facts.JobObserved:
                if event.job == self._target.job:
                    self._job_observed(at, event, job_was)
                    job_was = event.spec
            else:
                self._note(at, event, stood)

    def story(self) -> Story:
        """What was noted so far, and how things stand now."""
        return Story(
            workload=self._target.workload,
            job=self._target.job,
            position=self.state.position,
            now_ms=self.state.now_ms,
            lines=tuple(self._lines),
            standing=standing(self.state, self._target.workload, self._target.job),
        )

    # --- what concerns us ------------------------------------------------------------------------------------------

    def _workload(self) -> Workload | None:
        return self.state.workloads.get(self._target.workload)

    def _note(self, at: _At, event: Event, stood: "_Stood") -> None:
        match event:
            case (
                facts.WorkloadObserved()
                | facts.WorkloadDeleted()
                | queueing.WorkloadQueued()
                | queueing.WorkloadEvicted()
                | queueing.WorkloadReleased()
                | queueing.WorkloadRequeued()
                | queueing.WorkloadFinished()
                | queueing.DeadlinePassed()
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
            case facts.JobDeleted():
                if event.job == self._target.job:
                    self._add(at, event, "the Job was deleted", about=event.job)
            case facts.PodObserved() | facts.PodDeleted() | decisions.PodPlaced() | effects.PodBound():
                self._pod(at, event)
            case effects.PodBindRejected():
                self._pod(at, event)
            case _:
                pass

    def _add(
        self,
        at: _At,
        event: Event,
        text: str,
        *,
        about: str = "",
        reason: str = "",
        message: str = "",
        waited: _Mark | None = None,
        detail: bool = False,
    ) -> None:
        if waited is not None and waited.position.seq == at.position.seq:
            waited = None  # decided in one commit: nobody waited
        line = Line(
            position=at.position,
            time_ms=at.time_ms,
            producer=at.producer,
            event=tag_of(event),
            about=about or self._target.workload,
            text=text,
            reason=reason,
            message=message,
            waited_for=waited.waiting_for if waited is not None else "",
            waited_ms=max(0, at.time_ms - waited.time_ms) if waited is not None else None,
            detail=detail,
        )
        last = self._lines[-1] if self._lines else None
        if last is not None and _same(last, line):
            self._lines[-1] = msgspec.structs.replace(
                last, times=last.times + 1, until=at.position, until_ms=at.time_ms
            )
        else:
            self._lines.append(line)

    def _overtaken(self, event: Event) -> bool:
        """Whether the fold let the event pass without effect; keeps our idea of the stage in step with it."""
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

    def _own(self, at: _At, event: Event) -> None:
        match event:
            case facts.WorkloadObserved():
                self._observed(at, event)
            case facts.WorkloadDeleted():
                self._add(at, event, "the Workload was deleted")
            case effects.WorkloadCreated():
                self._add(at, event, f"the Workload was created for Job {event.job}")
            case effects.WorkloadCreateRejected():
                text = f"the API server refused the Workload of Job {event.job} ({event.code})"
                self._add(at, event, text, reason=event.reason, message=event.message)
            case effects.StatusApplied():
                self._add(at, event, "its status was written to the API server", detail=True)
            case effects.StatusRejected():
                text = f"the API server refused its status ({event.code})"
                self._add(at, event, text, reason=event.reason, message=event.message)
            case effects.JobStarted():
                self._add(at, event, f"Job {event.job} was resumed", about=event.job, waited=self._running)
            case effects.JobStartRejected() | effects.JobStopRejected():
                verb = "resume" if isinstance(event, effects.JobStartRejected) else "suspend"
                text = f"the API server refused to {verb} Job {event.job} ({event.code})"
                self._add(at, event, text, about=event.job, reason=event.reason, message=event.message)
            case effects.JobStopped():
                self._add(at, event, f"Job {event.job} was suspended", about=event.job, reason=event.reason)
            case _:
                if self._overtaken(event):
                    text = "came too late and changed nothing: the workload had moved on before it"
                    self._add(at, event, text, reason=getattr(event, "reason", ""), detail=True)
                else:
                    self._moved(at, event)

    def _observed(self, at: _At, event: facts.WorkloadObserved) -> None:
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
        said += [f"check {check.name} is {check.state}" for check in event.checks]
        said += [f"{pods.count} pods of {pods.name} are done" for pods in event.reclaimable_pods]
        self._add(at, event, f"changed: {', '.join(said) or 'its spec or metadata'}")

    def _moved(self, at: _At, event: Event) -> None:
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
                self._running = _Mark(at.position, at.time_ms, "its Job to be resumed")
            case queueing.WorkloadEvicted():
                cause = f" ({event.underlying_cause})" if event.underlying_cause else ""
                self._add(at, event, f"evicted{cause}", reason=event.reason, message=event.message)
                self._running = _Mark(at.position, at.time_ms, "its Job to stop")
            case queueing.WorkloadReleased():
                again = "it may queue again" if event.requeued else "it does not queue again by itself"
                text = f"its quota was given back; {again}"
                self._add(at, event, text, reason=event.reason, message=event.message, waited=self._running)
                self._running = None
            case queueing.WorkloadRequeued():
                self._add(at, event, "may queue again", reason=event.reason, message=event.message)
            case queueing.WorkloadFinished():
                ran = self._running
                waited = None if ran is None else _Mark(ran.position, ran.time_ms, "its Job to finish")
                self._add(at, event, "finished", reason=event.reason, message=event.message, waited=waited)
            case queueing.DeadlinePassed():
                self._add(at, event, f"a time was over: {event.deadline}", reason=event.deadline)
            case _:
                pass

    def _queued(self, at: _At, event: queueing.WorkloadQueued) -> None:
        workload = self._workload()
        waited, self._sleep = self._sleep, None
        text = f"entered ClusterQueue {event.cluster_queue} with priority {event.priority}"
        asleep: Parked | None = None
        if workload is not None and workload.stage in (Stage.QUEUED, Stage.OFFERED):
            place, of = place_in_line(self.state, workload)
            text += f", at place {place} of {of}"
            asleep = sleep_of(self.state, workload)
        self._queue_wait = self._queue_wait or _Mark(at.position, at.time_ms, f"quota in {event.cluster_queue}")
        if asleep is not None:
            waits = describe_wakes(asleep, self.state, event.cluster_queue)
            text += f"; it joins those that sleep there, parked by {asleep.by or 'another'}, and waits for {waits}"
            self._sleep = _Mark(at.position, at.time_ms, waits)
            self._add(at, event, text, reason=asleep.reason, message=asleep.message, waited=waited)
        else:
            self._add(at, event, text, waited=waited)

    def _parked(self, at: _At, event: queueing.WorkloadParked) -> None:
        waits = ", or ".join(describe_wake(wake, self.state, event.cluster_queue) for wake in event.wake)
        match event.scope:
            case "workload":
                text = f"set aside, waiting for {waits}"
            case "shape":
                text = f"put to sleep in ClusterQueue {event.cluster_queue} with all of its shape, waiting for {waits}"
            case "queue":
                text = f"keeps its place and blocks ClusterQueue {event.cluster_queue}, waiting for {waits}"
            case _:
                assert_never(event.scope)
        self._add(at, event, text, reason=event.reason, message=event.message)
        self._sleep = _Mark(at.position, at.time_ms, waits)

    def _woken(self, at: _At, event: queueing.WorkloadWoken, scope: str) -> None:
        ways = {"shape": " with all of its shape", "queue": ": its ClusterQueue is no longer blocked"}
        with_whom = ways.get(scope, "")
        text = f"woken{with_whom} by {event.by} (position {event.by_position})"
        self._add(at, event, text, reason=event.by, waited=self._sleep)
        self._sleep = None

    def _skipped(self, at: _At, event: decisions.WorkloadSkipped) -> None:
        then = {
            "immediate": "it stays first and is tried again",
            "workload": "it is set aside",
            "shape": "all of its shape sleep",
            "queue": "its ClusterQueue waits behind it",
        }[event.scope]
        text = f"not admitted by ClusterQueue {event.cluster_queue}{describe_short(event.short)}; {then}"
        self._add(at, event, text, reason=f"{event.reason}/{event.requeue_reason}", message=event.message)

    def _reserved(self, at: _At, event: decisions.QuotaReserved) -> None:
        self._sleep = None
        text = f"quota reserved in ClusterQueue {event.cluster_queue}: {describe_admission(event.admission)}"
        pending = [check.name for check in event.checks if check.state != "Ready"]
        if pending:
            text += f"; checks to pass: {', '.join(pending)}"
        self._add(at, event, text, message=event.message, waited=self._queue_wait)
        self._queue_wait = None
        waiting_for = f"checks {', '.join(pending)}" if pending else "the scheduler to admit it"
        self._running = _Mark(at.position, at.time_ms, waiting_for)

    def _offered(self, at: _At, event: queueing.HeadsOffered) -> None:
        workload = self._workload()
        if workload is None or workload.stage is not Stage.OFFERED:
            text = "offered to the scheduler, too late: it had moved on"
            self._add(at, event, text, detail=True)
            return
        place, _ = place_in_line(self.state, workload)
        text = f"offered to the scheduler, at place {place} of ClusterQueue {workload.cluster_queue}"
        self._stage = Stage.OFFERED
        self._add(at, event, text)

    # --- what happened to others on its behalf ---------------------------------------------------------------------

    def _other(
        self,
        at: _At,
        event: queueing.WorkloadParked | queueing.WorkloadWoken | decisions.WorkloadSkipped,
        stood: "_Stood",
    ) -> None:
        if event.scope not in ("shape", "queue") or event.cluster_queue != stood.cluster_queue or not stood.waits:
            return
        if not self._shares(event, stood):
            return
        alike = "is of its shape" if event.scope == "shape" else "stands in front"
        match event:
            case decisions.WorkloadSkipped():
                if stood.stage is Stage.OFFERED:
                    text = f"taken back from the scheduler: {event.workload} {alike} and was not admitted"
                    self._add(at, event, text, about=event.workload, reason=event.reason, message=event.message)
            case queueing.WorkloadParked():
                waits = ", or ".join(describe_wake(wake, self.state, event.cluster_queue) for wake in event.wake)
                text = f"sleeps in ClusterQueue {event.cluster_queue}: {event.workload} {alike} and waits for {waits}"
                self._add(at, event, text, about=event.workload, reason=event.reason, message=event.message)
                self._sleep = _Mark(at.position, at.time_ms, waits)
            case queueing.WorkloadWoken():
                if self._sleep is not None:
                    self._woken(at, event, event.scope)
            case _:
                assert_never(event)

    def _shares(
        self, event: queueing.WorkloadParked | queueing.WorkloadWoken | decisions.WorkloadSkipped, stood: "_Stood"
    ) -> bool:
        """Whether a verdict on another covers ours: the same shape, or a blocked head in front of it."""
        if event.scope == "shape":
            if isinstance(event, queueing.WorkloadWoken):
                return event.shape == stood.shape
            other = self.state.workloads.get(event.workload)
            return other is not None and other.shape == stood.shape
        other = self.state.workloads.get(event.workload)
        ours = self._workload()
        if isinstance(event, queueing.WorkloadWoken):
            return self._sleep is not None
        return other is not None and ours is not None and rank_of(other) < rank_of(ours)

    # --- its job and pods ------------------------------------------------------------------------------------------

    def _job_observed(self, at: _At, event: facts.JobObserved, was: object) -> None:
        job = event.spec
        said: list[str] = []
        if was is None:
            held = "suspended" if job.suspended else "running"
            self._add(at, event, f"Job {event.job} appeared, {held}, for queue {job.queue_name}", about=event.job)
            return
        for name in ("suspended", "finished", "active", "ready", "succeeded", "failed", "deleting", "parallelism"):
            value = getattr(job, name)
            if value != getattr(was, name):
                said.append(f"{name} {'yes' if value is True else 'no' if value is False else value}")
        tells = job.finished is not None or any(each.startswith("suspended") for each in said)
        text = f"Job {event.job}: {', '.join(said) or 'its template changed'}"
        self._add(at, event, text, about=event.job, message=job.message, detail=not tells)

    def _pod(
        self,
        at: _At,
        event: facts.PodObserved | facts.PodDeleted | decisions.PodPlaced | effects.PodBound | effects.PodBindRejected,
    ) -> None:
        if not self._is_ours(event.pod) and event.pod not in self._placed:
            return
        match event:
            case facts.PodObserved():
                bound = f" on {event.spec.spec.node_name}" if event.spec.spec.node_name else ""
                self._placed.setdefault(event.pod, _Mark(at.position, at.time_ms, "a node with room"))
                self._add(at, event, f"pod is {event.spec.phase}{bound}", about=event.pod, detail=True)
            case facts.PodDeleted():
                self._placed.pop(event.pod, None)
                self._add(at, event, "pod is gone or over", about=event.pod, detail=True)
            case decisions.PodPlaced():
                waited = self._placed.get(event.pod)
                self._add(at, event, f"pod was given node {event.node}", about=event.pod, waited=waited, detail=True)
                self._placed[event.pod] = _Mark(at.position, at.time_ms, "the API server to bind it")
            case effects.PodBound():
                waited = self._placed.get(event.pod)
                self._add(at, event, f"pod was bound to node {event.node}", about=event.pod, waited=waited)
            case effects.PodBindRejected():
                text = f"the API server refused node {event.node} ({event.code})"
                self._add(at, event, text, about=event.pod, reason=event.reason, message=event.message)
            case _:
                assert_never(event)

    def _is_ours(self, pod: PodKey) -> bool:
        record = self.state.pods.get(pod)
        if record is None:
            return False
        namespace, name = split_key(self._target.workload)
        if record.pod.workload and record.pod.workload in (name, self._target.workload):
            return split_key(pod)[0] == namespace
        job = self.state.jobs.get(self._target.job)
        return job is not None and record.pod.owner is not None and record.pod.owner.uid == job.job.uid


class _Stood(msgspec.Struct, frozen=True):
    """Where the workload stood before a commit."""

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


def _same(one: Line, other: Line) -> bool:
    """Whether a line says again what the one before said."""
    return (one.event, one.about, one.text, one.reason, one.message, one.waited_for) == (
        other.event,
        other.about,
        other.text,
        other.reason,
        other.message,
        other.waited_for,
    )


_ROUND = frozenset({"heads.offered", "heads.withdrawn", "workload.skipped", "workload.parked", "workload.woken"})
"""What happens to a pending workload again and again until it fits."""


def condensed(lines: Sequence[Line]) -> list[Line]:
    """
    A story without its tedium: of many rounds of waking, trying and sleeping, the first and the last are told.

    What lies between is one line: how many rounds, from where to where, how long it slept in them.
    """
    told: list[Line] = []
    rounds: list[Line] = []
    for line in lines:
        if line.event in _ROUND or (line.detail and rounds):
            rounds.append(line)
        else:
            told += _condensed_rounds(rounds)
            told.append(line)
            rounds = []
    return told + _condensed_rounds(rounds)


def _condensed_rounds(lines: list[Line]) -> list[Line]:
    ends = [index for index, line in enumerate(lines) if line.event == "workload.woken"]
    if len(ends) < _ROUNDS_TOLD + 2:
        return lines
    between = lines[ends[0] + 1 : ends[-2] + 1]
    woken = [line for line in between if line.event == "workload.woken"]
    tried = sum(line.times for line in between if line.event == "workload.skipped" and "not admitted" in line.text)
    last = next(
        (line for line in reversed(between) if line.event in ("workload.skipped", "workload.parked")), woken[-1]
    )
    text = f"{len(woken)} more rounds like this: woken, and {tried} times tried in vain"
    line = msgspec.structs.replace(
        last,
        position=between[0].position,
        time_ms=between[0].time_ms,
        text=text,
        waited_for=woken[-1].waited_for,
        waited_ms=sum(line.waited_ms or 0 for line in woken),
        until=between[-1].position,
        until_ms=between[-1].time_ms,
    )
    return [*lines[: ends[0] + 1], line, *lines[ends[-2] + 1 :]]


_ROUNDS_TOLD = 2


def describe_admission(admission: Admission) -> str:
    """The flavors and amounts of a reservation."""
    said = []
    for assignment in admission.pod_set_assignments:
        what = ", ".join(
            f"{assignment.resource_usage.get(resource, 0)} {resource} of {flavor}"
            for resource, flavor in sorted(assignment.flavors.items())
        )
        said.append(f"{assignment.count} x {assignment.name} ({what or 'nothing charged'})")
    return "; ".join(said) or "nothing charged"


def explain(commits: Iterable[LoggedCommit], name: str, *, namespace: str = "", cell: str = "main") -> Story:
    """
    The story of a workload or job in a log that is at hand as a whole, from its first commit.

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
    "Line",
    "Lookup",
    "Standing",
    "Story",
    "Target",
    "UnknownWorkloadError",
    "condensed",
    "describe_admission",
    "explain",
]
