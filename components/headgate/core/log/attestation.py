"""
The chain over all producers: each commit attests the log that its producer had folded.

`Commit.prev` chains the commits of one producer. `Commit.log` and `Commit.at` chain them all: the hash of the whole log
up to the position that the producer had folded when it encoded the commit. So any change, swap or loss before that
position is detected at the first later commit of any producer, however well it was hidden.

The fold keeps the log hashes of the last `WINDOW` positions for the comparison. They are part of the state, because a
process that starts from a snapshot compares too. A producer that attests an older position is so far behind that only
`headgate audit`, which keeps all hashes, compares. The window is kept from the first commit that attests anything, so a
log from before attestation folds to the same bytes as before.

Called by the fold, and to compare a head of the log that was recorded elsewhere; `Attestations` is the audit's.
"""

import re
from typing import Final

from headgate.core.state.tables import State
from headgate.events.commit import HASH_HEX_LEN, Commit, chain
from headgate.events.ids import Seq

WINDOW: Final = 1024
"""How many positions a producer may be behind at its append while every fold still compares its attestation."""


def objection(state: State, commit: Commit) -> str | None:
    """The objection to the attestation of a commit that follows on the state; None without one."""
    if not commit.log:
        return None
    if commit.at > state.position:
        return f"it attests position {commit.at}, which is not before it"
    here = hash_at(state, commit.at)
    if here in ("", commit.log):
        return None
    return (
        f"{commit.producer.value} had folded a log with the hash {commit.log} up to position {commit.at}, and this "
        f"one has {here} there: a commit at or before position {commit.at} was changed, swapped, lost or added since"
    )


def extend(state: State, commit: Commit | None, seq: Seq, log_hash: str) -> None:
    """Record the log hash of the entry that is folded next; `commit` is its commit, if it has one."""
    hashes = state.log_hashes
    if not hashes:
        if commit is None or not commit.log:
            return
        hashes += [""] * WINDOW
        hashes[state.position % WINDOW] = state.log_hash
    if seq != state.position + 1:
        for missing in range(state.position + 1, min(seq, state.position + 1 + WINDOW)):
            hashes[missing % WINDOW] = ""
    hashes[seq % WINDOW] = log_hash


def hash_at(state: State, position: Seq) -> str:
    """The log hash at a folded position; "" when it is not in the window."""
    if position == state.position:
        return state.log_hash
    if not state.log_hashes or position <= state.position - WINDOW:
        return ""
    return state.log_hashes[position % WINDOW]


_BYTES = HASH_HEX_LEN // 2
_NONE = bytes(_BYTES)
_HASH = re.compile(f"[0-9a-f]{{{HASH_HEX_LEN}}}")


class Attestations:
    """
    Every attestation of a whole log, compared with the log.

    After one that differs the comparison continues from the producer's hash: so a change is reported once, and later
    changes are still detected. After a gap it continues from the next attestation.
    """

    def __init__(self) -> None:
        self._first = 0
        self._commits = bytearray()
        self._logs = bytearray()
        self._compared = 0

    def objection(self, commit: Commit) -> str | None:
        """The objection to the attestation of the commit that comes next; None without one."""
        if not commit.log:
            return None
        here = self.hash_at(commit.at)
        if here == commit.log:
            self._compared = max(self._compared, commit.at)
            return None
        since, self._compared = self._compared, commit.at
        if _HASH.fullmatch(commit.log) and self._first <= commit.at < self._end:
            self._go_on(commit.at, commit.log)
        if not here:
            return None
        where = f"between positions {since + 1} and {commit.at}" if since < commit.at else f"up to position {commit.at}"
        return (
            f"it was appended to a log with the hash {commit.log} up to position {commit.at}, and this one has "
            f"{here}: {where} a commit was changed, swapped, lost or added"
        )

    def extend(self, seq: Seq, commit_hash: str) -> None:
        """Record the hash of the entry at the next position."""
        before = ""
        if not self._first:
            self._first = seq
            known = seq == 1
        elif seq < self._end:
            return
        else:
            before = self.hash_at(Seq(self._end - 1))
            known = seq == self._end and before != ""
            self._commits += _NONE * (seq - self._end)
            self._logs += _NONE * (seq - self._end)
        self._commits += bytes.fromhex(commit_hash)
        self._logs += bytes.fromhex(chain(before, commit_hash)) if known else _NONE

    def hash_at(self, position: Seq) -> str:
        """The hash of the log up to a position; "" where it is unknown."""
        if not self._first <= position < self._end:
            return ""
        at = (position - self._first) * _BYTES
        found = bytes(self._logs[at : at + _BYTES])
        return "" if found == _NONE else found.hex()

    @property
    def _end(self) -> int:
        return self._first + len(self._logs) // _BYTES

    def _go_on(self, position: Seq, log_hash: str) -> None:
        """Recompute the hashes from a position on, from the one that it had when others were appended to it."""
        here = (position - self._first) * _BYTES
        self._logs[here : here + _BYTES] = bytes.fromhex(log_hash)
        for at in range(here + _BYTES, len(self._logs), _BYTES):
            commit_hash = bytes(self._commits[at : at + _BYTES])
            if commit_hash == _NONE:
                return
            log_hash = chain(log_hash, commit_hash.hex())
            self._logs[at : at + _BYTES] = bytes.fromhex(log_hash)
