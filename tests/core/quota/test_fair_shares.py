"""Dominant resource shares: their numbers, how they compare, and what statuses show of them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.cells import Cell, cluster_queue, cohort

from headgate.core.kubernetes.quantities import UNLIMITED
from headgate.core.quota.cache import Forest
from headgate.core.quota.fair_shares import Share, share_of
from headgate.core.quota.tree import Ledger
from headgate.events.objects import FairSharing

GPU, CPU = ("f", "gpu"), ("f", "cpu")


def test_the_share_is_the_largest_ratio_of_borrowed_to_lendable_by_weight() -> None:
    """In thousandths; of equal ratios the resource that comes first by name."""
    cell = Cell(
        cohort("co", "", {"f": {"cpu": "10", "gpu": 10}}),
        cluster_queue("a", {"f": {"cpu": "2", "gpu": 2}}, cohort_name="co", fair_sharing=FairSharing(weight="500m")),
    )
    tree = Forest(cell.state).tree("co")
    node = tree.cluster_queues["a"]
    ledger = Ledger(tree, {"a": {CPU: 5000, GPU: 4}})
    share = share_of(ledger, node)
    assert (share.ratio, share.exact, share.rounded, share.resource) == (250.0, 500.0, 500, "cpu")
    assert share_of(ledger, node, {GPU: 1}).resource == "cpu"
    assert share_of(ledger, node, {GPU: 2}).resource == "gpu"
    assert share_of(ledger, tree.cohorts["co"]) == Share()


def test_what_nobody_can_lend_is_borrowed_without_a_share() -> None:
    """A ClusterQueue over quota in a flavor without any quota borrows, but takes quota from none."""
    cell = Cell(cluster_queue("a", {"f": {"gpu": 0}}, cohort_name="co"))
    tree = Forest(cell.state).tree("co")
    share = share_of(Ledger(tree, {"a": {GPU: 3}}), tree.cluster_queues["a"])
    assert (share.borrowing, share.exact) == (True, 0.0)
    assert share.borrows_any({GPU: 1})
    assert not share.borrows_any({GPU: 0, CPU: 1})


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        (Share(), Share(ratio=1.0)),
        (Share(ratio=4.0, weight=4.0), Share(ratio=3.0, weight=2.0)),
        (Share(ratio=1e9), Share(ratio=1.0, weight=0.0)),
        (Share(ratio=1.0, weight=0.0), Share(ratio=2.0, weight=0.0)),
        (Share(weight=0.0), Share(ratio=1.0)),
    ],
)
def test_a_borrower_of_weight_0_is_larger_than_all_others(smaller: Share, larger: Share) -> None:
    """Two such compare by what they have borrowed; one that has not borrowed has no share."""
    assert smaller.key < larger.key


def test_statuses_show_a_share_rounded_up_and_an_infinite_one_as_the_largest_integer() -> None:
    """An integer is all that the field takes."""
    assert Share(ratio=0.2).rounded == 1
    assert math.isinf(Share(ratio=0.2, weight=0.0).exact)
    assert Share(ratio=0.2, weight=0.0).rounded == UNLIMITED


@given(st.integers(0, 30), st.integers(0, 30))
def test_who_uses_more_has_no_smaller_share(one: int, other: int) -> None:
    """Of one ClusterQueue, whatever limits there are: what preemption takes away never raises its share."""
    cell = Cell(
        cohort("co", "", {"f": {"gpu": 4}}),
        cluster_queue("a", {"f": {"gpu": (5, 9, 2)}}, cohort_name="co"),
    )
    tree = Forest(cell.state).tree("co")
    keys = [share_of(Ledger(tree, {"a": {GPU: held}}), tree.cluster_queues["a"]).key for held in sorted((one, other))]
    assert keys == sorted(keys)
