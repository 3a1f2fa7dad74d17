"""
A pod in the scheduling queue, and the order and backoff of pods there.

Source: QueuedPodInfo and backoff_queue.go of the kube-scheduler.
"""

from collections.abc import Hashable
from enum import Enum
from typing import Any, Final

import msgspec

from headgate.core.placement.framework.status import SUCCESS, PluginStatus
from headgate.core.placement.pods import PodInfo
from headgate.events.ids import UnixMs

WINDOW_MS: Final = 1_000
"""Backoff is counted in whole windows of the clock; within one, pods are in the order of the active queue."""


class Place(Enum):
    """Where in the queue a pod is."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"


class QueueLimits(msgspec.Struct, frozen=True):
    """
    How long pods wait.

    Backoff doubles with each failure from `backoff_ms_initial` to `backoff_ms_max` (0: there is none). After
    `unschedulable_ms_max` a pod that no event has brought back is tried again.
    """

    backoff_ms_initial: int = 1_000
    backoff_ms_max: int = 10_000
    unschedulable_ms_max: int = 300_000


class QueuedPod(msgspec.Struct):
    """
    A pod that waits, or is being tried. Written by the queue alone.

    `queued_ms` is when it came or was last tried, `attempts` how often. `failures` counts rejections and `errors` the
    errors since the last rejection. `rejectors` are the plugins that rejected it last, `pending` those of them that
    wait for something of their own; `gated_by` is the plugin that keeps it out of the queue, by the answer `gate`.
    """

    pod: PodInfo
    queued_ms: UnixMs
    attempts: int = 0
    failures: int = 0
    errors: int = 0
    rejectors: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    gated_by: str = ""
    gate: PluginStatus = SUCCESS
    place: Place | None = None
    """None while it is being tried."""
    rank: Any = None
    """Its key in the order of the place that it is in."""
    hint_keys: dict[int, Hashable] = {}
    """What hints read of its shape, by registration."""

    @property
    def is_by_error(self) -> bool:
        """Whether no plugin rejected it: the attempt itself failed."""
        return not self.rejectors and not self.pending


def backoff_ms(limits: QueueLimits, failures: int) -> int:
    """How long a pod waits after so many failures."""
    if failures <= 0:
        return 0
    # More doublings than any time in milliseconds has bits change nothing.
    return min(limits.backoff_ms_initial << min(failures - 1, 64), limits.backoff_ms_max)


def backoff_end_ms(limits: QueueLimits, queued: QueuedPod) -> UnixMs:
    """The beginning of the last window in which a pod backs off; 0 when it need not."""
    failures = queued.errors or queued.failures
    if not limits.backoff_ms_max or not failures:
        return UnixMs(0)
    return window_of(UnixMs(queued.queued_ms + backoff_ms(limits, failures)))


def is_put_off(limits: QueueLimits, queued: QueuedPod) -> bool:
    """Whether the last failure of a pod has made its backoff longer."""
    failures = queued.errors or queued.failures
    return backoff_ms(limits, failures) > backoff_ms(limits, failures - 1)


def is_backing_off(limits: QueueLimits, queued: QueuedPod, now_ms: UnixMs) -> bool:
    """Whether the backoff of a pod is on."""
    return backoff_end_ms(limits, queued) >= window_of(now_ms)


def window_of(time_ms: UnixMs) -> UnixMs:
    """The beginning of the window of a time."""
    return UnixMs(time_ms - time_ms % WINDOW_MS)
