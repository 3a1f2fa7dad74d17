"""
Preemption: which workloads have to be evicted so that another one fits.

The cycle calls `find_targets` for the workloads to preempt. Flavor assignment uses a `SnapshotOracle` to find out
whether any candidate exists for one flavor-resource. Both search on a `headgate.core.preemption.what_if.Snapshot`,
remove workloads from it and restore it. With `fairSharing` configured the search is `fair`, else `classical`; both are
Kueue's (`kueue-semantics` section 6; KEP-1337, KEP-1714, KEP-79), and answer in Kueue's order.

The answer follows from the state alone: every order ends with the workload's uid and key, every choice among equal
ClusterQueues and cohorts with their names.

Owns: the search for preemption targets, and the messages about preemption.
Called by: the cycle, flavor assignment by its oracle, queueing, the binder.
May import: flavors, quota, topology, workload, api, state, config, kubernetes, events.
"""

from headgate.core.preemption.messages import (
    IN_CLUSTER_QUEUE,
    IN_COHORT_FAIR_SHARING,
    IN_COHORT_RECLAIM_WHILE_BORROWING,
    IN_COHORT_RECLAMATION,
    preempted_event_message,
    preempted_message,
    preemptor_event_message,
)
from headgate.core.preemption.oracle import SnapshotOracle
from headgate.core.preemption.policy import can_always_reclaim
from headgate.core.preemption.target import Target, find_targets, replaced_target

__all__ = [
    "IN_CLUSTER_QUEUE",
    "IN_COHORT_FAIR_SHARING",
    "IN_COHORT_RECLAIM_WHILE_BORROWING",
    "IN_COHORT_RECLAMATION",
    "SnapshotOracle",
    "Target",
    "can_always_reclaim",
    "find_targets",
    "preempted_event_message",
    "preempted_message",
    "preemptor_event_message",
    "replaced_target",
]
