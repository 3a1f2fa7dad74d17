"""
The feed: every event of the log as one message for everybody else.

Each message is a CloudEvent 1.0 in the binary mode of its NATS binding: attributes in headers (`ce-id` is the event's
position, `ce-type` its tag, `ce-subject` what it is about, `ce-source` the cell's log, `ce-time` the commit's time),
the event's own JSON as the body. Subjects are those of `headgate.events.subjects`.

The feed is derived from the log by a tail of its own, so that a slow or full feed slows nothing else. It goes on after
the last message that the feed holds, and each message is fenced on the one before it
(`headgate.processes.feed_writer`), so every event is there once and in order: also when the snapshotter dies between
two messages, or another takes over.
"""

import datetime as dt
import logging
from typing import Final, Protocol

from headgate.adapters.jetstream.feed import FeedMessage
from headgate.adapters.log import Entry, Log
from headgate.core.state import State
from headgate.events.base import tag_of
from headgate.events.commit import LoggedCommit, Position, decode_commit, encode_event
from headgate.events.subjects import feed_subject, log_subject, subject_key
from headgate.processes.status import Status
from headgate.processes.term import Offer

_LOG: Final = logging.getLogger(__name__)

LINGER_S: Final = 0.25
"""How much later than a commit its events may come: nobody waits for the feed, and a message costs less among many."""


def messages_of(cell: str, logged: LoggedCommit) -> list[FeedMessage]:
    """The messages of a commit's events, in order."""
    time = dt.datetime.fromtimestamp(logged.commit.time_ms / 1000, dt.UTC).isoformat(timespec="milliseconds")
    source = log_subject(cell, logged.commit.producer)
    return [
        FeedMessage(
            subject=feed_subject(cell, event),
            payload=encode_event(event),
            message_id=str(Position(logged.seq, index)),
            headers={
                "ce-specversion": "1.0",
                "ce-id": str(Position(logged.seq, index)),
                "ce-source": source,
                "ce-type": tag_of(event),
                "ce-time": time.replace("+00:00", "Z"),
                "content-type": "application/json",
                **({"ce-subject": key} if (key := subject_key(event)) else {}),
                **({"ce-traceparent": logged.commit.trace} if logged.commit.trace else {}),
            },
        )
        for index, event in enumerate(logged.commit.events)
    ]


class Writer(Protocol):
    """Where messages go (`headgate.processes.feed_writer.FeedWriter`)."""

    async def resume(self) -> Position:
        """The position of the last event in the feed; `0.0` when there is none."""
        ...

    async def store(self, messages: list[FeedMessage]) -> int:
        """Store those of the messages that are not in the feed, in order; how many there were."""
        ...


class Feeding:
    """Publishes the feed while the process leads."""

    def __init__(self, writer: Writer, log: Log, status: Status, *, batch_max: int) -> None:
        self._writer = writer
        self._log = log
        self._status = status
        self._batch_max = batch_max

    async def __call__(self, state: State, offer: Offer) -> None:  # noqa: ARG002
        """Run for as long as a term lasts (a `Feeder`): publish from where the feed ends."""
        last = await self._writer.resume()
        _LOG.info("the feed goes on after %s", last)
        async with self._log.tail(max(last.seq, 1), linger_s=LINGER_S) as tail:
            while True:
                await self._publish(await tail.receive())

    async def _publish(self, entries: list[Entry]) -> None:
        """Publish the events of these entries, those that the feed has already left out."""
        batch: list[FeedMessage] = []
        for entry in entries:
            logged = decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms)
            batch += messages_of(self._status.cell, logged)
            if len(batch) >= self._batch_max:
                await self._store(batch)
                batch = []
        await self._store(batch)

    async def _store(self, messages: list[FeedMessage]) -> None:
        for start in range(0, len(messages), self._batch_max):
            stored = await self._writer.store(messages[start : start + self._batch_max])
            self._status.counters.feed_messages += stored
