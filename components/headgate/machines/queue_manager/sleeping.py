"""
Sleepers: which shapes and queues sleep, which of their wake conditions may hold, and which of them wake.

`decide` passes on each commit and requests, once per `Settled`, what to wake. The policy (`wake_policy`) decides
whether a sleeper wakes. This module tracks what to examine: a sleeper is due when something in its wake condition was
freed, and one that may not wake yet is due again after the next change in its cohort tree.

All of it is a hint that follows from the log: a new instance examines every sleeper once.

Work on a workload that is parked alone is attributed to that workload, work on a shape or a blocked queue to the
ClusterQueue (`headgate.core.state.attribution`). Nothing of a quarantined one wakes; it stays due.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple, assert_never

from headgate.core.queueing.wake_conditions import Sleeper, Sleepers, Woken, is_overtaken, sleepers_of
from headgate.core.quota.activeness import CLUSTER_QUEUE, is_left_alone
from headgate.core.quota.cache import Forest
from headgate.core.state.attribution import about
from headgate.core.state.tables import PENDING, Parked, Stage, State, Workload
from headgate.events import facts
from headgate.events.commit import Commit
from headgate.events.ids import Seq, Shape, Uid, UnixMs, WorkloadKey
from headgate.events.queueing import TimePassed, WorkloadParked, WorkloadQueued, WorkloadWoken
from headgate.events.registry import Event
from headgate.machines.queue_manager.bounded import BoundedPolicy
from headgate.machines.queue_manager.cohort_tree import CohortTreePolicy
from headgate.machines.queue_manager.draft import Draft
from headgate.machines.queue_manager.wake_policy import WakePass, WakePolicy


class Awake(NamedTuple):
    """What to examine: ClusterQueues whose offers may change, and workloads that are parked alone."""

    cluster_queues: list[str]
    parked: list[WorkloadKey]


def policy_of(state: State) -> WakePolicy:
    """The policy that the configuration of this state names."""
    match state.configuration.wake_policy:
        case "Bounded":
            return BoundedPolicy(state)
        case "CohortTree":
            return CohortTreePolicy(state)
        case never:
            assert_never(never)


class Sleeping:
    """All sleepers, and which may be due. `state` is read only. Created anew when the policy changes."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.policy_name = state.configuration.wake_policy
        self._policy = policy_of(state)
        self._due: dict[Sleeper, None] = {}
        """Sleepers whose wake condition may hold."""
        self._behind: dict[str, dict[Sleeper, None]] = {}
        """By cohort tree, or by ClusterQueue: sleepers that have enough quota but have others ahead of them."""
        self._moved: dict[str, None] = {}
        """ClusterQueues with a change after which the sleepers in `_behind` may be next."""
        self._unsaid: dict[str, None] = dict.fromkeys(state.sleeps)
        """ClusterQueues in which a verdict may sleep whose workload was deleted before the verdict was carried out."""
        self._freed_until = Seq(0)
        """`State.freed` has been examined up to this position."""
        self._timed: list[tuple[UnixMs, Sleeper]] = []
        """A heap of the deadlines of shapes and queues that also wait for a time. It may contain obsolete entries."""
        self._until: dict[Sleeper, UnixMs] = {}
        """The latest heap entry of each."""
        self._sleepers = Sleepers()
        for sleeper, parked in sleepers_of(state):
            if not self._is_aside(sleeper):
                with _about(sleeper):
                    self.add(sleeper, parked)
            else:
                self._due[sleeper] = None

    def _is_aside(self, sleeper: Sleeper) -> bool:
        return is_left_alone(self._state, CLUSTER_QUEUE, sleeper.cluster_queue)

    def add(self, sleeper: Sleeper, parked: Parked) -> None:
        """Register a sleeper under everything that its wake condition depends on."""
        self._sleepers.add(sleeper, parked, self._state, self._policy.watched)
        for wake in parked.wake:
            if isinstance(wake, TimePassed) and not sleeper.workload and self._until.get(sleeper) != wake.at_ms:
                self._until[sleeper] = wake.at_ms
                heapq.heappush(self._timed, (wake.at_ms, sleeper))

    @property
    def wake_at_ms(self) -> UnixMs | None:
        """The earliest deadline of a sleeper."""
        return self._timed[0][0] if self._timed else None

    # --- noting ----------------------------------------------------------------------------------------------------

    def note_commit(self, commit: Commit, concerned: Iterable[str]) -> None:
        """Process a commit whose events, except fruitless attempts, concern these ClusterQueues."""
        self._due.update(dict.fromkeys(self._policy.note_commit(commit, concerned)))

    def note_moves(self, cluster_queues: Iterable[str]) -> None:
        """In these ClusterQueues another sleeper may be next now."""
        self._moved.update(dict.fromkeys(cluster_queues))

    def note_unsaid(self, cluster_queues: Iterable[str]) -> None:
        """In these ClusterQueues a verdict may sleep that will never be carried out."""
        self._unsaid.update({name: None for name in cluster_queues if name in self._state.sleeps})

    def note(self, event: Event, workload: Workload | None, cluster_queues: tuple[str, ...]) -> None:
        """Process an event about a workload, if it still exists, that was or is queued in these ClusterQueues."""
        if self._moves_on(workload, event):
            self.note_moves(cluster_queues)
        self.note_unsaid(cluster_queues)
        if isinstance(event, WorkloadParked) and workload is not None:
            self._note_parked(event, workload)

    def _moves_on(self, workload: Workload | None, event: Event) -> bool:
        """
        Whether another sleeper may be next after an event.

        Not so when one more workload is queued behind another of its shape, when a shape goes to sleep whose verdict
        was already recorded, or when a fact is about a workload that is no longer queued: its consequence is an event,
        too.
        """
        match event:
            case WorkloadQueued() if workload is not None:
                pending = self._state.index.pending.get(workload.cluster_queue)
                return pending is not None and next(pending.members(workload.shape), None) == workload.key
            case WorkloadParked():
                return event.scope != "shape"
            case facts.WorkloadObserved():
                return workload is None or workload.stage in PENDING
            case _:
                return True

    def _note_parked(self, event: WorkloadParked, workload: Workload) -> None:
        sleep = self._state.sleeps.get(event.cluster_queue)
        if sleep is None or event.scope == "workload":
            return
        by_shape = event.scope == "shape"
        parked = sleep.shapes.get(workload.shape) if by_shape else sleep.blocked
        if parked is None:
            return
        sleeper = Sleeper(event.cluster_queue, shape=workload.shape if by_shape else Shape(""))
        self.add(sleeper, parked)
        if is_overtaken(parked, event.cluster_queue, self._state):
            self._due[sleeper] = None

    # --- waking ----------------------------------------------------------------------------------------------------

    def begin(self, now_ms: UnixMs, forest: Callable[[], Forest]) -> WakePass:
        """Begin a decision."""
        return self._policy.begin(now_ms, forest)

    def wake(self, draft: Draft, now_ms: UnixMs, wake_pass: WakePass, events_max: int) -> Awake:
        """
        Wake the shapes and queues whose wake condition holds and that may wake, as far as the draft has room.

        The others sleep on. Those that may not wake yet are due again after the next change in their tree.
        """
        self._notice_freed()
        while self._timed and self._timed[0][0] <= now_ms:
            at_ms, sleeper = heapq.heappop(self._timed)
            if self._until.get(sleeper) == at_ms:
                del self._until[sleeper]
            self._due[sleeper] = None
        awake = Awake([], [])
        ready = self._ready(wake_pass, awake)
        self._due = dict.fromkeys((*ready, *filter(self._is_aside, self._due)))
        for sleeper in wake_pass.in_order(ready):
            if len(draft) >= events_max:
                break
            self._due.pop(sleeper, None)
            parked, woken = ready[sleeper]
            with _about(sleeper):
                if not wake_pass.may_wake(sleeper, woken):
                    self._sleep_on(sleeper, parked, wake_pass)
                    continue
                awake.cluster_queues.append(sleeper.cluster_queue)
                if self._policy.offers_one(sleeper, woken):
                    self._sleep_on(sleeper, parked, wake_pass)
                    workload = wake_pass.next_of(sleeper, woken)
                    if workload is not None:
                        draft.wake_alone(workload)
                else:
                    draft.say(self._woken(sleeper, parked.by, woken.by, woken.at))
        return awake

    def may_go_on(self, workload: Workload, woken: Woken, wake_pass: WakePass) -> bool:
        """Whether a workload that was skipped, or is parked by a verdict, may be retried with what is now free."""
        sleeper = _sleeps_as(workload)
        if self._policy.holds_back(sleeper, workload.key, woken):
            return False
        return bool(sleeper.workload) or wake_pass.may_go_on(workload, woken)

    def say_unsaid(self, draft: Draft) -> list[str]:
        """
        Wake what a verdict put to sleep if its workload was deleted before its wake condition was recorded.

        The verdicts of workloads that still exist have been carried out by now: in the state or in this draft. Returns
        the ClusterQueues whose offers may change.
        """
        touched: list[str] = []
        said = {
            (event.cluster_queue, event.scope, self._shape_in(event))
            for event in draft.events
            if isinstance(event, WorkloadParked | WorkloadWoken) and event.scope != "workload"
        }
        for cluster_queue in self._unsaid:
            for sleeper in self._without_condition(cluster_queue):
                if (cluster_queue, "shape" if sleeper.shape else "queue", sleeper.shape) not in said:
                    with _about(sleeper):
                        touched.append(cluster_queue)
                        by = "the workload that the verdict was about is gone"
                        key = WorkloadKey("") if sleeper.shape else self._state.sleeps[cluster_queue].blocked_by
                        draft.say(self._woken(sleeper, key, by, self._state.position))
        self._unsaid = {}
        return touched

    def _without_condition(self, cluster_queue: str) -> list[Sleeper]:
        """The sleepers of a ClusterQueue that have no wake condition."""
        sleep = self._state.sleeps.get(cluster_queue)
        if sleep is None or self._is_aside(Sleeper(cluster_queue)):
            return []
        asleep = [Sleeper(cluster_queue, shape=shape) for shape, parked in sleep.shapes.items() if parked is None]
        if sleep.blocked_by and sleep.blocked is None:
            asleep.append(Sleeper(cluster_queue))
        return asleep

    def _ready(self, wake_pass: WakePass, awake: Awake) -> dict[Sleeper, tuple[Parked, Woken]]:
        """The due sleepers whose wake condition holds, with what made it hold. Workloads parked alone go to `awake`."""
        ready: dict[Sleeper, tuple[Parked, Woken]] = {}
        for sleeper in sorted(self._due):
            if self._is_aside(sleeper):
                continue
            with _about(sleeper):
                if sleeper.workload:
                    if self._is_parked(sleeper):
                        awake.parked.append(sleeper.workload)
                    continue
                parked = self._what_sleeps(sleeper)
                if parked is None:
                    continue
                woken = wake_pass.sleeper_came_true(sleeper, parked)
                if woken is None or self._policy.holds_back(sleeper, parked.by, woken):
                    self.add(sleeper, parked)
                else:
                    ready[sleeper] = parked, woken
        return ready

    def _notice_freed(self) -> None:
        """
        Find the sleepers that may be due because of what was freed, or because those ahead of them were decided.

        The fold keeps the trees in which quota was freed last at the end.
        """
        for tree in reversed(self._state.freed):
            freed = self._state.freed[tree]
            fresh = [flavor_resource for flavor_resource, at in freed.items() if at > self._freed_until]
            if not fresh:
                break
            self._due.update(dict.fromkeys(self._sleepers.take(tree, fresh)))
        self._freed_until = self._state.position
        if self._behind:
            for cluster_queue in self._moved:
                for group in (cluster_queue, self._state.index.trees.get(cluster_queue, "")):
                    self._due.update(self._behind.pop(group, {}))
        self._moved = {}

    def _sleep_on(self, sleeper: Sleeper, parked: Parked, wake_pass: WakePass) -> None:
        """It is due again after a change in its tree: those ahead of it will have been decided."""
        self.add(sleeper, parked)
        self._behind.setdefault(wake_pass.group_of(sleeper.cluster_queue), {})[sleeper] = None

    def _is_parked(self, sleeper: Sleeper) -> bool:
        """Whether a workload is still parked alone. If so, it is due again with the next change of its condition."""
        workload = self._state.workloads.get(sleeper.workload)
        if workload is None or workload.stage is not Stage.PARKED or workload.parked is None:
            return False
        self.add(sleeper, workload.parked)
        return True

    def _what_sleeps(self, sleeper: Sleeper) -> Parked | None:
        sleep = self._state.sleeps.get(sleeper.cluster_queue)
        if sleep is None:
            return None
        return sleep.shapes.get(sleeper.shape) if sleeper.shape else sleep.blocked

    def _woken(self, sleeper: Sleeper, key: WorkloadKey, by: str, at: Seq) -> WorkloadWoken:
        """The end of a shape's sleep or a queue's block, in the name of the skipped workload or of one of its shape."""
        if sleeper.shape and not self._is_of(key, sleeper):
            pending = self._state.index.pending.get(sleeper.cluster_queue)
            key = next(pending.members(sleeper.shape), key) if pending is not None else key
        return WorkloadWoken(
            workload=key,
            uid=self._state.workloads[key].uid if self._is_of(key, sleeper) else Uid(""),
            cluster_queue=sleeper.cluster_queue,
            by=by,
            by_position=at,
            scope="shape" if sleeper.shape else "queue",
            shape=sleeper.shape,
        )

    def _is_of(self, key: WorkloadKey, sleeper: Sleeper) -> bool:
        workload = self._state.workloads.get(key)
        if workload is None or workload.cluster_queue != sleeper.cluster_queue:
            return False
        return not sleeper.shape or workload.shape == sleeper.shape

    def _shape_in(self, event: WorkloadParked | WorkloadWoken) -> Shape:
        if event.scope == "queue":
            return Shape("")
        return event.shape if isinstance(event, WorkloadWoken) else self._state.workloads[event.workload].shape


def _about(sleeper: Sleeper) -> about:
    return about("Workload", sleeper.workload) if sleeper.workload else about(CLUSTER_QUEUE, sleeper.cluster_queue)


def _sleeps_as(workload: Workload) -> Sleeper:
    """What sleeps in its ClusterQueue with a workload that was skipped, or is parked by a verdict."""
    scope = workload.verdict.scope if workload.verdict is not None and workload.stage is Stage.SKIPPED else "workload"
    match scope:
        case "shape":
            return Sleeper(workload.cluster_queue, shape=workload.shape)
        case "queue":
            return Sleeper(workload.cluster_queue)
        case _:
            return Sleeper(workload.cluster_queue, workload=workload.key)
