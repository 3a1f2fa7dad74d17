"""
Authentication and authorization of the read side.

On loopback all users of the machine have access (`open_to_all`). In a cluster a caller presents a bearer token, as to
the API server, which authenticates it (TokenReview) and authorizes its requests (SubjectAccessReview):

    workloads and what is about them   get or list workloads.kueue.x-k8s.io, in the namespace asked for or in all
    /queues                            list clusterqueues.kueue.x-k8s.io
    /topology                          list nodes; names of workloads in it: list workloads.kueue.x-k8s.io
    the visibility API                 get clusterqueues/pendingworkloads or localqueues/pendingworkloads of
                                       visibility.kueue.x-k8s.io, as Kueue's own roles grant it

Answers are cached for `TTL_S`, so that a revoked token or permission takes effect within seconds, and for a bounded
number of callers. Tokens are kept as digests. While the API server is unreachable, access is denied.
"""

import hashlib
import ipaddress
import time
from collections.abc import Callable, Mapping
from typing import Final, Generic, Protocol, TypeVar

import anyio
import msgspec
from aiohttp import web

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.errors import KubernetesError

TTL_S: Final = 10.0
REMEMBERED_MAX: Final = 4_096
"""The maximum number of cached callers, and of cached permissions."""
REVIEWS_MAX: Final = 16
"""The maximum number of concurrent reviews by the API server."""
NAMESPACES_MAX: Final = 32
"""The maximum number of namespaces in one request."""

KUEUE: Final = "kueue.x-k8s.io"
VISIBILITY: Final = "visibility.kueue.x-k8s.io"

K = TypeVar("K")
V = TypeVar("V")


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """A permission that a caller needs. `namespace` "" is all of them."""

    verb: str
    resource: str
    group: str = KUEUE
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    is_namespaced: bool = True

    def __str__(self) -> str:
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        where = (f" in namespace {self.namespace}" if self.namespace else " in all namespaces") * self.is_namespaced
        return f"{self.verb} {what}{f'.{self.group}' if self.group else ''}{where}"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of a caller, from the API server."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class UnauthorizedError(Exception):
    """Raised when a caller presents no token, or an invalid one."""


class ForbiddenError(Exception):
    """Raised when a caller lacks a permission; the message names it."""


class NoAnswerError(Exception):
    """Raised while the API server cannot authenticate callers. Nothing is shown meanwhile."""


class Access(Protocol):
    """Authentication and authorization. `None` is a caller that needs no identity."""

    async def caller(self, request: web.Request) -> Caller | None:
        """The caller's identity. Raises UnauthorizedError, NoAnswerError."""
        ...

    async def require(self, caller: Caller | None, right: Right) -> None:
        """Raises ForbiddenError when the caller lacks a permission, NoAnswerError."""
        ...


class OpenAccess:
    """All clients that reach the port may see everything. `names` are the accepted host names."""

    def __init__(self, names: frozenset[str] | None) -> None:
        self._names = names

    async def caller(self, request: web.Request) -> Caller | None:
        """
        No identity.

        A page from elsewhere whose name resolves to this machine (DNS rebinding) is refused: browsers send the name.
        """
        if self._names is not None and not _is_direct(request.headers.get("Host", ""), self._names):
            raise UnauthorizedError("this address is for this machine only: ask for it by IP address or as localhost")
        return None

    async def require(self, caller: Caller | None, right: Right) -> None:
        """Always allowed."""


def _is_direct(host: str, names: frozenset[str]) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
    name = name.strip("[]").lower()
    if not name or name in names or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Remembered(Generic[K, V]):
    """Values that are valid for a while, at most `most` of them: the oldest are removed first."""

    def __init__(self, ttl_s: float, most: int, now_s: Callable[[], float]) -> None:
        self._ttl_s = ttl_s
        self._most = most
        self._now_s = now_s
        self._values: dict[K, tuple[float, V]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """The value, if it is still valid."""
        found = self._values.get(key)
        return found[1] if found is not None and self._now_s() < found[0] else None

    def put(self, key: K, value: V) -> None:
        """Store a value from now on."""
        self._values.pop(key, None)
        while len(self._values) >= self._most:
            del self._values[next(iter(self._values))]
        self._values[key] = (self._now_s() + self._ttl_s, value)


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: Caller = Caller()
    error: str = ""


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


class KubernetesAccess:
    """The API server authenticates and authorizes callers."""

    def __init__(self, client: KubeClient, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._reviews = anyio.Semaphore(REVIEWS_MAX)
        self._callers: Remembered[bytes, _TokenStatus] = Remembered(TTL_S, REMEMBERED_MAX, now_s)
        self._rights: Remembered[tuple[bytes, Right], bool] = Remembered(TTL_S, REMEMBERED_MAX, now_s)

    async def caller(self, request: web.Request) -> Caller | None:
        """The identity of the token."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise UnauthorizedError("show a token of the cluster: Authorization: Bearer $(kubectl create token NAME)")
        digest = hashlib.sha256(token.strip().encode()).digest()
        status = self._callers.get(digest)
        if status is None:
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token.strip()}}
            answer = await self._ask("/apis/authentication.k8s.io/v1/tokenreviews", body)
            status = msgspec.json.decode(answer, type=_TokenReview).status
            self._callers.put(digest, status)
        if not status.authenticated:
            raise UnauthorizedError(
                f"the API server does not know this token{f': {status.error}' * bool(status.error)}"
            )
        return status.user

    async def require(self, caller: Caller | None, right: Right) -> None:
        """Check the permission."""
        assert caller is not None, "every caller has a name here"
        key = (hashlib.sha256(msgspec.json.encode(caller, order="sorted")).digest(), right)
        allowed = self._rights.get(key)
        if allowed is None:
            answer = await self._ask("/apis/authorization.k8s.io/v1/subjectaccessreviews", _question(caller, right))
            allowed = msgspec.json.decode(answer, type=_AccessReview).status.allowed
            self._rights.put(key, allowed)
        if not allowed:
            raise ForbiddenError(f"{caller.username} may not {right}")

    async def _ask(self, path: str, body: object) -> bytes:
        async with self._reviews:
            try:
                return await self._client.request("POST", path, body=body)
            except KubernetesError as error:
                raise NoAnswerError(f"the API server cannot be asked who may see this: {error}") from error


def _question(caller: Caller, right: Right) -> Mapping[str, object]:
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    who = {"user": caller.username, "uid": caller.uid, "groups": caller.groups, "extra": caller.extra}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {**who, "resourceAttributes": attributes},
    }


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
