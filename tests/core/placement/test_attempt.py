"""An attempt: which nodes are looked at, which is taken, and what is said when none is."""

import pytest
from tests.support.placement import ZONE, attempted, cluster_of, framework_of, node, pod

from headgate.core.placement.attempt import nodes_to_find
from headgate.core.placement.framework.status import Code
from headgate.core.placement.scan import NodeOrder


def test_equal_nodes_are_taken_by_name() -> None:
    """Where the kube-scheduler draws lots."""
    cluster = cluster_of(node("b"), node("c"), node("a"), pod("p", cpu="1"))
    made = attempted(framework_of(cluster), "ns/p")
    assert [cluster.name_of(row) for row in made.best.tolist()] == ["a", "b", "c"]
    assert (made.node, made.path) == ("a", "scored")


def test_one_feasible_node_is_not_scored() -> None:
    """It is taken at once."""
    cluster = cluster_of(node("a"), node("b", cpu="1"), pod("p", cpu="2"))
    made = attempted(framework_of(cluster), "ns/p")
    assert (made.node, made.path, made.scored) == ("a", "single", None)


def test_without_nodes_there_is_nothing_to_try() -> None:
    """The message says so, no plugin is to blame, and a nomination is cleared."""
    made = attempted(framework_of(cluster_of(pod("p"))), "ns/p")
    assert (made.node, made.rejectors, made.nominated) == ("", (), "")
    assert made.message == "no nodes available to schedule pods"
    assert made.reason == "Unschedulable"


def test_the_message_counts_nodes_by_reason() -> None:
    """In the order of the text, with nodes that preemption cannot help beside the others."""
    cluster = cluster_of(
        node("a", cpu="1"),
        node("b", pods="0"),
        node("c", pods="0", cpu="1"),
        node("d", spec={"unschedulable": True}),
        pod("p", cpu="2"),
    )
    made = attempted(framework_of(cluster), "ns/p")
    expected = "0/4 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu, 2 Too many pods."
    assert made.message.startswith(expected)
    assert made.rejectors == ("NodeResourcesFit", "NodeUnschedulable")
    assert made.verdicts.status_of("b").code == Code.UNSCHEDULABLE
    assert made.verdicts.status_of("c").code == Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def _pinned(*names: str) -> dict[str, object]:
    field = {"key": "metadata.name", "operator": "In", "values": list(names)}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def test_a_pod_that_names_its_nodes_is_looked_at_there_alone() -> None:
    """As pods of a DaemonSet are; all other nodes count as filtered out by that plugin."""
    cluster = cluster_of(node("a", cpu="1"), node("b"), node("c"), pod("p", cpu="2", spec=_pinned("a", "gone")))
    made = attempted(framework_of(cluster), "ns/p")
    assert made.verdicts.rows.tolist() == [cluster.columns.rows["a"]]
    assert made.message.startswith(
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


def test_the_nominated_node_is_looked_at_first() -> None:
    """Were others better, it is taken if the pod fits."""
    nominated = pod("p", cpu="1")
    nominated["status"] = {"nominatedNodeName": "b"}
    cluster = cluster_of(node("a", cpu="100"), node("b"), nominated)
    made = attempted(framework_of(cluster), "ns/p")
    assert (made.node, made.path) == ("b", "nominated")


@pytest.mark.parametrize(("priority", "expected"), [(0, "b"), (5, "b"), (6, "a")])
def test_a_pod_makes_way_for_nominated_pods_of_its_priority_or_a_higher_one(priority: int, expected: str) -> None:
    """They are taken to be on their node; those of lower priority are not."""
    other = pod("q", cpu="3", spec={"priority": 5})
    cluster = cluster_of(node("a"), node("b", cpu="3"), pod("p", cpu="2", spec={"priority": priority}), other)
    cluster.nominate("ns/q", "a")
    assert attempted(framework_of(cluster), "ns/p").node == expected


def test_the_scan_goes_round_the_zones() -> None:
    """One node of each zone in turn, zones and nodes in the order of the names."""
    names = {"a": "z2", "b": "z2", "c": "z1", "d": "z2", "e": "z1"}
    cluster = cluster_of(*(node(name, labels={ZONE: zone}) for name, zone in reversed(names.items())))
    order = cluster.index(NodeOrder).scan(0, 100).order
    assert [cluster.name_of(row) for row in order.tolist()] == ["a", "c", "b", "e", "d"]


def test_the_order_of_the_scan_does_not_depend_on_how_nodes_came() -> None:
    """Added, removed and added again, in any order."""
    manifests = [node(name, labels={ZONE: f"z{number % 3}"}) for number, name in enumerate("dbeacf")]
    one, other = cluster_of(*manifests), cluster_of(*reversed(manifests))
    other.remove_node("c")
    other.index(NodeOrder)
    other.set_node(one.info_of(one.columns.rows["c"]).node)
    orders = [[each.name_of(row) for row in each.index(NodeOrder).scan(0, 0).order.tolist()] for each in (one, other)]
    assert orders[0] == orders[1]


def test_the_search_ends_when_enough_nodes_are_feasible() -> None:
    """It begins where the last one ended, and looks at no more nodes than it has to."""
    cluster = cluster_of(*(node(f"n{number:03}") for number in range(200)), pod("p", cpu="1"))
    framework = framework_of(cluster)
    assert nodes_to_find(200, 60) == 120
    made = attempted(framework, "ns/p", start=150, percentage=60)
    looked = [cluster.name_of(row) for row in made.verdicts.rows.tolist()]
    assert looked == [f"n{number % 200:03}" for number in range(150, 270)]
    assert len(made.feasible) == 120


def test_without_scores_the_first_feasible_node_is_enough() -> None:
    """No more than one is looked for."""
    cluster = cluster_of(
        *(node(f"n{number}", cpu="1" if number < 3 else "4") for number in range(9)), pod("p", cpu="2")
    )
    bare = framework_of(cluster, plugins={"score": {"disabled": [{"name": "*"}]}})
    made = attempted(bare, "ns/p")
    assert (made.node, made.path, len(made.verdicts.rows)) == ("n3", "single", 4)
