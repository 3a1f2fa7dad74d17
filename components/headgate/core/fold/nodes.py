"""
The fold of facts about nodes, pods and Topologies, and of what the nodes of pods mean for them.

Called by `headgate.core.fold` only. It keeps `Index.taken`, what pods use of each node, and records in `State.freed`
when the capacity of a flavor with a topology may have grown: under `<flavor>/*`, in the trees of the ClusterQueues that
use the flavor. Workloads that wait for a place, and not for quota, wake from that.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Never

from headgate.core.api.managed_pods import ENDED
from headgate.core.fold.objects import free, free_where
from headgate.core.kubernetes.effective_requests import pod_requests
from headgate.core.kubernetes.quantities import amount
from headgate.core.state.attribution import about
from headgate.core.state.handlers import EventHandlers
from headgate.core.state.tables import Index, PodRecord, State, TopologyObject
from headgate.core.topology.levels import carries_labels
from headgate.events import effects, facts
from headgate.events.commit import Commit
from headgate.events.ids import PodKey, Seq, Uid
from headgate.events.objects import Admission, Node, ResourceFlavorSpec

PODS: Final = "pods"
"""The resource of which every pod takes one."""


# --- flavors with a topology ---------------------------------------------------------------------------------------


def place_in(flavor: str) -> str:
    """The key in `State.freed` of capacity that a flavor with a topology has gained."""
    return f"{flavor}/*"


def is_place(freed: str) -> bool:
    """Whether a key of `State.freed` is one of `place_in`, and not quota."""
    return freed.endswith("/*")


def levels_of(state: State, flavor: ResourceFlavorSpec) -> tuple[str, ...] | None:
    """The node labels of a flavor's topology, widest first; None when it has none, or its Topology does not exist."""
    topology = state.topologies.get(flavor.topology_name) if flavor.topology_name is not None else None
    return tuple(level.node_label for level in topology.levels) if topology is not None else None


def free_places(state: State, seq: Seq, concerns: Callable[[ResourceFlavorSpec], bool] | None = None) -> None:
    """The capacity of the flavors with a topology that match, or of all of them, may have grown."""
    flavors = {
        name: place_in(name)
        for name, record in state.flavors.items()
        if record.spec.topology_name is not None and (concerns is None or concerns(record.spec))
    }
    if not flavors:
        return
    freed: dict[str, dict[str, None]] = {}
    for name, queue in state.cluster_queues.items():
        for group in queue.spec.resource_groups:
            for quotas in group.flavors:
                if quotas.name in flavors:
                    freed.setdefault(state.index.trees[name], {})[flavors[quotas.name]] = None
    for tree, keys in freed.items():
        free(state, tree, keys, seq)


def free_places_of(state: State, admission: Admission | None, seq: Seq) -> None:
    """
    The domains that an admission has assigned are free again, in every flavor with a topology: flavors share nodes.

    Kueue tries those alone again that share quota with it, and so does the policy that retries as Kueue does.
    """
    if admission is None or state.configuration.wake_policy != "Bounded":
        return
    if any(each.topology_assignment is not None for each in admission.pod_set_assignments):
        free_places(state, seq)


def _free_node(state: State, nodes: Iterable[Node | None], seq: Seq) -> None:
    """The capacity of the flavors that any of these nodes, or states of a node, belongs to may have grown."""
    known = [node for node in nodes if node is not None]

    def concerns(flavor: ResourceFlavorSpec) -> bool:
        levels = levels_of(state, flavor)
        return levels is not None and any(carries_labels(node, flavor.node_labels, levels) for node in known)

    free_places(state, seq, concerns)


# --- nodes ---------------------------------------------------------------------------------------------------------


def _node_observed(state: State, event: facts.NodeObserved, commit: Commit, seq: Seq) -> None:
    before = state.nodes.get(event.name)
    state.nodes[event.name] = event.node
    if before is None or _capacity(before) != _capacity(event.node):
        _free_node(state, (before, event.node), seq)


def _capacity(node: Node) -> tuple[Any, ...]:
    """The part of a node that placement depends on."""
    return node.labels, node.taints, node.unschedulable, node.allocatable, node.ready


def _node_deleted(state: State, event: facts.NodeDeleted, commit: Commit, seq: Seq) -> None:
    before = state.nodes.pop(event.name, None)
    _free_node(state, (before,), seq)


def _node_usage_observed(state: State, event: facts.NodeUsageObserved, commit: Commit, seq: Seq) -> None:
    before = state.node_usage.pop(event.node, {})
    after = {resource: amount(resource, quantity) for resource, quantity in event.requests.items()}
    if event.pods:
        after[PODS] = event.pods
        state.node_usage[event.node] = after
    else:
        after = {}
    _take(state, event.node, before, -1)
    _take(state, event.node, after, 1)
    if any(after.get(resource, 0) < value for resource, value in before.items()):
        _free_node(state, (state.nodes.get(event.node),), seq)


# --- what pods use of nodes ----------------------------------------------------------------------------------------


def _use_of(record: PodRecord) -> Mapping[str, int]:
    """What a pod uses of its node, unless its workload's topology assignment is charged for it."""
    if not record.placed or record.pod.topology_aware:
        return {}
    requests = pod_requests(record.pod.spec)
    requests[PODS] = requests.get(PODS, 0) + 1
    return requests


def _take(state: State, node: str, amounts: Mapping[str, int], sign: int) -> None:
    if not amounts:
        return
    index = state.index
    taken = index.taken.setdefault(node, {})
    for resource, value in amounts.items():
        left = taken.get(resource, 0) + sign * value
        if left:
            taken[resource] = left
        else:
            taken.pop(resource, None)
    if not taken:
        del index.taken[node]
    _touch(index, node)


def _touch(index: Index, node: str) -> None:
    index.taken_changes += 1
    index.taken_changed.pop(node, None)
    index.taken_changed[node] = index.taken_changes


def _leave(state: State, record: PodRecord, seq: Seq) -> None:
    """A pod no longer uses its node as it did."""
    used = _use_of(record)
    if used:
        _take(state, record.placed, used, -1)
        _free_node(state, (state.nodes.get(record.placed),), seq)


def _settle(state: State, record: PodRecord) -> None:
    """A pod uses its node as it is now."""
    _take(state, record.placed, _use_of(record), 1)


# --- pods ----------------------------------------------------------------------------------------------------------


def _pod_observed(state: State, event: facts.PodObserved, commit: Commit, seq: Seq) -> None:
    record = state.pods.get(event.pod)
    node = event.spec.spec.node_name
    has_ended = event.spec.managed is not None and event.spec.phase in ENDED
    if record is None or record.pod.uid != event.spec.uid or has_ended:
        if record is not None:
            # One that has ended uses no node any more.
            _leave(state, record, seq)
        record = state.pods[event.pod] = PodRecord(pod=state.shared.pod(event.spec), placed=node, bound=node != "")
        _settle(state, record)
        return
    stays = record.pod.spec == event.spec.spec and record.pod.topology_aware == event.spec.topology_aware
    if not stays:
        _take(state, record.placed, _use_of(record), -1)
    record.pod = state.shared.pod(event.spec)
    if node:
        record.placed, record.bound = node, True
    if not stays:
        _settle(state, record)


def _pod_deleted(state: State, event: facts.PodDeleted, commit: Commit, seq: Seq) -> None:
    record = _pod_of(state, event.pod, event.uid)
    if record is not None:
        del state.pods[event.pod]
        _leave(state, record, seq)


def _pod_of(state: State, pod: PodKey, uid: str) -> PodRecord | None:
    record = state.pods.get(pod)
    return record if record is not None and record.pod.uid == uid else None


def place_pod(state: State, pod: PodKey, uid: Uid, node: str, seq: Seq) -> None:
    """A node is chosen for a pod."""
    record = _pod_of(state, pod, uid)
    if record is not None and not record.bound:
        _leave(state, record, seq)
        record.placed = node
        _settle(state, record)


def _pod_removed(state: State, event: effects.PodRemoved, commit: Commit, seq: Seq) -> None:
    """No-op: the watch reports the result."""


def _pod_failed(state: State, event: effects.PodFailed, commit: Commit, seq: Seq) -> None:
    """No-op: the watch reports the result."""


def bind_pod(state: State, pod: PodKey, uid: Uid, node: str, seq: Seq) -> None:
    """A pod is bound to its node."""
    if record := _pod_of(state, pod, uid):
        if record.placed != node:
            _leave(state, record, seq)
            record.placed = node
            _settle(state, record)
        record.bound = True


def unplace_pod(state: State, pod: PodKey, uid: Uid, seq: Seq, *, refused: bool) -> None:
    """A pod does not get the node that was chosen for it; `refused` by the API server."""
    record = _pod_of(state, pod, uid)
    if record is not None and not record.bound:
        _leave(state, record, seq)
        record.placed = ""
        record.refusals += refused


# --- Topologies ----------------------------------------------------------------------------------------------------


def as_topology(event: facts.TopologyObserved) -> TopologyObject | None:
    """The metadata in a fact about a Topology; None in those of earlier versions."""
    if not event.uid:
        return None
    return TopologyObject(uid=event.uid, deleting=event.deleting, finalizer=event.finalizer)


def _topology_observed(state: State, event: facts.TopologyObserved, commit: Commit, seq: Seq) -> None:
    before = state.topologies.get(event.name)
    seen, known = as_topology(event), state.topology_objects.pop(event.name, None)
    if seen is not None:
        state.topology_objects[event.name] = seen
    state.topologies[event.name] = event.spec
    if before != event.spec or seen is None or known is None or known.uid != seen.uid:
        _free_topology(state, event.name, seq)


def _topology_deleted(state: State, event: facts.TopologyDeleted, commit: Commit, seq: Seq) -> None:
    state.topologies.pop(event.name, None)
    state.topology_objects.pop(event.name, None)
    _free_topology(state, event.name, seq)


def _free_topology(state: State, topology: str, seq: Seq) -> None:
    """Everything may have changed in the trees of the ClusterQueues that use a Topology."""
    flavors = {name for name, record in state.flavors.items() if record.spec.topology_name == topology}
    free_where(
        state,
        lambda record: any(quotas.name in flavors for group in record.spec.resource_groups for quotas in group.flavors),
        seq,
    )


def reindex(state: State, before: Index) -> None:
    """
    Rebuild the index that follows from the tables of this module.

    A cache that followed the index `before` finds that what is used of any node may have changed.
    """
    index = state.index
    index.taken_changes = before.taken_changes
    for node in before.taken_changed:
        _touch(index, node)
    for node, used in state.node_usage.items():
        with about("Node", node):
            _take(state, node, used, 1)
    for key, record in state.pods.items():
        with about("Pod", key):
            _settle(state, record)


HANDLERS = (
    EventHandlers[Never]()
    .on(facts.NodeObserved, _node_observed)
    .on(facts.NodeDeleted, _node_deleted)
    .on(facts.NodeUsageObserved, _node_usage_observed)
    .on(facts.TopologyObserved, _topology_observed)
    .on(facts.TopologyDeleted, _topology_deleted)
    .on(facts.PodObserved, _pod_observed)
    .on(facts.PodDeleted, _pod_deleted)
    .on(effects.PodRemoved, _pod_removed)
    .on(effects.PodFailed, _pod_failed)
)

__all__ = [
    "HANDLERS",
    "as_topology",
    "bind_pod",
    "free_places",
    "free_places_of",
    "is_place",
    "levels_of",
    "place_in",
    "place_pod",
    "reindex",
    "unplace_pod",
]
