"""
Where scans over flavors continue, as Kueue keeps it: in the pending queues, beside the workloads (`LastAssignment`).

A scan continues after the flavor that it stopped at in the cycle before. An older one is started again once the
generation of its ClusterQueue has advanced, that is, once one of the ClusterQueue's own workloads was admitted or has
left: what others of the cohort give back does not count (`lastAssignmentOutdated`, pkg/scheduler/scheduler.go;
`addOrUpdateWorkload` and `deleteWorkload`, pkg/cache/scheduler/clusterqueue.go). The rhythm of a plan calls it.
"""

import msgspec

from headgate.events.ids import WorkloadKey

Tried = tuple[dict[str, int], ...]
"""Per pod set: the index of the flavor that a resource's scan stopped at; -1 at the end."""


class _Scan(msgspec.Struct, frozen=True):
    cycle: int
    generation: int
    tried: Tried


class Scans:
    """The scans of one plan. `preserves`: whether those of the last cycle continue whatever has changed (the gate)."""

    def __init__(self, *, preserves: bool) -> None:
        self._preserves = preserves
        self._scans: dict[WorkloadKey, _Scan] = {}
        self._generations: dict[str, int] = {}

    def changed(self, cluster_queue: str) -> None:
        """One of its workloads was admitted or has left."""
        self._generations[cluster_queue] = self.generation(cluster_queue) + 1

    def generation(self, cluster_queue: str) -> int:
        """How often it has changed."""
        return self._generations.get(cluster_queue, 0)

    def resume(self, key: WorkloadKey, cluster_queue: str, cycle: int) -> Tried:
        """Where the scan of a head continues in this cycle; nothing when it starts again."""
        scan = self._scans.get(key)
        if scan is None:
            return ()
        is_recent = self._preserves and cycle - scan.cycle <= 1
        return scan.tried if is_recent or self.generation(cluster_queue) <= scan.generation else ()

    def stopped(self, key: WorkloadKey, tried: Tried, *, cycle: int, generation: int, told: bool) -> None:
        """
        A cycle has tried so much of a head that waits on; `generation` is the one that it saw.

        `told`: the head's condition has changed with it. Without the gate that update drops what was tried.
        """
        if tried and (self._preserves or not told):
            self._scans[key] = _Scan(cycle, generation, tried)
        else:
            self.forget(key)

    def forget(self, key: WorkloadKey) -> None:
        """A workload does not wait any more."""
        self._scans.pop(key, None)
