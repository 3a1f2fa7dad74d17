"""
The whole system under a seed, with two flavors in racks, preemption, and nodes that fail in every way and come back.

What fails is drawn: a node is deleted, not ready, tainted, or cordoned and drained; often several at once. Every Job
ends nevertheless, and then nothing is held. A failure names its seed; `--first-seed SEED --seeds 25` runs it again.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec
from tests.fuzz.topology_judge import Places
from tests.simulation.scenarios import job, kueue, placed_by_headgate
from tests.simulation.test_elastic_jobs import run
from tests.simulation.test_seeds import JOBS, faults_of
from tests.simulation.test_topologies import DEFAULTS, HOST, NODES, PODS, RACK
from tests.simulation.topology_oracle import indexed_otherwise
from tests.support.forging import verified

from headgate.adapters.log import LogEntry
from headgate.core.audit.invariants import forgotten
from headgate.core.kubernetes.conditions import rfc3339
from headgate.core.machine.contract import Machine
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit
from headgate.events.ids import UnixMs
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.testing.world.world import MACHINES, SCHEDULER_CONFIGURATION, FaultRates, World

FLAVORS: Final = ("fast", "slow")
RACKS, HOSTS, CPUS = 2, 3, 2
"""Racks of a flavor, hosts of a rack, CPUs of a host."""
REQUESTS: Final = (
    {"podset-required-topology": RACK},
    {"podset-required-topology": HOST},
    {"podset-preferred-topology": RACK},
    {"podset-unconstrained-topology": "true"},
    {"podset-preferred-topology": RACK, "podset-slice-required-topology": HOST, "podset-slice-size": "2"},
)
HORIZON_MS: Final = 4 * 3600_000
Json = dict[str, Any]


def node(flavor: str, rack: int, number: int) -> Json:
    name = f"{flavor}-{rack}-{number}"
    resources = {"cpu": str(CPUS), "memory": "64Gi", "pods": "50"}
    labels = {"flavor": flavor, RACK: f"{flavor}-{rack}", HOST: name}
    status = {"allocatable": resources, "capacity": resources, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def furniture(rng: random.Random) -> list[Json]:
    """Two flavors in racks, and two queues with quota for three quarters of them, in a cohort in half the seeds."""
    nominal = RACKS * HOSTS * CPUS * 3 // 8
    cohort = {"cohortName": "all"} if rng.random() < 0.5 else {}
    preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    quotas = [{"name": "cpu", "nominalQuota": str(nominal)}, {"name": "memory", "nominalQuota": "64Gi"}]
    flavors = [{"name": flavor, "resources": quotas} for flavor in FLAVORS]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption, **cohort}
    return [
        kueue("Topology", "racks", {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]}),
        *(kueue("ResourceFlavor", name, {"nodeLabels": {"flavor": name}, "topologyName": "racks"}) for name in FLAVORS),
        *(node(flavor, rack, number) for flavor in FLAVORS for rack in range(RACKS) for number in range(HOSTS)),
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": "high"},
            "value": 9,
        },
        *(kueue("ClusterQueue", team, spec) for team in ("a", "b")),
        *({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}} for team in ("a", "b")),
        *(kueue("LocalQueue", "main", {"clusterQueue": team}, team) for team in ("a", "b")),
    ]


def is_possible(request: dict[str, str], pods: int) -> bool:
    """Whether so many pods fit into what they require, and are whole slices."""
    if request.get("podset-required-topology") == HOST:
        return pods <= CPUS
    return pods % int(request.get("podset-slice-size", "1")) == 0


def gang(name: str, rng: random.Random) -> Json:
    """A Job of up to a rack, that ends after a while, with a topology request."""
    pods = rng.choice((1, 2, 2, 4))
    request = rng.choice([each for each in REQUESTS if is_possible(each, pods)])
    made: Json = job(name, rng.choice("ab"), rng, 1, pods, rng.randint(1_000, 40_000), rng.choice(("", "", "high")))
    made["spec"] |= {"completionMode": "Indexed", "backoffLimit": 100_000}
    annotations = made["spec"]["template"]["metadata"]["annotations"]
    annotations |= {f"kueue.x-k8s.io/{name}": value for name, value in request.items()}
    return made


class Nodes:
    """Nodes that fail, and come back."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._back: dict[str, Callable[[str], None]] = {}

    def fail(self) -> None:
        """One that is well fails in one of four ways; if all have failed, none."""
        names = [each["metadata"]["name"] for each in self._world.cluster.objects(NODES)]
        well = [name for name in names if name not in self._back]
        if well:
            name = self._rng.choice(well)
            self._back[name] = self._rng.choice((self._delete, self._unready, self._taint, self._cordon))(name)

    def recover(self) -> None:
        """One that has failed is as before."""
        if self._back:
            name = self._rng.choice(sorted(self._back))
            self._back.pop(name)(name)

    def recover_all(self) -> None:
        while self._back:
            self.recover()

    def _patch(self, name: str, body: Json, subresource: str = "") -> None:
        body_bytes = msgspec.json.encode(body)
        path = f"/api/v1/nodes/{name}{subresource}"
        answer = self._world.cluster.request("PATCH", path, {}, body_bytes, "application/merge-patch+json")
        assert answer.status == 200, answer

    def _drain(self, name: str) -> None:
        for pod in self._world.cluster.objects(PODS):
            if pod["spec"].get("nodeName") == name:
                meta = pod["metadata"]
                self._world.cluster.request("DELETE", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}")

    def _delete(self, name: str) -> Callable[[str], None]:
        flavor, rack, number = name.split("-")
        assert self._world.cluster.request("DELETE", f"/api/v1/nodes/{name}").status == 200
        self._drain(name)
        return lambda _: self._world.apply(node(flavor, int(rack), int(number)))

    def _unready(self, name: str) -> Callable[[str], None]:
        def set_ready(status: str) -> None:
            at = rfc3339(UnixMs(self._world.clock.now_ms))
            condition = {"type": "Ready", "status": status, "lastTransitionTime": at}
            self._patch(name, {"status": {"conditions": [condition]}}, "/status")

        set_ready("Unknown")
        if self._rng.random() < 0.7:
            self._drain(name)
        return lambda _: set_ready("True")

    def _taint(self, name: str) -> Callable[[str], None]:
        effect = self._rng.choice(("NoSchedule", "NoExecute"))
        self._patch(name, {"spec": {"taints": [{"key": "broken", "effect": effect}]}})
        if effect == "NoExecute":
            self._drain(name)
        return lambda _: self._patch(name, {"spec": {"taints": None}})

    def _cordon(self, name: str) -> Callable[[str], None]:
        taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        self._patch(name, {"spec": {"unschedulable": True, "taints": [taint]}})
        if self._rng.random() < 0.8:
            self._drain(name)
        return lambda _: self._patch(name, {"spec": {"unschedulable": None, "taints": None}})


def unfinished(world: World) -> list[str]:
    """The Jobs that are not Complete."""
    return [
        each["metadata"]["name"]
        for each in world.cluster.objects(JOBS)
        if not any(condition["type"] == "Complete" for condition in each["status"].get("conditions", ()))
    ]


Note = Callable[[World, State, LoggedCommit], None]


def play(
    seed: int, faults: FaultRates, note: Note, sink: Callable[[int, str, int, bytes], None] | None = None
) -> tuple[World, Nodes]:
    """
    A run up to a time at which some nodes have failed, and most gangs may have ended. `note` gets every commit.

    In every third seed Headgate places the pods, and not the cluster.

    Returns the nodes too, to let them recover.
    """
    rng = random.Random(f"topologies-{seed}")
    placing = SCHEDULER_CONFIGURATION if seed % 3 == 1 else None
    machines: dict[Producer, Callable[[State], Machine]] = {**MACHINES}
    machines[Producer.INFORMER_BRIDGE] = partial(InformerBridge, new_log=DEFAULTS, placing=placing)

    def check(state: State, logged: LoggedCommit) -> None:
        note(world, state, logged)

    world = World(seed=seed, faults=faults, check=check, machines=machines, sink=sink)
    world.apply(*furniture(rng))
    nodes = Nodes(world, rng)
    for number in range(12):
        made = gang(f"gang-{number}", rng)
        world.create(made if placing is None else placed_by_headgate(made))
        run(world, rng.choice((100, 1_000, 8_000)))
        for _ in range(rng.choice((0, 1, 1, 3))):
            rng.choice((nodes.fail, nodes.fail, nodes.recover))()
    run(world, rng.randrange(60_000))
    return world, nodes


def test_whatever_fails_every_gang_ends_and_nothing_is_held(verified_seed: int) -> None:
    """At every commit domains hold what they have room for. What was recorded is decided again as it was."""
    places, entries = Places(), list[LogEntry]()
    world, nodes = play(
        verified_seed, faults_of(verified_seed), places.commit, lambda *entry: entries.append(LogEntry(*entry))
    )
    nodes.recover_all()
    horizon_ms = world.clock.now_ms + HORIZON_MS
    while (unfinished(world) or world.failing()) and world.clock.now_ms < horizon_ms:
        run(world, 10_000)
    run(world, 10_000)
    state = world.state
    assert unfinished(world) == []
    assert list(forgotten(state)) == []
    assert places.judged > 0
    assert indexed_otherwise(state) == []
    assert not any(any(use.values()) for of in state.index.topology_usage.values() for use in of.values())
    assert not any(any(use.values()) for use in state.index.usage.values())
    verification = verified(tuple(entries))
    assert verification.differences == ()
    assert verification.cycles > 0
    assert verification.compared["pods sent to domains"] > 0
