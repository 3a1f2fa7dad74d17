"""Counts that follow the changes of a tree are those of the changed tree."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.topology.assignments import HOSTNAME
from headgate.core.topology.counts import CountedTree, Requests, Shape, ShapeCounts
from headgate.core.topology.filters import Fitness, fitness_of
from headgate.core.topology.tree import FlavorTopology
from headgate.events.objects import Node, PodSpec

LEVELS = ("block", "rack", "switch", HOSTNAME)
SELECTIVE = fitness_of(PodSpec(node_selector={"rack": "r0"}), by_preference=False)

places = st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 1), st.integers(0, 2))
requests: st.SearchStrategy[Requests] = st.tuples(
    st.tuples(st.just("cpu"), st.integers(0, 3)), st.tuples(st.just("pods"), st.just(1))
)
operations = st.one_of(
    st.tuples(st.just("use"), places, st.integers(0, 9)),
    st.tuples(st.just("reserve"), places, st.integers(0, 9)),
    st.tuples(st.just("resize"), places, st.integers(0, 20)),
    st.tuples(st.just("lose"), places, st.just(0)),
)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Shape, Fitness]:
    """A shape with or without a leader, with slices at any level, and slices within them."""
    level = draw(st.integers(0, 3))
    inner = [0] * len(LEVELS)
    if draw(st.booleans()) and level < 3:
        inner[level + 1 : draw(st.integers(level + 1, 3)) + 1] = [2] * (3 - level)
    fitness = draw(st.sampled_from([Fitness(), SELECTIVE]))
    shape = Shape(
        requests=draw(requests),
        leader=draw(st.none() | requests),
        slice_size=draw(st.sampled_from([1, 2, 4])),
        slice_level=level,
        inner=tuple(inner[: len(LEVELS)]),
        fitness=fitness.key,
        empty=draw(st.booleans()),
    )
    return shape, fitness


def node_of(place: tuple[int, int, int, int], cpu: int) -> Node:
    """A node there."""
    block, rack, switch, host = place
    labels = {"block": f"b{block}", "rack": f"r{rack}", "switch": f"s{switch}", HOSTNAME: host_of(place)}
    return Node(name=f"{block}{rack}{switch}{host}", labels=labels, allocatable={"cpu": f"{cpu}m", "pods": 7})


def host_of(place: tuple[int, int, int, int]) -> str:
    """The hostname of the node there."""
    return "h" + "".join(map(str, place))


def content(counts: ShapeCounts) -> Any:
    """All arrays, by name."""
    names = ("pods", "slices", "beside_leader", "slices_beside_leader", "leaders")
    return {name: [level.tolist() for level in getattr(counts, name)] for name in names}


@settings(deadline=None, max_examples=200)
@given(st.lists(places, unique=True, min_size=1, max_size=12), shapes(), st.lists(operations, max_size=12))
def test_counts_follow_changes_of_the_tree(
    given: list[tuple[int, int, int, int]],
    shape: tuple[Shape, Fitness],
    changes: list[tuple[str, tuple[int, int, int, int], int]],
) -> None:
    """After each change, of usage, of a node, or a node that goes, they are those of a tree counted anew."""
    tree = FlavorTopology("tas", "default", LEVELS, {})
    for place in given:
        node = node_of(place, 9)
        tree.set_node(node.name, node, lambda _: {})
    followed = CountedTree(tree)
    followed.counts(*shape)
    for what, place, value in changes:
        node, leaf = node_of(place, value), tree.leaf((host_of(place),))
        if what == "resize":
            tree.set_node(node.name, node, lambda _: {})
        elif what == "lose":
            tree.set_node(node.name, None, lambda _: {})
        elif leaf is not None:
            (tree.use if what == "use" else tree.reserve)(leaf, [("cpu", value), ("pods", 1)], 1)
        assert content(followed.counts(*shape)) == content(CountedTree(tree).counts(*shape))


@given(st.lists(st.text("ab.-", min_size=1, max_size=4), unique=True, max_size=60), st.randoms(use_true_random=False))
def test_domains_are_ordered_by_their_values(hosts: list[str], random: Any) -> None:
    """In whatever order they come, and however many come between the same two."""
    tree = FlavorTopology("tas", "default", (HOSTNAME,), {})
    random.shuffle(hosts)
    for host in (*hosts, *(f"m{number:03}" for number in range(80))):
        tree.set_node(host, Node(name=host, labels={HOSTNAME: host}), lambda _: {})
    by_order = np.argsort(tree.leaves.order[: tree.slots]).tolist()
    assert [tree.leaves.values[slot] for slot in by_order] == sorted(tree.leaves.values)
