"""
The contract of an integration: what the rest of the scheduler needs of a kind of jobs.

An integration handles one kind of object: its pod sets, how it is started, stopped and restored, and what its status
reports of its pods. It is pure and stateless: each method answers from the job as it is in the log. The machines get
the integration of a job by its key (`headgate.core.jobs.registry`) and depend on no kind by name.

To add a kind: list it in `headgate.core.api.job_kinds`, read its objects in a module beside `headgate.core.api.jobs`,
implement `Integration` in a module beside `batch_job`, and name it in `headgate.core.jobs.registry`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from headgate.core.api.job_kinds import JobKind
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


class Integration(Protocol):
    """One kind of jobs, given by `kind`."""

    kind: JobKind

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

    def start_patch(self, job: Job, pod_sets: Sequence[PodSetState]) -> Json:
        """The merge patch that resumes it with these pod sets."""
        ...

    def stop_patch(self, job: Job) -> Json:
        """The merge patch that suspends it, and nothing else."""
        ...

    def restore_patch(self, job: Job, pod_sets: Sequence[PodSetState]) -> Json:
        """The merge patch that restores the user's template of a stopped job."""
        ...

    def reopen_patch(self, job_uid: str) -> Json:
        """The merge patch of its status after which a stopped job's templates may be changed."""
        ...

    def carries_injection(self, job: Job) -> bool:
        """Whether its pod templates contain what an admission has injected."""
        ...
