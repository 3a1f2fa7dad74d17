"""
The words of Kubernetes Events about workloads, as Kueue has them.

The binder writes them in a cluster (`headgate.machines.binder.events`), the emulation of Kueue lists them
(`headgate.testing.reference.telling`): the same reasons and notes. Waiting times are whole seconds, counted from what
the workload's record says.
"""

from typing import Final

from headgate.core.kubernetes import conditions
from headgate.core.state.tables import Workload
from headgate.events.decisions import QuotaReserved, WorkloadAdmitted
from headgate.events.ids import UnixMs
from headgate.events.queueing import WorkloadEvicted

NOTE_BYTES_MAX: Final = 1024
"""What the API takes as an Event's note."""

MIGRATED: Final = "EvictedDueToFlavorMigration"
EVICTED_BY_PREEMPTION: Final = "EvictedDueToPreempted"
PREEMPTED: Final = "Preempted"
PREEMPTED_WORKLOAD: Final = "PreemptedWorkload"

WORKLOAD_KEPT: Final = "Deleted finished workload due to elapsed retention"
"""About a finished Workload that has been kept for as long as the configuration says, and is deleted."""

JOB_KEPT: Final = "Deleted job: deactivation retention period expired"
"""About the Job of a workload that Kueue has switched off."""


def cut(note: str) -> str:
    """A note cut to what the API takes."""
    return conditions.truncated(note, NOTE_BYTES_MAX)


def quota_reserved(workload: Workload, event: QuotaReserved, at_ms: UnixMs) -> str:
    """What is told of a reservation, with how long the workload has waited in its queue."""
    waited_s = _seconds(_queued_ms(workload), at_ms)
    return f"Quota reserved in ClusterQueue {event.cluster_queue}, wait time since queued was {waited_s}s"


def admitted(workload: Workload, event: WorkloadAdmitted, at_ms: UnixMs) -> str:
    """What is told of an admission, with how long its checks have taken; one in the same breath has waited for none."""
    waited_s = _seconds(workload.reserved_at_ms, at_ms) if workload.admission is not None else 0
    return f"Admitted by ClusterQueue {event.cluster_queue}, wait time since reservation was {waited_s}s"


def evicted_reason(event: WorkloadEvicted) -> str:
    """The reason of an eviction's Event."""
    return f"EvictedDueTo{conditions.eviction_reason(event.reason, event.underlying_cause)}"


def checks_pending(workload: Workload) -> str:
    """What the admission checks that are pending say, one behind the other; empty when they say nothing."""
    said = (f"{each.name}: {each.message}" for each in workload.checks if each.state == "Pending" and each.message)
    return "; ".join(said)


def _queued_ms(workload: Workload) -> UnixMs:
    """Since when a workload waits, by Kueue's count: since it was requeued, or made (QueuedWaitTime)."""
    requeued = conditions.find(workload.conditions, conditions.REQUEUED)
    if requeued is None:
        return workload.created_ms
    try:
        return conditions.parse_rfc3339(requeued.last_transition_time)
    except ValueError:
        return workload.created_ms


def _seconds(since_ms: UnixMs, until_ms: UnixMs) -> int:
    return max(0, round((until_ms - since_ms) / 1000))
