"""
Decisions of a machine with no input but the log and no effect outside: repeated completely.

A machine of the same kind is made at the start of each term from the state at the term's election, as the host does. It
receives every commit, and decides wherever its predecessor has decided something, with the time of the resulting
commit. It must produce the same events, byte for byte.

The log does not record decisions without events. What the predecessor examined in them is examined here again, again
without events; but the order of examination may differ. So the order is taken from the record (`DecidesAgain.follow`),
and nothing else is.

After a quarantine or release the host makes its machine anew, and so does this check. A machine that fails over an
object here, too, produces nothing: its process has put the object into quarantine instead.

An append that was too large for one message is in the log as several commits that name one position. What an ended term
could not write any more is missing at the end of the last.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol

from headgate.core.log.rules_version import decides_alike
from headgate.core.machine.contract import Append, Command, Committed, Settled, Stimulus
from headgate.core.state.attribution import ObjectFailedError
from headgate.core.state.tables import State
from headgate.core.verification.check import NOTHING, ReplayDifference, opens_term
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, Position, encode_event
from headgate.events.effects import ObjectQuarantined, ObjectReleased
from headgate.events.ids import Seq, UnixMs
from headgate.events.registry import Event


class Order(Protocol):
    """The order in which a decision handles independent items; derived from the record."""

    def add(self, events: tuple[Event, ...]) -> None:
        """Append the order of these recorded events, which follow the previous ones."""
        ...


class DecidesAgain(Protocol):
    """A machine that can follow the order of a record."""

    def decide(self, stimulus: Stimulus) -> list[Command]:
        """See `headgate.core.machine.contract.Machine`."""
        ...

    def follow(self, order: Order) -> None:
        """Handle items in this order in the next decision."""
        ...


class _Due:
    """A recorded decision: its time, and the order in which it handled items."""

    __slots__ = ("order", "time_ms")

    def __init__(self, time_ms: UnixMs, order: Order) -> None:
        self.time_ms = time_ms
        self.order = order


class MachineCheck:
    """Repeats the decisions of one producer's machine. See the module docstring."""

    def __init__(
        self,
        producer: Producer,
        make: Callable[[State], DecidesAgain],
        order: Callable[[], Order],
        *,
        counted: str,
        since: int,
    ) -> None:
        self.counts = {counted: 0}
        self.passed_over = 0
        self._producer = producer
        self._make = make
        self._make_order = order
        self._counted = counted
        self._since = since
        self._due: dict[Seq, _Due] = {}
        self._machine: DecidesAgain | None = None
        self._has_begun = False
        self._is_ours = False
        """Whether the term was led by rules that this release follows, too."""
        self._decided_at = Seq(0)
        self._left: list[bytes] = []
        """What was decided at `_decided_at` and was not found in the record yet."""

    def plan(self, logged: LoggedCommit) -> None:
        """See `Check`."""
        commit = logged.commit
        if commit.producer is not self._producer or opens_term(logged, self._producer) or _remakes(logged):
            return
        due = self._due.get(commit.decided_at)
        if due is None:
            due = self._due[commit.decided_at] = _Due(commit.time_ms, self._make_order())
        due.order.add(commit.events)

    def look(self, state: State, logged: LoggedCommit) -> None:
        """See `Check`."""
        election = opens_term(logged, self._producer)
        if election is not None:
            self._has_begun = True
            self._is_ours = decides_alike(self._producer, election.rules, self._since)
            self._begin(state, logged.seq)
        elif _remakes(logged) or _could_not_be_folded(state, logged):
            self._begin(state, logged.seq)
        elif self._machine is not None:
            try:
                self._machine.decide(Committed(logged))
            except ObjectFailedError:
                self._machine = None
        due = self._due.pop(state.position, None)
        if due is None or self._machine is None:
            return
        self._machine.follow(due.order)
        self._decided_at, self._left = state.position, []
        try:
            said = self._machine.decide(Settled(due.time_ms))
        except ObjectFailedError:
            self._machine = None
            return
        self._left = [encode_event(event) for each in said if isinstance(each, Append) for event in each.events]

    def _begin(self, state: State, seq: Seq) -> None:
        """
        Make the machine anew.

        None while it fails over an object that its process has put into quarantine right afterwards.
        """
        self._decided_at, self._left, self._machine = seq, [], None
        if self._is_ours:
            with suppress(ObjectFailedError):
                self._machine = self._make(state)

    def compare(self, state: State, logged: LoggedCommit) -> Iterator[ReplayDifference]:  # noqa: ARG002 (see Check)
        """See `Check`."""
        commit = logged.commit
        if commit.producer is not self._producer or not self._has_begun or opens_term(logged, self._producer):
            return
        if _remakes(logged):
            return
        if not self._is_ours:
            self.passed_over += 1
            return
        what = f"what the {self._producer.value} decided at {commit.decided_at}"
        if commit.decided_at != self._decided_at:
            yield ReplayDifference(
                what=f"{what}, having decided at {self._decided_at} before",
                position=Position(logged.seq),
                recorded=encode_event(commit.events[0]).decode() if commit.events else NOTHING,
                replayed=NOTHING,
            )
            return
        self.counts[self._counted] += 1
        yield from self._differing(what, logged)

    def _differing(self, what: str, logged: LoggedCommit) -> Iterator[ReplayDifference]:
        """The first event of a commit that differs from the decision."""
        recorded = [encode_event(event) for event in logged.commit.events]
        for index, event in enumerate(recorded):
            again = self._left[index] if index < len(self._left) else None
            if event != again:
                self._left = []
                yield ReplayDifference(
                    what=what,
                    position=Position(logged.seq, index),
                    recorded=event.decode(),
                    replayed=again.decode() if again is not None else NOTHING,
                )
                return
        del self._left[: len(recorded)]


def _remakes(logged: LoggedCommit) -> bool:
    """Whether every process makes its machine anew after a commit."""
    return any(isinstance(event, ObjectQuarantined | ObjectReleased) for event in logged.commit.events)


def _could_not_be_folded(state: State, logged: LoggedCommit) -> bool:
    """Whether an object was put into quarantine over an event of a commit."""
    return any(record.position == logged.seq for record in state.quarantine.values())
