"""
The simulated cluster: the Kubernetes REST API as a synchronous function.

`Cluster.request` takes a method, a path, a query and a body and returns the response that a kube-apiserver would
give; `Cluster.watch` opens a watch. Simulations call both directly, under a virtual clock and a fault plan;
`server.py` puts the same two functions behind HTTP, so that what is tested in memory is what kubectl talks to.

Nothing here waits, and nothing reads a clock but the injected one: the same calls at the same times give the same
bytes.
"""

import base64
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from headgate.testing.cluster import errors
from headgate.testing.cluster.controllers import ControllerOptions, Controllers
from headgate.testing.cluster.crds import crd_objects
from headgate.testing.cluster.discovery import document
from headgate.testing.cluster.errors import ApiError
from headgate.testing.cluster.faults import ConnectionDropped, Fault, FaultPlan
from headgate.testing.cluster.kinds import BY_PLURAL, Kind, kind_of
from headgate.testing.cluster.patch import json_patch, merge_patch, strategic_merge
from headgate.testing.cluster.persistence import Journal
from headgate.testing.cluster.reading import (
    as_object,
    check_type,
    continuation,
    decoded,
    deletion_options,
    document_body,
    in_storage_version,
    natural,
    watch_start,
    write_options,
)
from headgate.testing.cluster.registry import Deletion, Registry, Write, given_metadata
from headgate.testing.cluster.representation import View
from headgate.testing.cluster.routing import Target, parse_path
from headgate.testing.cluster.selectors import predicate
from headgate.testing.cluster.store import Entry
from headgate.testing.cluster.subresources import bind, evict
from headgate.testing.cluster.watch import Watch

JsonObject = dict[str, Any]

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
_JSON: Final = "application/json"
_CUSTOM_PATCHES: Final = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
_CORE_PATCHES: Final = (*_CUSTOM_PATCHES[:2], "application/strategic-merge-patch+json", _CUSTOM_PATCHES[2])
_CONTINUE_EXPIRED: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)
_HEALTH: Final = frozenset({"healthz", "readyz", "livez"})
_NO_QUERY: Final[Mapping[str, str]] = {}
_DEFAULT_CONTROLLERS: Final = ControllerOptions()


class Response:
    """What a request got: the HTTP status, the body and extra headers (`Warning`, `Retry-After`)."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self, status: int, body: bytes, headers: Mapping[str, str] = _NO_QUERY, content_type: str = _JSON
    ) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.content_type = content_type

    def json(self) -> Any:
        """The decoded body."""
        return _decode(self.body)


class Cluster:
    """
    One simulated cluster.

    `clock` gives unix milliseconds. `seed` makes uids and generated names. `history_max` bounds the changes kept per
    kind (a watch that is further behind gets 410). `faults` disturbs requests from outside. `track_all_fields` gives
    every object `managedFields`, as a real API server does; without it only objects that were ever server-side
    applied have them, which is several times cheaper.

    `controllers` says how the cluster's own controllers behave; None leaves them out, and objects then only change by
    requests. They do nothing by themselves: a virtual clock, or the HTTP server, calls `step`.

    `journal` gives the cluster the objects that an earlier one left in it, and the seed; from then on what changes is
    kept in it before `request` or `step` returns. Without one, nothing outlives the cluster.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        *,
        seed: str | int = "headgate",
        history_max: int = 10_000,
        faults: FaultPlan | None = None,
        track_all_fields: bool = False,
        controllers: ControllerOptions | None = _DEFAULT_CONTROLLERS,
        journal: Journal | None = None,
    ) -> None:
        self.clock = clock
        self.faults = faults
        self.journal = journal
        seed = seed if journal is None else journal.seed
        self.registry = Registry(clock, seed=str(seed), history_max=history_max, track_all=track_all_fields)
        self.store = self.registry.store
        if journal is not None:
            journal.attach(self.registry)
        self._install(clock())
        self._flush()
        self.controllers = None if controllers is None else Controllers(self.registry, controllers)

    def _install(self, now_ms: int) -> None:
        """What every cluster begins with, as far as it is not there yet."""
        namespaces = BY_PLURAL[("", "namespaces")]
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            if self.registry.find(namespaces, "", name) is None:
                self.registry.create(namespaces, "", {"metadata": {"name": name}})
        crds = BY_PLURAL[("apiextensions.k8s.io", "customresourcedefinitions")]
        for crd in crd_objects(now_ms):
            entry = self.registry.find(crds, "", crd["metadata"]["name"])
            if entry is None:
                entry = self.registry.create(crds, "", crd)
                self.registry.update(crds, entry, {**entry.obj, "status": crd["status"]}, Write(subresource="status"))
            else:
                self.registry.update(crds, entry, {**entry.obj, "spec": crd["spec"]})

    def _flush(self) -> None:
        """Keep what has changed, before anybody is told."""
        if self.journal is not None:
            self.journal.flush()

    # --- the two doors

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] = _NO_QUERY,
        body: bytes | JsonObject | list[Any] | None = None,
        content_type: str | None = None,
        *,
        user: str = "",
        accept: str = "",
    ) -> Response:
        """
        Serve one request; never raises ApiError, a refusal is a response with a `Status` body.

        `body` may be given decoded; it then belongs to the cluster. `user` is the client's User-Agent, whose first
        part names the field manager. Raises ConnectionDropped where the fault plan breaks the connection.
        """
        fault = None if self.faults is None else self.faults.draw(self.clock(), method, path)
        if fault is not None:
            disturbed = self._disturbed(fault, path)
            if disturbed is not None:
                return disturbed
        try:
            response = self._serve(method, path, query, body, content_type, user, accept)
        except ApiError as error:
            response = _refusal(error)
        self._flush()
        if fault is Fault.DROP_AFTER:
            raise ConnectionDropped(f"connection broke after {method} {path} was sent; read before trying again")
        return response

    def watch(self, path: str, query: Mapping[str, str] = _NO_QUERY, *, accept: str = "") -> Watch:
        """
        Open a watch on a collection or one object.

        Raises ApiError 400 or 404; 410 comes as an ERROR event of the watch.
        """
        target = parse_path(path)
        table = self.store.table(target.kind)
        view = View(target.kind, target.version, accept, query.get("includeObject", ""))
        matches = predicate(target.kind, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        faults = self.faults
        fault = None
        if faults is not None:
            plan = faults

            def fault() -> str:
                return plan.draw(self.clock(), "WATCH", path) or ""

        return Watch(self.store, table, view, watch_start(target, query), matches, self.clock, fault)

    # --- conveniences

    def step(self, now_ms: int) -> int:
        """Let the controllers do everything that is due; returns how many writes that took."""
        if self.controllers is None:
            return 0
        writes = self.controllers.step(now_ms)
        self._flush()
        return writes

    def next_due_ms(self) -> int | None:
        """When the controllers have something to do if nothing else happens; now, if something was written since."""
        return None if self.controllers is None else self.controllers.next_due_ms()

    def apply(self, manifest: JsonObject) -> JsonObject:
        """
        Create one manifest at its own path, or merge it into what is there; returns the stored object.

        The cheap form of `kubectl apply`: no field ownership is kept, so nothing is removed by leaving it out. Raises
        ApiError, and KeyError on an unknown kind.
        """
        kind = kind_of(manifest["apiVersion"], manifest["kind"])
        metadata = manifest.get("metadata") or {}
        entry = self.registry.find(kind, metadata.get("namespace") or "default", metadata.get("name", ""))
        if entry is None:
            return self.create(manifest)
        write = Write(version=manifest["apiVersion"].rpartition("/")[2], strictness="Strict")
        obj = self.registry.update(kind, entry, merge_patch(entry.obj, manifest), write).obj
        self._flush()
        return obj

    def create(self, manifest: JsonObject) -> JsonObject:
        """
        Create one manifest at its own path; returns the stored object.

        Raises ApiError, and KeyError on an unknown kind.
        """
        kind = kind_of(manifest["apiVersion"], manifest["kind"])
        namespace = (manifest.get("metadata") or {}).get("namespace") or "default"
        obj = self.registry.create(kind, namespace, manifest, Write(strictness="Strict")).obj
        self._flush()
        return obj

    def objects(self, kind: Kind, namespace: str = "") -> list[JsonObject]:
        """The stored objects of a kind, in key order. They are the store's: do not write into them."""
        return [entry.obj for entry in self.store.table(kind).select(namespace)]

    def find(self, kind: Kind, namespace: str, name: str) -> JsonObject | None:
        """One stored object, or None. It is the store's: do not write into it."""
        entry = self.registry.find(kind, namespace, name)
        return None if entry is None else entry.obj

    # -- serving -----------------------------------------------------------------------------------------------------
    # ------------

    def _disturbed(self, fault: Fault, path: str) -> Response | None:
        match fault:
            case Fault.DROP_BEFORE:
                raise ConnectionDropped(f"connection broke while {path} was requested; read before trying again")
            case Fault.THROTTLED:
                return _refusal(errors.too_many_requests("too many requests, please try again later", retry_after_s=1))
            case Fault.INTERNAL:
                return _refusal(ApiError(500, "InternalError", "Internal error occurred: injected fault", details={}))
            case Fault.UNAVAILABLE:
                return _refusal(
                    ApiError(
                        503, "ServiceUnavailable", "the server is currently unable to handle the request", details={}
                    )
                )
            case Fault.CONFLICT:
                try:
                    target = parse_path(path)
                except ApiError as error:
                    return _refusal(error)
                return _refusal(errors.conflict(target.kind, target.name))
            case Fault.DROP_AFTER | Fault.WATCH_CUT | Fault.WATCH_GONE:
                return None

    def _serve(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | JsonObject | list[Any] | None,
        content_type: str | None,
        user: str,
        accept: str,
    ) -> Response:
        steps = path.strip("/").split("/", 3)
        if (
            len(steps) < 3
            or (steps[0] == "apis" and len(path.strip("/").split("/")) < 4)
            or steps[0] not in {"api", "apis"}
        ):
            return self._about(method, path, steps)
        target = parse_path(path)
        match method:
            case "GET":
                view = View(target.kind, target.version, accept, query.get("includeObject", ""))
                if target.name:
                    entry = self.registry.get(target.kind, target.namespace, target.name)
                    return Response(200, view.one(entry, self.clock()))
                return self._list(target, query, view)
            case "POST":
                return self._post(target, query, body, content_type, user, accept)
            case "PUT":
                return self._put(target, query, body, content_type, user, accept)
            case "PATCH":
                return self._patch(target, query, body, content_type, user, accept)
            case "DELETE":
                return self._delete(target, query, body, content_type)
            case _:
                raise errors.method_not_allowed()

    def _about(self, method: str, path: str, steps: list[str]) -> Response:
        if method not in {"GET", "HEAD"}:
            raise errors.method_not_allowed()
        if steps[0] in _HEALTH:
            return Response(200, b"ok", content_type="text/plain")
        body = document(path)
        if body is None:
            raise errors.unknown_path()
        return Response(200, body)

    def _list(self, target: Target, query: Mapping[str, str], view: View) -> Response:
        table = self.store.table(target.kind)
        matches = predicate(target.kind, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        limit = natural(query.get("limit", "0"), "limit")
        rv, after = self.store.rv, None
        if token := query.get("continue"):
            rv, after = continuation(token)
        elif wanted := query.get("resourceVersion"):
            number = natural(wanted, "resourceVersion")
            if number > rv:
                raise errors.too_large(number, rv)
            rv = number if query.get("resourceVersionMatch") == "Exact" else rv
        try:
            found, count = table.as_of(rv, target.namespace, after)
        except ApiError:
            if not after:
                raise
            raise errors.expired(_CONTINUE_EXPIRED) from None
        if matches is not None:
            found = (entry for entry in found if matches(entry.obj))
        page = list(islice(found, limit + 1)) if limit else list(found)
        list_meta: JsonObject = {}
        if limit and len(page) > limit:
            page.pop()
            list_meta["continue"] = base64.urlsafe_b64encode(_encode([rv, *page[-1].key])).decode()
            if matches is None:
                list_meta["remainingItemCount"] = count - limit
        return Response(200, view.many(page, str(rv), self.clock(), list_meta))

    def _shown(self, target: Target, status: int, entry: Entry, write: Write, accept: str) -> Response:
        view = View(target.kind, target.version, accept, "")
        headers = (
            {"Warning": ", ".join(f'299 - "{_quoted(text)}"' for text in write.warnings)}
            if write.warnings
            else _NO_QUERY
        )
        return Response(status, view.one(entry, self.clock()), headers)

    def _post(
        self, target: Target, query: Mapping[str, str], body: Any, content_type: str | None, user: str, accept: str
    ) -> Response:
        obj = document_body(target, body, content_type)
        write = write_options(target, query, user)
        if target.subresource in {"binding", "eviction"}:
            if target.subresource == "binding":
                bind(self.registry, target.namespace, target.name, obj, write)
            else:
                evict(self.registry, target.namespace, target.name, obj)
            return Response(201, _encode(_success()))
        if target.name:
            raise errors.method_not_allowed()
        if target.kind.namespaced and not target.namespace:
            raise errors.method_not_allowed()
        check_type(target, obj)
        entry = self.registry.create(target.kind, target.namespace, obj, write)
        return self._shown(target, 201, entry, write, accept)

    def _put(
        self, target: Target, query: Mapping[str, str], body: Any, content_type: str | None, user: str, accept: str
    ) -> Response:
        if not target.name:
            raise errors.method_not_allowed()
        obj = document_body(target, body, content_type)
        check_type(target, obj)
        write = write_options(target, query, user)
        entry = self.registry.get(target.kind, target.namespace, target.name)
        if target.subresource == "finalize":
            entry = self.registry.finalize(target.kind, entry, obj)
        else:
            given = given_metadata(target.kind, target.version, obj)
            if not given.get("name"):
                text = "name must be provided" if target.kind.custom else "name is required"
                raise errors.bad_request(
                    f'the name of the object ("") does not match the name on the URL ({target.name}): {text}'
                )
            if target.kind.custom and not given.get("resourceVersion"):
                raise errors.invalid(
                    target.kind,
                    target.name,
                    [errors.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")],
                )
            entry = self.registry.update(target.kind, entry, obj, write)
        return self._shown(target, 200, entry, write, accept)

    def _patch(
        self, target: Target, query: Mapping[str, str], body: Any, content_type: str | None, user: str, accept: str
    ) -> Response:
        if not target.name:
            raise errors.method_not_allowed()
        kind, write = target.kind, write_options(target, query, user)
        media = (content_type or "").partition(";")[0].strip()
        if media in {"application/apply-patch+yaml", "application/apply-patch+cbor"}:
            return self._apply_patch(target, query, body, write, accept)
        accepted = _CUSTOM_PATCHES if kind.custom else _CORE_PATCHES
        if media not in accepted:
            raise errors.unsupported_media_type(accepted)
        patch = decoded(body, media)
        entry = self.registry.get(kind, target.namespace, target.name)
        match media:
            case "application/json-patch+json":
                if not isinstance(patch, list):
                    raise errors.bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
                obj = json_patch(entry.obj, patch)
            case "application/merge-patch+json":
                obj = merge_patch(entry.obj, as_object(patch))
            case _:
                obj = strategic_merge(entry.obj, as_object(patch), self.registry.root(kind))
        if not isinstance(obj, dict):
            raise errors.bad_request("the patched document is not an object")
        obj = in_storage_version(target, obj)
        entry = self.registry.update(kind, entry, obj, write)
        return self._shown(target, 200, entry, write, accept)

    def _apply_patch(self, target: Target, query: Mapping[str, str], body: Any, write: Write, accept: str) -> Response:
        if not query.get("fieldManager"):
            raise errors.bad_request(
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
            )
        config = as_object(decoded(body, "application/yaml"))
        check_type(target, config, needed=True)
        if given_metadata(target.kind, target.version, config).get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        force = query.get("force") in {"true", "1"}
        entry, created = self.registry.apply(target.kind, target.namespace, target.name, config, write, force=force)
        return self._shown(target, 201 if created else 200, entry, write, accept)

    def _delete(self, target: Target, query: Mapping[str, str], body: Any, content_type: str | None) -> Response:
        options = as_object(decoded(body, content_type or _JSON)) if body else {}
        deletion, warnings = deletion_options(target.kind, query, options)
        headers = {"Warning": f'299 - "{_quoted(warnings)}"'} if warnings else _NO_QUERY
        if not target.name:
            return self._delete_collection(target, query, deletion, headers)
        if target.subresource:
            raise errors.method_not_allowed()
        entry = self.registry.get(target.kind, target.namespace, target.name)
        entry, gone = self.registry.delete(target.kind, entry, deletion)
        if gone and target.kind.resource != "pods":
            details: JsonObject = {"name": target.name}
            if target.kind.group:
                details["group"] = target.kind.group
            details |= {"kind": target.kind.plural, "uid": entry.obj["metadata"]["uid"]}
            return Response(200, _encode({**_success(), "details": details}), headers)
        return Response(200, View(target.kind, target.version, "", "").one(entry, self.clock()), headers)

    def _delete_collection(
        self, target: Target, query: Mapping[str, str], deletion: Deletion, headers: Mapping[str, str]
    ) -> Response:
        if target.kind.namespaced and not target.namespace:
            raise errors.method_not_allowed()
        matches = predicate(target.kind, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        found = [e for e in self.store.table(target.kind).select(target.namespace) if matches is None or matches(e.obj)]
        deleted = [self.registry.delete(target.kind, entry, deletion)[0] for entry in found]
        view = View(target.kind, target.version, "", "")
        return Response(200, view.many(deleted, str(self.store.rv), self.clock(), {}), headers)


def _refusal(error: ApiError) -> Response:
    headers = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s else _NO_QUERY
    return Response(error.code, _encode(error.status()), headers)


def _success() -> JsonObject:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
