"""
What a simulated run was like: waits, utilisation, counts, and a picture.

`TraceRecorder` gets every commit as it is appended and keeps what the report needs; `report` sums it up; `picture`
draws utilisation and queue lengths over virtual time as SVG.
"""

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

import msgspec

from headgate.core.kubernetes.quantities import amount
from headgate.core.state.tables import PENDING, Stage, State
from headgate.events.commit import LoggedCommit, chain
from headgate.events.decisions import WorkloadAdmitted, WorkloadMigrated, WorkloadPreempted
from headgate.events.facts import NodeObserved, WorkloadObserved
from headgate.events.ids import WorkloadKey, split_key
from headgate.events.queueing import WorkloadEvicted, WorkloadFinished

SAMPLES_MAX = 2000
"""Points of a series in a report. When there are more, every second one is dropped and the spacing doubled."""


class QueueWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Time from creation to admission in one queue, in virtual seconds; `waiting` were never admitted."""

    queue: str
    tasks: int
    admitted: int
    waiting: int
    p50_s: float
    p90_s: float
    p99_s: float
    max_s: float


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One moment: seconds since the start, amount of the resource in use by admitted workloads, workloads pending."""

    at_s: float
    used: int
    pending: int


class TraceReport(msgspec.Struct, frozen=True, kw_only=True):
    """A run in numbers. `utilisation` is time-weighted, of `capacity` of `resource`; `log_hash` identifies the log."""

    tasks: int
    succeeded: int
    failed: int
    unfinished: int
    evictions: int
    resource: str
    capacity: int
    used_peak: int
    utilisation_mean: float
    virtual_s: float
    real_s: float
    commits: int
    events: int
    cycles: int
    log_hash: str
    queues: tuple[QueueWaits, ...]
    unfinished_why: dict[str, int]
    samples: tuple[Sample, ...]


class TraceRecorder:
    """Keeps what a report needs while a run continues. `observe` is the world's `check`."""

    def __init__(self, resource: str, start_ms: int) -> None:
        self.resource = resource
        self.start_ms = start_ms
        self.capacity = 0
        self.commits = 0
        self.events = 0
        self.finished = 0
        self.admissions = 0
        self.evictions = 0
        self.used_peak = 0
        self.log_hash = ""
        self._created: dict[WorkloadKey, int] = {}
        self._admitted: dict[WorkloadKey, int] = {}
        self._used = 0
        self._area = 0.0
        self._changed_ms = start_ms
        self._samples: list[Sample] = []
        self._latest: Sample | None = None
        self._every = 1
        self._seen = 0

    def observe(self, state: State, logged: LoggedCommit) -> None:
        """Take note of a commit that has just been folded into `state`."""
        self.commits += 1
        self.events += len(logged.commit.events)
        self.log_hash = chain(self.log_hash, logged.hash)
        moved = False
        for event in logged.commit.events:
            match event:
                case WorkloadObserved():
                    self._created.setdefault(event.workload, event.created_ms)
                    moved = True
                case WorkloadAdmitted():
                    self._admitted.setdefault(event.workload, logged.commit.time_ms)
                    self.admissions += 1
                    moved = True
                case WorkloadFinished():
                    self.finished += 1
                    moved = True
                case WorkloadEvicted() | WorkloadPreempted() | WorkloadMigrated():
                    self.evictions += 1
                    moved = True
                case NodeObserved():
                    self.capacity += amount(self.resource, event.node.allocatable.get(self.resource, 0))
                case _:
                    pass
        if moved:
            self._sample(state, logged.commit.time_ms)

    def _sample(self, state: State, now_ms: int) -> None:
        self._area += self._used * (now_ms - self._changed_ms)
        self._changed_ms = now_ms
        self._used = sum(
            held
            for usage in state.index.usage.values()
            for (_, resource), held in usage.items()
            if resource == self.resource
        )
        self.used_peak = max(self.used_peak, self._used)
        pending = len(self._created) - self.finished - sum(len(keys) for keys in state.index.holders.values())
        at_s = (now_ms - self.start_ms) / 1000
        if self._latest is not None and self._latest.at_s < at_s:
            self._keep(self._latest)
        # Of several values within one instant only the last is drawn.
        self._latest = Sample(at_s=at_s, used=self._used, pending=max(0, pending))

    def _keep(self, sample: Sample) -> None:
        self._seen += 1
        if self._seen % self._every:
            return
        self._samples.append(sample)
        if len(self._samples) > SAMPLES_MAX:
            self._samples = self._samples[::2]
            self._every *= 2

    def report(self, state: State, *, tasks: int, real_s: float) -> TraceReport:
        """Sum up a run that has come to its end."""
        workloads = list(state.workloads.values())
        done = [each for each in workloads if each.stage is Stage.FINISHED]
        failed = sum(any(c.type == "Finished" and c.reason == "Failed" for c in each.conditions) for each in done)
        why: dict[str, int] = {}
        for each in workloads:
            if each.stage in PENDING:
                reason = (
                    each.verdict.reason if each.verdict else each.parked.reason if each.parked else each.stage.value
                )
                why[reason] = why.get(reason, 0) + 1
            elif each.stage is not Stage.FINISHED:
                why[each.stage.value] = why.get(each.stage.value, 0) + 1
        elapsed_ms = max(1, self._changed_ms - self.start_ms)
        return TraceReport(
            tasks=tasks,
            succeeded=len(done) - failed,
            failed=failed,
            unfinished=tasks - len(done),
            evictions=self.evictions,
            resource=self.resource,
            capacity=self.capacity,
            used_peak=self.used_peak,
            utilisation_mean=self._area / elapsed_ms / max(1, self.capacity),
            virtual_s=(state.now_ms - self.start_ms) / 1000,
            real_s=real_s,
            commits=self.commits,
            events=self.events,
            cycles=state.cycle,
            log_hash=self.log_hash,
            queues=self._waits(),
            unfinished_why=why,
            samples=(*self._samples, *((self._latest,) if self._latest is not None else ())),
        )

    def _waits(self) -> tuple[QueueWaits, ...]:
        queues: dict[str, list[WorkloadKey]] = {}
        for key in self._created:
            queues.setdefault(split_key(key)[0], []).append(key)
        rows = []
        for queue, keys in sorted(queues.items()):
            waits = sorted((self._admitted[key] - self._created[key]) / 1000 for key in keys if key in self._admitted)
            rows.append(
                QueueWaits(
                    queue=queue,
                    tasks=len(keys),
                    admitted=len(waits),
                    waiting=len(keys) - len(waits),
                    p50_s=percentile(waits, 0.5),
                    p90_s=percentile(waits, 0.9),
                    p99_s=percentile(waits, 0.99),
                    max_s=waits[-1] if waits else 0.0,
                )
            )
        return tuple(rows)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of ordered values; 0 when there are none."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered)) - 1))]


# --- the picture ---------------------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 960, 420, 80, 48, 56


def picture(report: TraceReport, title: str) -> str:
    """Amount in use and workloads pending over virtual time, as an SVG document."""
    samples = report.samples
    end_s = max((sample.at_s for sample in samples), default=1.0) or 1.0
    used_max = max(report.used_peak, 1)
    pending_max = max((sample.pending for sample in samples), default=0) or 1
    inner_w, inner_h = WIDTH - 2 * LEFT, HEIGHT - TOP - BOTTOM

    def path(points: list[tuple[float, float]]) -> str:
        steps = []
        for number, (x, y) in enumerate(points):
            steps.append(f"M{x:.1f},{y:.1f}" if number == 0 else f"H{x:.1f}V{y:.1f}")
        return "".join(steps)

    def points(values: list[tuple[float, float]], top: float) -> list[tuple[float, float]]:
        return [(LEFT + at / end_s * inner_w, TOP + inner_h * (1 - value / top)) for at, value in values]

    used = path(points([(sample.at_s, sample.used) for sample in samples], used_max))
    pending = path(points([(sample.at_s, sample.pending) for sample in samples], pending_max))
    ticks = "".join(
        _tick(share, end_s, used_max, pending_max, inner_w, inner_h) for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    )
    share = 100 * report.utilisation_mean
    note = (
        f"capacity {_short(report.capacity)}, peak {_short(report.used_peak)}, mean {share:.2f} % of capacity; "
        f"{report.tasks} tasks, {report.succeeded} succeeded, {report.failed} failed, {report.unfinished} unfinished"
    )
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {box}>
<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>
<text x="{LEFT}" y="20" font-size="15" font-weight="bold">{escape(title)}</text>
<text x="{LEFT}" y="38" fill="#555">{escape(note)}</text>
{ticks}
<path d="{used}" fill="none" stroke="#1b6ca8" stroke-width="1.4"/>
<path d="{pending}" fill="none" stroke="#c8553d" stroke-width="1.1"/>
<text x="{LEFT}" y="{HEIGHT - 10}" fill="#1b6ca8">{escape(report.resource)} in use (left)</text>
<text x="{LEFT + inner_w}" y="{HEIGHT - 10}" fill="#c8553d" text-anchor="end">workloads pending (right)</text>
</svg>
"""


def _tick(share: float, end_s: float, used_max: int, pending_max: int, inner_w: int, inner_h: int) -> str:
    x, y = LEFT + share * inner_w, TOP + inner_h * (1 - share)
    bottom = TOP + inner_h
    return (
        f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + inner_w}" y2="{y:.1f}" stroke="#e4e4e4"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_short(share * used_max)}</text>'
        f'<text x="{LEFT + inner_w + 8}" y="{y + 4:.1f}">{_short(share * pending_max)}</text>'
        f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{_time(share * end_s)}</text>'
    )


def _short(value: float) -> str:
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (size if suffix != 'k' else 1e3):.4g}{suffix}"
    return f"{value:.4g}"


def _time(seconds: float) -> str:
    if seconds >= 2 * 86400:
        return f"{seconds / 86400:.4g} d"
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:.4g} h"
    return f"{seconds:.4g} s"


def as_dict(report: TraceReport) -> dict[str, Any]:
    """The report as plain data, without the samples."""
    data: dict[str, Any] = msgspec.to_builtins(report)
    del data["samples"]
    return data
