"""Kueue's metrics: the list is Kueue's, and their values are those of what happened in a cell."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.logs import START_MS, TestLog

from headgate.adapters.jetstream.health import DependencyHealth
from headgate.adapters.log import LogEntry
from headgate.adapters.telemetry import Metrics
from headgate.adapters.telemetry.metrics import exponential_buckets
from headgate.core import fold
from headgate.core.config.reader import V1BETA2, read_document
from headgate.events.base import EventBase, Producer
from headgate.events.commit import decode_entry
from headgate.events.configuration import Configuration, WaitForPodsReady
from headgate.events.decisions import QuotaReserved, WorkloadAdmitted
from headgate.events.facts import ClusterQueueObserved, ConfigurationObserved, PodObserved, WorkloadObserved
from headgate.events.ids import PodKey, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    Admission,
    ClusterQueueSpec,
    Pod,
    PodSet,
    PodSetAssignment,
    PodSpec,
    SchedulingGate,
    WorkloadSpec,
)
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.processes.runtime.process_status import Phase, Status
from headgate.processes.telemetry.kueue_catalogue import CATALOGUE, PROMETHEUS_BUCKETS
from headgate.processes.telemetry.kueue_counts import KueueCounts
from headgate.processes.telemetry.kueue_gauges import GAUGES
from headgate.processes.telemetry.observer import Observing
from headgate.testing.cluster import kind_of, object_path
from headgate.testing.world.world import MACHINES, World

TABLES = Path(__file__).parents[4] / "shared/reference/kueue-tables.md"
_ROW = re.compile(r"\| ((?:multi)?kueue_\w+) \| (\w+) \| ([\w, ]+) \| ([^|]*)\|")
_LINE = re.compile(r"(\w+?)(?:\{(.*)\})? (\S+)")


@pytest.mark.skipif(not TABLES.exists(), reason="the tables of the reference are not beside this clone")
def test_names_types_labels_and_buckets_are_those_of_the_reference() -> None:
    """Each of its metrics, and none more."""
    wanted = {}
    for name, kind, labels, buckets in _ROW.findall(TABLES.read_text()):
        count = re.search(r"generateExponentialBuckets\((\d+)\)", buckets)
        default = PROMETHEUS_BUCKETS if kind == "Histogram" else ()
        bounds = exponential_buckets(int(count[1])) if count else default
        if "prometheus.ExponentialBuckets(0.01, 2, 11)" in buckets:
            bounds = tuple(0.01 * 2**power for power in range(11))
        wanted[name] = (kind.lower(), tuple(labels.replace(" ", "").split(",")), bounds)
    assert len(wanted) == 64
    assert {each.name: (each.kind, each.labels, each.buckets) for each in CATALOGUE.values()} == wanted


def test_each_gauge_of_the_list_is_read_from_the_state_or_from_the_last_cycle() -> None:
    """And nothing is read that is not in the list."""
    gauges = {each.name for each in CATALOGUE.values() if each.kind == "gauge"}
    assert gauges == {*GAUGES, "kueue_admission_cycle_preemption_skips"}


# --- a recorded scenario -------------------------------------------------------------------------------------------


def cluster_queue(name: str, **spec: Any) -> dict[str, Any]:
    flavor = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2", **spec.pop("quota", {})}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
    every = {"namespaceSelector": {}, "cohortName": "team", "resourceGroups": groups, **spec}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": every}


def kueue(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    found = {"name": name, **metadata}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": found, "spec": spec}


def job(name: str, cpu: str, *, run_ms: int, priority: str = "") -> dict[str, Any]:
    labels = {"kueue.x-k8s.io/queue-name": "lq"} | ({"kueue.x-k8s.io/priority-class": priority} if priority else {})
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    template = {"metadata": {"annotations": {"headgate.dev/run-ms": str(run_ms)}}, "spec": spec}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"suspend": True, "template": template},
    }


OBJECTS = [
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": "8"}}},
    kueue("ResourceFlavor", "f", {}),
    kueue("Cohort", "team", {"parentName": "all"}),
    cluster_queue("cq", preemption={"withinClusterQueue": "LowerPriority"}, quota={"borrowingLimit": "0"}),
    cluster_queue("idle", quota={"lendingLimit": "1"}),
    kueue("LocalQueue", "lq", {"clusterQueue": "cq"}, namespace="default"),
    {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 9},
]


WAITS = ConfigurationObserved(configuration=Configuration(wait_for_pods_ready=WaitForPodsReady(block_admission=False)))


class Recorded:
    """A cell that is observed as it runs: `render` is its /metrics as values by name and labels."""

    def __init__(self, configuration: ConfigurationObserved = WAITS) -> None:
        self.status = Status(process="snapshotter", cell="main", holder="h", health=DependencyHealth())
        self.status.phase = Phase.LEADING
        self.metrics = Metrics()
        self.state = fold.new_state("main")
        self.observing = Observing(self.status, self.metrics, None, kueue=True)
        self.observing.gauges_of(lambda: self.state)
        self.world = World(
            cell="main",
            sink=self._take,
            machines={**MACHINES, Producer.INFORMER_BRIDGE: lambda state: InformerBridge(state, configuration)},
        )

    def _take(self, *entry: Any) -> None:
        read = LogEntry(*entry)
        logged = decode_entry(read.seq, read.subject, read.payload, read.time_ms)
        fold.apply(self.state, logged)
        self.observing.folded(self.state, logged, leading=True)

    def run(self, ms: int) -> None:
        self.world.run(until_ms=self.world.clock.now_ms + ms)

    def delete(self, api_version: str, kind: str, *names: str) -> None:
        of = kind_of(api_version, kind)
        for name in names:
            self.world.cluster.request("DELETE", object_path(of, "default", name), {"propagationPolicy": "Background"})

    def lines(self) -> list[str]:
        return [line for line in self.metrics.render().splitlines() if line.split()[-2:] and "kueue_" in line]

    def value(self, metric: str, /, **labels: str) -> float | None:
        """The sum of the values that have these labels; None without any."""
        found = [
            float(value)
            for line in self.lines()
            if not line.startswith("#")
            for its_name, its_labels, value in [_LINE.fullmatch(line).groups()]  # type: ignore[union-attr]
            if its_name == metric and labels.items() <= dict(re.findall(r'(\w+)="([^"]*)"', its_labels or "")).items()
        ]
        return sum(found) if found else None


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    """One job is preempted by another and runs after it; one waits, and one asks for more than there is."""
    cell = Recorded()
    cell.world.apply(*OBJECTS)
    cell.run(1_000)
    cell.world.apply(job("low", "2", run_ms=60_000))
    cell.run(10_000)
    cell.world.apply(job("first", "1500m", run_ms=20_000, priority="high"))
    cell.run(5_000)
    cell.world.apply(job("second", "1", run_ms=20_000), job("huge", "40", run_ms=20_000))
    cell.run(2_000)
    return cell


@pytest.fixture
def value(recorded: Recorded) -> Callable[..., float | None]:
    return recorded.value


def test_every_series_has_the_labels_of_the_list(recorded: Recorded) -> None:
    """In their order; histograms have le beside them. Names and types are those of the list."""
    types = dict(line.split()[2:4] for line in recorded.lines() if line.startswith("# TYPE"))
    assert {name: CATALOGUE[name].kind for name in types} == types
    for line in recorded.lines():
        if line.startswith("#"):
            continue
        name, labels, _ = _LINE.fullmatch(line).groups()  # type: ignore[union-attr]
        listed = CATALOGUE.get(name) or CATALOGUE[re.sub(r"_(bucket|sum|count)$", "", name)]
        seen = tuple(label for label, _ in re.findall(r'(\w+)="([^"]*)"', labels or "") if label != "le")
        assert seen == listed.labels, line


def test_counters_count_the_steps_of_workloads(value: Callable[..., float | None]) -> None:
    """Two admissions, of which one was preempted by the class `high`; both queues and the cohorts above have them."""
    assert value("kueue_admitted_workloads_total", cluster_queue="cq") == 2
    assert value("kueue_admitted_workloads_total", cluster_queue="cq", priority_class="high") == 1
    assert value("kueue_local_queue_admitted_workloads_total", name="lq", namespace="default") == 2
    assert value("kueue_quota_reserved_workloads_total", cluster_queue="cq") == 2
    for cohort in ("team", "all"):
        assert value("kueue_cohort_subtree_admitted_workloads_total", cohort=cohort) == 2
    for metric in ("kueue_evicted_workloads_total", "kueue_evicted_workloads_once_total"):
        assert value(metric, cluster_queue="cq", reason="Preempted", underlying_cause="") == 1
    assert value("kueue_local_queue_evicted_workloads_total", name="lq", reason="Preempted") == 1
    assert value("kueue_preempted_workloads_total", preempting_cluster_queue="cq", reason="InClusterQueue") == 1
    assert value("kueue_workload_eviction_latency_seconds_count", cluster_queue="cq", reason="Preempted") == 1
    assert value("kueue_workload_creation_latency_seconds_count", job_kind="Job") == 4
    assert value("kueue_ready_wait_time_seconds_count", cluster_queue="cq") == 2
    assert value("kueue_local_queue_admitted_until_ready_wait_time_seconds_count", name="lq") == 2
    assert value("kueue_pods_ready_to_evicted_time_seconds_sum", cluster_queue="cq", reason="Preempted") is not None
    assert (value("kueue_admission_attempt_duration_seconds_count", result="success") or 0) >= 2


def test_gauges_are_what_there_is_now(value: Callable[..., float | None]) -> None:
    """`first` runs; `low`, `second` and `huge` wait."""
    assert value("kueue_reserving_active_workloads", cluster_queue="cq") == 1
    assert value("kueue_local_queue_admitted_active_workloads", name="lq") == 1
    assert value("kueue_cohort_subtree_admitted_active_workloads", cohort="all") == 1
    assert value("kueue_pending_workloads", cluster_queue="cq") == 3
    assert value("kueue_local_queue_pending_workloads", name="lq", namespace="default") == 3
    assert value("kueue_pending_scheduling_hashes", cluster_queue="cq") == 3
    assert value("kueue_cluster_queue_resource_pending", cluster_queue="cq", resource="cpu") == 43
    for metric in ("reservation", "usage"):
        assert value(f"kueue_cluster_queue_resource_{metric}", cluster_queue="cq", cohort="team") == 1.5
        assert value(f"kueue_cluster_queue_resource_{metric}", cluster_queue="idle") == 0
        assert value(f"kueue_local_queue_resource_{metric}", name="lq", flavor="f", resource="cpu") == 1.5
    assert value("kueue_cohort_subtree_resource_reservations", cohort="all", flavor="f", resource="cpu") == 1.5


def test_quotas_and_places_in_the_tree(value: Callable[..., float | None]) -> None:
    """A limit that is not set is +Inf; a cohort's quota is what its members have, less what they keep to themselves."""
    assert value("kueue_cluster_queue_nominal_quota", cluster_queue="cq", flavor="f", resource="cpu") == 2
    assert value("kueue_cluster_queue_borrowing_limit", cluster_queue="cq") == 0
    assert value("kueue_cluster_queue_lending_limit", cluster_queue="cq") == float("inf")
    assert value("kueue_cluster_queue_lending_limit", cluster_queue="idle") == 1
    assert value("kueue_cohort_subtree_quota", cohort="team", resource="cpu") == 3
    assert value("kueue_cohort_info", cohort="team", parent_cohort="all", root_cohort="all") == 1
    assert value("kueue_cluster_queue_info", cluster_queue="cq", parent_cohort="team", root_cohort="all") == 1
    assert value("kueue_local_queue_status", name="lq", active="True") == 1
    assert value("kueue_local_queue_status", name="lq", active="Unknown") == 0


def test_the_end_of_workloads_and_of_queues(recorded: Recorded) -> None:
    """Executions are measured over all admissions; the series of a deleted queue are gone."""
    recorded.run(200_000)
    assert recorded.value("kueue_finished_workloads_total", cluster_queue="cq") == 3
    assert recorded.value("kueue_finished_workloads", cluster_queue="cq") == 3
    assert recorded.value("kueue_local_queue_finished_workloads", name="lq") == 3
    assert recorded.value("kueue_execution_time_seconds_count", cluster_queue="cq") == 3
    low_s = 60 + 10
    spent_s = recorded.value("kueue_execution_time_seconds_sum", cluster_queue="cq", priority_class="")
    assert spent_s is not None
    assert spent_s >= low_s + 20
    recorded.delete("batch/v1", "Job", "low", "first", "second", "huge")
    recorded.delete("kueue.x-k8s.io/v1beta2", "LocalQueue", "lq")
    recorded.run(5_000)
    recorded.delete("kueue.x-k8s.io/v1beta2", "ClusterQueue", "cq")
    recorded.run(60_000)
    left = [line for line in recorded.lines() if 'cluster_queue="cq"' in line or 'name="lq"' in line]
    assert left == []


def test_the_values_of_a_counter_are_those_of_the_catalogue(recorded: Recorded) -> None:
    """Every counter and histogram of the list is registered, so that its first value is not lost."""
    counts = KueueCounts(Metrics())
    registered = {*counts._counters, *counts._histograms}
    assert registered == {each.name for each in CATALOGUE.values() if each.kind != "gauge"}


# --- what a simulated cell does not show ---------------------------------------------------------------------------


def test_a_gate_that_a_pod_loses_is_measured_from_its_admission() -> None:
    """By the name of the gate, the ClusterQueue, and whether the workload is a pod group."""
    log, metrics = TestLog(), Metrics()
    counts = KueueCounts(metrics)

    def append(producer: Producer, *events: EventBase, after_ms: int) -> None:
        log.now_ms = UnixMs(START_MS + after_ms)
        counts.folded(log.state, log.append(producer, *events))

    key, uid = WorkloadKey("default/w"), Uid("u")
    admission = Admission(cluster_queue="cq", pod_set_assignments=(PodSetAssignment(count=1),))
    spec = WorkloadSpec(queue_name="lq", pod_sets=(PodSet(),))
    observed = WorkloadObserved(workload=key, uid=uid, created_ms=START_MS, spec=spec)
    append(Producer.INFORMER_BRIDGE, ClusterQueueObserved(name="cq", spec=ClusterQueueSpec()), observed, after_ms=0)
    reserved = QuotaReserved(workload=key, uid=uid, cluster_queue="cq", admission=admission, message="m")
    admitted = WorkloadAdmitted(workload=key, uid=uid, cluster_queue="cq", message="m")
    append(Producer.SCHEDULER, reserved, admitted, after_ms=1_000)
    topology, foreign = SchedulingGate(name="kueue.x-k8s.io/topology"), SchedulingGate(name="example.com/mine")
    for after_ms, gates in ((2_000, (topology, foreign)), (2_500, (topology, foreign)), (3_000, (foreign,))):
        pod = Pod(uid="p", created_ms=START_MS, workload=key, spec=PodSpec(scheduling_gates=gates))
        append(Producer.INFORMER_BRIDGE, PodObserved(pod=PodKey("default/p"), spec=pod), after_ms=after_ms)
    labels = 'name="kueue.x-k8s.io/topology",cluster_queue="cq",is_group="false",replica_role="leader"'
    lines = [line for line in metrics.render().splitlines() if "gate_removal" in line]
    assert f"kueue_pod_scheduling_gate_removal_seconds_sum{{{labels}}} 2" in lines
    assert not any("example.com" in line for line in lines)


@pytest.mark.parametrize(
    ("gate", "gone"),
    [
        ("LocalQueueMetrics", "kueue_local_queue_"),
        ("MetricsForCohorts", "kueue_cohort_subtree_"),
        ("MetricForWorkloadCreationLatency", "kueue_workload_creation_latency_seconds"),
    ],
)
def test_a_gate_of_the_configuration_switches_its_metrics_off(gate: str, gone: str) -> None:
    """Gauges and counters alike, and no others."""
    cell = Recorded(read_document({"apiVersion": V1BETA2, "kind": "Configuration", "featureGates": {gate: False}}))
    cell.world.apply(*OBJECTS, job("low", "2", run_ms=60_000))
    cell.run(5_000)
    served = {line.split()[2] for line in cell.lines() if line.startswith("# TYPE")}
    assert "kueue_admitted_workloads_total" in served
    assert not {name for name in served if name.startswith(gone)}
    assert {name for name in CATALOGUE if name.startswith(gone)}
