"""Families: a parent's status when it is first observed, and why its variants are activated and deactivated."""

from typing import Any

import pytest
from tests.support.logs import TestLog

from headgate.core.api.names import ALLOWED_FLAVORS
from headgate.core.state.tables import Stage, State
from headgate.core.workload import concurrent_admission
from headgate.core.workload.variants import PARENT, variant_name
from headgate.events import facts
from headgate.events.base import Producer
from headgate.events.configuration import Configuration
from headgate.events.ids import LocalQueueKey, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    Admission,
    ClusterQueueSpec,
    ConcurrentAdmissionConstraints,
    ConcurrentAdmissionMigration,
    ConcurrentAdmissionPolicy,
    Condition,
    FlavorQuotas,
    LocalQueueSpec,
    OwnerReference,
    PodSetAssignment,
    ResourceGroup,
    ResourceQuota,
    WorkloadSpec,
    WorkloadStatus,
)

FLAVORS = ("best", "good", "poor")
PARENT_KEY = WorkloadKey("team/job-train-00000")


def queue_of(mode: str, last: str | None) -> ClusterQueueSpec:
    constraints = ConcurrentAdmissionConstraints(last_acceptable_flavor_name=last) if last else None
    quotas = tuple(
        FlavorQuotas(name=name, resources=(ResourceQuota(name="cpu", nominal_quota="1"),)) for name in FLAVORS
    )
    return ClusterQueueSpec(
        resource_groups=(ResourceGroup(covered_resources=("cpu",), flavors=quotas),),
        concurrent_admission_policy=ConcurrentAdmissionPolicy(
            migration=ConcurrentAdmissionMigration(mode=mode, constraints=constraints)
        ),
    )


def admission(flavor: str) -> Admission:
    held = PodSetAssignment(name="main", flavors={"cpu": flavor}, resource_usage={"cpu": "1"}, count=1)
    return Admission(cluster_queue="cq", pod_set_assignments=(held,))


def admitted(flavor: str, message: str) -> WorkloadStatus:
    conditions = tuple(
        Condition(type=kind, status="True", reason=kind, message=message, last_transition_time="2026-01-01T00:00:00Z")
        for kind in ("QuotaReserved", "Admitted")
    )
    return WorkloadStatus(admission=admission(flavor), conditions=conditions)


def found(
    mode: str = "TryPreferredFlavors", last: str | None = None, *, runs_in: str = "good", active: bool = True
) -> State:
    """A log that begins in a cluster where a family is: a parent, and a variant of each flavor."""
    log = TestLog()
    log.append(
        Producer.INFORMER_BRIDGE,
        facts.ConfigurationObserved(configuration=Configuration(feature_gates={"ConcurrentAdmission": True})),
        facts.ClusterQueueObserved(name="cq", spec=queue_of(mode, last), uid=Uid("cq")),
        facts.LocalQueueObserved(queue=LocalQueueKey("team/main"), spec=LocalQueueSpec(cluster_queue="cq")),
        facts.WorkloadObserved(
            workload=PARENT_KEY,
            uid=Uid("p"),
            created_ms=UnixMs(1),
            spec=WorkloadSpec(queue_name="main", active=active),
            labels={PARENT: "true"},
            taken_over=admitted(runs_in, f"The variant {name_of(runs_in)} is admitted") if runs_in else None,
        ),
        *(variant(flavor, admitted(flavor, "") if flavor == runs_in else None) for flavor in FLAVORS),
    )
    return log.state


def name_of(flavor: str) -> str:
    return variant_name("job-train-00000", "p", flavor)


def variant(flavor: str, status: WorkloadStatus | None) -> facts.WorkloadObserved:
    owner = OwnerReference(api_version="kueue.x-k8s.io/v1beta2", kind="Workload", name="job-train-00000", uid="p")
    return facts.WorkloadObserved(
        workload=WorkloadKey(f"team/{name_of(flavor)}"),
        uid=Uid(flavor),
        created_ms=UnixMs(2),
        spec=WorkloadSpec(queue_name="main", active=flavor != "best"),
        annotations={ALLOWED_FLAVORS: flavor},
        owner=owner,
        taken_over=status,
    )


def test_a_family_that_is_found_holds_quota_once() -> None:
    """The status of its parent names the variant whose quota it runs on."""
    state = found()
    assert state.workloads[PARENT_KEY].stage is Stage.ADMITTED
    assert state.index.usage["cq"] == {("good", "cpu"): 1000}
    assert list(state.index.holders["cq"]) == [f"team/{name_of('good')}"]
    family = concurrent_admission.family_of(state, state.workloads[PARENT_KEY])
    assert family is not None
    assert concurrent_admission.steps(state, family.parent, UnixMs(0))[0] == []


GOOD_ENOUGH = 'being at least lastAcceptableFlavor: "best"'
RUNS = f'"team/{name_of("good")}"'


@pytest.mark.parametrize(
    ("given", "switches"),
    [
        (
            {},
            {
                "best": (True, f"being higher priority than admitted Variant {RUNS}"),
                "poor": (False, f"being lower priority than admitted Variant {RUNS}"),
            },
        ),
        (
            {"last": "best"},
            {
                "best": (True, f"{GOOD_ENOUGH} and higher priority than admitted Variant {RUNS}"),
                "poor": (False, f'being below lastAcceptableFlavor: "best" and another Variant admitted {RUNS}'),
            },
        ),
        (
            {"mode": "RetainFirstAdmission"},
            {"poor": (False, f"RetainFirstAdmission: another Variant {RUNS} is admitted")},
        ),
        ({"runs_in": ""}, {"best": (True, "no other Variant being admitted")}),
        (
            {"runs_in": "", "active": False},
            dict.fromkeys(("good", "poor"), (False, f'Parent Workload "{PARENT_KEY}" not active')),
        ),
    ],
    ids=["any better one", "down to the last acceptable", "the first stays", "nobody is admitted", "switched off"],
)  # fmt: skip
def test_variants_are_switched_for_kueues_reasons(given: dict[str, Any], switches: dict[str, tuple[bool, str]]) -> None:
    """`best` is switched off and the others are on: which are switched, and with which messages."""
    state = found(**given)
    family = concurrent_admission.family_of(state, state.workloads[PARENT_KEY])
    assert family is not None
    assert {
        str(member.uid): (active, concurrent_admission.switch_reason(family, member, active=active))
        for member, active in concurrent_admission.switches(family)
    } == switches
