"""
Budgets: how many writes that can wait are made in a second, so that those that cannot wait have the API server.

A write of a Workload's status is what an API server pays for most. Admissions, evictions and ends are written at once;
why a workload waits, the counts of a queue and Kubernetes Events are for people, who look once in a while. Each of
these kinds has a budget: a bucket of tokens that is filled at `rate_max` a second while nothing urgent is written, and
more slowly the more there is, down to `rate_min`. What has no token waits and is written with the state of then.

Pure: time comes with every call.
"""

import math
from typing import Final

import msgspec

from headgate.events.ids import UnixMs

LOAD_WINDOW_MS: Final = 5_000
"""The time over which urgent writes are averaged, with weights that fall off exponentially."""


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Writes a second when idle and under load, how many may come at once, and what an urgent write takes away."""

    rate_max: float
    rate_min: float
    burst: float
    share: float = 1.0


class Load:
    """Urgent writes a second, as a moving average."""

    def __init__(self) -> None:
        self._per_second = 0.0
        self._at_ms = UnixMs(0)

    def note(self, now_ms: UnixMs, count: int) -> None:
        """So many urgent writes were begun just now."""
        self._per_second = self.per_second(now_ms) + count * 1000 / LOAD_WINDOW_MS
        self._at_ms = max(self._at_ms, now_ms)

    def per_second(self, now_ms: UnixMs) -> float:
        """The average now."""
        passed_ms = max(0, now_ms - self._at_ms)
        return self._per_second * math.exp(-passed_ms / LOAD_WINDOW_MS)


class Budget:
    """A bucket of tokens for one kind of writes. Shares the load with the other kinds."""

    def __init__(self, settings: BudgetSettings, load: Load) -> None:
        self._settings = settings
        self._load = load
        self._tokens = settings.burst
        self._at_ms: UnixMs | None = None

    def rate(self, now_ms: UnixMs) -> float:
        """Tokens a second now."""
        settings = self._settings
        left = settings.rate_max - settings.share * self._load.per_second(now_ms)
        return max(settings.rate_min, min(settings.rate_max, left))

    def take(self, now_ms: UnixMs) -> bool:
        """Take a token if there is one."""
        self._fill(now_ms)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def ready_at(self, now_ms: UnixMs) -> UnixMs:
        """When the next token will be there, as the load is now; `now_ms` when one is."""
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
