"""
NodeDeclaredFeatures: a pod that needs a feature of the kubelet goes to nodes that declare it (KEP-5328).

Source of what a pod needs: component-helpers nodedeclaredfeatures, `InferForPodScheduling`.
"""

from typing import Final

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import UPDATE, ActionType, EventHint, EventResource, Hint
from headgate.core.placement.framework.plugin import PluginFactory, PreFiltered, Reads
from headgate.core.placement.framework.status import SKIP, SUCCESS, PluginStatus, unresolvable
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.objects.pods import PodSpecObject
from headgate.core.placement.pods import PodInfo, PodShape

NAME: Final = "NodeDeclaredFeatures"
_RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
_USER_NAMESPACES: Final = "UserNamespacesHostNetworkSupport"
_REJECTED: Final = unresolvable("node(s) didn't match Pod's required features")


class NodeDeclaredFeatures:
    """The plugin."""

    name = NAME
    filter_reads = Reads.NODE

    def filter_key(self, shape: PodShape) -> tuple[str, ...]:
        """The features that the pod needs."""
        return _needed(shape.spec)

    def pre_filter(self, cycle: PlacementCycle) -> PreFiltered:
        """Skip for pods that need none."""
        return PreFiltered() if _needed(cycle.pod.spec) else PreFiltered(SKIP)

    def filter(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """Whether the node declares all of them."""
        declared = node.node.status.declared_features
        return SUCCESS if all(feature in declared for feature in _needed(cycle.pod.spec)) else _REJECTED

    def events(self) -> tuple[EventHint, ...]:
        """A node is added or declares something else, or the pod needs something else."""
        return (
            EventHint(
                EventResource.NODE,
                ActionType.ADD | ActionType.UPDATE_NODE_DECLARED_FEATURE,
                _after_node_change,
                key=lambda _: None,
            ),
            EventHint(EventResource.POD, UPDATE, _after_pod_update),
        )


def _needed(spec: PodSpecObject) -> tuple[str, ...]:
    containers = (*spec.containers, *spec.init_containers)
    restarts_all = any(
        rule.action == "RestartAllContainers" for container in containers for rule in container.restart_policy_rules
    )
    has_own_users = spec.host_network and spec.host_users is False
    needs = ((_RESTART_ALL, restarts_all), (_USER_NAMESPACES, has_own_users))
    return tuple(name for name, is_needed in needs if is_needed)


def _after_node_change(pod: PodInfo, old: NodeObject | None, new: NodeObject, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    is_same = old is not None and old.status.declared_features == new.status.declared_features
    return Hint.SKIP if is_same else Hint.QUEUE


def _after_pod_update(pod: PodInfo, old: PodInfo, new: PodInfo, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    return Hint.QUEUE if pod.uid == new.uid and _needed(old.spec) != _needed(new.spec) else Hint.SKIP


FACTORY: Final = PluginFactory(NAME, lambda _: NodeDeclaredFeatures())
