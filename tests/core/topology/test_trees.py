"""Trees that follow events are what trees built from the result are; odd nodes and requests break nothing."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from headgate.core.config import feature_gates
from headgate.core.state.tables import DomainUsage, FlavorRecord, State
from headgate.core.topology.assignments import HOSTNAME
from headgate.core.topology.cache import TopologyCache
from headgate.core.topology.counts import CountedTree
from headgate.core.topology.demands import Gates, PodSetDemand, usage_of_all
from headgate.core.topology.placing import find_assignments
from headgate.core.topology.tree import FlavorTopology
from headgate.core.topology.what_if import WhatIf
from headgate.events import facts
from headgate.events.configuration import Configuration
from headgate.events.objects import (
    Node,
    PodSpec,
    ResourceFlavorSpec,
    Taint,
    TopologyLevel,
    TopologyRequest,
    TopologySpec,
)

LEVELS = ("rack", HOSTNAME)
LONG = "a" * 31 + "." + "b" * 31
"""As long as a label value may be."""

names = st.sampled_from(["n1", "n2", "n3", "n4"])
values = st.sampled_from(["", "a", "b", "a-b", LONG])


@st.composite
def nodes(draw: st.DrawFn) -> Node | None:
    """A node of any state; None for none. Several may have the same hostname."""
    if draw(st.integers(0, 4)) == 0:
        return None
    labels = {label: draw(values) for label in ("rack", HOSTNAME) if draw(st.integers(0, 5))}
    return Node(
        name="",
        labels=labels,
        taints=(Taint(key="t", effect="NoSchedule"),) if draw(st.booleans()) else (),
        unschedulable=draw(st.integers(0, 5)) == 0,
        ready=draw(st.integers(0, 5)) > 0,
        allocatable={"cpu": draw(st.integers(0, 9)), "pods": draw(st.integers(0, 9))}
        if draw(st.booleans())
        else {"memory": draw(st.sampled_from(["1Gi", "8Ei", "1e30"]))},
    )


_SPECS = tuple(
    TopologySpec(levels=tuple(TopologyLevel(node_label=level) for level in levels)) for levels in (LEVELS, LEVELS[:1])
)
amounts = st.dictionaries(st.sampled_from(["cpu", "pods", "memory", "gpu"]), st.integers(1, 20), max_size=2)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("node"), names, nodes()),
        st.tuples(st.just("taken"), names, amounts),
        st.tuples(st.just("used"), st.sampled_from(["one", "two", "three"]), st.tuples(values, values, amounts)),
        st.tuples(st.just("look"), names, st.none()),
        st.tuples(
            st.just("flavor"),
            st.sampled_from(["one", "two", "three", "plain"]),
            st.sampled_from([None, ResourceFlavorSpec()])
            | st.builds(
                ResourceFlavorSpec,
                topology_name=st.sampled_from(["hosts", "racks", "missing"]),
                node_labels=st.sampled_from([{}, {"rack": "a"}]),
            ),
        ),
        st.tuples(st.just("topology"), st.sampled_from(["hosts", "racks"]), st.sampled_from([None, *_SPECS])),
        st.tuples(st.just("gate"), names, st.booleans()),
    ),
    max_size=25,
)

DEMANDS = (
    PodSetDemand(name="main", flavor="one", requests={"cpu": 1000}, count=3, topology=TopologyRequest(required="rack")),
    PodSetDemand(
        name="other",
        flavor="two",
        requests={"memory": 1},
        count=2,
        topology=TopologyRequest(unconstrained=True),
        spec=PodSpec(node_selector={"rack": "a"}),
    ),
)


def state_of() -> State:
    """Two flavors on hosts, and one on racks."""
    state = State()
    state.topologies = dict(zip(("hosts", "racks"), _SPECS, strict=True))
    for flavor, topology in (("one", "hosts"), ("two", "hosts"), ("three", "racks")):
        state.flavors[flavor] = FlavorRecord(spec=ResourceFlavorSpec(topology_name=topology))
    return state


def apply(state: State, cache: TopologyCache, kind: str, name: str, what: Any) -> None:
    """Change the state as the fold does, and pass the cache its event."""
    index = state.index
    match kind:
        case "node":
            if what is None:
                state.nodes.pop(name, None)
                cache.change(facts.NodeDeleted(name=name))
            else:
                state.nodes[name] = replace(what, name=name)
                cache.change(facts.NodeObserved(name=name, node=state.nodes[name]))
        case "taken":
            index.taken[name] = what
            index.taken_changes += 1
            index.taken_changed.pop(name, None)
            index.taken_changed[name] = index.taken_changes
        case "used":
            rack, host, used = what
            domain = (rack,) if name == "three" else (host,)
            index.topology_usage.setdefault(name, {})[domain] = used
            index.topology_changes += 1
            index.topology_changed.pop((name, domain), None)
            index.topology_changed[name, domain] = index.topology_changes
        case "flavor" if what is None:
            state.flavors.pop(name, None)
            cache.change(facts.ResourceFlavorDeleted(name=name))
        case "flavor":
            state.flavors[name] = FlavorRecord(spec=what)
            cache.change(facts.ResourceFlavorObserved(name=name, spec=what))
        case "topology" if what is None:
            state.topologies.pop(name, None)
            cache.change(facts.TopologyDeleted(name=name))
        case "topology":
            state.topologies[name] = what
            cache.change(facts.TopologyObserved(name=name, spec=what))
        case "gate":
            state.configuration = Configuration(feature_gates={feature_gates.TAS_OVERLAPPING_FLAVORS: what})
            cache.change(facts.ConfigurationObserved(configuration=state.configuration))
        case _:
            what_if = cache.what_if()
            # A search, and changes that nobody undoes, leave nothing behind.
            demands = demands_in(cache)
            result = find_assignments(what_if, demands, Gates())
            what_if.add(usage_of_all(demands, result))
            what_if.remove([DomainUsage("three", ("a",), (("cpu", 1),), 2)])


def demands_in(cache: TopologyCache) -> list[PodSetDemand]:
    """What is asked of the flavors that have a tree."""
    return [each for each in DEMANDS if cache.flavor(each.flavor) is not None]


def content(tree: FlavorTopology | None) -> Any:
    """What a tree has: by path of each leaf, its node, its number of nodes, and what it has of each resource."""
    if tree is None:
        return None
    leaves = tree.leaves
    found = {}
    for leaf in leaves.alive().tolist():
        node = tree.first_node[leaf]
        free = {name: value for name, value in tree.free(leaf).items() if value}
        found[leaves.values[leaf]] = (node and node.name, leaves.nodes[leaf], free)
    return found


@settings(deadline=None, max_examples=200)
@given(steps)
def test_a_cache_that_follows_events_has_what_a_built_one_has(given: Sequence[tuple[str, str, Any]]) -> None:
    """Trees, results and messages, after any changes of nodes, pods, usage, flavors, topologies and the gate."""
    state = state_of()
    cache = TopologyCache(state)
    cache.what_if()
    for name in ("one", "two", "three"):
        cache.flavor(name)
    for kind, name, what in given:
        apply(state, cache, kind, name, what)
    built = TopologyCache(state)
    followed_if, built_if = cache.what_if(), built.what_if()
    for name in ("one", "two", "three"):
        assert content(cache.flavor(name)) == content(built.flavor(name))
    for empty in (False, True):
        one = find_assignments(followed_if, demands_in(cache), Gates(), empty=empty)
        assert one == find_assignments(built_if, demands_in(built), Gates(), empty=empty)


def test_a_tree_is_not_built_anew_for_what_does_not_concern_it() -> None:
    """Another flavor without a topology, a gate of something else; of its own kind only another set of host flavors."""
    state = state_of()
    gates = {feature_gates.TAS_OVERLAPPING_FLAVORS: True}
    state.configuration = Configuration(feature_gates=gates)
    cache = TopologyCache(state)
    cache.what_if()
    one, three = cache.flavor("one"), cache.flavor("three")
    apply(state, cache, "flavor", "plain", ResourceFlavorSpec())
    state.configuration = Configuration(feature_gates={**gates, feature_gates.ELASTIC_JOBS: True})
    cache.change(facts.ConfigurationObserved(configuration=state.configuration))
    apply(state, cache, "flavor", "three", ResourceFlavorSpec(topology_name="racks", node_labels={"rack": "a"}))
    assert cache.flavor("one") is one
    assert cache.flavor("three") is not three
    apply(state, cache, "flavor", "four", ResourceFlavorSpec(topology_name="hosts"))
    assert cache.flavor("one") is not one


@settings(deadline=None, max_examples=100)
@given(st.sampled_from([1, 16]), st.lists(st.tuples(values, st.integers(0, 3)), max_size=8), st.integers(0, 4))
def test_a_topology_may_have_one_level_or_sixteen(depth: int, hosts: list[tuple[str, int]], count: int) -> None:
    """Pods are placed, or a message says why not."""
    levels = tuple(f"level-{number}" for number in range(depth))
    tree = FlavorTopology("tas", "deep", levels, {})
    for number, (value, cpus) in enumerate(hosts):
        labels = {level: value if place > number else f"{value}{place}" for place, level in enumerate(levels)}
        node = Node(name=f"n{number}", labels=labels, allocatable={"cpu": cpus, "pods": 10})
        tree.set_node(node.name, node, lambda _: {})
    what_if = WhatIf({"tas": CountedTree(tree)}.get, (), overlapping=True)
    for request in (
        TopologyRequest(required=levels[0]),
        TopologyRequest(preferred=levels[-1]),
        TopologyRequest(pod_set_slice_required_topology=levels[0], pod_set_slice_size=2),
    ):
        demand = PodSetDemand(name="main", flavor="tas", requests={"cpu": 1000}, count=count, topology=request)
        for gates in (Gates(), Gates(balanced=True), Gates(profile_mixed=False)):
            result = find_assignments(what_if, [demand], gates)
            assert result.placements.keys() | result.failures.keys() == {"main"}


def test_a_host_below_its_usage_takes_no_pod() -> None:
    """What can be allocated may fall below what is used: that host counts as full, and others are as they were."""
    tree = FlavorTopology("tas", "default", LEVELS, {})
    for name, cpus in (("x", 4), ("y", 2)):
        node = Node(name=name, labels={"rack": "r", HOSTNAME: name}, allocatable={"cpu": cpus, "pods": 10})
        tree.set_node(name, node, lambda _: {})
    what_if = WhatIf({"tas": CountedTree(tree)}.get, ("tas",), overlapping=True)
    what_if.add([DomainUsage("tas", ("x",), (("cpu", 1000),), 4)])
    shrunk = Node(name="x", labels={"rack": "r", HOSTNAME: "x"}, allocatable={"cpu": 1, "pods": 10})
    tree.set_node("x", shrunk, lambda _: {})
    demand = PodSetDemand(
        name="main", flavor="tas", requests={"cpu": 1000}, count=2, topology=TopologyRequest(required="rack")
    )
    result = find_assignments(what_if, [demand], Gates())
    assert [tuple(domain) for domain in result.placements["main"].domains] == [(("y",), 2)]
    result = find_assignments(what_if, [replace(demand, count=3)], Gates())
    assert result.failures == {
        "main": 'topology "default" allows to fit only 2 out of 3 pod(s). Total nodes: 2; excluded: resource "cpu": 1'
    }
