"""The laws of the scheduling queue, over drawn histories of pods, attempts, events and time."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.framework.events import ActionType, EventHint, EventResource, Hint
from headgate.core.placement.framework.status import SUCCESS, PluginStatus, unresolvable
from headgate.core.placement.plugins.priority_sort import PrioritySort
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.queue import Queue
from headgate.core.placement.queue_entry import Place, QueuedPod, QueueLimits, is_backing_off
from headgate.core.placement.queue_events import ASSIGNED_POD_GONE, ClusterEvent, registrations
from headgate.core.placement.queue_hints import QueueProfile
from headgate.core.placement.queue_in_flight import EVENTS_MAX
from headgate.events.ids import UnixMs

NODE_ADDED = ClusterEvent(EventResource.NODE, ActionType.ADD)
CLUSTER = PlacementCluster()
LIMITS = QueueLimits()


class Gates:
    """A PreEnqueue plugin: pods with gates are kept out."""

    name = "Gates"

    def pre_enqueue(self, cycle: Any) -> PluginStatus:
        return unresolvable("gated") if cycle.spec.scheduling_gates else SUCCESS

    def events(self) -> tuple[EventHint, ...]:
        return (EventHint(EventResource.POD, ActionType.UPDATE_POD_SCHEDULING_GATES_ELIMINATED),)


def profile(*declared: tuple[str, tuple[EventHint, ...]]) -> QueueProfile:
    cycle: Callable[[PodInfo], Any] = lambda pod: pod  # noqa: E731 - the plugin here reads no more of it
    declared = declared or (
        ("Fit", (EventHint(EventResource.POD, ActionType.DELETE),)),
        ("Taints", (EventHint(EventResource.NODE, ActionType.ADD),)),
    )
    return QueueProfile(cycle, PrioritySort(), (Gates(),), registrations([*declared, ("Gates", Gates().events())]))


def queue_of(*declared: tuple[str, tuple[EventHint, ...]], limits: QueueLimits = LIMITS) -> Queue:
    return Queue(CLUSTER, {"": profile(*declared)}, limits)


def pod(name: str, priority: int = 0, *, is_gated: bool = False) -> PodInfo:
    spec: dict[str, Any] = {"priority": priority, "containers": [{"name": "c"}]}
    if is_gated:
        spec["schedulingGates"] = [{"name": "example.com/gate"}]
    return CLUSTER.shapes.read({"metadata": {"name": name, "namespace": "a", "uid": f"uid-{name}"}, "spec": spec})


NAMES = st.sampled_from([f"p{number}" for number in range(6)])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), NAMES, st.integers(0, 3), st.booleans()),
        st.tuples(st.just("ungate"), NAMES),
        st.tuples(st.just("remove"), NAMES),
        st.tuples(st.just("pop")),
        st.tuples(st.just("fail"), NAMES, st.sets(st.sampled_from(["Fit", "Taints"]))),
        st.tuples(st.just("bind"), NAMES),
        st.tuples(st.just("event"), st.sampled_from([NODE_ADDED, ASSIGNED_POD_GONE])),
        st.tuples(st.just("pass"), st.integers(0, 400_000)),
    ),
    max_size=60,
)


class History:
    """Operations on a queue, and who should be in it: pods that exist and are not bound."""

    def __init__(self) -> None:
        self.queue = queue_of()
        self.now_ms = 1_000_000
        self.pods: dict[str, PodInfo] = {}
        self.tried: dict[str, QueuedPod] = {}

    @property
    def now(self) -> UnixMs:
        return UnixMs(self.now_ms)

    def apply(self, operation: tuple[Any, ...]) -> None:
        match operation:
            case ("add", name, priority, is_gated) if name not in self.pods and name not in self.tried:
                self.pods[name] = pod(name, priority, is_gated=is_gated)
                self.queue.add(self.pods[name], self.now)
            case ("ungate", name) if name in self.pods:
                old = self.pods[name]
                self.pods[name] = pod(name, old.priority)
                self.queue.update(old, self.pods[name], self.now)
            case ("remove", name) if name in self.pods:
                self.queue.remove(self.pods.pop(name))
            case ("pop",):
                popped = self.queue.pop()
                if popped is not None:
                    self.tried[popped.queued.pod.name] = popped.queued
            case ("fail", name, rejectors) if name in self.tried:
                self.queue.failed(self.tried.pop(name), tuple(rejectors), (), self.now)
            case ("bind", name) if name in self.tried:
                self.queue.done(self.tried.pop(name))
                self.pods.pop(name, None)
            case ("event", event):
                self.queue.notify(event, None, None, self.now)
            case ("pass", time_ms):
                self.now_ms += time_ms
                self.queue.flush_backoff(self.now)
                self.queue.flush_unschedulable(self.now)
            case _:
                pass


@given(OPERATIONS)
def test_no_pod_is_lost_or_held_twice(operations: list[tuple[Any, ...]]) -> None:
    """Every pod that exists and has no node waits in one place, or is being tried; no other does."""
    history = History()
    for operation in operations:
        history.apply(operation)
        waiting = [queued.pod.name for queued in history.queue.pods()]
        assert sorted(waiting) == sorted(set(waiting))
        assert sorted(waiting) == sorted(name for name in history.pods if name not in history.tried)
        assert len(waiting) == sum(history.queue.counts().values())
        assert sorted(queued.pod.name for queued in history.queue.in_flight()) == sorted(history.tried)


@given(OPERATIONS)
def test_pods_are_taken_by_priority_and_then_by_time(operations: list[tuple[Any, ...]]) -> None:
    """From active in the order of priority and time; from backoff only when nothing is active."""
    history = History()
    for operation in operations:
        history.apply(operation)
    last: tuple[int, int] | None = None
    while popped := history.queue.pop():
        key = (-popped.queued.pod.priority, popped.queued.queued_ms)
        if popped.place == Place.ACTIVE:
            assert last is None or last <= key
            last = key
        else:
            assert history.queue.counts()[Place.ACTIVE] == 0


@given(OPERATIONS)
def test_pods_without_gates_end_up_active(operations: list[tuple[Any, ...]]) -> None:
    """However long nothing happens, each pod that no gate keeps out is tried again after at most the longest wait."""
    history = History()
    for operation in operations:
        history.apply(operation)
    gated = {queued.pod.name for queued in history.queue.pods() if queued.place == Place.GATED}
    assert gated == {
        name for name, each in history.pods.items() if each.spec.scheduling_gates and name not in history.tried
    }
    for wait_ms in (LIMITS.unschedulable_ms_max + 1, LIMITS.backoff_ms_max + 1_000):
        history.apply(("pass", wait_ms))
    places = {queued.pod.name: queued.place for queued in history.queue.pods()}
    assert all(place == Place.ACTIVE for name, place in places.items() if name not in gated)


@given(OPERATIONS)
def test_due_is_when_time_alone_moves_something(operations: list[tuple[Any, ...]]) -> None:
    """Before `due_ms` no flush moves a pod, at `due_ms` one does."""
    history = History()
    for operation in operations:
        history.apply(operation)
    due_ms = history.queue.due_ms()
    if due_ms is None:
        assert not history.queue.flush_backoff(UnixMs(history.now_ms + 10**9))
        assert not history.queue.flush_unschedulable(UnixMs(history.now_ms + 10**9))
        return
    before = UnixMs(due_ms - 1)
    assert not history.queue.flush_backoff(before)
    assert not history.queue.flush_unschedulable(before)
    assert history.queue.flush_backoff(due_ms) or history.queue.flush_unschedulable(due_ms)


def failed(queue: Queue, each: PodInfo, *rejectors: str, at_ms: int = 1_000_000) -> QueuedPod:
    """A pod that was tried, and rejected."""
    queue.add(each, UnixMs(at_ms))
    popped = queue.pop()
    assert popped is not None
    queue.failed(popped.queued, rejectors, (), UnixMs(at_ms))
    return popped.queued


def test_only_events_that_the_rejecting_plugin_registered_for_bring_a_pod_back() -> None:
    """A pod that Taints rejected waits through the end of other pods, and not through a new node."""
    queue = queue_of()
    failed(queue, pod("p"), "Taints")
    assert not queue.notify(ASSIGNED_POD_GONE, None, None, UnixMs(1_000_000))
    assert [move.after for move in queue.notify(NODE_ADDED, None, None, UnixMs(1_000_000))] == [Place.BACKOFF]


def test_an_event_during_the_attempt_counts_as_one_after_it() -> None:
    """The pod goes to backoff at once, as the event may be what it lacked."""
    queue = queue_of()
    queue.add(pod("p"), UnixMs(1_000_000))
    popped = queue.pop()
    assert popped is not None
    queue.notify(NODE_ADDED, None, None, UnixMs(1_000_000))
    assert queue.failed(popped.queued, ("Taints",), (), UnixMs(1_000_500)) == Place.BACKOFF
    assert is_backing_off(LIMITS, popped.queued, UnixMs(1_001_999))
    assert not is_backing_off(LIMITS, popped.queued, UnixMs(1_002_000))


def test_more_events_than_are_kept_count_as_help() -> None:
    """A pod whose attempt saw more events than the queue keeps is tried again, whatever they were."""
    queue = queue_of()
    queue.add(pod("p"), UnixMs(0))
    popped = queue.pop()
    assert popped is not None
    for _ in range(EVENTS_MAX + 1):
        queue.notify(NODE_ADDED, None, None, UnixMs(0))
    assert queue.failed(popped.queued, ("Fit",), (), UnixMs(1)) == Place.BACKOFF


def test_an_attempt_that_failed_by_an_error_waits_out_its_pause() -> None:
    """It is not taken early, though nothing is active."""
    queue = queue_of()
    assert failed(queue, pod("p")).place == Place.BACKOFF
    assert queue.pop() is None
    assert queue.flush_backoff(UnixMs(1_002_000))
    assert queue.pop() is not None


def test_without_a_longest_pause_there_is_none() -> None:
    """A longest pause of 0 turns backoff off."""
    queue = queue_of(limits=QueueLimits(backoff_ms_max=0))
    failed(queue, pod("p"), "Taints")
    assert [move.after for move in queue.notify(NODE_ADDED, None, None, UnixMs(1_000_000))] == [Place.ACTIVE]


def test_what_a_pending_plugin_waited_for_ends_the_pause() -> None:
    """Queue of a plugin that answered Pending skips backoff."""
    queue = queue_of()
    queue.add(pod("p"), UnixMs(1_000_000))
    popped = queue.pop()
    assert popped is not None
    queue.failed(popped.queued, ("Fit",), ("Taints",), UnixMs(1_000_000))
    assert [move.after for move in queue.notify(NODE_ADDED, None, None, UnixMs(1_000_000))] == [Place.ACTIVE]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8))
def test_hints_by_key_say_the_same_as_hints_by_pod(priorities: list[int]) -> None:
    """A hint that names what it reads is asked once for equal pods, and moves the same pods."""
    asked: list[str] = []

    def hint(each: PodInfo, old: Any, new: Any, cluster: PlacementCluster) -> Hint:
        asked.append(each.key)
        return Hint.QUEUE if each.priority % 2 else Hint.SKIP

    moved = []
    for key in (None, lambda shape: shape.priority):
        asked.clear()
        queue = queue_of(("Fit", (EventHint(EventResource.NODE, ActionType.ADD, hint, key),)))
        for number, priority in enumerate(priorities):
            failed(queue, pod(f"p{number}", priority), "Fit")
        moved.append(queue.notify(NODE_ADDED, None, None, UnixMs(1_000_000)))
        assert len(asked) == (len(priorities) if key is None else len(set(priorities)))
    assert moved[0] == moved[1]


@pytest.mark.parametrize(
    ("registered", "event", "is_met"),
    [
        ((EventResource.NODE, ActionType.ADD), (EventResource.NODE, ActionType.ADD), True),
        ((EventResource.POD, ActionType.DELETE), (EventResource.ASSIGNED_POD, ActionType.DELETE), True),
        ((EventResource.NODE, ActionType.ADD), (EventResource.POD, ActionType.ADD), False),
        (
            (EventResource.POD, ActionType.UPDATE_POD_LABEL),
            (EventResource.UNSCHEDULED_POD, ActionType(0b1_1111_1111_1100)),
            False,
        ),
        (
            (EventResource.POD, ActionType(0b1_1111_1111_1100)),
            (EventResource.UNSCHEDULED_POD, ActionType.UPDATE_POD_LABEL),
            True,
        ),
    ],
)
def test_an_event_meets_registrations_that_are_no_more_specific(
    registered: tuple[EventResource, ActionType], event: tuple[EventResource, ActionType], is_met: bool
) -> None:
    """MatchClusterEvents."""
    assert ClusterEvent(*event).meets(EventHint(*registered)) == is_met
