"""
Evidence: the data beside a log on its broker, read for `headgate audit` (`headgate.core.audit.stores`).

Missing streams are not created, and nothing is changed. Everything here terminates: it reads what exists at the moment,
and a stream that cannot deliver what it claims raises an error (`headgate.adapters.jetstream.ending`).
"""

from typing import Final

import anyio
import msgspec

from headgate.adapters.jetstream.appender import MESSAGE_ID
from headgate.adapters.jetstream.blobs import look_at_blobs
from headgate.adapters.jetstream.connection import Connection
from headgate.adapters.jetstream.jetstream_log import JetStreamLog
from headgate.adapters.jetstream.lease import JetStreamLeases
from headgate.adapters.jetstream.messages import by_seq
from headgate.adapters.jetstream.stream import (
    StreamInfo,
    feed_stream,
    find_stream,
    identity_of,
    lease_stream,
    log_stream,
    perils,
    stream_info,
)
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kubeconfig import resolve
from headgate.adapters.log import BlobDamaged, BlobInfo, BlobNotFound, LogDamaged
from headgate.core.audit.log import AuditFinding
from headgate.core.audit.stores import Evidence, FeedJudge, SeenLease, SeenRecord, SeenSnapshot, SeenStream
from headgate.core.state.tables import Branch
from headgate.events.base import Producer
from headgate.events.commit import Position
from headgate.events.ids import Seq
from headgate.processes.runtime.cell_record import CellRecords
from headgate.processes.snapshots.store import SnapshotUnusableError, is_older, unpack

CLUSTER_TIMEOUT_S: Final = 5.0
"""The timeout for the cluster."""


async def gather(log: JetStreamLog, cell: str) -> Evidence:
    """Everything beside a cell's log but its feed."""
    connection = log.connection
    info = await stream_info(connection, log.name)
    looked_at = ["the stream"]
    snapshots = await _snapshots(connection, cell)
    leases = await _leases(connection, cell)
    if snapshots:
        looked_at.append(f"{len(snapshots)} snapshots")
    if leases:
        looked_at.append(f"{len(leases)} leases")
    stream = SeenStream(name=log.name, identity=identity_of(info), perils=tuple(perils(info.config, log_stream(cell))))
    return Evidence(stream=stream, snapshots=snapshots, leases=leases, looked_at=tuple(looked_at))


async def _snapshots(connection: Connection, cell: str) -> tuple[SeenSnapshot, ...]:
    blobs = await look_at_blobs(connection, cell)
    if blobs is None:
        return ()
    seen: list[SeenSnapshot] = []
    for info in await blobs.listing():
        try:
            seen.append(_seen(info, await blobs.get(info.name), cell))
        except BlobNotFound:
            continue  # The snapshotter has replaced it meanwhile.
        except BlobDamaged as error:
            seen.append(SeenSnapshot(name=info.name, position=Seq(info.position), why=str(error)))
    return tuple(seen)


def _seen(info: BlobInfo, blob: bytes, cell: str) -> SeenSnapshot:
    try:
        meta, _ = unpack(blob, cell)
    except SnapshotUnusableError as error:
        return SeenSnapshot(name=info.name, position=Seq(info.position), why=str(error), older=is_older(blob))
    return SeenSnapshot(
        name=info.name,
        position=meta.position,
        state_hash=meta.state_hash,
        log_hash=meta.log_hash,
        log_identity=meta.log_identity,
    )


async def _leases(connection: Connection, cell: str) -> tuple[SeenLease, ...]:
    name = lease_stream(cell).name
    if await find_stream(connection, name) is None:
        return ()
    leases = JetStreamLeases(connection, cell, name, [])
    seen: list[SeenLease] = []
    for producer in Producer:
        try:
            record = await leases.holder(producer.value)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            seen.append(SeenLease(producer=producer, why=str(error)))
            continue
        if record is not None:
            seen.append(
                SeenLease(
                    producer=producer,
                    epoch=record.epoch,
                    position=Seq(record.position),
                    log_hash=record.log_hash,
                )
            )
    return tuple(seen)


# --- the cluster ---------------------------------------------------------------------------------------------------


async def look_at_record(cell: str, *, kubeconfig: str, namespace: str) -> SeenRecord | None:
    """
    The record that a cluster has of its cell; None when it has none.

    Raises KubernetesError and ConfigurationError, and TimeoutError when the cluster does not answer in time.
    """
    with anyio.fail_after(CLUSTER_TIMEOUT_S):
        async with open_transport(resolve(kubeconfig=kubeconfig)) as transport:
            records = CellRecords(transport, cell=cell, namespace=namespace)
            record = await records.read()
    if record is None:
        return None
    return SeenRecord(where=records.where, log_id=record.log_id, position=record.position, log_hash=record.log_hash)


# --- the feed ------------------------------------------------------------------------------------------------------


async def look_at_feed(log: JetStreamLog, cell: str, judge: FeedJudge, branches: tuple[Branch, ...]) -> bool:
    """Pass every message of the feed to a judge, which compares it with the log. False when there is no feed."""
    connection, name = log.connection, feed_stream(cell).name
    info = await find_stream(connection, name)
    if info is None or not info.state.messages:
        return False
    feed = JetStreamLog(connection, cell, info, [], None)
    first = info.state.first_seq
    judge.begin(await _id_of(connection, name, first))
    try:
        async for entries in feed.read(first, stop=info.state.last_seq):
            for entry in entries:
                if judge.is_next(entry.subject, entry.payload):
                    continue
                message_id = await _id_of(connection, name, entry.seq)
                if not judge.message(entry.seq, message_id, branches):
                    await _look_beyond(log, judge, info)
                    return True
    except LogDamaged as error:
        text = f"{error}. The feed is derived: remove its stream, and the snapshotter makes it again from the log"
        judge.findings.append(AuditFinding(check="feed", position=Position(Seq(judge.end)), text=text))
    return True


async def _look_beyond(log: JetStreamLog, judge: FeedJudge, info: StreamInfo) -> None:
    """The feed is ahead of what was read of the log: find out whether the log has grown meanwhile, or is shorter."""
    end = await log.last_seq()
    if end > judge.end:
        return
    judge.beyond(await _id_of(log.connection, info.config.name, info.state.last_seq), end)


async def _id_of(connection: Connection, stream: str, seq: int) -> str:
    stored = await by_seq(connection, stream, seq)
    return stored.headers.get(MESSAGE_ID, "") if stored is not None else ""
