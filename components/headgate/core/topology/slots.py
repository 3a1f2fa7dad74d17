"""
The parts of a tree of domains: what its leaves have of a resource, and the domains of a level.

`headgate.core.topology.tree` changes them, placement reads them.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from headgate.core.state.tables import Values

IntArray = npt.NDArray[np.int64]

CLAMP: Final = 1 << 62
"""The largest amount in an array, and its negative the smallest."""

GAP: Final = 1 << 36
"""How far apart the orders of neighbouring domains are at first: there is room for those that come between them."""

CHANGES_MAX: Final = 20_000
"""The most changes of leaves that are remembered."""


class LeafChanges:
    """Leaves that have changed, in order; a reader remembers `count` and asks later what has come since."""

    __slots__ = ("_dropped", "_newest")

    def __init__(self) -> None:
        self._newest: list[int] = []
        self._dropped = 0
        """How many are not remembered any more."""

    @property
    def count(self) -> int:
        """How many changes there were."""
        return self._dropped + len(self._newest)

    def add(self, leaf: int) -> None:
        """A leaf has changed."""
        if len(self._newest) >= CHANGES_MAX:
            self._dropped += len(self._newest)
            self._newest.clear()
        self._newest.append(leaf)

    def remembers(self, count: int) -> bool:
        """Whether all changes after the first `count` are remembered."""
        return count >= self._dropped

    def since(self, count: int) -> Iterable[int]:
        """The leaves that changed after the first `count` changes, each once; they must be remembered."""
        return dict.fromkeys(self._newest[count - self._dropped :])


class ResourceColumn:
    """One resource: by leaf, what it has for workloads, and what they use of it; and the differences as arrays."""

    __slots__ = ("_empty", "_free", "_stale", "capacity", "used")

    def __init__(self, leaves: int, room: int) -> None:
        self.capacity = [0] * leaves
        self.used = [0] * leaves
        self._free: IntArray = np.zeros(room, np.int64)
        self._empty: IntArray = np.zeros(room, np.int64)
        self._stale: dict[int, None] = {}
        """Leaves that the arrays lack: written when they are read, since most usage changes many times before."""

    @property
    def free(self) -> IntArray:
        """Capacity less usage."""
        self._write()
        return self._free

    @property
    def empty(self) -> IntArray:
        """Capacity, as if no workload used anything."""
        self._write()
        return self._empty

    def changed(self, leaf: int) -> None:
        """The capacity or the usage of a leaf has changed."""
        self._stale[leaf] = None

    def _write(self) -> None:
        for leaf in self._stale:
            capacity = self.capacity[leaf]
            self._empty[leaf] = max(-CLAMP, min(CLAMP, capacity))
            self._free[leaf] = max(-CLAMP, min(CLAMP, capacity - self.used[leaf]))
        self._stale.clear()

    def grow(self, room: int) -> None:
        """Make room for this many leaves, and add one."""
        self.capacity.append(0)
        self.used.append(0)
        if room > len(self._free):
            self._free, self._empty = grown(self._free, room), grown(self._empty, room)


def grown(array: IntArray, room: int) -> IntArray:
    """A longer copy of an array, filled up with zeros."""
    longer = np.zeros(room, np.int64)
    longer[: len(array)] = array
    return longer


class DomainLevel:
    """The domains of one level, by slot."""

    __slots__ = ("_alive", "_is_stale", "_order", "_sorted", "children", "nodes", "parent", "slots", "values")

    def __init__(self) -> None:
        self.values: list[Values] = []
        """The values of a domain on this level and all above."""
        self.slots: dict[Values, int] = {}
        self.parent: IntArray = np.zeros(8, np.int64)
        self._order: IntArray = np.zeros(8, np.int64)
        self._is_stale = False
        self.nodes: list[int] = []
        """How many nodes are in a domain. A domain without nodes does not exist."""
        self.children: list[list[int]] = []
        """The slots of the next level that are below a domain."""
        self._sorted: list[Values] = []
        self._alive: IntArray | None = None

    def alive(self) -> IntArray:
        """The slots of the domains that exist."""
        if self._alive is None:
            self._alive = np.flatnonzero(np.array(self.nodes, np.int64) > 0).astype(np.int64)
        return self._alive

    @property
    def order(self) -> IntArray:
        """By slot, numbers that ascend by `values`."""
        if self._is_stale:
            for place, values in enumerate(self._sorted):
                self._order[self.slots[values]] = place * GAP
            self._is_stale = False
        return self._order

    def add(self, values: Values, parent: int) -> int:
        """A new slot. Its domain exists when it has nodes."""
        slot = len(self.values)
        if slot == len(self.parent):
            self.parent, self._order = grown(self.parent, 2 * slot), grown(self._order, 2 * slot)
        self.values.append(values)
        self.slots[values] = slot
        self.parent[slot] = parent
        self.nodes.append(0)
        self.children.append([])
        self._put_in_order(values, slot)
        return slot

    def count(self, slot: int, nodes: int) -> None:
        """A domain has that many nodes more."""
        before = self.nodes[slot]
        self.nodes[slot] = before + nodes
        if (before == 0) != (before + nodes == 0):
            self._alive = None

    def _put_in_order(self, values: Values, slot: int) -> None:
        """Between its neighbours. Where there is no number left, all are numbered anew when they are read next."""
        place = bisect_left(self._sorted, values)
        self._sorted.insert(place, values)
        if self._is_stale:
            return
        last = len(self._sorted) - 1
        low = self._order_at(place - 1) if place else None
        high = self._order_at(place + 1) if place < last else None
        if low is None:
            low = (high or 0) - 2 * GAP
        middle = (low + (high if high is not None else low + 2 * GAP)) // 2
        if middle > low:
            self._order[slot] = middle
        else:
            self._is_stale = True

    def _order_at(self, place: int) -> int:
        return int(self._order[self.slots[self._sorted[place]]])
