"""Options that several commands share, so that their names and help are the same."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from headgate.cli import completion
from headgate.cli.output import Output

_SOURCE = "Which log"

Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="The cell's data directory: ./.headgate/* if left out.", rich_help_panel=_SOURCE
    ),
]
Cell = Annotated[
    str | None,
    typer.Option("--cell", metavar="NAME", help="The cell's name.", rich_help_panel=_SOURCE, envvar="HEADGATE_CELL"),
]
Nats = Annotated[
    str | None,
    typer.Option("--nats", metavar="URL", help="The broker.", rich_help_panel=_SOURCE, envvar="NATS_URL"),
]
LogFile = Annotated[
    Path | None,
    typer.Option("--log", metavar="FILE", help="An exported or simulated log to read.", rich_help_panel=_SOURCE),
]
ClusterKubeconfig = Annotated[str | None, typer.Option("--kubeconfig", metavar="FILE", help="Another cluster's.")]
ClusterData = Annotated[Path | None, typer.Option("--data", metavar="DIR", help="The cell's data directory.")]
ClusterCell = Annotated[
    str | None, typer.Option("--cell", metavar="NAME", help="The cell's name.", envvar="HEADGATE_CELL")
]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="How to print.")]
Namespace = Annotated[
    str, typer.Option("-n", "--namespace", metavar="NS", help="The namespace.", autocompletion=completion.namespaces)
]
At = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="POSITION|TIME", help="As of a position (812), a time (2026-01-31T12:00:00Z) or ago (-5m)."
    ),
]


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which log a command reads."""

    data: Path | None = None
    cell: str | None = None
    nats: str | None = None
    log: Path | None = None
