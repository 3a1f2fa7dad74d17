"""The view of a state: kept current by events it is the one that the state alone gives, and shows what is decided."""

import random
from typing import Any

import pytest
from tests.support.placements import PlacementCell, node, pod
from tests.support.volumes import CLAIM, STORAGE_CLASS, VOLUME, with_volume

from headgate.core.placement.deciding import PlacementDecider
from headgate.core.placement.objects.kinds import OTHERS
from headgate.core.placement.objects.storage import PersistentVolume
from headgate.core.placement.view import OfPlacement, PlacementFact, PlacementView
from headgate.core.state.manifests import encoded
from headgate.events import facts
from headgate.events.base import Producer


def shown(view: PlacementView) -> dict[str, Any]:
    """All that a view has, in an order of its own."""
    cluster = view.cluster
    pods = {
        key: (each.uid, each.node_name, each.nominated_node_name, each.is_terminating, each.object)
        for key, each in sorted(cluster.pods.items())
    }
    nodes = {info.name: (info.node, sorted(info.pods)) for info in cluster.columns.nodes()}
    others: dict[str, Any] = {kind.plural: dict(sorted(cluster.objects(kind.type).items())) for kind in OTHERS.values()}
    nominated = {key: cluster.nomination_of(key) for key in sorted(cluster.pods)}
    return {"pods": pods, "nodes": dict(sorted(nodes.items())), "nominated": nominated, **others}


@pytest.mark.parametrize("seed", range(12))
def test_a_view_kept_current_is_the_one_rebuilt(seed: int) -> None:
    """After every commit of a life with placements, refusals, victims, volumes, nodes that go and pods that change."""
    rng = random.Random(seed)
    cell = PlacementCell(STORAGE_CLASS, CLAIM, VOLUME, *(node(f"n{number}", cpu="2") for number in range(3)))
    view, told = PlacementView(cell.state), len(cell.log.commits)
    for number in range(40):
        name = f"p{rng.randrange(6)}"
        match rng.randrange(8):
            case 0 | 1 | 2:
                made = pod(name, cpu=rng.choice(("1", "2")), priority=rng.randrange(3))
                if f"team/{name}" not in cell.state.objects.get("pods", {}):
                    cell.apply(made | {"metadata": made["metadata"] | {"uid": f"{name}-{number}"}})
            case 3 if f"team/{name}" in cell.state.objects.get("pods", {}):
                cell.delete("pods", f"team/{name}")
            case 4:
                cell.apply(node(f"n{rng.randrange(4)}", cpu=rng.choice(("1", "2", "3"))))
            case 5 if len(cell.state.objects["nodes"]) > 1:
                cell.delete("nodes", rng.choice(sorted(cell.state.objects["nodes"])))
            case 6 if "team/volume" not in cell.state.objects.get("pods", {}):
                cell.apply(with_volume("volume"))
            case _:
                placed = [key for key, record in cell.state.placements.items() if record.is_bindable]
                if placed:
                    cell.refuse(rng.choice(placed))
        cell.decide()
        if rng.random() < 0.5:
            cell.carry_out()
        for logged in cell.log.commits[told:]:
            for event in logged.commit.events:
                if isinstance(event, PlacementFact | OfPlacement):
                    view.on_event(event)
        told = len(cell.log.commits)
        assert shown(view) == shown(PlacementView(cell.state))


def test_what_is_reserved_is_what_is_written() -> None:
    """The writes of a placement, laid over the volume, give the volume that the plugin has set aside."""
    cell = PlacementCell(STORAGE_CLASS, CLAIM, VOLUME, node("n1"), with_volume("a"))
    decider = PlacementDecider(cell.state)
    waiting = decider.pod_to_place("team/a")
    assert waiting is not None
    framework = decider.frameworks["headgate"]
    cycle = framework.cycle(waiting)
    framework.pre_filter(cycle)
    chosen = decider.view.cluster.node("n1")
    assert chosen is not None
    (assumed,) = framework.binding.reserve(cycle, chosen).assumed
    cell.decide()
    written = PlacementView(cell.state).cluster.objects(PersistentVolume)["disk"]
    assert written == assumed.object


def test_a_supposed_decision_goes_when_it_is_forgotten() -> None:
    """As if it had never been taken."""
    cell = PlacementCell(node("n1"), pod("a"))
    decider = PlacementDecider(cell.state)
    before = shown(decider.view)
    waiting = decider.pod_to_place("team/a")
    assert waiting is not None
    assert decider.decide(waiting, 0).is_placed
    assert shown(decider.view)["pods"]["team/a"][1] == "n1"
    decider.forget()
    assert shown(decider.view) == before


def test_an_object_that_cannot_be_read_is_left_out() -> None:
    """With the reason, and nothing else is lost by it; its next readable form counts."""
    cell = PlacementCell(node("n1"), pod("a"))
    broken = node("n2") | {"status": {"allocatable": {"cpu": "much"}}}
    cell.log.append(Producer.INFORMER_BRIDGE, facts.ObjectObserved(resource="nodes", name="n2", object=encoded(broken)))
    view = PlacementView(cell.state)
    assert view.cluster.node("n2") is None
    assert "much" in view.unreadable["nodes", "n2"]
    cell.run()
    assert cell.nodes() == {"team/a": "n1"}
