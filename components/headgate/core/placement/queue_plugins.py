"""
What the queue asks plugins: whether a pod may be tried, and its place in the order. What they raise is kept.

A pod that a PreEnqueue plugin fails for is gated by it. One that the QueueSort plugin has no key for, or a key that
cannot be compared with others, waits as after an error of its attempt.
"""

from collections.abc import Mapping
from typing import Any

from sortedcontainers import SortedDict

from headgate.core.placement.framework.asking import PRE_ENQUEUE, QUEUE_SORT, failed, pre_enqueued, sort_key
from headgate.core.placement.framework.status import SUCCESS, Code, PluginError
from headgate.core.placement.queue_entry import QueuedPod
from headgate.core.placement.queue_hints import Failures, QueueProfile


class QueuePlugins:
    """The plugins of all profiles, by scheduler name."""

    def __init__(self, profiles: Mapping[str, QueueProfile]) -> None:
        self._profiles = profiles
        self.failures: Failures = {}
        """By plugin and extension point the last failure of it. The hints write theirs here, too."""

    def let_in(self, queued: QueuedPod) -> bool:
        """Ask the PreEnqueue plugins, first the one that kept the pod out before; which one does so is written down."""
        profile = self._profiles[queued.pod.spec.scheduler_name]
        for plugin in sorted(profile.pre_enqueue, key=lambda each: each.name != queued.gated_by):
            status = pre_enqueued(plugin, profile.cycle(queued.pod))
            if status.code != Code.SUCCESS:
                if status.code == Code.ERROR:
                    self.failures[plugin.name, PRE_ENQUEUE] = status
                if plugin.name not in queued.rejectors:
                    queued.rejectors = tuple(sorted((*queued.rejectors, plugin.name)))
                queued.gated_by, queued.gate = plugin.name, status
                return False
        queued.gated_by, queued.gate = "", SUCCESS
        return True

    def put_in_order(
        self, heap: "SortedDict[Any, QueuedPod]", queued: QueuedPod, before: tuple[int, ...] = ()
    ) -> Any | None:
        """
        Put a pod into a heap by QueueSort, and by name where that makes no difference; `before` comes first.

        What it is ranked by; None if there is no order, and the pod is not in the heap.
        """
        sort = self._profiles[queued.pod.spec.scheduler_name].sort
        try:
            key = (sort_key(sort, queued.pod, queued.queued_ms), queued.pod.key)
            rank = (*before, key) if before else key
            heap[rank] = queued
        except PluginError as failure:
            self.failures[sort.name, QUEUE_SORT] = failure.status
            return None
        except TypeError as failure:
            self.failures[sort.name, QUEUE_SORT] = failed(sort.name, QUEUE_SORT, failure).status
            return None
        return rank
