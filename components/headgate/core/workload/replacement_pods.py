"""
The condition WaitingForReplacementPods: pods of a group have failed or were deleted, and others have to replace them.

Kueue sets it on Workloads of pod groups (pkg/controller/jobs/pod: waitingForReplacementPodsCondition). While the
Workload is evicted it has the reason and message of the eviction; otherwise it says that pods have failed. It stays,
with status False, once the pods are replaced.
"""

from headgate.core.kubernetes import conditions
from headgate.core.kubernetes.conditions import WAITING_FOR_REPLACEMENT
from headgate.core.state.tables import Stage, State, Workload
from headgate.core.workload.owners import job_of
from headgate.events.ids import UnixMs

_FAILED = ("PodsFailed", "Some Failed pods need replacement")
_REPLACED = ("PodsReady", "No pods need replacement")


def follow_absent_pods(state: State, workload: Workload, at_ms: UnixMs) -> None:
    """Update the condition. Only the fold calls it, after each change of a group's pods and each eviction."""
    record = job_of(state, workload)
    before = conditions.find(workload.conditions, WAITING_FOR_REPLACEMENT)
    if record is None or workload.stage is Stage.FINISHED or (before is None and not record.job.absent_pods):
        return
    if not record.job.absent_pods:
        if before is not None and before.status != "False":
            _put(workload, is_waiting=False, said=_REPLACED, at_ms=at_ms)
        return
    evicted = conditions.find(workload.conditions, conditions.EVICTED)
    if evicted is not None and evicted.status == "True":
        _put(workload, is_waiting=True, said=(evicted.reason, evicted.message), at_ms=at_ms)
    elif before is None or before.status != "True":
        _put(workload, is_waiting=True, said=_FAILED, at_ms=at_ms)


def _put(workload: Workload, *, is_waiting: bool, said: tuple[str, str], at_ms: UnixMs) -> None:
    reason, message = said
    workload.conditions = conditions.put(
        workload.conditions,
        WAITING_FOR_REPLACEMENT,
        "True" if is_waiting else "False",
        reason,
        message,
        at_ms,
        workload.generation,
    )
