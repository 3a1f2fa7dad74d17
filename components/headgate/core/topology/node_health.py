"""
Node health: whether a node has failed for a workload that was assigned to it (KEP-2724, Kueue's node controller).

A node that is gone, or has no Ready condition, has failed. One that is not ready, or has a taint that the pods do not
tolerate, has failed as soon as no pod of the workload is left running there: until then its pods may go on. Pods that
can go to no other node and are not bound yet would wait there for ever: they are failed, so that their job creates them
again and they get another node. So are pods that can only go to a node that the workload is no longer assigned to.

Three feature gates change this: TASReplaceNodeOnNodeTaints (taints count), TASReplaceNodeOnPodTermination (otherwise a
taint counts at once, and not being ready after 30 seconds, whatever runs there) and
TASReplaceNodeDueToNotReadyOverFixedTime (not being ready counts after 30 seconds in any case).

Called by the queue manager, which records failed nodes, and by the ungater, which fails pods.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from headgate.core.config import feature_gates
from headgate.core.config.feature_gates import enabled
from headgate.core.kubernetes.selectors import untolerated_taint
from headgate.core.state.tables import State, Workload
from headgate.core.topology.assignments import HOSTNAME, nodes
from headgate.core.workload.injection import InjectionError, injected
from headgate.events.configuration import Configuration
from headgate.events.ids import UnixMs
from headgate.events.objects import Node, Toleration

NODE_FAILURE_DELAY_MS: Final = 30_000
"""How long a node may be not ready, where that counts by time (Kueue's NodeFailureDelay)."""


class NodeHealth(NamedTuple):
    """
    The health of a node for one workload.

    `fails_pods`: pods that can go to no other node and are not bound are failed. `again_ms` is when the answer may
    change without any event.
    """

    status: Literal["healthy", "failed", "unknown"]
    fails_pods: bool = False
    again_ms: UnixMs | None = None


_HEALTHY = NodeHealth("healthy")
_UNKNOWN = NodeHealth("unknown")


def replaces_nodes(configuration: Configuration) -> bool:
    """Whether failed nodes are replaced at all."""
    return enabled(configuration, feature_gates.TAS_FAILED_NODE_REPLACEMENT)


def is_suspect(node: Node | None) -> bool:
    """Whether a node may have failed for some workload: it is gone, not ready or has a taint that keeps pods away."""
    return node is None or not node.ready or untolerated_taint(node.taints, ()) is not None


def assigned_nodes(workload: Workload) -> Mapping[str, None]:
    """The nodes in a workload's topology assignment. Empty where the lowest level of its topology is not the node."""
    return {node: None for _, node in _assigned(workload)}


def _assigned(workload: Workload) -> Iterator[tuple[str, str]]:
    """The pod sets, and the nodes of each."""
    for each in workload.admission.pod_set_assignments if workload.admission is not None else ():
        assignment = each.topology_assignment
        if assignment is not None and assignment.levels[-1:] == (HOSTNAME,):
            for node in nodes(assignment):
                yield each.name, node


def health_of(
    state: State, workload: Workload, node: str, *, is_assigned: bool, is_busy: bool, now_ms: UnixMs
) -> NodeHealth:
    """
    The health of a node for an admitted workload.

    `is_assigned`: the node is in its topology assignment. `is_busy`: a pod of it is bound there and not terminating.
    """
    if not is_assigned:
        return NodeHealth("healthy", fails_pods=True)
    record = state.nodes.get(node)
    if record is None:
        # Until every node was listed, one that is missing may exist.
        return _UNKNOWN if state.relisting else NodeHealth("failed")
    if record.lacks_ready:
        return NodeHealth("failed")
    if not record.ready:
        return _not_ready(state.configuration, record, is_busy=is_busy, now_ms=now_ms)
    if enabled(state.configuration, feature_gates.TAS_REPLACE_ON_TAINTS) and is_suspect(record):
        return _tainted(state, workload, record, is_busy=is_busy)
    return _HEALTHY


def _not_ready(configuration: Configuration, node: Node, *, is_busy: bool, now_ms: UnixMs) -> NodeHealth:
    on_termination = enabled(configuration, feature_gates.TAS_REPLACE_ON_POD_TERMINATION)
    by_time = not on_termination or enabled(configuration, feature_gates.TAS_REPLACE_NOT_READY_FIXED_TIME)
    deadline = UnixMs(node.not_ready_since_ms + NODE_FAILURE_DELAY_MS)
    if by_time and deadline <= now_ms:
        return NodeHealth("failed", fails_pods=on_termination)
    again_ms = deadline if by_time else None
    if not on_termination:
        return NodeHealth("unknown", again_ms=again_ms)
    return NodeHealth("healthy" if is_busy else "failed", fails_pods=True, again_ms=again_ms)


def _tainted(state: State, workload: Workload, node: Node, *, is_busy: bool) -> NodeHealth:
    try:
        templates = injected(state, workload)
    except InjectionError:
        return _UNKNOWN
    there = dict.fromkeys(pod_set for pod_set, name in _assigned(workload) if name == node.name)
    tolerations = [templates[pod_set][0].tolerations for pod_set in there if pod_set in templates]
    if any(untolerated_taint(node.taints, each) is not None for each in tolerations):
        if not enabled(state.configuration, feature_gates.TAS_REPLACE_ON_POD_TERMINATION):
            return NodeHealth("failed")
        return NodeHealth("healthy" if is_busy else "failed", fails_pods=True)
    if any(untolerated_taint(node.taints, _permanent(each)) is not None for each in tolerations):
        return NodeHealth("healthy" if is_busy else "failed", fails_pods=True)
    return _HEALTHY


def _permanent(tolerations: list[Toleration]) -> list[Toleration]:
    return [each for each in tolerations if each.toleration_seconds is None]
