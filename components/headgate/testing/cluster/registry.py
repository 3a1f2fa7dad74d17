"""
Create, update and delete with the API server's semantics, for one store.

Owns the order in which a write is checked: metadata, status isolation, schema (types, defaults, unknown fields), the
kind's own rules, generation, no-op detection, field ownership, storage. The REST layer calls it with decoded bodies;
the controllers of the simulated cluster (kubelet, Job controller, garbage collector) call it directly and thereby
obey the same rules.

Objects passed in become the store's: callers build them afresh or share only stored parts, and never write into them
afterwards.
"""

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Final

from headgate.testing.cluster import errors, rules
from headgate.testing.cluster.apply import Writer, applied, root_node, tracked
from headgate.testing.cluster.kinds import BY_PLURAL, Kind
from headgate.testing.cluster.metadata import combined, metadata_errors, name_errors, type_problem
from headgate.testing.cluster.schema import Checker, Node
from headgate.testing.cluster.store import Entry, Key, Store, Table
from headgate.testing.cluster.times import rfc3339

JsonObject = dict[str, Any]

_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
_NAMESPACES: Final = BY_PLURAL[("", "namespaces")]
_DEFAULT_FINALIZERS: Final = ("foregroundDeletion", "orphan")


class Write:
    """One write's options, and the warnings that it gathers."""

    __slots__ = ("api_version", "dry_run", "manager", "strictness", "subresource", "version", "warnings")

    def __init__(
        self,
        *,
        version: str = "",
        manager: str = "headgate-cluster",
        dry_run: bool = False,
        strictness: str = "Warn",
        subresource: str = "",
    ) -> None:
        self.version = version
        self.manager = manager
        self.dry_run = dry_run
        self.strictness = strictness
        self.subresource = subresource
        self.warnings: list[str] = []


class Deletion:
    """What a DELETE asks for."""

    __slots__ = ("dry_run", "grace_s", "propagation", "rv", "uid")

    def __init__(
        self, *, uid: str = "", rv: str = "", grace_s: int | None = None, propagation: str = "", dry_run: bool = False
    ) -> None:
        self.uid = uid
        self.rv = rv
        self.grace_s = grace_s
        self.propagation = propagation
        self.dry_run = dry_run


class Registry:
    """
    The write path of a simulated cluster.

    `clock` gives unix milliseconds. Uids and generated names are digests of (`seed`, a counter), so that a run
    repeats exactly. `track_all`: own fields of every write, as the API server does, instead of only those of objects
    that were ever applied.
    """

    def __init__(self, clock: Callable[[], int], *, seed: str, history_max: int, track_all: bool) -> None:
        self.clock = clock
        self.store = Store(history_max=history_max)
        self._seed = seed.encode()
        self._identities = 0
        self._track_all = track_all
        self._roots: dict[str, Node] = {}

    # -- reading
    # ---------------------------------------------------------------------------------------------------------------

    def find(self, kind: Kind, namespace: str, name: str) -> Entry | None:
        """The stored version of an object, if it exists."""
        entry: Entry | None = self.store.table(kind).entries.get((namespace if kind.namespaced else "", name))
        return entry

    def get(self, kind: Kind, namespace: str, name: str) -> Entry:
        """The stored version of an object. Raises ApiError 404."""
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

    def create(self, kind: Kind, namespace: str, obj: JsonObject, write: Write | None = None) -> Entry:
        """Create an object. Raises ApiError: 400, 403, 404 (namespace), 409 (exists), 422."""
        write = write or Write()
        return self._create(kind, namespace, obj, write, None)

    def _create(
        self, kind: Kind, namespace: str, obj: JsonObject, write: Write, managed: list[JsonObject] | None
    ) -> Entry:
        given = given_metadata(kind, write.version, obj)
        table = self.store.table(kind)
        namespace = self._namespace_of(kind, namespace, given)
        if given.get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        name = given.get("name") or ""
        if not name and given.get("generateName"):
            name = self._generated_name(str(given["generateName"]), table, namespace)
        if kind.namespaced:
            self._require_open_namespace(kind, namespace, name)
        if (namespace, name) in table.entries:
            raise errors.already_exists(kind, name)
        now_ms = self.clock()
        system: JsonObject = {"name": name}
        if given.get("generateName"):
            system["generateName"] = given["generateName"]
        if kind.namespaced:
            system["namespace"] = namespace
        system["uid"] = self._uid()
        system["creationTimestamp"] = rfc3339(now_ms)
        if kind.generation:
            system["generation"] = 1
        unknown: list[str] = []
        metadata = combined(given, system, unknown)
        fresh: JsonObject = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        for field, value in obj.items():
            if field not in fresh and not (field == "status" and kind.status_subresource and kind.plural != "nodes"):
                fresh[field] = value
        fresh = self._checked(kind, name, fresh, None, unknown, write)
        fresh = rules.on_create(self, kind, fresh)
        metadata = fresh["metadata"]
        found = self._name_errors(kind, name) + metadata_errors(metadata, None) + rules.create_errors(kind, fresh)
        if found:
            raise errors.invalid(kind, name, found)
        if managed is not None:
            metadata["managedFields"] = managed
        elif self._track_all:
            metadata["managedFields"] = self._tracked(kind, None, fresh, write)
        if write.dry_run:
            return Entry((namespace, name), fresh, 0)
        return self.store.put(table, (namespace, name), fresh)

    def _name_errors(self, kind: Kind, name: str) -> list[errors.FieldError]:
        if not name:
            return [errors.required("metadata.name", "name or generateName is required")]
        return name_errors(name, label=kind.plural == "namespaces")

    def _namespace_of(self, kind: Kind, namespace: str, given: JsonObject) -> str:
        if not kind.namespaced:
            return ""
        if given.get("namespace") and namespace and given["namespace"] != namespace:
            raise errors.bad_request(
                f"the namespace of the provided object does not match the namespace sent on the request"
                f" ({given['namespace']} != {namespace})"
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

    def _checked(
        self, kind: Kind, name: str, obj: JsonObject, old: JsonObject | None, unknown: list[str], write: Write
    ) -> JsonObject:
        """The object with its fields checked, defaulted and pruned against the schema. Raises ApiError 400 or 422."""
        checker, node = Checker(), kind.schema
        for field in list(obj):
            if field in {"apiVersion", "kind", "metadata"}:
                continue
            child = node.fields.get(field)
            if child is None or obj[field] is None:
                if child is None:
                    checker.unknown.append(field)
                obj = {key: value for key, value in obj.items() if key != field}
                continue
            value = checker.field(field, child, obj[field], old.get(field) if old is not None else None)
            if value is not obj[field]:
                obj = {**obj, field: value}
        for field in node.required:
            if field not in obj:
                checker.errors.append(errors.required(field))
        for field, default in node.defaults:
            if field not in obj:
                obj = {**obj, field: default}
        if checker.type_errors and not kind.custom:
            first = checker.type_errors[0]
            raise errors.undecodable(
                kind,
                write.version or kind.version,
                f"json: cannot unmarshal value into field {first.field}: {first.message}",
            )
        if checker.type_errors or checker.errors:
            raise errors.invalid(kind, name, [*checker.type_errors, *checker.errors])
        unknown = [*unknown, *checker.unknown]
        if unknown and write.strictness == "Strict":
            listed = ", ".join(f'unknown field "{path}"' for path in unknown)
            raise errors.undecodable(kind, write.version or kind.version, f"strict decoding error: {listed}")
        if unknown and write.strictness == "Warn":
            write.warnings += [f'unknown field "{path}"' for path in unknown]
        return obj

    # -- update
    # ----------------------------------------------------------------------------------------------------------------

    def update(self, kind: Kind, entry: Entry, obj: JsonObject, write: Write | None = None) -> Entry:
        """
        Replace a stored version by `obj`. Raises ApiError: 400, 409 (stale resourceVersion or uid), 422.

        With `write.subresource == "status"` only the status (and, for Kubernetes' own kinds, labels and annotations)
        is taken; without it, everything but the status. An update that changes nothing stores nothing.
        """
        write = write or Write()
        return self._update(kind, entry, obj, write, None)

    def _update(
        self, kind: Kind, entry: Entry, obj: JsonObject, write: Write, managed: list[JsonObject] | None
    ) -> Entry:
        old, name = entry.obj, entry.key[1]
        stored = old["metadata"]
        given: JsonObject = obj.get("metadata") or stored
        if given is not stored:
            given_metadata(kind, write.version, obj)
            self._check_preconditions(kind, entry, given)
        fresh, unknown = self._isolated(kind, old, obj, write.subresource)
        fresh = self._checked(kind, name, fresh, old, unknown, write)
        if write.subresource != "status":
            fresh = rules.on_update(self, kind, fresh, old)
        metadata = fresh["metadata"]
        found = metadata_errors(metadata, stored) + rules.update_errors(kind, fresh, old, write.subresource)
        if found:
            raise errors.invalid(kind, name, found)
        if kind.generation and _spec_changed(fresh, old):
            metadata["generation"] = stored.get("generation", 0) + 1
        if managed is not None:
            metadata["managedFields"] = managed
        elif given.get("managedFields") == [] and "managedFields" in metadata:
            del metadata["managedFields"]
        if fresh == old:
            return entry
        if managed is None and (self._track_all or "managedFields" in metadata):
            metadata["managedFields"] = self._tracked(kind, old, fresh, write)
        if write.dry_run:
            return Entry(entry.key, fresh, entry.rv)
        return self._store_update(kind, entry, fresh)

    def _store_update(self, kind: Kind, entry: Entry, fresh: JsonObject) -> Entry:
        table, metadata = self.store.table(kind), fresh["metadata"]
        stored = self.store.put(table, entry.key, fresh)
        held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if kind.plural == "namespaces":
            held = held or (fresh.get("spec") or {}).get("finalizers")
        if "deletionTimestamp" in metadata and not held:
            self.store.remove(table, entry.key)
        return stored

    def _check_preconditions(self, kind: Kind, entry: Entry, given: JsonObject) -> None:
        name, stored = entry.key[1], entry.obj["metadata"]
        if given.get("name", name) != name:
            raise errors.bad_request(
                f"the name of the object ({given['name']}) does not match the name on the URL ({name})"
            )
        if given.get("namespace") and given["namespace"] != stored.get("namespace"):
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if given.get("uid") and given["uid"] != stored["uid"]:
            why = f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {stored['uid']}"
            raise errors.conflict(kind, name, why)
        if given.get("resourceVersion") and str(given["resourceVersion"]) != stored["resourceVersion"]:
            raise errors.conflict(kind, name)

    def _isolated(self, kind: Kind, old: JsonObject, obj: JsonObject, subresource: str) -> tuple[JsonObject, list[str]]:
        """What a write through this endpoint may change, laid over what it may not."""
        stored = old["metadata"]
        given: JsonObject = obj.get("metadata") or stored
        unknown: list[str] = []
        if subresource == "status":
            metadata = dict(stored) if kind.custom else combined(given, stored, unknown)
            if not kind.custom and "ownerReferences" in stored:
                metadata["ownerReferences"] = stored["ownerReferences"]
            fresh = {**old, "metadata": metadata}
            if obj.get("status") is not None:
                fresh["status"] = obj["status"]
            else:
                fresh.pop("status", None)
            return fresh, unknown
        metadata = dict(stored) if given is stored else combined(given, stored, unknown)
        fresh = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        for field, value in obj.items():
            if field not in fresh:
                fresh[field] = value
        if kind.status_subresource:
            if "status" in old:
                fresh["status"] = old["status"]
            else:
                fresh.pop("status", None)
        return fresh, unknown

    # -- server-side apply
    # -----------------------------------------------------------------------------------------------------

    def apply(
        self, kind: Kind, namespace: str, name: str, config: JsonObject, write: Write, *, force: bool
    ) -> tuple[Entry, bool]:
        """
        Server-side apply; returns the entry and whether it was created.

        Raises ApiError: 409 on a field conflict unless `force`.
        """
        given_metadata(kind, write.version, config)
        entry = self.find(kind, namespace, name)
        writer = Writer(
            manager=write.manager,
            operation="Apply",
            api_version=f"{kind.group}/{write.version or kind.version}" if kind.group else kind.version,
            subresource=write.subresource,
        )
        time = rfc3339(self.clock())
        if entry is None:
            if write.subresource:
                raise errors.not_found(kind, name)
            config = {**config, "metadata": {**(config.get("metadata") or {}), "name": name}}
            if kind.status_subresource and kind.plural != "nodes":
                config.pop("status", None)
            _, managed = applied(None, config, [], writer, self.root(kind), force=force, time=time)
            return self._create(kind, namespace, config, write, managed), True
        self._check_preconditions(kind, entry, config.get("metadata") or {})
        if write.subresource == "status":
            config = {field: value for field, value in config.items() if field in {"apiVersion", "kind", "status"}}
        elif kind.status_subresource:
            config = {field: value for field, value in config.items() if field != "status"}
        config = {field: value for field, value in config.items() if field not in {"apiVersion", "kind"}}
        if config.get("metadata") is not None:
            wanted = {
                key: config["metadata"][key]
                for key in ("labels", "annotations", "ownerReferences", "finalizers")
                if key in config["metadata"]
            }
            config = {**config, "metadata": wanted}
        managed = entry.obj["metadata"].get("managedFields") or []
        result, managed = applied(entry.obj, config, managed, writer, self.root(kind), force=force, time=time)
        return self._update(kind, entry, result, write, managed), False

    def _tracked(self, kind: Kind, old: JsonObject | None, fresh: JsonObject, write: Write) -> list[JsonObject]:
        writer = Writer(
            manager=write.manager,
            operation="Update",
            api_version=f"{kind.group}/{write.version or kind.version}" if kind.group else kind.version,
            subresource=write.subresource,
        )
        managed = fresh["metadata"].get("managedFields") or []
        return tracked(old, fresh, managed, writer, self.root(kind), time=rfc3339(self.clock()))

    def root(self, kind: Kind) -> Node:
        """The schema of whole objects of a kind, metadata included."""
        root = self._roots.get(kind.resource)
        if root is None:
            root = self._roots[kind.resource] = root_node(kind.schema)
        return root

    # -- delete
    # ----------------------------------------------------------------------------------------------------------------

    def delete(self, kind: Kind, entry: Entry, deletion: Deletion | None = None) -> tuple[Entry, bool]:
        """
        Delete, or begin to; returns the last entry and whether the object is gone.

        Raises ApiError 409 on a failed precondition.
        """
        deletion = deletion or Deletion()
        metadata, (_, name) = entry.obj["metadata"], entry.key
        if deletion.uid and deletion.uid != metadata["uid"]:
            why = f"Precondition failed: UID in precondition: {deletion.uid}, UID in object meta: {metadata['uid']}"
            raise errors.conflict(kind, name, why)
        if deletion.rv and deletion.rv != metadata["resourceVersion"]:
            why = (
                f"Precondition failed: ResourceVersion in precondition: {deletion.rv}, "
                f"ResourceVersion in object meta: {metadata['resourceVersion']}"
            )
            raise errors.conflict(kind, name, why)
        grace_s = _grace_s(kind, entry.obj, deletion)
        finalizers = _deletion_finalizers(metadata.get("finalizers") or [], deletion.propagation)
        held = bool(finalizers) or grace_s > 0 or kind.plural == "namespaces"
        if deletion.dry_run:
            return entry, not held
        if not held:
            return self.store.remove(self.store.table(kind), entry.key), True
        return self._mark_deleted(kind, entry, grace_s, finalizers), False

    def finalize(self, kind: Kind, entry: Entry, obj: JsonObject) -> Entry:
        """Replace a namespace's `spec.finalizers`; the last one gone from a terminating namespace removes it."""
        fresh = {
            **entry.obj,
            "metadata": dict(entry.obj["metadata"]),
            "spec": {**entry.obj.get("spec", {}), "finalizers": (obj.get("spec") or {}).get("finalizers") or []},
        }
        return self._store_update(kind, entry, fresh)

    def _mark_deleted(self, kind: Kind, entry: Entry, grace_s: int, finalizers: list[str]) -> Entry:
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


def given_metadata(kind: Kind, version: str, obj: JsonObject) -> JsonObject:
    """The metadata of a client's object, empty if it has none. Raises ApiError 400 if it cannot be decoded."""
    metadata: Any = obj.get("metadata")
    if metadata is None:
        return {}
    problem = type_problem(metadata)
    if problem:
        raise errors.undecodable(kind, version or kind.version, problem)
    found: JsonObject = metadata
    return found


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


def _spec_changed(fresh: JsonObject, old: JsonObject) -> bool:
    for field, value in fresh.items():
        if (
            field not in {"apiVersion", "kind", "metadata", "status"}
            and value is not old.get(field)
            and value != old.get(field)
        ):
            return True
    return any(field not in fresh for field in old if field != "status")
