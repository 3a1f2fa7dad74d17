"""
Holders: the workloads that hold quota, ranked as candidates for preemption.

A search over thousands of candidates must not begin by ranking them. `Rankings`, kept by the catalog, ranks the holders
of a ClusterQueue on first use, and again only when `Index.changed` lists a change of them; unchanged holders are
reused. Holders that use nothing contested are filtered out once, too.
"""

from collections.abc import Mapping
from operator import attrgetter

from headgate.core.quota.admission_fair_sharing import local_queue_usage, orders_by_usage, settings
from headgate.core.quota.tree import QuotaNode
from headgate.core.state.attribution import about
from headgate.core.state.tables import FlavorResource, Stage, State, Workload, local_queue_of
from headgate.core.workload.ordering import priority_of
from headgate.events.configuration import Configuration
from headgate.events.ids import UnixMs, WorkloadKey

CONTESTED_MAX = 32
"""How many sets of contested flavor-resources are cached with their candidates; beyond that the cache is cleared."""


Size = tuple[tuple[FlavorResource, int], ...]
"""What a workload holds, in comparable form."""


class Holder:
    """
    A workload that holds quota, as a candidate for preemption.

    `rank` is the preemption order: already evicted, lower priority, later reservation, later arrival first; then by uid
    and key. `queued_at_ms` is its queue-order timestamp, computed on first use.
    """

    __slots__ = ("_seen", "_size", "evicted", "key", "node", "priority", "queued_at_ms", "rank", "usage", "workload")

    def __init__(
        self, workload: Workload, node: QuotaNode, usage: Mapping[FlavorResource, int], configuration: Configuration
    ) -> None:
        self.workload = workload
        self.key = workload.key
        self.node = node
        self.usage = usage
        self.priority = priority_of(workload, configuration)
        self.evicted = workload.stage is Stage.EVICTED
        self.queued_at_ms: UnixMs | None = None
        # Conditions have whole seconds: reservations within the same second count as simultaneous.
        reserved_s = workload.reserved_at_ms // 1000
        self.rank = (not self.evicted, self.priority, -reserved_s, -workload.arrival, workload.uid, workload.key)
        self._size: Size | None = None
        self._seen = (workload.spec, workload.annotations, workload.reserved_at_ms)

    @property
    def size(self) -> Size:
        """How much it holds of each flavor-resource."""
        if self._size is None:
            self._size = tuple(sorted(self.usage.items()))
        return self._size

    def is_current(self, workload: Workload, node: QuotaNode, usage: Mapping[FlavorResource, int]) -> bool:
        """Whether it equals what would be built from this workload now."""
        spec, annotations, reserved_at_ms = self._seen
        return (
            self.workload is workload
            and self.node is node
            and self.usage is usage
            and self.evicted == (workload.stage is Stage.EVICTED)
            and spec is workload.spec
            and annotations is workload.annotations
            and reserved_at_ms == workload.reserved_at_ms
        )


class Ranking:
    """The holders of one ClusterQueue in preemption order, as of one change of it."""

    __slots__ = ("by_key", "change", "holders", "node")

    def __init__(self, node: QuotaNode, change: int, holders: list[Holder]) -> None:
        self.node = node
        self.change = change
        self.holders = holders
        self.by_key: dict[WorkloadKey, Holder] = {holder.key: holder for holder in holders}


Using = dict[str, list[Holder]]
"""By ClusterQueue: its holders that were assigned something contested, in preemption order."""


class Rankings:
    """The rankings of a state's ClusterQueues, under one configuration. Use it with that state or later ones."""

    __slots__ = ("_kept", "_seen", "_some_by_usage", "_state", "_using")

    def __init__(self, state: State) -> None:
        self._state = state
        self._some_by_usage = settings(state.configuration) is not None
        self._kept: dict[str, Ranking] = {}
        self._using: dict[frozenset[FlavorResource], Using] = {}
        self._seen = state.index.changes

    def using(self, contested: frozenset[FlavorResource]) -> Using:
        """
        The cached candidates for these flavor-resources at this position; callers add what they compute.

        Not to be kept beyond the position, nor used for ClusterQueues that order by the usage of their LocalQueues.
        """
        changed = self._state.index.changed
        for name in reversed(changed):
            if changed[name] <= self._seen:
                break
            self.forget(name)
        self._seen = self._state.index.changes
        if len(self._using) >= CONTESTED_MAX and contested not in self._using:
            self._using.clear()
        return self._using.setdefault(contested, {})

    def forget(self, cluster_queue: str) -> None:
        """A ClusterQueue, its place among the cohorts, or its set of holders has changed."""
        for using in self._using.values():
            using.pop(cluster_queue, None)

    def forget_all(self) -> None:
        """ClusterQueues may have become active or inactive."""
        self._using.clear()

    def of(self, node: QuotaNode) -> Ranking:
        """The ranking of a ClusterQueue, active or not, at its place in the quota tree."""
        name, index = node.name, self._state.index
        kept, change = self._kept.get(name), index.changed.get(name, 0)
        by_usage = self._some_by_usage and orders_by_usage(self._state, name)
        if kept is not None and kept.change == change and kept.node is node and not by_usage:
            return kept
        before = kept.by_key if kept is not None else {}
        holders = [self._holder(before.get(key), key, node) for key in index.holders.get(name, ())]
        holders.sort(key=attrgetter("rank"))
        if by_usage:
            holders.sort(key=self._usage_rank)
        ranking = self._kept[name] = Ranking(node, change, holders)
        return ranking

    def _holder(self, before: Holder | None, key: WorkloadKey, node: QuotaNode) -> Holder:
        workload, usage = self._state.workloads[key], self._state.index.usage_of[key]
        if before is not None and before.is_current(workload, node, usage):
            return before
        with about("Workload", key):
            return Holder(workload, node, usage, self._state.configuration)

    def _usage_rank(self, holder: Holder) -> tuple[bool, float]:
        """Holders of a LocalQueue with more usage go before others of their ClusterQueue, except evicted ones."""
        return holder.rank[0], -local_queue_usage(self._state, local_queue_of(holder.workload))
