"""
The fold of failed nodes of workloads, and of the topology domains of their pods.

Called by `headgate.core.fold` only.
"""

from typing import Final

from headgate.core.fold.transitions import moved
from headgate.core.state.handlers import EventHandlers
from headgate.core.state.tables import State
from headgate.events import decisions, queueing
from headgate.events.commit import Commit
from headgate.events.ids import Seq


def _node_failed(state: State, event: queueing.WorkloadNodeFailed, commit: Commit, seq: Seq) -> None:
    if found := moved(state, event, seq):
        workload, _ = found
        if event.node not in workload.unhealthy_nodes:
            workload.unhealthy_nodes = (*workload.unhealthy_nodes, event.node)
        workload.last_seq = seq


def _node_recovered(state: State, event: queueing.WorkloadNodeRecovered, commit: Commit, seq: Seq) -> None:
    if found := moved(state, event, seq):
        workload, _ = found
        workload.unhealthy_nodes = tuple(node for node in workload.unhealthy_nodes if node != event.node)
        workload.last_seq = seq


def _pods_assigned(state: State, event: decisions.PodsAssigned, commit: Commit, seq: Seq) -> None:
    for domain in event.domains:
        for key, uid in domain.pods.items():
            record = state.pods.get(key)
            if record is not None and record.pod.uid == uid:
                record.domain = domain.values


HANDLERS: Final = (
    EventHandlers[queueing.WorkloadNodeFailed | queueing.WorkloadNodeRecovered | decisions.PodsAssigned]()
    .on(queueing.WorkloadNodeFailed, _node_failed)
    .on(queueing.WorkloadNodeRecovered, _node_recovered)
    .on(decisions.PodsAssigned, _pods_assigned)
)
