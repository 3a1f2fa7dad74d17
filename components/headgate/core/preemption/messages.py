"""Preemption messages in Kueue's wording: reason and message of the conditions, and the Events of both sides."""

from headgate.core.api.names import JOB_UID
from headgate.core.quota.tree import QuotaNode
from headgate.core.state.tables import Workload
from headgate.core.workload.ordering import RECLAIMED_WHILE_BORROWING, priority_of
from headgate.events.configuration import Configuration

IN_CLUSTER_QUEUE = "InClusterQueue"
IN_COHORT_RECLAMATION = "InCohortReclamation"
IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
IN_COHORT_RECLAIM_WHILE_BORROWING = RECLAIMED_WHILE_BORROWING

_WHY = {
    IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    IN_COHORT_RECLAMATION: "reclamation within the cohort",
    IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
    IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
    "": "UNKNOWN",
}


def path_of(node: QuotaNode) -> str:
    """A ClusterQueue's place among the cohorts, from the root: `/root/cohort/cluster-queue`."""
    return "/" + "/".join([*reversed([each.name for each in node.ancestors()]), node.name])


def preempted_message(preemptor: Workload, reason: str, preemptor_at: QuotaNode, preemptee_at: QuotaNode) -> str:
    """The message of the conditions Evicted and Preempted, and the start of the Event on the preempted workload."""
    job_uid = preemptor.labels.get(JOB_UID) or "UNKNOWN"
    return (
        f"Preempted to accommodate a workload (UID: {preemptor.uid or 'UNKNOWN'}, JobUID: {job_uid}) due to "
        f"{_WHY[reason]}; preemptor path: {path_of(preemptor_at)}; preemptee path: {path_of(preemptee_at)}"
    )


def preempted_event_message(
    message: str, preemptor: Workload, preemptee: Workload, configuration: Configuration
) -> str:
    """The Event with reason Preempted, on the preempted workload. `message` is that of its conditions."""
    return f"{message}; {_priorities(preemptor, preemptee, configuration)}"


def preemptor_event_message(
    preemptor: Workload, preemptee: Workload, cluster_queue: str, configuration: Configuration
) -> str:
    """The Event with reason PreemptedWorkload, on the preemptor. `cluster_queue` is the preemptee's."""
    return (
        f"Preempted workload {preemptee.key} (UID: {preemptee.uid}) in ClusterQueue {cluster_queue}; "
        f"{_priorities(preemptor, preemptee, configuration)}"
    )


def _priorities(preemptor: Workload, preemptee: Workload, configuration: Configuration) -> str:
    return (
        f"preemptor effective priority: {_priority(preemptor, configuration)}; "
        f"preemptee effective priority: {_priority(preemptee, configuration)}"
    )


def _priority(workload: Workload, configuration: Configuration) -> str:
    effective, base = priority_of(workload, configuration), workload.spec.priority or 0
    return f"{effective} (base: {base}, boost: {effective - base})"
