"""
Training runtimes: what the bridge knows of them, and the TrainJobs whose pod sets follow from them.

The log has a TrainJob with the pod sets that its runtime gives it (`headgate.core.jobs.train_job`), and no runtimes. So
they are kept here as the watches show them, with the TrainJobs that have not ended. When a runtime appears, changes or
goes, the TrainJobs that name it are read again, as if they had changed. The watches of both are never resumed from a
mark but begin with a list, and no fact about a TrainJob is taken before all runtimes have been listed.

A TrainJob that runs keeps the pod sets that it was started with: the Trainer changes a JobSet only while it is
suspended.

Owned by the bridge's machine, and equally pure. Memory: the JSON of the TrainJobs that name a queue and have not ended,
and of the runtimes.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.core.api import job_kinds
from headgate.core.api.job_kinds import (
    CLUSTER_TRAINING_RUNTIMES,
    OF_TRAIN_JOBS,
    TRAIN_JOB,
    TRAINING_RUNTIMES,
)
from headgate.core.jobs.train_job import runtime_of, with_runtime
from headgate.core.state.grouping import Groups
from headgate.core.state.tables import State
from headgate.events import facts
from headgate.events.ids import JobKey, JobRef

TRAIN_JOBS: Final = TRAIN_JOB.resource
UNMARKED: Final = (*OF_TRAIN_JOBS, TRAIN_JOBS)
"""The resources whose watches always begin with a list."""

_RESOURCES: Final = {
    f"TrainingRuntime.{TRAIN_JOB.group}": TRAINING_RUNTIMES,
    f"ClusterTrainingRuntime.{TRAIN_JOB.group}": CLUSTER_TRAINING_RUNTIMES,
}
_Runtime = tuple[str, str]
"""The resource of a runtime, and its key."""


class _Spec(msgspec.Struct, frozen=True):
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class TrainingRuntimes:
    """See the module docstring. The bridge's machine passes on what concerns runtimes and TrainJobs."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._specs: dict[_Runtime, bytes] = {}
        self._jobs: dict[JobKey, bytes] = {}
        self._users: Groups[JobKey, _Runtime] = Groups()

    def keys(self, resource: str) -> Iterable[str]:
        """The runtimes of a resource that are known."""
        return [key for of, key in self._specs if of == resource]

    def observe(self, resource: str, key: str, raw: bytes) -> dict[JobKey, bytes]:
        """A runtime was observed; b"" is one that is gone. Returns the TrainJobs to read again, with their JSON."""
        runtime = resource, key
        before = self._specs.get(runtime)
        if raw:
            self._specs[runtime] = bytes(msgspec.json.encode(msgspec.json.decode(raw, type=_Spec)))
        else:
            self._specs.pop(runtime, None)
        if self._specs.get(runtime) == before:
            return {}
        return {job: self._jobs[job] for job in self._users.of(runtime)}

    def keep(self, resource: str, fact: facts.JobObserved, raw: bytes) -> None:
        """Remember a TrainJob that has not ended; other jobs are none of it, nor below."""
        if resource != TRAIN_JOBS:
            return
        self.forget(resource, fact.job)
        if fact.spec.finished is None:
            self._jobs[fact.job] = raw
            self._users.put(fact.job, _runtime_of(fact.job, raw))

    def forget(self, resource: str, job: JobKey) -> None:
        """A TrainJob is gone, or names no queue."""
        if resource == TRAIN_JOBS:
            self._jobs.pop(job, None)
            self._users.put(job, None)

    def whole(self, resource: str, job: str, raw: bytes) -> bytes:
        """A TrainJob with its runtime, where that is there."""
        runtime = self._specs.get(_runtime_of(JobKey(job), raw)) if resource == TRAIN_JOBS else None
        return raw if runtime is None else with_runtime(raw, runtime)

    def as_started(self, fact: facts.JobObserved) -> facts.JobObserved:
        """
        The fact about a TrainJob, with the pod sets that it runs with.

        One that has stopped keeps them while it has to be restored and its runtime is gone: restoring needs no runtime.
        """
        record = self._state.jobs.get(fact.job) if job_kinds.of_key(fact.job) is TRAIN_JOB else None
        if record is None or record.job.uid != fact.spec.uid or not record.job.pod_sets:
            return fact
        if fact.spec.suspended and (fact.spec.pod_sets or not fact.spec.injected):
            return fact
        return replace(fact, spec=replace(fact.spec, pod_sets=record.job.pod_sets, problem=""))


def _runtime_of(job: JobKey, raw: bytes) -> _Runtime:
    kind, name = runtime_of(raw)
    resource = _RESOURCES.get(kind, "")
    return resource, f"{JobRef.parse(job).namespace}/{name}" if resource == TRAINING_RUNTIMES else name
