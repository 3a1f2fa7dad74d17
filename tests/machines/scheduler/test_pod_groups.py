"""The scheduler's machine decides the pods of a PodGroup together: all or none of a gang."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.verification.test_placements import verified
from tests.support.placements import PlacementCell, node, pod

from headgate.core.state.tables import PodGroupRecord
from headgate.events import decisions
from headgate.events.ids import Uid
from headgate.events.registry import Event

Json = dict[str, Any]

SHORT = "waiting for minCount pods from a gang to be scheduled, one or more plugins asked to wait and no plugin"
RACK = "example.com/rack"


def group(count_min: int = 0, name: str = "gang", *, key: str = "") -> Json:
    """A PodGroup with a gang policy, or (0) the basic one, and a topology constraint if there is a key."""
    policy: Json = {"gang": {"minCount": count_min}} if count_min else {"basic": {}}
    constraints = {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}
    return {
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
        "spec": {"schedulingPolicy": policy, **constraints},
    }


def member(name: str, cpu: str = "1", of: str = "gang", **spec: Any) -> Json:
    """A pod of the group."""
    return pod(name, cpu=cpu, schedulingGroup={"podGroupName": of}, **spec)


def members(count: int, cpu: str = "1", **spec: Any) -> list[Json]:
    """Some equal pods of the group."""
    return [member(f"p{number}", cpu=cpu, **spec) for number in range(count)]


def placed(cell: PlacementCell) -> dict[str, str]:
    """The pods that have a node."""
    return {name.removeprefix("team/"): where for name, where in cell.nodes().items() if where}


def recorded(cell: PlacementCell) -> list[Event]:
    """What was decided, without attempts of which nothing but their number is new."""
    return [event for event in cell.says if not isinstance(event, decisions.PodTried)]


# --- before the queue ----------------------------------------------------------------------------------------------


def test_pods_wait_until_their_group_exists() -> None:
    """No attempt is made, so nothing is recorded; the group brings them back."""
    cell = PlacementCell(node("n1"), *members(2))
    cell.run()
    assert not cell.says
    cell.apply(group(2))
    cell.run()
    assert placed(cell) == {"p0": "n1", "p1": "n1"}


def test_pods_wait_until_there_are_min_count_of_them() -> None:
    """The pod that completes the gang brings the others back."""
    cell = PlacementCell(node("n1"), group(3), *members(2))
    cell.run()
    assert not cell.says
    cell.apply(member("p9"))
    cell.run()
    assert set(placed(cell)) == {"p0", "p1", "p9"}


def test_pods_with_scheduling_gates_count_as_members() -> None:
    """They exist; but the gang is not placed without them."""
    cell = PlacementCell(node("n1"), group(2), member("a"), member("b", schedulingGates=[{"name": "later"}]))
    cell.run()
    assert placed(cell) == {}
    assert cell.verdict("team/a").startswith(SHORT)
    cell.apply(member("b"))
    cell.run()
    cell.sleep()
    assert set(placed(cell)) == {"a", "b"}


def test_pods_of_no_group_are_placed_by_themselves() -> None:
    """A gang that waits keeps nobody else waiting."""
    cell = PlacementCell(node("n1", cpu="2"), group(3), *members(3), pod("single"))
    cell.run()
    assert placed(cell) == {"single": "n1"}


# --- all or none ---------------------------------------------------------------------------------------------------


def test_a_gang_is_placed_in_one_commit() -> None:
    """First what was tried, then each pod: no commit has a part of the gang."""
    cell = PlacementCell(node("n1"), group(3), *members(3))
    events = cell.decide()
    assert [type(event) for event in events] == [decisions.PodGroupTried] + 3 * [decisions.PodPlaced]
    tried = events[0]
    assert isinstance(tried, decisions.PodGroupTried)
    assert (tried.group, tried.pods) == ("team/gang", ("team/p0", "team/p1", "team/p2"))
    assert (tried.scheduled, tried.reason, tried.message) == (True, "Scheduled", "")


def test_none_of_a_gang_is_placed_while_the_rest_does_not_fit() -> None:
    """Those that would fit say what they wait for, the others why they do not; nothing of the nodes is taken."""
    cell = PlacementCell(node("n1", cpu="2"), group(3), *members(3))
    cell.run()
    assert placed(cell) == {}
    assert cell.verdict("team/p0") == f"{SHORT} rejected pod"
    assert cell.verdict("team/p1") == cell.verdict("team/p0")
    assert cell.verdict("team/p2").startswith("0/1 nodes are available: 1 Insufficient cpu. ")
    assert cell.state.pod_groups["team/gang"] == PodGroupRecord(uid=Uid("uid-gang"), reason="Unschedulable")
    cell.apply(pod("other", cpu="2"))
    cell.run()
    assert placed(cell) == {"other": "n1"}


def test_a_gang_that_did_not_fit_is_tried_again_after_a_pause() -> None:
    """Events do not bring it back before; the same verdicts are not recorded twice."""
    cell = PlacementCell(node("n1", cpu="2"), group(3), *members(3))
    cell.run()
    said = len(recorded(cell))
    cell.sleep()
    assert len(recorded(cell)) == said
    cell.apply(node("n2", cpu="1"))
    cell.run()
    assert placed(cell) == {}
    cell.sleep()
    assert set(placed(cell)) == {"p0", "p1", "p2"}


def test_pods_beyond_min_count_are_placed_as_far_as_they_fit() -> None:
    """A gang of three with two needed: the third waits for itself, and the group counts as placed."""
    cell = PlacementCell(node("n1", cpu="2"), group(2), *members(3))
    cell.run()
    assert set(placed(cell)) == {"p0", "p1"}
    assert cell.verdict("team/p2").startswith("0/1 nodes are available: 1 Insufficient cpu. ")
    assert cell.state.pod_groups["team/gang"].scheduled
    cell.sleep()
    assert cell.state.pod_groups["team/gang"].scheduled


def test_pods_that_have_a_node_count_for_the_gang() -> None:
    """One that is replaced is placed alone."""
    cell = PlacementCell(node("n1", cpu="2"), group(2), *members(2))
    cell.run()
    cell.delete("pods", "team/p1")
    cell.apply(member("again"))
    cell.run()
    assert set(placed(cell)) == {"p0", "again"}


def test_a_group_with_the_basic_policy_places_what_fits() -> None:
    """Nobody waits for the others."""
    cell = PlacementCell(node("n1", cpu="2"), group(), *members(3))
    cell.run()
    assert len(placed(cell)) == 2


def test_pods_of_a_group_are_tried_by_priority() -> None:
    """Then in the order in which they were tried first."""
    cell = PlacementCell(node("n1"), group(2), member("a", priority=1), member("b", priority=5))
    tried = cell.decide()[0]
    assert isinstance(tried, decisions.PodGroupTried)
    assert tried.pods == ("team/b", "team/a")


def test_pods_of_a_group_have_to_name_one_scheduler() -> None:
    """Each of them says so, as an error."""
    cell = PlacementCell(node("n1"), group(2), member("a"), member("b", schedulerName="second"), configuration=TWO)
    cell.run()
    assert placed(cell) == {}
    text = 'should have the same .spec.schedulerName set, got: "headgate" and "second"'
    assert cell.verdict("team/a").endswith(text)
    assert cell.state.pod_groups["team/gang"].reason == "SchedulerError"


TWO = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "headgate"}, {"schedulerName": "second"}],
}


# --- preemption ----------------------------------------------------------------------------------------------------


def test_a_gang_displaces_others_if_it_then_fits_whole() -> None:
    """All its pods are nominated, and get their nodes once the victims are gone."""
    low = [pod(f"low{number}", priority=1) for number in range(2)]
    cell = PlacementCell(node("n1", cpu="1"), node("n2", cpu="1"), *low)
    cell.run()
    cell.apply(group(2), *members(2, priority=9))
    events = cell.decide()
    nominated = [event for event in events if isinstance(event, decisions.PodNominated)]
    assert {(event.pod, event.node) for event in nominated} == {("team/p0", "n1"), ("team/p1", "n2")}
    assert {victim.pod for event in nominated for victim in event.victims} == {"team/low0", "team/low1"}
    assert cell.state.pod_groups["team/gang"].message == "pod group is waiting for preemption to complete"
    cell.run()
    cell.sleep()
    assert set(placed(cell)) == {"p0", "p1"}


def test_a_gang_that_would_not_fit_even_so_displaces_nobody() -> None:
    """No victim goes for nothing."""
    cell = PlacementCell(node("n1", cpu="1"), pod("low", priority=1))
    cell.run()
    cell.apply(group(2), *members(2, priority=9))
    cell.run()
    assert placed(cell) == {"low": "n1"}
    assert not any(isinstance(event, decisions.PodNominated) for event in cell.says)


def test_pods_that_fit_are_nominated_while_the_gang_waits_for_victims() -> None:
    """Nobody of lower priority takes their place meanwhile."""
    cell = PlacementCell(node("n1", cpu="1"), node("n2", cpu="1"), pod("low", priority=1))
    cell.run()
    free = {"n1", "n2"} - {placed(cell)["low"]}
    cell.apply(group(2), *members(2, priority=9))
    events = cell.decide()
    assert {event.node for event in events if isinstance(event, decisions.PodNominated)} >= free
    assert "pod group is waiting for preemption to complete" in {cell.verdict("team/p0"), cell.verdict("team/p1")}


# --- topology ------------------------------------------------------------------------------------------------------


def racks(*sizes: int) -> list[Json]:
    """Nodes for one pod each: so many in each rack."""
    return [
        node(f"r{rack}-{number}", cpu="1", labels={RACK: f"r{rack}"})
        for rack, size in enumerate(sizes)
        for number in range(size)
    ]


def test_a_gang_with_a_topology_constraint_goes_to_one_domain() -> None:
    """The one that has room for all of it, though others have nodes that are as good."""
    cell = PlacementCell(*racks(1, 3, 2), group(3, key=RACK), *members(3))
    cell.run()
    assert set(placed(cell).values()) == {"r1-0", "r1-1", "r1-2"}


def test_a_gang_that_fits_in_no_domain_is_not_placed() -> None:
    """The condition of the group says in how many it was tried."""
    cell = PlacementCell(*racks(2, 2), group(3, key=RACK), *members(3))
    cell.run()
    assert placed(cell) == {}
    message = "0/2 placements are available, first placement status: pod group is unschedulable"
    assert cell.state.pod_groups["team/gang"].message == message


def test_later_pods_of_a_gang_go_to_the_domain_of_the_others() -> None:
    """However much room there is elsewhere."""
    cell = PlacementCell(*racks(2), group(2, key=RACK), *members(2))
    cell.run()
    cell.apply(*(node(f"r5-{number}", cpu="1", labels={RACK: "r5"}) for number in range(3)), member("late"))
    cell.run()
    assert set(placed(cell)) == {"p0", "p1"}
    cell.apply(node("r0-9", cpu="1", labels={RACK: "r0"}))
    cell.sleep()
    assert placed(cell)["late"] == "r0-9"


def test_the_domain_that_takes_most_pods_is_chosen() -> None:
    """Of two that have room for the gang."""
    cell = PlacementCell(*racks(2, 3), group(2, key=RACK), *members(3))
    cell.run()
    assert set(placed(cell).values()) == {"r1-0", "r1-1", "r1-2"}


def test_of_domains_that_take_as_many_the_fuller_one_is_chosen() -> None:
    """So that the others stay free for larger gangs."""
    cell = PlacementCell(*racks(3, 2), group(2, key=RACK), *members(2))
    cell.run()
    assert set(placed(cell).values()) == {"r1-0", "r1-1"}


def test_a_gang_with_a_topology_constraint_displaces_nobody() -> None:
    """As in the kube-scheduler."""
    cell = PlacementCell(*racks(1), pod("low", priority=1))
    cell.run()
    cell.apply(group(1, key=RACK), member("high", priority=9))
    cell.run()
    assert placed(cell) == {"low": "r0-0"}
    assert "not eligible due to placement-based pod group scheduling limitation" in cell.verdict("team/high")


# --- what holds of every run ---------------------------------------------------------------------------------------


def test_a_restarted_scheduler_goes_on_with_a_gang() -> None:
    """What the log has of it is what it decides on."""
    cell = PlacementCell(node("n1", cpu="2"), group(3), *members(3))
    cell.run()
    cell.crash()
    cell.apply(node("n2", cpu="1"))
    cell.run()
    cell.sleep()
    assert set(placed(cell)) == {"p0", "p1", "p2"}


@pytest.mark.parametrize("key", ["", RACK])
def test_replay_decides_gangs_again(key: str) -> None:
    """What did not fit, what waited for victims, and what was placed: every event is compared."""
    cell = PlacementCell(*racks(2, 2), *(pod(f"low{number}", priority=1) for number in range(2)))
    cell.run()
    cell.apply(group(3, key=key), *members(3, priority=9))
    cell.run()
    cell.apply(node("r0-8", cpu="1", labels={RACK: "r0"}), node("r0-9", cpu="1", labels={RACK: "r0"}))
    cell.sleep()
    cell.apply(group(2, "basic"), *(member(f"b{number}", of="basic") for number in range(2)))
    cell.run()
    cell.sleep()
    found, compared = verified(cell.log)
    assert found == []
    assert compared == len(recorded(cell))
    assert any(isinstance(event, decisions.PodGroupTried) and event.scheduled for event in cell.says)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.integers(0, 4), st.integers(1, 3)),
        st.tuples(st.just("no node"), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("pod"), st.integers(0, 5), st.integers(0, 2)),
        st.tuples(st.just("single"), st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("crash"), st.just(0), st.just(0)),
        st.tuples(st.just("sleep"), st.just(0), st.just(0)),
    ),
    min_size=3,
    max_size=14,
)


@settings(deadline=None, max_examples=60)
@given(count_min=st.integers(1, 4), key=st.sampled_from(["", RACK]), drawn=steps)
def test_never_some_but_less_than_min_count_pods_of_a_gang_are_placed(
    count_min: int, key: str, drawn: list[tuple[str, int, int]]
) -> None:
    """Whatever comes and goes, each commit leaves none or minCount pods of the gang with a node."""
    cell = PlacementCell(group(count_min, key=key))
    for what, number, size in drawn:
        match what:
            case "node":
                cell.apply(node(f"n{number}", cpu=str(size), labels={RACK: str(number % 2)}))
            case "no node" if f"n{number}" in cell.state.objects.get("nodes", {}):
                if not any(where == f"n{number}" for where in cell.nodes().values()):
                    cell.delete("nodes", f"n{number}")
            case "pod" if f"team/m{number}" not in cell.state.objects.get("pods", {}):
                cell.apply(member(f"m{number}", priority=size))
            case "single" if f"team/s{number}" not in cell.state.objects.get("pods", {}):
                cell.apply(pod(f"s{number}"))
            case "crash":
                cell.crash()
            case "sleep" if cell.wake_at is not None:
                cell.sleep()
            case _:
                pass
        cell.run()
        gang = [name for name in placed(cell) if name.startswith("m")]
        assert not gang or len(gang) >= count_min
    found, _ = verified(cell.log)
    assert found == []
