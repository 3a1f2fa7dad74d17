"""One trace for each job: every process finds it by the Workload's uid."""

import json
import logging
import re
import uuid

import msgspec
import pytest
from tests.support.logs import TestLog

from headgate.adapters.jetstream.health import DependencyHealth
from headgate.adapters.log import Appended, LogEntry
from headgate.adapters.telemetry import Metrics, configure_logs, open_traces
from headgate.adapters.telemetry.traces import Traces, trace_id_of
from headgate.cli.demo_objects import cluster_objects, job_objects
from headgate.core import fold
from headgate.core.machine.contract import Append
from headgate.events.base import Producer
from headgate.events.commit import decode_entry
from headgate.events.facts import NamespaceObserved
from headgate.processes.runtime.process_status import Status
from headgate.processes.telemetry.observer import Observing
from headgate.testing.world.world import World


def observer(producer: Producer, traces: Traces | None) -> Observing:
    status = Status(process=producer.value, cell="main", holder="h", health=DependencyHealth())
    return Observing(status, Metrics(), traces, kueue=False)


@pytest.fixture
def demo() -> list[LogEntry]:
    """The log of some jobs that are submitted at once, so that many events are about several of them."""
    entries: list[LogEntry] = []
    world = World(cell="main", sink=lambda *entry: entries.append(LogEntry(*entry)))
    world.apply(*cluster_objects())
    world.run(until_ms=world.clock.now_ms + 1_000)
    world.apply(*job_objects(12, seed=1))
    assert world.run(until_ms=world.clock.now_ms + 600_000)
    return entries


def test_the_processes_put_one_workload_into_one_trace(
    demo: list[LogEntry], capsys: pytest.CaptureFixture[str]
) -> None:
    """From queueing to finishing, with the id of its uid; a commit about several links to each of their traces."""
    state = fold.new_state("main")
    with open_traces(exporter="console", endpoint="", sampled=1.0, resource={}) as traces:
        observing = {producer: observer(producer, traces) for producer in Producer}
        for entry in demo:
            logged = decode_entry(entry.seq, entry.subject, entry.payload, entry.time_ms)
            commit, writer = logged.commit, observing[logged.commit.producer]
            trace = writer.deciding(Append(events=commit.events, cause=commit.cause, decided_at=commit.decided_at))
            commit = msgspec.structs.replace(commit, trace=trace)
            writer.appended(commit, Appended(entry.seq))
            fold.apply(state, logged)
            for each in observing.values():
                each.folded(state, msgspec.structs.replace(logged, commit=commit), leading=True)
    decoder, text, spans = json.JSONDecoder(), capsys.readouterr().err, []
    while text.lstrip():
        span, end = decoder.raw_decode(text.lstrip())
        spans.append(span)
        text = text.lstrip()[end:]
    of = {
        key: [each for each in spans if each["attributes"].get("headgate.workload") == key] for key in state.workloads
    }
    assert of
    for key, its in of.items():
        uid = state.workloads[key].uid
        assert {each["context"]["trace_id"] for each in its} == {f"0x{trace_id_of(uid):032x}"}
        assert {"queue-manager", "scheduler", "binder", "ungater"} <= {each["name"].split()[0] for each in its}
    workload_traces = {each["context"]["trace_id"] for its in of.values() for each in its}
    batches = {
        each["context"]["span_id"]: each["context"]["trace_id"]
        for each in spans
        if "headgate.workload" not in each["attributes"]
    }
    assert workload_traces.isdisjoint(batches.values())
    parts = [link["context"]["span_id"] for its in of.values() for each in its for link in each["links"]]
    assert len([part for part in parts if part in batches]) > len(of)


@pytest.mark.parametrize("uid", [str(uuid.UUID(int=2**127 + 5)), "plan-000001", str(uuid.UUID(int=0))])
def test_a_trace_id_is_never_zero_and_always_the_same(uid: str) -> None:
    """A UUID is its own trace id; other uids have a digest."""
    assert trace_id_of(uid) == trace_id_of(uid)
    assert 0 < trace_id_of(uid) < 2**128


def test_logs_of_a_commit_have_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    """While it is under way, and not after."""
    with open_traces(exporter="console", endpoint="", sampled=1.0, resource={}) as traces:
        observing = observer(Producer.SCHEDULER, traces)
        configure_logs(form="json", level="info", process="scheduler", cell="main", holder="h")
        logged = TestLog().encode(Producer.SCHEDULER, NamespaceObserved(name="x"))
        trace = observing.deciding(Append(events=logged.commit.events))
        assert trace is not None
        logging.getLogger("headgate.test").info("within")
        observing.appended(msgspec.structs.replace(logged.commit, trace=trace), Appended(1))
        logging.getLogger("headgate.test").info("after")
    lines = [json.loads(line) for line in re.findall(r'^\{"time".*$', capsys.readouterr().err, re.M)]
    said = {line["message"]: line.get("trace_id") for line in lines}
    assert said == {"within": trace.split("-")[1], "after": None}
