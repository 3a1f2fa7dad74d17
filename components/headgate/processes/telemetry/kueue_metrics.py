"""
Kueue's metrics, under Kueue's names and labels, derived from the log.

Counters and histograms follow from events as they are folded; gauges are read from the state on request. Values that
Kueue measures inside its controllers and that are not in the log (durations of reconciliations, evictions' latencies)
are not served. Buckets are Kueue's.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from headgate.adapters.telemetry.metrics import Distribution, Metrics, exponential_buckets
from headgate.core.kubernetes import conditions
from headgate.core.quota.activeness import cluster_queue_active
from headgate.core.quota.admission_fair_sharing import local_queue_usage, orders_by_usage
from headgate.core.state.tables import Stage, State, local_queue_of
from headgate.core.status.queue_shares import QueueShares
from headgate.core.status.queue_status import is_pending_in_queue
from headgate.core.workload.concurrent_admission import NO_VARIANT, VARIANT_EVICTED
from headgate.core.workload.unadmitted_reasons import is_granular
from headgate.events.commit import Commit, LoggedCommit
from headgate.events.decisions import (
    CycleDecided,
    QuotaReserved,
    WorkloadAdmitted,
    WorkloadMigrated,
    WorkloadPreempted,
    WorkloadReplaced,
)
from headgate.events.ids import LocalQueueKey, WorkloadKey, split_key
from headgate.events.queueing import WorkloadEvicted, WorkloadFinished

_ROLE = {"replica_role": "leader"}
_BY_QUEUE = ("cluster_queue", "priority_class", "replica_role")

Since = Literal["queued_at_ms", "reserved_at_ms", "admitted_at_ms"]

Values = Iterator[tuple[float, Mapping[str, str]]]


class KueueMetrics:
    """Kueue's metrics in one process."""

    # Large: one declaration for each metric of Kueue.
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
        self._preempted = metrics.tally(
            "kueue_preempted_workloads_total",
            "The number of preempted workloads.",
            ("preempting_cluster_queue", "reason", "replica_role"),
        )
        self._replaced = metrics.tally(
            "kueue_replaced_workload_slices_total",
            "The number of replaced workload slices.",
            ("cluster_queue", "replica_role"),
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

    # Large: one case for each event type that is counted.
    def folded(self, state: State, logged: LoggedCommit) -> None:
        """Count the events of a commit; it is already folded into the state."""
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
                    self._on_evicted(state, event.workload, event.reason, event.underlying_cause)
                case WorkloadPreempted():
                    self._on_preempted(state, event)
                case WorkloadMigrated():
                    self._on_evicted(state, event.workload, "FlavorMigration")
                case WorkloadReplaced():
                    self._replaced.add(event.cluster_queue, "leader")
                case WorkloadFinished():
                    self._on_finished(state, event, commit)
                case _:
                    pass

    def _on_admitted(self, state: State, event: WorkloadAdmitted, commit: Commit) -> None:
        self._admitted.add(*self._labels(state, event.workload, event.cluster_queue).values())
        self._wait(self._admitted_wait, state, event.workload, event.cluster_queue, commit, "queued_at_ms")
        self._wait(self._checks_wait, state, event.workload, event.cluster_queue, commit, "reserved_at_ms")

    def _on_evicted(self, state: State, key: WorkloadKey, reason: str, underlying_cause: str = "") -> None:
        workload = state.workloads.get(key)
        if workload is None or reason in (VARIANT_EVICTED, NO_VARIANT):
            # Counted with its variant.
            return
        labels = self._labels(state, key, workload.cluster_queue)
        self._evicted.add(workload.cluster_queue, reason, underlying_cause, labels["priority_class"], "leader")

    def _on_preempted(self, state: State, event: WorkloadPreempted) -> None:
        self._on_evicted(state, event.workload, "Preempted")
        preemptor = state.workloads.get(event.preemptor)
        if preemptor is not None:
            self._preempted.add(preemptor.cluster_queue, event.reason, "leader")

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
        histogram: Distribution, state: State, key: WorkloadKey, cluster_queue: str, commit: Commit, since: Since
    ) -> None:
        workload = state.workloads.get(key)
        since_ms = getattr(workload, since) if workload is not None else 0
        if since_ms:
            waited_s = max(commit.time_ms - since_ms, 0) / 1000
            histogram.record(waited_s, KueueMetrics._labels(state, key, cluster_queue))

    def serve_gauges(self, state: Callable[[], State | None]) -> None:
        """Serve the gauges from the result of `state` on request; nothing when it is None."""

        def of(values: Callable[[State], Values]) -> Callable[[], Values]:
            def ask() -> Values:
                now = state()
                return iter(()) if now is None else values(now)

            return ask

        gauge = self._metrics.gauge
        gauge("kueue_pending_workloads", "The number of pending workloads.", of(_pending))
        what = "The number of workloads that are not admitted, by reason."
        gauge("kueue_unadmitted_workloads", what, of(_unadmitted))
        gauge("kueue_local_queue_unadmitted_workloads", what, of(_unadmitted_of_local_queues))
        gauge("kueue_reserving_active_workloads", "The number of Workloads that are reserving quota.", of(_reserving))
        gauge("kueue_admitted_active_workloads", "The number of admitted Workloads that are active.", of(_admitted))
        gauge("kueue_cluster_queue_status", "1 for the status a ClusterQueue has.", of(_statuses))
        gauge(
            "kueue_cluster_queue_resource_reservation",
            "The ClusterQueue's total resource reservation by flavor.",
            of(_reservations),
        )
        gauge(
            "kueue_cluster_queue_weighted_share",
            "The ClusterQueue's share of what its cohort lends, by its weight; none for a borrower of weight 0.",
            of(_cluster_queue_shares),
        )
        gauge(
            "kueue_cohort_weighted_share",
            "The cohort's share of what the one above lends, by its weight; none for a borrower of weight 0.",
            of(_cohort_shares),
        )
        gauge(
            "kueue_local_queue_admission_fair_sharing_usage",
            "What the LocalQueue has used lately, by its weight, where its ClusterQueue orders by that.",
            of(_usages),
        )


def _pending(state: State) -> Values:
    """Active: in the queue. Inadmissible: asleep, behind a blocked head, or parked alone."""
    parked: dict[str, int] = {}
    for workload in state.workloads.values():
        if workload.stage in (Stage.PARKED, Stage.SKIPPED) and is_pending_in_queue(workload):
            parked[workload.cluster_queue] = parked.get(workload.cluster_queue, 0) + 1
    for name in state.cluster_queues:
        waiting, active = parked.get(name, 0), len(state.index.offered.get(name, ()))
        queue = state.index.pending.get(name)
        if queue is not None:
            # Counting the workloads that are not behind a blocked head requires walking the queue; without one,
            # subtraction does.
            ahead = len(queue) - queue.count_asleep() if queue.blocked is None else sum(1 for _ in queue.ahead())
            active += ahead
            waiting += len(queue) - ahead
        yield float(active), {"cluster_queue": name, "status": "active", **_ROLE}
        yield float(waiting), {"cluster_queue": name, "status": "inadmissible", **_ROLE}


def _unadmitted(state: State) -> Values:
    counts: Counter[tuple[str, str, str]] = Counter()
    for _, cluster_queue, reason, cause in _why_unadmitted(state):
        counts[cluster_queue, reason, cause] += 1
    for (cluster_queue, reason, cause), count in counts.items():
        yield float(count), {"cluster_queue": cluster_queue, "reason": reason, "underlying_cause": cause, **_ROLE}


def _unadmitted_of_local_queues(state: State) -> Values:
    for (queue, cluster_queue, reason, cause), count in Counter(_why_unadmitted(state)).items():
        namespace, name = split_key(queue)
        of = {"name": name, "namespace": namespace, "cluster_queue": cluster_queue}
        yield float(count), {**of, "reason": reason, "underlying_cause": cause, **_ROLE}


def _why_unadmitted(state: State) -> Iterator[tuple[LocalQueueKey, str, str, str]]:
    """LocalQueue, ClusterQueue, and the reasons of Admitted=False and of QuotaReserved=False, as Kueue counts them."""
    if not is_granular(state.configuration):
        return
    for workload in state.workloads.values():
        if workload.stage is Stage.FINISHED or conditions.is_true(workload.conditions, conditions.ADMITTED):
            continue
        key = local_queue_of(workload)
        queue = state.local_queues.get(key)
        cluster_queue = workload.cluster_queue or (queue.spec.cluster_queue if queue is not None else "")
        reserved = conditions.find(workload.conditions, conditions.QUOTA_RESERVED)
        if reserved is not None and reserved.status == "True":
            yield key, cluster_queue, "UnsatisfiedAdmissionChecks", "ChecksNotReady"
        else:
            yield key, cluster_queue, "NoReservation", reserved.reason if reserved is not None else "PendingEvaluation"


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


def _cluster_queue_shares(state: State) -> Values:
    shares = QueueShares(state)
    for name, record in state.cluster_queues.items():
        share = shares.of_cluster_queue(name)
        if share is not None and math.isfinite(share.exact):
            yield share.exact, {"cluster_queue": name, "cohort": record.spec.cohort_name, **_ROLE}


def _cohort_shares(state: State) -> Values:
    shares = QueueShares(state)
    for name in state.cohorts:
        share = shares.of_cohort(name)
        if share is not None and math.isfinite(share.exact):
            yield share.exact, {"cohort": name, **_ROLE}


def _usages(state: State) -> Values:
    for key, record in state.local_queues.items():
        cluster_queue = record.spec.cluster_queue
        if orders_by_usage(state, cluster_queue):
            namespace, name = split_key(key)
            labels = {"name": name, "namespace": namespace, "cluster_queue": cluster_queue, **_ROLE}
            yield local_queue_usage(state, key), labels


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
