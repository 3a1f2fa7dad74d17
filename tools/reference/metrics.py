"""The page of metrics: what a process registers, read from the instruments themselves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from headgate.adapters.jetstream.health import Dependency, DependencyHealth
from headgate.adapters.telemetry.metrics import Distribution, LabelledCounter, Metrics
from headgate.core.state.tables import PlacementRecord, PlacementVerdict, State
from headgate.events.decisions import PluginRefusal
from headgate.events.ids import PodKey, Uid
from headgate.processes.runtime.process_status import KUBERNETES, Status
from headgate.processes.runtime.serving_certificates import FileCertificates
from headgate.processes.telemetry.kueue_catalogue import CATALOGUE
from headgate.processes.telemetry.observer import Observing
from headgate.processes.telemetry.scheduler_metrics import SchedulerMetrics
from headgate.processes.webhook.process import measure
from headgate.processes.webhook.server import Reviews
from tools.reference.text import code, page, safe, table

INTRODUCTION: Final = """
Every process serves `/metrics` in Prometheus' text format. Counters begin at 0 with each process.

`headgate_*` metrics are about the process that serves them. `kueue_*` metrics have Kueue's names, labels and buckets,
so that dashboards made for Kueue work. Only the leader of the snapshotter serves them: a sum over all processes counts
each admission once. They are all of Kueue's metrics; those of a queue, a cohort or a workload vanish with it. Without
MultiKueue its two have no values. The configuration can add
[labels of queues and workloads](../operate/monitoring.md#custom-labels).

`scheduler_*` metrics have the names, labels and buckets of the kube-scheduler 1.36, while Headgate places pods. Those
that follow from the log are served by the leader of the snapshotter, `scheduler_pending_pods` by that of the scheduler.
Attempts that change nothing are counted when the next event about their pod is recorded.
"""


class Instrument(NamedTuple):
    """A metric as it is registered, with the labels that its values have."""

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
        self.instruments.append(Instrument(name, "counter", help_text, _shown(values)))
        super().counters(name, help_text, values)

    def gauge(self, name: str, help_text: str, values: Callable[[], Iterable[tuple[float, Mapping[str, str]]]]) -> None:
        """See `Metrics.gauge`."""
        self.instruments.append(Instrument(name, "gauge", help_text, _shown(values)))
        super().gauge(name, help_text, values)

    def histogram(
        self, name: str, help_text: str, buckets: Sequence[float], labels: Sequence[str] = ()
    ) -> Distribution:
        """See `Metrics.histogram`."""
        self.instruments.append(Instrument(name, "histogram", help_text, tuple(labels)))
        return super().histogram(name, help_text, buckets, labels)


def _shown(values: Callable[[], Iterable[tuple[float, Mapping[str, str]]]]) -> tuple[str, ...]:
    """The labels of the values that there are."""
    return tuple(dict.fromkeys(label for _, labels in values() for label in labels))


def metrics_page() -> str:
    """`docs/reference/metrics.md`."""
    return page(
        "Metrics",
        INTRODUCTION,
        f"## Of each process\n\n{_rows(of_processes())}",
        f"## Of the webhook server\n\n{_rows(of_webhooks())}",
        f"## Of the cell, by Kueue's names\n\n{_rows(of_the_cell())}",
        f"## Of the cell, by the kube-scheduler's names\n\n{_rows(of_placement())}",
    )


def of_processes() -> list[Instrument]:
    """The metrics of each of the six processes."""
    recorder = Recorder()
    status = Status(process="snapshotter", cell="main", holder="reference", health=DependencyHealth())
    # A value of each, for its labels.
    status.probes.append(lambda: Dependency(name=KUBERNETES, ok=True, since_ms=0))
    status.retries.append(lambda: [(0, {"cause": ""})])
    status.watches.append(lambda: [(0, {"resource": "", "what": ""})])
    status.pending_pods = lambda: [(0, {"queue": ""})]
    status.plugin_failures = lambda: [(0, {"plugin": "", "extension_point": ""})]
    Observing(status, recorder, None, kueue=False)
    recorder.close()
    return recorder.instruments


def of_the_cell() -> list[Instrument]:
    """The metrics of Kueue."""
    return [Instrument(each.name, each.kind, each.about, each.labels) for each in CATALOGUE.values()]


def of_placement() -> list[Instrument]:
    """The metrics of the kube-scheduler that follow from the log."""
    recorder = Recorder()
    state = State(cell="reference")
    key, uid = PodKey("team/a"), Uid("a")
    verdict = PlacementVerdict(reason="", message="", refusals=(PluginRefusal(plugin="", reason=""),))
    state.placements[key] = PlacementRecord(uid=uid, verdict=verdict)
    SchedulerMetrics(recorder).serve_gauges(lambda: state)
    recorder.close()
    return recorder.instruments


def of_webhooks() -> list[Instrument]:
    """The metrics of a webhook server."""
    recorder = Recorder()
    Reviews({}, recorder)
    measure(recorder, FileCertificates("tls.crt", "tls.key", section="webhook"))
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
