"""
A defect in work that is about a queue, a cohort, or what comes after a decision names its object and costs that one.

One raise is planted for each place. Three ClusterQueues take part: the one with the defect, one that shares its cohort
with it, and one without a cohort.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.simulation.scenarios import job, kueue, node
from tests.support.defects import DefectError, is_of, raises_if, swapped

import headgate.core.cycle.order as order
import headgate.core.cycle.verdicts as verdicts
import headgate.core.flavors.catalog as catalogs
import headgate.core.machine.call_object as call_object
import headgate.core.quota.admission_fair_sharing as usage_over_time
import headgate.core.quota.cache as forests
import headgate.machines.binder.workload_statuses as statuses
import headgate.machines.informer_bridge.decide as bridge
import headgate.machines.queue_manager.sleeping as sleeping
import headgate.machines.queue_manager.turns as turns
import headgate.machines.ungater.decide as ungater
from headgate.core import fold
from headgate.core.fold import quarantine, quarantine_limit
from headgate.core.fold.quarantine_limit import TooManyFailedError
from headgate.core.machine.contract import Call, Machine
from headgate.core.state.tables import HOLDS_QUOTA, State
from headgate.events.base import Producer
from headgate.events.configuration import AdmissionFairSharingConfiguration, Configuration, FairSharingConfiguration
from headgate.events.facts import ConfigurationObserved
from headgate.events.queueing import WorkloadQueued
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.testing.cluster import BY_PLURAL
from headgate.testing.world.world import MACHINES, World

JOBS = BY_PLURAL["batch", "jobs"]
QUEUES = BY_PLURAL["kueue.x-k8s.io", "clusterqueues"]
EVENTS = BY_PLURAL["events.k8s.io", "events"]
RUN_MS = 4_000
HORIZON_MS = 600_000
BAD, SIBLING, ALONE = "bad", "sibling", "alone"
COHORT = "root"
BAD_JOB = "j2"
COUNT = 8
PLAIN = Configuration()
FAIR = Configuration(fair_sharing=FairSharingConfiguration())


def cell(configuration: Configuration = PLAIN) -> World:
    """A cell where each ClusterQueue has room for two of its jobs."""
    observed = ConfigurationObserved(configuration=configuration)
    machines: dict[Producer, Callable[[State], Machine]] = {
        **MACHINES,
        Producer.INFORMER_BRIDGE: partial(InformerBridge, configuration=observed),
    }
    world = World(contain=True, machines=machines)
    world.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        kueue("ResourceFlavor", "f", {}),
        node("n", "f", 1000, taint=False),
        kueue("Cohort", COHORT, {}),
    )
    for name in (BAD, SIBLING, ALONE):
        quotas = [{"name": "cpu", "nominalQuota": "2"}]
        groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": quotas}]}]
        spec: dict[str, Any] = {"namespaceSelector": {}, "resourceGroups": groups}
        if name != ALONE:
            spec["cohortName"] = COHORT
        if configuration.admission_fair_sharing is not None:
            spec["admissionScope"] = {"admissionMode": "UsageBasedAdmissionFairSharing"}
        world.apply(kueue("ClusterQueue", name, spec), kueue("LocalQueue", name, {"clusterQueue": name}, "team"))
    submit(world, COUNT)
    return world


def submit(world: World, count: int, first: int = 0) -> None:
    rng = random.Random(1)
    for number in range(first, first + count):
        for name in (BAD, SIBLING, ALONE):
            made = job(f"{name[0]}{number}" if name != BAD else f"j{number}", "team", rng, 1, 1, RUN_MS, "")
            made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = name
            made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
            world.create(made)


def run(world: World, for_ms: int = HORIZON_MS) -> None:
    world.run(until_ms=world.clock.now_ms + for_ms)


def ended(world: World, queue: str) -> set[str]:
    """The Jobs of a queue that are Complete."""
    return {
        each["metadata"]["name"]
        for each in world.cluster.objects(JOBS)
        if each["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == queue
        for condition in each.get("status", {}).get("conditions", [])
        if (condition["type"], condition["status"]) == ("Complete", "True")
    }


def everything(queue: str, count: int = COUNT) -> set[str]:
    return {f"{'j' if queue == BAD else queue[0]}{number}" for number in range(count)}


def restart(world: World) -> None:
    for instance in list(world.instances):
        world.crash(instance)


def mend(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "VERSION", "mended")
    world.upgrade()
    restart(world)
    run(world)
    assert world.state.quarantine == {}


# --- a queue, a cohort ----------------------------------------------------------------------------------------------


def about_queue(place: Any, function: str, position: int) -> Any:
    """In a function one of whose arguments is the name of a ClusterQueue."""
    return swapped(place, function, raises_if(lambda *args: args[position] == BAD))


QUEUE_PLANTS: dict[str, Callable[[], Any]] = {
    "quota tree: what a spec says": lambda: swapped(
        forests, "weight_of", raises_if(lambda sharing: sharing is not None and sharing.weight == "3")
    ),
    "quota tree: usage that moves": lambda: swapped(
        forests, "_set", raises_if(lambda tree, fr, column, node, held: node.name == BAD)
    ),
    "catalog": lambda: about_queue(catalogs.Catalog, "_work_out", 1),
    "activeness": lambda: swapped(
        forests,
        "cluster_queue_active",
        raises_if(lambda state, name: name == BAD and f"ClusterQueue/{BAD}" not in state.quarantine),
    ),
    "what sleeps": lambda: swapped(
        sleeping.Sleeping, "_what_sleeps", raises_if(lambda _, sleeper: sleeper.cluster_queue == BAD)
    ),
    "turns: those on offer": lambda: swapped(
        turns.Turns, "group_of", raises_if(lambda _, cluster_queue: cluster_queue == BAD)
    ),
}


def with_weight(world: World, kind: str, name: str) -> None:
    world.apply(kueue(kind, name, {"fairSharing": {"weight": "3"}}))


@pytest.mark.parametrize("place", QUEUE_PLANTS)
def test_a_defect_with_a_cluster_queue_costs_that_one(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not active, with the reason; what runs in it ends; the others, also of its cohort, continue as before."""
    world = cell()
    with_weight(world, "ClusterQueue", BAD)
    with QUEUE_PLANTS[place]():
        run(world)
        assert [each.kind + "/" + each.key for each in world.state.quarantine.values()] == [f"ClusterQueue/{BAD}"]
        assert ended(world, SIBLING) == everything(SIBLING)
        assert ended(world, ALONE) == everything(ALONE)
        assert len(ended(world, BAD)) < COUNT
        assert not [each for each in world.state.workloads.values() if each.stage in HOLDS_QUOTA]
        (queue,) = [each for each in world.cluster.objects(QUEUES) if each["metadata"]["name"] == BAD]
        (active,) = [each for each in queue["status"]["conditions"] if each["type"] == "Active"]
        assert (active["status"], active["reason"]) == ("False", "SetAside")
        restart(world)
        submit(world, 2, first=COUNT)
        run(world)
        assert ended(world, SIBLING) == everything(SIBLING, COUNT + 2)
        assert ended(world, ALONE) == everything(ALONE, COUNT + 2)
        for instance in world.instances:
            assert fold.encode(instance.state) == fold.encode(world.state)
    mend(world, monkeypatch)
    assert ended(world, BAD) == everything(BAD, COUNT + 2)


def test_a_defect_with_a_cohort_costs_what_it_says_of_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ClusterQueues below it continue with what they have themselves."""
    world = cell()
    with_weight(world, "Cohort", COHORT)
    with QUEUE_PLANTS["quota tree: what a spec says"]():
        run(world)
        assert list(world.state.quarantine) == [f"Cohort/{COHORT}"]
        for queue in (BAD, SIBLING, ALONE):
            assert ended(world, queue) == everything(queue)
    mend(world, monkeypatch)


# --- a workload -----------------------------------------------------------------------------------------------------


def of_entry(place: Any, function: str, position: int = 0) -> Any:
    """In a function one of whose arguments is an entry of a cycle or a workload."""
    return swapped(place, function, raises_if(lambda *args: is_of(BAD_JOB, args[position].key)))


def unsendable() -> Any:
    """A call for the one has a body that no JSON can be made of."""

    def make(sound: Callable[..., Any]) -> Any:
        def broken(state: Any, key: Any, *more: Any) -> Any:
            patches = sound(state, key, *more)
            broken_body = {**patches[0].body, "oops": DefectError}
            return (msgspec.structs.replace(patches[0], body=broken_body),) if is_of(BAD_JOB, key) else patches

        return broken

    return swapped(ungater, "start_patches", make)


WORKLOAD_PLANTS: dict[str, tuple[Callable[[], Any], Configuration]] = {
    "order": (lambda: of_entry(order, "seniority"), PLAIN),
    "tournament": (lambda: of_entry(order.Tournament, "_share_with", 1), FAIR),
    "verdict": (lambda: of_entry(verdicts, "_verdict", 1), PLAIN),
    "reservation": (lambda: of_entry(verdicts, "_reserved", 1), PLAIN),
    "turns": (lambda: swapped(turns, "rank_of", raises_if(lambda _, it: is_of(BAD_JOB, it.key))), PLAIN),
    "the end of a call of the ungater": (
        lambda: swapped(ungater, "effect_of", raises_if(lambda action, _: is_of(BAD_JOB, action.job))),
        PLAIN,
    ),
    "the end of a call of the bridge": (
        lambda: swapped(InformerBridge, "_on_created", raises_if(lambda _, it, *__: is_of(BAD_JOB, it.job))),
        PLAIN,
    ),
    "the end of a status": (
        lambda: swapped(
            statuses.WorkloadStatuses, "_on_written", raises_if(lambda _, it, *__: is_of(BAD_JOB, it.workload))
        ),
        PLAIN,
    ),
    "the body of a call": (unsendable, PLAIN),
}


@pytest.mark.parametrize("place", WORKLOAD_PLANTS)
def test_a_defect_with_a_workload_costs_that_one(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All others end, through a restart; a corrected version takes it up."""
    plant, configuration = WORKLOAD_PLANTS[place]
    world = cell(configuration)
    with plant():
        run(world)
        restart(world)
        run(world)
        assert world.state.quarantine
        assert all(is_of(BAD_JOB, each.key) for each in world.state.quarantine.values())
        assert ended(world, BAD) - {BAD_JOB} == everything(BAD) - {BAD_JOB}
        assert ended(world, SIBLING) == everything(SIBLING)
        assert ended(world, ALONE) == everything(ALONE)
    mend(world, monkeypatch)
    assert ended(world, BAD) == everything(BAD)


def test_a_defect_with_a_local_queue_costs_its_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usage of the others is brought up to date as ever, and all jobs end."""
    sampling = AdmissionFairSharingConfiguration(usage_sampling_interval_ms=1_000, usage_half_life_ms=60_000)
    world = cell(Configuration(admission_fair_sharing=sampling))
    plant = swapped(usage_over_time, "sampled_next_ms", raises_if(lambda _, queue: queue == f"team/{BAD}"))
    with plant:
        run(world, 60_000)
        assert list(world.state.quarantine) == [f"LocalQueue/team/{BAD}"]
        for queue in (BAD, SIBLING, ALONE):
            assert ended(world, queue) == everything(queue)
    mend(world, monkeypatch)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (Call(id="1", method="PATCH", path="/apis/batch/v1/namespaces/a/jobs/b"), ("Job", "batch/Job/a/b")),
        (Call(id="1", method="PATCH", path="/apis/batch/v1/namespaces/a/jobs/b/status"), ("Job", "batch/Job/a/b")),
        (Call(id="1", method="POST", path="/api/v1/namespaces/a/pods/b/binding", body={}), ("Pod", "a/b")),
        (
            Call(id="1", method="PATCH", path="/apis/kubeflow.org/v2beta1/namespaces/a/mpijobs/b"),
            ("Job", "kubeflow.org/MPIJob/a/b"),
        ),
        (
            Call(
                id="1",
                method="POST",
                path="/apis/events.k8s.io/v1/namespaces/a/events",
                body={"regarding": {"apiVersion": "ray.io/v1", "kind": "RayJob", "namespace": "a", "name": "b"}},
            ),
            ("Job", "ray.io/RayJob/a/b"),
        ),
        (
            Call(id="1", method="PATCH", path="/apis/kueue.x-k8s.io/v1beta2/clusterqueues/q/status"),
            ("ClusterQueue", "q"),
        ),
        (
            Call(
                id="1",
                method="POST",
                path="/apis/kueue.x-k8s.io/v1beta2/namespaces/a/workloads",
                body={"metadata": {"name": "w", "ownerReferences": [{"kind": "Job", "name": "b"}]}},
            ),
            ("Job", "batch/Job/a/b"),
        ),
        (
            Call(
                id="1",
                method="POST",
                path="/apis/events.k8s.io/v1/namespaces/default/events",
                body={"metadata": {"name": "e"}, "regarding": {"kind": "ClusterQueue", "name": "q"}},
            ),
            ("ClusterQueue", "q"),
        ),
        (Call(id="1", method="GET", path="/version"), None),
    ],
)
def test_a_call_names_its_object(call: Call, expected: tuple[str, str] | None) -> None:
    """By its path; a call that makes an object by whom it is made for."""
    found = call_object.object_of(call)
    assert (found and (found.kind, found.key)) == expected


# --- what every object shows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_fold", [False, True], ids=["machine", "fold"])
def test_a_defect_that_every_object_shows_stops_the_process(in_fold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many are set aside as the limit allows, then one line names the defect, how many, and the remedy."""
    monkeypatch.setattr(quarantine_limit, "LIMIT_MIN", 5)
    world = cell()
    place, name = (fold.HANDLERS, WorkloadQueued) if in_fold else (bridge, "workload_of")
    with swapped(place, name, raises_if(lambda *_: True)), pytest.raises(TooManyFailedError) as caught:
        run(world)
    # There are 24 Jobs and as many Workloads: half of them.
    limit = 12
    assert f"has put {limit} objects in quarantine with the same failure" in str(caught.value)
    assert "DefectError: planted in " in str(caught.value)
    assert "Run a version without the defect" in str(caught.value)
    if not in_fold:
        assert len(world.state.quarantine) == limit


def test_half_of_the_objects_may_show_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner of fewer objects cannot stop the process: those are set aside, and the others end."""
    monkeypatch.setattr(quarantine_limit, "LIMIT_MIN", 2)
    world = cell()
    plant = swapped(bridge, "workload_of", raises_if(lambda state, key, *_: key.startswith("batch/Job/team/j")))
    with plant:
        run(world)
    assert set(world.state.quarantine) == {f"Job/batch/Job/team/{name}" for name in everything(BAD)}
    assert ended(world, SIBLING) == everything(SIBLING)
    assert ended(world, ALONE) == everything(ALONE)


def test_an_object_may_fail_as_often_as_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each retry it fails once more, and is set aside once more; no process stops."""
    world = cell()
    key = ""
    with swapped(statuses, "workload_status", raises_if(lambda _, it: is_of(BAD_JOB, it.key))):
        run(world)
        for attempt in range(6):
            (record,) = world.state.quarantine.values()
            assert record.key != key or attempt
            key = record.key
            before = record.position
            name = key.partition("/")[2]
            body = msgspec.json.encode({"metadata": {"annotations": {quarantine.RETRY: f"{attempt}"}}})
            path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/{name}"
            assert world.cluster.request("PATCH", path, {}, body, "application/merge-patch+json").status == 200
            run(world)
            (again,) = world.state.quarantine.values()
            assert again.position > before
