"""Snapshots that are torn, damaged, or removed while they are read."""

import random

import anyio
import msgspec
import pytest

from headgate.adapters.jetstream import Connection, NatsOptions, connect
from headgate.adapters.jetstream.blobs import JetStreamBlobs, open_blobs
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.jetstream.stream import stream_subjects
from headgate.adapters.log import BlobDamaged, BlobNotFound

pytestmark = pytest.mark.anyio


def noise(size: int) -> bytes:
    """Bytes that do not compress, the same each time."""
    return random.Random(size).randbytes(size)


async def chunks_of(blobs: JetStreamBlobs) -> dict[str, int]:
    return await stream_subjects(blobs.connection, blobs.name, "headgate.*.snapshot.chunk.>")


async def test_a_torn_write_is_never_seen_and_is_removed_later(connection: Connection, cell: str) -> None:
    """A writer that stops before the manifest leaves nothing that can be read, and its remains go when they are old."""
    blobs = await open_blobs(connection, cell, chunk_bytes_max=1_000)
    await blobs.put("good", noise(3_000), position=1)
    whole = len(await chunks_of(blobs))
    await blobs._store_chunks(f"headgate.{cell}.snapshot.chunk.torn.0123abcd", noise(4_000), 4)
    assert [info.name for info in await blobs.listing()] == ["good"]
    with pytest.raises(BlobNotFound):
        await blobs.get("torn")
    await blobs.keep_last(3)
    assert len(await chunks_of(blobs)) == whole + 4, "it may be somebody's upload under way"
    impatient = await open_blobs(connection, cell, torn_after_s=-60)
    await impatient.keep_last(3)
    assert len(await chunks_of(blobs)) == whole
    assert await blobs.get("good") == noise(3_000)


async def test_a_removed_blob_leaves_no_chunks(connection: Connection, cell: str) -> None:
    """Replacing and deleting free the space."""
    blobs = await open_blobs(connection, cell, chunk_bytes_max=1_000)
    await blobs.put("a", noise(5_000), position=1)
    await blobs.put("a", noise(2_500), position=2)
    assert len(await chunks_of(blobs)) == 3
    await blobs.delete("a")
    assert await chunks_of(blobs) == {}


async def test_a_blob_with_a_missing_chunk_is_damaged(connection: Connection, cell: str) -> None:
    """The error makes the reader use an older one instead of waiting for chunks that will not come."""
    blobs = await open_blobs(connection, cell, chunk_bytes_max=1_000)
    await blobs.put("a", noise(5_000), position=1)
    [chunk] = [subject for subject in await chunks_of(blobs) if subject.endswith(".3")]
    await blobs._purge(chunk)
    with anyio.fail_after(20), pytest.raises(BlobDamaged, match="use an older one"):
        await blobs.get("a")


async def test_a_blob_with_changed_bytes_is_damaged(connection: Connection, cell: str) -> None:
    """The hash in the manifest is that of what was stored."""
    blobs = await open_blobs(connection, cell, chunk_bytes_max=1_000)
    await blobs.put("a", noise(5_000), position=1)
    manifest = await blobs._manifest("a")
    assert manifest is not None
    wrong = msgspec.structs.replace(manifest, info=msgspec.structs.replace(manifest.info, sha256="0" * 64))
    await blobs._store(blobs._manifest_subject("a"), msgspec.json.encode(wrong), "wrong")
    with pytest.raises(BlobDamaged, match="sha256"):
        await blobs.get("a")


async def test_readers_and_writers_do_not_disturb_each_other(connection: Connection, cell: str) -> None:
    """While snapshots are written and old ones removed, every read gives a whole one or an error that it is gone."""
    blobs = await open_blobs(connection, cell, chunk_bytes_max=2_000)
    await blobs.put("s-0", noise(20_000), position=0)
    read: list[str] = []

    async def reader() -> None:
        while True:
            newest = (await blobs.listing())[-1]
            try:
                assert await blobs.get(newest.name) == noise(20_000 + newest.position)
            except BlobNotFound:
                continue
            read.append(newest.name)

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(reader)
        for position in range(1, 15):
            await blobs.put(f"s-{position}", noise(20_000 + position), position=position)
            await blobs.keep_last(1)
        tasks.cancel_scope.cancel()
    assert len(set(read)) > 1


async def test_a_blob_is_stored_and_read_over_kills_of_the_server(server: EmbeddedServer) -> None:
    """Chunks that were under way are sent again; a reader continues where it was."""
    options = NatsOptions(request_timeout_s=0.5, reconnect_wait_s=0.02)
    data = noise(3_000_000)
    async with connect(server.url, name="test", options=options) as connection:
        blobs = await open_blobs(connection, "main", chunk_bytes_max=3_000)

        async def kills() -> None:
            while True:
                await anyio.sleep(0.05)
                await server.kill()
                await server.start()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kills)
            with anyio.fail_after(30):
                await blobs.put("a", data, position=1)
                assert await blobs.get("a") == data
            tasks.cancel_scope.cancel()
        await server.start()
        assert len(await chunks_of(blobs)) == 1001
