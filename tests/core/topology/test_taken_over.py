"""Assignments that are taken over from a running cluster: whatever they name, the cell goes on."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.test_topology_kept import Json, admitted, domains, slices
from tests.support.logs import TestLog

from headgate.core import fold
from headgate.core.config.feature_gates import TOPOLOGY_AWARE_SCHEDULING
from headgate.core.reading.decoding import read
from headgate.core.status.workload_status import status_json, workload_status
from headgate.core.topology.assignments import expand
from headgate.events import facts
from headgate.events.base import Producer
from headgate.events.configuration import Configuration
from headgate.events.ids import WorkloadKey
from headgate.events.objects import Node, ResourceFlavorSpec, TopologyLevel, TopologySpec

BRIDGE = Producer.INFORMER_BRIDGE
W = WorkloadKey("team-a/w")
LEVELS = ("rack", "kubernetes.io/hostname")


@st.composite
def mismatched(draw: st.DrawFn) -> Json:
    """Slices of as many levels as they like, for levels that say otherwise, and domains of v1beta1."""
    levels = draw(st.lists(st.sampled_from([*LEVELS, "block"]), max_size=3))
    some = draw(st.lists(st.integers(0, 3).flatmap(slices), max_size=3))
    return draw(st.one_of(st.just({"levels": levels, "slices": some}), domains()))


def taken_over(assignment: Json, **status: Any) -> TestLog:
    """A workload that another Kueue has admitted, in a cell with the flavor, a Topology and a node of other names."""
    log = TestLog()
    gates = {TOPOLOGY_AWARE_SCHEDULING: True}
    levels = tuple(TopologyLevel(node_label=label) for label in LEVELS)
    log.append(
        BRIDGE,
        facts.ConfigurationObserved(configuration=Configuration(feature_gates=gates)),
        facts.TopologyObserved(name="t", spec=TopologySpec(levels=levels)),
        facts.ResourceFlavorObserved(name="f", spec=ResourceFlavorSpec(topology_name="t", node_labels={"pool": "a"})),
        facts.NodeObserved(
            name="n", node=Node(name="n", labels={"pool": "a", "rack": "r", "kubernetes.io/hostname": "n"})
        ),
    )
    manifest = admitted({"topologyAssignment": assignment})
    manifest["status"] |= status
    fact = read("workloads", msgspec.json.encode(manifest)).fact
    assert isinstance(fact, facts.WorkloadObserved)
    log.append(BRIDGE, fact)
    return log


@settings(max_examples=60)
@given(mismatched())
def test_no_assignment_of_a_taken_over_workload_fails_the_fold(assignment: Json) -> None:
    """Unknown domains, nodes that are gone, slices that contradict the levels: it holds its quota, and may end."""
    log = taken_over(assignment)
    state = log.state
    assert state.quarantine == {}
    admission = state.workloads[W].admission
    assert admission is not None
    (placed,) = admission.pod_set_assignments
    assert placed.topology_assignment is not None
    expand(placed.topology_assignment)
    restored = fold.restore("main", fold.encode(state))
    assert restored.index.usage_of == state.index.usage_of
    log.append(BRIDGE, facts.WorkloadDeleted(workload=W, uid=state.workloads[W].uid))
    assert state.index.usage_of == {}
    assert state.index.topology_usage_of == {}


def test_unhealthy_nodes_are_taken_over_and_written_back() -> None:
    """The first of them is the one to replace."""
    log = taken_over({"levels": list(LEVELS[1:]), "slices": []}, unhealthyNodes=[{"name": "gone"}])
    assert log.state.workloads[W].unhealthy_nodes == ("gone",)
    written = status_json(workload_status(log.state, log.state.workloads[W]))
    assert msgspec.json.decode(msgspec.json.encode(written["unhealthyNodes"])) == [{"name": "gone"}]


def test_without_a_reservation_there_are_none() -> None:
    """A status that names unhealthy nodes and no admission is one of an evicted workload."""
    manifest = admitted({"topologyAssignment": {"levels": ["rack"], "slices": []}})
    manifest["status"] = {**manifest["status"], "admission": None, "unhealthyNodes": [{"name": "gone"}]}
    fact = read("workloads", msgspec.json.encode(manifest)).fact
    assert isinstance(fact, facts.WorkloadObserved)
    log = TestLog()
    log.append(BRIDGE, fact)
    assert log.state.workloads[W].unhealthy_nodes == ()
