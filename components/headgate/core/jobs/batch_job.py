"""
The integration of batch/v1 Job (Kueue's pkg/controller/jobs/job).

A Job has one pod set, `main`, with as many pods as run at a time, and `spec.suspend` controls whether it may run. The
API server accepts changes of its template only while it is suspended and has no start time; a Job that has run still
has one and is reopened first. Patches are JSON merge patches: maps are merged key by key, a key to remove is null,
lists are replaced. Each sets every required key, and null for every other that an admission may have left behind,
because the Job in the log may be older than the Job that is patched.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from headgate.core.api.job_kinds import BATCH_JOB
from headgate.core.api.jobs import read_job
from headgate.core.api.names import JOB_COMPLETION_INDEX, WORKLOAD_ANNOTATION
from headgate.core.api.watched_objects import Metadata
from headgate.core.jobs.integration import Json, Patch, PodSetState
from headgate.core.jobs.pod_templates import as_given, merged, topology_request
from headgate.events.objects import Job, PodSet

_POD_SET: Final = "main"
_MANAGED_LABELS: Final = ("job-name", "controller-uid", "batch.kubernetes.io/controller-uid")


class _Spec(msgspec.Struct, frozen=True):
    template: dict[str, Any] = {}


class _Raw(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


class BatchJob:
    """The integration of batch/v1 Job. See the module docstring."""

    kind = BATCH_JOB
    reads_first = False

    def read(self, raw: bytes) -> tuple[Metadata, Job | None]:
        """See `Integration`."""
        return read_job(raw)

    def pod_counts(self, job: Job) -> dict[str, int]:
        """See `Integration`."""
        return {_POD_SET: job.parallelism if job.completions is None else min(job.parallelism, job.completions)}

    def observed_pod_sets(self, job: Job) -> tuple[PodSet, ...]:
        """See `Integration`."""
        count = self.pod_counts(job)[_POD_SET]
        return (PodSet(name=_POD_SET, count=count, min_count=job.min_parallelism, template=job.template),)

    def pod_sets(self, job: Job, raw: bytes) -> list[Json]:
        """See `Integration`."""
        pod_set: Json = {
            "name": _POD_SET,
            "count": self.pod_counts(job)[_POD_SET],
            "template": as_given(msgspec.json.decode(raw, type=_Raw).spec.template, _MANAGED_LABELS),
            "topologyRequest": topology_request(
                job.template.metadata.annotations, pod_index_label=JOB_COMPLETION_INDEX
            ),
        }
        if job.min_parallelism is not None:
            pod_set["minCount"] = job.min_parallelism
        return [pod_set]

    def reclaimable(self, job: Job) -> dict[str, int]:
        """
        See `Integration`.

        A Job with fewer completions left than parallel pods will not start all of them again.
        """
        done = job.succeeded if job.done_indexes is None else job.done_indexes
        if job.parallelism == 1 or done == 0:
            return {_POD_SET: 0}
        left = (job.parallelism if job.completions is None else job.completions) - done
        return {_POD_SET: max(0, job.parallelism - max(0, left))}

    def what_matters(self, job: Job) -> Job:
        """See `Integration`."""
        active, done = min(job.active, 1), self.reclaimable(job)[_POD_SET]
        return replace(job, active=active, ready=0, failed=0, succeeded=done, done_indexes=None)

    def start(self, job: Job, pod_sets: Sequence[PodSetState], raw: bytes = b"") -> tuple[Patch, ...]:
        """See `Integration`."""
        (pod_set,) = pod_sets
        return (_patch(job, {"suspend": False, **_parallelism(job, pod_set.count)}, pod_set),)

    def stop(self, job: Job) -> Patch:
        """See `Integration`. The template is immutable until the Job has stopped; `restore` follows then."""
        return Patch({"metadata": {"uid": job.uid}, "spec": {"suspend": True}})

    def restore(self, job: Job, pod_sets: Sequence[PodSetState], raw: bytes = b"") -> Patch:
        """See `Integration`."""
        (pod_set,) = pod_sets
        return _patch(job, _parallelism(job, pod_set.count), pod_set)

    def reopen(self, job_uid: str) -> Patch | None:
        """See `Integration`."""
        return Patch({"metadata": {"uid": job_uid}, "status": {"startTime": None}}, subresource="status")

    def carries_injection(self, job: Job) -> bool:
        """See `Integration`."""
        return WORKLOAD_ANNOTATION in job.template.metadata.annotations


def _parallelism(job: Job, count: int) -> Json:
    """Parallelism is set only for Jobs that accept partial admission."""
    if job.min_parallelism is None:
        return {}
    return {"parallelism": count} | ({"completions": count} if job.completions_equal_parallelism else {})


def _patch(job: Job, spec: Json, pod_set: PodSetState) -> Patch:
    template, wanted, left = job.template, pod_set.directives, pod_set.left_behind
    metadata = {
        "labels": merged([*template.metadata.labels, *left.labels], wanted.labels),
        "annotations": merged([*template.metadata.annotations, *left.annotations], wanted.annotations),
    }
    selector = merged([*template.spec.node_selector, *left.node_selector], wanted.node_selector)
    changes: Json = {"metadata": {key: value for key, value in metadata.items() if value}, "spec": {}}
    if selector:
        changes["spec"]["nodeSelector"] = selector
    # Lists are replaced as a whole, and null for a missing one has no effect.
    changes["spec"]["tolerations"] = [msgspec.to_builtins(each) for each in wanted.tolerations] or None
    changes["spec"]["schedulingGates"] = [{"name": name} for name in wanted.scheduling_gates] or None
    return Patch({"metadata": {"uid": job.uid}, "spec": {**spec, "template": changes}})
