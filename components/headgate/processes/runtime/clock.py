"""
The clock that a process decides by, and its supervision.

The wall clock is used as long as it agrees with the broker and the other producers (`headgate.core.log.log_time`).
Every commit contains their time; without commits the broker is queried. A process whose own clock is wrong reports it
and does not lead until it is right; a wrong clock of the broker is only reported.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

import anyio

from headgate.adapters.log import Log
from headgate.core.log.log_time import SOUND, Clocks, ClockVerdict
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit
from headgate.events.ids import UnixMs
from headgate.processes.runtime.process_status import Status

_LOG: Final = logging.getLogger(__name__)

LOOK_S: Final = 2.0
"""How often the clocks are compared when nothing happens."""
ASK_EVERY: Final = 15
"""The broker's time is queried once in so many checks; in each one while the clocks disagree."""
PROBLEM: Final = "clock"


def wall_ms() -> int:
    """The wall clock of this machine."""
    return time.time_ns() // 1_000_000


def mono_ms() -> int:
    """A monotonic clock."""
    return time.monotonic_ns() // 1_000_000


class ProcessClock:
    """The clock of one process. `is_off` is set when it disagrees with the broker and all others."""

    def __init__(
        self,
        producer: Producer,
        status: Status,
        *,
        wall: Callable[[], int] = wall_ms,
        mono: Callable[[], int] = mono_ms,
    ) -> None:
        self._clocks = Clocks(producer)
        self._status = status
        self._wall = wall
        self._mono = mono
        self._verdict = SOUND
        self._changed = anyio.Event()

    def now_ms(self) -> UnixMs:
        """The time to decide with."""
        return self._clocks.now_ms(self._wall(), self._mono())

    def observe(self, logged: LoggedCommit) -> None:
        """A commit was received, fresh from the broker."""
        commit = logged.commit
        self._clocks.observe(commit.producer, commit.time_ms, logged.stored_ms, self._mono())

    def look(self) -> ClockVerdict:
        """Compare the clocks as they are now, and report changes."""
        verdict = self._clocks.judge(self._wall(), self._mono())
        if (verdict.own_is_off, bool(verdict.text)) != (self._verdict.own_is_off, bool(self._verdict.text)):
            if verdict.text:
                _LOG.log(logging.ERROR if verdict.own_is_off else logging.WARNING, "%s", verdict.text)
            else:
                _LOG.info("the clocks agree again")
        self._verdict = verdict
        self._status.problem(PROBLEM, verdict.text if verdict.own_is_off else None)
        self._status.counters.clock_off = int(bool(verdict.text))
        self._changed.set()
        return verdict

    async def until_right(self) -> None:
        """Return when the clock is not known to be wrong."""
        while self.look().own_is_off:
            self._changed = anyio.Event()
            await self._changed.wait()

    async def ask(self, log: Log) -> None:
        """Query the broker's time: before anything is decided, and when there are no commits."""
        broker_ms = await log.now_ms()
        if broker_ms:
            self._clocks.observe_broker(broker_ms, self._mono())

    async def watch(self, log: Log, ring: Callable[[], None]) -> None:
        """Compare the clocks also without commits, by the broker's time; wake the loop when they disagree."""
        looks = 0
        while True:
            await anyio.sleep(LOOK_S)
            looks += 1
            if looks % ASK_EVERY == 0 or self._verdict.text:
                await self.ask(log)
            if self.look().text:
                ring()
