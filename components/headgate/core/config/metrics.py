"""
The section `metrics` of Kueue's Configuration: which labels and annotations of objects its metrics show.

What else Headgate's metrics show is fixed: all that Kueue's show by default, and the resources of ClusterQueues. Read
by `reader`; the rules are those of `validateCustomLabels` in pkg/config/validation.go of Kueue 0.19.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final, cast, get_args

from msgspec import UNSET, UnsetType

from headgate.core.config.fields import ConfigurationError, Fields
from headgate.core.kubernetes.label_syntax import why_no_label_key
from headgate.events.configuration import CustomMetricLabel, MetricsConfiguration, SourceKind

LABELS_MAX: Final = 20
"""The maximum number of custom labels."""
LABELS_MAX_OF: Final[Mapping[str, int]] = {"ClusterQueue": 6, "Cohort": 6, "LocalQueue": 6, "Workload": 2}
"""The same of one kind of objects."""
VALUES_MAX: Final = 16
"""The maximum number of tracked values of a label."""
WORKLOAD_VALUES_MAX: Final = 12
"""The same of a label of Workloads, which needs at least one."""

_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*")


def read_metrics(section: Fields | None, *, is_old: bool) -> MetricsConfiguration | UnsetType:
    """The section of a file, UNSET without custom labels. Raises ConfigurationError."""
    if section is None:
        return UNSET
    labels: list[CustomMetricLabel] = []
    for entry in section.sections("customLabels"):
        labels.append(_label(entry, [each.name for each in labels], is_old=is_old))
    _check_counts(section.at("customLabels"), Counter(each.source_kind for each in labels))
    section.flag("enableClusterQueueResources")
    section.ignore("bindAddress", "localQueueMetrics")
    section.done()
    return MetricsConfiguration(custom_labels=tuple(labels)) if labels else UNSET


def _label(entry: Fields, names: list[str], *, is_old: bool) -> CustomMetricLabel:
    """One label. v1beta1 has labels of ClusterQueues alone, and no tracked values."""
    read = CustomMetricLabel(
        name=entry.text("name"),
        source_label_key=entry.text("sourceLabelKey"),
        source_annotation_key=entry.text("sourceAnnotationKey"),
        source_kind="ClusterQueue" if is_old else _source_kind(entry),
        tracked_values=() if is_old else entry.texts("trackedValues"),
    )
    entry.done()
    if _NAME.fullmatch(read.name) is None:
        remedy = "write letters, digits and _, and a letter first"
        raise ConfigurationError(entry.at("name"), f"{read.name!r} is no name of a label", remedy)
    if read.name in names:
        raise ConfigurationError(entry.at("name"), f"{read.name!r} is there twice", "give each label its own name")
    if read.source_label_key and read.source_annotation_key:
        problem = "sourceLabelKey and sourceAnnotationKey are mutually exclusive"
        raise ConfigurationError(entry.path, problem, "remove one of the two")
    field = (
        "sourceLabelKey" if read.source_label_key else "sourceAnnotationKey" if read.source_annotation_key else "name"
    )
    problem = why_no_label_key(read.source_label_key or read.source_annotation_key or read.name)
    if problem:
        raise ConfigurationError(entry.at(field), problem, "write the key of a label, such as example.com/team")
    _check_values(entry.at("trackedValues"), read)
    return read


def _source_kind(entry: Fields) -> SourceKind:
    return cast(SourceKind, entry.choice("sourceKind", get_args(SourceKind), "ClusterQueue"))


def _check_values(at: str, label: CustomMetricLabel) -> None:
    of_workloads = label.source_kind == "Workload"
    limit = WORKLOAD_VALUES_MAX if of_workloads else VALUES_MAX
    if of_workloads and not label.tracked_values:
        remedy = f"list up to {WORKLOAD_VALUES_MAX} values"
        raise ConfigurationError(at, "it must not be empty when sourceKind is Workload", remedy)
    if len(label.tracked_values) > limit:
        problem = f"there are {len(label.tracked_values)} values"
        raise ConfigurationError(at, problem, f"list at most {limit} when sourceKind is {label.source_kind}")
    if len(dict.fromkeys(label.tracked_values)) < len(label.tracked_values):
        raise ConfigurationError(at, "a value is there twice", "list each value once")


def _check_counts(at: str, counts: Counter[SourceKind]) -> None:
    if counts.total() > LABELS_MAX:
        raise ConfigurationError(at, f"there are {counts.total()} labels", f"list at most {LABELS_MAX}")
    for kind in sorted(counts):
        if counts[kind] > LABELS_MAX_OF[kind]:
            problem = f"there are {counts[kind]} labels of source kind {kind}"
            raise ConfigurationError(at, problem, f"list at most {LABELS_MAX_OF[kind]} of them")
