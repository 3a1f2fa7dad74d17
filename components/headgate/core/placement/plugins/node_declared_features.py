"""
NodeDeclaredFeatures: a pod that needs a feature of the kubelet goes to nodes that declare it (KEP-5328).

Source of what a pod needs: component-helpers nodedeclaredfeatures, `InferForPodScheduling`.
"""

from typing import Final

from headgate.core.placement.cluster import Cluster
from headgate.core.placement.framework.cycle import Cycle
from headgate.core.placement.framework.events import UPDATE, Action, EventHint, Hint, Resource
from headgate.core.placement.framework.plugin import PluginFactory, PreFiltered, Reads
from headgate.core.placement.framework.status import SKIP, SUCCESS, Status, unresolvable
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.objects.pods import PodSpec
from headgate.core.placement.pods import Pod, Shape

NAME: Final = "NodeDeclaredFeatures"
_RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
_USER_NAMESPACES: Final = "UserNamespacesHostNetworkSupport"
_REJECTED: Final = unresolvable("node(s) didn't match Pod's required features")


class NodeDeclaredFeatures:
    """The plugin."""

    name = NAME
    filter_reads = Reads.NODE

    def filter_key(self, shape: Shape) -> tuple[str, ...]:
        """The features that the pod needs."""
        return _needed(shape.spec)

    def pre_filter(self, cycle: Cycle) -> PreFiltered:
        """Skip for pods that need none."""
        return PreFiltered() if _needed(cycle.pod.spec) else PreFiltered(SKIP)

    def filter(self, cycle: Cycle, node: NodeInfo) -> Status:
        """Whether the node declares all of them."""
        declared = node.node.status.declared_features
        return SUCCESS if all(feature in declared for feature in _needed(cycle.pod.spec)) else _REJECTED

    def events(self) -> tuple[EventHint, ...]:
        """A node is added or declares something else, or the pod needs something else."""
        return (
            EventHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE, _after_node_change),
            EventHint(Resource.POD, UPDATE, _after_pod_update),
        )


def _needed(spec: PodSpec) -> tuple[str, ...]:
    containers = (*spec.containers, *spec.init_containers)
    restarts_all = any(
        rule.action == "RestartAllContainers" for container in containers for rule in container.restart_policy_rules
    )
    has_own_users = spec.host_network and spec.host_users is False
    needs = ((_RESTART_ALL, restarts_all), (_USER_NAMESPACES, has_own_users))
    return tuple(name for name, is_needed in needs if is_needed)


def _after_node_change(pod: Pod, old: NodeObject | None, new: NodeObject, cluster: Cluster) -> Hint:  # noqa: ARG001
    is_same = old is not None and old.status.declared_features == new.status.declared_features
    return Hint.SKIP if is_same else Hint.QUEUE


def _after_pod_update(pod: Pod, old: Pod, new: Pod, cluster: Cluster) -> Hint:  # noqa: ARG001
    return Hint.QUEUE if pod.uid == new.uid and _needed(old.spec) != _needed(new.spec) else Hint.SKIP


FACTORY: Final = PluginFactory(NAME, lambda _: NodeDeclaredFeatures())
