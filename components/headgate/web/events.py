"""
Events as server-sent events: from any position, filtered, and on as they happen.

Each client has a tail of the log of its own, read at its own pace: a slow client slows nobody but itself. `id` is the
event's position, so a client that reconnects with `Last-Event-ID` misses nothing.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase

import msgspec

from headgate.adapters.log import Entry
from headgate.events.base import tag_of
from headgate.events.commit import LoggedCommit, Position, decode_commit
from headgate.events.ids import Seq, split_key
from headgate.events.registry import Event
from headgate.events.subjects import subject_key


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """The data of one server-sent event."""

    position: str
    time_ms: int
    producer: str
    epoch: int
    event: Event


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events: of any of `types` (tags, or `workload.*`) in any of `namespaces`; none given admits all."""

    types: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()

    def admits(self, event: Event) -> bool:
        """Whether an event is asked for."""
        if self.types and not any(fnmatchcase(tag_of(event), pattern) for pattern in self.types):
            return False
        return not self.namespaces or split_key(subject_key(event))[0] in self.namespaces


_encoder = msgspec.json.Encoder()


def parse_position(text: str) -> Position:
    """
    The position that `812` or `812.3` names.

    Raises ValueError.
    """
    seq, dot, index = text.partition(".")
    if not seq.isdecimal() or (dot and not index.isdecimal()):
        raise ValueError(f"{text!r} is not a position: write 812 or 812.3")
    return Position(Seq(int(seq)), int(index) if dot else 0)


def told(logged: LoggedCommit, wanted: Filter, after: Position | None) -> Iterator[bytes]:
    """The server-sent events of a commit, of those behind `after`."""
    commit = logged.commit
    for index, event in enumerate(commit.events):
        position = Position(logged.seq, index)
        if (after is not None and position <= after) or not wanted.admits(event):
            continue
        data = _encoder.encode(
            Told(
                position=str(position),
                time_ms=commit.time_ms,
                producer=commit.producer.value,
                epoch=commit.epoch,
                event=event,
            )
        )
        yield b"id: %s\nevent: %s\ndata: %s\n\n" % (str(position).encode(), tag_of(event).encode(), data)


def told_of(entries: list[Entry], wanted: Filter, after: Position | None) -> bytes:
    """The server-sent events of some entries of the log, as they go over the wire."""
    return b"".join(
        text
        for entry in entries
        for text in told(decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms), wanted, after)
    )
