"""Custom labels of metrics: what Kueue's validateCustomLabels takes and refuses (pkg/config/validation_test.go)."""

from typing import Any

import pytest

from headgate.core.config.reader import ConfigurationError, read_configuration
from headgate.events.configuration import Configuration, CustomMetricLabel

Json = dict[str, Any]


def read(*labels: Json, version: str = "v1beta2", is_on: bool = True) -> Configuration:
    gates = {"featureGates": {"CustomMetricLabels": True}} if is_on else {}
    kind = {"apiVersion": f"config.kueue.x-k8s.io/{version}", "kind": "Configuration"}
    return read_configuration({**kind, **gates, "metrics": {"customLabels": list(labels)}})


def labels(prefix: str, count: int, **more: Any) -> list[Json]:
    return [{"name": f"{prefix}{number}", **more} for number in range(count)]


def values(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def test_a_label_is_read_with_its_source_and_its_values() -> None:
    """It is of ClusterQueues unless it says otherwise, and shows the label of its name unless it names a source."""
    found = read(
        {"name": "team"},
        {"name": "unit", "sourceLabelKey": "example.com/unit", "sourceKind": "Cohort"},
        {"name": "cost_center", "sourceAnnotationKey": "cost", "sourceKind": "LocalQueue", "trackedValues": ["a"]},
        {"name": "tier", "sourceKind": "Workload", "trackedValues": ["", "gold"]},
    )
    assert found.custom_labels == (
        CustomMetricLabel(name="team"),
        CustomMetricLabel(name="unit", source_label_key="example.com/unit", source_kind="Cohort"),
        CustomMetricLabel(
            name="cost_center", source_annotation_key="cost", source_kind="LocalQueue", tracked_values=("a",)
        ),
        CustomMetricLabel(name="tier", source_kind="Workload", tracked_values=("", "gold")),
    )


def test_without_their_gate_they_have_no_effect() -> None:
    """They are validated nevertheless."""
    assert read({"name": "team"}, is_on=False).custom_labels == ()
    with pytest.raises(ConfigurationError, match="is no name"):
        read({"name": "1team"}, is_on=False)


def test_as_many_are_taken_as_kueue_takes() -> None:
    """Six of each kind of queue, two of Workloads: the limit of twenty in all is met by no more."""
    many = [
        *labels("cq", 6, trackedValues=values(16)),
        *labels("lq", 6, sourceKind="LocalQueue"),
        *labels("co", 6, sourceKind="Cohort"),
        *labels("wl", 2, sourceKind="Workload", trackedValues=values(12)),
    ]
    assert len(read(*many).custom_labels) == 20


@pytest.mark.parametrize(
    ("given", "field", "said"),
    [
        ([{"name": "team-name"}], "[0].name", "no name of a label"),
        ([{"name": "1team"}], "[0].name", "no name of a label"),
        ([{"name": ""}], "[0].name", "no name of a label"),
        ([{"name": "team_"}], "[0].name", "'team_'"),
        ([{"name": "team"}, {"name": "team"}], "[1].name", "twice"),
        ([{"name": "team", "sourceLabelKey": "a", "sourceAnnotationKey": "b"}], "[0]", "mutually exclusive"),
        ([{"name": "team", "sourceLabelKey": "with spaces"}], "[0].sourceLabelKey", "'with spaces'"),
        ([{"name": "team", "sourceAnnotationKey": "with spaces"}], "[0].sourceAnnotationKey", "'with spaces'"),
        ([{"name": "team", "sourceKind": "Unknown"}], "[0].sourceKind", "'Unknown' is not supported"),
        (labels("c", 21, sourceKind="Cohort"), "", "21 labels: list at most 20"),
        (labels("c", 7), "", "7 labels of source kind ClusterQueue: list at most 6"),
        (labels("c", 7, sourceKind="Cohort"), "", "7 labels of source kind Cohort"),
        (labels("c", 7, sourceKind="LocalQueue"), "", "7 labels of source kind LocalQueue"),
        (labels("c", 3, sourceKind="Workload", trackedValues=["v"]), "", "3 labels of source kind Workload"),
        ([{"name": "team", "sourceKind": "Workload"}], "[0].trackedValues", "must not be empty"),
        ([{"name": "team", "trackedValues": values(17)}], "[0].trackedValues", "at most 16"),
        ([{"name": "t", "sourceKind": "Workload", "trackedValues": values(13)}], "[0].trackedValues", "at most 12"),
        ([{"name": "team", "trackedValues": ["a", "b", "a"]}], "[0].trackedValues", "twice"),
        ([{"name": "team", "key": "a"}], "[0].key", "no such field"),
    ],
)
def test_what_kueue_refuses_is_refused_with_its_field(given: list[Json], field: str, said: str) -> None:
    """Each of its rules."""
    with pytest.raises(ConfigurationError) as caught:
        read(*given)
    assert caught.value.field == f"metrics.customLabels{field}"
    assert said in str(caught.value)


def test_v1beta1_has_labels_of_cluster_queues_alone() -> None:
    """Its other fields are no fields there."""
    assert read({"name": "team"}, version="v1beta1").custom_labels == (CustomMetricLabel(name="team"),)
    for field in ({"sourceKind": "Cohort"}, {"trackedValues": ["a"]}):
        with pytest.raises(ConfigurationError, match="no such field"):
            read({"name": "team", **field}, version="v1beta1")
