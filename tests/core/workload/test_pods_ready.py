"""The PodsReady condition, the deadlines that follow from it, and the backoff after them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.logs import START_MS
from tests.support.queueing import QueueCell

from headgate.core.kubernetes.conditions import rfc3339
from headgate.core.state.tables import Stage
from headgate.core.workload import pods_ready
from headgate.events import facts
from headgate.events.configuration import Configuration, RequeuingStrategy, WaitForPodsReady
from headgate.events.ids import Uid, UnixMs, WorkloadKey
from headgate.events.objects import Condition, RequeueState

A, B = WorkloadKey("team/a"), WorkloadKey("team/b")
WAITING = WaitForPodsReady(timeout_ms=60_000, recovery_timeout_ms=20_000)
NOT_READY = "Not all pods are ready or succeeded"
READY = "All pods reached readiness and the workload is running"
FAILED = "At least one pod has failed, waiting for recovery"


def waiting(configuration: WaitForPodsReady | None = WAITING) -> QueueCell:
    cell = QueueCell()
    cell.see(facts.ConfigurationObserved(configuration=Configuration(wait_for_pods_ready=configuration)))
    return cell.ready()


def pods_ready_of(cell: QueueCell, key: WorkloadKey = A) -> tuple[str, str, str] | None:
    return cell.condition(key, "PodsReady")


def test_the_condition_tells_start_and_recovery_with_kueues_reasons() -> None:
    """WaitForStart, Started, WaitForRecovery, Recovered; its time moves with its status alone."""
    cell = waiting()
    cell.run("a")
    assert pods_ready_of(cell) == ("False", "WaitForStart", NOT_READY)
    for job, expected in (
        ({"active": 1, "ready": 1, "pods_ready": True}, ("True", "Started", READY)),
        ({"active": 1}, ("False", "WaitForRecovery", FAILED)),
        ({"active": 0, "failed": 1}, ("False", "WaitForRecovery", FAILED)),
        ({"active": 1, "ready": 1, "pods_ready": True}, ("True", "Recovered", READY)),
        ({"active": 1}, ("False", "WaitForRecovery", FAILED)),
        ({"succeeded": 1, "pods_ready": True}, ("True", "Recovered", READY)),
    ):
        cell.pass_s(1)
        cell.job("ja", **job)
        assert pods_ready_of(cell) == expected
        condition = pods_ready.condition_of(cell[A])
        assert condition is not None
        if job != {"active": 0, "failed": 1}:
            assert condition.last_transition_time == rfc3339(cell.now_ms)


def test_a_pending_workload_has_no_condition_and_a_requeued_one_waits_to_start() -> None:
    """Kueue writes it to pending ones, too, a write without information; after a run it is WaitForStart."""
    cell = waiting()
    cell.job("jb", suspended=True)
    cell.submit("b", job="jb")
    cell.settle()
    assert pods_ready_of(cell, B) is None
    cell.run("a")
    cell.job("ja", active=1, ready=1, pods_ready=True)
    cell.local_queue(stop="HoldAndDrain")
    cell.settle()
    assert cell.stage(A) is Stage.EVICTED
    cell.job("ja", active=1)
    assert pods_ready_of(cell) == ("True", "Started", READY), "its pods leave on purpose"
    cell.job("ja", suspended=True)
    cell.settle()
    assert pods_ready_of(cell) == ("False", "WaitForStart", NOT_READY)


def test_nothing_is_tracked_unless_the_configuration_waits() -> None:
    """And from when it does, also of those that run already; the clock for the start is that of the admission."""
    cell = waiting(None)
    cell.run("a")
    cell.job("ja", active=1, ready=1, pods_ready=True)
    cell.run("b")
    assert pods_ready_of(cell) is None
    cell.see(facts.ConfigurationObserved(configuration=Configuration(wait_for_pods_ready=WAITING)))
    assert pods_ready_of(cell) == ("True", "Started", READY)
    assert pods_ready_of(cell, B) == ("False", "WaitForStart", NOT_READY)
    cell.settle()
    assert cell.wake_at == cell[B].admitted_at_ms + 60_000


def test_what_others_say_of_their_own_jobs_counts() -> None:
    """A workload of another integration: its PodsReady condition is observed, and stays theirs."""
    cell = waiting()
    cell.submit("a")
    cell.settle()
    cell.admit(A)
    assert not pods_ready.is_ready(cell[A])
    theirs = Condition(
        type="PodsReady", status="True", reason="Started", last_transition_time=rfc3339(UnixMs(START_MS))
    )
    event = cell.observed("a", generation=cell.generations[A])
    cell.see(
        facts.WorkloadObserved(**{**{f: getattr(event, f) for f in event.__struct_fields__}, "pods_ready": theirs})
    )
    assert pods_ready.is_ready(cell[A])
    assert pods_ready_of(cell) is None, "what others own is not written"
    assert pods_ready.deadline(cell[A], cell.state.configuration) is None


def test_all_are_ready_when_every_holder_of_quota_is() -> None:
    """What blockAdmission waits for: those that hold quota, evicted ones until they have given it back."""
    cell = waiting(WaitForPodsReady(timeout_ms=60_000, block_admission=True))
    assert pods_ready.all_ready(cell.state)
    cell.run("a")
    assert not pods_ready.all_ready(cell.state)
    cell.job("ja", active=1, pods_ready=True)
    assert pods_ready.all_ready(cell.state)
    cell.run("b")
    cell.submit("b", job="jb", active=False)
    cell.settle()
    assert (cell.stage(B), pods_ready.all_ready(cell.state)) == (Stage.EVICTED, False)
    cell.job("jb", suspended=True)
    cell.settle()
    assert pods_ready.all_ready(cell.state)


def test_without_block_admission_nobody_waits() -> None:
    """Pods that are not ready block no other workload."""
    cell = waiting()
    cell.run("a")
    assert pods_ready.all_ready(cell.state)


@pytest.mark.parametrize(
    ("count", "expected_s"), [(1, 60), (2, 120), (3, 240), (6, 1920), (7, 3600), (8, 3600), (60, 3600)]
)
def test_the_backoff_doubles_up_to_its_maximum(count: int, expected_s: int) -> None:
    """60 s, 120 s, ... and 3600 s from the seventh time on, with at most 0.01 % more."""
    wait_ms = pods_ready.backoff_ms(Uid("u"), count, RequeuingStrategy())
    assert expected_s * 1000 <= wait_ms <= expected_s * 1000 * 1.0001


@given(uid=st.text(), count=st.integers(1, 50), base=st.integers(0, 10_000), most=st.integers(0, 10_000))
def test_the_backoff_follows_from_uid_and_count(uid: str, count: int, base: int, most: int) -> None:
    """A replay gives the same; it never shrinks with the count but for where the maximum is below the base."""
    strategy = RequeuingStrategy(backoff_base_s=base, backoff_max_s=most)
    first = pods_ready.backoff_ms(Uid(uid), count, strategy)
    assert first == pods_ready.backoff_ms(Uid(uid), count, strategy)
    if most == 0 or base <= most:
        assert pods_ready.backoff_ms(Uid(uid), count + 1, strategy) * 1.0001 >= first


def test_a_later_time_that_a_check_has_asked_for_stays() -> None:
    """The requeue state is shared by slow pods and admission checks: the later time counts."""
    cell = waiting()
    cell.run("a")
    workload = cell[A]
    later = rfc3339(UnixMs(cell.now_ms + 600_000))
    workload.requeue_state = RequeueState(count=1, requeue_at=later)
    state = pods_ready.requeue_state(workload, RequeuingStrategy(), cell.now_ms)
    assert (state.count, state.requeue_at) == (2, later)
