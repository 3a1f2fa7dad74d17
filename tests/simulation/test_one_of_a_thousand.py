"""
One defect, for one object of many: all others end as without it, in all six processes, through restarts.

A defect is planted in one place at a time: the handler of an event in the fold, what a machine notes of the log or
decides, the status of a Workload, a call to the API server. It is in every process, as it would be in the code that
they run, and shows for one Job and its Workload alone. Every process is killed five times and starts from a snapshot.

`--defect-jobs` is the number of jobs; `make defects` runs with a thousand.

What is compared with the same run without the defect, for each object but the one:

- of each Job: whether it is suspended, how many of its pods have succeeded and failed, and its conditions (type,
  status, reason);
- of each Workload: its name, priority, LocalQueue, owner, admission with the flavors and the quota of each pod set,
  conditions (type, status, reason) and finalizers;
- in the folded state: its stage, ClusterQueue, admission and shape;
- of the quota: what each ClusterQueue uses of each flavor and resource at the end, but for what the one holds.

Not compared are uids, resource versions, times, and messages, for they have times in them; nor a Job's condition
Suspended, which it has only if the Job controller has come to it before it was resumed.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from tests.simulation.scenarios import job, kueue, node, placed_by_headgate
from tests.support.defects import in_fold, in_noting, is_of, over, raises_if, swapped

import headgate.machines.binder.workload_statuses as statuses
import headgate.machines.informer_bridge.decide as bridge
import headgate.machines.queue_manager.decide as manager
import headgate.machines.ungater.decide as ungater
from headgate.adapters.jetstream.health import DependencyHealth
from headgate.adapters.telemetry import Metrics
from headgate.core import fold
from headgate.core.audit.invariants import forgotten
from headgate.core.cycle.nominating import Nominator
from headgate.core.fold import quarantine
from headgate.core.placement.deciding import PlacementDecider
from headgate.core.state.tables import HOLDS_QUOTA, QuarantineRecord, State
from headgate.events.base import Producer
from headgate.events.decisions import QuotaReserved, WorkloadAdmitted
from headgate.events.facts import JobObserved, WorkloadObserved
from headgate.events.queueing import WorkloadFinished, WorkloadQueued
from headgate.machines.binder.pod_bindings import PodBindings
from headgate.machines.scheduler.decide import Scheduler
from headgate.machines.snapshotter.decide import Rules, Snapshotter
from headgate.processes.runtime.process_status import Phase, Status
from headgate.processes.telemetry.observer import Observing
from headgate.testing.cluster import BY_PLURAL
from headgate.testing.world.world import MACHINES, MACHINES_PLACING, World

JOBS = BY_PLURAL["batch", "jobs"]
WORKLOADS = BY_PLURAL["kueue.x-k8s.io", "workloads"]
EVENTS = BY_PLURAL["events.k8s.io", "events"]
BAD = "j7"
RUN_MS = 4_000
RESTARTS = 5
BETWEEN_MS = 3_000
HORIZON_MS = 1_200_000

Plant = Callable[[str], Any]

PLANTS: dict[str, Plant] = {
    "fold: seen first": partial(in_fold, WorkloadObserved),
    "fold: queued": partial(in_fold, WorkloadQueued),
    "fold: quota reserved": partial(in_fold, QuotaReserved),
    "fold: admitted": partial(in_fold, WorkloadAdmitted),
    "fold: finished": partial(in_fold, WorkloadFinished),
    "fold: its Job": partial(in_fold, JobObserved),
    "informer bridge: what it reads": lambda name: swapped(
        bridge, "read", raises_if(lambda resource, raw, *_: resource == "workloads" and f"job-{name}-".encode() in raw)
    ),
    "informer bridge: what it notes": partial(in_noting, bridge.InformerBridge, "_on_event"),
    "queue manager: what it decides": partial(over, manager, "steps"),
    "queue manager: what it notes": partial(in_noting, manager.QueueManager, "_note"),
    "scheduler: what it decides": partial(over, Nominator, "nominate"),
    "scheduler: which node it gives": partial(over, PlacementDecider, "decide"),
    "scheduler: what it notes": partial(in_noting, Scheduler, "_note"),
    "snapshotter: what it notes": partial(in_noting, Snapshotter, "_note"),
    "ungater: what it decides": partial(over, ungater.Ungater, "_act_on"),
    "ungater: what it notes": partial(in_noting, ungater.Ungater, "_on_event"),
    "binder: what it decides": lambda name: swapped(
        PodBindings, "_bind", raises_if(lambda _, placed, *__: is_of(name, placed.pod))
    ),
    "binder: what it notes": partial(in_noting, statuses.WorkloadStatuses, "on_event"),
    "status": partial(over, statuses, "workload_status"),
    "call": partial(over, ungater, "start_patches"),
}

PLACED = {"binder: what it decides", "scheduler: which node it gives"}
"""Places at which Headgate decides and does something about pods, so that it places them in these runs."""

HOLD_QUOTA = {"fold: quota reserved", "fold: admitted", "call"}
"""Places at which the one has been given its quota, whatever the number of jobs."""


def cell(jobs: int, *, placing: bool = False) -> World:
    """Two ClusterQueues of a cohort with room for a tenth of the jobs; snapshots are taken all the time."""
    rules = Rules(commits=50, every_ms=2_000, idle_ms=1_000)
    machines = MACHINES_PLACING if placing else MACHINES
    world = World(contain=True, machines={**machines, Producer.SNAPSHOTTER: partial(Snapshotter, rules=rules)})
    world.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        kueue("ResourceFlavor", "spot", {}),
        node("n", "spot", 1000, taint=False),
    )
    for name in ("a", "b"):
        quotas = [{"name": "cpu", "nominalQuota": str(max(2, jobs // 20))}, {"name": "memory", "nominalQuota": "64Gi"}]
        groups = [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "spot", "resources": quotas}]}]
        spec = {"namespaceSelector": {}, "cohortName": "all", "resourceGroups": groups}
        world.apply(
            kueue("ClusterQueue", name, spec), kueue("LocalQueue", f"main-{name}", {"clusterQueue": name}, "team")
        )
    rng = random.Random(0)
    for number in range(jobs):
        made = job(f"j{number}", "team", rng, 1, 1, RUN_MS, "")
        made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = f"main-{'ab'[number % 2]}"
        world.create(placed_by_headgate(made) if placing else made)
    return world


def played(world: World) -> World:
    """The run to its end. Every process is killed five times on the way, and starts from a snapshot if there is one."""
    for _ in range(RESTARTS):
        world.run(until_ms=world.clock.now_ms + BETWEEN_MS)
        restart(world)
    world.run(until_ms=world.clock.now_ms + HORIZON_MS)
    return world


def edit(world: World, name: str) -> None:
    """Change the Job of this name and its Workload, so that the log and the watches have more events about them."""
    before = world.state.position
    paths = [f"/apis/batch/v1/namespaces/team/jobs/{name}"]
    names = [each["metadata"]["name"] for each in world.cluster.objects(WORKLOADS)]
    paths += [
        f"/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/{each}"
        for each in names
        if is_of(name, f"team/{each}")
    ]
    labels = {"kueue.x-k8s.io/max-exec-time-seconds": "86400"}
    for path in paths:
        body = msgspec.json.encode({"metadata": {"labels": labels, "annotations": {"edited": "yes"}}})
        assert world.cluster.request("PATCH", path, {}, body, "application/merge-patch+json").status == 200
    world.run(until_ms=world.clock.now_ms + HORIZON_MS)
    assert world.state.position > before


def restart(world: World) -> None:
    for instance in list(world.instances):
        world.crash(instance)


# --- what is compared ----------------------------------------------------------------------------------------------


def outcomes(world: World) -> dict[str, Any]:
    """What became of each object, by its key: see the module's text."""
    found: dict[str, Any] = {}
    for each in world.cluster.objects(JOBS):
        status = each.get("status", {})
        found[f"Job/{each['metadata']['name']}"] = (
            each["spec"].get("suspend", False),
            status.get("succeeded", 0),
            status.get("failed", 0),
            [each for each in conditions(each) if each[0] != "Suspended"],
        )
    for each in world.cluster.objects(WORKLOADS):
        metadata, spec = each["metadata"], each["spec"]
        found[f"Workload/{metadata['name']}"] = (
            spec.get("priority"),
            spec.get("queueName"),
            [owner["name"] for owner in metadata.get("ownerReferences", [])],
            metadata.get("finalizers"),
            each.get("status", {}).get("admission"),
            conditions(each),
        )
    for key, workload in world.state.workloads.items():
        found[f"state/{key}"] = workload.stage, workload.cluster_queue, workload.admission, workload.shape
    return found


def conditions(each: Any) -> Any:
    found = each.get("status", {}).get("conditions", [])
    return sorted((condition["type"], condition["status"], condition.get("reason")) for condition in found)


def without(found: dict[str, Any], name: str) -> dict[str, Any]:
    """What became of all but the Job of this name and its Workload."""
    return {key: value for key, value in found.items() if not is_of(name, f"team/{key.rpartition('/')[2]}")}


def used(state: State) -> dict[str, dict[str, int]]:
    found = {
        name: {f"{flavor}/{resource}": value for (flavor, resource), value in usage.items() if value}
        for name, usage in state.index.usage.items()
    }
    return {name: usage for name, usage in found.items() if usage}


def held(record: QuarantineRecord) -> dict[str, dict[str, int]]:
    """What an object in quarantine has of the quota."""
    return {record.cluster_queue: dict(record.charged)} if record.charged else {}


@pytest.fixture(scope="module")
def jobs(request: pytest.FixtureRequest) -> int:
    number: int = request.config.getoption("--defect-jobs")
    return number


@pytest.fixture(scope="module")
def sound(jobs: int) -> dict[str, Any]:
    """What becomes of the objects without a defect: every Job ends, and nothing is used any more."""
    world = played(cell(jobs))
    assert world.state.quarantine == {}
    assert not world.has_contained
    assert used(world.state) == {}
    found = outcomes(world)
    ended = [value for key, value in found.items() if key.startswith("Job/") and ends(value)]
    assert len(ended) == jobs
    return found


def ends(outcome: Any) -> bool:
    return ("Complete", "True") in {(kind, status) for kind, status, _ in outcome[-1]}


# --- the tests -----------------------------------------------------------------------------------------------------


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("place", PLANTS)
def test_all_but_the_one_end_as_without_the_defect(
    place: str, jobs: int, sound: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In quarantine it keeps its quota, and is reported; a corrected version releases it, and it ends, too."""
    world = cell(jobs, placing=place in PLACED)
    with PLANTS[place](BAD):
        played(world)
        assert without(outcomes(world), BAD) == without(sound, BAD)
        edit(world, BAD)
        restart(world)
        world.run(until_ms=world.clock.now_ms + HORIZON_MS)
        assert without(outcomes(world), BAD) == without(sound, BAD)
        records = list(world.state.quarantine.values())
        assert {record.kind for record in records} in ({"Job"}, {"Workload"}, {"Job", "Workload"}, {"Pod"})
        for record in records:
            assert is_of(BAD, record.key)
            assert "DefectError: planted" in record.error
            assert (record.where != "", record.position > 0) == (True, True)
            assert record.version == quarantine.VERSION
            check_told(world, record)
        check_quota(place, world, records)
        check_processes(world)
    monkeypatch.setattr(quarantine, "VERSION", "mended")
    world.upgrade()
    restart(world)
    world.run(until_ms=world.clock.now_ms + HORIZON_MS)
    assert world.state.quarantine == {}
    assert outcomes(world) == sound
    assert used(world.state) == {}


def check_quota(place: str, world: World, records: list[QuarantineRecord]) -> None:
    """What it holds is all that is used, in every process and in each that starts from what is stored."""
    charged = {queue: amounts for record in records for queue, amounts in held(record).items()}
    admitted = [each.workload for each in records if each.workload is not None and each.workload.stage in HOLDS_QUOTA]
    if place in HOLD_QUOTA or (admitted and not is_over(world)):
        assert charged
    for state in (world.state, fold.restore(world.cell, fold.encode(world.state))):
        holds = [each for each in state.workloads.values() if each.stage in HOLDS_QUOTA]
        assert all(is_of(BAD, each.key) for each in holds)
        if not holds:
            assert used(state) == charged


def is_over(world: World) -> bool:
    """Whether the Job of the one has ended all the same, so that nothing of it runs any more."""
    (found,) = [value for key, value in outcomes(world).items() if key == f"Job/{BAD}"]
    return ends(found)


def check_told(world: World, record: QuarantineRecord) -> None:
    """A condition on a Workload, an Event, the metric and /readyz show what is set aside."""
    name = record.key.rpartition("/")[2]
    if record.kind == "Workload":
        (workload,) = [each for each in world.cluster.objects(WORKLOADS) if each["metadata"]["name"] == name]
        (condition,) = [each for each in workload["status"]["conditions"] if each["type"] == quarantine.QUARANTINED]
        assert condition["status"] == "True"
        assert "DefectError: planted" in condition["message"]
    told = [each["regarding"] for each in world.cluster.objects(EVENTS) if each["reason"] == "Quarantined"]
    assert (record.kind, name) in {(each["kind"], each["name"]) for each in told}
    status = Status(process="binder", cell=world.cell, holder="h", health=DependencyHealth(), now_ms=world.clock)
    status.quarantine = lambda: tuple(world.state.quarantine)
    status.phase = Phase.LEADING
    report = status.report()
    assert (report.ready, report.quarantined) == (True, len(world.state.quarantine))
    assert f"{record.kind}/{record.key}" in report.quarantine
    metrics = Metrics()
    Observing(status, metrics, None, kueue=False)
    assert f"headgate_quarantined_objects {len(world.state.quarantine)}" in metrics.render()


def check_processes(world: World) -> None:
    """All six lead, each with the state of all others, and no workload is lost."""
    assert world.has_contained, "the defect has shown"
    assert world.crashes >= RESTARTS * len(MACHINES)
    assert world.restored >= RESTARTS * (len(MACHINES) - 1), "they have started from snapshots"
    assert {each.producer for each in world.instances if each.machine is not None} == set(MACHINES)
    for instance in world.instances:
        assert fold.encode(instance.state) == fold.encode(world.state)
    assert forgotten(world.state, settled=True) == []
