"""The scheduler's machine places pods: from the first attempt to the binding, whatever comes between."""

import pytest
from tests.support.placements import CONFIGURATION, PlacementCell, node, pod
from tests.support.volumes import CLAIM, STORAGE_CLASS, VOLUME, bind_volume, with_volume

from headgate.core.state.attribution import ObjectFailedError
from headgate.events import decisions, effects
from headgate.events.base import Producer
from headgate.events.ids import PodKey, Uid, UnixMs


def test_a_pod_gets_a_node_and_is_bound() -> None:
    """The log has the choice, and the object shows it in the end; then nothing is recorded any more."""
    cell = PlacementCell(node("n1"), pod("a"))
    cell.run()
    assert cell.nodes() == {"team/a": "n1"}
    assert [type(event) for event in cell.says] == [decisions.PodPlaced]
    assert not cell.state.placements


def test_pods_of_other_schedulers_are_left_alone() -> None:
    """Only those that name a profile are placed."""
    cell = PlacementCell(node("n1"), pod("a", schedulerName="default-scheduler"))
    cell.run()
    assert not cell.says


def test_what_one_pod_of_a_commit_takes_the_next_one_lacks() -> None:
    """All are decided in one commit, each on what those before it leave."""
    cell = PlacementCell(node("n1", cpu="2"), *(pod(name) for name in "abc"))
    events = cell.decide()
    placed = [event.pod for event in events if isinstance(event, decisions.PodPlaced)]
    assert placed == ["team/a", "team/b"]
    assert cell.verdict("team/c").startswith("0/1 nodes are available: 1 Insufficient cpu. ")


def test_a_node_that_appears_wakes_the_pods_that_it_may_help() -> None:
    """The verdict is recorded once, however often the pod is tried."""
    cell = PlacementCell(node("n1", cpu="1"), pod("a", cpu="2"))
    cell.run()
    assert [type(event) for event in cell.says] == [decisions.PodUnschedulable]
    cell.apply(node("n2", cpu="1"))
    cell.run()
    assert cell.nodes() == {"team/a": ""}
    cell.apply(node("n3", cpu="2"))
    cell.run()
    assert cell.nodes() == {"team/a": "n3"}
    assert not cell.state.placements


def test_a_refused_binding_brings_the_pod_back_after_a_pause() -> None:
    """Its place is free meanwhile for others, and it is tried again when its pause is over."""
    cell = PlacementCell(node("n1", cpu="1"), pod("a"))
    cell.decide()
    cell.refuse("team/a")
    assert cell.decide() == []
    assert cell.wake_at is not None
    assert cell.wake_at > cell.log.now_ms
    cell.sleep()
    assert cell.nodes() == {"team/a": "n1"}


def test_a_pod_of_higher_priority_displaces_one_of_lower() -> None:
    """It is nominated, its victim goes, and it gets the node; the nomination is over then."""
    cell = PlacementCell(node("n1", cpu="1"), pod("low", priority=1))
    cell.run()
    cell.apply(pod("high", priority=9))
    events = cell.decide()
    assert [type(event) for event in events] == [decisions.PodUnschedulable, decisions.PodNominated]
    nominated = events[1]
    assert isinstance(nominated, decisions.PodNominated)
    assert (nominated.node, [each.pod for each in nominated.victims]) == ("n1", ["team/low"])
    cell.run()
    assert cell.nodes() == {"team/high": "n1"}
    assert not cell.state.placements


def test_a_victim_that_stays_lets_the_pod_try_again() -> None:
    """The API server did not let the victim go: the pod that needs its place is not forgotten."""
    cell = PlacementCell(node("n1", cpu="1"), pod("low", priority=1))
    cell.run()
    cell.apply(pod("high", priority=9))
    cell.decide()
    cell.log.append(
        Producer.BINDER,
        effects.PodPreemptionRejected(
            pod=PodKey("team/low"), uid=Uid("uid-low"), by=PodKey("team/high"), code=429, reason="", message="no"
        ),
    )
    assert cell.decide() == []
    cell.sleep()
    assert cell.nodes() == {"team/high": "n1"}


def test_a_pod_waits_for_its_volume_and_is_bound_then() -> None:
    """The volume is claimed, the claim bound by the controller, the pod prepared, and only then bound."""
    cell = PlacementCell(STORAGE_CLASS, CLAIM, VOLUME, node("n1"), with_volume("a"))
    cell.run()
    assert cell.object("persistentvolumes", "disk")["spec"]["claimRef"]["name"] == "data"
    assert cell.nodes() == {"team/a": ""}
    bind_volume(cell)
    cell.run()
    assert cell.nodes() == {"team/a": "n1"}
    assert [type(event) for event in cell.says] == [decisions.PodPlaced, decisions.PodPrepared]


def test_a_pod_whose_volume_does_not_come_is_withdrawn() -> None:
    """After the time that VolumeBinding allows; then it is tried again after a pause."""
    cell = PlacementCell(STORAGE_CLASS, CLAIM, VOLUME, node("n1"), with_volume("a"))
    cell.run()
    cell.log.now_ms = UnixMs(cell.log.now_ms + 600_000)
    events = cell.decide()
    assert [type(event) for event in events] == [decisions.PodWithdrawn]
    assert cell.verdict("team/a").endswith("binding volumes: context deadline exceeded")
    cell.run()
    cell.sleep()
    assert [type(event) for event in cell.says].count(decisions.PodPlaced) == 2


def test_a_configuration_that_cannot_be_used_is_what_fails() -> None:
    """Nothing is placed by it: it is set aside, with the field that is wrong."""
    extender = {"urlPrefix": "extender.example", "bindVerb": "bind"}
    cell = PlacementCell(node("n1"), pod("a"), configuration=CONFIGURATION | {"extenders": [extender]})
    with pytest.raises(ObjectFailedError, match=r"extenders\[0\].urlPrefix: .* is no URL"):
        cell.decide()


# --- after a restart -----------------------------------------------------------------------------------------------


def fails(cell: PlacementCell, times: int) -> None:
    """A pod `big` that fits nowhere is tried so often, each time because it has waited for too long."""
    cell.apply(node("n0", cpu="1"), pod("big", cpu="2"))
    cell.run()
    for _ in range(times - 1):
        cell.log.now_ms = UnixMs(cell.log.now_ms + 400_000)
        cell.run()


def tries_of(cell: PlacementCell, name: str) -> tuple[int, int, int]:
    record = cell.state.placements[PodKey(f"team/{name}")]
    assert record.tries is not None
    return record.tries.attempts, record.tries.failures, record.tries.errors


def pause_ms(cell: PlacementCell) -> int:
    """For how long the scheduler sleeps now, in seconds as those of the queue: they are whole."""
    cell.decide()
    return (cell.wake_at or cell.log.now_ms) - cell.log.now_ms


def test_attempts_with_the_same_result_are_counted_while_they_put_off_the_next_one() -> None:
    """With the default configuration the pauses are 1, 2, 4, 8 and 10 s: the first five failures count."""
    cell = PlacementCell()
    fails(cell, times=8)
    verdicts = [event for event in cell.says if isinstance(event, decisions.PodUnschedulable)]
    tried = [event for event in cell.says if isinstance(event, decisions.PodTried)]
    assert [event.attempts for event in verdicts] == [1]
    assert [(event.attempts, event.failures, event.errors) for event in tried] == [
        (number, number, 0) for number in (2, 3, 4, 5)
    ]
    assert tries_of(cell, "big") == (5, 5, 0)


@pytest.mark.parametrize("refusals", [1, 2, 3, 4])
def test_a_restarted_scheduler_waits_as_the_dead_one_would_have(refusals: int) -> None:
    """Whenever it is killed: the pause after a refused binding is as long as it was, and ends at the same time."""
    cell = PlacementCell(node("n1", cpu="1"), pod("a"))
    for number in range(refusals):
        cell.decide()
        cell.refuse("team/a")
        until_ms = pause_ms(cell) + cell.log.now_ms
        cell.crash()
        assert pause_ms(cell) + cell.log.now_ms == until_ms
        assert tries_of(cell, "a") == (number + 1, 0, number + 1)
        cell.log.now_ms = UnixMs(until_ms)
    cell.run()
    assert cell.nodes() == {"team/a": "n1"}
    (*_, last) = (event for event in cell.says if isinstance(event, decisions.PodPlaced))
    assert last.attempts == refusals + 1


def test_a_pod_that_was_rejected_backs_off_after_a_restart_too() -> None:
    """Pods that need not wait go before it; its attempts are counted on, and all is as without the restart."""
    attempts = []
    for is_killed in (False, True):
        cell = PlacementCell()
        fails(cell, times=3)
        if is_killed:
            cell.crash()
        cell.apply(node("n1", cpu="3"), pod("new", cpu="2"))
        cell.run()
        assert cell.nodes() == {"team/big": "", "team/new": "n1"}
        cell.apply(node("n2", cpu="2"))
        cell.run()
        placed = cell.says[-1]
        assert isinstance(placed, decisions.PodPlaced)
        assert (placed.pod, placed.node) == ("team/big", "n2")
        attempts.append(placed.attempts)
    assert attempts[0] == attempts[1] > 4


def test_the_order_of_pods_survives_a_restart() -> None:
    """Those that wait longer go first, and those that have not been tried in the order in which they were made."""
    cell = PlacementCell(node("n1", cpu="1"), pod("z", cpu="2"))
    cell.run()
    cell.log.now_ms = UnixMs(cell.log.now_ms + 60_000)
    cell.apply(pod("y", cpu="2"))
    cell.run()
    cell.log.now_ms = UnixMs(cell.log.now_ms + 60_000)
    made = {"x": "2033-05-18T03:33:20Z", "w": "2033-05-18T03:33:21Z"}
    late = [pod(name, cpu="2") for name in ("w", "x")]
    for each in late:
        each["metadata"]["creationTimestamp"] = made[each["metadata"]["name"]]
    cell.log.now_ms = UnixMs(2_000_000_000_000 + 60_000)
    cell.apply(*late, node("n2", cpu="9"))
    cell.crash()
    placed = [event.pod for event in cell.decide() if isinstance(event, decisions.PodPlaced)]
    assert placed == ["team/z", "team/y", "team/x", "team/w"]


def test_the_next_scan_begins_where_the_last_one_ended() -> None:
    """Of more than a hundred nodes not all are looked at; a restarted scheduler goes on with the next ones."""
    cells = [PlacementCell(*(node(f"n{number:03}") for number in range(300))) for _ in range(2)]
    for number, cell in enumerate(cells):
        for name in "abcde":
            cell.apply(pod(name))
            cell.run()
            if number:
                cell.crash()
    starts = [[event.scan_start for event in cell.says if isinstance(event, decisions.PodPlaced)] for cell in cells]
    assert starts[0] == starts[1]
    assert len({*starts[0]}) > 1
    assert cells[0].nodes() == cells[1].nodes()


# --- pods that cannot be read --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpu", "why"),
    [("some", "'some' is not a quantity: write e.g. 500m, 2, 4Gi or 1e3"), ("-1", "'-1' is negative: write 0 or more")],
)
def test_a_pod_that_cannot_be_read_is_told_why_once(cpu: str, why: str) -> None:
    """The message names the pod, the field and the remedy; the pod is placed when it is changed."""
    cell = PlacementCell(node("n1"), pod("a", cpu=cpu), pod("b", cpu="3"))
    cell.run()
    assert cell.verdict("team/a") == f"pod team/a: spec.containers[0].resources.requests[cpu]: {why}"
    assert cell.state.placements[PodKey("team/a")].verdict.reason == "SchedulerError"  # type: ignore[union-attr]
    assert cell.nodes() == {"team/a": "", "team/b": "n1"}
    said = len(cell.says)
    cell.apply(pod("a", cpu=cpu, hostNetwork=True))
    cell.crash()
    cell.run()
    assert len(cell.says) == said
    cell.apply(pod("a", cpu="1"))
    cell.run()
    assert cell.nodes()["team/a"] == "n1"
    assert cell.verdict("team/a") == ""


def test_a_pod_that_cannot_be_read_any_more_leaves_the_queue() -> None:
    """It is told why in place of what it was told before; what else cannot be read is another's."""
    cell = PlacementCell(node("n1"), pod("a", cpu="9"))
    cell.run()
    cell.apply(pod("a", cpu="nine"))
    cell.run()
    assert "'nine' is not a quantity" in cell.verdict("team/a")
    others = (pod("o", cpu="x", schedulerName="other"), pod("r", cpu="x", nodeName="n1"))
    cell.apply(*others, node("n2", cpu="9"))
    said = len(cell.says)
    cell.run()
    assert len(cell.says) == said
    cell.log.now_ms = UnixMs(cell.log.now_ms + 600_000)
    cell.run()
    assert len(cell.says) == said


def test_many_pods_that_cannot_be_read_get_their_verdicts_a_few_at_a_time() -> None:
    """No commit has more than those of so many attempts."""
    cell = PlacementCell(node("n1"), *(pod(f"p{number:03}", cpu="x") for number in range(600)))
    sizes = []
    while events := cell.decide():
        sizes.append(len(events))
    assert (sum(sizes), max(sizes)) == (600, 256)
