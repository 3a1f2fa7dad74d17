"""Crowds: what the queue manager does for each of many is bounded by what happens to it. Calls count, not time."""

import cProfile
import pstats
from collections.abc import Callable

import pytest
from tests.support.queueing import QueueCell

from headgate.core.state.tables import Stage
from headgate.events.ids import WorkloadKey
from headgate.machines.queue_manager.decide import EVENTS_PER_COMMIT_MAX
from headgate.machines.queue_manager.offering import OFFER_DEPTH


def calls(work: Callable[[], object]) -> int:
    """How many functions were called."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return pstats.Stats(profile).total_calls  # type: ignore[attr-defined]


def arrivals(count: int) -> tuple[QueueCell, Callable[[], None]]:
    """A cell, and the arrival of many workloads in bursts of a hundred, each settled."""
    cell = QueueCell().ready()
    events = [cell.observed(f"w{number:05}", created_s=number, cpu=f"{number % 7 + 1}") for number in range(count)]

    def work() -> None:
        for start in range(0, count, 100):
            cell.see(*events[start : start + 100])
            cell.settle()

    return cell, work


def test_ten_thousand_arrivals_cost_ten_times_a_thousand() -> None:
    """Queueing is not quadratic, in one ClusterQueue whose heads stay on offer."""
    few, many = calls(arrivals(1000)[1]), calls(arrivals(10_000)[1])
    assert many < 13 * few


def test_a_flood_comes_in_bounded_commits() -> None:
    """Ten thousand at once: no commit holds more than its bound and one workload's steps, and all are queued."""
    cell = QueueCell().ready()
    cell.see(*(cell.observed(f"w{number:05}", created_s=number) for number in range(10_000)))
    sizes = []
    while (append := cell.decide()) is not None:
        sizes.append(len(append.events))
        cell.land(append)
    assert max(sizes) <= EVENTS_PER_COMMIT_MAX + 4
    assert len(sizes) == 10_000 // EVENTS_PER_COMMIT_MAX
    assert len(cell.state.index.pending["cq"]) + len(cell.offers()) == 10_000


def test_offers_do_not_wait_for_a_flood_to_be_placed() -> None:
    """The first commit of a flood offers the first heads of every ClusterQueue that it reached."""
    cell = QueueCell().ready()
    cell.cluster_queue("other")
    cell.local_queue("second", "other")
    cell.settle()
    cell.see(
        *(
            cell.observed(f"w{number:05}", queue=("main", "second")[number % 2])
            for number in range(2 * EVENTS_PER_COMMIT_MAX)
        )
    )
    append = cell.decide()
    assert append is not None
    cell.land(append)
    assert len(cell.offers()) == len(cell.offers("other")) == OFFER_DEPTH


@pytest.mark.parametrize("said", ["shape", "queue"])
def test_ten_thousand_go_to_sleep_and_wake_with_a_few_calls(said: str) -> None:
    """A verdict and its end cost the same whether ten or ten thousand wait behind it."""

    def sleep_and_wake(count: int) -> int:
        cell = QueueCell().ready(strategy="StrictFIFO" if said == "queue" else "BestEffortFIFO")
        cell.see(*(cell.observed(f"w{number:05}", created_s=number) for number in range(count)))
        cell.settle()

        def work() -> None:
            cell.skip(WorkloadKey("team/w00000"), said)
            cell.settle()
            assert cell.offers() == []
            cell.cluster_queue(strategy="StrictFIFO" if said == "queue" else "BestEffortFIFO", cohort="all")
            cell.settle()
            assert cell.stage(WorkloadKey("team/w00000")) is Stage.OFFERED

        return calls(work)

    assert sleep_and_wake(10_000) < 2 * sleep_and_wake(100)
