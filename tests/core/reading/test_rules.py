"""Which labels are read of which objects by a configuration, and what another configuration has read otherwise."""

from typing import Any

import msgspec
import pytest
from tests.support.playing import cluster_queue, local_queue

from headgate.core.reading.decoding import read
from headgate.core.reading.rules import ReadingRules, read_otherwise, rules_of
from headgate.events.configuration import (
    Configuration,
    CustomMetricLabel,
    IntegrationsConfiguration,
    MetricsConfiguration,
    SourceKind,
)

Json = dict[str, Any]
LABELS = {"team": "red", "other": "x"}
ANNOTATIONS = {"cost": "7", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
OF_KIND: dict[SourceKind, str] = {
    "ClusterQueue": "clusterqueues",
    "Cohort": "cohorts",
    "LocalQueue": "localqueues",
    "Workload": "workloads",
}


def showing(kind: SourceKind, name: str = "team", **source: Any) -> CustomMetricLabel:
    return CustomMetricLabel(name=name, source_kind=kind, **source)


def metrics(*labels: CustomMetricLabel, **more: Any) -> Configuration:
    return Configuration(metrics=MetricsConfiguration(custom_labels=labels), **more)


def manifest(resource: str) -> Json:
    match resource:
        case "clusterqueues":
            found = cluster_queue()
        case "localqueues":
            found = local_queue()
        case "cohorts":
            found = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "all"}, "spec": {}}
        case _:
            found = {"kind": "Workload", "metadata": {"name": "w", "namespace": "team-a"}, "spec": {"podSets": []}}
    return {**found, "metadata": {**found["metadata"], "uid": "u", "labels": LABELS, "annotations": ANNOTATIONS}}


@pytest.mark.parametrize("kind", OF_KIND)
def test_a_kind_of_objects_is_read_with_the_labels_that_metrics_show_of_it(kind: SourceKind) -> None:
    """Those by name, by key, and the annotations; those of other kinds are not read of it."""
    configuration = metrics(showing(kind), showing(kind, "cost_center", source_annotation_key="cost"))
    for each, resource in OF_KIND.items():
        fact: Any = read(resource, msgspec.json.encode(manifest(resource)), rules_of(configuration)).fact
        is_shown = each == kind
        assert fact.labels == ({"team": "red"} if is_shown else {})
        assert fact.annotations == ({"cost": "7"} if is_shown else {})


def test_without_a_configuration_only_kueues_labels_are_read() -> None:
    """Whatever objects carry."""
    assert rules_of(Configuration()) == ReadingRules()
    fact: Any = read("clusterqueues", msgspec.json.encode(manifest("clusterqueues"))).fact
    assert (fact.labels, fact.annotations) == ({}, {})


COPIES = IntegrationsConfiguration(label_keys_to_copy=("team",))


@pytest.mark.parametrize(
    ("before", "after", "otherwise"),
    [
        (Configuration(), Configuration(), ()),
        (Configuration(), Configuration(manage_jobs_without_queue_name=True), ("jobs",)),
        (Configuration(), Configuration(integrations=COPIES), ("pods",)),
        (metrics(showing("Cohort")), Configuration(), ("cohorts",)),
        (Configuration(), metrics(showing("Workload")), ("workloads", "pods")),
        (metrics(showing("Workload")), metrics(showing("Workload"), integrations=COPIES), ()),
        (metrics(showing("Cohort")), metrics(showing("Cohort", "t", source_label_key="team")), ()),
        (metrics(showing("Cohort")), metrics(showing("Cohort", tracked_values=("red",))), ()),
        (
            metrics(showing("LocalQueue", "a"), showing("LocalQueue", "b")),
            metrics(showing("LocalQueue", "b"), showing("LocalQueue", "a")),
            (),
        ),
    ],
)
def test_only_other_keys_have_objects_read_otherwise(
    before: Configuration, after: Configuration, otherwise: tuple[str, ...]
) -> None:
    """Another name in the metrics, other tracked values, another order or a second reason for one key do not."""
    assert read_otherwise(before, after) == otherwise
