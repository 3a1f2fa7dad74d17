"""
The clock that a process decides by, and the watch on it.

The wall clock counts as far as the broker and the other producers bear it out (`headgate.core.log.log_time`). What they
show comes by with every commit; where nothing comes by, the broker is asked. A process whose own clock is the one that
is wrong says so and does not lead until it is right; a clock of the broker that is wrong is only told.
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
"""In every so many looks the broker is asked for its time; in each while the clocks disagree."""
PROBLEM: Final = "clock"


def wall_ms() -> int:
    """The wall clock of this machine."""
    return time.time_ns() // 1_000_000


def mono_ms() -> int:
    """A clock that nobody sets."""
    return time.monotonic_ns() // 1_000_000


class Clock:
    """The clock of one process. `is_off` says that it is wrong, by the broker and by all others."""

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

    def hear(self, logged: LoggedCommit) -> None:
        """A commit has come by, fresh from the broker."""
        commit = logged.commit
        self._clocks.hear(commit.producer, commit.time_ms, logged.stored_ms, self._mono())

    def look(self) -> ClockVerdict:
        """Compare the clocks as they are now, and tell what has changed."""
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
        """Ask the broker what time it is: before anything is decided, and where nothing else comes by."""
        broker_ms = await log.now_ms()
        if broker_ms:
            self._clocks.hear_broker(broker_ms, self._mono())

    async def watch(self, log: Log, ring: Callable[[], None]) -> None:
        """Compare the clocks also when nothing happens, by what the broker says; ring when they disagree."""
        looks = 0
        while True:
            await anyio.sleep(LOOK_S)
            looks += 1
            if looks % ASK_EVERY == 0 or self._verdict.text:
                await self.ask(log)
            if self.look().text:
                ring()
