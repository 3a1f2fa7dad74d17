"""
The messages of Kubernetes Events about workloads, in Kueue's wording.

The binder writes them in a cluster (`headgate.machines.binder.events`), the emulation of Kueue lists them
(`headgate.testing.reference.telling`): the same reasons and notes. Waiting times are whole seconds, computed from the
workload's record.
"""

from typing import Final

from headgate.core.kubernetes import conditions
from headgate.core.state.tables import Workload
from headgate.events.decisions import QuotaReserved, WorkloadAdmitted
from headgate.events.ids import UnixMs
from headgate.events.queueing import CheckUpdated, WorkloadEvicted

NOTE_BYTES_MAX: Final = 1024
"""The API's limit for an Event's note."""

MIGRATED: Final = "EvictedDueToFlavorMigration"
EVICTED_BY_PREEMPTION: Final = "EvictedDueToPreempted"
PREEMPTED: Final = "Preempted"
PREEMPTED_WORKLOAD: Final = "PreemptedWorkload"
PLACEMENT_FAILED: Final = "SecondPassFailed"

WORKLOAD_KEPT: Final = "Deleted finished workload due to elapsed retention"
"""For a finished Workload whose retention period is over, and that is deleted."""

JOB_KEPT: Final = "Deleted job: deactivation retention period expired"
"""For the Job of a workload that Kueue has deactivated."""


def cut(note: str) -> str:
    """A note cut to the API's limit."""
    return conditions.truncated(note, NOTE_BYTES_MAX)


def quota_reserved(workload: Workload, event: QuotaReserved, at_ms: UnixMs) -> str:
    """The note of a reservation, with how long the workload has waited in its queue."""
    waited_s = _seconds(_queued_ms(workload), at_ms)
    return f"Quota reserved in ClusterQueue {event.cluster_queue}, wait time since queued was {waited_s}s"


def admitted(workload: Workload, event: WorkloadAdmitted, at_ms: UnixMs) -> str:
    """
    The note of an admission, with how long its checks have taken.

    0 when a cycle has admitted it: together with its reservation, or with topology domains that it had to wait for.
    """
    admission = workload.admission
    in_cycle = admission is None or any(each.delayed_topology_request for each in admission.pod_set_assignments)
    waited_s = 0 if in_cycle else _seconds(workload.reserved_at_ms, at_ms)
    return f"Admitted by ClusterQueue {event.cluster_queue}, wait time since reservation was {waited_s}s"


def evicted_reason(event: WorkloadEvicted) -> str:
    """The reason of an eviction's Event."""
    return f"EvictedDueTo{conditions.eviction_reason(event.reason, event.underlying_cause)}"


def check_updated(event: CheckUpdated) -> str:
    """The note about another state of a check that Headgate decides itself."""
    check = event.check
    said = f"Admission check {check.name} updated state from {event.before} to {check.state}"
    return f"{said} with message: {check.message}" if check.message else said


def checks_pending(workload: Workload) -> str:
    """The messages of the pending admission checks, joined; empty when they have none."""
    said = (f"{each.name}: {each.message}" for each in workload.checks if each.state == "Pending" and each.message)
    return "; ".join(said)


def _queued_ms(workload: Workload) -> UnixMs:
    """Since when a workload waits, by Kueue's definition: since it was requeued, or created (QueuedWaitTime)."""
    requeued = conditions.find(workload.conditions, conditions.REQUEUED)
    if requeued is None:
        return workload.created_ms
    try:
        return conditions.parse_rfc3339(requeued.last_transition_time)
    except ValueError:
        return workload.created_ms


def _seconds(since_ms: UnixMs, until_ms: UnixMs) -> int:
    return max(0, round((until_ms - since_ms) / 1000))
