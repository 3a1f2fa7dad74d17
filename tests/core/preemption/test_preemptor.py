"""
A workload that waits for those it has preempted: it blocks its ClusterQueue, comes first there, and is never forgotten.

Kueue: `preemptorWorkload` of pkg/cache/queue (issues 6929, 7101).
"""

import msgspec
import pytest
from tests.support.queueing import QM, SCHEDULER, QueueCell

from headgate.core import fold
from headgate.core.state.tables import Stage
from headgate.events.decisions import CycleDecided, WorkloadPreempted, WorkloadSkipped
from headgate.events.ids import Seq, WorkloadKey
from headgate.events.objects import Preemption
from headgate.events.queueing import WorkloadFinished, WorkloadReleased, WorkloadWoken

POLICY = Preemption(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")
NEEDS = ({"default/cpu": "3"},)


def preempted(cell: QueueCell, victim: WorkloadKey, by: WorkloadKey) -> WorkloadPreempted:
    return WorkloadPreempted(
        workload=victim,
        uid=cell[victim].uid,
        cluster_queue=cell[victim].cluster_queue,
        preemptor=by,
        preemptor_uid=cell[by].uid,
        reason="InClusterQueue",
        message="Preempted to accommodate a workload",
    )


def preempting(
    *, strategy: str = "BestEffortFIFO", victims: int = 2
) -> tuple[QueueCell, WorkloadKey, list[WorkloadKey]]:
    """A cell in which `big` has just preempted all that run; `small` waits behind it."""
    cell = QueueCell().ready(strategy=strategy, preemption=POLICY)
    running = [cell.submit(f"running-{n}", cpu="2", priority=0, job=f"job-{n}") for n in range(victims)]
    for n in range(victims):
        cell.job(f"job-{n}", suspended=False, active=1)
    cell.settle()
    for key in running:
        cell.admit(key, cpu="2")
    big = cell.submit("big", cpu="3", priority=10)
    cell.submit("small", cpu="1", priority=0)
    cell.settle()
    cell.cycle_of(*[preempted(cell, key, big) for key in running], pending(cell, big, running))
    return cell, big, running


def pending(cell: QueueCell, key: WorkloadKey, victims: list[WorkloadKey]) -> WorkloadSkipped:
    skipped = cell.skipped(key, "queue", requeue_reason="PendingPreemption", needs=NEEDS)
    return msgspec.structs.replace(skipped, targets=tuple(victims), reason="WaitingForPreemptedWorkloads")


def wake(cell: QueueCell, head: WorkloadKey) -> None:
    uid = cell[head].uid
    cell.put(QM, WorkloadWoken(workload=head, uid=uid, cluster_queue="cq", by="", by_position=Seq(0), scope="queue"))


def stopped(cell: QueueCell, key: WorkloadKey) -> None:
    """The job of an evicted workload has stopped."""
    number = key.rpartition("-")[2]
    cell.job(f"job-{number}", suspended=True, active=0)


def test_a_preempted_workload_holds_its_quota_until_its_job_has_stopped() -> None:
    """It is evicted with both conditions, charged, and released when no pod is left; then it queues again."""
    cell, _, running = preempting()
    victim = running[0]
    assert cell.stage(victim) is Stage.EVICTED
    assert cell.condition(victim, "Evicted") == ("True", "Preempted", "Preempted to accommodate a workload")
    assert cell.condition(victim, "Preempted") == ("True", "InClusterQueue", "Preempted to accommodate a workload")
    assert cell.state.index.usage["cq"] == {("default", "cpu"): 4000}
    cell.settle()
    assert cell.stage(victim) is Stage.EVICTED
    stopped(cell, victim)
    cell.settle()
    assert cell.stage(victim) is Stage.QUEUED
    assert cell.state.index.usage["cq"] == {("default", "cpu"): 2000}


@pytest.mark.parametrize("stage", ["finished", "deleted", "evicted"])
def test_a_preemption_that_comes_too_late_changes_nothing(stage: str) -> None:
    """Its victim has finished, is gone, or leaves for another reason: the preemption is overtaken."""
    cell = QueueCell().ready(preemption=POLICY)
    victim, big = cell.submit("victim"), cell.submit("big", priority=10)
    cell.settle()
    cell.admit(victim)
    late = preempted(cell, victim, big)
    if stage == "finished":
        cell.put(QM, WorkloadFinished(workload=victim, uid=cell[victim].uid, reason="Succeeded", message=""))
    elif stage == "deleted":
        cell.delete(victim)
    else:
        cell.cycle_of(late)
    overtaken = cell.state.overtaken
    cell.cycle_of(late)
    assert cell.state.overtaken == overtaken + 1
    assert victim not in cell.state.workloads or cell.stage(victim) in (Stage.FINISHED, Stage.EVICTED)


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
def test_a_pending_preemptor_blocks_its_cluster_queue(strategy: str) -> None:
    """Under any strategy no workload behind it is offered; the cycle finds it among the blocked heads of its tree."""
    cell, big, _ = preempting(strategy=strategy)
    cell.settle()
    assert cell.offers() == []
    assert cell.state.sleeps["cq"].blocked_by == big
    assert cell.state.index.standing == {"ClusterQueue/cq": {"cq": None}}
    restored = fold.restore(cell.state.cell, fold.encode(cell.state))
    assert restored.index.standing == cell.state.index.standing
    assert restored.index.preemptors == cell.state.index.preemptors == {"cq": big}


def test_in_a_best_effort_queue_nobody_comes_before_it_and_in_a_strict_one_a_higher_priority_does() -> None:
    """Kueue makes only a BestEffortFIFO preemptor sticky."""
    for strategy, offered in (("BestEffortFIFO", []), ("StrictFIFO", ["urgent"])):
        cell, _, _ = preempting(strategy=strategy)
        cell.settle()
        cell.submit("urgent", priority=100)
        cell.settle()
        assert cell.offers() == offered


def test_it_wakes_when_there_is_enough_or_when_its_last_victim_is_gone() -> None:
    """Of two victims with 2 cpu each the first is not enough for 3; it does not wake for less."""
    cell, _, running = preempting()
    cell.settle()
    stopped(cell, running[0])
    assert not [event for event in cell.settle() if isinstance(event, WorkloadWoken) and event.scope == "queue"]
    stopped(cell, running[1])
    cell.settle()
    assert cell.offers()[0] == "big"


def test_it_wakes_though_another_has_taken_what_its_last_victim_gave_back() -> None:
    """What it waited for cannot come any more: it is to be decided again, and may preempt others."""
    cell, _, running = preempting(victims=1)
    taker = cell.submit("taker", priority=20)
    cell.settle()
    stopped(cell, running[0])
    append = cell.decide()
    assert append is not None
    cell.land(append)
    cell.admit(taker, cpu="4")
    cell.settle()
    assert cell.offers()[:1] == ["big"]


def test_it_stays_first_until_it_is_admitted_and_then_nobody_is() -> None:
    """Also when its next verdict is that it waits for quota, as in Kueue; with its reservation that is over."""
    cell, big, running = preempting(victims=1)
    urgent = cell.submit("urgent", priority=100)
    stopped(cell, running[0])
    cell.settle()
    assert cell.offers()[:2] == ["big", "urgent"]
    cell.skip(big, "immediate", requeue_reason="FailedAfterNomination")
    cell.settle()
    assert cell.offers()[:2] == ["big", "urgent"]
    cell.admit(big, cpu="3")
    assert cell.state.index.preemptors == {}
    assert not cell[big].sticky
    assert cell.offers()[0] == "urgent"
    assert cell[urgent].sticky is False


def test_a_changed_spec_or_another_preemptor_ends_its_part() -> None:
    """One workload of a ClusterQueue is its preemptor, the last one."""
    cell, big, _ = preempting()
    cell.submit("big", cpu="4", priority=10)
    assert cell.state.index.preemptors == {}
    assert not cell[big].preemptor
    assert cell.state.index.standing == {}
    cell.settle()
    small = WorkloadKey("team/small")
    assert cell.offers() == ["big", "small"]
    cell.cycle_of(pending(cell, big, []))
    wake(cell, big)
    cell.settle()
    cell.cycle_of(pending(cell, small, []))
    assert cell.state.index.preemptors == {"cq": small}
    assert (cell[big].sticky, cell[small].sticky) == (False, True)


def test_a_standing_heads_new_verdict_counts_though_it_is_not_offered() -> None:
    """The cycle decides it each time; when it no longer preempts, its shape sleeps and its ClusterQueue continues."""
    cell, big, _ = preempting()
    cell.settle()
    assert cell.stage(big) is Stage.QUEUED
    cell.skip(big, "shape", requeue_reason="NoFit", short=("*",))
    cell.settle()
    assert cell.state.index.standing == {}
    assert cell.offers() == ["small"]


def test_a_standing_heads_verdict_in_other_words_leaves_what_it_waits_for() -> None:
    """Only its condition changes; the queue manager has nothing to say about it."""
    cell, big, running = preempting()
    cell.settle()
    before = cell.state.sleeps["cq"].blocked
    assert before is not None
    cell.cycle_of(msgspec.structs.replace(pending(cell, big, running), message="1 more needed"))
    assert cell.settle() == []
    now = cell.state.sleeps["cq"].blocked
    assert now is not None
    assert (now.wake, now.message) == (before.wake, "1 more needed")
    assert cell[big].stage is Stage.QUEUED


def test_a_verdict_on_one_that_was_woken_meanwhile_is_overtaken() -> None:
    """It is no blocked head any more: the next cycle decides it as offered."""
    cell, big, running = preempting()
    cell.settle()
    verdict = pending(cell, big, running)
    wake(cell, big)
    overtaken = cell.state.overtaken
    cell.put(SCHEDULER, CycleDecided(cycle=9, decided_at=cell.state.position), verdict)
    assert cell.state.overtaken == overtaken + 1
    cell.settle()
    assert cell.offers()[0] == "big"


def test_a_released_victim_is_requeued_at_its_place() -> None:
    """Preemption does not change when it queued."""
    cell, _, running = preempting(victims=1)
    before = cell[running[0]].created_ms
    stopped(cell, running[0])
    said = cell.settle()
    released = [event for event in said if isinstance(event, WorkloadReleased)]
    assert [(each.workload, each.requeued, each.reason) for each in released] == [(running[0], True, "Preempted")]
    assert cell[running[0]].queued_at_ms == before
