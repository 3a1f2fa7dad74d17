"""
Kueue's counters and histograms, from the events of the log as they are folded.

Counts what happens while this process leads. Series vanish with the ClusterQueue, LocalQueue or cohort that they are
about. What an event does not say (since when a workload was evicted, since when its pods are ready) is remembered here
from earlier ones; what began before this process followed the log is not measured. Called by `kueue_metrics`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from headgate.adapters.telemetry.metrics import Distribution, LabelledCounter, Metrics
from headgate.core.api.job_kinds import kind_name
from headgate.core.api.names import IS_GROUP_WORKLOAD
from headgate.core.cycle.processing import FITS_LATER, OVERLAPS
from headgate.core.kubernetes import conditions
from headgate.core.state.tables import Stage, State, Workload, local_queue_of
from headgate.core.workload.concurrent_admission import NO_VARIANT, VARIANT_EVICTED
from headgate.core.workload.job_workload import queue_of
from headgate.core.workload.pods_ready import condition_of
from headgate.events import decisions, facts, queueing
from headgate.events.commit import Commit, LoggedCommit
from headgate.events.configuration import Configuration, CustomMetricLabel
from headgate.events.effects import WorkloadCreated
from headgate.events.ids import JobKey, LocalQueueKey, PodKey, Seq, UnixMs, WorkloadKey, split_key
from headgate.processes.telemetry.custom_labels import custom, names_of
from headgate.processes.telemetry.kueue_catalogue import CATALOGUE, ROLE, is_switched_off
from headgate.processes.telemetry.kueue_labels import (
    Values,
    all_cohorts,
    cohorts_above,
    of_local_queue,
    of_priority_class,
)

K = TypeVar("K")
V = TypeVar("V")

REMEMBERED_MAX: Final = 8_192
"""How many commit times and gated pods are remembered; the oldest are forgotten first."""
_STARTED: Final = "Started"


class KueueCounts:
    """Kueue's counters and histograms in one process."""

    def __init__(self, metrics: Metrics) -> None:
        self._counters: dict[str, LabelledCounter] = {}
        self._histograms: dict[str, Distribution] = {}
        for each in CATALOGUE.values():
            if each.kind == "counter":
                self._counters[each.name] = metrics.tally(each.name, each.about, each.labels)
            elif each.kind == "histogram":
                self._histograms[each.name] = metrics.histogram(each.name, each.about, each.buckets, each.labels)
        self._document: dict[str, Any] = {}
        self._labels: tuple[CustomMetricLabel, ...] = ()
        self._times: dict[Seq, UnixMs] = {}
        self._gates: dict[PodKey, tuple[str, ...]] = {}
        self._evicted: dict[WorkloadKey, tuple[UnixMs, str, str]] = {}
        self._ready: dict[WorkloadKey, UnixMs] = {}
        self._skips: dict[str, int] = {}

    def preemption_skips(self, state: State) -> Values:
        """The gauge of the last cycle: workloads that were skipped because others preempt the same targets."""
        for name in state.cluster_queues:
            yield float(self._skips.get(name, 0)), {"cluster_queue": name, **ROLE}

    # Large: one case for each event type that is counted.
    def folded(self, state: State, logged: LoggedCommit) -> None:
        """Count the events of a commit; it is already folded into the state."""
        commit = logged.commit
        self._document = state.configuration_document
        if state.configuration.custom_labels != self._labels:
            self._relabel(state.configuration)
        _remember(self._times, Seq(logged.seq), commit.time_ms)
        for event in commit.events:
            match event:
                case decisions.CycleDecided():
                    self._on_cycle(state, event, commit)
                case decisions.QuotaReserved():
                    self._reserved(state, event.workload, event.cluster_queue, commit)
                case decisions.WorkloadAdmitted():
                    self._admitted(state, event.workload, event.cluster_queue, commit)
                case queueing.WorkloadEvicted():
                    self._on_evicted(state, event.workload, event.reason, event.underlying_cause, commit)
                case decisions.WorkloadPreempted():
                    self._on_preempted(state, event, commit)
                case decisions.WorkloadMigrated():
                    self._on_evicted(state, event.workload, "FlavorMigration", "", commit)
                case decisions.WorkloadReplaced():
                    self._count(state, "kueue_replaced_workload_slices_total", cluster_queue=event.cluster_queue)
                case decisions.WorkloadSkipped():
                    self._on_skipped(state, event)
                case queueing.WorkloadReleased():
                    self._on_released(state, event.workload, commit)
                case queueing.WorkloadFinished():
                    self._finished(state, event.workload, commit)
                case facts.JobObserved():
                    self._on_job(state, event.job, commit)
                case WorkloadCreated():
                    self._on_created(state, event, commit)
                case facts.WorkloadObserved():
                    self._on_pods_ready(state, event.workload, commit)
                case facts.PodObserved():
                    self._on_pod(state, event, commit)
                case _:
                    self._forget(state, event)

    def _relabel(self, configuration: Configuration) -> None:
        """
        Begin all series anew, with the custom labels of this configuration.

        So they are after a restart of Kueue, which reads another configuration only then.
        """
        self._labels = configuration.custom_labels
        for name, counter in self._counters.items():
            counter.relabel((*CATALOGUE[name].labels, *names_of(configuration, name)))
        for histogram in self._histograms.values():
            histogram.forget({})

    # --- cycles

    def _on_cycle(self, state: State, event: decisions.CycleDecided, commit: Commit) -> None:
        self._skips.clear()
        if not event.heads:
            return
        admits = any(isinstance(each, decisions.QuotaReserved) for each in commit.events)
        result = "success" if admits else "inadmissible"
        self._count(state, "kueue_admission_attempts_total", result=result)
        since_ms = self._times.get(event.decided_at)
        if since_ms is not None:
            name = "kueue_admission_attempt_duration_seconds"
            self._observe(state, name, commit.time_ms - since_ms, result=result)

    def _on_skipped(self, state: State, event: decisions.WorkloadSkipped) -> None:
        if event.message not in (OVERLAPS, FITS_LATER):
            return
        result = "DeferredFit" if event.message == FITS_LATER else "Skipped"
        name = "kueue_preemption_target_recomputations_total"
        self._count(state, name, cluster_queue=event.cluster_queue, result=result)
        if result == "Skipped":
            self._skips[event.cluster_queue] = self._skips.get(event.cluster_queue, 0) + 1

    # --- the life of a workload

    def _reserved(self, state: State, key: WorkloadKey, cluster_queue: str, commit: Commit) -> None:
        workload = state.workloads.get(key)
        if workload is not None:
            self._count_both(state, "quota_reserved_workloads_total", workload, cluster_queue)
            self._wait(
                state, "quota_reserved_wait_time_seconds", workload, cluster_queue, workload.queued_at_ms, commit
            )

    def _admitted(self, state: State, key: WorkloadKey, cluster_queue: str, commit: Commit) -> None:
        workload = state.workloads.get(key)
        if workload is None:
            return
        self._ready.pop(key, None)
        self._count_both(state, "admitted_workloads_total", workload, cluster_queue)
        self._wait(state, "admission_wait_time_seconds", workload, cluster_queue, workload.queued_at_ms, commit)
        self._wait(
            state, "admission_checks_wait_time_seconds", workload, cluster_queue, workload.reserved_at_ms, commit
        )
        record = state.cluster_queues.get(cluster_queue)
        for cohort in cohorts_above(state, record.spec.cohort_name if record is not None else ""):
            name = "kueue_cohort_subtree_admitted_workloads_total"
            self._count(state, name, cohort=cohort, **of_priority_class(workload))

    def _on_job(self, state: State, job: JobKey, commit: Commit) -> None:
        record = state.jobs.get(job)
        if record is not None and record.workload:
            self._on_pods_ready(state, record.workload, commit)

    def _on_created(self, state: State, event: WorkloadCreated, commit: Commit) -> None:
        record = state.jobs.get(event.job)
        if record is not None:
            name = "kueue_workload_creation_latency_seconds"
            queue = f"{split_key(event.workload)[0]}/{queue_of(state, event.job, record.job)}"
            labels = custom(state, name, of_local_queue(LocalQueueKey(queue)))
            self._observe(state, name, commit.time_ms - record.job.created_ms, labels, job_kind=kind_name(event.job))

    def _on_pods_ready(self, state: State, key: WorkloadKey, commit: Commit) -> None:
        """Count the first time that the pods of an admission are ready; a recovery is none."""
        workload = state.workloads.get(key)
        found = condition_of(workload) if workload is not None else None
        if workload is None or found is None or found.status != "True" or workload.stage is not Stage.ADMITTED:
            return
        if key in self._ready:
            return
        self._ready[key] = commit.time_ms
        if found.reason == _STARTED:
            name = "admitted_until_ready_wait_time_seconds"
            self._wait(
                state, "ready_wait_time_seconds", workload, workload.cluster_queue, workload.queued_at_ms, commit
            )
            self._wait(state, name, workload, workload.cluster_queue, workload.admitted_at_ms, commit)

    def _on_evicted(self, state: State, key: WorkloadKey, reason: str, cause: str, commit: Commit) -> None:
        workload = state.workloads.get(key)
        if workload is None or reason in (VARIANT_EVICTED, NO_VARIANT):
            # Counted with its variant.
            return
        why = {"reason": reason, "underlying_cause": cause}
        self._count_both(state, "evicted_workloads_total", workload, workload.cluster_queue, **why)
        times = sum(
            each.count for each in workload.evictions if (each.reason, each.underlying_cause) == (reason, cause)
        )
        if times <= 1:
            labels = {"cluster_queue": workload.cluster_queue, **why, **of_priority_class(workload)}
            self._count(state, "kueue_evicted_workloads_once_total", **labels)
        since_ms = self._ready.pop(key, None)
        if since_ms is not None:
            name = "kueue_pods_ready_to_evicted_time_seconds"
            self._observe(state, name, commit.time_ms - since_ms, cluster_queue=workload.cluster_queue, **why)
        if workload.cluster_queue:
            self._evicted[key] = commit.time_ms, reason, workload.cluster_queue

    def _on_preempted(self, state: State, event: decisions.WorkloadPreempted, commit: Commit) -> None:
        self._on_evicted(state, event.workload, "Preempted", "", commit)
        preemptor = state.workloads.get(event.preemptor)
        if preemptor is not None:
            queue = preemptor.cluster_queue
            name = "kueue_preempted_workloads_total"
            self._count(state, name, preempting_cluster_queue=queue, reason=event.reason)

    def _on_released(self, state: State, key: WorkloadKey, commit: Commit) -> None:
        evicted = self._evicted.pop(key, None)
        if evicted is not None:
            since_ms, reason, queue = evicted
            name = "kueue_workload_eviction_latency_seconds"
            self._observe(state, name, commit.time_ms - since_ms, cluster_queue=queue, reason=reason)

    def _finished(self, state: State, key: WorkloadKey, commit: Commit) -> None:
        workload = state.workloads.get(key)
        self._ready.pop(key, None)
        self._evicted.pop(key, None)
        if workload is None:
            return
        self._count_both(state, "finished_workloads_total", workload, workload.cluster_queue)
        if workload.admitted_at_ms:
            # Earlier admissions are in whole seconds, as the status has them.
            since_ms = UnixMs(workload.admitted_at_ms - 1000 * (workload.past_execution_s or 0))
            self._wait(state, "execution_time_seconds", workload, workload.cluster_queue, since_ms, commit)

    # --- pods

    def _on_pod(self, state: State, event: facts.PodObserved, commit: Commit) -> None:
        """Count the gates that a pod of an admitted workload has lost."""
        gates = tuple(gate.name for gate in event.spec.spec.scheduling_gates)
        had = self._gates.pop(event.pod, ())
        if gates:
            _remember(self._gates, event.pod, gates)
        lost = [gate for gate in had if gate not in gates]
        workload = state.workloads.get(WorkloadKey(event.spec.workload)) if lost else None
        if workload is None or not conditions.is_true(workload.conditions, conditions.ADMITTED):
            return
        for gate in lost:
            self._observe(
                state,
                "kueue_pod_scheduling_gate_removal_seconds",
                commit.time_ms - workload.admitted_at_ms,
                name=gate,
                cluster_queue=workload.cluster_queue,
                is_group=str(workload.annotations.get(IS_GROUP_WORKLOAD) == "true").lower(),
            )

    # --- series

    def _count(self, state: State, metric: str, /, **labels: str) -> None:
        if is_switched_off(self._document, metric):
            return
        counter = self._counters[metric]
        every = {**labels, **ROLE, **custom(state, metric, labels)}
        counter.add(*(every[label] for label in counter.labels))

    def _count_both(self, state: State, metric: str, workload: Workload, cluster_queue: str, **labels: str) -> None:
        """Count in the metric of ClusterQueues and in that of LocalQueues, as far as the queues exist."""
        every = {**labels, **of_priority_class(workload)}
        for prefix, queue in _queues_of(state, workload, cluster_queue):
            self._count(state, f"{prefix}{metric}", **queue, **every)

    def _observe(
        self, state: State, metric: str, span_ms: int, more: Mapping[str, str] | None = None, /, **labels: str
    ) -> None:
        """Observe a span. `more` are the custom labels where no label names the object that they are of."""
        if is_switched_off(self._document, metric):
            return
        every = {**labels, **ROLE}
        in_order = {label: every[label] for label in CATALOGUE[metric].labels}
        of_objects = custom(state, metric, labels) if more is None else more
        self._histograms[metric].record(max(span_ms, 0) / 1000, {**in_order, **of_objects})

    def _wait(
        self, state: State, metric: str, workload: Workload, cluster_queue: str, since_ms: UnixMs, commit: Commit
    ) -> None:
        """Observe a wait in the metric of ClusterQueues and in that of LocalQueues; without a start, nothing."""
        for prefix, queue in _queues_of(state, workload, cluster_queue) if since_ms else ():
            span_ms = commit.time_ms - since_ms
            self._observe(state, f"{prefix}{metric}", span_ms, **queue, **of_priority_class(workload))

    def _forget(self, state: State, event: object) -> None:
        """Remove the series of what is gone."""
        match event:
            case facts.ClusterQueueDeleted():
                self._drop(cluster_queue=event.name)
                self._drop(preempting_cluster_queue=event.name)
                self._drop_cohorts(state)
            case facts.ClusterQueueObserved() | facts.CohortObserved() | facts.CohortDeleted():
                self._drop_cohorts(state)
            case facts.LocalQueueDeleted():
                self._drop(**of_local_queue(event.queue))
            case facts.WorkloadDeleted():
                self._ready.pop(event.workload, None)
                self._evicted.pop(event.workload, None)
            case facts.PodDeleted():
                self._gates.pop(event.pod, None)
            case _:
                pass

    def _drop_cohorts(self, state: State) -> None:
        counter = self._counters["kueue_cohort_subtree_admitted_workloads_total"]
        there = set(all_cohorts(state))
        for cohort in {values[0] for values in counter.values} - there:
            counter.forget({"cohort": cohort})

    def _drop(self, **labels: str) -> None:
        series: Iterable[LabelledCounter | Distribution] = (*self._counters.values(), *self._histograms.values())
        for each in series:
            each.forget(labels)


def _queues_of(state: State, workload: Workload, cluster_queue: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The prefix of metrics and the labels of a workload's ClusterQueue and LocalQueue, as far as they exist."""
    if cluster_queue in state.cluster_queues:
        yield "kueue_", {"cluster_queue": cluster_queue}
    local_queue = local_queue_of(workload)
    if local_queue in state.local_queues:
        yield "kueue_local_queue_", of_local_queue(local_queue)


def _remember(memory: dict[K, V], key: K, value: V) -> None:
    """Keep the latest."""
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > REMEMBERED_MAX:
        del memory[next(iter(memory))]
