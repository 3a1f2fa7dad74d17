"""
What the rest of the scheduler asks of a kind of jobs: the contract of an integration.

An integration knows one kind of object: which pod sets it has, how it is started, stopped and restored, and what its
status says of its pods. It is pure, and keeps nothing: each method answers from the job as the log has it. The machines
ask for the integration of a job by its key (`headgate.core.jobs.registry`) and know no kind by name.

To add a kind: list it in `headgate.core.api.job_kinds`, read its objects in a module beside `headgate.core.api.jobs`,
implement `Integration` in a module beside `batch_job`, and name it in `headgate.core.jobs.registry`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from headgate.core.api.job_kinds import JobKind
from headgate.events.objects import Job, Toleration

Json = dict[str, Any]


class Directives(msgspec.Struct, kw_only=True):
    """What of a pod template admission changes. Labels and annotations are Kueue's only."""

    labels: dict[str, str]
    annotations: dict[str, str]
    node_selector: dict[str, str]
    tolerations: list[Toleration]


class LeftBehind(msgspec.Struct, frozen=True):
    """The keys that an earlier admission may have left in a pod template."""

    labels: tuple[str, ...]
    annotations: tuple[str, ...]
    node_selector: tuple[str, ...]


class PodSetState(msgspec.Struct, frozen=True):
    """What the template of one pod set is to be, for how many pods, and which keys are to go from it."""

    name: str
    count: int
    directives: Directives
    left_behind: LeftBehind


class Integration(Protocol):
    """One kind of jobs. `kind` says which."""

    kind: JobKind

    def pod_counts(self, job: Job) -> dict[str, int]:
        """How many pods of each of its pod sets run at most at a time, in the order of the Workload's pod sets."""
        ...

    def pod_sets(self, job: Job, raw: bytes) -> list[Json]:
        """The pod sets of its Workload, with whole templates. `raw` is the JSON of the object `job` was read from."""
        ...

    def reclaimable(self, job: Job) -> dict[str, int]:
        """How many pods of each pod set are done for good, so that their quota is free; in that order."""
        ...

    def what_matters(self, job: Job) -> Job:
        """The job without what changes while it runs and nothing follows from; equal ones are no news."""
        ...

    def start_patch(self, job: Job, pod_sets: Sequence[PodSetState], gate: str) -> Json:
        """The merge patch that resumes it with these pod sets; its pods get the scheduling gate `gate`, if any."""
        ...

    def stop_patch(self, job: Job) -> Json:
        """The merge patch that suspends it, and nothing else."""
        ...

    def restore_patch(self, job: Job, pod_sets: Sequence[PodSetState]) -> Json:
        """The merge patch that gives a stopped job back what its user gave."""
        ...

    def reopen_patch(self, job_uid: str) -> Json:
        """The merge patch of its status after which the API server takes changes of the templates of a stopped job."""
        ...

    def carries_injection(self, job: Job) -> bool:
        """Whether its pod templates carry what an admission has put into them."""
        ...
