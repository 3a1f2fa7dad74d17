"""
A watch: a cursor into a table's history, polled by its server.

Nothing is queued per watcher: a watch reads the shared history from its own position, so a thousand watchers cost a
write nothing but their wake-ups, each version is encoded once for all of them, and the bound on a slow watcher is the
history's bound: when its position has been forgotten it gets the ERROR event with 410 Expired and ends, as from a
real API server.

`poll` returns encoded lines (the HTTP front writes them as they are), `poll_events` the same as decoded pairs (for
simulations). Both never block; `on_ready` is called when a poll may have something new, and `next_due_ms` is when
the passing of time alone gives a poll something new.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from headgate.testing.cluster.api.representation import ObjectRenderer
from headgate.testing.cluster.api.selectors import Predicate
from headgate.testing.cluster.errors import ApiStatusError, too_large, too_old
from headgate.testing.cluster.storage.store import Change, ObjectVersion, Store, Table

JsonObject = dict[str, Any]

BOOKMARK_INTERVAL_MS = 60_000
"""How often an otherwise silent watch that allows bookmarks gets one."""


class WatchStart(msgspec.Struct, frozen=True, kw_only=True):
    """Where a watch starts and what it selects, as parsed from its query."""

    rv: int
    """Changes after this revision; with `initial_events` the revision that the present state must have reached."""
    bookmarks: bool = False
    initial_events: bool = False
    """The present state first, as ADDED events, and a bookmark at its end."""
    timeout_ms: int | None = None
    namespace: str = ""


class Watch:
    """One watch. `closed` is final: a closed watch has nothing more to say once `poll` has returned its last lines."""

    def __init__(
        self,
        store: Store,
        table: Table,
        view: ObjectRenderer,
        start: WatchStart,
        matches: Predicate | None,
        clock: Callable[[], int],
        fault: Callable[[], str] | None = None,
    ) -> None:
        self._store = store
        self._table = table
        self._view = view
        self._namespace = start.namespace
        self._matches = matches
        self._clock = clock
        self._fault = fault
        self._error: ApiStatusError | None = None
        self._initial: list[ObjectVersion] = []
        self._initial_bookmark = False
        self._bookmarks = start.bookmarks
        self._deadline_ms = None if start.timeout_ms is None else clock() + start.timeout_ms
        self._bookmark_at_ms = clock() + BOOKMARK_INTERVAL_MS if start.bookmarks else None
        self._waiter: int | None = None
        self.closed = False
        self.resource_version = start.rv
        """The revision up to which this watch has sent everything."""
        self._floor = start.rv
        self._position = table.position()
        self._begin(start)

    def _begin(self, start: WatchStart) -> None:
        if start.initial_events:
            if start.rv > self._store.rv:
                self._error = too_large(start.rv, self._store.rv)
                return
            self._initial = [entry for entry in self._table.select(self._namespace) if self._wants(entry)]
            self.resource_version = self._store.rv
            self._initial_bookmark = self._bookmarks
        elif start.rv:
            try:
                self._position = self._table.position_after(start.rv)
            except ApiStatusError as error:
                self._error = error
        else:
            self.resource_version = self._store.rv

    @property
    def on_ready(self) -> bool:
        """Whether a callback is registered."""
        return self._waiter is not None

    def notify(self, callback: Callable[[], None]) -> None:
        """Call `callback` synchronously whenever the watched table changes, until `close`."""
        self._forget()
        self._waiter = self._store.wait(self._table, callback)

    def close(self) -> None:
        """End the watch and its callbacks. Closing twice is fine."""
        self.closed = True
        self._forget()

    def _forget(self) -> None:
        if self._waiter is not None:
            self._table.waiters.pop(self._waiter, None)
            self._waiter = None

    def next_due_ms(self) -> int | None:
        """The next time at which `poll` has something to say without any change: a bookmark or the end."""
        due = [at for at in (self._deadline_ms, self._bookmark_at_ms) if at is not None]
        return min(due) if due and not self.closed else None

    def poll(self) -> list[bytes]:
        """Lines of the stream since the last poll, each one JSON event with its newline."""
        if self.closed:
            return []
        now_ms, view = self._clock(), self._view
        lines: list[bytes] = []
        for type_, what in self._advance(now_ms):
            if isinstance(what, ObjectVersion):
                lines.append(view.event(type_, what, now_ms))
            elif type_ == "BOOKMARK":
                lines.append(view.bookmark(self.resource_version, initial_events_end=what is True))
            else:
                lines.append(msgspec.json.encode({"type": type_, "object": what}) + b"\n")
        return lines

    def poll_events(self) -> list[tuple[str, JsonObject]]:
        """
        (type, object) pairs since the last poll, without encoding.

        The objects are the store's own, in the storage version.
        """
        if self.closed:
            return []
        events: list[tuple[str, JsonObject]] = []
        for type_, what in self._advance(self._clock()):
            if isinstance(what, ObjectVersion):
                events.append((type_, what.obj))
            elif type_ == "BOOKMARK":
                line = self._view.bookmark(self.resource_version, initial_events_end=what is True)
                events.append((type_, msgspec.json.decode(line)["object"]))
            else:
                events.append((type_, what))  # type: ignore[arg-type]
        return events

    # Large: what a watch sends in its order: first objects, bookmark, error or changes, timeout.
    def _advance(self, now_ms: int) -> Iterator[tuple[str, ObjectVersion | bool | JsonObject]]:
        match self._fault() if self._fault is not None else "":
            case "cut":
                self.close()
                return
            case "gone":
                self._error = too_old(self.resource_version, self._store.rv)
            case _:
                pass
        for entry in self._initial:
            yield "ADDED", entry
        self._initial = []
        if self._initial_bookmark:
            self._initial_bookmark = False
            yield "BOOKMARK", True
        changes = self._table.changes_from(self._position)
        if changes is None and self._error is None:
            self._error = too_old(self.resource_version, self._table.compacted_rv)
        if self._error is not None:
            self.close()
            yield "ERROR", self._error.status()
            return
        if changes:
            self._position += len(changes)
            for change in changes:
                if change.rv <= self._floor:
                    # The watch started at a revision that the server has not reached yet, or not again.
                    continue
                self.resource_version = change.rv
                type_ = self._seen_as(change)
                if type_ == "DELETED" and change.type != "DELETED":
                    yield type_, _as_it_left(change)
                elif type_:
                    yield type_, change.entry
        yield from self._timed(now_ms)

    def _timed(self, now_ms: int) -> Iterator[tuple[str, bool]]:
        ending = self._deadline_ms is not None and now_ms >= self._deadline_ms
        if self._bookmark_at_ms is not None and (ending or now_ms >= self._bookmark_at_ms):
            self._bookmark_at_ms = now_ms + BOOKMARK_INTERVAL_MS
            # Nothing of this table is missing up to the store's revision, so the bookmark may be as new as that.
            self.resource_version = max(self.resource_version, self._store.rv)
            yield "BOOKMARK", False
        if ending:
            self.close()

    def _wants(self, entry: ObjectVersion) -> bool:
        if self._namespace and entry.key[0] != self._namespace:
            return False
        return self._matches is None or self._matches(entry.obj)

    def _seen_as(self, change: Change) -> str:
        """The event as this watcher's selectors show it: entering the selection is ADDED, leaving it DELETED."""
        if self._matches is None:
            return change.type if self._wants(change.entry) else ""
        before = change.previous is not None and self._wants(change.previous)
        if change.type == "DELETED":
            return "DELETED" if before else ""
        after = self._wants(change.entry)
        if after:
            return "MODIFIED" if before else "ADDED"
        return "DELETED" if before else ""


def _as_it_left(change: Change) -> ObjectVersion:
    """What a watcher is shown of an object that ceased to match: its last matching state at the change's revision."""
    assert change.previous is not None
    obj = change.previous.obj
    metadata = {**obj["metadata"], "resourceVersion": str(change.rv)}
    return ObjectVersion(change.entry.key, {**obj, "metadata": metadata}, change.rv)
