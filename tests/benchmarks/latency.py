"""
How long it takes from a Job's creation to its admission where quota is free, and which hop takes how much of it.

One job at a time, so that nothing waits for anything: what remains is the path of a decision through the processes,
five of which append one after the other, each durable before the next. The moments are those at which an outsider
sees things: the commits by a tail of its own, the Workload by a watch.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
from tests.benchmarks.driving import Driver, eventually, run_driver, running_cell
from tests.benchmarks.manifests import cluster, job
from tests.benchmarks.measure import Report, Row, percentile

from headgate.adapters.jetstream import connect, open_log
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.log import Appended
from headgate.core.api.job_kinds import shown_name
from headgate.events.base import tag_of
from headgate.events.commit import LoggedCommit
from headgate.events.decisions import WorkloadAdmitted
from headgate.events.effects import StatusApplied
from headgate.events.facts import JobObserved, WorkloadObserved
from headgate.events.queueing import WorkloadQueued

JOBS = 300
WARM_UP = 30
PAUSE_S = 0.02
FLOOR = 100
P50_MS, P99_MS = 15.0, 60.0
HOPS = (
    ("job.observed", "informer bridge: watch line to commit"),
    ("created", "informer bridge: POST of the Workload, until the API shows it"),
    ("workload.observed", "informer bridge: its watch line to commit"),
    ("workload.queued", "queue manager: queued and offered"),
    ("workload.admitted", "scheduler: cycle"),
    ("workload.status_applied", "binder: PATCH of the status, and its commit"),
)


class Moments:
    """When each job was first seen at each hop."""

    def __init__(self) -> None:
        self.seen: dict[str, dict[str, float]] = {}
        self.jobs: dict[str, str] = {}

    def note(self, key: str, what: str, at: float) -> None:
        self.seen.setdefault(key, {}).setdefault(what, at)

    def commit(self, logged: LoggedCommit, at: float) -> None:
        """Note the events of a commit by job."""
        for event in logged.commit.events:
            match event:
                case JobObserved(job=key):
                    self.note(shown_name(key), tag_of(event), at)
                case WorkloadObserved(workload=workload, owner=owner) if owner is not None:
                    self.jobs[workload] = f"{workload.partition('/')[0]}/{owner.name}"
                    self.note(self.jobs[workload], tag_of(event), at)
                case StatusApplied(workload=workload):
                    shown = self.jobs.get(workload, "")
                    if "workload.admitted" in self.seen.get(shown, {}):
                        self.note(shown, tag_of(event), at)
                case WorkloadQueued(workload=workload) | WorkloadAdmitted(workload=workload):
                    self.note(self.jobs[workload], tag_of(event), at)
                case _:
                    pass

    def condition(self, workload: dict[str, Any], at: float) -> None:
        """The Workload as the API server shows it."""
        metadata = workload["metadata"]
        key = f"{metadata['namespace']}/{metadata['ownerReferences'][0]['name']}"
        self.note(key, "created", at)
        for condition in workload.get("status", {}).get("conditions", ()):
            if condition["type"] == "Admitted" and condition["status"] == "True":
                self.note(key, "condition", at)


async def submit(driver: Driver, moments: Moments, number: int) -> str:
    """One job, from its creation to the condition; its key."""
    key = f"team-0/job-{number}"
    moments.note(key, "submitted", await driver.create(job(f"job-{number}", "team-0", cpu="1m", run_ms=600_000)))
    await eventually(
        lambda: moments.seen[key].keys() >= {"condition", "workload.status_applied"},
        lambda: f"{key} got no further than {sorted(moments.seen[key])}",
        10.0,
    )
    await anyio.sleep(PAUSE_S)
    return key


async def floor(driver: Driver) -> tuple[float, float]:
    """What the path consists of, measured alone: a fenced append and a request to the API server, median ms."""
    appends, requests, last = [], [], 0
    async with EmbeddedServer(driver.cell.data / "floor") as server, connect(server.url, name="floor") as connection:
        log = await open_log(connection, "floor")
        for number in range(FLOOR):
            begun = time.perf_counter()
            outcome = await log.append("binder", b"{}" * 200, expected_last=last, commit_id=f"p-1-{number}")
            appends.append(time.perf_counter() - begun)
            assert isinstance(outcome, Appended)
            last = outcome.seq
    for _ in range(FLOOR):
        begun = time.perf_counter()
        await driver.items("api/v1/namespaces")
        requests.append(time.perf_counter() - begun)
    return 1000 * statistics.median(appends), 1000 * statistics.median(requests)


async def measure(data: Path) -> tuple[list[dict[str, float]], tuple[float, float]]:
    """The moments of each job after the warm-up, and the floor."""
    moments = Moments()
    async with running_cell(data) as driver, anyio.create_task_group() as tasks:
        driver.listeners.append(moments.commit)
        await driver.create_all(cluster(teams=1, cpu=1000), 1)
        tasks.start_soon(driver.watch_workloads, moments.condition)
        await eventually(lambda: "team-0/main" in driver.state.local_queues, lambda: "the LocalQueue", 10.0)
        alone = await floor(driver)
        keys = [await submit(driver, moments, number) for number in range(WARM_UP + JOBS)]
        tasks.cancel_scope.cancel()
    return [moments.seen[key] for key in keys[WARM_UP:]], alone


def run(*, profile: bool = False) -> Report:
    """Submit jobs one by one."""
    report = Report(name="latency")
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as directory:
        seen, (append_ms, request_ms) = run_driver(measure, Path(directory))
    alone_ms = 4 * append_ms + 2 * request_ms
    for what, end in (
        ("submit -> workload.admitted in the log", "workload.admitted"),
        ("submit -> Admitted condition in the API", "condition"),
    ):
        took_ms = [1000 * (each[end] - each["submitted"]) for each in seen]
        p50, p99 = statistics.median(took_ms), percentile(took_ms, 0.99)
        report.rows.append(
            Row(
                what=what,
                figure=f"p50 {p50:.1f} ms, p99 {p99:.1f} ms",
                target=f"p50 <= {P50_MS:.0f}, p99 <= {P99_MS:.0f}",
                met=p50 <= P50_MS and p99 <= P99_MS,
                compared=f"best {min(took_ms):.1f} ms; 4 appends and 2 requests alone: {alone_ms:.1f} ms",
            )
        )
    report.notes.append(
        f"{JOBS} jobs, one at a time; alone a fenced append takes {append_ms:.2f} ms, a request to the API server "
        f"{request_ms:.2f} ms; beside them, seven readers wake for every commit and share the cores"
    )
    before = "submitted"
    for hop, what in HOPS:
        taken = [1000 * (each[hop] - each[before]) for each in seen]
        report.notes.append(f"{statistics.median(taken):5.1f} ms (p99 {percentile(taken, 0.99):5.1f})  {what}")
        before = hop
    return report
