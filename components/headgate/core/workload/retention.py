"""
Retention: until when objects without further use are kept.

Kueue's objectRetentionPolicies: a finished Workload is deleted some time after it has finished, the Job of a workload
that Kueue (not the user) has deactivated some time after its eviction, and its Workload with it. Both times are those
of conditions, so the deadline follows from the log and the configuration in it. The binder deletes.
"""

from typing import Literal, NamedTuple

from headgate.core.kubernetes import conditions
from headgate.core.state.tables import PENDING, Stage, State, Workload
from headgate.core.workload.owners import job_of
from headgate.events.ids import UnixMs
from headgate.events.objects import Condition

_BY_KUEUE = conditions.eviction_reason(conditions.DEACTIVATED, "*").removesuffix("*")
"""The prefix of an eviction's reason when the eviction has deactivated a workload for a cause."""


class Due(NamedTuple):
    """What is to be deleted, and when."""

    what: Literal["workload", "job"]
    at_ms: UnixMs


def due_of(state: State, workload: Workload) -> Due | None:
    """What of a workload is to be deleted, and when; None while nothing is, or it is being deleted already."""
    policies = state.configuration.object_retention_policies
    if workload.stage is Stage.FINISHED:
        finished = conditions.find(workload.conditions, conditions.FINISHED) or workload.observed_finished
        if policies.after_finished_ms is None or finished is None or workload.deleting:
            return None
        return Due("workload", UnixMs(_since(finished, workload) + policies.after_finished_ms))
    if policies.after_deactivated_by_kueue_ms is None:
        return None
    evicted = conditions.find(workload.conditions, conditions.EVICTED)
    if evicted is None or evicted.status != "True" or not evicted.reason.startswith(_BY_KUEUE):
        return None
    record = job_of(state, workload)
    if record is None or record.job.deleting or (workload.stage is not Stage.EVICTED and workload.stage not in PENDING):
        return None
    return Due("job", UnixMs(_since(evicted, workload) + policies.after_deactivated_by_kueue_ms))


def _since(condition: Condition, workload: Workload) -> UnixMs:
    try:
        return conditions.parse_rfc3339(condition.last_transition_time)
    except ValueError:
        return workload.created_ms
