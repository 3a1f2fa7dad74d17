"""
The namespace controller: everything in a terminating namespace is deleted, then the namespace itself.

As long as something is left, the namespace's conditions say what, and what holds it. Source:
k8s.io/kubernetes/pkg/controller/namespace/deletion.
"""

from collections import Counter
from typing import Any, Final

from headgate.testing.cluster.api.writes import Deletion, Write
from headgate.testing.cluster.kinds import BY_PLURAL
from headgate.testing.cluster.storage.registry import Registry
from headgate.testing.cluster.storage.store import Change, ObjectVersion, Table
from headgate.testing.cluster.times import rfc3339

JsonObject = dict[str, Any]

_NAMESPACES: Final = BY_PLURAL[("", "namespaces")]
_CONTENT: Final = "NamespaceContentRemaining"
_FINALIZERS: Final = "NamespaceFinalizersRemaining"
_FINE: Final = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    _CONTENT: ("ContentRemoved", "All content successfully removed"),
    _FINALIZERS: ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}
"""Reason and message of each condition that is False, in the order of the conditions."""


class NamespaceController:
    """Empties terminating namespaces and lets them go."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._terminating: dict[str, None] = {}
        for entry in registry.store.table(_NAMESPACES).select(""):
            if "deletionTimestamp" in entry.obj["metadata"]:
                self._terminating[entry.key[1]] = None
        registry.store.listen(self._on_change)

    def _on_change(self, table: Table, change: Change) -> None:
        if table.kind is not _NAMESPACES:
            return
        name = change.entry.key[1]
        if change.type == "DELETED":
            self._terminating.pop(name, None)
        elif "deletionTimestamp" in change.entry.obj["metadata"]:
            self._terminating[name] = None

    def step(self, _now_ms: int) -> int:
        """Delete what is left in terminating namespaces; returns how many writes that took."""
        before = self._registry.store.rv
        for name in list(self._terminating):
            self._empty(name)
        return self._registry.store.rv - before

    def next_due_ms(self) -> int | None:
        """Nothing here waits for time."""
        return None

    def _empty(self, namespace: str) -> None:
        left: Counter[str] = Counter()
        held: Counter[str] = Counter()
        for table in self._registry.store.tables.values():
            if not table.kind.namespaced:
                continue
            for entry in list(table.select(namespace)):
                if "deletionTimestamp" not in entry.obj["metadata"]:
                    self._registry.delete(table.kind, entry, Deletion(propagation="Background"))
            for entry in table.select(namespace):
                left[f"{table.kind.plural}.{table.kind.group}"] += 1
                held.update(entry.obj["metadata"].get("finalizers") or ())
        found = self._registry.find(_NAMESPACES, "", namespace)
        if found is None:
            return
        found = self._say(found, left, held)
        # Once it is finalized, finalizers of others in its metadata may keep it.
        if not left and (found.obj.get("spec") or {}).get("finalizers"):
            self._registry.finalize(_NAMESPACES, found, {"spec": {"finalizers": []}})

    def _say(self, entry: ObjectVersion, left: Counter[str], held: Counter[str]) -> ObjectVersion:
        """Write what is left, and by what it is held, into the namespace's conditions, if they do not say so yet."""
        said = {condition["type"]: condition for condition in entry.obj["status"].get("conditions") or ()}
        conditions = []
        for type_, fine in _FINE.items():
            state, (reason, message) = "False", fine
            if type_ == _CONTENT and left:
                listed = sorted(f"{resource} has {count} resource instances" for resource, count in left.items())
                state, reason = "True", "SomeResourcesRemain"
                message = "Some resources are remaining: " + ", ".join(listed)
            elif type_ == _FINALIZERS and held:
                listed = sorted(f"{finalizer} in {count} resource instances" for finalizer, count in held.items())
                state, reason = "True", "SomeFinalizersRemain"
                message = "Some content in the namespace has finalizers remaining: " + ", ".join(listed)
            before = said.get(type_, {})
            since = before.get("lastTransitionTime") if before.get("status") == state else None
            conditions.append(
                {
                    "type": type_,
                    "status": state,
                    "lastTransitionTime": since or rfc3339(self._registry.clock()),
                    "reason": reason,
                    "message": message,
                }
            )
        if conditions == entry.obj["status"].get("conditions"):
            return entry
        status = {**entry.obj["status"], "conditions": conditions}
        return self._registry.update(_NAMESPACES, entry, {**entry.obj, "status": status}, Write(subresource="status"))
