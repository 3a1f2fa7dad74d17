"""Listeners of a machine: each gets the events of the types that it names, in the order of the listeners."""

from headgate.core.machine.listeners import Listeners
from headgate.events import facts
from headgate.events.base import EventBase
from headgate.events.ids import PodKey, Uid

POD = facts.PodDeleted(pod=PodKey("team/p"), uid=Uid("u"))
NODE = facts.NodeDeleted(name="n")
NAMESPACE = facts.NamespaceDeleted(name="team")


def test_an_event_is_passed_to_those_that_are_for_its_type() -> None:
    """One type or a union of some is named by the annotation; the others get nothing."""
    told: list[tuple[str, EventBase]] = []

    def of_pods(event: facts.PodDeleted) -> None:
        told.append(("pods", event))

    class Places:
        def on_event(self, event: facts.NodeDeleted | facts.PodDeleted) -> None:
            told.append(("places", event))

    for listeners in (Listeners(of_pods, Places().on_event), Listeners(Places().on_event, of_pods)):
        for event in (POD, NODE, NAMESPACE):
            listeners.on_event(event)
    assert told == [
        ("pods", POD),
        ("places", POD),
        ("places", NODE),
        ("places", POD),
        ("pods", POD),
        ("places", NODE),
    ]
