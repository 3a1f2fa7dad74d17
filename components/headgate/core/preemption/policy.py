"""Policies: which workloads a ClusterQueue's `preemption` allows its workloads to preempt."""

from collections.abc import Iterable, Iterator

from headgate.core.flavors.cluster_queue import ClusterQueueFlavors
from headgate.core.quota.holders import Holder
from headgate.core.state.tables import Workload
from headgate.core.workload.ordering import priority_of, queued_at
from headgate.events.configuration import Configuration

NEVER, ANY = "Never", "Any"
LOWER_PRIORITY, LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerPriority", "LowerOrNewerEqualPriority"


def can_always_reclaim(queue: ClusterQueueFlavors) -> bool:
    """Whether a ClusterQueue can reclaim from all borrowers what it has lent, so that lending is no risk."""
    return queue.spec.preemption.reclaim_within_cohort == ANY


class Preemptor:
    """A workload that may preempt others: its rank, and which of given candidates a policy allows it to preempt."""

    __slots__ = ("_configuration", "priority", "queued_at_ms")

    def __init__(self, incoming: Workload, configuration: Configuration) -> None:
        self._configuration = configuration
        self.priority = priority_of(incoming, configuration)
        self.queued_at_ms = queued_at(incoming, configuration)

    def among(self, candidates: Iterable[Holder], policy: str, *, by_priority: bool) -> Iterator[Holder]:
        """
        The candidates that a policy allows it to preempt, in their order.

        `by_priority` means that the not evicted ones are in ascending order of priority: then the iteration stops at
        the first whose priority is too high.
        """
        if policy == ANY:
            yield from candidates
            return
        too_high = self.priority + (policy == LOWER_OR_NEWER_EQUAL_PRIORITY)
        for each in candidates:
            if each.priority < self.priority:
                yield each
            elif each.priority < too_high:
                if self._is_newer(each):
                    yield each
            elif by_priority and not each.evicted:
                return

    def _is_newer(self, candidate: Holder) -> bool:
        if candidate.queued_at_ms is None:
            candidate.queued_at_ms = queued_at(candidate.workload, self._configuration)
        return candidate.queued_at_ms > self.queued_at_ms
