"""Why jobs and pods are stopped: Kueue's stop reasons, as `job.stopped` and the conditions of pods have them."""

from typing import Final

from headgate.core.state.tables import Stage, Workload

NO_MATCHING_WORKLOAD: Final = "NoMatchingWorkload"
WORKLOAD_DELETED: Final = "WorkloadDeleted"
WORKLOAD_EVICTED: Final = "WorkloadEvicted"
NOT_ADMITTED: Final = "NotAdmitted"
PARENT_NOT_ADMITTED: Final = "ParentNotAdmitted"
"""The reason of a stop of a job that another one controls."""


def why_stop(workload: Workload | None) -> str:
    """Why a job that runs by a Workload, or by none, has to stop."""
    if workload is None or workload.stage is Stage.FINISHED:
        return NO_MATCHING_WORKLOAD
    if workload.deleting:
        return WORKLOAD_DELETED
    return WORKLOAD_EVICTED if workload.stage is Stage.EVICTED else NOT_ADMITTED
