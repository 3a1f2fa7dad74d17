"""
The visibility API behind an APIService: HTTPS for the aggregator of the API server.

The API server forwards `/apis/visibility.kueue.x-k8s.io/...` to the Service that the APIService names. It authenticates
the caller, shows a client certificate of its own (the front proxy's), and names the caller in headers. Here the
certificate is verified against the CA in the ConfigMap `kube-system/extension-apiserver-authentication`, and only then
the headers are read (`FrontProxyAccess`). Everybody else needs a token, as on the read side. Whether the caller may
read a queue is asked of the API server in both cases (SubjectAccessReview: `headgate.web.access`).

The server's certificate is issued and renewed by itself, kept in a Secret, and its authority written as `caBundle` into
APIServices with the label `headgate.dev/ca-from` (`headgate.processes.runtime.serving_certificates`), or it is read
from files. When the ConfigMap changes, the listener begins anew with what it says then.

`listening_in` starts and ends it with the application of the read side. While the API server does not answer, or the
port is taken, it tries again; the read side is served meanwhile.
"""

import asyncio
import contextlib
import logging
import ssl
import urllib.parse
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import anyio
import msgspec
from aiohttp import web

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.errors import KubernetesError
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kubeconfig import resolve
from headgate.adapters.kubernetes.resources import CONFIG_MAPS
from headgate.adapters.kubernetes.retry import RateLimiter
from headgate.processes.runtime.http import CannotListenError
from headgate.processes.runtime.serving_certificates import certificates_of, listening
from headgate.processes.runtime.settings import Settings, VisibilitySettings
from headgate.web.access import Access, Caller, KubernetesAccess, Right, UnauthorizedError

_LOG: Final = logging.getLogger(__name__)

TRUST: Final = ("kube-system", "extension-apiserver-authentication")
ROUND_S: Final = 60.0
"""The interval at which the ConfigMap is read again."""
RETRY_S: Final = 5.0
REVIEWS_QPS: Final = 50

AddRoutes = Callable[[web.Application, Access], None]


class FrontProxy(msgspec.Struct, frozen=True, kw_only=True):
    """Whom the API server says to trust: the CA, the common names (none: all), and the headers of an identity."""

    ca: str
    names: tuple[str, ...] = ()
    user_headers: tuple[str, ...] = ("X-Remote-User",)
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)


class NoFrontProxyError(Exception):
    """The API server has no aggregation layer. The message says which flags it lacks."""


def front_proxy_of(config_map: Mapping[str, Any]) -> FrontProxy:
    """
    What the ConfigMap says; its lists are JSON.

    Raises NoFrontProxyError without a CA, and for a list that is none.
    """
    data = config_map.get("data") or {}
    ca = data.get("requestheader-client-ca-file", "")
    where = "/".join(TRUST)
    if not ca:
        raise NoFrontProxyError(
            f"ConfigMap {where} has no requestheader-client-ca-file: the API server runs without an aggregation layer"
        )

    def listed(key: str) -> tuple[str, ...]:
        try:
            return msgspec.json.decode(data.get(key) or "[]", type=tuple[str, ...])
        except msgspec.DecodeError as error:
            raise NoFrontProxyError(f"ConfigMap {where}: {key} is no list of names: {error}") from error

    return FrontProxy(
        ca=ca,
        names=listed("requestheader-allowed-names"),
        user_headers=listed("requestheader-username-headers"),
        uid_headers=listed("requestheader-uid-headers"),
        group_headers=listed("requestheader-group-headers"),
        extra_prefixes=listed("requestheader-extra-headers-prefix"),
    )


class FrontProxyAccess:
    """The aggregator names its callers; others show tokens. The API server authorizes both."""

    def __init__(self, proxy: FrontProxy, others: Access) -> None:
        self._proxy = proxy
        self._others = others

    async def caller(self, request: web.Request) -> Caller | None:
        """The identity in the headers, if the front proxy's certificate was verified; else that of the token."""
        name = _common_name(request)
        if name is None or (self._proxy.names and name not in self._proxy.names):
            return await self._others.caller(request)
        caller = self._named(request)
        if not caller.username:
            raise UnauthorizedError(f"the front proxy names no user in {', '.join(self._proxy.user_headers)}")
        return caller

    def _named(self, request: web.Request) -> Caller:
        headers = request.headers

        def first(names: tuple[str, ...]) -> str:
            return next((headers[name] for name in names if headers.get(name)), "")

        groups = tuple(value for name in self._proxy.group_headers for value in headers.getall(name, ()))
        extra: dict[str, tuple[str, ...]] = {}
        for header, value in headers.items():
            for prefix in self._proxy.extra_prefixes:
                if header.lower().startswith(prefix.lower()):
                    key = urllib.parse.unquote(header[len(prefix) :].lower())
                    extra[key] = (*extra.get(key, ()), value)
        username = first(self._proxy.user_headers)
        return Caller(username=username, uid=first(self._proxy.uid_headers), groups=groups, extra=extra)

    async def require(self, caller: Caller | None, right: Right) -> None:
        """See `Access.require`."""
        await self._others.require(caller, right)


def _common_name(request: web.Request) -> str | None:
    """The common name of the client's certificate, which the TLS layer has verified; None without one."""
    tls = request.transport.get_extra_info("ssl_object") if request.transport is not None else None
    certificate = tls.getpeercert() if tls is not None else None
    if not certificate:
        return None
    return next((value for part in certificate["subject"] for key, value in part if key == "commonName"), "")


class AggregatedServer:
    """The listener. `port` is set while it listens, and `problem` says why it does not."""

    def __init__(self, settings: VisibilitySettings, client: KubeClient, add_routes: AddRoutes) -> None:
        self.port = 0
        self.problem: str | None = "not started yet"
        self._settings = settings
        self._client = client
        self._add_routes = add_routes

    async def run(self) -> None:
        """Serve until cancelled."""
        said: str | None = None
        while True:
            try:
                await self._serve()
            except (KubernetesError, NoFrontProxyError, CannotListenError, OSError) as error:
                self.problem = f"the aggregated visibility API is not served: {error}"
                if self.problem != said:
                    said = self.problem
                    _LOG.warning("%s", said)
                await anyio.sleep(RETRY_S)
            finally:
                self.port = 0

    async def _serve(self) -> None:
        """
        Listen until the front proxy's authority changes.

        Raises KubernetesError, NoFrontProxyError, CannotListenError, OSError.
        """
        proxy = await self._trusted()
        certificates = certificates_of(self._client, self._settings)
        async with _background(certificates.keep()):
            await certificates.ready.wait()
            context = certificates.context
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(cadata=proxy.ca)
            app = web.Application()
            self._add_routes(app, FrontProxyAccess(proxy, KubernetesAccess(self._client)))
            async with listening(app, context, self._settings) as self.port:
                _LOG.info("the aggregated visibility API is served on port %d", self.port)
                self.problem = None
                await self._until_changed(proxy)

    async def _trusted(self) -> FrontProxy:
        namespace, name = TRUST
        return front_proxy_of(msgspec.json.decode(await self._client.get(CONFIG_MAPS, name, namespace)))

    async def _until_changed(self, proxy: FrontProxy) -> None:
        """Return when the ConfigMap says something else; what cannot be read has not changed."""
        while True:
            await anyio.sleep(ROUND_S)
            try:
                if await self._trusted() != proxy:
                    return
            except (KubernetesError, NoFrontProxyError) as error:
                _LOG.warning("the authority of the front proxy could not be read again: %s", error)


@contextlib.asynccontextmanager
async def _background(work: Any) -> AsyncIterator[None]:
    """Run a coroutine as long as the block."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def listening_in(settings: Settings, add_routes: AddRoutes, _: web.Application) -> AsyncIterator[None]:
    """For `cleanup_ctx` of an application: serve beside it."""
    kubernetes = settings.kubernetes
    access = resolve(server=kubernetes.server, kubeconfig=kubernetes.kubeconfig, context=kubernetes.context)
    async with open_transport(access) as transport:
        client = KubeClient(transport, RateLimiter(qps=REVIEWS_QPS, burst=2 * REVIEWS_QPS))
        async with _background(AggregatedServer(settings.visibility, client, add_routes).run()):
            yield
