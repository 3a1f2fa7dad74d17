"""
Permissions on the broker: one NATS user for each process, for readers, for subscribers of the feed, and an admin.

`users_of` is the table; `headgate nats permissions` prints it as a NATS configuration, and the embedded broker, the
manifests and the tests use the same text. Each user gets the subjects that it uses and no others: the subject of its
own commits and of its own lease, the requests of the JetStream API about the cell's own streams, and an inbox that no
other user may subscribe to (`inbox_prefix`). None of the six may create, change, purge or delete a stream, except that
the snapshotter removes old snapshots; the admin creates streams (`headgate nats setup`).

NATS permissions cannot restrict which entries of a stream a user may read, or where a consumer delivers: a user who may
read the log can read all of it. deploy/SECURITY.md describes the consequences.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from headgate.adapters.jetstream.stream import stream_name, token
from headgate.events.base import Producer

ADMIN: Final = "admin"
READER: Final = "reader"
FEED: Final = "feed"
PROCESSES: Final = tuple(producer.value for producer in Producer)
NAMES: Final = (*PROCESSES, READER, FEED, ADMIN)
"""All users of a cell."""


class NatsUser(Struct, frozen=True, kw_only=True):
    """
    One user: what it may publish on and subscribe to. `deny_subscribe` is subtracted from the latter.

    `name` is the user's name in a cell, `login` on the broker, which users of several cells may share.
    """

    name: str
    login: str
    about: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    deny_subscribe: tuple[str, ...] = ()


def login_of(cell: str, name: str) -> str:
    """The user's name on the broker."""
    return f"headgate-{token(cell)}-{name}"


def inbox_prefix(cell: str, name: str) -> str:
    """The prefix of a user's inboxes, which no other user may subscribe to."""
    return f"_INBOX_headgate_{token(cell)}_{name}"


def users_of(cell: str, *, domain: str = "") -> tuple[NatsUser, ...]:
    """Every user of a cell. `domain` is the JetStream domain of the clients (`nats.js_domain`), if any."""
    api = f"$JS.{token(domain)}.API" if domain else "$JS.API"
    return (
        *(_process(cell, api, producer) for producer in Producer),
        _reader(cell, api),
        _feed(cell, api),
        _admin(cell, api),
    )


def _process(cell: str, api: str, producer: Producer) -> NatsUser:
    name = producer.value
    log, leases, snapshots = (stream_name(cell, suffix) for suffix in ("", "LEASES", "SNAPSHOTS"))
    publish = [
        f"headgate.{cell}.log.{name}",
        f"headgate.{cell}.lease.{name}",
        *_looking(api, log, leases, snapshots),
        *_reading(api, log, snapshots),
    ]
    if producer is Producer.SNAPSHOTTER:
        publish += [
            f"headgate.{cell}.*.*.*.*",
            f"headgate.{cell}.snapshot.manifest.*",
            f"headgate.{cell}.snapshot.chunk.*.*.*",
            *_looking(api, stream_name(cell, "FEED")),
            f"{api}.STREAM.PURGE.{snapshots}",
        ]
    return NatsUser(
        name=name,
        login=login_of(cell, name),
        about=f"`headgate run {name}`",
        publish=tuple(publish),
        subscribe=(f"{inbox_prefix(cell, name)}.>",),
    )


def _reader(cell: str, api: str) -> NatsUser:
    log, feed, leases, snapshots = (stream_name(cell, suffix) for suffix in ("", "FEED", "LEASES", "SNAPSHOTS"))
    return NatsUser(
        name=READER,
        login=login_of(cell, READER),
        about="operators' commands that read: queue, explain, events, state, replay, audit, backup",
        publish=(*_looking(api, log, feed, leases, snapshots), *_reading(api, log, feed, snapshots)),
        subscribe=(f"{inbox_prefix(cell, READER)}.>",),
    )


def _feed(cell: str, api: str) -> NatsUser:
    feed = stream_name(cell, "FEED")
    return NatsUser(
        name=FEED,
        login=login_of(cell, FEED),
        about="subscribers of the feed, live or through a consumer of their own",
        publish=(
            *_looking(api, feed),
            *_reading(api, feed),
            f"{api}.DIRECT.GET.{feed}",
            f"{api}.CONSUMER.CREATE.{feed}.*.>",
            f"{api}.CONSUMER.DURABLE.CREATE.{feed}.*",
            f"{api}.CONSUMER.INFO.{feed}.*",
            f"$JS.ACK.{feed}.>",
            f"$JS.FC.{feed}.>",
        ),
        # Subscriptions with a final > are wider than the feed's subjects; of what they cover, only those are delivered.
        subscribe=(f"{inbox_prefix(cell, FEED)}.>", f"headgate.{cell}.*.*.>"),
        deny_subscribe=(f"headgate.{cell}.log.>", f"headgate.{cell}.lease.>", f"headgate.{cell}.snapshot.>"),
    )


def _admin(cell: str, api: str) -> NatsUser:
    streams = tuple(stream_name(cell, suffix) for suffix in ("", "FEED", "LEASES", "SNAPSHOTS"))
    return NatsUser(
        name=ADMIN,
        login=login_of(cell, ADMIN),
        about="`headgate nats setup` and the restoring commands: makes and changes the cell's streams, writes to all",
        publish=(
            f"headgate.{cell}.>",
            f"{api}.INFO",
            f"{api}.STREAM.NAMES",
            f"{api}.STREAM.LIST",
            *(f"{api}.STREAM.*.{stream}" for stream in streams),
            *(f"{api}.STREAM.MSG.*.{stream}" for stream in streams),
            *(f"{api}.DIRECT.GET.{stream}" for stream in streams),
            *_reading(api, *streams),
            *(f"{api}.CONSUMER.*.{stream}" for stream in streams),
        ),
        subscribe=(f"{inbox_prefix(cell, ADMIN)}.>",),
    )


def _looking(api: str, *streams: str) -> Iterable[str]:
    """The state of a stream, and single messages of it."""
    for stream in streams:
        yield f"{api}.STREAM.INFO.{stream}"
        yield f"{api}.STREAM.MSG.GET.{stream}"


def _reading(api: str, *streams: str) -> Iterable[str]:
    """A stream from any position on, through an ephemeral consumer."""
    for stream in streams:
        yield f"{api}.CONSUMER.CREATE.{stream}.*"
        yield f"{api}.CONSUMER.MSG.NEXT.{stream}.*"
        yield f"{api}.CONSUMER.DELETE.{stream}.*"


# --- as a NATS configuration ---------------------------------------------------------------------------------------


def password_variable(name: str) -> str:
    """The environment variable of nats-server with a user's password, where users have passwords."""
    return f"HEADGATE_{name.replace('-', '_').upper()}_PASSWORD"


def configuration(users: Iterable[NatsUser], keys: Mapping[str, str] | None = None, *, extra: str = "") -> str:
    """
    The `authorization` block of a NATS configuration.

    `keys` are the users' public NKEYs by name; without them users have passwords, which nats-server takes from its
    environment. `extra` goes into the block.
    """
    entries = "\n".join(_entry(user, keys) for user in users)
    return f"authorization {{\n{extra}  users: [\n{entries}\n  ]\n}}\n"


def _entry(user: NatsUser, keys: Mapping[str, str] | None) -> str:
    if keys is not None:
        credentials = f"nkey: {keys[user.name]}"
    else:
        credentials = f"user: {json.dumps(user.login)}, password: ${password_variable(user.name)}"
    rights = [f"publish: {{ allow: {_list(user.publish)} }}", f"subscribe: {{ allow: {_list(user.subscribe)} }}"]
    if user.deny_subscribe:
        rights[1] = f"subscribe: {{ allow: {_list(user.subscribe)}, deny: {_list(user.deny_subscribe)} }}"
    return (
        f"    # {user.name}: {user.about}\n"
        f"    {{ {credentials}, permissions: {{\n      {rights[0]}\n      {rights[1]}\n    }} }}"
    )


def _list(subjects: Iterable[str]) -> str:
    lines = "".join(f"        {json.dumps(each)}\n" for each in subjects)
    return f"[\n{lines}      ]"
