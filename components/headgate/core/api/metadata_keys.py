"""
Labels and annotations that Headgate takes over from objects because the configuration names their keys.

`copied` are those that a Workload gets from its job: `integrations.labelKeysToCopy`, and what `metrics.customLabels`
shows of Workloads. `shown` are those of a kind of objects that metrics show. The readers of API objects keep these in
their facts; of everything else only Kueue's labels are read.
"""

from collections.abc import Mapping

import msgspec

from headgate.events.configuration import Configuration, CustomMetricLabel, SourceKind


class MetadataKeys(msgspec.Struct, frozen=True):
    """Keys of labels and of annotations, in order and each once."""

    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()


NO_KEYS = MetadataKeys()


def picked(values: Mapping[str, str] | None, keys: tuple[str, ...]) -> dict[str, str]:
    """The values of these keys, as far as there are any."""
    return {key: values[key] for key in keys if key in values} if values else {}


def label_key_of(label: CustomMetricLabel) -> str:
    """The key of the label that a custom label shows; "" for one that shows an annotation."""
    return "" if label.source_annotation_key else label.source_label_key or label.name


def shown(configuration: Configuration, kind: SourceKind) -> MetadataKeys:
    """What metrics show of the objects of a kind."""
    labels = [each for each in configuration.custom_labels if each.source_kind == kind]
    return MetadataKeys(
        labels=_once(*map(label_key_of, labels)), annotations=_once(*(each.source_annotation_key for each in labels))
    )


def copied(configuration: Configuration) -> MetadataKeys:
    """What a Workload gets from its job (Kueue's getLabelsAndAnnotationsToCopy)."""
    of_workloads = shown(configuration, "Workload")
    labels = _once(*(configuration.integrations.label_keys_to_copy or ()), *of_workloads.labels)
    return MetadataKeys(labels=labels, annotations=of_workloads.annotations)


def _once(*keys: str) -> tuple[str, ...]:
    return tuple(sorted(dict.fromkeys(key for key in keys if key)))
