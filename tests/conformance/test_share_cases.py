"""The shares that Kueue's cache computed in its own tests, and what ours are for the same usage."""

from typing import Any

import pytest
from tests.support import conformance
from tests.support.conformance import Case

from headgate.core.kubernetes.quantities import amount
from headgate.core.quota.cache import Forest
from headgate.core.quota.fair_shares import share_of
from headgate.core.quota.tree import Ledger
from headgate.core.state.tables import FlavorResource

pytestmark = pytest.mark.skipif(
    not conformance.CASES.is_dir(), reason="the recordings of Kueue are not next to the repository"
)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["file"]) for case in conformance.cases("TestDominantResourceShare")]
)
def test_shares_are_those_that_kueue_computed(case: Case) -> None:
    """The rounded share, its resource and whether anything is borrowed, of every ClusterQueue and cohort."""
    request = case["request"]
    state = conformance.observed(case).state
    forest = Forest(state)
    held = {name: _amounts(usage) for name, usage in request["usage"].items()}
    # The additional usage is that of a workload which the test adds to its first ClusterQueue for the question only.
    added = {next(iter(held)): _amounts(request["additionalUsage"])} if held else {}
    for want in case["want"]["shares"]:
        name = want["name"]
        is_cohort = want["kind"] == "Cohort"
        trees = [forest.tree(tree) for tree in {state.index.trees[each] for each in state.cluster_queues}]
        tree = next(each for each in trees if name in (each.cohorts if is_cohort else each.cluster_queues))
        node = (tree.cohorts if is_cohort else tree.cluster_queues)[name]
        share = share_of(Ledger(tree, held), node, None if is_cohort else added.get(name))
        assert {
            "kind": want["kind"],
            "name": name,
            "weightedShare": share.rounded,
            "dominantResource": share.resource,
            "borrowing": share.borrowing,
        } == want


def _amounts(usage: list[dict[str, Any]]) -> dict[FlavorResource, int]:
    return {(each["flavor"], each["resource"]): amount(each["resource"], each["quantity"]) for each in usage}
