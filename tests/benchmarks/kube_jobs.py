"""
`python -m tests.benchmarks.kube_jobs [--of KIND] [--jobs N] [--save DIR] [--json]`: jobs through their whole lives.

2,000 jobs of one kind (`kube_job_kinds`) arrive at once, in ten queues that can run them all: each becomes a Workload,
is admitted, resumed, gets its pods from the controller or operator of its kind, which Headgate binds and kwok runs for
a moment, and completes. What is printed: jobs a second, the writes of each job by user (from the audit log) and what
ours are for, CPU and peak memory of every process. The audit log costs the API server a few percent.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import msgspec
from tests.benchmarks import kube_profile
from tests.benchmarks.kube import DRIVER, SETTLE_S, costs_of_processes
from tests.benchmarks.kube_cell import OPERATOR, KubeCell, running
from tests.benchmarks.kube_entry import options_of, run
from tests.benchmarks.kube_job_kinds import LOADS, Load, Seen
from tests.benchmarks.kube_meter import Costs, load_of_machine
from tests.benchmarks.manifests import cluster
from tests.benchmarks.measure import Report, Row

from headgate.cli.supervisor import NATS, PROCESSES
from headgate.testing.control_plane import API_SERVER, CONTROLLERS, KWOK, Options

JOBS: Final = 2_000
TEAMS: Final = 10
RUN_MS: Final = 200
IN_FLIGHT: Final = 16
DEADLINE_S: Final = 3_600.0
PROGRESS_S: Final = 10.0
WRITING: Final = ("create", "update", "patch", "delete", "deletecollection")
WHO: Final = (
    (CONTROLLERS, "the controllers"),
    (KWOK, "kwok"),
    ("headgate", "Headgate"),
    ("jobset", "the operator"),
    ("manager/", "the operator"),
)
"""By a part of the user agent, who it is; everybody else is the driver."""
PURPOSES: Final = {
    "create workloads": "the Workload of the job",
    "patch workloads/status": "its conditions: admitted, and finished",
    "patch workloads": "its finalizer, removed when it has finished",
    "patch jobs": "the job resumed on its flavors",
    "patch jobsets": "the job resumed on its flavors",
    "patch pods": "pods ungated with their node selector; at the end their finalizer removed",
    "create pods/binding": "pods bound to nodes, as a scheduler does",
    "create events": "Events, as many as their budget allows",
    "patch events": "Events that were repeated",
    "patch localqueues/status": "counts of the queue, once for many jobs",
    "patch clusterqueues/status": "counts of the queue, once for many jobs",
}
"""What our writes are for, by verb and resource."""
OF_THE_JOB: Final = ("create workloads", "patch workloads/status", "patch workloads", "patch jobs", "patch jobsets")
"""The writes that each job needs however many pods it has."""


class _Event(msgspec.Struct):
    type: str
    object: Seen


class Measured(msgspec.Struct, kw_only=True):
    """One run: seconds until all were created, resumed and complete; writes by who, verb and resource."""

    load: str
    jobs: int
    created_s: float
    resumed_s: float
    completed_s: float
    failed: int
    writes: dict[tuple[str, str, str], int]
    costs: Costs
    profiles: str


class Watched:
    """What a watch of all objects of the jobs has shown."""

    def __init__(self, load: Load, jobs: int) -> None:
        self._load = load
        self._wanted = load.objects * jobs
        self.resumed: set[tuple[str, str]] = set()
        self.complete: set[tuple[str, str]] = set()
        self.failed: set[tuple[str, str]] = set()
        self.all_resumed_at = 0.0
        self.all_ended = anyio.Event()

    async def follow(self, cell: KubeCell, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Watch until cancelled."""
        decoder = msgspec.json.Decoder(_Event)
        path = self._load.resource.path()
        version = msgspec.json.decode(await cell.api.get(f"{path}?limit=1"))["metadata"]["resourceVersion"]
        task_status.started()
        while True:  # the API server ends the watch of a client that does not keep up
            async for line in cell.api.lines(f"{path}?watch=1&timeoutSeconds=3600&resourceVersion={version}"):
                seen = decoder.decode(line).object
                version = seen.metadata.resource_version
                self._hear(seen)

    def _hear(self, seen: Seen) -> None:
        key = (seen.metadata.namespace, seen.metadata.name)
        if seen.is_resumed and key not in self.resumed:
            self.resumed.add(key)
            if len(self.resumed) == self._wanted:
                self.all_resumed_at = time.perf_counter()
        if seen.has(self._load.succeeded):
            self.complete.add(key)
        if seen.has("Failed"):
            self.failed.add(key)
        if len(self.complete) + len(self.failed) == self._wanted:
            self.all_ended.set()

    async def tell(self) -> None:
        """Say how far it is."""
        while True:
            await anyio.sleep(PROGRESS_S)
            print(f"  {len(self.resumed)} resumed, {len(self.complete)} complete", file=sys.stderr, flush=True)


async def measure(folder: Path, options: argparse.Namespace) -> Measured:
    """One run in a folder."""
    load = LOADS[options.of]
    plane = Options(nodes=0, audit=True)
    async with running(
        folder,
        options=plane,
        sampled=options.sampled,
        framework=load.kind.framework,
        with_operator=load.operator,
        placing=True,
    ) as cell:
        await cell.create(cluster(teams=TEAMS, cpu=1_000))
        await anyio.sleep(SETTLE_S)
        meter = cell.meter()
        await meter.begin()
        before = Counter(_writes(cell))
        own_s = time.process_time()
        watched = Watched(load, options.jobs)
        async with anyio.create_task_group() as tasks:
            await tasks.start(watched.follow, cell)
            tasks.start_soon(watched.tell)
            begun = time.perf_counter()
            await _submit(cell, load, options.jobs)
            created_s = time.perf_counter() - begun
            with anyio.fail_after(DEADLINE_S):
                await watched.all_ended.wait()
            completed_s = time.perf_counter() - begun
            tasks.cancel_scope.cancel()
        own_s = time.process_time() - own_s
        await anyio.sleep(SETTLE_S)
        costs = await meter.end()
        writes = Counter(_writes(cell)) - before
    costs.cpu_s[DRIVER] = own_s
    return Measured(
        load=load.title,
        jobs=options.jobs,
        created_s=created_s,
        resumed_s=watched.all_resumed_at - begun,
        completed_s=completed_s,
        failed=len(watched.failed),
        writes=dict(writes),
        costs=costs,
        profiles=kube_profile.of_samples(folder / "samples") if options.sampled else "",
    )


async def _submit(cell: KubeCell, load: Load, jobs: int) -> None:
    """Create the jobs, several at a time."""
    left = iter(range(jobs))

    async def worker() -> None:
        for number in left:
            team = f"team-{number % TEAMS}"
            for manifest in load.manifests(number, team, RUN_MS):
                await cell.api.post(load.resource.path(namespace=team), msgspec.json.encode(manifest))

    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))


def _writes(cell: KubeCell) -> Iterator[tuple[str, str, str]]:
    """Who has written what, by the audit log: who, verb, resource."""
    for line in cell.plane.audit_lines():
        if line.verb in WRITING:
            agent = line.user_agent.lower()
            who = next((name for part, name in WHO if part in agent), DRIVER)
            resource = "/".join(part for part in (line.resource, line.subresource) if part)
            if line.code >= 300:
                resource += f", answered {line.code}"
            yield who, line.verb, resource


def report(measured: Measured, took_s: float) -> Report:
    """The figures."""
    jobs, costs = measured.jobs, measured.costs
    own = 1000 * sum(costs.cpu_s[name] for name in (*PROCESSES, NATS)) / jobs
    by = Counter[str]()
    for (who, _, _), count in measured.writes.items():
        by[who] += count
    done = Report(name="bench-kube-jobs", took_s=took_s)
    done.rows += [
        Row(
            what=f"{measured.load} through suspend, admission, resume, completion, {jobs} of them",
            figure=f"{jobs / measured.completed_s:.0f} jobs/s",
            compared=f"{measured.completed_s:.0f} s; all created after {measured.created_s:.0f} s, resumed after "
            f"{measured.resumed_s:.0f} s; {measured.failed} failed",
        ),
        Row(
            what="writes per job, ours",
            figure=f"{by['Headgate'] / jobs:.2f}",
            compared=f"the controllers' {by['the controllers'] / jobs:.2f}, kwok's {by['kwok'] / jobs:.2f}, "
            f"the operator's {by['the operator'] / jobs:.2f}, the driver's {by[DRIVER] / jobs:.2f}",
        ),
        Row(
            what="of these for the job itself, without pods, Events and the queues' statuses",
            figure=f"{sum(ours for what, ours in _ours(measured) if what in OF_THE_JOB) / jobs:.2f}",
            compared="Workload made, admitted, resumed, finished, finalizer removed: 5",
        ),
        Row(
            what="CPU per job, our six processes and NATS",
            figure=f"{own:.1f} ms",
            compared=f"the API server's {1000 * costs.cpu_s[API_SERVER] / jobs:.1f} ms, "
            f"the operator's {1000 * costs.cpu_s.get(OPERATOR, 0.0) / jobs:.1f} ms",
        ),
    ]
    done.notes += [
        f"{who}: {verb} {resource} {count / jobs:.2f} a job" + _purpose(who, f"{verb} {resource}")
        for (who, verb, resource), count in sorted(measured.writes.items(), key=lambda each: (each[0][0], -each[1]))
        if count >= jobs / 200
    ]
    done.notes += costs_of_processes(costs, jobs, "a job")
    done.notes.append(load_of_machine())
    done.profile = measured.profiles
    return done


def _ours(measured: Measured) -> Iterator[tuple[str, int]]:
    """Our writes by verb and resource."""
    for (who, verb, resource), count in measured.writes.items():
        if who == "Headgate":
            yield f"{verb} {resource}", count


def _purpose(who: str, write: str) -> str:
    """What a write of ours is for, in words."""
    return f": {PURPOSES[write]}" if who == "Headgate" and write in PURPOSES else ""


def main() -> None:
    """Run once and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.kube_jobs", description="Measure; judge nothing.")
    parser.add_argument("--of", choices=sorted(LOADS), default="job", help="their kind (default job)")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"how many (default {JOBS})")
    options = options_of(parser)
    run(measure, report, options)


if __name__ == "__main__":
    main()
