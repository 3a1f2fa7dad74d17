"""
The last fact about a workload: `workload.observed` with the content that the state has of the object.

The informer bridge compares with it what a watch shows; plans and the emulation of Kueue change it and append it again.
"""

from headgate.core.state.tables import Workload
from headgate.events import facts


def last_fact(workload: Workload) -> facts.WorkloadObserved:
    """The fact that reproduces what the state has of a workload's object."""
    return facts.WorkloadObserved(
        workload=workload.key,
        uid=workload.uid,
        created_ms=workload.created_ms,
        spec=workload.spec,
        generation=workload.generation,
        labels=dict(workload.labels),
        annotations=dict(workload.annotations),
        owner=workload.owner,
        deleting=workload.deleting,
        finalizer=workload.finalizer,
        checks=workload.observed_checks,
        reclaimable_pods=workload.reclaimable_pods,
        finished=workload.observed_finished,
        preemption_gates=workload.observed_gates,
        pods_ready=workload.observed_pods_ready,
        deactivation_target=workload.deactivation_target,
        shown=workload.shown,
        group_owners=workload.group_owners,
    )
