"""
Deciding: which heads a cycle of the scheduler process decides, and what it appends.

The scheduler's machine calls `decide_cycle` and appends the result as one commit; `headgate replay --verify` calls it
on the state at a recorded cycle's `decided_at` and compares.
"""

from collections.abc import Iterable

from headgate.core.cycle.entries import Cycle
from headgate.core.cycle.nominating import ANY_CHANGE
from headgate.core.cycle.processing import evaluate
from headgate.core.cycle.verdicts import events_of
from headgate.core.flavors.catalog import Catalog
from headgate.core.flavors.cluster_queue import ClusterQueueFlavors
from headgate.core.flavors.placing import lacks_delayed, needs_second_pass
from headgate.core.state.tables import PENDING, Stage, State, Workload
from headgate.events.ids import WorkloadKey
from headgate.events.registry import Event

HEADS_MAX = 512
"""The maximum number of offered heads per cycle; the others are decided in the next one."""

EVENTS_MAX = 1024
"""After this number of events a cycle stops before its next head, which the next cycle decides. Bounds its commit."""

STANDING_MAX = 512
"""The maximum number of verdicts per cycle on heads that were not offered; the next cycle writes the rest."""

ADMISSIONS_MAX = 512
"""The maximum number of reserved workloads that one cycle admits after their checks."""

SECOND_PASS_MAX = 256
"""The maximum number of workloads per cycle whose pods get topology domains in a second pass."""

Heads = list[tuple[Workload, ClusterQueueFlavors]]


def decide_cycle(
    state: State,
    catalog: Catalog | None = None,
    reserved: Iterable[WorkloadKey] | None = None,
    unplaced: Iterable[WorkloadKey] | None = None,
) -> tuple[Event, ...]:
    """
    The events of the next cycle; none when there is nothing to decide.

    `catalog` may be a cached one, valid as long as no spec has changed. `reserved` may restrict the workloads that are
    examined for admission after their checks, and `unplaced` those for topology domains; those left out must not be
    ready (`is_ready`, `is_unplaced`). None of them changes the answer.
    """
    if not state.synced:
        return ()
    ready = _ready(state, state.index.reserved if reserved is None else reserved)
    catalog = catalog if catalog is not None else Catalog(state)
    heads = _heads(state, catalog)
    again = _second_pass(state, catalog, unplaced_in(state) if unplaced is None else unplaced)
    if not heads and not ready and not again:
        return ()
    standing = _standing(state, catalog, heads)
    cycle = Cycle()
    if heads or again:
        names = frozenset(workload.key for workload, _ in standing)
        cycle = evaluate(state, catalog, [*heads, *standing], standing=names, second_pass=again, events_max=EVENTS_MAX)
    return events_of(state, cycle, ready, standing_max=STANDING_MAX)


def _heads(state: State, catalog: Catalog) -> Heads:
    """The first offered workload of each active ClusterQueue; beyond the maximum, those that were offered first."""
    heads: Heads = []
    seen: set[str] = set()
    for key in state.index.offers.values():
        workload = state.workloads[key]
        name = workload.cluster_queue
        if name in seen:
            continue
        seen.add(name)
        queue = catalog.queue(name)
        if queue is not None and queue.active.active:
            heads.append((workload, queue))
            if len(heads) == HEADS_MAX:
                break
    return heads


def _standing(state: State, catalog: Catalog, heads: Heads) -> Heads:
    """
    The heads that block ClusterQueues in the trees of these heads, unless one of their ClusterQueue is offered.

    Heads whose verdict no quota can change are left out: they reserve nothing, and the verdict would be the same again.
    """
    taken = {queue.name for _, queue in heads}
    trees = sorted({state.index.trees[name] for name in taken})
    found: Heads = []
    for tree in trees:
        for name in sorted(state.index.standing.get(tree, ())):
            workload = state.workloads.get(state.sleeps[name].blocked_by)
            if name in taken or workload is None or workload.stage not in PENDING or workload.verdict is None:
                continue
            queue = catalog.queue(name)
            if queue is not None and queue.active.active and workload.verdict.short != (ANY_CHANGE,):
                found.append((workload, queue))
    return found


def is_ready(state: State, key: WorkloadKey) -> bool:
    """Whether a workload holds quota and has every admission check Ready, so that it may be admitted."""
    workload = state.workloads.get(key)
    return (
        workload is not None
        and workload.stage is Stage.RESERVED
        and all(check.state == "Ready" for check in workload.checks)
        and not (workload.admission is not None and lacks_delayed(workload.admission))
    )


def is_unplaced(state: State, key: WorkloadKey) -> bool:
    """Whether a workload holds quota, and its pods need topology domains now (NeedsSecondPass)."""
    workload = state.workloads.get(key)
    return workload is not None and workload.stage in (Stage.RESERVED, Stage.ADMITTED) and needs_second_pass(workload)


def unplaced_in(state: State) -> list[WorkloadKey]:
    """All workloads of a state whose pods need topology domains now. Costs a pass over those that may."""
    lost = [key for key in state.index.topology_usage_of if state.workloads[key].unhealthy_nodes]
    return [key for key in dict.fromkeys((*state.index.reserved, *lost)) if is_unplaced(state, key)]


def _second_pass(state: State, catalog: Catalog, keys: Iterable[WorkloadKey]) -> Heads:
    """Those of these workloads that are to be tried now, with their ClusterQueues; at most `SECOND_PASS_MAX`."""
    if not state.topologies:
        return []
    found: Heads = []
    for key in sorted(key for key in keys if is_unplaced(state, key)):
        workload = state.workloads[key]
        queue, waits = catalog.queue(workload.cluster_queue), workload.second_pass
        if queue is None or queue.node is None or not queue.active.active or queue.gates is None:
            continue
        if waits is None or not (waits.evict or waits.retry_at_ms):
            found.append((workload, queue))
    return found[:SECOND_PASS_MAX]


def _ready(state: State, keys: Iterable[WorkloadKey]) -> list[Workload]:
    return [state.workloads[key] for key in sorted(key for key in keys if is_ready(state, key))[:ADMISSIONS_MAX]]
