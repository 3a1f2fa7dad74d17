"""
A backlog: keys that a machine has to look at once, those that were added first first.

A new machine looks at every object, so nearly all keys come at the beginning: they are a list, a tenth of what an
ordered dict of a hundred thousand keys takes. Bounded by the number of objects.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Backlog(Generic[Key]):
    """Keys in the order in which they were added. A key waits once, at its first place."""

    __slots__ = ("_begun", "_late")

    def __init__(self, keys: Iterable[Key] = ()) -> None:
        self._begun = list(keys)
        """The keys of the beginning, each once, the last one first."""
        self._begun.reverse()
        self._late: OrderedDict[Key, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._begun or self._late)

    def add(self, key: Key) -> None:
        """Look at this one, too."""
        self._late[key] = None

    def add_all(self, keys: Iterable[Key]) -> None:
        """`add` for several keys, in order."""
        self._late.update(dict.fromkeys(keys))

    def take(self) -> Key:
        """The key that has waited longest. Raises KeyError when none waits."""
        if not self._begun:
            return self._late.popitem(last=False)[0]
        key = self._begun.pop()
        # Added again, it keeps its place.
        self._late.pop(key, None)
        return key

    def clear(self) -> None:
        """Look at none of them."""
        self._begun.clear()
        self._late.clear()
