"""
Cohort trees: which ClusterQueues share quota.

A tree is named by its root Cohort, or `ClusterQueue/<name>` for a ClusterQueue without cohort. A cohort that is only
named by a member exists too, without a parent. Cohorts whose parents form a cycle are one tree, named after its
smallest member, so that the answer does not depend on the starting point.
"""

from collections.abc import Mapping

from headgate.core.state.tables import CohortRecord, State


def root_of(cohort: str, cohorts: Mapping[str, CohortRecord]) -> str:
    """The root of a cohort's tree; for a cycle the smallest name in it."""
    seen = [cohort]
    while True:
        record = cohorts.get(seen[-1])
        parent = record.spec.parent_name if record is not None else ""
        if not parent:
            return seen[-1]
        if parent in seen:
            return min(seen[seen.index(parent) :])
        seen.append(parent)


def in_cycle(cohort: str, cohorts: Mapping[str, CohortRecord]) -> bool:
    """Whether the path from a cohort to its root never ends."""
    seen = {cohort}
    while True:
        record = cohorts.get(cohort)
        parent = record.spec.parent_name if record is not None else ""
        if not parent:
            return False
        if parent in seen:
            return True
        seen.add(parent)
        cohort = parent


def tree_of(cluster_queue: str, state: State) -> str:
    """The tree of a ClusterQueue; one that does not exist has a tree of its own."""
    record = state.cluster_queues.get(cluster_queue)
    cohort = record.spec.cohort_name if record is not None else ""
    return root_of(cohort, state.cohorts) if cohort else alone(cluster_queue)


def alone(cluster_queue: str) -> str:
    """The tree of a ClusterQueue without cohort."""
    return f"ClusterQueue/{cluster_queue}"
