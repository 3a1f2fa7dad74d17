"""What Kueue's flavor assigner answered in its own tests, and what ours answers to the same questions."""

from typing import Any

import pytest
from tests.support import conformance
from tests.support.conformance import Case

from headgate.core.amounts import amount, canonical
from headgate.core.catalog import Catalog
from headgate.core.flavors import Assigner, Assignment, Attempt, Grade
from headgate.core.quota import Ledger, Node
from headgate.core.requests import pod_set_requests
from headgate.core.state import FlavorResource
from headgate.events.facts import WorkloadObserved
from headgate.events.ids import split_key

pytestmark = pytest.mark.skipif(
    not conformance.CASES.is_dir(), reason="the recordings of Kueue are not next to the repository"
)

SUITES = (
    "TestAssignFlavors",
    "TestIsNoFitDueToCapacityAndLimits",
    "TestHierarchical",
    "TestReclaimBeforePriorityPreemption",
)

_GRADES = {"NoCandidates": Grade.NO_CANDIDATES, "Preempt": Grade.PREEMPT, "Reclaim": Grade.RECLAIM}


class Recorded:
    """The recorded stand-in for the preemption search: what it says of the listed, Preempt of everything else."""

    def __init__(self, simulation: list[dict[str, Any]]) -> None:
        self._answers = {
            (each["flavor"], each["resource"]): (_GRADES[each["possibility"]], each["borrowing"]) for each in simulation
        }

    def simulate(self, node: Node, fr: FlavorResource, value: int) -> tuple[Grade, int]:
        """The recorded answer."""
        return self._answers.get(fr, (Grade.PREEMPT, 0))


def _not_in_scope(case: Case) -> str:
    """Why a case asks for what flavor assignment here does not do; "" when it does not. Judged by its input."""
    request = case["request"]
    if "replacedSlice" in request:
        return "workload slices"
    if case.get("features"):
        return f"feature gates {case['features']}"
    kinds = {manifest["kind"] for manifest in case["objects"]}
    pod_sets = request["workload"]["spec"]["podSets"]
    if "Topology" in kinds and any(_places(pod_set) for pod_set in pod_sets):
        return "topology-aware placement"
    return ""


def _places(pod_set: dict[str, Any]) -> bool:
    request = pod_set.get("topologyRequest", {})
    return any(key in request for key in ("required", "preferred", "unconstrained"))


def _parameters() -> list[Any]:
    return [
        pytest.param(case, id=case["file"], marks=[pytest.mark.skip(reason=why)] if why else [])
        for case in conformance.cases(*SUITES)
        for why in (_not_in_scope(case),)
    ]


@pytest.mark.parametrize("case", _parameters())
def test_flavors_are_assigned_as_kueue_assigned_them(case: Case) -> None:
    """Flavors, modes, reasons, attempts, usage and borrowing are those that Kueue recorded."""
    want = case["want"]["assignment"]
    assignment = _assign(case)
    assert assignment.message == want["message"]
    assert assignment.mode.label == want["mode"]
    assert assignment.borrowing == want["borrowing"]
    assert assignment.no_fit_reason == want.get("noFitReason", "")
    assert _usage(assignment) == {(each["flavor"], each["resource"]): each["quantity"] for each in want["usage"] or []}
    assert [_pod_set(each) for each in assignment.pod_sets] == [_wanted(each) for each in want["podSets"]]


def _assign(case: Case) -> Assignment:
    request = case["request"]
    cohorts = {
        manifest["spec"]["cohortName"]: {
            "kind": "Cohort",
            "metadata": {"name": manifest["spec"]["cohortName"]},
            "spec": {},
        }
        for manifest in case["objects"]
        if manifest["kind"] == "ClusterQueue" and manifest["spec"].get("cohortName")
    }
    known = {manifest["metadata"]["name"] for manifest in case["objects"] if manifest["kind"] == "Cohort"}
    more = [manifest for name, manifest in cohorts.items() if name not in known]
    log = conformance.observed({**case, "objects": [*case["objects"], *more, request["workload"]]})
    fact = conformance.fact_of(request["workload"])
    assert isinstance(fact, WorkloadObserved)
    workload = log.state.workloads[fact.workload]
    catalog = Catalog(log.state)
    queue = catalog.queue(request["clusterQueue"])
    assert queue is not None
    usage = {
        name: {(each["flavor"], each["resource"]): amount(each["resource"], each["quantity"]) for each in held}
        for name, held in request["usage"].items()
    }
    requests = pod_set_requests(workload, catalog.limits(split_key(workload.key)[0]), catalog.runtime_classes())
    return Assigner(
        queue,
        Ledger(catalog.forest.tree_of(queue.name), usage),
        workload.spec.pod_sets,
        requests,
        oracle=Recorded(request["preemptionSimulation"]),
        fair_sharing="fairSharing" in case.get("config", {}),
    ).assign()


def _usage(assignment: Assignment) -> dict[FlavorResource, str]:
    return {fr: canonical(fr[1], value) for fr, value in assignment.usage.items()}


def _pod_set(result: Any) -> dict[str, Any]:
    return {
        "name": result.name,
        "count": result.count,
        "flavors": {name: (each.flavor, each.mode.label, each.tried) for name, each in result.flavors.items()},
        "reasons": sorted(result.reasons),
        "requests": {name: canonical(name, value) for name, value in result.requests.items()},
        "attempts": sorted(_attempt(each) for each in result.attempts),
    }


def _attempt(attempt: Attempt) -> tuple[Any, ...]:
    return (
        attempt.flavor,
        attempt.grade.mode.label,
        attempt.borrowing,
        tuple(sorted(attempt.reasons)),
        attempt.no_fit_reason,
    )


def _wanted(recorded: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": recorded["name"],
        "count": recorded["count"],
        "flavors": {
            name: (each["flavor"], each["mode"], each["triedFlavorIdx"])
            for name, each in (recorded["flavors"] or {}).items()
        },
        "reasons": sorted(recorded.get("reasons") or []),
        "requests": recorded["requests"] or {},
        "attempts": sorted(
            (
                each["flavor"],
                each["mode"],
                each["borrow"],
                tuple(sorted(each["reasons"] or ())),
                each["noFitReason"],
            )
            for each in recorded["attempts"] or []
        ),
    }
