"""
Which events may help a pod that its spread constraints keep off all nodes.

Source: `isSchedulableAfterPodChange` and `isSchedulableAfterNodeChange` of podtopologyspread/plugin.go.
"""

from collections.abc import Iterable

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.events import Hint
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.plugins.pod_topology_spread_constraints import Constraint, ConstraintsReader
from headgate.core.placement.pods import PodInfo


def after_pod_change(
    reader: ConstraintsReader, pod: PodInfo, old: PodInfo | None, new: PodInfo | None, cluster: PlacementCluster
) -> Hint:
    """Queue if what changed is counted by a constraint of the pod."""
    if not all(_is_involved(each, pod) for each in (old, new) if each is not None):
        return Hint.SKIP
    constraints = reader.of(pod, cluster).hard
    if old is not None and new is not None:
        return _after_update(constraints, pod, old, new)
    changed = new or old
    assert changed is not None, "a change has an old or a new pod"
    return _queue_if(any(each.selects(changed.labels) for each in constraints))


def _after_update(constraints: Iterable[Constraint], pod: PodInfo, old: PodInfo, new: PodInfo) -> Hint:
    tolerates_other = pod.uid == new.uid and new.spec.tolerations != old.spec.tolerations
    if tolerates_other and any(each.honors_taints for each in constraints):
        return Hint.QUEUE
    if new.labels == old.labels:
        return Hint.SKIP
    return _queue_if(any(each.selects(old.labels) != each.selects(new.labels) for each in constraints))


def _is_involved(changed: PodInfo, pod: PodInfo) -> bool:
    if changed.uid == pod.uid:
        return True
    return bool(changed.node_name or changed.nominated_node_name) and changed.namespace == pod.namespace


def after_node_change(
    reader: ConstraintsReader, pod: PodInfo, old: NodeObject | None, new: NodeObject | None, cluster: PlacementCluster
) -> Hint:
    """Queue if a node with all topology keys comes, goes, or changes its domains or taints."""
    keys = [each.topology_key for each in reader.of(pod, cluster).hard]
    had, has = _has_all(old, keys), _has_all(new, keys)
    if old is None or new is None:
        return _queue_if(had or has)
    if had != has:
        return Hint.QUEUE
    before, after = old.metadata.labels, new.metadata.labels
    is_other = any(before.get(key, "") != after.get(key, "") for key in keys) or old.spec.taints != new.spec.taints
    return _queue_if(has and is_other)


def _has_all(node: NodeObject | None, keys: Iterable[str]) -> bool:
    return node is not None and all(key in node.metadata.labels for key in keys)


def _queue_if(condition: bool) -> Hint:
    return Hint.QUEUE if condition else Hint.SKIP
