"""What a cycle did not admit: how it waits, and what wakes it, no more and no less."""

from typing import get_args

import msgspec
import pytest
from tests.support.queueing import QueueCell

from headgate.core.audit.invariants import forgotten
from headgate.core.state.tables import Stage
from headgate.events import facts
from headgate.events.base import Producer
from headgate.events.configuration import Configuration, FairSharingConfiguration, WakePolicyName
from headgate.events.decisions import QuotaReserved
from headgate.events.ids import Seq, WorkloadKey
from headgate.events.objects import Admission, Condition, LabelSelector, Preemption
from headgate.events.queueing import (
    Head,
    HeadsOffered,
    ObjectChanged,
    QuotaFreed,
    WorkloadFinished,
    WorkloadParked,
    WorkloadQueued,
    WorkloadWoken,
)
from headgate.machines.queue_manager.draft import Draft
from headgate.machines.queue_manager.offering import OFFER_DEPTH

each_policy = pytest.mark.parametrize("policy", get_args(WakePolicyName))

A, B, C = WorkloadKey("team/a"), WorkloadKey("team/b"), WorkloadKey("team/c")


@pytest.fixture(params=[False, True], ids=["steady", "crashing"])
def cell(request: pytest.FixtureRequest) -> QueueCell:
    """With one queue manager, and with one that is recreated from the state before each decision."""
    return QueueCell(crashes=request.param)


def running(cell: QueueCell, name: str = "running", **more: str) -> WorkloadKey:
    """An admitted workload without a job, to be finished later."""
    key = cell.submit(name, **more)
    cell.settle()
    cell.admit(key)
    cell.settle()
    return key


def finish(cell: QueueCell, key: WorkloadKey) -> None:
    cell.submit(key.partition("/")[2], finished=Condition(type="Finished", status="True", reason="Succeeded"))


def test_a_shape_that_does_not_fit_sleeps_as_one(cell: QueueCell) -> None:
    """One verdict, one event: its like go to sleep with it, offered or not, now or later; another shape continues."""
    cell.ready()
    running(cell)
    for number in range(30):
        cell.submit(f"w{number:02}", created_s=number)
    cell.submit("other", created_s=99, cpu="2")
    cell.settle()
    cell.skip(WorkloadKey("team/w00"), "shape")
    said = cell.settle()
    assert [type(event) for event in said] == [WorkloadParked, HeadsOffered]
    assert cell.offers() == ["other"]
    cell.submit("late", created_s=100)
    assert [type(event) for event in cell.settle()] == [WorkloadQueued]
    assert cell.offers() == ["other"]
    assert forgotten(cell.state, settled=True) == []


def test_freed_quota_wakes_a_shape_with_one_event(cell: QueueCell) -> None:
    """The finish of what held the quota wakes all of the shape, and the first of them are offered with it."""
    cell.ready()
    held = running(cell)
    for number in range(30):
        cell.submit(f"w{number:02}", created_s=number)
    cell.settle()
    cell.skip(WorkloadKey("team/w00"), "shape")
    cell.settle()
    finish(cell, held)
    said = cell.settle()
    assert [type(event) for event in said] == [WorkloadFinished, WorkloadWoken, HeadsOffered]
    woken = said[1]
    assert isinstance(woken, WorkloadWoken)
    assert (woken.workload, woken.scope, woken.by) == (
        "team/w00",
        "shape",
        "quota of default/cpu freed in ClusterQueue/cq",
    )
    assert woken.by_position == cell.state.freed["ClusterQueue/cq"]["default/cpu"]
    assert len(cell.offers()) == OFFER_DEPTH
    assert cell.offers()[0] == "w00"


def test_only_what_was_short_wakes(cell: QueueCell) -> None:
    """Quota of another flavor-resource, or of another cohort tree, leaves a sleeper asleep."""
    cell.ready()
    cell.cluster_queue("elsewhere")
    cell.local_queue("other", "elsewhere")
    held, away = running(cell), running(cell, "away", queue="other")
    cell.submit("a")
    cell.submit("b", cpu="2", created_s=1)
    cell.settle()
    cell.skip(A, "shape", short=("default/memory",))
    cell.skip(B, "shape")
    cell.settle()
    finish(cell, away)
    assert [type(event) for event in cell.settle()] == [WorkloadFinished]
    finish(cell, held)
    cell.settle()
    assert cell.offers() == ["b"]


def test_quota_freed_in_one_cluster_queue_wakes_its_whole_cohort_tree(cell: QueueCell) -> None:
    """What one gives back another may borrow."""
    cell.ready(cohort="all")
    cell.cluster_queue("lender", cohort="all")
    cell.local_queue("lending", "lender")
    held = running(cell, "held", queue="lending")
    cell.submit("a")
    cell.settle()
    cell.skip(A, "shape")
    cell.settle()
    assert cell.offers() == []
    finish(cell, held)
    cell.settle()
    assert cell.offers() == ["a"]


def test_a_cluster_queue_that_joins_a_cohort_is_tried_again(cell: QueueCell) -> None:
    """It waited for quota of its own; now it may borrow."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    cell.skip(A, "shape")
    cell.settle()
    cell.cluster_queue(cohort="all")
    cell.settle()
    assert cell.offers() == ["a"]


def test_what_was_freed_after_the_cycle_looked_is_not_missed(cell: QueueCell) -> None:
    """The verdict lands after the quota it lacked was freed: it wakes at once, it is never parked."""
    cell.ready()
    held = running(cell)
    cell.submit("a")
    cell.settle()
    looked_at = cell.state.position
    finish(cell, held)
    cell.settle()
    cell.skip(A, "shape", decided_at=looked_at)
    said = cell.settle()
    assert [type(event) for event in said] == [WorkloadWoken, HeadsOffered]
    assert cell.offers() == ["a"]


def test_what_was_freed_between_the_retries_of_one_scan_is_not_missed(cell: QueueCell) -> None:
    """A scan over flavors continues after what it tried; quota freed behind its back wakes when the scan has ended."""
    cell.ready()
    held = running(cell)
    cell.submit("a")
    cell.settle()
    stopped = msgspec.structs.replace(cell.skipped(A, "immediate"), last_tried_flavors=({"cpu": 0},))
    cell.cycle_of(stopped)
    finish(cell, held)
    cell.settle()
    cell.skip(A, "shape")
    said = cell.settle()
    assert [type(event) for event in said] == [WorkloadWoken, HeadsOffered]
    cell.skip(A, "shape")
    assert WorkloadWoken not in [type(event) for event in cell.settle()]


def test_what_was_freed_before_the_cycle_looked_does_not_wake(cell: QueueCell) -> None:
    """The verdict took it into account."""
    cell.ready()
    finish(cell, running(cell))
    cell.settle()
    cell.submit("a")
    cell.settle()
    cell.skip(A, "shape")
    cell.settle()
    assert cell.offers() == []
    assert cell.stage(A) is Stage.QUEUED


def test_what_sleeps_over_a_restart_is_still_awaited(cell: QueueCell) -> None:
    """A new queue manager finds that nothing has come true yet, and continues waiting."""
    cell.ready()
    finish(cell, running(cell, "before"))
    cell.settle()
    held = running(cell)
    cell.submit("a")
    cell.submit("b", created_s=1, cpu="2")
    cell.settle()
    cell.skip(A, "shape")
    cell.settle()
    cell.skip(B, "workload")
    cell.settle()
    cell.restart()
    assert cell.settle() == []
    finish(cell, held)
    cell.settle()
    assert cell.offers() == ["a", "b"]


def test_a_parking_that_lands_on_a_changed_workload_is_void(cell: QueueCell) -> None:
    """The workload is new again: the verdict was about what it used to be."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    cell.skip(A, "shape")
    parking = cell.decide()
    assert parking is not None
    cell.submit("a", cpu="2")
    cell.land(parking)
    assert cell.stage(A) is Stage.NEW
    cell.settle()
    assert cell.offers() == ["a"]


def test_quota_freed_while_the_parking_is_on_its_way_wakes(cell: QueueCell) -> None:
    """Between the decision to park and its landing the quota is freed."""
    cell.ready()
    held = running(cell)
    cell.submit("a")
    cell.settle()
    cell.skip(A, "shape")
    parking = cell.decide()
    finish(cell, held)
    cell.until_rest(parking)
    assert cell.offers() == ["a"]


def test_a_strict_fifo_head_blocks_those_behind_it_only(cell: QueueCell) -> None:
    """Nothing passes it except what ranks higher; when it is woken the order is as before."""
    cell.ready(strategy="StrictFIFO")
    held = running(cell)
    for name, created_s in (("a", 0), ("b", 1), ("c", 2)):
        cell.submit(name, created_s=created_s, cpu=str(created_s + 1))
    cell.settle()
    assert cell.offers() == ["a", "b", "c"]
    cell.skip(A, "queue")
    assert [type(event) for event in cell.settle()] == [WorkloadParked]
    assert cell.offers() == []
    cell.submit("urgent", priority=10, created_s=9)
    cell.settle()
    assert cell.offers() == ["urgent"]
    cell.admit(WorkloadKey("team/urgent"))
    assert cell.settle() == []
    assert forgotten(cell.state, settled=True) == []
    finish(cell, held)
    cell.settle()
    assert cell.offers() == ["a", "b", "c"]


def test_an_arrival_behind_a_blocking_head_is_only_queued(cell: QueueCell) -> None:
    """Nothing is offered that may not go."""
    cell.ready(strategy="StrictFIFO")
    cell.submit("a")
    cell.settle()
    cell.skip(A, "queue")
    cell.settle()
    cell.submit("b", created_s=1)
    assert [type(event) for event in cell.settle()] == [WorkloadQueued]


def test_best_effort_fifo_lets_others_pass(cell: QueueCell) -> None:
    """The same arrival and verdict as above, in a BestEffortFIFO queue."""
    cell.ready()
    for name, created_s in (("a", 0), ("b", 1), ("c", 2)):
        cell.submit(name, created_s=created_s, cpu=str(created_s + 1))
    cell.settle()
    cell.skip(A, "shape")
    cell.settle()
    assert cell.offers() == ["b", "c"]


@pytest.mark.parametrize("leaving", ["deleted", "moved", "deactivated", "finished", "stopped"])
@pytest.mark.parametrize("said", [False, True], ids=["before it is parked", "after it is parked"])
def test_a_blocking_head_that_leaves_blocks_no_longer(cell: QueueCell, leaving: str, said: bool) -> None:
    """However it leaves, before or after the queue manager parked it, the next in line is offered."""
    cell.ready(strategy="StrictFIFO")
    cell.local_queue("other")
    cell.submit("a")
    cell.submit("b", created_s=1, queue="other", cpu="2")
    cell.settle()
    cell.skip(A, "queue")
    if said:
        cell.settle()
    match leaving:
        case "deleted":
            cell.delete(A)
        case "moved":
            cell.submit("a", queue="nowhere")
        case "deactivated":
            cell.submit("a", active=False)
        case "finished":
            finish(cell, A)
        case "stopped":
            cell.local_queue(stop="Hold")
    cell.settle()
    assert cell.offers() == ["b"]
    assert forgotten(cell.state, settled=True) == []


@pytest.mark.parametrize("leaving", ["deleted", "changed", "stopped"])
def test_a_shape_whose_first_is_gone_before_it_was_parked_is_tried_again(cell: QueueCell, leaving: str) -> None:
    """A shape sleeps by a verdict whose workload is gone: no workload of it is lost."""
    cell.ready()
    cell.local_queue("other")
    cell.submit("a")
    cell.submit("b", created_s=1, queue="other")
    cell.settle()
    cell.skip(A, "shape")
    match leaving:
        case "deleted":
            cell.delete(A)
        case "changed":
            cell.submit("a", cpu="3")
        case "stopped":
            cell.local_queue(stop="Hold")
    cell.settle()
    assert "b" in cell.offers()
    assert forgotten(cell.state, settled=True) == []


def test_a_shape_wakes_in_the_name_of_another_when_its_first_is_gone(cell: QueueCell) -> None:
    """The one that was skipped was deleted while its shape slept."""
    cell.ready()
    held = running(cell)
    cell.submit("a")
    cell.submit("b", created_s=1)
    cell.settle()
    cell.skip(A, "shape")
    cell.settle()
    cell.delete(A)
    cell.settle()
    assert cell.offers() == []
    finish(cell, held)
    woken = [event for event in cell.settle() if isinstance(event, WorkloadWoken)]
    assert [event.workload for event in woken] == [B]
    assert cell.offers() == ["b"]


def test_a_namespace_that_does_not_match_waits_for_labels_or_selector(cell: QueueCell) -> None:
    """It is set aside alone; freed quota does not wake it, a namespace's new labels do."""
    cell.ready(namespace_selector=LabelSelector(match_labels={"dept": "x"}))
    held = running(cell)
    cell.submit("a")
    cell.submit("b", created_s=1)
    cell.settle()
    mismatch = {"requeue_reason": "NamespaceMismatch", "reason": "Misconfigured", "short": ()}
    cell.skip(A, "workload", **mismatch)  # type: ignore[arg-type]
    cell.settle()
    assert cell.stage(A) is Stage.PARKED
    assert cell.offers() == ["b"]
    parked = cell[A].parked
    assert parked is not None
    assert parked.wake == (
        ObjectChanged(kind="Namespace", name="team"),
        ObjectChanged(kind="ClusterQueue", name="cq"),
    )
    finish(cell, held)
    cell.settle()
    assert cell.stage(A) is Stage.PARKED
    cell.see(facts.NamespaceObserved(name="team", labels={"dept": "x"}))
    cell.settle()
    assert cell.offers() == ["a", "b"]


def test_a_verdict_that_names_nothing_short_waits_for_anything(cell: QueueCell) -> None:
    """Set aside alone by a verdict without detail: the first thing freed in the tree wakes it."""
    cell.ready()
    held = running(cell)
    cell.submit("a")
    cell.settle()
    cell.skip(A, "workload", short=())
    cell.settle()
    parked = cell[A].parked
    assert parked is not None
    assert parked.wake == (QuotaFreed(tree="ClusterQueue/cq"),)
    finish(cell, held)
    cell.settle()
    assert cell.offers() == ["a"]


def test_an_immediate_skip_keeps_its_place(cell: QueueCell) -> None:
    """The scheduler tries it again in the next cycle; the queue manager has nothing to say."""
    cell.ready()
    cell.submit("a")
    cell.submit("b", created_s=1)
    cell.settle()
    cell.skip(A, "immediate", requeue_reason="FailedAfterNomination")
    assert cell.settle() == []
    assert cell.offers() == ["a", "b"]


def test_a_changed_quota_wakes_everything_in_the_cluster_queue(cell: QueueCell) -> None:
    """A spec change may help any workload, whatever was short."""
    cell.ready(strategy="BestEffortFIFO")
    for name, cpu in (("a", "1"), ("b", "2"), ("c", "3")):
        cell.submit(name, cpu=cpu)
    cell.settle()
    for key, short in ((A, ("default/cpu",)), (B, ("*",)), (C, ("x/gpu",))):
        cell.skip(key, "shape", short=short)
        cell.settle()
    assert cell.offers() == []
    cell.cluster_queue(flavor="default", stop="None", cohort="all")
    cell.settle()
    assert cell.offers() == ["a", "b", "c"]


def test_a_woken_shape_of_higher_rank_takes_the_offers_back(cell: QueueCell) -> None:
    """What wakes goes before what is on offer, when it ranks higher."""
    cell.ready()
    held = running(cell)
    cell.submit("a", priority=5, cpu="4")
    cell.settle()
    cell.skip(A, "shape")
    cell.submit("b", created_s=1)
    cell.settle()
    assert cell.offers() == ["b"]
    finish(cell, held)
    cell.settle()
    assert cell.offers() == ["a", "b"]


def test_a_workload_that_held_nothing_hides_no_freed_quota(cell: QueueCell) -> None:
    """Two finish in one commit; the last had no quota to give back, and the first wakes its own."""
    cell.ready()
    cell.cluster_queue("elsewhere")
    cell.local_queue("other", "elsewhere")
    held, empty = running(cell), cell.submit("empty", queue="other")
    cell.settle()
    workload = cell[empty]
    nothing = QuotaReserved(
        workload=empty,
        uid=workload.uid,
        cluster_queue="elsewhere",
        admission=Admission(cluster_queue="elsewhere"),
        message="",
    )
    cell.cycle_of(nothing, cell.admitted(empty))
    cell.submit("a")
    cell.settle()
    cell.skip(A, "shape")
    cell.settle()
    finish(cell, held)
    finish(cell, empty)
    cell.settle()
    assert cell.offers() == ["a"]


def test_sleepers_that_are_not_concerned_are_not_looked_at() -> None:
    """A thousand shapes sleep for a thousand reasons; freeing one flavor-resource checks one."""
    cell = QueueCell().ready()
    held = running(cell)
    for number in range(1000):
        key = cell.submit(f"w{number:04}", cpu=f"{number + 1}m")
        cell.settle()
        cell.skip(key, "shape", short=(f"flavor-{number}/cpu",))
    special = cell.submit("special", cpu="7")
    cell.settle()
    cell.skip(special, "shape")
    cell.settle()
    checked: list[object] = []
    sleeping = cell.manager._sleeping
    what_sleeps = sleeping._what_sleeps
    sleeping._what_sleeps = lambda sleeper: checked.append(sleeper) or what_sleeps(sleeper)  # type: ignore[func-returns-value, method-assign, redundant-expr]
    finish(cell, held)
    cell.settle()
    assert cell.offers() == ["special"]
    assert len(checked) == 1


# --- enough --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "scope", "wakes"),
    [("BestEffortFIFO", "shape", [HeadsOffered]), ("StrictFIFO", "queue", [WorkloadWoken, HeadsOffered])],
)
def test_freed_quota_wakes_only_when_there_is_enough(
    cell: QueueCell, strategy: str, scope: str, wakes: list[type]
) -> None:
    """Four cpu come free one by one: the first three wake none; with the fourth it is offered."""
    cell.ready(strategy=strategy)
    held = [running(cell, f"r{number}") for number in range(4)]
    cell.submit("a", cpu="4")
    cell.settle()
    cell.skip(A, scope, needs=({"default/cpu": "4"},))
    cell.settle()
    for key in held[:3]:
        finish(cell, key)
        assert [type(event) for event in cell.settle()] == [WorkloadFinished]
        assert forgotten(cell.state, settled=True) == []
    finish(cell, held[3])
    assert [type(event) for event in cell.settle()] == [WorkloadFinished, *wakes]
    assert cell.offers() == ["a"]


ONE_CPU = ({"default/cpu": "1"},)


def a_full_queue(cell: QueueCell) -> list[WorkloadKey]:
    """Four that run have all its cpu; five alike, `w0` to `w4`, sleep. Who runs."""
    cell.ready()
    held = [running(cell, f"r{number}") for number in range(4)]
    for number in range(5):
        cell.submit(f"w{number}", created_s=number)
    cell.settle()
    cell.skip(WorkloadKey("team/w0"), "shape", needs=ONE_CPU)
    cell.settle()
    assert cell.offers() == []
    return held


def test_of_a_sleeping_shape_as_many_are_offered_as_there_is_enough_for(cell: QueueCell) -> None:
    """Two cpu for five that need one: two are offered while the others stay asleep, and every cycle admits."""
    held = a_full_queue(cell)
    for key in held[:2]:
        finish(cell, key)
    assert [type(event) for event in cell.settle()] == [WorkloadFinished, WorkloadFinished, HeadsOffered]
    assert cell.offers() == ["w0", "w1"]
    for name in ("w0", "w1"):
        cell.admit(WorkloadKey(f"team/{name}"))
        assert cell.settle() == []
    finish(cell, held[2])
    assert [type(event) for event in cell.settle()] == [WorkloadFinished, HeadsOffered]
    assert cell.offers() == ["w2"]
    assert forgotten(cell.state, settled=True) == []


def test_who_joins_a_sleeping_shape_waits_with_it_and_not_after_its_last(cell: QueueCell) -> None:
    """While others of its shape wait it is only queued. When the last of them has its place, nothing sleeps."""
    held = a_full_queue(cell)
    cell.submit("late", created_s=9)
    assert [type(event) for event in cell.settle()] == [WorkloadQueued]
    for key in held:
        finish(cell, key)
    cell.settle()
    for number in range(4):
        cell.admit(WorkloadKey(f"team/w{number}"))
    cell.settle()
    for name in ("w0", "w1"):
        finish(cell, WorkloadKey(f"team/{name}"))
    cell.settle()
    assert cell.offers() == ["w4", "late"]
    for name in ("w4", "late"):
        cell.admit(WorkloadKey(f"team/{name}"))
    assert cell.state.sleeps == {}
    cell.submit("later", created_s=10)
    assert [type(event) for event in cell.settle()] == [WorkloadQueued, HeadsOffered]


def test_who_comes_into_line_before_one_that_would_be_offered_alone_goes_in_its_place(cell: QueueCell) -> None:
    """An older one of the shape arrives when one cpu has just come free: it is offered, and the next sleeps on."""
    held = a_full_queue(cell)
    finish(cell, held[0])
    finished = cell.decide()
    assert finished is not None
    cell.land(finished)
    cell.submit("older", created_s=-1)
    assert [type(event) for event in cell.settle()] == [WorkloadQueued, HeadsOffered]
    assert cell.offers() == ["older"]


def test_a_new_verdict_on_one_that_is_offered_alone_takes_back_its_like(cell: QueueCell) -> None:
    """Two of a shape are on offer and the first does not fit after all: no cycle decides the second."""
    held = a_full_queue(cell)
    for key in held[:2]:
        finish(cell, key)
    cell.settle()
    cell.skip(WorkloadKey("team/w0"), "shape", needs=({"default/cpu": "5"},))
    assert [type(event) for event in cell.settle()] == [WorkloadParked]
    assert cell.offers() == []
    assert forgotten(cell.state, settled=True) == []


def test_a_head_that_blocks_wakes_though_its_shape_sleeps(cell: QueueCell) -> None:
    """It was offered alone and waits for its victim; once that is gone it is offered, and its like sleep on."""
    held = a_full_queue(cell)
    finish(cell, held[0])
    cell.settle()
    first = WorkloadKey("team/w0")
    verdict = cell.skipped(first, "queue", requeue_reason="PendingPreemption", needs=ONE_CPU)
    cell.cycle_of(msgspec.structs.replace(verdict, targets=(held[1],)))
    cell.settle()
    assert cell.offers() == []
    finish(cell, held[1])
    cell.settle()
    assert cell.offers()[0] == "w0"
    assert forgotten(cell.state, settled=True) == []


def test_a_head_that_goes_on_itself_does_not_also_go_for_its_shape(cell: QueueCell) -> None:
    """A cycle skips it, it is retried at once, and one more of its sleeping shape may be offered: none is, twice."""
    held = a_full_queue(cell)
    finish(cell, held[0])
    cell.settle()
    first, second = WorkloadKey("team/w0"), WorkloadKey("team/w1")
    cell.skip(first, "queue", requeue_reason="FailedAfterNomination", needs=ONE_CPU)
    draft = Draft(cell.state)
    draft.say(
        WorkloadWoken(workload=first, uid=cell[first].uid, cluster_queue="cq", by="", by_position=Seq(1), scope="queue")
    )
    draft.wake_alone(cell[second])
    assert [key for *_, key in draft.ahead("cq")] == [first, second]


def test_an_offer_that_a_parking_has_overtaken_is_void_unless_it_is_for_one_alone(cell: QueueCell) -> None:
    """The shape sleeps when the offer is appended: only those with enough quota by its verdict are offered."""
    a_full_queue(cell)
    heads = [
        Head(cluster_queue="cq", workload=key, uid=cell[key].uid) for key in map(WorkloadKey, ("team/w0", "team/w1"))
    ]
    cell.put(Producer.QUEUE_MANAGER, HeadsOffered(heads=(msgspec.structs.replace(heads[0], alone=True), heads[1])))
    assert cell.offers() == ["w0"]
    cell.skip(WorkloadKey("team/w0"), "shape", needs=ONE_CPU)
    cell.put(Producer.QUEUE_MANAGER, HeadsOffered(heads=(msgspec.structs.replace(heads[1], alone=True),)))
    assert cell.offers() == []


def test_any_of_the_ways_is_enough_and_only_the_whole_of_one(cell: QueueCell) -> None:
    """Half of each of two alternatives wakes none; whichever part of one is freed last takes effect."""
    cell.ready()
    held = [running(cell, f"r{number}") for number in range(2)]
    cell.submit("a", cpu="4")
    cell.settle()
    needs = ({"default/cpu": "3", "default/gpu": "1"}, {"default/cpu": "3"})
    cell.skip(A, "shape", short=("default/gpu",), needs=needs)
    cell.settle()
    assert cell.offers() == []
    finish(cell, held[0])
    cell.settle()
    assert cell.offers() == ["a"]


def test_what_was_freed_in_vain_counts_when_there_is_enough_at_last(cell: QueueCell) -> None:
    """Freed, taken by others, freed again: what decides is what is available then, not what was freed at once."""
    cell.ready()
    held = [running(cell, f"r{number}") for number in range(4)]
    cell.submit("a", cpu="2")
    cell.settle()
    cell.skip(A, "shape", needs=({"default/cpu": "2"},))
    cell.settle()
    finish(cell, held[0])
    cell.settle()
    taker = cell.submit("taker")
    cell.settle()
    cell.admit(taker)
    finish(cell, held[1])
    cell.settle()
    assert cell.offers() == []
    finish(cell, held[2])
    cell.settle()
    assert cell.offers() == ["a"]


def test_a_changed_spec_wakes_whatever_is_needed(cell: QueueCell) -> None:
    """A way may be possible now that was none before: the next cycle decides."""
    cell.ready()
    cell.submit("a", cpu="9")
    cell.settle()
    cell.skip(A, "shape", needs=({"default/cpu": "9"},))
    cell.settle()
    cell.cluster_queue(cohort="all")
    cell.settle()
    assert cell.offers() == ["a"]


def test_a_verdict_without_needs_wakes_by_any_freed_amount(cell: QueueCell) -> None:
    """As logs of earlier releases have them."""
    cell.ready()
    held = [running(cell, f"r{number}") for number in range(4)]
    cell.submit("a", cpu="4")
    cell.settle()
    cell.skip(A, "shape")
    cell.settle()
    finish(cell, held[0])
    cell.settle()
    assert cell.offers() == ["a"]


def test_only_as_many_wake_as_there_is_enough_for(cell: QueueCell) -> None:
    """Two cpu come free, three shapes need one or two: the first in order wake; the next when they are decided."""
    cell.ready()
    held = [running(cell, f"r{number}") for number in range(4)]
    for number, name in enumerate(("a", "b", "c")):
        cell.submit(name, priority=9 - number)
    cell.settle()
    for key in (A, B, C):
        cell.skip(key, "shape", needs=({"default/cpu": "1"},))
        cell.settle()
    for key in held[:2]:
        finish(cell, key)
    cell.settle()
    assert cell.offers() == ["a", "b"]
    cell.admit(A)
    cell.settle()
    assert cell.offers() == ["b"]
    cell.skip(B, "shape", needs=({"default/cpu": "1"},))
    cell.settle()
    assert cell.offers() == ["c"]
    assert forgotten(cell.state, settled=True) == []


def test_who_is_ahead_of_all_on_offer_does_not_wait_for_them(cell: QueueCell) -> None:
    """There is enough for one of two. The lower is on offer when the higher may wake: it goes first."""
    cell.ready()
    held = [running(cell, f"r{number}") for number in range(4)]
    cell.submit("a", priority=1)
    cell.submit("b", priority=9, cpu="2")
    cell.settle()
    cell.skip(B, "shape", needs=({"default/cpu": "2"},))
    cell.settle()
    cell.skip(A, "shape", needs=({"default/cpu": "1"},))
    cell.settle()
    finish(cell, held[0])
    cell.settle()
    assert cell.offers() == ["a"]
    finish(cell, held[1])
    cell.settle()
    assert cell.offers() == ["b", "a"]


def two_that_want_all(cell: QueueCell) -> None:
    """In two ClusterQueues of a cohort, `a` and then `b` need all its quota, which has just come free."""
    cell.ready(cohort="all")
    cell.cluster_queue("other", cohort="all")
    cell.local_queue("others", "other")
    held = running(cell)
    cell.submit("a")
    cell.submit("b", queue="others", priority=-5)
    cell.settle()
    cell.skip(A, "shape", needs=({"default/cpu": "8"},))
    cell.skip(B, "shape", needs=({"default/cpu": "8"},))
    cell.settle()
    finish(cell, held)
    cell.settle()


def test_a_cluster_queue_waits_for_the_turn_of_another_that_a_cycle_would_come_to_first(cell: QueueCell) -> None:
    """Kueue's order of entries decides: here the higher priority. Once that one is decided the other is tried."""
    two_that_want_all(cell)
    assert (cell.offers(), cell.offers("other")) == (["a"], [])
    assert forgotten(cell.state, settled=True) == []
    cell.skip(A, "shape", needs=({"default/cpu": "9"},))
    cell.settle()
    assert (cell.offers(), cell.offers("other")) == ([], ["b"])


def test_with_fair_sharing_nobody_waits_for_another_cluster_queue(cell: QueueCell) -> None:
    """Which of two ClusterQueues goes first follows from their shares, at each step of a cycle."""
    cell.see(facts.ConfigurationObserved(configuration=Configuration(fair_sharing=FairSharingConfiguration())))
    two_that_want_all(cell)
    assert (cell.offers(), cell.offers("other")) == (["a"], ["b"])


@pytest.mark.parametrize(
    ("waits", "reclaim", "offered"),
    [
        (True, "Any", (["a0"], ["b0", "b1"])),
        (False, "Any", (["a0", "a1"], ["b0"])),
        (True, "Never", (["a0", "a1"], ["b0"])),
    ],
    ids=["what is lent would be taken back", "gate off", "nothing is reclaimed"],
)
def test_the_second_of_a_shape_gives_way_to_nominal_quota_only_where_that_is_reclaimed(
    waits: bool, reclaim: str, offered: tuple[list[str], list[str]]
) -> None:
    """
    Three cpu come free for `a0` and `a1`, of higher priority, and for `b0` and `b1`; `a1` alone would borrow.

    Without HeadgatePreemptionWaits, and where nothing is reclaimed, borrowing is judged by what is unused now: `a1`
    goes before `b1` by its priority.
    """
    cell = QueueCell()
    cell.see(facts.ConfigurationObserved(configuration=Configuration(preemption_waits=waits)))
    preemption = Preemption(reclaim_within_cohort=reclaim)
    cell.ready(cohort="all", preemption=preemption)
    cell.cluster_queue("other", cohort="all", preemption=preemption)
    cell.local_queue("others", "other")
    held = [running(cell, f"r{number}") for number in range(4)]
    held_by_other = [running(cell, f"s{number}", queue="others") for number in range(4)]
    for number in range(2):
        cell.submit(f"a{number}", priority=5, created_s=number)
        cell.submit(f"b{number}", queue="others", created_s=number)
    cell.settle()
    for name in ("a0", "b0"):
        cell.skip(WorkloadKey(f"team/{name}"), "shape", needs=ONE_CPU)
    cell.settle()
    for key in (held[0], *held_by_other[:2]):
        finish(cell, key)
    cell.settle()
    assert (cell.offers(), cell.offers("other")) == offered


# --- the policy CohortTree -----------------------------------------------------------------------------------------


def test_the_policy_cohort_tree_wakes_every_shape_of_the_tree_whole(cell: QueueCell) -> None:
    """One cpu comes free: workloads that need more are tried, too, and those of another ClusterQueue; as in Kueue."""
    cell.see(facts.ConfigurationObserved(configuration=Configuration(wake_policy="CohortTree")))
    held = full_tree_with_sleepers(cell)
    finish(cell, held)
    cell.settle()
    assert (cell.offers(), cell.offers("other")) == (["a", "b"], ["c"])
    assert cell.state.sleeps == {}


def full_tree_with_sleepers(cell: QueueCell) -> WorkloadKey:
    """In a full cohort tree, `a` and `b` of one shape and `c` of another ClusterQueue sleep: all need 300 cpu."""
    cell.ready(cohort="all")
    cell.cluster_queue("other", cohort="all")
    cell.local_queue("others", "other")
    held = running(cell)
    for name, queue in (("a", "main"), ("b", "main"), ("c", "others")):
        cell.submit(name, queue=queue)
    cell.settle()
    for key in (A, C):
        cell.skip(key, "shape", needs=({"default/cpu": "300"},))
    cell.settle()
    assert (cell.offers(), cell.offers("other")) == ([], [])
    return held


def test_a_change_of_the_policy_holds_for_what_sleeps_already(cell: QueueCell) -> None:
    """It was set aside under the other one, and wakes by the rule of the one that the log has now."""
    held = full_tree_with_sleepers(cell)
    cell.see(facts.ConfigurationObserved(configuration=Configuration(wake_policy="CohortTree")))
    cell.settle()
    finish(cell, held)
    cell.settle()
    assert (cell.offers(), cell.offers("other")) == (["a", "b"], ["c"])


@each_policy
def test_the_end_of_a_claim_wakes_only_where_the_policy_is_bounded(cell: QueueCell, policy: WakePolicyName) -> None:
    """Kueue retries none when a head that blocks its ClusterQueue does not reserve quota any more."""
    cell.see(facts.ConfigurationObserved(configuration=Configuration(wake_policy=policy)))
    cell.ready(cohort="all", strategy="StrictFIFO")
    cell.cluster_queue("other", cohort="all")
    cell.local_queue("others", "other")
    cell.submit("a")
    cell.submit("b", queue="others")
    cell.settle()
    cell.skip(A, "queue", requeue_reason="FailedAfterNomination")
    cell.skip(B, "shape")
    cell.settle()
    cell.skip(A, "immediate", requeue_reason="FailedAfterNomination")
    cell.settle()
    assert cell.offers("other") == (["b"] if policy == "Bounded" else [])
