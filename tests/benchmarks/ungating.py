"""
What sending pods to their topology domains costs: the ungater's machine, and memory for each node and each pod.

Ten admitted gangs of 500 pods are on 640 nodes, 8 pods to a node. All of their pods appear behind the gate, in commits
of 500, as the bridge reads them from the API server's JSON. The ungater's machine chooses a domain for each, by rank,
records it, patches it, and sees each pod without its gate; every patch succeeds. What is quoted is CPU time with
encoding, signing and network left out, and by how much the memory of Python grew.
"""

import gc
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from tests.benchmarks.lives import CELL, START_MS, Writer
from tests.benchmarks.measure import Report, Row, profiled
from tests.benchmarks.placing import LEVELS, nodes, tree_of

from headgate.core import fold
from headgate.core.config import feature_gates
from headgate.core.machine.contract import Append, Call, Committed, Completed, Settled, Stimulus
from headgate.core.reading.decoding import read
from headgate.core.topology.assignments import HOSTNAME, Domain, Placement
from headgate.core.topology.encoding import compressed
from headgate.events import decisions, facts
from headgate.events.base import EventBase, Producer
from headgate.events.commit import LoggedCommit
from headgate.events.configuration import Configuration
from headgate.events.ids import LocalQueueKey, Uid, UnixMs, WorkloadKey
from headgate.events.objects import (
    Admission,
    Container,
    LocalQueueSpec,
    PodSet,
    PodSetAssignment,
    PodSpec,
    PodTemplate,
    ResourceFlavorSpec,
    Resources,
    TopologyLevel,
    TopologyRequest,
    TopologySpec,
    WorkloadSpec,
)
from headgate.machines.ungater.decide import Ungater

GANGS, GANG, ON_A_NODE = 10, 500, 8
PODS: Final = GANGS * GANG
NODES: Final = 640
PER_S_MIN: Final = 2_000
INDEX = "batch.kubernetes.io/job-completion-index"
BRIDGE, SCHEDULER, UNGATER = Producer.INFORMER_BRIDGE, Producer.SCHEDULER, Producer.UNGATER


def key_of(gang: int) -> WorkloadKey:
    """The Workload of a gang."""
    return WorkloadKey(f"team/job-train-{gang}-3f2a1")


def pod(gang: int, index: int, node: str = "") -> EventBase:
    """The fact of a pod as the API server shows it; with a node, without its gate."""
    manifest: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"train-{gang}-{index}-x7k2p",
            "namespace": "team",
            "uid": f"7a1c0000-0000-4000-{gang:04d}-{index:012d}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                INDEX: str(index),
                "batch.kubernetes.io/controller-uid": f"7a1c0000-0000-4000-8000-{gang:012d}",
                "batch.kubernetes.io/job-name": f"train-{gang}",
                "kueue.x-k8s.io/podset": "main",
            },
            "annotations": {
                "kueue.x-k8s.io/workload": key_of(gang).partition("/")[2],
                "kueue.x-k8s.io/podset-required-topology": "zone",
            },
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": f"train-{gang}",
                    "uid": f"7a1c0000-0000-4000-8000-{gang:012d}",
                    "controller": True,
                }
            ],
        },
        "spec": {
            "containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "8", "memory": "32Gi"}}}],
            "nodeSelector": {"pool": "a", **({HOSTNAME: node} if node else {})},
            "schedulingGates": [] if node else [{"name": "kueue.x-k8s.io/topology"}],
        },
        "status": {"phase": "Pending"},
    }
    fact = read("pods", msgspec.json.encode(manifest)).fact
    assert isinstance(fact, facts.PodObserved)
    return fact


def cluster() -> Iterator[EventBase]:
    """The configuration, nodes, flavor and queues."""
    yield facts.ConfigurationObserved(configuration=Configuration(feature_gates=feature_gates.effective({})))
    yield facts.NamespaceObserved(name="team")
    spec = TopologySpec(levels=tuple(TopologyLevel(node_label=level) for level in LEVELS))
    yield facts.TopologyObserved(name="default", spec=spec)
    yield facts.ResourceFlavorObserved(name="tas", spec=ResourceFlavorSpec(topology_name="default"))
    yield facts.LocalQueueObserved(queue=LocalQueueKey("team/main"), spec=LocalQueueSpec(cluster_queue="cq"))
    for node in nodes(NODES):
        yield facts.NodeObserved(name=node.name, node=node)
    yield facts.InformersSynced()


def admitted(gang: int) -> tuple[facts.WorkloadObserved, decisions.QuotaReserved, decisions.WorkloadAdmitted]:
    """A gang that has its domains: a Workload that was created by hand."""
    requests: dict[str, str | int | float] = {"cpu": "8", "memory": "32Gi"}
    template = PodTemplate(spec=PodSpec(containers=(Container(resources=Resources(requests=requests)),)))
    request = TopologyRequest(required="zone", pod_index_label=INDEX)
    pod_set = PodSet(count=GANG, template=template, topology_request=request)
    uid = Uid(f"uid-{gang}")
    first = gang * GANG
    names = [f"n{pod // ON_A_NODE:06}" for pod in range(first, first + GANG)]
    domains = tuple(Domain((name,), names.count(name)) for name in dict.fromkeys(names))
    assignment = PodSetAssignment(
        flavors={"cpu": "tas"},
        resource_usage={"cpu": str(8 * GANG)},
        count=GANG,
        topology_assignment=compressed(Placement((HOSTNAME,), domains), by_hostname_prefix=True),
    )
    about: dict[str, Any] = {"workload": key_of(gang), "uid": uid, "cluster_queue": "cq", "message": "m"}
    return (
        facts.WorkloadObserved(
            workload=key_of(gang),
            uid=uid,
            created_ms=START_MS,
            spec=WorkloadSpec(queue_name="main", pod_sets=(pod_set,)),
        ),
        decisions.QuotaReserved(**about, admission=Admission(cluster_queue="cq", pod_set_assignments=(assignment,))),
        decisions.WorkloadAdmitted(**about),
    )


class Ungating:
    """The ungater's machine, its log, and an API server that accepts every patch."""

    def __init__(self) -> None:
        self.writer = Writer()
        self.state = fold.new_state(CELL)
        self._apply(BRIDGE, *cluster())
        for gang in range(GANGS):
            observed, *decided = admitted(gang)
            self._apply(BRIDGE, observed)
            self._apply(SCHEDULER, *decided)
        self.machine = Ungater(self.state)
        self.now_ms = int(START_MS)
        self.assigned = self.commits = self.patches = 0

    def _apply(self, producer: Producer, *events: EventBase) -> LoggedCommit:
        logged = self.writer.logged(producer, *events)
        fold.apply(self.state, logged)
        return logged

    def say(self, producer: Producer, *events: EventBase) -> None:
        """A commit that the machine sees."""
        self._decide(Committed(self._apply(producer, *events)))

    def _decide(self, stimulus: Stimulus) -> list[Call]:
        calls = []
        for command in self.machine.decide(stimulus):
            match command:
                case Append():
                    self.commits += 1
                    self.assigned += sum(
                        len(domain.pods)
                        for event in command.events
                        if isinstance(event, decisions.PodsAssigned)
                        for domain in event.domains
                    )
                    self.say(UNGATER, *command.events)
                case Call():
                    calls.append(command)
                case _:
                    pass
        return calls

    def rest(self) -> None:
        """Carry out all patches, and show the pods without their gates, until none is gated."""
        for _ in range(PODS):
            calls = self._decide(Settled(UnixMs(self.now_ms)))
            if not calls:
                if not any(record.pod.spec.scheduling_gates for record in self.state.pods.values()):
                    return
                self.now_ms += 1000
                continue
            self.patches += len(calls)
            seen = []
            for call in calls:
                _, gang, index, _ = call.path.rpartition("/")[2].split("-")
                self._decide(Completed(call.id, 200))
                seen.append(pod(int(gang), int(index), call.body[-1]["value"][HOSTNAME]))
            self.say(BRIDGE, *seen)
        raise AssertionError("pods are left behind their gates")


def pods() -> list[list[EventBase]]:
    """All gated pods, as commits."""
    return [[pod(gang, index) for index in range(GANG)] for gang in range(GANGS)]


def run(*, profile: bool = False) -> Report:
    """All of it."""
    report = Report(name="ungating", rows=[_ungating(), _pod_memory(), *_node_memory()])
    if profile:
        report.profile = profiled(_ungating)
    return report


def _ungating() -> Row:
    ungating, commits = Ungating(), pods()
    begun = time.process_time()
    for events in commits:
        ungating.say(BRIDGE, *events)
    ungating.rest()
    per_s = PODS / (time.process_time() - begun)
    assert (ungating.assigned, ungating.patches) == (PODS, PODS), "each pod is sent once"
    return Row(
        what=f"{PODS:,} gated pods of {GANGS} gangs are sent to their nodes",
        figure=f"{per_s:,.0f}/s",
        target=f">= {PER_S_MIN:,}/s",
        met=per_s >= PER_S_MIN,
        compared=f"{ungating.commits} commits of the ungater, {ungating.patches:,} patches",
    )


def _pod_memory() -> Row:
    ungating = Ungating()
    tracemalloc.start()
    for events in pods():
        ungating.say(BRIDGE, *events)
        del events
    ungating.rest()
    gc.collect()
    whole, _ = tracemalloc.get_traced_memory()
    machine, ungating.machine = ungating.machine, Ungater(fold.new_state(CELL))
    del machine
    gc.collect()
    state, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Row(
        what="memory for a topology-aware pod, in the ungater",
        figure=f"{whole / PODS:,.0f} bytes",
        compared=f"{state / PODS:,.0f} of them in the state, as in every process",
    )


def _node_memory() -> Iterator[Row]:
    for count in (640, 5_000):
        tracemalloc.start()
        state = fold.new_state(CELL)
        writer = Writer()
        raw = [msgspec.json.encode(facts.NodeObserved(name=node.name, node=node)) for node in nodes(count)]
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for each in raw:
            fold.apply(state, writer.logged(BRIDGE, msgspec.json.decode(each, type=facts.NodeObserved)))
        gc.collect()
        folded, _ = tracemalloc.get_traced_memory()
        tree = tree_of(count)
        gc.collect()
        with_tree, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        del tree
        yield Row(
            what=f"memory for a node of {count:,}, in the state",
            figure=f"{(folded - before) / count:,.0f} bytes",
            compared=f"{(with_tree - folded) / count:,.0f} more in the tree of a flavor, in the scheduler",
        )
