"""The tree of a flavor's topology as data: what it has, who uses it, what is free."""

import msgspec
import pytest
from tests.support.topology_cell import GPU, RACK, host, reserve, topology_cell

from headgate.core.topology.assignments import HOSTNAME
from headgate.core.topology.cache import TopologyCache
from headgate.core.views.topology import (
    DomainUse,
    DomainView,
    NodeLeftOut,
    NoTopologyError,
    lowest_domains,
    topology_view,
)
from headgate.core.views.topology_json import to_plain, topology_summaries
from headgate.events import facts
from headgate.events.base import Producer
from headgate.events.objects import ResourceFlavorSpec

BRIDGE = Producer.INFORMER_BRIDGE
HOSTS = (host("b1", "r1", "h1"), host("b1", "r1", "h2"), host("b1", "r2", "h3"), host("b2", "r3", "h4"))


def shares(domains: tuple[DomainView, ...], resource: str = GPU) -> dict[str, DomainUse]:
    """The amounts of sibling domains by their values."""
    return {each.value: each.resources[resource] for each in domains}


def test_a_domain_has_the_sum_of_what_is_below_it() -> None:
    """Hosts of 8 GPUs: capacity adds up by rack and block, and so does what workloads and other pods use."""
    history = topology_cell(*HOSTS)
    history.put(BRIDGE, facts.NodeUsageObserved(node="h3", requests={GPU: "3"}, pods=2))
    reserve(history, "train", {"h1": 1, "h2": 1}, gpus=4)
    view = topology_view(history.state, "gpu")
    assert (view.resource, view.nodes, view.resources[GPU]) == (GPU, 4, DomainUse(32, 8, 3))
    assert shares(view.domains) == {"b1": DomainUse(24, 8, 3), "b2": DomainUse(8)}
    assert shares(view.domains[0].domains) == {"r1": DomainUse(16, 8), "r2": DomainUse(8, 0, 3)}
    assert shares(tuple(lowest_domains(view.domains)), "pods")["h3"] == DomainUse(110, 0, 2)
    assert shares(tuple(lowest_domains(view.domains)), "pods")["h1"] == DomainUse(110, 1, 0)
    assert view.domains[0].domains[0].domains[0].workloads == {"a/train": 1}


def test_what_is_free_is_what_the_scheduler_places_pods_in() -> None:
    """Capacity less the use of other pods is that of placement's own tree, host by host and resource by resource."""
    history = topology_cell(*HOSTS)
    history.put(BRIDGE, facts.NodeUsageObserved(node="h3", requests={GPU: "3", "cpu": "500m"}, pods=2))
    tree = TopologyCache(history.state).flavor("gpu")
    assert tree is not None
    for each in lowest_domains(topology_view(history.state, "gpu").domains):
        leaf = tree.leaf((each.value,))
        assert leaf is not None
        assert {name: share.free for name, share in each.resources.items()} == tree.free(leaf)


def test_a_node_that_takes_no_pods_is_named_with_the_reason_and_counts_nowhere() -> None:
    """Cordoned, not Ready, without a label of a level: none is in the tree. Its workloads are still known."""
    history = topology_cell(HOSTS[0], host("b1", "r1", "h5", unschedulable=True), host("b1", "r1", "h6", ready=False))
    bare = host("b1", "r1", "h7")
    labels = {key: value for key, value in bare.node.labels.items() if key != RACK}
    history.put(BRIDGE, facts.NodeObserved(name="h7", node=msgspec.structs.replace(bare.node, labels=labels)))
    reserve(history, "train", {"h5": 1, "gone": 2})
    view = topology_view(history.state, "gpu")
    assert (view.nodes, view.resources[GPU]) == (1, DomainUse(8))
    where = ("b1", "r1")
    assert view.left_out == (
        NodeLeftOut(name="gone", why="no ready, schedulable node is there", workloads={"a/train": 2}),  # type: ignore[dict-item]
        NodeLeftOut(
            name="h5",
            why="it is cordoned (spec.unschedulable)",
            values=(*where, "h5"),
            workloads={"a/train": 1},  # type: ignore[dict-item]
        ),
        NodeLeftOut(name="h6", why="it is not Ready", values=(*where, "h6")),
        NodeLeftOut(name="h7", why="it has no label cloud/rack"),
    )


def test_a_host_that_two_flavors_have_shows_the_use_by_both() -> None:
    """As placement counts it (TASHandleOverlappingFlavors)."""
    history = topology_cell(*HOSTS)
    history.put(BRIDGE, facts.ResourceFlavorObserved(name="all", spec=ResourceFlavorSpec(topology_name="dc")))
    reserve(history, "train", {"h1": 1})
    assert topology_view(history.state, "all").resources[GPU] == DomainUse(32, 8)


def test_a_topology_above_the_hosts_has_racks_as_its_lowest_domains() -> None:
    """Their nodes are counted, and not named."""
    history = topology_cell(*HOSTS, levels=(RACK,))
    reserve(history, "train", {"r1": 2}, level=RACK)
    view = topology_view(history.state, "gpu", GPU)
    assert [(each.value, each.level, each.nodes) for each in view.domains] == [
        ("r1", RACK, 2),
        ("r2", RACK, 1),
        ("r3", RACK, 1),
    ]
    assert view.domains[0].resources == {GPU: DomainUse(16, 16)}
    assert view.domains[0].workloads == {"a/train": 2}


def test_json_has_quantities_in_a_stable_order() -> None:
    """Amounts as Kubernetes writes them; domains by their values; workloads only where names may be shown."""
    history = topology_cell(*reversed(HOSTS))
    reserve(history, "train", {"h2": 1})
    view = topology_view(history.state, "gpu")
    plain = msgspec.to_builtins(to_plain(view))
    assert list(plain) == [
        "position", "now_ms", "flavor", "topology", "levels", "resource", "nodes", "resources", "domains", "left_out",
    ]  # fmt: skip
    (first, second) = plain["domains"][0]["domains"][0]["domains"]
    assert (first["value"], second["value"], first["level"]) == ("h1", "h2", HOSTNAME)
    assert second["resources"][GPU] == {"capacity": "8", "topology_aware": "8", "other": "0", "free": "0"}
    assert second["workloads"] == {"a/train": 1}
    assert b"train" not in msgspec.json.encode(to_plain(view, names=False))


@pytest.mark.parametrize(
    ("flavor", "resource", "told"),
    [
        ("none", None, "there is no ResourceFlavor 'none' at position 2; with a topology there is gpu"),
        ("plain", None, "ResourceFlavor 'plain' has no topology: set its spec.topologyName"),
        ("gpu", "fpga", f"no node of ResourceFlavor 'gpu' has the resource 'fpga'; there is cpu, {GPU}, pods"),
    ],
)
def test_an_unknown_tree_is_one_error_that_names_what_there_is(flavor: str, resource: str | None, told: str) -> None:
    """No flavor of that name, one without a topology, a resource that no node has."""
    with pytest.raises(NoTopologyError) as caught:
        topology_view(topology_cell(*HOSTS).state, flavor, resource)
    assert told in str(caught.value)


def test_a_flavor_whose_topology_does_not_exist_is_listed_with_the_problem() -> None:
    """The others are listed as they are."""
    history = topology_cell(*HOSTS)
    history.put(BRIDGE, facts.ResourceFlavorObserved(name="lost", spec=ResourceFlavorSpec(topology_name="nowhere")))
    gpu, lost = topology_summaries(history.state)
    assert (gpu.flavor, gpu.levels[-1], gpu.domains, gpu.nodes) == ("gpu", HOSTNAME, (2, 3, 4), 4)
    assert "names the Topology 'nowhere', which does not exist" in lost.problem


def test_a_flavor_without_nodes_is_an_empty_tree() -> None:
    """It is no error: nodes may come."""
    view = topology_view(topology_cell().state, "gpu")
    assert (view.nodes, view.resource, view.domains) == (0, "", ())
    assert topology_summaries(topology_cell().state)[0].amounts is None
