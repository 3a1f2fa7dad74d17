"""
Counters that the devices of a pool share, such as the memory of a GPU that is cut up in several ways.

A device takes its part of them when it is allocated. Source: structured/internal/incubating/allocator_incubating.go
(`checkAvailableCounters`), except that pools of two drivers do not share what they count when they have one name.
"""

from fractions import Fraction

from headgate.core.placement.plugins.dynamic_resources_entries import DeviceEntry, PoolId
from headgate.core.placement.plugins.dynamic_resources_index import DeviceIndex
from headgate.core.placement.plugins.dynamic_resources_pools import DevicePool

Values = dict[tuple[str, str], Fraction]


class AvailableCounters:
    """What allocated devices have left of the counters of each pool, computed once an attempt."""

    def __init__(self, index: DeviceIndex) -> None:
        self._index = index
        self._of_pool: dict[PoolId, Values] = {}

    def of(self, pool: DevicePool) -> Values:
        """What is left; less than nothing is none. Whichever node sees the pool, it has the same devices."""
        known = self._of_pool.get(pool.id)
        if known is None:
            known = self._of_pool[pool.id] = dict(pool.counters)
            for entry in (*pool.devices, *pool.others):
                if entry.consumptions and self._index.is_allocated(entry.id):
                    for consumed in entry.consumptions:
                        known[consumed.counter_set, consumed.counter] -= consumed.value
        return known


class PoolCounters:
    """What one search has taken of them."""

    def __init__(self, available: AvailableCounters) -> None:
        self._available = available
        self._taken: dict[PoolId, Values] = {}

    def take(self, pool: DevicePool, entry: DeviceEntry) -> bool:
        """Take what a device needs. False, and nothing is taken, if any counter of the pool has too little left."""
        taken = self._change(pool, entry, 1)
        if all(taken.get(key, 0) <= value for key, value in self._available.of(pool).items()):
            return True
        self.give_back(pool, entry)
        return False

    def give_back(self, pool: DevicePool, entry: DeviceEntry) -> None:
        """Take no longer what a device needs."""
        self._change(pool, entry, -1)

    def _change(self, pool: DevicePool, entry: DeviceEntry, sign: int) -> Values:
        taken = self._taken.setdefault(pool.id, {})
        for consumed in entry.consumptions:
            key = (consumed.counter_set, consumed.counter)
            taken[key] = taken.get(key, Fraction(0)) + sign * consumed.value
        return taken
