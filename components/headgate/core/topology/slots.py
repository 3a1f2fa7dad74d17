"""
The parts of a tree of domains: what its leaves have of a resource, and the domains of a level.

`headgate.core.topology.tree` changes them, placement reads them.
"""

from bisect import bisect_left
from typing import Final

import numpy as np
import numpy.typing as npt

from headgate.core.state.tables import Values

IntArray = npt.NDArray[np.int64]

CLAMP: Final = 1 << 62
"""The largest amount in an array, and its negative the smallest."""

GAP: Final = 1 << 36
"""How far apart the orders of neighbouring domains are at first: there is room for those that come between them."""


class ResourceColumn:
    """One resource: by leaf, what it has for workloads, and what they use of it; and the differences as arrays."""

    __slots__ = ("capacity", "empty", "free", "used")

    def __init__(self, leaves: int, room: int) -> None:
        self.capacity = [0] * leaves
        self.used = [0] * leaves
        self.free: IntArray = np.zeros(room, np.int64)
        """Capacity less usage."""
        self.empty: IntArray = np.zeros(room, np.int64)
        """Capacity, as if no workload used anything."""

    def write(self, leaf: int) -> None:
        """Bring the arrays up to date for a leaf."""
        capacity = self.capacity[leaf]
        self.empty[leaf] = max(-CLAMP, min(CLAMP, capacity))
        self.free[leaf] = max(-CLAMP, min(CLAMP, capacity - self.used[leaf]))

    def grow(self, room: int) -> None:
        """Make room for this many leaves, and add one."""
        self.capacity.append(0)
        self.used.append(0)
        if room > len(self.free):
            self.free, self.empty = grown(self.free, room), grown(self.empty, room)


def grown(array: IntArray, room: int) -> IntArray:
    """A longer copy of an array, filled up with zeros."""
    longer = np.zeros(room, np.int64)
    longer[: len(array)] = array
    return longer


class DomainLevel:
    """The domains of one level, by slot."""

    __slots__ = ("_alive", "_sorted", "children", "nodes", "order", "parent", "slots", "values")

    def __init__(self) -> None:
        self.values: list[Values] = []
        """The values of a domain on this level and all above."""
        self.slots: dict[Values, int] = {}
        self.parent: IntArray = np.zeros(8, np.int64)
        self.order: IntArray = np.zeros(8, np.int64)
        """Ascending by `values`."""
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

    def add(self, values: Values, parent: int) -> int:
        """A new slot. Its domain exists when it has nodes."""
        slot = len(self.values)
        if slot == len(self.parent):
            self.parent, self.order = grown(self.parent, 2 * slot), grown(self.order, 2 * slot)
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
        place = bisect_left(self._sorted, values)
        self._sorted.insert(place, values)
        low = self._order_at(place - 1) if place > 0 else -GAP * 2
        high = self._order_at(place + 1) if place + 1 < len(self._sorted) else low + GAP * 2
        if place == 0 and len(self._sorted) > 1:
            low = high - GAP * 2
        middle = (low + high) // 2
        if low < middle < high:
            self.order[slot] = middle
            return
        for index, each in enumerate(self._sorted):
            self.order[self.slots[each]] = index * GAP

    def _order_at(self, place: int) -> int:
        return int(self.order[self.slots[self._sorted[place]]])
