"""
The disruption controller: keeps the status of PodDisruptionBudgets true to the pods.

An eviction does not wait for it (`subresources.evict` counts for itself); it is what `kubectl get pdb` shows.
"""

from typing import Any, Final

from headgate.testing.cluster.kinds import BY_PLURAL
from headgate.testing.cluster.node_usage import PODS
from headgate.testing.cluster.registry import Registry, Write
from headgate.testing.cluster.store import Change, Table
from headgate.testing.cluster.subresources import budget_status

JsonObject = dict[str, Any]

_BUDGETS: Final = BY_PLURAL[("policy", "poddisruptionbudgets")]
_STATUS: Final = Write(manager="disruption-controller", subresource="status")


class DisruptionController:
    """Recounts the budgets of the namespaces in which pods or budgets changed."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._dirty: dict[str, None] = {entry.key[0]: None for entry in registry.store.table(_BUDGETS).select("")}
        registry.store.listen(self._on_change)

    def _on_change(self, table: Table, change: Change) -> None:
        if table.kind is PODS or table.kind is _BUDGETS:
            self._dirty[change.entry.key[0]] = None

    def step(self, _now_ms: int) -> int:
        """Write what changed; returns how many writes that took."""
        dirty, self._dirty = self._dirty, {}
        before = self._registry.store.rv
        for namespace in dirty:
            for entry in list(self._registry.store.table(_BUDGETS).select(namespace)):
                status = {**entry.obj.get("status", {}), **budget_status(self._registry, entry.obj)}
                self._registry.update(_BUDGETS, entry, {**entry.obj, "status": status}, _STATUS)
        return self._registry.store.rv - before

    def next_due_ms(self) -> int | None:
        """Nothing here waits for time."""
        return None
