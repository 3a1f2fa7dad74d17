"""
The dependencies of a process, and since when each is healthy or not.

The adapter reports here whenever it waits for something or it works again; `/readyz` and the logs read it. No decision
depends on it.
"""

import time
from collections.abc import Callable

from msgspec import Struct

HealthListener = Callable[["Dependency"], None]


class Dependency(Struct, frozen=True, kw_only=True):
    """One dependency: healthy (`ok`) since `since_ms` (wall clock), or not, with the reason in `error`."""

    name: str
    ok: bool
    since_ms: int
    error: str = ""


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class DependencyHealth:
    """
    The dependencies of one process by name.

    `listener` is called on each change between healthy and unhealthy (and see `unwell`), for the log; it must not
    raise.
    """

    def __init__(self, listener: HealthListener | None = None, *, now_ms: Callable[[], int] = _wall_clock_ms) -> None:
        self._listener = listener
        self._now_ms = now_ms
        self._dependencies: dict[str, Dependency] = {}

    @property
    def ok(self) -> bool:
        """Whether all reported dependencies are healthy."""
        return all(dependency.ok for dependency in self._dependencies.values())

    def dependencies(self) -> list[Dependency]:
        """All dependencies reported so far, by name."""
        return [self._dependencies[name] for name in sorted(self._dependencies)]

    def well(self, name: str) -> None:
        """Reports that `name` works. Cheap if it worked before."""
        known = self._dependencies.get(name)
        if known is None or not known.ok:
            self._change(Dependency(name=name, ok=True, since_ms=self._now_ms()))

    def unwell(self, name: str, error: str, *, announce: bool = False) -> None:
        """
        Reports that `name` does not work, and why. `since_ms` stays that of the first report in a row.

        With `announce` the listener also receives a different error while it remains unhealthy.
        """
        known = self._dependencies.get(name)
        if known is None or known.ok:
            self._change(Dependency(name=name, ok=False, since_ms=self._now_ms(), error=error))
        elif known.error != error:
            changed = Dependency(name=name, ok=False, since_ms=known.since_ms, error=error)
            self._dependencies[name] = changed
            if announce and self._listener is not None:
                self._listener(changed)

    def forget(self, name: str) -> None:
        """Drops a dependency that is no longer used."""
        self._dependencies.pop(name, None)

    def _change(self, dependency: Dependency) -> None:
        self._dependencies[dependency.name] = dependency
        if self._listener is not None:
            self._listener(dependency)
