"""
Foreign conditions: what other controllers have written into conditions of a Workload that Headgate writes too.

The controller that runs a workload's pods reports in its status: an integration that has stopped its pods sets
QuotaReserved=False and so releases the quota; a controller may evict by Evicted=True, or keep a workload out of the
queues by Requeued=False until it sets that to True. Of a job that Headgate runs, QuotaReserved=False or Admitted=False
takes the admission away. These are read and respected, and never overwritten with older values.

The difficulty is to separate them from what Headgate itself has written, because a shown object may be older than the
state. Two rules make it certain. The API server's answer to each of our writes contains the version that the object got
(`Workload.applied_version`); and a difference counts only while none of our writes is pending (`is_settled`). So a
condition that differs, on a newer version, when the API server has all our writes, was written by another controller.
What was shown while a write was pending is kept (`Workload.shown`) and examined again when the write is done.

Pure. The queue manager calls `said` and turns the result into events. Which parts of an object may be foreign at all is
defined in `headgate.core.workload.shown_conditions`.
"""

from headgate.core.kubernetes import conditions
from headgate.core.state.tables import PENDING, Stage, State, Workload
from headgate.core.status.workload_status import is_settled
from headgate.core.workload.shown_conditions import differing, evicts, gave_back, requeues, revokes
from headgate.events.objects import Condition, ShownConditions

ADMISSION_REVOKED = "AdmissionRevoked"
"""The reason of the eviction of a job that Headgate runs, whose admission others have taken away."""

OWN_REASONS = frozenset(
    {
        ADMISSION_REVOKED,
        "Preempted",
        "NodeFailures",
        "PodsReadyTimeout",
        "AdmissionCheck",
        "LocalQueueStopped",
        "ClusterQueueStopped",
        "FlavorMigration",
        "VariantEvicted",
        "ConcurrentAdmission",
    }
)
"""Reasons of Requeued=False whose end Headgate detects; the end of any other must be written by its author."""


def said(state: State, workload: Workload) -> ShownConditions | None:
    """What others have certainly written into a workload's conditions; None without such."""
    shown = differing(workload, workload.shown)
    return shown if shown is not None and is_settled(state, workload) else None


def given_back(state: State, workload: Workload) -> Condition | None:
    """The QuotaReserved=False by which others have released a workload's quota; None without one."""
    shown = said(state, workload)
    return shown.quota_reserved if shown is not None and gave_back(workload, shown) else None


def revocation(state: State, workload: Workload) -> Condition | None:
    """The QuotaReserved=False or Admitted=False by which others take an admission away; None without one."""
    shown = said(state, workload) if workload.stage is Stage.ADMITTED else None
    if shown is None:
        return None
    if gave_back(workload, shown):
        return shown.quota_reserved
    return shown.admitted if revokes(workload, shown) else None


def eviction(state: State, workload: Workload) -> Condition | None:
    """The Evicted=True by which others evict a workload that holds quota; None without one."""
    shown = said(state, workload) if workload.stage in (Stage.RESERVED, Stage.ADMITTED) else None
    return shown.evicted if shown is not None and evicts(workload, shown) else None


def requeueing(state: State, workload: Workload) -> Condition | None:
    """The Requeued condition by which others keep a pending workload out of the queues, or let it in again."""
    shown = said(state, workload) if workload.stage in PENDING else None
    return requeues(workload, shown) if shown is not None else None


def is_kept_out(workload: Workload) -> Condition | None:
    """The Requeued=False of a pending workload whose end its author must write; None when it has none."""
    requeued = conditions.find(workload.conditions, conditions.REQUEUED)
    if requeued is None or requeued.status != "False":
        return None
    is_own = requeued.reason in OWN_REASONS or requeued.reason.startswith(conditions.DEACTIVATED)
    return None if is_own else requeued
