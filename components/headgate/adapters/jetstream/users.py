"""
The users of a cell as files: an NKEY seed for each, the public keys for the broker; and the streams, made by the admin.

`make_users` keeps one directory that only its owner can read: `<user>.nk` with the seed, and `public.json` with the
public keys by user, which is not secret. Existing keys are kept, so that it can be called at each start.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from headgate.adapters.jetstream.connection import Connection
from headgate.adapters.jetstream.errors import BrokerError
from headgate.adapters.jetstream.nkeys import UserKey, read_seed_file
from headgate.adapters.jetstream.options import NatsOptions
from headgate.adapters.jetstream.permissions import NAMES, configuration, inbox_prefix, users_of
from headgate.adapters.jetstream.stream import (
    StreamStatus,
    ensure_stream,
    feed_stream,
    former_log_subjects,
    lease_stream,
    log_stream,
    snapshot_stream,
)
from headgate.adapters.private import FOLDER_MODE, write_private

PUBLIC: Final = "public.json"


def seed_file(directory: Path, name: str) -> Path:
    """The path of a user's seed."""
    return directory / f"{name}.nk"


def make_users(directory: Path, names: Iterable[str] = NAMES) -> dict[str, str]:
    """
    The public keys of the users, by name; a key pair is generated for each that has none yet.

    :raises BrokerError: a seed file exists and is invalid.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
    public = {}
    for name in names:
        path = seed_file(directory, name)
        if not path.exists():
            write_private(path, UserKey.generate().seed + "\n")
        public[name] = read_seed_file(str(path)).public
    (directory / PUBLIC).write_bytes(msgspec.json.format(msgspec.json.encode(public)) + b"\n")
    return public


def read_public(path: Path) -> dict[str, str]:
    """
    The public keys by user, from `public.json` or the directory that holds it.

    :raises BrokerError: it cannot be read, or lacks a user.
    """
    file = path / PUBLIC if path.is_dir() else path
    try:
        public = msgspec.json.decode(file.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError) as error:
        raise BrokerError(f"{file} cannot be read: {error}; `headgate nats users --out DIR` makes it") from error
    missing = [name for name in NAMES if name not in public]
    if missing:
        raise BrokerError(f"{file} has no key for {', '.join(missing)}; `headgate nats users --out DIR` adds them")
    return public


def options_of(directory: Path, cell: str, name: str) -> NatsOptions:
    """The connection options of a user of this directory."""
    return NatsOptions(nkey_seed_file=str(seed_file(directory, name)), inbox_prefix=inbox_prefix(cell, name))


def broker_configuration(directory: Path, cell: str, *, extra: str = "") -> str:
    """The part of a NATS configuration with the users of this directory, which are created if they are missing."""
    return configuration(users_of(cell), make_users(directory), extra=extra)


async def make_streams(connection: Connection, cell: str, *, replicas: int = 1) -> list[StreamStatus]:
    """
    Create the cell's missing streams, and narrow a log of an earlier version; for a user with the permission.

    :raises StreamMismatch: one exists and cannot be used.
    """
    wanted = (log_stream, feed_stream, lease_stream, snapshot_stream)
    former = {log_stream: former_log_subjects(cell)}
    return [
        await ensure_stream(connection, stream(cell, replicas=replicas), may_wait=False, former=former.get(stream, ()))
        for stream in wanted
    ]
