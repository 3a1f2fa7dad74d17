"""Whether preempting others could ever make room: never denied where a cycle finds targets, denied where it cannot."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.cells import NAMESPACE, Cell, cluster_queue, cohort, pod_set, reservations

from headgate.core.cycle import decide_cycle, evaluate
from headgate.core.flavors.catalog import Catalog
from headgate.core.preemption.bound import may_preempt
from headgate.core.queueing.wake_conditions import Unused
from headgate.events.ids import WorkloadKey
from headgate.events.objects import BorrowWithinCohort, Preemption

WITHIN = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
RECLAIM = ("Never", "LowerPriority", "Any")


def policy(within: str = "Never", reclaim: str = "Never", borrow: str = "") -> Preemption:
    borrowing = BorrowWithinCohort(policy=borrow) if borrow else None
    return Preemption(within_cluster_queue=within, reclaim_within_cohort=reclaim, borrow_within_cohort=borrowing)


def reaches(cell: Cell, queue: str, name: str, cpu: int) -> bool:
    workload = cell.state.workloads[WorkloadKey(f"{NAMESPACE}/{name}")]
    return Unused(cell.state).reaches(queue, ({"f/cpu": str(cpu)},), workload)


def full(preemption: Preemption, *, theirs: int = 4) -> Cell:
    """`mine` and `other` have a nominal quota of 4 cpu each and share a cohort; `other` uses so much."""
    quota = {"f": {"cpu": 4}}
    cell = Cell(
        cohort("all"),
        cluster_queue("mine", quota, cohort_name="all", preemption=preemption),
        cluster_queue("other", quota, cohort_name="all"),
    )
    cell.submit("other", "theirs", pod_set({"cpu": theirs}))
    cell.cycle()
    return cell


@pytest.mark.parametrize(
    ("within", "priority", "expected"),
    [
        ("Never", 10, False),
        ("LowerPriority", 10, True),
        ("LowerPriority", 0, False),
        ("LowerOrNewerEqualPriority", 0, True),
        ("LowerOrNewerEqualPriority", -1, False),
    ],
)
def test_its_own_clusterqueue_is_in_reach_as_its_policy_and_priority_say(
    within: str, priority: int, expected: bool
) -> None:
    """Lower priority, or the same where the policy speaks of newer ones."""
    cell = full(policy(within=within))
    cell.submit("mine", "running", pod_set({"cpu": 4}))
    cell.cycle()
    cell.submit("mine", "waiting", pod_set({"cpu": 2}), priority=priority)
    assert reaches(cell, "mine", "waiting", 2) is expected


@pytest.mark.parametrize(("theirs", "cpu", "expected"), [(8, 4, True), (4, 5, False), (8, 5, False)])
def test_others_are_in_reach_when_they_borrow_and_it_would_not(theirs: int, cpu: int, expected: bool) -> None:
    """What keeps its ClusterQueue within its nominal quota can be reclaimed, of those who use more than theirs."""
    cell = full(policy(reclaim="Any"), theirs=theirs)
    cell.submit("mine", "waiting", pod_set({"cpu": cpu}))
    assert reaches(cell, "mine", "waiting", cpu) is expected


@pytest.mark.parametrize(("reclaim", "priority", "expected"), [("LowerPriority", 0, False), ("LowerPriority", 1, True)])
def test_reclaiming_asks_for_priority_where_the_policy_does(reclaim: str, priority: int, expected: bool) -> None:
    """Not with Any."""
    cell = full(policy(reclaim=reclaim), theirs=8)
    cell.submit("mine", "waiting", pod_set({"cpu": 2}), priority=priority)
    assert reaches(cell, "mine", "waiting", 2) is expected


def test_its_own_clusterqueue_is_in_reach_of_who_borrows_where_its_policy_speaks_of_borrowing() -> None:
    """With borrowWithinCohort it may preempt in its own ClusterQueue and borrow, where nothing is reclaimed."""
    cell = full(policy(within="LowerPriority", borrow="LowerPriority"), theirs=2)
    cell.submit("mine", "running", pod_set({"cpu": 4}))
    cell.cycle()
    cell.submit("mine", "waiting", pod_set({"cpu": 5}), priority=10)
    assert reaches(cell, "mine", "waiting", 5)


def test_without_a_cohort_nothing_can_be_reclaimed() -> None:
    """A policy for the cohort has no effect without a cohort."""
    cell = Cell(cluster_queue("alone", {"f": {"cpu": 4}}, preemption=policy(reclaim="Any")))
    assert not may_preempt(cell.state, "alone")
    assert may_preempt(full(policy(reclaim="Any")).state, "mine")


policies = st.builds(
    policy, st.sampled_from(WITHIN), st.sampled_from(RECLAIM), st.sampled_from(["", "Never", "LowerPriority"])
)


@settings(max_examples=150)
@given(
    st.lists(policies, min_size=3, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 2)), max_size=10),
    st.tuples(st.integers(0, 2), st.integers(1, 6), st.integers(0, 2)),
    st.booleans(),
)
def test_what_is_out_of_reach_no_cycle_finds(
    preemption: list[Preemption], held: list[Any], incoming: Any, deep: bool
) -> None:
    """Where the bound denies, the cycle has no target, and admits no workload without enough quota."""
    cell = Cell(
        cohort("all"),
        cohort("left", "all"),
        *(
            cluster_queue(
                f"cq{n}",
                {"f": {"cpu": 4}},
                cohort_name="left" if deep and n == 0 else "all",
                preemption=preemption[n],
            )
            for n in range(3)
        ),
    )
    for number, (queue, cpu, priority) in enumerate(held):
        cell.submit(f"cq{queue}", f"held-{number}", pod_set({"cpu": cpu}), priority=priority, at_ms=number)
        before = len(reservations(cell.cycle()))
        if not before:
            return
    queue, cpu, priority = incoming
    cell.submit(f"cq{queue}", "w", pod_set({"cpu": cpu}), priority=priority, at_ms=100)
    needs = ({"f/cpu": str(cpu)},)
    unused = Unused(cell.state)
    if unused.enough(f"cq{queue}", needs) or reaches(cell, f"cq{queue}", "w", cpu):
        return
    catalog = Catalog(cell.state)
    of = catalog.queue(f"cq{queue}")
    assert of is not None
    (entry,) = evaluate(cell.state, catalog, [(cell.state.workloads[WorkloadKey(f"{NAMESPACE}/w")], of)]).entries
    assert entry.status != "assumed"
    assert not entry.targets
    assert not reservations(decide_cycle(cell.state))
