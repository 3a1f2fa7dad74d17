"""
The metrics of Kueue: names, kinds, labels, buckets and meaning. One list, which the instruments are made from.

Owns no values: `kueue_counts` counts, `kueue_gauges` reads. Called by `kueue_metrics` and by the reference page. Source
of the list: Kueue's pkg/metrics, 0.20-devel. The two of MultiKueue have no values, as in a Kueue without it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.adapters.telemetry.metrics import exponential_buckets
from headgate.core.config.gate_effects import COHORT_METRICS, CREATION_LATENCY, LOCAL_QUEUE_METRICS, is_set_off
from headgate.events.configuration import SourceKind

PROMETHEUS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The buckets of a histogram of Prometheus' Go client that names none."""
_CREATION_BUCKETS = tuple(0.01 * 2**power for power in range(11))
ADMITTED = "kueue_admitted_active_workloads"
ADMITTED_BELOW = "kueue_cohort_subtree_admitted_active_workloads"
ROLE = {"replica_role": "leader"}
"""The label of every metric: only the leader serves them."""


class KueueMetric(msgspec.Struct, frozen=True):
    """One metric. `labels` in Kueue's order, `buckets` of a histogram."""

    name: str
    kind: str
    labels: tuple[str, ...]
    about: str
    buckets: tuple[float, ...] = ()


# Kind (c: counter, g: gauge, h: histogram with so many exponential buckets), name, labels; then what it means.
_TABLE = """
c kueue_admission_attempts_total result: Cycles that tried to admit workloads, by whether they admitted one.
h* kueue_admission_attempt_duration_seconds result: From the state that a cycle was decided on to its commit.
c multikueue_workloads_dispatched_total cluster_queue,cluster: Workloads created on other clusters.
c multikueue_workloads_admitted_total cluster_queue,cluster: Workloads admitted on other clusters.
g kueue_admission_cycle_preemption_skips cluster_queue: Workloads of the last cycle whose targets others preempt.
c kueue_preemption_target_recomputations_total cluster_queue,result: Workloads whose targets others preempt.
g kueue_build_info git_version,git_commit,build_date,go_version,compiler,platform: 1, with the version.
g kueue_pending_workloads cluster_queue,status: Pending workloads; inadmissible ones wait for a change.
g kueue_pending_scheduling_hashes cluster_queue,status: Different scheduling hashes among the pending workloads.
g kueue_local_queue_pending_workloads name,namespace,status: Pending workloads; inadmissible ones wait for a change.
g kueue_finished_workloads cluster_queue: Finished Workloads that exist.
g kueue_local_queue_finished_workloads name,namespace: Finished Workloads that exist.
c kueue_quota_reserved_workloads_total cluster_queue,priority_class: Workloads that got a quota reservation.
c kueue_local_queue_quota_reserved_workloads_total name,namespace,priority_class: Workloads that got quota.
c kueue_finished_workloads_total cluster_queue,priority_class: Workloads that finished.
c kueue_local_queue_finished_workloads_total name,namespace,priority_class: Workloads that finished.
h16 kueue_execution_time_seconds cluster_queue,priority_class: For how long finished workloads were admitted in all.
h16 kueue_local_queue_execution_time_seconds name,namespace,priority_class: For how long workloads were admitted.
h14 kueue_quota_reserved_wait_time_seconds cluster_queue,priority_class: From creation or requeueing to the reservation.
h14 kueue_pods_ready_to_evicted_time_seconds cluster_queue,reason,underlying_cause: From ready pods to the eviction.
h14 kueue_local_queue_quota_reserved_wait_time_seconds name,namespace,priority_class: From creation to the reservation.
c kueue_admitted_workloads_total cluster_queue,priority_class: Workloads that were admitted.
c kueue_local_queue_admitted_workloads_total name,namespace,priority_class: Workloads that were admitted.
h16 kueue_admission_wait_time_seconds cluster_queue,priority_class: From creation or requeueing to the admission.
h14 kueue_ready_wait_time_seconds cluster_queue,priority_class: From creation or requeueing until the pods were ready.
h14 kueue_admitted_until_ready_wait_time_seconds cluster_queue,priority_class: From admission to ready pods.
h14 kueue_local_queue_admission_wait_time_seconds name,namespace,priority_class: From creation to the admission.
h14 kueue_admission_checks_wait_time_seconds cluster_queue,priority_class: From the reservation to the admission.
h14 kueue_local_queue_admission_checks_wait_time_seconds name,namespace,priority_class: From reservation to admission.
h14 kueue_local_queue_ready_wait_time_seconds name,namespace,priority_class: From creation until the pods were ready.
h14 kueue_local_queue_admitted_until_ready_wait_time_seconds name,namespace,priority_class: To ready pods.
h+ kueue_workload_creation_latency_seconds job_kind: From the creation of a job to that of its Workload.
h* kueue_pod_scheduling_gate_removal_seconds name,cluster_queue,is_group: From the admission until a pod lost its gate.
c kueue_evicted_workloads_total cluster_queue,reason,underlying_cause,priority_class: Evictions.
c kueue_replaced_workload_slices_total cluster_queue: Slices of elastic jobs that a larger one replaced.
c kueue_local_queue_evicted_workloads_total name,namespace,reason,underlying_cause,priority_class: Evictions.
c kueue_evicted_workloads_once_total cluster_queue,reason,underlying_cause,priority_class: Evictions, once a workload.
c kueue_preempted_workloads_total preempting_cluster_queue,reason: Preempted workloads, by who preempted them.
h14 kueue_workload_eviction_latency_seconds cluster_queue,reason: From the eviction until the quota was released.
g kueue_reserving_active_workloads cluster_queue: Workloads that hold quota.
g kueue_local_queue_reserving_active_workloads name,namespace: Workloads that hold quota.
g kueue_admitted_active_workloads cluster_queue: Workloads that are admitted.
g kueue_local_queue_admitted_active_workloads name,namespace: Workloads that are admitted.
g kueue_cluster_queue_status cluster_queue,status: 1 for the status a ClusterQueue has.
g kueue_local_queue_status name,namespace,active: 1 for the status of its condition Active.
g kueue_unadmitted_workloads cluster_queue,reason,underlying_cause: Workloads that are not admitted, by reason.
g kueue_local_queue_unadmitted_workloads name,namespace,cluster_queue,reason,underlying_cause: Workloads not admitted.
g kueue_cluster_queue_resource_reservation cohort,cluster_queue,flavor,resource: What its workloads hold.
g kueue_cluster_queue_resource_pending cluster_queue,resource: What its pending workloads request.
g kueue_cluster_queue_resource_usage cohort,cluster_queue,flavor,resource: What its admitted workloads hold.
g kueue_local_queue_resource_reservation name,namespace,flavor,resource: What its workloads hold.
g kueue_local_queue_resource_usage name,namespace,flavor,resource: What its admitted workloads hold.
g kueue_local_queue_admission_fair_sharing_usage name,namespace,cluster_queue: Its usage, where that orders its queue.
g kueue_cluster_queue_nominal_quota cohort,cluster_queue,flavor,resource: Its nominal quota.
g kueue_cluster_queue_borrowing_limit cohort,cluster_queue,flavor,resource: What it may borrow; +Inf without a limit.
g kueue_cluster_queue_lending_limit cohort,cluster_queue,flavor,resource: What it lends; +Inf without a limit.
g kueue_cluster_queue_weighted_share cluster_queue,cohort: Its share of what its cohort lends; none if it is infinite.
g kueue_cohort_weighted_share cohort: Its share of what the one above lends; none if it is infinite.
g kueue_cohort_subtree_quota cohort,flavor,resource: The quota below it.
c kueue_cohort_subtree_admitted_workloads_total cohort,priority_class: Workloads that were admitted below it.
g kueue_cohort_subtree_resource_reservations cohort,flavor,resource: What workloads below it hold.
g kueue_cohort_subtree_admitted_active_workloads cohort: Workloads below it that are admitted.
g kueue_cohort_info cohort,parent_cohort,root_cohort: 1, with the cohorts above it.
g kueue_cluster_queue_info cluster_queue,parent_cohort,root_cohort: 1, with the cohorts above it.
"""
_KINDS = {"c": "counter", "g": "gauge", "h": "histogram"}
_WITHOUT_ROLE = frozenset({"kueue_build_info"})
_OF_NO_OBJECT = frozenset(
    {
        "kueue_admission_attempts_total",
        "kueue_admission_attempt_duration_seconds",
        "kueue_build_info",
        "multikueue_workloads_dispatched_total",
        "multikueue_workloads_admitted_total",
    }
)


def _buckets(kind: str) -> tuple[float, ...]:
    match kind[1:]:
        case "":
            return ()
        case "*":
            return PROMETHEUS_BUCKETS
        case "+":
            return _CREATION_BUCKETS
        case count:
            return exponential_buckets(int(count))


def _read(line: str) -> KueueMetric:
    head, _, about = line.partition(": ")
    kind, name, labels = head.split()
    role = () if name in _WITHOUT_ROLE else tuple(ROLE)
    return KueueMetric(name, _KINDS[kind[0]], (*labels.split(","), *role), about, _buckets(kind))


CATALOGUE: dict[str, KueueMetric] = {each.name: each for each in map(_read, _TABLE.strip().splitlines())}
"""Every metric of Kueue, by name."""


def sources_of(metric: str) -> tuple[SourceKind, ...]:
    """The kinds of objects whose custom labels a metric has, in the order in which they follow its own labels."""
    if metric in _OF_NO_OBJECT:
        return ()
    if metric == ADMITTED:
        return "ClusterQueue", "Workload"
    if metric.startswith("kueue_local_queue_") or metric == "kueue_workload_creation_latency_seconds":
        return ("LocalQueue",)
    # Kueue shows this one with the labels of the ClusterQueues below the cohort.
    is_of_cohorts = metric.startswith("kueue_cohort_") and metric != ADMITTED_BELOW
    return ("Cohort",) if is_of_cohorts else ("ClusterQueue",)


def gate_of(metric: str) -> str:
    """The feature gate that switches a metric off; "" for most."""
    if metric.startswith("kueue_local_queue_"):
        return LOCAL_QUEUE_METRICS
    if metric.startswith("kueue_cohort_subtree_") or metric in ("kueue_cohort_info", "kueue_cluster_queue_info"):
        return COHORT_METRICS
    return CREATION_LATENCY if metric == "kueue_workload_creation_latency_seconds" else ""


def is_switched_off(document: Mapping[str, Any], metric: str) -> bool:
    """Whether the file of the configuration, as the log has it, switches a metric off."""
    gate = gate_of(metric)
    return bool(gate) and is_set_off(document, gate)
