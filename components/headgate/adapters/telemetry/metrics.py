"""
Metrics: OpenTelemetry's SDK read in process, in Prometheus' text format.

Gauges are read and written here. Per-event counts go into a `LabelledCounter`: a dictionary of plain integers, which an
observable instrument reads on a request for /metrics (an OpenTelemetry counter costs 5 µs an event, a dictionary a
tenth of one). Histograms are `Distribution`s, likewise: OpenTelemetry's cost seven times as much, and each workload has
four values.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    InMemoryMetricReader,
    Metric,
    NumberDataPoint,
    Sum,
)
from opentelemetry.sdk.resources import Resource

LabelValues = tuple[str, ...]
Readings = Callable[[], Iterable[tuple[float, Mapping[str, str]]]]


def exponential_buckets(count: int) -> tuple[float, ...]:
    """Kueue's buckets for waiting times, in seconds: 1, then 2.5 doubled repeatedly, `count` in all."""
    return (1.0, *(2.5 * 2**power for power in range(count - 1)))


class LabelledCounter:
    """A counter by labels, as plain integers."""

    __slots__ = ("labels", "values")

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self.values: dict[LabelValues, int] = {}

    def add(self, *values: str, count: int = 1) -> None:
        """Count; `values` in the order of the labels."""
        self.values[values] = self.values.get(values, 0) + count

    def relabel(self, labels: Sequence[str]) -> None:
        """Count by other labels from here on, from nothing."""
        self.labels = tuple(labels)
        self.values.clear()

    def forget(self, labels: Mapping[str, str]) -> None:
        """Remove the values that have these labels; none where the counter lacks one of them."""
        if not labels.keys() <= set(self.labels):
            return
        places = [(self.labels.index(label), value) for label, value in labels.items()]
        gone = [values for values in self.values if all(values[place] == value for place, value in places)]
        for values in gone:
            del self.values[values]


class _Series:
    """The values of one set of labels: the count of each bucket, the last of which is unbounded, and their sum."""

    __slots__ = ("counts", "labels", "sum")

    def __init__(self, labels: Mapping[str, str], buckets: int) -> None:
        self.labels = labels
        self.counts = [0] * buckets
        self.sum = 0.0


class Distribution:
    """A histogram by labels. A bucket holds values up to and including its bound."""

    __slots__ = ("_bounds", "_series", "help_text", "name")

    def __init__(self, name: str, help_text: str, bounds: Sequence[float]) -> None:
        self.name = name
        self.help_text = help_text
        self._bounds = tuple(bounds)
        self._series: dict[frozenset[tuple[str, str]], _Series] = {}

    def record(self, value: float, labels: Mapping[str, str]) -> None:
        """Count a value."""
        key = frozenset(labels.items())
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series(dict(labels), len(self._bounds) + 1)
        series.counts[bisect_left(self._bounds, value)] += 1
        series.sum += value

    def forget(self, labels: Mapping[str, str]) -> None:
        """Remove the values that have these labels."""
        self._series = {key: series for key, series in self._series.items() if not labels.items() <= key}

    def render(self) -> list[str]:
        """Its lines; none before the first value."""
        if not self._series:
            return []
        lines = _head(self.name, self.help_text, "histogram")
        for series in self._series.values():
            total = 0
            for bound, count in zip((*self._bounds, math.inf), series.counts, strict=True):
                total += count
                lines.append(f"{self.name}_bucket{_labels(series.labels, le=_number(bound))} {total}")
            lines.append(f"{self.name}_sum{_labels(series.labels)} {_number(series.sum)}")
            lines.append(f"{self.name}_count{_labels(series.labels)} {total}")
        return lines


class Metrics:
    """The instruments of one process. `render` returns what Prometheus scrapes."""

    def __init__(self, **resource: str) -> None:
        self._reader = InMemoryMetricReader()
        self._provider = MeterProvider(
            metric_readers=[self._reader], resource=Resource(resource), shutdown_on_exit=False
        )
        self._meter = self._provider.get_meter("headgate")
        self._distributions: list[Distribution] = []
        self._gauges: list[tuple[str, str, Readings]] = []

    def tally(self, name: str, help_text: str, labels: Sequence[str] = ()) -> LabelledCounter:
        """A counter that is counted in plain integers. `name` ends in `_total`."""
        tally = LabelledCounter(labels)

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return [
                Observation(value, dict(zip(tally.labels, values, strict=True)))
                for values, value in tally.values.items()
            ]

        self._meter.create_observable_counter(name, [observe], description=help_text)
        return tally

    def counter(self, name: str, help_text: str, value: Callable[[], float]) -> None:
        """A counter without labels whose value is read on request."""
        self._meter.create_observable_counter(name, [lambda _: [Observation(value())]], description=help_text)

    def counters(
        self, name: str, help_text: str, values: Callable[[], Iterable[tuple[float, Mapping[str, str]]]]
    ) -> None:
        """A counter whose values, with their labels, are read on request."""
        self._meter.create_observable_counter(
            name, [lambda _: [Observation(value, dict(labels)) for value, labels in values()]], description=help_text
        )

    def gauge(self, name: str, help_text: str, values: Callable[[], Iterable[tuple[float, Mapping[str, str]]]]) -> None:
        """A gauge whose values, with their labels, are read on request; also infinite ones, which the SDK refuses."""
        self._gauges.append((name, help_text, values))

    def histogram(
        self,
        name: str,
        help_text: str,
        buckets: Sequence[float],
        labels: Sequence[str] = (),  # noqa: ARG002 - for who lists what there is
    ) -> Distribution:
        """A histogram with these upper bounds, in ascending order. `labels` are those that its values will have."""
        distribution = Distribution(name, help_text, buckets)
        self._distributions.append(distribution)
        return distribution

    def render(self) -> str:
        """Everything, in Prometheus' text exposition format 0.0.4."""
        data = self._reader.get_metrics_data()
        rendered = {each.name: each.render() for each in self._distributions}
        rendered |= {name: _render_gauge(name, help_text, values) for name, help_text, values in self._gauges}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                rendered |= {metric.name: _render(metric) for metric in scope.metrics}
        lines = [line for name in sorted(rendered) for line in rendered[name]]
        return "\n".join(lines) + "\n" if lines else ""

    def close(self) -> None:
        """Shut the provider down."""
        self._provider.shutdown()


_TYPES: Final[Mapping[type, str]] = {Sum: "counter"}


def _head(name: str, help_text: str, kind: str) -> list[str]:
    escaped = help_text.replace("\\", "\\\\").replace("\n", "\\n")
    return [f"# HELP {name} {escaped}", f"# TYPE {name} {kind}"]


def _render_gauge(name: str, help_text: str, values: Readings) -> list[str]:
    """Its lines; none without values."""
    lines = [f"{name}{_labels(labels)} {_number(value)}" for value, labels in values()]
    return [*_head(name, help_text, "gauge"), *lines] if lines else []


def _render(metric: Metric) -> list[str]:
    lines = _head(metric.name, metric.description or "", _TYPES.get(type(metric.data), "untyped"))
    for point in metric.data.data_points:
        if isinstance(point, NumberDataPoint):
            lines.append(f"{metric.name}{_labels(point.attributes)} {_number(point.value)}")
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
