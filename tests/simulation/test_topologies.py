"""Topology-aware scheduling in the whole system: where pods land, and what becomes of them when nodes fail."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.fuzz.topology_judge import Places
from tests.simulation.scenarios import job as a_job
from tests.simulation.scenarios import kueue
from tests.simulation.test_elastic_jobs import is_true, run
from tests.simulation.test_seeds import JOBS, WORKLOADS, faults_of
from tests.simulation.topology_oracle import crowded, indexed_otherwise, overfull, scattered
from tests.support.forging import decoded, folded, forged, verified

from headgate.adapters.log import LogEntry
from headgate.core.audit.invariants import forgotten
from headgate.core.state.tables import State
from headgate.core.topology.assignments import expand
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit
from headgate.events.decisions import PodsAssigned, PodsOfDomain
from headgate.events.facts import ConfigurationObserved
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.processes.runtime.configuration_files import KUEUES_DEFAULTS, KUEUES_DOCUMENT
from headgate.testing.cluster.kinds import BY_PLURAL
from headgate.testing.world.world import MACHINES, NO_FAULTS, FaultRates, World

NODES, PODS = BY_PLURAL["", "nodes"], BY_PLURAL["", "pods"]
START_MS = 1_700_000_000_000
FAULTS_END_MS = START_MS + 150_000
GATE = "kueue.x-k8s.io/topology"
HOST, RACK = "kubernetes.io/hostname", "example.com/rack"
INDEX = "batch.kubernetes.io/job-completion-index"
DEFAULTS = ConfigurationObserved(configuration=KUEUES_DEFAULTS, document=KUEUES_DOCUMENT)
CPUS = 2
"""Of each node; a pod takes one."""


def node(name: str, rack: str) -> dict[str, Any]:
    resources = {"cpu": str(CPUS), "memory": "64Gi", "pods": "50"}
    labels = {"tas": "yes", RACK: rack, HOST: name}
    status = {"allocatable": resources, "capacity": resources, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def cell(
    faults: FaultRates = NO_FAULTS,
    seed: int = 0,
    *,
    nodes: int = 4,
    said: list[str] | None = None,
    sink: Callable[[int, str, int, bytes], None] | None = None,
) -> World:
    """Two racks `r0` and `r1` of so many nodes each, `r0-0` and so on, and one queue; every commit is judged."""
    places = Places()

    def note(state: State, logged: LoggedCommit) -> None:
        places.commit(world, state, logged)
        if said is not None:
            said.extend(type(event).__name__ for event in logged.commit.events)

    machines = {**MACHINES, Producer.INFORMER_BRIDGE: lambda state: InformerBridge(state, new_log=DEFAULTS)}
    world = World(seed=seed, faults=faults, check=note, machines=machines, sink=sink)
    quotas = [{"name": "cpu", "nominalQuota": "64"}, {"name": "memory", "nominalQuota": "64Gi"}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "tas", "resources": quotas}]}]
    world.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}},
        kueue("Topology", "racks", {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]}),
        kueue("ResourceFlavor", "tas", {"nodeLabels": {"tas": "yes"}, "topologyName": "racks"}),
        *(node(f"r{rack}-{number}", f"r{rack}") for rack in range(2) for number in range(nodes)),
        kueue("ClusterQueue", "cq", {"namespaceSelector": {}, "resourceGroups": groups}),
        kueue("LocalQueue", "main", {"clusterQueue": "cq"}, "team-a"),
    )
    return world


def gang(name: str, pods: int, level: str = RACK) -> dict[str, Any]:
    """An Indexed Job that runs for ever and has to fit into one domain of a level."""
    made: dict[str, Any] = a_job(name, "team-a", random.Random(1), 1, pods, 10**9, "")
    made["spec"] |= {"completionMode": "Indexed", "backoffLimit": 1000}
    made["spec"]["template"]["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] = level
    return made


def alive(world: World, name: str) -> dict[int, dict[str, Any]]:
    """The pods of a Job that have not ended, by index."""
    mine = [pod for pod in world.cluster.objects(PODS) if pod["metadata"]["name"].startswith(f"{name}-")]
    left = [pod for pod in mine if pod["status"]["phase"] in {"Pending", "Running"}]
    found = {int(pod["metadata"]["labels"][INDEX]): pod for pod in left if "deletionTimestamp" not in pod["metadata"]}
    return dict(sorted(found.items()))


def landed(world: World, name: str) -> list[str]:
    """The nodes of a Job's pods, by index; "" for one that has none."""
    return [pod["spec"].get("nodeName", "") for pod in alive(world, name).values()]


def assigned(world: World, name: str) -> list[str]:
    """The nodes that a Job's pods were assigned to, in order; none without an assignment."""
    (workload,) = [each for each in world.state.workloads.values() if each.key.startswith(f"team-a/job-{name}-")]
    if workload.admission is None:
        return []
    assignment = workload.admission.pod_set_assignments[0].topology_assignment
    assert assignment is not None
    return [domain.values[-1] for domain in expand(assignment).domains for _ in range(domain.pods)]


def lose(world: World, name: str) -> None:
    """A node is gone, and the pods that were on it."""
    assert world.cluster.request("DELETE", f"/api/v1/nodes/{name}").status == 200
    for pod in world.cluster.objects(PODS):
        if pod["spec"].get("nodeName") == name:
            path = f"/api/v1/namespaces/team-a/pods/{pod['metadata']['name']}"
            world.cluster.request("DELETE", path, {"gracePeriodSeconds": "0"})


def test_each_pod_of_a_gang_lands_on_the_node_of_its_rank() -> None:
    """In one rack, in the order of their indexes; all domains are in the log in few commits."""
    said: list[str] = []
    world = cell(nodes=16, said=said)
    world.create(gang("train", 32))
    run(world, 60_000)
    nodes = landed(world, "train")
    assert nodes == assigned(world, "train")
    assert len(nodes) == 32
    assert len({each.partition("-")[0] for each in nodes}) == 1
    assert set(Counter(nodes).values()) == {CPUS}
    assert not any(pod["spec"].get("schedulingGates") for pod in alive(world, "train").values())
    assert 1 <= said.count("PodsAssigned") <= 8


def test_the_pods_of_a_node_that_is_gone_move_within_their_rack() -> None:
    """The others stay where they are; the failed node is forgotten when it is replaced."""
    said: list[str] = []
    world = cell(said=said)
    world.create(gang("train", 4))
    run(world, 20_000)
    before = landed(world, "train")
    lose(world, before[0])
    run(world, 60_000)
    after = landed(world, "train")
    assert after == assigned(world, "train") or sorted(after) == assigned(world, "train")
    assert Counter(before) - Counter(after) == Counter({before[0]: 2})
    assert len({each.partition("-")[0] for each in [*before, *after]}) == 1
    assert said.count("WorkloadNodeFailed") == 1
    (found,) = world.cluster.objects(WORKLOADS)
    assert not found["status"].get("unhealthyNodes")
    assert not is_true(found, "Evicted")


def test_a_workload_that_no_node_is_left_for_is_evicted_and_queued_again() -> None:
    """Both nodes of its rack have failed, and the other rack is where it goes."""
    world = cell(nodes=2)
    world.create(gang("train", 4))
    run(world, 20_000)
    before = landed(world, "train")
    lose(world, before[0])
    lose(world, before[-1])
    run(world, 120_000)
    (found,) = world.cluster.objects(WORKLOADS)
    assert is_true(found, "Admitted")
    assert found["status"]["schedulingStats"]["evictions"] == [
        {"reason": "NodeFailures", "underlyingCause": "", "count": 1}
    ]
    after = landed(world, "train")
    assert after == assigned(world, "train")
    assert not set(after) & set(before)


def test_a_pod_that_others_bind_to_a_reserved_node_delays_the_gang_and_breaks_nothing() -> None:
    """
    It takes a place of the gang's: one pod waits for it, the workload keeps its domains, and nobody else gets more.

    When the other pod has ended, the last one of the gang lands where it was assigned.
    """
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    meta = {"name": "other", "namespace": "team-a", "annotations": {"headgate.dev/run-ms": "60000"}}
    other = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
    reserved: list[str] = []

    class Bound(list[str]):
        """Binds the other pod as soon as the gang has its domains, before its pods are there."""

        def extend(self, names: Iterable[str]) -> None:
            if "QuotaReserved" in names and not reserved:
                reserved.extend(assigned(world, "train"))
                world.apply(
                    {**other, "spec": {"nodeName": reserved[0], "restartPolicy": "Never", "containers": [container]}}
                )

    world = cell(nodes=2, said=Bound())
    world.create(gang("train", 4))
    run(world, 20_000)
    assert assigned(world, "train") == reserved
    assert Counter(landed(world, "train")) == Counter(reserved) - Counter([reserved[0]]) + Counter([""])
    assert world.state.index.taken[reserved[0]]["cpu"] == 1000
    assert not [*indexed_otherwise(world.state), *forgotten(world.state)]
    run(world, 120_000)
    assert sorted(landed(world, "train")) == sorted(reserved)
    assert reserved[0] not in world.state.index.taken


def test_a_stopped_gang_leaves_no_trace_in_its_job() -> None:
    """Gate, node selectors, labels and annotations are the user's again."""
    world = cell()
    world.create(gang("train", 4))
    (given,) = world.cluster.objects(JOBS)
    run(world, 20_000)
    (running,) = world.cluster.objects(JOBS)
    assert running["spec"]["template"]["spec"]["schedulingGates"] == [{"name": GATE}]
    (found,) = world.cluster.objects(WORKLOADS)
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/{found['metadata']['name']}"
    answer = world.cluster.request("PATCH", path, {}, b'{"spec": {"active": false}}', "application/merge-patch+json")
    assert answer.status == 200
    run(world, 60_000)
    (stopped,) = world.cluster.objects(JOBS)
    assert stopped["spec"]["suspend"] is True
    template, original = stopped["spec"]["template"], given["spec"]["template"]
    assert template["spec"] == original["spec"]
    assert template["metadata"]["annotations"] == original["metadata"]["annotations"]


@pytest.mark.parametrize("seed", range(6))
def test_whatever_goes_wrong_every_pod_ends_where_its_workload_is_assigned(seed: int) -> None:
    """
    Processes crash, calls fail or are lost, watches end, nodes fail meanwhile: no domain gets a pod too many.

    What was recorded on the way is decided again as it was.
    """
    entries: list[LogEntry] = []
    world = cell(faults_of(seed), seed, nodes=6, sink=lambda *entry: entries.append(LogEntry(*entry)))
    rng = random.Random(f"nodes-{seed}")
    gangs = {"one": 6, "two": 4, "three": 3}
    world.create(*(gang(name, pods) for name, pods in gangs.items()))
    for _ in range(2):
        run(world, rng.randrange(2_000, 30_000))
        lost = f"r{rng.randrange(2)}-{rng.randrange(6)}"
        if any(each["metadata"]["name"] == lost for each in world.cluster.objects(NODES)):
            lose(world, lost)
    run(world, FAULTS_END_MS + 1_200_000 - world.clock.now_ms)
    assert list(forgotten(world.state)) == []
    for name, pods in gangs.items():
        nodes = landed(world, name)
        assert len(nodes) == pods
        assert sorted(nodes) == sorted(assigned(world, name))
        assert len({each.partition("-")[0] for each in nodes}) == 1
    used = Counter(pod["spec"].get("nodeName") for name in gangs for pod in alive(world, name).values())
    assert max(used.values()) <= CPUS
    verification = verified(tuple(entries))
    assert verification.differences == ()
    assert verification.cycles > 0


def test_a_pod_that_was_sent_elsewhere_than_the_rule_says_is_found() -> None:
    """Verification decides the domain of each pod again; two pods that swapped their ranks are a difference."""
    entries: list[LogEntry] = []
    world = cell(sink=lambda *entry: entries.append(LogEntry(*entry)))
    world.create(gang("train", 4))
    run(world, 20_000)
    whole = verified(tuple(entries))
    assert (whole.differences, whole.compared["pods sent to domains"]) == ((), 4)
    index, logged = next(
        (index, logged)
        for index, logged in enumerate(decoded(tuple(entries)))
        if any(isinstance(event, PodsAssigned) for event in logged.commit.events)
    )
    (event,) = [event for event in logged.commit.events if isinstance(event, PodsAssigned)]
    values = [each.values for each in event.domains]
    swapped = tuple(replace(each, values=other) for each, other in zip(event.domains, reversed(values), strict=True))
    before = tuple(entries[:index])
    log = forged(
        before, folded(before), Producer.UNGATER, replace(event, domains=swapped), decided_at=logged.commit.decided_at
    )
    (found,) = verified(log).differences
    assert found.what.startswith("the domain of pod team-a/train-")


def test_the_oracle_finds_what_is_wrong() -> None:
    """A node that is too small for its pods, a gang in two racks, a pod too many, an index that is not kept."""
    world = cell()
    world.create(gang("train", 4))
    run(world, 20_000)
    state = world.state
    (key,) = state.workloads
    domains = (PodsOfDomain(values=(assigned(world, "train")[-1],), pods={}),)
    sent = PodsAssigned(workload=key, uid=state.workloads[key].uid, pod_set="main", domains=domains)
    assert not [*overfull(state, key), *scattered(state, key), *crowded(state, sent), *indexed_otherwise(state)]
    first, last = assigned(world, "train")[0], assigned(world, "train")[-1]
    whole = state.nodes[first]
    state.nodes[first] = replace(whole, allocatable={**whole.allocatable, "cpu": "1"})
    assert overfull(state, key)
    state.nodes[first] = replace(whole, labels={**whole.labels, RACK: "r9"})
    assert scattered(state, key)
    for record in state.pods.values():
        record.domain = (last,)
    assert crowded(state, sent)
    state.index.topology_usage["tas"][last,]["cpu"] += 1
    assert indexed_otherwise(state)
