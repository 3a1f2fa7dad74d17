"""
The queue of keys that may need a write in Kubernetes: one for each kind of write.

It is client-go's workqueue without goroutines and clocks. A machine adds a key whenever something has happened to the
object, takes the keys that are ready, compares actual with desired state, and begins a call where they differ:

    queue.add(key)                           an event may have changed the desired state
    for key in queue.ready(now_ms):          in each turn
        queue.begin(key)                     a call is under way
    queue.done(key) / queue.retry(key)       it succeeded, or failed for good / try again later
    queue.forget(key)                        the object is gone

Guarantees:

- A key waits once, however often it is added, and keys become ready in the order in which they were added.
- At most one call is under way for a key, and at most `in_flight_max` for all. A key that is added meanwhile is ready
  again when the call has ended, so nothing that happened during a call is lost.
- After a failure a key is not ready before its backoff is over, also when it is added again: one second, doubled with
  each failure in a row, five minutes at most, and up to a fifth more (see `backoff_ms`).
- With a `budget` no key is ready without a token, and each `begin` takes one.

A new machine adds every key that may need something: the queue itself is not in the log.
"""

import heapq
import zlib
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from headgate.core.engine.budget import Budget
from headgate.events.ids import UnixMs

Key = TypeVar("Key", bound=Hashable)

BACKOFF_MIN_MS: Final = 1_000
BACKOFF_MAX_MS: Final = 300_000
JITTER_SHARE: Final = 5
"""The jitter is at most this fraction (one part in five) of the backoff."""


def backoff_ms(failures: int, key: object = "") -> int:
    """
    How long to wait after this many failures in a row.

    The jitter spreads keys that failed together. It follows from the key, so that equal histories wait equally.
    """
    base = min(BACKOFF_MIN_MS << min(max(failures, 1) - 1, 20), BACKOFF_MAX_MS)
    return base + zlib.crc32(f"{key}/{failures}".encode()) % (base // JITTER_SHARE + 1)


class WorkQueue(Generic[Key]):
    """See the module docstring. `in_flight_max` bounds the calls under way."""

    def __init__(self, in_flight_max: int, *, budget: Budget | None = None, keys: Iterable[Key] = ()) -> None:
        self._in_flight_max = in_flight_max
        self._budget = budget
        self._ready: OrderedDict[Key, None] = OrderedDict.fromkeys(keys)
        self._in_flight: dict[Key, bool] = {}
        """Keys with a call under way, and whether they were added meanwhile."""
        self._not_before: dict[Key, UnixMs] = {}
        """Keys that become ready at a time: after a delay, or after a backoff."""
        self._line: list[tuple[UnixMs, int, Key]] = []
        """A heap over `_not_before`; may hold outdated times."""
        self._count = 0
        self._failures: dict[Key, int] = {}
        """Failures in a row."""
        self._failed: OrderedDict[Key, None] = OrderedDict()
        """Keys whose backoff begins in the next turn, which has the time."""
        self._now_ms = UnixMs(0)

    # --- adding -------------------------------------------------------------------------------------------------------

    def add(self, key: Key) -> None:
        """A write for a key may be needed now."""
        if key in self._in_flight:
            self._in_flight[key] = True
        elif key not in self._ready:
            self._ready[key] = None

    def add_all(self, keys: Iterable[Key]) -> None:
        """`add` for several keys, in order."""
        for key in keys:
            self.add(key)

    def add_at(self, key: Key, at_ms: UnixMs) -> None:
        """A write for a key may be needed at this time. Of several times the earliest counts."""
        if self.is_backing_off(key) or at_ms >= self._not_before.get(key, _NEVER):
            return
        self._wait(key, at_ms)

    def forget(self, key: Key) -> None:
        """No write for a key is needed any more: its object is gone. A call under way still has to end."""
        self._ready.pop(key, None)
        self._not_before.pop(key, None)
        self._failures.pop(key, None)
        self._failed.pop(key, None)
        if key in self._in_flight:
            self._in_flight[key] = False

    # --- processing ---------------------------------------------------------------------------------------------------

    def ready(self, now_ms: UnixMs) -> Iterator[Key]:
        """The keys that may be processed now, each once, as far as the limit on calls allows."""
        self._pass(now_ms)
        while self._ready and self._has_room(now_ms):
            key = self._ready.popitem(last=False)[0]
            if not self.is_backing_off(key):
                self._not_before.pop(key, None)
                yield key

    def begin(self, key: Key) -> None:
        """A call about a key begins, in the turn in which it was ready."""
        assert key not in self._in_flight, f"two calls at a time about {key}"
        self._in_flight[key] = False
        if self._budget is not None:
            self._budget.take(self._now_ms)

    def done(self, key: Key) -> None:
        """Its call has ended, with success or with an answer that is final."""
        self._failures.pop(key, None)
        self._land(key)

    def retry(self, key: Key) -> None:
        """Its call has failed: it is ready again after a backoff."""
        self._failed[key] = None
        self._land(key)

    def next_at(self, now_ms: UnixMs) -> UnixMs | None:
        """When a key may become ready without a new event; None when no key waits for a time."""
        self._pass(now_ms)
        times = [self._line[0][0]] if self._line else []
        if self._ready and self._budget is not None and (ready_ms := self._budget.ready_at(now_ms)) > now_ms:
            times.append(ready_ms)
        return min(times, default=None)

    # --- queries ------------------------------------------------------------------------------------------------------

    def is_in_flight(self, key: Key) -> bool:
        """Whether a call about a key is under way."""
        return key in self._in_flight

    def is_backing_off(self, key: Key) -> bool:
        """Whether a key waits after a failure."""
        return key in self._failed or (key in self._failures and key in self._not_before)

    @property
    def in_flight(self) -> int:
        """How many calls are under way."""
        return len(self._in_flight)

    def has_room(self) -> bool:
        """Whether the limit allows another call."""
        return len(self._in_flight) < self._in_flight_max

    def __contains__(self, key: Key) -> bool:
        """Whether a key still has to be processed, now or later."""
        return key in self._ready or key in self._not_before or key in self._failed or self._in_flight.get(key, False)

    # --- internals ----------------------------------------------------------------------------------------------------

    def _has_room(self, now_ms: UnixMs) -> bool:
        return self.has_room() and (self._budget is None or self._budget.ready_at(now_ms) <= now_ms)

    def _land(self, key: Key) -> None:
        if self._in_flight.pop(key, False):
            self.add(key)

    def _wait(self, key: Key, at_ms: UnixMs) -> None:
        self._not_before[key] = at_ms
        self._count += 1
        heapq.heappush(self._line, (at_ms, self._count, key))

    def _pass(self, now_ms: UnixMs) -> None:
        """Begin the backoff of failed keys, and make keys ready whose waiting time is over."""
        self._now_ms = now_ms
        for key in self._failed:
            self._failures[key] = self._failures.get(key, 0) + 1
            self._wait(key, UnixMs(now_ms + backoff_ms(self._failures[key], key)))
        self._failed.clear()
        while self._line:
            at_ms, _, key = self._line[0]
            if self._not_before.get(key) == at_ms:
                if at_ms > now_ms:
                    return
                del self._not_before[key]
                self.add(key)
            heapq.heappop(self._line)


_NEVER: Final = UnixMs(1 << 62)
