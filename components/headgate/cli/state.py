"""`headgate state`: everything the log says, as it stood at any position or time."""

from typing import Annotated

import anyio
import typer

from headgate.cli import options
from headgate.cli.folding import state_at
from headgate.cli.output import CliError, Output, emit, print_table
from headgate.cli.source import open_source, parse_at
from headgate.core import fold
from headgate.core.state.tables import State
from headgate.core.views.descriptions import describe_configuration, format_time

app = typer.Typer(add_completion=False)

_EPILOG = """\b
Examples:
  headgate state                               the number of rows of each table
  headgate state --table workloads -o yaml     one table as it is
  headgate state --at 812 --hash               the hash of the state at position 812
"""
TABLES = fold.TABLES


@app.command(epilog=_EPILOG)
def state(
    at: options.At = None,
    table: Annotated[str | None, typer.Option("--table", metavar="TABLE", help="Only this table.")] = None,
    only_hash: Annotated[bool, typer.Option("--hash", help="Only the hash of the canonical state.")] = False,
    output: options.OutputOption = Output.TABLE,
    data: options.Data = None,
    cell: options.Cell = None,
    nats: options.Nats = None,
    log: options.LogFile = None,
) -> None:
    """Show the state at any position or time, folded from the log."""
    if table is not None and table not in TABLES:
        raise CliError(f"there is no table {table!r}; there are {', '.join(TABLES)}")
    where = options.SourceOptions(data=data, cell=cell, nats=nats, log=log)
    folded = anyio.run(_state, where, at)
    if only_hash:
        answer = {"position": folded.position, "stateHash": fold.state_hash(folded), "logHash": folded.log_hash}
        emit(answer, output, lambda: print(f"{folded.position} {fold.state_hash(folded)}"))
        return
    if table is not None:
        rows = getattr(folded, table)
        # A table has no rows and columns of its own kind for people; YAML shows it whole.
        emit(rows, Output.YAML if output is Output.TABLE else output, lambda: None)
        return
    emit(fold.tables(folded), output, lambda: _overview(folded))


async def _state(where: options.SourceOptions, at: str | None) -> State:
    async with open_source(where) as source:
        return await state_at(source, parse_at(at))


def _overview(folded: State) -> None:
    rows = []
    for name in TABLES:
        value = getattr(folded, name)
        if isinstance(value, dict):
            rows.append((name, str(len(value))))
        elif name == "log_hashes":
            continue
        elif name == "now_ms":
            rows.append((name, f"{value} ({format_time(value)})"))
        elif name == "configuration":
            rows.append((name, describe_configuration(value)))
        elif name != "snapshot" or value is not None:
            rows.append((name, str(value) if name != "snapshot" else f"{value.name} at position {value.position}"))
    rows.append(("state_hash", fold.state_hash(folded)))
    print_table(("TABLE", "HOLDS"), rows)
