"""
The feed stream: one message per event, for external consumers, stored exactly once.

The snapshotter derives it from the log. Each message has an id (the position of its event); within the stream's
duplicate window the broker drops duplicates, and after a restart `last_message_id` gives the place to continue.
Messages are sent in order and pipelined.
"""

from collections.abc import Sequence

import anyio
from msgspec import Struct

from headgate.adapters.jetstream.appender import MESSAGE_ID, publish_once
from headgate.adapters.jetstream.connection import Connection
from headgate.adapters.jetstream.messages import last_of_subject
from headgate.adapters.jetstream.stream import StreamConfig, ensure_stream, feed_stream, stream_info


class FeedMessage(Struct, frozen=True, kw_only=True):
    """One message: `headers` are the CloudEvents attributes (binary mode), `message_id` is unique to the event."""

    subject: str
    payload: bytes
    message_id: str
    headers: dict[str, str]


class JetStreamFeed:
    """The feed of one cell; made by `open_feed`."""

    def __init__(self, connection: Connection, name: str, warnings: list[str]) -> None:
        self.connection = connection
        self.name = name
        self.warnings = warnings

    async def publish(self, message: FeedMessage) -> int:
        """
        Stores one message unless it is there already; returns its sequence. Waits for a lost broker or a full stream.

        :raises CommitTooLarge: NATS accepts no message of this size. :raises BrokerError: the stream refuses
        permanently, for instance because the subject is not the feed's.
        """
        return await publish_once(
            self.connection,
            self.name,
            message.subject,
            message.payload,
            message_id=message.message_id,
            headers=message.headers,
        )

    async def publish_all(self, messages: Sequence[FeedMessage]) -> None:
        """
        Stores messages, many in flight at once; returns when all are acknowledged.

        They are sent in the order given, and stored in it unless the broker fails in between: then those it had not
        accepted follow after those it had.
        """
        async with anyio.create_task_group() as tasks:
            for message in messages:
                tasks.start_soon(self.publish, message)

    async def last_message_id(self) -> str | None:
        """The id of the last message stored, or None if there is none."""
        last = await last_of_subject(self.connection, self.name, ">")
        return None if last is None else last.headers.get(MESSAGE_ID)

    async def count(self) -> int:
        """How many messages the feed holds."""
        return (await stream_info(self.connection, self.name)).state.messages


async def open_feed(
    connection: Connection, cell: str, *, replicas: int = 1, config: StreamConfig | None = None
) -> JetStreamFeed:
    """
    The feed of `cell`, its stream created if it is absent and verified otherwise.

    :raises StreamMismatch: a stream of this name exists and cannot be the feed.
    """
    status = await ensure_stream(connection, config or feed_stream(cell, replicas=replicas))
    return JetStreamFeed(connection, status.info.config.name, status.warnings)
