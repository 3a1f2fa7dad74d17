"""Two cycles in a row: where the scan over flavors continues, and when it starts again."""

from typing import Any

import pytest
from tests.support import conformance
from tests.support.conformance import Case
from tests.support.scheduling import SchedulerAlone, outcome

pytestmark = pytest.mark.skipif(
    not conformance.CASES.is_dir(), reason="the recordings of Kueue are not next to the repository"
)


def _parameters() -> list[Any]:
    cases = conformance.cases("TestLastSchedulingContext")
    return [pytest.param(case, id=case["file"].partition("/")[2]) for case in cases]


@pytest.mark.parametrize("case", _parameters())
def test_two_cycles_end_as_kueues_did(case: Case) -> None:
    """TestLastSchedulingContext: after the first, and, when some workloads are gone, after the second."""
    scheduler = SchedulerAlone(case)
    scheduler.cycle()
    first = outcome(scheduler)
    between = case["want"]["afterFirstCycle"]
    assert first.admissions == between["admissions"]
    assert first.evicted == between["evicted"]
    assert first.conditions == between["conditions"]
    scheduler.delete(case.get("betweenCycles", {}).get("deleteWorkloads", ()))
    scheduler.cycle()
    second = outcome(scheduler)
    assert second.admissions == case["want"]["admissions"]
    assert second.evicted == case["want"]["evicted"]
    assert second.conditions == case["want"]["conditions"]
    assert second.queued == case["want"]["queued"]
    assert second.inadmissible == case["want"]["inadmissible"]
