"""Evictions, their releases, what comes after, deadlines, and the end of workloads."""

from collections.abc import Callable

import msgspec
import pytest
from tests.support.owning import applied, shows
from tests.support.queueing import UNGATER, QueueCell

from headgate.core.audit.invariants import forgotten
from headgate.core.kubernetes.conditions import rfc3339
from headgate.core.state.tables import Stage
from headgate.core.workload.preemption_gates import is_closed
from headgate.events import facts
from headgate.events.base import Producer
from headgate.events.decisions import WorkloadPreempted
from headgate.events.effects import JobStarted, JobStopped
from headgate.events.ids import JobKey, LocalQueueKey, Uid, UnixMs, WorkloadKey
from headgate.events.objects import CheckState, Condition, PodSetUpdate, PreemptionGate, PreemptionGateState
from headgate.events.queueing import (
    DeadlinePassed,
    HeadsOffered,
    WorkloadEvicted,
    WorkloadQueued,
    WorkloadReleased,
    WorkloadRequeued,
    WorkloadWoken,
)
from headgate.machines.informer_bridge.diff import news

A = WorkloadKey("team/a")
JOB = JobKey("batch/Job/team/j")


@pytest.fixture(params=[False, True], ids=["steady", "crashing"])
def cell(request: pytest.FixtureRequest) -> QueueCell:
    """With one queue manager, and with one that is recreated from the state before each decision."""
    return QueueCell(crashes=request.param)


def admitted(cell: QueueCell, *, running: bool = True, **more: object) -> QueueCell:
    """`a`, owned by job `j`, admitted; its job runs with one pod."""
    cell.job("j", suspended=True)
    cell.submit("a", job="j", **more)
    cell.settle()
    cell.admit(A)
    if running:
        cell.put(
            UNGATER,
            JobStarted(job=JOB, job_uid=Uid("job-j"), workload=A, workload_uid=cell[A].uid),
        )
        cell.job("j", active=1)
    cell.settle()
    assert cell.stage(A) is Stage.ADMITTED
    return cell


def stop_job(cell: QueueCell) -> None:
    cell.put(UNGATER, JobStopped(job=JOB, job_uid=Uid("job-j"), workload=A, reason="evicted"))
    cell.job("j", suspended=True, active=1)
    assert cell.settle() == [], "a job with an active pod has not stopped"
    cell.job("j", suspended=True)


@pytest.mark.parametrize("kind", ["ClusterQueue", "LocalQueue"])
def test_draining_evicts_releases_and_requeues_after_the_restart(cell: QueueCell, kind: str) -> None:
    """HoldAndDrain: Kueue's reasons all the way, quota kept until the job has stopped, back when the stop is over."""
    admitted(cell.ready())
    stop = cell.cluster_queue if kind == "ClusterQueue" else cell.local_queue
    stop(stop="HoldAndDrain")
    cell.settle()
    assert cell.stage(A) is Stage.EVICTED
    assert cell.condition(A, "Evicted") == ("True", f"{kind}Stopped", f"The {kind} is stopped")
    assert cell.state.index.usage["cq"] == {("default", "cpu"): 1000}
    stop_job(cell)
    cell.settle()
    assert cell.stage(A) is Stage.PARKED
    assert cell.state.index.usage.get("cq", {}) == {}
    assert cell.condition(A, "Requeued") == ("False", f"{kind}Stopped", f"The {kind} is stopped")
    assert cell.settle() == []
    assert forgotten(cell.state, settled=True) == []
    stop()
    said = cell.settle()
    assert [type(event) for event in said] == [WorkloadWoken, WorkloadRequeued, WorkloadQueued, HeadsOffered]
    assert cell.condition(A, "Requeued") == (
        "True",
        f"{kind}Restarted",
        f"The {kind} was restarted after being stopped",
    )
    assert cell[A].queued_at_ms == cell[A].created_ms
    cell.admit(A)
    assert cell.condition(A, "Evicted") == ("False", "QuotaReserved", f"Previously: The {kind} is stopped")


def test_hold_lets_admitted_workloads_run_and_cancels_reservations(cell: QueueCell) -> None:
    """As Kueue's stop policy Hold."""
    admitted(cell.ready())
    b = cell.submit("b")
    cell.settle()
    cell.admit(b, checks=("budget",))
    cell.cluster_queue(stop="Hold")
    cell.settle()
    assert cell.stage(A) is Stage.ADMITTED
    assert (cell.stage(b), cell[b].admission) == (Stage.PARKED, None)
    assert cell.condition(b, "QuotaReserved") == ("False", "Suspended", "ClusterQueue cq is inactive")
    assert (cell.condition(b, "Evicted"), cell[b].evictions) == (None, ()), "nothing has run: no eviction"


@pytest.mark.parametrize(
    ("happens", "reason", "message"),
    [
        (lambda cell: cell.local_queue(stop="Hold"), "Suspended", "LocalQueue main is stopped"),
        (lambda cell: cell.cluster_queue(stop="HoldAndDrain"), "Suspended", "ClusterQueue cq is stopped"),
        (
            lambda cell: cell.see(facts.LocalQueueDeleted(queue=LocalQueueKey("team/main"))),
            "Misconfigured",
            "LocalQueue main is terminating or missing",
        ),
        (
            lambda cell: cell.see(facts.ClusterQueueDeleted(name="cq")),
            "Misconfigured",
            "ClusterQueue cq is terminating or missing",
        ),
    ],
)
def test_a_reservation_is_cancelled_with_its_queue(
    cell: QueueCell, happens: Callable[[QueueCell], object], reason: str, message: str
) -> None:
    """In Kueue's words, without an eviction and without a Requeued condition."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    cell.admit(A, checks=("budget",))
    happens(cell)
    cancelled, *_ = cell.settle()
    assert isinstance(cancelled, WorkloadReleased)
    assert (cancelled.cancelled, cancelled.reason, cancelled.message) == (True, reason, message)
    assert (cell.stage(A), cell[A].admission, cell.condition(A, "Requeued")) == (Stage.PARKED, None, None)
    assert forgotten(cell.state, settled=True) == []


def test_a_cancellation_that_an_admission_has_overtaken_changes_nothing(cell: QueueCell) -> None:
    """The queue manager saw a reservation; the cycle had admitted it by then. Hold lets it run."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    cell.admit(A, checks=("budget",))
    cell.cluster_queue(stop="Hold")
    cancelling = cell.decide()
    cell.cycle_of(cell.admitted(A))
    cell.until_rest(cancelling)
    assert cell.stage(A) is Stage.ADMITTED


def test_a_reservation_that_lands_on_a_stopped_queue_is_taken_back(cell: QueueCell) -> None:
    """The cycle had looked before the queue was stopped."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    cell.cluster_queue(stop="HoldAndDrain")
    stopping = cell.decide()
    cell.admit(A)
    cell.until_rest(stopping)
    cell.owner_stops(A)
    cell.settle()
    assert cell.stage(A) is Stage.PARKED
    assert cell.state.index.usage.get("cq", {}) == {}


def test_draining_a_cluster_queue_reaches_those_whose_local_queue_has_moved_on(cell: QueueCell) -> None:
    """The LocalQueue was recreated for another ClusterQueue; the quota is held in the old one."""
    admitted(cell.ready())
    cell.cluster_queue("cq2")
    cell.local_queue("main", "cq2")
    cell.settle()
    assert cell.stage(A) is Stage.ADMITTED
    cell.cluster_queue(stop="HoldAndDrain")
    cell.settle()
    assert cell.stage(A) is Stage.EVICTED


def test_a_workload_without_a_job_is_released_when_its_owner_says_so(cell: QueueCell) -> None:
    """No other component can determine whether something runs for it."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    cell.admit(A)
    cell.local_queue(stop="HoldAndDrain")
    said = cell.settle()
    assert [type(event).__name__ for event in said] == ["WorkloadEvicted"]
    assert cell.state.index.usage["cq"] != {}
    cell.owner_stops(A)
    said = cell.settle()
    assert [type(event).__name__ for event in said] == ["WorkloadReleased", "WorkloadParked"]
    assert cell.state.index.usage.get("cq", {}) == {}


def test_a_job_resumed_but_not_yet_seen_running_holds_the_quota(cell: QueueCell) -> None:
    """The last the log saw of the job was suspended; the ungater has resumed it since."""
    admitted(cell.ready(), running=False)
    cell.put(UNGATER, JobStarted(job=JOB, job_uid=Uid("job-j"), workload=A, workload_uid=cell[A].uid))
    cell.cluster_queue(stop="HoldAndDrain")
    cell.settle()
    assert cell.stage(A) is Stage.EVICTED
    cell.put(UNGATER, JobStopped(job=JOB, job_uid=Uid("job-j"), workload=A, reason="evicted"))
    cell.settle()
    assert cell.stage(A) is Stage.PARKED


def test_deactivation_evicts_a_workload_that_was_never_admitted(cell: QueueCell) -> None:
    """Evicted once, with its counter; no Requeued condition; reactivation queues it again at its old place."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    cell.submit("a", active=False)
    cell.settle()
    assert cell.stage(A) is Stage.PARKED
    assert cell.condition(A, "Evicted") == ("True", "Deactivated", "The workload is deactivated")
    assert cell.condition(A, "QuotaReserved") == ("False", "Deactivated", "The workload is deactivated")
    assert cell.condition(A, "Requeued") is None
    assert [(stat.reason, stat.count) for stat in cell[A].evictions] == [("Deactivated", 1)]
    assert cell.offers() == []
    cell.submit("a")
    cell.settle()
    assert cell.offers() == ["a"]


def test_what_asked_for_a_deactivation_is_its_cause(cell: QueueCell) -> None:
    """A DeactivationTarget changes nothing until the spec is switched off; then the eviction has its words."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    target = Condition(type="DeactivationTarget", status="True", reason="Operator", message="the budget is spent")
    cell.submit("a", deactivation_target=target)
    cell.settle()
    assert cell.offers() == ["a"]
    cell.submit("a", active=False, deactivation_target=target)
    cell.settle()
    message = "The workload is deactivated due to the budget is spent"
    assert cell.condition(A, "Evicted") == ("True", "DeactivatedDueToOperator", message)
    (stat,) = cell[A].evictions
    assert (stat.reason, stat.underlying_cause, stat.count) == ("Deactivated", "Operator", 1)


def test_reactivation_after_a_run_is_said(cell: QueueCell) -> None:
    """Requeued goes from False to True with Kueue's reason."""
    admitted(cell.ready())
    cell.submit("a", job="j", active=False)
    cell.settle()
    stop_job(cell)
    cell.settle()
    assert cell.condition(A, "Requeued") == ("False", "Deactivated", "The workload is deactivated")
    cell.submit("a", job="j")
    cell.settle()
    assert cell.condition(A, "Requeued") == ("True", "Reactivated", "The workload was reactivated")
    assert cell.offers() == ["a"]


def checked(cell: QueueCell, *states: CheckState) -> None:
    """What the check controllers wrote, with the object otherwise unchanged."""
    cell.submit("a", generation=cell.generations[A], checks=states)


def test_a_retry_evicts_and_waits_for_its_time(cell: QueueCell) -> None:
    """Back after lastTransitionTime + requeueAfterSeconds, behind those that waited longer, by a time in the log."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    cell.admit(A, checks=("budget", "other"))
    cell.pass_s(10)
    retry = CheckState(
        name="budget",
        state="Retry",
        message="too poor",
        requeue_after_seconds=90,
        last_transition_time=rfc3339(cell.now_ms),
    )
    checked(cell, retry)
    evicted_at = cell.now_ms
    (evicted, *_) = cell.settle()
    assert isinstance(evicted, WorkloadEvicted)
    assert (evicted.reason, evicted.message) == (
        "AdmissionCheck",
        'Evicted due to AdmissionCheck in Retry state: "budget" (too poor)',
    )
    cell.owner_stops(A)
    cell.settle()
    assert cell.stage(A) is Stage.PARKED
    assert cell.condition(A, "Requeued") == ("False", "AdmissionCheck", evicted.message)
    assert cell.wake_at == evicted_at + 90_000
    assert forgotten(cell.state, settled=True) == []
    checked(cell)
    cell.pass_s(89.9)
    assert cell.settle() == []
    cell.pass_s(0.1)
    said = cell.settle()
    assert [type(event) for event in said] == [
        WorkloadWoken,
        DeadlinePassed,
        WorkloadRequeued,
        WorkloadQueued,
        HeadsOffered,
    ]
    assert cell.condition(A, "Requeued") == ("True", "BackoffFinished", "The workload backoff was finished")
    assert cell[A].queued_at_ms == evicted_at
    assert cell[A].requeue_state is not None
    requeue_state = cell[A].requeue_state
    assert requeue_state is not None
    assert requeue_state.requeue_at is None


def test_a_retry_without_a_time_queues_again_at_once(cell: QueueCell) -> None:
    """Kueue adds no backoff of its own to admission checks."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    cell.admit(A, checks=("budget",))
    checked(cell, CheckState(name="budget", state="Retry", last_transition_time=rfc3339(cell.now_ms)))
    cell.settle()
    cell.owner_stops(A)
    cell.settle()
    assert cell.offers() == ["a"]
    assert cell.condition(A, "Requeued") == ("True", "BackoffFinished", "The workload backoff was finished")


def test_a_rejection_deactivates(cell: QueueCell) -> None:
    """It stays out though its spec is not switched off yet, and after it is; switched on again, it queues."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    cell.admit(A, checks=("budget",))
    checked(cell, CheckState(name="budget", state="Rejected", message="never"))
    (evicted, *_) = cell.settle()
    assert isinstance(evicted, WorkloadEvicted)
    message = 'The workload is deactivated due to AdmissionCheck in Rejected state: "budget" (never)'
    assert (evicted.reason, evicted.underlying_cause, evicted.message) == ("Deactivated", "AdmissionCheck", message)
    cell.owner_stops(A)
    cell.settle()
    assert cell.stage(A) is Stage.PARKED
    assert cell.condition(A, "QuotaReserved") == ("False", "Deactivated", message)
    cell.submit("a", active=False)
    cell.settle()
    assert cell.stage(A) is Stage.PARKED
    assert [stat.count for stat in cell[A].evictions] == [1]
    cell.submit("a")
    cell.settle()
    assert cell.offers() == ["a"]


def test_the_maximum_execution_time_deactivates_by_a_deadline_in_the_log(cell: QueueCell) -> None:
    """Counted from admission; the queue manager requests a wake-up for it, also after a restart."""
    admitted(cell.ready(), maximum_execution_time_seconds=60)
    at = cell[A].admitted_at_ms
    assert cell.wake_at == at + 60_000
    cell.pass_s(59)
    assert cell.settle() == []
    cell.pass_s(1)
    passed, evicted, *_ = cell.settle()
    assert passed == DeadlinePassed(
        workload=A, uid=cell[A].uid, deadline="MaximumExecutionTime", at_ms=UnixMs(at + 60_000)
    )
    assert isinstance(evicted, WorkloadEvicted)
    assert (evicted.reason, evicted.underlying_cause) == ("Deactivated", "MaximumExecutionTimeExceeded")
    assert evicted.message == "The workload is deactivated due to exceeding the maximum execution time"
    stop_job(cell)
    cell.settle()
    assert (cell.stage(A), cell.offers()) == (Stage.PARKED, [])


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({"finished": "Complete", "message": "all pods are done"}, ("True", "Succeeded", "all pods are done")),
        ({"finished": "Failed", "message": "too many retries"}, ("True", "Failed", "too many retries")),
    ],
)
@pytest.mark.parametrize("stage", ["pending", "admitted", "evicted"])
def test_a_workload_finishes_with_its_job(
    cell: QueueCell, stage: str, job: dict[str, str], expected: tuple[str, str, str]
) -> None:
    """From whatever stage it is in; its quota is free."""
    cell.ready()
    if stage == "pending":
        cell.job("j", suspended=True)
        cell.submit("a", job="j")
    else:
        admitted(cell)
    if stage == "evicted":
        cell.cluster_queue(stop="HoldAndDrain")
    cell.settle()
    cell.job("j", **job)
    cell.settle()
    assert cell.stage(A) is Stage.FINISHED
    assert cell.condition(A, "Finished") == expected
    assert cell.state.index.usage.get("cq", {}) == {}


def test_a_workload_whose_job_is_gone_is_finished(cell: QueueCell) -> None:
    """Kueue's OwnerNotFound frees its quota."""
    admitted(cell.ready())
    cell.see(facts.JobDeleted(job=JOB, uid=Uid("job-j"), gone=True))
    cell.settle()
    assert cell.condition(A, "Finished") == ("True", "OwnerNotFound", "The workload's owner no longer exists")


def test_an_owner_of_another_kind_is_not_missed(cell: QueueCell) -> None:
    """A workload that other integrations made has an owner that the log does not hold."""
    cell.ready()
    event = cell.observed("a", job="j")
    assert event.owner is not None
    cell.see(msgspec.structs.replace(event, owner=msgspec.structs.replace(event.owner, kind="JobSet")))
    cell.settle()
    assert cell.stage(A) is Stage.OFFERED


def preempt(cell: QueueCell, preemptor: WorkloadKey, message: str = "Preempted to accommodate b") -> None:
    cell.cycle_of(
        WorkloadPreempted(
            workload=A,
            uid=cell[A].uid,
            cluster_queue="cq",
            preemptor=preemptor,
            preemptor_uid=cell[preemptor].uid,
            reason="InClusterQueue",
            message=message,
        )
    )


def test_a_preempted_workload_gives_its_quota_back_when_its_job_has_stopped_and_queues_again(cell: QueueCell) -> None:
    """Evicted and Preempted, Requeued with the reason Preempted, at its old place; False again when it is admitted."""
    admitted(cell.ready())
    b = cell.submit("b", priority=5)
    cell.settle()
    preempt(cell, b)
    assert cell.settle() == []
    assert cell.stage(A) is Stage.EVICTED
    assert cell.condition(A, "Evicted") == ("True", "Preempted", "Preempted to accommodate b")
    assert cell.condition(A, "Preempted") == ("True", "InClusterQueue", "Preempted to accommodate b")
    assert [(stat.reason, stat.underlying_cause, stat.count) for stat in cell[A].evictions] == [("Preempted", "", 1)]
    stop_job(cell)
    cell.settle()
    assert cell.state.index.usage.get("cq", {}) == {}
    assert cell.condition(A, "Requeued") == ("True", "Preempted", "Preempted to accommodate b")
    assert cell.condition(A, "QuotaReserved") == ("False", "PendingEvaluation", "Preempted to accommodate b")
    assert cell.condition(A, "Admitted") == ("False", "NoReservation", "The workload has no reservation")
    assert cell[A].queued_at_ms == cell[A].created_ms
    assert cell.offers() == ["b", "a"]
    cell.admit(A)
    for kind in ("Evicted", "Preempted"):
        assert cell.condition(A, kind) == ("False", "QuotaReserved", "Previously: Preempted to accommodate b")


def test_a_preempted_workload_without_a_job_keeps_its_quota_until_its_owner_gives_it_back(cell: QueueCell) -> None:
    """What others have admitted onto it would run beside what runs still. One word of the owner's is enough."""
    cell.ready()
    cell.submit("a")
    b = cell.submit("b", priority=5)
    cell.settle()
    cell.admit(A)
    preempt(cell, b)
    assert cell.settle() == []
    assert cell[A].admission is not None
    cell.owner_stops(A)
    assert [type(event) for event in cell.settle()].count(WorkloadReleased) == 1
    assert cell[A].admission is None
    assert cell.condition(A, "Requeued") == ("True", "Preempted", "Preempted to accommodate b")


def test_a_check_that_wants_the_impossible_finishes_the_workload(cell: QueueCell) -> None:
    """Kueue's FailedToStart: trying again would not help. A job that has been started stays."""
    cell.job("j", suspended=True)
    cell.submit("a", job="j")
    cell.ready()
    cell.admit(A, checks=("budget", "other"))
    updates = [(PodSetUpdate(name="main", labels={"tier": tier}),) for tier in ("gold", "iron")]
    ready = [
        CheckState(name=name, state="Ready", pod_set_updates=update)
        for name, update in zip(("budget", "other"), updates, strict=True)
    ]
    cell.see(cell.observed("a", job="j", generation=cell.generations[A], checks=tuple(ready)))
    cell.settle()
    cell.cycle_of(cell.admitted(A))
    cell.settle()
    assert cell.condition(A, "Finished") == (
        "True",
        "FailedToStart",
        "invalid admission check PodSetUpdate: conflict for labels: conflict for key=tier, value1=gold, value2=iron",
    )
    assert cell.state.index.usage.get("cq", {}) == {}


def test_a_running_workload_of_another_priority_wakes_its_tree(cell: QueueCell) -> None:
    """A workload that could not preempt it before may now; its quota stays charged."""
    admitted(cell.ready())
    before = dict(cell.state.freed["ClusterQueue/cq"])
    cell.submit("a", job="j")
    assert cell.state.freed["ClusterQueue/cq"] == before
    cell.submit("a", job="j", priority=-5)
    assert cell.state.freed["ClusterQueue/cq"]["*"] == cell.state.position
    assert cell.stage(A) is Stage.ADMITTED
    assert cell.state.index.usage["cq"] == {("default", "cpu"): 1000}


def test_an_eviction_closes_the_gates(cell: QueueCell) -> None:
    """What others have opened counts until then; what was opened later counts again."""
    cell.ready()
    opened = PreemptionGateState(name="g", position="Open", last_transition_time=rfc3339(cell.now_ms))
    gated = cell.observed("a", preemption_gates=(PreemptionGate(name="g"),))
    cell.see(gated)
    assert is_closed(cell[A])
    cell.settle()
    seen = msgspec.structs.replace(gated, preemption_gates=(opened,))
    cell.see(seen)
    assert not is_closed(cell[A])
    cell.settle()
    cell.admit(A)
    cell.pass_s(10)
    cell.cluster_queue(stop="HoldAndDrain")
    cell.settle()
    closed = msgspec.structs.replace(opened, position="Closed", last_transition_time=rfc3339(cell.now_ms))
    assert cell[A].preemption_gates == (closed,)
    cell.see(seen)
    assert is_closed(cell[A]), "what the API server still shows is older"
    assert news(cell.state, msgspec.structs.replace(seen, preemption_gates=(closed,))) is None, "that is our own write"
    cell.pass_s(5)
    cell.see(
        msgspec.structs.replace(
            seen,
            preemption_gates=(msgspec.structs.replace(opened, last_transition_time=rfc3339(cell.now_ms)),),
        )
    )
    assert not is_closed(cell[A])


def test_an_evicted_workload_is_released_once(cell: QueueCell) -> None:
    """Before its release is appended, the queue manager of a new term decides the same; the second has no effect."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    cell.admit(A)
    cell.local_queue(stop="HoldAndDrain")
    evicting = cell.decide()
    assert evicting is not None
    cell.land(evicting)
    cell.owner_stops(A)
    releasing = cell.decide()
    assert releasing is not None
    assert [type(event) for event in releasing.events] == [WorkloadReleased]
    cell.until_rest(releasing)
    assert cell.stage(A) is Stage.PARKED


def test_all_workloads_of_a_job_end_with_it(cell: QueueCell) -> None:
    """Also one that was made by hand beside the Job's own."""
    cell.ready()
    cell.job("j", suspended=True)
    cell.submit("a", job="j")
    cell.submit("b", job="j")
    cell.settle()
    cell.job("j", finished="Complete")
    cell.settle()
    assert {cell.stage(WorkloadKey(f"team/{name}")) for name in "ab"} == {Stage.FINISHED}


@pytest.mark.parametrize("kinds", [("QuotaReserved",), ("Admitted",), ("QuotaReserved", "Admitted")])
def test_a_job_whose_admission_others_take_away_stops_and_queues_again(cell: QueueCell, kinds: tuple[str, ...]) -> None:
    """Its quota stays charged until the pods are gone; nothing but that keeps it out of its queue afterwards."""
    admitted(cell.ready())
    cell.put(Producer.BINDER, applied(cell.state, cell[A]))
    by_hand = [Condition(type=kind, status="False", reason="ByHand", message="by hand") for kind in kinds]
    cell.see(shows(cell[A], *by_hand))
    cell.settle()
    assert cell.stage(A) is Stage.EVICTED
    assert cell.condition(A, "Evicted") == ("True", "AdmissionRevoked", "by hand")
    assert cell.state.index.usage["cq"] == {("default", "cpu"): 1000}
    stop_job(cell)
    cell.settle()
    assert not any(cell.state.index.usage.get("cq", {}).values())
    assert cell.condition(A, "Requeued") == ("True", "AdmissionRevoked", "by hand")
    assert cell.offers() == ["a"]


def test_a_condition_of_an_admission_that_is_over_takes_nothing_away(cell: QueueCell) -> None:
    """Admitted=False as Headgate itself has written it, shown late, is no news of the admission after it."""
    admitted(cell.ready())
    before = shows(cell[A], Condition(type="Admitted", status="False", reason="NoReservation"))
    cell.put(Producer.BINDER, applied(cell.state, cell[A]), applied(cell.state, cell[A]))
    cell.put(Producer.BINDER, msgspec.structs.replace(applied(cell.state, cell[A]), version=9))
    cell.see(before)
    assert cell.settle() == []
    assert cell.stage(A) is Stage.ADMITTED


def test_who_runs_the_pods_himself_is_not_stopped_by_the_condition_of_an_admission(cell: QueueCell) -> None:
    """Admitted=False of a workload without a Job: only QuotaReserved=False says that its work is over."""
    cell.ready()
    cell.submit("a")
    cell.settle()
    cell.admit(A)
    cell.put(Producer.BINDER, applied(cell.state, cell[A]))
    cell.see(shows(cell[A], Condition(type="Admitted", status="False", reason="ByHand")))
    cell.settle()
    assert cell.stage(A) is Stage.ADMITTED


def test_a_job_that_is_on_hold_gives_its_quota_back_without_an_eviction(cell: QueueCell) -> None:
    """Once nothing of it runs; it waits out of all queues, and is queued again when the hold is over."""
    admitted(cell.ready())
    cell.job("j", active=1, on_hold=True)
    assert cell.settle() == [], "its pods are still there"
    cell.job("j", suspended=True, on_hold=True)
    cell.settle()
    assert cell.stage(A) is Stage.PARKED
    message = "StatefulSet scaled to zero; workload on hold"
    assert cell.condition(A, "QuotaReserved") == ("False", "OnHold", message)
    assert cell.condition(A, "Admitted") == ("False", "NoReservation", "The workload has no reservation")
    assert (cell[A].evictions, cell[A].admission, cell.state.index.usage.get("cq", {})) == ((), None, {})
    assert forgotten(cell.state) == []
    cell.job("j", suspended=True)
    cell.settle()
    assert cell.condition(A, "QuotaReserved") == (
        "False",
        "PendingEvaluation",
        "Workload no longer on hold; waiting for quota reservation",
    )
    cell.admit(A)
    cell.settle()
    assert cell.stage(A) is Stage.ADMITTED


def test_a_job_that_is_put_on_hold_while_it_waits_is_not_admitted(cell: QueueCell) -> None:
    """It leaves its queue."""
    cell.ready()
    cell.job("j", suspended=True, on_hold=True)
    cell.submit("a", job="j")
    cell.settle()
    assert cell.stage(A) is Stage.PARKED
