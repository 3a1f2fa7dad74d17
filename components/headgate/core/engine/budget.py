"""
Budgets: rate limits for deferrable writes, so that urgent writes get the API server's capacity.

Writes of Workload statuses are the most expensive ones for an API server. Admissions, releases and ends are written at
once. Why a workload waits, the counts of a queue and Kubernetes Events are for human readers and are not urgent. Each
of these kinds has a budget: a token bucket that is filled at `rate_max` a second while nothing urgent is written, and
more slowly with more urgent writes, down to `rate_min`. A write without a token waits and then writes the state of that
time.

How many writes a second are many depends on the machine. An API server that answers slowly is busy, whatever the rate:
so unanswered writes count as well, and UNDER_WAY_MAX of them on average reduce the rate to `rate_min`.

Pure: time comes with every call.
"""

import math
from typing import Final

import msgspec

from headgate.events.ids import UnixMs

LOAD_WINDOW_MS: Final = 5_000
"""The time over which urgent writes are averaged, with exponentially decaying weights."""

UNDER_WAY_WINDOW_MS: Final = 2_000
"""The time over which unanswered writes are averaged."""

UNDER_WAY_MAX: Final = 4
"""The average number of unanswered Workload status writes that reduces the rate to `rate_min`."""


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Writes a second when idle and under load, the burst size, and how much an urgent write reduces the rate."""

    rate_max: float
    rate_min: float
    burst: float
    share: float = 1.0


class Load:
    """Urgent writes a second, and the number of Workload statuses being written, as moving averages."""

    def __init__(self) -> None:
        self._per_second = 0.0
        self._under_way = 0.0
        self._under_way_now = 0
        self._at_ms = UnixMs(0)

    def note(self, now_ms: UnixMs, count: int, under_way: int) -> None:
        """Record urgent writes that were begun just now; with them, `under_way` writes of any kind are under way."""
        self._under_way = self.under_way(now_ms)
        self._under_way_now = under_way
        self._per_second = self.per_second(now_ms) + count * 1000 / LOAD_WINDOW_MS
        self._at_ms = max(self._at_ms, now_ms)

    def per_second(self, now_ms: UnixMs) -> float:
        """The current average of urgent writes."""
        return self._per_second * self._remains(now_ms, LOAD_WINDOW_MS)

    def under_way(self, now_ms: UnixMs) -> float:
        """The current average of unanswered writes."""
        remains = self._remains(now_ms, UNDER_WAY_WINDOW_MS)
        return self._under_way * remains + self._under_way_now * (1 - remains)

    def _remains(self, now_ms: UnixMs, window_ms: int) -> float:
        """What is left of an average that was updated at `_at_ms`."""
        return math.exp(-max(0, now_ms - self._at_ms) / window_ms)


class Budget:
    """A bucket of tokens for one kind of writes. Shares the load with the other kinds."""

    def __init__(self, settings: BudgetSettings, load: Load) -> None:
        self._settings = settings
        self._load = load
        self._tokens = settings.burst
        self._at_ms: UnixMs | None = None

    def rate(self, now_ms: UnixMs) -> float:
        """The current number of tokens a second."""
        settings = self._settings
        left = settings.rate_max - settings.share * self._load.per_second(now_ms)
        idle = max(0.0, 1 - self._load.under_way(now_ms) / UNDER_WAY_MAX)
        return max(settings.rate_min, idle * left)

    def take(self, now_ms: UnixMs) -> bool:
        """Take a token if there is one."""
        self._fill(now_ms)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def ready_at(self, now_ms: UnixMs) -> UnixMs:
        """When the next token will be available at the current load; `now_ms` when one is."""
        self._fill(now_ms)
        lacking = max(0.0, 1 - self._tokens)
        return UnixMs(now_ms + math.ceil(lacking * 1000 / self.rate(now_ms)))

    def _fill(self, now_ms: UnixMs) -> None:
        if self._at_ms is None or now_ms <= self._at_ms:
            self._at_ms = max(now_ms, self._at_ms or now_ms)
            return
        gained = self.rate(now_ms) * (now_ms - self._at_ms) / 1000
        self._tokens = min(self._settings.burst, self._tokens + gained)
        self._at_ms = now_ms
