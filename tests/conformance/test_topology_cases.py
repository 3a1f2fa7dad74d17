"""Placement of pod sets in topologies, as Kueue's scheduler did it: domains, numbers of pods, and reasons."""

from typing import Any

import pytest
from tests.support.conformance import CASES, Case, cases
from tests.support.topologies import demand_of, gates_of_case, replacement_of, what_if_of_case

from headgate.core.topology.placing import find_assignments

SUITES = ("TestFindTopologyAssignments", "TestFindTopologyAssignmentsMultiLayerReplacement")

pytestmark = pytest.mark.skipif(not CASES.exists(), reason="recorded cases of Kueue are not there (../shared)")


def outcome(case: Case) -> list[dict[str, Any]]:
    """What a case gives here, in the form of its `want`."""
    what_if, demands, gates = (
        what_if_of_case(case),
        [demand_of(each) for each in case["request"]["podSets"]],
        gates_of_case(case),
    )
    result = find_assignments(what_if, demands, gates, replacement=replacement_of(case))
    found: list[dict[str, Any]] = []
    for demand in demands:
        if demand.name in result.failures:
            found.append({"podSet": demand.name, "reason": result.failures[demand.name]})
        elif demand.name in result.placements:
            placement = result.placements[demand.name]
            domains = [{"values": list(each.values), "count": each.pods} for each in placement.domains]
            found.append(
                {"podSet": demand.name, "topologyAssignment": {"levels": list(placement.levels), "domains": domains}}
            )
    return found


@pytest.mark.parametrize("case", list(cases(*SUITES)), ids=lambda case: case["file"])
def test_pod_sets_get_the_domains_of_the_reference(case: Case) -> None:
    """The same domains with the same numbers of pods, or the same reason why there are none."""
    key = lambda each: each["podSet"]  # noqa: E731
    assert sorted(outcome(case), key=key) == sorted(case["want"]["podSets"], key=key)
