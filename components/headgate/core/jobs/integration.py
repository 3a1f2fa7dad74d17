"""
The contract of an integration: what the rest of the scheduler needs of a kind of jobs.

An integration handles one kind of object: how it is read, its pod sets, how it is started, stopped and restored, and
what its status reports of its pods. It is pure and stateless: each method answers from the job as it is in the log, or
from the object as the API server has it. The machines get the integration of a job by its key
(`headgate.core.jobs.registry`) and depend on no kind by name.

To add a kind that has a field for suspending it, extend `headgate.core.jobs.suspendable.Suspendable`; for any other,
implement `Integration`. List it in `headgate.core.api.job_kinds` and in `headgate.core.jobs.registry`, or add it from
another package by an entry point (`headgate.processes.runtime.extensions`).
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from headgate.core.api.job_kinds import JobKind
from headgate.core.api.watched_objects import Metadata
from headgate.events.objects import Job, PodSet, Toleration

Json = dict[str, Any]


class Directives(msgspec.Struct, kw_only=True):
    """The parts of a pod template that admission changes. Labels and annotations are Kueue's only."""

    labels: dict[str, str]
    annotations: dict[str, str]
    node_selector: dict[str, str]
    tolerations: list[Toleration]
    scheduling_gates: list[str]


class LeftBehind(msgspec.Struct, frozen=True):
    """The keys that an earlier admission may have left in a pod template."""

    labels: tuple[str, ...]
    annotations: tuple[str, ...]
    node_selector: tuple[str, ...]


class PodSetState(msgspec.Struct, frozen=True):
    """The desired template of one pod set, its number of pods, and the keys to remove."""

    name: str
    count: int
    directives: Directives
    left_behind: LeftBehind


class Patch(msgspec.Struct, frozen=True):
    """A change of a job: a JSON merge patch, or a JSON patch, of the object or of one of its subresources."""

    body: Any
    form: Literal["merge", "json"] = "merge"
    subresource: str = ""


class PodSetMismatchError(Exception):
    """Raised when the object that is to be started or restored does not have the pod sets of its Workload."""


class Integration(Protocol):
    """One kind of jobs, given by `kind`."""

    kind: JobKind

    reads_first: bool
    """Whether `start` and `restore` are made from the object as the API server has it; the ungater reads it then."""

    def read(self, raw: bytes) -> tuple[Metadata, Job | None]:
        """
        The metadata of an object, and what the log has of it; None when it is irrelevant to Headgate.

        Raises what the readers of `headgate.core.api` raise for an object that is not of the form of its kind.
        """
        ...

    def pod_counts(self, job: Job) -> dict[str, int]:
        """The maximum number of concurrent pods of each of its pod sets, in the order of the Workload's pod sets."""
        ...

    def observed_pod_sets(self, job: Job) -> tuple[PodSet, ...]:
        """The pod sets of its Workload as far as the log has them, without their topology requests."""
        ...

    def pod_sets(self, job: Job, raw: bytes) -> list[Json]:
        """
        The pod sets of its Workload, with whole templates.

        `raw` is the JSON of the object from which `job` was read.
        """
        ...

    def reclaimable(self, job: Job) -> dict[str, int]:
        """How many pods of each pod set are done for good, so that their quota is free; in the same order."""
        ...

    def what_matters(self, job: Job) -> Job:
        """The job without irrelevant fields that change while it runs; equal ones are no news."""
        ...

    def start(self, job: Job, pod_sets: Sequence[PodSetState], raw: bytes) -> tuple[Patch, ...]:
        """
        The patches, in their order, that resume it with these pod sets. `raw` is b"" unless the kind `reads_first`.

        Raises PodSetMismatchError.
        """
        ...

    def stop(self, job: Job) -> Patch:
        """The patch that suspends it, and nothing else."""
        ...

    def restore(self, job: Job, pod_sets: Sequence[PodSetState], raw: bytes) -> Patch:
        """
        The patch that restores the user's template of a stopped job. `raw` as for `start`.

        Raises PodSetMismatchError.
        """
        ...

    def reopen(self, job_uid: str) -> Patch | None:
        """The patch after which a stopped job's templates may be changed; None where they may at any time."""
        ...

    def carries_injection(self, job: Job) -> bool:
        """Whether its pod templates contain what an admission has injected."""
        ...


class RunByPods:
    """What kinds have in common whose pods are started and stopped, not the object: nothing makes patches of that."""

    kind: JobKind
    reads_first: bool = False

    def start(self, job: Job, pod_sets: Sequence[PodSetState], raw: bytes) -> tuple[Patch, ...]:
        """Raises TypeError."""
        raise self._unpatched()

    def stop(self, job: Job) -> Patch:
        """Raises TypeError."""
        raise self._unpatched()

    def restore(self, job: Job, pod_sets: Sequence[PodSetState], raw: bytes) -> Patch:
        """Raises TypeError."""
        raise self._unpatched()

    def _unpatched(self) -> TypeError:
        return TypeError(f"{self.kind.kind}: its pods are started and stopped, not the object")
