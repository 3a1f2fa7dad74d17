"""`headgate nats`: the users of a cell on the broker, what each may do, and the streams that they use."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import anyio
import typer

from headgate.cli import options
from headgate.cli.output import CliError, Output, emit, say
from headgate.events.subjects import check_cell

_EPILOG = """\b
Examples:
  headgate nats users --out nats-users               an NKEY for each process, a reader, the feed, an admin
  headgate nats permissions --users nats-users       what each may do, as nats-server's configuration
  headgate nats setup --nats URL --nats-nkey nats-users/admin.nk     make the streams, once
"""

app = typer.Typer(
    name="nats",
    add_completion=False,
    no_args_is_help=True,
    help="Prepare a broker: users, permissions, streams.",
    epilog=_EPILOG,
)

_PERMISSIONS = """\b
Examples:
  headgate nats permissions                          users with passwords, taken from nats-server's environment
  headgate nats permissions --users nats-users       users with the NKEYs that `headgate nats users` has made
  headgate nats permissions --cell a -o json         the same for tools
Put the block into nats-server's configuration, or its users into an account there. Each process then connects as its
own user: HEADGATE_NATS_NKEY_SEED_FILE=nats-users/scheduler.nk headgate run scheduler
"""
_USERS = """\b
Examples:
  headgate nats users --out nats-users               one NKEY seed for each user; what is there stays
"""
_SETUP = """\b
Examples:
  headgate nats setup --nats nats://nats:4222 --nats-nkey nats-users/admin.nk --replicas 3
"""

CellName = Annotated[str, typer.Option("--cell", metavar="NAME", help="The cell's name.", envvar="HEADGATE_CELL")]


USERS_CONF = "users.conf"


class Form(StrEnum):
    """What `-o` takes."""

    CONF = "conf"
    JSON = "json"


@app.command(epilog=_PERMISSIONS)
def permissions(
    cell: CellName = "main",
    form: Annotated[Form, typer.Option("-o", "--form", "--output", help="How to print.")] = Form.CONF,
    users: Annotated[
        Path | None, typer.Option("--users", metavar="DIR|FILE", help="Public keys made by `headgate nats users`.")
    ] = None,
    domain: Annotated[
        str, typer.Option("--domain", metavar="NAME", help="The JetStream domain that clients name, if they do.")
    ] = "",
) -> None:
    """Print what each process, a reader, a subscriber of the feed and an admin may do on the broker, and no more."""
    from headgate.adapters.jetstream.permissions import configuration, users_of
    from headgate.adapters.jetstream.users import read_public

    _check(cell)
    table = users_of(cell, domain=domain)
    keys = read_public(users) if users is not None else None
    if form is Form.JSON:
        rows = [{"user": each, **({"nkey": keys[each.name]} if keys else {})} for each in table]
        emit(rows, Output.JSON, lambda: None)
    else:
        sys.stdout.write(configuration(table, keys))


@app.command(epilog=_USERS)
def users(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the seeds go, readable by you alone.")],
    cell: CellName = "main",
) -> None:
    """
    Make an NKEY for each user of a cell, and what the broker has to know of them.

    DIR/<user>.nk holds a seed, DIR/public.json the public keys, DIR/users.conf the permissions for nats-server.
    """
    from headgate.adapters.jetstream.users import broker_configuration

    _check(cell)
    configuration = broker_configuration(out, cell)
    (out / USERS_CONF).write_text(configuration)
    say(f"{out}: give each process its own .nk file, and the broker {USERS_CONF}, which holds no secret")


@app.command(epilog=_SETUP)
def setup(
    nats: options.Nats = None,
    cell: CellName = "main",
    replicas: Annotated[
        int | None, typer.Option("--replicas", metavar="N", min=1, max=5, help="Of streams that are made now.")
    ] = None,
) -> None:
    """
    Make the cell's four streams on a broker, as its admin.

    Those that are there stay as they are, but that the log of an earlier version is narrowed to its six subjects.
    """
    anyio.run(_setup, nats, cell, replicas)


async def _setup(url: str | None, cell: str, replicas: int | None) -> None:
    from headgate.adapters.jetstream.permissions import ADMIN
    from headgate.adapters.jetstream.users import make_streams
    from headgate.cli.broker import nats_settings
    from headgate.cli.source import connected

    settings, _ = nats_settings(url)
    async with connected(settings.url, settings.options(cell, ADMIN)) as connection:
        statuses = await make_streams(connection, cell, replicas=replicas or settings.replicas)
    for status in statuses:
        state = status.info.state
        say(f"{status.info.config.name}: {state.messages} messages, {status.info.config.num_replicas} replica(s)")
        for warning in status.warnings:
            say(f"  {warning}")


def _check(cell: str) -> None:
    try:
        check_cell(cell)
    except ValueError as error:
        raise CliError(str(error)) from error
