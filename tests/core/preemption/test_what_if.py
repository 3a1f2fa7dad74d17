"""A snapshot: usage without some workloads, and the workloads in a kept catalog."""

import random

from hypothesis import given
from hypothesis import strategies as st
from tests.core.preemption.worlds import INCOMING, Asked, World, worlds

from headgate.core.flavors.catalog import Catalog
from headgate.core.preemption.what_if import Snapshot
from headgate.core.state.tables import HOLDS_QUOTA, Stage
from headgate.events.base import EventBase, Producer
from headgate.events.ids import Seq
from headgate.events.queueing import WorkloadEvicted, WorkloadFinished, WorkloadReleased


@given(worlds(), st.integers(0, 2**32))
def test_who_is_taken_out_is_gone_until_put_back(world: World, seed: int) -> None:
    """Usage is that of a state without them, they are no holders; nested simulations come undone one by one."""
    asked = Asked(world)
    snapshot, rng = asked.snapshot, random.Random(seed)
    held = sorted(asked.state.index.usage_of)
    some, more = rng.sample(held, rng.randint(0, len(held))), rng.sample(held, rng.randint(0, len(held)))
    with snapshot.without(some):
        between = asked.usage()
        with snapshot.without(more):
            for queue, node in snapshot.tree.cluster_queues.items():
                mine = [key for key in held if asked.state.workloads[key].cluster_queue == queue]
                here = set(mine) - set(some) - set(more)
                assert {each.key for each in snapshot.holders(queue)} == here
                for fr, column in asked.usage().items():
                    assert column[node.index] == sum(asked.state.index.usage_of[key].get(fr, 0) for key in here)
        assert asked.usage() == between
    assert asked.usage() == asked.before


@given(worlds(), st.integers(0, 2**32))
def test_a_kept_catalog_knows_who_holds_quota_and_who_goes_first(world: World, seed: int) -> None:
    """After evictions, releases and finished jobs it ranks as a newly built one."""
    asked = Asked(world)
    kept, rng = asked.snapshot.catalog, random.Random(seed)
    for _ in range(6):
        _anything(asked, rng)
        tree = asked.state.index.trees[world.queue]
        for contested in (frozenset({("f", "cpu")}), frozenset({("f", "gpu")})):
            snapshots = [Snapshot(asked.state, catalog, tree) for catalog in (kept, Catalog(asked.state))]
            for queue in snapshots[0].tree.cluster_queues:
                ours, anew = ([each.rank for each in one.candidates(queue, contested)] for one in snapshots)
                assert ours == anew


def _anything(asked: Asked, rng: random.Random) -> None:
    """A change of a workload that holds quota."""
    held = [each for each in asked.state.workloads.values() if each.stage in HOLDS_QUOTA and each.key != INCOMING]
    if not held:
        return
    workload = rng.choice(sorted(held, key=lambda each: each.key))
    event: EventBase
    if workload.stage is Stage.EVICTED:
        event = WorkloadReleased(
            workload=workload.key, uid=workload.uid, requeued=False, reason="Deactivated", message=""
        )
    elif rng.random() < 0.5:
        event = WorkloadEvicted(workload=workload.key, uid=workload.uid, reason="Deactivated", message="")
    else:
        event = WorkloadFinished(workload=workload.key, uid=workload.uid, reason="Succeeded", message="")
    asked.cell.log.append(Producer.QUEUE_MANAGER, event, decided_at=Seq(asked.state.position))
