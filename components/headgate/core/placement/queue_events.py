"""
The cluster events that changes of objects amount to, and which registrations of plugins they meet.

An event names what has changed as precisely as it can: the labels of a node, say, not just the node. The queue asks by
them whether the change may help a pod. Source: pkg/scheduler/framework/events.go and types.go of the kube-scheduler.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

import msgspec

from headgate.core.kubernetes.quantities import parse_quantity
from headgate.core.placement.framework.events import ALL, UPDATE, Action, EventHint, Resource
from headgate.core.placement.objects.metadata import Quantities
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.pods import Pod


class ClusterEvent(msgspec.Struct, frozen=True):
    """A change of the cluster. `name` stands for what is no change of an object."""

    resource: Resource
    action: Action
    name: str = ""

    @property
    def label(self) -> str:
        """The event as the kube-scheduler writes it, e.g. `NodeUpdateNodeTaint`."""
        return self.name or f"{self.resource.value}{self.action.label}"

    @property
    def is_wildcard(self) -> bool:
        """Whether it brings back every pod, whatever rejected it."""
        return self.resource == Resource.ANY and self.action == ALL

    def meets(self, registered: EventHint) -> bool:
        """
        Whether a plugin that has registered so is interested: what happened is the same or more specific.

        A registration for everything is interested in everything; no other one in a wildcard.
        """
        if registered.resource == Resource.ANY and registered.actions == ALL:
            return True
        shared = registered.actions & self.action
        return self._is_of(registered.resource) and shared != 0 and self.action <= registered.actions

    def _is_of(self, registered: Resource) -> bool:
        return registered in (Resource.ANY, self.resource) or (registered == Resource.POD and self.resource in _PODS)


_PODS: Final = (Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD)

POD_ASSIGNED: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
ASSIGNED_POD_GONE: Final = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
UNSCHEDULABLE_TIMEOUT: Final = ClusterEvent(Resource.ANY, ALL, "UnschedulableTimeout")
FORCE_ACTIVATE: Final = ClusterEvent(Resource.ANY, ALL, "ForceActivate")


def pod_updates(old: Pod, new: Pod) -> tuple[ClusterEvent, ...]:
    """What the update of a pod amounts to, at least one event (PodSchedulingPropertiesChange)."""
    resource = Resource.ASSIGNED_POD if new.node_name else Resource.UNSCHEDULED_POD
    before, after = old.requests.requests, new.requests.requests
    actions: list[Action] = []
    if old.labels != new.labels:
        actions.append(Action.UPDATE_POD_LABEL)
    if any(value > after.get(name, -1) for name, value in before.items()):
        actions.append(Action.UPDATE_POD_SCALE_DOWN)
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        actions.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    if len(old.spec.tolerations) != len(new.spec.tolerations):
        actions.append(Action.UPDATE_POD_TOLERATION)
    if old.object.status.resource_claim_statuses != new.object.status.resource_claim_statuses:
        actions.append(Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    return tuple(ClusterEvent(resource, action) for action in actions or [UPDATE])


def node_updates(old: NodeObject, new: NodeObject) -> tuple[ClusterEvent, ...]:
    """What the update of a node amounts to, possibly nothing (NodeSchedulingPropertiesChange)."""
    actions: list[Action] = []
    if old.spec.unschedulable and not new.spec.unschedulable:
        actions.append(Action.UPDATE_NODE_TAINT)
    if _exact(old.status.allocatable) != _exact(new.status.allocatable):
        actions.append(Action.UPDATE_NODE_ALLOCATABLE)
    if old.metadata.labels != new.metadata.labels:
        actions.append(Action.UPDATE_NODE_LABEL)
    if old.spec.taints != new.spec.taints:
        actions.append(Action.UPDATE_NODE_TAINT)
    if _conditions(old) != _conditions(new):
        actions.append(Action.UPDATE_NODE_CONDITION)
    if old.metadata.annotations != new.metadata.annotations:
        actions.append(Action.UPDATE_NODE_ANNOTATION)
    if old.status.declared_features != new.status.declared_features:
        actions.append(Action.UPDATE_NODE_DECLARED_FEATURE)
    return tuple(ClusterEvent(Resource.NODE, action) for action in actions)


def _exact(quantities: Quantities) -> Mapping[str, Fraction]:
    return {name: parse_quantity(quantity) for name, quantity in quantities.items()}


def _conditions(node: NodeObject) -> Mapping[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions}


# --- registrations -------------------------------------------------------------------------------------------------


class Registration(msgspec.Struct, frozen=True):
    """An `EventHint` and the plugin that it is of. `number` is its place among those of the profile."""

    number: int
    plugin: str
    event: EventHint


_UNDECLARED: Final = tuple(
    EventHint(resource, ALL)
    for resource in (
        Resource.POD,
        Resource.NODE,
        Resource.PERSISTENT_VOLUME,
        Resource.PERSISTENT_VOLUME_CLAIM,
        Resource.CSI_NODE,
        Resource.CSI_DRIVER,
        Resource.CSI_STORAGE_CAPACITY,
        Resource.STORAGE_CLASS,
        Resource.RESOURCE_CLAIM,
        Resource.DEVICE_CLASS,
    )
)
"""What a plugin is registered for that does not say."""


def registrations(declared: Iterable[tuple[str, tuple[EventHint, ...] | None]]) -> tuple[Registration, ...]:
    """
    The registrations of a profile: by plugin what its `events()` are, None of a plugin without.

    A plugin that is registered for added nodes is also registered for taints of nodes (buildQueueingHintMap).
    """
    found: list[tuple[str, EventHint]] = []
    for plugin, events in declared:
        hints = _UNDECLARED if events is None else events
        found.extend((plugin, event) for event in hints)
        on_nodes = [event.actions for event in hints if event.resource == Resource.NODE]
        is_on_taints = any(actions & Action.UPDATE_NODE_TAINT for actions in on_nodes)
        if any(actions & Action.ADD for actions in on_nodes) and not is_on_taints:
            found.append((plugin, EventHint(Resource.NODE, Action.UPDATE_NODE_TAINT)))
    return tuple(Registration(number, plugin, event) for number, (plugin, event) in enumerate(found))
