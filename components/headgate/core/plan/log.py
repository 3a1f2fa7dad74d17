"""
The log of a plan: in memory, written by the caller on behalf of each process, folded at once.

Its commits are those that a broker would hold, with numbers, hash chain and times (`headgate.core.machine.commits`), so
every reader of logs, for example `headgate.core.views.explain`, can read a plan's log too.
"""

from headgate.core import fold
from headgate.core.machine.commits import next_commit
from headgate.core.machine.contract import Append
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, decode_commit, encode_commit
from headgate.events.ids import Epoch, Seq, UnixMs
from headgate.events.registry import Event
from headgate.events.subjects import log_subject

CELL = "plan"
"""The cell name of a plan."""

EPOCH = Epoch(1)
"""The only term of each process."""

_NOT_DECIDED = Seq(0)


class PlanLog:
    """`state` is that after the last commit; `now_ms` the clock, which the caller sets."""

    __slots__ = ("commits", "now_ms", "state")

    def __init__(self, now_ms: UnixMs) -> None:
        self.now_ms = now_ms
        self.state: State = fold.new_state(CELL)
        self.commits: list[LoggedCommit] = []

    def append(self, producer: Producer, events: list[Event], decided_at: Seq = _NOT_DECIDED) -> LoggedCommit | None:
        """Append one commit and fold it; None when there are no events. Raises what `fold.apply` raises."""
        if not events:
            return None
        append = Append(events=tuple(events), decided_at=decided_at)
        commit, _ = next_commit(self.state, producer, EPOCH, append, self.now_ms)
        return self.store(producer, encode_commit(commit))

    def store(self, producer: Producer, payload: bytes) -> LoggedCommit:
        """Append a commit that a driver has made, and fold it. Raises what `fold.apply` raises."""
        logged = decode_commit(self.state.position + 1, log_subject(CELL, producer), payload, self.now_ms)
        fold.apply(self.state, logged)
        self.commits.append(logged)
        return logged
