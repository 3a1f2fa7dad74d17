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
from headgate.core.placement.framework.events import ALL, UPDATE, ActionType, EventHint, EventResource
from headgate.core.placement.objects.metadata import Quantities
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.pods import PodInfo


class ClusterEvent(msgspec.Struct, frozen=True):
    """A change of the cluster. `name` stands for what is no change of an object."""

    resource: EventResource
    action: ActionType
    name: str = ""

    @property
    def label(self) -> str:
        """The event as the kube-scheduler writes it, e.g. `NodeUpdateNodeTaint`."""
        return self.name or f"{self.resource.value}{self.action.label}"

    @property
    def is_wildcard(self) -> bool:
        """Whether it brings back every pod, whatever rejected it."""
        return self.resource == EventResource.ANY and self.action == ALL

    def meets(self, registered: EventHint) -> bool:
        """
        Whether a plugin that has registered so is interested: what happened is the same or more specific.

        A registration for everything is interested in everything; no other one in a wildcard.
        """
        if registered.resource == EventResource.ANY and registered.actions == ALL:
            return True
        shared = registered.actions & self.action
        return self._is_of(registered.resource) and shared != 0 and self.action <= registered.actions

    def _is_of(self, registered: EventResource) -> bool:
        return registered in (EventResource.ANY, self.resource) or (
            registered == EventResource.POD and self.resource in _PODS
        )


_PODS: Final = (EventResource.ASSIGNED_POD, EventResource.UNSCHEDULED_POD)

POD_APPEARED: Final = ClusterEvent(EventResource.UNSCHEDULED_POD, ActionType.ADD)
POD_ASSIGNED: Final = ClusterEvent(EventResource.ASSIGNED_POD, ActionType.ADD)
ASSIGNED_POD_GONE: Final = ClusterEvent(EventResource.ASSIGNED_POD, ActionType.DELETE)
UNSCHEDULABLE_TIMEOUT: Final = ClusterEvent(EventResource.ANY, ALL, "UnschedulableTimeout")
FORCE_ACTIVATE: Final = ClusterEvent(EventResource.ANY, ALL, "ForceActivate")


def pod_updates(old: PodInfo, new: PodInfo) -> tuple[ClusterEvent, ...]:
    """What the update of a pod amounts to, at least one event (PodSchedulingPropertiesChange)."""
    resource = EventResource.ASSIGNED_POD if new.node_name else EventResource.UNSCHEDULED_POD
    before, after = old.requests.requests, new.requests.requests
    actions: list[ActionType] = []
    if old.labels != new.labels:
        actions.append(ActionType.UPDATE_POD_LABEL)
    if any(value > after.get(name, -1) for name, value in before.items()):
        actions.append(ActionType.UPDATE_POD_SCALE_DOWN)
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        actions.append(ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    if len(old.spec.tolerations) != len(new.spec.tolerations):
        actions.append(ActionType.UPDATE_POD_TOLERATION)
    if old.object.status.resource_claim_statuses != new.object.status.resource_claim_statuses:
        actions.append(ActionType.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    return tuple(ClusterEvent(resource, action) for action in actions or [UPDATE])


def node_updates(old: NodeObject, new: NodeObject) -> tuple[ClusterEvent, ...]:
    """What the update of a node amounts to, possibly nothing (NodeSchedulingPropertiesChange)."""
    actions: list[ActionType] = []
    if old.spec.unschedulable and not new.spec.unschedulable:
        actions.append(ActionType.UPDATE_NODE_TAINT)
    if _exact(old.status.allocatable) != _exact(new.status.allocatable):
        actions.append(ActionType.UPDATE_NODE_ALLOCATABLE)
    if old.metadata.labels != new.metadata.labels:
        actions.append(ActionType.UPDATE_NODE_LABEL)
    if old.spec.taints != new.spec.taints:
        actions.append(ActionType.UPDATE_NODE_TAINT)
    if _conditions(old) != _conditions(new):
        actions.append(ActionType.UPDATE_NODE_CONDITION)
    if old.metadata.annotations != new.metadata.annotations:
        actions.append(ActionType.UPDATE_NODE_ANNOTATION)
    if old.status.declared_features != new.status.declared_features:
        actions.append(ActionType.UPDATE_NODE_DECLARED_FEATURE)
    return tuple(ClusterEvent(EventResource.NODE, action) for action in actions)


def _exact(quantities: Quantities) -> Mapping[str, Fraction]:
    return {name: parse_quantity(quantity) for name, quantity in quantities.items()}


def _conditions(node: NodeObject) -> Mapping[str, str]:
    return {condition.type: condition.status for condition in node.status.conditions}


# --- registrations -------------------------------------------------------------------------------------------------


class EventRegistration(msgspec.Struct, frozen=True):
    """An `EventHint` and the plugin that it is of. `number` is its place among those of the profile."""

    number: int
    plugin: str
    event: EventHint


_UNDECLARED: Final = tuple(
    EventHint(resource, ALL)
    for resource in (
        EventResource.POD,
        EventResource.NODE,
        EventResource.PERSISTENT_VOLUME,
        EventResource.PERSISTENT_VOLUME_CLAIM,
        EventResource.CSI_NODE,
        EventResource.CSI_DRIVER,
        EventResource.CSI_STORAGE_CAPACITY,
        EventResource.STORAGE_CLASS,
        EventResource.RESOURCE_CLAIM,
        EventResource.DEVICE_CLASS,
    )
)
"""What a plugin is registered for that does not say."""


def registrations(declared: Iterable[tuple[str, tuple[EventHint, ...] | None]]) -> tuple[EventRegistration, ...]:
    """
    The registrations of a profile: by plugin what its `events()` are, None of a plugin without.

    A plugin that is registered for added nodes is also registered for taints of nodes (buildQueueingHintMap).
    """
    found: list[tuple[str, EventHint]] = []
    for plugin, events in declared:
        hints = _UNDECLARED if events is None else events
        found.extend((plugin, event) for event in hints)
        on_nodes = [event.actions for event in hints if event.resource == EventResource.NODE]
        is_on_taints = any(actions & ActionType.UPDATE_NODE_TAINT for actions in on_nodes)
        if any(actions & ActionType.ADD for actions in on_nodes) and not is_on_taints:
            found.append((plugin, EventHint(EventResource.NODE, ActionType.UPDATE_NODE_TAINT)))
    return tuple(EventRegistration(number, plugin, event) for number, (plugin, event) in enumerate(found))
