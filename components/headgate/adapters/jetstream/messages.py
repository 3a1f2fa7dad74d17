"""
Reading single messages of a stream from its leader.

Never a follower's direct get: a fence must not be decided by a stale replica. Raises StreamGone if the stream is
missing.
"""

import base64
import binascii

import msgspec
from msgspec import Struct

from headgate.adapters.jetstream.connection import Connection
from headgate.adapters.jetstream.errors import NO_MESSAGE, STREAM_NOT_FOUND, JetStreamApiError
from headgate.adapters.jetstream.stored_time import stored_ms
from headgate.adapters.jetstream.stream import time_ms_of
from headgate.adapters.log import LogEntry, StreamGone


class _Stored(Struct):
    subject: str
    seq: int
    time: str
    data: str = ""
    hdrs: str = ""


class _Got(Struct):
    message: _Stored


_GOT = msgspec.json.Decoder(_Got)


class StoredMessage(Struct, frozen=True):
    """An entry with its headers as the broker stores them."""

    entry: LogEntry
    headers: dict[str, str]


async def last_of_subject(connection: Connection, stream: str, subject: str) -> StoredMessage | None:
    """The last message of a subject (which may contain wildcards), or None."""
    return await _get(connection, stream, {"last_by_subj": subject})


async def next_of_subject(connection: Connection, stream: str, subject: str, start: int) -> StoredMessage | None:
    """The first message of a subject at or after sequence `start`, or None."""
    return await _get(connection, stream, {"seq": start, "next_by_subj": subject})


async def by_seq(connection: Connection, stream: str, seq: int) -> StoredMessage | None:
    """The message with this sequence, or None."""
    return await _get(connection, stream, {"seq": seq}) if seq > 0 else None


async def _get(connection: Connection, stream: str, request: dict[str, str | int]) -> StoredMessage | None:
    try:
        got = await connection.call(
            f"STREAM.MSG.GET.{stream}", msgspec.json.encode(request), _GOT, dependency=f"stream {stream}"
        )
    except JetStreamApiError as refused:
        if refused.err_code == NO_MESSAGE:
            return None
        if refused.err_code == STREAM_NOT_FOUND:
            raise StreamGone(stream) from refused
        raise
    stored = got.message
    headers = _headers(stored.hdrs)
    time_ms = stored_ms(headers, time_ms_of(stored.time))
    return StoredMessage(LogEntry(stored.seq, stored.subject, time_ms, binascii.a2b_base64(stored.data)), headers)


def _headers(encoded: str) -> dict[str, str]:
    lines = base64.b64decode(encoded).decode("utf-8", "replace").split("\r\n")[1:]
    return {name: value.strip() for name, mark, value in (line.partition(":") for line in lines) if mark}
