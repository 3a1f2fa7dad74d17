"""`headgate restore`: bring a cell back from a backup."""

from pathlib import Path
from typing import Annotated

import anyio
import msgspec
import typer

from headgate.cli import options
from headgate.cli.output import Output, emit, say

app = typer.Typer(add_completion=False)

_EPILOG = """\b
Examples:
  headgate restore --from backups/main                              into the broker of the cell of this directory
  headgate restore --from b --nats nats://nats.example:4222         into a broker of yours
  headgate restore --from b --set-aside lost.jsonl.gz               and a damaged log that is there goes to a file
Every process of the cell has to be stopped. When they start again the log goes on behind the backup; what the cluster
has done since is taken over from its API server: what runs keeps running.
"""

SetAside = Annotated[
    Path | None,
    typer.Option(
        "--set-aside", metavar="FILE", help="Write a log that is there to FILE (.jsonl.gz), and take its place."
    ),
]
Replicas = Annotated[int, typer.Option("--replicas", min=1, help="How many servers of a NATS cluster keep the log.")]


class RestoreResult(msgspec.Struct, frozen=True, kw_only=True):
    """What `headgate restore` prints. `epochs` are those above which the next terms are."""

    cell: str
    backup: str
    first: int
    position: int
    snapshots: tuple[int, ...]
    epochs: dict[str, int]
    set_aside: int


@app.command(epilog=_EPILOG)
def restore(
    source: Annotated[Path, typer.Option("--from", metavar="DIR", help="The backup (`headgate backup --out DIR`).")],
    set_aside: SetAside = None,
    replicas: Replicas = 1,
    output: options.OutputOption = Output.TABLE,
    data: options.Data = None,
    cell: options.Cell = None,
    nats: options.Nats = None,
) -> None:
    """Bring a cell back from a backup, into a broker that has no log of it."""
    where = options.SourceOptions(data=data, cell=cell, nats=nats)
    answer = anyio.run(_restore, where, source, set_aside, replicas)
    emit(answer, output, lambda: _tell(answer, set_aside))


def _tell(answer: RestoreResult, set_aside: Path | None) -> None:
    if answer.set_aside:
        say(f"{answer.set_aside} entries that were there are in {set_aside}")
    say(
        f"cell {answer.cell} has its log back, positions {answer.first} to {answer.position} (backup {answer.backup}): "
        "start its processes"
    )


async def _restore(where: options.SourceOptions, source: Path, set_aside: Path | None, replicas: int) -> RestoreResult:
    from headgate.adapters.backup import BackupDirectory
    from headgate.cli.source import open_broker
    from headgate.processes.recovery.restore import restore as bring_back

    directory = BackupDirectory(source)
    manifest = directory.need_manifest()
    if where.cell is None and where.nats is not None:
        # A broker may have many cells; the backup names its own.
        where = msgspec.structs.replace(where, cell=manifest.cell)
    async with open_broker(where, stopped=True, new_cell=manifest.cell) as broker:
        done = await bring_back(broker.connection, broker.cell, directory, replicas=replicas, set_aside=set_aside)
    return RestoreResult(
        cell=manifest.cell,
        backup=manifest.id,
        first=manifest.first,
        position=manifest.position,
        snapshots=done.snapshots,
        epochs=done.epochs,
        set_aside=done.set_aside,
    )
