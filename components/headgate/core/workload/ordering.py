"""
Ordering: the priority of a workload and its queue-order time, as Kueue reads them from its object.

Used by all code that ranks workloads: the queue manager for a place in a heap, the cycle for the order of its entries,
the preemption search for who may preempt whom. Both follow from the workload and the configuration alone. Times of
conditions have the API's resolution of one second.
"""

from headgate.core.api.names import PRIORITY_BOOST
from headgate.core.config import feature_gates
from headgate.core.kubernetes import conditions
from headgate.core.kubernetes.numbers import decimal
from headgate.core.state.tables import Workload
from headgate.events.configuration import Configuration
from headgate.events.ids import Seq, UnixMs
from headgate.events.objects import Condition

"""The annotation whose number is added to the priority (gate PriorityBoost)."""

RECLAIMED_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
"""The reason of a preemption by a workload that borrows itself."""


def priority_of(workload: Workload, configuration: Configuration) -> int:
    """The effective priority of a workload: its spec's, or 0, plus its annotated boost where that gate is on."""
    priority = workload.spec.priority or 0
    boost = workload.annotations.get(PRIORITY_BOOST)
    return priority if boost is None else priority + _boost(boost, configuration)


def _boost(text: str, configuration: Configuration) -> int:
    """The number of a boost; 0 when it is no 32-bit integer: Kueue's webhook refuses it, its scheduler ignores it."""
    is_on = feature_gates.enabled(configuration, feature_gates.PRIORITY_BOOST)
    return (decimal(text, bits=32) or 0) if is_on else 0


_PLACES = 1 << 16
"""More than the number of facts in a commit."""


def arrived(seq: Seq, place: int) -> int:
    """
    The order of arrival for a place in a commit: smaller is earlier.

    Creation times have whole seconds; users, and clients written for Kueue, expect the order of creation, and the log
    has it. 0 where the log does not: for objects from before it was recorded, the uid decides.
    """
    return seq * _PLACES + place if place else 0


def queued_at(workload: Workload, configuration: Configuration) -> UnixMs:
    """
    Kueue's queue-order timestamp: the creation, or what moved the workload to the end of the queue.

    That is an eviction by an admission check; one by slow pods unless `requeuingStrategy.timestamp` is Creation; and,
    without the gate PrioritySortingWithinCohort, a preemption by one that borrowed, plus 1 ms, so that a preemptor that
    was created in that second still ranks before it.
    """
    if not workload.conditions:
        return workload.created_ms
    evicted = conditions.find(workload.conditions, conditions.EVICTED)
    if evicted is not None and evicted.status == "True":
        by_timeout = evicted.reason == "PodsReadyTimeout" and _ranks_by_eviction(configuration)
        if by_timeout or evicted.reason == "AdmissionCheck":
            return _since(evicted, workload.created_ms)
    if not feature_gates.enabled(configuration, feature_gates.PRIORITY_SORTING_WITHIN_COHORT):
        preempted = conditions.find(workload.conditions, conditions.PREEMPTED)
        if preempted is not None and preempted.status == "True" and preempted.reason == RECLAIMED_WHILE_BORROWING:
            return UnixMs(_since(preempted, UnixMs(workload.created_ms - 1)) + 1)
    return workload.created_ms


def _ranks_by_eviction(configuration: Configuration) -> bool:
    wait = configuration.wait_for_pods_ready
    return wait is None or wait.requeuing_strategy.timestamp == "Eviction"


def _since(condition: Condition, default: UnixMs) -> UnixMs:
    try:
        return conditions.parse_rfc3339(condition.last_transition_time)
    except ValueError:
        return default
