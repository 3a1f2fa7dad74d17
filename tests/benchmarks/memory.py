"""
How much memory each process needs for a long line of pending workloads.

The log is what the bridge, the queue manager, the scheduler and the binder write of 100,000 Jobs of 10,000 distinct
shapes for which there is no quota: each Job and Workload is read from its JSON as the API server shows it (pod
templates with several containers, environment, volumes, labels), each shape sleeps after the verdict on its first
workload, whose status is written. Each kind of process folds this log in an interpreter of its own, as it keeps it,
with its machine made and called once; what is quoted is by how much its resident memory grew.
"""

import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from tests.benchmarks.lives import CELL, START_MS, Payload, Writer
from tests.benchmarks.measure import Report, Row, rss_mib

from headgate.core import fold
from headgate.core.machine.contract import Machine, Settled
from headgate.core.reading.decoding import read
from headgate.core.state.tables import State
from headgate.core.workload.job_workload import workload_of
from headgate.events import decisions, effects, facts, queueing
from headgate.events.base import EventBase, Producer
from headgate.events.commit import decode_commit
from headgate.events.ids import LocalQueueKey, Seq, Shape, Uid, UnixMs
from headgate.events.objects import (
    ClusterQueueSpec,
    FlavorQuotas,
    LabelSelector,
    LocalQueueSpec,
    Node,
    PodSetRequest,
    ResourceFlavorSpec,
    ResourceGroup,
    ResourceQuota,
)
from headgate.machines.binder.decide import Binder
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.machines.queue_manager.decide import QueueManager
from headgate.machines.scheduler.decide import Scheduler
from headgate.machines.snapshotter.decide import Snapshotter
from headgate.machines.ungater.decide import Ungater

WORKLOADS = 100_000
SHAPES = 10_000
QUEUES = 30
FLAVORS = ("on-demand", "spot")
COMMIT_SIZE = 500
EACH_MAX_MIB, ALL_MAX_MIB = 250, 700

MACHINES: dict[str, Callable[[State], Machine]] = {
    "informer-bridge": InformerBridge,
    "queue-manager": QueueManager,
    "scheduler": Scheduler,
    "binder": Binder,
    "ungater": Ungater,
    "snapshotter": Snapshotter,
}


class Held(msgspec.Struct, frozen=True):
    """What a process measured of itself: its memory after folding, and with its machine."""

    folded_mib: float
    settled_mib: float
    fold_s: float


# --- the log -------------------------------------------------------------------------------------------------------


def _cluster() -> tuple[EventBase, ...]:
    quotas = tuple(
        FlavorQuotas(
            name=flavor,
            resources=(
                ResourceQuota(name="cpu", nominal_quota="0"),
                ResourceQuota(name="memory", nominal_quota="0"),
                ResourceQuota(name="nvidia.com/gpu", nominal_quota="0"),
            ),
        )
        for flavor in FLAVORS
    )
    group = ResourceGroup(covered_resources=("cpu", "memory", "nvidia.com/gpu"), flavors=quotas)
    events: list[EventBase] = [
        facts.ResourceFlavorObserved(name=flavor, spec=ResourceFlavorSpec(node_labels={"type": flavor}))
        for flavor in FLAVORS
    ]
    allocatable: dict[str, str | int | float] = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    events += [
        facts.NodeObserved(
            name=f"n{n}", node=Node(name=f"n{n}", labels={"type": FLAVORS[n % 2]}, allocatable=allocatable)
        )
        for n in range(1000)
    ]
    for n in range(QUEUES):
        spec = ClusterQueueSpec(
            resource_groups=(group,), namespace_selector=LabelSelector(), cohort_name=f"cohort-{n % 5}"
        )
        events.append(facts.NamespaceObserved(name=f"team-{n}", labels={"kubernetes.io/metadata.name": f"team-{n}"}))
        events.append(facts.ClusterQueueObserved(name=f"q{n}", spec=spec, uid=Uid(f"uid-q{n}")))
        local = LocalQueueSpec(cluster_queue=f"q{n}")
        events.append(
            facts.LocalQueueObserved(queue=LocalQueueKey(f"team-{n}/main"), spec=local, uid=Uid(f"uid-lq{n}"))
        )
    return (*events, facts.InformersSynced())


def _container(name: str, kind: int) -> dict[str, Any]:
    requests = {"cpu": f"{100 + kind % 1000}m", "memory": f"{64 + kind // 1000}Mi"}
    return {
        "name": name,
        "image": f"registry.example.com/research/{name}:v{kind % 7}",
        "command": ["python", "-m", "train", f"--config=/etc/config/{kind}.yaml"],
        "env": [{"name": f"SETTING_{n}", "value": f"value-{n}-{kind}"} for n in range(12)],
        "resources": {"requests": requests, "limits": {**requests, "nvidia.com/gpu": "1"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "config", "mountPath": "/etc/config"}],
    }


def job_manifest(number: int) -> dict[str, Any]:
    """One of many Jobs, as the API server shows it."""
    kind = number % SHAPES
    team = kind % QUEUES
    name = f"train-resnet-{number}"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": f"team-{team}",
            "uid": f"7a1c0000-0000-4000-8000-{number:012d}",
            "resourceVersion": str(1000 + number),
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kueue.x-k8s.io/queue-name": "main", "app.kubernetes.io/name": "train", "owner": f"user-{kind}"},
        },
        "spec": {
            "suspend": True,
            "parallelism": 1 + kind % 4,
            "completions": 1 + kind % 4,
            "template": {
                "metadata": {"labels": {"batch.kubernetes.io/job-name": name, "app.kubernetes.io/name": "train"}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [_container("main", kind), _container("sidecar", 0)],
                    "initContainers": [_container("fetch", 1)],
                    "nodeSelector": {"topology.kubernetes.io/region": "eu-west-1", "disk": "ssd"},
                    "tolerations": [
                        {"key": "batch", "operator": "Exists", "effect": "NoSchedule"},
                        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                    ],
                    "volumes": [
                        {"name": "data", "persistentVolumeClaim": {"claimName": f"data-{kind}"}},
                        {"name": "config", "configMap": {"name": f"config-{kind}"}},
                    ],
                },
            },
        },
        "status": {},
    }


class _Line:
    """The Jobs and Workloads of one commit, and which of them are the first of their shape."""

    def __init__(self, state: State, numbers: range) -> None:
        self.jobs: list[facts.JobObserved] = []
        self.workloads: list[facts.WorkloadObserved] = []
        self.firsts: list[facts.WorkloadObserved] = []
        for number in numbers:
            raw = msgspec.json.encode(job_manifest(number))
            job = read("jobs", raw).fact
            assert isinstance(job, facts.JobObserved)
            manifest = workload_of(state, job.job, job.spec, raw)
            manifest["metadata"] |= {
                "uid": f"7a1c0000-0000-4000-9000-{number:012d}",
                "resourceVersion": str(500_000 + number),
                "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:01Z",
            }
            workload = read("workloads", msgspec.json.encode(manifest)).fact
            assert isinstance(workload, facts.WorkloadObserved)
            place = len(self.jobs) + 1
            self.jobs.append(msgspec.structs.replace(job, arrival=place))
            self.workloads.append(msgspec.structs.replace(workload, arrival=place))
            if number < SHAPES:
                self.firsts.append(self.workloads[-1])


def _queue_of(fact: facts.WorkloadObserved) -> str:
    return f"q{fact.workload.partition('/')[0].removeprefix('team-')}"


def _queued(fact: facts.WorkloadObserved, shape: Shape) -> EventBase:
    return queueing.WorkloadQueued(
        workload=fact.workload,
        uid=fact.uid,
        cluster_queue=_queue_of(fact),
        priority=0,
        queued_at_ms=fact.created_ms,
        shape=shape,
    )


def _short(fact: facts.WorkloadObserved) -> tuple[str, ...]:
    return tuple(f"{flavor}/{resource}" for flavor in FLAVORS for resource in ("cpu", "memory", "nvidia.com/gpu"))


def _skipped(fact: facts.WorkloadObserved) -> EventBase:
    requests = fact.spec.pod_sets[0].template.spec.containers[0].resources.requests
    needs = tuple({f"{flavor}/{resource}": str(value) for resource, value in requests.items()} for flavor in FLAVORS)
    return decisions.WorkloadSkipped(
        workload=fact.workload,
        uid=fact.uid,
        cluster_queue=_queue_of(fact),
        status="notNominated",
        requeue_reason="NoFit",
        scope="shape",
        reason="Pending",
        message=_MESSAGE,
        short=_short(fact),
        resource_requests=(PodSetRequest(name="main", resources=dict(requests)),),
        needs=needs,
    )


_MESSAGE = (
    "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor on-demand, request > "
    "maximum capacity (2 > 0), insufficient quota for nvidia.com/gpu in flavor spot, request > maximum capacity (2 > 0)"
)


def _parked(fact: facts.WorkloadObserved, skipped: EventBase) -> EventBase:
    assert isinstance(skipped, decisions.WorkloadSkipped)
    tree = f"cohort-{int(_queue_of(fact)[1:]) % 5}"
    wake = queueing.QuotaFreed(tree=tree, flavor_resources=skipped.short, needs=skipped.needs)
    return queueing.WorkloadParked(
        workload=fact.workload,
        uid=fact.uid,
        reason="Pending",
        message=_MESSAGE,
        wake=(wake,),
        cluster_queue=_queue_of(fact),
        scope="shape",
        decided_at=Seq(1),
    )


def log_of(workloads: int) -> Iterator[Payload]:
    """The log, commit by commit, as it is on the broker."""
    writer, state = Writer(), fold.new_state(CELL)
    bridge, manager = Producer.INFORMER_BRIDGE, Producer.QUEUE_MANAGER
    for producer in Producer:
        yield writer.commit(producer, effects.LeaderElected(holder="bench"))
    yield writer.commit(bridge, *_cluster())
    for start in range(0, workloads, COMMIT_SIZE):
        line = _Line(state, range(start, min(start + COMMIT_SIZE, workloads)))
        yield writer.commit(bridge, *line.jobs)
        made = [
            effects.WorkloadCreated(workload=workload.workload, job=job.job, job_uid=Uid(job.spec.uid))
            for job, workload in zip(line.jobs, line.workloads, strict=True)
        ]
        yield writer.commit(bridge, *made, *line.workloads)
        shapes = [Shape(f"{(start + n) % SHAPES:032x}") for n in range(len(line.workloads))]
        yield writer.commit(manager, *map(_queued, line.workloads, shapes))
        if not line.firsts:
            continue
        heads = tuple(
            queueing.Head(cluster_queue=_queue_of(each), workload=each.workload, uid=each.uid) for each in line.firsts
        )
        yield writer.commit(manager, queueing.HeadsOffered(heads=heads))
        skipped = [_skipped(each) for each in line.firsts]
        cycle = decisions.CycleDecided(cycle=writer.seq, decided_at=Seq(writer.seq), heads=heads)
        yield writer.commit(Producer.SCHEDULER, cycle, *skipped, decided_at=writer.seq)
        yield writer.commit(manager, *map(_parked, line.firsts, skipped))
        applied = [
            effects.StatusApplied(workload=each.workload, uid=each.uid, digest=f"{writer.seq:016x}{n:016x}")
            for n, each in enumerate(line.firsts)
        ]
        yield writer.commit(Producer.BINDER, *applied)


# --- one process ---------------------------------------------------------------------------------------------------


def hold(name: str, path: str) -> Held:
    """Fold the log as this process does, make its machine, ask it once; and say what it took."""
    gc.collect()
    before_mib = rss_mib()
    state = fold.new_state(CELL)
    begun = time.process_time()
    with Path(path).open("rb") as log:
        for seq, line in enumerate(log, 1):
            subject, _, payload = line.rstrip(b"\n").partition(b"\t")
            fold.apply(state, decode_commit(seq, subject.decode(), payload))
    fold_s = time.process_time() - begun
    gc.collect()
    folded_mib = rss_mib() - before_mib
    machine = MACHINES[name](state)
    machine.decide(Settled(UnixMs(START_MS + 10_000_000)))
    gc.collect()
    return Held(folded_mib, rss_mib() - before_mib, fold_s)


def run(*, profile: bool = False, workloads: int = WORKLOADS) -> Report:
    """Write the log once, and fold it in one interpreter for each kind of process."""
    report = Report(name="memory")
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as directory:
        path = Path(directory) / "log"
        with path.open("wb") as log:
            for subject, payload in log_of(workloads):
                log.write(subject.encode() + b"\t" + payload + b"\n")
        size_mib = path.stat().st_size / 2**20
        held = {name: _apart(name, path) for name in MACHINES}
    for name, each in held.items():
        report.rows.append(
            Row(
                what=f"memory of the {name}, {workloads:,} pending workloads",
                figure=f"{each.settled_mib:.0f} MiB",
                target=f"<= {EACH_MAX_MIB} MiB",
                met=each.settled_mib <= EACH_MAX_MIB,
                compared=f"{each.settled_mib * 2**20 / workloads:,.0f} bytes each with its job; state alone "
                f"{each.folded_mib:.0f} MiB, folded in {each.fold_s:.1f} s of CPU",
            )
        )
    total = sum(each.settled_mib for each in held.values())
    report.rows.append(
        Row(
            what="memory of all six",
            figure=f"{total:.0f} MiB",
            target=f"<= {ALL_MAX_MIB} MiB",
            met=total <= ALL_MAX_MIB,
            compared=f"{SHAPES:,} shapes; a log of {size_mib:.0f} MiB",
        )
    )
    return report


def _apart(name: str, path: Path) -> Held:
    command = [sys.executable, "-m", "tests.benchmarks.memory", name, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, timeout=600)
    return msgspec.json.decode(done.stdout, type=Held)


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(hold(sys.argv[1], sys.argv[2])))
