"""
The simulated cluster: the Kubernetes REST API as a synchronous function.

`Cluster.request` takes a method, a path, a query and a body and returns the response that a kube-apiserver would
give; `Cluster.watch` opens a watch. Simulations call both directly, under a virtual clock and a fault plan;
`server.py` puts the same two functions behind HTTP, so that what is tested in memory is what kubectl talks to.

Nothing here waits, and nothing reads a clock but the injected one: the same calls at the same times give the same
bytes.
"""
# Over 400 lines: one class with one method for each verb of the REST API and what they share.

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from headgate.core.admission.settings import AdmissionSettings
from headgate.core.kubernetes.merge_patch import merge_patched
from headgate.testing.cluster import errors
from headgate.testing.cluster.api import list_options
from headgate.testing.cluster.api.bodies import (
    apply_body,
    check_configuration,
    check_patched_type,
    decoded,
    deletion_options,
    document_body,
    patch_body,
    repeated_fields,
    write_options,
)
from headgate.testing.cluster.api.discovery import AGGREGATED, aggregated, document
from headgate.testing.cluster.api.listing import list_collection
from headgate.testing.cluster.api.logs import container_log
from headgate.testing.cluster.api.patch import go_value, json_patch, strategic_merge
from headgate.testing.cluster.api.reading import watch_start
from headgate.testing.cluster.api.representation import ObjectRenderer
from headgate.testing.cluster.api.reviews import REVIEWS, review
from headgate.testing.cluster.api.routing import ResourcePath, nothing_at, parse_path
from headgate.testing.cluster.api.selectors import predicate
from headgate.testing.cluster.api.subresources import bind, evict
from headgate.testing.cluster.api.watch import Watch
from headgate.testing.cluster.api.writes import Deletion, Write, given_metadata
from headgate.testing.cluster.controllers.controllers import ControllerOptions, Controllers
from headgate.testing.cluster.errors import ApiStatusError
from headgate.testing.cluster.faults import ConnectionDropped, Fault, FaultPlan
from headgate.testing.cluster.kinds import BY_PLURAL, Kind, kind_of
from headgate.testing.cluster.storage.persistence import Journal
from headgate.testing.cluster.storage.registry import Registry
from headgate.testing.cluster.storage.store import ObjectVersion
from headgate.testing.cluster.validation.admission import SYSTEM_CLASSES
from headgate.testing.cluster.validation.crds import crd_objects

JsonObject = dict[str, Any]

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
_JSON: Final = "application/json"
_APPLY: Final = "application/apply-patch+yaml"
_CUSTOM_PATCHES: Final = ("application/json-patch+json", "application/merge-patch+json", _APPLY)
_CORE_PATCHES: Final = (*_CUSTOM_PATCHES[:2], "application/strategic-merge-patch+json", _APPLY)
_ACTIONS: Final = frozenset({"binding", "eviction"})
_IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})
_HEALTH: Final = frozenset({"healthz", "readyz", "livez"})
_NO_QUERY: Final[Mapping[str, str]] = {}
_DEFAULT_CONTROLLERS: Final = ControllerOptions()


class ServerResponse:
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

    `controllers` sets how the cluster's own controllers behave; None leaves them out, and objects then only change by
    requests. They run only when a virtual clock, or the HTTP server, calls `step`.

    `journal` gives the cluster the objects that an earlier one left in it, and the seed; from then on what changes is
    kept in it before `request` or `step` returns. Without one, nothing outlives the cluster.

    `admission`: objects are defaulted and refused by Kueue's rules under these settings, as with the webhook server.
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
        admission: AdmissionSettings | None = None,
    ) -> None:
        self.clock = clock
        self.faults = faults
        self.journal = journal
        seed = seed if journal is None else journal.seed
        self.registry = Registry(
            clock, seed=str(seed), history_max=history_max, track_all=track_all_fields, admission=admission
        )
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
        classes = BY_PLURAL[("scheduling.k8s.io", "priorityclasses")]
        for system_class in SYSTEM_CLASSES:
            if self.registry.find(classes, "", system_class["metadata"]["name"]) is None:
                self.registry.create(classes, "", system_class)
        crds = BY_PLURAL[("apiextensions.k8s.io", "customresourcedefinitions")]
        for crd in crd_objects(now_ms):
            entry = self.registry.find(crds, "", crd["metadata"]["name"])
            if entry is None:
                entry = self.registry.create(crds, "", crd)
                self.registry.update(crds, entry, {**entry.obj, "status": crd["status"]}, Write(subresource="status"))
            else:
                self.registry.update(crds, entry, {**entry.obj, "spec": crd["spec"]})

    def _flush(self) -> None:
        """Persist what has changed, before any response or watch shows it."""
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
    ) -> ServerResponse:
        """
        Serve one request; never raises ApiStatusError, a refusal is a response with a `Status` body.

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
        except ApiStatusError as error:
            response = refusal(error)
        if "/v1beta1/" in path:
            _warn_of_version(response, path)
        self._flush()
        if fault is Fault.DROP_AFTER:
            raise ConnectionDropped(f"connection broke after {method} {path} was sent; read before trying again")
        return response

    def watch(self, path: str, query: Mapping[str, str] = _NO_QUERY, *, accept: str = "") -> Watch:
        """
        Open a watch on a collection or one object.

        Raises ApiStatusError 400 or 404; 410 comes as an ERROR event of the watch.
        """
        target = parse_path(path)
        table = self.store.table(target.kind)
        view = ObjectRenderer(target.kind, target.version, accept, query.get("includeObject", ""))
        matches = predicate(target.kind, target.version, query.get("labelSelector", ""), query.get("fieldSelector", ""))
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
        ApiStatusError, and KeyError on an unknown kind.
        """
        kind = kind_of(manifest["apiVersion"], manifest["kind"])
        metadata = manifest.get("metadata") or {}
        entry = self.registry.find(kind, metadata.get("namespace") or "default", metadata.get("name", ""))
        if entry is None:
            return self.create(manifest)
        write = Write(version=manifest["apiVersion"].rpartition("/")[2], strictness="Strict")
        obj = self.registry.update(kind, entry, merge_patched(entry.obj, manifest), write).obj
        self._flush()
        return obj

    def create(self, manifest: JsonObject) -> JsonObject:
        """
        Create one manifest at its own path; returns the stored object.

        Raises ApiStatusError, and KeyError on an unknown kind.
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

    def _disturbed(self, fault: Fault, path: str) -> ServerResponse | None:
        match fault:
            case Fault.DROP_BEFORE:
                raise ConnectionDropped(f"connection broke while {path} was requested; read before trying again")
            case Fault.THROTTLED:
                return refusal(errors.too_many_requests("too many requests, please try again later", retry_after_s=1))
            case Fault.INTERNAL:
                return refusal(
                    ApiStatusError(500, "InternalError", "Internal error occurred: injected fault", details={})
                )
            case Fault.UNAVAILABLE:
                return refusal(
                    ApiStatusError(
                        503, "ServiceUnavailable", "the server is currently unable to handle the request", details={}
                    )
                )
            case Fault.CONFLICT:
                try:
                    target = parse_path(path)
                except ApiStatusError as error:
                    return refusal(error)
                return refusal(errors.conflict(target.kind, target.name))
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
    ) -> ServerResponse:
        steps = path.strip("/").split("/", 3)
        if (
            len(steps) < 3
            or (steps[0] == "apis" and len(path.strip("/").split("/")) < 4)
            or steps[0] not in {"api", "apis"}
        ):
            return self._about(method, path, steps, accept)
        if method == "POST" and path in REVIEWS:
            return ServerResponse(201, _encode(review(path, decoded(body or {}, content_type or _JSON))))
        target = parse_path(path)
        match method:
            case "GET":
                return self._get(target, query, accept)
            case _ if target.subresource == "log":
                raise errors.method_not_allowed()
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

    def _get(self, target: ResourcePath, query: Mapping[str, str], accept: str) -> ServerResponse:
        if target.subresource in _ACTIONS:
            raise errors.method_not_allowed()
        if target.subresource == "log":
            text = container_log(self.registry.get(target.kind, target.namespace, target.name), query)
            return ServerResponse(200, text.encode(), content_type="text/plain")
        view = ObjectRenderer(target.kind, target.version, accept, query.get("includeObject", ""))
        if target.name:
            self._check_reached(query.get("resourceVersion"))
            entry = self.registry.get(target.kind, target.namespace, target.name)
            return ServerResponse(200, view.one(entry, self.clock()))
        return ServerResponse(200, list_collection(self.store, target, query, view, self.clock()))

    def _check_reached(self, wanted: str | None) -> None:
        if wanted and (rv := list_options.version(wanted)) > self.store.rv:
            raise errors.too_large(rv, self.store.rv)

    def _about(self, method: str, path: str, steps: list[str], accept: str) -> ServerResponse:
        if method not in {"GET", "HEAD"}:
            raise errors.method_not_allowed()
        if steps[0] in _HEALTH and steps[1:] in ([], ["ping"], ["etcd"]):
            return ServerResponse(200, b"ok", content_type="text/plain")
        if "as=APIGroupDiscoveryList" in accept and (whole := aggregated(steps)) is not None:
            return ServerResponse(200, whole, content_type=AGGREGATED)
        body = document(path)
        if body is None:
            raise nothing_at(steps[1] if steps[0] == "apis" else "" if steps[0] == "api" else path)
        return ServerResponse(200, body)

    def _shown(
        self, target: ResourcePath, status: int, entry: ObjectVersion, write: Write, accept: str
    ) -> ServerResponse:
        view = ObjectRenderer(target.kind, target.version, accept, "")
        headers = (
            {"Warning": ", ".join(f'299 - "{_quoted(text)}"' for text in write.warnings)}
            if write.warnings
            else _NO_QUERY
        )
        return ServerResponse(status, view.one(entry, self.clock()), headers)

    def _post(
        self,
        target: ResourcePath,
        query: Mapping[str, str],
        body: Any,
        content_type: str | None,
        user: str,
        accept: str,
    ) -> ServerResponse:
        is_action = target.subresource in _ACTIONS
        if not is_action and (target.name or (target.kind.namespaced and not target.namespace)):
            raise errors.method_not_allowed()
        write = write_options("POST", target, query, user)
        obj = document_body(target, body, content_type, write)
        if is_action:
            if target.subresource == "binding":
                bind(self.registry, target.namespace, target.name, obj, write)
            else:
                evict(self.registry, target.namespace, target.name, obj, write)
            return ServerResponse(201, _encode({**_success(), "code": 201}))
        entry = self.registry.create(target.kind, target.namespace, obj, write)
        return self._shown(target, 201, entry, write, accept)

    def _put(
        self,
        target: ResourcePath,
        query: Mapping[str, str],
        body: Any,
        content_type: str | None,
        user: str,
        accept: str,
    ) -> ServerResponse:
        if not target.name:
            raise errors.method_not_allowed()
        write = write_options("PUT", target, query, user)
        write.replaces = True
        obj = document_body(target, body, content_type, write)
        self._require_name(target, obj, write)
        entry = self.registry.get(target.kind, target.namespace, target.name)
        if target.subresource == "finalize":
            entry = self.registry.finalize(target.kind, entry, obj)
        else:
            entry = self.registry.update(target.kind, entry, obj, write)
        return self._shown(target, 200, entry, write, accept)

    def _require_name(self, target: ResourcePath, obj: JsonObject, write: Write) -> None:
        if not given_metadata(target.kind, write, obj).get("name"):
            raise errors.bad_request(
                f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
            )

    def _patch(
        self,
        target: ResourcePath,
        query: Mapping[str, str],
        body: Any,
        content_type: str | None,
        user: str,
        accept: str,
    ) -> ServerResponse:
        if not target.name:
            raise errors.method_not_allowed()
        kind = target.kind
        media = (content_type or "").partition(";")[0].strip()
        accepted = _CUSTOM_PATCHES if kind.custom else _CORE_PATCHES
        if media not in accepted:
            raise errors.unsupported_media_type(accepted) if kind.custom else errors.no_patch_type()
        write = write_options("PATCH", target, query, user, media)
        if media == _APPLY:
            return self._apply_patch(target, query, body, write, accept)
        patch = patch_body(body, media)
        if isinstance(body, bytes):
            write.repeated = repeated_fields(body, patch)
        entry = self.registry.get(kind, target.namespace, target.name)
        match media:
            case "application/json-patch+json":
                obj = json_patch(entry.obj, patch)
            case "application/merge-patch+json":
                obj = merge_patched(entry.obj, patch)
            case _:
                obj = strategic_merge(entry.obj, patch, self.registry.root(kind))
        if not isinstance(obj, dict):
            raise errors.inapplicable_patch()
        strategic = media == "application/strategic-merge-patch+json"
        write.patched = lambda: go_value(patch) if strategic else _encode(obj).decode()
        check_patched_type(target, obj, write)
        # Without its type, a struct is decoded to nothing.
        named = obj if kind.custom or (obj.get("kind") and obj.get("apiVersion")) else {}
        self._require_name(target, named, write)
        entry = self.registry.update(kind, entry, obj, write)
        return self._shown(target, 200, entry, write, accept)

    def _apply_patch(
        self, target: ResourcePath, query: Mapping[str, str], body: Any, write: Write, accept: str
    ) -> ServerResponse:
        config = apply_body(body)
        check_configuration(target, config)
        force = query.get("force") in {"true", "1"}
        entry, created = self.registry.apply(target.kind, target.namespace, target.name, config, write, force=force)
        return self._shown(target, 201 if created else 200, entry, write, accept)

    def _delete(
        self, target: ResourcePath, query: Mapping[str, str], body: Any, content_type: str | None
    ) -> ServerResponse:
        if target.subresource or (target.kind.namespaced and not target.namespace):
            raise errors.method_not_allowed()
        deletion, warnings = deletion_options(target.kind, query, body, content_type)
        headers = {"Warning": f'299 - "{_quoted(warnings)}"'} if warnings else _NO_QUERY
        if not target.name:
            return self._delete_collection(target, query, deletion, headers)
        if target.kind.plural == "namespaces" and target.name in _IMMORTAL:
            raise errors.forbidden(target.kind, target.name, "this namespace may not be deleted")
        entry = self.registry.get(target.kind, target.namespace, target.name)
        entry, gone = self.registry.delete(target.kind, entry, deletion)
        if gone and target.kind.resource != "pods":
            details: JsonObject = {"name": target.name}
            if target.kind.group:
                details["group"] = target.kind.group
            details |= {"kind": target.kind.plural, "uid": entry.obj["metadata"]["uid"]}
            return ServerResponse(200, _encode({**_success(), "details": details}), headers)
        return ServerResponse(
            200, ObjectRenderer(target.kind, target.version, "", "").one(entry, self.clock()), headers
        )

    def _delete_collection(
        self, target: ResourcePath, query: Mapping[str, str], deletion: Deletion, headers: Mapping[str, str]
    ) -> ServerResponse:
        if target.kind.plural == "namespaces":
            raise errors.method_not_allowed()
        list_options.read(query)
        matches = predicate(target.kind, target.version, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        found = [e for e in self.store.table(target.kind).select(target.namespace) if matches is None or matches(e.obj)]
        listed_rv, shown = str(self.store.rv), []
        for entry in found:
            marked, gone = self.registry.delete(target.kind, entry, deletion)
            shown.append(entry if gone else marked)
        view = ObjectRenderer(target.kind, target.version, "", "")
        return ServerResponse(200, view.many(shown, listed_rv, self.clock(), {}), headers)


def refusal(error: ApiStatusError) -> ServerResponse:
    """The response that an error of the API server is."""
    if isinstance(error, errors.PageNotFoundError):
        return ServerResponse(404, f"{error.message}\n".encode(), content_type="text/plain")
    headers = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s else _NO_QUERY
    return ServerResponse(error.code, _encode(error.status()), headers)


def _warn_of_version(response: ServerResponse, path: str) -> None:
    """Say that a version of a custom resource is one of the past, in what way the request ever ended."""
    try:
        kind = parse_path(path).kind
    except ApiStatusError:
        return
    if kind.custom:
        text = f'299 - "This version is deprecated. Use {kind.version} instead."'
        others = response.headers.get("Warning")
        response.headers = {**response.headers, "Warning": f"{text}, {others}" if others else text}


def _success() -> JsonObject:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
