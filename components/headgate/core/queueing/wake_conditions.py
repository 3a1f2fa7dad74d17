"""
Wake conditions: what a parked workload waits for, and whether it has happened.

The queue manager parks workloads with conditions (`headgate.events.queueing.Wake`): quota freed in a cohort tree, an
object changed, a time. `State.freed` has the log position at which each flavor-resource of a tree was last freed. A
condition has come true when that position is later than the one of the verdict. So the answer follows from the state
alone, and a restarted queue manager wakes what its predecessor would have woken.

This module has what both wake policies share (`Sleeper`, `wakes_for`, `freed_since`, `Sleepers`) and the rule of the
policy `Bounded` (`Unused`, `came_true`, `watched`). `headgate.machines.queue_manager.wake_policy` has the interface,
and `docs/concepts/waking.md` explains both policies with an example.

**Enough quota** (`Bounded`). A verdict lists the alternatives in which a workload can be admitted, each with all that
it needs at once (`headgate.events.queueing.Needs`). The workload wakes when one of them is unused. Example: a job needs
16 cpu, and 1 cpu is freed. Its alternative `{"default/cpu": "16"}` is not unused, so it stays parked; when 16 cpu are
unused, it wakes. This is necessary for admission, not sufficient: a cycle decides. Quota becomes available by being
freed or by a change of specs. Each release is checked, and a change of specs wakes regardless of needs. So no wake-up
is missed.

**A place** (`Bounded`). In a flavor with a topology, quota alone does not admit a workload. One that found no place
waits for capacity of such flavors too (`headgate.core.fold.nodes.place_in`): nodes that appear or become usable, and
pods that leave. One that waits for quota only does not wake for them.

**Preemption** (`Bounded`). A workload may also be admitted by preempting others, which may have been admitted after its
verdict. Where its ClusterQueue may preempt, every release in the tree is checked, and `headgate.core.preemption.bound`
gives an upper bound of what preemption could free. A workload that has preempted wakes when there is enough, or when
the last of its targets has left, whatever happened to their quota. Each target releases its quota when it leaves, so
this comes true. Meanwhile each cycle of its tree decides the workload again (`State.index.standing`).

`Sleepers` answers the reverse question: which sleepers may be due after this release? Its cost depends on the number of
woken sleepers, not on the number of all. It is working memory, built from the state at the start.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, assert_never

from headgate.core.fold.nodes import is_place
from headgate.core.fold.objects import ANY as FREED_ANY
from headgate.core.fold.transitions import PREEMPTING
from headgate.core.kubernetes.quantities import amount
from headgate.core.preemption.bound import Reach, may_preempt
from headgate.core.quota.cache import Forest
from headgate.core.quota.cohorts import tree_of
from headgate.core.quota.tree import Ledger, QuotaNode
from headgate.core.state.attribution import about
from headgate.core.state.tables import FlavorResource, Parked, Stage, State, Verdict, Workload
from headgate.events.ids import Seq, Shape, UnixMs, WorkloadKey, split_key
from headgate.events.queueing import Needs, ObjectChanged, QuotaFreed, TimePassed, Wake


class Sleeper(NamedTuple):
    """A unit that is parked after a verdict: a shape in a ClusterQueue, a blocked ClusterQueue, or one workload."""

    cluster_queue: str
    shape: Shape = Shape("")
    workload: WorkloadKey = WorkloadKey("")


class Woken(NamedTuple):
    """
    What came true, as text, and the position in the log where it did.

    `needs`: what there is enough quota for. With `preempts` there may be enough after a preemption, or the targets that
    the workload has preempted are gone. `in_time`: a time that it waits for has come, too.
    """

    by: str
    at: Seq
    needs: Needs = ()
    preempts: bool = False
    in_time: bool = False


def wakes_for(verdict: Verdict, workload: WorkloadKey, cluster_queue: str, state: State) -> tuple[Wake, ...]:
    """
    The conditions that a workload waits for when a cycle did not admit it.

    Quota that was short in its cohort tree, and enough of it; any quota of the tree when the verdict names none. A
    namespace that does not match waits for a change of its labels or of the ClusterQueue's selector.
    """
    if verdict.requeue_reason == "NamespaceMismatch":
        namespace = split_key(workload)[0]
        return (
            ObjectChanged(kind="Namespace", name=namespace),
            ObjectChanged(kind="ClusterQueue", name=cluster_queue),
        )
    tree = tree_of(cluster_queue, state)
    if verdict.requeue_reason in PREEMPTING and not verdict.targets:
        # It waits for victims of other heads. How much of their quota it gets is decided by a cycle.
        return (QuotaFreed(tree=tree),)
    freed = QuotaFreed(tree=tree, flavor_resources=verdict.short, needs=verdict.needs, targets=verdict.targets)
    return (freed, TimePassed(at_ms=verdict.until_ms)) if verdict.until_ms else (freed,)


class Unused:
    """
    What ClusterQueues can use at one moment. Discard it when usage has changed.

    `forest` may be a shared one that is kept current with the state.
    """

    __slots__ = ("_forest", "_known", "_ledgers", "_reach", "_read", "_state", "_taken")

    def __init__(self, state: State, forest: Forest | None = None) -> None:
        self._reach = Reach(state)
        self._known: dict[tuple[str, FlavorResource], int | None] = {}
        """Answers of `of` since the last `take` or `give_back`; the same questions are frequent."""
        self._taken: list[tuple[Ledger, QuotaNode, FlavorResource, int]] = []
        self._state = state
        self._forest = forest
        self._ledgers: dict[str, Ledger | None] = {}
        self._read: dict[tuple[tuple[str, str], ...], dict[FlavorResource, int]] = {}
        """The amounts of alternatives."""

    def of(self, cluster_queue: str, flavor_resource: str) -> int | None:
        """
        How much of `<flavor>/<resource>` a ClusterQueue can use, borrowing included; 0 when there is none.

        None when it has no quota: it does not exist, or its cohorts form a cycle.
        """
        flavor, _, resource = flavor_resource.partition("/")
        return self._of(cluster_queue, (flavor, resource))

    def _of(self, cluster_queue: str, fr: FlavorResource) -> int | None:
        asked = cluster_queue, fr
        if asked in self._known:
            return self._known[asked]
        ledger = self._ledger(cluster_queue)
        unused = None if ledger is None else max(0, ledger.available(ledger.tree.cluster_queues[cluster_queue], fr))
        self._known[asked] = unused
        return unused

    def enough(self, cluster_queue: str, needs: Needs) -> bool:
        """Whether all of one of these alternatives is unused. True when nothing is known: a cycle has to decide."""
        return not needs or self._ledger(cluster_queue) is None or self._unused_way(cluster_queue, needs) is not None

    def reaches(self, cluster_queue: str, needs: Needs, workload: Workload | None) -> bool:
        """Whether all of one of these alternatives could be free after preemption for a workload; None: for any."""
        ledger = self._ledger(cluster_queue)
        if not may_preempt(self._state, cluster_queue) or ledger is None:
            return False
        if workload is None:
            return True
        node = ledger.tree.cluster_queues[cluster_queue]
        with about("Workload", workload.key):
            return any(self._reach.has(ledger, node, workload, self._amounts(way)) for way in needs)

    def level(self, cluster_queue: str, needs: Needs) -> int:
        """The borrowing level of the first of these alternatives that is unused; 0 without borrowing."""
        ledger = self._ledger(cluster_queue) if needs else None
        if ledger is None:
            return 0
        way = self._unused_way(cluster_queue, needs)
        if way is None:
            way = needs[0]
        node = ledger.tree.cluster_queues[cluster_queue]
        amounts = self._amounts(way)
        return max((ledger.borrowing_level(node, fr, value).height for fr, value in amounts.items()), default=0)

    def lacking(self, cluster_queue: str, way: dict[str, str]) -> bool:
        """Whether less is unused of anything than this alternative needs."""
        for fr, value in self._amounts(way).items():
            unused = self._of(cluster_queue, fr)
            if unused is not None and value > unused:
                return True
        return False

    def take(self, cluster_queue: str, needs: Needs) -> bool:
        """Take the first of these alternatives that is unused, until `give_back`. Whether there was `enough`."""
        ledger = self._ledger(cluster_queue) if needs else None
        if ledger is None:
            return True
        way = self._unused_way(cluster_queue, needs)
        if way is None:
            return False
        self._known.clear()
        node = ledger.tree.cluster_queues[cluster_queue]
        for fr, value in self._amounts(way).items():
            ledger.add(node, fr, value)
            self._taken.append((ledger, node, fr, value))
        return True

    def _unused_way(self, cluster_queue: str, needs: Needs) -> dict[str, str] | None:
        for way in needs:
            if not self.lacking(cluster_queue, way):
                return way
        return None

    def give_back(self) -> None:
        """Undo every `take` and `claim`."""
        if self._taken:
            self._known.clear()
        while self._taken:
            ledger, node, flavor_resource, value = self._taken.pop()
            ledger.remove(node, flavor_resource, value)

    def _ledger(self, cluster_queue: str) -> Ledger | None:
        tree = self._state.index.trees.get(cluster_queue)
        if tree is None:
            return None
        if tree not in self._ledgers:
            if self._forest is None:
                self._forest = Forest(self._state)
            cyclic = self._forest.has_cycle(tree)
            self._ledgers[tree] = None if cyclic else self._forest.ledger(tree)
        return self._ledgers[tree]

    def _amounts(self, way: dict[str, str]) -> dict[FlavorResource, int]:
        written = tuple(way.items())
        known = self._read.get(written)
        if known is not None:
            return known
        amounts: dict[FlavorResource, int] = {}
        for flavor_resource, quantity in way.items():
            flavor, _, resource = flavor_resource.partition("/")
            amounts[flavor, resource] = amount(resource, quantity)
        self._read[written] = amounts
        return amounts


def came_true(
    wakes: Iterable[Wake],
    cluster_queue: str,
    since: Seq,
    state: State,
    now_ms: UnixMs,
    unused: Unused,
    workload: Workload | None = None,
) -> Woken | None:
    """
    The first of the conditions that has come true after position `since`; None when none has.

    `unused` gives what the ClusterQueue can use in this state. `workload` is the waiting one, or one of its shape:
    which workloads it may preempt depends on its priority. Without one, it is assumed that it may preempt all. Objects
    that verdicts depend on record their changes in `State.freed` as a change that may help any workload of the tree. So
    does a ClusterQueue that moves to another tree, in both.
    """
    wakes = tuple(wakes)
    until_ms = max((wake.at_ms for wake in wakes if isinstance(wake, TimePassed)), default=0)
    for wake in wakes:
        match wake:
            case QuotaFreed():
                woken = _freed_enough(wake, cluster_queue, since, state, unused, workload)
                if woken is not None and woken.preempts and until_ms > now_ms:
                    # It preempts only after its waiting time; until then only enough quota wakes it.
                    woken = None
            case ObjectChanged():
                woken = freed_since(tree_of(cluster_queue, state), (FREED_ANY,), since, state)
                woken = Woken(f"a change of {wake.kind} {wake.name}, or of another", woken.at) if woken else None
            case TimePassed():
                woken = Woken("its time had come", state.position) if wake.at_ms <= now_ms else None
            case _:
                assert_never(wake)
        if woken is not None:
            return woken._replace(in_time=0 < until_ms <= now_ms)
    return None


ANY_QUOTA: Final = "/"
"""Among the keys that a condition waits for: any quota of the tree, and no place."""


def watched(wake: QuotaFreed, cluster_queue: str, state: State) -> tuple[str, ...]:
    """
    The keys of `State.freed` that may make a condition come true: quota, or ANY_QUOTA, and places.

    Empty means any of them: of a condition that names nothing and waits for no targets.
    """
    if not wake.flavor_resources and not wake.targets:
        return ()
    places = tuple(filter(is_place, wake.flavor_resources))
    quota = tuple(freed for freed in wake.flavor_resources if freed not in places) if places else wake.flavor_resources
    if quota == (FREED_ANY,):
        return wake.flavor_resources
    if wake.targets or may_preempt(state, cluster_queue):
        quota = ()
    elif wake.needs and wake.flavor_resources:
        quota = tuple(dict.fromkeys(flavor_resource for way in wake.needs for flavor_resource in way))
    return (*(quota or (ANY_QUOTA,)), *places)


def _freed_enough(
    wake: QuotaFreed, cluster_queue: str, since: Seq, state: State, unused: Unused, workload: Workload | None
) -> Woken | None:
    """A change of specs, or a release after which there is enough, or may be after preemption."""
    changed = freed_since(wake.tree, (FREED_ANY,), since, state)
    if changed is not None:
        return changed
    freed = freed_since(wake.tree, watched(wake, cluster_queue, state), since, state)
    if freed is None:
        return None
    if unused.enough(cluster_queue, wake.needs):
        return freed._replace(needs=wake.needs)
    if wake.targets:
        waits = any(_is_leaving(state, key) for key in wake.targets)
    else:
        waits = not unused.reaches(cluster_queue, wake.needs, workload)
    return None if waits else freed._replace(needs=wake.needs, preempts=True)


def _is_leaving(state: State, key: WorkloadKey) -> bool:
    """Whether a workload was evicted and still holds quota. Its end is an event that frees that quota."""
    workload = state.workloads.get(key)
    return workload is not None and workload.stage is Stage.EVICTED and key in state.index.usage_of


def freed_since(tree: str, flavor_resources: tuple[str, ...], since: Seq, state: State) -> Woken | None:
    """What was freed or changed in a tree after a position, of these flavor-resources; of any when none is given."""
    freed = state.freed.get(tree)
    if freed is None:
        return None
    fresh = [flavor_resource for flavor_resource, at in freed.items() if at > since]
    if not fresh:
        return None
    awaited = flavor_resources or tuple(sorted(fresh))
    if ANY_QUOTA in awaited:
        awaited = (*sorted(each for each in fresh if not is_place(each)), *awaited)
    for flavor_resource in (FREED_ANY, *awaited):
        if flavor_resource in fresh:
            return Woken(_what_was_freed(flavor_resource, tree), freed[flavor_resource])
    return None


def _what_was_freed(key: str, tree: str) -> str:
    if key == FREED_ANY:
        return f"a change in {tree}"
    if is_place(key):
        return f"nodes of {key.removesuffix('/*')} changed or have room again"
    return f"quota of {key} freed in {tree}"


def is_overtaken(parked: Parked, cluster_queue: str, state: State) -> bool:
    """Whether anything was freed in its tree since the verdict that parked it."""
    freed = state.freed.get(tree_of(cluster_queue, state), {})
    return any(at > parked.decided_at for at in freed.values())


Watched = Callable[[QuotaFreed, str], tuple[str, ...]]
"""
For a condition in a ClusterQueue, the keys of `State.freed` that may make it come true; empty means any.

ANY_QUOTA stands for all those that are not of places.
"""


class Sleepers:
    """An index of sleepers by cohort tree and flavor-resource. Entries are hints, validated when they are read."""

    __slots__ = ("_by_tree",)

    _EVERYTHING = ""

    def __init__(self) -> None:
        self._by_tree: dict[str, dict[str, dict[Sleeper, None]]] = {}

    def add(self, sleeper: Sleeper, parked: Parked, state: State, watched: Watched) -> None:
        """Add a sleeper under each tree and flavor-resource, or place, that may wake it."""
        for wake in parked.wake:
            match wake:
                case QuotaFreed():
                    for freed in watched(wake, sleeper.cluster_queue) or (self._EVERYTHING,):
                        self._bucket(wake.tree, freed)[sleeper] = None
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
        Remove and return the sleepers that may be due after a release of these flavor-resources of a tree.

        A sleeper that is not due has to be added again.
        """
        buckets = self._by_tree.get(tree)
        if buckets is None:
            return ()
        freed = tuple(freed)
        quota = () if all(is_place(each) for each in freed) else (ANY_QUOTA,)
        names = tuple(buckets) if FREED_ANY in freed else (*freed, *quota, self._EVERYTHING)
        due: dict[Sleeper, None] = {}
        for name in names:
            due.update(buckets.pop(name, {}))
        return due


def sleepers_of(state: State) -> Iterable[tuple[Sleeper, Parked]]:
    """All sleepers of the pending queues. Workloads that are parked alone are found in their own records."""
    for cluster_queue, sleep in state.sleeps.items():
        for shape, parked in sleep.shapes.items():
            if parked is not None:
                yield Sleeper(cluster_queue, shape=shape), parked
        if sleep.blocked is not None:
            yield Sleeper(cluster_queue), sleep.blocked
