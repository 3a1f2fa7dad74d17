"""Pods that are none of ours are summed up by node once a flavor has a topology: few events, and never too little."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.machines.informer_bridge.test_marks import Bridge, raw
from tests.support.logs import TestLog
from tests.support.playing import flavor, node

from headgate.core import fold
from headgate.core.config.feature_gates import TOPOLOGY_AWARE_SCHEDULING
from headgate.core.machine.contract import Changed
from headgate.events import facts
from headgate.events.base import Producer
from headgate.events.configuration import Configuration
from headgate.events.ids import PodKey
from headgate.events.registry import Event
from headgate.machines.informer_bridge.foreign_pods import DECREASES_MS, INCREASES_MS

Json = dict[str, Any]

WITH_TOPOLOGIES = facts.ConfigurationObserved(
    configuration=Configuration(feature_gates={TOPOLOGY_AWARE_SCHEDULING: True})
)


def pod(name: str, node: str = "n", cpu: str = "100m", phase: str = "Running", **metadata: Any) -> Json:
    return {
        "metadata": {"namespace": "other", "name": name, **metadata},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": phase},
    }


class Cluster:
    """A bridge that follows the pods of a cluster with one TAS flavor, or without."""

    def __init__(self, *pods: Json, topology: bool = True, log: TestLog | None = None) -> None:
        if log is None:
            log = TestLog()
            log.append(Producer.INFORMER_BRIDGE, WITH_TOPOLOGIES)
        self.bridge = Bridge(log)
        self.log = log
        self.pods = {each["metadata"]["name"]: each for each in pods}
        self.version = 1
        self.told: list[Event] = []
        flavors = [raw(flavor("spot", nodeLabels={"pool": "a"}, **({"topologyName": "t"} if topology else {})))]
        self.bridge.list_all(
            pods=[raw(each) for each in pods], nodes=[raw(node("n")), raw(node("m"))], resourceflavors=flavors
        )
        self.run()

    def run(self, ms: int = 0) -> None:
        """Let time pass, and append what is due."""
        self.told += self.bridge.settle(after_ms=ms)
        while more := self.bridge.settle():
            self.told += more

    def change(self, manifest: Json, kind: str = "MODIFIED") -> None:
        self.version += 1
        name = manifest["metadata"]["name"]
        if kind == "DELETED":
            self.pods.pop(name, None)
        else:
            self.pods[name] = manifest
        self.bridge.machine.decide(Changed("pods", kind, raw(manifest), str(self.version)))

    def sums(self) -> list[facts.NodeUsageObserved]:
        return [event for event in self.told if isinstance(event, facts.NodeUsageObserved)]

    def counted(self) -> dict[str, dict[str, int]]:
        """What the pods use of the nodes, counted one by one."""
        total: dict[str, dict[str, int]] = {}
        for each in self.pods.values():
            if each["status"]["phase"] == "Running" and each["spec"]["nodeName"]:
                cpu = int(each["spec"]["containers"][0]["resources"]["requests"]["cpu"].removesuffix("m"))
                use = total.setdefault(each["spec"]["nodeName"], {"cpu": 0, "pods": 0})
                use["cpu"] += cpu
                use["pods"] += 1
        return total


def test_without_a_topology_nothing_is_summed() -> None:
    """No flavor has a topology: the log has no sums."""
    cluster = Cluster(pod("a"), topology=False)
    assert cluster.sums() == []
    assert cluster.log.state.node_usage == {}


def test_the_first_sum_is_in_the_log_before_anything_is_admitted() -> None:
    """`informers.synced` comes after what the pods of the first list use."""
    cluster = Cluster(pod("a"), pod("b"))
    assert cluster.log.state.index.taken == {"n": {"cpu": 200, "pods": 2}} == cluster.log.state.node_usage
    kinds = [type(event) for event in cluster.told]
    assert kinds.index(facts.NodeUsageObserved) < kinds.index(facts.InformersSynced)
    assert facts.PodObserved not in kinds


def test_an_increase_is_appended_at_once_and_a_decrease_with_the_others() -> None:
    """What was taken is known when it is seen; what was freed within DECREASES_MS."""
    cluster = Cluster(pod("a"))
    cluster.run(DECREASES_MS)
    cluster.change(pod("b"), "ADDED")
    cluster.run()
    assert cluster.log.state.node_usage["n"]["pods"] == 2
    cluster.change(pod("a"), "DELETED")
    cluster.run()
    assert cluster.log.state.node_usage["n"]["pods"] == 2
    cluster.run(DECREASES_MS)
    assert cluster.log.state.node_usage["n"]["pods"] == 1


def test_a_node_full_of_short_pods_costs_a_few_events_a_second() -> None:
    """110 pods of one node end and are replaced once a second, one by one: 220 changes a second."""
    cluster = Cluster(*(pod(f"p{number}") for number in range(110)))
    before, seconds = len(cluster.told), 5
    for change in range(110 * seconds):
        cluster.change(pod(f"p{change}"), "DELETED")
        cluster.run(4)
        cluster.change(pod(f"p{change + 110}"), "ADDED")
        cluster.run(5)
    told = [event for event in cluster.told[before:] if not isinstance(event, facts.InformersSynced)]
    assert len(told) <= seconds * (1000 // INCREASES_MS + 1)


def test_a_node_that_fills_and_empties_every_second_stays_within_the_bound() -> None:
    """The worst case: each pod of a full node starts on its own, then all end."""
    cluster = Cluster()
    for wave in range(4):
        for number in range(110):
            cluster.change(pod(f"p{number}"), "ADDED")
            cluster.run(9)
        for number in range(110):
            cluster.change(pod(f"p{number}"), "DELETED")
        cluster.run(10)
        assert len(cluster.sums()) <= (wave + 1) * (1000 // INCREASES_MS + 1)


@pytest.mark.parametrize(
    ("manifest", "counts"),
    [
        (pod("a"), True),
        (pod("a", phase="Pending"), True),
        (pod("a", phase="Succeeded"), False),
        (pod("a", phase="Failed"), False),
        (pod("a", node=""), False),
        (pod("a", annotations={"kueue.x-k8s.io/podset-required-topology": "rack"}), False),
        (pod("a", annotations={"kueue.x-k8s.io/podset-unconstrained-topology": "true"}), False),
        (pod("a", annotations={"kueue.x-k8s.io/workload": "w"}), True),
        (
            pod("a", annotations={"kueue.x-k8s.io/workload": "w", "kueue.x-k8s.io/podset-preferred-topology": "rack"}),
            False,
        ),
    ],
)
def test_what_counts_is_what_the_reference_counts(manifest: Json, counts: bool) -> None:
    """A pod with a node that has not ended, unless a topology annotation makes it one of a topology assignment."""
    cluster = Cluster(manifest)
    assert cluster.log.state.index.taken == ({"n": {"cpu": 100, "pods": 1}} if counts else {})


def test_facts_of_pods_from_before_the_first_topology_become_sums() -> None:
    """The sum is appended first, then the mark is void, then the facts go. What is taken is never too little."""
    cluster = Cluster(pod("a"), pod("b", node="m"), topology=False)
    assert len(cluster.log.state.pods) == 2
    assert "pods" in cluster.log.state.resource_versions
    taken = cluster.log.state.index.taken
    cluster.bridge.machine.decide(
        Changed("resourceflavors", "MODIFIED", raw(flavor("spot", nodeLabels={"pool": "a"}, topologyName="t")), "9")
    )
    cluster.run()
    assert cluster.log.state.pods == {}
    assert cluster.log.state.index.taken == taken == cluster.log.state.node_usage
    assert "pods" not in cluster.log.state.resource_versions


def test_the_next_term_begins_with_a_list_of_pods_and_tells_only_news() -> None:
    """A sum does not show which pods it has: another bridge counts them again, also those that ended meanwhile."""
    cluster = Cluster(pod("a"), pod("b"))
    cluster.run(20_000)
    assert "pods" not in cluster.log.state.resource_versions
    again = Cluster(pod("a"), pod("b"), log=cluster.log)
    assert again.sums() == []
    fewer = Cluster(pod("b"), log=cluster.log)
    fewer.run(DECREASES_MS)
    assert cluster.log.state.node_usage == fewer.counted()


def test_a_pod_that_becomes_one_of_ours_leaves_the_sum() -> None:
    """It gets a fact of its own, and is not counted twice for longer than a decrease waits."""
    cluster = Cluster(pod("a"))
    cluster.change(pod("a", annotations={"kueue.x-k8s.io/workload": "w"}))
    cluster.run()
    assert PodKey("other/a") in cluster.log.state.pods
    cluster.run(DECREASES_MS)
    assert cluster.log.state.node_usage == {}
    assert cluster.log.state.index.taken == {"n": {"cpu": 100, "pods": 1}}


steps = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["n", "m", ""]),
        st.integers(0, 3),
        st.sampled_from(["Running", "Succeeded", "DELETED"]),
        st.integers(0, 1500),
    ),
    max_size=25,
)


@settings(max_examples=40)
@given(steps, st.booleans())
def test_the_log_follows_the_pods(steps: list[tuple[str, str, int, str, int]], topology: bool) -> None:
    """After INCREASES_MS it has no less than the pods use, after DECREASES_MS exactly that; and so has the index."""
    cluster = Cluster(topology=topology)
    for name, where, cpu, fate, ms in steps:
        cluster.change(
            pod(name, node=where, cpu=f"{cpu}00m", phase=fate if fate != "DELETED" else "Running"),
            "DELETED" if fate == "DELETED" else "MODIFIED",
        )
        cluster.run(ms)
        cluster.run(INCREASES_MS)
        for place, use in cluster.counted().items():
            taken = cluster.log.state.index.taken.get(place, {})
            assert all(value <= taken.get(resource, 0) for resource, value in use.items())
    cluster.run(DECREASES_MS)
    cluster.run(DECREASES_MS)
    counted = {place: {key: value for key, value in use.items() if value} for place, use in cluster.counted().items()}
    assert cluster.log.state.index.taken == counted
    restored = fold.restore("main", fold.encode(cluster.log.state))
    assert restored.index.taken == counted


def test_sums_survive_the_encoding_of_events() -> None:
    """The contract: canonical quantities, and the number of pods."""
    cluster = Cluster(pod("a", cpu="1500m"), pod("b", cpu="500m"))
    (told,) = cluster.sums()
    assert msgspec.to_builtins(told) == {
        "type": "node.usage_observed",
        "node": "n",
        "requests": {"cpu": "2"},
        "pods": 2,
    }
