"""Flavor assignment: which flavor, in which mode, and why not the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.assigning import assign, assigner, flavors, two_flavors
from tests.support.cells import Cell, cluster_queue, pod_set

from headgate.core.flavors import WAYS_MAX, Assignment, Grade, Mode, PodSetResult, reduced, visit_rank
from headgate.core.quota.tree import QuotaNode
from headgate.core.state.tables import FlavorResource
from headgate.events.configuration import Configuration, FairSharingConfiguration
from headgate.events.objects import (
    FlavorFungibility,
    PodSet,
    Preemption,
    ResourceFlavorSpec,
    Taint,
    TopologyRequest,
)


def test_resources_are_visited_in_kueues_order() -> None:
    """The order of the FNV-1a hash of their names, as observed."""
    names = ["cpu", "example.com/gpu", "pods", "nvidia.com/gpu", "memory"]
    assert sorted(names, key=visit_rank) == ["memory", "nvidia.com/gpu", "pods", "example.com/gpu", "cpu"]


def test_the_first_flavor_that_fits_is_taken() -> None:
    """Without borrowing; the place where the scan stopped is kept, as another flavor is left."""
    result = assign(two_flavors(), pod_set({"gpu": 3})).pod_sets[0]
    assert (flavors(result), result.flavors["gpu"].tried) == ({"gpu": "one"}, 0)


def test_borrowing_stops_the_scan_unless_told_otherwise() -> None:
    """whenCanBorrow: MayStopSearch borrows in the first flavor, TryNextFlavor continues to one without borrowing."""
    held = {"cq": {("one", "gpu"): 4}}
    stay = assign(two_flavors(), pod_set({"gpu": 3}), held=held)
    go_on = FlavorFungibility(when_can_borrow="TryNextFlavor")
    leave = assign(two_flavors(flavor_fungibility=go_on), pod_set({"gpu": 3}), held=held)
    assert (flavors(stay.pod_sets[0]), stay.borrowing) == ({"gpu": "one"}, 1)
    assert (flavors(leave.pod_sets[0]), leave.borrowing) == ({"gpu": "two"}, 0)


def test_when_every_flavor_borrows_the_first_is_kept() -> None:
    """TryNextFlavor is a preference: the best that was seen is taken at the end."""
    held = {"cq": {("one", "gpu"): 4, ("two", "gpu"): 4}}
    cell = two_flavors(flavor_fungibility=FlavorFungibility(when_can_borrow="TryNextFlavor"))
    result = assign(cell, pod_set({"gpu": 3}), held=held).pod_sets[0]
    assert (flavors(result), result.flavors["gpu"].tried) == ({"gpu": "one"}, -1)


class Oracle:
    """Gives for each flavor what could be preempted in it."""

    def __init__(self, **grades: tuple[Grade, int]) -> None:
        self.grades = grades

    def simulate(self, node: QuotaNode, fr: FlavorResource, value: int) -> tuple[Grade, int]:
        """The answer for the flavor."""
        return self.grades[fr[0]]


@pytest.mark.parametrize(
    ("preference", "when_can_preempt", "flavor"),
    [
        (None, "MayStopSearch", "one"),
        (None, "TryNextFlavor", "two"),
        ("PreemptionOverBorrowing", "TryNextFlavor", "one"),
        ("BorrowingOverPreemption", "TryNextFlavor", "two"),
    ],
)
def test_the_oracle_and_the_preference_decide_between_preempting_and_borrowing(
    preference: str | None, when_can_preempt: str, flavor: str
) -> None:
    """Flavor one can preempt without borrowing, flavor two fits by borrowing."""
    fungibility = FlavorFungibility(
        preference=preference, when_can_preempt=when_can_preempt, when_can_borrow="TryNextFlavor"
    )
    cell = two_flavors(flavor_fungibility=fungibility)
    held = {"cq": {("two", "gpu"): 4}, "other": {("one", "gpu"): 8}}
    oracle = Oracle(one=(Grade.RECLAIM, 0), two=(Grade.NO_CANDIDATES, 1))
    result = assign(cell, pod_set({"gpu": 3}), held=held, oracle=oracle).pod_sets[0]
    assert flavors(result) == {"gpu": flavor}


def test_a_flavor_without_candidates_never_wins_over_one_that_can_be_had() -> None:
    """Whatever the preference: it cannot be admitted now."""
    cell = two_flavors(flavor_fungibility=FlavorFungibility(preference="PreemptionOverBorrowing"))
    held = {"cq": {("two", "gpu"): 4}, "other": {("one", "gpu"): 8}}
    result = assign(cell, pod_set({"gpu": 3}), held=held)
    assert (flavors(result.pod_sets[0]), result.mode) == ({"gpu": "two"}, Mode.FIT)


def test_what_would_fit_if_others_left_is_to_be_preempted_for_and_what_never_fits_is_not() -> None:
    """Within nominal quota: mode PREEMPT; borrowing in a flat cohort without borrowWithinCohort: NO_FIT."""
    held = {"cq": {("one", "gpu"): 4, ("two", "gpu"): 4}, "other": {("one", "gpu"): 4, ("two", "gpu"): 4}}
    within = assign(two_flavors(), pod_set({"gpu": 4}), held=held)
    beyond = assign(two_flavors(), pod_set({"gpu": 5}), held=held)
    assert (within.mode, within.no_fit_reason) == (Mode.PREEMPT, "")
    assert (beyond.mode, beyond.no_fit_reason) == (Mode.NO_FIT, "WaitingForQuota")


def test_fair_sharing_lets_a_reclaiming_queue_preempt_while_it_borrows() -> None:
    """Then the oracle is called for borrowing, too."""
    held = {"other": {("one", "gpu"): 8, ("two", "gpu"): 8}}
    cell = two_flavors(preemption=Preemption(reclaim_within_cohort="Any"))
    assert assign(cell, pod_set({"gpu": 5}), held=held).mode is Mode.NO_FIT
    assert (
        assign(
            cell, pod_set({"gpu": 5}), held=held, configuration=Configuration(fair_sharing=FairSharingConfiguration())
        ).mode
        is Mode.PREEMPT
    )


def test_pod_sets_share_what_there_is() -> None:
    """The second pod set counts the usage of the first, and reports it."""
    cell = Cell(cluster_queue("cq", {"one": {"cpu": 3}}))
    result = assign(cell, pod_set({"cpu": 2}, name="a"), pod_set({"cpu": "1500m"}, name="b"))
    assert result.message == (
        "couldn't assign flavors to pod set b: insufficient quota for cpu in flavor one, previously considered podsets "
        "requests (2) + current podset request (1500m) > maximum capacity (3)"
    )
    assert (result.mode, result.no_fit_reason) == (Mode.NO_FIT, "ExceedsMaxQuota")


def test_pods_are_counted_where_they_are_covered() -> None:
    """Each pod set requests as many pods as it has, though its containers do not say so."""
    cell = Cell(cluster_queue("cq", {"one": {"cpu": 9, "pods": 5}}))
    assert assign(cell, pod_set({"cpu": 1}, 5)).usage == {("one", "cpu"): 5000, ("one", "pods"): 5}
    assert assign(cell, pod_set({"cpu": 1}, 6)).mode is Mode.NO_FIT


def test_pod_sets_of_a_group_get_one_flavor() -> None:
    """Their requests are summed before a flavor is chosen."""
    cell = two_flavors()
    together = TopologyRequest(pod_set_group_name="g")
    members = [
        PodSet(name=name, count=count, template=pod_set({"gpu": 1}).template, topology_request=together)
        for name, count in (("workers", 4), ("leader", 1))
    ]
    result = assign(cell, *members, held={"other": {("one", "gpu"): 4}})
    assert [flavors(each) for each in result.pod_sets] == [{"gpu": "two"}, {"gpu": "two"}]


def test_a_missing_resource_and_a_missing_flavor_match_nothing() -> None:
    """The least severe reason of a group counts, the most severe of all groups."""
    cell = Cell(
        cluster_queue("cq", {"one": {"gpu": 1}, "two": {"gpu": 1}}),
        flavors={"one": ResourceFlavorSpec(node_taints=(Taint(key="k", value="v", effect="NoSchedule"),))},
    )
    lacking = assign(cell, pod_set({"tpu": 1}))
    assert lacking.no_fit_reason == "NoMatchingFlavor"
    assert lacking.message == "couldn't assign flavors to pod set main: resource tpu unavailable in ClusterQueue"
    mixed = assign(cell, pod_set({"gpu": 2}))
    assert mixed.no_fit_reason == "ExceedsMaxQuota"
    assert "untolerated taint {k v NoSchedule <nil>} in flavor one" in mixed.message


def test_nothing_of_a_resource_that_the_queue_does_not_have_is_no_obstacle() -> None:
    """A request of zero needs no flavor; later pod sets are assigned all the same."""
    cell = Cell(cluster_queue("cq", {"one": {"cpu": 3}}))
    result = assign(cell, pod_set({"tpu": 0}, name="a"), pod_set({"cpu": 1, "tpu": 0}, name="b"))
    assert result.mode is Mode.FIT
    assert [flavors(each) for each in result.pod_sets] == [{}, {"cpu": "one"}]


def test_a_pod_set_without_requests_fits() -> None:
    """It takes no quota and no flavor."""
    result = assign(Cell(cluster_queue("cq", {"one": {"cpu": 3}})), pod_set({}))
    assert (result.mode, result.usage) == (Mode.FIT, {})


def test_a_scan_goes_on_after_the_flavor_it_stopped_at() -> None:
    """It does not evaluate the flavors before, and reports that."""
    resumed = assigner(two_flavors(), pod_set({"gpu": 3}), last_tried=({"gpu": 0},))
    assert flavors(resumed.assign().pod_sets[0]) == {"gpu": "two"}
    assert resumed.resumed
    anew = assigner(two_flavors(), pod_set({"gpu": 3}), last_tried=({"gpu": -1},))
    assert flavors(anew.assign().pod_sets[0]) == {"gpu": "one"}
    assert not anew.resumed


def test_what_was_short_is_remembered_over_all_tries() -> None:
    """Every flavor-resource that lacked unused quota, in whatever count, and none that lacked quota altogether."""
    held = {"other": {("one", "gpu"): 8, ("two", "gpu"): 8}}
    tries = assigner(two_flavors(), pod_set({"gpu": 1}, 9, min_count=1), held=held)
    assert tries.assign().no_fit_reason == "ExceedsMaxQuota"
    assert list(tries.short) == []
    tries.assign([5])
    assert list(tries.short) == [("one", "gpu"), ("two", "gpu")]


def answer(count: int) -> Assignment:
    return Assignment((PodSetResult("main", count, {}),), {}, 0, Mode.FIT)


@given(st.integers(1, 40), st.integers(0, 45), st.integers(0, 45))
def test_partial_admission_admits_as_many_pods_as_fit(count: int, minimum: int, room: int) -> None:
    """The largest count that is accepted, not below the minimum; nothing when even the minimum is not."""
    pods = pod_set({"gpu": 1}, count, min_count=minimum)
    found = reduced([pods], [count], lambda counts: answer(counts[0]) if counts[0] <= room else None)
    expected = min(count, room) if minimum <= room and minimum < count else None
    assert (found.pod_sets[0].count if found else None) == expected


def test_pod_sets_shrink_evenly() -> None:
    """All give up the same share of what they may, and one without a minimum gives up nothing (KEP-420)."""
    pods = [pod_set({}, 50, "a", min_count=20), pod_set({}, 10, "b"), pod_set({}, 20, "c", min_count=10)]
    seen: list[list[int]] = []

    def accept(counts: list[int]) -> Assignment | None:
        seen.append(counts)
        return answer(0) if sum(counts) <= 60 else None

    assert reduced(pods, [50, 10, 20], accept) is not None
    assert [counts for counts in seen if sum(counts) <= 60][-1] == [35, 10, 15]


# --- ways ----------------------------------------------------------------------------------------------------------


def test_each_flavor_that_may_be_used_is_a_way() -> None:
    """All that is requested in it at once; not where the pods may not go, nor where quota could never be enough."""
    quota = {name: {"cpu": 4, "memory": 4} for name in ("one", "two", "three")} | {"small": {"cpu": 1, "memory": 4}}
    taint = Taint(key="gone", value="", effect="NoSchedule")
    cell = Cell(cluster_queue("cq", quota), flavors={"two": ResourceFlavorSpec(node_taints=(taint,))})
    held = {"cq": {("one", "cpu"): 4000}}
    assert assigner(cell, pod_set({"cpu": 2, "memory": 3, "gpu": 0}), held=held).ways() == [
        {("one", "cpu"): 2000, ("one", "memory"): 3},
        {("three", "cpu"): 2000, ("three", "memory"): 3},
    ]


def test_pod_sets_add_up_where_they_share_a_flavor() -> None:
    """Every choice of flavors for all of them; the fewest pods count where fewer are given."""
    sets = pod_set({"gpu": 1}, 4, "workers", min_count=2), pod_set({"gpu": 1}, 1, "driver")
    one, two = ("one", "gpu"), ("two", "gpu")
    assert assigner(two_flavors(), *sets).ways([2, 1]) == [{one: 3}, {one: 2, two: 1}, {two: 2, one: 1}, {two: 3}]
    assert {one: 9} not in assigner(two_flavors(), pod_set({"gpu": 1}, 8, "many"), sets[1]).ways()


def test_no_way_is_left_when_no_quota_can_be_enough() -> None:
    """More than the cohort has, or a resource that the ClusterQueue does not cover."""
    assert assigner(two_flavors(), pod_set({"gpu": 9})).ways() == []
    assert assigner(two_flavors(), pod_set({"gpu": 1, "cpu": 1})).ways() == []


def test_too_many_ways_leave_parts_of_the_request_out() -> None:
    """What is left is needed all the same: fewer pod sets are counted, never too many."""
    cell = Cell(cluster_queue("cq", {"one": {"gpu": 999}, "two": {"gpu": 999}}))
    sets = [pod_set({"gpu": 2**number}, 1, f"set{number}") for number in range(8)]
    ways = assigner(cell, *sets).ways()
    assert len(ways) == WAYS_MAX == 2**5
    assert {sum(way.values()) for way in ways} == {1 + 2 + 4 + 8 + 16}
