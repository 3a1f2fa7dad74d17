"""Sleepers that the end of a claim has woken once sleep on, unless they also wait for a time and it has come."""

import pytest

from headgate.core import fold
from headgate.core.fold.objects import ANY, tree_in
from headgate.core.queueing.wake_conditions import Sleeper, Unused, Woken, came_true
from headgate.events.base import Producer
from headgate.events.commit import Commit
from headgate.events.ids import CommitId, Epoch, Seq, Uid, UnixMs, WorkloadKey
from headgate.events.queueing import QuotaFreed, TimePassed, WorkloadWoken
from headgate.machines.queue_manager.retries import Retries

HEAD = WorkloadKey("team/head")


def commit_of(event: WorkloadWoken) -> Commit:
    return Commit(
        id=CommitId("c"),
        producer=Producer.QUEUE_MANAGER,
        epoch=Epoch(1),
        number=1,
        time_ms=UnixMs(1),
        prev="",
        events=(event,),
    )


@pytest.mark.parametrize(("in_time", "held"), [(False, True), (True, False)])
def test_a_head_whose_time_has_come_is_not_held_back(in_time: bool, held: bool) -> None:
    """Held back, it would be due again at once: the queue manager would examine it without end."""
    retries = Retries(fold.new_state("cell"))
    woken = WorkloadWoken(
        workload=HEAD, uid=Uid("u"), cluster_queue="cq", by="quota freed", by_position=Seq(1), scope="queue"
    )
    retries.note(commit_of(woken), ())
    assert retries.hold_back(Sleeper("cq"), HEAD, Woken("again", Seq(2), in_time=in_time)) is held


@pytest.mark.parametrize(("now_ms", "in_time"), [(4, False), (5, True)])
def test_what_wakes_says_whether_a_time_has_come_too(now_ms: int, in_time: bool) -> None:
    """Whichever of the conditions is named as the one that came true."""
    state = fold.new_state("cell")
    tree = tree_in(state, "cq")
    state.freed[tree] = {ANY: Seq(3)}
    wakes = (QuotaFreed(tree=tree, flavor_resources=(ANY,)), TimePassed(at_ms=UnixMs(5)))
    woken = came_true(wakes, "cq", Seq(1), state, UnixMs(now_ms), Unused(state))
    assert woken is not None
    assert (woken.at, woken.in_time) == (3, in_time)
