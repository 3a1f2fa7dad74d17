"""
The kube-scheduler of a simulated cluster, in miniature: what places pods where Headgate does not.

Pods whose `schedulerName` is `default-scheduler` are bound, first fit: in the order in which they appeared, to the
first node by name that is ready, not cordoned, selected, tolerated and has room. Pods that find no node are tried again
when a node or a pod changes.
"""

from typing import Any

import msgspec

from headgate.testing.cluster.api.subresources import bind
from headgate.testing.cluster.api.writes import Write
from headgate.testing.cluster.nodes.node_usage import NODES, PODS, NodeUsage, Shortage, selects_node, untolerated
from headgate.testing.cluster.quantity import pod_requests
from headgate.testing.cluster.storage.registry import Registry
from headgate.testing.cluster.storage.store import Change, Key, Table

JsonObject = dict[str, Any]


class FirstFitScheduler:
    """Binds the pods of `default-scheduler`."""

    def __init__(self, registry: Registry, usage: NodeUsage) -> None:
        self._registry = registry
        self._usage = usage
        self._pending: dict[Key, bytes] = {}
        self._changed = True
        for entry in registry.store.table(PODS).select(""):
            if _waits(entry.obj):
                self._pending[entry.key] = _shape(entry.obj)
        registry.store.listen(self._on_change)

    def _on_change(self, table: Table, change: Change) -> None:
        if table.kind is PODS:
            if change.type != "DELETED" and _waits(change.entry.obj):
                self._pending[change.entry.key] = _shape(change.entry.obj)
                self._changed = True
            else:
                self._pending.pop(change.entry.key, None)
                over = change.type == "DELETED" or change.entry.obj.get("status", {}).get("phase") in {
                    "Succeeded",
                    "Failed",
                }
                self._changed = self._changed or over
        elif table.kind is NODES:
            self._changed = True

    def step(self, _now_ms: int) -> int:
        """Bind what fits; returns how many writes that took."""
        if not self._changed or not self._pending:
            return 0
        self._changed = False
        before = self._registry.store.rv
        nodes = [entry.obj for entry in self._registry.store.table(NODES).select("") if _is_open(entry.obj)]
        # Room only shrinks within a step: where one pod found none, the others of its shape find none either.
        hopeless: set[bytes] = set()
        for key, shape in list(self._pending.items()):
            entry = self._registry.find(PODS, *key)
            if entry is None or shape in hopeless:
                continue
            node = self._place(entry.obj, nodes)
            if node is None:
                hopeless.add(shape)
            else:
                binding = {"metadata": {"name": key[1]}, "target": {"kind": "Node", "name": node}}
                bind(self._registry, *key, binding, Write(manager="default-scheduler"))
        return self._registry.store.rv - before

    def next_due_ms(self) -> int | None:
        """Nothing here waits for time."""
        return None

    def _place(self, pod: JsonObject, nodes: list[JsonObject]) -> str | None:
        requests = pod_requests(pod["spec"])
        for node in nodes:
            if not selects_node(pod["spec"], node) or untolerated(pod["spec"], node, ("NoSchedule", "NoExecute")):
                continue
            try:
                self._usage.require_room(node, requests, counted=False)
            except Shortage:
                continue
            name: str = node["metadata"]["name"]
            return name
        return None


def _shape(pod: JsonObject) -> bytes:
    """What the choice of a node depends on."""
    spec = pod["spec"]
    resources = [c.get("resources") for group in ("containers", "initContainers") for c in spec.get(group) or ()]
    rest = [spec.get(field) for field in ("overhead", "nodeSelector", "affinity", "tolerations")]
    return msgspec.json.encode([resources, rest])


def _waits(pod: JsonObject) -> bool:
    spec = pod["spec"]
    return (
        spec.get("schedulerName") == "default-scheduler"
        and not spec.get("nodeName")
        and not spec.get("schedulingGates")
        and "deletionTimestamp" not in pod["metadata"]
        and pod.get("status", {}).get("phase") == "Pending"
    )


def _is_open(node: JsonObject) -> bool:
    if node.get("spec", {}).get("unschedulable"):
        return False
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node.get("status", {}).get("conditions") or ())
