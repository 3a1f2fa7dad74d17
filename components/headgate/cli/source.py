"""
The source of the log for reading commands: a running cell, a stopped one, any broker, or a file.

`open_source` finds it (see `headgate.cli.cell`) and returns a `Source`, which reads entries in order, from any
position, repeatedly. A stopped cell's store is read by starting its broker for as long as the command runs. Readers
never create or change a stream.
"""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import anyio
import msgspec

from headgate.adapters.log import LogEntry
from headgate.adapters.logfile import read_log_file
from headgate.cli.broker import nats_settings
from headgate.cli.cell import HOW, NATS_STORE, NATS_USERS, CellInfo, Found, find, read
from headgate.cli.options import SourceOptions
from headgate.cli.output import FAILED, CliError
from headgate.events.commit import LoggedCommit, decode_entry
from headgate.events.signing import anchored
from headgate.events.subjects import parse_log_subject

if TYPE_CHECKING:
    from headgate.adapters.jetstream import Connection, NatsOptions
    from headgate.adapters.jetstream.embedded import EmbeddedServer
    from headgate.adapters.jetstream.jetstream_log import JetStreamLog
    from headgate.adapters.log import Blobs, Log
    from headgate.processes.runtime.settings import NatsSettings

CONNECT_TIMEOUT_S = 5.0
BATCH = 2000
"""Entries read from a file at a time."""


class Source(Protocol):
    """A log to read. `name` is for display; `info` is set for cells of `headgate up`."""

    name: str
    cell: str
    info: CellInfo | None

    def read(self, start: int = 1, stop: int | None = None) -> AsyncIterator[list[LogEntry]]:
        """Entries from `start` up to `stop`, by default the last there is now."""
        ...

    async def last_seq(self) -> int:
        """The position of the last entry."""
        ...

    def follow(self, start: int) -> AsyncIterator[list[LogEntry]]:
        """Entries from `start` on, without end; ends only for a file."""
        ...

    async def snapshots(self) -> "tuple[Log, Blobs] | None":
        """The log and its snapshots; None where there are none."""
        ...


class FileSource:
    """A log in a file."""

    info: CellInfo | None = None

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)
        first = next(read_log_file(path), None)
        try:
            self.cell = parse_log_subject(first.subject)[0] if first is not None else "main"
        except ValueError:
            self.cell = "main"

    async def read(self, start: int = 1, stop: int | None = None) -> AsyncIterator[list[LogEntry]]:
        """See `Source.read`."""
        batch: list[LogEntry] = []
        for entry in read_log_file(self._path):
            if entry.seq < start:
                continue
            if stop is not None and entry.seq > stop:
                break
            batch.append(entry)
            if len(batch) >= BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    async def last_seq(self) -> int:
        """See `Source.last_seq`."""
        return max((entry.seq for entry in read_log_file(self._path)), default=0)

    def follow(self, start: int) -> AsyncIterator[list[LogEntry]]:
        """See `Source.follow`: a file does not grow."""
        return self.read(start)

    async def snapshots(self) -> None:
        """See `Source.snapshots`: a file has none."""


class BrokerSource:
    """A log on a broker. `log` is for callers that read more of the broker than its entries."""

    def __init__(self, log: "JetStreamLog", *, name: str, cell: str, info: CellInfo | None) -> None:
        self.log = log
        self.name = name
        self.cell = cell
        self.info = info

    def read(self, start: int = 1, stop: int | None = None) -> AsyncIterator[list[LogEntry]]:
        """See `Source.read`."""
        return self.log.read(start, stop=stop)

    async def last_seq(self) -> int:
        """See `Source.last_seq`."""
        return await self.log.last_seq()

    async def follow(self, start: int) -> AsyncIterator[list[LogEntry]]:
        """See `Source.follow`."""
        async with self.log.tail(start) as tail:
            while True:
                yield await tail.receive()

    async def snapshots(self) -> "tuple[Log, Blobs] | None":
        """See `Source.snapshots`."""
        from headgate.adapters.jetstream.blobs import look_at_blobs

        blobs = await look_at_blobs(self.log.connection, self.cell)
        return None if blobs is None else (self.log, blobs)


@asynccontextmanager
async def open_source(options: SourceOptions) -> AsyncIterator[Source]:
    """
    The log selected by the options.

    Raises CliError when there is none; LogFileError for a file that is no log.
    """
    if options.log is not None:
        if options.nats is not None or options.data is not None:
            raise CliError("--log names a file, so leave out --nats and --data")
        yield FileSource(options.log)
        return
    async with AsyncExitStack() as stack:
        yield await _broker_source(stack, options)


async def _broker_source(stack: AsyncExitStack, options: SourceOptions) -> Source:
    from headgate.adapters.jetstream.permissions import READER

    broker = await _connected(stack, options, READER)
    return BrokerSource(
        await existing_log(broker), name=f"cell {broker.cell} at {broker.name}", cell=broker.cell, info=broker.info
    )


class Broker(NamedTuple):
    """A broker, and the selected cell on it. `info` is set for running cells of `headgate up`."""

    connection: "Connection"
    name: str
    cell: str
    info: CellInfo | None


@asynccontextmanager
async def open_broker(options: SourceOptions, *, stopped: bool = False, new_cell: str = "") -> AsyncIterator[Broker]:
    """
    The broker selected by the options, for commands that need more of it than its log. The cell need not exist.

    A data directory that holds no cell becomes that of `new_cell`, if one is named. With `stopped` the command is one
    that writes: it connects as the cell's admin, others as its reader.

    Raises CliError when there is no broker; with `stopped` also when a cell of `headgate up` is running there.
    """
    from headgate.adapters.jetstream.permissions import ADMIN, READER
    from headgate.adapters.jetstream.users import options_of

    async with AsyncExitStack() as stack:
        if new_cell and options.data is not None and read(options.data) is None:
            cell = options.cell or new_cell
            url = (await stack.enter_async_context(_server_in(options.data, cell, make_users=True))).url
            broker = await _dialled(stack, url, options_of(options.data / NATS_USERS, cell, ADMIN), cell, None)
        else:
            broker = await _connected(stack, options, ADMIN if stopped else READER)
        if stopped and broker.info is not None:
            raise CliError(
                f"cell {broker.cell} is running: stop `headgate up` (process {broker.info.pid}) first", FAILED
            )
        yield broker


async def _connected(stack: AsyncExitStack, options: SourceOptions, user: str) -> Broker:
    settings, is_named = nats_settings(options.nats)
    if is_named and options.data is None:
        cell = options.cell or "main"
        return await _dialled(stack, settings.url, settings.options(cell, user), cell, None)
    found = find(options.data, options.cell)
    cell, url = found.info.cell, found.info.nats_url
    if not found.running and found.info.embedded:
        url = (await stack.enter_async_context(_server_in(found.data, cell))).url
    info = found.info if found.running else None
    return await _dialled(stack, url, _options_of(found, settings, user), cell, info)


def _server_in(data: Path, cell: str, *, make_users: bool = False) -> "EmbeddedServer":
    """The broker of a stopped cell, with its users if it has any, or if they are to be created."""
    from headgate.adapters.jetstream.embedded import EmbeddedServer
    from headgate.adapters.jetstream.users import broker_configuration

    users = data / NATS_USERS
    has_users = make_users or users.is_dir()
    return EmbeddedServer(data / NATS_STORE, extra_config=broker_configuration(users, cell) if has_users else "")


def _options_of(found: Found, settings: "NatsSettings", user: str) -> "NatsOptions":
    """How a user connects to a cell of `headgate up`: by its key, or with the options given to `up`."""
    from headgate.adapters.jetstream.users import options_of

    users = found.data / NATS_USERS
    if found.info.embedded and users.is_dir():
        return options_of(users, found.info.cell, user)
    return msgspec.structs.replace(settings, **found.info.nats).options(found.info.cell, user)


async def _dialled(stack: AsyncExitStack, url: str, options: "NatsOptions", cell: str, info: CellInfo | None) -> Broker:
    from headgate.adapters.jetstream.options import without_secrets

    connection = await stack.enter_async_context(connected(url, options))
    return Broker(connection, without_secrets(url), cell, info)


@asynccontextmanager
async def connected(url: str, options: "NatsOptions") -> AsyncIterator["Connection"]:
    """
    A connection to a broker that is expected to exist.

    Raises CliError when it does not, with the reason; BrokerError when it refuses us.
    """
    from headgate.adapters.jetstream import DependencyHealth, connect
    from headgate.adapters.jetstream.options import without_secrets

    health, shown = DependencyHealth(), without_secrets(url)
    async with AsyncExitStack() as stack:
        try:
            with anyio.fail_after(CONNECT_TIMEOUT_S):
                connection = await stack.enter_async_context(
                    connect(url, name="headgate-cli", options=options, health=health)
                )
        except TimeoutError:
            trouble = next((each.error for each in health.dependencies() if not each.ok), "")
            raise CliError(f"no broker answers at {shown} ({trouble}): {HOW}") from None
        yield connection


async def existing_log(broker: Broker) -> "JetStreamLog":
    """The log of the cell. Readers never create one. Raises CliError when there is none."""
    from headgate.adapters.jetstream import open_log
    from headgate.adapters.jetstream.errors import STREAM_NOT_FOUND, JetStreamApiError
    from headgate.adapters.jetstream.stream import stream_info, stream_name

    try:
        with anyio.fail_after(CONNECT_TIMEOUT_S):
            await stream_info(broker.connection, stream_name(broker.cell))
            return await open_log(broker.connection, broker.cell, change=False)
    except TimeoutError:
        troubles = "; ".join(
            f"{each.name}: {each.error}" for each in broker.connection.health.dependencies() if not each.ok
        )
        raise CliError(f"the broker at {broker.name} does not answer about its streams ({troubles})") from None
    except JetStreamApiError as error:
        if error.err_code != STREAM_NOT_FOUND:
            raise
        raise CliError(
            f"the broker at {broker.name} has no cell {broker.cell!r}: name another with --cell, or {HOW}"
        ) from None


# --- reading -------------------------------------------------------------------------------------------------------

_AGO = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Until(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the range to read: a position, a time, or (both None) the end."""

    seq: int | None = None
    time_ms: int | None = None

    def includes(self, logged: LoggedCommit) -> bool:
        """Whether a commit is not beyond."""
        if self.seq is not None:
            return logged.seq <= self.seq
        return self.time_ms is None or logged.commit.time_ms <= self.time_ms


def parse_at(text: str | None) -> Until:
    """
    The position or time of `--at`: `812`, `812.3`, `2026-01-31T12:00:00Z` or `-5m`.

    Raises CliError.
    """
    if text is None:
        return Until()
    if position := re.fullmatch(r"(\d+)(\.\d+)?", text):
        return Until(seq=int(position[1]))
    if ago := _AGO.fullmatch(text):
        now_ms = int(datetime.now(UTC).timestamp() * 1000)
        return Until(time_ms=now_ms - int(float(ago[1]) * _UNIT_MS[ago[2]]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CliError(
            f"{text!r} is neither a position (812), a time (2026-01-31T12:00:00Z) nor a span ago (-5m)"
        ) from None
    return Until(time_ms=int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


async def commits(source: Source, until: Until = Until(), start: int = 1) -> AsyncIterator[LoggedCommit]:  # noqa: B008
    """The entries of a log, decoded, up to the requested end; the fold, or a `Gate`, decides which are refused."""
    async for entries in source.read(start, until.seq):
        for logged in decoded(entries):
            if not until.includes(logged):
                return
            yield logged


def decoded(entries: list[LogEntry]) -> Iterator[LoggedCommit]:
    """Entries as commits; the fold, or a `Gate`, decides which are refused."""
    return iter(anchored([decode_entry(entry.seq, entry.subject, entry.payload, entry.time_ms) for entry in entries]))
