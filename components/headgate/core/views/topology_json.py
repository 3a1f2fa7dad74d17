"""
Topologies for programs and lists: the tree of a flavor as JSON, and one row for each flavor with a topology.

DomainAmounts are Kubernetes quantities. Used by `headgate topology` and the read side.
"""

import msgspec

from headgate.core.kubernetes.quantities import canonical
from headgate.core.state.tables import State
from headgate.core.views.topology import (
    DomainUse,
    DomainView,
    NodeLeftOut,
    NoTopologyError,
    TopologyView,
    flavors_with_topology,
    topology_view,
)


class DomainAmounts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A `DomainUse` as Kubernetes quantities."""

    capacity: str
    topology_aware: str
    other: str
    free: str


class TopologySummary(msgspec.Struct, frozen=True, kw_only=True):
    """
    One flavor with a topology: how many domains each level has, and the amounts of its most used resource.

    `problem` says why there is no tree; the rest is empty then.
    """

    flavor: str
    topology: str
    levels: tuple[str, ...] = ()
    domains: tuple[int, ...] = ()
    nodes: int = 0
    resource: str = ""
    amounts: DomainAmounts | None = None
    problem: str = ""


def to_plain(view: TopologyView, *, names: bool = True) -> dict[str, object]:
    """A view for JSON: amounts as Kubernetes quantities. Without `names`, workloads are left out."""

    def amounts(shares: dict[str, DomainUse]) -> dict[str, DomainAmounts]:
        return {resource: _amounts(resource, share) for resource, share in shares.items()}

    def domain(each: DomainView) -> dict[str, object]:
        plain: dict[str, object] = {
            "value": each.value,
            "level": each.level,
            "nodes": each.nodes,
            "resources": amounts(each.resources),
        }
        if each.domains:
            plain["domains"] = [domain(child) for child in each.domains]
        elif names:
            plain["workloads"] = each.workloads
        return plain

    def left_out(each: NodeLeftOut) -> dict[str, object]:
        plain: dict[str, object] = {"name": each.name, "why": each.why, "values": each.values}
        return plain | {"workloads": each.workloads} if names else plain

    return {
        "position": view.position,
        "now_ms": view.now_ms,
        "flavor": view.flavor,
        "topology": view.topology,
        "levels": view.levels,
        "resource": view.resource,
        "nodes": view.nodes,
        "resources": amounts(view.resources),
        "domains": [domain(each) for each in view.domains],
        "left_out": [left_out(each) for each in view.left_out],
    }


def _amounts(resource: str, share: DomainUse) -> DomainAmounts:
    return DomainAmounts(
        capacity=canonical(resource, share.capacity),
        topology_aware=canonical(resource, share.used),
        other=canonical(resource, share.other),
        free=canonical(resource, share.free),
    )


def topology_summaries(state: State) -> tuple[TopologySummary, ...]:
    """All flavors with a topology, by name."""
    return tuple(_summary(state, flavor) for flavor in flavors_with_topology(state))


def _summary(state: State, flavor: str) -> TopologySummary:
    try:
        view = topology_view(state, flavor)
    except NoTopologyError as error:
        topology = state.flavors[flavor].spec.topology_name or ""
        return TopologySummary(flavor=flavor, topology=topology, problem=str(error))
    counts: list[int] = []
    domains = view.domains
    for _ in view.levels:
        counts.append(len(domains))
        domains = tuple(child for each in domains for child in each.domains)
    return TopologySummary(
        flavor=flavor,
        topology=view.topology,
        levels=view.levels,
        domains=tuple(counts),
        nodes=view.nodes,
        resource=view.resource,
        amounts=_amounts(view.resource, view.resources[view.resource]) if view.resource else None,
    )
