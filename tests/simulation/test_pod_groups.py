"""Plain pods and pod groups in the whole system: queued, started, evicted, replaced, finished, whatever goes wrong."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.simulation.scenarios import KUEUE, kueue, node
from tests.simulation.test_seeds import WORKLOADS

from headgate.cli.deciding_again import checks
from headgate.core import fold
from headgate.core.audit.invariants import forgotten
from headgate.core.cycle import decide_cycle
from headgate.core.kubernetes.pod_roles import role_hash
from headgate.core.log.refusal import CommitFilter
from headgate.core.machine.contract import Machine
from headgate.core.state.tables import State
from headgate.core.verification.replay import Plan, Replay
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit
from headgate.events.configuration import Configuration, IntegrationsConfiguration
from headgate.events.facts import ConfigurationObserved
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.testing.cluster.kinds import BY_PLURAL
from headgate.testing.world.world import MACHINES, NO_FAULTS, FaultRates, World

PODS = BY_PLURAL["", "pods"]
EVENTS = BY_PLURAL["events.k8s.io", "events"]
START_MS = 1_700_000_000_000
FAULTS_END_MS = START_MS + 150_000
K = "kueue.x-k8s.io/"
FOREVER = 10**9
WILD = FaultRates(
    crash=0.02,
    rival=0.01,
    call_error=0.05,
    call_lost=0.05,
    watch_cut=0.02,
    forget=0.2,
    lag=0.1,
    append_lost=0.02,
    until_ms=FAULTS_END_MS,
)
WITH_PODS = Configuration(integrations=IntegrationsConfiguration(frameworks=("batch/job", "pod")))


def cell(
    faults: FaultRates = NO_FAULTS,
    seed: int = 0,
    *,
    quota: int = 4,
    configuration: Configuration = WITH_PODS,
    check: Callable[[State, LoggedCommit], None] | None = None,
) -> World:
    """One node, one queue that takes what it wants from lower priorities."""
    observed = ConfigurationObserved(configuration=configuration)
    machines: dict[Producer, Callable[[State], Machine]] = {**MACHINES}
    machines[Producer.INFORMER_BRIDGE] = partial(InformerBridge, configuration=observed)
    world = World(seed=seed, faults=faults, check=check, machines=machines)
    quotas = [{"name": "cpu", "nominalQuota": str(quota)}, {"name": "memory", "nominalQuota": "64Gi"}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "spot", "resources": quotas}]}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups, "preemption": {"withinClusterQueue": "LowerPriority"}}
    taint = {"key": "flavor", "value": "spot", "effect": "NoSchedule"}
    tolerations = [{"key": "flavor", "operator": "Equal", "value": "spot", "effect": "NoSchedule"}]
    world.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
        kueue(
            "ResourceFlavor",
            "spot",
            {"nodeLabels": {"flavor": "spot"}, "nodeTaints": [taint], "tolerations": tolerations},
        ),
        node("n", "spot", 16, taint=True),
        kueue("ClusterQueue", "cq", spec),
        kueue("LocalQueue", "main", {"clusterQueue": "cq"}, "team-a"),
        {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 100},
    )
    return world


def pod(
    name: str,
    *,
    group: str = "",
    total: int = 0,
    cpu: str = "1",
    run_ms: int = FOREVER,
    exit_code: int = 0,
    priority: str = "",
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A pod as admission leaves it: gated, with the label, the finalizer and the role."""
    spec: dict[str, Any] = {
        "containers": [
            {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}},
        ],
        "restartPolicy": "Never",
    }
    told = {"headgate.dev/run-ms": str(run_ms), "headgate.dev/exit-code": str(exit_code)}
    if group:
        told |= {f"{K}pod-group-name": group, f"{K}pod-group-total-count": str(total), f"{K}role-hash": role_hash(spec)}
    labels = {f"{K}queue-name": "main", f"{K}managed": "true"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "labels": labels | ({f"{K}priority-class": priority} if priority else {}),
            "annotations": told | (annotations or {}),
            "finalizers": [f"{K}managed"],
        },
        "spec": {**spec, "schedulingGates": [{"name": f"{K}admission"}]},
    }


def run(world: World, for_ms: int) -> None:
    until_ms = world.clock.now_ms + for_ms
    world.run(until_ms=until_ms)
    world.advance(until_ms)


def delete(world: World, name: str) -> None:
    world.cluster.request("DELETE", f"/api/v1/namespaces/team-a/pods/{name}", {}, b"")


def workload(world: World, prefix: str) -> dict[str, Any] | None:
    found = [each for each in world.cluster.objects(WORKLOADS) if each["metadata"]["name"].startswith(prefix)]
    assert len(found) <= 1, [each["metadata"]["name"] for each in found]
    return found[0] if found else None


def the(world: World, prefix: str) -> dict[str, Any]:
    found = workload(world, prefix)
    assert found is not None, [each["metadata"]["name"] for each in world.cluster.objects(WORKLOADS)]
    return found


def condition(found: dict[str, Any], kind: str) -> tuple[str, str, str] | None:
    for each in found.get("status", {}).get("conditions", []):
        if each["type"] == kind:
            return each["status"], each["reason"], each["message"]
    return None


def is_true(found: dict[str, Any], kind: str) -> bool:
    said = condition(found, kind)
    return said is not None and said[0] == "True"


def shown(world: World) -> dict[str, str]:
    """Each pod: gated, its phase, and whether it is being deleted."""
    found = {}
    for each in world.cluster.objects(PODS):
        gates = [gate["name"] for gate in each["spec"].get("schedulingGates", [])]
        phase = "gated" if f"{K}admission" in gates else each.get("status", {}).get("phase", "Pending")
        leaving = " deleted" if "deletionTimestamp" in each["metadata"] else ""
        found[each["metadata"]["name"]] = phase + leaving
    return found


def used(world: World) -> int:
    return world.state.index.usage.get("cq", {}).get(("spot", "cpu"), 0)


def said(world: World, reason: str) -> list[str]:
    return [each.get("note", "") for each in world.cluster.objects(EVENTS) if each.get("reason") == reason]


def verify(world: World) -> None:
    """What every process decided is decided again from the log; folded from bytes it is the same state."""
    plan = Plan(checks(), CommitFilter(world.cell))
    for logged in world.log:
        plan.feed(logged)
    replay = Replay(fold.new_state(world.cell), plan, decide_cycle)
    for logged in world.log:
        replay.feed(logged)
    assert replay.result().differences == ()


# --- plain pods ----------------------------------------------------------------------------------------------------


def test_a_plain_pod_runs_on_its_flavor_and_finishes() -> None:
    """One Workload of one pod; ungated with the flavor's selector and toleration; the finalizer goes at the end."""
    world = cell()
    world.create(pod("one", run_ms=20_000))
    run(world, 10_000)
    found = the(world, "pod-one-")
    (pod_set,) = found["spec"]["podSets"]
    assert (pod_set["name"], pod_set["count"]) == ("main", 1)
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", "one", True)
    (seen,) = world.cluster.objects(PODS)
    assert seen["status"]["phase"] == "Running"
    assert seen["spec"]["nodeSelector"] == {"flavor": "spot"}
    assert {"key": "flavor", "operator": "Equal", "value": "spot", "effect": "NoSchedule"} in seen["spec"][
        "tolerations"
    ]
    assert seen["metadata"]["labels"][f"{K}podset"] == "main"
    assert seen["metadata"]["annotations"][f"{K}workload"] == found["metadata"]["name"]
    assert used(world) == 1000
    run(world, 30_000)
    assert condition(the(world, "pod-one-"), "Finished") == ("True", "Succeeded", "")
    (seen,) = world.cluster.objects(PODS)
    assert (seen["status"]["phase"], seen["metadata"].get("finalizers", [])) == ("Succeeded", [])
    assert used(world) == 0


def test_a_failed_plain_pod_fails_its_workload() -> None:
    """A pod is not retried."""
    world = cell()
    world.create(pod("one", run_ms=5_000, exit_code=1))
    run(world, 30_000)
    said_of = condition(the(world, "pod-one-"), "Finished")
    assert said_of is not None
    assert said_of[:2] == ("True", "Failed")


def test_a_preempted_plain_pod_is_deleted_with_the_reason_and_its_workload_ends() -> None:
    """A pod cannot be stopped otherwise; the condition TerminationTarget says why."""
    terminated: list[dict[str, Any]] = []

    def note(_: State, logged: LoggedCommit) -> None:
        for each in world.cluster.objects(PODS):
            found = [one for one in each.get("status", {}).get("conditions", []) if one["type"] == "TerminationTarget"]
            terminated.extend(found)

    world = cell(quota=1, check=note)
    world.create(pod("low"))
    run(world, 10_000)
    world.create(pod("urgent", priority="high"))
    run(world, 60_000)
    assert shown(world) == {"urgent": "Running"}
    assert {each["reason"] for each in terminated} == {"WorkloadEvictedDueToPreempted"}
    assert is_true(the(world, "pod-urgent-"), "Admitted")
    assert workload(world, "pod-low-") is None
    assert used(world) == 1000


def test_a_pod_that_was_never_gated_is_deleted_until_it_is_admitted() -> None:
    """Nobody bypasses the queue by leaving the gate out."""
    world = cell(quota=0)
    ungated = pod("sneaky")
    del ungated["spec"]["schedulingGates"]
    ungated["spec"]["tolerations"] = [{"operator": "Exists"}]
    world.create(ungated)
    run(world, 60_000)
    assert shown(world) == {}


def test_a_gated_pod_that_is_deleted_leaves_nothing() -> None:
    """Its finalizer is removed, and with it the Workload goes."""
    world = cell(quota=0)
    world.create(pod("one"))
    run(world, 10_000)
    assert shown(world) == {"one": "gated"}
    delete(world, "one")
    run(world, 30_000)
    assert shown(world) == {}
    assert workload(world, "pod-one-") is None


# --- groups --------------------------------------------------------------------------------------------------------


def group(world: World, name: str, total: int, **options: Any) -> None:
    for number in range(total):
        world.create(pod(f"{name}-{number}", group=name, total=total, **options))


def test_a_group_waits_for_its_pods_and_starts_as_one() -> None:
    """The Workload has the group's name, one pod set for each role in the order of the hashes, and all owners."""
    world = cell()
    world.create(pod("g-0", group="g", total=3, cpu="2"))
    world.create(pod("g-1", group="g", total=3))
    run(world, 10_000)
    assert workload(world, "g") is None
    assert "'g' group has fewer runnable pods than expected" in said(world, "ErrWorkloadCompose")
    world.create(pod("g-2", group="g", total=3))
    run(world, 10_000)
    found = the(world, "g")
    pods = world.cluster.objects(PODS)
    roles = {each["metadata"]["name"]: each["metadata"]["annotations"][f"{K}role-hash"] for each in pods}
    wanted = sorted([(roles["g-0"], 1), (roles["g-1"], 2)])
    assert [(each["name"], each["count"]) for each in found["spec"]["podSets"]] == wanted
    assert found["metadata"]["annotations"][f"{K}is-group-workload"] == "true"
    owners = {each["uid"]: each.get("controller", False) for each in found["metadata"]["ownerReferences"]}
    assert owners == {each["metadata"]["uid"]: False for each in pods}
    assert set(shown(world).values()) == {"Running"}
    assert {each["metadata"]["labels"][f"{K}podset"] for each in pods} == set(roles.values())
    assert used(world) == 4000


def test_a_group_finishes_when_all_its_pods_have_succeeded() -> None:
    """Pods that are done give their quota back before that; at the end all finalizers go."""
    world = cell()
    world.create(pod("g-0", group="g", total=2, run_ms=5_000))
    world.create(pod("g-1", group="g", total=2, run_ms=60_000))
    run(world, 30_000)
    assert used(world) == 1000
    (reclaimable,) = the(world, "g")["status"]["reclaimablePods"]
    assert reclaimable["count"] == 1
    assert all(each["metadata"]["finalizers"] for each in world.cluster.objects(PODS))
    run(world, 60_000)
    assert condition(the(world, "g"), "Finished") == ("True", "Succeeded", "Pods succeeded: 2/2.")
    assert not any(each["metadata"].get("finalizers") for each in world.cluster.objects(PODS))
    assert used(world) == 0


def test_a_failed_pod_is_replaced() -> None:
    """The group says that it waits; the replacement is ungated at once, and the failed pod loses its finalizer."""
    world = cell()
    world.create(pod("g-0", group="g", total=2, run_ms=90_000))
    world.create(pod("g-1", group="g", total=2, run_ms=5_000, exit_code=1))
    run(world, 20_000)
    waits = condition(the(world, "g"), "WaitingForReplacementPods")
    assert waits == ("True", "PodsFailed", "Some Failed pods need replacement")
    assert shown(world) == {"g-0": "Running", "g-1": "Failed"}
    world.create(pod("g-2", group="g", total=2, run_ms=30_000))
    run(world, 20_000)
    assert shown(world) == {"g-0": "Running", "g-1": "Failed", "g-2": "Running"}
    assert condition(the(world, "g"), "WaitingForReplacementPods") == (
        "False",
        "PodsReady",
        "No pods need replacement",
    )
    held = {each["metadata"]["name"]: bool(each["metadata"].get("finalizers")) for each in world.cluster.objects(PODS)}
    assert held == {"g-0": True, "g-1": False, "g-2": True}
    assert len(the(world, "g")["metadata"]["ownerReferences"]) == 3
    assert said(world, "OwnerReferencesAdded") == ["Added 1 owner reference(s)"]
    run(world, 90_000)
    assert condition(the(world, "g"), "Finished") == ("True", "Succeeded", "Pods succeeded: 2/2.")


def test_an_unretriable_group_ends_with_its_last_pod() -> None:
    """No replacement is waited for."""
    world = cell()
    world.create(pod("g-0", group="g", total=2, run_ms=5_000, annotations={f"{K}retriable-in-group": "false"}))
    world.create(pod("g-1", group="g", total=2, run_ms=10_000, exit_code=1))
    run(world, 60_000)
    assert condition(the(world, "g"), "Finished") == ("True", "Succeeded", "Pods succeeded: 1/2.")


def test_excess_pods_are_deleted_newest_first() -> None:
    """Those that run stay."""
    world = cell()
    group(world, "g", 2)
    run(world, 10_000)
    world.create(pod("g-9", group="g", total=2))
    run(world, 20_000)
    assert shown(world) == {"g-0": "Running", "g-1": "Running"}
    assert said(world, "ExcessPodDeleted") == ["Excess pod deleted"]


def test_an_evicted_group_waits_for_replacements_and_runs_again() -> None:
    """Its pods are deleted; their finalizers keep them until others of their role come."""
    world = cell(quota=2)
    group(world, "g", 2)
    run(world, 10_000)
    world.create(pod("urgent", priority="high", cpu="2", run_ms=40_000))
    run(world, 30_000)
    assert shown(world)["urgent"] == "Running"
    assert {shown(world)[name] for name in ("g-0", "g-1")} <= {"Failed deleted", "Succeeded deleted"}
    waits = condition(the(world, "g"), "WaitingForReplacementPods")
    assert waits is not None
    assert waits[:2] == ("True", "Preempted")
    assert used(world) == 2000
    for number in (2, 3):
        world.create(pod(f"g-{number}", group="g", total=2, run_ms=20_000))
    run(world, 120_000)
    assert condition(the(world, "g"), "Finished") == ("True", "Succeeded", "Pods succeeded: 2/2.")
    assert {"g-0", "g-1"}.isdisjoint(shown(world))


def test_pods_that_disagree_on_their_number_get_no_workload() -> None:
    """Nothing is guessed; the event names the two."""
    world = cell()
    world.create(pod("g-0", group="g", total=2))
    world.create(pod("g-1", group="g", total=3))
    run(world, 10_000)
    assert workload(world, "g") is None
    (note,) = [each for each in said(world, "ErrWorkloadCompose") if "different" in each]
    assert note == f"pods 'g-0' and 'g-1' has different '{K}pod-group-total-count' values: 2!=3"
    assert set(shown(world).values()) == {"gated"}


def test_a_deleted_workload_takes_the_pods_of_its_group_along() -> None:
    """Also those that have ended; nothing of the group is left."""
    world = cell()
    world.create(pod("g-0", group="g", total=2, run_ms=3_000))
    world.create(pod("g-1", group="g", total=2))
    run(world, 20_000)
    world.cluster.request("DELETE", "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/g", {}, b"")
    run(world, 60_000)
    assert shown(world) == {}
    assert workload(world, "g") is None
    assert used(world) == 0


@pytest.mark.parametrize("has_run", [False, True])
def test_a_group_that_is_deleted_with_its_workload_leaves_nothing(has_run: bool) -> None:
    """No Workload is made of a group of which no pod is left to run, and nothing is set aside."""
    world = cell(quota=4 if has_run else 0)
    group(world, "g", 2)
    run(world, 10_000)
    for name in ("g-0", "g-1"):
        delete(world, name)
    world.cluster.request("DELETE", "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/g", {}, b"")
    run(world, 60_000)
    assert shown(world) == {}
    assert workload(world, "g") is None
    assert not world.state.quarantine


def test_a_group_does_not_adopt_the_workload_of_somebody_else() -> None:
    """Its pods stay gated, and the event says why."""
    world = cell()
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    pod_sets = [{"name": "main", "count": 1, "template": template}]
    world.create(kueue("Workload", "g", {"queueName": "main", "podSets": pod_sets}, "team-a"))
    group(world, "g", 1)
    run(world, 20_000)
    assert shown(world) == {"g-0": "gated"}
    assert len(said(world, "WorkloadNameConflict")) == 1
    world.cluster.request("DELETE", "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/g", {}, b"")
    run(world, 20_000)
    assert shown(world) == {"g-0": "Running"}


def test_fast_admission_does_not_wait_for_all_pods() -> None:
    """One pod is enough for the Workload of the whole group; a serving group never finishes."""
    world = cell()
    serving = {f"{K}pod-group-fast-admission": "true", f"{K}pod-group-serving": "true"}
    world.create(pod("g-0", group="g", total=3, run_ms=5_000, annotations=serving))
    run(world, 20_000)
    found = the(world, "g")
    assert [each["count"] for each in found["spec"]["podSets"]] == [3]
    assert (is_true(found, "Admitted"), is_true(found, "Finished"), used(world)) == (True, False, 3000)


def test_pods_are_left_alone_without_the_integration() -> None:
    """A pod of another controller of the same API stays as it is."""
    world = cell(configuration=Configuration())
    world.create(pod("one"))
    run(world, 10_000)
    assert (shown(world), workload(world, "pod-one-")) == ({"one": "gated"}, None)


@pytest.mark.parametrize("seed", range(4))
def test_the_end_is_the_same_whatever_goes_wrong(seed: int) -> None:
    """Crashes, rivals, lost answers and cut watches: all groups and pods finish, nothing is left behind."""
    world = cell(WILD, seed, quota=3)
    group(world, "a", 2, run_ms=10_000)
    world.create(pod("single", run_ms=5_000))
    run(world, 20_000)
    world.create(pod("b-0", group="b", total=2, run_ms=5_000, exit_code=1))
    world.create(pod("b-1", group="b", total=2, run_ms=20_000))
    run(world, 40_000)
    world.create(pod("b-2", group="b", total=2, run_ms=5_000))
    world.create(pod("b-3", group="b", total=2, run_ms=5_000))
    run(world, FAULTS_END_MS - world.clock.now_ms + 600_000)
    ends = {each["metadata"]["name"]: condition(each, "Finished") for each in world.cluster.objects(WORKLOADS)}
    assert {name: end and end[:2] for name, end in ends.items()} == {
        "a": ("True", "Succeeded"),
        "b": ("True", "Succeeded"),
        next(name for name in ends if name.startswith("pod-single-")): ("True", "Succeeded"),
    }
    assert not any(each["metadata"].get("finalizers") for each in world.cluster.objects(PODS))
    assert used(world) == 0
    assert not list(forgotten(world.state))
    verify(world)
