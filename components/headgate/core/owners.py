"""
Owners: who runs the work of a workload, and what the log knows of that.

Headgate runs two sorts of owners: batch/v1 Jobs, and parents whose variants are Workloads themselves. The work of all
others is run by somebody else: another controller, a script, a person. Such a workload keeps its quota after an
eviction until its owner says that the work has stopped (`headgate.core.foreign`), because nobody else can know.

That an owner is not in the state proves nothing: its fact may come later than that of what it owns, since each resource
has a watch of its own, and an object that cannot be read counts as absent. `is_gone` holds only after proof: the Job
was seen to be deleted or replaced by another of its name, a list lacked it, or the API server has answered a question
about it (`workload.owner_gone`). Everything that ends a workload for want of its owner asks here.
"""

from typing import Final

from headgate.core.state import JobRecord, State, Workload
from headgate.core.variants import is_variant
from headgate.events.ids import JobKey, split_key
from headgate.events.objects import OwnerReference

JOB_UID: Final = "kueue.x-k8s.io/job-uid"
"""The label that names the job a workload was made for, also when the owner reference is gone."""

_OWNER_GVK: Final = "kueue.x-k8s.io/job-owner-gvk"
_OWNER_NAME: Final = "kueue.x-k8s.io/job-owner-name"
_JOB_GVK: Final = "batch/v1, Kind=Job"


def is_job(owner: OwnerReference | None) -> bool:
    """Whether an owner is a Job of Kubernetes. A kind of that name in another group is somebody else's."""
    return owner is not None and owner.kind == "Job" and owner.api_version.partition("/")[0] == "batch"


def is_run_here(workload: Workload) -> bool:
    """Whether Headgate starts and stops the work of a workload, and so sees by itself when it has stopped."""
    return is_job(workload.owner) or is_variant(workload) or _was_made_for_job(workload)


def job_of(state: State, workload: Workload) -> JobRecord | None:
    """The Job that owns a workload, when the state has it."""
    named = _job_named(workload)
    if named is None:
        return None
    key, uid = named
    record = state.jobs.get(key)
    return record if record is not None and record.job.uid == uid else None


def owner_uid(workload: Workload) -> str:
    """The uid of the Job that a workload was made for; "" when it was made for none."""
    named = _job_named(workload)
    return named[1] if named is not None else ""


def unknown_job(state: State, workload: Workload) -> tuple[JobKey, str] | None:
    """Key and uid of the Job that a workload was made for, when the state has no such Job, nor the proof of its end."""
    named = _job_named(workload)
    if named is None or workload.owner_gone or job_of(state, workload) is not None:
        return None
    return named


def is_gone(state: State, workload: Workload) -> bool:
    """Whether the Job that a workload was made for is proved to be no more."""
    return workload.owner_gone and _job_named(workload) is not None and job_of(state, workload) is None


def _job_named(workload: Workload) -> tuple[JobKey, str] | None:
    namespace, owner = split_key(workload.key)[0], workload.owner
    if owner is not None:
        return (JobKey(f"{namespace}/{owner.name}"), owner.uid) if is_job(owner) else None
    if not _was_made_for_job(workload):
        return None
    return JobKey(f"{namespace}/{workload.annotations[_OWNER_NAME]}"), workload.labels[JOB_UID]


def _was_made_for_job(workload: Workload) -> bool:
    """
    Whether a workload without an owner says itself that it was made for a Job: that has been deleted without it.

    The label alone does not: any job has a uid, and only of Jobs can the API server be asked here.
    """
    if workload.owner is not None or not workload.labels.get(JOB_UID):
        return False
    return workload.annotations.get(_OWNER_GVK) == _JOB_GVK and bool(workload.annotations.get(_OWNER_NAME))


__all__ = ["JOB_UID", "is_gone", "is_job", "is_run_here", "job_of", "owner_uid", "unknown_job"]
