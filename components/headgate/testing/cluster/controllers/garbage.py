"""
The garbage collector: what vanishes because its owner did.

Dependents of an owner that is gone are deleted once no other owner of theirs is left; foreground deletion waits for
dependents that block it; orphaning cuts the references. Source: k8s.io/kubernetes/pkg/controller/garbagecollector.

The collector keeps an index of owners from the store's changes; `step` does what the changes since the last step ask
for.
"""

import contextlib
from typing import Any

from headgate.testing.cluster.api.writes import Deletion
from headgate.testing.cluster.errors import ApiStatusError
from headgate.testing.cluster.kinds import BY_KIND, BY_PLURAL, Kind
from headgate.testing.cluster.storage.registry import Registry
from headgate.testing.cluster.storage.store import Change, Key, ObjectVersion, Table

JsonObject = dict[str, Any]
Ref = tuple[str, str, Key]
"""(group, plural, key) of a dependent."""


class GarbageCollector:
    """Deletes, or orphans, the dependents of deleted owners."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._dependents: dict[str, dict[Ref, None]] = {}
        self._uids: dict[str, str] = {}
        """The namespace, if it has one, of every object by its uid."""
        self._orphans: dict[Ref, None] = {}
        self._waiting: dict[Ref, None] = {}
        for table in registry.store.tables.values():
            for entry in table.select(""):
                self._index(table, entry)
        registry.store.listen(self._on_change)

    def _on_change(self, table: Table, change: Change) -> None:
        ref = (table.kind.group, table.kind.plural, change.entry.key)
        metadata = change.entry.obj["metadata"]
        if change.previous is not None and change.type != "DELETED":
            before = change.previous.obj["metadata"].get("ownerReferences")
            if before is not metadata.get("ownerReferences"):
                for owner in before or ():
                    self._dependents.get(owner["uid"], {}).pop(ref, None)
        if change.type == "DELETED":
            self._uids.pop(metadata["uid"], None)
            for owner in metadata.get("ownerReferences") or ():
                dependents = self._dependents.get(owner["uid"], {})
                dependents.pop(ref, None)
            for dependent in self._dependents.get(metadata["uid"], {}):
                self._orphans[dependent] = None
            self._waiting.pop(ref, None)
            self._wake_owners(metadata)
            return
        self._index(table, change.entry)

    def _index(self, table: Table, entry: ObjectVersion) -> None:
        metadata = entry.obj["metadata"]
        ref = (table.kind.group, table.kind.plural, entry.key)
        self._uids[metadata["uid"]] = entry.key[0]
        for owner in metadata.get("ownerReferences") or ():
            self._dependents.setdefault(owner["uid"], {})[ref] = None
            if not self._exists(owner, entry.key[0]):
                self._orphans[ref] = None
        if "deletionTimestamp" in metadata:
            finalizers = metadata.get("finalizers") or ()
            if "foregroundDeletion" in finalizers or "orphan" in finalizers:
                self._waiting[ref] = None
            self._wake_owners(metadata)

    def _wake_owners(self, metadata: JsonObject) -> None:
        for owner in metadata.get("ownerReferences") or ():
            kind = BY_KIND.get((owner["apiVersion"].rpartition("/")[0], owner["kind"]))
            if kind is None:
                continue
            key = (metadata.get("namespace", "") if kind.namespaced else "", owner["name"])
            entry = self._registry.find(kind, *key)
            if (
                entry is not None
                and "deletionTimestamp" in entry.obj["metadata"]
                and entry.obj["metadata"].get("finalizers")
            ):
                self._waiting[(kind.group, kind.plural, key)] = None

    def step(self, _now_ms: int) -> int:
        """Collect what the changes since the last step left behind; returns how many writes that took."""
        before = self._registry.store.rv
        orphans, self._orphans = self._orphans, {}
        for ref in orphans:
            self._collect(ref)
        waiting, self._waiting = self._waiting, {}
        for ref in waiting:
            self._finalize(ref)
        return self._registry.store.rv - before

    def next_due_ms(self) -> int | None:
        """Nothing here waits for time."""
        return None

    def _exists(self, owner: JsonObject, namespace: str) -> bool:
        """Whether an owner is there: by its uid, and in the dependent's namespace if it is in any."""
        where = self._uids.get(owner["uid"])
        if where is None:
            # Whether an object of a kind that is not served exists is nothing that can be known.
            return (owner["apiVersion"].rpartition("/")[0], owner["kind"]) not in BY_KIND
        return where in {"", namespace}

    def _entry(self, ref: Ref) -> tuple[Kind, ObjectVersion | None]:
        kind = BY_PLURAL[(ref[0], ref[1])]
        return kind, self._registry.find(kind, *ref[2])

    def _collect(self, ref: Ref) -> None:
        kind, entry = self._entry(ref)
        if entry is None or "deletionTimestamp" in entry.obj["metadata"]:
            return
        owners = entry.obj["metadata"].get("ownerReferences") or []
        solid = [owner for owner in owners if self._exists(owner, entry.key[0])]
        if len(solid) == len(owners):
            return
        if solid:
            self._set_owners(kind, entry, solid)
        else:
            uid = entry.obj["metadata"]["uid"]
            self._registry.delete(kind, entry, Deletion(uid=uid, propagation="Background"))

    def _set_owners(self, kind: Kind, entry: ObjectVersion, owners: list[JsonObject]) -> None:
        self._write(kind, entry, {**entry.obj["metadata"], "ownerReferences": owners})

    def _finalize(self, ref: Ref) -> None:
        kind, entry = self._entry(ref)
        if entry is None:
            return
        metadata = entry.obj["metadata"]
        finalizers = metadata.get("finalizers") or []
        dependents = list(self._dependents.get(metadata["uid"], {}))
        if "orphan" in finalizers:
            for dependent in dependents:
                other, found = self._entry(dependent)
                if found is not None:
                    owners = found.obj["metadata"].get("ownerReferences") or []
                    self._set_owners(other, found, [o for o in owners if o["uid"] != metadata["uid"]])
            self._drop_finalizer(kind, entry, "orphan")
        elif "foregroundDeletion" in finalizers:
            for dependent in dependents:
                other, found = self._entry(dependent)
                if found is not None and "deletionTimestamp" not in found.obj["metadata"]:
                    self._registry.delete(
                        other, found, Deletion(propagation="Foreground" if other.plural != "pods" else "Background")
                    )
            still = [d for d in self._dependents.get(metadata["uid"], {}) if self._blocks(d, metadata["uid"])]
            if not still:
                self._drop_finalizer(kind, entry, "foregroundDeletion")

    def _blocks(self, ref: Ref, owner_uid: str) -> bool:
        _, entry = self._entry(ref)
        if entry is None:
            return False
        owners = entry.obj["metadata"].get("ownerReferences") or []
        return any(owner["uid"] == owner_uid and owner.get("blockOwnerDeletion") for owner in owners)

    def _drop_finalizer(self, kind: Kind, entry: ObjectVersion, name: str) -> None:
        metadata = entry.obj["metadata"]
        finalizers = [finalizer for finalizer in metadata.get("finalizers") or () if finalizer != name]
        self._write(kind, entry, {**metadata, "finalizers": finalizers})

    def _write(self, kind: Kind, entry: ObjectVersion, metadata: JsonObject) -> None:
        """A write that is refused (an object that its own rules would not admit) leaves the object where it is."""
        with contextlib.suppress(ApiStatusError):
            self._registry.update(kind, entry, {**entry.obj, "metadata": metadata})
