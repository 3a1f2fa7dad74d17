"""
The appends of one driver: one at a time, fenced, split where they are too large, and tracked until they end.

A machine's `Append` becomes a commit, and the commit becomes a payload. When the payload exceeds the maximum message
size, the events are halved until they fit; the rest is sent part by part, each after the one before is folded. Appends
of machines whose events must be seen together (a scheduling cycle) are never split.

An append is over when its outcome is known and the log is folded far enough to see its effect:

    appended at seq    and folded up to seq   -> `CommitStored`, or OwnCommitRefusedError when the fold refused it
    conflict, last=n   and it was folded      -> `CommitStored`: it had been stored before, and the answer was lost
                       or folded up to n      -> sent again when only refused entries precede it, else `CommitRefused`
    timed out                                 -> sent again; the fence makes that safe
"""

from collections import deque
from collections.abc import Callable

import msgspec

from headgate.core.engine.outputs import CommitRefused, CommitStored, Send
from headgate.core.machine.commits import attested_anew, first_of_term, next_commit
from headgate.core.machine.contract import Append
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import Commit, LoggedCommit, encode_commit
from headgate.events.ids import Epoch, Seq, UnixMs
from headgate.events.registry import Event

Sign = Callable[[State, bytes], bytes]
"""Wraps an encoded commit in its signature, if the log of this state requires one."""

Trace = Callable[[Append], str | None]
"""The traceparent of the span that an append belongs to, if there is one."""


class OwnCommitRefusedError(Exception):
    """Raised when the fold refuses a commit of this process: the process exceeds what its key allows."""


class LogRolledBackError(Exception):
    """Raised when the producer's subject ends before an entry that was read: the log has lost entries."""

    def __init__(self, expected_last: Seq, actual_last: Seq) -> None:
        super().__init__(f"entries up to {expected_last} were read, and the subject ends at {actual_last}")
        self.expected_last = expected_last
        self.actual_last = actual_last


class Appends:
    """The append under way and the parts that are still to follow."""

    def __init__(self, producer: Producer, *, bytes_max: int, splits: bool, sign: Sign | None, trace: Trace | None):
        self._producer = producer
        self._bytes_max = bytes_max
        self._splits = splits
        self._sign = sign
        self._trace = trace
        self._sent: Send | None = None
        self._stored_at: Seq | None = None
        self._conflict_at: Seq | None = None
        self._folded_at: Seq | None = None
        self._parts: deque[Append] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether no append is under way."""
        return self._sent is None

    @property
    def has_parts(self) -> bool:
        """Whether parts of a split append are still to be sent."""
        return bool(self._parts)

    def drop_parts(self) -> None:
        """Drop the parts that were not sent: the term or the machine that decided them is over."""
        self._parts.clear()

    def is_last_folded(self, state: State) -> bool:
        """Whether the commit under way is the last folded one, and its outcome was not processed yet."""
        return self._sent is not None and self._folded_at == state.position

    # --- sending ---------------------------------------------------------------------------------------------------

    def open_term(self, state: State, epoch: Epoch, holder: str, now_ms: UnixMs, before: tuple[Event, ...]) -> Send:
        """
        The commit that opens a term.

        Raises ValueError when the epoch is not newer than those in the log.
        """
        commit, expected_last = first_of_term(state, self._producer, epoch, holder, now_ms, before=before)
        return self._sending(commit, self._encoded(state, commit), expected_last)

    def append(self, state: State, epoch: Epoch, append: Append, now_ms: UnixMs) -> Send:
        """The commit of an append, or of as much of it as fits into a message."""
        assert self._sent is None, "an append is only asked for by Settled"
        trace = self._trace(append) if self._trace is not None else None
        while True:
            commit, expected_last = next_commit(state, self._producer, epoch, append, now_ms, trace)
            payload = self._encoded(state, commit)
            count = len(append.events)
            if len(payload) <= self._bytes_max or not self._splits or count < 2:
                return self._sending(commit, payload, expected_last)
            self._parts.appendleft(msgspec.structs.replace(append, events=append.events[count // 2 :]))
            append = msgspec.structs.replace(append, events=append.events[: count // 2])

    def next_part(self, state: State, epoch: Epoch, now_ms: UnixMs) -> Send:
        """The next part of an append that was split."""
        return self.append(state, epoch, self._parts.popleft(), now_ms)

    def _encoded(self, state: State, commit: Commit) -> bytes:
        payload = encode_commit(commit)
        return payload if self._sign is None else self._sign(state, payload)

    def _sending(self, commit: Commit, payload: bytes, expected_last: Seq) -> Send:
        self._sent = Send(commit, payload, expected_last)
        self._stored_at = self._conflict_at = self._folded_at = None
        return self._sent

    # --- outcomes --------------------------------------------------------------------------------------------------

    def appended(self, seq: Seq) -> None:
        """The broker has stored the commit under way."""
        self._stored_at = seq

    def conflicted(self, actual_last: Seq) -> None:
        """The broker has refused it, because the subject ends at another entry. Raises LogRolledBackError."""
        assert self._sent is not None
        if actual_last < self._sent.expected_last:
            raise LogRolledBackError(self._sent.expected_last, actual_last)
        self._conflict_at = actual_last

    def folded(self, logged: LoggedCommit) -> None:
        """A commit of this producer was folded: perhaps the one under way, regardless of the broker's answer."""
        if self._sent is not None and logged.commit.id == self._sent.commit.id:
            self._folded_at = logged.seq

    def again(self) -> Send:
        """The same append once more: its outcome is unknown."""
        assert self._sent is not None
        return self._sent

    def end(self, state: State, *, resends: bool) -> Send | CommitStored | CommitRefused | None:
        """
        The outcome of the append under way; None while it is unknown.

        `resends` says whether it may be sent again behind entries that the fold has refused.

        Raises OwnCommitRefusedError.
        """
        sent, stored_at, conflict_at = self._sent, self._stored_at, self._conflict_at
        if sent is None:
            return None
        if stored_at is not None and state.position >= stored_at:
            self._raise_if_refused(state, sent.commit)
            self._sent = None
            return CommitStored(sent.commit)
        if conflict_at is not None and self._folded_at is not None:
            self._sent = None
            return CommitStored(sent.commit)
        if conflict_at is None or state.position < conflict_at:
            return None
        self._sent = None
        if resends and (again := self._behind_refused(state, sent)) is not None:
            return again
        return CommitRefused(sent.commit, sent.expected_last, conflict_at)

    def _raise_if_refused(self, state: State, commit: Commit) -> None:
        """Raise when the fold refused the commit: continuing would append it again and again."""
        record, refused = state.producers.get(self._producer), state.refused
        if record is not None and record.number >= commit.number:
            return
        why = refused.newest[-1].why if refused is not None else "it is not in the state"
        raise OwnCommitRefusedError(f"our commit {commit.id} was appended and refused: {why}")

    def _behind_refused(self, state: State, sent: Send) -> Send | None:
        """
        The commit again, behind entries on the subject that the fold has refused; None when something else conflicts.

        Refused entries contain no decisions, so ours is still valid. Only its fence and its attestation change.
        """
        record = state.producers.get(self._producer)
        if record is None or record.last_seq <= sent.expected_last or record.number != sent.commit.number - 1:
            return None
        commit = attested_anew(state, sent.commit)
        return self._sending(commit, self._encoded(state, commit), record.last_seq)
