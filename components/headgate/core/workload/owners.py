"""
Owners: what runs the work of a workload, and what the log contains about it.

Headgate runs two kinds of owners: jobs of the kinds in `headgate.core.api.job_kinds` that the configuration enables
(`integrations.frameworks`), and parents whose variants are
Workloads themselves. The work of all others is run outside of Headgate: by another controller, a script, a user. Such a
workload keeps its quota after an eviction until its owner reports that the work has stopped
(`headgate.core.status.foreign_conditions`), because nothing else can prove that.

That an owner is missing from the state proves nothing: its fact may come later than that of what it owns, since each
resource has a watch of its own, and an object that cannot be read counts as absent. `is_gone` holds only after proof:
the Job was observed to be deleted or replaced by another of its name, a list lacked it, or the API server has answered
a query about it (`workload.owner_gone`). Everything that ends a workload because its owner is gone uses this module.

An owner is identified by group, kind, namespace, name and uid, all of them: objects of two groups may share the rest.
"""

from collections.abc import Iterator
from typing import Final

from headgate.core.api import job_kinds
from headgate.core.api.job_kinds import JobKind
from headgate.core.api.names import JOB_UID, OWNER_GVK, OWNER_NAME
from headgate.core.state.tables import JobRecord, Stage, State, Workload
from headgate.core.workload import prebuilt
from headgate.core.workload.slices import standing
from headgate.core.workload.variants import is_variant
from headgate.events.ids import JobKey, JobRef, split_key
from headgate.events.objects import Job, OwnerReference

OWNERS_MAX: Final = 10
"""How many owners are followed upwards."""
TOO_DEEP: Final = "JobNestingTooDeep"
TOO_DEEP_MESSAGE: Final = (
    f"Terminated search for Kueue-managed Job because ancestor depth exceeded limit of {OWNERS_MAX}"
)


def is_job(state: State, owner: OwnerReference | None) -> bool:
    """Whether an owner is a job that Headgate runs: of a kind that it knows and that the configuration enables."""
    return _enabled(state, job_kinds.of_owner(owner)) is not None


def job_key(state: State, workload: Workload) -> JobKey | None:
    """The job that a workload was created for, existing or not; None when Headgate does not run its owner."""
    named = _job_named(state, workload)
    return named[0] if named is not None else None


def workload_of(state: State, key: JobKey, uid: str) -> Workload | None:
    """The Workload that represents a job; None when it has none. One that names a Workload has that or none."""
    record = state.jobs.get(key)
    if record is not None and record.job.prebuilt and record.job.uid == uid:
        return prebuilt.owned(state, key, record.job)
    listed = state.index.by_owner.get(uid)
    found = state.workloads.get(listed) if listed is not None else None
    if found is None or job_key(state, found) == key:
        return found
    # A Workload with this uid was created for an object of another kind or name.
    return standing(state, uid, lambda each: job_key(state, each) == key)


def is_run_here(state: State, workload: Workload) -> bool:
    """Whether Headgate starts and stops the work of a workload, and so detects itself when it has stopped."""
    return is_job(state, workload.owner) or is_variant(workload) or _kind_made_for(state, workload) is not None


def job_of(state: State, workload: Workload) -> JobRecord | None:
    """The job that owns a workload, when the state has it."""
    named = _job_named(state, workload)
    if named is None:
        return None
    key, uid = named
    record = state.jobs.get(key)
    return record if record is not None and record.job.uid == uid else None


def owner_uid(state: State, workload: Workload) -> str:
    """The uid of the Job that a workload was created for; "" when it was created for none."""
    named = _job_named(state, workload)
    return named[1] if named is not None else ""


def unknown_job(state: State, workload: Workload) -> tuple[JobKey, str] | None:
    """Key and uid of the Job of a workload, when the state has neither that Job nor proof of its end."""
    named = _job_named(state, workload)
    if named is None or workload.owner_gone or job_of(state, workload) is not None:
        return None
    return named


def is_gone(state: State, workload: Workload) -> bool:
    """Whether the Job that a workload was created for is proved deleted."""
    return workload.owner_gone and _job_named(state, workload) is not None and job_of(state, workload) is None


def owners_of(job: Job) -> tuple[OwnerReference, ...]:
    """What controls a job, and what is known to be above that, nearest first."""
    return (job.owner, *job.ancestors) if job.owner is not None else ()


def runs_above(state: State, key: JobKey, job: Job) -> JobKey | None:
    """
    The topmost job that controls a job and has a queue: that one runs it, and its own queue name does not count.

    None for a job that no other controls (Kueue's FindAncestorJobManagedByKueue).
    """
    unnamed = state.configuration.manage_jobs_without_queue_name
    found = None
    for above, record in _above(state, key, job):
        if record is not None and (unnamed or record.job.queue_name):
            found = above
    return found


def is_nested_too_deep(state: State, key: JobKey, job: Job) -> bool:
    """Whether more owners are above a job than are followed."""
    return sum(1 for _ in _above(state, key, job)) > OWNERS_MAX


def _above(state: State, key: JobKey, job: Job) -> Iterator[tuple[JobKey, JobRecord | None]]:
    """The owners above a job, nearest first, each with its record where it is a job that the state has."""
    namespace, left = JobRef.parse(key).namespace, owners_of(job)
    seen = {job.uid: None}
    while left and left[0].uid not in seen:
        owner, left = left[0], left[1:]
        seen[owner.uid] = None
        above = job_kinds.owner_key(namespace, owner)
        record = state.jobs.get(above) if is_job(state, owner) else None
        if record is not None and record.job.uid == owner.uid:
            left = owners_of(record.job)
            yield above, record
        else:
            yield above, None


def may_run_below(state: State, job: Job, above: JobKey) -> bool:
    """
    Whether a job may run that is controlled by `above`, which has a queue (Kueue's shouldSuspendChildJob).

    It may while the Workload of that one is admitted; one of an elastic job until it is evicted. Without a Workload it
    may not, unless that is only not observed yet.
    """
    record = state.jobs.get(above)
    if record is None:
        return True
    workload = workload_of(state, above, record.job.uid)
    if workload is None:
        return not record.refused
    if job.elastic or record.job.elastic:
        return workload.stage not in (Stage.EVICTED, Stage.FINISHED)
    return workload.stage in (Stage.ADMITTED, Stage.EVICTED)


def _job_named(state: State, workload: Workload) -> tuple[JobKey, str] | None:
    owner = workload.owner
    kind = _kind_made_for(state, workload) if owner is None else _enabled(state, job_kinds.of_owner(owner))
    if kind is None:
        return None
    name, uid = (
        (owner.name, owner.uid) if owner is not None else (workload.annotations[OWNER_NAME], workload.labels[JOB_UID])
    )
    return kind.key(split_key(workload.key)[0], name), uid


def _kind_made_for(state: State, workload: Workload) -> JobKind | None:
    """
    The kind of job that an ownerless workload was created for, by its own data: the job was deleted without it.

    The label alone is not enough: any job has a uid, and the API server can be queried here only about supported kinds.
    """
    if workload.owner is not None or not workload.labels.get(JOB_UID) or not workload.annotations.get(OWNER_NAME):
        return None
    return _enabled(state, job_kinds.of_gvk(workload.annotations.get(OWNER_GVK, "")))


def _enabled(state: State, kind: JobKind | None) -> JobKind | None:
    return kind if kind is not None and job_kinds.is_enabled(kind, state.configuration) else None
