"""
Histories written by hand, for tests of what reads a log.

`History` makes commits as the loops make them (numbers, hash chain, times, terms), folds each at once, so that an
illegal one fails where it is written, and keeps them as they would be in the stream.
"""

from headgate.adapters.log import LogEntry
from headgate.core import fold
from headgate.core.machine.commits import next_commit
from headgate.core.machine.contract import Append
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, Position, decode_commit, encode_commit
from headgate.events.effects import LeaderElected
from headgate.events.ids import Epoch, Seq, UnixMs
from headgate.events.registry import Event
from headgate.events.subjects import log_subject


class History:
    """A log that grows by hand. `now_ms` is the time of the next commit; each commit moves it by `step_ms`."""

    def __init__(self, *, cell: str = "main", start_ms: int = 1_800_000_000_000, step_ms: int = 1000) -> None:
        self.cell = cell
        self.state = fold.new_state(cell)
        self.commits: list[LoggedCommit] = []
        self.entries: list[LogEntry] = []
        self.now_ms = start_ms
        self.step_ms = step_ms
        self._epochs: dict[Producer, Epoch] = {}

    def put(
        self, producer: Producer, *events: Event, decided_at: int = 0, cause: Position | None = None
    ) -> LoggedCommit:
        """Append one commit; a producer's first opens its term before. Raises what the fold raises."""
        if producer not in self._epochs:
            self.term(producer)
        return self._append(producer, Append(events=events, decided_at=Seq(decided_at), cause=cause))

    def term(self, producer: Producer, holder: str = "one", rules: int = 0) -> LoggedCommit:
        """Begin a producer's next term."""
        self._epochs[producer] = Epoch(self._epochs.get(producer, 0) + 1)
        return self._append(producer, Append(events=(LeaderElected(holder=holder, rules=rules),)))

    @property
    def position(self) -> int:
        """The last position."""
        return self.state.position

    def _append(self, producer: Producer, append: Append) -> LoggedCommit:
        commit, _ = next_commit(self.state, producer, self._epochs[producer], append, UnixMs(self.now_ms))
        subject, payload = log_subject(self.cell, producer), encode_commit(commit)
        logged = decode_commit(self.position + 1, subject, payload, self.now_ms)
        fold.apply(self.state, logged)
        self.commits.append(logged)
        self.entries.append(LogEntry(seq=logged.seq, subject=subject, time_ms=self.now_ms, payload=payload))
        self.now_ms += self.step_ms
        return logged
