"""
A trace through a whole cell: the decisions of the five machines that decide, the simulated cluster, virtual time.

The same trace and options give the same log, byte for byte; its hash is in the report.
"""

from collections.abc import Callable, Mapping

import msgspec

from headgate.core.machine.contract import Machine
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.testing.traces import openb
from headgate.testing.traces.report import TraceRecorder, TraceReport
from headgate.testing.world.world import MACHINES, World

START_MS = 1_700_000_000_000

DECIDING: Mapping[Producer, Callable[[State], Machine]] = {
    producer: machine for producer, machine in MACHINES.items() if producer is not Producer.SNAPSHOTTER
}
"""A trace runs for virtual days without a restart: snapshots of it every few minutes would not be used."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is: tasks submitted, admissions, tasks finished, of how many; virtual seconds; events so far."""

    tasks: int
    submitted: int
    admitted: int
    finished: int
    virtual_s: float
    events: int


# Large: one loop over a trace and one to its end, which share the counts that are reported.
def run_trace(
    trace: openb.Trace,
    *,
    compress: float = 1.0,
    clock: Callable[[], float],
    sink: Callable[[int, str, int, bytes], None] | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> TraceReport:
    """
    Run a trace to its end and report.

    `compress` divides the times between arrivals, and so multiplies the load; run times stay. `clock` is a monotonic
    clock in seconds, for the report's real duration only. `sink` gets each commit as (sequence, subject, time in ms,
    payload).
    """
    begun_s = clock()
    recorder = TraceRecorder(openb.GPU, START_MS)
    world = World(start_ms=START_MS, cell="openb", check=recorder.observe, sink=sink, machines=DECIDING)
    world.create(*openb.cluster_objects(trace))
    world.run(until_ms=START_MS)
    sizes = openb.Sizes(trace.nodes)
    submitted = 0

    def tell() -> None:
        progress(
            Progress(
                tasks=len(trace.tasks),
                submitted=submitted,
                admitted=recorder.admissions,
                finished=recorder.finished,
                virtual_s=(world.clock.now_ms - START_MS) / 1000,
                events=recorder.events,
            )
        )

    for task in trace.tasks:
        at_ms = START_MS + round(task.creation_time * 1000 / compress)
        if at_ms > world.clock.now_ms:
            world.run(until_ms=at_ms)
            world.advance(at_ms)
            tell()
        world.create(openb.job_of(task, sizes))
        submitted += 1
    while recorder.finished < len(trace.tasks):
        before = recorder.finished
        target = min(before + 100, len(trace.tasks))
        ended = world.run(until=lambda _, target=target: recorder.finished >= target)  # type: ignore[misc]
        tell()
        if ended and recorder.finished == before:
            break
    world.run(until_ms=world.clock.now_ms)
    tell()
    return recorder.report(world.state, tasks=len(trace.tasks), real_s=clock() - begun_s)
