"""
Preemption: which workloads have to go so that another one fits.

The cycle asks `find_targets` for the workloads to preempt, flavor assignment asks a `SnapshotOracle` whether anybody
could be for one flavor-resource. Both search on a `headgate.core.preemption.what_if.Snapshot`, take workloads out of it
and leave it as they found it. With `fairSharing` configured the search is `fair`, else `classical`; both are Kueue's
(`kueue-semantics` section 6; KEP-1337, KEP-1714, KEP-79), and answer in the order in which Kueue does.

The answer follows from the state alone: every order ends in the workload's uid and key, every choice among equal
ClusterQueues and cohorts in their names.
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
