"""
Reasons of workloads that are not admitted: their level of detail, by two gates of Kueue (KEP-10852).

With UnadmittedWorkloadsObservability, which is on by default, the reason of QuotaReserved=False shows what a workload
waits for; without, it is Pending, Inadmissible or Waiting as in Kueue before, the messages are the same, and the
metrics by reason are not served. With UnadmittedWorkloadsExplicitStatus a workload shows that it waits from when it is
first queued; without, which is the default, once it was evaluated, which saves a write each.

The log always has the exact reasons; the shown ones are derived when an event is folded.
"""

from typing import Final

from headgate.core.config import feature_gates
from headgate.core.config.feature_gates import enabled
from headgate.events.configuration import Configuration

PENDING: Final = "Pending"

_LEGACY: Final = {
    "Misconfigured": "Inadmissible",
    "Suspended": "Inadmissible",
    "WaitingForPodsReady": "Waiting",
    "AdmissionGated": "AdmissionGated",
    "OnHold": "OnHold",
}


def shown_reason(configuration: Configuration, reason: str) -> str:
    """The reason of QuotaReserved=False in a workload's conditions and Events."""
    return reason if is_granular(configuration) else _LEGACY.get(reason, PENDING)


def is_granular(configuration: Configuration) -> bool:
    """Whether reasons show what a workload waits for, and metrics count by them."""
    return enabled(configuration, feature_gates.UNADMITTED_OBSERVABILITY)


def is_explicit(configuration: Configuration) -> bool:
    """Whether a workload shows that it waits before it was evaluated."""
    return enabled(configuration, feature_gates.UNADMITTED_EXPLICIT_STATUS)
