"""
The status of a process: its phase, its counters, and what it waits for.

The loop writes it; /readyz, /metrics and the logs read it. No decision depends on it. Counters are plain integers, so
that counting costs nothing on an event's path; telemetry reads them on request.
"""

import enum
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from headgate.adapters.jetstream.health import Dependency, DependencyHealth

KUBERNETES = "kubernetes"

QUARANTINE_SHOWN_MAX = 20
"""How many objects in quarantine /readyz names."""


class Phase(enum.StrEnum):
    """The phase of a process."""

    STARTING = "starting"
    """It folds the log up to its end at the start of the process."""
    STANDBY = "standby"
    """It folds the log and waits for the lease."""
    OPENING = "opening"
    """It has the lease and opens its term in the log."""
    LEADING = "leading"
    """It decides."""
    STOPPING = "stopping"
    """It finishes what is under way."""


class Counters(msgspec.Struct, kw_only=True):
    """Since the process began, except for the last six, which are current values."""

    commits_folded: int = 0
    events_folded: int = 0
    commits_appended: int = 0
    events_appended: int = 0
    appends_refused: int = 0
    terms: int = 0
    decisions: int = 0
    stimuli: int = 0
    calls: int = 0
    calls_refused: int = 0
    snapshots: int = 0
    verifications: int = 0
    divergences: int = 0
    feed_messages: int = 0
    events_dropped: int = 0
    fold_ns: int = 0
    decide_ns: int = 0
    append_ns: int = 0
    calls_unfinished: int = 0
    entries_waiting: int = 0
    stimuli_waiting: int = 0
    entries_refused: int = 0
    position: int = 0
    epoch: int = 0
    clock_off: int = 0


Tally = Callable[[], Iterable[tuple[float, Mapping[str, str]]]]
"""Counts since the process began, each with its labels."""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The body of /readyz. A notice is something to examine that does not make the process unready."""

    ready: bool
    process: str
    cell: str
    holder: str
    phase: Phase
    position: int
    log_end: int
    epoch: int
    detail: str = ""
    problems: tuple[str, ...] = ()
    quarantined: int = 0
    """The number of objects in quarantine. The process is ready all the same."""
    quarantine: tuple[str, ...] = ()
    """The first of them, by `<kind>/<key>`."""
    notices: tuple[str, ...] = ()
    dependencies: tuple[Dependency, ...] = ()


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Status:
    """One process's status. `health` is shared with its adapters; `probes` are called at each report (kubernetes)."""

    def __init__(
        self,
        *,
        process: str,
        cell: str,
        holder: str,
        health: DependencyHealth,
        now_ms: Callable[[], int] = _wall_clock_ms,
    ) -> None:
        self.process = process
        self.cell = cell
        self.holder = holder
        self.health = health
        self.phase = Phase.STARTING
        self.detail = "not connected to the log yet"
        self.counters = Counters()
        self.log_end = 0
        self.started_ms = now_ms()
        self.probes: list[Callable[[], Dependency]] = []
        # Counts of repeated calls to the API server, and of watch events.
        self.retries: list[Tally] = []
        self.watches: list[Tally] = []
        # The scheduler's: pods by their place in its queue, and plugins that have failed.
        self.pending_pods: Tally = tuple
        self.plugin_failures: Tally = tuple
        self.quarantine: Callable[[], Sequence[str]] = tuple
        """The objects in quarantine, by `<kind>/<key>`."""
        self._problems: dict[str, str] = {}
        self._notices: dict[str, str] = {}

    def problem(self, name: str, text: str | None) -> None:
        """Set, or with None remove, something that makes the process unready and that is no dependency."""
        if text is None:
            self._problems.pop(name, None)
        else:
            self._problems[name] = text

    def notice(self, name: str, text: str | None) -> None:
        """Set, or with None remove, something that an operator should examine although the process is ready."""
        if text is None:
            self._notices.pop(name, None)
        else:
            self._notices[name] = text

    @property
    def problems(self) -> Mapping[str, str]:
        """Internal problems, by name."""
        return self._problems

    def dependencies(self) -> list[Dependency]:
        """All dependencies, healthy or not."""
        return [*self.health.dependencies(), *(probe() for probe in self.probes)]

    def report(self) -> Readiness:
        """Ready: it leads or stands by, all its dependencies are healthy, and there are no internal problems."""
        dependencies = tuple(self.dependencies())
        quarantine = self.quarantine()
        settled = self.phase not in (Phase.STARTING, Phase.STOPPING)
        return Readiness(
            ready=settled and all(each.ok for each in dependencies) and not self._problems,
            process=self.process,
            cell=self.cell,
            holder=self.holder,
            phase=self.phase,
            position=self.counters.position,
            log_end=max(self.log_end, self.counters.position),
            epoch=self.counters.epoch,
            detail=self.detail,
            problems=tuple(self._problems.values()),
            quarantined=len(quarantine),
            quarantine=tuple(quarantine[:QUARANTINE_SHOWN_MAX]),
            notices=tuple(self._notices.values()),
            dependencies=dependencies,
        )
