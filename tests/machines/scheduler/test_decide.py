"""The scheduler's machine: it decides when there is something to decide, and resumes anywhere."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cells import NAMESPACE, Cell, cluster_queue, pod_set, reservations

from headgate.core import fold
from headgate.core.cycle import decide_cycle
from headgate.core.machine.contract import Append, Committed, Completed, Settled
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit
from headgate.events.decisions import WorkloadAdmitted
from headgate.events.facts import AdmissionCheckObserved, ClusterQueueObserved, WorkloadObserved
from headgate.events.ids import UnixMs, WorkloadKey
from headgate.events.objects import AdmissionCheckSpec, AdmissionChecksStrategy, CheckRule, CheckState
from headgate.machines.scheduler.decide import Scheduler

NOW = Settled(UnixMs(0))


class Run:
    """A machine that gets every commit of a cell's log."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.machine = Scheduler(cell.state)
        self.told = len(cell.log.commits)

    def settle(self) -> list[Any]:
        """Pass on new commits, then let the machine decide; append its events. The commands."""
        self._tell()
        commands = self.machine.decide(NOW)
        for command in commands:
            assert isinstance(command, Append)
            self.cell.log.append(Producer.SCHEDULER, *command.events, decided_at=command.decided_at)
        return commands

    def _tell(self) -> None:
        for logged in self.cell.log.commits[self.told :]:
            assert self.machine.decide(Committed(logged)) == []
        self.told = len(self.cell.log.commits)


def small(**spec: Any) -> Cell:
    return Cell(cluster_queue("cq", {"f": {"gpu": 4}}, **spec))


def test_it_appends_one_cycle_decided_on_the_state_it_saw() -> None:
    """The events are those of the pure function, the position that of its state."""
    cell = small()
    run = Run(cell)
    assert run.settle() == []
    cell.submit("cq", "w", pod_set({"gpu": 1}))
    expected, position = decide_cycle(cell.state), cell.state.position
    assert run.settle() == [Append(events=expected, decided_at=position)]
    assert run.settle() == []


def test_it_waits_for_the_informers() -> None:
    """Heads that were offered before wait too."""
    cell = small()
    cell.submit("cq", "w", pod_set({"gpu": 1}))
    cell.state.synced = False
    run = Run(cell)
    assert run.settle() == []
    cell.state.synced = True
    assert len(run.settle()) == 1


def test_a_changed_queue_counts_in_the_next_cycle() -> None:
    """What was kept of its old spec is not used again."""
    cell = small()
    run = Run(cell)
    cell.submit("cq", "a", pod_set({"gpu": 1}))
    run.settle()
    more = cluster_queue("cq", {"f": {"gpu": 9}})
    assert isinstance(more, ClusterQueueObserved)
    cell.log.append(Producer.INFORMER_BRIDGE, more)
    cell.submit("cq", "b", pod_set({"gpu": 8}))
    (command,) = run.settle()
    assert reservations(command.events) == ["b"]


def with_check() -> tuple[Cell, WorkloadObserved]:
    """A workload that holds quota and waits for a check, and the fact that the check is Ready."""
    strategy = AdmissionChecksStrategy(admission_checks=(CheckRule(name="prov"),))
    check = AdmissionCheckObserved(name="prov", spec=AdmissionCheckSpec(controller_name="c"), active=True)
    cell = Cell(cluster_queue("cq", {"f": {"gpu": 4}}, admission_checks_strategy=strategy), check)
    cell.submit("cq", "w", pod_set({"gpu": 1}))
    workload = cell.state.workloads[WorkloadKey(f"{NAMESPACE}/w")]
    ready = WorkloadObserved(
        workload=workload.key,
        uid=workload.uid,
        created_ms=UnixMs(0),
        spec=workload.spec,
        checks=(CheckState(name="prov", state="Ready"),),
    )
    return cell, ready


def test_it_admits_when_the_last_check_becomes_ready() -> None:
    """And only then, and once."""
    cell, ready = with_check()
    run = Run(cell)
    run.settle()
    assert run.settle() == []
    cell.log.append(Producer.INFORMER_BRIDGE, ready)
    (command,) = run.settle()
    assert [type(event) for event in command.events[1:]] == [WorkloadAdmitted]
    assert run.settle() == []


def test_a_machine_that_starts_late_admits_what_became_ready_before() -> None:
    """It looks at all reserved workloads once."""
    cell, ready = with_check()
    cell.cycle()
    cell.log.append(Producer.INFORMER_BRIDGE, ready)
    (command,) = Run(cell).settle()
    assert [type(event) for event in command.events[1:]] == [WorkloadAdmitted]


def test_an_answer_to_a_call_it_never_made_is_a_fault() -> None:
    """Calls are those of extenders, and each ends once."""
    with pytest.raises(AssertionError, match="made no call x"):
        Scheduler(small().state).decide(Completed("x", 200))


jobs = st.lists(st.tuples(st.integers(0, 1), st.integers(1, 5)), min_size=1, max_size=8)


@given(jobs, st.lists(st.booleans(), min_size=8, max_size=8))
def test_a_crash_changes_nothing(jobs: list[tuple[int, int]], crashes: list[bool]) -> None:
    """A machine recreated from the folded state continues exactly as the one before would have."""
    logs: list[list[LoggedCommit]] = []
    for crashing in (False, True):
        quota = {"f": {"gpu": 3}, "g": {"gpu": 2}}
        cell = Cell(*(cluster_queue(f"cq{i}", quota, cohort_name="co") for i in range(2)))
        run = Run(cell)
        for number, (queue, gpus) in enumerate(jobs):
            cell.submit(f"cq{queue}", f"w{number}", pod_set({"gpu": gpus}))
            run.settle()
            if crashing and crashes[number]:
                run = Run(cell)
        while run.settle():
            pass
        logs.append(cell.log.commits)
    assert logs[0] == logs[1]


def test_every_recorded_cycle_is_decided_again_alike() -> None:
    """The state at `decided_at`, folded from the log, gives the events that were recorded."""
    cell = Cell(*(cluster_queue(f"cq{i}", {"f": {"gpu": 2}}, cohort_name="co") for i in range(3)))
    run = Run(cell)
    for number in range(9):
        cell.submit(f"cq{number % 3}", f"w{number}", pod_set({"gpu": 1 + number % 2}), at_ms=number)
        run.settle()
    state, verified = fold.new_state(cell.log.cell), 0
    for logged in cell.log.commits:
        if logged.commit.producer is Producer.SCHEDULER:
            assert logged.commit.decided_at == state.position
            assert decide_cycle(state) == logged.commit.events
            verified += 1
        fold.apply(state, logged)
    assert verified >= 9
