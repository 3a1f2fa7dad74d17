"""The buffer between wire and owner: order, completeness, bounds."""

from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.adapters.kubernetes.messages import Bookmark, Changes, ChangeType, ListPage, ObjectChange, ObjectMeta
from headgate.adapters.kubernetes.outbox import Outbox
from headgate.adapters.kubernetes.resources import PODS


def changed(version):
    meta = ObjectMeta(resource_version=str(version), name=f"p{version}")
    return ObjectChange(resource=PODS, type=ChangeType.ADDED, meta=meta, object=msgspec.Raw(b"{}"))


def bookmark(version):
    return Bookmark(resource=PODS, resource_version=str(version))


def listed(version, items):
    raws = [msgspec.Raw(b"{}")] * items
    return ListPage(resource=PODS, items=raws, resource_version=str(version), page=0, complete=True)


ENTRIES = st.lists(st.sampled_from(["change", "bookmark", "list"]), max_size=40).map(
    lambda kinds: [
        {"change": changed, "bookmark": bookmark, "list": lambda v: listed(v, v % 3)}[kind](version)
        for version, kind in enumerate(kinds)
    ]
)


@given(entries=ENTRIES, burst_max=st.integers(1, 5), room=st.integers(1, 10))
def test_everything_arrives_once_and_in_order(entries, burst_max, room):
    """Except for bookmarks that a newer one made pointless, what goes in comes out, in bursts within their bound."""

    async def main():
        outbox = Outbox(pending_max=room, burst_max=burst_max)
        sink, source = anyio.create_memory_object_stream[Any](1)
        received = []
        async with sink, source, anyio.create_task_group() as tasks:
            tasks.start_soon(outbox.pump, sink)

            async def receive():
                async for message in source:
                    received.append(message)
                    if message == end:
                        tasks.cancel_scope.cancel()

            tasks.start_soon(receive)
            end = listed(999, 1)
            for entry in [*entries, end]:
                if outbox.is_full:
                    await outbox.wait_for_room()
                assert outbox.pending < room
                outbox.put(entry)
        assert outbox.pending == 0
        return received[:-1]

    received = anyio.run(main)
    assert all(len(message.changes) <= burst_max for message in received if isinstance(message, Changes))
    flat = [entry for message in received for entry in (message.changes if isinstance(message, Changes) else [message])]
    needed = [entry for entry in entries if not isinstance(entry, Bookmark)]
    assert [entry for entry in flat if not isinstance(entry, Bookmark)] == needed
    assert [entry for entry in entries if entry in flat] == flat
    versions = [int(message.resource_version) for message in received]
    assert versions == sorted(versions)


@pytest.mark.anyio
async def test_what_piled_up_is_sent_in_one_piece():
    """A slow owner gets the burst at once, an idle one the single change."""
    outbox = Outbox(pending_max=100, burst_max=10)
    sink, source = anyio.create_memory_object_stream[Any](0)
    async with sink, source, anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.pump, sink)
        await anyio.wait_all_tasks_blocked()
        outbox.put(changed(1))
        assert len((await source.receive()).changes) == 1
        for version in range(2, 14):
            outbox.put(changed(version))
        assert [len((await source.receive()).changes) for _ in range(2)] == [10, 2]
        tasks.cancel_scope.cancel()
