"""
NodeResourcesFit: the node has what the pod requests; and how well it does, by one of three strategies.

Extended resources can be left to an extender (`ignoredResources`, `ignoredResourceGroups`), and are left to
DynamicResources where a device class provides them. Source: noderesources/fit.go.
"""

from collections.abc import Hashable, Iterable
from typing import Final

import msgspec
import numpy as np

from headgate.core.config.fields import ConfigurationError
from headgate.core.kubernetes.label_syntax import why_no_label_key
from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.columns import Columns
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.events import UPDATE, ActionType, EventHint, EventResource, Hint
from headgate.core.placement.framework.plugin import Arguments, PluginFactory, PreFiltered, PreScored, Reads
from headgate.core.placement.framework.status import SUCCESS, Code, PluginStatus
from headgate.core.placement.nodes import NodeInfo, allocatable_of
from headgate.core.placement.objects.devices import DeviceClass
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.plugins.extended_resources import delegated, provided_names
from headgate.core.placement.plugins.resource_shares import (
    DEFAULT_RESOURCES,
    ResourceSpec,
    shares_of,
    shares_of_rows,
    wanted_of,
    weighted,
)
from headgate.core.placement.plugins.scoring_strategies import (
    CUSTOM_SCORE_MAX,
    UTILIZATION_MAX,
    LeastAllocated,
    MostAllocated,
    RequestedToCapacityRatio,
    ShapePoint,
    ShareStrategy,
)
from headgate.core.placement.pods import PodInfo, PodShape
from headgate.core.placement.requests import PODS, Amounts, is_extended

NAME: Final = "NodeResourcesFit"
_TOO_MANY_PODS: Final = "Too many pods"


# --- arguments -----------------------------------------------------------------------------------------------------


class RequestedToCapacityRatioParam(Arguments, frozen=True):
    """`RequestedToCapacityRatioParam`."""

    shape: tuple[ShapePoint, ...] = ()


class ScoringStrategy(Arguments, frozen=True):
    """`ScoringStrategy`."""

    type: str = "LeastAllocated"
    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None


class NodeResourcesFitArgs(Arguments, frozen=True):
    """`NodeResourcesFitArgs`."""

    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy()


# --- the plugin ----------------------------------------------------------------------------------------------------


class NodeResourcesFit:
    """The plugin."""

    name = NAME
    filter_reads = Reads.NODE_AND_PODS
    score_reads = Reads.NODE_AND_PODS
    object_kinds = (DeviceClass,)

    def __init__(self, arguments: NodeResourcesFitArgs) -> None:
        self._ignored = arguments.ignored_resources
        self._ignored_groups = arguments.ignored_resource_groups
        strategy = arguments.scoring_strategy
        self._resources = strategy.resources
        self._strategy = _strategy_of(strategy)

    def filter_key(self, shape: PodShape) -> Hashable:
        """The requests."""
        return tuple(sorted(shape.requests.requests.items()))

    def pre_filter(self, cycle: PlacementCycle) -> PreFiltered:  # noqa: ARG002 - the filter reads the shape
        """Never skipped: any pod takes up the place of one."""
        return PreFiltered()

    def filter(self, cycle: PlacementCycle, node: NodeInfo) -> PluginStatus:
        """Whether what the pod requests is free, all of it."""
        reasons: list[str] = []
        code = Code.UNSCHEDULABLE
        if len(node.pods) + 1 > node.allocatable.get(PODS, 0):
            reasons.append(_TOO_MANY_PODS)
        left_out = delegated(cycle.cluster, cycle.pod.shape.requests.requests)
        for resource, wanted in cycle.pod.shape.requests.requests.items():
            allocatable = node.allocatable.get(resource, 0)
            if not wanted or self._is_ignored(resource) or (resource in left_out and not allocatable):
                continue
            if wanted > allocatable - node.requested.get(resource, 0):
                reasons.append(f"Insufficient {resource}")
                if wanted > allocatable:
                    code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return PluginStatus(code, tuple(sorted(reasons))) if reasons else SUCCESS

    def filter_columns(self, cycle: PlacementCycle, columns: Columns, rows: Rows) -> Ints:
        """The same for many nodes: each lack is a bit, and each combination of lacks one status."""
        lacks = (columns.pod_count[rows] + 1 > columns.allocatable(PODS)[rows]).astype(np.int64)
        never = np.zeros(len(rows), dtype=np.bool_)
        reasons = [_TOO_MANY_PODS]
        left_out = delegated(cycle.cluster, cycle.pod.shape.requests.requests)
        for resource, wanted in cycle.pod.shape.requests.requests.items():
            if not wanted or self._is_ignored(resource):
                continue
            allocatable = columns.allocatable(resource)[rows]
            lacking = wanted > allocatable - columns.requested(resource)[rows]
            if resource in left_out:
                lacking &= allocatable != 0
            lacks |= lacking.astype(np.int64) << len(reasons)
            never |= lacking & (wanted > allocatable)
            reasons.append(f"Insufficient {resource}")
        return _ids_of(cycle, lacks | never.astype(np.int64) << len(reasons), reasons)

    def amounts(self, cycle: PlacementCycle) -> Amounts | None:
        """What has to be free of each resource; None when a device class may provide some of it."""
        requests = cycle.pod.shape.requests.requests
        if delegated(cycle.cluster, requests):
            return None
        return {PODS: 1} | {name: value for name, value in requests.items() if value and not self._is_ignored(name)}

    def lacking(self, resources: Iterable[str], *, is_final: bool) -> PluginStatus:
        """The rejection for want of some resources."""
        reasons = [_TOO_MANY_PODS if resource == PODS else f"Insufficient {resource}" for resource in resources]
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if is_final else Code.UNSCHEDULABLE
        return PluginStatus(code, tuple(sorted(reasons)))

    def score_key(self, shape: PodShape) -> Hashable:
        """The requests that count."""
        return wanted_of(self._resources, shape.scored_requests)

    def pre_score(self, cycle: PlacementCycle, rows: Rows) -> PreScored:  # noqa: ARG002 - the score reads the shape
        """Never skipped."""
        return PreScored()

    def score(self, cycle: PlacementCycle, node: NodeInfo) -> int:
        """How well the node fits, by the strategy."""
        wanted = wanted_of(self._resources, cycle.pod.shape.scored_requests)
        return self._strategy.score(shares_of(node, self._resources, wanted, nonzero=True))

    def score_columns(self, cycle: PlacementCycle, columns: Columns, rows: Rows) -> Ints:
        """The same for many nodes."""
        wanted = wanted_of(self._resources, cycle.pod.shape.scored_requests)
        shares = shares_of_rows(columns, rows, self._resources, wanted, nonzero=True)
        return self._strategy.score_rows(shares, len(rows))

    def events(self) -> tuple[EventHint, ...]:
        """A pod is gone or requests less, a node is added or has more, a device class provides a resource."""
        return (
            EventHint(EventResource.POD, ActionType.DELETE | ActionType.UPDATE_POD_SCALE_DOWN, _after_pod_event),
            EventHint(
                EventResource.NODE,
                ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE,
                _after_node_change,
                key=self.filter_key,
            ),
            EventHint(EventResource.DEVICE_CLASS, ActionType.ADD | UPDATE, _after_device_class, key=self.filter_key),
        )

    def _is_ignored(self, resource: str) -> bool:
        if not self._ignored and not self._ignored_groups:
            return False
        is_named = resource in self._ignored or resource.split("/")[0] in self._ignored_groups
        return is_named and is_extended(resource)


def _ids_of(cycle: PlacementCycle, lacks: Ints, reasons: list[str]) -> Ints:
    """Ids of statuses: per bit of a number a reason, and behind them one for what preemption cannot help."""
    if not lacks.any():
        return lacks
    distinct, places = np.unique(lacks, return_inverse=True)
    ids = []
    for lack in distinct.tolist():
        found = tuple(sorted(reason for bit, reason in enumerate(reasons) if lack >> bit & 1))
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if lack >> len(reasons) & 1 else Code.UNSCHEDULABLE
        ids.append(cycle.statuses.id_of(PluginStatus(code, found)) if found else 0)
    return np.array(ids, dtype=np.int64)[places]


# --- hints ---------------------------------------------------------------------------------------------------------


def _after_pod_event(pod: PodInfo, old: PodInfo, new: PodInfo | None, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    if new is None:
        return Hint.QUEUE if old.node_name or old.nominated_node_name else Hint.SKIP
    if new.uid == pod.uid:
        return Hint.QUEUE
    if not new.node_name:
        return Hint.SKIP
    before, after = old.requests.requests, new.requests.requests
    freed = (name for name, value in pod.shape.requests.requests.items() if value)
    return Hint.QUEUE if any(before.get(name, 0) > after.get(name, 0) for name in freed) else Hint.SKIP


def _after_node_change(pod: PodInfo, old: NodeObject | None, new: NodeObject, cluster: PlacementCluster) -> Hint:
    requests = pod.shape.requests.requests
    wanted = {name: value for name, value in requests.items() if value}
    after = allocatable_of(new)
    left_out = [name for name in delegated(cluster, requests) if not after.get(name, 0)]
    too_large = [name for name, value in wanted.items() if value > after.get(name, 0) and name not in left_out]
    if too_large or after.get(PODS, 0) < 1:
        return Hint.SKIP
    if old is None:
        return Hint.QUEUE
    before = allocatable_of(old)
    grown = any(after.get(name, 0) > before.get(name, 0) for name in (PODS, *wanted))
    return Hint.QUEUE if grown or any(name in wanted for name in left_out) else Hint.SKIP


def _after_device_class(pod: PodInfo, old: DeviceClass | None, new: DeviceClass, cluster: PlacementCluster) -> Hint:  # noqa: ARG001
    explicit, implicit = provided_names(new)
    requests = pod.shape.requests.requests
    if old is not None:
        is_same = (old.spec.extended_resource_name or "") == (explicit or "")
        return Hint.SKIP if is_same or explicit not in requests else Hint.QUEUE
    return Hint.QUEUE if implicit in requests or explicit in requests else Hint.SKIP


# --- making it -----------------------------------------------------------------------------------------------------


def _strategy_of(strategy: ScoringStrategy) -> ShareStrategy:
    match strategy.type:
        case "MostAllocated":
            return MostAllocated()
        case "RequestedToCapacityRatio" if strategy.requested_to_capacity_ratio is not None:
            return RequestedToCapacityRatio(strategy.requested_to_capacity_ratio.shape)
        case _:
            return LeastAllocated()


def _defaulted(arguments: NodeResourcesFitArgs) -> NodeResourcesFitArgs:
    strategy = arguments.scoring_strategy
    resources = weighted(strategy.resources)
    return msgspec.structs.replace(arguments, scoring_strategy=msgspec.structs.replace(strategy, resources=resources))


def _check(arguments: NodeResourcesFitArgs, path: str) -> None:
    for field, names in (
        ("ignoredResources", arguments.ignored_resources),
        ("ignoredResourceGroups", arguments.ignored_resource_groups),
    ):
        for index, name in enumerate(names):
            problem = why_no_label_key(name) or ("it has a '/'" if "/" in name and field.endswith("Groups") else "")
            if problem:
                raise ConfigurationError(f"{path}.{field}[{index}]", problem, "write a name like example.com")
    _check_strategy(arguments.scoring_strategy, f"{path}.scoringStrategy")


def _check_strategy(strategy: ScoringStrategy, path: str) -> None:
    types = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
    if strategy.type not in types:
        raise ConfigurationError(f"{path}.type", f"{strategy.type!r} is not supported", f"write {' or '.join(types)}")
    for index, resource in enumerate(strategy.resources):
        if not 0 < resource.weight <= 100:
            at = f"{path}.resources[{index}].weight"
            raise ConfigurationError(at, f"{resource.weight} cannot be", "write a number from 1 to 100")
    ratio, at = strategy.requested_to_capacity_ratio, f"{path}.requestedToCapacityRatio"
    if strategy.type != "RequestedToCapacityRatio":
        if ratio is not None:
            raise ConfigurationError(at, f"it does not go with {strategy.type}", "remove it")
    elif ratio is None or not ratio.shape:
        raise ConfigurationError(at if ratio is None else f"{at}.shape", "it is missing", "write at least one point")
    else:
        check_shape(ratio.shape, f"{at}.shape")


def check_shape(shape: tuple[ShapePoint, ...], path: str) -> None:
    """Raise ConfigurationError unless the points of a shape are in range and in order."""
    for index, point in enumerate(shape):
        at = f"{path}[{index}]"
        if index and shape[index - 1].utilization >= point.utilization:
            raise ConfigurationError(f"{at}.utilization", "the points are not in increasing order", "sort them")
        if not 0 <= point.utilization <= UTILIZATION_MAX:
            remedy = f"write a number from 0 to {UTILIZATION_MAX}"
            raise ConfigurationError(f"{at}.utilization", f"{point.utilization} cannot be", remedy)
        if not 0 <= point.score <= CUSTOM_SCORE_MAX:
            remedy = f"write a number from 0 to {CUSTOM_SCORE_MAX}"
            raise ConfigurationError(f"{at}.score", f"{point.score} cannot be", remedy)


FACTORY: Final = PluginFactory(
    NAME, NodeResourcesFit, arguments=NodeResourcesFitArgs, defaulted=_defaulted, check=_check
)
