"""
The taint eviction of node failures: pods that do not tolerate a node's NoExecute taints are deleted.

At once where no toleration matches, after the shortest `tolerationSeconds` of those that do, never where one tolerates
all of them for good (k8s.io/kubernetes/pkg/controller/tainteviction). The time counts from when the taint was first
seen here. Off by default: without it, the pods of a node that has failed stay as they are.
"""

from typing import Any, Final

from headgate.testing.cluster.api.writes import Deletion
from headgate.testing.cluster.nodes.node_usage import NODES, PODS, tolerates
from headgate.testing.cluster.storage.registry import Registry
from headgate.testing.cluster.storage.store import Change, Key, ObjectVersion, Table

JsonObject = dict[str, Any]

Taint = tuple[str, str]
"""Key and value of a NoExecute taint."""


class TaintEviction:
    """One loop over all nodes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._since_ms: dict[str, dict[Taint, int]] = {}
        self._due_ms: dict[Key, int] = {}
        self._dirty: dict[str, None] = {entry.key[1]: None for entry in registry.store.table(NODES).select("")}
        registry.store.listen(self._on_change)

    def _on_change(self, table: Table, change: Change) -> None:
        if table.kind is NODES:
            self._dirty[change.entry.key[1]] = None
        elif table.kind is PODS and change.type == "DELETED":
            self._due_ms.pop(change.entry.key, None)
        elif table.kind is PODS and (node := change.entry.obj["spec"].get("nodeName")) in self._since_ms:
            self._dirty[node] = None

    def step(self, now_ms: int) -> int:
        """Delete the pods that are due; returns how many writes that took."""
        before = self._registry.store.rv
        dirty, self._dirty = self._dirty, {}
        for name in dirty:
            self._look_at(name, now_ms)
        for key in [key for key, due_ms in self._due_ms.items() if due_ms <= now_ms]:
            del self._due_ms[key]
            entry = self._registry.find(PODS, *key)
            if entry is not None:
                self._evict(entry)
        return self._registry.store.rv - before

    def next_due_ms(self) -> int | None:
        """When the toleration of the next pod ends."""
        return min(self._due_ms.values(), default=None)

    def _look_at(self, name: str, now_ms: int) -> None:
        node = self._registry.find(NODES, "", name)
        taints = [each for each in _taints(node) if each.get("effect") == "NoExecute"]
        known = self._since_ms.pop(name, {})
        since_ms = {_id(taint): known.get(_id(taint), now_ms) for taint in taints}
        if since_ms:
            self._since_ms[name] = since_ms
        elif not known:
            return
        for entry in self._registry.store.table(PODS).select(""):
            if entry.obj["spec"].get("nodeName") == name:
                self._decide(entry, taints, since_ms)

    def _decide(self, entry: ObjectVersion, taints: list[JsonObject], since_ms: dict[Taint, int]) -> None:
        self._due_ms.pop(entry.key, None)
        ended = entry.obj.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        if ended or "deletionTimestamp" in entry.obj["metadata"]:
            return
        dues = [
            since_ms[_id(taint)] + 1000 * seconds
            for taint in taints
            if (seconds := _tolerated_s(entry.obj["spec"], taint)) is not None
        ]
        if dues:
            self._due_ms[entry.key] = min(dues)

    def _evict(self, entry: ObjectVersion) -> None:
        metadata = entry.obj["metadata"]
        grace_s = entry.obj["spec"].get("terminationGracePeriodSeconds", GRACE_S)
        self._registry.delete(PODS, entry, Deletion(uid=metadata["uid"], grace_s=grace_s, propagation="Background"))


GRACE_S: Final = 30
"""The grace period of a pod that names none."""


def _taints(node: ObjectVersion | None) -> list[JsonObject]:
    return (node.obj.get("spec", {}).get("taints") or []) if node is not None else []


def _id(taint: JsonObject) -> Taint:
    return taint["key"], taint.get("value", "")


def _tolerated_s(spec: JsonObject, taint: JsonObject) -> int | None:
    """For how many seconds a pod tolerates a taint: 0 for not at all, None for ever."""
    found = [each for each in spec.get("tolerations") or () if tolerates(each, taint)]
    if not found:
        return 0
    seconds = [each["tolerationSeconds"] for each in found if each.get("tolerationSeconds") is not None]
    return max(0, min(seconds)) if seconds else None
