"""
Pods that are being tried, and what happens meanwhile.

An event that comes while a pod is being tried may be what it lacks: when the attempt fails, the pod is asked by all
events since it was taken. Events are kept until no pod remains that was taken before them, and at most `EVENTS_MAX`:
a pod that was taken before events were dropped counts as helped by them. Source: active_queue.go (inFlightEvents).
"""

from collections import deque
from itertools import islice
from typing import Any, Final, NamedTuple

from headgate.core.placement.pods import PodInfo
from headgate.core.placement.queue_entry import QueuedPod
from headgate.core.placement.queue_events import ClusterEvent

EVENTS_MAX: Final = 10_000
"""Events that are kept."""


class Happened(NamedTuple):
    """An event and the object before and after it."""

    event: ClusterEvent
    old: Any
    new: Any


class Flight:
    """One pod being tried. `start` is the position of the first event after it was taken."""

    __slots__ = ("is_gone", "queued", "start")

    def __init__(self, queued: QueuedPod, start: int) -> None:
        self.queued = queued
        self.start = start
        self.is_gone = False
        """Whether the pod was deleted or bound by someone else meanwhile."""


class InFlight:
    """The pods being tried, in the order in which they were taken."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}
        self._events: deque[Happened] = deque()
        self._dropped = 0

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, pod: PodInfo) -> bool:
        return id_of(pod) in self._flights

    def get(self, pod: PodInfo) -> Flight | None:
        """The flight of a pod, None if it is not being tried."""
        return self._flights.get(id_of(pod))

    def start(self, queued: QueuedPod) -> None:
        """A pod is being tried from now on."""
        self._flights[id_of(queued.pod)] = Flight(queued, self._dropped + len(self._events))

    def happened(self, happened: Happened) -> None:
        """An event, while any pod is being tried."""
        if not self._flights:
            return
        if len(self._events) >= EVENTS_MAX:
            self._events.popleft()
            self._dropped += 1
        self._events.append(happened)

    def since(self, flight: Flight) -> list[Happened] | None:
        """The events since a pod was taken; None if some of them were dropped."""
        if flight.start < self._dropped:
            return None
        return list(islice(self._events, flight.start - self._dropped, None))

    def done(self, pod: PodInfo) -> None:
        """A pod is no longer being tried. Safe to repeat."""
        self._flights.pop(id_of(pod), None)
        first = next(iter(self._flights.values()), None)
        end = self._dropped + len(self._events) if first is None else first.start
        while self._dropped < end:
            self._events.popleft()
            self._dropped += 1

    def pods(self) -> list[QueuedPod]:
        """The pods, in the order in which they were taken."""
        return [flight.queued for flight in self._flights.values()]


def id_of(pod: PodInfo) -> str:
    """What tells a pod from a later one of the same name."""
    return pod.uid or pod.key
