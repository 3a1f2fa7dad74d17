"""
The streams of a cell: their required configuration, creating them, and reporting where an existing one falls short.

Four streams, whose subjects cannot overlap because they differ in their number of tokens or in a fixed token:

| stream                   | subjects                                            | holds                              |
|--------------------------|-----------------------------------------------------|------------------------------------|
| HEADGATE_<cell>          | headgate.<cell>.log.<producer>, of the six each     | the log: everything for ever       |
| HEADGATE_<cell>_FEED     | headgate.<cell>.<entity>.<event>.<namespace>.<name> | one CloudEvent per event           |
| HEADGATE_<cell>_LEASES   | headgate.<cell>.lease.<producer>                    | leaders; one message per producer  |
| HEADGATE_<cell>_SNAPSHOTS| headgate.<cell>.snapshot.manifest.<name>, .chunk.…  | snapshots in chunks                |

(The feed has six tokens, the log and the leases four, manifests five, chunks seven; so the feed may carry any entity.)

An existing stream is never changed, with one exception: the log of an earlier version accepted any `log.*`, and is
narrowed to the subjects of the six producers. Settings of the operator are respected. A stream is refused if Headgate
could not be correct on it (`StreamMismatch`), and warned about if it is only less durable than it should be.
"""
# Over 400 lines: each stream's configuration stands beside the checks that an existing stream is held to.

import datetime as dt
import re
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from headgate.adapters.backoff import Backoff
from headgate.adapters.jetstream.connection import Connection
from headgate.adapters.jetstream.errors import (
    STREAM_NAME_IN_USE,
    STREAM_NOT_FOUND,
    JetStreamApiError,
    PermissionDenied,
    StreamMismatch,
)
from headgate.adapters.log import StreamGone
from headgate.events.base import Producer
from headgate.events.subjects import log_subject

_TOKEN = re.compile(r"[^\s.*>\x00-\x1f]+")

SECOND_NS = 1_000_000_000


def token(text: str) -> str:
    """
    `text`, if it is one valid subject token.

    :raises ValueError: it is not.
    """
    if not _TOKEN.fullmatch(text):
        raise ValueError(f"{text!r} is not a subject token: it must not be empty nor contain blanks, '.', '*' or '>'")
    return text


def stream_name(cell: str, suffix: str = "") -> str:
    """The name of one of the cell's streams."""
    return f"HEADGATE_{token(cell)}" + (f"_{suffix}" if suffix else "")


class SubjectTransform(Struct, kw_only=True, frozen=True):
    """The mapping of incoming subjects to stored subjects of a stream."""

    src: str = ""
    dest: str = ""


class StreamConfig(Struct, kw_only=True, frozen=True):
    """
    The part of JetStream's stream configuration that Headgate sets or reads.

    Durations are in nanoseconds, -1 is no limit.
    """

    name: str
    subjects: list[str] = []
    retention: str = "limits"
    storage: str = "file"
    discard: str = "new"
    num_replicas: int = 1
    max_msgs: int = -1
    max_bytes: int = -1
    max_age: int = 0
    max_msg_size: int = -1
    max_msgs_per_subject: int = -1
    max_consumers: int = -1
    duplicate_window: int = 2 * SECOND_NS
    allow_direct: bool = True
    deny_delete: bool = False
    deny_purge: bool = False
    allow_rollup_hdrs: bool = False
    sealed: bool = False
    no_ack: bool = False
    persist_mode: str | UnsetType = UNSET
    first_seq: int | UnsetType = UNSET
    subject_transform: SubjectTransform | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET


class StreamState(Struct, kw_only=True, frozen=True):
    """The content of a stream. `subjects` and `deleted` (gaps between its ends) only on request."""

    messages: int = 0
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    subjects: dict[str, int] | None = None
    deleted: list[int] | None = None


class ClusterInfo(Struct, kw_only=True, frozen=True):
    """The location of a stream in a NATS cluster; `leader` is a server's name."""

    name: str = ""
    leader: str = ""


class StreamInfo(Struct, kw_only=True, frozen=True):
    """
    The broker's description of a stream. `created` distinguishes successive streams of the same name.

    `ts` is the broker's clock at the answer.
    """

    config: StreamConfig
    state: StreamState
    created: str
    ts: str = ""
    cluster: ClusterInfo | None = None


class StreamStatus(Struct, kw_only=True, frozen=True):
    """A stream that exists and is usable, and warnings for the operator."""

    info: StreamInfo
    warnings: list[str]


_INFO = msgspec.json.Decoder(StreamInfo)


def log_stream(cell: str, *, replicas: int = 1) -> StreamConfig:
    """The log: no limits, nothing can be deleted; when full, it refuses."""
    return StreamConfig(
        name=stream_name(cell),
        subjects=[log_subject(cell, producer) for producer in Producer],
        num_replicas=replicas,
        deny_delete=True,
        deny_purge=True,
    )


def former_log_subjects(cell: str) -> tuple[str, ...]:
    """The subjects of the log of an earlier version: every subject below the cell's log."""
    return (f"headgate.{cell}.log.*",)


def feed_stream(cell: str, *, replicas: int = 1, duplicate_window_s: int = 120) -> StreamConfig:
    """The feed: deduplicated by message id. An operator may bound it by age or size; the log does not depend on it."""
    return StreamConfig(
        name=stream_name(cell, "FEED"),
        subjects=[f"headgate.{cell}.*.*.*.*"],
        num_replicas=replicas,
        duplicate_window=duplicate_window_s * SECOND_NS,
    )


def lease_stream(cell: str, *, replicas: int = 1) -> StreamConfig:
    """The leases: the last record of each producer."""
    return StreamConfig(
        name=stream_name(cell, "LEASES"),
        subjects=[f"headgate.{cell}.lease.*"],
        num_replicas=replicas,
        max_msgs_per_subject=1,
        discard="old",
        deny_delete=True,
        deny_purge=True,
    )


def snapshot_stream(cell: str, *, replicas: int = 1) -> StreamConfig:
    """The snapshots: chunks and manifests, purged by subject when old."""
    return StreamConfig(
        name=stream_name(cell, "SNAPSHOTS"),
        subjects=[f"headgate.{cell}.snapshot.manifest.*", f"headgate.{cell}.snapshot.chunk.*.*.*"],
        num_replicas=replicas,
    )


def identity_of(info: StreamInfo) -> str:
    """Distinguishes this stream from a later one of the same name."""
    return info.created


def time_ms_of(rfc3339: str) -> int:
    """Milliseconds since the epoch of a time as the broker writes it (nanoseconds are cut)."""
    text = re.sub(r"(\.\d{6})\d+", r"\1", rfc3339)
    return int(dt.datetime.fromisoformat(text).timestamp() * 1000)


async def stream_info(connection: Connection, name: str) -> StreamInfo:
    """
    The stream's state as its leader sees it.

    :raises Refused: for instance `STREAM_NOT_FOUND`.
    """
    return await connection.call(f"STREAM.INFO.{name}", b"", _INFO, dependency=f"stream {name}")


async def opened_info(connection: Connection, name: str) -> StreamInfo:
    """
    The same for a stream that was opened before.

    :raises StreamGone: it does not exist any more.
    """
    try:
        return await stream_info(connection, name)
    except JetStreamApiError as refused:
        if refused.err_code == STREAM_NOT_FOUND:
            raise StreamGone(name) from refused
        raise


async def stream_deleted(connection: Connection, name: str) -> list[int]:
    """The sequences between a stream's first and last that are missing, in order."""
    body = msgspec.json.encode({"deleted_details": True})
    info = await connection.call(f"STREAM.INFO.{name}", body, _INFO, dependency=f"stream {name}")
    return sorted(info.state.deleted or ())


async def find_stream(connection: Connection, name: str) -> StreamInfo | None:
    """As `stream_info`; None when there is no such stream."""
    try:
        return await stream_info(connection, name)
    except JetStreamApiError as refused:
        if refused.err_code != STREAM_NOT_FOUND:
            raise
        return None


async def stream_subjects(connection: Connection, name: str, subjects_filter: str) -> dict[str, int]:
    """Each subject that matches the filter, with its number of messages."""
    found: dict[str, int] = {}
    while True:
        body = msgspec.json.encode({"subjects_filter": subjects_filter, "offset": len(found)})
        page = (
            await connection.call(f"STREAM.INFO.{name}", body, _INFO, dependency=f"stream {name}")
        ).state.subjects or {}
        if not page.keys() - found.keys():
            return found
        found.update(page)


# Large: a loop with one way out for each answer of the broker to a look at the stream, or to its creation.
async def ensure_stream(
    connection: Connection,
    wanted: StreamConfig,
    *,
    may_wait: bool = True,
    former: tuple[str, ...] = (),
    change: bool = True,
) -> StreamStatus:
    """
    The stream, created as `wanted` if it is absent, verified otherwise.

    Where this user may not create it, it waits for another user to do so, unless `may_wait` is False. One that has the
    `former` subjects is given the wanted ones; without `change` it is used as it is.

    :raises StreamMismatch: it cannot be used, or cannot be created (for instance because another stream holds its
    subjects).
    """
    dependency, backoff = f"stream {wanted.name}", Backoff()
    created = False
    while True:
        try:
            info = await find_stream(connection, wanted.name)
        except JetStreamApiError as refused:
            raise StreamMismatch(f"cannot look at {dependency}: {refused}") from refused
        if info is not None:
            break
        try:
            await connection.call(
                f"STREAM.CREATE.{wanted.name}", msgspec.json.encode(wanted), _INFO, dependency=dependency
            )
            created = True
        except PermissionDenied as denied:
            if not may_wait:
                raise
            # The broker's administrator creates streams; that may happen at any moment.
            connection.health.unwell(
                dependency,
                f"it is not there, and {denied.who} may not create it: `headgate nats setup` does, as an admin",
            )
            await backoff.wait()
        except JetStreamApiError as refused:
            # Another process may have created it in between, with different replicas; then it is checked again.
            if refused.err_code != STREAM_NAME_IN_USE:
                raise StreamMismatch(f"cannot create {dependency}: {refused}") from refused
    warnings: list[str] = []
    usable = wanted
    if former and sorted(info.config.subjects) == sorted(former):
        if change:
            info, warnings = await _with_subjects(connection, info, wanted)
        usable = msgspec.structs.replace(wanted, subjects=info.config.subjects)
    _refuse_unusable(info.config, usable)
    return StreamStatus(info=info, warnings=[] if created else [*warnings, *_shortcomings(info, wanted)])


class _Configured(Struct):
    config: dict[str, Any]


_CONFIGURED = msgspec.json.Decoder(_Configured)


async def _with_subjects(
    connection: Connection, info: StreamInfo, wanted: StreamConfig
) -> tuple[StreamInfo, list[str]]:
    """The stream with the wanted subjects and all else as it was, or as it is and the reason against it."""
    name = wanted.name
    dependency = f"stream {name}"
    # The configuration has fields that `StreamConfig` lacks, and an update resets omitted fields.
    actual = await connection.call(f"STREAM.INFO.{name}", b"", _CONFIGURED, dependency=dependency)
    body = msgspec.json.encode({**actual.config, "subjects": wanted.subjects})
    try:
        return await connection.call(f"STREAM.UPDATE.{name}", body, _INFO, dependency=dependency), []
    except (JetStreamApiError, PermissionDenied) as refused:
        return info, [
            f"stream {name} takes messages on any of {', '.join(info.config.subjects)} and cannot be changed "
            f"({refused}); what others publish there is refused. Narrow it as an admin, with `headgate nats setup` or "
            f"`nats stream edit {name}`, to {', '.join(wanted.subjects)}"
        ]


FILLING = "headgate.filling"
"""In a stream's metadata while `headgate restore` fills it (`headgate.adapters.jetstream.refill`)."""


def _refuse_unusable(actual: StreamConfig, wanted: StreamConfig) -> None:
    wrong = []
    if (actual.metadata or {}).get(FILLING):
        raise StreamMismatch(
            f"stream {wanted.name} is being restored from a backup: wait for the end of `headgate restore`, or run it "
            "again if it was broken off"
        )
    if sorted(actual.subjects) != sorted(wanted.subjects):
        wrong.append(f"its subjects are {actual.subjects}, not {wanted.subjects}")
    if actual.retention != wanted.retention:
        wrong.append(f"its retention is {actual.retention}, which deletes what was read; it must be {wanted.retention}")
    if actual.sealed or actual.no_ack:
        wrong.append("it is sealed or does not acknowledge")
    if wanted.max_msgs_per_subject == 1 and actual.max_msgs_per_subject != 1:
        wrong.append(f"it keeps {actual.max_msgs_per_subject} messages per subject, not 1")
    if wrong:
        raise StreamMismatch(
            f"stream {wanted.name} exists and is not usable: {'; '.join(wrong)}. "
            "Choose another cell name, or move what is there"
        )


def _shortcomings(info: StreamInfo, wanted: StreamConfig) -> list[str]:
    """Settings that make an existing, usable stream less safe than it should be."""
    actual, name = info.config, wanted.name
    warnings = []
    if actual.num_replicas < wanted.num_replicas:
        warnings.append(
            f"stream {name} has {actual.num_replicas} replica(s), {wanted.num_replicas} were asked for: "
            f"`nats stream edit {name} --replicas {wanted.num_replicas}`"
        )
    if info.cluster is not None and info.cluster.name and actual.num_replicas == 1:
        warnings.append(f"stream {name} has a single replica in a NATS cluster: it stops with one server. Use three")
    if wanted.deny_purge and wanted.discard == "new" and (bounds := _bounds(actual)) and not _forgets(actual):
        warnings.append(f"stream {name} is bounded by {', '.join(bounds)}: all processes wait when it is full")
    return warnings + perils(actual, wanted)


def perils(actual: StreamConfig, wanted: StreamConfig) -> list[str]:
    """Settings by which an existing stream may lose stored messages."""
    name = wanted.name
    found = []
    if actual.storage != wanted.storage:
        found.append(f"stream {name} is stored in {actual.storage}: it is lost when its servers stop. Use file storage")
    if wanted.deny_purge and not (actual.deny_delete and actual.deny_purge):
        found.append(
            f"stream {name} allows deletes or purges: a slip of the hand can make a hole that stops every reader"
        )
    if wanted.deny_purge and wanted.discard == "new" and (bounds := _bounds(actual)) and _forgets(actual):
        found.append(
            f"stream {name} is bounded by {', '.join(bounds)} and discards its oldest entries: history will be lost"
        )
    if actual.persist_mode == "async":
        found.append(
            f"stream {name} acknowledges before it writes (persist_mode async): a crash loses what was acknowledged"
        )
    return found


def _bounds(actual: StreamConfig) -> list[str]:
    return [
        field for field in ("max_msgs", "max_bytes", "max_age", "max_msgs_per_subject") if getattr(actual, field) > 0
    ]


def _forgets(actual: StreamConfig) -> bool:
    return actual.discard == "old" or actual.max_age > 0


class _MonitoredConfig(Struct):
    sync_interval: int = 0
    sync_always: bool = False


class _MonitoredJetStream(Struct):
    config: _MonitoredConfig | None = None


class _Varz(Struct):
    jetstream: _MonitoredJetStream | None = None


_VARZ = msgspec.json.Decoder(_Varz)


def sync_warnings(varz: bytes | None, *, replicas: int) -> list[str]:
    """
    Warnings from the server's `/varz` (its monitoring port) about when it syncs the log to disk.

    None means that there is no monitoring URL: NATS reports it nowhere else, and the warning says so.
    """
    if varz is None:
        return [
            "sync_interval of the NATS server cannot be seen without its monitoring URL. Unless it is "
            "`always`, a power failure can lose acknowledged commits (a crash of the server process cannot)"
        ]
    jetstream = _VARZ.decode(varz).jetstream
    if jetstream is None or jetstream.config is None:
        return ["the monitoring URL shows a server without JetStream: it is not the one that keeps the log"]
    if jetstream.config.sync_always:
        return []
    seconds = jetstream.config.sync_interval / SECOND_NS
    loss = "of all replicas at once " if replicas > 1 else ""
    return [
        f"sync_interval is {seconds:g} s: a power failure {loss}can lose the commits acknowledged in that time. "
        "Set `jetstream { sync_interval: always }`"
    ]
