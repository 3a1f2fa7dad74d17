"""
The kubelets of all nodes: bound pods start, run for the time they say, end, and vanish when deleted.

Annotations of a pod define how it behaves: `headgate.dev/run-ms` (how long its containers run),
`headgate.dev/exit-code` (non-zero: they fail), `headgate.dev/start-ms` (how long it takes to become ready) and
`headgate.dev/stop-ms` (how long it takes to end when it is terminated). Without them: pods that may end (restart policy
Never or OnFailure) run for `run_ms`, others until they are deleted.

As a real kubelet does, it refuses pods that the node has no room for (phase Failed, reason `OutOfcpu`), whose
selector does not match (`NodeAffinity`) or that do not tolerate a NoExecute taint. A node that appears gets its Ready
condition, its capacity completed and its well-known labels. `stop_node` freezes a node: its pods neither start nor
end, and it becomes NotReady, until `start_node`.

Driven by `step(now_ms)` and `next_due_ms()`; it holds timers, and everything else it reads from the store. Of pods
that it finds there at its start it takes the remaining times from their statuses.
"""
# Over 400 lines: the life of a pod on its node, from admission to removal, over the same timers.

import heapq
from typing import Any, Final

from headgate.core.kubernetes.numbers import decimal
from headgate.testing.cluster.api.writes import Deletion, Write
from headgate.testing.cluster.nodes.node_usage import NODES, PODS, NodeUsage, Shortage, selects_node, untolerated
from headgate.testing.cluster.quantity import ONE, pod_requests
from headgate.testing.cluster.storage.registry import Registry
from headgate.testing.cluster.storage.store import Change, Key, ObjectVersion, Table
from headgate.testing.cluster.times import rfc3339, unix_ms
from headgate.testing.pod_scripts import (
    EXIT_ANNOTATION,
    RESTART_BACKOFF_MS,
    RESTART_BACKOFF_MS_MAX,
    RUN_ANNOTATION,
    RUN_MS,
    START_ANNOTATION,
    STOP_ANNOTATION,
)

JsonObject = dict[str, Any]

QUARANTINE_MS: Final = 40_000
"""How long the pod garbage collector waits for a node to come (back) before it takes its pods."""

_OTHER_ACTIONS: Final = ("kill", "collect")
"""What happens to a pod beside its containers' own course."""

_STATUS: Final = Write(manager="kubelet", subresource="status")
_MAIN: Final = Write(manager="kubelet")


class Kubelet:
    """All kubelets. `run_ms` and `start_ms` are the times of pods that do not say."""

    def __init__(self, registry: Registry, usage: NodeUsage, *, run_ms: int = RUN_MS, start_ms: int = 0) -> None:
        self._registry = registry
        self._usage = usage
        self._run_ms = run_ms
        self._start_ms = start_ms
        self._dirty_pods: dict[Key, None] = {}
        self._dirty_nodes: dict[str, None] = {}
        self._timers: list[tuple[int, int, Key, str, str]] = []
        self._timer_count = 0
        self._timed: dict[Key, str] = {}
        self._stopped: dict[str, None] = {}
        self._frozen: dict[Key, str] = {}
        for entry in registry.store.table(NODES).select(""):
            self._dirty_nodes[entry.key[1]] = None
        # Pods that an earlier kubelet left dying: some of their time is over.
        self._left: dict[Key, None] = {}
        for entry in registry.store.table(PODS).select(""):
            self._dirty_pods[entry.key] = None
            if "deletionTimestamp" in entry.obj["metadata"]:
                self._left[entry.key] = None
        registry.store.listen(self._on_change)

    def _on_change(self, table: Table, change: Change) -> None:
        if table.kind is PODS:
            if change.type != "DELETED" and change.entry.obj["spec"].get("nodeName"):
                self._dirty_pods[change.entry.key] = None
        elif table.kind is NODES:
            self._dirty_nodes[change.entry.key[1]] = None
            if change.type != "MODIFIED":
                for entry in table_pods(self._registry, change.entry.key[1]):
                    self._dirty_pods[entry.key] = None

    # -- driving -----------------------------------------------------------------------------------------------------
    # ------------

    def step(self, now_ms: int) -> int:
        """Do what changed and what is due; returns how many writes that took."""
        before = self._registry.store.rv
        nodes, self._dirty_nodes = self._dirty_nodes, {}
        for name in nodes:
            self._sync_node(name, now_ms)
        pods, self._dirty_pods = self._dirty_pods, {}
        for key in pods:
            self._sync_pod(key, now_ms)
        while self._timers and self._timers[0][0] <= now_ms:
            _, _, key, uid, action = heapq.heappop(self._timers)
            self._fire(key, uid, action, now_ms)
        return self._registry.store.rv - before

    def next_due_ms(self) -> int | None:
        """When the next pod starts, ends or vanishes."""
        return self._timers[0][0] if self._timers else None

    def _schedule(self, due_ms: int, key: Key, uid: str, action: str) -> None:
        self._timer_count += 1
        if action not in _OTHER_ACTIONS:
            self._timed[key] = uid
        heapq.heappush(self._timers, (due_ms, self._timer_count, key, uid, action))

    def _fire(self, key: Key, uid: str, action: str, now_ms: int) -> None:
        if action not in _OTHER_ACTIONS and self._timed.get(key) == uid:
            del self._timed[key]
        entry = self._registry.find(PODS, *key)
        if entry is None or entry.obj["metadata"]["uid"] != uid:
            return
        if entry.obj["spec"].get("nodeName") in self._stopped:
            self._frozen[key] = action
            return
        phase = entry.obj.get("status", {}).get("phase")
        match action:
            case "start" if phase in {"Pending", "Running"} and not entry.obj["metadata"].get("deletionTimestamp"):
                self._run(entry, now_ms)
            case "end" if phase == "Running":
                self._end(entry, now_ms)
            case "kill":
                self._kill(entry, now_ms)
            case "collect":
                if self._registry.find(NODES, "", entry.obj["spec"]["nodeName"]) is None:
                    self._orphaned(entry, now_ms)
            case _:
                return

    # -- nodes -------------------------------------------------------------------------------------------------------
    # ------------

    def stop_node(self, name: str, now_ms: int) -> None:
        """Freeze a node: it becomes NotReady, and its pods stay as they are until `start_node`."""
        self._stopped[name] = None
        self._set_ready(name, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.", now_ms)

    def start_node(self, name: str, now_ms: int) -> None:
        """Let a stopped node continue: what was due meanwhile happens at the next step."""
        self._stopped.pop(name, None)
        self._set_ready(name, "True", "KubeletReady", "kubelet is posting ready status", now_ms)
        frozen, self._frozen = self._frozen, {}
        for key, action in frozen.items():
            entry = self._registry.find(PODS, *key)
            if entry is not None:
                self._schedule(now_ms, key, entry.obj["metadata"]["uid"], action)
        for entry in table_pods(self._registry, name):
            self._dirty_pods[entry.key] = None

    def _set_ready(self, name: str, status: str, reason: str, message: str, now_ms: int) -> None:
        entry = self._registry.find(NODES, "", name)
        if entry is None:
            return
        obj = entry.obj
        ready = _condition("Ready", status, now_ms, reason=reason, message=message)
        others = [c for c in obj.get("status", {}).get("conditions") or () if c["type"] != "Ready"]
        entry = self._registry.update(
            NODES, entry, {**obj, "status": {**obj.get("status", {}), "conditions": [*others, ready]}}, _STATUS
        )
        taints = [t for t in obj.get("spec", {}).get("taints") or () if t["key"] != "node.kubernetes.io/unreachable"]
        if status != "True":
            taints += [
                {"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")
            ]
        spec = {**entry.obj.get("spec", {}), "taints": taints}
        self._registry.update(NODES, entry, {**entry.obj, "spec": spec}, _MAIN)

    def _sync_node(self, name: str, now_ms: int) -> None:
        entry = self._registry.find(NODES, "", name)
        if entry is None or name in self._stopped:
            return
        obj, status = entry.obj, entry.obj.get("status", {})
        if any(c["type"] == "Ready" for c in status.get("conditions") or ()):
            return
        capacity = {
            "cpu": "4",
            "memory": "16Gi",
            "pods": "110",
            **(status.get("allocatable") or {}),
            **(status.get("capacity") or {}),
        }
        fresh = {
            **status,
            "capacity": capacity,
            "allocatable": {**capacity, **(status.get("allocatable") or {})},
            "conditions": [
                *(status.get("conditions") or ()),
                _condition("Ready", "True", now_ms, reason="KubeletReady", message="kubelet is posting ready status"),
            ],
            "nodeInfo": status.get("nodeInfo")
            or {"kubeletVersion": "v1.36.3", "operatingSystem": "linux", "architecture": "amd64"},
        }
        entry = self._registry.update(NODES, entry, {**obj, "status": fresh}, _STATUS)
        metadata = entry.obj["metadata"]
        labels = {
            "kubernetes.io/hostname": name[:63].rstrip("-."),
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            **(metadata.get("labels") or {}),
        }
        self._registry.update(NODES, entry, {**entry.obj, "metadata": {**metadata, "labels": labels}}, _MAIN)

    # -- pods --------------------------------------------------------------------------------------------------------
    # ------------

    def _sync_pod(self, key: Key, now_ms: int) -> None:
        entry = self._registry.find(PODS, *key)
        if entry is None or not entry.obj["spec"].get("nodeName"):
            return
        obj, metadata = entry.obj, entry.obj["metadata"]
        node = self._registry.find(NODES, "", obj["spec"]["nodeName"])
        if node is None:
            # Its containers are not stopped: it stays as it is until the pod garbage collector has waited for the node.
            self._schedule(now_ms + QUARANTINE_MS, key, metadata["uid"], "collect")
            return
        if node.key[1] in self._stopped:
            return
        if metadata.get("deletionTimestamp"):
            grace_ms = 1000 * metadata.get("deletionGracePeriodSeconds", 0)
            begun_ms = now_ms
            if key in self._left:
                del self._left[key]
                begun_ms = min(now_ms, unix_ms(metadata["deletionTimestamp"]) - grace_ms)
            stop_ms = min(_annotated(obj, STOP_ANNOTATION, 0), grace_ms)
            self._schedule(max(now_ms, begun_ms + stop_ms), key, metadata["uid"], "kill")
            return
        status = obj.get("status", {})
        if status.get("phase") == "Pending" and not status.get("startTime"):
            self._admit(entry, node.obj, now_ms)
        elif self._timed.get(key) != metadata["uid"]:
            self._resume(entry, now_ms)

    def _resume(self, entry: ObjectVersion, now_ms: int) -> None:
        """
        Give a pod without a timer, written by someone else or left by an earlier kubelet, what is left of its time.

        It began at the start time of its status (in seconds), otherwise now.
        """
        obj, status = entry.obj, entry.obj.get("status", {})
        states = [each.get("state", {}) for each in status.get("containerStatuses") or ()]
        began, action = status.get("startTime"), "end"
        if status.get("phase") == "Pending":
            length_ms, action = _annotated(obj, START_ANNOTATION, self._start_ms), "start"
        elif status.get("phase") != "Running" or not _ends(obj):
            return
        elif any("waiting" in state for state in states):
            length_ms, action = _pause_ms(_restarts(status) - 1), "start"
            ready = [c.get("lastTransitionTime") for c in status.get("conditions") or () if c["type"] == "Ready"]
            began = next(iter(ready), began)
        else:
            length_ms = _annotated(obj, RUN_ANNOTATION, self._run_ms)
            began = next((s["running"].get("startedAt") for s in states if "running" in s), began)
        began_ms = unix_ms(began) if began else now_ms
        self._schedule(max(now_ms, began_ms + length_ms), entry.key, obj["metadata"]["uid"], action)

    def _admit(self, entry: ObjectVersion, node: JsonObject, now_ms: int) -> None:
        obj = entry.obj
        spec = obj["spec"]
        if not selects_node(spec, node):
            message = (
                "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
            )
            self._reject(entry, "NodeAffinity", message, now_ms)
            return
        if untolerated(spec, node, ("NoExecute",)) is not None:
            message = (
                "Pod was rejected: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
            )
            self._reject(entry, "TaintToleration", message, now_ms)
            return
        try:
            self._usage.require_room(node, pod_requests(spec), counted=True)
        except Shortage as short:
            message = (
                f"Pod was rejected: Node didn't have enough resource: {short.resource}, requested: "
                f"{_amount(short.resource, short.requested)}, "
                f"used: {_amount(short.resource, short.used)}, capacity: {_amount(short.resource, short.capacity)}"
            )
            self._reject(entry, f"OutOf{short.resource}", message, now_ms)
            return
        start_ms = _annotated(obj, START_ANNOTATION, self._start_ms)
        if start_ms <= 0:
            self._run(entry, now_ms)
            return
        status = {**obj["status"], "startTime": rfc3339(now_ms)}
        self._schedule(now_ms + start_ms, entry.key, obj["metadata"]["uid"], "start")
        self._registry.update(PODS, entry, {**obj, "status": status}, _STATUS)

    def _reject(self, entry: ObjectVersion, reason: str, message: str, now_ms: int) -> None:
        status = {
            **entry.obj["status"],
            "phase": "Failed",
            "reason": reason,
            "message": message,
            "startTime": rfc3339(now_ms),
        }
        self._registry.update(PODS, entry, {**entry.obj, "status": status}, _STATUS)

    def _run(self, entry: ObjectVersion, now_ms: int) -> None:
        obj = entry.obj
        status = obj["status"]
        restarts = _restarts(status)
        containers = [
            _container(c, {"running": {"startedAt": rfc3339(now_ms)}}, ready=True, restarts=restarts)
            for c in obj["spec"]["containers"]
        ]
        kept = [c for c in status.get("conditions") or () if c["type"] == "PodScheduled"]
        conditions = [_condition(name, "True", now_ms) for name in ("Initialized", "Ready", "ContainersReady")]
        fresh = {
            **status,
            "phase": "Running",
            "startTime": status.get("startTime") or rfc3339(now_ms),
            "conditions": [*kept, *conditions],
            "containerStatuses": containers,
            "hostIP": "10.0.0.1",
            "podIP": "10.1.0.1",
            "podIPs": [{"ip": "10.1.0.1"}],
        }
        if _ends(obj):
            run_ms = _annotated(obj, RUN_ANNOTATION, self._run_ms)
            self._schedule(now_ms + run_ms, entry.key, obj["metadata"]["uid"], "end")
        self._registry.update(PODS, entry, {**obj, "status": fresh}, _STATUS)

    def _end(self, entry: ObjectVersion, now_ms: int) -> None:
        obj = entry.obj
        code = _annotated(obj, EXIT_ANNOTATION, 0)
        policy = obj["spec"].get("restartPolicy", "Always")
        restarts = _restarts(obj["status"])
        if policy == "Always" or (policy == "OnFailure" and code != 0):
            state: JsonObject = {"waiting": {"reason": "CrashLoopBackOff"}}
            # Scheduled first, so that the change of status does not look like a pod without a timer.
            self._schedule(now_ms + _pause_ms(restarts), entry.key, obj["metadata"]["uid"], "start")
            self._finish(entry, "Running", state, restarts + 1, now_ms)
            return
        ended = _terminated(obj, code, now_ms)
        self._finish(entry, "Failed" if code else "Succeeded", ended, restarts, now_ms)

    def _finish(self, entry: ObjectVersion, phase: str, state: JsonObject, restarts: int, now_ms: int) -> ObjectVersion:
        obj, status = entry.obj, entry.obj["status"]
        kept = [c for c in status.get("conditions") or () if c["type"] not in {"Ready", "ContainersReady"}]
        reason = "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
        conditions = [_condition(name, "False", now_ms, reason=reason) for name in ("Ready", "ContainersReady")]
        fresh = {
            **status,
            "phase": phase,
            "conditions": [*kept, *conditions],
            "containerStatuses": [
                _container(c, state, ready=False, restarts=restarts) for c in obj["spec"]["containers"]
            ],
        }
        return self._registry.update(PODS, entry, {**obj, "status": fresh}, _STATUS)

    def _kill(self, entry: ObjectVersion, now_ms: int) -> None:
        """Stop the containers of a deleted pod, say so, and let the object go."""
        if entry.obj["status"].get("phase") not in {"Succeeded", "Failed"}:
            # Killed containers exit with 143, which fails the pod under every restart policy (SyncTerminatedPod).
            ended = _terminated(entry.obj, 143, now_ms)
            self._finish(entry, "Failed", ended, _restarts(entry.obj["status"]), now_ms)
        self._vanish(entry.key)

    def _vanish(self, key: Key) -> None:
        entry = self._registry.find(PODS, *key)
        if entry is not None:
            uid = entry.obj["metadata"]["uid"]
            self._registry.delete(PODS, entry, Deletion(uid=uid, grace_s=0, propagation="Background"))

    def _orphaned(self, entry: ObjectVersion, now_ms: int) -> None:
        """The pod garbage collector's part: a pod whose node is gone has failed and is removed."""
        if entry.obj["status"].get("phase") not in {"Succeeded", "Failed"}:
            disrupted = _condition(
                "DisruptionTarget", "True", now_ms, reason="DeletionByPodGC", message="PodGC: node no longer exists"
            )
            others = [c for c in entry.obj["status"].get("conditions") or () if c["type"] != "DisruptionTarget"]
            status = {**entry.obj["status"], "phase": "Failed", "conditions": [*others, disrupted]}
            self._registry.update(PODS, entry, {**entry.obj, "status": status}, _STATUS)
        self._vanish(entry.key)


def table_pods(registry: Registry, node: str) -> list[ObjectVersion]:
    """The pods that are bound to a node."""
    return [entry for entry in registry.store.table(PODS).select("") if entry.obj["spec"].get("nodeName") == node]


def _condition(kind: str, status: str, now_ms: int, *, reason: str = "", message: str = "") -> JsonObject:
    found: JsonObject = {"type": kind, "status": status, "lastTransitionTime": rfc3339(now_ms)}
    if reason:
        found["reason"] = reason
    if message:
        found["message"] = message
    return found


def _annotated(obj: JsonObject, annotation: str, default: int) -> int:
    text = (obj["metadata"].get("annotations") or {}).get(annotation)
    number = decimal(text)
    return default if number is None else number


def _ends(obj: JsonObject) -> bool:
    return obj["spec"].get("restartPolicy") != "Always" or RUN_ANNOTATION in (obj["metadata"].get("annotations") or {})


def _pause_ms(restarts: int) -> int:
    """How long a failed container waits that has been started again so many times before."""
    return min(RESTART_BACKOFF_MS << min(max(restarts, 0), 8), RESTART_BACKOFF_MS_MAX)


def _restarts(status: JsonObject) -> int:
    return max((c.get("restartCount", 0) for c in status.get("containerStatuses") or ()), default=0)


def _terminated(pod: JsonObject, code: int, now_ms: int) -> JsonObject:
    """The state of containers that end now; they began at the start time of their status."""
    states = [each.get("state") or {} for each in pod.get("status", {}).get("containerStatuses") or ()]
    now = rfc3339(now_ms)
    began = next((state["running"]["startedAt"] for state in states if "running" in state), now)
    reason = "Completed" if code == 0 else "Error"
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": now}}


def _container(container: JsonObject, state: JsonObject, *, ready: bool, restarts: int) -> JsonObject:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": restarts,
        "state": state,
    }


def _amount(resource: str, amount: int) -> int:
    return amount // (ONE // 1000) if resource == "cpu" else amount // ONE
