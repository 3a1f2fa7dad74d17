"""
Rate limits, repeated failures, and whether requests currently succeed.

The clock is a parameter, so a simulation with a virtual clock waits the same times in every run.
"""

import time
from collections.abc import Awaitable, Callable

import anyio
import msgspec

Sleep = Callable[[float], Awaitable[None]]


class RateLimiter:
    """
    A token bucket: `burst` at once, then `qps` a second, in order of arrival.

    It is the generic cell rate algorithm (ITU-T I.371): one number, the theoretical time of the next arrival,
    represents the bucket, and each caller reserves its place before it sleeps, so no caller overtakes another.
    """

    def __init__(
        self, *, qps: float, burst: int, clock: Callable[[], float] = time.monotonic, sleep: Sleep = anyio.sleep
    ) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"a rate limit needs qps > 0 and burst >= 1, not qps {qps} and burst {burst}")
        self._interval_s = 1.0 / qps
        self._tolerance_s = (burst - 1) * self._interval_s
        self._clock = clock
        self._sleep = sleep
        self._next_s = float("-inf")
        #: How many callers had to wait, and how long in all (seconds).
        self.delayed = 0
        self.delayed_s = 0.0

    async def acquire(self) -> None:
        """Return when the caller may proceed."""
        now_s = self._clock()
        arrival_s = max(self._next_s, now_s)
        self._next_s = arrival_s + self._interval_s
        wait_s = arrival_s - self._tolerance_s - now_s
        if wait_s > 0:
            self.delayed += 1
            self.delayed_s += wait_s
            await self._sleep(wait_s)


class Repeats:
    """
    Suppresses repeated failures. An unreachable API server fails everything at once, and one log line is enough.

    A kind of failure is news when it did not occur for `quiet_s`. Kinds are few: a class of error, a status code.
    """

    def __init__(self, *, quiet_s: float = 30.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet_s = quiet_s
        self._clock = clock
        self._said_at: dict[str, float] = {}

    def is_news(self, kind: str) -> bool:
        """Whether this failure is to be logged. After that, further ones of its kind are suppressed for a while."""
        now_s = self._clock()
        if now_s - self._said_at.get(kind, float("-inf")) < self._quiet_s:
            return False
        self._said_at[kind] = now_s
        return True

    def clear(self) -> None:
        """Everything works again: the next failure is news."""
        self._said_at.clear()


class ApiServerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """
    Whether requests to the API server currently succeed.

    `failing_since` is unix time in seconds, None when nothing is failing; `error` is the newest failure; `attempts`
    counts the failed attempts since then.
    """

    failing_since: float | None = None
    error: str = ""
    attempts: int = 0

    @property
    def ok(self) -> bool:
        """Nothing is failing right now."""
        return self.failing_since is None
