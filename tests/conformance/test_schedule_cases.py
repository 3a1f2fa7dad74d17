"""What Kueue's scheduler did in one cycle of its own tests, and what ours does with the same objects."""

from typing import Any

import msgspec
import pytest
from tests.support import conformance
from tests.support.conformance import Case

from headgate.core.cycle import decide_cycle
from headgate.core.state import Stage, Workload
from headgate.events.base import Producer
from headgate.events.decisions import WorkloadSkipped

pytestmark = pytest.mark.skipif(
    not conformance.CASES.is_dir(), reason="the recordings of Kueue are not next to the repository"
)

NEEDS_PREEMPTION = frozenset(
    {
        "TestSchedule/minimal-preemptions-when-target-queue-is-exhausted",
        "TestSchedule/multiple-cqs-need-preemption",
        "TestSchedule/multiple-preemptions-preemption-possible-after-earlier-workload-fits",
        "TestSchedule/multiple-preemptions-skip-preemption-when-shared-limited-resource",
        "TestSchedule/multiple-preemptions-without-borrowing",
        "TestSchedule/partial-admission-single-variable-pod-set-preempt-first",
        "TestSchedule/partial-admission-single-variable-pod-set-preempt-with-partial-admission",
        "TestSchedule/preempt-when-workload-requests-zero-of-a-resource-not-defined-in-clusterqueue",
        "TestSchedule/preempt-workloads-in-clusterqueue-and-cohort",
        "TestSchedule/preemptionoverborrowing-preference-preempt-in-first-flavor-instead-of-borrowing-in-second",
        "TestSchedule/prefer-first-preemption-flavor-when-second-flavor-also-requires-cq-preemption",
        "TestSchedule/prefer-first-preemption-flavor-when-second-flavor-requires-both-reclaim-and-cq-priority-preemption",
        "TestSchedule/prefer-reclamation-over-cq-priority-based-preemption",
        "TestSchedule/workload-requiring-reclaimation-prioritized-over-wl-in-another-full-cq",
    }
)
"""Cases in which Kueue preempts."""


def _not_in_scope(case: Case) -> str:
    """Why a case asks for what this scheduler does not do at all; "" when it does not. Judged by its input."""
    kinds = {manifest["kind"] for manifest in case["objects"]}
    workloads = [manifest for manifest in case["objects"] if manifest["kind"] == "Workload"]
    notes = [key for each in workloads for key in each["metadata"].get("annotations", {})]
    if "Topology" in kinds:
        return "topology-aware placement"
    if case.get("config", {}).get("fairSharing") is not None:
        return "fair sharing"
    if any("workload-slice" in key for key in notes):
        return "workload slices"
    if case.get("features"):
        return f"feature gates {case['features']}"
    if "admissionPatchError" in case:
        return "a write to the API that fails inside the cycle: here the cycle writes nothing but the log"
    if any(each.get("status", {}).get("admissionChecks") for each in workloads) and not _asks_for_checks(case):
        return "a check state that no ClusterQueue asks for: here it does not hold a workload back"
    return ""


def _asks_for_checks(case: Case) -> bool:
    return any(manifest.get("spec", {}).get("admissionChecksStrategy") for manifest in case["objects"])


def _parameters() -> list[Any]:
    parameters = []
    for case in conformance.cases("TestSchedule"):
        marks = []
        if why := _not_in_scope(case):
            marks.append(pytest.mark.skip(reason=why))
        elif case["file"] in NEEDS_PREEMPTION:
            marks.append(pytest.mark.xfail(reason="needs preemption", strict=True))
        parameters.append(pytest.param(case, id=case["file"], marks=marks))
    return parameters


@pytest.mark.parametrize("case", _parameters())
def test_a_cycle_ends_as_kueues_did(case: Case) -> None:
    """Admissions, conditions and what stays in its queue are those that Kueue recorded."""
    log = conformance.observed(case)
    conformance.offer_heads(log)
    skipped: dict[str, WorkloadSkipped] = {}
    for _ in range(case.get("cycles", 1)):
        events = decide_cycle(log.state, reserved=())
        if events:
            log.append(Producer.SCHEDULER, *events, decided_at=log.state.position)
        skipped |= {event.workload: event for event in events if isinstance(event, WorkloadSkipped)}
    workloads = log.state.workloads
    want = case["want"]
    admitted = {
        key: workload.admission
        for key, workload in workloads.items()
        if workload.stage in (Stage.RESERVED, Stage.ADMITTED) and workload.admission is not None
    }
    assert _plain(admitted) == {key: each["admission"] for key, each in want["admissions"].items()}
    assert {key: (each.reason, each.message) for key, each in skipped.items()} == {
        key: (each["reason"], each["message"]) for key, each in want["conditions"].items()
    }
    assert {key: _status(workloads[key]) for key in want["statuses"]} == {
        key: _wanted_status(status) for key, status in want["statuses"].items()
    }
    stays = {key for keys in want["queued"].values() for key in keys}
    leaves = {key for keys in want["inadmissible"].values() for key in keys}
    for key, event in skipped.items():
        assert key in (stays if event.scope in ("immediate", "queue") else leaves), event


def _plain(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _status(workload: Workload) -> dict[str, Any]:
    return {
        "admission": _plain(workload.admission),
        "conditions": {each.type: (each.status, each.reason, each.message) for each in workload.conditions},
        "checks": {each.name: each.state for each in workload.checks},
        "resourceRequests": [_plain(each) for each in workload.resource_requests],
    }


def _wanted_status(status: dict[str, Any]) -> dict[str, Any]:
    return {
        "admission": status.get("admission"),
        "conditions": {
            each["type"]: (each["status"], each["reason"], each["message"]) for each in status.get("conditions", [])
        },
        "checks": {each["name"]: each["state"] for each in status.get("admissionChecks", [])},
        "resourceRequests": status.get("resourceRequests", []),
    }
