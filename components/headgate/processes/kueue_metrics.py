"""
Kueue's metrics, under Kueue's names and labels, derived from the log.

Counters and histograms follow from events as they are folded; gauges are read off the state when somebody asks. What
Kueue counts inside its controllers and the log does not say (durations of reconciliations, evictions' latencies) is not
served. Buckets are Kueue's.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from opentelemetry.metrics import Histogram

from headgate.adapters.telemetry.metrics import Metrics, exponential_buckets
from headgate.core.activeness import cluster_queue_active
from headgate.core.state import Stage, State
from headgate.events.commit import Commit, LoggedCommit
from headgate.events.decisions import CycleDecided, QuotaReserved, WorkloadAdmitted
from headgate.events.ids import WorkloadKey
from headgate.events.queueing import WorkloadEvicted, WorkloadFinished

_ROLE = {"replica_role": "leader"}
_BY_QUEUE = ("cluster_queue", "priority_class", "replica_role")

Since = Literal["queued_at_ms", "reserved_at_ms", "admitted_at_ms"]

Values = Iterator[tuple[float, Mapping[str, str]]]


class KueueMetrics:
    """Kueue's metrics in one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._attempts = metrics.tally(
            "kueue_admission_attempts_total",
            "The total number of attempts to admit workloads.",
            ("result", "replica_role"),
        )
        self._reserved = metrics.tally(
            "kueue_quota_reserved_workloads_total", "The total number of quota reserved workloads.", _BY_QUEUE
        )
        self._admitted = metrics.tally(
            "kueue_admitted_workloads_total", "The total number of admitted workloads.", _BY_QUEUE
        )
        self._finished = metrics.tally(
            "kueue_finished_workloads_total", "The total number of finished workloads.", _BY_QUEUE
        )
        self._evicted = metrics.tally(
            "kueue_evicted_workloads_total",
            "The number of evicted workloads.",
            ("cluster_queue", "reason", "underlying_cause", "priority_class", "replica_role"),
        )
        self._reserved_wait = metrics.histogram(
            "kueue_quota_reserved_wait_time_seconds",
            "The time between a workload was created or requeued until it got quota reservation.",
            exponential_buckets(14),
        )
        self._admitted_wait = metrics.histogram(
            "kueue_admission_wait_time_seconds",
            "The time between a workload was created or requeued until admission.",
            exponential_buckets(16),
        )
        self._checks_wait = metrics.histogram(
            "kueue_admission_checks_wait_time_seconds",
            "The time from when a workload got the quota reservation until admission.",
            exponential_buckets(14),
        )
        self._execution = metrics.histogram(
            "kueue_execution_time_seconds",
            "The time from a workload's admission until it finished.",
            exponential_buckets(16),
        )

    def folded(self, state: State, logged: LoggedCommit) -> None:
        """Count what a commit says; the state has it folded in."""
        commit = logged.commit
        for event in commit.events:
            match event:
                case CycleDecided():
                    if event.heads:
                        admits = any(isinstance(each, QuotaReserved) for each in commit.events)
                        self._attempts.add("success" if admits else "inadmissible", "leader")
                case QuotaReserved():
                    self._reserved.add(*self._labels(state, event.workload, event.cluster_queue).values())
                    self._wait(self._reserved_wait, state, event.workload, event.cluster_queue, commit, "queued_at_ms")
                case WorkloadAdmitted():
                    self._on_admitted(state, event, commit)
                case WorkloadEvicted():
                    self._on_evicted(state, event)
                case WorkloadFinished():
                    self._on_finished(state, event, commit)
                case _:
                    pass

    def _on_admitted(self, state: State, event: WorkloadAdmitted, commit: Commit) -> None:
        self._admitted.add(*self._labels(state, event.workload, event.cluster_queue).values())
        self._wait(self._admitted_wait, state, event.workload, event.cluster_queue, commit, "queued_at_ms")
        self._wait(self._checks_wait, state, event.workload, event.cluster_queue, commit, "reserved_at_ms")

    def _on_evicted(self, state: State, event: WorkloadEvicted) -> None:
        workload = state.workloads.get(event.workload)
        if workload is None:
            return
        labels = self._labels(state, event.workload, workload.cluster_queue)
        self._evicted.add(
            workload.cluster_queue, event.reason, event.underlying_cause, labels["priority_class"], "leader"
        )

    def _on_finished(self, state: State, event: WorkloadFinished, commit: Commit) -> None:
        workload = state.workloads.get(event.workload)
        if workload is None:
            return
        self._finished.add(*self._labels(state, event.workload, workload.cluster_queue).values())
        if workload.admitted_at_ms:
            self._wait(self._execution, state, event.workload, workload.cluster_queue, commit, "admitted_at_ms")

    @staticmethod
    def _labels(state: State, key: WorkloadKey, cluster_queue: str) -> dict[str, str]:
        workload = state.workloads.get(key)
        reference = workload.spec.priority_class_ref if workload is not None else None
        priority_class = reference.name if reference is not None else ""
        return {"cluster_queue": cluster_queue, "priority_class": priority_class, **_ROLE}

    @staticmethod
    def _wait(
        histogram: Histogram, state: State, key: WorkloadKey, cluster_queue: str, commit: Commit, since: Since
    ) -> None:
        workload = state.workloads.get(key)
        since_ms = getattr(workload, since) if workload is not None else 0
        if since_ms:
            waited_s = max(commit.time_ms - since_ms, 0) / 1000
            histogram.record(waited_s, KueueMetrics._labels(state, key, cluster_queue))

    def serve_gauges(self, state: Callable[[], State | None]) -> None:
        """Serve the gauges from what `state` gives when asked; nothing when it gives None."""

        def of(values: Callable[[State], Values]) -> Callable[[], Values]:
            def ask() -> Values:
                now = state()
                return iter(()) if now is None else values(now)

            return ask

        gauge = self._metrics.gauge
        gauge("kueue_pending_workloads", "The number of pending workloads.", of(_pending))
        gauge("kueue_reserving_active_workloads", "The number of Workloads that are reserving quota.", of(_reserving))
        gauge("kueue_admitted_active_workloads", "The number of admitted Workloads that are active.", of(_admitted))
        gauge("kueue_cluster_queue_status", "1 for the status a ClusterQueue has.", of(_statuses))
        gauge(
            "kueue_cluster_queue_resource_reservation",
            "The ClusterQueue's total resource reservation by flavor.",
            of(_reservations),
        )


def _pending(state: State) -> Values:
    """Active: in line. Inadmissible: asleep, behind a blocked head, or set aside alone."""
    parked: dict[str, int] = {}
    for workload in state.workloads.values():
        if workload.stage in (Stage.PARKED, Stage.SKIPPED) and workload.cluster_queue:
            parked[workload.cluster_queue] = parked.get(workload.cluster_queue, 0) + 1
    for name in state.cluster_queues:
        waiting, active = parked.get(name, 0), len(state.index.offered.get(name, ()))
        queue = state.index.pending.get(name)
        if queue is not None:
            # Counting whoever is not behind a blocked head means walking the line; without one, subtraction does.
            ahead = len(queue) - queue.count_asleep() if queue.blocked is None else sum(1 for _ in queue.ahead())
            active += ahead
            waiting += len(queue) - ahead
        yield float(active), {"cluster_queue": name, "status": "active", **_ROLE}
        yield float(waiting), {"cluster_queue": name, "status": "inadmissible", **_ROLE}


def _reserving(state: State) -> Values:
    for name in state.cluster_queues:
        yield float(len(state.index.holders.get(name, ()))), {"cluster_queue": name, **_ROLE}


def _admitted(state: State) -> Values:
    for name in state.cluster_queues:
        holders = state.index.holders.get(name, {})
        admitted = sum(state.workloads[key].stage is Stage.ADMITTED for key in holders)
        yield float(admitted), {"cluster_queue": name, **_ROLE}


def _statuses(state: State) -> Values:
    for name in state.cluster_queues:
        active = cluster_queue_active(state, name).active
        for status, holds in (("pending", not active), ("active", active), ("terminating", False)):
            yield float(holds), {"cluster_queue": name, "status": status, **_ROLE}


def _reservations(state: State) -> Values:
    for name, record in state.cluster_queues.items():
        for (flavor, resource), amount in state.index.usage.get(name, {}).items():
            value = amount / 1000 if resource == "cpu" else float(amount)
            yield (
                value,
                {
                    "cohort": record.spec.cohort_name,
                    "cluster_queue": name,
                    "flavor": flavor,
                    "resource": resource,
                    **_ROLE,
                },
            )
