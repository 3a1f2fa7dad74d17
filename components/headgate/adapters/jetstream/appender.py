"""
The fenced append, and the deduplicated publish: each ends with its true outcome, whatever happens to the broker.

`append` sends the commit with `Nats-Expected-Last-Subject-Sequence`. The broker's compare-and-set makes a repetition
harmless, so an unknown outcome is settled as follows: read the first message of the subject after `expected_last`. If
it is ours, byte for byte, the commit is stored; if it is another's, we lost; if there is none, send again. Reading that
message and not the last one makes the answer exact even when others have written after it. A refusal is settled the
same way, because the conflicting message may be our own earlier attempt, stored late.
"""

from collections.abc import Mapping

from headgate.adapters.backoff import Backoff
from headgate.adapters.jetstream.connection import Connection
from headgate.adapters.jetstream.errors import (
    STREAM_NOT_FOUND,
    WRONG_LAST_SEQUENCE,
    BrokerError,
    JetStreamApiError,
    NotSent,
    OutcomeUnknown,
)
from headgate.adapters.jetstream.messages import last_of_subject, next_of_subject
from headgate.adapters.log import Appended, AppendOutcome, Conflict

EXPECTED_LAST = "Nats-Expected-Last-Subject-Sequence"
MESSAGE_ID = "Nats-Msg-Id"

SHORTER_LOG_TRIES = 6
"""
How often a broker must report that the subject ends before `expected_last` until it is accepted: a newly elected leader
may not have applied all entries. With the backoff this is about half a second.
"""


async def append(
    connection: Connection, stream: str, subject: str, payload: bytes, *, expected_last: int, commit_id: str
) -> AppendOutcome:
    """
    Appends `payload` if the subject's last sequence is `expected_last`; see `Log.append`.

    :raises CommitTooLarge: NATS accepts no message of this size. :raises BrokerError: the stream refuses permanently.
    """
    dependency = f"stream {stream}"
    headers = {EXPECTED_LAST: str(expected_last)}
    backoff = Backoff()
    shorter = 0
    while True:
        await connection.wait_connected()
        trouble: Exception
        try:
            ack = await connection.publish(subject, payload, headers)
            connection.health.well(dependency)
            return Appended(ack.seq)
        except NotSent as error:
            trouble = error
        except OutcomeUnknown as error:
            trouble = error
            outcome = await _settle(connection, stream, subject, payload, expected_last)
            if outcome is not None:
                return outcome
        except JetStreamApiError as error:
            trouble = error
            if error.err_code in WRONG_LAST_SEQUENCE:
                outcome = await _settle(connection, stream, subject, payload, expected_last)
                if outcome is not None:
                    return outcome
                last = await last_of_subject(connection, stream, subject)
                last_seq = last.entry.seq if last is not None else 0
                shorter = shorter + 1 if last_seq < expected_last else 0
                if shorter >= SHORTER_LOG_TRIES:
                    return Conflict(expected_last, last_seq)
            elif error.for_good or error.err_code == STREAM_NOT_FOUND:
                raise BrokerError(f"commit {commit_id} cannot be appended to {dependency}: {error}") from error
        connection.health.unwell(dependency, f"waiting to append commit {commit_id}: {trouble}")
        await backoff.wait()


async def _settle(
    connection: Connection, stream: str, subject: str, payload: bytes, expected_last: int
) -> AppendOutcome | None:
    """
    The outcome of an append that is open.

    None: there is no message after `expected_last`, as far as is visible.
    """
    successor = await next_of_subject(connection, stream, subject, expected_last + 1)
    if successor is None:
        return None
    connection.health.well(f"stream {stream}")
    if successor.entry.payload == payload:
        return Appended(successor.entry.seq)
    last = await last_of_subject(connection, stream, subject)
    return Conflict(expected_last, last.entry.seq if last is not None else successor.entry.seq)


async def publish_once(
    connection: Connection,
    stream: str,
    subject: str,
    payload: bytes,
    *,
    message_id: str,
    headers: Mapping[str, str] | None = None,
) -> int:
    """
    Stores a message unless one with this id was stored within the stream's duplicate window; returns its sequence.

    Waits while the broker is lost or the stream is full. Many calls may be in flight; the connection's window bounds
    them.

    :raises CommitTooLarge: NATS accepts no message of this size. :raises BrokerError: the stream refuses permanently.
    """
    dependency = f"stream {stream}"
    all_headers = {**(headers or {}), MESSAGE_ID: message_id}
    backoff = Backoff()
    while True:
        await connection.wait_connected()
        try:
            ack = await connection.publish(subject, payload, all_headers)
        except (NotSent, OutcomeUnknown) as error:
            trouble: Exception = error
        except JetStreamApiError as error:
            if error.for_good:
                raise BrokerError(f"message {message_id} cannot be stored in {dependency}: {error}") from error
            trouble = error
        else:
            connection.health.well(dependency)
            return ack.seq
        connection.health.unwell(dependency, f"waiting to store message {message_id}: {trouble}")
        await backoff.wait()
