"""The page of metrics: what a process registers, read from the instruments themselves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from headgate.adapters.jetstream.health import DependencyHealth
from headgate.adapters.telemetry.metrics import Distribution, LabelledCounter, Metrics
from headgate.processes.runtime.process_status import Status
from headgate.processes.runtime.serving_certificates import FileCertificates
from headgate.processes.telemetry.kueue_catalogue import CATALOGUE
from headgate.processes.telemetry.observer import Observing
from headgate.processes.webhook.process import measure
from headgate.processes.webhook.server import Reviews
from tools.reference.text import code, page, safe, table

INTRODUCTION: Final = """
Every process serves `/metrics` in Prometheus' text format. Counters begin at 0 with each process.

`headgate_*` metrics are about the process that serves them. `kueue_*` metrics have Kueue's names, labels and buckets,
so that dashboards made for Kueue work. Only the leader of the snapshotter serves them: a sum over all processes counts
each admission once. They are all of Kueue's metrics; those of a queue, a cohort or a workload vanish with it. Without
MultiKueue its two have no values.
"""


class Instrument(NamedTuple):
    """A metric as it is registered. Labels that only its values show are not named."""

    name: str
    kind: str
    about: str
    labels: tuple[str, ...]


class Recorder(Metrics):
    """Metrics that note what is registered."""

    def __init__(self) -> None:
        super().__init__()
        self.instruments: list[Instrument] = []

    def tally(self, name: str, help_text: str, labels: Sequence[str] = ()) -> LabelledCounter:
        """See `Metrics.tally`."""
        self.instruments.append(Instrument(name, "counter", help_text, tuple(labels)))
        return super().tally(name, help_text, labels)

    def counter(self, name: str, help_text: str, value: Callable[[], float]) -> None:
        """See `Metrics.counter`."""
        self.instruments.append(Instrument(name, "counter", help_text, ()))
        super().counter(name, help_text, value)

    def counters(
        self, name: str, help_text: str, values: Callable[[], Iterable[tuple[float, Mapping[str, str]]]]
    ) -> None:
        """See `Metrics.counters`."""
        self.instruments.append(Instrument(name, "counter", help_text, ()))
        super().counters(name, help_text, values)

    def gauge(self, name: str, help_text: str, values: Callable[[], Iterable[tuple[float, Mapping[str, str]]]]) -> None:
        """See `Metrics.gauge`."""
        self.instruments.append(Instrument(name, "gauge", help_text, ()))
        super().gauge(name, help_text, values)

    def histogram(self, name: str, help_text: str, buckets: Sequence[float]) -> Distribution:
        """See `Metrics.histogram`."""
        self.instruments.append(Instrument(name, "histogram", help_text, ()))
        return super().histogram(name, help_text, buckets)


def metrics_page() -> str:
    """`docs/reference/metrics.md`."""
    recorder = Recorder()
    status = Status(process="snapshotter", cell="main", holder="reference", health=DependencyHealth())
    Observing(status, recorder, None, kueue=False)
    recorder.close()
    kueues = [Instrument(each.name, each.kind, each.about, each.labels) for each in CATALOGUE.values()]
    return page(
        "Metrics",
        INTRODUCTION,
        f"## Of each process\n\n{_rows(recorder.instruments)}",
        f"## Of the webhook server\n\n{_rows(_of_webhooks())}",
        f"## Of the cell, by Kueue's names\n\n{_rows(kueues)}",
    )


def _of_webhooks() -> list[Instrument]:
    recorder = Recorder()
    Reviews({}, recorder)
    measure(recorder, FileCertificates("tls.crt", "tls.key"))
    recorder.close()
    return recorder.instruments


def _rows(instruments: Iterable[Instrument]) -> str:
    return table(
        ("metric", "kind", "meaning"),
        [
            (code(each.name), each.kind, safe(each.about) + _labels(each.labels))
            for each in sorted(instruments, key=lambda each: each.name)
        ],
    )


def _labels(labels: Sequence[str]) -> str:
    return f" Labels: {', '.join(map(code, labels))}." if labels else ""
