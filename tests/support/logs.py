"""A log in memory for tests: append events as a producer, fold them as everybody does."""

from headgate.core import fold
from headgate.core.machine.commits import next_commit
from headgate.core.machine.contract import Append
from headgate.core.state.tables import State
from headgate.events.base import EventBase, Producer
from headgate.events.commit import LoggedCommit, decode_commit, encode_commit
from headgate.events.ids import Epoch, Seq, UnixMs
from headgate.events.subjects import log_subject

START_MS = UnixMs(1_700_000_000_000)


class TestLog:
    """Appends like the broker, folds like a process. `state` is that after the last commit."""

    __test__ = False

    def __init__(self, cell: str = "main") -> None:
        self.cell = cell
        self.state: State = fold.new_state(cell)
        self.commits: list[LoggedCommit] = []
        self.now_ms = START_MS

    def append(self, producer: Producer, *events: EventBase, decided_at: int = 0, epoch: int = 1) -> LoggedCommit:
        """Append one commit and fold it."""
        return self._fold(self.encode(producer, *events, decided_at=decided_at, epoch=epoch))

    def store(self, producer: Producer, payload: bytes) -> LoggedCommit:
        """Append a commit that another producer has made, and fold it."""
        return self._fold(
            decode_commit(self.state.position + 1, log_subject(self.cell, producer), payload, self.now_ms)
        )

    def _fold(self, logged: LoggedCommit) -> LoggedCommit:
        fold.apply(self.state, logged)
        self.commits.append(logged)
        return logged

    def encode(self, producer: Producer, *events: EventBase, decided_at: int = 0, epoch: int = 1) -> LoggedCommit:
        """The commit that `append` would append, as it is read back from the log."""
        append = Append(events=events, decided_at=Seq(decided_at))  # type: ignore[arg-type]
        commit, _ = next_commit(self.state, producer, Epoch(epoch), append, self.now_ms)
        return decode_commit(
            self.state.position + 1, log_subject(self.cell, producer), encode_commit(commit), self.now_ms
        )

    def refold(self) -> State:
        """The state from the first commit on."""
        state = fold.new_state(self.cell)
        for logged in self.commits:
            fold.apply(state, logged)
        return state
