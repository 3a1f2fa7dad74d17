"""Targets: the result of a preemption search, and its entry point."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from headgate.core.flavors.cluster_queue import ClusterQueueFlavors
from headgate.core.preemption.bound import may_preempt
from headgate.core.preemption.classical import classical_search
from headgate.core.preemption.fair import fair_search
from headgate.core.preemption.search import Search
from headgate.core.preemption.what_if import Snapshot
from headgate.core.state.tables import FlavorResource, Workload
from headgate.core.topology.demands import PodSetDemand
from headgate.events.ids import Uid, WorkloadKey


class Target(msgspec.Struct, frozen=True, gc=False):
    """
    A workload to evict, and the reason of its Preempted condition.

    One without reason is the workload slice that the incoming workload replaces: it is finished, not evicted.
    """

    workload: WorkloadKey
    uid: Uid
    cluster_queue: str
    reason: str


def find_targets(
    snapshot: Snapshot,
    queue: ClusterQueueFlavors,
    incoming: Workload,
    requests: Mapping[FlavorResource, int],
    contested: AbstractSet[FlavorResource],
    *,
    demands: Sequence[PodSetDemand] = (),
    replaced: Workload | None = None,
) -> tuple[Target, ...]:
    """
    The workloads to preempt so that an incoming workload of `queue` fits; none when no allowed choice is enough.

    `requests` is all that it would be charged (for a workload slice: what it needs beyond the one that it replaces),
    `contested` those of its flavor-resources that lack unused quota: only workloads that were assigned one of them are
    preempted. `demands` are the pod sets that must find topology domains as well. `replaced`, the slice, comes first
    among the targets when there are any. The snapshot is unchanged afterwards.
    """
    if not may_preempt(snapshot.state, queue.name):
        return ()
    search = Search(snapshot, queue, incoming, requests, frozenset(contested), demands)
    found = fair_search(search) if snapshot.configuration.fair_sharing is not None else classical_search(search)
    targets = tuple(Target(holder.key, holder.workload.uid, holder.node.name, reason) for holder, reason in found)
    return (replaced_target(replaced), *targets) if targets and replaced is not None else targets


def replaced_target(replaced: Workload) -> Target:
    """The workload slice that an incoming one replaces, as a target without eviction."""
    return Target(replaced.key, replaced.uid, replaced.cluster_queue, "")
