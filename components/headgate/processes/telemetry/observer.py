"""
The telemetry of a process: its own metrics, Kueue's, and spans.

`headgate_*` metrics are served by every process. Kueue's names (`kueue_*`) are served by the snapshotter's leader
alone, which reads everything: so a sum over all processes counts each admission once, and dashboards made for Kueue
work. So are the kube-scheduler's (`scheduler_*`), but for what its queue alone knows. They are derived from the events
that are folded while it leads; a counter starts at 0 with each process, as Prometheus expects of counters.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from opentelemetry.trace import Span

from headgate.adapters.log import Appended, AppendOutcome
from headgate.adapters.telemetry.logs import in_trace
from headgate.adapters.telemetry.metrics import Metrics
from headgate.adapters.telemetry.traces import Traces, trace_id_of, traceparent
from headgate.core.machine.contract import Append
from headgate.core.state.error_text import describe, where
from headgate.core.state.tables import State
from headgate.events.base import tag_of
from headgate.events.commit import Commit, LoggedCommit
from headgate.events.ids import Seq
from headgate.processes.runtime.process_status import Phase, Status
from headgate.processes.telemetry.kueue_metrics import KueueMetrics
from headgate.processes.telemetry.scheduler_metrics import SchedulerMetrics
from headgate.processes.telemetry.subjects import workloads_of

_LOG: Final = logging.getLogger(__name__)

RECENT_MAX: Final = 4_096
"""Traceparents of the newest commits, which a cause may refer to."""

PARTS_MAX: Final = 256
"""In the traces of how many workloads a commit about several has a span; the rest have their other spans."""

_COUNTERS: Final[Mapping[str, str]] = {
    "commits_folded": "Commits of the log that this process has folded.",
    "events_folded": "Events of the log that this process has folded.",
    "commits_appended": "Commits that this process has appended.",
    "events_appended": "Events that this process has appended.",
    "appends_refused": "Appends that the log refused: each ended an epoch of this process.",
    "terms": "Epochs in which this process has led.",
    "decisions": "How often the machine was asked for a decision.",
    "stimuli": "Answers and watch events that reached the machine.",
    "calls": "Calls to the API server.",
    "calls_refused": "Calls that the API server answered with a definite no.",
    "snapshots": "Snapshots stored.",
    "verifications": "Stretches of the log that were folded again to compare.",
    "divergences": "Verifications that gave another state.",
    "feed_messages": "Messages stored in the feed.",
    "events_dropped": "Kubernetes Events that were not written because too many were waiting.",
}
_SECONDS: Final[Mapping[str, str]] = {
    "fold_ns": "Time spent folding.",
    "decide_ns": "Time spent deciding.",
    "append_ns": "Time from a decision to the acknowledgement of its append.",
}
_GAUGES: Final[Mapping[str, str]] = {
    "calls_unfinished": "Calls to the API server without an answer.",
    "entries_waiting": "Entries of the log that wait to be folded.",
    "stimuli_waiting": "Answers and watch events that wait for the machine.",
    "entries_refused": "Entries of the log that are not of it and were refused.",
    "position": "The last sequence of the log that is folded.",
    "epoch": "The epoch in which this process leads; 0 when it does not.",
    "clock_off": "1 while this machine's clock and the broker's disagree by more than the cell bears.",
}


class Observing:
    """The observer of one process's host."""

    def __init__(self, status: Status, metrics: Metrics, traces: Traces | None, *, kueue: bool) -> None:
        self.metrics = metrics
        self._status = status
        self._traces = traces
        self._kueue = KueueMetrics(metrics) if kueue else None
        self._scheduler = SchedulerMetrics(metrics) if kueue else None
        self._recent: dict[Seq, str] = {}
        self._state: State | None = None
        self._spans: list[Span] = []
        self._register()

    def folded(self, state: State, logged: LoggedCommit, *, leading: bool) -> None:
        """See `headgate.processes.runtime.host.Observer`."""
        if self._kueue is not None and self._scheduler is not None and leading:
            try:
                self._kueue.folded(state, logged)
                self._scheduler.folded(state, logged)
            except Exception as error:  # noqa: BLE001 - it costs what was to be counted
                text = (
                    f"the metrics of the cell lack what position {logged.seq} has: {describe(error)} in {where(error)}"
                )
                _LOG.error("%s", text, exc_info=error)
                self._status.notice("metrics", text)
        self._state = state
        if self._traces is not None and logged.commit.trace is not None:
            self._recent[logged.seq] = logged.commit.trace
            if len(self._recent) > RECENT_MAX:
                del self._recent[next(iter(self._recent))]

    def deciding(self, append: Append) -> str | None:
        """See `headgate.processes.runtime.host.Observer`."""
        if self._traces is None:
            return None
        cause = self._recent.get(append.cause.seq) if append.cause is not None else None
        seen = self._recent.get(append.decided_at)
        about = workloads_of(append.events, self._state)
        only = next(iter(about)) if len(about) == 1 else None
        begun = self._begin(append, cause, (seen,) if seen is not None and seen != cause else (), only, about)
        if len(about) > 1:
            for uid in list(about)[:PARTS_MAX]:
                self._begin(append, None, (traceparent(begun),), uid, {uid: about[uid]})
        in_trace(traceparent(begun).split("-")[1])
        return traceparent(begun)

    def _begin(
        self, append: Append, cause: str | None, links: tuple[str, ...], uid: str | None, about: Mapping[str, str]
    ) -> Span:
        """A span of a commit: in the trace of one workload, or in one of its own if it is about several."""
        assert self._traces is not None, "only called with tracing"
        if len(about) > 1 and cause is not None:
            links = (cause, *links)
            cause = None
        span = self._traces.begin(
            f"{self._status.process} {tag_of(append.events[0])}",
            cause=cause,
            links=links,
            trace=trace_id_of(uid) if uid is not None else None,
            attributes={
                "headgate.cell": self._status.cell,
                "headgate.decided_at": append.decided_at,
                "headgate.events": len(append.events),
                **({"headgate.workload": next(iter(about.values()))} if len(about) == 1 else {}),
            },
        )
        self._spans.append(span)
        return span

    def appended(self, commit: Commit, outcome: AppendOutcome) -> None:
        """See `headgate.processes.runtime.host.Observer`."""
        spans, self._spans = self._spans, []
        if self._traces is None or commit.trace is None:
            return
        for span in spans:
            span.set_attribute("headgate.commit", commit.id)
            if isinstance(outcome, Appended):
                span.set_attribute("headgate.position", outcome.seq)
                self._traces.end(span)
            else:
                self._traces.end(span, error="the log refused the append")
        in_trace("")

    def gauges_of(self, state: Callable[[], State]) -> None:
        """Serve Kueue's gauges from this state while the process leads."""
        if self._kueue is not None:
            self._kueue.serve_gauges(lambda: state() if self._status.phase is Phase.LEADING else None)
        if self._scheduler is not None:
            self._scheduler.serve_gauges(lambda: state() if self._status.phase is Phase.LEADING else None)

    def _register(self) -> None:
        counters = self._status.counters
        for name, help_text in _COUNTERS.items():
            self.metrics.counter(f"headgate_{name}_total", help_text, lambda name=name: getattr(counters, name))  # type: ignore[misc]
        for name, help_text in _SECONDS.items():
            self.metrics.counter(
                f"headgate_{name.removesuffix('_ns')}_seconds_total",
                help_text,
                lambda name=name: getattr(counters, name) / 1e9,  # type: ignore[misc]
            )
        for name, help_text in _GAUGES.items():
            self.metrics.gauge(f"headgate_{name}", help_text, lambda name=name: [(getattr(counters, name), {})])  # type: ignore[misc]
        self.metrics.gauge(
            "headgate_quarantined_objects",
            "Objects in quarantine (headgate quarantine list).",
            lambda: [(len(self._status.quarantine()), {})],
        )
        self.metrics.counters(
            "headgate_kubernetes_retries_total",
            "Requests to the API server that were made again, by cause.",
            lambda: (each for tally in self._status.retries for each in tally()),
        )
        self.metrics.counters(
            "headgate_kubernetes_watches_total",
            "Events of the watches of the API server, by resource and kind of event.",
            lambda: (each for tally in self._status.watches for each in tally()),
        )
        self.metrics.gauge(
            "headgate_placement_plugin_failed",
            "1 for a placement plugin that has raised an exception in this term, or an index over the cluster has.",
            lambda: self._status.plugin_failures(),
        )
        self.metrics.gauge(
            "scheduler_pending_pods",
            "Pods that wait for a node, by their place in the queue; of the scheduler's leader.",
            lambda: self._status.pending_pods(),
        )
        self.metrics.gauge("headgate_phase", "1 for the current phase of the process.", self._phases)
        self.metrics.gauge("headgate_dependency_up", "Whether a dependency works: 1 or 0.", self._dependencies)

    def _phases(self) -> Iterator[tuple[float, Mapping[str, str]]]:
        return ((float(phase is self._status.phase), {"phase": phase.value}) for phase in Phase)

    def _dependencies(self) -> Iterator[tuple[float, Mapping[str, str]]]:
        return ((float(each.ok), {"dependency": each.name}) for each in self._status.dependencies())
