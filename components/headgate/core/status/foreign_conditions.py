"""
Foreign words: what others have written into the conditions of a Workload that Headgate writes too.

Whoever runs the work of a workload says so in its status: an integration that has stopped its pods sets
QuotaReserved=False and with it gives the quota back; a controller may evict by Evicted=True, or keep a workload out of
the queues by Requeued=False until it sets that to True. These are read and respected, and never written over with what
was before.

The difficulty is to tell them from what Headgate itself has written, for an object that is shown may be older than
the state. Two things make it certain. The API server's answer to each of our writes tells the version that the object
got by it (`Workload.applied_version`); and what differs is believed only while nothing of ours is left to be written
(`is_settled`). So a condition that differs, on a newer version, when the API server has all that we have to say, is
somebody else's. What was shown while something was left to be written is kept (`Workload.shown`) and looked at again
when that is done.

Pure. The queue manager asks `said` and turns it into events. What of an object may be foreign at all is in
`headgate.core.workload.shown_conditions`.
"""

from headgate.core.kubernetes import conditions
from headgate.core.state.tables import PENDING, Stage, State, Workload
from headgate.core.status.rendering import is_settled
from headgate.core.workload.shown_conditions import differing, evicts, gave_back, requeues
from headgate.events.objects import Condition, ShownConditions

OWN_REASONS = frozenset(
    {
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
"""Reasons of Requeued=False whose end Headgate sees by itself; with another one somebody else has to tell it."""


def said(state: State, workload: Workload) -> ShownConditions | None:
    """What others have certainly written into a workload's conditions; None when nothing is known of such."""
    shown = differing(workload, workload.shown)
    return shown if shown is not None and is_settled(state, workload) else None


def given_back(state: State, workload: Workload) -> Condition | None:
    """The QuotaReserved=False by which others have given a workload's quota back; None while they have not."""
    shown = said(state, workload)
    return shown.quota_reserved if shown is not None and gave_back(workload, shown) else None


def eviction(state: State, workload: Workload) -> Condition | None:
    """The Evicted=True by which others evict a workload that holds quota; None when nobody does."""
    shown = said(state, workload) if workload.stage in (Stage.RESERVED, Stage.ADMITTED) else None
    return shown.evicted if shown is not None and evicts(workload, shown) else None


def requeueing(state: State, workload: Workload) -> Condition | None:
    """The Requeued condition by which others keep a pending workload out of the queues, or let it in again."""
    shown = said(state, workload) if workload.stage in PENDING else None
    return requeues(workload, shown) if shown is not None else None


def is_kept_out(workload: Workload) -> Condition | None:
    """The Requeued=False of a pending workload whose end others have to tell; None when it has none."""
    requeued = conditions.find(workload.conditions, conditions.REQUEUED)
    if requeued is None or requeued.status != "False":
        return None
    is_own = requeued.reason in OWN_REASONS or requeued.reason.startswith(conditions.DEACTIVATED)
    return None if is_own else requeued
