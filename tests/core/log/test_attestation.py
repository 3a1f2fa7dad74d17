"""Each commit attests the whole log before it, so what is changed in one producer's commits shows in another's."""

from collections.abc import Callable

import msgspec
import pytest
from tests.support.history import History

from headgate.adapters.log import LogEntry
from headgate.core import fold
from headgate.core.audit.log import Audit, AuditReport
from headgate.core.fold import BrokenLogError
from headgate.core.log.attestation import WINDOW
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import Commit, decode_commit, digest, encode_commit
from headgate.events.facts import NamespaceObserved

BRIDGE, SCHEDULER, BINDER = Producer.INFORMER_BRIDGE, Producer.SCHEDULER, Producer.BINDER
PRODUCERS = (BRIDGE, SCHEDULER, BINDER)


def history(rounds: int) -> History:
    """The bridge, the scheduler and the binder in turn; the facts are the bridge's alone."""
    written = History()
    for number in range(rounds):
        for producer in PRODUCERS:
            events = (NamespaceObserved(name=f"n{number}"),) if producer is BRIDGE else ()
            written.put(producer, *events)
    return written


def refold(entries: list[LogEntry], state: State | None = None) -> State:
    state = state if state is not None else fold.new_state("main")
    for entry in entries:
        if entry.seq > state.position:
            fold.apply(state, decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms))
    return state


def audited(entries: list[LogEntry]) -> AuditReport:
    judge = Audit("main")
    for entry in entries:
        judge.feed_entry(entry.seq, entry.subject, entry.payload, entry.time_ms)
    return judge.report()


def edited(entries: list[LogEntry], at: int, change: Callable[[Commit], Commit]) -> list[LogEntry]:
    """The log with one commit changed, and the chain of its producer recomputed after it: a careful forgery."""
    last: dict[Producer, str] = {}
    written = []
    for entry in entries:
        commit = decode_commit(entry.seq, entry.subject, entry.payload).commit
        commit = msgspec.structs.replace(commit, prev=last.get(commit.producer, commit.prev))
        if entry.seq == at:
            commit = change(commit)
        changed = msgspec.structs.replace(entry, payload=encode_commit(commit))
        last[commit.producer] = digest(changed.payload)
        written.append(changed)
    return written


def renamed(commit: Commit) -> Commit:
    return msgspec.structs.replace(commit, events=(NamespaceObserved(name="forged"),))


def last_of(entries: list[LogEntry], producer: Producer) -> int:
    return max(entry.seq for entry in entries if entry.subject.endswith(producer.value))


def test_a_commit_attests_the_log_that_its_producer_had_folded() -> None:
    """Position and hash are those of the state before it; the first commit of a log has nothing to attest."""
    written = history(3)
    state = fold.new_state("main")
    for logged in written.commits:
        assert (logged.commit.at, logged.commit.log) == (state.position, state.log_hash)
        fold.apply(state, logged)


def test_a_changed_commit_shows_in_the_next_one_of_any_producer() -> None:
    """The producer's own chain was recomputed; the very next commit, of another producer, still shows it."""
    entries = history(4).entries
    forged = edited(entries, last_of(entries, BRIDGE), renamed)
    with pytest.raises(BrokenLogError) as caught:
        refold(forged)
    assert caught.value.seq == last_of(entries, BRIDGE) + 1
    assert f"at or before position {caught.value.seq - 1} was changed" in str(caught.value)


def test_two_producers_commits_swapped_show() -> None:
    """Neither of the two chains is broken by it, and the order of the log is another."""
    entries = history(4).entries
    one, other = entries[-5], entries[-4]
    swapped = [
        *entries[:-5],
        msgspec.structs.replace(other, seq=one.seq),
        msgspec.structs.replace(one, seq=other.seq),
        *entries[-3:],
    ]
    with pytest.raises(BrokenLogError, match="attests position 11, which is not before it"):
        refold(swapped)
    assert {finding.check for finding in audited(swapped).findings} == {"chain"}


def test_a_commit_cannot_attest_what_comes_after_it() -> None:
    """A position that is not before the commit cannot be the one it was decided on."""
    entries = history(2).entries
    late = edited(entries, entries[-1].seq, lambda commit: msgspec.structs.replace(commit, at=entries[-1].seq))
    with pytest.raises(BrokenLogError, match="which is not before it"):
        refold(late)


def behind(written: History, count: int) -> History:
    """A last commit of the binder that attests the log as it was `count` positions before."""
    past = fold.new_state("main")
    for logged in written.commits[: len(written.commits) - count]:
        fold.apply(past, logged)
    position, log_hash = past.position, past.log_hash
    written.put(BINDER)
    last = written.entries[-1]
    commit = decode_commit(last.seq, last.subject, last.payload).commit
    commit = msgspec.structs.replace(commit, at=position, log=log_hash)
    written.entries[-1] = msgspec.structs.replace(last, payload=encode_commit(commit))
    return written


@pytest.mark.parametrize("count", [1, 7, WINDOW - 1, WINDOW + 5])
def test_a_producer_that_lags_attests_an_older_position(count: int) -> None:
    """It is true, so nothing speaks against it, however far back it is."""
    entries = behind(history(WINDOW // 3 + 4), count).entries
    refold(entries)
    assert audited(entries).findings == ()


def test_the_fold_compares_within_its_window_and_the_audit_everywhere() -> None:
    """An attestation that is wrong about a position before the window is for the audit to find."""

    def wrong(commit: Commit) -> Commit:
        return msgspec.structs.replace(commit, log="0" * 32)

    for count, folds in ((WINDOW - 1, False), (WINDOW + 5, True)):
        entries = behind(history(WINDOW // 3 + 4), count).entries
        forged = edited(entries, entries[-1].seq, wrong)
        if folds:
            refold(forged)
        else:
            with pytest.raises(BrokenLogError):
                refold(forged)
        assert [finding.check for finding in audited(forged).findings] == ["chain"]


def test_a_restored_state_compares_as_the_one_that_was_encoded() -> None:
    """The hashes are part of the state: a process that started from a snapshot finds the same."""
    written = behind(history(8), 5)
    middle = len(written.entries) - 3
    state = fold.restore("main", fold.encode(refold(written.entries[:middle])))
    assert fold.encode(refold(written.entries, state)) == fold.encode(refold(written.entries))
    forged = edited(
        written.entries, written.entries[-1].seq, lambda commit: msgspec.structs.replace(commit, log="0" * 32)
    )
    state = fold.restore("main", fold.encode(refold(written.entries[:middle])))
    with pytest.raises(BrokenLogError):
        refold(forged, state)


def test_a_log_without_attestations_folds_as_ever() -> None:
    """Commits of before say nothing about the whole log; the state keeps no hashes for them."""
    entries = history(3).entries
    plain = entries
    for entry in entries:
        plain = edited(plain, entry.seq, lambda commit: msgspec.structs.replace(commit, at=0, log=""))
    assert refold(plain).log_hashes == []
    assert refold(entries).log_hashes != []


def test_the_audit_names_each_change_once_and_where_it_is() -> None:
    """Each of two changes shows in the next commit of any producer and in the next of its own, and in no other."""
    entries = history(20).entries
    changes = [at for at in (10, 43) if entries[at - 1].subject.endswith(BRIDGE.value)]
    for at in changes:
        changed = renamed(decode_commit(at, entries[at - 1].subject, entries[at - 1].payload).commit)
        entries[at - 1] = msgspec.structs.replace(entries[at - 1], payload=encode_commit(changed))
    report = audited(entries)
    found = [(finding.check, finding.position.seq) for finding in report.findings]
    assert found == [("chain", seq) for at in changes for seq in (at + 1, at + 3)]
    for at, finding in zip(changes, report.findings[::2], strict=True):
        assert f"between positions {at} and {at}" in finding.text
