"""`headgate rebuild`: give a lost log up, and let a new one begin with what the API server has."""

from typing import Annotated

import anyio
import msgspec
import typer

from headgate.cli import options
from headgate.cli.output import Output, emit, say
from headgate.cli.restore import Replicas, SetAside
from headgate.cli.source import open_broker

app = typer.Typer(add_completion=False)

_EPILOG = """\b
Examples:
  headgate rebuild                                      the broker has lost the log, and there is no backup
  headgate rebuild --set-aside lost.jsonl.gz            what is left of the log goes to a file
  headgate rebuild --nats nats://nats.example:4222 --cell main
Every process of the cell has to be stopped. When they start again, the bridge begins a new log with all that the API
server has: what runs keeps running and is charged; history, and what stood only in the log, is gone.
"""


class RebuildResult(msgspec.Struct, frozen=True, kw_only=True):
    """What `headgate rebuild` prints."""

    cell: str
    set_aside: int


@app.command(epilog=_EPILOG)
def rebuild(
    set_aside: SetAside = None,
    why: Annotated[str, typer.Option("--why", help="A note for the log.")] = "",
    replicas: Replicas = 1,
    output: options.OutputOption = Output.TABLE,
    data: options.Data = None,
    cell: options.Cell = None,
    nats: options.Nats = None,
) -> None:
    """Give the log of a cell up, and begin a new one from the API server."""
    where = options.SourceOptions(data=data, cell=cell, nats=nats)

    async def make_room() -> RebuildResult:
        from headgate.processes.recovery.restore import rebuild as begin_anew

        async with open_broker(where, stopped=True) as broker:
            done = await begin_anew(broker.connection, broker.cell, why=why, replicas=replicas, set_aside=set_aside)
            return RebuildResult(cell=broker.cell, set_aside=done.set_aside)

    answer = anyio.run(make_room)

    def tell() -> None:
        if answer.set_aside:
            say(f"{answer.set_aside} entries that were there are in {set_aside}")
        say(f"cell {answer.cell} has an empty log: start its processes, and it begins with what the API server has")

    emit(answer, output, tell)
