"""
Prebuilt Workloads: a job may name the Workload that it runs by, which somebody else has made.

The name is in the label or annotation `kueue.x-k8s.io/prebuilt-workload-name`. Such a job gets no Workload of its own:
the informer bridge makes it the owner of the named one, where no other object controls that; the job is suspended while
there is none. The two have to stay alike, for neither follows the other but by the queue: one that is out of sync with
its job is finished (`headgate.core.workload.matching`), and the job is suspended. This is Kueue's
ensurePrebuiltWorkloadInSync (pkg/controller/jobframework).

A plain pod controls the Workload that it names, like any job. That of a pod group has the name of the group; all of its
pods own it, and none controls it. Pods cannot be suspended: those that run without their Workload are deleted.
"""

from typing import Final

from headgate.core.api.names import POD_GROUP_KIND
from headgate.core.kubernetes import conditions
from headgate.core.state.tables import JobRecord, Stage, State, Workload
from headgate.events.ids import JobKey, JobRef, WorkloadKey
from headgate.events.objects import Job

NOT_FOUND: Final = "ErrPrebuiltWorkloadNotFound"
NOT_FOUND_MESSAGE: Final = "prebuilt workload not found"
OUT_OF_SYNC_MESSAGE: Final = "The prebuilt workload is out of sync with its user job"
OTHER_NAME_MESSAGE: Final = "prebuilt workload and pod group should be equal"


def key_of(key: JobKey, job: Job) -> WorkloadKey | None:
    """The Workload that a job names; None for a job that gets one of its own."""
    return WorkloadKey(f"{JobRef.parse(key).namespace}/{job.prebuilt}") if job.prebuilt else None


def owned(state: State, key: JobKey, job: Job) -> Workload | None:
    """The Workload that a job names, once the job controls it."""
    named = key_of(key, job)
    workload = state.workloads.get(named) if named is not None else None
    is_owned = workload is not None and workload.owner is not None and workload.owner.uid == job.uid
    return workload if is_owned else None


def claimable(state: State, key: JobKey, job: Job) -> Workload | None:
    """The Workload that a job names, where no object controls it yet. A pod group's has the name of the group."""
    named, ref = key_of(key, job), JobRef.parse(key)
    if ref.kind == POD_GROUP_KIND and job.prebuilt != ref.name:
        return None
    workload = state.workloads.get(named) if named is not None else None
    return workload if workload is not None and workload.owner is None and not workload.deleting else None


def is_out_of_sync(job: Job, workload: Workload) -> bool:
    """Whether a job's Workload was finished because it was out of sync with it: the job must not run."""
    if not job.prebuilt or workload.stage is not Stage.FINISHED:
        return False
    finished = workload.observed_finished or conditions.find(workload.conditions, conditions.FINISHED)
    return finished is not None and finished.reason == conditions.OUT_OF_SYNC


def is_refused(state: State, key: JobKey, record: JobRecord) -> bool:
    """Whether the bridge has found that a job cannot have the Workload that it names, and it still cannot."""
    job = record.job
    is_found = owned(state, key, job) is not None or claimable(state, key, job) is not None
    return job.prebuilt != "" and record.refused != "" and not is_found
