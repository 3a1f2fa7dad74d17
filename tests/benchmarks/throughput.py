"""
How many jobs a second a whole cell takes through their lives, and which process spends how much CPU on it.

A thousand short jobs arrive as fast as the simulated API server takes them, in ten queues that can run them all; each
is created, becomes a Workload, is queued, admitted and started, gets a pod that is placed, bound, runs and ends, and
is finished. Everything shares the machine's cores: the six processes, the broker, the simulated cluster and who
measures.
"""

import os
import pstats
import tempfile
import time
from pathlib import Path

import anyio
import msgspec
from tests.benchmarks.driving import Driver, eventually, run_driver, running_cell
from tests.benchmarks.manifests import cluster, job
from tests.benchmarks.measure import Report, Row, cpu_s, rss_mib, shown

from headgate.cli.supervisor import CLUSTER, NATS, PROCESSES
from headgate.core.state.tables import Stage

JOBS = 1_000
TEAMS = 10
WARM_UP = 50
DEADLINE_S = 120.0
DRIVER = "this benchmark"


class Measured(msgspec.Struct, kw_only=True):
    """What one run took."""

    total_s: float
    submitted_s: float
    admitted_s: float
    commits: int
    events: int
    cpu: dict[str, float]
    memory: dict[str, float]


def cpu_of_all(driver: Driver) -> dict[str, float]:
    """CPU seconds so far, by process."""
    used = {name: cpu_s(driver.cell.pid(name) or 0) for name in (*PROCESSES, NATS, CLUSTER)}
    used[DRIVER] = time.process_time()
    return used


def count(driver: Driver, *stages: Stage) -> int:
    return sum(each.stage in stages for each in driver.state.workloads.values())


async def push(driver: Driver, prefix: str, jobs: int) -> tuple[float, float, float]:
    """Submit jobs and wait until all are finished; seconds until all were submitted, admitted, finished."""
    begun = time.perf_counter()
    before = count(driver, Stage.FINISHED)
    manifests = [job(f"{prefix}-{n}", f"team-{n % TEAMS}", cpu="10m", run_ms=100) for n in range(jobs)]
    await driver.create_all(manifests)
    submitted_s = time.perf_counter() - begun
    await eventually(
        lambda: count(driver, Stage.ADMITTED, Stage.FINISHED) >= before + jobs,
        lambda: f"{count(driver, Stage.ADMITTED, Stage.FINISHED) - before} of {jobs} admitted",
        DEADLINE_S,
    )
    admitted_s = time.perf_counter() - begun
    await eventually(
        lambda: count(driver, Stage.FINISHED) >= before + jobs,
        lambda: f"{count(driver, Stage.FINISHED) - before} of {jobs} finished",
        DEADLINE_S,
    )
    return submitted_s, admitted_s, time.perf_counter() - begun


async def measure(data: Path, jobs: int, env: dict[str, str]) -> Measured:
    """A cell, a warm-up, and one run."""
    async with running_cell(data, env=env) as driver:
        await driver.create_all(cluster(teams=TEAMS, cpu=1000), 1)
        await push(driver, "warm", WARM_UP)
        await anyio.sleep(0.5)
        before, commits, events = cpu_of_all(driver), driver.state.position, driver.events
        submitted_s, admitted_s, total_s = await push(driver, "job", jobs)
        after = cpu_of_all(driver)
        return Measured(
            total_s=total_s,
            submitted_s=submitted_s,
            admitted_s=admitted_s,
            commits=driver.state.position - commits,
            events=driver.events - events,
            cpu={name: after[name] - before[name] for name in after},
            memory={name: rss_mib(driver.cell.pid(name)) for name in (*PROCESSES, NATS, CLUSTER)},
        )


def run(*, profile: bool = False, jobs: int = JOBS) -> Report:
    """One run, and with `profile` one more in which every process is profiled."""
    report = Report(name="throughput")
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as directory:
        measured: Measured = run_driver(measure, Path(directory), jobs, dict[str, str]())
    if profile:
        report.profile = profiles(jobs)
    total_cpu = sum(measured.cpu.values())
    cores = os.cpu_count() or 1
    ours = sum(measured.cpu[name] for name in PROCESSES)
    report.rows += [
        Row(
            what=f"sustained jobs through all six processes, {jobs} jobs",
            figure=f"{jobs / measured.total_s:.0f} jobs/s",
            compared=f"{measured.total_s:.1f} s, {100 * total_cpu / measured.total_s / cores:.0f} % of {cores} cores "
            f"busy with it; the six take {100 * ours / total_cpu:.0f} % of that",
        ),
        Row(
            what="CPU per job, all six processes",
            figure=f"{1000 * ours / jobs:.1f} ms",
            compared=f"{ours / max(measured.cpu[CLUSTER], 0.01):.1f} x the simulated cluster "
            f"({1000 * measured.cpu[CLUSTER] / jobs:.1f} ms)",
        ),
    ]
    report.notes += [
        f"all submitted after {measured.submitted_s:.1f} s, admitted after {measured.admitted_s:.1f} s; "
        f"{measured.events} events in {measured.commits} commits ({measured.events / measured.commits:.1f} each, "
        f"{measured.events / jobs:.1f} a job), {measured.commits / measured.total_s:.0f} commits/s",
        f"everything together takes {1000 * total_cpu / jobs:.1f} ms of CPU a job, so {cores} cores with nothing "
        f"else to do take at most {cores * jobs / total_cpu:.0f} jobs/s; each commit is read and folded by all six",
        *(_line(name, measured, jobs) for name in sorted(measured.cpu, key=lambda name: -measured.cpu[name])),
    ]
    return report


def profiles(jobs: int) -> str:
    """Where each process spends its own time, imports and start included."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as directory:
        env = {"PYTHONPATH": str(Path(__file__).parent / "profiling"), "BENCH_PROFILES": directory}
        run_driver(measure, Path(directory) / "cell", jobs, env)
        return "\n".join(
            f"--- {file.stem}\n{shown(pstats.Stats(str(file)))}" for file in sorted(Path(directory).glob("*.prof"))
        )


def _line(name: str, measured: Measured, jobs: int) -> str:
    used = measured.cpu[name]
    memory = f", {measured.memory[name]:.0f} MiB resident" if name in measured.memory else ""
    share = 100 * used / measured.total_s
    return f"{used:5.2f} s CPU  {name:16} {1000 * used / jobs:5.2f} ms a job, {share:3.0f} % of a core{memory}"
