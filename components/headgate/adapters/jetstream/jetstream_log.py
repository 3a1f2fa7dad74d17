"""The cell's log on JetStream: `headgate.adapters.log.Log` over a `Connection`."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from headgate.adapters.jetstream.appender import append
from headgate.adapters.jetstream.connection import Connection
from headgate.adapters.jetstream.ending import hole_in, torn_end
from headgate.adapters.jetstream.messages import by_seq, last_of_subject, next_of_subject
from headgate.adapters.jetstream.stream import (
    StreamConfig,
    StreamInfo,
    ensure_stream,
    former_log_subjects,
    identity_of,
    log_stream,
    opened_info,
    sync_warnings,
    time_ms_of,
    token,
)
from headgate.adapters.jetstream.tail import JetStreamTail, TailOptions
from headgate.adapters.log import AppendOutcome, EntryNotFound, LogEntry, LogTruncated

if TYPE_CHECKING:
    from headgate.adapters.log import Log


class JetStreamLog:
    """
    The log of one cell; made by `open_log`.

    `warnings` report where the broker is set up less safely than it should be, `opened` is the stream as it was opened.
    """

    def __init__(
        self, connection: Connection, cell: str, info: StreamInfo, warnings: list[str], tail_options: TailOptions | None
    ) -> None:
        self.connection = connection
        self.warnings = warnings
        self._cell = cell
        self.opened = info
        self._name = info.config.name
        self._identity = identity_of(info)
        self._tail_options = tail_options

    @property
    def name(self) -> str:
        """The stream's name."""
        return self._name

    @property
    def identity(self) -> str:
        """The creation time of the stream, from the broker."""
        return self._identity

    def subject(self, producer: str) -> str:
        """The subject of a producer's commits."""
        return f"headgate.{self._cell}.log.{token(producer)}"

    async def append(self, producer: str, payload: bytes, *, expected_last: int, commit_id: str) -> AppendOutcome:
        """See `Log.append`."""
        return await append(
            self.connection,
            self._name,
            self.subject(producer),
            payload,
            expected_last=expected_last,
            commit_id=commit_id,
        )

    async def read(self, start: int, *, stop: int | None = None) -> AsyncGenerator[list[LogEntry], None]:
        """See `Log.read`."""
        info = await opened_info(self.connection, self._name)
        last = info.state.last_seq if stop is None else min(stop, info.state.last_seq)
        if info.state.last_seq < start - 1 or identity_of(info) != self._identity:
            raise LogTruncated(
                f"stream {self._name}",
                read_up_to=start - 1,
                detail=f"the stream ends at {info.state.last_seq} (created {info.created}; was {self._identity})",
            )
        if last < start:
            return
        async with self.tail(start) as tail:
            while tail.position < last:
                entries = await tail.receive()
                yield entries if entries[-1].seq <= last else [entry for entry in entries if entry.seq <= last]

    def tail(self, start: int, *, linger_s: float = 0.0) -> JetStreamTail:
        """See `Log.tail`."""
        return JetStreamTail(
            self.connection,
            self._name,
            start=start,
            identity=self._identity,
            linger_s=linger_s,
            options=self._tail_options,
        )

    async def verify(self) -> None:
        """See `Log.verify`."""
        info = await opened_info(self.connection, self._name)
        damage = await torn_end(self.connection, info) or await hole_in(self.connection, info)
        if damage is not None:
            raise damage

    async def now_ms(self) -> int:
        """See `Log.now_ms`."""
        said = (await opened_info(self.connection, self._name)).ts
        return time_ms_of(said) if said else 0

    async def last_seq(self, producer: str | None = None) -> int:
        """See `Log.last_seq`."""
        if producer is None:
            return (await opened_info(self.connection, self._name)).state.last_seq
        last = await last_of_subject(self.connection, self._name, self.subject(producer))
        return last.entry.seq if last is not None else 0

    async def first_seq(self) -> int:
        """See `Log.first_seq`."""
        state = (await opened_info(self.connection, self._name)).state
        return state.first_seq if state.messages else state.last_seq + 1

    async def get(self, seq: int) -> LogEntry:
        """See `Log.get`."""
        found = await by_seq(self.connection, self._name, seq)
        if found is None:
            raise EntryNotFound(self._name, seq)
        return found.entry

    async def next_of(self, producer: str, start: int) -> LogEntry | None:
        """See `Log.next_of`."""
        found = await next_of_subject(self.connection, self._name, self.subject(producer), max(start, 1))
        return found.entry if found is not None else None


async def open_log(
    connection: Connection,
    cell: str,
    *,
    replicas: int = 1,
    config: StreamConfig | None = None,
    varz: bytes | None = None,
    tail_options: TailOptions | None = None,
    change: bool = True,
) -> JetStreamLog:
    """
    The log of `cell`.

    Its stream is created with `replicas` (or as `config` says) if it is absent and verified otherwise; one of an
    earlier version is narrowed to the subjects of the six producers, unless `change` is False and it is only read.

    `varz` is the body of the server's `/varz`, where its monitoring port is reachable: only it contains sync_interval.

    :raises StreamMismatch: a stream of this name exists and cannot be the log.
    """
    wanted = config or log_stream(cell, replicas=replicas)
    status = await ensure_stream(connection, wanted, former=former_log_subjects(cell), change=change)
    warnings = status.warnings + sync_warnings(varz, replicas=status.info.config.num_replicas)
    return JetStreamLog(connection, cell, status.info, warnings, tail_options)


if TYPE_CHECKING:

    def _is_a_log(log: JetStreamLog) -> Log:
        return log
