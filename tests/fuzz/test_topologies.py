"""Drawn runs in clusters with topologies, where nodes fail: all that the judges judge, and what foreign pods use."""

import pytest
from tests.fuzz.judges import judges
from tests.fuzz.topology_judge import Places

from headgate.core.api.names import TOPOLOGY_ANNOTATIONS
from headgate.core.kubernetes.quantities import amount
from headgate.events import decisions, facts
from headgate.testing.cluster import BY_KIND
from headgate.testing.cluster.quantity import ONE, pod_requests
from headgate.testing.fuzz import Ending, Playing, script_of, with_topologies


def used(playing: Playing) -> dict[str, dict[str, int]]:
    """What the cluster's pods use of its nodes, unless a topology assignment is charged for them."""
    total: dict[str, dict[str, int]] = {}
    for pod in playing.world.cluster.objects(BY_KIND["", "Pod"]):
        node = pod["spec"].get("nodeName")
        annotations = pod["metadata"].get("annotations") or {}
        if not node or pod["status"]["phase"] in ("Succeeded", "Failed") or TOPOLOGY_ANNOTATIONS & annotations.keys():
            continue
        use = total.setdefault(node, {})
        for resource, value in pod_requests(pod["spec"]).items():
            if value:
                whole = amount(resource, f"{-(-value * 1000 // ONE)}m")
                use[resource] = use.get(resource, 0) + whole
    return total


@pytest.mark.parametrize("seed", range(4))
def test_a_run_with_topologies_keeps_every_promise(seed: int) -> None:
    """At its end the state knows what the pods of the cluster use of the nodes; at any time, what domains hold."""
    playing = Playing(with_topologies(script_of(seed)), [*judges(), Places()])
    playing.play()
    state = playing.world.state
    assert state.index.taken == used(playing)
    if any(record.spec.topology_name for record in state.flavors.values()):
        assert "pods" not in state.resource_versions


def test_what_finds_no_domains_comes_to_rest() -> None:
    """A workload that holds quota and finds no domains waits until something changes; it does not wait for quota."""
    places = Places()
    playing = Playing(with_topologies(script_of(241)), [*judges(), places])
    assert playing.play().ending is Ending.REST
    events = [event for logged in playing.log for event in logged.commit.events]
    failed = [event for event in events if isinstance(event, decisions.SecondPassFailed)]
    assert 1 < max(event.failures for event in failed) < 8
    assert not any("quota" in event.message for event in failed)
    assert places.judged > 0


@pytest.mark.parametrize("seed", [381, 389, 395, 396])
def test_what_waits_for_a_preemptor_of_another_cluster_queue_is_tried_after_it(seed: int) -> None:
    """With fair sharing, too: the preemptor gets its domains, and those that were held back for it are tried again."""
    playing = Playing(with_topologies(script_of(seed)), [*judges(), Places()])
    assert playing.play().ending is Ending.REST
    assert playing.script.configuration.fair_sharing is not None


def test_the_runs_have_what_they_are_about() -> None:
    """Sums of foreign pods are in the logs, topology-aware pods too, and nodes that fail and come back."""
    kinds: set[type] = set()
    ready: set[bool] = set()
    for seed in range(4):
        playing = Playing(with_topologies(script_of(seed)))
        playing.play()
        for logged in playing.log:
            for event in logged.commit.events:
                kinds.add(type(event))
                if isinstance(event, facts.NodeObserved):
                    ready.add(event.node.ready)
    assert {facts.NodeUsageObserved, facts.TopologyObserved, facts.NodeDeleted} <= kinds
    assert ready == {True, False}
