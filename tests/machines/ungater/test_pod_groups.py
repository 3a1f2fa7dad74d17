"""Pods of groups: which of them may leave, and when."""

from tests.machines.ungater.test_decide import BRIDGE, Gate

from headgate.events import facts
from headgate.events.configuration import Configuration, IntegrationsConfiguration
from headgate.events.ids import PodKey, Uid, UnixMs, WorkloadKey
from headgate.events.objects import ManagedPod, OwnerReference, Pod, PodSet, PodSpec, SchedulingGate, WorkloadSpec

MANAGED = "kueue.x-k8s.io/managed"
GATE = SchedulingGate(name="kueue.x-k8s.io/admission")


def pod(name: str, created_ms: int, *, failed: bool = False) -> facts.PodObserved:
    """A pod of the group `g` of two: gated, or failed and held by its finalizer."""
    shown = ManagedPod(
        queue_name="main", group="g", total_count=2, role="r", finalizers=(MANAGED,), has_node=failed,
    )  # fmt: skip
    spec = PodSpec(scheduling_gates=() if failed else (GATE,))
    phase = "Failed" if failed else "Pending"
    made = Pod(uid=f"u-{name}", created_ms=UnixMs(created_ms), spec=spec, phase=phase, deleting=failed, managed=shown)
    return facts.PodObserved(pod=PodKey(f"team-a/{name}"), spec=made)


def workload(*owners: str) -> facts.WorkloadObserved:
    """Its Workload, owned by these pods."""
    return facts.WorkloadObserved(
        workload=WorkloadKey("team-a/g"),
        uid=Uid("w"),
        created_ms=UnixMs(5),
        spec=WorkloadSpec(queue_name="main", pod_sets=(PodSet(name="r", count=2),)),
        owner=OwnerReference(api_version="v1", kind="PodGroup", name="g", uid="PodGroup/team-a/g"),
        annotations={"kueue.x-k8s.io/is-group-workload": "true"},
        group_owners=tuple(f"u-{name}" for name in owners),
    )


def test_replaced_pods_leave_when_those_that_replace_them_own_the_workload() -> None:
    """Otherwise the last owner of the Workload could go, and Kubernetes would collect it."""
    made = Gate()
    configuration = Configuration(integrations=IntegrationsConfiguration(frameworks=("pod",)))
    made.say(
        BRIDGE,
        facts.ConfigurationObserved(configuration=configuration),
        *(pod(name, 6, failed=True) for name in "ab"),
        *(pod(name, 7) for name in "cd"),
        workload("a", "b"),
        facts.InformersSynced(),
    )
    assert made.rest() == ([], [])
    made.say(BRIDGE, workload("a", "b", "c"))
    assert made.rest() == ([], [])
    made.say(BRIDGE, workload("a", "b", "c", "d"))
    calls = made.rest()[1]
    assert {call.path.rpartition("/")[2] for call in calls} == {"a", "b"}
    assert all({"op": "remove", "path": "/metadata/finalizers"} in call.body for call in calls)
