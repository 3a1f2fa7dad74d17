"""
The pods that no event has brought back yet: rejected ones, and those that a PreEnqueue plugin keeps out.

They are listed by the plugins that rejected them, so that an event looks only at pods of plugins that care, and by
time, for those that have waited too long. Source: unschedulable_pods.go of the kube-scheduler.
"""

from collections.abc import Iterable, Iterator

from sortedcontainers import SortedDict

from headgate.core.placement.queue_entry import QueuedPod
from headgate.events.ids import UnixMs


class UnschedulablePool:
    """The pods by key."""

    def __init__(self) -> None:
        self._pods: dict[str, QueuedPod] = {}
        self._by_rejector: dict[str, dict[str, QueuedPod]] = {}
        self._by_time: SortedDict[tuple[UnixMs, str], QueuedPod] = SortedDict()

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._pods.values())

    def add(self, queued: QueuedPod) -> None:
        """A pod waits here, as it is now: it is taken out before it is changed."""
        key = queued.pod.key
        self._pods[key] = queued
        for plugin in (*queued.rejectors, *queued.pending):
            self._by_rejector.setdefault(plugin, {})[key] = queued
        if not queued.gated_by:
            self._by_time[queued.queued_ms, key] = queued

    def remove(self, queued: QueuedPod) -> None:
        """A pod no longer waits here."""
        key = queued.pod.key
        del self._pods[key]
        for plugin in (*queued.rejectors, *queued.pending):
            of_plugin = self._by_rejector.get(plugin, {})
            of_plugin.pop(key, None)
            if not of_plugin:
                self._by_rejector.pop(plugin, None)
        self._by_time.pop((queued.queued_ms, key), None)

    def rejected_by(self, plugins: Iterable[str]) -> list[QueuedPod]:
        """The pods that any of some plugins rejected, each once."""
        found: dict[str, QueuedPod] = {}
        for plugin in plugins:
            found.update(self._by_rejector.get(plugin, {}))
        return list(found.values())

    def before(self, time_ms: UnixMs) -> list[QueuedPod]:
        """The pods that wait since before a time, no gated ones."""
        return [self._by_time[rank] for rank in self._by_time.irange(maximum=(time_ms, ""))]

    def first_ms(self) -> UnixMs | None:
        """Since when the first of them waits, gated ones aside."""
        return self._by_time.peekitem(0)[0][0] if self._by_time else None
