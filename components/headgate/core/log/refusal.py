"""
Refused entries: messages in the log's stream that are no commits of the log.

Any client with the broker's permission can publish into the stream, and the stream keeps what it has accepted forever.
So an entry that is no commit of the process whose subject it is on must never stop a cell: it is refused. It changes
nothing but what keeps the log readable: position, log hash and the last sequence of its subject advance over it, so
that the real producer's next append is fenced behind it. The state counts refused entries and keeps the newest
(`State.refused`); `/readyz`, `headgate_refused_entries` and `headgate audit` report them.

Refused is every entry on a subject that is none of the six of its cell. In a cell whose commits are signed (the log
itself records that, and has the public keys) also every entry that is not signed by the process of its subject, a copy
of an earlier commit, and a commit with events that only another process may append. So a client with the broker's
permission and no key can decide nothing, and a holder of one process's key can decide only what that process decides.

Called by the fold; readers that do not fold use `CommitFilter`, or `admitted` beside a state.
"""

from functools import cache
from typing import Final

from headgate.core.log.authority import overstepped
from headgate.core.state.tables import ProducerRecord, RefusedEntry, RefusedRecord, State
from headgate.events.base import Producer, tag_of
from headgate.events.commit import LoggedCommit, UnreadableCommitError
from headgate.events.identity import CellFounded, CellKeysChanged, Keys
from headgate.events.ids import Seq
from headgate.events.signing import is_signed_by
from headgate.events.subjects import log_subject

NEWEST_MAX: Final = 32
"""How many refused entries the state keeps: the newest; the others are only counted."""

TEXT_MAX: Final = 200
"""How much of a refused entry's subject is kept: its length is under the control of the publisher."""


def refusal(state: State, logged: LoggedCommit) -> str | None:
    """
    Why the entry that follows on a state is refused; None for a commit that is to be folded.

    Raises UnreadableCommitError for one that only a newer version can read, or that is damaged.
    """
    identity = state.identity
    keys = identity.keys if identity is not None and identity.signing == "required" else None
    producer = state.producers.get(logged.commit.producer)
    return _refusal(state.cell, keys, producer.number if producer is not None else 0, logged)


def _refusal(cell: str, keys: Keys | None, number: int, logged: LoggedCommit) -> str | None:
    """`number` is that of the last commit of the producer that the entry claims."""
    subject = logged.subject
    producer = subjects_of(cell).get(subject) if subject else logged.commit.producer
    if producer is None:
        return f"{_short(subject)} is none of the subjects of this cell's log"
    if keys is not None and (why := _unsigned(keys.get(producer.value, ()), logged)):
        return f"it is not signed by the {producer.value}: {why}"
    if logged.flaw:
        raise UnreadableCommitError(seq=logged.seq, subject=subject, why=logged.flaw)
    commit = logged.commit
    if keys is None:
        return None
    if commit.producer is not producer:
        return f"the {producer.value} has signed it, and it says that it is of the {commit.producer.value}"
    if commit.number <= number:
        return f"it is a copy of commit {commit.number} of the {producer.value}, which has come to {number}"
    for event in commit.events:
        # The state does not have the rules of terms: the audit and `replay --verify` judge by them.
        author = overstepped(producer, event, 0)
        if author is not None:
            return f"it has {tag_of(event)} of the {producer.value}, and that is for the {author.value} to say"
    return None


def _unsigned(keys: tuple[str, ...], logged: LoggedCommit) -> str | None:
    """Why an entry is not signed by one of these keys; None when it is."""
    if not keys:
        return "the log has no key of it"
    if not logged.payload:
        return "it has no signature"
    if logged.anchor and is_signed_by(keys, logged.anchor):
        return None
    return None if is_signed_by(keys, logged.payload) else "its signature does not hold"


def has_refused(state: State, seq: Seq) -> bool:
    """Whether the entry that was folded last, at this position, was refused."""
    return state.refused is not None and state.refused.newest[-1].position == seq


def admitted(state: State, logged: LoggedCommit) -> bool:
    """
    Whether an entry at any position is a commit of the log, for readers beside a state that is folded on.

    Refused entries beyond those that the state keeps are recognised by their signatures alone.
    """
    if logged.seq > state.position:
        return refusal(state, logged) is None
    refused = state.refused
    if refused is not None:
        if any(each.position == logged.seq for each in refused.newest):
            return False
        if refused.count > len(refused.newest) and logged.seq < refused.newest[0].position:
            identity = state.identity
            keys = identity.keys if identity is not None and identity.founded_at < logged.seq else None
            return _refusal(state.cell, keys, 0, logged) is None
    return not logged.flaw


def refuse(state: State, logged: LoggedCommit, why: str) -> None:
    """Record a refused entry in the state. The caller advances the position."""
    producer = subjects_of(state.cell).get(logged.subject)
    if producer is not None:
        record = state.producers.get(producer)
        if record is None:
            record = state.producers[producer] = ProducerRecord()
        record.last_seq = logged.seq
    refused = state.refused
    if refused is None:
        refused = state.refused = RefusedRecord()
    refused.count += 1
    refused.newest.append(RefusedEntry(position=logged.seq, subject=_short(logged.subject), why=why, hash=logged.hash))
    del refused.newest[:-NEWEST_MAX]


@cache
def subjects_of(cell: str) -> dict[str, Producer]:
    """The subjects of a cell's log, each with its producer."""
    return {log_subject(cell, producer): producer for producer in Producer}


def _short(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


class CommitFilter:
    """Separates commits from refused entries, for readers that read a log from its start without folding it."""

    def __init__(self, cell: str) -> None:
        self._cell = cell
        self._founded = False
        self._keys: Keys | None = None
        self._numbers: dict[Producer, int] = {}

    def objection(self, logged: LoggedCommit) -> str | None:
        """
        Why an entry is refused; None for a commit of the log. Call it once for each entry, in order.

        Raises UnreadableCommitError as the fold does.
        """
        commit = logged.commit
        why = _refusal(self._cell, self._keys, self._numbers.get(commit.producer, 0), logged)
        if why is None:
            self._numbers[commit.producer] = commit.number
            for event in commit.events:
                if type(event) is CellKeysChanged or (type(event) is CellFounded and not self._founded):
                    self._founded = True
                    self._keys = event.keys if event.signing == "required" else None
        return why

    def admits(self, logged: LoggedCommit) -> bool:
        """Whether an entry is a commit of its log; as `objection`."""
        return self.objection(logged) is None
