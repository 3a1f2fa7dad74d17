"""Recorded logs fold for ever: in this version, with fields it does not know, and with fields they do not have."""

from functools import reduce
from operator import or_
from typing import Any

import msgspec
import pytest
from tests.histories import record

from headgate.adapters.log import LogEntry
from headgate.adapters.logfile import read_log_file
from headgate.cli.deciding_again import checks
from headgate.core import fold
from headgate.core.audit.log import audit
from headgate.core.cycle import decide_cycle
from headgate.core.state import sharing
from headgate.core.verification.replay import Plan, Replay
from headgate.events.base import EventBase, Producer, tag_of
from headgate.events.commit import Commit, UnreadableCommitError, decode_commit, digest
from headgate.events.registry import TAGS


@pytest.fixture(scope="module", params=record.names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def entries(name: str) -> list[LogEntry]:
    return list(read_log_file(record.log_path(name)))


def test_there_is_a_history() -> None:
    """The tests below test something: at least one history, with most kinds of events in it."""
    assert record.names()
    tags = {
        tag_of(event)
        for name in record.names()
        for entry in read_log_file(record.log_path(name))
        for event in decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms).commit.events
    }
    assert len(tags) > 0.6 * len(TAGS), sorted(TAGS.keys() - tags)


def test_a_recorded_log_folds_to_its_recorded_state(name: str, entries: list[LogEntry]) -> None:
    """The state is the same to the byte as when the log was recorded."""
    encoded, recorded = fold.encode(record.refold(entries)), record.expected(name)
    if encoded != recorded:
        now, before = msgspec.json.decode(encoded), msgspec.json.decode(recorded)
        assert now == before
    assert digest(encoded) == digest(recorded)


def test_a_recorded_state_can_be_started_from(name: str) -> None:
    """An old snapshot restores, and encodes to the same bytes again."""
    recorded = record.expected(name)
    assert fold.encode(fold.restore("sim", recorded)) == recorded


def test_a_recorded_log_is_sound_and_decides_the_same_again(entries: list[LogEntry]) -> None:
    """The audit finds nothing, and each recorded cycle and placement is decided again as it was."""
    log = [decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms) for entry in entries]
    assert audit(log, record.cell_of(entries)).findings == ()
    plan = Plan(checks())
    for logged in log:
        plan.feed(logged)
    replay = Replay(fold.new_state(record.cell_of(entries)), plan, decide_cycle)
    for logged in log:
        replay.feed(logged)
    result = replay.result()
    assert result.cycles + result.compared["placements"] > 0
    assert result.differences == ()


def from_the_future(entries: list[LogEntry]) -> list[LogEntry]:
    """The same log as a newer version would have written it: every event and commit has a field more."""
    last: dict[str, str] = {}
    changed = []
    for entry in entries:
        commit = msgspec.json.decode(entry.payload)
        for event in commit["events"]:
            event["addedLater"] = {"of": ["any", 1, None], "type": "namespace.observed"}
        commit = {name: value for name, value in commit.items() if name not in ("log", "at")}
        commit |= {"addedLater": True, "prev": last.get(commit["producer"], "")}
        payload = msgspec.json.encode(commit)
        last[commit["producer"]] = digest(payload)
        changed.append(msgspec.structs.replace(entry, payload=payload))
    return changed


def without_hashes(encoded: bytes) -> dict[str, Any]:
    """A state but for what follows from the bytes of the log and not from their meaning."""
    tables: dict[str, Any] = msgspec.json.decode(encoded)
    del tables["log_hash"]
    tables.pop("log_hashes", None)
    for producer in tables["producers"].values():
        del producer["last_hash"]
    return tables


def test_unknown_fields_are_ignored(name: str, entries: list[LogEntry]) -> None:
    """A field that this version does not know, in every event and commit, changes nothing."""
    state = record.refold(from_the_future(entries))
    assert without_hashes(fold.encode(state)) == without_hashes(record.expected(name))


def test_an_unknown_event_stops_the_reader(entries: list[LogEntry]) -> None:
    """An event type that this version does not know is never skipped; the error names it and its position."""
    commit = msgspec.json.decode(entries[-1].payload)
    commit["events"].append({"type": "workload.teleported"})
    last = msgspec.structs.replace(entries[-1], payload=msgspec.json.encode(commit))
    with pytest.raises(UnreadableCommitError, match=rf"position {last.seq} .*workload\.teleported"):
        record.refold([*entries[:-1], last])


def grown(event_type: type[EventBase]) -> type[msgspec.Struct]:
    """An event type of a later release: the same with one more, optional, field."""
    fields = [("added_later", str | None, None)]
    return msgspec.defstruct(
        event_type.__name__, fields, bases=(event_type,), tag=tag_of(event_type), frozen=True, kw_only=True
    )


def test_a_new_optional_field_does_not_break_an_old_log(entries: list[LogEntry]) -> None:
    """A version in which every event has an optional field more reads the log, and writes it again to the byte."""
    union = reduce(or_, (grown(event_type) for event_type in TAGS.values()))
    later = msgspec.defstruct(
        "Commit",
        [("events", tuple[union, ...])],  # type: ignore[valid-type]
        bases=(Commit,),
        frozen=True,
        kw_only=True,
        omit_defaults=True,
    )
    decoder = msgspec.json.Decoder(later)
    for entry in entries:
        old = decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms).commit
        new: Any = decoder.decode(entry.payload)
        assert msgspec.to_builtins(new, enc_hook=sharing.plain) == msgspec.to_builtins(old, enc_hook=sharing.plain)
        assert [event.added_later for event in new.events] == [None] * len(old.events)


def test_recording_refuses_to_overwrite(name: str) -> None:
    """What is recorded stays: recording under a name that exists is refused before anything runs."""
    with pytest.raises(FileExistsError, match="recorded history"):
        record.write_log(name, seed=0)


def test_every_producer_is_in_a_history(entries: list[LogEntry]) -> None:
    """All who decide appear in it (the snapshotter is played by the world and appends nothing)."""
    producers = {decode_commit(entry.seq, entry.subject, entry.payload).commit.producer for entry in entries}
    assert producers >= set(Producer) - {Producer.SNAPSHOTTER}
