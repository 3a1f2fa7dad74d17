"""
Which conditions in a Workload's object may have been written by others.

The fold and the informer bridge call `differing`: only what may be foreign becomes a fact, and is kept in
`Workload.shown`. Whether it certainly is foreign depends on Headgate's pending writes, and is decided where statuses
are known (`headgate.core.status.foreign_conditions`).
"""

from headgate.core.kubernetes import conditions
from headgate.core.state.tables import HOLDS_QUOTA, Stage, Workload
from headgate.events.objects import Condition, ShownConditions


def differing(workload: Workload, shown: ShownConditions | None) -> ShownConditions | None:
    """Which of an object's conditions may be from others; None where they equal the state, or are older."""
    if shown is None or workload.stage is Stage.FINISHED or shown.version <= workload.applied_version:
        return None
    return shown if _differs(workload, shown) else None


def _differs(workload: Workload, shown: ShownConditions) -> bool:
    is_taken = gave_back(workload, shown) or revokes(workload, shown)
    return is_taken or evicts(workload, shown) or requeues(workload, shown) is not None


def gave_back(workload: Workload, shown: ShownConditions) -> bool:
    """Whether an object shows that the quota of a workload was released."""
    reserved = shown.quota_reserved
    return workload.stage in HOLDS_QUOTA and workload.admission is not None and _is(reserved, "False")


def shows_release(workload: Workload) -> bool:
    """Whether the object, as it was shown last, has QuotaReserved=False from another than Headgate."""
    shown = workload.shown
    return shown is not None and shown.version > workload.applied_version and _is(shown.quota_reserved, "False")


def revokes(workload: Workload, shown: ShownConditions) -> bool:
    """Whether an object shows that an admitted workload is not admitted."""
    return workload.stage is Stage.ADMITTED and _is(shown.admitted, "False")


def evicts(workload: Workload, shown: ShownConditions) -> bool:
    """Whether an object shows an eviction that the state does not have."""
    return _is(shown.evicted, "True") and not conditions.is_true(workload.conditions, conditions.EVICTED)


def requeues(workload: Workload, shown: ShownConditions) -> Condition | None:
    """The Requeued condition of an object where it differs from the state; None where it has nothing new."""
    before = conditions.find(workload.conditions, conditions.REQUEUED)
    after = shown.requeued
    if after is None or after.status == "Unknown" or (before is not None and before.status == after.status):
        return None
    # Permission to queue is no news for a workload that nothing keeps out.
    return after if before is not None or after.status == "False" else None


def _is(condition: Condition | None, status: str) -> bool:
    return condition is not None and condition.status == status
