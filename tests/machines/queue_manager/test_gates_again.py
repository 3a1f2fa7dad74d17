"""Verification decides again which gates of variants the queue manager has opened, in the recorded order."""

import msgspec
from tests.support.queueing import QM, QueueCell

from headgate.core import fold
from headgate.core.api.names import ALLOWED_FLAVORS
from headgate.core.log.rules_version import RULES
from headgate.core.verification.check import ReplayDifference
from headgate.core.workload.variants import PARENT, variant_name
from headgate.events import facts
from headgate.events.configuration import Configuration
from headgate.events.decisions import WorkloadSkipped
from headgate.events.effects import LeaderElected
from headgate.events.ids import Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    ClusterQueueSpec,
    ConcurrentAdmissionMigration,
    ConcurrentAdmissionPolicy,
    FlavorQuotas,
    OwnerReference,
    ResourceGroup,
    ResourceQuota,
)
from headgate.events.queueing import PreemptionGateOpened, WorkloadParked
from headgate.machines.queue_manager.again import queue_manager_check

FLAVORS = ("best", "good")


def variant(flavor: str) -> WorkloadKey:
    return WorkloadKey(f"team/{variant_name('train', 'uid-train', flavor)}")


def a_family() -> QueueCell:
    """A parent with a variant of each of two flavors, both of which are offered."""
    cell = QueueCell()
    cell.put(QM, LeaderElected(holder="one", rules=RULES[QM]))
    quotas = tuple(
        FlavorQuotas(name=name, resources=(ResourceQuota(name="cpu", nominal_quota="1"),)) for name in FLAVORS
    )
    spec = ClusterQueueSpec(
        resource_groups=(ResourceGroup(covered_resources=("cpu",), flavors=quotas),),
        concurrent_admission_policy=ConcurrentAdmissionPolicy(
            migration=ConcurrentAdmissionMigration(mode="TryPreferredFlavors")
        ),
    )
    gates = {"ConcurrentAdmission": True}
    cell.see(facts.ConfigurationObserved(configuration=Configuration(feature_gates=gates)))
    for flavor in FLAVORS:
        cell.flavor(flavor)
    cell.see(facts.ClusterQueueObserved(name="cq", spec=spec))
    cell.local_queue()
    cell.sync()
    cell.submit("train", labels={PARENT: "true"})
    owner = OwnerReference(api_version="kueue.x-k8s.io/v1beta2", kind="Workload", name="train", uid="uid-train")
    for flavor in FLAVORS:
        cell.see(
            facts.WorkloadObserved(
                workload=variant(flavor),
                uid=Uid(flavor),
                created_ms=UnixMs(cell.now_ms),
                spec=cell[WorkloadKey("team/train")].spec,
                annotations={ALLOWED_FLAVORS: flavor},
                owner=owner,
            )
        )
    cell.settle()
    return cell


def gated(cell: QueueCell, flavor: str) -> WorkloadSkipped:
    """A cycle would have to preempt for this variant."""
    skipped = cell.skipped(
        variant(flavor), "workload", requeue_reason="PreemptionGated", reason="AdmissionGated", short=[f"{flavor}/cpu"]
    )
    return msgspec.structs.replace(skipped, status="preemptionGated")


def differences(cell: QueueCell) -> list[ReplayDifference]:
    """Between the record and what is decided again."""
    check, state = queue_manager_check(), fold.new_state(cell.log.cell)
    for logged in cell.log.commits:
        check.plan(logged)
    found: list[ReplayDifference] = []
    for logged in cell.log.commits:
        found.extend(check.compare(state, logged))
        fold.apply(state, logged)
        check.look(state, logged)
    return found


def test_a_gate_is_opened_where_its_parent_was_examined() -> None:
    """The event names the variant, but follows from the parent, noted before the other variant was skipped."""
    cell = a_family()
    cell.cycle_of(gated(cell, "best"))
    commit = cell.decide()
    assert commit is not None
    cell.land(commit)
    cell.cycle_of(gated(cell, "good"))
    commit = cell.decide()
    assert commit is not None
    assert [type(event) for event in commit.events[:2]] == [PreemptionGateOpened, WorkloadParked]
    cell.land(commit)
    assert differences(cell) == []
