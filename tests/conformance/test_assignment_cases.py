"""What Kueue's flavor assigner answered in its own tests, and what ours answers to the same questions."""

from typing import Any

import pytest
from tests.support import conformance
from tests.support.conformance import Case

from headgate.core.config.reader import read_parts
from headgate.core.flavors import Assigner, Assignment, Attempt, Grade, allowed_flavors
from headgate.core.flavors.catalog import Catalog
from headgate.core.flavors.placing import Placer
from headgate.core.kubernetes.quantities import amount, canonical
from headgate.core.quota.tree import Ledger, QuotaNode
from headgate.core.state.tables import FlavorResource
from headgate.core.workload.pod_requests import pod_set_requests
from headgate.events.facts import WorkloadObserved
from headgate.events.ids import split_key

pytestmark = pytest.mark.skipif(
    not conformance.CASES.is_dir(), reason="the recordings of Kueue are not next to the repository"
)

SUITES = (
    "TestAssignFlavors",
    "TestAssignFlavorsWithAllowedFlavors",
    "TestAssignFlavors_LeaderWorkerSetTASFlavor",
    "TestIsNoFitDueToCapacityAndLimits",
    "TestHierarchical",
    "TestReclaimBeforePriorityPreemption",
)

_GRADES = {"NoCandidates": Grade.NO_CANDIDATES, "Preempt": Grade.PREEMPT, "Reclaim": Grade.RECLAIM}

_POSSIBILITIES = {grade: name for name, grade in _GRADES.items()}


class Recorded:
    """The recorded stand-in for the preemption search: its result for the listed, Preempt for everything else."""

    def __init__(self, simulation: list[dict[str, Any]]) -> None:
        self._answers = {
            (each["flavor"], each["resource"]): (_GRADES[each["possibility"]], each["borrowing"]) for each in simulation
        }

    def simulate(self, node: QuotaNode, fr: FlavorResource, value: int) -> tuple[Grade, int]:
        """The recorded answer."""
        return self._answers.get(fr, (Grade.PREEMPT, 0))


def _parameters() -> list[Any]:
    return [pytest.param(case, id=case["file"]) for case in conformance.cases(*SUITES)]


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
    configuration = read_parts(case.get("config"), conformance.features_of(case))
    objects = [*case["objects"], *more, request["workload"]]
    log = conformance.observed({**case, "objects": objects}, configuration)
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
    limits = catalog.limits(split_key(workload.key)[0])
    requests = pod_set_requests(workload, limits, catalog.runtime_classes(), configuration)
    topologies = catalog.topologies()
    return Assigner(
        queue,
        Ledger(catalog.forest.tree_of(queue.name), usage),
        workload.spec.pod_sets,
        requests,
        oracle=Recorded(request["preemptionSimulation"]),
        replaced=_replaced(request.get("replacedSlice")),
        allowed=allowed_flavors(workload, configuration),
        configuration=configuration,
        placer=Placer(topologies, queue, workload, requests) if topologies is not None else None,
    ).assign()


def _replaced(recorded: dict[str, Any] | None) -> dict[str, dict[FlavorResource, int]]:
    """What the recorded slice has, by pod set; a flavor without a recorded amount has none."""
    return {
        each["name"]: {
            (flavor, resource): amount(resource, (each["requests"] or {}).get(resource, 0))
            for resource, flavor in each["flavors"].items()
        }
        for each in (recorded or {}).get("totalRequests", ())
    }


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
        attempt.mode.label,
        _POSSIBILITIES.get(attempt.grade, ""),
        attempt.borrowing,
        tuple(sorted(set(attempt.reasons))),
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
                each.get("preemptionPossibility", ""),
                each["borrow"],
                tuple(sorted(each["reasons"] or ())),
                each["noFitReason"],
            )
            for each in recorded["attempts"] or []
        ),
    }
