"""
One request, one answer: the verbs of the Kubernetes API for any resource.

`KubeClient` is for code that makes a request and reads the answer: set-up, leases, tools, tests, the list half of the
reflector. It does not retry; effects that must happen go through `call.CallExecutor`. Bodies are bytes or anything
msgspec can encode; answers are bytes, of which the caller decodes the parts it needs. With a `limiter`, the rate of new
requests and streams is limited.

Every method raises `ApiError` when the server answers with something other than success and `TransportError` when no
answer arrives.
"""

import contextlib
import enum
from collections.abc import AsyncIterator, Mapping
from typing import Final

import msgspec

from headgate.adapters.kubernetes.errors import ApiError, KubernetesError, api_error
from headgate.adapters.kubernetes.resources import PODS, Resource
from headgate.adapters.kubernetes.retry import RateLimiter
from headgate.adapters.kubernetes.transport import NO_QUERY, Transport

JSON: Final = "application/json"

#: Objects per page of a list. The value of Kubernetes' own informers: a page of pods is then about 3 MB.
PAGE_ITEMS: Final = 500


class PatchType(enum.Enum):
    """The patch formats in use, by content type. Strategic merge is not used: custom resources do not support it."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    #: Server-side apply. The body may be JSON, which is YAML.
    APPLY = "application/apply-patch+yaml"


class Propagation(enum.Enum):
    """The deletion policy for dependents of the deleted object."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a list. `continue_token` is empty on the last page."""

    items: list[msgspec.Raw]
    resource_version: str
    continue_token: str


class _ListMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _ListMeta
    # Go encodes a nil slice as null.
    items: list[msgspec.Raw] | None = None


class AnswerUndecodableError(KubernetesError):
    """A successful answer has an invalid body. Check proxies in between."""


_LIST: Final = msgspec.json.Decoder(_List)
_ENCODER: Final = msgspec.json.Encoder()


def encode(body: object) -> bytes:
    """A request body: bytes as they are, anything else as JSON."""
    return body if isinstance(body, bytes) else _ENCODER.encode(body)


class KubeClient:
    """The verbs of the Kubernetes API over a transport."""

    def __init__(self, transport: Transport, limiter: RateLimiter | None = None) -> None:
        self.transport = transport
        self._limiter = limiter

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] = NO_QUERY,
        body: object = None,
        content_type: str = JSON,
    ) -> bytes:
        """Make a request to any path and return the body of a successful answer."""
        if self._limiter is not None:
            await self._limiter.acquire()
        response = await self.transport.request(
            method,
            path,
            query=query,
            body=None if body is None else encode(body),
            content_type=None if body is None else content_type,
        )
        if not 200 <= response.status < 300:
            request = f"{method} {path}"
            raise api_error(response.status, response.headers, response.body, request=request, user=response.user)
        return response.body

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], read_timeout_s: float | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """A watch, line by line; see `Transport.stream`."""
        if self._limiter is not None:
            await self._limiter.acquire()
        async with self.transport.stream(path, query=query, read_timeout_s=read_timeout_s) as lines:
            yield lines

    async def get(
        self, resource: Resource, name: str, namespace: str | None = None, *, subresource: str | None = None
    ) -> bytes:
        """One object."""
        return await self.request("GET", resource.path(namespace=namespace, name=name, subresource=subresource))

    async def find(self, resource: Resource, name: str, namespace: str | None = None) -> bytes | None:
        """One object; None when the API says that there is none. A path that leads nowhere raises ApiError."""
        try:
            return await self.get(resource, name, namespace)
        except ApiError as error:
            if error.is_not_found and not error.is_unserved:
                return None
            raise

    async def page(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        query: Mapping[str, str] = NO_QUERY,
        limit: int = PAGE_ITEMS,
        continue_token: str = "",
    ) -> Page:
        """
        One page of a list. `limit` 0 asks for everything at once; `query` may hold selectors.

        Raises:
            AnswerUndecodableError: the answer is no list.

        """
        asked = dict(query)
        if limit:
            asked["limit"] = str(limit)
        if continue_token:
            asked["continue"] = continue_token
        path = resource.path(namespace=namespace)
        body = await self.request("GET", path, query=asked)
        try:
            found = _LIST.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise AnswerUndecodableError(f"GET {path}: the answer is no list: {error}") from error
        return Page(
            items=found.items or [],
            resource_version=found.metadata.resource_version,
            continue_token=found.metadata.continue_token,
        )

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        query: Mapping[str, str] = NO_QUERY,
        limit: int = PAGE_ITEMS,
    ) -> AsyncIterator[Page]:
        """All pages of a list, in order. If the list expires on the way (`is_expired`), begin again."""
        token = ""
        while True:
            page = await self.page(resource, namespace, query=query, limit=limit, continue_token=token)
            yield page
            token = page.continue_token
            if not token:
                return

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = PAGE_ITEMS,
    ) -> Page:
        """A whole list, fetched page by page and joined. For small lists; `pages` is for the others."""
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        query = {key: value for key, value in selectors.items() if value}
        items: list[msgspec.Raw] = []
        version = token = ""
        while True:
            page = await self.page(resource, namespace, query=query, limit=limit, continue_token=token)
            # A Raw is a view into its page; copies let the pages go.
            items += [item.copy() for item in page.items]
            version, token = page.resource_version, page.continue_token
            if not token:
                return Page(items=items, resource_version=version, continue_token="")

    async def create(
        self,
        resource: Resource,
        body: object,
        namespace: str | None = None,
        *,
        field_manager: str = "",
        dry_run: bool = False,
    ) -> bytes:
        """Create an object; returns it as stored, or as it would be."""
        query = _options(field_manager, dry_run=dry_run)
        return await self.request("POST", resource.path(namespace=namespace), query=query, body=body)

    async def update(
        self,
        resource: Resource,
        name: str,
        body: object,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        field_manager: str = "",
        dry_run: bool = False,
    ) -> bytes:
        """Replace an object, or with `subresource="status"` its status. A stale resourceVersion is a conflict."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self.request("PUT", path, query=_options(field_manager, dry_run=dry_run), body=body)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: object,
        namespace: str | None = None,
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str | None = None,
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> bytes:
        """
        Patch an object, or with `subresource="status"` its status.

        Args:
            resource: the resource.
            name: the object's name.
            body: the patch: an object for merge and apply, a list of operations for JSON patch.
            namespace: the object's namespace, if the resource has them.
            patch_type: the format of `body`.
            subresource: `status`, or None.
            field_manager: who owns the fields; apply requires it.
            force: apply only: take fields from other managers.
            dry_run: store nothing.

        Raises:
            ValueError: an apply without a field manager, or `force` without apply. The caller must decide.

        """
        is_apply = patch_type is PatchType.APPLY
        if is_apply and not field_manager:
            raise ValueError("an apply patch needs a field manager")
        if force and not is_apply:
            raise ValueError("only an apply patch can be forced")
        query = _options(field_manager, dry_run=dry_run) | ({"force": "true"} if force else {})
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self.request("PATCH", path, query=query, body=body, content_type=patch_type.value)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation | None = None,
        grace_period_s: int | None = None,
        dry_run: bool = False,
    ) -> bytes:
        """Delete an object, if `uid` and `resource_version` (where given) still are those of the stored one."""
        options = _delete_options(uid, resource_version, propagation, grace_period_s)
        path = resource.path(namespace=namespace, name=name)
        return await self.request("DELETE", path, query=_options("", dry_run=dry_run), body=options)

    async def bind(self, name: str, namespace: str, node: str, *, uid: str = "") -> bytes:
        """Bind a pod to a node. A pod that is bound already, or has another uid, is a conflict."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace} | ({"uid": uid} if uid else {}),
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        return await self.request("POST", PODS.path(namespace=namespace, name=name, subresource="binding"), body=body)

    async def evict(self, name: str, namespace: str, *, uid: str = "", grace_period_s: int | None = None) -> bytes:
        """Evict a pod. 429 means that a PodDisruptionBudget does not allow it at the moment."""
        body: dict[str, object] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        options = _delete_options(uid, "", None, grace_period_s)
        if options is not None:
            body["deleteOptions"] = options
        return await self.request("POST", PODS.path(namespace=namespace, name=name, subresource="eviction"), body=body)


def _options(field_manager: str, *, dry_run: bool) -> dict[str, str]:
    return ({"fieldManager": field_manager} if field_manager else {}) | ({"dryRun": "All"} if dry_run else {})


def _delete_options(
    uid: str, resource_version: str, propagation: Propagation | None, grace_period_s: int | None
) -> dict[str, object] | None:
    options: dict[str, object] = {}
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    if uid or resource_version:
        options["preconditions"] = {key: value for key, value in preconditions.items() if value}
    if propagation is not None:
        options["propagationPolicy"] = propagation.value
    if grace_period_s is not None:
        options["gracePeriodSeconds"] = grace_period_s
    return {"apiVersion": "v1", "kind": "DeleteOptions"} | options if options else None
