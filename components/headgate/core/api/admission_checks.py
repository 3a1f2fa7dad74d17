"""
Admission checks: which of them a reservation needs, and in which states they stand.

Kueue's AdmissionChecksForWorkload, syncAdmissionCheckConditions and resetChecksOnEviction. The scheduler's cycle asks
when it reserves quota, the fold when the list of a ClusterQueue changes under reservations that stand, and when a
workload is evicted.
"""

from collections.abc import Set as AbstractSet
from typing import Final

from headgate.events.objects import Admission, CheckState, ClusterQueueSpec

RESET_MESSAGE: Final = "Reset to Pending after eviction. Previously: "
"""How the message of a check begins that an eviction has reset."""


def checks_for(
    spec: ClusterQueueSpec, flavors: AbstractSet[str], before: dict[str, CheckState], now: str
) -> tuple[CheckState, ...]:
    """
    The admission checks of a ClusterQueue that concern these flavors, by name.

    Each stands as it did before; one that is new is Pending since `now` (RFC 3339).
    """
    strategy = spec.admission_checks_strategy
    if strategy is None:
        return ()
    names = {
        rule.name
        for rule in strategy.admission_checks
        if not rule.on_flavors or not flavors.isdisjoint(rule.on_flavors)
    }
    return tuple(
        before.get(name) or CheckState(name=name, state="Pending", last_transition_time=now) for name in sorted(names)
    )


def flavors_of(admission: Admission) -> frozenset[str]:
    """The flavors that a reservation was assigned."""
    return frozenset(flavor for assignment in admission.pod_set_assignments for flavor in assignment.flavors.values())


def reset(check: CheckState, now: str) -> CheckState:
    """A check as an eviction leaves it: Pending, and remembering how often its controller has asked for a retry."""
    if check.state == "Pending":
        return check
    return CheckState(
        name=check.name,
        state="Pending",
        message=RESET_MESSAGE + check.state,
        last_transition_time=now,
        requeue_after_seconds=check.requeue_after_seconds,
        retry_count=(check.retry_count or 0) + 1 if check.state == "Retry" else None,
    )
