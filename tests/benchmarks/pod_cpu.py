"""
`python -m tests.benchmarks.pod_cpu [--pods N] [--nodes N] [--profile PROCESS] [--json]`: CPU for each placed pod.

The six machines are run by their drivers, each with a state of its own, on one log in memory: every process decodes,
folds and decides what it would in a cell. The pods are those of `kube_pods`, as a real API server shows them: created,
bound with the labels of the node's zone, started by their node. Requests are answered at once. What is measured is CPU
time, so two versions of the code compare on a busy machine; what a process spends on connections is not in it. Also
printed: events and bytes of the log for a pod, and the bytes that a pod takes in a state.
"""

import argparse
import cProfile
import gc
import pstats
import sys
import time
import tracemalloc
from collections import Counter, deque
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import msgspec
from tests.benchmarks.kube_pods import node_manifest, pod_manifest
from tests.benchmarks.measure import Report, Row, show, shown

from headgate.core import fold
from headgate.core.engine.driver import Driver
from headgate.core.engine.outputs import Send
from headgate.core.machine.contract import Call, Changed, Completed, Listed
from headgate.core.reading.decoding import CLUSTER_NAMESPACE
from headgate.core.state.tables import State
from headgate.events.base import Producer, tag_of
from headgate.events.commit import LoggedCommit, decode_commit
from headgate.events.identity import CellFounded
from headgate.events.ids import Epoch, Seq, UnixMs
from headgate.events.subjects import log_subject
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.testing.world.world import MACHINES

CELL: Final = "bench"
PODS: Final = 2_000
NODES: Final = 300
BATCH: Final = 40
"""Pods that are created between two turns."""

TURN_MS: Final = 50
STARTED_AFTER: Final = 10
"""Turns from a binding to the status that the node writes."""

BOUND_TAG: Final = "pod.bound"
PLACING: Final = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
CONTAINER: Final = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "Always",
}
EVICTED_AFTER: Final = [
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for name in ("not-ready", "unreachable")
]

Json = dict[str, Any]


class Server:
    """The API server, as far as placement sees it: pods as it shows them, one watch event for each change."""

    def __init__(self) -> None:
        self.version = 1
        self.pods: dict[str, Json] = {}

    def created(self, manifest: Json, now_ms: int) -> Changed:
        """A pod with what the API server fills in."""
        name = manifest["metadata"]["name"]
        spec = manifest["spec"]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **manifest["metadata"],
                "uid": f"0b4284e8-927d-41ca-8ef4-{int(name[1:]):012}",
                "generation": 1,
                "creationTimestamp": _time(now_ms),
                "managedFields": [{"manager": "driver", "operation": "Update", "fieldsV1": {"f:spec": _fields(spec)}}],
            },
            "spec": {
                **spec,
                "containers": [each | CONTAINER for each in spec["containers"]],
                "restartPolicy": "Always",
                "terminationGracePeriodSeconds": 30,
                "dnsPolicy": "ClusterFirst",
                "securityContext": {},
                "schedulerName": "default-scheduler",
                "tolerations": EVICTED_AFTER,
                "priority": 0,
                "enableServiceLinks": True,
                "preemptionPolicy": "PreemptLowerPriority",
            },
            "status": {"phase": "Pending", "qosClass": "Burstable"},
        }
        self.pods[f"default/{name}"] = pod
        return self._changed(pod, "ADDED")

    def bound(self, key: str, node: str, now_ms: int) -> Changed:
        """A pod gets its node, with the label of its zone."""
        pod = self.pods[key]
        zone = "topology.kubernetes.io/zone"
        pod["metadata"]["labels"] = pod["metadata"]["labels"] | {zone: f"zone-{int(node[1:]) % 10}"}
        pod["spec"]["nodeName"] = node
        pod["status"]["conditions"] = [_condition("PodScheduled", now_ms)]
        return self._changed(pod, "MODIFIED")

    def started(self, key: str, now_ms: int) -> Changed:
        """The node runs it."""
        pod = self.pods[key]
        running = {"name": "c", "state": {"running": {"startedAt": _time(now_ms)}}, "ready": True, "image": "i"}
        types = ("Initialized", "Ready", "ContainersReady")
        pod["status"] |= {
            "phase": "Running",
            "conditions": [*(_condition(each, now_ms) for each in types), *pod["status"]["conditions"]],
            "podIP": "10.1.0.1",
            "podIPs": [{"ip": "10.1.0.1"}],
            "startTime": _time(now_ms),
            "containerStatuses": [running],
        }
        return self._changed(pod, "MODIFIED")

    def _changed(self, pod: Json, kind: str) -> Changed:
        self.version += 1
        pod["metadata"]["resourceVersion"] = str(self.version)
        return Changed("pods", kind, msgspec.json.encode(pod), str(self.version))


def _time(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms // 1000))


def _condition(kind: str, now_ms: int) -> Json:
    return {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": _time(now_ms)}


def _fields(value: Any) -> Json:
    if isinstance(value, list):
        return {f"k:{number}": _fields(each) for number, each in enumerate(value)}
    return {f"f:{name}": _fields(each) for name, each in value.items()} if isinstance(value, dict) else {}


class Cell:
    """Six drivers on one log. `cpu_ns` is what each has used since it was last emptied."""

    def __init__(self, profile: str = "") -> None:
        self.now_ms = UnixMs(1_700_000_000_000)
        self.server = Server()
        self.log: list[tuple[str, int, bytes]] = []
        self.cpu_ns: Counter[str] = Counter()
        self.stimuli: deque[Changed] = deque()
        self.later: dict[int, list[str]] = {}
        self.calls: Counter[str] = Counter()
        self.turn = 0
        self.profile = cProfile.Profile()
        self._profiled = profile
        self._read: Counter[Producer] = Counter()
        self._to_fold: dict[Producer, deque[LoggedCommit]] = {each: deque() for each in MACHINES}
        machines = {**MACHINES, Producer.INFORMER_BRIDGE: partial(InformerBridge, placing=PLACING)}
        self.drivers = {
            each: Driver(each, fold.new_state(CELL), partial(self._make, make)) for each, make in machines.items()
        }
        for driver in self.drivers.values():
            driver.lead(Epoch(1), "bench")

    def _make(self, make: Any, state: State) -> Any:
        machine = make(state)
        if isinstance(machine, InformerBridge):
            machine.founding = CellFounded(cell=CELL, cluster="c", stream=CELL, log_id="1", keys={}, signing="off")
        return machine

    def begin(self, nodes: int) -> None:
        """List a cluster with nodes and without pods."""
        self.step()
        bridge = self.drivers[Producer.INFORMER_BRIDGE]
        while bridge.machine is None:
            self.step()
        assert isinstance(bridge.machine, InformerBridge)
        listed: dict[str, list[Json]] = {
            "nodes": [node_manifest(number) for number in range(nodes)],
            "namespaces": [
                {"metadata": {"name": name, "uid": name, "creationTimestamp": _time(self.now_ms)}}
                for name in ("default", CLUSTER_NAMESPACE)
            ],
        }
        for resource in bridge.machine.resources:
            objects = tuple(msgspec.json.encode(each) for each in listed.get(resource, []))
            bridge.receive(Listed(resource, objects, "1"))
        for _ in range(20):
            self.step()

    def step(self) -> None:
        """One turn of every process."""
        self.turn += 1
        self.now_ms = UnixMs(self.now_ms + TURN_MS)
        self.stimuli.extend(self.server.started(key, self.now_ms) for key in self.later.pop(self.turn, ()))
        for producer, driver in self.drivers.items():
            if producer is Producer.INFORMER_BRIDGE:
                while self.stimuli:
                    driver.receive(self.stimuli.popleft())
            is_profiled = self._profiled == producer.value
            if is_profiled:
                self.profile.enable()
            begun_ns = time.process_time_ns()
            self._fold(producer, driver)
            driver.advance(self.now_ms)
            driver.deliver()
            driver.settle(self.now_ms)
            outputs = driver.take()
            self.cpu_ns[producer.value] += time.process_time_ns() - begun_ns
            if is_profiled:
                self.profile.disable()
            for output in outputs:
                match output:
                    case Send():
                        self.log.append((log_subject(CELL, producer), self.now_ms, output.payload))
                        driver.appended(Seq(len(self.log)))
                    case Call():
                        self._answer(driver, output)
                    case _:
                        pass

    def _fold(self, producer: Producer, driver: Driver) -> None:
        waiting = self._to_fold[producer]
        read = self._read[producer]
        for seq, (subject, at_ms, payload) in enumerate(self.log[read:], read + 1):
            waiting.append(decode_commit(seq, subject, payload, at_ms))
        self._read[producer] = len(self.log)
        while waiting and not driver.is_at_election:
            driver.fold(waiting.popleft())

    def _answer(self, driver: Driver, call: Call) -> None:
        self.calls[call.method + " " + call.path.rpartition("/")[2]] += 1
        if call.path.endswith("/binding"):
            key = f"default/{call.body['metadata']['name']}"
            self.stimuli.append(self.server.bound(key, call.body["target"]["name"], self.now_ms))
            self.later.setdefault(self.turn + STARTED_AFTER, []).append(key)
        driver.receive(Completed(call.id, 201, b"{}"))

    def place(self, pods: int) -> None:
        """Create pods, and go on until all of them run and the log is silent."""
        for number in range(pods):
            self.stimuli.append(self.server.created(pod_manifest(number), self.now_ms))
            if number % BATCH == BATCH - 1:
                self.step()
        silent = 0
        while silent < 40:
            before = len(self.log)
            self.step()
            silent = silent + 1 if len(self.log) == before else 0


def _events(log: list[tuple[str, int, bytes]]) -> Iterator[Any]:
    for seq, (subject, at_ms, payload) in enumerate(log, 1):
        yield from decode_commit(seq, subject, payload, at_ms).commit.events


def _bytes_of_pods(log: list[tuple[str, int, bytes]], pods: int) -> float:
    """Bytes of a state for a pod, by folding the log into a new one."""
    gc.collect()
    tracemalloc.start()
    state = fold.new_state(CELL)
    before = 0
    for seq, (subject, at_ms, payload) in enumerate(log, 1):
        if not before and b'"resource":"pods"' in payload:
            before = tracemalloc.get_traced_memory()[0]
        fold.apply(state, decode_commit(seq, subject, payload, at_ms))
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return taken / pods


def main() -> None:
    """Run once and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.pod_cpu", description="Measure; judge nothing.")
    parser.add_argument("--pods", type=int, default=PODS, help=f"how many (default {PODS})")
    parser.add_argument("--nodes", type=int, default=NODES, help=f"how many (default {NODES})")
    parser.add_argument("--profile", default="", help="the functions of this process, by own time")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    begun = time.perf_counter()
    cell = Cell(options.profile)
    cell.begin(options.nodes)
    first = len(cell.log)
    cell.cpu_ns.clear()
    cell.place(options.pods)
    pods = options.pods
    done = Report(name="pod-cpu", took_s=time.perf_counter() - begun)
    done.rows = [Row(what=name, figure=f"{used / pods / 1000:.0f} us a pod") for name, used in cell.cpu_ns.items()]
    done.rows.append(Row(what="all six", figure=f"{sum(cell.cpu_ns.values()) / pods / 1000:.0f} us a pod"))
    counted = Counter(tag_of(each) for each in _events(cell.log))
    size = sum(len(payload) for _, _, payload in cell.log[first:])
    events = ", ".join(f"{tag} {count / pods:.2f}" for tag, count in counted.most_common() if count > pods / 10)
    done.rows.append(Row(what="the log", figure=f"{size / pods:.0f} B a pod", compared=events))
    done.rows.append(Row(what="a state", figure=f"{_bytes_of_pods(cell.log, pods):.0f} B a pod"))
    done.notes += [f"{count / pods:.2f} x {what}" for what, count in cell.calls.most_common() if count > pods / 10]
    placed = counted["pod.bound"]
    done.notes.append(f"{placed} pods bound, in {len(cell.log) - first} commits")
    if options.profile:
        done.profile = shown(pstats.Stats(cell.profile), 40)
    if options.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(done)) + b"\n")
    else:
        print(show([done]))


if __name__ == "__main__":
    main()
