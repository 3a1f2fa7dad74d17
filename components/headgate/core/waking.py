"""
Waking: what something that waits is waiting for, and whether it has come true.

The queue manager parks what a cycle could not admit with wake-up conditions (`headgate.events.queueing.Wake`).
Whether one has come true is read off `State.freed`, the last position at which quota was freed or raised, by cohort
tree and flavor-resource: it has when that position is later than the one the verdict was decided at. So the answer
follows from the state alone, and a queue manager that starts anew wakes exactly what the one before it would have
woken.

`Sleepers` answers the question the other way round, in time that depends on what is woken and not on what sleeps:
given what has just been freed, who may be due? It is a working memory, made from the state at the start.
"""

from collections.abc import Iterable
from typing import NamedTuple, assert_never

from headgate.core.fold_objects import ANY as FREED_ANY
from headgate.core.state import Parked, State, Verdict
from headgate.core.trees import tree_of
from headgate.events.ids import Seq, Shape, UnixMs, WorkloadKey, split_key
from headgate.events.queueing import ObjectChanged, QuotaFreed, TimePassed, Wake


class Sleeper(NamedTuple):
    """Something parked after a verdict: a shape in a ClusterQueue, a blocked ClusterQueue, or one workload."""

    cluster_queue: str
    shape: Shape = Shape("")
    workload: WorkloadKey = WorkloadKey("")


class Woken(NamedTuple):
    """What came true, in words, and the position in the log where it did."""

    by: str
    at: Seq


def wakes_for(verdict: Verdict, workload: WorkloadKey, cluster_queue: str, state: State) -> tuple[Wake, ...]:
    """
    What a workload that a cycle did not admit has to wait for.

    Quota of what was short in its cohort tree; of anything there when the verdict does not say. A namespace that does
    not match waits for its labels or for the ClusterQueue's selector to change.
    """
    if verdict.requeue_reason == "NamespaceMismatch":
        namespace = split_key(workload)[0]
        return (
            ObjectChanged(kind="Namespace", name=namespace),
            ObjectChanged(kind="ClusterQueue", name=cluster_queue),
        )
    return (QuotaFreed(tree=tree_of(cluster_queue, state), flavor_resources=verdict.short),)


def came_true(wakes: Iterable[Wake], cluster_queue: str, since: Seq, state: State, now_ms: UnixMs) -> Woken | None:
    """
    The first of the conditions that has come true after position `since`; None when all are still awaited.

    Objects that verdicts depend on note their changes in `State.freed` as one that may help any workload of the tree;
    so does a ClusterQueue that moves to another tree, in both.
    """
    for wake in wakes:
        match wake:
            case QuotaFreed():
                woken = _freed_since(wake.tree, wake.flavor_resources, since, state)
            case ObjectChanged():
                woken = _freed_since(tree_of(cluster_queue, state), (FREED_ANY,), since, state)
                woken = Woken(f"a change of {wake.kind} {wake.name}, or of another", woken.at) if woken else None
            case TimePassed():
                woken = Woken("its time had come", state.position) if wake.at_ms <= now_ms else None
            case _:
                assert_never(wake)
        if woken is not None:
            return woken
    return None


def _freed_since(tree: str, flavor_resources: tuple[str, ...], since: Seq, state: State) -> Woken | None:
    freed = state.freed.get(tree)
    if freed is None:
        return None
    for flavor_resource in (FREED_ANY, *(flavor_resources or sorted(freed))):
        at = freed.get(flavor_resource, Seq(0))
        if at > since:
            any_change = flavor_resource == FREED_ANY
            return Woken(f"a change in {tree}" if any_change else f"quota of {flavor_resource} freed in {tree}", at)
    return None


class Sleepers:
    """Who waits for what, by cohort tree and flavor-resource. Hints: who has moved on is found out when looked at."""

    __slots__ = ("_by_tree",)

    _EVERYTHING = ""

    def __init__(self) -> None:
        self._by_tree: dict[str, dict[str, dict[Sleeper, None]]] = {}

    def add(self, sleeper: Sleeper, parked: Parked, state: State) -> None:
        """Remember who waits, under each tree and flavor-resource that may wake it."""
        for wake in parked.wake:
            match wake:
                case QuotaFreed():
                    for flavor_resource in wake.flavor_resources or (self._EVERYTHING,):
                        self._bucket(wake.tree, flavor_resource)[sleeper] = None
                case ObjectChanged():
                    self._bucket(tree_of(sleeper.cluster_queue, state), FREED_ANY)[sleeper] = None
                case TimePassed():
                    pass
                case _:
                    assert_never(wake)

    def _bucket(self, tree: str, flavor_resource: str) -> dict[Sleeper, None]:
        return self._by_tree.setdefault(tree, {}).setdefault(flavor_resource, {})

    def take(self, tree: str, freed: Iterable[str]) -> Iterable[Sleeper]:
        """
        Those who may be due now that these flavor-resources of a tree were freed; they are forgotten here.

        Whoever turns out to wait on has to be added again.
        """
        buckets = self._by_tree.get(tree)
        if buckets is None:
            return ()
        freed = tuple(freed)
        names = tuple(buckets) if FREED_ANY in freed else (*freed, self._EVERYTHING)
        due: dict[Sleeper, None] = {}
        for name in names:
            due.update(buckets.pop(name, {}))
        return due


def sleepers_of(state: State) -> Iterable[tuple[Sleeper, Parked]]:
    """Everything that sleeps in the pending queues. Workloads that are parked alone stand in their own records."""
    for cluster_queue, sleep in state.sleeps.items():
        for shape, parked in sleep.shapes.items():
            if parked is not None:
                yield Sleeper(cluster_queue, shape=shape), parked
        if sleep.blocked is not None:
            yield Sleeper(cluster_queue), sleep.blocked
