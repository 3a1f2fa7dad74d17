"""Who is woken again although nothing but a claim has ended: once, until something happens in the cohort tree."""

import pytest
from tests.support.queueing import QueueCell

from headgate.events.ids import WorkloadKey
from headgate.events.objects import Condition

HEAD, BEHIND = WorkloadKey("team/head"), WorkloadKey("team/behind")


def claiming(scope: str) -> QueueCell:
    """A ClusterQueue whose head claims quota, one that sleeps behind that, and one that uses some."""
    cell = QueueCell().ready(cohort="all", strategy="StrictFIFO")
    for name in ("other", "third"):
        cell.cluster_queue(name, cohort="all")
        cell.local_queue(name, name)
    cell.submit("running", queue="third")
    cell.settle()
    cell.admit(WorkloadKey("team/running"))
    cell.submit("head")
    cell.submit("behind", queue="other")
    cell.settle()
    claim(cell, scope)
    assert (cell.offers(), cell.offers("other")) == ([], [])
    return cell


def claim(cell: QueueCell, scope: str) -> None:
    """The one behind is set aside, and the head is once more the one that blocks its ClusterQueue."""
    if "behind" in cell.offers("other"):
        cell.skip(BEHIND, scope, requeue_reason="PreemptionNoCandidates")
    cell.skip(HEAD, "queue", requeue_reason="FailedAfterNomination")
    cell.settle()


def end_claim(cell: QueueCell) -> bool:
    """The next cycle shall decide the head by itself: its claim ends. Whether that wakes the one behind."""
    cell.skip(HEAD, "immediate", requeue_reason="FailedAfterNomination")
    cell.settle()
    assert cell.offers() == ["head"]
    return cell.offers("other") == ["behind"]


each_scope = pytest.mark.parametrize("scope", ["shape", "queue", "workload"])


@each_scope
def test_claims_that_end_again_and_again_wake_a_sleeper_once(scope: str) -> None:
    """Else what it claims when it is woken, and what that does to the head, could continue without end."""
    cell = claiming(scope)
    woken = []
    for _ in range(5):
        woken.append(end_claim(cell))
        claim(cell, scope)
    assert woken == [True, False, False, False, False]


@each_scope
def test_who_was_held_back_is_due_when_something_happens_in_the_tree(scope: str) -> None:
    """Freed quota wakes whom the end of a claim did not, and what ends after that counts again."""
    cell = claiming(scope)
    for _ in range(2):
        end_claim(cell)
        claim(cell, scope)
    assert cell.offers("other") == []
    cell.submit("running", queue="third", finished=Condition(type="Finished", status="True", reason="Succeeded"))
    cell.settle()
    assert cell.offers("other") == ["behind"]
    claim(cell, scope)
    assert end_claim(cell)


@each_scope
def test_neither_arrivals_nor_other_trees_are_a_reason_to_try_again(scope: str) -> None:
    """A new workload may arrive at any time, without more room for any."""
    cell = claiming(scope)
    cell.cluster_queue("apart")
    cell.local_queue("apart", "apart")
    stranger = cell.submit("stranger", queue="apart")
    cell.settle()
    cell.admit(stranger)
    for _ in range(2):
        end_claim(cell)
        claim(cell, scope)
    cell.submit("late", queue="third")
    cell.submit("stranger", queue="apart", finished=Condition(type="Finished", status="True", reason="Succeeded"))
    cell.settle()
    assert cell.offers("other") == []
    assert not end_claim(cell)
