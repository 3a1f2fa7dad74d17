"""
What a decision costs: the six processes' machines in one thread, over a log in memory and a simulated cluster.

Every machine is put behind a stopwatch. The jobs come at once and share quota for some of them, so most wait, sleep
with their shape and are woken; the figures are own time per workload (or per head that a cycle considered), without
I/O, encoding and folding, which other benchmarks measure.
"""

import time
from collections.abc import Callable, Mapping

from tests.benchmarks.manifests import cluster, job
from tests.benchmarks.measure import Report, Row, profiled

from headgate.core.machine.contract import Command, Machine, Stimulus
from headgate.core.state.tables import Stage, State
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit
from headgate.events.decisions import CycleDecided, WorkloadSkipped
from headgate.testing.world.world import MACHINES, World

TEAMS = 10
JOBS = 2_000
CPU = 20
"""Quota of a team: a tenth of its jobs runs at a time."""
SIZES = ("1", "2", "500m", "3")
HORIZON_MS = 3_600_000


class Timed:
    """A machine behind a stopwatch. `spent_s` is by kind of stimulus."""

    def __init__(self, machine: Machine, spent_s: dict[str, float]) -> None:
        self.state = machine.state
        self._machine = machine
        self._spent_s = spent_s

    def decide(self, stimulus: Stimulus) -> list[Command]:
        kind = type(stimulus).__name__
        begun = time.perf_counter()
        commands = self._machine.decide(stimulus)
        self._spent_s[kind] = self._spent_s.get(kind, 0.0) + time.perf_counter() - begun
        return commands


class Counts:
    """What a run consisted of."""

    def __init__(self) -> None:
        self.cycles = self.heads = self.skipped = 0

    def count(self, _: State, logged: LoggedCommit) -> None:
        for event in logged.commit.events:
            if isinstance(event, CycleDecided):
                self.cycles += 1
                self.heads += len(event.heads)
            elif isinstance(event, WorkloadSkipped):
                self.skipped += 1


def play(jobs: int, machines: Mapping[Producer, Callable[[State], Machine]], counts: Counts) -> World:
    """Let all jobs come at once and run until all are finished."""
    world = World(machines=machines, check=counts.count)
    world.apply(*cluster(teams=TEAMS, cpu=CPU))
    for number in range(jobs):
        size = SIZES[number // TEAMS % len(SIZES)]
        world.apply(job(f"job-{number}", f"team-{number % TEAMS}", cpu=size, run_ms=500 + number % 7 * 100))
    world.run(until_ms=world.clock.now_ms + HORIZON_MS)
    finished = sum(each.stage is Stage.FINISHED for each in world.state.workloads.values())
    assert finished == jobs, f"only {finished} of {jobs} workloads finished"
    return world


def run(*, profile: bool = False, jobs: int = JOBS) -> Report:
    """One run with stopwatches."""
    report = Report(name="cycle")
    spent: dict[Producer, dict[str, float]] = {producer: {} for producer in MACHINES}
    counts = Counts()

    def timed(producer: Producer) -> Callable[[State], Machine]:
        return lambda state: Timed(MACHINES[producer](state), spent[producer])

    begun = time.perf_counter()
    world = play(jobs, {producer: timed(producer) for producer in MACHINES}, counts)
    total_s = time.perf_counter() - begun
    machine_s = {producer: sum(kinds.values()) for producer, kinds in spent.items()}
    scheduler_s, manager_s = machine_s[Producer.SCHEDULER], machine_s[Producer.QUEUE_MANAGER]
    report.rows += [
        Row(
            what="scheduling cycle, per head",
            figure=f"{scheduler_s / counts.heads * 1e6:.0f} us",
            compared=f"{counts.cycles} cycles of {counts.heads / counts.cycles:.1f} heads, {counts.skipped} of "
            f"{counts.heads} heads did not fit",
        ),
        Row(
            what="queue manager, per workload of its whole life",
            figure=f"{manager_s / jobs * 1e6:.0f} us",
            compared=f"{manager_s / scheduler_s:.1f} x the scheduler; all machines "
            f"{sum(machine_s.values()) / jobs * 1e6:.0f} us",
        ),
    ]
    report.notes.append(
        f"{jobs} jobs, {world.events:,} events in {world.state.position:,} commits "
        f"({world.events / world.state.position:.1f} each), {total_s:.1f} s in one thread, of which the machines "
        f"{sum(machine_s.values()):.1f} s; the rest is encoding, one fold, and the simulated cluster"
    )
    report.notes += [
        f"{producer.value}: {sum(kinds.values()) / jobs * 1e6:.0f} us a workload ("
        + ", ".join(f"{kind} {s / jobs * 1e6:.0f}" for kind, s in kinds.items())
        + ")"
        for producer, kinds in spent.items()
    ]
    if profile:
        report.profile = profiled(lambda: play(jobs // 4, MACHINES, Counts()), 40)
    return report
