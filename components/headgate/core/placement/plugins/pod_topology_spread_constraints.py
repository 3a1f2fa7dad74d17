"""
The spread constraints of a pod: its own, or the default ones with the selectors of what the pod belongs to.

Source: pkg/scheduler/framework/plugins/podtopologyspread/common.go, plugins/helper/spread.go (`DefaultSelector`).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from headgate.core.kubernetes.selector_syntax import why_no_selector
from headgate.core.kubernetes.selectors import matches_labels
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.counts.domains import Partition, partition
from headgate.core.placement.counts.selections import Selection, selection
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.objects.owners import ReplicaSet, ReplicationController, Service, StatefulSetObject
from headgate.core.placement.objects.pods import TopologySpreadConstraint
from headgate.core.placement.pods import SHAPES_MAX, PodInfo, PodShape
from headgate.events.objects import LabelSelector

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"

DO_NOT_SCHEDULE: Final = "DoNotSchedule"
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"

SYSTEM_DEFAULTS: Final = (
    TopologySpreadConstraint(topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=3),
    TopologySpreadConstraint(topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=5),
)

Selectors = tuple[LabelSelector | None, ...]
"""Label selectors that all have to match; None matches nothing."""


class Constraint(msgspec.Struct, frozen=True, eq=False):
    """
    A constraint of a pod.

    `selectors` say which pods it is about, `counted` which of them are counted: none if the selectors require nothing.
    `partition` has the nodes that count.
    """

    topology_key: str
    max_skew: int
    min_domains: int
    selectors: Selectors
    matches_self: bool
    honors_taints: bool
    counted: Selection
    partition: Partition

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod of these labels, in the namespace of the constraint's pod, is meant."""
        return all(matches_labels(selector, labels) for selector in self.selectors)


class Constraints(msgspec.Struct, frozen=True, eq=False):
    """
    The constraints of a pod: `hard` ones of nodes it may go to, `soft` ones of nodes it should rather go to.

    `requires_keys` is whether nodes without all topology keys are left out of what is counted and scored: always, but
    for the defaults of the system. `hard_error` and `soft_error` say which selector of them cannot be read.
    """

    hard: tuple[Constraint, ...] = ()
    soft: tuple[Constraint, ...] = ()
    requires_keys: bool = True
    hard_error: str = ""
    soft_error: str = ""


NO_CONSTRAINTS: Final = Constraints()


def own_constraints(shape: PodShape) -> Constraints:
    """The constraints that a pod of this shape has itself."""
    given = shape.spec.topology_spread_constraints
    selectors = [_own_selectors(each, shape.labels) for each in given]
    return _constraints(shape, tuple(zip(given, selectors, strict=True)), requires_keys=True)


def _own_selectors(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> Selectors:
    """The selector, and what `matchLabelKeys` adds to it. The API server has merged them already, or has not."""
    selector = constraint.label_selector
    matching = {key: labels[key] for key in constraint.match_label_keys if key in labels}
    if not matching or selector is None:
        return (selector,)
    return (LabelSelector(match_labels=matching), selector)


def _constraints(
    shape: PodShape, given: tuple[tuple[TopologySpreadConstraint, Selectors], ...], *, requires_keys: bool
) -> Constraints:
    hard = [each for each in given if each[0].when_unsatisfiable == DO_NOT_SCHEDULE]
    soft = [each for each in given if each[0].when_unsatisfiable == SCHEDULE_ANYWAY]
    return Constraints(
        _of_one_kind(shape, hard, requires_keys=True),
        _of_one_kind(shape, soft, requires_keys=requires_keys),
        requires_keys,
        _error_of(hard),
        _error_of(soft),
    )


def _error_of(given: list[tuple[TopologySpreadConstraint, Selectors]]) -> str:
    return next(filter(None, (why_no_selector(constraint.label_selector) for constraint, _ in given)), "")


def _of_one_kind(
    shape: PodShape, given: list[tuple[TopologySpreadConstraint, Selectors]], *, requires_keys: bool
) -> tuple[Constraint, ...]:
    keys = tuple(constraint.topology_key for constraint, _ in given) if requires_keys else ()
    return tuple(_constraint(shape, constraint, selectors, keys) for constraint, selectors in given)


def _constraint(
    shape: PodShape, constraint: TopologySpreadConstraint, selectors: Selectors, keys: tuple[str, ...]
) -> Constraint:
    honors_affinity = (constraint.node_affinity_policy or "Honor") == "Honor"
    honors_taints = (constraint.node_taints_policy or "Ignore") == "Honor"
    is_empty = all(map(_requires_nothing, selectors))
    return Constraint(
        topology_key=constraint.topology_key,
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains if constraint.min_domains is not None else 1,
        selectors=selectors,
        matches_self=all(matches_labels(selector, shape.labels) for selector in selectors),
        honors_taints=honors_taints,
        counted=selection((shape.namespace,), (None,) if is_empty else selectors, counts_terminating=False),
        partition=partition(
            constraint.topology_key,
            keys,
            shape.spec if honors_affinity else None,
            shape.spec.tolerations if honors_taints else None,
        ),
    )


def _requires_nothing(selector: LabelSelector | None) -> bool:
    return selector is not None and not selector.match_labels and not selector.match_expressions


# --- defaults ------------------------------------------------------------------------------------------------------


class Services:
    """The index of the Services by namespace."""

    def __init__(self, cluster: PlacementCluster) -> None:
        self._cluster = cluster
        self._by_namespace: dict[str, tuple[Service, ...]] = {}

    def of(self, namespace: str) -> tuple[Service, ...]:
        """The Services of a namespace; the same object while none of them changes."""
        known = self._by_namespace.get(namespace)
        if known is None:
            services = self._cluster.objects(Service).values()
            known = tuple(each for each in services if each.metadata.namespace == namespace)
            self._by_namespace[namespace] = known
        return known

    def object_put(self, kind: type, key: str) -> None:
        """A Service has changed."""
        if kind is Service:
            self._by_namespace.pop(key.partition("/")[0], None)

    def pod_added(self, pod: PodInfo, node: NodeInfo) -> None:
        """Pods are not read."""

    def pod_removed(self, pod: PodInfo, node: NodeInfo) -> None:
        """Pods are not read."""

    def node_set(self, node: NodeInfo, old: NodeObject | None) -> None:
        """Nodes are not read."""

    def node_removed(self, node: NodeInfo) -> None:
        """Nodes are not read."""


class _Kept(msgspec.Struct, frozen=True, eq=False):
    services: tuple[Service, ...]
    owner: object
    constraints: Constraints


class ConstraintsReader:
    """Reads the constraints of pods, once per shape. `defaults` are for pods without constraints of their own."""

    def __init__(self, defaults: tuple[TopologySpreadConstraint, ...], *, are_of_system: bool) -> None:
        self._defaults = defaults
        self._are_of_system = are_of_system
        self._own: dict[PodShape, Constraints] = {}
        self._defaulted: dict[PodShape, _Kept] = {}

    def of(self, pod: PodInfo, cluster: PlacementCluster) -> Constraints:
        """The constraints of a pod."""
        shape = pod.shape
        if not shape.spec.topology_spread_constraints:
            return self._default(shape, cluster) if self._defaults else NO_CONSTRAINTS
        known = self._own.get(shape)
        if known is None:
            if len(self._own) >= SHAPES_MAX:
                self._own.clear()
            known = self._own[shape] = own_constraints(shape)
        return known

    def _default(self, shape: PodShape, cluster: PlacementCluster) -> Constraints:
        services, owner = cluster.index(Services).of(shape.namespace), _owner_of(shape, cluster)
        known = self._defaulted.get(shape)
        if known is None or known.services is not services or known.owner is not owner:
            if len(self._defaulted) >= SHAPES_MAX:
                self._defaulted.clear()
            selectors = _default_selectors(shape, services, owner)
            constraints = NO_CONSTRAINTS
            if not all(map(_requires_nothing, selectors)):
                given = tuple((each, selectors) for each in self._defaults)
                constraints = _constraints(shape, given, requires_keys=not self._are_of_system)
            known = self._defaulted[shape] = _Kept(services, owner, constraints)
        return known.constraints


Owner = ReplicationController | ReplicaSet | StatefulSetObject

_OWNER_KINDS: Final[Mapping[tuple[str, str], type[Owner]]] = {
    ("v1", "ReplicationController"): ReplicationController,
    ("apps/v1", "ReplicaSet"): ReplicaSet,
    ("apps/v1", "StatefulSet"): StatefulSetObject,
}


def _owner_of(shape: PodShape, cluster: PlacementCluster) -> Owner | None:
    """The object that controls pods of a shape, if it is of a kind with a selector and exists."""
    owner = shape.controller
    kind = _OWNER_KINDS.get((owner.api_version, owner.kind)) if owner is not None else None
    if owner is None or kind is None:
        return None
    return cluster.objects(kind).get(f"{shape.namespace}/{owner.name}")


def _default_selectors(shape: PodShape, services: Iterable[Service], owner: Owner | None) -> Selectors:
    """What pods belong together with those of a shape: by the Services that select them, and by their owner."""
    labels: dict[str, str] = {}
    for service in services:
        selector = service.spec.selector
        if selector and all(shape.labels.get(key) == value for key, value in selector.items()):
            labels |= selector
    match owner:
        case ReplicationController():
            return (LabelSelector(match_labels=labels | owner.spec.selector),)
        case ReplicaSet() | StatefulSetObject() if owner.spec.selector is not None:
            return (LabelSelector(match_labels=labels), owner.spec.selector)
        case _:
            return (LabelSelector(match_labels=labels),)
