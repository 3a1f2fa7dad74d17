"""
Who may see what on the read side.

On loopback everybody who is on the machine may (`open_to_all`). In a cluster a caller shows a bearer token, as to the
API server, and the API server says whose it is (TokenReview) and what they may see (SubjectAccessReview):

    workloads and what is about them   get or list workloads.kueue.x-k8s.io, in the namespace asked for or in all
    /queues                            list clusterqueues.kueue.x-k8s.io
    the visibility API                 get clusterqueues/pendingworkloads or localqueues/pendingworkloads of
                                       visibility.kueue.x-k8s.io, as Kueue's own roles grant it

Answers are believed for `TTL_S`, so that a token or a right that is taken away counts within seconds, and are kept for
a bounded number of callers. Tokens are kept as digests. What the API server cannot be asked is not allowed.
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
"""Callers, and rights of callers, that are remembered at a time."""
REVIEWS_MAX: Final = 16
"""Questions to the API server at a time."""
NAMESPACES_MAX: Final = 32
"""Namespaces that one request may ask for."""

KUEUE: Final = "kueue.x-k8s.io"
VISIBILITY: Final = "visibility.kueue.x-k8s.io"

K = TypeVar("K")
V = TypeVar("V")


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a caller must be allowed to do. `namespace` "" is all of them."""

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
        return f"{self.verb} {what}.{self.group}{where}"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, as the API server knows them."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class UnauthorizedError(Exception):
    """Raised when a caller shows no token, or one that the API server does not know."""


class ForbiddenError(Exception):
    """Raised when a caller may not see what they ask for; the message names the right."""


class NoAnswerError(Exception):
    """Raised while the API server cannot be asked who somebody is. Nothing is shown meanwhile."""


class Access(Protocol):
    """Who may see what. `None` is a caller who needs no name."""

    async def caller(self, request: web.Request) -> Caller | None:
        """Who asks. Raises UnauthorizedError, NoAnswerError."""
        ...

    async def require(self, caller: Caller | None, right: Right) -> None:
        """Raises ForbiddenError when the caller lacks a right, NoAnswerError."""
        ...


class OpenAccess:
    """Everybody who reaches the port may see everything. `names` are those under which it may be asked."""

    def __init__(self, names: frozenset[str] | None) -> None:
        self._names = names

    async def caller(self, request: web.Request) -> Caller | None:
        """
        Nobody in particular.

        A page from elsewhere whose name resolves to this machine (DNS rebinding) is refused: browsers send the name.
        """
        if self._names is not None and not _is_direct(request.headers.get("Host", ""), self._names):
            raise UnauthorizedError("this address is for this machine only: ask for it by IP address or as localhost")
        return None

    async def require(self, caller: Caller | None, right: Right) -> None:
        """Nothing."""


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
    """Values that are good for a while, at most `most` of them: the oldest go first."""

    def __init__(self, ttl_s: float, most: int, now_s: Callable[[], float]) -> None:
        self._ttl_s = ttl_s
        self._most = most
        self._now_s = now_s
        self._values: dict[K, tuple[float, V]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """The value, if it is good still."""
        found = self._values.get(key)
        return found[1] if found is not None and self._now_s() < found[0] else None

    def put(self, key: K, value: V) -> None:
        """Remember a value from now on."""
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
    """The API server knows callers and rights."""

    def __init__(self, client: KubeClient, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._reviews = anyio.Semaphore(REVIEWS_MAX)
        self._callers: Remembered[bytes, _TokenStatus] = Remembered(TTL_S, REMEMBERED_MAX, now_s)
        self._rights: Remembered[tuple[bytes, Right], bool] = Remembered(TTL_S, REMEMBERED_MAX, now_s)

    async def caller(self, request: web.Request) -> Caller | None:
        """Whose token it is."""
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
        """Whether they may."""
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
    """Whether an address to listen on is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
