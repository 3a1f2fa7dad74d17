"""
The object store: one revision counter, one ordered map per kind, one bounded history per kind.

Owns what etcd and the watch cache own in a real cluster. It does not depend on HTTP, validation or controllers: it
assigns resource versions, keeps objects in key order, keeps recent changes so that watches and paged lists can
start in the past, and notifies its listeners of each change, synchronously and in order.

Promises: objects are never written into, only replaced; a version is encoded once for all watches and answers that
show it while it is among the latest ENCODED_MAX changes of its kind, and once more for all lists after that; history
is bounded per kind (`history_max`), and what fell out of it is answered by 410. An Event is in the tables of both its
groups.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from typing import Any, Final

import msgspec
from sortedcontainers import SortedDict

from headgate.testing.cluster.errors import too_old
from headgate.testing.cluster.kinds import KINDS, Kind
from headgate.testing.cluster.storage.event_groups import CORE, GROUPED, in_other_group

JsonObject = dict[str, Any]
Key = tuple[str, str]
"""(namespace, name); the namespace of cluster-scoped objects is empty."""

ENCODED_MAX: Final = 256
"""For how many changes of a kind the JSON of a version is kept beside the object, which it may outweigh."""

_TWO_GROUPS: Final = frozenset({CORE, GROUPED})
_LAST: Final = "\U0010ffff"
_encode: Final = msgspec.json.Encoder().encode


def order(key: Key) -> Key:
    """What keys sort by. Storage keys are one text, `namespace/name`, so `a-b/x` comes before `a/x`."""
    return key[0] + "/", key[1]


class ObjectVersion:
    """One version of one object."""

    __slots__ = ("_encoded", "key", "obj", "rv")

    def __init__(self, key: Key, obj: JsonObject, rv: int) -> None:
        self.key = key
        self.obj = obj
        self.rv = rv
        self._encoded: bytes | None = None

    @property
    def encoded(self) -> bytes:
        """The object as JSON; made on first use."""
        if self._encoded is None:
            self._encoded = _encode(self.obj)
        return self._encoded

    def forget_encoded(self) -> None:
        """Make the JSON again on next use: watches have sent this version long ago."""
        self._encoded = None


class Change:
    """One change: the new version (for a deletion, the last one with the deletion's revision) and the one before."""

    __slots__ = ("entry", "previous", "rv", "type")

    def __init__(self, rv: int, type_: str, entry: ObjectVersion, previous: ObjectVersion | None) -> None:
        self.rv = rv
        self.type = type_
        self.entry = entry
        self.previous = previous


class Table:
    """All objects of one kind, and their recent changes."""

    __slots__ = ("_history", "_history_max", "_offset", "compacted_rv", "entries", "kind", "waiters")

    def __init__(self, kind: Kind, history_max: int) -> None:
        self.kind = kind
        self.entries: SortedDict[Key, ObjectVersion] = SortedDict(order)
        self._history: list[Change] = []
        self._history_max = history_max
        self._offset = 0
        self.compacted_rv = 0
        self.waiters: dict[int, Callable[[], None]] = {}

    def record(self, change: Change) -> None:
        """Append to the history, dropping its older half when it is twice as long as promised."""
        self._history.append(change)
        if len(self._history) > ENCODED_MAX:
            self._history[-1 - ENCODED_MAX].entry.forget_encoded()
        if len(self._history) > 2 * self._history_max:
            self.compact(len(self._history) - self._history_max)

    def compact(self, count: int | None = None) -> None:
        """Drop the oldest `count` changes (all, if not given): watches and lists from before them get 410."""
        dropped = len(self._history) if count is None else min(count, len(self._history))
        if dropped:
            self.compacted_rv = self._history[dropped - 1].rv
            del self._history[:dropped]
            self._offset += dropped

    def position_after(self, rv: int) -> int:
        """The position of the first change after `rv`. Raises ApiStatusError 410 if later changes were compacted."""
        if rv < self.compacted_rv:
            raise too_old(rv, self.compacted_rv)
        return self._offset + bisect_right(self._history, rv, key=lambda change: change.rv)

    def changes_from(self, position: int) -> list[Change] | None:
        """The changes from a position on, or None if some of them were forgotten."""
        if position < self._offset:
            return None
        return self._history[position - self._offset :] if position - self._offset < len(self._history) else []

    def position(self) -> int:
        """The position that the next change will have."""
        return self._offset + len(self._history)

    def select(self, namespace: str, after: Key | None = None) -> Iterator[ObjectVersion]:
        """Entries in key order, of one namespace or (empty) all, strictly after a key if given."""
        low: Key | None = (namespace, "") if namespace else None
        high: Key | None = (namespace, _LAST) if namespace else None
        exclusive = after is not None and (low is None or order(after) >= order(low))
        keys = self.entries.irange(after if exclusive else low, high, inclusive=(not exclusive, True))
        entries = self.entries
        return (entries[key] for key in keys)

    def count_after(self, namespace: str, after: Key | None) -> int:
        """How many entries `select` would give, without walking over them."""
        keys = self.entries
        high = keys.bisect_right((namespace, _LAST)) if namespace else len(keys)
        low = keys.bisect_left((namespace, "")) if namespace else 0
        if after is not None:
            low = max(low, keys.bisect_right(after))
        return max(0, high - low)

    def as_of(self, rv: int, namespace: str, after: Key | None) -> tuple[Iterator[ObjectVersion], int]:
        """
        Entries as they were at a revision, in key order and lazily, and how many they are.

        Raises ApiStatusError 410 if the history does not reach back that far.
        """
        start = self.position_after(rv)
        undone: dict[Key, ObjectVersion | None] = {}
        behind = None if after is None else order(after)
        for change in reversed(self._history[start - self._offset :]):
            key = change.entry.key
            if (not namespace or key[0] == namespace) and (behind is None or order(key) > behind):
                undone[key] = change.previous
        count = self.count_after(namespace, after)
        if not undone:
            return self.select(namespace, after), count
        count -= sum(1 for key in undone if key in self.entries)
        restored = sorted((entry for entry in undone.values() if entry is not None), key=_key)
        untouched = (entry for entry in self.select(namespace, after) if entry.key not in undone)
        return merge(untouched, restored, key=_key), count + len(restored)


def _key(entry: ObjectVersion) -> Key:
    return order(entry.key)


Listener = Callable[[Table, Change], None]


class Store:
    """Every table and the revision counter."""

    def __init__(self, *, history_max: int) -> None:
        self.rv = 1
        self.tables: dict[tuple[str, str], Table] = {
            (kind.group, kind.plural): Table(kind, history_max) for kind in KINDS
        }
        self._listeners: list[Listener] = []
        self._waiter_count = 0

    def table(self, kind: Kind) -> Table:
        """The table of a kind."""
        return self.tables[(kind.group, kind.plural)]

    def restore(self, rv: int, objects: Iterable[tuple[Table, Key, JsonObject]]) -> None:
        """
        Begin with these objects, at this revision, in an empty store; no listener is notified.

        What happened before is not known: watches and lists from before it get 410.
        """
        for table, key, obj in objects:
            table.entries[key] = ObjectVersion(key, obj, int(obj["metadata"]["resourceVersion"]))
        self.rv = rv
        for table in self.tables.values():
            table.compacted_rv = rv

    def listen(self, listener: Listener) -> None:
        """Call `listener` after each change, in the order of the changes; it must not write to the store."""
        self._listeners.append(listener)

    def put(self, table: Table, key: Key, obj: JsonObject) -> ObjectVersion:
        """Store a version. `obj` and its metadata become the store's: the caller has made both afresh."""
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        entry = self._stored(table, key, obj)
        if (table.kind.group, table.kind.plural) in _TWO_GROUPS:
            other, shown = in_other_group((table.kind.group, table.kind.plural), obj)
            self._stored(self.tables[other], key, shown)
        return entry

    def _stored(self, table: Table, key: Key, obj: JsonObject) -> ObjectVersion:
        previous = table.entries.get(key)
        entry = ObjectVersion(key, obj, self.rv)
        table.entries[key] = entry
        self._publish(table, Change(self.rv, "ADDED" if previous is None else "MODIFIED", entry, previous))
        return entry

    def remove(self, table: Table, key: Key) -> ObjectVersion:
        """Remove an object; the returned entry is its last version with the revision of the removal."""
        self.rv += 1
        entry = self._removed(table, key)
        if (table.kind.group, table.kind.plural) in _TWO_GROUPS:
            other, _ = in_other_group((table.kind.group, table.kind.plural), entry.obj)
            if key in self.tables[other].entries:
                self._removed(self.tables[other], key)
        return entry

    def _removed(self, table: Table, key: Key) -> ObjectVersion:
        previous = table.entries.pop(key)
        metadata = {**previous.obj["metadata"], "resourceVersion": str(self.rv)}
        entry = ObjectVersion(key, {**previous.obj, "metadata": metadata}, self.rv)
        self._publish(table, Change(self.rv, "DELETED", entry, previous))
        return entry

    def _publish(self, table: Table, change: Change) -> None:
        table.record(change)
        for listener in self._listeners:
            listener(table, change)
        for waiter in list(table.waiters.values()):
            waiter()

    def wait(self, table: Table, waiter: Callable[[], None]) -> int:
        """Register a callback for each change of a table; returns the number to `forget` it by."""
        self._waiter_count += 1
        table.waiters[self._waiter_count] = waiter
        return self._waiter_count
