"""
The scheduling queue: which pod is tried next, and when a pod that was rejected is tried again.

A pod is in one of four places: active (to be tried, in the order of the QueueSort plugin), backoff (to be tried after a
pause, or when nothing is active), unschedulable (until an event may help it) or gated (until a PreEnqueue plugin lets
it in); or it is in flight, being tried. The owner tells the queue what happens (`queue_changes`), takes the head
(`pop`) and ends each attempt by `failed` or `done`. Time is an argument, in milliseconds since 1970.

There are as many pods here as there are pods without a node. Source: scheduling_queue.go of the kube-scheduler, with
the feature gates of v1.36 (SchedulerQueueingHints, SchedulerPopFromBackoffQ).
"""
# Over 400 lines: one queue; each of its methods moves pods between the same four places.

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from sortedcontainers import SortedDict

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.events import Hint
from headgate.core.placement.framework.status import PluginStatus
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.queue_entry import (
    WINDOW_MS,
    Place,
    QueuedPod,
    QueueLimits,
    backoff_end_ms,
    is_backing_off,
    window_of,
)
from headgate.core.placement.queue_events import FORCE_ACTIVATE, UNSCHEDULABLE_TIMEOUT, ClusterEvent, pod_updates
from headgate.core.placement.queue_hints import Interest, Interests, QueueProfile
from headgate.core.placement.queue_in_flight import Flight, Happened, InFlight
from headgate.core.placement.queue_plugins import QueuePlugins
from headgate.core.placement.queue_pool import UnschedulablePool
from headgate.events.ids import UnixMs


class Move(NamedTuple):
    """A pod has changed its place; None is outside of the queue, or in flight."""

    pod: str
    before: Place | None
    after: Place | None


class Popped(NamedTuple):
    """The pod to be tried, and where it was."""

    queued: QueuedPod
    place: Place


class _Strategy(Enum):
    """What is to be done with a rejected pod."""

    SKIP = 0
    AFTER_BACKOFF = 1
    AT_ONCE = 2


class Queue:
    """The queue. `profiles` are by scheduler name; pods of other ones must not come here."""

    def __init__(self, cluster: PlacementCluster, profiles: Mapping[str, QueueProfile], limits: QueueLimits) -> None:
        self._cluster = cluster
        self._profiles = profiles
        self._limits = limits
        self._plugins = QueuePlugins(profiles)
        self._interests = Interests(profiles, self._plugins.failures)
        self._pods: dict[str, QueuedPod] = {}
        self._active: SortedDict[Any, QueuedPod] = SortedDict()
        self._backoff: SortedDict[Any, QueuedPod] = SortedDict()
        self._errors: SortedDict[Any, QueuedPod] = SortedDict()
        """Pods in backoff after an error: they are not taken before it is over."""
        self._pool = UnschedulablePool()
        self._in_flight = InFlight()

    # --- what it holds ---------------------------------------------------------------------------------------------

    def is_ours(self, pod: PodInfo) -> bool:
        """Whether a pod names a profile of this scheduler."""
        return pod.spec.scheduler_name in self._profiles

    def get(self, key: str) -> QueuedPod | None:
        """A pod that waits; None if it does not."""
        return self._pods.get(key)

    def pods(self) -> list[QueuedPod]:
        """All that wait: active ones first, in order, then those in backoff, then the others."""
        return [*self._active.values(), *self._backoff.values(), *self._errors.values(), *self._pool]

    def in_flight(self) -> list[QueuedPod]:
        """Those that are being tried."""
        return self._in_flight.pods()

    def counts(self) -> dict[Place, int]:
        """How many pods are in each place."""
        gated = sum(1 for queued in self._pool if queued.gated_by)
        return {
            Place.ACTIVE: len(self._active),
            Place.BACKOFF: len(self._backoff) + len(self._errors),
            Place.UNSCHEDULABLE: len(self._pool) - gated,
            Place.GATED: gated,
        }

    def due_ms(self) -> UnixMs | None:
        """When the next pause or the longest wait is over (`flush_backoff`, `flush_unschedulable`); None for never."""
        times = [UnixMs(heap.peekitem(0)[0][0] + WINDOW_MS) for heap in (self._backoff, self._errors) if heap]
        first = self._pool.first_ms()
        if first is not None:
            times.append(UnixMs(first + self._limits.unschedulable_ms_max + 1))
        return min(times, default=None)

    def plugin_failures(self) -> Mapping[tuple[str, str], PluginStatus]:
        """By plugin and extension point, the last failure of a plugin that the queue has asked."""
        return self._plugins.failures

    def hints(self, event: ClusterEvent, old: Any, new: Any) -> dict[str, dict[str, Hint]]:
        """What each plugin that rejected a pod says of an event, by pod and plugin. Without effect."""
        interest = self._interests.of(event)
        asked = ((queued.pod.key, interest.hints(queued, old, new, self._cluster)) for queued in self._pool)
        return {key: said for key, said in asked if said}

    # --- pods come, change and go ----------------------------------------------------------------------------------

    def add(self, pod: PodInfo, now_ms: UnixMs) -> list[Move]:
        """A pod without a node exists."""
        queued = QueuedPod(pod, now_ms)
        self._to_active(queued)
        return [Move(pod.key, None, queued.place)]

    def resume(self, queued: QueuedPod, now_ms: UnixMs) -> None:
        """
        A pod that another queue has had, which is gone: it goes on where it was.

        What has happened meanwhile is not known, so that it may be tried as soon as its backoff is over.
        """
        self._requeue(queued, _Strategy.AFTER_BACKOFF, now_ms)

    def update(self, old: PodInfo, new: PodInfo, now_ms: UnixMs) -> list[Move]:
        """A pod without a node has changed."""
        flight = self._in_flight.get(new)
        if flight is not None:
            flight.queued.pod = new
            flight.queued.hint_keys.clear()
            for event in pod_updates(old, new):
                self._in_flight.happened(Happened(event, old, new))
            return []
        queued = self._pods.get(new.key)
        if queued is None:
            return self.add(new, now_ms)
        before = queued.place
        self._replace(queued, new)
        if before in (Place.UNSCHEDULABLE, Place.GATED):
            for event in pod_updates(old, new):
                if self._requeue(queued, self._worth(queued, event, old, new), now_ms):
                    break
        return [Move(new.key, before, queued.place)] if queued.place != before else []

    def remove(self, pod: PodInfo) -> list[Move]:
        """A pod is gone, or has a node."""
        flight = self._in_flight.get(pod)
        if flight is not None:
            flight.is_gone = True
        queued = self._pods.get(pod.key)
        if queued is None:
            return []
        before = queued.place
        self._take_out(queued)
        return [Move(pod.key, before, None)]

    def activate(self, pod: PodInfo) -> list[Move]:
        """A plugin wants a pod to be tried, whatever it waits for."""
        queued = self._pods.get(pod.key)
        if queued is None or queued.place == Place.ACTIVE:
            if pod in self._in_flight:
                self._in_flight.happened(Happened(FORCE_ACTIVATE, None, pod))
            return []
        before = queued.place
        self._to_active(queued, is_checked=before == Place.BACKOFF)
        return [Move(pod.key, before, queued.place)] if queued.place != before else []

    # --- attempts --------------------------------------------------------------------------------------------------

    def pop(self) -> Popped | None:
        """
        Take the next pod: the head of active, or else of backoff, whose pause then ends early.

        The attempt ends with `failed` or `done`.
        """
        while self._active or self._backoff:
            queued: QueuedPod = (self._active or self._backoff).peekitem(0)[1]
            place = queued.place
            assert place is not None, f"{queued.pod.key} is in no place"
            self._take_out(queued)
            if queued.pod in self._in_flight:
                # Twice at a time would be one too many: this one is dropped.
                continue
            queued.attempts += 1
            self._in_flight.start(queued)
            return Popped(queued, place)
        return None

    def pop_also(self, pod: PodInfo) -> QueuedPod | None:
        """
        Take a pod of a group whose head was popped, wherever it waits (PopSpecificPod).

        None if a PreEnqueue plugin keeps it out, or it does not wait. The attempt ends with `failed` or `done`.
        """
        self.activate(pod)
        queued = self._pods.get(pod.key)
        if queued is None or queued.place != Place.ACTIVE or queued.pod in self._in_flight:
            return None
        self._take_out(queued)
        queued.attempts += 1
        self._in_flight.start(queued)
        return queued

    def failed(
        self, queued: QueuedPod, rejectors: tuple[str, ...], pending: tuple[str, ...], now_ms: UnixMs
    ) -> Place | None:
        """
        An attempt has failed: where its pod goes. None if it is gone, or is here already.

        `rejectors` are the plugins that rejected it, `pending` those that did so until something of their own happens;
        none of both means that the attempt failed by an error.
        """
        flight = self._in_flight.get(queued.pod)
        if flight is None or flight.is_gone or queued.pod.key in self._pods:
            self.done(queued)
            return None
        queued.rejectors, queued.pending = tuple(sorted(rejectors)), tuple(sorted(pending))
        if queued.is_by_error:
            queued.errors += 1
        else:
            queued.failures += 1
            queued.errors = 0
        queued.queued_ms = now_ms
        strategy = self._worth_after(flight)
        self._in_flight.done(queued.pod)
        if not self._requeue(queued, strategy, now_ms) and queued.place is None:
            self._to_pool(queued)
        return queued.place

    def back(self, queued: QueuedPod, pod: PodInfo, now_ms: UnixMs) -> list[Move]:
        """
        What was decided about a pod could not be carried out: it is tried again after a pause.

        `queued` is what `pop` gave when it was decided, or a new one.
        """
        waiting = self._pods.get(pod.key)
        before = None
        if waiting is not None:
            queued, before = waiting, waiting.place
            self._take_out(queued)
        queued.pod = pod
        queued.hint_keys.clear()
        queued.rejectors, queued.pending = (), ()
        queued.errors += 1
        queued.queued_ms = now_ms
        self._requeue(queued, _Strategy.AFTER_BACKOFF, now_ms)
        return [Move(pod.key, before, queued.place)] if queued.place != before else []

    def done(self, queued: QueuedPod) -> None:
        """An attempt is over and needs no events any more: the pod is being bound, or is gone. Safe to repeat."""
        self._in_flight.done(queued.pod)

    # --- events and time -------------------------------------------------------------------------------------------

    def notify(
        self,
        event: ClusterEvent,
        old: Any,
        new: Any,
        now_ms: UnixMs,
        *,
        only: Callable[[PodInfo], bool] | None = None,
    ) -> list[Move]:
        """The cluster has changed: pods that the change may help are tried again, of `only` those that it lets."""
        interest = self._interests.of(event)
        if not interest:
            return []
        found = list(self._pool) if event.is_wildcard else self._pool.rejected_by(interest.plugins)
        moves = self._notify(
            found if only is None else [each for each in found if only(each.pod)], event, old, new, now_ms
        )
        self._in_flight.happened(Happened(event, old, new))
        return moves

    def flush_backoff(self, now_ms: UnixMs) -> list[Move]:
        """Pods whose pause is over become active."""
        moves = []
        window = window_of(now_ms)
        for heap in (self._backoff, self._errors):
            while heap and heap.peekitem(0)[0][0] < window:
                queued = heap.peekitem(0)[1]
                self._to_active(queued, is_checked=True)
                moves.append(Move(queued.pod.key, Place.BACKOFF, queued.place))
        return moves

    def flush_unschedulable(self, now_ms: UnixMs) -> list[Move]:
        """Pods that have been unschedulable for too long are tried again."""
        late = self._pool.before(UnixMs(now_ms - self._limits.unschedulable_ms_max))
        if not late:
            return []
        moves = self._notify(late, UNSCHEDULABLE_TIMEOUT, None, None, now_ms)
        self._in_flight.happened(Happened(UNSCHEDULABLE_TIMEOUT, None, None))
        return moves

    def _notify(self, found: list[QueuedPod], event: ClusterEvent, old: Any, new: Any, now_ms: UnixMs) -> list[Move]:
        moves = []
        memo: dict[Any, Hint] = {}
        for queued in found:
            before = queued.place
            if queued.gated_by and not self._interests.of(event).is_of(queued.gated_by):
                continue
            self._requeue(queued, self._worth(queued, event, old, new, memo), now_ms)
            if queued.place != before:
                moves.append(Move(queued.pod.key, before, queued.place))
        return moves

    # --- whether a pod is worth another attempt --------------------------------------------------------------------

    def _worth(
        self, queued: QueuedPod, event: ClusterEvent, old: Any, new: Any, memo: dict[Any, Hint] | None = None
    ) -> _Strategy:
        """What an event means for a pod (isPodWorthRequeuing)."""
        if queued.is_by_error:
            return _Strategy.AFTER_BACKOFF
        if event.is_wildcard:
            is_of_another = new is not None and not (isinstance(new, PodInfo) and new.uid == queued.pod.uid)
            return _Strategy.SKIP if is_of_another else _Strategy.AFTER_BACKOFF
        interest: Interest = self._interests.of(event)
        strategy = _Strategy.SKIP
        for plugin in interest.queueing(queued, old, new, self._cluster, {} if memo is None else memo):
            if plugin in queued.pending:
                return _Strategy.AT_ONCE
            strategy = _Strategy.AFTER_BACKOFF
            if not queued.pending:
                break
        return strategy

    def _worth_after(self, flight: Flight) -> _Strategy:
        """What the events during an attempt mean for its pod."""
        events = self._in_flight.since(flight)
        if events is None or flight.queued.is_by_error:
            return _Strategy.AFTER_BACKOFF
        strategy = _Strategy.SKIP
        for happened in events:
            answer = self._worth(flight.queued, happened.event, happened.old, happened.new)
            if answer == _Strategy.AT_ONCE:
                return answer
            if answer == _Strategy.AFTER_BACKOFF:
                strategy = answer
        return strategy

    # --- places ----------------------------------------------------------------------------------------------------

    def _requeue(self, queued: QueuedPod, strategy: _Strategy, now_ms: UnixMs) -> bool:
        """Whether a pod is to be tried again, and has gone to active or backoff (requeuePodWithQueueingStrategy)."""
        match strategy:
            case _Strategy.SKIP:
                return False
            case _Strategy.AFTER_BACKOFF if is_backing_off(self._limits, queued, now_ms):
                self._to_backoff(queued)
            case _:
                self._to_active(queued)
        return queued.place in (Place.ACTIVE, Place.BACKOFF)

    def _to_active(self, queued: QueuedPod, *, is_checked: bool = False) -> None:
        self._take_out(queued)
        if not is_checked and not self._plugins.let_in(queued):
            self._to_pool(queued)
            return
        self._put_in_order(queued, Place.ACTIVE, self._active)

    def _to_backoff(self, queued: QueuedPod) -> None:
        self._take_out(queued)
        if not self._plugins.let_in(queued):
            self._to_pool(queued)
            return
        if queued.is_by_error:
            self._put_among_errors(queued)
        else:
            self._put_in_order(queued, Place.BACKOFF, self._backoff, backoff_end_ms(self._limits, queued))

    def _to_pool(self, queued: QueuedPod) -> None:
        queued.place = Place.GATED if queued.gated_by else Place.UNSCHEDULABLE
        self._pods[queued.pod.key] = queued
        self._pool.add(queued)

    def _put_in_order(
        self, queued: QueuedPod, place: Place, heap: "SortedDict[Any, QueuedPod]", *before: UnixMs
    ) -> None:
        rank = self._plugins.put_in_order(heap, queued, before)
        if rank is not None:
            self._is_at(queued, place, rank)
            return
        queued.rejectors = queued.pending = ()
        self._to_pool(queued)

    def _put_among_errors(self, queued: QueuedPod) -> None:
        rank = (backoff_end_ms(self._limits, queued), queued.pod.key)
        self._errors[rank] = queued
        self._is_at(queued, Place.BACKOFF, rank)

    def _is_at(self, queued: QueuedPod, place: Place, rank: Any) -> None:
        queued.place, queued.rank = place, rank
        self._pods[queued.pod.key] = queued

    def _take_out(self, queued: QueuedPod) -> None:
        """Out of the place where it is, if it is in any."""
        match queued.place:
            case None:
                return
            case Place.ACTIVE:
                del self._active[queued.rank]
            case Place.BACKOFF:
                del (self._errors if queued.rank in self._errors else self._backoff)[queued.rank]
            case Place.UNSCHEDULABLE | Place.GATED:
                self._pool.remove(queued)
        del self._pods[queued.pod.key]
        queued.place, queued.rank = None, None

    def _replace(self, queued: QueuedPod, pod: PodInfo) -> None:
        """A pod in the queue is another object; where it is, it remains."""
        place, is_by_error = queued.place, queued.rank in self._errors
        self._take_out(queued)
        queued.pod = pod
        queued.hint_keys.clear()
        match place:
            case Place.ACTIVE:
                self._put_in_order(queued, place, self._active)
            case Place.BACKOFF if is_by_error:
                self._put_among_errors(queued)
            case Place.BACKOFF:
                self._put_in_order(queued, place, self._backoff, backoff_end_ms(self._limits, queued))
            case _:
                self._to_pool(queued)
