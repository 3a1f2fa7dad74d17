"""
The fold over a log in memory, with what cannot be folded set aside as the processes do it.

For the simulated world and tests: `headgate.core.fold.containment` gets what it needs by coroutines, which never
wait here.
"""

from collections.abc import AsyncIterator, Callable, Sequence

from headgate.core import fold
from headgate.core.fold.containment import Refolding, now
from headgate.core.fold.quarantine import EventFailedError, Treatments
from headgate.core.state.tables import State
from headgate.events.commit import LoggedCommit
from headgate.events.ids import Seq


class ContainedFold:
    """Folds commits of one log into states. `start` gives what a process would start from, up to a position."""

    def __init__(self, cell: str, log: Sequence[LoggedCommit], start: Callable[[Seq], State] | None = None) -> None:
        async def begin(up_to: Seq) -> State:
            return fold.new_state(cell) if start is None else start(up_to)

        async def read(first: Seq, last: Seq) -> AsyncIterator[LoggedCommit]:
            for logged in log[first - 1 : last]:
                yield logged

        self._log = log
        self._refolding = Refolding(cell, begin, read, limited=True)
        self._cell = cell
        self.failures: list[EventFailedError] = []
        """What could not be folded at first, in the order in which it was met."""

    @property
    def treatments(self) -> Treatments:
        """What is set aside, for those who fold by themselves and come here only when that fails."""
        return self._refolding.treatments

    def apply(self, state: State, logged: LoggedCommit) -> State:
        """The state after a commit of the log; another one when something of it had to be set aside."""
        try:
            fold.apply(state, logged, self.treatments)
        except EventFailedError as failed:
            return self.recover(failed)
        return state

    def recover(self, failed: EventFailedError) -> State:
        """The state after the commit that has failed, with its object set aside."""
        self.failures.append(failed)
        return now(self._refolding.recover(failed))

    def all(self) -> State:
        """The state after the whole log."""
        state = fold.new_state(self._cell)
        for logged in self._log:
            state = self.apply(state, logged)
        return state
