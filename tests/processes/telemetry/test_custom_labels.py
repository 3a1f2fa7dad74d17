"""Custom labels of Kueue's metrics: labels and annotations of objects, by `metrics.customLabels`."""

import re
from typing import Any

import msgspec
import pytest
from tests.processes.telemetry.test_kueue_metrics import OBJECTS, Recorded, cluster_queue, job, kueue
from tests.support.logs import START_MS, TestLog

from headgate.adapters.telemetry import Metrics
from headgate.core.config.reader import V1BETA2, read_document
from headgate.events.base import EventBase, Producer
from headgate.events.decisions import QuotaReserved, WorkloadAdmitted
from headgate.events.facts import ClusterQueueObserved, ConfigurationObserved, WorkloadObserved
from headgate.events.ids import Uid, WorkloadKey
from headgate.events.objects import Admission, ClusterQueueSpec, PodSet, PodSetAssignment, WorkloadSpec
from headgate.processes.telemetry.custom_labels import UNTRACKED
from headgate.processes.telemetry.kueue_catalogue import CATALOGUE, sources_of
from headgate.processes.telemetry.kueue_counts import KueueCounts

Json = dict[str, Any]
K = "/apis/kueue.x-k8s.io/v1beta2"
COUNTED = "kueue_admitted_workloads_total"
ADMITTED = "kueue_admitted_active_workloads"


def configured(*labels: Json, is_on: bool = True) -> ConfigurationObserved:
    gates = {"CustomMetricLabels": is_on}
    metrics = {"customLabels": list(labels)}
    return read_document({"apiVersion": V1BETA2, "kind": "Configuration", "featureGates": gates, "metrics": metrics})


LABELS: list[Json] = [
    {"name": "team"},
    {"name": "cost_center", "sourceAnnotationKey": "example.com/cost"},
    {"name": "unit", "sourceKind": "Cohort"},
    {"name": "stage", "sourceKind": "LocalQueue", "sourceLabelKey": "example.com/stage", "trackedValues": ["prod"]},
    {"name": "tier", "sourceKind": "Workload", "trackedValues": ["gold", "silver"]},
]


def with_meta(manifest: Json, labels: dict[str, str], **annotations: str) -> Json:
    return {**manifest, "metadata": {**manifest["metadata"], "labels": labels, "annotations": annotations}}


QUEUE = with_meta(
    cluster_queue("cq", preemption={"withinClusterQueue": "LowerPriority"}, quota={"borrowingLimit": "0"}),
    {"team": "red", "other": "x"},
    **{"example.com/cost": "7"},
)
LABELLED = [
    *OBJECTS[:2],
    with_meta(kueue("Cohort", "team", {"parentName": "all"}), {"unit": "ml"}),
    QUEUE,
    cluster_queue("idle"),
    with_meta(kueue("LocalQueue", "lq", {"clusterQueue": "cq"}, namespace="default"), {"example.com/stage": "prod"}),
    kueue("LocalQueue", "trial", {"clusterQueue": "cq"}, namespace="default"),
    OBJECTS[-1],
]


def tiered(name: str, tier: str, *, run_ms: int = 60_000, **more: Any) -> Json:
    found = job(name, "500m", run_ms=run_ms, **more)
    found["metadata"]["labels"]["tier"] = tier
    return found


def patch(cell: Recorded, path: str, **metadata: Any) -> None:
    body = msgspec.json.encode({"metadata": metadata})
    answer = cell.world.cluster.request("PATCH", f"{K}/{path}", {}, body, content_type="application/merge-patch+json")
    assert answer.status == 200


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    """One workload of each tier runs, and one that preempts had another evicted."""
    cell = Recorded(configured(*LABELS))
    cell.world.apply(*LABELLED)
    cell.run(1_000)
    cell.world.apply(tiered("one", "gold"), tiered("two", "silver"), tiered("three", "bronze"))
    cell.run(10_000)
    cell.world.apply(job("urgent", "1", run_ms=60_000, priority="high"))
    cell.run(10_000)
    return cell


def test_a_metric_has_the_labels_of_the_kind_of_objects_that_kueue_gives_it() -> None:
    """InitMetricVectors of pkg/metrics/metrics.go; those that only its development version has follow their names."""
    none = [name for name in CATALOGUE if name.startswith(("multikueue_", "kueue_admission_attempt", "kueue_build"))]
    of_local_queues = [name for name in CATALOGUE if name.startswith("kueue_local_queue_")]
    cohorts = ["info", "subtree_admitted_workloads_total", "subtree_quota", "subtree_resource_reservations"]
    wanted: dict[str, tuple[str, ...]] = dict.fromkeys(CATALOGUE, ("ClusterQueue",))
    wanted |= dict.fromkeys(none, ())
    wanted |= dict.fromkeys([*of_local_queues, "kueue_workload_creation_latency_seconds"], ("LocalQueue",))
    wanted |= dict.fromkeys([f"kueue_cohort_{each}" for each in (*cohorts, "weighted_share")], ("Cohort",))
    wanted[ADMITTED] = ("ClusterQueue", "Workload")
    assert {name: sources_of(name) for name in CATALOGUE} == wanted


def test_every_series_has_its_custom_labels_behind_the_others(recorded: Recorded) -> None:
    """All of the kinds that it is about, and no others."""
    names = {"ClusterQueue": ("custom_team", "custom_cost_center"), "Cohort": ("custom_unit",)}
    names |= {"LocalQueue": ("custom_stage",), "Workload": ("custom_tier",)}
    seen = set()
    for line in recorded.lines():
        if line.startswith("#"):
            continue
        name = re.sub(r"_(bucket|sum|count)$", "", line.partition("{")[0])
        metric = CATALOGUE.get(line.partition("{")[0]) or CATALOGUE[name]
        labels = [label for label in re.findall(r'(\w+)="', line) if label != "le"]
        custom = tuple(each for kind in sources_of(metric.name) for each in names[kind])
        assert tuple(labels) == (*metric.labels, *custom), line
        seen.add(metric.name)
    assert len(seen) >= 44


def test_the_values_are_those_of_the_objects(recorded: Recorded) -> None:
    """A label that an object lacks is empty, as are all of a cohort without an object; others count as untracked."""
    value = recorded.value
    red = {"custom_team": "red", "custom_cost_center": "7"}
    assert value(COUNTED, cluster_queue="cq", **red) == 4
    assert value("kueue_evicted_workloads_total", cluster_queue="cq", **red) == 1
    assert value("kueue_preempted_workloads_total", preempting_cluster_queue="cq", **red) == 1
    assert value("kueue_admission_wait_time_seconds_count", cluster_queue="cq", **red) == 4
    assert value("kueue_cluster_queue_nominal_quota", cluster_queue="cq", **red) == 2
    assert value("kueue_cluster_queue_info", cluster_queue="idle", custom_team="", custom_cost_center="") == 1
    assert value("kueue_local_queue_admitted_workloads_total", name="lq", custom_stage="prod") == 4
    assert value("kueue_workload_creation_latency_seconds_count", job_kind="Job", custom_stage="prod") == 4
    assert value("kueue_local_queue_status", name="trial", active="True", custom_stage=UNTRACKED) == 1
    assert value("kueue_cohort_info", cohort="team", custom_unit="ml") == 1
    assert value("kueue_cohort_info", cohort="all", custom_unit="") == 1
    assert value("kueue_cohort_subtree_admitted_workloads_total", cohort="team", custom_unit="ml") == 4
    assert value("kueue_cohort_subtree_admitted_workloads_total", cohort="all", custom_unit="") == 4


def test_admitted_workloads_are_told_by_their_own_labels(recorded: Recorded) -> None:
    """Of the workloads that run two have a tier that is tracked at most; those without one count as untracked."""
    running = [each for each in recorded.state.workloads.values() if each.stage == "Admitted"]
    tiers = [each.labels.get("tier", "") for each in running]
    for tier in ("gold", "silver"):
        assert recorded.value(ADMITTED, cluster_queue="cq", custom_tier=tier) == tiers.count(tier)
    others = sum(tier not in ("gold", "silver") for tier in tiers)
    assert recorded.value(ADMITTED, cluster_queue="cq", custom_tier=UNTRACKED) == others
    assert others >= 1


def test_a_cohort_counts_its_admitted_workloads_with_the_labels_of_each_of_its_queues(recorded: Recorded) -> None:
    """As Kueue does: `idle` has none, and the number is that of the whole subtree."""
    admitted = recorded.value(ADMITTED, cluster_queue="cq")
    for team in ("red", ""):
        found = recorded.value("kueue_cohort_subtree_admitted_active_workloads", cohort="all", custom_team=team)
        assert found == admitted


# --- changes -------------------------------------------------------------------------------------------------------


def facts_about(cell: Recorded) -> int:
    return cell.world.events


def test_gauges_follow_a_label_and_counters_go_on_with_it() -> None:
    """What was counted before keeps the label that it was counted with; other labels of the object are no fact."""
    cell = Recorded(configured(*LABELS))
    cell.world.apply(*LABELLED, tiered("one", "gold"))
    cell.run(5_000)
    before = facts_about(cell)
    patch(cell, "clusterqueues/cq", labels={"other": "y"})
    cell.run(1_000)
    assert facts_about(cell) == before
    patch(cell, "clusterqueues/cq", labels={"team": "blue"})
    patch(cell, "cohorts/team", labels={"unit": "web"})
    patch(cell, "namespaces/default/localqueues/lq", labels={"example.com/stage": "test"})
    cell.run(1_000)
    cell.world.apply(tiered("two", "gold"))
    cell.run(5_000)
    for metric in ("kueue_reserving_active_workloads", "kueue_cluster_queue_info", ADMITTED):
        assert cell.value(metric, cluster_queue="cq", custom_team="red") is None
        assert cell.value(metric, cluster_queue="cq", custom_team="blue") is not None
    assert cell.value("kueue_cohort_info", cohort="team", custom_unit="ml") is None
    assert cell.value("kueue_cohort_info", cohort="team", custom_unit="web") == 1
    assert cell.value("kueue_local_queue_status", name="lq", active="True", custom_stage=UNTRACKED) == 1
    assert [cell.value(COUNTED, cluster_queue="cq", custom_team=team) for team in ("red", "blue")] == [1, 1]


def test_the_series_of_a_queue_go_with_it_whatever_its_labels_were() -> None:
    """Those that were counted before a label has changed, too."""
    cell = Recorded(configured(*LABELS))
    cell.world.apply(*LABELLED, tiered("one", "gold", run_ms=1_000))
    cell.run(5_000)
    patch(cell, "clusterqueues/cq", labels={"team": "blue"})
    cell.run(10_000)
    assert cell.value(COUNTED, custom_team="red") == 1
    cell.delete("batch/v1", "Job", "one")
    cell.delete("kueue.x-k8s.io/v1beta2", "LocalQueue", "lq", "trial")
    cell.run(5_000)
    cell.delete("kueue.x-k8s.io/v1beta2", "ClusterQueue", "cq")
    cell.run(60_000)
    assert [line for line in cell.lines() if 'cluster_queue="cq"' in line or 'name="lq"' in line] == []


def test_a_tier_without_workloads_stays_at_zero_while_its_queue_is_there() -> None:
    """As in Kueue; with another label of the queue it is another series."""
    cell = Recorded(configured(*LABELS))
    cell.world.apply(*LABELLED)
    cell.run(1_000)
    assert cell.value(ADMITTED, cluster_queue="cq") is None
    cell.world.apply(tiered("one", "gold", run_ms=10_000))
    cell.run(5_000)
    assert cell.value(ADMITTED, cluster_queue="cq", custom_tier="gold") == 1
    cell.run(20_000)
    assert cell.value(ADMITTED, cluster_queue="cq", custom_tier="gold", custom_team="red") == 0
    patch(cell, "clusterqueues/cq", labels={"team": "blue"})
    cell.run(1_000)
    assert cell.value(ADMITTED, cluster_queue="cq", custom_tier="gold") is None


def test_another_configuration_begins_the_counters_with_its_labels() -> None:
    """As a restart of Kueue does. Without labels the metrics are those that they are otherwise."""
    log, metrics = TestLog(), Metrics()
    counts = KueueCounts(metrics)

    def append(producer: Producer, *events: EventBase) -> list[str]:
        counts.folded(log.state, log.append(producer, *events))
        return [line for line in metrics.render().splitlines() if line.startswith(COUNTED)]

    queue = ClusterQueueObserved(name="cq", spec=ClusterQueueSpec(), labels={"team": "red"})
    append(Producer.INFORMER_BRIDGE, queue)
    for given, added in (
        (configured(*LABELS), ',custom_team="red",custom_cost_center=""'),
        (configured({"name": "group", "sourceLabelKey": "team"}), ',custom_group="red"'),
        (configured(), ""),
    ):
        assert append(Producer.INFORMER_BRIDGE, given) == []
        key, uid = WorkloadKey(f"default/w{len(added)}"), Uid(f"u{len(added)}")
        spec = WorkloadSpec(queue_name="lq", pod_sets=(PodSet(),))
        append(Producer.INFORMER_BRIDGE, WorkloadObserved(workload=key, uid=uid, created_ms=START_MS, spec=spec))
        admission = Admission(cluster_queue="cq", pod_set_assignments=(PodSetAssignment(count=1),))
        reserved = QuotaReserved(workload=key, uid=uid, cluster_queue="cq", admission=admission, message="m")
        admitted = WorkloadAdmitted(workload=key, uid=uid, cluster_queue="cq", message="m")
        found = append(Producer.SCHEDULER, reserved, admitted)
        assert found == [f'{COUNTED}{{cluster_queue="cq",priority_class="",replica_role="leader"{added}}} 1']


def test_without_the_gate_there_are_no_custom_labels() -> None:
    """Nor does a fact have any label for them."""
    cell = Recorded(configured(*LABELS, is_on=False))
    cell.world.apply(*LABELLED, tiered("one", "gold"))
    cell.run(5_000)
    assert cell.value(COUNTED) == 1
    assert not [line for line in cell.lines() if "custom_" in line]
    assert cell.state.cluster_queues["cq"].labels == {}
