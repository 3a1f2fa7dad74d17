"""Laws of placement, on drawn trees and gangs."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.topology.assignments import HOSTNAME
from headgate.core.topology.counts import CountedTree
from headgate.core.topology.demands import Gates, Placements, PodSetDemand, usage_of_all
from headgate.core.topology.placing import can_place, find_assignments
from headgate.core.topology.tree import FlavorTopology
from headgate.core.topology.what_if import WhatIf
from headgate.events.objects import Node, PodSpec, SliceConstraint, Taint, Toleration, TopologyRequest

LEVELS = ("block", "rack", HOSTNAME)
FLAVOR = "tas"

Sizes = dict[str, tuple[int, int, int, int]]
"""By host: its block, its rack, and what it has of cpu and of pods."""

sizes = st.dictionaries(
    st.sampled_from([f"h{number}" for number in range(12)]),
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 8), st.integers(0, 6)),
    min_size=1,
    max_size=10,
)


@st.composite
def requests(draw: st.DrawFn) -> TopologyRequest | None:
    """A topology request of any kind; None for an implied one."""
    level = draw(st.sampled_from(LEVELS))
    kind = draw(st.sampled_from(["required", "preferred", "unconstrained", "implied", "sliced"]))
    slices: dict[str, Any] = {}
    if kind in {"required", "preferred", "sliced"} and draw(st.booleans()):
        slices = {
            "pod_set_slice_required_topology": draw(st.sampled_from(LEVELS[LEVELS.index(level) :])),
            "pod_set_slice_size": draw(st.integers(1, 3)),
        }
    elif kind == "sliced":
        layers = (SliceConstraint(topology="rack", size=4), SliceConstraint(topology=HOSTNAME, size=2))
        slices = {"podset_slice_required_topology_constraints": layers}
    match kind:
        case "required":
            return TopologyRequest(required=level, **slices)
        case "preferred":
            return TopologyRequest(preferred=level, **slices)
        case "unconstrained":
            return TopologyRequest(unconstrained=True)
        case "sliced":
            return TopologyRequest(**slices)
    return None


@st.composite
def gangs(draw: st.DrawFn) -> list[PodSetDemand]:
    """The pod sets of a workload: up to two gangs, each with a leader or without."""
    demands: list[PodSetDemand] = []
    for number in range(draw(st.integers(1, 2))):
        request = draw(requests())
        group = f"group-{number}" if draw(st.integers(0, 3)) == 0 else None
        for name, count in (("leader", 1), ("workers", draw(st.integers(1, 8)))) if group else (("main", 4),):
            demands.append(
                PodSetDemand(
                    name=f"{name}-{number}",
                    flavor=FLAVOR,
                    requests={"cpu": draw(st.integers(0, 3))},
                    count=count if group else draw(st.integers(1, 12)),
                    topology=request,
                    implied=request is None,
                    group=group,
                    spec=PodSpec(tolerations=(Toleration(operator="Exists"),) if draw(st.booleans()) else ()),
                )
            )
    return demands


gates = st.builds(Gates, profile_mixed=st.booleans(), balanced=st.booleans())


def node_of(name: str, block: int, rack: int, cpu: int, pods: int) -> Node:
    """A node; those with an odd number of cpus are tainted."""
    labels = {"block": f"b{block}", "rack": f"r{rack}", HOSTNAME: name}
    taints = (Taint(key="odd", effect="NoSchedule"),) if cpu % 2 else ()
    return Node(name=name, labels=labels, taints=taints, allocatable={"cpu": f"{cpu}m", "pods": pods})


def tree_of(given: Sizes) -> FlavorTopology:
    """The tree of these hosts."""
    tree = FlavorTopology(FLAVOR, "default", LEVELS, {})
    for name, size in given.items():
        tree.set_node(name, node_of(name, *size), lambda _: {})
    return tree


def what_if_of(tree: FlavorTopology) -> WhatIf:
    """A tree, to place in."""
    counted = CountedTree(tree)
    return WhatIf({FLAVOR: counted}.get, (FLAVOR,), overlapping=True)


def free_of(tree: FlavorTopology) -> dict[tuple[str, ...], dict[str, int]]:
    """What is free, by leaf."""
    return {tree.known_as(leaf): tree.free(leaf) for leaf in tree.leaves.alive().tolist()}


def placed_all(result: Placements, demands: list[PodSetDemand]) -> bool:
    """Whether every pod set got its place."""
    return not result.failures and result.placements.keys() == {demand.name for demand in demands}


@settings(deadline=None, max_examples=120)
@given(sizes, gangs(), gates)
def test_no_leaf_gets_more_than_is_free(given: Sizes, demands: list[PodSetDemand], gates: Gates) -> None:
    """After all placed pods are added, no leaf is below what it was, or below nothing."""
    what_if = what_if_of(tree := tree_of(given))
    result = find_assignments(what_if, demands, gates)
    what_if.add(usage_of_all(demands, result))
    assert all(amount >= 0 for free in free_of(tree).values() for amount in free.values())


@settings(deadline=None, max_examples=120)
@given(sizes, gangs(), gates)
def test_a_placed_pod_set_is_placed_whole(given: Sizes, demands: list[PodSetDemand], gates: Gates) -> None:
    """Every whole slice has a place, a required pod set is in one domain of its level, and leaders are with workers."""
    tree = tree_of(given)
    result = find_assignments(what_if_of(tree), demands, gates)
    for demand in demands:
        placement = result.placements.get(demand.name)
        if placement is None:
            continue
        request = demand.topology
        layers = request.podset_slice_required_topology_constraints if request else ()
        size = layers[0].size if layers else (request.pod_set_slice_size or 1) if request else 1
        if not demand.group:
            assert placement.pods == demand.count // size * size
        if request is None or request.required is None:
            continue
        level = LEVELS.index(request.required)
        group = [each for each in demands if each.group == demand.group or each is demand] if demand.group else [demand]
        leaves = [tree.leaf(domain.values) for each in group for domain in result.placements[each.name].domains]
        assert len({tree.ancestor(leaf, level) for leaf in leaves if leaf is not None}) <= 1


@settings(deadline=None, max_examples=120)
@given(sizes, gangs(), gates)
def test_placing_changes_nothing_and_usage_returns_to_zero(
    given: Sizes, demands: list[PodSetDemand], gates: Gates
) -> None:
    """A search leaves no trace, and what is added and removed again neither; the next search has the same result."""
    what_if = what_if_of(tree := tree_of(given))
    before = free_of(tree)
    result = find_assignments(what_if, demands, gates)
    assert free_of(tree) == before
    usages = usage_of_all(demands, result)
    at = what_if.mark()
    what_if.add(usages)
    what_if.remove(usages)
    assert free_of(tree) == before
    what_if.undo(at)
    assert free_of(tree) == before
    assert find_assignments(what_if, demands, gates) == result
    assert find_assignments(what_if, demands, gates, empty=True) == result


@settings(deadline=None, max_examples=120)
@given(sizes, gangs(), gates, st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 8), st.integers(0, 6)))
def test_one_more_node_never_makes_a_fitting_gang_stop_fitting(
    given: Sizes, demands: list[PodSetDemand], gates: Gates, more: tuple[int, int, int, int]
) -> None:
    """The first gang that fits still fits when a node is added."""
    first = [demand for demand in demands if demand.name.endswith("-0")]
    what_if = what_if_of(tree := tree_of(given))
    if not placed_all(find_assignments(what_if, first, gates), first):
        return
    tree.set_node("one-more", node_of("one-more", *more), lambda _: {})
    assert placed_all(find_assignments(what_if, first, gates), first)


@settings(deadline=None, max_examples=120)
@given(sizes, gangs(), gates)
def test_names_of_nodes_decide_only_between_equals(given: Sizes, demands: list[PodSetDemand], gates: Gates) -> None:
    """With the order of all names reversed the same pod sets fit; each gets domains of the same sizes."""
    reverse = {name: f"h{99 - int(name[1:])}" for name in given}
    renamed = {reverse[name]: size for name, size in given.items()}
    first = [demand for demand in demands if demand.name.endswith("-0")]
    one = find_assignments(what_if_of(tree_of(given)), first, gates)
    other = find_assignments(what_if_of(tree_of(renamed)), first, gates)
    assert one.failures == other.failures
    if not any(demand.group for demand in first):
        for name, placement in one.placements.items():
            sizes = sorted(domain.pods for domain in placement.domains)
            assert sizes == sorted(domain.pods for domain in other.placements[name].domains)


@settings(deadline=None, max_examples=120)
@given(sizes, gangs(), gates)
def test_the_quick_test_agrees_with_the_search(given: Sizes, demands: list[PodSetDemand], gates: Gates) -> None:
    """`can_place` is true exactly when every pod set is placed."""
    what_if = what_if_of(tree_of(given))
    fits = not find_assignments(what_if, demands, gates).failures
    assert can_place(what_if, demands, gates) == fits
