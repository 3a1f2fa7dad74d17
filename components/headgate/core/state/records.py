"""
Records at rest: a table whose quiet records are kept in a fraction of their memory.

Nearly all workloads of a long line wait without any event, and a record of fifty fields each takes most of a process's
memory. `Records` is a dict that keeps some values as `AtRest`, a packed form that gives an equal record when it is
asked for. Reading a record takes it out of rest: from then on the table has that one object, and what the fold writes
to it stays. For each that comes, the one that was touched longest ago goes to rest, unless anybody else refers to it.

Used for `State.workloads` and `State.jobs`; `headgate.core.state.resting` has their packed forms. Whether a record is
at rest shows in no answer, in no order and in no encoded byte.
"""

from collections import deque
from collections.abc import Callable, Iterator
from sys import getrefcount
from typing import Any, Final, Generic, TypeVar, cast

Key = TypeVar("Key", bound=str)
Record = TypeVar("Record")

AWAKE_MAX: Final = 1024
"""How many of the records that came last are not put to rest: all of a small cell."""


class AtRest(Generic[Record]):
    """Base of the packed forms."""

    __slots__ = ()

    def record(self) -> Record:
        """An equal record."""
        raise NotImplementedError


class Records(dict[Key, Record]):
    """See the module's docstring. `pack` gives the packed form of a record; None when it is not to rest."""

    __slots__ = ("_awake", "_awake_max", "_pack")

    def __init__(
        self, pack: Callable[[Record], AtRest[Record] | None] | None = None, *, awake_max: int = AWAKE_MAX
    ) -> None:
        super().__init__()
        self._pack = pack
        self._awake: deque[Key] = deque()
        """Keys of records that may be put to rest, those touched last at the end; some more than once."""
        self._awake_max = awake_max

    def __setitem__(self, key: Key, record: Record) -> None:
        _set(self, key, record)
        self.touch(key)

    def __getitem__(self, key: Key) -> Record:
        found = _item(self, key)
        return self._woken(key, found) if isinstance(found, AtRest) else cast("Record", found)

    def get(self, key: str, default: Record | None = None) -> Record | None:  # type: ignore[override]
        """As of a dict."""
        found = _get(self, key, default)
        return self._woken(cast("Key", key), found) if isinstance(found, AtRest) else found

    def pop(self, key: Key, *default: Any) -> Any:
        """As of a dict."""
        found = dict.pop(self, key, *default)
        return found.record() if isinstance(found, AtRest) else found

    def items(self) -> Iterator[tuple[Key, Record]]:  # type: ignore[override]
        """As of a dict. Those that were at rest return to it one by one."""
        before: Key | None = None
        for key in self:
            found = _item(self, key)
            if not isinstance(found, AtRest):
                yield key, cast("Record", found)
                continue
            record = found.record()
            _set(self, key, record)
            # The caller may refer to this one as long as it has not asked for the next.
            yield key, record
            del record
            if before is not None:
                self._settle(before)
            before = key
        if before is not None:
            self.touch(before)

    def values(self) -> Iterator[Record]:  # type: ignore[override]
        """As of a dict. Those that were at rest return to it one by one."""
        return (record for _, record in self.items())

    def awake(self) -> Iterator[Record]:
        """The records that are not at rest."""
        return (found for found in dict.values(self) if not isinstance(found, AtRest))

    def peek(self, key: Key) -> Any:
        """A record as it is kept, to read a field that its packed form has too. Raises KeyError."""
        return _item(self, key)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, dict)
            and len(self) == len(other)
            and all(key in other and other[key] == record for key, record in self.items())
        )

    __hash__ = None

    def _woken(self, key: Key, packed: AtRest[Record]) -> Record:
        record = packed.record()
        self[key] = record
        return record

    def touch(self, key: Key) -> None:
        """A record may rest, after all that were touched before it."""
        self._awake.append(key)
        if len(self._awake) > self._awake_max:
            self._settle(self._awake.popleft())

    def _settle(self, key: Key) -> None:
        if self._pack is None or _count(self, key) > UNHELD:
            return
        record = _get(self, key)
        packed = None if record is None or isinstance(record, AtRest) else self._pack(record)
        if packed is not None:
            _set(self, key, packed)


_item: Callable[[Any, Any], Any] = dict.__getitem__
_get: Callable[..., Any] = dict.get
_set: Callable[[Any, Any, Any], None] = dict.__setitem__


def _count(table: Any, key: Any) -> int:
    record = _get(table, key)
    return getrefcount(record)


class _Probe:
    __slots__ = ()


UNHELD: Final = _count({"": _Probe()}, "")
"""The reference count of a record that only its table has, as `_count` finds it."""
