"""
The feed: every event of the log as one message for external consumers.

Each message is a CloudEvent 1.0 in the binary mode of its NATS binding: attributes in headers (`ce-id` is the event's
position, `ce-type` its tag, `ce-subject` its subject, `ce-source` the cell's log, `ce-time` the commit's time), the
event's own JSON as the body. Subjects are those of `headgate.events.subjects`.

The feed is derived from the log through a separate tail, so that a slow or full feed slows nothing else. It continues
after the last message that the feed holds, and each message is fenced on the one before it
(`headgate.processes.snapshotter.feed_writer`), so every event is there once and in order: also when the snapshotter
dies between two messages, or another takes over.

After a restore the log assigns positions again that the feed has published with other events. From there on the ids of
the feed therefore contain the branch of the log (`headgate.core.log.branches`), and the first message after the break
is `cell.restored`, with the position from which the log continues and what is known to be lost. Before anything is
published, the end of the feed is compared with the log: if the feed has events that the log does not have, without a
recorded restore, the process stops instead of continuing in two versions.
"""

import datetime as dt
import logging
from collections.abc import Sequence
from typing import Final, Protocol

import anyio

from headgate.adapters.jetstream.feed import FeedMessage
from headgate.adapters.log import EntryNotFound, Log, LogDamaged, LogEntry
from headgate.core.log.attestation import hash_at
from headgate.core.log.branches import EventId, number_at, token_of
from headgate.core.log.refusal import admitted
from headgate.core.state.error_text import describe, where
from headgate.core.state.tables import Branch, State
from headgate.events.base import tag_of
from headgate.events.commit import LoggedCommit, Position, decode_entry, encode_event
from headgate.events.ids import Seq
from headgate.events.registry import Event
from headgate.events.remedy import REMEDY
from headgate.events.subjects import NONE, ROOT, feed_subject, log_subject, subject_key
from headgate.events.upcasting import feed_message
from headgate.processes.runtime.leadership import Offer
from headgate.processes.runtime.process_status import Status
from headgate.processes.snapshotter.feed_writer import LastMessage, Place

_LOG: Final = logging.getLogger(__name__)

COMMIT_HASH: Final = "ce-commithash"
"""The hash of the commit that contains the event."""
LOG_HASH: Final = "ce-loghash"
"""The hash of the whole log that this commit attests, up to the position in `LOG_POSITION`."""
LOG_POSITION: Final = "ce-logposition"
DEFECT: Final = "ce-defect"
"""
The reason why the message of an event could not be made. It is in the feed without body and subject; `headgate events`
has the event.
"""

FOLD_WAIT_S: Final = 0.05
"""The interval between two checks of the fold's progress."""

LINGER_S: Final = 0.25
"""
How much later than a commit its events may be published: the feed is not latency-critical, and batches are cheaper.
"""


def messages_of(cell: str, logged: LoggedCommit, token: str = "") -> list[FeedMessage]:
    """The messages of a commit's events, in order. `token` is that of the log's branch there."""
    time = dt.datetime.fromtimestamp(logged.commit.time_ms / 1000, dt.UTC).isoformat(timespec="milliseconds")
    source = log_subject(cell, logged.commit.producer)
    messages: list[FeedMessage] = []
    for index, event in enumerate(logged.commit.events):
        event_id = str(EventId(token, Position(logged.seq, index)))
        headers = {
            "ce-specversion": "1.0",
            "ce-id": event_id,
            "ce-source": source,
            "ce-type": tag_of(event),
            "ce-time": time.replace("+00:00", "Z"),
            COMMIT_HASH: logged.hash,
            **({LOG_HASH: logged.commit.log, LOG_POSITION: str(logged.commit.at)} if logged.commit.log else {}),
            "content-type": "application/json",
            **({"ce-traceparent": logged.commit.trace} if logged.commit.trace else {}),
        }
        try:
            subject, payload, key = _worded(cell, event)
        except Exception as error:  # noqa: BLE001 - it costs this message, and not the feed
            subject, payload, key = f"{ROOT}.{cell}.{tag_of(event)}.{NONE}.{NONE}", b"{}", ""
            headers[DEFECT] = f"{describe(error)} in {where(error)}"
        if key:
            headers["ce-subject"] = key
        messages.append(FeedMessage(subject=subject, payload=payload, message_id=event_id, headers=headers))
    return messages


def _worded(cell: str, event: Event) -> tuple[str, bytes, str]:
    """The subject of an event's message, its body, and the event's subject."""
    return feed_subject(cell, event), encode_event(event), subject_key(event)


def _differs(made: FeedMessage, last: LastMessage) -> bool:
    """Whether a message of the feed is of another event. One that could not be encoded may look different."""
    if DEFECT in made.headers or DEFECT in last.headers:
        return False
    return (made.subject, made.payload) != feed_message(last.subject, last.payload)


class FeedBeyondLogError(LogDamaged):
    """Raised when the feed has published events that the log does not have: the log was lost or rolled back."""

    def __init__(self, log: str, last: LastMessage, why: str) -> None:
        super().__init__(
            f"{log}: the feed ends with the event {last.id} ({last.subject}), {why}: the log was rolled back, or is "
            f"another one. {REMEDY}"
        )


class MessageWriter(Protocol):
    """The destination of messages (`headgate.processes.snapshotter.feed_writer.FeedWriter`)."""

    def follow(self, branches: Sequence[Branch]) -> None:
        """The branches of the log whose events are stored."""
        ...

    async def last(self) -> LastMessage | None:
        """The last message in the feed; None when there is none."""
        ...

    async def resume(self) -> Place:
        """The place of the last event in the feed; the beginning when there is none."""
        ...

    async def store(self, messages: list[FeedMessage]) -> int:
        """Store those of the messages that are not in the feed, in order; returns their number."""
        ...


class Feeding:
    """Publishes the feed while the process leads."""

    def __init__(self, writer: MessageWriter, log: Log, status: Status, *, batch_max: int) -> None:
        self._writer = writer
        self._log = log
        self._status = status
        self._batch_max = batch_max
        self._branches: tuple[Branch, ...] = ()

    async def __call__(self, state: State, offer: Offer) -> None:  # noqa: ARG002
        """Run for as long as a term lasts (a `Feeder`): publish from where the feed ends."""
        self._branches = state.branches
        self._writer.follow(self._branches)
        await self._hold_against_log(state)
        number, position = await self._writer.resume()
        start = self._start(number, position.seq)
        _LOG.info("the feed goes on at position %d", start)
        async with self._log.tail(start, linger_s=LINGER_S) as tail:
            while True:
                entries = await tail.receive()
                # Once the fold has come this far, the state has the valid signing keys and the used positions.
                while state.identity is not None and state.position < entries[-1].seq:  # noqa: ASYNC110
                    await anyio.sleep(FOLD_WAIT_S)
                await self._publish(entries, state)

    def _start(self, number: int, seq: Seq) -> int:
        """The position to read from, when the feed has a branch up to a position, and all before that branch."""
        if number < len(self._branches):
            # The feed's events after the end of that branch are missing from the log, or differ there.
            seq = min(seq, self._branches[number].after)
        return max(seq, 1)

    async def _hold_against_log(self, state: State) -> None:
        """
        Whether the last event of the feed is one of this log.

        Raises FeedBeyondLogError.
        """
        last = await self._writer.last()
        if last is None:
            return
        number = next((n for n in range(len(self._branches) + 1) if token_of(self._branches, n) == last.id.token), None)
        seq, end = last.id.position.seq, await self._log.last_seq()
        if number is None:
            if self._branches:
                return  # Of a branch that was abandoned when this one began.
            raise FeedBeyondLogError(self._log.name, last, "which is an event of another log")
        if number < len(self._branches) and seq > self._branches[number].after:
            return  # Lost after the break, which the next message reports.
        if seq > end:
            raise FeedBeyondLogError(self._log.name, last, f"and the log ends at {end}")
        try:
            entry = await self._log.get(seq)
        except EntryNotFound:
            return  # Trimmed: nothing is left to compare with.
        logged = decode_entry(entry.seq, entry.subject, entry.payload, entry.time_ms)
        messages = messages_of(self._status.cell, logged, last.id.token)
        index = last.id.position.index
        if index >= len(messages) or _differs(messages[index], last):
            raise FeedBeyondLogError(self._log.name, last, "and the log has another event there")
        if last.headers.get(COMMIT_HASH, logged.hash) != logged.hash:
            raise FeedBeyondLogError(self._log.name, last, "and the log has another commit there")
        attested = last.headers.get(LOG_HASH, "")
        here = hash_at(state, logged.commit.at) if attested and logged.commit.at <= state.position else ""
        if here not in ("", attested):
            raise FeedBeyondLogError(self._log.name, last, f"and the log has another hash at {logged.commit.at}")

    async def _publish(self, entries: list[LogEntry], state: State) -> None:
        """Publish the events of these entries that the feed does not have yet."""
        batch: list[FeedMessage] = []
        for entry in entries:
            logged = decode_entry(entry.seq, entry.subject, entry.payload, entry.time_ms)
            if admitted(state, logged):
                token = token_of(self._branches, number_at(self._branches, logged.seq)) if self._branches else ""
                messages = messages_of(self._status.cell, logged, token)
                self._note_defects(messages)
                batch += messages
            if len(batch) >= self._batch_max:
                await self._store(batch)
                batch = []
        await self._store(batch)

    def _note_defects(self, messages: list[FeedMessage]) -> None:
        for message in messages:
            if DEFECT in message.headers:
                text = f"the message of event {message.message_id} could not be made: {message.headers[DEFECT]}"
                _LOG.error("%s. The feed has it without its body", text)
                self._status.notice("feed", text)

    async def _store(self, messages: list[FeedMessage]) -> None:
        for start in range(0, len(messages), self._batch_max):
            stored = await self._writer.store(messages[start : start + self._batch_max])
            self._status.counters.feed_messages += stored
