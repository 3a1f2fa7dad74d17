"""
Second passes: when a workload that holds quota is tried again for topology domains.

The scheduler records each failed attempt with the time of the next (`workload.second_pass_failed`); the queue manager
records that this time has come, unless the attempt would fail alike. The backoff is Kueue's: 1 s, doubled up to 30 s.
"""

from headgate.core.state.tables import HOLDS_QUOTA, Workload
from headgate.events.ids import UnixMs
from headgate.events.queueing import DeadlinePassed


def retry_at_ms(workload: Workload) -> UnixMs | None:
    """When a workload is tried again for topology domains; None when it does not wait for that."""
    waits = workload.second_pass
    if waits is None or waits.evict or not waits.retry_at_ms or workload.stage not in HOLDS_QUOTA:
        return None
    return waits.retry_at_ms


def due(workload: Workload, now_ms: UnixMs) -> DeadlinePassed | None:
    """The end of a workload's wait for its next second pass; None while it waits, or does not."""
    at_ms = retry_at_ms(workload)
    if at_ms is None or at_ms > now_ms:
        return None
    return DeadlinePassed(workload=workload.key, uid=workload.uid, deadline="SecondPass", at_ms=at_ms)
