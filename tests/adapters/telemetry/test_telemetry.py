"""Logs, metrics and traces say what happened, in formats that machines read."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from headgate.adapters.telemetry import Metrics, TracingError, configure_logs, open_traces
from headgate.adapters.telemetry.metrics import exponential_buckets
from headgate.adapters.telemetry.traces import parse_traceparent, traceparent


@pytest.fixture
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def lines_of(form: str, level: str = "info") -> list[str]:
    stream = io.StringIO()
    configure_logs(form=form, level=level, process="scheduler", cell="main", holder="h", stream=stream)
    log = logging.getLogger("headgate.test")
    log.debug("too much")
    log.info("position %d", 812, extra={"position": 812})
    try:
        raise ValueError("odd")
    except ValueError:
        log.exception("it failed")
    return stream.getvalue().splitlines()


def test_json_logs_are_one_object_a_line(restored_logging: None) -> None:
    """Each has time, level, process, message and the extras; an exception is a field."""
    first, second = (json.loads(line) for line in lines_of("json"))
    assert first["message"] == "position 812"
    assert (first["level"], first["process"], first["cell"], first["position"]) == ("info", "scheduler", "main", 812)
    assert first["time"].endswith("Z")
    assert "ValueError: odd" in second["exception"]


def test_human_logs_are_for_people(restored_logging: None) -> None:
    """Time, level, process, sentence; extras behind it."""
    lines = lines_of("human", "debug")
    assert "DBG scheduler: too much" in lines[0]
    assert lines[1].endswith("INF scheduler: position 812  position=812")
    assert "ValueError: odd" in lines[-1]


def test_metrics_are_in_prometheus_text_format() -> None:
    """Counters, gauges and histograms, with their labels escaped."""
    metrics = Metrics(**{"service.name": "test"})
    tally = metrics.tally("kueue_evicted_workloads_total", "Evicted.", ("cluster_queue", "reason"))
    tally.add('a"b\\c', "Preempted")
    tally.add('a"b\\c', "Preempted", count=2)
    metrics.gauge("headgate_position", "Where.", lambda: [(7, {"of": "log"})])
    metrics.counter("headgate_folded_seconds_total", "Time.", lambda: 1.5)
    metrics.histogram("wait_seconds", "Waits.", exponential_buckets(4)).record(3, {"queue": "q"})
    text = metrics.render()
    metrics.close()
    assert "# TYPE kueue_evicted_workloads_total counter" in text
    assert 'kueue_evicted_workloads_total{cluster_queue="a\\"b\\\\c",reason="Preempted"} 3' in text
    assert 'headgate_position{of="log"} 7' in text
    assert "headgate_folded_seconds_total 1.5" in text
    assert 'wait_seconds_bucket{queue="q",le="2.5"} 0' in text
    assert 'wait_seconds_bucket{queue="q",le="5"} 1' in text
    assert 'wait_seconds_bucket{queue="q",le="+Inf"} 1' in text
    assert 'wait_seconds_sum{queue="q"} 3' in text
    assert 'wait_seconds_count{queue="q"} 1' in text


def test_reading_twice_gives_the_same() -> None:
    """A scrape takes nothing away."""
    metrics = Metrics()
    metrics.tally("a_total", "A.").add()
    assert metrics.render() == metrics.render()
    metrics.close()


def test_buckets_are_kueues() -> None:
    """1, then 2.5 doubled."""
    assert exponential_buckets(5) == (1, 2.5, 5, 10, 20)


def test_a_span_continues_the_trace_of_its_cause(capsys: pytest.CaptureFixture[str]) -> None:
    """A commit's traceparent makes the next commit's span a child of it."""
    with open_traces(exporter="console", endpoint="", sampled=1.0, resource={}) as traces:
        assert traces is not None
        first = traces.begin("first", cause=None, attributes={"n": 1})
        second = traces.begin("second", cause=traceparent(first), links=("nonsense", traceparent(first)), attributes={})
        traces.end(first)
        traces.end(second, error="refused")
        mine, its = parse_traceparent(traceparent(second)), parse_traceparent(traceparent(first))
    assert mine is not None
    assert its is not None
    assert mine.trace_id == its.trace_id
    assert mine.span_id != its.span_id
    assert '"refused"' in capsys.readouterr().err


@pytest.mark.parametrize("header", [None, "", "00-x-y-z", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "00-1-2-3"])
def test_what_is_no_traceparent_is_none(header: str | None) -> None:
    """Traces of others may be anything."""
    assert parse_traceparent(header) is None


def test_no_exporter_means_no_tracing() -> None:
    """Nothing is made, so nothing is paid."""
    with open_traces(exporter="none", endpoint="", sampled=1.0, resource={}) as traces:
        assert traces is None


def test_otlp_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line names the package."""

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("headgate.adapters.telemetry.traces.importlib.import_module", missing)
    with (
        pytest.raises(TracingError, match="install opentelemetry-exporter-otlp-proto-http"),
        open_traces(exporter="otlp", endpoint="", sampled=1.0, resource={}),
    ):
        pass
