"""
The topology of a flavor as data: its tree of domains with what each has, who uses it, and what is free.

`headgate topology` and the read side print it; `headgate.core.views.topology_picture` draws it. Derived from a State
alone, so it works at any position of the log. The tree is the one that the scheduler places pods in: nodes that are
ready and schedulable, with all labels of the flavor and of the levels (`headgate.core.topology`).
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from headgate.core.config import feature_gates
from headgate.core.fold.nodes import PODS, levels_of
from headgate.core.kubernetes.quantities import amount
from headgate.core.state.tables import State, Values
from headgate.core.topology.assignments import HOSTNAME
from headgate.core.topology.levels import carries_labels
from headgate.events.ids import UnixMs, WorkloadKey
from headgate.events.objects import Node, ResourceFlavorSpec


class NoTopologyError(LookupError):
    """Raised when there is no such tree, or not with that resource or level; the message says what there is."""


class DomainUse(NamedTuple):
    """
    DomainAmounts of one resource in base units.

    `used` is what workloads with a topology assignment occupy, `other` what all other pods do. `free` is negative where
    a node has shrunk below what is used of it.
    """

    capacity: int = 0
    used: int = 0
    other: int = 0

    @property
    def free(self) -> int:
        """What is left for workloads with a topology assignment."""
        return self.capacity - self.used - self.other

    @property
    def occupied(self) -> float:
        """The occupied part of the capacity, from 0 to 1."""
        if self.capacity <= 0:
            return 1.0 if self.used + self.other > 0 else 0.0
        return min(1.0, max(0.0, (self.used + self.other) / self.capacity))


class DomainView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    One domain: its value of the node label `level`, its ready and schedulable nodes, and its amounts by resource.

    `domains` are those of the next level, in the order of their values. Those of the lowest level have `workloads`
    instead: how many pods of each workload are assigned to it.
    """

    value: str
    level: str
    nodes: int
    resources: dict[str, DomainUse]
    workloads: dict[WorkloadKey, int] = {}
    domains: tuple["DomainView", ...] = ()


class NodeLeftOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A node of the flavor that is not in the tree, and why; or a domain of the lowest level without any node.

    `values` is where it would be, if it has a label of each level. `workloads` are still assigned to it.
    """

    name: str
    why: str
    values: Values = ()
    workloads: dict[WorkloadKey, int] = {}


class TopologyView(msgspec.Struct, frozen=True, kw_only=True):
    """
    The tree of one flavor at a position.

    `levels` are node labels, widest first. `resource` is the one to show: the requested one, or the one that workloads
    with a topology assignment use the largest part of. `nodes` and `resources` are of the whole tree.
    """

    position: int
    now_ms: UnixMs
    flavor: str
    topology: str
    levels: tuple[str, ...]
    resource: str
    nodes: int
    resources: dict[str, DomainUse]
    domains: tuple[DomainView, ...]
    left_out: tuple[NodeLeftOut, ...] = ()


# --- computing -----------------------------------------------------------------------------------------------------


def flavors_with_topology(state: State) -> list[str]:
    """The names of the flavors that name a topology, sorted."""
    return sorted(name for name, record in state.flavors.items() if record.spec.topology_name is not None)


def topology_view(state: State, flavor: str, resource: str | None = None) -> TopologyView:
    """
    The tree of a flavor. With a `resource` only that one.

    Costs a pass over the nodes and the workloads with a topology assignment.

    Raises NoTopologyError.
    """
    spec, levels = _spec_of(state, flavor)
    leaves, left_out = _leaves(state, spec, levels)
    _charge(state, flavor, levels, leaves, left_out)
    resources = _resources(leaves.values())
    if resource is not None:
        if resource not in resources:
            raise NoTopologyError(
                f"no node of ResourceFlavor {flavor!r} has the resource {resource!r}; "
                f"there is {', '.join(resources) or 'none'}"
            )
        resources = (resource,)
    domains = _domains([leaves[key] for key in sorted(leaves, key=lambda key: leaves[key].path)], levels, resources)
    totals = _totals(domains, resources)
    return TopologyView(
        position=state.position,
        now_ms=state.now_ms,
        flavor=flavor,
        topology=spec.topology_name or "",
        levels=levels,
        resource=resource or _most_used(totals),
        nodes=sum(each.nodes for each in domains),
        resources=totals,
        domains=domains,
        left_out=tuple(left_out[name] for name in sorted(left_out)),
    )


def _spec_of(state: State, flavor: str) -> tuple[ResourceFlavorSpec, tuple[str, ...]]:
    record = state.flavors.get(flavor)
    known = ", ".join(flavors_with_topology(state)) or "none"
    if record is None:
        raise NoTopologyError(
            f"there is no ResourceFlavor {flavor!r} at position {state.position}; with a topology there is {known}"
        )
    if record.spec.topology_name is None:
        raise NoTopologyError(
            f"ResourceFlavor {flavor!r} has no topology: set its spec.topologyName; with a topology there is {known}"
        )
    levels = levels_of(state, record.spec)
    if not levels:
        raise NoTopologyError(
            f"ResourceFlavor {flavor!r} names the Topology {record.spec.topology_name!r}, which does not exist at "
            f"position {state.position}: create it, or correct spec.topologyName"
        )
    return record.spec, levels


class _Leaf:
    """A domain of the lowest level, being summed up."""

    def __init__(self, path: Values) -> None:
        self.path = path
        self.nodes = 0
        self.capacity: dict[str, int] = {}
        self.used: dict[str, int] = {}
        self.other: dict[str, int] = {}
        self.workloads: dict[WorkloadKey, int] = {}


_CORDONED: Final = "it is cordoned (spec.unschedulable)"
_NOT_READY: Final = "it is not Ready"
_NO_NODE: Final = "no ready, schedulable node is there"


def _leaves(
    state: State, flavor: ResourceFlavorSpec, levels: tuple[str, ...]
) -> tuple[dict[Values, _Leaf], dict[str, NodeLeftOut]]:
    leaves: dict[Values, _Leaf] = {}
    left_out: dict[str, NodeLeftOut] = {}
    for name in sorted(state.nodes):
        node = state.nodes[name]
        if not carries_labels(node, flavor.node_labels, ()):
            continue
        why = _why_left_out(node, levels)
        path = tuple(node.labels[level] for level in levels if level in node.labels)
        if why:
            left_out[name] = NodeLeftOut(name=name, why=why, values=path if len(path) == len(levels) else ())
            continue
        leaf = leaves.setdefault(_key(path, levels), _Leaf(path))
        leaf.nodes += 1
        _add(leaf.capacity, ((resource, amount(resource, value)) for resource, value in node.allocatable.items()))
        _add(leaf.other, state.index.taken.get(name, {}).items())
    return leaves, left_out


def _why_left_out(node: Node, levels: tuple[str, ...]) -> str:
    missing = [level for level in levels if level not in node.labels]
    if missing:
        return f"it has no label {', '.join(missing)}"
    if not node.ready:
        return _NOT_READY
    return _CORDONED if node.unschedulable else ""


def _key(path: Values, levels: tuple[str, ...]) -> Values:
    """The values by which assignments name a domain of the lowest level: hosts by their name alone."""
    return path[-1:] if levels[-1] == HOSTNAME else path


def _charge(
    state: State,
    flavor: str,
    levels: tuple[str, ...],
    leaves: dict[Values, _Leaf],
    left_out: dict[str, NodeLeftOut],
) -> None:
    """What the workloads with a topology assignment occupy, in the tree and outside of it."""
    counted = {flavor}
    if levels[-1] == HOSTNAME and feature_gates.enabled(state.configuration, feature_gates.TAS_OVERLAPPING_FLAVORS):
        counted |= {name for name in flavors_with_topology(state) if _is_by_host(state, name)}
    where = {_key(each.values, levels): name for name, each in left_out.items() if each.values}
    of = state.index.topology_usage_of
    for workload, usage in ((key, usage) for key in sorted(of) for usage in of[key]):
        if usage.flavor not in counted:
            continue
        leaf = leaves.get(usage.values)
        if leaf is not None:
            leaf.workloads[workload] = leaf.workloads.get(workload, 0) + usage.pods
            _add(leaf.used, ((resource, value * usage.pods) for resource, value in usage.requests))
            _add(leaf.used, ((PODS, usage.pods),))
        elif usage.flavor == flavor:
            name = where.setdefault(usage.values, "/".join(usage.values))
            known = left_out.get(name) or NodeLeftOut(name=name, why=_NO_NODE)
            pods = known.workloads | {workload: known.workloads.get(workload, 0) + usage.pods}
            left_out[name] = msgspec.structs.replace(known, workloads=pods)


def _is_by_host(state: State, flavor: str) -> bool:
    levels = levels_of(state, state.flavors[flavor].spec)
    return levels is not None and levels[-1:] == (HOSTNAME,)


def _add(amounts: dict[str, int], more: Iterable[tuple[str, int]]) -> None:
    for resource, value in more:
        amounts[resource] = amounts.get(resource, 0) + value


def _resources(leaves: Iterable[_Leaf]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for leaf in leaves:
        found |= dict.fromkeys(leaf.capacity) | dict.fromkeys(leaf.used)
    return tuple(sorted(found))


def _domains(
    leaves: list[_Leaf], levels: tuple[str, ...], resources: tuple[str, ...], depth: int = 0
) -> tuple[DomainView, ...]:
    """The domains of one level, of leaves that are sorted and equal above it."""
    if depth == len(levels) - 1:
        return tuple(_lowest(leaf, levels[depth], resources) for leaf in leaves)
    groups: dict[str, list[_Leaf]] = {}
    for leaf in leaves:
        groups.setdefault(leaf.path[depth], []).append(leaf)
    return tuple(
        _inner(value, levels[depth], _domains(members, levels, resources, depth + 1), resources)
        for value, members in groups.items()
    )


def _lowest(leaf: _Leaf, level: str, resources: tuple[str, ...]) -> DomainView:
    shares = {
        resource: DomainUse(leaf.capacity.get(resource, 0), leaf.used.get(resource, 0), leaf.other.get(resource, 0))
        for resource in resources
    }
    return DomainView(value=leaf.path[-1], level=level, nodes=leaf.nodes, resources=shares, workloads=leaf.workloads)


def _inner(value: str, level: str, domains: tuple[DomainView, ...], resources: tuple[str, ...]) -> DomainView:
    nodes = sum(each.nodes for each in domains)
    return DomainView(value=value, level=level, nodes=nodes, resources=_totals(domains, resources), domains=domains)


def _totals(domains: tuple[DomainView, ...], resources: tuple[str, ...]) -> dict[str, DomainUse]:
    totals = {}
    for resource in resources:
        shares = [each.resources[resource] for each in domains]
        totals[resource] = DomainUse(*(sum(column) for column in zip(*shares, strict=True))) if shares else DomainUse()
    return totals


def _most_used(totals: dict[str, DomainUse]) -> str:
    """The resource that topology-aware workloads use the largest part of; then that which others do; then by name."""

    def part(used: int, share: DomainUse) -> float:
        return used / share.capacity if share.capacity > 0 else 0.0

    ranked = sorted(totals.items(), key=lambda item: (-part(item[1].used, item[1]), -part(item[1].other, item[1])))
    return ranked[0][0] if ranked else ""


def lowest_domains(domains: Iterable[DomainView]) -> Iterator[DomainView]:
    """The domains of the lowest level below some domains, in their order."""
    for each in domains:
        if each.domains:
            yield from lowest_domains(each.domains)
        else:
            yield each
