"""
Events as server-sent events: from any position, filtered, then live.

`id` is the event's position, so a client that reconnects with `Last-Event-ID` misses nothing. `headgate.web.streams`
delivers them.
"""

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

import msgspec

from headgate.adapters.log import LogEntry
from headgate.events.base import tag_of
from headgate.events.commit import LoggedCommit, Position, UnreadableCommitError, decode_entry
from headgate.events.ids import Seq
from headgate.events.registry import Event
from headgate.events.subjects import place_of, subject_key


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """The data of one server-sent event."""

    position: str
    time_ms: int
    producer: str
    epoch: int
    event: Event


class ServerSentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One server-sent event: the fields that filters use, and its bytes on the wire."""

    position: Position
    tag: str
    namespace: str
    data: bytes


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which events: of any of `types` (tags, or `workload.*`) in any of `namespaces`; none given admits all."""

    types: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()

    def admits(self, told: ServerSentEvent) -> bool:
        """Whether an event matches."""
        if self.types and not any(fnmatchcase(told.tag, pattern) for pattern in self.types):
            return False
        return not self.namespaces or told.namespace in self.namespaces


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


Admits = Callable[[LoggedCommit], bool]
"""Whether an entry is a commit of its log, or refused (`headgate.core.log.refusal.CommitFilter.admits`)."""


def told_by(entry: LogEntry, admits: Admits) -> Iterator[ServerSentEvent]:
    """The server-sent events of an entry of the log; none for an entry that is refused, or cannot be read."""
    logged = decode_entry(entry.seq, entry.subject, entry.payload, entry.time_ms)
    try:
        if not admits(logged):
            return
    except UnreadableCommitError:
        return
    commit = logged.commit
    for index, event in enumerate(commit.events):
        position, tag = Position(logged.seq, index), tag_of(event)
        data = _encoder.encode(
            Data(
                position=str(position),
                time_ms=commit.time_ms,
                producer=commit.producer.value,
                epoch=commit.epoch,
                event=event,
            )
        )
        yield ServerSentEvent(
            position=position,
            tag=tag,
            namespace=place_of(subject_key(event))[0],
            data=b"id: %s\nevent: %s\ndata: %s\n\n" % (str(position).encode(), tag.encode(), data),
        )
