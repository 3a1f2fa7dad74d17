"""
Conditions, as `k8s.io/apimachinery` sets them, with Kueue's wording.

A condition's transition time changes only with its status. Order is that of first appearance.
"""

from collections.abc import Container
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal

from headgate.events.ids import UnixMs
from headgate.events.objects import Condition

QUOTA_RESERVED = "QuotaReserved"
ADMITTED = "Admitted"
EVICTED = "Evicted"
PREEMPTED = "Preempted"
REQUEUED = "Requeued"
FINISHED = "Finished"
PODS_READY = "PodsReady"
DEACTIVATION_TARGET = "DeactivationTarget"
WAITING_FOR_REPLACEMENT = "WaitingForReplacementPods"
BLOCKED_ON_PREEMPTION_GATES = "BlockedOnPreemptionGates"

NO_RESERVATION = "The workload has no reservation"
IS_ADMITTED = "The workload is admitted"
UNSATISFIED_CHECKS = "The workload has not all checks ready"
AWAITS_EVALUATION = "Workload is pending evaluation in the scheduling queue"
BYPASSED = "Bypassed scheduling evaluation because an equivalent workload recently failed"
GATE_CLEARED = "AdmissionGatedBy cleared, waiting for quota reservation"

OFF_HOLD = "Workload no longer on hold; waiting for quota reservation"

ON_HOLD = "OnHold"
"""The reason of QuotaReserved=False while the job of a workload has no pods, and is to have none."""

OUT_OF_SYNC = "OutOfSync"
"""The reason of Finished of a Workload that its job does not run by: that is another one than it is for."""

DEACTIVATED = "Deactivated"
"""The reason of evictions after which a workload is to stay out."""

MESSAGE_BYTES_MAX = 32 * 1024
"""The API's limit for a condition's message, to which Kueue cuts it."""

KEPT_OUT = frozenset({"Misconfigured", "Suspended", "AdmissionGated", ON_HOLD, DEACTIVATED})
"""Reasons of QuotaReserved=False of a workload that is in no queue."""


@lru_cache(maxsize=4096)
def _second(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339(at_ms: UnixMs) -> str:
    """A time as the API writes it: RFC 3339, UTC, whole seconds."""
    return _second(at_ms // 1000)


def parse_rfc3339(text: str) -> UnixMs:
    """The time of an API timestamp. Raises ValueError."""
    return UnixMs(int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000))


def find(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """The condition of a type."""
    for condition in conditions:
        if condition.type == kind:
            return condition
    return None


def is_true(conditions: tuple[Condition, ...], kind: str) -> bool:
    """Whether the condition of a type exists and is True."""
    condition = find(conditions, kind)
    return condition is not None and condition.status == "True"


def eviction_reason(reason: str, underlying_cause: str) -> str:
    """The reason of an Evicted condition: of a deactivation it also names the cause (Kueue's ReasonWithCause)."""
    return f"{reason}DueTo{underlying_cause}" if reason == DEACTIVATED and underlying_cause else reason


def is_deactivation(evicted: Condition | None) -> bool:
    """Whether an Evicted condition is a deactivation (Kueue's IsEvictedByDeactivation)."""
    return evicted is not None and evicted.status == "True" and evicted.reason.startswith(DEACTIVATED)


def truncated(message: str, bytes_max: int = MESSAGE_BYTES_MAX) -> str:
    """A message cut to the API's limit."""
    if len(message) * 4 <= bytes_max:  # no character takes more than four bytes
        return message
    encoded = message.encode()
    return message if len(encoded) <= bytes_max else encoded[: bytes_max - 4].decode(errors="ignore") + " ..."


def put(
    conditions: tuple[Condition, ...],
    kind: str,
    status: Literal["True", "False", "Unknown"],
    reason: str,
    message: str,
    at_ms: UnixMs,
    generation: int | None = None,
    *,
    anew: bool = False,
) -> tuple[Condition, ...]:
    """
    The conditions with one set (meta.SetStatusCondition): the transition time changes only when the status does.

    With `anew` it changes in any case: the event of the condition has happened once more.
    """
    message, observed = truncated(message), generation or None
    since: str | None = None
    place = len(conditions)
    for at, old in enumerate(conditions):
        if old.type == kind:
            place = at
            if old.status == status and not anew:
                if old.reason == reason and old.message == message and old.observed_generation == observed:
                    return conditions
                since = old.last_transition_time
            break
    new = Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=rfc3339(at_ms) if since is None else since,
        observed_generation=observed,
    )
    return (*conditions[:place], new, *conditions[place + 1 :])


def lifted(
    conditions: tuple[Condition, ...], kinds: Container[str], at_ms: UnixMs, generation: int | None = None
) -> tuple[Condition, ...]:
    """The conditions with those of some types that were True ended, now that quota is reserved; messages are kept."""
    for old in conditions:
        if old.status == "True" and old.type in kinds:
            message = f"Previously: {old.message}"
            conditions = put(conditions, old.type, "False", "QuotaReserved", message, at_ms, generation)
    return conditions
