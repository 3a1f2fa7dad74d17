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

Pure. `differing` is asked by the informer bridge, so that only what may be foreign becomes a fact; `said` by the queue
manager, which turns it into the events that the rest goes by.
"""

from headgate.core import conditions
from headgate.core.state import HOLDS_QUOTA, PENDING, Stage, State, Workload
from headgate.core.status import is_empty, status_digest, workload_status
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


def differing(workload: Workload, shown: ShownConditions | None) -> ShownConditions | None:
    """What of an object's conditions may be somebody else's; None where it is what the state says, or older."""
    if shown is None or workload.stage is Stage.FINISHED or shown.version <= workload.applied_version:
        return None
    return shown if _differs(workload, shown) else None


def _differs(workload: Workload, shown: ShownConditions) -> bool:
    return _gave_back(workload, shown) or _evicts(workload, shown) or _requeues(workload, shown) is not None


def _gave_back(workload: Workload, shown: ShownConditions) -> bool:
    reserved = shown.quota_reserved
    return workload.stage in HOLDS_QUOTA and workload.admission is not None and _is(reserved, "False")


def _evicts(workload: Workload, shown: ShownConditions) -> bool:
    return _is(shown.evicted, "True") and not conditions.is_true(workload.conditions, conditions.EVICTED)


def _requeues(workload: Workload, shown: ShownConditions) -> Condition | None:
    before = conditions.find(workload.conditions, conditions.REQUEUED)
    after = shown.requeued
    if after is None or after.status == "Unknown" or (before is not None and before.status == after.status):
        return None
    # That a workload may queue which nothing keeps from it is no news.
    return after if before is not None or after.status == "False" else None


def _is(condition: Condition | None, status: str) -> bool:
    return condition is not None and condition.status == status


def is_settled(state: State, workload: Workload) -> bool:
    """Whether the API server has all that Headgate has to say about a workload."""
    status = workload_status(state, workload)
    if is_empty(status) and not workload.applied:
        return True
    return workload.applied == status_digest(status)


def said(state: State, workload: Workload) -> ShownConditions | None:
    """What others have certainly written into a workload's conditions; None when nothing is known of such."""
    shown = differing(workload, workload.shown)
    return shown if shown is not None and is_settled(state, workload) else None


def given_back(state: State, workload: Workload) -> Condition | None:
    """The QuotaReserved=False by which others have given a workload's quota back; None while they have not."""
    shown = said(state, workload)
    return shown.quota_reserved if shown is not None and _gave_back(workload, shown) else None


def eviction(state: State, workload: Workload) -> Condition | None:
    """The Evicted=True by which others evict a workload that holds quota; None when nobody does."""
    shown = said(state, workload) if workload.stage in (Stage.RESERVED, Stage.ADMITTED) else None
    return shown.evicted if shown is not None and _evicts(workload, shown) else None


def requeueing(state: State, workload: Workload) -> Condition | None:
    """The Requeued condition by which others keep a pending workload out of the queues, or let it in again."""
    shown = said(state, workload) if workload.stage in PENDING else None
    return _requeues(workload, shown) if shown is not None else None


def is_kept_out(workload: Workload) -> Condition | None:
    """The Requeued=False of a pending workload whose end others have to tell; None when it has none."""
    requeued = conditions.find(workload.conditions, conditions.REQUEUED)
    if requeued is None or requeued.status != "False":
        return None
    is_own = requeued.reason in OWN_REASONS or requeued.reason.startswith(conditions.DEACTIVATED)
    return None if is_own else requeued
