"""Entries that do not belong to the log are refused by every reader alike, and stop none."""

import pytest
from tests.support.history import History

from headgate.adapters.log import LogEntry
from headgate.core import fold
from headgate.core.audit.log import Audit
from headgate.core.log.refusal import NEWEST_MAX, TEXT_MAX, CommitFilter
from headgate.core.state.tables import State
from headgate.core.verification.replay import Plan, Replay
from headgate.core.views.explain import Explainer
from headgate.core.views.lookup import HistorySubject
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, UnreadableCommitError, decode_entry
from headgate.events.facts import NamespaceObserved
from headgate.events.ids import JobKey, WorkloadKey

BRIDGE, BINDER = Producer.INFORMER_BRIDGE, Producer.BINDER


def decoded(entries: list[LogEntry]) -> list[LoggedCommit]:
    return [decode_entry(entry.seq, entry.subject, entry.payload, entry.time_ms) for entry in entries]


def folded(entries: list[LogEntry]) -> tuple[State, list[bool]]:
    state = fold.new_state("main")
    return state, [fold.apply(state, logged) for logged in decoded(entries)]


class Written(History):
    """A history to which any user can publish."""

    def publish(self, subject: str, payload: bytes) -> None:
        entry = LogEntry(self.position + 1, subject, self.now_ms, payload)
        self.entries.append(entry)
        assert not fold.apply(self.state, decode_entry(entry.seq, entry.subject, entry.payload, entry.time_ms))


def log_with_strangers() -> Written:
    written = Written()
    written.put(BRIDGE, NamespaceObserved(name="a"))
    written.publish("headgate.main.log.foo", b"hello")
    written.put(BRIDGE, NamespaceObserved(name="b"))
    written.publish("headgate.other.log.informer-bridge", written.entries[0].payload)
    written.publish("headgate.main.log.foo", b'{"x":' + b"[" * 100_000)
    written.put(BINDER)
    return written


def test_foreign_entries_change_nothing_but_where_the_log_stands() -> None:
    """Position and log hash continue over their bytes; the tables are those of the log without them."""
    written = log_with_strangers()
    state, applied = folded(written.entries)
    assert applied == [True, True, False, True, False, False, True, True]
    assert sorted(state.namespaces) == ["a", "b"]
    assert state.position == 8
    assert fold.encode(state) == fold.encode(written.state)
    assert fold.encode(fold.restore("main", fold.encode(state))) == fold.encode(state)
    assert state.refused is not None
    assert state.refused.count == 3
    assert [(each.position, each.subject) for each in state.refused.newest] == [
        (3, "headgate.main.log.foo"),
        (5, "headgate.other.log.informer-bridge"),
        (6, "headgate.main.log.foo"),
    ]
    assert "none of the subjects of this cell's log" in state.refused.newest[0].why


def test_what_others_write_is_remembered_within_bounds() -> None:
    """Many and large entries may be published: the state counts them and keeps the newest."""
    written = Written()
    for number in range(NEWEST_MAX + 10):
        written.publish(f"headgate.main.log.{'x' * 1000}{number}", b"")
    refused = written.state.refused
    assert refused is not None
    assert refused.count == NEWEST_MAX + 10
    assert [each.position for each in refused.newest] == list(range(11, NEWEST_MAX + 11))
    assert max(len(each.subject) for each in refused.newest) == TEXT_MAX


def test_what_cannot_be_read_on_a_producers_own_subject_stops_the_reader() -> None:
    """It may be the commit of a newer version: the state beyond it would not be that of this log."""
    written = Written()
    written.put(BRIDGE)
    for payload in (b"hello", b'{"x":' + b"[" * 100_000):
        entry = decode_entry(written.position + 1, "headgate.main.log.binder", payload)
        with pytest.raises(UnreadableCommitError):
            fold.apply(written.state, entry)


def test_every_reader_passes_them_over() -> None:
    """Explanation, replay and who only reads see the commits, and nothing of what others wrote."""
    log = decoded(log_with_strangers().entries)
    gate = CommitFilter("main")
    assert [gate.admits(logged) for logged in log] == [True, True, False, True, False, False, True, True]
    explainer = Explainer(
        fold.new_state("main"), HistorySubject(workload=WorkloadKey("ns/w"), job=JobKey("batch/Job/ns/j"))
    )
    replay = Replay(fold.new_state("main"), Plan(), None)
    for logged in log:
        explainer.feed(logged)
        replay.feed(logged)
    assert explainer.story().position == 8
    assert (replay.result().commits, replay.result().position) == (5, 8)


def test_the_audit_tells_each_of_them() -> None:
    """Position, subject and what is wrong; the other checks continue behind it."""
    judge = Audit("main")
    for entry in log_with_strangers().entries:
        judge.feed_entry(entry.seq, entry.subject, entry.payload, entry.time_ms)
    report = judge.report()
    assert [(finding.check, finding.position.seq) for finding in report.findings] == [
        ("refused", 3),
        ("refused", 5),
        ("refused", 6),
    ]
    assert report.folded_to == report.last == 8
