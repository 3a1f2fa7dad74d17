"""Pods that Headgate places, in the whole system: bound, displaced, evicted within budgets, whatever goes wrong."""

from typing import Any

import pytest
from tests.simulation.scenarios import node

from headgate.core.state.tables import State
from headgate.events.commit import LoggedCommit
from headgate.events.decisions import PodNominated
from headgate.events.effects import PodPreempted
from headgate.events.registry import Event
from headgate.testing.cluster.kinds import BY_PLURAL
from headgate.testing.world.world import MACHINES_PLACING, NO_FAULTS, FaultRates, World

PODS = BY_PLURAL["", "pods"]
EVENTS = BY_PLURAL["events.k8s.io", "events"]
START_MS = 1_700_000_000_000
HORIZON_MS = START_MS + 400_000
FAULTS = FaultRates(
    crash=0.004, call_error=0.05, call_lost=0.05, watch_cut=0.01, lag=0.1, append_lost=0.02, until_ms=START_MS + 60_000
)
Json = dict[str, Any]


def cell(faults: FaultRates = NO_FAULTS, seed: int = 0, told: list[Event] | None = None) -> World:
    """Two nodes of four CPUs, and a class of important pods. `told` gets the events of the log."""

    def collect(state: State, logged: LoggedCommit) -> None:
        if told is not None:
            told.extend(logged.commit.events)

    world = World(seed=seed, faults=faults, machines=MACHINES_PLACING, check=collect)
    important = {"metadata": {"name": "important"}, "value": 1000}
    world.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **important},
        *(node(name, "x", 4, taint=False) for name in ("n1", "n2")),
    )
    return world


def pod(name: str, cpu: str = "1", **spec: Any) -> Json:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": "headgate", "restartPolicy": "Never", "containers": [container], **spec}
    annotations = {"headgate.dev/run-ms": str(10**9)}
    metadata = {"name": name, "namespace": "team", "labels": {"app": "x"}, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def shown(world: World) -> dict[str, Json]:
    return {entry.obj["metadata"]["name"]: entry.obj for entry in world.cluster.registry.store.table(PODS).select("")}


def nodes_of(world: World) -> dict[str, str]:
    return {name: each["spec"].get("nodeName", "") for name, each in shown(world).items()}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("faults", [NO_FAULTS, FAULTS], ids=["calm", "faults"])
def test_what_fits_is_bound_and_the_rest_says_why_not(faults: FaultRates, seed: int) -> None:
    """Eight pods on two nodes of four CPUs, each as full as it can be; the ninth waits with its reason."""
    world = cell(faults, seed)
    world.create(*(pod(f"p{number}") for number in range(9)))
    world.run(until_ms=HORIZON_MS)
    nodes = nodes_of(world)
    assert sorted(nodes.values()) == ["", *["n1"] * 4, *["n2"] * 4]
    (waiting,) = [name for name, where in nodes.items() if not where]
    (condition,) = [each for each in shown(world)[waiting]["status"]["conditions"] if each["type"] == "PodScheduled"]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"].startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert [key for key, record in world.state.placements.items() if record.node] == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("faults", [NO_FAULTS, FAULTS], ids=["calm", "faults"])
def test_an_important_pod_displaces_others(faults: FaultRates, seed: int) -> None:
    """One node's pods go, marked as displaced; no other does, and it gets the node."""
    world = cell(faults, seed)
    world.create(*(pod(f"p{number}") for number in range(8)))
    world.run(until_ms=START_MS + 100_000)
    world.create(pod("first", cpu="4", priorityClassName="important"))
    world.run(until_ms=HORIZON_MS)
    nodes = nodes_of(world)
    assert nodes["first"] in ("n1", "n2")
    assert len(nodes) == 5
    assert [where for name, where in nodes.items() if name != "first"].count(nodes["first"]) == 0
    assert "nominatedNodeName" not in shown(world)["first"]["status"]


def test_a_budget_is_charged_for_those_that_it_lets_go() -> None:
    """They are evicted, and the Event of each names the pod that has displaced it."""
    done: list[Event] = []
    world = cell(told=done)
    world.create(*(pod(f"p{number}") for number in range(8)))
    spec = {"minAvailable": 4, "selector": {"matchLabels": {"app": "x"}}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    world.apply({**budget, "metadata": {"name": "b", "namespace": "team"}, "spec": spec})
    world.run(until_ms=START_MS + 100_000)
    first = pod("first", cpu="4", priorityClassName="important")
    first["metadata"]["labels"] = {}
    world.create(first)
    world.run(until_ms=HORIZON_MS)
    assert nodes_of(world)["first"] in ("n1", "n2")
    chosen = [event for event in done if isinstance(event, PodNominated) and event.victims]
    assert [sorted(victim.budgeted for victim in event.victims) for event in chosen] == [[True] * 4]
    assert len([event for event in done if isinstance(event, PodPreempted)]) == 4
    shown_events = [entry.obj for entry in world.cluster.registry.store.table(EVENTS).select("team")]
    uid = shown(world)["first"]["metadata"]["uid"]
    displaced = [each for each in shown_events if each["reason"] == "Preempted"]
    assert {each["note"] for each in displaced} == {f"Preempted by pod {uid} on node {nodes_of(world)['first']}"}
    assert len(displaced) == 4
    assert [each["regarding"]["name"] for each in shown_events if each["reason"] == "Scheduled"].count("first") == 1
