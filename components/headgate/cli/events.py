"""`headgate events`: the log's events, as a list, as a stream, or as a file."""

import fnmatch
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import anyio
import msgspec
import typer

from headgate.cli import options
from headgate.cli.output import CliError, Output, console, emit_one, say
from headgate.cli.source import Source, commits, decoded, open_source, parse_at
from headgate.core.log.refusal import CommitFilter
from headgate.core.views.descriptions import format_time
from headgate.events.base import Producer, tag_of
from headgate.events.commit import LoggedCommit, Position
from headgate.events.ids import UnixMs
from headgate.events.registry import TAGS, Event
from headgate.events.subjects import place_of, subject_key

app = typer.Typer(add_completion=False)

SUMMARY_CHARS = 160
_EPILOG = """\b
Examples:
  headgate events --type 'workload.*' -n team-a     one team's workloads
  headgate events --follow -o json                  everything from now on, a JSON object a line
  headgate events --from 812 --producer scheduler   the scheduler's decisions from position 812 on
  headgate events --export run.jsonl.gz             the log in a file that every reading command opens
"""


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The event filter. Empty parts match all."""

    types: tuple[str, ...] = ()
    namespace: str = ""
    producer: str = ""

    def has(self, logged: LoggedCommit, event: Event) -> bool:
        """Whether an event matches."""
        if self.producer and logged.commit.producer.value != self.producer:
            return False
        if self.types and not any(fnmatch.fnmatchcase(tag_of(event), glob) for glob in self.types):
            return False
        return not self.namespace or place_of(subject_key(event))[0] == self.namespace


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its envelope, as `-o json` prints it."""

    position: str
    time: str
    producer: str
    epoch: int
    event: Event


@app.command(epilog=_EPILOG)
def events(
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as the log grows.")] = False,
    start: Annotated[
        int | None, typer.Option("--from", metavar="POSITION", min=1, help="Begin there: at 1, or now with --follow.")
    ] = None,
    at: options.At = None,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="GLOB", help="Only these types, e.g. 'workload.*'.")
    ] = None,
    namespace: options.Namespace = "",
    producer: Annotated[Producer | None, typer.Option("--producer", help="Only what this process appended.")] = None,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Write the whole log to a file (.jsonl.gz).")
    ] = None,
    output: options.OutputOption = Output.TABLE,
    data: options.Data = None,
    cell: options.Cell = None,
    nats: options.Nats = None,
    log: options.LogFile = None,
) -> None:
    """Show the log's events, follow them, or export the log."""
    where = options.SourceOptions(data=data, cell=cell, nats=nats, log=log)
    if export is not None:
        if follow or types or namespace or producer is not None or start is not None:
            raise CliError("--export writes the whole log: leave out --follow, --from, --type, -n and --producer")
        anyio.run(_export, where, export, at)
        return
    for glob in types or ():
        if not fnmatch.filter(TAGS, glob):
            raise CliError(f"no event type matches {glob!r}: types are {', '.join(sorted(TAGS))}")
    wanted = EventFilter(
        types=tuple(types or ()), namespace=namespace, producer=producer.value if producer is not None else ""
    )
    try:
        anyio.run(_print, where, wanted, start, at, follow, output)
    except KeyboardInterrupt:
        # Interrupting is the way to end a follow.
        if not follow:
            raise


async def _export(where: options.SourceOptions, path: Path, at: str | None) -> None:
    from headgate.adapters.logfile import LogFileWriter

    until = parse_at(at)
    async with open_source(where) as source:
        with LogFileWriter(path) as writer:
            async for entries in source.read(1, until.seq):
                if until.time_ms is None:
                    writer.write(entries)
                    continue
                wanted = [entry for entry, each in zip(entries, decoded(entries), strict=True) if until.includes(each)]
                writer.write(wanted)
                if len(wanted) < len(entries):
                    break
        say(f"wrote {writer.entries} commits of {source.name} to {path}")


async def _print(
    where: options.SourceOptions, wanted: EventFilter, start: int | None, at: str | None, follow: bool, output: Output
) -> None:
    async with open_source(where) as source:
        if start is not None and start > (last := await source.last_seq()) + 1:
            raise CliError(f"the log of {source.name} ends at position {last}: --from {start} lies behind its end")
        if follow:
            await _follow(source, wanted, start, output)
            return
        out = console() if output is Output.TABLE else None
        gate = await _gate_at(source, start or 1)
        async for logged in commits(source, parse_at(at), start or 1):
            _show(logged, gate, wanted, output, out)


async def _gate_at(source: Source, start: int) -> CommitFilter:
    """The gate for refused entries from a position on: it has the keys valid there, and the entries before."""
    gate = CommitFilter(source.cell)
    if start > 1:
        async for entries in source.read(1, start - 1):
            for logged in decoded(entries):
                gate.admits(logged)
    return gate


async def _follow(source: Source, wanted: EventFilter, start: int | None, output: Output) -> None:
    out = console() if output is Output.TABLE else None
    first = start if start is not None else await source.last_seq() + 1
    gate = await _gate_at(source, first)
    async for entries in source.follow(first):
        for logged in decoded(entries):
            _show(logged, gate, wanted, output, out)


def _show(logged: LoggedCommit, gate: CommitFilter, wanted: EventFilter, output: Output, out: Any) -> None:
    if why := gate.objection(logged):
        if out is not None and wanted == EventFilter():
            out.print(_refused(logged, why))
        return
    for position, event in _numbered(logged):
        if not wanted.has(logged, event):
            continue
        if out is None:
            emit_one(shown(logged, position, event), output)
        else:
            out.print(_line(logged, position, event))


def _numbered(logged: LoggedCommit) -> Iterator[tuple[Position, Event]]:
    return ((Position(logged.seq, index), event) for index, event in enumerate(logged.commit.events))


def shown(logged: LoggedCommit, position: Position, event: Event) -> Shown:
    """An event with its envelope."""
    return Shown(
        position=str(position),
        time=format_time(UnixMs(logged.commit.time_ms)),
        producer=logged.commit.producer.value,
        epoch=logged.commit.epoch,
        event=event,
    )


def _line(logged: LoggedCommit, position: Position, event: Event) -> str:
    from rich.markup import escape

    return (
        f"[cyan]{position!s:>9}[/cyan] [dim]{format_time(logged.commit.time_ms)}[/dim] "
        f"{logged.commit.producer.value:<15} [bold]{tag_of(event):<26}[/bold] {escape(summary(event))}"
    )


def _refused(logged: LoggedCommit, why: str) -> str:
    from rich.markup import escape

    return f"[cyan]{logged.seq:>9}[/cyan] [yellow]refused[/yellow] {escape(why)}"


def summary(event: Event) -> str:
    """An event in one line: its object, then its fields, as far as they fit."""
    from headgate.core.state import sharing

    key = subject_key(event)
    body = msgspec.to_builtins(event, enc_hook=sharing.plain)
    fields = (f"{name}={_short(value)}" for name, value in body.items() if name not in ("type", "uid") and value != key)
    text = " ".join((key, *fields)).strip()
    return text if len(text) <= SUMMARY_CHARS else text[: SUMMARY_CHARS - 1] + "…"


def _short(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
