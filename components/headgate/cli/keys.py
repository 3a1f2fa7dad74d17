"""`headgate keys`: the keys that processes sign their commits with."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli import options
from headgate.cli.output import CliError, Output, emit, print_table, say
from headgate.events.identity import Keys
from headgate.processes.runtime import signing_keys as files
from headgate.processes.runtime.settings import SettingsError

_EPILOG = """\b
Examples:
  headgate keys generate --out keys      a private key for each process, and public.json for all of them
  HEADGATE_KEYS_PRIVATE=keys/scheduler.key HEADGATE_KEYS_PUBLIC=keys/public.json headgate run scheduler
  headgate keys rotate --out keys        new keys beside the old ones; restart the informer bridge, then the others
  headgate keys rotate --out keys --finish       forget the old ones; restart the informer bridge
"""

app = typer.Typer(
    name="keys",
    add_completion=False,
    no_args_is_help=True,
    help="Make and rotate the keys that processes sign their commits with.",
    epilog=_EPILOG,
)

Folder = Annotated[Path, typer.Option("--out", "--dir", metavar="DIR", help="Where the keys are.")]


@app.command()
def generate(out: Folder) -> None:
    """Make a private key for each process, DIR/<process>.key, readable by you alone, and DIR/public.json."""
    keys = _done(lambda: files.generate(out), out)
    say(f"{out}: keys of {len(keys)} processes; give each process its own .key file, and all of them {files.PUBLIC}")


@app.command()
def rotate(
    out: Folder,
    finish: Annotated[
        bool, typer.Option("--finish", help="Forget the old keys, once the new ones are in use.")
    ] = False,
) -> None:
    """Give every process a new key beside the one that it has; with --finish forget the old ones."""
    if not (out / files.PUBLIC).exists():
        raise CliError(f"{out} has no {files.PUBLIC}: `headgate keys generate --out {out}` makes keys")
    _done(lambda: files.finish(out) if finish else files.rotate(out), out)
    if finish:
        say(f"{out}: the old keys are removed; restart the informer bridge, which takes them out of the log")
    else:
        say(f"{out}: restart the informer bridge, which puts the new keys into the log, and then the others; when all")
        say(f"have their new file, `headgate keys rotate --out {out} --finish`")


@app.command()
def show(out: Folder, output: options.OutputOption = Output.TABLE) -> None:
    """Show the public keys in a folder. Those that the log knows are in `headgate state identity`."""
    keys = _done(lambda: files.read_public(out / files.PUBLIC), out)
    rows = [
        (name, key, "yes" if files.private_file(out, name).exists() else "no")
        for name, each in keys.items()
        for key in each
    ]
    emit(keys, output, lambda: print_table(("PROCESS", "PUBLIC KEY", "PRIVATE FILE HERE"), rows))


def _done(action: Callable[[], Keys], folder: Path) -> Keys:
    try:
        return action()
    except SettingsError as error:
        raise CliError(str(error)) from None
    except (OSError, ValueError) as error:
        raise CliError(f"{folder}: {getattr(error, 'strerror', None) or error}") from None
