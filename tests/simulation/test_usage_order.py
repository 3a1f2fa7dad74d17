"""Admission fair sharing in the whole system: LocalQueues take turns, their statuses say what they used."""

import random
from typing import Any

import msgspec
import pytest
from tests.simulation.scenarios import job, kueue, node
from tests.simulation.test_seeds import JOBS, faults_of

from headgate.core import fold
from headgate.core.audit.invariants import forgotten
from headgate.events.base import Producer
from headgate.events.configuration import AdmissionFairSharingConfiguration, Configuration
from headgate.events.facts import ConfigurationObserved
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.testing.cluster.kinds import BY_PLURAL
from headgate.testing.world.world import MACHINES, NO_FAULTS, FaultRates, World

LOCAL_QUEUES = BY_PLURAL["kueue.x-k8s.io", "localqueues"]
START_MS = 1_700_000_000_000
INTERVAL_MS, HALF_LIFE_MS = 5_000, 60_000
FAIR = Configuration(
    admission_fair_sharing=AdmissionFairSharingConfiguration(
        usage_half_life_ms=HALF_LIFE_MS, usage_sampling_interval_ms=INTERVAL_MS
    )
)


def cell(faults: FaultRates = NO_FAULTS, seed: int = 0) -> World:
    """One node, one CPU of quota, and two LocalQueues, `team-a/greedy` and `team-a/modest`."""
    machines = {
        **MACHINES,
        Producer.INFORMER_BRIDGE: lambda state: InformerBridge(state, ConfigurationObserved(configuration=FAIR)),
    }
    world = World(seed=seed, faults=faults, machines=machines)
    quotas = [{"name": "cpu", "nominalQuota": "1"}, {"name": "memory", "nominalQuota": "64Gi"}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "spot", "resources": quotas}]}]
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    spec = {"namespaceSelector": {}, "resourceGroups": groups, "admissionScope": scope}
    world.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
        kueue("ResourceFlavor", "spot", {}),
        node("n", "spot", 16, taint=False),
        kueue("ClusterQueue", "cq", spec),
        kueue("LocalQueue", "greedy", {"clusterQueue": "cq"}, "team-a"),
        kueue("LocalQueue", "modest", {"clusterQueue": "cq"}, "team-a"),
    )
    return world


def submit(world: World, name: str, queue: str, run_ms: int = 4_000) -> None:
    made: dict[str, Any] = job(name, "team-a", random.Random(0), 1, 1, run_ms, "")
    made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = queue
    world.create(made)


def run(world: World, for_ms: int) -> None:
    until_ms = world.clock.now_ms + for_ms
    world.run(until_ms=until_ms)
    world.advance(until_ms)


def ended(world: World) -> list[str]:
    """Jobs in the order in which they were completed."""
    done = [each for each in world.cluster.objects(JOBS) if each.get("status", {}).get("completionTime")]
    return [each["metadata"]["name"] for each in sorted(done, key=lambda each: str(each["status"]["completionTime"]))]


def fair_status(world: World, name: str) -> dict[str, Any]:
    (found,) = [each for each in world.cluster.objects(LOCAL_QUEUES) if each["metadata"]["name"] == name]
    shown: dict[str, Any] = found.get("status", {}).get("fairSharing", {}).get("admissionFairSharingStatus", {})
    return shown


def test_the_jobs_of_a_modest_queue_do_not_wait_behind_all_of_a_greedy_one() -> None:
    """First come first served would run all of the greedy queue's first; by usage the two take turns."""
    world = cell()
    for number in range(4):
        submit(world, f"greedy-{number}", "greedy")
        run(world, 100)
    for number in range(2):
        submit(world, f"modest-{number}", "modest")
        run(world, 100)
    run(world, 60_000)
    turns = [name.partition("-")[0] for name in ended(world)]
    assert turns == ["greedy", "modest", "greedy", "modest", "greedy", "greedy"]


def test_a_local_queue_shows_what_it_has_used_and_how_it_fades() -> None:
    """In its status, brought up to date an interval at a time, until nothing is left to say."""
    world = cell()
    submit(world, "long", "greedy", run_ms=HALF_LIFE_MS)
    run(world, HALF_LIFE_MS)
    consumed = fair_status(world, "greedy")["consumedResources"]
    assert 0.45 < float(consumed["cpu"].removesuffix("n")) / 1e9 < 0.62, "half of one core, and what its entry cost"
    assert fair_status(world, "modest") == {}
    run(world, 10 * INTERVAL_MS)
    later = fair_status(world, "greedy")
    assert 0 < int(later["consumedResources"]["cpu"].removesuffix("n")) < int(consumed["cpu"].removesuffix("n"))
    run(world, 100 * HALF_LIFE_MS)
    assert fair_status(world, "greedy") == {}


def test_a_log_that_begins_anew_goes_on_from_the_statuses() -> None:
    """A cell that has lost its log takes the usage from the LocalQueues."""
    world = cell()
    submit(world, "long", "greedy", run_ms=HALF_LIFE_MS)
    run(world, HALF_LIFE_MS // 2)
    known = fair_status(world, "greedy")["consumedResources"]
    anew = cell()
    remembered = {"consumedResources": known, "lastUpdate": "2023-11-14T22:13:20Z"}
    status = {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": remembered}}
    path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/localqueues/greedy/status"
    body = msgspec.json.encode({"status": status})
    assert anew.cluster.request("PATCH", path, {}, body, "application/merge-patch+json").status == 200
    run(anew, 1_000)
    (used,) = anew.state.local_queue_usage.values()
    assert f"{int(used.consumed['cpu'] * 10**9)}n" == known["cpu"]
    assert fair_status(anew, "greedy")["consumedResources"] == known


@pytest.mark.parametrize("seed", range(6))
def test_every_job_runs_whatever_goes_wrong(seed: int) -> None:
    """Crashes, lost responses and rivals: no workload is lost, and a restored state has the same order."""
    world = cell(faults_of(seed), seed)
    for number in range(4):
        submit(world, f"greedy-{number}", "greedy")
        submit(world, f"modest-{number}", "modest")
    run(world, 300_000)
    assert len(ended(world)) == 8
    assert forgotten(world.state, settled=True) == []
    restored = fold.restore("sim", fold.encode(world.state))
    assert restored.index.local_queue_usage == world.state.index.local_queue_usage
    assert restored.index.admitted_usage == world.state.index.admitted_usage == {}
