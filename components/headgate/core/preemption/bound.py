"""
Reach: an upper bound of what preemption could free for a workload in the current state.

A pending workload whose ClusterQueue may preempt can be admitted without any other workload finishing: a cycle finds
victims. Kueue finds out by retrying whenever anything is freed in the cohort tree, and most of these retries fail.
`Reach` gives the answer in advance and is never too strict: what it denies, no cycle can do. It removes at once all
that the workload could be allowed to preempt, regardless of order, and ignores the limits that only a search can check
(`headgate.core.preemption` decides which workloads and in which order; Kueue's classical and fair preemption).

- Of its own ClusterQueue: all workloads of lower priority, or of the same where the policy includes newer ones.
- Of others in the tree: those that borrow, when their workloads' priority allows it. When borrowing while preempting is
  not possible (no `borrowWithinCohort`, no fair sharing, a flat cohort) only what keeps its own ClusterQueue within its
  nominal quota can be reclaimed from them; then how much they would release is not checked.

Used by waking, for one state at a time. It costs a pass over the holders of quota in the ClusterQueue, and, where
others may be reclaimed from, over each ClusterQueue of the tree once.
"""

from collections.abc import Mapping
from typing import Final

from headgate.core.quota.tree import Ledger, QuotaNode
from headgate.core.state.tables import FlavorResource, State, Workload
from headgate.core.workload.ordering import priority_of

NEVER: Final = "Never"


def may_preempt(state: State, cluster_queue: str) -> bool:
    """Whether a ClusterQueue has a policy by which its pending workloads can preempt any others."""
    record = state.cluster_queues.get(cluster_queue)
    if record is None:
        return False
    preemption = record.spec.preemption
    return preemption.within_cluster_queue != NEVER or (
        preemption.reclaim_within_cohort != NEVER and bool(record.spec.cohort_name)
    )


class Reach:
    """The answers for one state. Discard it when usage has changed."""

    __slots__ = ("_borrowers", "_holders", "_lowest", "_state")

    def __init__(self, state: State) -> None:
        self._state = state
        self._holders: dict[str, list[tuple[int, Mapping[FlavorResource, int]]]] = {}
        """Per ClusterQueue, what each holds, with its priority; lowest first."""
        self._borrowers: dict[tuple[str, FlavorResource], list[str]] = {}
        self._lowest: dict[str, int | None] = {}

    def has(self, ledger: Ledger, node: QuotaNode, workload: Workload, way: Mapping[FlavorResource, int]) -> bool:
        """
        Whether a ClusterQueue might get all of this alternative after preempting for a workload.

        `ledger` has the current usage, and is unchanged afterwards.
        """
        spec = self._state.cluster_queues[node.name].spec
        preemption = spec.preemption
        priority = priority_of(workload, self._state.configuration)
        reclaims = preemption.reclaim_within_cohort != NEVER and node.parent is not None
        borrow = preemption.borrow_within_cohort
        is_fair = self._state.configuration.fair_sharing is not None
        may_borrow = (is_fair and reclaims) or (borrow is not None and borrow.policy != NEVER)
        is_deep = node.parent is not None and node.parent.parent is not None
        contested = [fr for fr, value in way.items() if value > max(0, ledger.available(node, fr))]
        if not may_borrow and not is_deep and any(way[fr] > node.quota(fr).nominal for fr in contested):
            return False
        own = self._own(node.name, priority, preemption.within_cluster_queue, way)
        for fr, value in own.items():
            ledger.remove(node, fr, value)
        fits = bool(own) and ledger.fits(node, way)
        within = may_borrow or is_deep or not any(ledger.borrows_with(node, fr, value) for fr, value in way.items())
        for fr, value in own.items():
            ledger.add(node, fr, value)
        if fits:
            return True
        return reclaims and within and self._others(ledger, node, priority, preemption.reclaim_within_cohort, contested)

    def _own(
        self, cluster_queue: str, priority: int, policy: str, way: Mapping[FlavorResource, int]
    ) -> dict[FlavorResource, int]:
        """What of this alternative its own ClusterQueue would regain from all that the workload may preempt there."""
        back: dict[FlavorResource, int] = {}
        if policy == NEVER:
            return back
        for its_priority, held in self._held(cluster_queue):
            if its_priority > priority or (its_priority == priority and policy == "LowerPriority"):
                break
            for fr in way:
                if value := held.get(fr, 0):
                    back[fr] = back.get(fr, 0) + value
        return back

    def _others(
        self, ledger: Ledger, node: QuotaNode, priority: int, policy: str, contested: list[FlavorResource]
    ) -> bool:
        """Whether another ClusterQueue of the tree borrows what is contested, and has a preemptible workload."""
        for fr in contested:
            for name in self._borrowing(ledger, fr):
                if name == node.name:
                    continue
                if policy == "Any":
                    return True
                lowest = self._lowest_of(name)
                if lowest is not None and (lowest < priority or (lowest == priority and policy != "LowerPriority")):
                    return True
        return False

    def _borrowing(self, ledger: Ledger, fr: FlavorResource) -> list[str]:
        key = (ledger.tree.name, fr)
        names = self._borrowers.get(key)
        if names is None:
            names = self._borrowers[key] = [
                name
                for name, node in ledger.tree.cluster_queues.items()
                if ledger.usage(node, fr) > node.quota(fr).nominal
            ]
        return names

    def _held(self, cluster_queue: str) -> list[tuple[int, Mapping[FlavorResource, int]]]:
        held = self._holders.get(cluster_queue)
        if held is None:
            state = self._state
            held = self._holders[cluster_queue] = sorted(
                (
                    (priority_of(state.workloads[key], state.configuration), state.index.usage_of.get(key, {}))
                    for key in state.index.holders.get(cluster_queue, ())
                ),
                key=lambda each: each[0],
            )
        return held

    def _lowest_of(self, cluster_queue: str) -> int | None:
        """The lowest priority among those that hold a ClusterQueue's quota."""
        if cluster_queue not in self._lowest:
            state = self._state
            self._lowest[cluster_queue] = min(
                (
                    priority_of(state.workloads[key], state.configuration)
                    for key in state.index.holders.get(cluster_queue, ())
                ),
                default=None,
            )
        return self._lowest[cluster_queue]


__all__ = ["Reach", "may_preempt"]
