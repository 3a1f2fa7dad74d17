"""
Refused entries: what stands in the log and is not of it.

Whoever has the broker's permission can publish into the stream, and the stream keeps what it has taken for ever. So an
entry that is no commit of the process whose subject it stands on must never stop a cell: it is refused. It changes
nothing but what keeps the log readable: position, log hash and the last sequence of its subject go on over it, so that
the real producer's next append is fenced behind it. The state counts refused entries and remembers the newest
(`State.refused`); `/readyz`, `headgate_refused_entries` and `headgate audit` tell.

Refused is what stands on a subject that is none of the six of its cell.

Called by the fold; who reads a log without folding it asks `Gate`.
"""

from functools import cache
from typing import Final

from headgate.core.state import ProducerRecord, RefusedEntry, RefusedRecord, State
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, UnreadableCommitError
from headgate.events.subjects import log_subject

NEWEST_MAX: Final = 32
"""How many refused entries the state remembers: the newest; the others are only counted."""

TEXT_MAX: Final = 200
"""How much of a refused entry's subject is remembered: whoever wrote it chose its length."""


def refusal(cell: str, logged: LoggedCommit) -> str:
    """
    Why an entry is refused; "" for a commit that is to be folded.

    Raises UnreadableCommitError for one that only a newer version can read, or that is damaged.
    """
    if logged.subject and logged.subject not in subjects_of(cell):
        return f"{_short(logged.subject)} is none of the subjects of this cell's log"
    if logged.flaw:
        raise UnreadableCommitError(seq=logged.seq, subject=logged.subject, why=logged.flaw)
    return ""


def refuse(state: State, logged: LoggedCommit, why: str) -> None:
    """Note a refused entry in the state. The caller moves the position on."""
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
    """The subjects of a cell's log, with the producer whose each is."""
    return {log_subject(cell, producer): producer for producer in Producer}


def _short(text: str) -> str:
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


class Gate:
    """Tells commits from refused entries, for who reads a log and does not fold it. Show it every entry in order."""

    def __init__(self, cell: str) -> None:
        self._cell = cell

    def objection(self, logged: LoggedCommit) -> str:
        """
        Why an entry is refused; "" for a commit of the log.

        Raises UnreadableCommitError as the fold does.
        """
        return refusal(self._cell, logged)

    def admits(self, logged: LoggedCommit) -> bool:
        """Whether an entry is a commit of its log."""
        return not self.objection(logged)
