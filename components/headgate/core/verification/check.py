"""
What a replay is made of: checks, each of which compares one kind of record with what the log itself gives.

A record names the position that it was decided at and stands in the log later. So a replay goes over a log twice: first
it shows each check every commit (`plan`), so that the check knows at which positions it has to look; then it folds the
log again and shows each check the state before a commit is folded (`compare`) and after (`look`).
"""

from collections.abc import Iterator
from typing import Protocol

import msgspec

from headgate.core.machine.commits import election_of
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, Position
from headgate.events.effects import LeaderElected


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """
    Where the replay differs from the record: what was compared, and both values.

    `version` is the one that recorded it: as it says itself at the begin of its term, or "" where it does not.
    """

    what: str
    position: Position
    recorded: str
    replayed: str
    version: str = ""


class OtherRules(msgspec.Struct, frozen=True, kw_only=True):
    """How many commits a process has decided by certain rules that are not those of the version at hand."""

    producer: Producer
    rules: int
    version: str
    commits: int


NOTHING = "nothing"
"""What was recorded, or replayed, where the other side has an event."""


class Check(Protocol):
    """
    One kind of record, compared.

    `counts` says how many records were compared, by what they are called in the summary. `passed_over` is how many
    commits were decided by the rules of another release, and are not compared.
    """

    counts: dict[str, int]
    passed_over: int

    def plan(self, logged: LoggedCommit) -> None:
        """Note at which positions there will be something to look at."""
        ...

    def compare(self, state: State, logged: LoggedCommit) -> Iterator[Difference]:
        """What a commit records otherwise than it was found. `state` is that of before the commit."""
        ...

    def look(self, state: State, logged: LoggedCommit) -> None:
        """A commit has been folded into the state. That of an entry that was refused has no events."""
        ...


def opens_term(logged: LoggedCommit, producer: Producer) -> LeaderElected | None:
    """The election that a commit begins a producer's term with; None for every other commit."""
    return election_of(logged.commit) if logged.commit.producer is producer else None
