"""
Metrics: OpenTelemetry's SDK read in process, in Prometheus' text format.

What happens for every event is counted in a `Tally`: a dictionary of plain integers, which an observable instrument
looks at when somebody asks for /metrics (an OpenTelemetry counter costs 5 µs an event, a dictionary a tenth of one).
Histograms are OpenTelemetry's, since they are recorded once per admission or cycle at most.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from opentelemetry.metrics import CallbackOptions, Histogram, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    Gauge,
    HistogramDataPoint,
    InMemoryMetricReader,
    Metric,
    NumberDataPoint,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import Resource

LabelValues = tuple[str, ...]


def exponential_buckets(count: int) -> tuple[float, ...]:
    """Kueue's buckets for waiting times, in seconds: 1, then 2.5 doubled again and again, `count` in all."""
    return (1.0, *(2.5 * 2**power for power in range(count - 1)))


class Tally:
    """A counter by labels, as plain integers."""

    __slots__ = ("labels", "values")

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self.values: dict[LabelValues, int] = {}

    def add(self, *values: str, count: int = 1) -> None:
        """Count; `values` in the order of the labels."""
        self.values[values] = self.values.get(values, 0) + count


class Metrics:
    """The instruments of one process. `render` gives what Prometheus scrapes."""

    def __init__(self, **resource: str) -> None:
        self._reader = InMemoryMetricReader()
        self._provider = MeterProvider(
            metric_readers=[self._reader], resource=Resource(resource), shutdown_on_exit=False
        )
        self._meter = self._provider.get_meter("headgate")

    def tally(self, name: str, help_text: str, labels: Sequence[str] = ()) -> Tally:
        """A counter that is counted in plain integers. `name` ends in `_total`."""
        tally = Tally(labels)

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return [
                Observation(value, dict(zip(tally.labels, values, strict=True)))
                for values, value in tally.values.items()
            ]

        self._meter.create_observable_counter(name, [observe], description=help_text)
        return tally

    def counter(self, name: str, help_text: str, value: Callable[[], float]) -> None:
        """A counter without labels whose value is asked for."""
        self._meter.create_observable_counter(name, [lambda _: [Observation(value())]], description=help_text)

    def counters(
        self, name: str, help_text: str, values: Callable[[], Iterable[tuple[float, Mapping[str, str]]]]
    ) -> None:
        """A counter whose values, with their labels, are asked for."""
        self._meter.create_observable_counter(
            name, [lambda _: [Observation(value, dict(labels)) for value, labels in values()]], description=help_text
        )

    def gauge(self, name: str, help_text: str, values: Callable[[], Iterable[tuple[float, Mapping[str, str]]]]) -> None:
        """A gauge whose values, with their labels, are asked for."""
        self._meter.create_observable_gauge(
            name, [lambda _: [Observation(value, dict(labels)) for value, labels in values()]], description=help_text
        )

    def histogram(self, name: str, help_text: str, buckets: Sequence[float]) -> Histogram:
        """A histogram; record with its labels as attributes."""
        return self._meter.create_histogram(
            name, description=help_text, explicit_bucket_boundaries_advisory=list(buckets)
        )

    def render(self) -> str:
        """Everything, in Prometheus' text exposition format 0.0.4."""
        data = self._reader.get_metrics_data()
        if data is None:
            return ""
        metrics = [
            metric for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
        ]
        lines: list[str] = []
        for metric in sorted(metrics, key=lambda each: each.name):
            lines += _render(metric)
        return "\n".join(lines) + "\n"

    def close(self) -> None:
        """Shut the provider down."""
        self._provider.shutdown()


_TYPES: Final[Mapping[type, str]] = {Sum: "counter", Gauge: "gauge", HistogramData: "histogram"}


def _render(metric: Metric) -> list[str]:
    kind = _TYPES.get(type(metric.data), "untyped")
    help_text = (metric.description or "").replace("\\", "\\\\").replace("\n", "\\n")
    lines = [f"# HELP {metric.name} {help_text}", f"# TYPE {metric.name} {kind}"]
    for point in metric.data.data_points:
        if isinstance(point, NumberDataPoint):
            lines.append(f"{metric.name}{_labels(point.attributes)} {_number(point.value)}")
        elif isinstance(point, HistogramDataPoint):
            lines += _render_histogram(metric.name, point)
    return lines


def _render_histogram(name: str, point: HistogramDataPoint) -> list[str]:
    lines = []
    total = 0
    for bound, count in zip((*point.explicit_bounds, math.inf), point.bucket_counts, strict=True):
        total += count
        lines.append(f"{name}_bucket{_labels(point.attributes, le=_number(bound))} {total}")
    lines.append(f"{name}_sum{_labels(point.attributes)} {_number(point.sum)}")
    lines.append(f"{name}_count{_labels(point.attributes)} {point.count}")
    return lines


def _labels(attributes: Mapping[str, object] | None, **more: str) -> str:
    every = {**(attributes or {}), **more}
    if not every:
        return ""
    return "{" + ",".join(f'{key}="{_escape(str(value))}"' for key, value in every.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
