"""
The checks of a replay: each compares one kind of record with what follows from the log itself.

A record names the position that it was decided at and comes later in the log. So a replay makes two passes over a log:
first it passes every commit to each check (`plan`), so that the check can collect the positions that it needs; then it
folds the log again and passes to each check the state before a commit is folded (`compare`) and after (`look`).
"""

from collections.abc import Iterator
from typing import Protocol

import msgspec

from headgate.core.machine.commits import election_of
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, Position
from headgate.events.effects import LeaderElected


class ReplayDifference(msgspec.Struct, frozen=True, kw_only=True):
    """
    A difference between replay and record: what was compared, and both values.

    `version` is the one that recorded it: as recorded at the beginning of its term, or "" where it is not.
    """

    what: str
    position: Position
    recorded: str
    replayed: str
    version: str = ""


class OtherRules(msgspec.Struct, frozen=True, kw_only=True):
    """How many commits a process has decided by certain rules that differ from those of this version."""

    producer: Producer
    rules: int
    version: str
    commits: int


NOTHING = "nothing"
"""Stands for a missing event on the recorded or the replayed side."""


class Check(Protocol):
    """
    One kind of record, compared.

    `counts` is how many records were compared, by their name in the summary. `passed_over` is how many commits were
    decided by the rules of another release, and are not compared.
    """

    counts: dict[str, int]
    passed_over: int

    def plan(self, logged: LoggedCommit) -> None:
        """Record at which positions `look` will be needed."""
        ...

    def compare(self, state: State, logged: LoggedCommit) -> Iterator[ReplayDifference]:
        """The differences between a commit and what was computed. `state` is the one before the commit."""
        ...

    def look(self, state: State, logged: LoggedCommit) -> None:
        """A commit has been folded into the state. For a refused entry it has no events."""
        ...


def opens_term(logged: LoggedCommit, producer: Producer) -> LeaderElected | None:
    """The election that a commit begins a producer's term with; None for every other commit."""
    return election_of(logged.commit) if logged.commit.producer is producer else None
