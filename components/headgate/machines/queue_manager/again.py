"""
The queue manager for verification: decides again what a recorded one has decided.

See `headgate.core.verification.machines`. It is the same machine. But the decisions of a queue manager also depend on
earlier calls that produced no event, and those are not in the log. Two things depend on them and are taken from the
record here:

- **The order in which workloads and ClusterQueues are examined.** The recorded machine examined them in some order,
  and forgot those that needed no event. Here those named in the record come first, in its order. None is added.
- **Which of the sleepers that may wake do so.** A sleeper that was tried without success is tried again only after a
  change. So those wake that woke in the record, if their wake condition holds: enough is free for them, or what they
  wait for has changed. A sleeper that did not wake in the record sleeps on.

Everything else has to be equal: where each workload is queued, parked and on what condition, offered, evicted,
released, finished.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from sys import intern
from typing import TypeVar

from headgate.core.log.rules_version import QUEUE_DECISIONS_SINCE
from headgate.core.queueing.enqueueing import by_verdict
from headgate.core.queueing.wake_conditions import Sleeper, Woken
from headgate.core.state.tables import Parked, Stage, State, Workload
from headgate.core.verification.machines import MachineCheck, Order
from headgate.core.workload.variants import parent_key
from headgate.events.base import Producer
from headgate.events.families import names_workload
from headgate.events.ids import Shape, UnixMs, WorkloadKey
from headgate.events.queueing import (
    Head,
    HeadsOffered,
    HeadsWithdrawn,
    PreemptionGateOpened,
    WorkloadParked,
    WorkloadQueued,
    WorkloadWoken,
)
from headgate.events.registry import Event
from headgate.machines.queue_manager.decide import QueueManager
from headgate.machines.queue_manager.draft import Draft
from headgate.machines.queue_manager.sleeping import Awake, Sleeping
from headgate.machines.queue_manager.wake_policy import WakePass

_K = TypeVar("_K", bound=str)

_Look = tuple[WorkloadKey, bool]
"""A workload that an event names, and whether that event comes from the examination of its parent."""


class RecordedOrder:
    """The order in which recorded events reach workloads and ClusterQueues, and the sleepers that wake in them."""

    __slots__ = (
        "_looks",
        "_offered",
        "_withdrawn",
        "_woken_before",
        "alone",
        "going_on",
        "queued",
        "sleepers",
        "woken",
        "workloads",
    )

    def __init__(self) -> None:
        self.workloads: dict[_Look, None] = {}
        self.woken: dict[WorkloadKey, None] = {}
        """The workloads in whose name something wakes."""
        self.going_on: dict[WorkloadKey, None] = {}
        """Those of them that are not set aside again later in the record."""
        self.sleepers: dict[Sleeper, None] = {}
        """The shapes and ClusterQueues that wake."""
        self.alone: list[Head] = []
        """The workloads that are offered while their shape sleeps on."""
        self.queued: dict[WorkloadKey, Shape] = {}
        """The workloads that are queued, with their shapes."""
        self._offered: dict[str, None] = {}
        self._withdrawn: dict[str, None] = {}
        self._looks = False
        """Whether the record has reached workloads: sleepers are woken before that."""
        self._woken_before: dict[_Look, None] = {}
        """The workloads in `workloads` because something woke in their name before that."""

    def add(self, events: tuple[Event, ...]) -> None:
        """See `Order`."""
        for event in events:
            match event:
                case HeadsOffered():
                    self._offered.update((intern(head.cluster_queue), None) for head in event.heads)
                    self.alone += (head for head in event.heads if head.alone)
                case HeadsWithdrawn():
                    self._withdrawn.update((intern(name), None) for name in event.cluster_queues)
                case WorkloadWoken() if event.scope != "workload":
                    self.woken[event.workload] = self.going_on[event.workload] = None
                    look = (event.workload, False)
                    if not self._looks:
                        self.sleepers[Sleeper(event.cluster_queue, shape=event.shape)] = None
                        self._woken_before[look] = None
                    elif look in self._woken_before:
                        # It woke once more when its workload was examined, after those before it in the record.
                        del self._woken_before[look], self.workloads[look]
                    # It may have woken before the queue manager examined its workload.
                    self.workloads.setdefault(look, None)
                case _:
                    self._looks = True
                    self._come_to(event)

    def _come_to(self, event: Event) -> None:
        if not names_workload(event) or not event.workload:
            return
        key = WorkloadKey(intern(event.workload))
        look = (key, isinstance(event, PreemptionGateOpened))
        self._woken_before.pop(look, None)
        self.workloads.pop(look, None)
        self.workloads[look] = None
        if isinstance(event, WorkloadWoken):
            self.woken[key] = self.going_on[key] = None
        elif isinstance(event, WorkloadParked):
            self.going_on.pop(key, None)
        elif isinstance(event, WorkloadQueued):
            self.queued[key] = event.shape

    @property
    def cluster_queues(self) -> dict[str, None]:
        """The ClusterQueues in the order of their offers; last those whose offer was only withdrawn."""
        return {**self._offered, **self._withdrawn}


class SleepingAgain(Sleeping):
    """The sleepers; of these, those wake that woke in the record, if they may."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.order = RecordedOrder()

    def wake(self, draft: Draft, now_ms: UnixMs, wake_pass: WakePass, events_max: int) -> Awake:  # noqa: ARG002
        """See `Sleeping`."""
        self._notice_freed()
        awake = Awake([], [])
        ready = self._ready(wake_pass, awake)
        self._due = {}
        for sleeper in self.order.sleepers:
            parked, woken = self._come_true(sleeper, wake_pass)
            if parked is not None and woken is not None:
                ready.pop(sleeper, None)
                awake.cluster_queues.append(sleeper.cluster_queue)
                draft.say(self._woken(sleeper, parked.by, woken.by, woken.at))
        for sleeper, count in self._alone().items():
            parked, woken = self._come_true(sleeper, wake_pass)
            if parked is not None and woken is not None:
                awake.cluster_queues.append(sleeper.cluster_queue)
                self._wake_some(draft, sleeper, count)
                ready[sleeper] = parked, woken
        for sleeper, (parked, _) in ready.items():
            self._sleep_on(sleeper, parked, wake_pass)
        awake.parked.extend(key for key in self.order.woken if self._is_parked_by_verdict(key))
        return awake

    def may_go_on(self, workload: Workload, woken: Woken, wake_pass: WakePass) -> bool:  # noqa: ARG002
        """See `Sleeping`."""
        return workload.key in self.order.going_on

    def _come_true(self, sleeper: Sleeper, wake_pass: WakePass) -> tuple[Parked | None, Woken | None]:
        parked = self._what_sleeps(sleeper)
        return parked, wake_pass.sleeper_came_true(sleeper, parked) if parked is not None else None

    def _alone(self) -> dict[Sleeper, int]:
        """Of each sleeping shape, how many workloads are offered alone that were not offered before."""
        found: dict[Sleeper, int] = {}
        for head in self.order.alone:
            workload = self._state.workloads.get(head.workload)
            is_new = head.workload not in self._state.index.offered.get(head.cluster_queue, {})
            if workload is not None and is_new and head.workload not in self.order.woken:
                shape = self.order.queued.get(head.workload, workload.shape)
                sleeper = Sleeper(head.cluster_queue, shape=shape)
                found[sleeper] = found.get(sleeper, 0) + 1
        return found

    def _wake_some(self, draft: Draft, sleeper: Sleeper, count: int) -> None:
        """
        Wake as many workloads of a shape alone as did in the record.

        One that woke with its ClusterQueue counts when it was not offered: another of its shape went in its place.
        """
        pending = self._state.index.pending.get(sleeper.cluster_queue)
        members = pending.members(sleeper.shape) if pending is not None else iter(())
        offered = {head.workload for head in self.order.alone}
        left = (key for key in members if key not in self.order.woken or key not in offered)
        for key in islice(left, count):
            draft.wake_alone(self._state.workloads[key])

    def _is_parked_by_verdict(self, key: WorkloadKey) -> bool:
        workload = self._state.workloads.get(key)
        if workload is None or workload.stage is not Stage.PARKED or workload.parked is None:
            return False
        return by_verdict(workload.parked)


class QueueManagerAgain(QueueManager):
    """See the module's docstring."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._order = RecordedOrder()

    def _new_sleeping(self) -> Sleeping:
        self._again = SleepingAgain(self.state)
        return self._again

    def follow(self, order: Order) -> None:
        """See `DecidesAgain`."""
        assert isinstance(order, RecordedOrder)
        self._order = self._again.order = order

    def _inactive_with_offers(self) -> tuple[str, ...]:
        self._touched = _ordered(self._touched, self._order.cluster_queues)
        return super()._inactive_with_offers()

    def _look_at_workloads(self, draft: Draft, now_ms: UnixMs, wake_pass: WakePass) -> None:
        self._look = OrderedDict.fromkeys(_ordered(self._look, self._looks()))
        super()._look_at_workloads(draft, now_ms, wake_pass)

    def _looks(self) -> Iterator[WorkloadKey]:
        """The workloads in the order in which the record has examined them."""
        for key, of_parent in self._order.workloads:
            if not of_parent:
                yield key
            elif (variant := self.state.workloads.get(key)) is not None:
                parent = parent_key(variant)
                if parent is not None:
                    yield parent

    def _offer(self, draft: Draft) -> None:
        self._touched = _ordered(self._touched, self._order.cluster_queues)
        super()._offer(draft)


def _ordered(noted: dict[_K, None], first: Iterable[_K]) -> dict[_K, None]:
    """The recorded entries: those named in the record first, in its order."""
    return dict.fromkeys((*(key for key in first if key in noted), *noted))


def queue_manager_check() -> MachineCheck:
    """Decides again what the queue manager has decided."""
    return MachineCheck(
        Producer.QUEUE_MANAGER,
        QueueManagerAgain,
        RecordedOrder,
        counted="queue decisions",
        since=QUEUE_DECISIONS_SINCE,
    )
