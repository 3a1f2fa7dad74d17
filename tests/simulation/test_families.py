"""ConcurrentAdmission in the whole system: one variant per flavor, the first that fits brings its parent in."""

import random
from typing import Any

import msgspec
import pytest
from tests.simulation.oracle import overdrawn
from tests.simulation.scenarios import job as a_job
from tests.simulation.scenarios import kueue, node
from tests.simulation.test_seeds import JOBS, WORKLOADS, faults_of

from headgate.core.audit.invariants import forgotten
from headgate.events.base import Producer
from headgate.events.configuration import Configuration, WaitForPodsReady
from headgate.events.facts import ConfigurationObserved
from headgate.machines.binder.decide import Binder
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.testing.cluster.kinds import BY_PLURAL
from headgate.testing.world.world import MACHINES, NO_FAULTS, FaultRates, World

ON = Configuration(feature_gates={"ConcurrentAdmission": True})
ALLOWED = "kueue.x-k8s.io/workload-allowed-resource-flavors"
PARENT = "kueue.x-k8s.io/concurrent-admission-parent"
GATE = "kueue.x-k8s.io/concurrent-admission"


def cell(
    faults: FaultRates = NO_FAULTS,
    seed: int = 0,
    *,
    flavors: tuple[str, ...] = ("best", "good", "poor"),
    migration: dict[str, Any] | None = None,
    preemption: str = "Never",
    configuration: Configuration = ON,
) -> World:
    """A node per flavor, one CPU of quota in each; the flavors are tried all at once. Every Event is recorded."""
    machines = {
        **MACHINES,
        Producer.INFORMER_BRIDGE: lambda state: InformerBridge(
            state, ConfigurationObserved(configuration=configuration)
        ),
        Producer.BINDER: lambda state: Binder(state, "all"),
    }
    world = World(seed=seed, faults=faults, machines=machines)
    world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
    for flavor in flavors:
        world.apply(kueue("ResourceFlavor", flavor, {"nodeLabels": {"flavor": flavor}}))
        world.apply(node(f"node-{flavor}", flavor, 16, taint=False))
    policy = {"migration": {"mode": "TryPreferredFlavors", **(migration or {})}}
    world.apply(
        kueue("ClusterQueue", "cq", spec_of(flavors, policy, preemption)),
        kueue("LocalQueue", "main", {"clusterQueue": "cq"}, "team-a"),
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": "high"},
            "value": 1000,
        },
    )
    return world


def spec_of(flavors: tuple[str, ...], policy: dict[str, Any], preemption: str = "Never") -> dict[str, Any]:
    quotas = [{"name": "cpu", "nominalQuota": "1"}, {"name": "memory", "nominalQuota": "64Gi"}]
    groups = [
        {"coveredResources": ["cpu", "memory"], "flavors": [{"name": each, "resources": quotas} for each in flavors]}
    ]
    return {
        "namespaceSelector": {},
        "resourceGroups": groups,
        "preemption": {"withinClusterQueue": preemption},
        "concurrentAdmissionPolicy": policy,
    }


def submit(world: World, name: str, *, run_ms: int = 10**9, priority: str = "") -> None:
    world.create(a_job(name, "team-a", random.Random(1), 1, 1, run_ms, priority))


def run(world: World, for_ms: int) -> None:
    until_ms = world.clock.now_ms + for_ms
    world.run(until_ms=until_ms)
    world.advance(until_ms)


def family(world: World, name: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """A Job's Workload, and its variants by flavor."""
    mine = [each for each in world.cluster.objects(WORKLOADS) if each["metadata"]["name"].startswith(f"job-{name}-")]
    (parent,) = [each for each in mine if ALLOWED not in each["metadata"].get("annotations", {})]
    return parent, {each["metadata"]["annotations"][ALLOWED]: each for each in mine if each is not parent}


def is_true(found: dict[str, Any], kind: str) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def reason(found: dict[str, Any], kind: str) -> str:
    return next((str(each["reason"]) for each in found["status"]["conditions"] if each["type"] == kind), "")


def admitted(world: World, name: str) -> list[str]:
    return [flavor for flavor, each in family(world, name)[1].items() if is_true(each, "Admitted")]


def active(world: World, name: str) -> dict[str, bool]:
    return {flavor: each["spec"].get("active", True) for flavor, each in family(world, name)[1].items()}


def runs_on(world: World, name: str) -> str:
    (found,) = [each for each in world.cluster.objects(JOBS) if each["metadata"]["name"] == name]
    if found["spec"]["suspend"]:
        return ""
    selector = found["spec"]["template"]["spec"].get("nodeSelector", {})
    return str(selector.get("flavor", ""))


def counts(world: World, plural: str) -> tuple[int, int, int]:
    """How many admitted, reserving and pending workloads the only ClusterQueue, or LocalQueue, shows."""
    (found,) = world.cluster.objects(BY_PLURAL["kueue.x-k8s.io", plural])
    status = found["status"]
    return status["admittedWorkloads"], status["reservingWorkloads"], status["pendingWorkloads"]


def told(world: World, about: dict[str, Any]) -> list[str]:
    """Reason and note of the Kubernetes Events about an object that variants have, without namespaces."""
    events = world.cluster.objects(BY_PLURAL["events.k8s.io", "events"])
    mine = [each for each in events if each["regarding"]["uid"] == about["metadata"]["uid"]]
    return sorted(f"{each['reason']}: {each['note']}" for each in mine if "ariant" in each["reason"])


def used(world: World) -> int:
    return sum(value for (_, resource), value in world.state.index.usage.get("cq", {}).items() if resource == "cpu")


def test_a_family_has_a_variant_for_each_flavor_and_runs_on_the_best_that_fits() -> None:
    """The parent is marked, holds no quota of its own and shows the admission of its variant."""
    world = cell()
    submit(world, "train")
    run(world, 10_000)
    parent, members = family(world, "train")
    assert parent["metadata"]["labels"][PARENT] == "true"
    assert set(members) == {"best", "good", "poor"}
    for member in members.values():
        assert member["metadata"]["ownerReferences"][0]["uid"] == parent["metadata"]["uid"]
        assert member["spec"]["preemptionGates"] == [{"name": GATE}]
        assert PARENT not in member["metadata"]["labels"]
    assert admitted(world, "train") == ["best"]
    assert is_true(parent, "Admitted")
    assert parent["status"]["admission"] == members["best"]["status"]["admission"]
    assert active(world, "train") == {"best": True, "good": False, "poor": False}
    assert (runs_on(world, "train"), used(world)) == ("best", 1000)
    assert overdrawn(world.state, "cq") == []


def test_a_better_flavor_that_becomes_free_is_moved_to() -> None:
    """The job is stopped and starts again there; the variants of worse flavors are switched off."""
    world = cell()
    submit(world, "first", run_ms=30_000)
    run(world, 10_000)
    submit(world, "second")
    run(world, 10_000)
    assert (runs_on(world, "first"), runs_on(world, "second")) == ("best", "good")
    assert active(world, "second") == {"best": True, "good": True, "poor": False}
    run(world, 60_000)
    parent, members = family(world, "second")
    assert runs_on(world, "second") == "best"
    assert admitted(world, "second") == ["best"]
    assert is_true(parent, "Admitted")
    assert reason(members["good"], "Evicted") in {"FlavorMigration", "Deactivated"}
    assert used(world) == 1000


@pytest.mark.parametrize(
    ("migration", "stays"),
    [
        ({"mode": "RetainFirstAdmission"}, set()),
        ({"constraints": {"lastAcceptableFlavorName": "best"}}, {"best"}),
        ({}, {"best", "good"}),
    ],
    ids=["retain the first", "down to the last acceptable", "all better ones"],
)
def test_the_policy_says_which_variants_stay_in_line(migration: dict[str, Any], stays: set[str]) -> None:
    """Which flavors better than its own a job continues trying, and that none worse are tried."""
    world = cell(migration=migration)
    order = ["best", "good", "poor"]
    for name in ("first", "second", "third"):
        submit(world, name)
        run(world, 10_000)
    assert sorted(runs_on(world, name) for name in ("first", "second", "third")) == order
    for name in ("first", "second", "third"):
        better = set(order[: order.index(runs_on(world, name))])
        tried = {flavor for flavor, is_active in active(world, name).items() if is_active}
        assert tried == {runs_on(world, name)} | (better & stays)


def test_preemption_gates_open_one_at_a_time_and_the_best_first() -> None:
    """All flavors are taken by lower priorities: the family preempts in the best flavor, and nowhere else."""
    world = cell(preemption="LowerPriority", migration={"mode": "RetainFirstAdmission"})
    for name in ("a", "b", "c"):
        submit(world, name)
        run(world, 10_000)
    ran_on = {runs_on(world, name): name for name in ("a", "b", "c")}
    submit(world, "urgent", priority="high")
    run(world, 20_000)
    _, members = family(world, "urgent")
    opened = [flavor for flavor, each in members.items() if each["status"].get("preemptionGates")]
    assert opened == ["best"]
    assert runs_on(world, "urgent") == "best"
    assert {flavor: runs_on(world, name) for flavor, name in ran_on.items()} == {
        "best": "",
        "good": "good",
        "poor": "poor",
    }
    assert used(world) == 3000


def test_a_flavor_that_is_added_or_taken_away_makes_or_ends_variants() -> None:
    """The family follows its ClusterQueue."""
    world = cell()
    submit(world, "train")
    run(world, 10_000)
    world.apply(kueue("ResourceFlavor", "new", {}))
    policy = {"migration": {"mode": "TryPreferredFlavors"}}
    body = msgspec.json.encode({"spec": spec_of(("best", "good", "new"), policy)})
    path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/cq"
    assert world.cluster.request("PATCH", path, {}, body, "application/merge-patch+json").status == 200
    run(world, 10_000)
    assert set(family(world, "train")[1]) == {"best", "good", "new"}


def test_variants_end_with_their_parent() -> None:
    """With the reason and the message of its end."""
    world = cell()
    submit(world, "train", run_ms=5_000)
    run(world, 60_000)
    parent, members = family(world, "train")
    assert is_true(parent, "Finished")
    assert {reason(each, "Finished") for each in members.values()} == {reason(parent, "Finished")}
    assert used(world) == 0


def test_a_family_counts_as_those_of_its_variants_that_stand_in_line_or_run() -> None:
    """The parent is pending in no queue, and holds no quota beside its variant."""
    world = cell(flavors=("best", "good"))
    for name in ("first", "second"):
        submit(world, name)
        run(world, 10_000)
    assert sorted(runs_on(world, name) for name in ("first", "second")) == ["best", "good"]
    submit(world, "third")
    run(world, 10_000)
    for plural in ("clusterqueues", "localqueues"):
        assert counts(world, plural) == (2, 2, 3), "pending: the better variant of one, and both of the third"


def test_variants_show_whether_the_pods_of_their_parent_are_ready() -> None:
    """With waitForPodsReady; and blockAdmission waits for nothing else."""
    waits = WaitForPodsReady(timeout_ms=600_000, block_admission=True)
    configuration = msgspec.structs.replace(ON, wait_for_pods_ready=waits)
    world = cell(flavors=("best", "good"), configuration=configuration)
    submit(world, "first")
    run(world, 20_000)
    parent, members = family(world, "first")
    (flavor,) = admitted(world, "first")
    shown = [each for each in members[flavor]["status"]["conditions"] if each["type"] == "PodsReady"]
    assert [(each["status"], each["reason"]) for each in shown] == [("True", "Started")]
    assert shown == [each for each in parent["status"]["conditions"] if each["type"] == "PodsReady"]
    submit(world, "second")
    run(world, 20_000)
    assert len(admitted(world, "second")) == 1


def test_what_becomes_of_variants_is_told_in_kueues_words() -> None:
    """About the parent that they are made, about each that it is switched off, and why."""
    world = cell(flavors=("best", "good"))
    submit(world, "train")
    run(world, 20_000)
    parent, members = family(world, "train")
    names = {flavor: f"team-a/{each['metadata']['name']}" for flavor, each in members.items()}
    made = sorted(f'CreatedVariant: Variant Workload "{name}" created' for name in names.values())
    assert told(world, parent) == made
    assert runs_on(world, "train") == "best"
    why = f'being lower priority than admitted Variant "{names["best"]}"'
    assert told(world, members["good"]) == [f"DeactivatedVariant: Variant Workload deactivated due to {why}"]


def test_a_label_alone_gives_nobody_quota() -> None:
    """Without the feature a workload that calls itself a parent is queued, and charged, like any other."""
    world = cell(flavors=("best",), configuration=Configuration())
    for name in ("first", "second"):
        submit(world, name)
        run(world, 500)
    for each in world.cluster.objects(WORKLOADS):
        path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/{each['metadata']['name']}"
        body = msgspec.json.encode({"metadata": {"labels": {PARENT: "true"}}})
        assert world.cluster.request("PATCH", path, {}, body, "application/merge-patch+json").status == 200
    submit(world, "third")
    assert world.cluster.request("DELETE", "/apis/batch/v1/namespaces/team-a/jobs/first", {}, b"").status == 200
    run(world, 20_000)
    running = [each for each in world.cluster.objects(JOBS) if not each["spec"]["suspend"]]
    assert (len(running), used(world)) == (1, 1000)


@pytest.mark.parametrize("seed", range(6))
def test_families_come_to_their_end_whatever_goes_wrong(seed: int) -> None:
    """Crashes, lost answers and rivals: every job runs once, no quota is left behind."""
    world = cell(faults_of(seed), seed)
    for name in ("first", "second", "third", "fourth"):
        submit(world, name, run_ms=4_000)
    run(world, 400_000)
    for name in ("first", "second", "third", "fourth"):
        parent, _ = family(world, name)
        assert reason(parent, "Finished") == "Succeeded"
    assert used(world) == 0
    assert forgotten(world.state, settled=True) == []
