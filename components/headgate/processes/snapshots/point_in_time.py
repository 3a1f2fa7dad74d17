"""
The state at earlier positions: from the nearest snapshot, folded further in a worker thread.

Used by the snapshotter, which folds each range between two snapshots again to compare, and by the read side for queries
about the past. Entries are read on the loop; decoding and folding, which take the time, happen in a thread, so that the
loop is not blocked for longer than a slice of the interpreter's time.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from headgate.adapters.log import Blobs, Log, LogEntry
from headgate.core import fold
from headgate.core.fold.containment import Refolding
from headgate.core.fold.quarantine import EventFailedError, Treatments
from headgate.core.state.tables import State
from headgate.events.commit import LoggedCommit, decode_entry
from headgate.events.ids import Seq
from headgate.events.signing import anchored
from headgate.processes.snapshots import store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

STATES_KEPT: Final = 2
"""The number of past states kept for further queries; each may take hundreds of megabytes in a large cell."""


class NotInLogError(LookupError):
    """Raised when a position or time is not in the log. The message contains the valid range."""


def fold_entries(state: State, entries: list[LogEntry], treatments: Treatments = fold.NO_TREATMENTS) -> None:
    """Fold entries into a state. Raises what the fold raises."""
    decoded = [decode_entry(entry.seq, entry.subject, entry.payload, entry.time_ms) for entry in entries]
    for logged in anchored(decoded):
        fold.apply(state, logged, treatments)


def refolding(
    log: Log,
    cell: str,
    blobs: Blobs | None = None,
    trusts: store.Trusts = lambda _: True,
    *,
    limited: bool = False,
) -> Refolding:
    """
    Folds past events that cannot be folded: from the newest snapshot, or without `blobs` from the start.

    For `limited` see `Refolding`.
    """

    async def start(up_to: Seq) -> State:
        if blobs is None:
            return fold.new_state(cell)
        return (await store.newest(log, blobs, cell, up_to=up_to, trusts=trusts))[0]

    async def read(first: Seq, last: Seq) -> AsyncIterator[LoggedCommit]:
        reading: AsyncGenerator[list[LogEntry], None] = log.read(first, stop=last)  # type: ignore[assignment]
        async with aclosing(reading):
            async for entries in reading:
                for entry in entries:
                    yield decode_entry(entry.seq, entry.subject, entry.payload, entry.time_ms)

    return Refolding(cell, start, read, limited=limited)


async def fold_on(log: Log, state: State, position: Seq, past: Refolding) -> State:
    """
    Fold the log into a state that has no other user, up to and including a position.

    Returns the state there; another one when something had to be quarantined on the way (`past`).
    """
    while state.position < position:
        reading: AsyncGenerator[list[LogEntry], None] = log.read(state.position + 1, stop=position)  # type: ignore[assignment]
        try:
            async with aclosing(reading):
                async for entries in reading:
                    await anyio.to_thread.run_sync(fold_entries, state, entries, past.treatments)
            break
        except EventFailedError as failed:
            state = await past.recover(failed)
    return state


async def treatments_of(log: Log, cell: str, position: Seq) -> Treatments:
    """What has to be quarantined in a log up to a position, for a fold from the start."""
    past = refolding(log, cell)
    await fold_on(log, fold.new_state(cell), position, past)
    return past.treatments


class Past:
    """
    Earlier states of one cell, the most recent few of them kept.

    A returned state must only be read. Queries are served one at a time; the others wait.
    """

    def __init__(self, log: Log, blobs: Blobs, cell: str, trusts: store.Trusts = lambda _: True) -> None:
        self._trusts = trusts
        self._log = log
        self._blobs = blobs
        self._cell = cell
        self._kept: dict[Seq, State] = {}
        self._turn = anyio.Lock()

    async def state_at(self, position: Seq) -> State:
        """
        The state after the commit at a position; position 0 is before the first.

        Raises NotInLogError when the log does not reach it.
        """
        async with self._turn:
            last = await self._log.last_seq()
            if not 0 <= position <= last:
                raise NotInLogError(f"position {position} is not in the log, which has 0 to {last}")
            kept = self._kept.pop(position, None)
            state = kept if kept is not None else await self._fold_to(position)
            self._kept[position] = state
            while len(self._kept) > STATES_KEPT:
                del self._kept[next(iter(self._kept))]
            return state

    async def _fold_to(self, position: Seq) -> State:
        state, _ = await store.newest(self._log, self._blobs, self._cell, up_to=position, trusts=self._trusts)
        past = refolding(self._log, self._cell, self._blobs, self._trusts)
        return await fold_on(self._log, state, position, past)

    async def position_at(self, time_ms: int) -> Seq:
        """
        The last position that the broker had stored at a time (unix milliseconds); 0 when the log is younger.

        Found by bisection, which costs one read of the log for each doubling of its length.
        """
        low, high = await self._log.first_seq(), await self._log.last_seq()
        # Everything before `low` was stored by then, nothing from `high + 1` on.
        while low <= high:
            middle = (low + high) // 2
            if (await self._log.get(middle)).time_ms <= time_ms:
                low = middle + 1
            else:
                high = middle - 1
        return Seq(high)
