"""
Records the history of a release: `python -m tests.histories.record NAME`.

A history is the log of a simulated cell in which much goes wrong (`NAME.jsonl.gz`, as `headgate events --export`
writes it) and the state that it folded to when it was recorded (`NAME.state.json.gz`). Each release leaves one
behind, and every later version has to fold it.

A log that has been recorded is never written again: a name that exists is refused. When a version keeps more in its
state than those before, and folds an old log to another state on purpose, `--state-only` writes that state again and
prints what has changed; look at the difference before committing it.

`--contended` records a cell whose jobs preempt each other, with fair sharing; `--topologies` one with two flavors in
racks, whose nodes fail, up to a time at which some gangs hold domains; `--placement` one that places pods by a
KubeSchedulerConfiguration, some of which displace others, wait for a volume, or fit nowhere.
"""

import argparse
import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
from tests.simulation import test_topology_seeds as topology_seeds
from tests.simulation.scenarios import Scenario, Step, contended, kueue, scenario
from tests.simulation.test_contended import ROUND_MS
from tests.simulation.test_seeds import Run

from headgate.adapters.log import LogEntry
from headgate.adapters.logfile import LogFileWriter, read_log_file
from headgate.core import fold
from headgate.core.state.tables import State
from headgate.events.base import tag_of
from headgate.events.commit import LoggedCommit, decode_commit, digest, encode_commit
from headgate.events.registry import TAGS
from headgate.events.subjects import log_subject
from headgate.testing.cluster import BY_PLURAL
from headgate.testing.world.world import MACHINES_PLACING, FaultRates, World

HERE = Path(__file__).parent
Kind = Literal["mixed", "contended", "topologies", "placement"]
SEEDS: dict[Kind, int] = {"mixed": 39, "contended": 45, "topologies": 5, "placement": 3}
FAULTS = FaultRates(
    crash=0.004,
    rival=0.003,
    call_error=0.05,
    call_lost=0.05,
    watch_cut=0.005,
    lag=0.2,
    until_ms=1_700_000_000_000 + 60_000,
)


def log_path(name: str) -> Path:
    """Where a history's log is."""
    return HERE / f"{name}.jsonl.gz"


def state_path(name: str) -> Path:
    """Where the state it folded to is."""
    return HERE / f"{name}.state.json.gz"


def names() -> list[str]:
    """The histories that there are."""
    return sorted(path.name.removesuffix(".jsonl.gz") for path in HERE.glob("*.jsonl.gz"))


def cell_of(entries: list[LogEntry]) -> str:
    """The cell whose log it is: it is part of the subjects."""
    return entries[0].subject.split(".")[1]


def refold(entries: list[LogEntry]) -> State:
    """The state that a log folds to in this version."""
    state = fold.new_state(cell_of(entries))
    for entry in entries:
        fold.apply(state, decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms))
    return state


def expected(name: str) -> bytes:
    """The canonical bytes of the state that a history folded to."""
    return gzip.decompress(state_path(name).read_bytes())


def plan(seed: int) -> Scenario:
    """The scenario of a seed, and beside it objects of every other kind that come, change and go."""
    base = scenario(seed)
    topology = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology", "metadata": {"name": "racks"}}
    topology["spec"] = {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]}
    limits = {"limits": [{"type": "Container", "max": {"cpu": "1000"}}]}
    others: list[dict[str, Any]] = [
        topology,
        kueue("Cohort", "spare", {"resourceGroups": []}),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "idle"}},
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l", "namespace": "idle"}, "spec": limits},
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000},
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "kata"},
            "handler": "kata",
            "overhead": {"podFixed": {"cpu": "250m"}},
        },
        kueue("AdmissionCheck", "unused", {"controllerName": "nobody"}),
        kueue("WorkloadPriorityClass", "unused", {}) | {"value": 5},
        kueue("ResourceFlavor", "unused", {}),
        kueue("ClusterQueue", "unused", {"namespaceSelector": {}}),
        kueue("LocalQueue", "unused", {"clusterQueue": "unused"}, "idle"),
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "spare"}},
    ]
    others[7].pop("spec")
    steps = [Step(100 * number, each) for number, each in enumerate(others)]
    return msgspec.structs.replace(base, steps=tuple(sorted((*base.steps, *steps), key=lambda step: step.at_ms)))


PATHS = (
    "apis/kueue.x-k8s.io/v1beta2/topologies/racks",
    "apis/kueue.x-k8s.io/v1beta2/cohorts/spare",
    "api/v1/namespaces/idle/limitranges/l",
    "apis/scheduling.k8s.io/v1/priorityclasses/urgent",
    "apis/node.k8s.io/v1/runtimeclasses/kata",
    "apis/kueue.x-k8s.io/v1beta2/admissionchecks/unused",
    "apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses/unused",
    "apis/kueue.x-k8s.io/v1beta2/namespaces/idle/localqueues/unused",
    "apis/kueue.x-k8s.io/v1beta2/clusterqueues/unused",
    "apis/kueue.x-k8s.io/v1beta2/resourceflavors/unused",
    "api/v1/nodes/spare",
    "api/v1/namespaces/idle",
)
"""What is deleted at the end, so that the deletions are in the history too."""


def simulate(seed: int, kind: Kind = "mixed") -> list[LoggedCommit]:
    """The log of one run."""
    if kind == "contended":
        return Run(contended(seed), FAULTS, seed, round_ms=ROUND_MS).play().world.log
    if kind == "topologies":
        return topology_seeds.play(seed, FAULTS, lambda *_: None)[0].log
    if kind == "placement":
        return _placing(seed)
    run = Run(plan(seed), FAULTS, seed).play()
    _delete_all(run.world)
    run.run_until(run.world.clock.now_ms + 60_000)
    return run.world.log


# --- placement -----------------------------------------------------------------------------------------------------


def _pod(name: str, cpu: str, *, volume: str = "", **spec: Any) -> dict[str, Any]:
    claimed = [{"name": "v", "persistentVolumeClaim": {"claimName": volume}}] if volume else []
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name[:3]}},
        "spec": {"schedulerName": "headgate", "containers": [container], "volumes": claimed, **spec},
    }


def _volumes() -> list[dict[str, Any]]:
    """A claim that waits for its pod, and a volume on one node for it."""
    on = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}]
    size = {"storage": "1Gi"}
    volume = {
        "capacity": size,
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "local": {"path": "/v"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": on}},
    }
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": {"requests": size}}
    return [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "local-1"}, "spec": volume},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "default"},
            "spec": claim,
        },
    ]


def _bound(world: World) -> Iterator[dict[str, Any]]:
    """The volume and its claim as the volume controller leaves them."""
    done = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}}
    for each in world.cluster.objects(BY_PLURAL["", "persistentvolumeclaims"]):
        metadata = {**each["metadata"], **done["metadata"]}
        spec = {**each["spec"], "volumeName": "local-1"}
        yield {**each, "metadata": metadata, "spec": spec, "status": {"phase": "Bound"}}


def _placing(seed: int) -> list[LoggedCommit]:
    """Pods fill the nodes; then some of a higher priority come, one with a volume, and one that fits nowhere."""
    world = World(seed=seed, faults=FAULTS, machines=MACHINES_PLACING)
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    budget = {"selector": {"matchLabels": {"app": "low"}}, "minAvailable": 2}
    protected = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": budget}
    protected["metadata"] = {"name": "low", "namespace": "default"}
    rounds: list[list[dict[str, Any]]] = [
        [urgent, protected, *(_node(f"n{number}") for number in range(3))],
        [_pod(f"low-{number}", "2") for number in range(6)],
        _volumes(),
        [_pod("high-0", "2", priorityClassName="high", priority=9), _pod("huge", "64")],
        [_pod("high-1", "1", priorityClassName="high", priority=9, volume="data")],
    ]
    for manifests in rounds:
        for each in manifests:
            world.cluster.apply(each)
        _let_pass(world, 20_000)
    for each in _bound(world):
        world.cluster.apply(each)
    _let_pass(world, 20_000)
    world.cluster.request("DELETE", "/api/v1/namespaces/default/pods/huge")
    _let_pass(world, 60_000)
    return world.log


def _node(name: str) -> dict[str, Any]:
    resources = {"cpu": "5", "memory": "8Gi", "pods": "10"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def _let_pass(world: World, ms: int) -> None:
    at_ms = world.clock.now_ms + ms
    while world.clock.now_ms < at_ms:
        world.run(until_ms=min(at_ms, world.clock.now_ms + 500))
        world.advance(min(at_ms, world.clock.now_ms + 500))


def _delete_all(world: World) -> None:
    for path in PATHS:
        answer = world.cluster.request("DELETE", f"/{path}", {"propagationPolicy": "Background"})
        assert answer.status in (200, 202), (path, answer.body)


def write_log(name: str, seed: int, kind: Kind = "mixed") -> None:
    """Simulate and write. Raises FileExistsError when the history is there."""
    if log_path(name).exists():
        raise FileExistsError(f"{log_path(name)} is recorded history: choose another name")
    log = simulate(seed, kind)
    with LogFileWriter(log_path(name)) as writer:
        for logged in log:
            payload = encode_commit(logged.commit)
            assert digest(payload) == logged.hash
            subject = log_subject("sim", logged.commit.producer)
            writer.write([LogEntry(seq=logged.seq, subject=subject, time_ms=logged.commit.time_ms, payload=payload)])
    tags = {tag_of(event) for logged in log for event in logged.commit.events}
    print(f"{log_path(name).name}: {len(log)} commits; without {', '.join(sorted(TAGS.keys() - tags))}")


def write_state(name: str) -> None:
    """Fold the recorded log and write the state; print which of its tables differ from before."""
    encoded = fold.encode(refold(list(read_log_file(log_path(name)))))
    if state_path(name).exists():
        before, now = (msgspec.json.decode(each) for each in (expected(name), encoded))
        changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        print(f"{name}: {', '.join(changed) or 'nothing'} changed")
    state_path(name).write_bytes(gzip.compress(encoded, mtime=0))
    print(f"{state_path(name).name}: hash {digest(encoded)}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories.record", description=__doc__)
    parser.add_argument("name", help="of the history, the release: v0.1.0")
    parser.add_argument("--seed", type=int)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--contended",
        dest="kind",
        action="store_const",
        const="contended",
        default="mixed",
        help="a cell whose jobs preempt each other",
    )
    kinds.add_argument(
        "--topologies",
        dest="kind",
        action="store_const",
        const="topologies",
        help="a cell with racks, whose nodes fail",
    )
    kinds.add_argument(
        "--placement",
        dest="kind",
        action="store_const",
        const="placement",
        help="a cell that places pods, some of which displace others",
    )
    parser.add_argument("--state-only", action="store_true", help="keep the log, write the state it folds to anew")
    options = parser.parse_args()
    if not options.state_only:
        try:
            seed = SEEDS[options.kind] if options.seed is None else options.seed
            write_log(options.name, seed, options.kind)
        except FileExistsError as error:
            sys.exit(str(error))
    write_state(options.name)


if __name__ == "__main__":
    main()
