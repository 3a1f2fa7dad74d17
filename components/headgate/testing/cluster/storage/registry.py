"""
Create, update and delete with the API server's semantics, for one store.

Owns the order in which a write is checked: metadata, status isolation, schema (types, defaults, unknown fields), the
kind's own rules, generation, no-op detection, field ownership, storage. The REST layer calls it with decoded bodies;
the controllers of the simulated cluster (kubelet, Job controller, garbage collector) call it directly and thereby
obey the same rules.

Objects passed in become the store's: callers build them afresh or share only stored parts, and never write into them
afterwards.
"""
# Over 400 lines: create, update, apply and delete share the checks of a write and their order.

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec

from headgate.adapters.kubernetes.crds.schema import SchemaNode
from headgate.core.admission.settings import AdmissionSettings
from headgate.testing.cluster import errors
from headgate.testing.cluster.api.apply import FieldManager, applied, root_node, tracked
from headgate.testing.cluster.api.writes import Deletion, Write, given_metadata
from headgate.testing.cluster.kinds import BY_PLURAL, Kind
from headgate.testing.cluster.storage.metadata import (
    CLIENT_FIELDS,
    combined,
    immutable_errors,
    metadata_errors,
    metadata_warnings,
)
from headgate.testing.cluster.storage.store import Key, ObjectVersion, Store, Table
from headgate.testing.cluster.times import rfc3339
from headgate.testing.cluster.validation import rules
from headgate.testing.cluster.validation.admission_rules import AdmissionRules
from headgate.testing.cluster.validation.decoding import (
    content_errors,
    decoded,
    former_version,
    isolated,
    naming_errors,
    spec_changed,
)
from headgate.testing.cluster.validation.schema import Checker
from headgate.testing.cluster.validation.typed import typing_problem

JsonObject = dict[str, Any]

_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
_NAMESPACES: Final = BY_PLURAL[("", "namespaces")]
_CLAIMS: Final = ("name", "namespace", "uid", "resourceVersion")
_EMPTY_STRUCTS: Final[JsonObject] = {"spec": {}, "status": {}}
# What an object of a kind has that was decoded from nothing: structs are there, lists of theirs are null.
_EMPTY: Final[Mapping[str, JsonObject]] = {
    "pods": {"spec": {"containers": None}, "status": {}},
    "jobs.batch": {"spec": {"template": {"metadata": {}, "spec": {"containers": None}}}, "status": {}},
    "limitranges": {"spec": {"limits": None}},
}
_DEFAULT_FINALIZERS: Final = ("foregroundDeletion", "orphan")


class Registry:
    """
    The write path of a simulated cluster.

    `clock` gives unix milliseconds. Uids and generated names are digests of (`seed`, a counter), so that a run
    repeats exactly. `track_all`: own fields of every write, as the API server does, instead of only those of objects
    that were ever applied. `admission`: with Kueue's defaults and refusals under these settings.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        *,
        seed: str,
        history_max: int,
        track_all: bool,
        admission: AdmissionSettings | None = None,
    ) -> None:
        self.clock = clock
        self.store = Store(history_max=history_max)
        self._seed = seed.encode()
        self._identities = 0
        self._track_all = track_all
        self._roots: dict[str, SchemaNode] = {}
        self._admission = None if admission is None else AdmissionRules(admission, self)

    # -- reading
    # ---------------------------------------------------------------------------------------------------------------

    def find(self, kind: Kind, namespace: str, name: str) -> ObjectVersion | None:
        """The stored version of an object, if it exists."""
        entry: ObjectVersion | None = self.store.table(kind).entries.get((namespace if kind.namespaced else "", name))
        return entry

    def get(self, kind: Kind, namespace: str, name: str) -> ObjectVersion:
        """The stored version of an object. Raises ApiStatusError 404."""
        entry = self.find(kind, namespace, name)
        if entry is None:
            raise errors.not_found(kind, name)
        return entry

    # -- identities
    # ------------------------------------------------------------------------------------------------------------

    @property
    def identities(self) -> int:
        """How many uids and generated names there have been."""
        return self._identities

    def restore(self, identities: int, rv: int, objects: Iterable[tuple[Table, Key, JsonObject]]) -> None:
        """Go on, still empty, from where another registry with the same seed was."""
        self._identities = identities
        self.store.restore(rv, objects)

    def _digest(self) -> str:
        self._identities += 1
        return blake2b(self._identities.to_bytes(8, "big"), digest_size=16, key=self._seed[:64]).hexdigest()

    def _uid(self) -> str:
        d = self._digest()
        return f"{d[:8]}-{d[8:12]}-4{d[13:16]}-a{d[17:20]}-{d[20:]}"

    def _generated_name(self, prefix: str, table: Table, namespace: str) -> str:
        while True:
            number = int(self._digest()[:12], 16)
            suffix = ""
            for _ in range(5):
                number, digit = divmod(number, len(_SUFFIX))
                suffix += _SUFFIX[digit]
            name = prefix[:58] + suffix
            if (namespace, name) not in table.entries:
                return name

    # -- create
    # ----------------------------------------------------------------------------------------------------------------

    def create(self, kind: Kind, namespace: str, obj: JsonObject, write: Write | None = None) -> ObjectVersion:
        """Create an object. Raises ApiStatusError: 400, 403, 404 (namespace), 409 (exists), 422."""
        write = write or Write()
        return self._create(kind, namespace, obj, write, None)

    # Large: the steps of a create in the order of the API server, which decides what error a client sees.
    def _create(
        self, kind: Kind, namespace: str, obj: JsonObject, write: Write, managed: list[JsonObject] | None
    ) -> ObjectVersion:
        given = given_metadata(kind, write, obj)
        unknown: list[str] = []
        metadata = combined(given, {}, unknown)
        fresh: JsonObject = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        for field, value in obj.items():
            if field not in fresh and not (field == "status" and kind.status_subresource and kind.plural != "nodes"):
                fresh[field] = value
        checker = Checker(kind.kind, custom=kind.custom, former=former_version(kind, write))
        fresh = decoded(kind, fresh, None, unknown, checker, write)
        table, namespace = self.store.table(kind), self._namespace_of(kind, namespace, given)
        name = given.get("name") or ""
        if kind.namespaced:
            self._require_open_namespace(kind, namespace, name)
        if not name and given.get("generateName"):
            name = self._generated_name(str(given["generateName"]), table, namespace)
        # The writer owns what it sent and its defaults, not what the server adds to a new object.
        said = rules.with_defaults(kind, fresh, name) if self._track_all and managed is None else fresh
        if kind.status_subresource and "status" in said:
            said = {field: value for field, value in said.items() if field != "status"}
        fresh = {**fresh, "metadata": self._identity(kind, namespace, name, metadata)}
        fresh = rules.on_create(self, kind, fresh)
        if self._admission is not None:
            fresh = self._admission.defaulted(kind, fresh, None, write)
        found = naming_errors(kind, name, given) + metadata_errors(kind, fresh["metadata"], None)
        found += content_errors(kind, fresh, None, found, checker) or rules.create_errors(kind, fresh)
        if found := found or ([] if kind.custom else checker.errors):
            raise errors.invalid(kind, name, found)
        write.warnings += metadata_warnings(kind, fresh["metadata"], None) + rules.on_valid(self, kind, fresh)
        if self._admission is not None:
            self._admission.check(kind, fresh, None, write)
        if str(given.get("resourceVersion") or "0") != "0":
            raise errors.internal("resourceVersion should not be set on objects to be created")
        if (namespace, name) in table.entries:
            raise errors.already_exists(kind, name)
        metadata = fresh["metadata"]
        if managed:
            metadata["managedFields"] = managed
        elif self._track_all and managed is None and (owned := self._tracked(kind, None, said, write)):
            metadata["managedFields"] = owned
        if write.dry_run:
            return ObjectVersion((namespace, name), fresh, 0)
        return self.store.put(table, (namespace, name), fresh)

    def _identity(self, kind: Kind, namespace: str, name: str, metadata: JsonObject) -> JsonObject:
        """The metadata of a new object: the server's fields first, then the client's."""
        system: JsonObject = {"name": name}
        if "generateName" in metadata:
            system["generateName"] = metadata["generateName"]
        if kind.namespaced:
            system["namespace"] = namespace
        system["uid"] = self._uid()
        system["creationTimestamp"] = rfc3339(self.clock())
        if kind.generation:
            system["generation"] = 1
        return {**system, **metadata}

    def _namespace_of(self, kind: Kind, namespace: str, given: JsonObject) -> str:
        if not kind.namespaced:
            return ""
        if given.get("namespace") and namespace and given["namespace"] != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        return namespace or given.get("namespace") or "default"

    def _require_open_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        entry = self.find(_NAMESPACES, "", namespace)
        if entry is None:
            raise errors.not_found(_NAMESPACES, namespace)
        if entry.obj["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise errors.forbidden(kind, name, why, [cause])

    # -- update
    # ----------------------------------------------------------------------------------------------------------------

    def update(self, kind: Kind, entry: ObjectVersion, obj: JsonObject, write: Write | None = None) -> ObjectVersion:
        """
        Replace a stored version by `obj`. Raises ApiStatusError: 400, 409 (stale resourceVersion or uid), 422.

        With `write.subresource == "status"` only the status (and, for Kubernetes' own kinds, labels and annotations)
        is taken; without it, everything but the status. An update that changes nothing stores nothing.
        """
        write = write or Write()
        return self._update(kind, entry, obj, write, None)

    # Large: the steps of an update in the order of the API server, which decides what error a client sees.
    def _update(
        self, kind: Kind, entry: ObjectVersion, obj: JsonObject, write: Write, managed: list[JsonObject] | None
    ) -> ObjectVersion:
        old, name = entry.obj, entry.key[1]
        stored = old["metadata"]
        given: JsonObject = obj.get("metadata") or stored
        if given is not stored:
            given_metadata(kind, write, obj)
            self._check_preconditions(kind, entry, given, write)
        fresh, unknown = isolated(kind, old, obj, write.subresource)
        below = "status." if kind.custom and write.subresource == "status" else ""
        checker = Checker(
            kind.kind,
            custom=kind.custom,
            below=below,
            former=former_version(kind, write),
            keeps_nulls=kind.custom and write.applies,
        )
        fresh = decoded(kind, fresh, old, unknown, checker, write)
        fresh = rules.on_update(self, kind, fresh, old, write.subresource)
        if self._admission is not None and fresh != old:
            fresh = self._admission.defaulted(kind, fresh, old, write)
        metadata = fresh["metadata"]
        found = metadata_errors(kind, metadata, stored)
        if given is not stored:
            found += immutable_errors(given, stored)
        found += content_errors(kind, fresh, old, found, checker)
        found += rules.update_errors(kind, fresh, old, write.subresource)
        if found := found or ([] if kind.custom else checker.errors):
            raise errors.invalid(kind, name, found)
        write.warnings += metadata_warnings(kind, metadata, stored)
        if self._admission is not None and fresh != old:
            self._admission.check(kind, fresh, old, write)
        if kind.generation and spec_changed(fresh, old):
            metadata["generation"] = stored.get("generation", 0) + 1
        is_reset = managed is None and given.get("managedFields") in ([], [{}])
        if is_reset:
            metadata.pop("managedFields", None)
        elif managed is not None:
            metadata["managedFields"] = managed
        if fresh == old:
            return entry
        if managed is None and not is_reset and (self._track_all or "managedFields" in metadata):
            metadata["managedFields"] = self._tracked(kind, old, fresh, write)
        if metadata.get("managedFields") == []:
            del metadata["managedFields"]
            if fresh == old:
                return entry
        if write.dry_run:
            return ObjectVersion(entry.key, fresh, entry.rv)
        return self._store_update(kind, entry, fresh)

    def _store_update(self, kind: Kind, entry: ObjectVersion, fresh: JsonObject) -> ObjectVersion:
        table, metadata = self.store.table(kind), fresh["metadata"]
        held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if kind.plural == "namespaces":
            held = held or (fresh.get("spec") or {}).get("finalizers")
        if "deletionTimestamp" in metadata and not held:
            # What would be stored is gone at once, so only the deletion is.
            self.store.remove(table, entry.key)
            return ObjectVersion(entry.key, fresh, entry.rv)
        return self.store.put(table, entry.key, fresh)

    def _check_preconditions(self, kind: Kind, entry: ObjectVersion, given: JsonObject, write: Write) -> None:
        name, stored = entry.key[1], entry.obj["metadata"]
        if given.get("name", name) != name:
            raise errors.another_name(given["name"], name)
        if given.get("namespace") and given["namespace"] != stored.get("namespace"):
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        version = str(given.get("resourceVersion") or "0")
        if not version.isdigit():
            raise errors.internal(f'strconv.ParseUint: parsing "{version}": invalid syntax')
        if given.get("uid") and given["uid"] != stored["uid"] and write.patched is None:
            why = f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {stored['uid']}"
            raise errors.precondition_failed(kind, *entry.key, why)
        if version != "0" and version != stored["resourceVersion"]:
            raise errors.conflict(kind, name)
        if version == "0" and kind.custom and write.replaces:
            field = errors.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.invalid(kind, name, [field], as_resource=True)

    # -- server-side apply
    # -----------------------------------------------------------------------------------------------------

    def apply(
        self, kind: Kind, namespace: str, name: str, config: JsonObject, write: Write, *, force: bool
    ) -> tuple[ObjectVersion, bool]:
        """
        Server-side apply; returns the entry and whether it was created.

        Raises ApiStatusError: 409 on a field conflict unless `force`.
        """
        given = given_metadata(kind, write, config)
        entry = self.find(kind, namespace, name)
        writer = self._writer(kind, write, "Apply")
        self._check_configuration(writer, config, given, self.root(kind))
        time = rfc3339(self.clock())
        if entry is None:
            if write.subresource:
                raise errors.not_found(kind, name)
            if given.get("uid"):
                why = (
                    f"uid mismatch: the provided object specified uid {given['uid']}, and no existing object was found"
                )
                raise errors.conflict(kind, name, why)
            if given.get("name", name) != name:
                raise errors.another_name(given["name"], name)
            unversioned = {field: value for field, value in given.items() if field != "resourceVersion"}
            config = {**config, "metadata": {**unversioned, "name": name}}
            if kind.status_subresource and kind.plural != "nodes":
                config.pop("status", None)
            _, managed = applied(None, config, [], writer, self.root(kind), force=force, time=time)
            return self._create(kind, namespace, config, write, managed), True
        config = {field: value for field, value in config.items() if field not in {"apiVersion", "kind"}}
        if write.subresource == "status":
            kept = ("metadata", "status") if not kind.custom else ("status",)
            config = {field: value for field, value in config.items() if field in kept}
        elif kind.status_subresource:
            config.pop("status", None)
        if "metadata" in config:
            config["metadata"] = {field: given[field] for field in CLIENT_FIELDS if field in given}
        stored = entry.obj["metadata"]
        managed = stored.get("managedFields") or []
        result, managed = applied(entry.obj, config, managed, writer, self.root(kind), force=force, time=time)
        write.patched = lambda: msgspec.json.encode(result).decode()
        write.applies = True
        claims = {field: given[field] for field in _CLAIMS if given.get(field)}
        result = {**result, "metadata": {**result["metadata"], **claims}}
        return self._update(kind, entry, result, write, managed), False

    def _check_configuration(
        self, writer: FieldManager, config: JsonObject, given: JsonObject, root: SchemaNode
    ) -> None:
        if given.get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        if problem := typing_problem(config, root):
            where = f"{given.get('namespace', '')}/{given.get('name', '')}"
            version = writer.api_version if "/" in writer.api_version else f"/{writer.api_version}"
            what = f"{where}; {version}, Kind={config.get('kind')}"
            raise errors.internal(f"failed to create typed patch object ({what}): {problem}")

    def _writer(self, kind: Kind, write: Write, operation: str) -> FieldManager:
        version = write.version or kind.version
        return FieldManager(
            manager=write.manager,
            operation=operation,
            api_version=f"{kind.group}/{version}" if kind.group else version,
            subresource=write.subresource,
        )

    def _tracked(self, kind: Kind, old: JsonObject | None, fresh: JsonObject, write: Write) -> list[JsonObject]:
        managed = fresh["metadata"].get("managedFields") or []
        before = {} if kind.custom else _EMPTY.get(kind.resource, _EMPTY_STRUCTS)
        if old is not None:
            before = {**before, **old}
        writer = self._writer(kind, write, "Update")
        return tracked(before, fresh, managed, writer, self.root(kind), time=rfc3339(self.clock()))

    def root(self, kind: Kind) -> SchemaNode:
        """The schema of whole objects of a kind, metadata included."""
        root = self._roots.get(kind.resource)
        if root is None:
            root = self._roots[kind.resource] = root_node(kind.schema)
        return root

    # -- delete
    # ----------------------------------------------------------------------------------------------------------------

    def delete(self, kind: Kind, entry: ObjectVersion, deletion: Deletion | None = None) -> tuple[ObjectVersion, bool]:
        """
        Delete, or begin to; returns the last entry and whether the object is gone.

        Raises ApiStatusError 409 on a failed precondition.
        """
        deletion = deletion or Deletion()
        metadata, (_, name) = entry.obj["metadata"], entry.key
        if deletion.uid and deletion.uid != metadata["uid"]:
            why = f"the UID in the precondition ({deletion.uid}) does not match the UID in record ({metadata['uid']})"
            raise errors.another_object(kind, name, f"{why}. The object might have been deleted and then recreated")
        if deletion.rv and deletion.rv != (version := metadata["resourceVersion"]):
            why = (
                f"the ResourceVersion in the precondition ({deletion.rv}) does not match the ResourceVersion in record"
            )
            raise errors.another_object(kind, name, f"{why} ({version}). The object might have been modified")
        rules.require_deletable(kind, name)
        grace_s = _grace_s(kind, entry.obj, deletion)
        finalizers = _deletion_finalizers(metadata.get("finalizers") or [], deletion.propagation)
        held = bool(finalizers) or grace_s > 0 or kind.plural == "namespaces"
        if deletion.dry_run:
            return entry, not held
        if not held and kind.resource == "pods":
            # Pods are deleted gracefully, even when nothing is left to wait for: first marked, then gone.
            marked = self._mark_deleted(kind, entry, 0, [])
            self.store.remove(self.store.table(kind), entry.key)
            return marked, True
        if not held:
            return self.store.remove(self.store.table(kind), entry.key), True
        return self._mark_deleted(kind, entry, grace_s, finalizers), False

    def finalize(self, kind: Kind, entry: ObjectVersion, obj: JsonObject) -> ObjectVersion:
        """Replace a namespace's `spec.finalizers`; the last one gone from a terminating namespace removes it."""
        fresh = {
            **entry.obj,
            "metadata": dict(entry.obj["metadata"]),
            "spec": {**entry.obj.get("spec", {}), "finalizers": (obj.get("spec") or {}).get("finalizers") or []},
        }
        return self._store_update(kind, entry, fresh)

    def _mark_deleted(self, kind: Kind, entry: ObjectVersion, grace_s: int, finalizers: list[str]) -> ObjectVersion:
        old = entry.obj["metadata"]
        metadata = {**old, "deletionGracePeriodSeconds": grace_s}
        if "deletionTimestamp" not in old or grace_s < old.get("deletionGracePeriodSeconds", 0):
            metadata["deletionTimestamp"] = rfc3339(self.clock() + 1000 * grace_s)
        if "generation" in old and "deletionTimestamp" not in old:
            metadata["generation"] = old["generation"] + 1
        metadata.pop("finalizers", None)
        if finalizers:
            metadata["finalizers"] = finalizers
        fresh = {**entry.obj, "metadata": metadata}
        if kind.plural == "namespaces":
            fresh["status"] = {**fresh.get("status", {}), "phase": "Terminating"}
        if fresh == entry.obj:
            return entry
        return self.store.put(self.store.table(kind), entry.key, fresh)


def _grace_s(kind: Kind, obj: JsonObject, deletion: Deletion) -> int:
    """Seconds until a deleted object may vanish: only pods that a kubelet runs have any."""
    if kind.resource != "pods":
        return 0
    if not obj["spec"].get("nodeName") or obj.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
        return 0
    grace_s: int = (
        obj["spec"].get("terminationGracePeriodSeconds", 30) if deletion.grace_s is None else deletion.grace_s
    )
    pending = obj["metadata"].get("deletionGracePeriodSeconds")
    return grace_s if pending is None else min(grace_s, pending)


def _deletion_finalizers(finalizers: list[str], propagation: str) -> list[str]:
    kept = [finalizer for finalizer in finalizers if finalizer not in _DEFAULT_FINALIZERS]
    match propagation:
        case "Foreground":
            return [*kept, "foregroundDeletion"]
        case "Orphan":
            return [*kept, "orphan"]
        case "Background":
            return kept
        case _:
            return finalizers
