"""
The part of the scheduler's machine that places pods: who is tried when, and what is appended of it.

The queue says which pod is next, `PlacementDecider` decides it on the view of the state, and each decision is supposed
before the next one is taken. One commit has the decisions of at most ATTEMPTS_MAX attempts. An attempt with the verdict
that the log has already changes only the queue; it is recorded (`pod.tried`) if it puts off the next one for longer.

The queue is not in the log. It is derived from the state (`queue_of`): every pod that has no node is to be tried once
its backoff is over, in the order and after as many attempts as the log has, so that nobody is forgotten and nobody is
tried sooner for a change of the leader; then events, pauses and the longest wait bring a pod back
(`headgate.core.placement.queue`). Whatever takes a node from a pod again (a refused binding, a placement withdrawn)
puts it back after a pause, as does a victim that could not be preempted to the pod that needs its place.

An attempt that lacks answers of extenders ends with calls. Its pod stays the one that is tried, and no other one is,
until the answers are in the log, each by a commit of its own; then it is tried again from the start of the same scan.

Nothing exists of this while the log has no KubeSchedulerConfiguration. One that cannot be used is set aside like every
object that a machine fails over.
"""
# Over 400 lines: one part of the machine; its methods share the queue, the view and the pods that are in flight.

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.core.fold.quarantine import KINDS as QUARANTINE_KINDS
from headgate.core.fold.quarantine import is_aside
from headgate.core.kubernetes.conditions import parse_rfc3339
from headgate.core.machine.contract import AskExtender, Completed
from headgate.core.machine.listeners import Listeners
from headgate.core.placement.configuration.profiles import Registry
from headgate.core.placement.deciding import PlacementDecider
from headgate.core.placement.extenders.requests import ExtenderAsk
from headgate.core.placement.framework.events import EventResource
from headgate.core.placement.group_deciding import decide_group
from headgate.core.placement.groups import group_of
from headgate.core.placement.objects.kinds import NODES, PODS
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.queue import Queue
from headgate.core.placement.queue_changes import node_changed, object_changed, pod_changed
from headgate.core.placement.queue_entry import Place, QueuedPod, QueueLimits, is_put_off
from headgate.core.placement.queue_events import ASSIGNED_POD_GONE
from headgate.core.placement.queue_hints import queue_profile
from headgate.core.placement.view import OfPlacement, PlacementChange, PlacementFact
from headgate.core.state.attribution import about
from headgate.core.state.tables import State
from headgate.events import decisions, effects, facts
from headgate.events.base import Producer
from headgate.events.decisions import PlacementDecision
from headgate.events.extenders import ExtenderAnswered
from headgate.events.ids import PodKey, Uid, UnixMs
from headgate.machines.scheduler.extender_calls import ExtenderCallsUnderWay

ATTEMPTS_MAX: Final = 256
"""Attempts in one decision."""

_CONFIGURATION: Final = QUARANTINE_KINDS["schedulerconfiguration"]
_RESOURCES: Final = {each.value.rpartition("/")[2]: each for each in EventResource}
"""By kind: what its events are called."""


SchedulerEvent = PlacementDecision | decisions.PodTried | decisions.PodGroupTried
"""What the scheduler appends about pods."""


class PlacementStep(msgspec.Struct, frozen=True):
    """
    What is next: events for one commit, or calls of extenders, never both.

    `wake_ms` is when to decide again at the latest; None for not before anything happens.
    """

    events: tuple[SchedulerEvent | ExtenderAnswered, ...] = ()
    calls: tuple[AskExtender, ...] = ()
    wake_ms: UnixMs | None = None


class PlacementReport(msgspec.Struct, frozen=True):
    """
    What is to be seen of placement and is not in the log.

    `waiting` has how many pods are in each place of the queue. `failures` have the last exception of each plugin that
    the queue asks, by plugin and extension point, and of each index over the cluster, by index and "index".
    """

    waiting: Mapping[Place, int]
    failures: Mapping[tuple[str, str], str]


class PodPlacements:
    """Places pods. It is told every event that concerns it, and asked for decisions."""

    def __init__(self, state: State, registry: Registry) -> None:
        self._state = state
        self._registry = registry
        self._running: _Running | None = None
        self._calls = ExtenderCallsUnderWay()
        self.listeners = Listeners(self._on_configuration, self._on_event, self._on_answer)
        """For every event of the log; without a configuration there is none that they are for."""

    def _on_configuration(self, event: facts.SchedulerConfigurationObserved) -> None:  # noqa: ARG002 (its type counts)
        self._running = None

    def _on_event(self, event: PlacementFact | OfPlacement) -> None:
        if self._running is not None:
            self._running.on_event(event)

    def _on_answer(self, event: ExtenderAnswered) -> None:
        self._calls.folded(event)

    def ended(self, completed: Completed) -> None:
        """The call of an extender has ended."""
        self._calls.ended(completed)

    def report(self) -> PlacementReport | None:
        """How the queue is; None while no pods are placed."""
        return self._running.report() if self._running is not None else None

    def decide(self, now_ms: UnixMs) -> PlacementStep:
        """What is next. Only on `Settled`."""
        state = self._state
        if not state.scheduler_configuration or not state.synced or state.relisting:
            return PlacementStep()
        if is_aside(state, _CONFIGURATION, "", Producer.SCHEDULER):
            return PlacementStep()
        if self._running is None:
            with about(_CONFIGURATION, ""):
                self._running = _Running(state, self._registry, self._calls, now_ms)
        return self._running.decide(now_ms)


def queue_of(decider: PlacementDecider, limits: QueueLimits, now_ms: UnixMs) -> Queue:
    """The queue as it follows from the state: all pods that wait for a node, as they were tried."""
    profiles = {name: queue_profile(framework) for name, framework in decider.frameworks.items()}
    queue = Queue(decider.view.cluster, profiles, limits)
    for pod in sorted(decider.view.cluster.pods.values(), key=lambda each: each.key):
        if not pod.node_name and queue.is_ours(pod):
            queue.resume(resumed(decider, pod, now_ms), now_ms)
    return queue


def resumed(decider: PlacementDecider, pod: PodInfo, now_ms: UnixMs) -> QueuedPod:
    """
    A pod as the log knows of its attempts.

    One that has not been tried yet has come when it was created, as far as its object says so.
    """
    record = decider.view.record_of_pod(pod.key, pod.uid)
    tries = record.tries if record is not None else None
    if record is None or tries is None:
        created = pod.object.metadata.creation_timestamp
        came_ms = min(parse_rfc3339(created), now_ms) if created else now_ms
        return QueuedPod(pod, came_ms, errors=record.refusals if record is not None else 0)
    refusals = record.verdict.refusals if record.verdict is not None and not tries.errors else ()
    return QueuedPod(
        pod,
        tries.at_ms,
        attempts=tries.attempts,
        failures=tries.failures,
        errors=tries.errors,
        rejectors=tuple(sorted({each.plugin for each in refusals})),
    )


class _Running:
    """Placement by one configuration."""

    def __init__(self, state: State, registry: Registry, calls: ExtenderCallsUnderWay, now_ms: UnixMs) -> None:
        self._state = state
        self._calls = calls
        self._decider = PlacementDecider(state, registry)
        self._view = self._decider.view
        profiles = self._decider.profiles
        self._limits = QueueLimits(
            backoff_ms_initial=1000 * profiles.initial_backoff_s, backoff_ms_max=1000 * profiles.max_backoff_s
        )
        self._queue = queue_of(self._decider, self._limits, now_ms)
        self._now_ms = now_ms
        self._scan_start = state.scan_start
        self._asking: QueuedPod | None = None
        """The pod whose attempt goes on when extenders have answered. It is in flight in the queue."""
        self._placed: dict[PodKey, QueuedPod] = {}
        """Pods that got a node, as they were in the queue, until their object shows it."""
        self._waiting: dict[PodKey, None] = {}
        """Pods that got a node and wait for something before they are bound."""
        self._is_due = True
        """Whether those are to be looked at again."""
        self._unreadable: dict[PodKey, None] = {}
        """Pods that cannot be read, and may need a verdict that says so."""
        for resource, name in self._view.unreadable:
            self._note_unreadable(resource, name)
        for key in sorted(state.placements):
            self._note_waiting(key)

    def _note_waiting(self, key: PodKey) -> None:
        if self._decider.is_waiting(key) and not is_aside(self._state, PODS.kind, key, Producer.SCHEDULER):
            self._waiting[key] = None
            self._is_due = True
        else:
            self._waiting.pop(key, None)

    def _note_unreadable(self, resource: str, name: str) -> None:
        if resource == PODS.plural and (resource, name) in self._view.unreadable:
            self._unreadable[PodKey(name)] = None

    # --- events ----------------------------------------------------------------------------------------------------

    def on_event(self, event: PlacementFact | OfPlacement) -> None:
        """An event has been folded."""
        self._now_ms = max(self._now_ms, self._state.now_ms)
        self._tell(self._view.on_event(event))
        if isinstance(event, facts.ObjectObserved | facts.ObjectDeleted):
            if event.resource == PODS.plural:
                self._note_waiting(PodKey(event.name))
                self._note_unreadable(event.resource, event.name)
            elif event.resource != NODES.plural:
                self._is_due = True
        else:
            self._note_waiting(event.pod)
            if isinstance(event, effects.PodPreemptionRejected):
                self._put_back(event.by)

    def _tell(self, changes: Iterable[PlacementChange]) -> None:
        """Tell the queue what has changed in the view."""
        for kind, key, old, new in changes:
            if kind is PODS:
                self._tell_pod(PodKey(key), old, new)
            elif kind is NODES:
                node_changed(self._queue, old, new, self._now_ms)
            elif kind.kind in _RESOURCES:
                object_changed(self._queue, _RESOURCES[kind.kind], old, new, self._now_ms)

    def _tell_pod(self, key: PodKey, old: PodInfo | None, new: PodInfo | None) -> None:
        has_lost_node = old is not None and new is not None and old.uid == new.uid and old.node_name
        if has_lost_node and new is not None and not new.node_name:
            self._queue.notify(ASSIGNED_POD_GONE, old, None, self._now_ms)
            self._put_back(key)
            return
        pod_changed(self._queue, old, new, self._now_ms)
        base = self._view.base_of(key)
        if base is None or base.node_name:
            self._placed.pop(key, None)

    def _put_back(self, key: PodKey) -> None:
        """A pod is to be tried again after a pause."""
        pod = self._decider.pod_to_place(key)
        if pod is None:
            return
        queued = self._placed.pop(key, None)
        if queued is None or queued.pod.uid != pod.uid:
            # The record has this error already.
            queued = resumed(self._decider, pod, self._now_ms)
            queued.errors = max(0, queued.errors - 1)
        self._queue.back(queued, pod, self._now_ms)

    def report(self) -> PlacementReport:
        """See `PodPlacements.report`."""
        failures = {where: status.message for where, status in self._queue.plugin_failures().items()}
        indexes = {(name, "index"): text for name, text in self._view.cluster.index_failures.items()}
        return PlacementReport(self._queue.counts(), failures | indexes)

    # --- decisions -------------------------------------------------------------------------------------------------

    def decide(self, now_ms: UnixMs) -> PlacementStep:
        """See `PodPlacements.decide`."""
        self._now_ms = max(self._now_ms, now_ms)
        # An append that the log has refused is decided again.
        self._tell(self._decider.forget())
        self._queue.flush_backoff(self._now_ms)
        self._queue.flush_unschedulable(self._now_ms)
        answer = self._calls.answer_for(self._asking_pod())
        if answer is not None:
            return PlacementStep((answer,), wake_ms=self._wake_ms())
        events: list[SchedulerEvent] = [*self._follow_up(), *self._refuse_unreadable()]
        attempts = 0
        asks: tuple[ExtenderAsk, ...] = ()
        while attempts < ATTEMPTS_MAX and not asks and (queued := self._next()) is not None:
            group = group_of(queued.pod)
            if group:
                made, tried = self._try_group(group, queued)
                attempts += tried
            else:
                made, asks = self._try(queued)
                attempts += 1
            events += made
        if attempts >= ATTEMPTS_MAX or self._unreadable:
            return PlacementStep(tuple(events), wake_ms=self._now_ms)
        pod = self._asking_pod()
        # What is decided is in the log before anybody is asked about what it leaves.
        calls = self._calls.ask(pod, asks) if pod is not None and not events else ()
        return PlacementStep(tuple(events), tuple(calls), self._wake_ms())

    def _next(self) -> QueuedPod | None:
        """The pod to be tried next; None while extenders have to answer, or if there is none."""
        pod = self._asking_pod()
        if pod is not None:
            return None if self._calls.are_of(pod) else self._asking
        popped = self._queue.pop()
        return popped.queued if popped is not None else None

    def _asking_pod(self) -> PodInfo | None:
        """The pod that extenders are asked about, as it is now; if it is not to be placed any more, that ends."""
        queued = self._asking
        if queued is None:
            return None
        pod = self._decider.pod_to_place(queued.pod.key)
        is_put_aside = is_aside(self._state, PODS.kind, queued.pod.key, Producer.SCHEDULER)
        if pod is None or pod.uid != queued.pod.uid or is_put_aside:
            self._asking = None
            self._queue.done(queued)
            return None
        return pod

    def _wake_ms(self) -> UnixMs | None:
        times = [self._decider.deadline_ms(key) for key in self._waiting]
        due_ms = self._queue.due_ms()
        if due_ms is not None:
            times.append(due_ms)
        return min(times, default=None)

    def _follow_up(self) -> list[PlacementDecision]:
        """What has become of the pods that wait for something before they are bound."""
        is_late = any(self._now_ms >= self._decider.deadline_ms(key) for key in self._waiting)
        if not (self._is_due or is_late):
            return []
        self._is_due = False
        events: list[PlacementDecision] = []
        for key in list(self._waiting):
            with about(PODS.kind, key):
                event = self._decider.follow_up(key, self._now_ms)
                if event is not None:
                    events.append(event)
                    self._tell(self._decider.suppose(event))
        return events

    def _refuse_unreadable(self) -> list[PlacementDecision]:
        """The verdicts on pods that cannot be read. Such a pod is tried once a change makes it readable."""
        events: list[PlacementDecision] = []
        for key in list(self._unreadable)[:ATTEMPTS_MAX]:
            del self._unreadable[key]
            if not is_aside(self._state, PODS.kind, key, Producer.SCHEDULER):
                with about(PODS.kind, key):
                    events += self._decider.refuse_unreadable(key)
        for event in events:
            self._tell(self._decider.suppose(event))
        return events

    def _try_group(self, group: str, head: QueuedPod) -> tuple[tuple[SchedulerEvent, ...], int]:
        """Try the pods of a group that wait, together: what is to be appended, and how many pods were tried."""
        taken = [head]
        for key, member in sorted(self._view.cluster.groups.members(group).items()):
            if key != head.pod.key and not member.node_name and (found := self._queue.pop_also(member)) is not None:
                taken.append(found)
        pods: dict[str, tuple[QueuedPod, PodInfo]] = {}
        # Those that were tried first have been tried most often.
        for queued in sorted(taken, key=lambda each: (-each.pod.priority, -each.attempts, each.pod.key)):
            key = PodKey(queued.pod.key)
            pod = self._decider.pod_to_place(key)
            if pod is None or is_aside(self._state, PODS.kind, key, Producer.SCHEDULER):
                self._queue.done(queued)
            else:
                pods[key] = queued, pod
        if not pods:
            return (), len(taken)
        with about(PODS.kind, next(iter(pods))):
            decided = decide_group(self._decider, group, [pod for _, pod in pods.values()], self._scan_start)
        self._scan_start = decided.next_start
        events: list[SchedulerEvent] = []
        for key, (queued, _) in pods.items():
            of_pod = decided.by_pod.get(key, ())
            if any(isinstance(event, decisions.PodPlaced) for event in of_pod):
                self._queue.done(queued)
                self._placed[PodKey(key)] = queued
            else:
                # Events do not bring back the pods of a group: they are tried again after a pause.
                self._queue.failed(queued, (), (), self._now_ms)
            events += self._counted(queued, of_pod)
        self._tell(decided.changes)
        return ((decided.tried, *events) if any(decided.by_pod.values()) else tuple(events)), len(taken)

    def _try(self, queued: QueuedPod) -> tuple[tuple[SchedulerEvent, ...], tuple[ExtenderAsk, ...]]:
        """Try a pod: what is to be appended, or what extenders have to be asked first."""
        key = PodKey(queued.pod.key)
        self._asking = None
        pod = self._decider.pod_to_place(key)
        if pod is None or is_aside(self._state, PODS.kind, key, Producer.SCHEDULER):
            self._queue.done(queued)
            return (), ()
        with about(PODS.kind, key):
            decided = self._decider.decide(pod, self._scan_start)
            self._scan_start = decided.next_start
            if decided.asks:
                self._asking = queued
            elif decided.is_placed:
                self._queue.done(queued)
                self._placed[key] = queued
            else:
                self._queue.failed(queued, decided.rejectors, decided.pending, self._now_ms)
            self._tell(decided.changes)
        return (() if decided.asks else self._counted(queued, decided.events)), decided.asks

    def _counted(self, queued: QueuedPod, events: Sequence[PlacementDecision]) -> tuple[SchedulerEvent, ...]:
        """What is to be appended of an attempt, with the number of attempts."""
        key = PodKey(queued.pod.key)
        first = events[0] if events else None
        match first:
            case decisions.PodPlaced():
                return (replace(first, attempts=queued.attempts), *events[1:])
            case decisions.PodUnschedulable():
                counted = replace(first, attempts=queued.attempts, failures=queued.failures, errors=queued.errors)
                return (counted, *events[1:])
            case _ if is_put_off(self._limits, queued) and self._view.record_of(key) is not None:
                tried = decisions.PodTried(
                    pod=key,
                    uid=Uid(queued.pod.uid),
                    attempts=queued.attempts,
                    failures=queued.failures,
                    errors=queued.errors,
                )
                return (tried, *events)
            case _:
                return tuple(events)
