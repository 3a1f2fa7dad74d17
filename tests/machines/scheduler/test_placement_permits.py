"""Plugins of the extension point Permit: a placed pod waits, is let go, rejected, or has waited for too long."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.core.verification.test_placements import verified
from tests.support.placements import CONFIGURATION, PlacementCell, node, pod
from tests.support.volumes import CLAIM, STORAGE_CLASS, VOLUME, with_volume

from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.plugin import Permitted, PluginFactory
from headgate.core.placement.framework.status import Code, PluginStatus, unschedulable
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.owners import Service
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.events import decisions
from headgate.events.ids import PodKey, UnixMs
from headgate.events.registry import Event
from headgate.machines.scheduler.decide import Scheduler


class Door:
    """Holds pods back as the label of a Service of its name says: `open`, `shut`, else for as many milliseconds."""

    def __init__(self, name: str) -> None:
        self.name = name

    def permit(self, cycle: PlacementCycle, node: NodeInfo) -> Permitted:
        service = cycle.cluster.objects(Service).get(f"team/{self.name.lower()}")
        says = service.metadata.labels["door"] if service is not None else "open"
        match says:
            case "open":
                return Permitted()
            case "shut":
                return Permitted(unschedulable("the door is shut"))
            case "broken":
                raise ValueError("no hinges")
            case _:
                return Permitted(PluginStatus(Code.WAIT), int(says))


PLUGINS = {**REGISTRY, **{name: PluginFactory(name, lambda _, name=name: Door(name)) for name in ("Front", "Back")}}  # type: ignore[misc]
PROFILE = {"schedulerName": "headgate", "plugins": {"permit": {"enabled": [{"name": "Front"}, {"name": "Back"}]}}}


class Doors(PlacementCell):
    """A cell with two such plugins."""

    def __init__(self, *manifests: Any, **says: str) -> None:
        super().__init__(*manifests, configuration={**CONFIGURATION, "profiles": [PROFILE]})
        self.say(**says)

    def crash(self) -> None:
        super().crash()
        self.machine = Scheduler(self.state, PLUGINS)

    def say(self, **says: str) -> None:
        """What the plugins say from now on."""
        for name, label in says.items():
            self.apply({"kind": "Service", "metadata": {"name": name, "namespace": "team", "labels": {"door": label}}})

    def later(self, ms: int) -> list[Event]:
        """So much time passes."""
        self.log.now_ms = UnixMs(self.log.now_ms + ms)
        before = len(self.says)
        self.run()
        return self.says[before:]

    def is_verified(self) -> bool:
        """Whether all that was decided follows from the log."""
        found, compared = verified(self.log, PLUGINS)
        return not found and compared > 0


def restarts(cell: Doors) -> None:
    cell.crash()


def goes_on(_: Doors) -> None:
    pass


meanwhile = pytest.mark.parametrize("meanwhile", [goes_on, restarts])


@meanwhile
def test_a_pod_is_bound_when_it_is_let_go(meanwhile: Callable[[Doors], None]) -> None:
    """It keeps its place meanwhile, and nobody else gets it; the log has that it waits, and for how long at most."""
    cell = Doors(node("n1", cpu="1"), pod("a"), front="10000", back="30000")
    cell.run()
    (placed,) = cell.says
    assert isinstance(placed, decisions.PodPlaced)
    assert (placed.node, placed.waits_ms) == ("n1", 10_000)
    cell.apply(pod("b"))
    meanwhile(cell)
    cell.later(5_000)
    assert cell.nodes() == {"team/a": "", "team/b": ""}
    cell.say(front="open", back="open")
    meanwhile(cell)
    cell.run()
    assert cell.nodes() == {"team/a": "n1", "team/b": ""}
    assert cell.is_verified()


@meanwhile
@pytest.mark.parametrize(
    ("says", "reason", "message"),
    [
        ("shut", "Unschedulable", "0/1 nodes are available: 1 the door is shut."),
        ("broken", "SchedulerError", 'running Permit plugin "Front": ValueError: no hinges'),
    ],
)
def test_a_pod_that_is_rejected_while_it_waits_loses_its_node(
    meanwhile: Callable[[Doors], None], says: str, reason: str, message: str
) -> None:
    """The reason is that of the plugin, and the pod is tried again after a pause."""
    cell = Doors(node("n1", cpu="1"), pod("a"), front="10000")
    cell.run()
    meanwhile(cell)
    cell.say(front=says)
    withdrawn = cell.later(1)[0]
    assert isinstance(withdrawn, decisions.PodWithdrawn)
    assert (withdrawn.node, withdrawn.reason) == ("n1", reason)
    assert withdrawn.message.startswith(message)
    meanwhile(cell)
    cell.say(front="open")
    cell.later(20_000)
    assert cell.nodes() == {"team/a": "n1"}
    assert cell.is_verified()


@meanwhile
def test_a_pod_has_waited_for_too_long_when_the_first_plugin_says_so(meanwhile: Callable[[Doors], None]) -> None:
    """Each plugin has its own time, counted from the placement, whoever leads the scheduler."""
    cell = Doors(node("n1", cpu="1"), pod("a"), front="90000", back="5000")
    cell.run()
    meanwhile(cell)
    assert cell.later(4_999) == []
    (withdrawn, *_) = cell.later(1)
    assert isinstance(withdrawn, decisions.PodWithdrawn)
    expected = "0/1 nodes are available: 1 rejected due to timeout after waiting 5s at plugin Back."
    assert (withdrawn.reason, withdrawn.message) == ("Unschedulable", expected)
    assert cell.is_verified()


@meanwhile
def test_a_pod_that_the_first_plugin_lets_go_waits_on_for_the_others(meanwhile: Callable[[Doors], None]) -> None:
    """Their time counts from the placement, too."""
    cell = Doors(node("n1", cpu="1"), pod("a"), front="90000", back="5000")
    cell.run()
    cell.say(back="open")
    meanwhile(cell)
    (longer,) = cell.later(5_000)
    assert isinstance(longer, decisions.PodPlaced)
    assert longer.waits_ms == 90_000
    meanwhile(cell)
    assert cell.later(84_999) == []
    (withdrawn, *_) = cell.later(1)
    assert isinstance(withdrawn, decisions.PodWithdrawn)
    assert "after waiting 1m30s at plugin Front" in withdrawn.message
    assert cell.is_verified()


@meanwhile
def test_a_pod_that_waits_and_has_to_go_loses_its_node_and_stays(meanwhile: Callable[[Doors], None]) -> None:
    """It need not be deleted, as no container of it runs: it waits for another node (preemption/executor.go)."""
    cell = Doors(node("n1", cpu="1"), pod("low", priority=1), front="60000")
    cell.run()
    meanwhile(cell)
    cell.apply(pod("high", priority=9))
    events = cell.decide()
    nominated, withdrawn = (
        each for each in events if isinstance(each, decisions.PodNominated | decisions.PodWithdrawn)
    )
    assert isinstance(nominated, decisions.PodNominated)
    assert (nominated.pod, nominated.node, nominated.victims) == ("team/high", "n1", ())
    assert isinstance(withdrawn, decisions.PodWithdrawn)
    assert (withdrawn.pod, withdrawn.message) == ("team/low", "0/1 nodes are available: 1 preempted.")
    cell.say(front="open")
    cell.run()
    assert cell.nodes() == {"team/high": "n1", "team/low": ""}
    assert cell.is_verified()


def test_a_pod_whose_volume_is_being_bound_loses_its_node_and_stays() -> None:
    """What was written for it is not taken back; its next attempt finds it."""
    cell = Doors(STORAGE_CLASS, CLAIM, VOLUME, node("n1", cpu="1"), with_volume("low"))
    cell.run()
    assert cell.state.placements[PodKey("team/low")].is_waiting
    cell.apply(pod("high", priority=9))
    cell.run()
    assert cell.nodes() == {"team/high": "n1", "team/low": ""}
    (withdrawn,) = (event for event in cell.says if isinstance(event, decisions.PodWithdrawn))
    assert (withdrawn.reason, withdrawn.message) == ("SchedulerError", "preempted by DefaultPreemption")
    assert cell.is_verified()
