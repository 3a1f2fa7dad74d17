"""Policies: whom a ClusterQueue's `preemption` lets its workloads preempt."""

from collections.abc import Iterable, Iterator

from headgate.core.flavors.catalog import Queue
from headgate.core.quota.holders import Holder
from headgate.core.state.tables import Workload
from headgate.core.workload.ordering import priority_of, queued_at
from headgate.events.configuration import Configuration

NEVER, ANY = "Never", "Any"
LOWER_PRIORITY, LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerPriority", "LowerOrNewerEqualPriority"


def can_always_reclaim(queue: Queue) -> bool:
    """Whether a ClusterQueue gets back from everybody what it has lent, so that lending is no risk to it."""
    return queue.spec.preemption.reclaim_within_cohort == ANY


class Preemptor:
    """A workload that may preempt others: its rank, and whom of some candidates a policy lets it preempt."""

    __slots__ = ("_configuration", "priority", "queued_at_ms")

    def __init__(self, incoming: Workload, configuration: Configuration) -> None:
        self._configuration = configuration
        self.priority = priority_of(incoming, configuration)
        self.queued_at_ms = queued_at(incoming, configuration)

    def among(self, candidates: Iterable[Holder], policy: str, *, by_priority: bool) -> Iterator[Holder]:
        """
        Those whom a policy lets it preempt, in their order.

        `by_priority` says that among those who are not evicted that order is one of ascending priority: then nobody is
        looked at behind the first whose priority is too high.
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
