"""
Custom labels of metrics (`metrics.customLabels`): labels and annotations of objects as labels of their metrics.

Source: Kueue's pkg/metrics/custom_labels.go. A metric has the labels of the objects that it is about
(`kueue_catalogue.sources_of`): first those of ClusterQueues, Cohorts, LocalQueues and Workloads in this order of their
kinds, each in the order of the configuration. Called by the modules of Kueue's metrics. Pure functions of the state.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from headgate.core.api.metadata_keys import label_key_of
from headgate.core.state.tables import State
from headgate.events.configuration import Configuration, CustomMetricLabel, SourceKind
from headgate.events.ids import LocalQueueKey
from headgate.processes.telemetry.kueue_catalogue import sources_of

PREFIX: Final = "custom_"
UNTRACKED: Final = "kueue.x-k8s.io/_UNTRACKED_VALUE_"
"""Stands for every value that is not among the tracked ones."""


class Labelled(Protocol):
    """An object of the state that has labels and annotations."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        ...

    @property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations."""
        ...


def labels_of(configuration: Configuration, kind: SourceKind) -> list[CustomMetricLabel]:
    """The custom labels of a kind of objects."""
    return [each for each in configuration.custom_labels if each.source_kind == kind]


def names_of(configuration: Configuration, metric: str) -> tuple[str, ...]:
    """The names of a metric's custom labels."""
    return tuple(f"{PREFIX}{each.name}" for kind in sources_of(metric) for each in labels_of(configuration, kind))


def values_of(labels: Iterable[CustomMetricLabel], found: Labelled | None) -> dict[str, str]:
    """The custom labels of one object by their names; empty values of one that the state does not have."""
    return {f"{PREFIX}{each.name}": _value(each, found) if found is not None else "" for each in labels}


def _value(label: CustomMetricLabel, found: Labelled) -> str:
    key = label_key_of(label)
    value = found.labels.get(key, "") if key else found.annotations.get(label.source_annotation_key, "")
    return value if not label.tracked_values or value in label.tracked_values else UNTRACKED


def custom(state: State, metric: str, named: Mapping[str, str]) -> dict[str, str]:
    """
    The custom labels of one value of a metric. `named` are the labels that name the objects which it is about.

    Those of Workloads are left out: no label names one.
    """
    if not state.configuration.custom_labels:
        return {}
    found: dict[str, str] = {}
    for kind in sources_of(metric):
        if kind != "Workload":
            found |= values_of(labels_of(state.configuration, kind), _object(state, kind, named))
    return found


def _object(state: State, kind: SourceKind, named: Mapping[str, str]) -> Labelled | None:
    match kind:
        case "Cohort":
            return state.cohorts.get(named["cohort"])
        case "LocalQueue":
            return state.local_queues.get(LocalQueueKey(f"{named['namespace']}/{named['name']}"))
        case _:
            queue = named["cluster_queue"] if "cluster_queue" in named else named["preempting_cluster_queue"]
            return state.cluster_queues.get(queue)
