"""Clocks that jump: nothing is evicted for it, every deadline comes at its time, and the cell recovers."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from headgate.cli.demo_objects import cluster_objects, job_objects
from headgate.core.log.log_time import CLOCK_SKEW_MS_MAX, WINDOW_MS
from headgate.core.state.tables import State
from headgate.events.base import EventBase, Producer
from headgate.events.commit import LoggedCommit
from headgate.events.configuration import Configuration, WaitForPodsReady
from headgate.events.decisions import QuotaReserved, WorkloadAdmitted
from headgate.events.facts import ConfigurationObserved
from headgate.events.queueing import WorkloadEvicted, WorkloadFinished
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.testing.world.world import BROKER, MACHINES, FaultRates, World

DAYS_1000_MS = 1000 * 86_400_000
JUMP_MS = 8_000
TIMEOUT_MS = 120_000
WAITS = Configuration(wait_for_pods_ready=WaitForPodsReady(timeout_ms=TIMEOUT_MS))
SLACK_MS = 2 * CLOCK_SKEW_MS_MAX
"""How far a deadline may be off: the bound when it is set, and when it is looked at."""

CLOCKS = [*(producer.value for producer in Producer), BROKER]


class Told:
    """Every event with the world's time of its append; checks the log's time as it goes."""

    def __init__(self, seed: int = 0, faults: FaultRates | None = None) -> None:
        self.events: list[tuple[int, EventBase]] = []
        bridge = partial(InformerBridge, configuration=ConfigurationObserved(configuration=WAITS))
        more: dict[str, Any] = {"faults": faults} if faults is not None else {}
        self.world = World(
            seed=seed,
            machines={**MACHINES, Producer.INFORMER_BRIDGE: bridge},
            check=self.check,
            **more,
        )

    def check(self, state: State, logged: LoggedCommit) -> None:
        now_ms = self.world.clock.now_ms
        assert state.now_ms <= now_ms + CLOCK_SKEW_MS_MAX, "a clock has moved the log's time"
        self.events += ((now_ms, event) for event in logged.commit.events)

    def of(self, *types: type[EventBase]) -> list[tuple[int, Any]]:
        return [(at_ms, event) for at_ms, event in self.events if type(event) in types]

    def run(self, for_ms: int) -> bool:
        return self.world.run(until_ms=self.world.clock.now_ms + for_ms)

    def jump(self, whose: str, by_ms: int, *objects: Mapping[str, Any]) -> None:
        """A clock is wrong for a while; what is submitted meanwhile is met by it."""
        self.world.set_clock(whose, by_ms)
        self.world.apply(*objects)
        self.run(JUMP_MS)
        self.world.set_clock(whose, 0)


@pytest.mark.parametrize("by_ms", [DAYS_1000_MS, -DAYS_1000_MS, 60_000, -60_000])
@pytest.mark.parametrize("whose", CLOCKS)
def test_a_clock_that_jumps_for_a_moment_costs_nobody_anything(whose: str, by_ms: int) -> None:
    """Jobs before, during and after it run to their end; none is evicted, and the log's time is right."""
    told = Told()
    jobs = job_objects(12, seed=1)
    told.world.apply(*cluster_objects(), *jobs[:4])
    told.run(3_000)
    told.jump(whose, by_ms, *jobs[4:8])
    told.world.apply(*jobs[8:])
    assert told.run(900_000), "the cell never comes to rest"
    assert told.of(WorkloadEvicted) == []
    assert len(told.of(WorkloadFinished)) == len(jobs)
    last_ms = told.events[-1][0]
    assert told.world.state.now_ms >= last_ms - 1000


@pytest.mark.parametrize("by_ms", [DAYS_1000_MS, -DAYS_1000_MS])
@pytest.mark.parametrize("whose", CLOCKS)
@pytest.mark.parametrize("moment_ms", [0, 20_000])
def test_deadlines_come_at_their_time_all_the_same(whose: str, by_ms: int, moment_ms: int) -> None:
    """
    Pods that never become ready: evicted when the timeout is over, again admitted when the backoff is.

    The jump is at the moment of the admission, or between admission and eviction.
    """
    told = Told()
    (job,) = job_objects(1, seed=1)
    told.world.apply(*(each for each in cluster_objects() if each["kind"] != "Node"))
    told.run(1_000)
    if moment_ms:
        told.world.apply(job)
        told.run(moment_ms)
        told.jump(whose, by_ms)
    else:
        told.jump(whose, by_ms, job)
    told.run(3 * TIMEOUT_MS + 200_000)
    admitted = [at_ms for at_ms, _ in told.of(WorkloadAdmitted)]
    evicted = [at_ms for at_ms, _ in told.of(WorkloadEvicted)]
    reserved = [at_ms for at_ms, _ in told.of(QuotaReserved)]
    assert {event.reason for _, event in told.of(WorkloadEvicted)} == {"PodsReadyTimeout"}
    assert len(evicted) >= 2
    for begun_ms, ended_ms in zip(admitted, evicted, strict=False):
        assert abs(ended_ms - begun_ms - TIMEOUT_MS) <= SLACK_MS
    backoffs_ms = [again_ms - ended_ms for ended_ms, again_ms in zip(evicted, reserved[1:], strict=False)]
    undisturbed_ms = [60_000, 120_000]
    for backoff_ms, expected_ms in zip(backoffs_ms, undisturbed_ms, strict=False):
        assert abs(backoff_ms - expected_ms) <= SLACK_MS


@pytest.mark.parametrize("whose", [each for each in CLOCKS if each != BROKER])
def test_a_process_whose_clock_is_wrong_does_not_lead_until_it_is_right(whose: str) -> None:
    """It steps down by itself, and comes back when its clock does."""
    told = Told()
    jobs = job_objects(6, seed=2)
    told.world.apply(*cluster_objects(), *jobs[:2])
    told.run(5_000)
    before = told.world.stood_down
    terms = {each: record.epoch for each, record in told.world.state.producers.items()}
    told.jump(whose, DAYS_1000_MS, *jobs[2:])
    assert told.world.stood_down > before
    assert told.run(900_000)
    assert len(told.of(WorkloadFinished)) == len(jobs)
    changed = {each.value for each, record in told.world.state.producers.items() if record.epoch != terms[each]}
    assert changed == {whose}


def test_a_wrong_clock_of_the_broker_ends_no_term() -> None:
    """The processes agree with each other: it is reported, and they continue."""
    told = Told()
    jobs = job_objects(6, seed=2)
    told.world.apply(*cluster_objects(), *jobs[:2])
    told.run(5_000)
    told.jump(BROKER, DAYS_1000_MS, *jobs[2:])
    assert told.run(900_000)
    assert {record.epoch for record in told.world.state.producers.values()} == {1}


@pytest.mark.parametrize("seed", range(20))
def test_crashes_and_jumps_together_forget_nobody(seed: int) -> None:
    """Restarts from snapshots, rivals, late commits, and one clock after the other that jumps."""
    start_ms = 1_700_000_000_000
    told = Told(seed, FaultRates(crash=0.02, rival=0.01, lag=0.2, call_lost=0.05, until_ms=start_ms + 240_000))
    jobs = job_objects(10, seed=seed)
    told.world.apply(*cluster_objects(), *jobs)
    for number in range(6):
        whose = CLOCKS[(seed + number) % len(CLOCKS)]
        told.jump(whose, DAYS_1000_MS if number % 2 else -DAYS_1000_MS)
        told.run(2 * WINDOW_MS)
    assert told.run(1_800_000)
    assert len({event.workload for _, event in told.of(WorkloadFinished)}) == len(jobs)
    assert "PodsReadyTimeout" not in {event.reason for _, event in told.of(WorkloadEvicted)}
