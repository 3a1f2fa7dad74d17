"""
The parameters of a host: its process's parts, the location of the log, the pacing, and the observer.

`headgate.processes.entry` creates them for a process; tests create their own.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import anyio
import msgspec

from headgate.adapters.lease import Leadership
from headgate.adapters.log import AppendOutcome, Blobs, Log
from headgate.core.engine.appends import Sign
from headgate.core.engine.driver import OpenTermGate, TermGate
from headgate.core.machine.contract import Append, Machine
from headgate.core.state.tables import State
from headgate.events.commit import Commit, LoggedCommit
from headgate.processes.runtime.leadership import Carrier, Feeder, NoCarrier
from headgate.processes.runtime.pacing import Pace
from headgate.processes.snapshots import store


class Parts(msgspec.Struct, kw_only=True):
    """
    What a process adds to the loop.

    `after_decision` is called with the machine after each `Settled`, to report unusable input. `stimuli_max` of the
    feeder may wait. `hurries` tells from the state whether there is work for more than one turn.
    """

    machine: Callable[[State], Machine]
    carrier: Carrier = msgspec.field(default_factory=NoCarrier)
    feeder: Feeder | None = None
    after_decision: Callable[[Machine], None] | None = None
    stimuli_max: int = 2_000
    hurries: Callable[[State], bool] = lambda _: False


class Candidate(Protocol):
    """What the host needs of a lease (`headgate.adapters.lease.Lease`)."""

    def hold(self, *, epoch_min: int = 0) -> AbstractAsyncContextManager[Leadership]:
        """Wait for the lease, and keep it until the block ends."""
        ...


class Stores(msgspec.Struct, frozen=True, kw_only=True):
    """The log, its snapshots, and the lease of this process."""

    log: Log
    blobs: Blobs
    lease: Candidate


class Trust(msgspec.Struct, frozen=True, kw_only=True):
    """How commits are signed, and which snapshots are trusted."""

    sign: Sign | None = None
    vouches: store.Trusts = lambda _: True


class TurnTiming(msgspec.Struct, frozen=True, kw_only=True):
    """
    The timing of the host's turns.

    Without a `pace` each turn begins as soon as there is something to do. The pauses are spent in `rest`, which need
    not read the log meanwhile. `linger_s` is how much later than others it may read the log.
    """

    pace: Pace | None = None
    rest: Callable[[float], Awaitable[None]] = anyio.sleep
    linger_s: float = 0.0


class CellMembership(TermGate, Protocol):
    """Whether this process belongs to the cell of the log (`headgate.processes.runtime.cell_identity`)."""

    def waits_for(self, state: State) -> str:
        """What has to be in the log before it may become a candidate; "" when nothing is missing."""
        ...

    async def prepare(self, state: State) -> None:
        """Called before each candidacy. Raises an error if it must not lead."""
        ...


class OpenGate(OpenTermGate):
    """Every process may become a candidate, whatever the log contains."""

    def waits_for(self, state: State) -> str:  # noqa: ARG002
        """Nothing."""
        return ""

    async def prepare(self, state: State) -> None:
        """Nothing to prepare."""


class Observer(Protocol):
    """Receives everything that is folded after the start; for metrics, traces and the read side. Must not block."""

    def folded(self, state: State, logged: LoggedCommit, *, leading: bool) -> None:
        """A commit has been folded into the state."""
        ...

    def deciding(self, append: Append) -> str | None:
        """An append is about to be made; the traceparent of its span, if there is one."""
        ...

    def appended(self, commit: Commit, outcome: AppendOutcome) -> None:
        """That append has ended."""
        ...


class NoObserver:
    """Records nothing."""

    def folded(self, state: State, logged: LoggedCommit, *, leading: bool) -> None:
        """Nothing."""

    def deciding(self, append: Append) -> str | None:  # noqa: ARG002
        """No span."""
        return None

    def appended(self, commit: Commit, outcome: AppendOutcome) -> None:
        """Nothing."""
