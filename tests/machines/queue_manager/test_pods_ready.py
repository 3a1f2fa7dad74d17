"""Evictions of workloads whose pods are not ready in time: by a deadline in the log, with backoff, until the limit."""

import pytest
from tests.support.queueing import QueueCell

from headgate.core.state.tables import Stage
from headgate.events import facts
from headgate.events.configuration import Configuration, RequeuingStrategy, WaitForPodsReady
from headgate.events.ids import UnixMs, WorkloadKey
from headgate.events.queueing import DeadlinePassed, WorkloadEvicted

A = WorkloadKey("team/a")


def waiting(*, crashes: bool, recovery_timeout_ms: int | None = 20_000, **strategy: object) -> QueueCell:
    cell = QueueCell(crashes=crashes)
    waits = WaitForPodsReady(
        timeout_ms=60_000,
        recovery_timeout_ms=recovery_timeout_ms,
        requeuing_strategy=RequeuingStrategy(backoff_base_s=10, **strategy),  # type: ignore[arg-type]
    )
    cell.see(facts.ConfigurationObserved(configuration=Configuration(wait_for_pods_ready=waits)))
    return cell.ready()


pytestmark = pytest.mark.parametrize("crashes", [False, True], ids=["steady", "crashing"])


def stop(cell: QueueCell) -> None:
    cell.job("ja", suspended=True)
    cell.settle()


def test_slow_pods_are_evicted_requeued_after_a_backoff_and_deactivated_at_the_limit(crashes: bool) -> None:
    """The whole story, twice round, with Kueue's words."""
    cell = waiting(crashes=crashes, backoff_limit_count=1)
    cell.run("a")
    due = UnixMs(cell[A].admitted_at_ms + 60_000)
    assert cell.wake_at == due
    cell.pass_s(59.9)
    assert cell.settle() == []
    cell.pass_s(0.1)
    passed, evicted, *_ = cell.settle()
    assert passed == DeadlinePassed(workload=A, uid=cell[A].uid, deadline="PodsReady", at_ms=due)
    assert isinstance(evicted, WorkloadEvicted)
    assert cell.condition(A, "Evicted") == ("True", "PodsReadyTimeout", "Exceeded the PodsReady timeout team/a")
    assert [(s.reason, s.underlying_cause, s.count) for s in cell[A].evictions] == [
        ("PodsReadyTimeout", "WaitForStart", 1)
    ]
    evicted_at = cell.now_ms
    stop(cell)
    assert cell.stage(A) is Stage.PARKED
    assert cell.condition(A, "Requeued") == ("False", "PodsReadyTimeout", "Exceeded the PodsReady timeout team/a")
    state = cell[A].requeue_state
    assert state is not None
    assert state.count == 1
    cell.pass_s(9.9)
    assert cell.settle() == []
    cell.pass_s(0.1)
    cell.settle()
    assert cell.offers() == ["a"]
    assert cell.condition(A, "Requeued") == ("True", "BackoffFinished", "The workload backoff was finished")
    assert cell[A].queued_at_ms == evicted_at
    cell.admit(A)
    cell.job("ja", active=1)
    cell.settle()
    assert cell.condition(A, "Evicted") == (
        "False",
        "QuotaReserved",
        "Previously: Exceeded the PodsReady timeout team/a",
    )
    cell.pass_s(60)
    passed, evicted, *_ = cell.settle()
    assert isinstance(evicted, WorkloadEvicted)
    message = "The workload is deactivated due to exceeding the maximum number of re-queuing retries"
    assert (evicted.reason, evicted.underlying_cause, evicted.message) == (
        "Deactivated",
        "RequeuingLimitExceeded",
        message,
    )
    assert cell.condition(A, "Evicted") == ("True", "DeactivatedDueToRequeuingLimitExceeded", message)
    stop(cell)
    assert (cell.stage(A), cell.offers()) == (Stage.PARKED, [])
    state = cell[A].requeue_state
    assert state is not None
    assert (state.count, state.requeue_at) == (None, None)


def test_pods_that_fail_have_the_recovery_timeout(crashes: bool) -> None:
    """Counted from the moment they were no longer ready; the cause is WaitForRecovery."""
    cell = waiting(crashes=crashes)
    cell.run("a")
    cell.pass_s(30)
    cell.job("ja", active=1, pods_ready=True)
    cell.settle()
    cell.pass_s(3600)
    assert cell.settle() == []
    cell.job("ja", active=1)
    cell.settle()
    assert cell.wake_at == cell.now_ms + 20_000
    cell.pass_s(20)
    _, evicted, *_ = cell.settle()
    assert isinstance(evicted, WorkloadEvicted)
    assert (evicted.reason, evicted.underlying_cause) == ("PodsReadyTimeout", "WaitForRecovery")


def test_without_a_recovery_timeout_failed_pods_are_waited_for(crashes: bool) -> None:
    """Only the start is timed then."""
    cell = waiting(crashes=crashes, recovery_timeout_ms=None)
    cell.run("a")
    cell.job("ja", active=1, pods_ready=True)
    cell.job("ja", active=1)
    cell.pass_s(100_000)
    assert cell.settle() == []
    assert cell.stage(A) is Stage.ADMITTED


def test_pods_that_are_ready_in_time_stay(crashes: bool) -> None:
    """The deadline in the heap no longer counts."""
    cell = waiting(crashes=crashes)
    cell.run("a")
    cell.job("ja", active=1, pods_ready=True)
    cell.pass_s(60)
    assert cell.settle() == []
    assert cell.stage(A) is Stage.ADMITTED
