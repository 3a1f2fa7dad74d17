"""`headgate backup`: a cell's log and newest snapshot in a directory, consistent, verified and incremental."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import msgspec
import typer

from headgate.cli import options
from headgate.cli.output import CliError, Output, emit, say
from headgate.core.views.descriptions import format_time
from headgate.events.base import Producer
from headgate.events.ids import UnixMs

if TYPE_CHECKING:
    from headgate.adapters.backup import BackupManifest

app = typer.Typer(add_completion=False)

_EPILOG = """\b
Examples:
  headgate backup --out backups/main                     the cell that runs here; the first time all of it
  headgate backup --out backups/main                     again: only what is new
  headgate backup --out backups/main --verify            check what is there, without a broker
  headgate backup --out b --nats nats://nats.example:4222 --cell main
`headgate restore --from DIR` brings it back.
"""


class BackupResult(msgspec.Struct, frozen=True, kw_only=True):
    """What `headgate backup` prints. `added` entries are new, `folded` were read again and folded to check them."""

    directory: str
    cell: str
    backup: str
    first: int
    position: int
    created: str
    added: int
    folded: int
    snapshots: tuple[int, ...]


@app.command(epilog=_EPILOG)
def backup(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The directory of the backup.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Only read what is there, chain it and fold it. Needs no broker.")
    ] = False,
    output: options.OutputOption = Output.TABLE,
    data: options.Data = None,
    cell: options.Cell = None,
    nats: options.Nats = None,
) -> None:
    """Back a cell up while it runs: the log up to now, the newest snapshot, and a manifest of hashes."""
    if verify:
        answer = _verified(out)
        done = f"{answer.folded} entries read and folded: it is whole"
    else:
        answer = anyio.run(_back_up, options.SourceOptions(data=data, cell=cell, nats=nats), out)
        done = f"{answer.added} entries added, {answer.folded} read again and folded"
    emit(answer, output, lambda: say(f"backup {_described(answer)}: {done}"))


def _described(answer: BackupResult) -> str:
    span = f"positions {answer.first} to {answer.position}"
    return f"{answer.backup} of cell {answer.cell} in {answer.directory}, {span}, of {answer.created}"


def _verified(out: Path) -> BackupResult:
    from headgate.adapters.backup import BackupDirectory
    from headgate.processes.recovery.backup import verify

    if not out.is_dir():
        raise CliError(f"--out {out}: there is no such directory")
    checked = verify(BackupDirectory(out))
    return _answer(out, checked.manifest, added=0, folded=checked.folded)


async def _back_up(where: options.SourceOptions, out: Path) -> BackupResult:
    from headgate.adapters.backup import BackupDirectory
    from headgate.adapters.jetstream.blobs import look_at_blobs
    from headgate.adapters.jetstream.lease import lease_epochs
    from headgate.cli.source import existing_log, open_broker
    from headgate.processes.recovery.backup import back_up

    async with open_broker(where) as broker:
        done = await back_up(
            await existing_log(broker),
            await look_at_blobs(broker.connection, broker.cell),
            broker.cell,
            BackupDirectory(out),
            epochs=await lease_epochs(broker.connection, broker.cell, tuple(each.value for each in Producer)),
            now_ms=time.time_ns() // 1_000_000,
        )
    return _answer(out, done.manifest, added=done.added, folded=done.folded)


def _answer(out: Path, manifest: "BackupManifest", *, added: int, folded: int) -> BackupResult:
    return BackupResult(
        directory=str(out),
        cell=manifest.cell,
        backup=manifest.id,
        first=manifest.first,
        position=manifest.position,
        created=format_time(UnixMs(manifest.created_ms)),
        added=added,
        folded=folded,
        snapshots=tuple(each.position for each in manifest.snapshots),
    )
