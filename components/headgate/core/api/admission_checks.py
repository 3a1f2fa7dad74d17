"""
Admission checks: which of them a reservation needs, and their states.

Kueue's AdmissionChecksForWorkload, syncAdmissionCheckConditions and resetChecksOnEviction. Used by the scheduler's
cycle when it reserves quota, and by the fold when the list of a ClusterQueue changes under existing reservations, and
when a workload is evicted.
"""

from collections.abc import Set as AbstractSet
from typing import Final

from headgate.events.objects import Admission, CheckState, ClusterQueueSpec

PROVISIONING: Final = "kueue.x-k8s.io/provisioning-request"
MULTI_KUEUE: Final = "kueue.x-k8s.io/multikueue"
"""Controller names of AdmissionChecks: Kueue's own."""

RESET_MESSAGE: Final = "Reset to Pending after eviction. Previously: "
"""The beginning of the message of a check that an eviction has reset."""


def checks_for(
    spec: ClusterQueueSpec, flavors: AbstractSet[str], before: dict[str, CheckState], now: str
) -> tuple[CheckState, ...]:
    """
    The admission checks of a ClusterQueue that apply to these flavors, by name.

    Each keeps its state; a new one is Pending since `now` (RFC 3339).
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
    """A check after an eviction: Pending, with the number of retries that its controller has requested."""
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
