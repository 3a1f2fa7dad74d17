"""
The leases of a cell on JetStream.

Their stream keeps the last record of each producer, written by compare-and-set.
"""

from collections.abc import Sequence

import msgspec

from headgate.adapters.jetstream.appender import append
from headgate.adapters.jetstream.connection import Connection
from headgate.adapters.jetstream.messages import last_of_subject
from headgate.adapters.jetstream.stream import ensure_stream, find_stream, lease_stream, token
from headgate.adapters.lease import Head, Lease, LeaseRecord, Registered
from headgate.adapters.log import Appended

_RECORD = msgspec.json.Decoder(LeaseRecord)


class JetStreamRegister:
    """One producer's record: the last message of its subject; the revision is that message's sequence."""

    def __init__(self, connection: Connection, stream: str, subject: str) -> None:
        self._connection = connection
        self._stream = stream
        self._subject = subject

    async def read(self) -> Registered:
        """See `LeaseRegister.read`."""
        last = await last_of_subject(self._connection, self._stream, self._subject)
        if last is None:
            return Registered(0, None)
        return Registered(last.entry.seq, _RECORD.decode(last.entry.payload))

    async def write(self, record: LeaseRecord, *, expected: int) -> int | None:
        """
        See `LeaseRegister.write`.

        A lease is a separate log, of which only the end is kept; the append determines the true outcome.
        """
        outcome = await append(
            self._connection,
            self._stream,
            self._subject,
            msgspec.json.encode(record),
            expected_last=expected,
            commit_id=f"lease of {record.holder or 'nobody'}, epoch {record.epoch}",
        )
        return outcome.seq if isinstance(outcome, Appended) else None


class JetStreamLeases:
    """The leases of one cell; made by `open_leases`."""

    def __init__(self, connection: Connection, cell: str, name: str, warnings: list[str]) -> None:
        self.connection = connection
        self.warnings = warnings
        self.name = name
        self._cell = cell

    def register(self, producer: str) -> JetStreamRegister:
        """The register of one producer's lease."""
        return JetStreamRegister(self.connection, self.name, f"headgate.{self._cell}.lease.{token(producer)}")

    def lease(self, producer: str, holder: str, *, term_ms: int = 5_000, head: Head = lambda: (0, "")) -> Lease:
        """
        A candidate for a producer's lease.

        `holder` names this process so that its restart is recognised (the pod's name); `head` goes into each renewal.
        """
        return Lease(self.register(producer), holder, term_ms=term_ms, head=head)

    async def holder(self, producer: str) -> LeaseRecord | None:
        """The record of a producer's lease, for display; None if it was never held."""
        return (await self.register(producer).read()).record


async def lease_epochs(connection: Connection, cell: str, producers: Sequence[str]) -> dict[str, int]:
    """The epochs of the leases that were ever held, by producer, for reading only."""
    name = lease_stream(cell).name
    if await find_stream(connection, name) is None:
        return {}
    leases = JetStreamLeases(connection, cell, name, [])
    records = {producer: await leases.holder(producer) for producer in producers}
    return {producer: record.epoch for producer, record in records.items() if record is not None}


async def open_leases(connection: Connection, cell: str, *, replicas: int = 1) -> JetStreamLeases:
    """
    The leases of `cell`, their stream created if it is absent and verified otherwise.

    :raises StreamMismatch: a stream of this name exists and cannot keep leases.
    """
    status = await ensure_stream(connection, lease_stream(cell, replicas=replicas))
    return JetStreamLeases(connection, cell, status.info.config.name, status.warnings)
