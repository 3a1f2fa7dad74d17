"""
A node for pods that wait while the cluster has none, so that jobs run in a cluster to which nobody has added any.

Off by default. The node appears with the first pod that waits, not before: in a cluster with nodes of its own, or one
without pods, there is none. It is an ordinary node and stays until it is deleted.
"""

from typing import Any, Final

from headgate.testing.cluster.api.writes import Write
from headgate.testing.cluster.nodes.node_usage import NODES, PODS
from headgate.testing.cluster.storage.registry import Registry
from headgate.testing.cluster.storage.store import Change, Table

JsonObject = dict[str, Any]

NAME: Final = "node-1"
_CAPACITY: Final = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "500"}
_BY: Final = Write(manager="kubelet")


class FirstNode:
    """Registers one node when a pod waits and there is none."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._is_due = any(_waits(entry.obj) for entry in registry.store.table(PODS).select(""))
        registry.store.listen(self._on_change)

    def _on_change(self, table: Table, change: Change) -> None:
        if table.kind is PODS and change.type != "DELETED" and _waits(change.entry.obj):
            self._is_due = True

    def step(self, _now_ms: int) -> int:
        """Register the node if it is needed; returns how many writes that took."""
        if not self._is_due:
            return 0
        self._is_due = False
        if self._registry.store.table(NODES).entries:
            return 0
        before = self._registry.store.rv
        node: JsonObject = {"metadata": {"name": NAME}, "status": {"capacity": dict(_CAPACITY)}}
        self._registry.create(NODES, "", node, _BY)
        return self._registry.store.rv - before

    def next_due_ms(self) -> int | None:
        """Nothing here waits for time."""
        return None


def _waits(pod: JsonObject) -> bool:
    return (
        not pod["spec"].get("nodeName")
        and not pod["spec"].get("schedulingGates")
        and "deletionTimestamp" not in pod["metadata"]
    )
