"""
The spacing of a process's turns: none where there is idle CPU, in batches where there is none.

Each turn of a process folds all that has arrived, decides once and appends at most one commit, and each commit wakes
all the others. So turns in quick succession make many small commits, and the fixed cost of a commit (six readers, a
round trip, a cycle) is paid for each. On a machine with idle cores that gives a low latency from submission to
admission. On a busy one every process waits for a core anyway, and fewer, larger turns do the same work for less: then
turns are spaced out. A scheduler hurries while there are heads for more than one cycle in a ClusterQueue in which none
waits for quota: a cycle decides one of each ClusterQueue, so its pauses limit how many are admitted in a second. And
where pauses leave CPU time idle, the machine is not busy any more, and there are none. Nothing depends on the latency
of the snapshotter, nor of an ungater that only follows the log, because no job is to be started or stopped.

The machine's load is read from /proc/stat; without it (not Linux) the machine counts as idle.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from headgate.events.base import Producer

PAUSE_S: Final[Mapping[Producer, float]] = {
    Producer.INFORMER_BRIDGE: 0.12,
    Producer.QUEUE_MANAGER: 0.1,
    Producer.SCHEDULER: 0.1,
    Producer.BINDER: 0.15,
    Producer.UNGATER: 0.1,
    Producer.SNAPSHOTTER: 0.5,
}
"""From the beginning of a turn to that of the next on a busy machine, in seconds."""

HURRIED_S: Final = 0.05
"""The same before a turn for which there is work already."""

QUIET_PAUSE_S: Final[Mapping[Producer, float]] = {Producer.UNGATER: 0.5}
"""The same for a process that has appended nothing and made no call for `QUIET_AFTER_S`, where it differs."""

QUIET_AFTER_S: Final = 2.0

LOOK_S: Final = 0.5
"""The interval between two load checks, while there is anything to do."""

IDLE_MIN: Final = 0.1
"""The machine is busy when less than this share of its CPU time was idle since the last check."""

_STAT: Final = Path("/proc/stat")
_IDLE, _IOWAIT = 3, 4


class CpuTimes(NamedTuple):
    """CPU time of the whole machine since it started, in ticks of the kernel."""

    idle: int
    total: int


def machine_times() -> CpuTimes | None:
    """The machine's CPU times, or None where they cannot be read."""
    try:
        with _STAT.open("rb") as file:
            fields = [int(field) for field in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    return CpuTimes(idle=fields[_IDLE] + fields[_IOWAIT], total=sum(fields)) if len(fields) > _IOWAIT else None


class Pace:
    """The pace of one process. `pause_s` is called before each turn."""

    def __init__(
        self,
        producer: Producer,
        times: Callable[[], CpuTimes | None] = machine_times,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._apart_s = PAUSE_S[producer]
        self._quiet_apart_s = QUIET_PAUSE_S.get(producer, self._apart_s)
        self._times = times
        self._clock_s = clock_s
        self._last = times()
        self._looked_s = self._began_s = self._acted_s = clock_s()
        self.is_busy = False

    def pause_s(self, *, hurried: bool = False) -> float:
        """How long to wait before the turn that is about to begin, in seconds. Counts the turn as begun after it."""
        now_s = self._clock_s()
        if now_s - self._looked_s >= LOOK_S:
            self._look(now_s)
        apart_s = self._apart_s if now_s - self._acted_s < QUIET_AFTER_S else self._quiet_apart_s
        if hurried:
            apart_s = min(apart_s, HURRIED_S)
        pause_s = max(0.0, self._began_s + apart_s - now_s) if self.is_busy else 0.0
        self._began_s = now_s + pause_s
        return pause_s

    def acted(self) -> None:
        """The process appends something or makes a call: others are likely to wait for its result."""
        self._acted_s = self._clock_s()

    def _look(self, now_s: float) -> None:
        self._looked_s = now_s
        before, self._last = self._last, self._times()
        if before is None or self._last is None:
            self.is_busy = False
            return
        passed = self._last.total - before.total
        self.is_busy = passed > 0 and (self._last.idle - before.idle) < IDLE_MIN * passed
