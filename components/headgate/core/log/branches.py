"""
Branches: which of the histories with a common beginning an event belongs to.

A log that is restored from a backup assigns positions again that the lost log had assigned to other events. A reader
that identifies an event by its position alone would confuse the two. So from the restore on, event ids also contain a
token that no other branch of the log has. So do those of a log that was rebuilt. A log that has only grown has no
token, and its events are named by their position: `812.3` there, `1f09c4ab:812.3` behind a break.

The fold keeps the branches (`Tables.branches`); the feed names its messages by them.
"""

from collections.abc import Sequence

import msgspec

from headgate.core.state.tables import Branch
from headgate.events.commit import Position, digest
from headgate.events.identity import CellFounded, CellRestored
from headgate.events.ids import Seq

TOKEN_CHARS = 8


class EventId(msgspec.Struct, frozen=True):
    """The identity of an event in all logs that this cell ever had: its branch and its position there."""

    token: str
    position: Position

    def __str__(self) -> str:
        return f"{self.token}:{self.position}" if self.token else str(self.position)


def parse_event_id(text: str) -> EventId:
    """The event id of a text. Raises ValueError when it is not one."""
    token, colon, place = text.rpartition(":")
    seq, dot, index = place.partition(".")
    if not (dot and seq.isdecimal() and index.isdecimal()) or (colon and not token):
        raise ValueError(f"{text!r} is not <sequence>.<index>, nor that behind the token of a branch and a colon")
    return EventId(token, Position(Seq(int(seq)), int(index)))


def of_restored(event: CellRestored, seq: Seq) -> Branch:
    """The branch that a restore begins; `cell.restored`, at the position `seq`, is its first event."""
    return Branch(after=Seq(seq - 1), token=digest(f"{event.backup} {event.stream}".encode())[:TOKEN_CHARS])


def is_recorded(branches: Sequence[Branch], event: CellRestored) -> bool:
    """Whether the log contains a restore."""
    return any(branch.token == of_restored(event, Seq(1)).token for branch in branches)


def of_rebuilt(event: CellFounded) -> Branch | None:
    """The branch of a log that replaces another; None for one that does not."""
    return Branch(after=Seq(0), token=digest(event.log_id.encode())[:TOKEN_CHARS]) if event.resumes else None


def number_at(branches: Sequence[Branch], seq: Seq) -> int:
    """How many branches have begun before the entry at a position: the number of the branch that it belongs to."""
    return sum(1 for branch in branches if branch.after < seq)


def token_of(branches: Sequence[Branch], number: int) -> str:
    """The token of a branch by its number; "" for the first, which has only grown."""
    return branches[number - 1].token if number else ""
