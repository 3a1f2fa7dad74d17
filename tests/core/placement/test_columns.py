"""Columns, and what is counted by the values of labels, take up no more than the nodes of the moment need."""

from typing import Any

import msgspec
from tests.support.placement import ZONE, attempted, cluster_of, framework_of, node, pod, tell

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.counts.index import PodCounts
from headgate.core.placement.objects.nodes import NodeObject
from headgate.events.objects import Taint

NODES = 8
CHANGES = 100_000

SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}},
        }
    ],
}
AWAY = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "y"}}}
            ]
        }
    }
}


def relabelled(old: NodeObject, number: int) -> NodeObject:
    """A node with another zone, another value of a label that is no domain, a new label, and another taint."""
    labels = {**old.metadata.labels, ZONE: f"z{number}", "build": f"b{number}"}
    labels = {key: value for key, value in labels.items() if not key.startswith("once")} | {f"once{number}": "1"}
    spec = msgspec.structs.replace(old.spec, taints=(Taint(key=f"t{number}", effect="PreferNoSchedule"),))
    return msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, labels=labels), spec=spec)


def held(cluster: PlacementCluster) -> int:
    """The length of all arrays, and of all tables of values."""
    columns, counts = cluster.columns, cluster.index(PodCounts)
    tables = [columns.taint_lists, *(columns.label_values(key) for key in columns._labels)]
    every: list[Any] = [*columns._of_nodes.values(), *columns._labels.values()]
    arrays = [each._array for each in every]
    sums = [each.values for each in counts._sums._recent]
    sizes = [each.sizes for each in counts._sums._domains.values()]
    return sum(map(len, (*tables, *arrays, *sums, *sizes))) + len(columns._labels) + len(columns._label_nodes)


def test_a_cluster_whose_nodes_change_labels_stays_as_large_as_it_is() -> None:
    """A hundred thousand values of a topology key; then placement decides as on a cluster that never had the others."""
    pods = [pod(f"e{each}", on=f"n{each}", labels={"app": "xy"[each % 2]}) for each in range(NODES)]
    waiting = [pod("spread", labels={"app": "x"}, spec=SPREAD), pod("away", labels={"app": "y"}, spec=AWAY)]
    cluster = cluster_of(*(node(f"n{each}", labels={ZONE: "z"}) for each in range(NODES)), *pods, *waiting)
    framework = framework_of(cluster)
    selecting = pod("selecting", spec={"nodeSelector": {"build": "b7", "once7": "1"}})
    tell(cluster, selecting)
    sizes = []
    for number in range(CHANGES):
        info = cluster.info_of(number % NODES)
        cluster.set_node(relabelled(info.node, number))
        if number % (CHANGES // 10) == CHANGES // 10 - 1:
            for key in ("ns/spread", "ns/away", "ns/selecting"):
                attempted(framework, key)
            sizes.append(held(cluster))
    assert len(sizes) == 10
    assert sizes[1:] == sizes[1:2] * 9
    assert len(cluster.columns.label_values(ZONE)) <= NODES + 2
    assert len(cluster.columns.taint_lists) <= NODES + 2
    fresh = PlacementCluster()
    for info in cluster.columns.nodes():
        fresh.set_node(info.node)
    for each in (*pods, *waiting, selecting):
        tell(fresh, each)
    for key in ("ns/spread", "ns/away", "ns/selecting"):
        old, new = attempted(framework, key), attempted(framework_of(fresh), key)
        assert (old.node, old.message) == (new.node, new.message)
        assert old.verdicts.rejections() == new.verdicts.rejections()


def test_labels_that_pods_ask_for_and_no_node_has_take_up_nothing() -> None:
    """However many there are; a node that gets one of them is found by it."""
    cluster = cluster_of(*(node(f"n{each}") for each in range(NODES)))
    framework = framework_of(cluster)
    for number in range(500):
        spec: dict[str, Any] = {"nodeSelector": {f"key{number}": "1"}}
        spec["topologySpreadConstraints"] = [{**SPREAD["topologySpreadConstraints"][0], "topologyKey": f"zone{number}"}]
        tell(cluster, pod(f"p{number}", spec=spec))
        assert attempted(framework, f"ns/p{number}").node == ""
    assert not [key for key in cluster.columns._labels if key.startswith(("key", "zone"))]
    tell(cluster, node("n3", labels={"key77": "1", "zone77": "a"}))
    assert attempted(framework, "ns/p77").node == "n3"
    tell(cluster, node("n3"))
    assert attempted(framework, "ns/p77").node == ""
