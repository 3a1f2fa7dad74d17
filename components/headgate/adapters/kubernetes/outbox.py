"""
The bounded buffer between a reflector that reads the connection and a busy owner.

The reflector adds entries one by one without a stream hop each (a hop costs as much as decoding the event). A pump
forwards the pending entries: adjacent changes become one `Changes`, and of adjacent bookmarks only the newest is sent.
So an idle owner receives a change at once, and a busy one gets the burst in one message.
"""

from collections import deque
from typing import assert_never

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from headgate.adapters.kubernetes.messages import (
    Bookmark,
    Changes,
    Entry,
    ListPage,
    Message,
    ObjectChange,
    WatchResumed,
)


class Outbox:
    """
    Entries on their way to one owner.

    Holds fewer than `pending_max` objects before the last put; one put adds at most a page. `burst_max` is the most
    changes in one message.
    """

    def __init__(self, *, pending_max: int, burst_max: int) -> None:
        self._pending_max = pending_max
        self._burst_max = burst_max
        self._entries: deque[Entry] = deque()
        self._arrived = anyio.Event()
        self._room = anyio.Event()
        #: Objects that wait to be sent.
        self.pending = 0

    @property
    def is_full(self) -> bool:
        """Whether a producer should wait for room first."""
        return self.pending >= self._pending_max

    async def wait_for_room(self) -> None:
        """Return when the outbox is not full."""
        while self.is_full:
            self._room = anyio.Event()
            await self._room.wait()

    def put(self, entry: Entry) -> None:
        """Add an entry. Call `wait_for_room` first if `is_full`."""
        self._entries.append(entry)
        self.pending += _weight(entry)
        self._arrived.set()

    async def pump(self, sink: MemoryObjectSendStream[Message]) -> None:
        """Send everything on, in order, without end."""
        while True:
            if not self._entries:
                self._arrived = anyio.Event()
                await self._arrived.wait()
            message = self._take()
            if not self.is_full:
                self._room.set()
            try:
                # With room this is enough; `send` would yield to the event loop first.
                sink.send_nowait(message)
            except anyio.WouldBlock:
                await sink.send(message)

    def _take(self) -> Message:
        entry = self._pop()
        match entry:
            case ObjectChange():
                return Changes(resource=entry.resource, changes=[entry, *self._pop_changes(self._burst_max - 1)])
            case Bookmark():
                while self._entries and isinstance(newer := self._entries[0], Bookmark):
                    self._pop()
                    entry = newer
                return entry
            case ListPage() | WatchResumed():
                return entry
            case _:
                assert_never(entry)

    def _pop_changes(self, limit: int) -> list[ObjectChange]:
        changes: list[ObjectChange] = []
        while len(changes) < limit and self._entries and isinstance(entry := self._entries[0], ObjectChange):
            self._pop()
            changes.append(entry)
        return changes

    def _pop(self) -> Entry:
        entry = self._entries.popleft()
        self.pending -= _weight(entry)
        return entry


def _weight(entry: Entry) -> int:
    return max(1, len(entry.items)) if isinstance(entry, ListPage) else 1
