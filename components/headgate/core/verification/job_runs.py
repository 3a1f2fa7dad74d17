"""
Job runs: each Job that was resumed had an admitted workload, each that was suspended had none.

The rules of the ungater, written a second time, on purpose, as queries on the state: whether this Job is to run for
that workload; whether it has to stop, and why.
"""

from collections.abc import Iterator

from headgate.core.api.job_kinds import title
from headgate.core.log.rules_version import JOB_RUNS_SINCE, decides_alike
from headgate.core.state.tables import JobRecord, Stage, State, Workload
from headgate.core.verification.check import NOTHING, ReplayDifference, opens_term
from headgate.core.verification.marks import JustifiedEffects
from headgate.core.workload.matching import is_to_run
from headgate.core.workload.owners import job_key, may_run_below, owners_of, runs_above, workload_of
from headgate.core.workload.prebuilt import is_out_of_sync
from headgate.core.workload.slices import is_elastic
from headgate.core.workload.stops import PARENT_NOT_ADMITTED, why_stop
from headgate.events import effects, facts
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, Position, encode_event
from headgate.events.families import names_workload
from headgate.events.ids import JobKey, Seq, WorkloadKey
from headgate.events.registry import Event

_EFFECTS = (effects.JobStarted, effects.JobStartRejected, effects.JobStopped, effects.JobStopRejected)

_What = tuple[str, str, str, str]
"""start, uid of the Job, key and uid of the workload; or stop, uid of the Job, key of the workload, why."""


class JobRunCheck:
    """Justifies the recorded actions of the ungater on Jobs. See the module docstring."""

    def __init__(self) -> None:
        self.counts = {"job runs": 0}
        self.passed_over = 0
        self._has_begun = self._knows = False
        self._marks = JustifiedEffects()
        self._jobs: dict[JobKey, int] = {}
        """The Jobs with further records in the log, and how many."""
        self._job_of: dict[WorkloadKey, JobKey] = {}
        """The Workloads of those Jobs, as last observed."""
        self._below: dict[str, dict[JobKey, None]] = {}
        """By uid of the owner: those of these Jobs that it controls."""
        self._due: dict[Seq, list[JobKey]] = {}
        self._synced = False
        """Whether the state was in sync at the last commit: from then on Jobs may be stopped."""

    def plan(self, logged: LoggedCommit) -> None:
        """See `Check`."""
        for event in logged.commit.events:
            if isinstance(event, _EFFECTS):
                self._marks.expect(event.job, _what(event))
                self._jobs[event.job] = self._jobs.get(event.job, 0) + 1
                self._due.setdefault(logged.commit.decided_at, []).append(event.job)

    def look(self, state: State, logged: LoggedCommit) -> None:
        """See `Check`."""
        election = opens_term(logged, Producer.UNGATER)
        if election is not None:
            self._has_begun = True
            self._knows = decides_alike(Producer.UNGATER, election.rules, JOB_RUNS_SINCE)
        keys: dict[JobKey, None] = {}
        for event in logged.commit.events:
            keys.update(dict.fromkeys(self._concerned(state, event)))
        keys.update(dict.fromkeys(self._due.pop(state.position, ())))
        if state.synced is not self._synced:
            self._synced = state.synced
            keys.update(dict.fromkeys(self._jobs))
        for key in keys:
            record = state.jobs.get(key)
            if record is not None and self._marks.is_awaited(key):
                for what in _reasons(state, key, record):
                    self._marks.allow(key, what, state.position)

    def compare(self, state: State, logged: LoggedCommit) -> Iterator[ReplayDifference]:  # noqa: ARG002 (see Check)
        """See `Check`."""
        if not self._has_begun or logged.commit.producer is not Producer.UNGATER:
            return
        for index, event in enumerate(logged.commit.events):
            if not isinstance(event, _EFFECTS):
                continue
            is_justified = self._marks.use(event.job, _what(event), logged.commit.decided_at)
            self._jobs[event.job] -= 1
            if not self._jobs[event.job]:
                del self._jobs[event.job]
            if not self._knows:
                self.passed_over += not index
                continue
            self.counts["job runs"] += 1
            if not is_justified:
                yield ReplayDifference(
                    what=f"what was done to {title(event.job)}, for which there was no reason up to "
                    f"{logged.commit.decided_at}",
                    position=Position(logged.seq, index),
                    recorded=encode_event(event).decode(),
                    replayed=NOTHING,
                )

    def _concerned(self, state: State, event: Event) -> Iterator[JobKey]:
        """The Jobs that an event may cause to be resumed or suspended."""
        match event:
            case facts.ConfigurationObserved() | facts.ResourceFlavorObserved():
                yield from self._jobs
            case facts.JobObserved():
                above = owners_of(event.spec) if event.job in self._jobs else ()
                for owner in above:
                    self._below.setdefault(owner.uid, {})[event.job] = None
                yield event.job
                yield from self._below.get(event.spec.uid, ())
            case effects.JobStarted() | effects.JobStartRejected() | effects.JobStopped() | effects.JobStopRejected():
                yield event.job
            case _:
                if not names_workload(event):
                    return
                workload = state.workloads.get(event.workload)
                if workload is not None:
                    job = job_key(state, workload)
                    if workload.owner is not None:
                        yield from self._below.get(workload.owner.uid, ())
                    if job is not None and job in self._jobs:
                        self._job_of[workload.key] = job
                        yield job
                elif event.workload in self._job_of:
                    # It was deleted.
                    yield self._job_of.pop(event.workload)


def _what(
    event: effects.JobStarted | effects.JobStartRejected | effects.JobStopped | effects.JobStopRejected,
) -> _What:
    match event:
        case effects.JobStarted() | effects.JobStartRejected():
            return ("start", event.job_uid, event.workload, event.workload_uid)
        case effects.JobStopped():
            return ("stop", event.job_uid, event.workload, event.reason)
        case effects.JobStopRejected():
            return ("stop", event.job_uid, event.workload, "")


def _reasons(state: State, key: JobKey, record: JobRecord) -> Iterator[_What]:
    job = record.job
    workload = workload_of(state, key, job.uid)
    if job.finished is not None or job.deleting:
        return
    above = runs_above(state, key, job)
    if above is not None:
        if state.synced and not job.suspended and not may_run_below(state, job, above):
            yield ("stop", job.uid, "", PARENT_NOT_ADMITTED)
            yield ("stop", job.uid, "", "")
        return
    if workload is not None and is_to_run(workload):
        if job.suspended and record.started_for != workload.uid:
            yield ("start", job.uid, workload.key, workload.uid)
    elif _has_to_stop(state, record, workload):
        stopped_for = workload.key if workload is not None else ""
        yield ("stop", job.uid, stopped_for, why_stop(workload))
        yield ("stop", job.uid, stopped_for, "")


def _has_to_stop(state: State, record: JobRecord, workload: Workload | None) -> bool:
    job = record.job
    if not state.synced:
        return False
    if workload is not None and workload.stage is Stage.FINISHED and not is_out_of_sync(job, workload):
        return False
    if job.suspended and not record.started_for:
        return False
    waits_gated = (
        workload is not None
        and workload.stage is not Stage.EVICTED
        and not job.suspended
        and is_elastic(state.configuration, workload.annotations)
    )
    return not waits_gated
