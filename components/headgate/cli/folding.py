"""
The state of a log at a position or time, for commands: from the newest snapshot before it, where the broker has one.

A log that is read in full for another reason (`replay`, `audit`, `events`) is folded from its start, and so is one in a
file, which has no snapshots. What cannot be folded is quarantined as every process does.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from headgate.cli.source import Source, Until, commits
from headgate.core import fold
from headgate.core.fold.containment import Refolding
from headgate.core.fold.quarantine import EventFailedError, Treatments
from headgate.core.state.tables import State
from headgate.events.commit import LoggedCommit
from headgate.events.ids import Seq

T = TypeVar("T")


async def state_at(source: Source, until: Until = Until()) -> State:  # noqa: B008 - frozen
    """
    The state of a log at a position or time: everything before it, folded.

    Raises what the fold raises.
    """
    folding = Folding(source, earlier=lambda position: snapshot_before(source, Until(seq=position)))
    return await _fold_on(folding, source, until, await snapshot_before(source, until))


async def snapshot_before(source: Source, until: Until) -> State:
    """The state of the newest snapshot that is not beyond a position or time; the empty state without one."""
    from headgate.processes.snapshots.point_in_time import Past
    from headgate.processes.snapshots.store import newest

    empty = fold.new_state(source.cell)
    stored = await source.snapshots()
    if stored is None:
        return empty
    log, blobs = stored
    up_to = until.seq
    if until.time_ms is not None:
        up_to = await Past(log, blobs, source.cell).position_at(until.time_ms)
    state, _ = await newest(log, blobs, source.cell, up_to=up_to, tolerant=True)
    is_beyond = until.time_ms is not None and state.now_ms > until.time_ms
    return empty if is_beyond else state


class Folding:
    """
    Folds the commits of a log, and quarantines what cannot be folded as every process does.

    `earlier` returns a state to go back to for that; by default the one before all commits.
    """

    def __init__(self, source: Source, earlier: Callable[[Seq], Awaitable[State]] | None = None) -> None:
        async def start(_: Seq) -> State:
            return fold.new_state(source.cell)

        def read(first: Seq, last: Seq) -> AsyncIterator[LoggedCommit]:
            return commits(source, Until(seq=last), first)

        self._refolding = Refolding(source.cell, earlier or start, read)

    @property
    def treatments(self) -> Treatments:
        """The quarantined events so far."""
        return self._refolding.treatments

    async def apply(self, state: State, logged: LoggedCommit) -> State:
        """The state after a commit; another one when something of it had to be quarantined. Raises BrokenLogError."""
        try:
            fold.apply(state, logged, self.treatments)
        except EventFailedError as failed:
            return await self._refolding.recover(failed)
        return state


async def _fold_on(folding: Folding, source: Source, until: Until, state: State) -> State:
    async for logged in commits(source, until, state.position + 1):
        state = await folding.apply(state, logged)
    return state


async def contained(source: Source, until: Until, read: Callable[[Treatments], Awaitable[T]]) -> T:
    """
    The result of a reader for a log, with events that cannot be folded quarantined: it then reads again.

    Raises what the reader raises.
    """
    try:
        return await read(fold.NO_TREATMENTS)
    except EventFailedError:
        return await read(await treatments_of(source, until))


async def treatments_of(source: Source, until: Until) -> Treatments:
    """What has to be quarantined in a log, for a fold from the start. Raises what the fold raises."""
    folding = Folding(source)
    await _fold_on(folding, source, until, fold.new_state(source.cell))
    return folding.treatments
