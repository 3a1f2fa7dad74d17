"""What counts as a forgotten workload."""

from typing import Any

import msgspec
import pytest
from tests.support.queueing import QueueCell

from headgate.core.audit.invariants import forgotten
from headgate.core.state.tables import Parked, Stage
from headgate.events import facts
from headgate.events.ids import Seq, UnixMs, WorkloadKey
from headgate.events.queueing import ObjectChanged, QuotaFreed, TimePassed

A = WorkloadKey("team/a")


def parked(*wake: Any) -> Parked:
    return Parked(reason="r", message="m", wake=wake, since=Seq(1), decided_at=Seq(1))


@pytest.fixture
def cell() -> QueueCell:
    cell = QueueCell().ready()
    cell.submit("a")
    cell.submit("b", created_s=1, cpu="2")
    cell.settle()
    return cell


def test_what_is_on_its_way_is_forgotten_only_at_rest(cell: QueueCell) -> None:
    """New, skipped and unreported workloads are handled soon, unless no process is active any more."""
    cell.submit("new")
    cell.skip(A, "shape")
    assert forgotten(cell.state) == []
    assert [key for key, _ in forgotten(cell.state, settled=True)] == [A, "team/new"]
    cell.settle()
    assert forgotten(cell.state, settled=True) == []


@pytest.mark.parametrize(
    ("wake", "lost"),
    [
        ((), True),
        ((QuotaFreed(tree="ClusterQueue/nowhere"),), True),
        ((QuotaFreed(tree="ClusterQueue/cq"),), False),
        ((ObjectChanged(kind="LocalQueue", name="team/main"),), False),
        ((TimePassed(at_ms=UnixMs(1)),), False),
        ((QuotaFreed(tree="ClusterQueue/nowhere"), TimePassed(at_ms=UnixMs(1))), False),
    ],
)
@pytest.mark.parametrize("scope", ["workload", "shape", "queue"])
def test_something_must_be_able_to_wake_what_waits(
    cell: QueueCell, scope: str, wake: tuple[Any, ...], lost: bool
) -> None:
    """One condition that can come true is enough; for those alone, for shapes and for blocked queues."""
    cell.skip(A, scope)
    cell.settle()
    sleep = cell.state.sleeps.get("cq")
    if scope == "workload":
        cell[A].parked = parked(*wake)
    elif scope == "shape":
        assert sleep is not None
        sleep.shapes[cell[A].shape] = parked(*wake)
    else:
        assert sleep is not None
        sleep.blocked = parked(*wake)
    assert (A in dict(forgotten(cell.state))) is lost


def test_a_workload_in_no_queue_is_forgotten(cell: QueueCell) -> None:
    """Queued and offered must be found where the scheduler looks."""
    cell[A].stage = Stage.QUEUED
    assert A in dict(forgotten(cell.state))
    cell[A].stage = Stage.OFFERED
    assert forgotten(cell.state) == []
    del cell.state.index.offered["cq"][A]
    assert A in dict(forgotten(cell.state))


def test_a_workload_queued_where_no_queue_is_must_move(cell: QueueCell) -> None:
    """Its ClusterQueue was deleted: at rest it is parked, and nothing is forgotten."""
    cell.skip(A, "shape")
    cell.settle()
    assert cell.stage(A) is Stage.QUEUED
    cell.see(facts.ClusterQueueDeleted(name="cq"))
    assert A in dict(forgotten(cell.state, settled=True))
    cell.settle()
    assert cell.stage(A) is Stage.PARKED
    assert forgotten(cell.state, settled=True) == []


def test_whose_quota_has_come_must_not_wait_on(cell: QueueCell) -> None:
    """At rest, enough of it, freed since: it should have been woken. Not while there is too little."""
    need = QuotaFreed(tree="ClusterQueue/cq", flavor_resources=("default/cpu",), needs=({"default/cpu": "4"},))
    cell.skip(A, "shape")
    cell.skip(WorkloadKey("team/b"), "shape")
    cell.settle()
    cell.state.freed["ClusterQueue/cq"] = {"default/cpu": cell.state.position}
    for key in (A, WorkloadKey("team/b")):
        cell.state.sleeps["cq"].shapes[cell[key].shape] = parked(need)
    assert forgotten(cell.state) == []
    assert [key for key, _ in forgotten(cell.state, settled=True)] == [A, "team/b"]
    cell.state.index.usage["cq"] = {("default", "cpu"): 1}
    assert forgotten(cell.state, settled=True) == []


def test_who_stands_behind_a_head_that_nobody_may_pass_waits_whatever_comes(cell: QueueCell) -> None:
    """What came since wakes the head; those behind it are looked at when it is gone."""
    b = WorkloadKey("team/b")
    cell.cluster_queue(strategy="StrictFIFO")
    cell.settle()
    cell.skip(b, "shape")
    cell.skip(A, "queue")
    cell.settle()
    cell.state.freed["ClusterQueue/cq"] = {"*": cell.state.position}
    sleep = cell.state.sleeps["cq"]
    assert sleep.blocked_by == A
    assert sleep.blocked is not None
    sleep.blocked = msgspec.structs.replace(sleep.blocked, decided_at=cell.state.position)
    assert forgotten(cell.state, settled=True) == []
    cell.state.index.pending["cq"].blocked = None
    assert [key for key, _ in forgotten(cell.state, settled=True)] == [b]


def test_a_head_that_nobody_may_pass_waits_by_its_own_verdict(cell: QueueCell) -> None:
    """Others of its shape sleep since before; what came meanwhile has woken it once, and it waits again."""
    cell.cluster_queue(strategy="StrictFIFO")
    cell.settle()
    cell.skip(A, "queue")
    cell.settle()
    need = QuotaFreed(tree="ClusterQueue/cq", flavor_resources=("default/cpu",), needs=({"default/cpu": "1"},))
    cell.state.freed["ClusterQueue/cq"] = {"default/cpu": cell.state.position}
    sleep, queue = cell.state.sleeps["cq"], cell.state.index.pending["cq"]
    sleep.shapes[cell[A].shape] = parked(need)
    queue.sleep(cell[A].shape)
    assert sleep.blocked is not None
    sleep.blocked = msgspec.structs.replace(sleep.blocked, decided_at=cell.state.position)
    assert forgotten(cell.state, settled=True) == []
