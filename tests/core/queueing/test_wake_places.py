"""Waking for places: what found no place in a flavor with a topology wakes for nodes, what waits for quota does not."""

from typing import Any

import pytest
from tests.support.cells import Cell, cluster_queue

from headgate.core.fold.nodes import place_in
from headgate.core.queueing.wake_conditions import Unused, came_true
from headgate.events import facts
from headgate.events.base import EventBase, Producer
from headgate.events.ids import PodKey, Uid, UnixMs
from headgate.events.objects import (
    Node,
    Pod,
    PodSpec,
    ResourceFlavorSpec,
    TopologyLevel,
    TopologySpec,
)
from headgate.events.queueing import QuotaFreed

TREE = "ClusterQueue/cq"
BRIDGE = Producer.INFORMER_BRIDGE
NEEDS = ({"tas/cpu": "1"},)
QUOTA = QuotaFreed(tree=TREE, flavor_resources=("tas/cpu",), needs=({"tas/cpu": "9"},))
PLACE = QuotaFreed(tree=TREE, flavor_resources=(place_in("tas"),), needs=NEEDS)
LABELS = {"pool": "a", "rack": "r", "kubernetes.io/hostname": "n"}


def node(name: str = "n", **more: Any) -> facts.NodeObserved:
    given = {"labels": LABELS, "allocatable": {"cpu": "4"}, **more}
    return facts.NodeObserved(name=name, node=Node(name=name, **given))


def use(pods: int) -> facts.NodeUsageObserved:
    return facts.NodeUsageObserved(node="n", requests={"cpu": str(pods)} if pods else {}, pods=pods)


def pod(where: str = "n", **more: Any) -> facts.PodObserved:
    return facts.PodObserved(
        pod=PodKey("team-a/p"), spec=Pod(uid="p", created_ms=UnixMs(0), spec=PodSpec(node_name=where), **more)
    )


@pytest.fixture
def cell() -> Cell:
    """A ClusterQueue of a flavor with a topology, and one node of it."""
    flavors = {"tas": ResourceFlavorSpec(topology_name="t", node_labels={"pool": "a"}), "plain": ResourceFlavorSpec()}
    levels = (TopologyLevel(node_label="rack"), TopologyLevel(node_label="kubernetes.io/hostname"))
    made = Cell(
        cluster_queue("cq", {"tas": {"cpu": 4}}),
        cluster_queue("other", {"plain": {"cpu": 4}}),
        facts.TopologyObserved(name="t", spec=TopologySpec(levels=levels)),
        flavors=flavors,
    )
    made.log.append(BRIDGE, node(), use(2), pod())
    return made


def wakes(cell: Cell, wake: QuotaFreed, *events: EventBase) -> bool:
    """Whether these facts wake one that waits since before them."""
    since = cell.state.position
    cell.log.append(BRIDGE, *events)
    return came_true((wake,), "cq", since, cell.state, cell.state.now_ms, Unused(cell.state)) is not None


@pytest.mark.parametrize(
    "event",
    [
        node("m"),
        node(allocatable={"cpu": "8"}),
        node(unschedulable=True),
        node(ready=False),
        node(labels={**LABELS, "rack": "s"}),
        node(labels={}),
        facts.NodeDeleted(name="n"),
        use(1),
        use(0),
        facts.PodDeleted(pod=PodKey("team-a/p"), uid=Uid("p")),
    ],
)
def test_a_place_wakes_what_waits_for_one_and_not_what_waits_for_quota(cell: Cell, event: EventBase) -> None:
    """A node of the flavor appears, changes or goes, or pods leave it."""
    assert wakes(cell, PLACE, event)
    assert not wakes(cell, QUOTA, event)


@pytest.mark.parametrize(
    "event",
    [
        node("m", labels={"pool": "b", "rack": "r", "kubernetes.io/hostname": "m"}),
        node("m", labels={"pool": "a", "kubernetes.io/hostname": "m"}),
        node(not_ready_since_ms=UnixMs(7)),
        use(3),
        use(2),
        pod("n", deleting=True),
    ],
)
def test_what_frees_no_capacity_of_the_flavor_wakes_nothing(cell: Cell, event: EventBase) -> None:
    """Nodes of other flavors, nodes that lack a level, more use, and what placement does not depend on."""
    assert not wakes(cell, PLACE, event)


def test_one_that_waits_for_anything_wakes_for_places_too(cell: Cell) -> None:
    """Its flavors were not all examined: it is not known what it lacks."""
    assert wakes(cell, QuotaFreed(tree=TREE), node("m"))


def test_a_place_without_quota_wakes_nothing(cell: Cell) -> None:
    """Both are needed; when the quota is freed it wakes."""
    both = QuotaFreed(tree=TREE, flavor_resources=(place_in("tas"),), needs=({"tas/cpu": "9"},))
    assert not wakes(cell, both, use(0))


@pytest.mark.parametrize("wake", [PLACE, QUOTA])
def test_a_change_of_the_topology_or_the_flavor_wakes_everything(cell: Cell, wake: QuotaFreed) -> None:
    """In every ClusterQueue that uses it, whatever it waits for."""
    levels = (TopologyLevel(node_label="kubernetes.io/hostname"),)
    assert wakes(cell, wake, facts.TopologyObserved(name="t", spec=TopologySpec(levels=levels)))
    assert wakes(cell, wake, facts.TopologyDeleted(name="t"))
    changed = ResourceFlavorSpec(topology_name="t", node_labels={"pool": "b"})
    assert wakes(cell, wake, facts.ResourceFlavorObserved(name="tas", spec=changed))


def test_a_queue_without_a_topology_hears_nothing_of_nodes(cell: Cell) -> None:
    """No tree but those of ClusterQueues that use the flavor is marked."""
    before = dict(cell.state.freed.get("ClusterQueue/other", {}))
    cell.log.append(BRIDGE, node("m"), use(0))
    assert cell.state.freed.get("ClusterQueue/other", {}) == before


def test_the_metadata_of_a_topology_wakes_nothing(cell: Cell) -> None:
    """Its finalizer appears, for example."""
    spec = cell.state.topologies["t"]
    cell.log.append(BRIDGE, facts.TopologyObserved(name="t", spec=spec, uid=Uid("u")))
    assert not wakes(cell, PLACE, facts.TopologyObserved(name="t", spec=spec, uid=Uid("u"), finalizer=True))
