"""What counts as the endless preemption that fair sharing allows, and what is a defect."""

from collections.abc import Callable

import pytest

from headgate.core import fold
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import Commit, LoggedCommit
from headgate.events.configuration import Configuration, FairSharingConfiguration
from headgate.events.decisions import QuotaReserved, WorkloadPreempted, WorkloadSkipped
from headgate.events.ids import CommitId, Epoch, Seq, Uid, UnixMs, WorkloadKey
from headgate.events.objects import Admission
from headgate.events.queueing import WorkloadFinished
from headgate.events.registry import Event
from headgate.testing.fuzz.contests import ROUNDS_MIN, Contests


def reserved(workload: str) -> Event:
    """It is admitted."""
    return QuotaReserved(
        workload=WorkloadKey(workload),
        uid=Uid(workload),
        cluster_queue="cq",
        admission=Admission(cluster_queue="cq"),
        message="",
    )


def lost(workload: str) -> Event:
    """It no longer fits after what went before it."""
    return WorkloadSkipped(
        workload=WorkloadKey(workload),
        uid=Uid(workload),
        cluster_queue="cq",
        status="skipped",
        requeue_reason="FailedAfterNomination",
        scope="immediate",
        reason="WaitingForQuota",
        message="",
    )


def preempted(workload: str, preemptor: str) -> Event:
    """It is preempted for another."""
    return WorkloadPreempted(
        workload=WorkloadKey(workload),
        uid=Uid(workload),
        cluster_queue="cq",
        preemptor=WorkloadKey(preemptor),
        preemptor_uid=Uid(preemptor),
        reason="InCohortReclamation",
        message="",
    )


def finished(workload: str) -> Event:
    """Its job is over."""
    return WorkloadFinished(workload=WorkloadKey(workload), uid=Uid(workload), reason="Succeeded", message="")


PAIR = ((reserved("ns/a"), lost("ns/b")), (preempted("ns/a", "ns/b"),))
"""Two workloads."""

CIRCLE = (
    (reserved("ns/a"), lost("ns/b")),
    (preempted("ns/a", "ns/c"),),
    (reserved("ns/c"), lost("ns/a")),
    (preempted("ns/c", "ns/b"),),
)
"""Three: b and c take turns at it."""


@pytest.fixture
def state() -> State:
    """A cell with fair sharing."""
    made = fold.new_state("fuzz")
    made.configuration = Configuration(fair_sharing=FairSharingConfiguration())
    return made


@pytest.fixture
def contests(state: State) -> Callable[..., bool]:
    """Whether commits, repeated so often, are an endless preemption."""

    def play(*rounds: tuple[Event, ...], times: int = ROUNDS_MIN, then: tuple[Event, ...] = ()) -> bool:
        found = Contests()
        for events in (*rounds * times, *((then,) if then else ())):
            commit = Commit(
                id=CommitId("1"),
                producer=Producer.SCHEDULER,
                epoch=Epoch(1),
                number=1,
                time_ms=UnixMs(0),
                prev="",
                events=events,
            )
            found.commit(state, LoggedCommit(seq=Seq(1), hash="", commit=commit))
        return found.is_endless

    return play


@pytest.mark.parametrize("rounds", [PAIR, CIRCLE], ids=["two", "three"])
def test_workloads_that_take_the_same_quota_from_each_other_are_recognized(
    contests: Callable[..., bool], rounds: tuple[tuple[Event, ...], ...]
) -> None:
    """Once they have done so often, and not before."""
    assert contests(*rounds)
    assert not contests(*rounds, times=10)


def test_it_is_fair_sharing_only(contests: Callable[..., bool], state: State) -> None:
    """Without it, heads and victims are ordered by the same rules."""
    state.configuration = Configuration()
    assert not contests(*PAIR)


@pytest.mark.parametrize(
    ("what", "rounds"),
    [
        ("the victim was not put before its preemptor", ((reserved("ns/a"),), (preempted("ns/a", "ns/b"),))),
        ("another lost", ((reserved("ns/a"), lost("ns/c")), (preempted("ns/a", "ns/b"),))),
        ("preemptions close the circle", (*PAIR, (reserved("ns/b"), lost("ns/a")), (preempted("ns/b", "ns/a"),))),
        ("one is admitted and stays", (*PAIR, (reserved("ns/d"), lost("ns/b")))),
        ("one finishes in between", (*PAIR, (finished("ns/d"),))),
    ],
)
def test_nothing_else_is_recognized(
    contests: Callable[..., bool], what: str, rounds: tuple[tuple[Event, ...], ...]
) -> None:
    """A cell that does not come to rest for any other reason has a defect."""
    assert not contests(*rounds), what


def test_a_workload_that_finishes_ends_it(contests: Callable[..., bool]) -> None:
    """What was counted until then does not count any more."""
    assert not contests(*PAIR, then=(finished("ns/a"),))
