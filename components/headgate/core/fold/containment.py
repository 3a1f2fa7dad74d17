"""
Containment of an event that cannot be folded: only its object is set aside, in every reader alike.

A state in which a handler has raised is half changed and must not be used. `headgate.core.fold.apply` raises
`EventFailed`; the reader goes back to an earlier state, records in `Treatments` what to do at that event, and folds
again. So applying an event is atomic by construction, regardless of what a handler had done before it raised.

First the event is retried on indexes that are rebuilt from the tables: a failure over an index only, which may depend
on the position that a process has started from, ends here and leaves no trace. A failure over the tables occurs in
every process; then the object is put into quarantine (`headgate.core.fold.quarantine`) and the event is not applied. An
exception that names another object than the event's (`headgate.core.state.attribution`) puts that one into quarantine,
and the event is applied to the rest.

`Refolding` does this for a reader: it needs a state to go back to and the commits from there on. One state is kept,
encoded, from just before the last failure, so that several failures in a row cost one fold of the commits between them.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.core import fold
from headgate.core.fold.quarantine import FOLD, EventFailedError, Treatments
from headgate.core.fold.quarantine_limit import Limit
from headgate.core.state.tables import State
from headgate.events.commit import LoggedCommit
from headgate.events.ids import Seq

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

T = TypeVar("T")

Start = Callable[[Seq], Awaitable[State]]
"""Returns an unshared state of this position or before: from a snapshot, or the one before all commits."""

Read = Callable[[Seq, Seq], AsyncIterator[LoggedCommit]]
"""The commits from one position to another, both included."""


class Refolding:
    """
    Folds past events that cannot be applied. `treatments` are to be given to `fold.apply` from then on.

    All I/O goes through its arguments, so that it works in a process, a command and a simulation alike. One that is
    `limited` stops at a defect that too many objects show (`headgate.core.fold.quarantine_limit`), as processes do; a
    command has to report them all.
    """

    def __init__(self, cell: str, start: Start, read: Read, *, limited: bool = False) -> None:
        self.treatments = Treatments()
        self._cell = cell
        self._start = start
        self._read = read
        self._limited = limited
        self._kept: tuple[Seq, bytes, Limit] | None = None
        """The encoded state before the last failure, its position, and what it has set aside."""

    async def recover(self, failed: EventFailedError) -> State:
        """
        The state after the commit in which an event has failed, with that event set aside if necessary.

        Raises the failure when the quarantine of its object did not help, TooManyFailedError, and BrokenLogError.
        """
        goal = failed.at.seq
        while True:
            try:
                limit = await self._keep_before(failed.at.seq)
                if self._limited:
                    same = self.treatments.failed_at(failed.named.where, behind=Seq(failed.at.seq - 1))
                    limit.check(failed.named, same)
                self.treatments.note(failed)
                return await self._fold_to(goal)
            except EventFailedError as again:
                if again is failed:
                    raise
                failed = again

    async def _keep_before(self, seq: Seq) -> Limit:
        if self._kept is None or self._kept[0] != seq - 1:
            state = await self._fold_to(Seq(seq - 1))
            self._kept = state.position, fold.encode(state), Limit(state, FOLD)
        return self._kept[2]

    async def _fold_to(self, goal: Seq) -> State:
        if self._kept is not None and self._kept[0] <= goal:
            state = fold.restore(self._cell, self._kept[1])
        else:
            state = await self._start(goal)
        if state.position < goal:
            reading: AsyncGenerator[LoggedCommit, None] = self._read(Seq(state.position + 1), goal)  # type: ignore[assignment]
            async with aclosing(reading):
                async for logged in reading:
                    fold.apply(state, logged, self.treatments)
        return state


def now(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits, such as those of a `Refolding` over data in memory or in a file."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("it waits")
