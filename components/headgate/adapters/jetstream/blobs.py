"""
Snapshots as blobs: large byte strings in a stream, in chunks, stored atomically.

A blob is compressed (zlib, level 1), split into chunks that are stored under subjects of their own upload, and made
visible by a manifest that is stored last and names the upload. A writer that dies in between leaves unreferenced
chunks; `keep_last` removes them when they are too old to be an upload in progress. Readers may read while others write
or remove: a reader whose blob is removed meanwhile gets an error, and takes a newer one.

Compression and hashing run in a worker thread; a few chunks are in flight at a time.
"""

import hashlib
import time
import uuid
import zlib
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import msgspec
from msgspec import Struct

from headgate.adapters.jetstream.appender import publish_once
from headgate.adapters.jetstream.connection import Connection
from headgate.adapters.jetstream.messages import last_of_subject
from headgate.adapters.jetstream.stream import ensure_stream, find_stream, snapshot_stream, stream_subjects, token
from headgate.adapters.jetstream.tail import JetStreamTail
from headgate.adapters.log import BlobDamaged, BlobInfo, BlobNotFound

if TYPE_CHECKING:
    from headgate.adapters.log import Blobs

CHUNK_BYTES_MAX = 512 * 1024
CHUNKS_IN_FLIGHT_MAX = 8
TORN_AFTER_S = 3_600
"""Chunks without a manifest are the remains of a dead writer when they are older than this."""
SILENCE_S_MAX = 5.0
"""How long a reader waits for the next chunk until it checks whether its blob was removed."""


class _Manifest(Struct, frozen=True, kw_only=True):
    """The manifest message: the blob's metadata, and the location of its chunks."""

    info: BlobInfo
    upload: str
    chunks: int
    first_seq: int


class _Purged(Struct):
    purged: int = 0


_MANIFEST = msgspec.json.Decoder(_Manifest)
_PURGED = msgspec.json.Decoder(_Purged)


class JetStreamBlobs:
    """The snapshots of one cell; made by `open_blobs`. Names are subject tokens."""

    def __init__(
        self,
        connection: Connection,
        cell: str,
        name: str,
        warnings: list[str],
        *,
        chunk_bytes_max: int = CHUNK_BYTES_MAX,
        torn_after_s: float = TORN_AFTER_S,
    ) -> None:
        self.connection = connection
        self.warnings = warnings
        self.name = name
        self._root = f"headgate.{cell}.snapshot"
        self._chunk_bytes_max = chunk_bytes_max
        self._torn_after_s = torn_after_s

    async def put(self, name: str, data: bytes, *, position: int) -> BlobInfo:
        """See `Blobs.put`."""
        subject = self._manifest_subject(name)
        before = await self._manifest(name)
        packed, sha256 = await anyio.to_thread.run_sync(_pack, data)
        upload = uuid.uuid4().hex
        count = max(-(-len(packed) // self._chunk_bytes_max), 1)
        first_seq = await self._store_chunks(f"{self._root}.chunk.{name}.{upload}", packed, count)
        info = BlobInfo(
            name=name,
            position=position,
            size_bytes=len(data),
            stored_bytes=len(packed),
            sha256=sha256,
            created_ms=time.time_ns() // 1_000_000,
        )
        manifest = _Manifest(info=info, upload=upload, chunks=count, first_seq=first_seq)
        seq = await self._store(subject, msgspec.json.encode(manifest), upload)
        if before is not None:
            await self._purge(subject, before_seq=seq)
            await self._purge(f"{self._root}.chunk.{name}.{before.upload}.*")
        return info

    async def get(self, name: str) -> bytes:
        """See `Blobs.get`."""
        manifest = await self._manifest(name)
        if manifest is None:
            raise BlobNotFound(f"stream {self.name} has no complete blob {name}")
        packed = await self._fetch(name, manifest)
        return await anyio.to_thread.run_sync(_unpack, packed, manifest.info)

    async def listing(self) -> list[BlobInfo]:
        """See `Blobs.listing`."""
        return [manifest.info for manifest in await self._manifests()]

    async def delete(self, name: str) -> None:
        """See `Blobs.delete`. The manifest goes first, so that no reader starts on a blob that is being removed."""
        manifest = await self._manifest(name)
        if manifest is not None:
            await self._purge(self._manifest_subject(name))
            await self._purge(f"{self._root}.chunk.{name}.{manifest.upload}.*")

    async def keep_last(self, count: int) -> list[str]:
        """See `Blobs.keep_last`."""
        if count < 1:
            raise ValueError(f"at least one blob must be kept, not {count}")
        removed = [info.name for info in (await self.listing())[:-count]]
        for name in removed:
            await self.delete(name)
        await self._remove_torn()
        return removed

    def _manifest_subject(self, name: str) -> str:
        return f"{self._root}.manifest.{token(name)}"

    async def _store(self, subject: str, payload: bytes, message_id: str) -> int:
        return await publish_once(self.connection, self.name, subject, payload, message_id=message_id)

    async def _store_chunks(self, prefix: str, packed: bytes, count: int) -> int:
        """
        Stores all chunks; the sequence of the first stored.

        The first is sent alone: none of the others may be stored before it.
        """
        view, size, upload = memoryview(packed), self._chunk_bytes_max, prefix.rpartition(".")[2]

        async def store(index: int) -> int:
            chunk = bytes(view[index * size : (index + 1) * size])
            return await self._store(f"{prefix}.{index}", chunk, f"{upload}.{index}")

        first_seq = await store(0)
        indices = iter(range(1, count))

        async def store_some() -> None:
            for index in indices:
                await store(index)

        async with anyio.create_task_group() as tasks:
            for _ in range(min(CHUNKS_IN_FLIGHT_MAX, count - 1)):
                tasks.start_soon(store_some)
        return first_seq

    async def _fetch(self, name: str, manifest: _Manifest) -> bytes:
        prefix = f"{self._root}.chunk.{name}.{manifest.upload}"
        chunks: dict[int, bytes] = {}
        async with JetStreamTail(
            self.connection, self.name, start=manifest.first_seq, subjects=(f"{prefix}.*",)
        ) as tail:
            await tail.ready()
            while len(chunks) < manifest.chunks:
                if not tail.caught_up:
                    with anyio.move_on_after(SILENCE_S_MAX):
                        for entry in await tail.receive():
                            chunks[int(entry.subject.rpartition(".")[2])] = entry.payload
                        continue
                current = await self._manifest(name)
                if current is None or current.upload != manifest.upload:
                    raise BlobNotFound(f"blob {name} was removed or replaced while it was read: list again")
                if tail.caught_up:
                    raise BlobDamaged(f"blob {name} has {len(chunks)} of {manifest.chunks} chunks: use an older one")
        return b"".join(chunks[index] for index in range(manifest.chunks))

    async def _manifest(self, name: str) -> _Manifest | None:
        stored = await last_of_subject(self.connection, self.name, self._manifest_subject(name))
        return None if stored is None else _MANIFEST.decode(stored.entry.payload)

    async def _manifests(self) -> list[_Manifest]:
        subjects = await stream_subjects(self.connection, self.name, f"{self._root}.manifest.*")
        found = [await self._manifest(subject.rpartition(".")[2]) for subject in subjects]
        present = [manifest for manifest in found if manifest is not None]
        return sorted(present, key=lambda manifest: (manifest.info.position, manifest.info.name))

    async def _remove_torn(self) -> None:
        # Chunks are listed before manifests: an upload which completes in between is then known to be complete.
        firsts = await stream_subjects(self.connection, self.name, f"{self._root}.chunk.*.*.0")
        complete = {manifest.upload for manifest in await self._manifests()}
        for subject in firsts:
            prefix = subject.rpartition(".")[0]
            if prefix.rpartition(".")[2] in complete:
                continue
            stored = await last_of_subject(self.connection, self.name, subject)
            if stored is not None and time.time() * 1000 - stored.entry.time_ms > self._torn_after_s * 1000:
                await self._purge(f"{prefix}.*")

    async def _purge(self, subject: str, *, before_seq: int | None = None) -> None:
        request: dict[str, str | int] = {"filter": subject}
        if before_seq is not None:
            request["seq"] = before_seq
        dependency = f"stream {self.name}"
        await self.connection.call(
            f"STREAM.PURGE.{self.name}", msgspec.json.encode(request), _PURGED, dependency=dependency
        )


def _pack(data: bytes) -> tuple[bytes, str]:
    return zlib.compress(data, 1), hashlib.sha256(data).hexdigest()


def _unpack(packed: bytes, info: BlobInfo) -> bytes:
    try:
        data = zlib.decompress(packed)
    except zlib.error as error:
        raise BlobDamaged(f"blob {info.name} cannot be decompressed ({error}): use an older one") from error
    if len(data) != info.size_bytes or hashlib.sha256(data).hexdigest() != info.sha256:
        raise BlobDamaged(f"blob {info.name} is not what was stored (its sha256 differs): use an older one")
    return data


async def open_blobs(
    connection: Connection,
    cell: str,
    *,
    replicas: int = 1,
    chunk_bytes_max: int = CHUNK_BYTES_MAX,
    torn_after_s: float = TORN_AFTER_S,
) -> JetStreamBlobs:
    """
    The snapshots of `cell`, their stream created if it is absent and verified otherwise.

    :raises StreamMismatch: a stream of this name exists and cannot keep snapshots.
    """
    status = await ensure_stream(connection, snapshot_stream(cell, replicas=replicas))
    return JetStreamBlobs(
        connection,
        cell,
        status.info.config.name,
        status.warnings,
        chunk_bytes_max=chunk_bytes_max,
        torn_after_s=torn_after_s,
    )


async def look_at_blobs(connection: Connection, cell: str) -> JetStreamBlobs | None:
    """The snapshots of `cell`, for reading only; None when their stream does not exist."""
    name = snapshot_stream(cell).name
    return JetStreamBlobs(connection, cell, name, []) if await find_stream(connection, name) is not None else None


if TYPE_CHECKING:

    def _are_blobs(blobs: JetStreamBlobs) -> Blobs:
        return blobs
