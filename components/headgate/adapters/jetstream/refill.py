"""
Filling a new log stream with the entries of an old one, invisible until it is complete.

While it is filled the stream accepts messages under separate subjects (`headgate.<cell>.restoring.<token>.*`), and
stores them under their original ones. So no process can append between two of them, and one that starts meanwhile finds
a stream that is not the log yet. At the end one update gives the stream the subjects of a log, and the marker with the
origin of its entries (`Marker`). An interrupted filling continues where it stopped.

Sequences are unchanged: each message is fenced on the one before it, and the stream begins at the first sequence that
is to be restored. The broker's times are kept in a header (`stored_time`).
"""

from collections.abc import Callable, Iterator
from typing import Final, Literal

import anyio
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from headgate.adapters.backoff import Backoff
from headgate.adapters.jetstream.connection import Connection, Outgoing
from headgate.adapters.jetstream.errors import BrokerError, JetStreamApiError, NotSent, OutcomeUnknown
from headgate.adapters.jetstream.messages import by_seq
from headgate.adapters.jetstream.stored_time import HEADER
from headgate.adapters.jetstream.stream import (
    FILLING,
    StreamConfig,
    StreamInfo,
    SubjectTransform,
    find_stream,
    stream_info,
)
from headgate.adapters.log import LogEntry

EXPECTED_STREAM_LAST: Final = "Nats-Expected-Last-Sequence"
MARKER: Final = "headgate.origin"
"""The stream's metadata afterwards: the origin of its entries, as JSON (`Marker`)."""

BATCH_ENTRIES: Final = 200
BATCH_BYTES: Final = 2 * 1024 * 1024
FILL_TRIES: Final = 20
DELETE_TRIES: Final = 20
"""A stream created under a name that was just removed may contain the old one's messages; it is removed again."""


class Marker(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The origin of a stream that is not original.

    `restored`: it has the entries of `backup` up to `position`, where the log has the hash `log_hash`; later entries
    are not in it. `rebuilt`: it is empty, and a new log is to begin in it for a cell whose old log is abandoned.
    """

    kind: Literal["restored", "rebuilt"]
    at_ms: int
    backup: str = ""
    position: int = 0
    log_hash: str = ""
    why: str = ""


def metadata_of(info: StreamInfo) -> dict[str, str]:
    """The metadata in a stream's configuration."""
    return info.config.metadata or {}


def marker_of(info: StreamInfo) -> Marker | None:
    """The marker of a stream; None when it is original."""
    text = metadata_of(info).get(MARKER, "")
    try:
        return msgspec.json.decode(text, type=Marker) if text else None
    except msgspec.MsgspecError:
        return None


def filled_by(info: StreamInfo) -> str:
    """The token of the writer that fills a stream; "" when it is not being filled."""
    return metadata_of(info).get(FILLING, "")


async def delete_stream(connection: Connection, name: str) -> None:
    """
    Remove a stream with all its messages; nothing happens if there is none.

    :raises BrokerError: the broker refuses.
    """
    try:
        if await find_stream(connection, name) is not None:
            await connection.call(f"STREAM.DELETE.{name}", b"", _DONE, dependency=f"stream {name}")
    except JetStreamApiError as error:
        raise BrokerError(f"stream {name} cannot be removed: {error}") from error


async def fill(
    connection: Connection,
    cell: str,
    log: StreamConfig,
    entries: Callable[[int], Iterator[LogEntry]],
    *,
    first: int,
    last: int,
    token: str,
) -> StreamInfo:
    """
    A stream that holds `entries` (requested from a position on) at the sequences `first` to `last`, still invisible.

    No other stream of this name may exist, except one that was being filled under this token.

    :raises BrokerError: the broker refuses permanently, or another writer writes into the stream.
    """
    staging = f"headgate.{cell}.restoring.{token}"
    wanted = replace(
        log,
        subjects=[f"{staging}.*"],
        subject_transform=SubjectTransform(src=f"{staging}.*", dest=f"headgate.{cell}.log.{{{{wildcard(1)}}}}"),
        first_seq=first,
        metadata={FILLING: token},
    )
    info = await _made(connection, wanted, token)
    backoff, tries, stored = Backoff(), 0, 0
    while (reached := max(info.state.last_seq, first - 1)) < last:
        tries, stored = (tries + 1, stored) if reached == stored else (0, reached)
        try:
            for batch in _batches(entries(stored + 1), last):
                await connection.publish_all([_message(staging, entry) for entry in batch])
        except (NotSent, OutcomeUnknown, JetStreamApiError) as error:
            if tries == FILL_TRIES or (isinstance(error, JetStreamApiError) and error.for_good):
                raise BrokerError(
                    f"stream {log.name} cannot be filled beyond entry {stored}: {error}. Mend that and run the command "
                    "again: it goes on from there"
                ) from error
            await backoff.wait()
            await connection.wait_connected()
        info = await stream_info(connection, log.name)
    return info


async def reveal(connection: Connection, log: StreamConfig, marker: Marker, *, first: int) -> StreamInfo:
    """Make a filled stream the log."""
    text = msgspec.json.encode(marker).decode()
    return await _call(connection, "UPDATE", log.name, replace(log, first_seq=first, metadata={MARKER: text}))


async def begin(connection: Connection, log: StreamConfig, marker: Marker) -> StreamInfo:
    """An empty log with a marker for the reason. No stream of this name may exist."""
    text = msgspec.json.encode(marker).decode()
    return await _made(connection, replace(log, metadata={MARKER: text}), "")


async def _made(connection: Connection, wanted: StreamConfig, token: str) -> StreamInfo:
    for _ in range(DELETE_TRIES):
        there = await find_stream(connection, wanted.name)
        if there is not None and token and filled_by(there) == token:
            return there
        made = await _call(connection, "CREATE", wanted.name, wanted)
        if not made.state.messages and await by_seq(connection, wanted.name, wanted.first_seq or 1) is None:
            return made
        await delete_stream(connection, wanted.name)
        await anyio.sleep(0.1)
    raise BrokerError(f"stream {wanted.name} cannot be made anew: the broker brings back what it held before")


async def _call(connection: Connection, verb: str, name: str, config: StreamConfig) -> StreamInfo:
    body = msgspec.json.encode(config)
    try:
        return await connection.call(f"STREAM.{verb}.{name}", body, _INFO, dependency=f"stream {name}")
    except JetStreamApiError as error:
        raise BrokerError(f"stream {name}: {verb.lower()} was refused: {error}") from error


class _Done(Struct):
    success: bool = False


_INFO: msgspec.json.Decoder[StreamInfo] = msgspec.json.Decoder(StreamInfo)
_DONE: msgspec.json.Decoder[_Done] = msgspec.json.Decoder(_Done)


def _message(staging: str, entry: LogEntry) -> Outgoing:
    headers = {EXPECTED_STREAM_LAST: str(entry.seq - 1), HEADER: str(entry.time_ms)}
    return f"{staging}.{entry.subject.rpartition('.')[2]}", entry.payload, headers


def _batches(entries: Iterator[LogEntry], last: int) -> Iterator[list[LogEntry]]:
    batch: list[LogEntry] = []
    size = 0
    for entry in entries:
        if entry.seq > last:
            break
        if batch and (len(batch) >= BATCH_ENTRIES or size + len(entry.payload) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += len(entry.payload)
    if batch:
        yield batch
