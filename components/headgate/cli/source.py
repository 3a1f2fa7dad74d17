"""
Where reading commands get a log from: a running cell, a stopped one, any broker, or a file.

`open_source` finds it (see `headgate.cli.cell`) and gives a `Source`, which reads entries in order, from any position,
as often as asked. A stopped cell's store is read by starting its broker for as long as the command runs. Readers never
create or change a stream.
"""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import anyio
import msgspec

from headgate.adapters.log import Entry
from headgate.adapters.logfile import read_log_file
from headgate.cli.cell import HOW, NATS_STORE, CellInfo, find, read
from headgate.cli.options import SourceOptions
from headgate.cli.output import FAILED, CliError
from headgate.core import fold
from headgate.core.state import State
from headgate.events.commit import LoggedCommit, decode_commit
from headgate.events.subjects import parse_log_subject

if TYPE_CHECKING:
    from headgate.adapters.jetstream import Connection
    from headgate.adapters.jetstream.embedded import EmbeddedServer
    from headgate.adapters.jetstream.jetstream_log import JetStreamLog

CONNECT_TIMEOUT_S = 5.0
BATCH = 2000
"""Entries read from a file at a time."""


class Source(Protocol):
    """A log to read. `name` is for people; `info` is known of cells of `headgate up`."""

    name: str
    cell: str
    info: CellInfo | None

    def read(self, start: int = 1, stop: int | None = None) -> AsyncIterator[list[Entry]]:
        """Entries from `start` up to `stop`, by default the last there is now."""
        ...

    async def last_seq(self) -> int:
        """The position of the last entry."""
        ...

    def follow(self, start: int) -> AsyncIterator[list[Entry]]:
        """Entries from `start` on, for ever; ends only for a file."""
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

    async def read(self, start: int = 1, stop: int | None = None) -> AsyncIterator[list[Entry]]:
        """See `Source.read`."""
        batch: list[Entry] = []
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

    def follow(self, start: int) -> AsyncIterator[list[Entry]]:
        """See `Source.follow`: a file does not grow."""
        return self.read(start)


class BrokerSource:
    """A log on a broker. `log` is for who looks at more of the broker than its entries."""

    def __init__(self, log: "JetStreamLog", *, name: str, cell: str, info: CellInfo | None) -> None:
        self.log = log
        self.name = name
        self.cell = cell
        self.info = info

    def read(self, start: int = 1, stop: int | None = None) -> AsyncIterator[list[Entry]]:
        """See `Source.read`."""
        return self.log.read(start, stop=stop)

    async def last_seq(self) -> int:
        """See `Source.last_seq`."""
        return await self.log.last_seq()

    async def follow(self, start: int) -> AsyncIterator[list[Entry]]:
        """See `Source.follow`."""
        async with self.log.tail(start) as tail:
            while True:
                yield await tail.receive()


@asynccontextmanager
async def open_source(options: SourceOptions) -> AsyncIterator[Source]:
    """
    The log that the options mean.

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
    broker = await _connected(stack, options)
    return BrokerSource(
        await existing_log(broker), name=f"cell {broker.cell} at {broker.name}", cell=broker.cell, info=broker.info
    )


class Broker(NamedTuple):
    """A broker to talk to, and the cell on it that is meant. `info` is known of running cells of `headgate up`."""

    connection: "Connection"
    name: str
    cell: str
    info: CellInfo | None


@asynccontextmanager
async def open_broker(options: SourceOptions, *, stopped: bool = False, new_cell: str = "") -> AsyncIterator[Broker]:
    """
    The broker that the options mean, for commands that need more of it than its log. The cell need not exist.

    A data directory that holds no cell becomes that of `new_cell`, if one is named. Raises CliError when there is no
    broker; with `stopped` also when a cell of `headgate up` is running there.
    """
    async with AsyncExitStack() as stack:
        if new_cell and options.data is not None and read(options.data) is None:
            url = (await stack.enter_async_context(_server_in(options.data))).url
            broker = await _dialled(stack, url, options.cell or new_cell, None)
        else:
            broker = await _connected(stack, options)
        if stopped and broker.info is not None:
            raise CliError(
                f"cell {broker.cell} is running: stop `headgate up` (process {broker.info.pid}) first", FAILED
            )
        yield broker


async def _connected(stack: AsyncExitStack, options: SourceOptions) -> Broker:
    if options.nats is not None and options.data is None:
        return await _dialled(stack, options.nats, options.cell or "main", None)
    found = find(options.data, options.cell)
    url = found.info.nats_url
    if not found.running and found.info.embedded:
        url = (await stack.enter_async_context(_server_in(found.data))).url
    return await _dialled(stack, url, found.info.cell, found.info if found.running else None)


def _server_in(data: Path) -> "EmbeddedServer":
    """The broker of a stopped cell."""
    from headgate.adapters.jetstream.embedded import EmbeddedServer

    return EmbeddedServer(data / NATS_STORE)


async def _dialled(stack: AsyncExitStack, url: str, cell: str, info: CellInfo | None) -> Broker:
    from headgate.adapters.jetstream import connect

    shown = re.sub(r"//[^@/]*@", "//", url)
    try:
        with anyio.fail_after(CONNECT_TIMEOUT_S):
            connection = await stack.enter_async_context(connect(url, name="headgate-cli"))
    except TimeoutError:
        raise CliError(f"no broker answers at {shown}: {HOW}") from None
    return Broker(connection, shown, cell, info)


async def existing_log(broker: Broker) -> "JetStreamLog":
    """The log of the cell. Readers never create one. Raises CliError when there is none."""
    from headgate.adapters.jetstream import open_log
    from headgate.adapters.jetstream.errors import STREAM_NOT_FOUND, Refused
    from headgate.adapters.jetstream.stream import stream_info, stream_name

    try:
        with anyio.fail_after(CONNECT_TIMEOUT_S):
            await stream_info(broker.connection, stream_name(broker.cell))
            return await open_log(broker.connection, broker.cell)
    except TimeoutError:
        raise CliError(f"no broker answers at {broker.name}: {HOW}") from None
    except Refused as error:
        if error.err_code != STREAM_NOT_FOUND:
            raise
        raise CliError(
            f"the broker at {broker.name} has no cell {broker.cell!r}: name another with --cell, or {HOW}"
        ) from None


# --- reading -------------------------------------------------------------------------------------------------------

_AGO = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Until(msgspec.Struct, frozen=True, kw_only=True):
    """Up to where to read: a position, a time, or (both None) the end."""

    seq: int | None = None
    time_ms: int | None = None

    def includes(self, logged: LoggedCommit) -> bool:
        """Whether a commit is not beyond."""
        if self.seq is not None:
            return logged.seq <= self.seq
        return self.time_ms is None or logged.commit.time_ms <= self.time_ms


def parse_at(text: str | None) -> Until:
    """
    What `--at` means: `812`, `812.3`, `2026-01-31T12:00:00Z` or `-5m`.

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
    """
    The commits of a log, decoded, up to where they are wanted.

    Raises UnreadableCommitError.
    """
    async for entries in source.read(start, until.seq):
        for logged in decoded(entries):
            if not until.includes(logged):
                return
            yield logged


def decoded(entries: list[Entry]) -> Iterator[LoggedCommit]:
    """Entries as commits. Raises UnreadableCommitError."""
    return (decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms) for entry in entries)


async def state_at(source: Source, until: Until = Until()) -> State:  # noqa: B008 - frozen
    """
    The state of a log at a position or time: everything before it, folded.

    Raises what the fold raises.
    """
    state = fold.new_state(source.cell)
    async for logged in commits(source, until):
        fold.apply(state, logged)
    return state
