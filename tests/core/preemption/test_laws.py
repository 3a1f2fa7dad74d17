"""Laws of the preemption search, on any small world: what an answer may never be."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.preemption.worlds import Asked, World, worlds

from headgate.core.preemption import IN_CLUSTER_QUEUE, IN_COHORT_FAIR_SHARING
from headgate.core.quota.fair_shares import share_of
from headgate.core.workload.ordering import priority_of, queued_at

both = worlds() | worlds(fair=True)


@settings(max_examples=400)
@given(both)
def test_the_workload_fits_when_its_targets_are_gone(world: World) -> None:
    """No workload is evicted without need."""
    asked = Asked(world)
    if asked.targets:
        assert asked.fits_without([each.workload for each in asked.targets], borrowing=True)


@settings(max_examples=400)
@given(both)
def test_nobody_goes_whom_filling_back_would_spare(world: World) -> None:
    """
    Every target is needed: if it alone stayed, the workload would not fit.

    Where it fits within its ClusterQueue's own quota when all targets are gone, the attempt may have been the one
    without borrowing: then the workload would not fit without borrowing if one stayed.
    """
    asked = Asked(world)
    keys = [each.workload for each in asked.targets]
    own = not world.configuration.fair_sharing and bool(keys) and asked.fits_without(keys, borrowing=False)
    for spared in keys:
        assert not asked.fits_without([key for key in keys if key != spared], borrowing=not own)


@settings(max_examples=400)
@given(both)
def test_no_target_has_a_priority_that_its_policy_forbids(world: World) -> None:
    """
    Own workloads go by withinClusterQueue, those of others by reclaimWithinCohort.

    The latter only if their ClusterQueue uses more of something contested than its quota; and only who was assigned
    something contested goes at all.
    """
    asked = Asked(world)
    policies = asked.queue.spec.preemption
    incoming = asked.incoming
    configuration = world.configuration
    for target in asked.targets:
        holder = asked.state.workloads[target.workload]
        at_home = target.cluster_queue == world.queue
        assert at_home == (target.reason == IN_CLUSTER_QUEUE)
        policy = policies.within_cluster_queue if at_home else policies.reclaim_within_cohort
        ours, theirs = priority_of(incoming, configuration), priority_of(holder, configuration)
        newer = ours == theirs and queued_at(incoming, configuration) < queued_at(holder, configuration)
        assert {
            "Never": False,
            "LowerPriority": ours > theirs,
            "LowerOrNewerEqualPriority": ours > theirs or newer,
            "Any": True,
        }[policy]
        assert not asked.contested.isdisjoint(asked.state.index.usage_of[target.workload])
        node = asked.snapshot.node(target.cluster_queue)
        assert at_home or any(asked.before[fr][node.index] > node.quota(fr).nominal for fr in asked.contested)


@settings(max_examples=400)
@given(worlds(fair=True, flat=True, alone=True))
def test_fair_sharing_never_raises_the_larger_share(world: World) -> None:
    """
    When a workload is preempted for fair shares, the largest share of the cohort is no larger afterwards.

    The rules compare the preemptor's share, with the incoming workload, to the other's share before (S2-b) or after
    (S2-a) at the time of each choice; so it ends at most where the other was. This is true of ClusterQueues of one
    cohort that do not preempt their own workloads. Otherwise filling back may put back a workload whose removal had
    lowered the preemptor's side when the shares were compared. Reclaiming what is needed within nominal quota compares
    no shares.
    """
    asked = Asked(world)
    if not any(each.reason == IN_COHORT_FAIR_SHARING for each in asked.targets):
        return
    ledger, tree = asked.snapshot.ledger, asked.snapshot.tree
    nodes = tree.cluster_queues.values()
    before = max(share_of(ledger, node).key for node in nodes)
    own = tree.cluster_queues[world.queue]
    with asked.snapshot.without([each.workload for each in asked.targets]):
        for fr, value in asked.requests.items():
            ledger.add(own, fr, value)
        after = max(share_of(ledger, node).key for node in nodes)
        for fr, value in asked.requests.items():
            ledger.remove(own, fr, value)
    assert after <= before


@settings(max_examples=400)
@given(both)
def test_a_search_leaves_the_snapshot_as_it_was(world: World) -> None:
    """The usage of every node is what it was, and asking again gives the same answer."""
    asked = Asked(world)
    assert asked.usage() == asked.before
    assert Asked(world).targets == asked.targets


@settings(max_examples=400)
@given(both, st.integers(0, 2**32))
def test_targets_do_not_depend_on_the_order_of_tables(world: World, seed: int) -> None:
    """Objects and reservations that came in another order are other tables of the same state."""
    assert Asked(world, random.Random(seed)).targets == Asked(world).targets
