"""The places of pending workloads, their messages, and what moves them."""

import pytest
from tests.support.queueing import QueueCell

from headgate.core.audit.invariants import forgotten
from headgate.core.state.tables import Stage
from headgate.events import facts
from headgate.events.ids import LocalQueueKey, WorkloadKey
from headgate.events.objects import CheckState, Condition, LimitRangeItem, ReclaimablePod
from headgate.events.queueing import HeadsOffered, HeadsWithdrawn, ObjectChanged, WorkloadQueued
from headgate.machines.queue_manager.offering import OFFER_DEPTH

A = WorkloadKey("team/a")


@pytest.fixture(params=[False, True], ids=["steady", "crashing"])
def cell(request: pytest.FixtureRequest) -> QueueCell:
    """With one queue manager, and with one that is recreated from the state before each decision."""
    return QueueCell(crashes=request.param)


def test_a_new_workload_is_queued_and_offered_in_one_commit(cell: QueueCell) -> None:
    """No round trip is needed between arrival and offer."""
    cell.ready()
    cell.submit("a", priority=7)
    append = cell.decide()
    assert append is not None
    queued, offered = append.events
    assert isinstance(queued, WorkloadQueued)
    assert (queued.cluster_queue, queued.priority, queued.queued_at_ms) == ("cq", 7, cell[A].created_ms)
    assert isinstance(offered, HeadsOffered)
    cell.until_rest(append)
    assert cell.stage(A) is Stage.OFFERED
    assert cell[A].conditions == ()


def test_nothing_is_said_before_the_informers_are_in_sync(cell: QueueCell) -> None:
    """A LocalQueue that has not been listed yet is not missing."""
    cell.submit("a")
    assert cell.settle() == []
    cell.flavor()
    cell.cluster_queue()
    cell.local_queue()
    assert cell.settle() == []
    cell.sync()
    cell.settle()
    assert cell.stage(A) is Stage.OFFERED


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("LocalQueue", ("False", "Misconfigured", "LocalQueue main doesn't exist")),
        ("ClusterQueue", ("False", "Misconfigured", "ClusterQueue cq doesn't exist")),
        ("ResourceFlavor", ("False", "Suspended", "ClusterQueue cq is inactive")),
    ],
)
def test_what_is_missing_is_said_as_kueue_does_and_its_coming_wakes(
    cell: QueueCell, missing: str, expected: tuple[str, str, str]
) -> None:
    """The condition has Kueue's words; the object that was missing brings the workload back."""
    steps = {"ResourceFlavor": cell.flavor, "ClusterQueue": cell.cluster_queue, "LocalQueue": cell.local_queue}
    for kind, make in steps.items():
        if kind != missing:
            make()
    cell.sync()
    cell.submit("a")
    cell.settle()
    assert cell.stage(A) is Stage.PARKED
    assert cell.condition(A, "QuotaReserved") == expected
    assert cell.condition(A, "Admitted") == ("False", "NoReservation", "The workload has no reservation")
    assert forgotten(cell.state, settled=True) == []
    steps[missing]()
    cell.settle()
    assert cell.stage(A) is Stage.OFFERED
    assert cell.condition(A, "QuotaReserved") == (
        "False",
        "PendingEvaluation",
        "Workload is pending evaluation in the scheduling queue",
    )


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_a_stopped_local_queue_holds_its_pending_workloads(cell: QueueCell, policy: str) -> None:
    """Those of other LocalQueues of the same ClusterQueue continue."""
    cell.ready()
    cell.local_queue("other")
    cell.submit("a")
    cell.submit("b", queue="other")
    cell.settle()
    cell.local_queue(stop=policy)
    cell.settle()
    assert cell.condition(A, "QuotaReserved") == ("False", "Suspended", "LocalQueue main is inactive")
    assert cell.offers() == ["b"]
    cell.local_queue()
    cell.settle()
    assert sorted(cell.offers()) == ["a", "b"]


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_a_stopped_cluster_queue_offers_nothing_and_keeps_the_order(cell: QueueCell, policy: str) -> None:
    """After the restart everybody has the place that it had."""
    cell.ready()
    for number in range(20):
        cell.submit(f"w{number:02}", created_s=20 - number)
    cell.settle()
    before = list(cell.offers())
    assert before == [f"w{number:02}" for number in range(19, 19 - OFFER_DEPTH, -1)]
    cell.cluster_queue(stop=policy)
    said = cell.settle()
    assert any(isinstance(event, HeadsWithdrawn) for event in said)
    assert cell.offers() == []
    assert {workload.stage for workload in cell.state.workloads.values()} == {Stage.PARKED}
    assert cell[WorkloadKey("team/w00")].parked.wake == (ObjectChanged(kind="ClusterQueue", name="cq"),)  # type: ignore[union-attr]
    cell.cluster_queue()
    cell.settle()
    assert cell.offers() == before


def test_only_the_workloads_concerned_are_looked_at() -> None:
    """A LocalQueue that stops is no event for the workloads of another."""
    cell = QueueCell().ready()
    cell.local_queue("other")
    for number in range(50):
        cell.submit(f"m{number}")
        cell.submit(f"o{number}", queue="other")
    cell.settle()
    looked: list[WorkloadKey] = []
    step = cell.manager._step
    cell.manager._step = lambda workload, *more: looked.append(workload.key) or step(workload, *more)  # type: ignore[func-returns-value, method-assign, redundant-expr]
    cell.local_queue("other", stop="Hold")
    append = cell.decide()
    assert append is not None
    assert sorted(looked) == sorted(f"team/o{number}" for number in range(50))


def test_a_changed_priority_moves_a_workload_ahead(cell: QueueCell) -> None:
    """Its new place is that of its new priority, and the offers follow."""
    cell.ready()
    cell.submit("a")
    cell.submit("b", created_s=1)
    cell.settle()
    assert cell.offers() == ["a", "b"]
    cell.submit("b", created_s=1, priority=5)
    cell.settle()
    assert cell.offers() == ["b", "a"]


def test_a_workload_that_names_another_queue_moves(cell: QueueCell) -> None:
    """It is in the ClusterQueue of its new LocalQueue and nowhere else."""
    cell.ready()
    cell.cluster_queue("cq2")
    cell.local_queue("second", "cq2")
    cell.submit("a")
    cell.settle()
    cell.submit("a", queue="second")
    cell.settle()
    assert (cell.offers(), cell.offers("cq2")) == ([], ["a"])


def test_a_local_queue_made_anew_takes_its_workloads_along(cell: QueueCell) -> None:
    """A LocalQueue is deleted and made again for another ClusterQueue; one look may find only the end of it."""
    cell.ready()
    cell.cluster_queue("cq2")
    cell.submit("a")
    cell.settle()
    cell.see(facts.LocalQueueDeleted(queue=LocalQueueKey("team/main")))
    cell.local_queue("main", "cq2")
    cell.settle()
    assert (cell.offers(), cell.offers("cq2")) == ([], ["a"])


def test_a_change_that_overtakes_the_queueing_is_made_good(cell: QueueCell) -> None:
    """The workload changes between the decision to queue it and its landing: it ends at its new place."""
    cell.ready()
    cell.submit("a")
    cell.submit("b", created_s=1)
    append = cell.decide()
    cell.submit("b", created_s=1, priority=9, cpu="2")
    cell.until_rest(append)
    assert cell.offers() == ["b", "a"]
    assert cell[WorkloadKey("team/b")].priority == 9
    assert cell[WorkloadKey("team/b")].shape != cell[A].shape


def test_an_offer_of_what_has_changed_meanwhile_is_void(cell: QueueCell) -> None:
    """An offer that lands on a workload that is new again, or has its quota already, changes nothing."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    cell.submit("b", created_s=-1)
    append = cell.decide()
    assert append is not None
    cell.admit(A)
    cell.submit("b", created_s=-1, priority=3)
    cell.until_rest(append)
    assert cell.stage(A) is Stage.ADMITTED
    assert cell.offers() == ["b"]


def test_a_gated_workload_waits_for_its_annotation(cell: QueueCell) -> None:
    """`admission-gated-by` holds back, its removal lets in, with Kueue's messages."""
    cell.ready()
    cell.submit("a", annotations={"kueue.x-k8s.io/admission-gated-by": "example.com/budget"})
    cell.settle()
    assert cell.condition(A, "QuotaReserved") == (
        "False",
        "AdmissionGated",
        "Admission is gated by: example.com/budget",
    )
    cell.submit("a")
    cell.settle()
    assert cell.stage(A) is Stage.OFFERED
    assert cell.condition(A, "QuotaReserved") == (
        "False",
        "PendingEvaluation",
        "AdmissionGatedBy cleared, waiting for quota reservation",
    )


def test_a_workload_being_deleted_is_not_queued(cell: QueueCell) -> None:
    """It is set aside until it is gone, and never offered."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    cell.submit("a", deleting=True)
    cell.settle()
    assert (cell.stage(A), cell.offers()) == (Stage.PARKED, [])
    cell.delete(A)
    assert cell.settle() == []


def test_a_workload_that_others_finished_is_finished(cell: QueueCell) -> None:
    """Reason and message are those of the writer that finished it."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    finished = Condition(type="Finished", status="True", reason="OutOfSync", message="by hand")
    cell.submit("a", finished=finished)
    cell.settle()
    assert cell.stage(A) is Stage.FINISHED
    assert cell.condition(A, "Finished") == ("True", "OutOfSync", "by hand")
    assert cell.offers() == []


def test_a_limit_range_gives_pending_workloads_of_its_namespace_a_new_shape(cell: QueueCell) -> None:
    """What slept because of the old requests is tried with the new ones; other namespaces are left alone."""
    cell.ready()
    cell.local_queue(namespace="elsewhere")
    cell.submit("a")
    cell.submit("b", namespace="elsewhere", created_s=1, cpu="2")
    cell.settle()
    cell.skip(A, "shape")
    cell.settle()
    assert cell.offers() == ["b"]
    before = cell[A].shape
    cell.see(
        facts.LimitRangeObserved(
            limit_range="team/l", limits=(LimitRangeItem(type="Container", default_request={"memory": "1Gi"}),)
        )
    )
    cell.settle()
    assert cell[A].shape != before
    assert cell.offers() == ["a", "b"]


def test_reclaimed_pods_change_a_pending_workloads_shape(cell: QueueCell) -> None:
    """A pending workload of which pods are done requests less and is tried again."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    cell.skip(A, "shape")
    cell.settle()
    assert cell.offers() == []
    cell.submit("a", generation=1, reclaimable=(ReclaimablePod(name="main", count=1),))
    cell.settle()
    assert cell.offers() == ["a"]


def test_offers_are_topped_up_when_fewer_than_half_are_left(cell: QueueCell) -> None:
    """Up to `OFFER_DEPTH` in queue order; a cycle that takes one costs no event until half of them are gone."""
    cell.ready()
    for number in range(40):
        cell.submit(f"w{number:02}", created_s=number)
    cell.settle()
    assert cell.offers() == [f"w{number:02}" for number in range(OFFER_DEPTH)]
    for number in range(OFFER_DEPTH // 2):
        cell.admit(WorkloadKey(f"team/w{number:02}"))
        assert cell.settle() == []
    cell.admit(WorkloadKey(f"team/w{OFFER_DEPTH // 2:02}"))
    (offered,) = cell.settle()
    assert isinstance(offered, HeadsOffered)
    first = OFFER_DEPTH // 2 + 1
    assert cell.offers() == [f"w{number:02}" for number in range(first, first + OFFER_DEPTH)]


def test_a_deletion_of_all_offered_heads_does_not_starve_the_queue(cell: QueueCell) -> None:
    """Those behind them are offered though nothing else happens in the queue."""
    cell.ready()
    keys = [cell.submit(f"w{number:02}", created_s=number) for number in range(20)]
    cell.settle()
    for key in keys[:OFFER_DEPTH]:
        cell.delete(key)
    cell.settle()
    assert cell.offers() == [f"w{number:02}" for number in range(OFFER_DEPTH, 2 * OFFER_DEPTH)]


def test_a_higher_rank_withdraws_the_offers_and_goes_first(cell: QueueCell) -> None:
    """In one commit; and a lower rank that arrives changes nothing while enough is on offer."""
    cell.ready()
    for number in range(20):
        cell.submit(f"w{number:02}", created_s=number)
    cell.settle()
    cell.submit("urgent", priority=100, created_s=50)
    append = cell.decide()
    assert append is not None
    assert [type(event) for event in append.events] == [WorkloadQueued, HeadsWithdrawn, HeadsOffered]
    cell.until_rest(append)
    assert cell.offers() == ["urgent", *(f"w{number:02}" for number in range(OFFER_DEPTH - 1))]
    cell.submit("later", created_s=60)
    assert [type(event) for event in cell.settle()] == [WorkloadQueued]


def test_a_decision_on_its_way_still_counts_when_its_offer_is_taken_back(cell: QueueCell) -> None:
    """The withdrawal and new offer land after the cycle has reserved: the reservation stays."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    cell.submit("urgent", priority=100)
    append = cell.decide()
    cell.admit(A)
    cell.until_rest(append)
    assert cell.stage(A) is Stage.ADMITTED
    assert cell.offers() == ["urgent"]


def test_queue_order_is_priority_then_creation_then_uid(cell: QueueCell) -> None:
    """Kueue's order, whatever the order of arrival."""
    cell.ready()
    cell.submit("d", uid="2")
    cell.submit("c", uid="1")
    cell.submit("b", created_s=-5, uid="9")
    cell.submit("a", priority=1, created_s=100, uid="8")
    cell.submit("e", priority=-1, created_s=-100, uid="0")
    cell.settle()
    assert cell.offers() == ["a", "b", "c", "d", "e"]


def test_a_pending_workload_is_not_driven_out_by_checks(cell: QueueCell) -> None:
    """Checks speak about reservations; a check state left from before one is no reason to evict."""
    cell.ready()
    cell.submit("a", checks=(CheckState(name="budget", state="Rejected"),))
    cell.settle()
    assert cell.stage(A) is Stage.OFFERED
