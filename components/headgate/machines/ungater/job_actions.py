"""
The actions of the ungater on jobs: what one is, whether it is still due, and the effect that it ends with.

Used by the ungater's machine (`decide`) only.
"""

from typing import Final, Literal

import msgspec

from headgate.core.jobs.integration import Patch
from headgate.core.machine.api_results import is_success, refusal
from headgate.core.machine.contract import Completed
from headgate.core.state.tables import JobRecord, Workload
from headgate.core.workload.injection import InjectionError
from headgate.core.workload.matching import is_to_run
from headgate.events import effects
from headgate.events.ids import JobKey, Uid, WorkloadKey
from headgate.events.objects import Job
from headgate.events.registry import Event

UNINJECTABLE: Final = "InvalidPodSetsInfo"
"""The reason of a start that Headgate itself refused: it is tried again when a flavor appears."""

Kind = Literal["start", "stop", "restore"]
Step = Literal["read", "patch", "reset", "patch again"]


class Action(msgspec.Struct, frozen=True):
    """
    An action on a Job, for which workload, and its progress: the patches that are left, and the step under way.

    An action that begins with `read` gets its patches from the object that is read.
    """

    kind: Kind
    job: JobKey
    job_uid: Uid
    workload: WorkloadKey
    workload_uid: Uid
    reason: str = ""
    patches: tuple[Patch, ...] = ()
    step: Step = "patch"


def is_due(action: Action, record: JobRecord | None, workload: Workload | None) -> bool:
    """Whether what an action was begun for still holds."""
    if record is None or workload is None or record.job.uid != action.job_uid or workload.uid != action.workload_uid:
        return False
    return is_to_run(workload) if action.kind == "start" else not is_to_run(workload)


def uninjectable(action: Action, error: InjectionError) -> Event:
    """The effect of a start that was not tried, because its templates cannot be made."""
    return effects.JobStartRejected(
        job=action.job,
        job_uid=action.job_uid,
        workload=action.workload,
        workload_uid=action.workload_uid,
        code=404,
        reason=UNINJECTABLE,
        message=str(error),
    )


def action_of(kind: Kind, key: JobKey, job: Job, workload: Workload | None) -> Action:
    """An action on a job, without its patches."""
    return Action(
        kind=kind,
        job=key,
        job_uid=Uid(job.uid),
        workload=workload.key if workload is not None else WorkloadKey(""),
        workload_uid=workload.uid if workload is not None else Uid(""),
    )


def effect_of(action: Action, completed: Completed) -> Event:
    """The effect of a start or a stop, by the answer to its last call."""
    said = refusal(completed)
    if action.kind == "start":
        if is_success(completed):
            return effects.JobStarted(
                job=action.job, job_uid=action.job_uid, workload=action.workload, workload_uid=action.workload_uid
            )
        return effects.JobStartRejected(
            job=action.job,
            job_uid=action.job_uid,
            workload=action.workload,
            workload_uid=action.workload_uid,
            code=said.code,
            reason=said.reason,
            message=said.message,
        )
    if is_success(completed):
        return effects.JobStopped(
            job=action.job, job_uid=action.job_uid, workload=action.workload, reason=action.reason
        )
    return effects.JobStopRejected(
        job=action.job,
        job_uid=action.job_uid,
        workload=action.workload,
        code=said.code,
        reason=said.reason,
        message=said.message,
    )
