"""
The writer of the feed: each message is stored once and in order, across failures of the broker and of this process.

Every message carries the stream sequence that must be the feed's last when it is stored. So hundreds of messages can be
in flight, and the broker accepts each only after the one before it. The answer to the last one therefore covers all,
and the others request none, which halves the cost of a message. When anything fails (a lost connection, an unknown
outcome, a refusal because of another writer) the writer reads the feed's last message, whose id identifies its event,
and continues after it, this time with an answer to each, which contains the error. A late message of an earlier attempt
is either exactly the one that was due, or refused.
"""

import bisect
import logging
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import anyio

from headgate.adapters.backoff import Backoff
from headgate.adapters.jetstream.appender import MESSAGE_ID
from headgate.adapters.jetstream.connection import Connection
from headgate.adapters.jetstream.errors import BrokerError, JetStreamApiError, NotSent, OutcomeUnknown
from headgate.adapters.jetstream.feed import FeedMessage
from headgate.adapters.jetstream.messages import last_of_subject
from headgate.adapters.jetstream.stream import stream_info
from headgate.core.log.branches import EventId, parse_event_id
from headgate.core.state.tables import Branch
from headgate.events.commit import Position
from headgate.events.ids import Seq

_LOG: Final = logging.getLogger(__name__)

EXPECTED_STREAM_LAST: Final = "Nats-Expected-Last-Sequence"

Place = tuple[int, Position]
"""The place of an event in the feed: the number of its branch (`headgate.core.log.branches`), its position."""

BEGINNING: Final[Place] = (0, Position(Seq(0)))


class LastMessage(NamedTuple):
    """The end of the feed: its event, subject and body; `headers` as they were stored."""

    id: EventId
    subject: str
    payload: bytes
    headers: Mapping[str, str] = MappingProxyType({})


class FeedWriter:
    """Writes one cell's feed stream."""

    def __init__(self, connection: Connection, stream: str) -> None:
        self._connection = connection
        self._stream = stream
        self._dependency = f"stream {stream}"
        self._numbers: dict[str, int] = {"": 0}
        self._last = BEGINNING
        self._stream_last = 0

    def follow(self, branches: Sequence[Branch]) -> None:
        """The branches of the log; new events are appended to the last one."""
        self._numbers = {"": 0} | {branch.token: number for number, branch in enumerate(branches, 1)}

    async def last(self) -> LastMessage | None:
        """
        The last message in the feed; None when it is empty.

        Raises BrokerError when it is not a message of Headgate.
        """
        stored = await last_of_subject(self._connection, self._stream, ">")
        if stored is None:
            # Empty: new, or all messages have aged out under the operator's limits.
            self._stream_last = (await stream_info(self._connection, self._stream)).state.last_seq
            return None
        self._stream_last = stored.entry.seq
        try:
            named = parse_event_id(stored.headers.get(MESSAGE_ID, ""))
        except ValueError as error:
            raise BrokerError(
                f"{self._dependency}: the id of its last message, {error}: somebody else writes there. "
                "Find out who, then remove the stream; the feed is made again from the log"
            ) from error
        return LastMessage(named, stored.entry.subject, stored.entry.payload, stored.headers)

    async def resume(self) -> Place:
        """
        The place of the last event in the feed; the beginning when it is empty.

        Events of a branch that this log does not have were published after the break from which the current branch
        began: everything before that break is in the feed. Raises BrokerError when the last message is not a message of
        Headgate.
        """
        last = await self.last()
        if last is None:
            self._last = max(self._last, BEGINNING)
        else:
            number = self._numbers.get(last.id.token, len(self._numbers) - 2)
            known = last.id.token in self._numbers
            self._last = (number, last.id.position if known else Position(Seq(sys.maxsize)))
        return self._last

    async def store(self, messages: list[FeedMessage]) -> int:
        """Store those of the messages that are not in the feed yet, in order; returns their number."""
        backoff = Backoff()
        left = self._left(messages)
        count = len(left)
        attempt = self._attempt
        while left and not await attempt(left):
            await backoff.wait()
            await self._connection.wait_connected()
            await self.resume()
            left = self._left(messages)
            attempt = self._attempt_each
        if messages:
            self._last = max(self._last, self._place(messages[-1]))
        return count

    def _left(self, messages: list[FeedMessage]) -> list[FeedMessage]:
        """The messages after the feed's last."""
        return messages[bisect.bisect_right(messages, self._last, key=self._place) :]

    def _place(self, message: FeedMessage) -> Place:
        named = parse_event_id(message.message_id)
        return self._numbers[named.token], named.position

    async def _attempt(self, messages: list[FeedMessage]) -> bool:
        """One attempt at all of them, with one answer; whether every one is stored."""
        try:
            ack = await self._connection.publish_all(
                [
                    (message.subject, message.payload, _headers(message, expected))
                    for expected, message in enumerate(messages, self._stream_last)
                ]
            )
        except (NotSent, OutcomeUnknown, JetStreamApiError) as error:
            return self._failed(str(error))
        if ack.seq != self._stream_last + len(messages):
            return self._failed(f"message {messages[-1].message_id} is in the feed already")
        return self._stored(len(messages))

    async def _attempt_each(self, messages: list[FeedMessage]) -> bool:
        """One attempt at all of them, pipelined, with an answer to each; whether every one is stored."""
        failed = ""

        async def publish(message: FeedMessage, expected: int) -> None:
            nonlocal failed
            try:
                ack = await self._connection.publish(message.subject, message.payload, _headers(message, expected))
            except (NotSent, OutcomeUnknown) as error:
                failed = failed or str(error)
            except JetStreamApiError as error:
                if error.for_good:
                    raise BrokerError(
                        f"message {message.message_id} cannot be stored in {self._dependency}: {error}"
                    ) from error
                failed = failed or str(error)
            else:
                if ack.seq != expected + 1:
                    failed = failed or f"message {message.message_id} is in the feed already"

        async with anyio.create_task_group() as tasks:
            for offset, message in enumerate(messages):
                tasks.start_soon(publish, message, self._stream_last + offset)
        return self._failed(failed) if failed else self._stored(len(messages))

    def _failed(self, why: str) -> bool:
        self._connection.health.unwell(self._dependency, f"waiting to store the feed: {why}")
        return False

    def _stored(self, count: int) -> bool:
        self._connection.health.well(self._dependency)
        self._stream_last += count
        return True


def _headers(message: FeedMessage, expected: int) -> dict[str, str]:
    """The headers of a message that is to be stored directly after the `expected` sequence of the stream."""
    return {**message.headers, MESSAGE_ID: message.message_id, EXPECTED_STREAM_LAST: str(expected)}
