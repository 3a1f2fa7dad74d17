"""Commands that read a log, on a recorded one."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import yaml
from tests.support.history import History

from headgate.adapters.log import LogEntry
from headgate.adapters.logfile import LogFileWriter, read_log_file
from headgate.core import fold
from headgate.events import decisions, facts
from headgate.events.base import Producer
from headgate.events.commit import decode_commit
from headgate.events.ids import Seq
from headgate.events.objects import ClusterQueueSpec

READERS = (
    ("audit",),
    ("replay",),
    ("replay", "--verify"),
    ("state",),
    ("queue", "status"),
    ("queue", "status", "--pending", "vision"),
    ("explain", "vision-001"),
)


def written(path: Path, entries: list[LogEntry]) -> Path:
    with LogFileWriter(path) as writer:
        writer.write(entries)
    return path


@pytest.mark.parametrize("command", READERS, ids=" ".join)
def test_every_reader_answers_in_three_forms_with_the_same_data(headgate: Callable, demo_log: Path, command) -> None:
    """A table for people; JSON and YAML say the same."""
    table = headgate(*command, "--log", demo_log)
    assert table.code == 0, table.err
    assert table.out.strip()
    answers = [headgate(*command, "--log", demo_log, "-o", form).out for form in ("json", "yaml")]
    as_json, as_yaml = json.loads(answers[0]), yaml.safe_load(answers[1])
    if command[0] == "replay":
        as_json, as_yaml = as_json["replayed"], as_yaml["replayed"]  # the rest is how fast it was
    assert as_json == as_yaml


def test_a_recorded_run_is_without_findings_and_replays_the_same(headgate: Callable, demo_log: Path) -> None:
    """All jobs of the demo, under virtual time: the audit is content, and everything is decided the same."""
    assert "no findings" in headgate("audit", "--log", demo_log).out
    replayed = json.loads(headgate("replay", "--verify", "--log", demo_log, "-o", "json").out)["replayed"]
    assert replayed["cycles"] > 10
    assert replayed["differences"] == []
    assert replayed["passed_over"] == 0
    # The demo has no topologies, no checks for ProvisioningRequests and no KubeSchedulerConfiguration.
    none = ("pods sent to domains", "provisioning requests", "placements")
    assert [replayed["compared"].pop(each) for each in none] == [0, 0, 0]
    assert all(count > 10 for count in replayed["compared"].values()), replayed["compared"]


def test_a_hole_in_the_log_is_a_finding_and_stops_whoever_folds(
    headgate: Callable, demo_entries: list[LogEntry], tmp_path: Path
) -> None:
    """`audit` exits with 1 (findings), a reader that needs the state with 3 (the log is broken), in one line."""
    holed = written(tmp_path / "holed.jsonl.gz", [entry for entry in demo_entries if entry.seq != 20])
    audit = headgate("audit", "--log", holed)
    assert audit.code == 1
    assert "gaps" in audit.out
    state = headgate("state", "--log", holed)
    assert state.code == 3
    assert state.err.count("\n") == 1
    assert "the log is broken at position" in state.err


def test_an_unknown_event_stops_a_reader_with_what_to_do(
    headgate: Callable, demo_entries: list[LogEntry], tmp_path: Path
) -> None:
    """Position, subject, the type that is not known, and the way out."""
    strange = msgspec.structs.replace(demo_entries[4], payload=b'{"events":[{"type":"job.teleported"}]}')
    path = written(tmp_path / "strange.jsonl.gz", [*demo_entries[:4], strange])
    answer = headgate("events", "--log", path)
    assert answer.code == 3
    assert f"position 5 on {strange.subject}" in answer.err
    assert "job.teleported" in answer.err


def test_a_cycle_that_would_be_decided_otherwise_is_a_difference(headgate: Callable, tmp_path: Path) -> None:
    """The first one is shown, recorded beside replayed, and the exit code is 1."""
    history = History()
    history.term(Producer.SCHEDULER)
    history.put(
        Producer.INFORMER_BRIDGE,
        facts.ClusterQueueObserved(name="a", spec=ClusterQueueSpec()),
        facts.InformersSynced(),
    )
    history.put(Producer.SCHEDULER, decisions.CycleDecided(cycle=1, decided_at=Seq(3)), decided_at=3)
    answer = headgate("replay", "--verify", "--log", written(tmp_path / "odd.jsonl.gz", history.entries))
    assert answer.code == 1
    assert "cycle 1, decided at 3 differs" in answer.out
    assert 'recorded: {"type":"cycle.decided","cycle":1' in answer.out
    assert "replayed: nothing" in answer.out


def test_state_at_a_position_is_the_fold_up_to_there(
    headgate: Callable, demo_entries: list[LogEntry], demo_log: Path
) -> None:
    """By position, and the hash is that of the same fold anywhere."""
    state = fold.new_state("demo")
    for entry in demo_entries[:50]:
        fold.apply(state, decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms))
    answer = headgate("state", "--at", 50, "--hash", "--log", demo_log)
    assert answer.out.split() == ["50", fold.state_hash(state)]


def test_a_time_means_all_that_was_written_by_then(
    headgate: Callable, demo_entries: list[LogEntry], demo_log: Path
) -> None:
    """The state at a commit's time includes it, and nothing that came later."""
    time_ms = decode_commit(30, demo_entries[29].subject, demo_entries[29].payload).commit.time_ms
    first_after = next(
        entry.seq
        for entry in demo_entries
        if decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms).commit.time_ms > time_ms
    )
    at = "1970-01-01T00:00:00Z" if not time_ms else _iso(time_ms)
    answer = json.loads(headgate("state", "--at", at, "--hash", "--log", demo_log, "-o", "json").out)
    assert answer["position"] == first_after - 1


def _iso(time_ms: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


def test_events_are_filtered_by_type_namespace_producer_and_position(headgate: Callable, demo_log: Path) -> None:
    """Each filter leaves only what it names."""

    def events(*filters: object) -> list[dict]:
        out = headgate("events", "--log", demo_log, "-o", "json", *filters).out
        return [json.loads(line) for line in out.splitlines()]

    admitted = events("--type", "workload.admitted", "-n", "vision")
    assert admitted
    assert {each["event"]["type"] for each in admitted} == {"workload.admitted"}
    assert all(each["event"]["workload"].startswith("vision/") for each in admitted)
    assert {each["producer"] for each in events("--producer", "binder")} == {"binder"}
    late = events("--from", 100, "--type", "job.*", "--type", "pod.*")
    assert min(int(each["position"].split(".")[0]) for each in late) >= 100
    assert {each["event"]["type"].split(".")[0] for each in late} == {"job", "pod"}


def test_a_position_behind_the_end_is_said_with_the_end(headgate: Callable, demo_log: Path) -> None:
    """Nothing is wrong with the log; the next position is none yet, and nothing is there to be shown."""
    end = int(headgate("events", "--log", demo_log).out.splitlines()[-1].split()[0].partition(".")[0])
    assert headgate("events", "--log", demo_log, "--from", end + 1).out == ""
    answer = headgate("events", "--log", demo_log, "--from", end + 2)
    assert answer.code == 2
    assert f"ends at position {end}: --from {end + 2} lies behind its end" in answer.err


def test_an_export_is_the_log_byte_for_byte(headgate: Callable, demo_log: Path, tmp_path: Path) -> None:
    """What is exported from an export is the same file; up to a position it is the log's beginning."""
    again = tmp_path / "again.jsonl.gz"
    assert headgate("events", "--export", again, "--log", demo_log).code == 0
    assert again.read_bytes() == demo_log.read_bytes()
    short = tmp_path / "short.jsonl.gz"
    headgate("events", "--export", short, "--at", 25, "--log", demo_log)
    assert [entry.seq for entry in read_log_file(short)] == list(range(1, 26))


def test_pending_workloads_stand_in_the_order_of_their_queue(headgate: Callable, demo_log: Path) -> None:
    """At a moment when many wait: places count up, priorities go down, and each has a reason and a way out."""
    crowded = _crowded(headgate, demo_log)
    waiting = json.loads(
        headgate("queue", "status", "--pending", "vision", "--at", crowded, "--log", demo_log, "-o", "json").out
    )
    in_line = [each for each in waiting if each["place"]]
    assert [each["place"] for each in in_line] == list(range(1, len(in_line) + 1))
    assert len(in_line) > 3
    queued = [each["priority"] for each in in_line if each["stage"] == "Queued"]
    assert queued == sorted(queued, reverse=True)
    assert all(each["why"] and each["would_change"] for each in waiting)


def _crowded(headgate: Callable, demo_log: Path) -> int:
    """A position at which jobs wait for quota."""
    parked = headgate("events", "--log", demo_log, "-o", "json", "--type", "workload.parked").out.splitlines()
    return int(json.loads(parked[len(parked) // 3])["position"].split(".")[0])


def test_the_usage_of_a_queue_is_that_of_its_admitted_workloads(headgate: Callable, demo_log: Path) -> None:
    """Used quota adds up over flavors to what the admitted ask for; nothing is in use at the end."""
    end = json.loads(headgate("queue", "status", "--log", demo_log, "-o", "json").out)
    assert {use["used"] for queue in end["cluster_queues"] for use in queue["usage"]} == {"0"}
    crowded = _crowded(headgate, demo_log)
    then = json.loads(headgate("queue", "status", "--at", crowded, "--log", demo_log, "-o", "json").out)
    busy = sum(float(use["used"]) for queue in then["cluster_queues"] for use in queue["usage"])
    assert 0 < busy <= 48


def test_a_story_is_told_line_by_line_and_ends_with_how_things_stand(headgate: Callable, demo_log: Path) -> None:
    """Positions, processes and reasons; -v has no less."""
    brief, whole = (headgate("explain", "vision-001", "--log", demo_log, *more).out for more in ((), ("-v",)))
    for word in ("informer-bridge", "queue-manager", "scheduler", "workload.admitted", "Now Finished"):
        assert word in brief
    assert len(whole.splitlines()) >= len(brief.splitlines())


def test_an_unknown_table_is_answered_with_those_there_are(headgate: Callable, demo_log: Path) -> None:
    """One line, exit code 2."""
    answer = headgate("state", "--table", "queues", "--log", demo_log)
    assert answer.code == 2
    assert "cluster_queues" in answer.err
    assert answer.err.count("\n") == 1
