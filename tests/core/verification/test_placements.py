"""Replay decides placements again: a run agrees with itself, and whatever was changed in its record is found."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.machines.scheduler.test_placement_claims import held_elsewhere
from tests.support.logs import TestLog
from tests.support.placements import PlacementCell, node, pod
from tests.support.volumes import CLAIM, STORAGE_CLASS, VOLUME, bind_volume, with_volume

from headgate.core import fold
from headgate.core.log.rules_version import RULES
from headgate.core.placement.configuration.profiles import Registry
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.core.verification.check import ReplayDifference
from headgate.core.verification.placements import PlacementCheck
from headgate.core.verification.replay import Plan, Replay
from headgate.events import decisions, effects
from headgate.events.base import Producer
from headgate.events.ids import PodKey, Uid
from headgate.events.registry import Event


def verified(log: TestLog, registry: Registry = REGISTRY) -> tuple[list[ReplayDifference], int]:
    """What replay finds in a log, and how many placements it has compared."""
    plan = Plan((PlacementCheck(registry),))
    for logged in log.commits:
        plan.feed(logged)
    replay = Replay(fold.new_state("main"), plan, None)
    for logged in log.commits:
        replay.feed(logged)
    result = replay.result()
    return list(result.differences), result.compared["placements"]


def retold(log: TestLog, change: Callable[[Event], Event]) -> TestLog:
    """The same log with some events changed."""
    other = TestLog()
    for logged in log.commits:
        other.now_ms = logged.commit.time_ms
        events = [change(event) for event in logged.commit.events]
        other.append(logged.commit.producer, *events, decided_at=logged.commit.decided_at)
    return other


def whole_life() -> PlacementCell:
    """Pods that are placed, wait, displace others, and wait for a volume; a refusal, and a restart in between."""
    cell = PlacementCell(
        STORAGE_CLASS, CLAIM, VOLUME, *(node(f"n{number}", cpu="2") for number in range(4)), with_volume("volume")
    )
    cell.apply(*(pod(f"low{number}", cpu="1500m", priority=1) for number in range(3)))
    cell.decide()
    cell.refuse("team/low1")
    cell.run()
    bind_volume(cell)
    cell.run()
    cell.sleep()
    cell.apply(pod("high", cpu="2", priority=9), pod("never", cpu="9"), pod("odd", cpu="-1"))
    cell.decide()
    cell.crash()
    cell.run()
    cell.apply(node("n9", cpu="10"), pod("odd"))
    cell.run()
    assert "" not in cell.nodes().values()
    return cell


def test_a_run_agrees_with_itself() -> None:
    """Every decision is compared: of pods that got a node, that waited, that displaced others and were prepared."""
    cell = whole_life()
    found, compared = verified(cell.log)
    assert found == []
    assert compared == sum(not isinstance(event, decisions.PodTried) for event in cell.says)
    assert compared < len(cell.says)
    assert {type(event) for event in cell.says} >= {
        decisions.PodPlaced,
        decisions.PodUnschedulable,
        decisions.PodNominated,
        decisions.PodPrepared,
    }


def moved(event: decisions.PodPlaced) -> Event:
    return replace(event, node="n2" if event.node != "n2" else "n3")


def spared(event: decisions.PodNominated) -> Event:
    return replace(event, victims=())


def reworded(event: decisions.PodUnschedulable) -> Event:
    return replace(event, message="because")


@pytest.mark.parametrize("change", [moved, spared, reworded])
def test_what_was_changed_in_the_record_is_found(change: Callable[..., Event]) -> None:
    """Another node, other victims, another reason: replay says what was decided instead."""
    kind = next(iter(change.__annotations__.values()))
    cell = PlacementCell(*(node(f"n{number}", cpu="1") for number in range(4)))
    cell.apply(*(pod(f"low{number}", priority=1) for number in range(4)))
    cell.run()
    cell.apply(pod("high", priority=9))
    cell.decide()
    number = [type(event) for event in cell.says].index(kind)
    target = cell.says[number]
    assert verified(cell.log)[0] == []
    found, _ = verified(retold(cell.log, lambda event: change(event) if event == target else event))
    assert found[0].what.startswith(f"what was decided about pod {target.pod}")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("rules", "found"), [(1, []), (RULES[Producer.BINDER], ["what the binder says for the scheduler"])]
)
def test_the_binder_may_have_placed_pods_by_its_former_rules(rules: int, found: list[str]) -> None:
    """Such placements are no difference, and not decided again; of later rules they are one."""
    log = TestLog()
    log.append(Producer.BINDER, effects.LeaderElected(holder="one", rules=rules))
    log.append(Producer.BINDER, decisions.PodPlaced(pod=PodKey("team/a"), uid=Uid("uid-a"), node="n1"))
    log.append(Producer.BINDER, effects.PodBound(pod=PodKey("team/a"), uid=Uid("uid-a"), node="n1"))
    differences, compared = verified(log)
    assert [each.what for each in differences] == found
    assert compared == 0


def test_a_placement_that_no_state_gave_is_found() -> None:
    """It names no position at which the scheduler has decided."""
    cell = PlacementCell(node("n1"), pod("a", schedulerName="another"))
    cell.log.append(Producer.SCHEDULER, decisions.PodPlaced(pod=PodKey("team/a"), uid=Uid("uid-a"), node="n1"))
    ((difference,), _) = verified(cell.log)
    assert difference.replayed == "nothing"


def test_what_is_written_to_help_a_pod_is_decided_again() -> None:
    """A claim that is given back: each verdict that asks for it, and none that does not."""
    cell = held_elsewhere()
    cell.run()
    cell.sleep()
    assert cell.nodes() == {"team/p": "n2"}
    found, compared = verified(cell.log)
    assert found == []
    assert compared == sum(not isinstance(event, decisions.PodTried) for event in cell.says)

    def kept(event: Event) -> Event:
        return replace(event, writes=()) if isinstance(event, decisions.PodUnschedulable) else event

    found, _ = verified(retold(cell.log, kept))
    assert found[0].what.startswith("what was decided about pod team/p")
