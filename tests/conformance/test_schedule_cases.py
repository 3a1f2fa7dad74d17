"""Kueue's own tests of its scheduler: what its cycles did, and what ours do with the same objects."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from tests.support import conformance, scheduling
from tests.support.conformance import Case
from tests.support.scheduling import Outcome

pytestmark = pytest.mark.skipif(
    not conformance.CASES.is_dir(), reason="the recordings of Kueue are not next to the repository"
)

_UNASKED = (
    "Kueue's scheduler takes over states of admission checks that the ClusterQueue does not ask for, and counts them "
    "until its workload controller has removed them; here they are never taken over"
)
_WRITE_FAILS = (
    "a write to the API that fails inside the cycle: here a cycle writes nothing but the log, and a status that the "
    "API server refuses is the binder's to write again"
)
_NO_FIT = "TestScheduleForTAS/workload-with-unhealthynode-annotation-second-pass-preferred-no-fit-failfast"
OTHERWISE: dict[str, str] = {
    "TestSchedule/error-during-admission": _WRITE_FAILS,
    f"{_NO_FIT}-not-found-error-on-patch": _WRITE_FAILS,
    f"{_NO_FIT}-test-error-on-patch": _WRITE_FAILS,
    "TestSchedule/pending-admission-check-with-nofit-and-fit-flavors": _UNASKED,
    "TestSchedule/workload-fits-in-single-clusterqueue-with-check-state-pending": _UNASKED,
    "TestSchedule/workload-fits-in-single-clusterqueue-with-check-state-ready": _UNASKED,
}
"""Where we mean to differ, and why."""


def _parameters(suite: str) -> list[Any]:
    parameters = []
    for case in conformance.cases(suite):
        marks = []
        if why := OTHERWISE.get(case["file"]):
            marks.append(pytest.mark.xfail(reason=why, strict=True))
        parameters.append(pytest.param(case, id=case["file"].partition("/")[2], marks=marks))
    return parameters


def ends_as_recorded(got: Outcome, case: Case) -> None:
    """Admissions, evictions, conditions, statuses, queues, counts; and events, where the case has recorded any."""
    want = case["want"]
    assert got.admissions == want["admissions"]
    assert got.evicted == want["evicted"]
    assert got.conditions == want["conditions"]
    moved = {key for table in (got.admissions, got.evicted) for key, each in table.items() if each["new"]}
    assert {key: _status(got.statuses.get(key, {}), moved=key in moved) for key in want["statuses"]} == {
        key: _status(status, moved=key in moved) for key, status in want["statuses"].items()
    }
    assert got.queued == want["queued"]
    assert got.inadmissible == want["inadmissible"]
    for cluster_queue, count in want.get("skippedPreemptions", {}).items():
        assert got.skipped_preemptions.get(cluster_queue, 0) == count, cluster_queue
    if want["events"]:
        recorded = [(each["object"], each["type"], each["reason"], each["message"]) for each in want["events"]]
        assert _events(got.events) == _events(recorded)


def _status(status: dict[str, Any], *, moved: bool = False) -> dict[str, Any]:
    """
    A status with its conditions and checks by name; an empty underlying cause is none.

    Of a workload that has `moved`, onto other nodes or out, without its lost nodes: Kueue's write leaves them out. That
    removes them in a cluster, but not in the client of its tests, where nobody owns what the case's objects have.
    """
    by_type = {each["type"]: {k: v for k, v in each.items() if k != "type"} for each in status.get("conditions", ())}
    checks = {each["name"]: each["state"] for each in status.get("admissionChecks", ())}
    evictions = [{"underlyingCause": "", **each} for each in status.get("schedulingStats", {}).get("evictions", ())]
    shown = {key: value for key, value in status.items() if not (moved and key == "unhealthyNodes")}
    return {**shown, "conditions": by_type, "admissionChecks": checks, "schedulingStats": evictions}


_WAITED = re.compile("wait time since queued was -?[0-9]+s")


def _events(events: Iterable[tuple[str, str, str, str]]) -> Counter[tuple[str, str, str, str]]:
    """How often each was recorded. Most workloads have no creation time to count a wait from."""
    return Counter((who, kind, reason, _WAITED.sub("waited", message)) for who, kind, reason, message in events)


@pytest.mark.parametrize("case", _parameters("TestSchedule"))
def test_a_cycle_ends_as_kueues_did(case: Case) -> None:
    """TestSchedule."""
    ends_as_recorded(scheduling.run(case), case)


@pytest.mark.parametrize("case", _parameters("TestScheduleForFairSharing"))
def test_a_cycle_with_fair_sharing_ends_as_kueues_did(case: Case) -> None:
    """TestScheduleForFairSharing."""
    ends_as_recorded(scheduling.run(case), case)


@pytest.mark.parametrize("case", _parameters("TestScheduleRecomputePreemptionTargets"))
def test_overlapping_targets_end_as_kueues_did(case: Case) -> None:
    """TestScheduleRecomputePreemptionTargets."""
    ends_as_recorded(scheduling.run(case), case)


@pytest.mark.parametrize("case", _parameters("TestScheduleForTAS"))
def test_pods_are_placed_as_kueue_placed_them(case: Case) -> None:
    """TestScheduleForTAS."""
    ends_as_recorded(scheduling.run(case), case)


@pytest.mark.parametrize("case", _parameters("TestScheduleForTASCohorts"))
def test_pods_of_cohorts_are_placed_as_kueue_placed_them(case: Case) -> None:
    """TestScheduleForTASCohorts."""
    ends_as_recorded(scheduling.run(case), case)


@pytest.mark.parametrize("case", _parameters("TestScheduleForTASPreemption"))
def test_workloads_are_preempted_for_domains_as_kueue_did(case: Case) -> None:
    """TestScheduleForTASPreemption."""
    ends_as_recorded(scheduling.run(case), case)
