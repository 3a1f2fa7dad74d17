"""
Scans over flavors in a plan: which continue and which start again.

The rules are Kueue's: `lastAssignmentOutdated` (pkg/scheduler/scheduler.go), and what advances
`AllocatableResourceGeneration` of a ClusterQueue (pkg/cache/scheduler/clusterqueue.go).
"""

from headgate.events.ids import WorkloadKey
from headgate.testing.reference.scans import Scans, Tried

HEAD = WorkloadKey("team-a/head")
TRIED: Tried = ({"cpu": 0},)


def scans(*, preserves: bool = True, told: bool = True) -> Scans:
    """The head of ClusterQueue cq has tried its first flavor in cycle 1."""
    made = Scans(preserves=preserves)
    made.stopped(HEAD, TRIED, cycle=1, generation=made.generation("cq"), told=told)
    return made


def test_a_scan_of_the_last_cycle_goes_on_whatever_has_changed() -> None:
    """One of the ClusterQueue's own was admitted or has left: the scan continues in the next cycle all the same."""
    made = scans()
    made.changed("cq")
    assert made.resume(HEAD, "cq", 2) == TRIED


def test_an_older_scan_begins_anew_once_its_cluster_queue_has_changed() -> None:
    """It was not the head for a cycle, and meanwhile one of its ClusterQueue has given quota back."""
    made = scans()
    assert made.resume(HEAD, "cq", 3) == TRIED
    made.changed("cq")
    assert made.resume(HEAD, "cq", 3) == ()


def test_what_others_of_the_cohort_give_back_leaves_a_scan_as_it_is() -> None:
    """The generation is a ClusterQueue's, not a cohort's."""
    made = scans()
    made.changed("other")
    assert made.resume(HEAD, "cq", 3) == TRIED


def test_without_the_gate_a_scan_ends_with_the_update_of_the_condition() -> None:
    """The gate is FlavorFungibilityPreserveScanProgress: without it an update of the object drops what was tried."""
    assert scans(preserves=False, told=True).resume(HEAD, "cq", 2) == ()
    kept = scans(preserves=False, told=False)
    assert kept.resume(HEAD, "cq", 2) == TRIED
    kept.changed("cq")
    assert kept.resume(HEAD, "cq", 2) == ()


def test_who_was_admitted_begins_anew_when_it_comes_back() -> None:
    """What was tried is kept beside a workload in its queue, and goes with it."""
    made = scans()
    made.forget(HEAD)
    assert made.resume(HEAD, "cq", 2) == ()
