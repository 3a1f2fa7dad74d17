"""
The client of scheduler extenders: carries out `AskExtender`, once, within the time that is configured.

It is as the kube-scheduler's (pkg/scheduler/extender.go, client-go TLSConfigFor): a POST of JSON; TLS as `tlsConfig`
says, with a server that is not verified when `enableHTTPS` is set without an authority; a proxy of the environment.
Certificates are read again when their files have changed.

Connections are kept and used again, at most CONNECTIONS_MAX to an extender. A server may close one that it kept at the
moment in which a call is sent on it: such a call, of which no byte was answered, is made once more, on a connection of
its own. No other call is repeated. An answer has at most `RESPONSE_BYTES_MAX`.
"""

import asyncio
import base64
import binascii
import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import anyio
from yarl import URL

from headgate.core.config.fields import ConfigurationError, duration_ms
from headgate.core.machine.call_object import body_of
from headgate.core.machine.contract import AskExtender, Completed
from headgate.core.placement.configuration.types import Extender, ExtenderTls

DEFAULT_TIMEOUT_MS: Final = 5_000
"""For an `httpTimeout` of 0."""

RESPONSE_BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest body that is read of an answer."""

CONNECTIONS_MAX: Final = 32
"""Connections to one extender at a time. Further calls wait for one; their `httpTimeout` begins when they have it."""

IDLE_S: Final = 90.0
"""How long a connection is kept that is not used: as Go's clients keep theirs."""

_HEADERS: Final = {"Content-Type": "application/json"}

_Stamp = tuple[tuple[int, int], ...]
"""Time and size of each file that TLS is set up from."""


class ExtenderClient:
    """Calls to the extenders of a configuration. `aclose` ends those that are under way."""

    def __init__(self, extenders: Sequence[Extender]) -> None:
        """Raises ConfigurationError when what an extender is reached by cannot be read."""
        self._routes = [_Route(extender, f"extenders[{index}]") for index, extender in enumerate(extenders)]
        self._kept: aiohttp.ClientSession | None = None
        self._fresh: aiohttp.ClientSession | None = None
        """For calls on connections of their own."""

    async def aclose(self) -> None:
        """Close every connection."""
        for session in (self._kept, self._fresh):
            if session is not None:
                await session.close()

    async def ask(self, ask: AskExtender) -> Completed:
        """
        Carry out a call. Without an answer the status is 0, and the body says why.

        Raises ObjectFailedError when its body cannot be sent.
        """
        body = body_of(ask)
        assert body is not None, "an extender is always sent something"
        route = next((each for each in self._routes if each.is_for(ask)), None)
        if route is None:
            why = f'extender "{ask.extender}" is not configured with "{ask.path}": restart with its configuration'
            return Completed(ask.id, 0, why.encode())
        url = route.extender.url(ask.path)
        try:
            status, answer = await self._post(route, url, body)
        except (aiohttp.ClientError, OSError, TimeoutError, ConfigurationError, _AnswerTooLargeError) as error:
            why = f'Post "{_without_password(url)}": {_reason(error, route)}'
            return Completed(ask.id, 0, why.encode())
        return Completed(ask.id, status, answer)

    async def _post(self, route: "_Route", url: str, body: bytes) -> tuple[int, bytes]:
        if self._kept is None or self._fresh is None:
            # Within the loop that they belong to.
            self._kept, self._fresh = _session(kept=True), _session(kept=False)
        async with route.connections:
            with anyio.fail_after(route.timeout_ms / 1000):
                sent = _Sent()
                try:
                    return await _send(self._kept, route, url, body, sent)
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                    if not sent.on_kept_connection or sent.is_answered:
                        raise
                return await _send(self._fresh, route, url, body, _Sent())


class _Sent:
    """How far a call has come."""

    def __init__(self) -> None:
        self.on_kept_connection = False
        self.is_answered = False
        """Whether the answer has begun."""


def _session(*, kept: bool) -> aiohttp.ClientSession:
    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(_reused)
    trace.on_connection_create_end.append(_created)
    # The number of connections is bounded by `_Route.connections`.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S if kept else None, force_close=not kept)
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trace_configs=[trace])


async def _reused(_session: Any, context: SimpleNamespace, _params: Any) -> None:
    context.trace_request_ctx.on_kept_connection = True


async def _created(_session: Any, context: SimpleNamespace, _params: Any) -> None:
    context.trace_request_ctx.on_kept_connection = False


async def _send(
    session: aiohttp.ClientSession, route: "_Route", url: str, body: bytes, sent: _Sent
) -> tuple[int, bytes]:
    request = session.post(
        URL(url),
        data=body,
        headers=_HEADERS,
        ssl=route.tls(),
        server_hostname=route.server_name,
        proxy=route.proxy,
        timeout=aiohttp.ClientTimeout(),
        trace_request_ctx=sent,
    )
    async with request as response:
        sent.is_answered = True
        if response.status != 200:
            return response.status, b""
        received = bytearray()
        async for chunk in response.content.iter_any():
            received += chunk
            if len(received) > RESPONSE_BYTES_MAX:
                raise _AnswerTooLargeError(f"the answer has more than {RESPONSE_BYTES_MAX} bytes")
        return 200, bytes(received)


class _AnswerTooLargeError(Exception):
    pass


class _Route:
    """How one extender is reached."""

    def __init__(self, extender: Extender, at: str) -> None:
        self.extender = extender
        self.connections = asyncio.Semaphore(CONNECTIONS_MAX)
        self.proxy = _proxy_of(extender.url_prefix)
        self.timeout_ms = duration_ms(f"{at}.httpTimeout", extender.http_timeout) or DEFAULT_TIMEOUT_MS
        self._settings = extender.tls_config or ExtenderTls()
        self.server_name = self._settings.server_name or None
        self._at = f"{at}.tlsConfig"
        self._stamp = self._stamped()
        self._context = self._made()

    def is_for(self, ask: AskExtender) -> bool:
        """Whether a call is of this extender."""
        own = self.extender
        paths = (own.filter_verb, own.prioritize_verb, own.preempt_verb, own.bind_verb)
        return own.url_prefix == ask.extender and ask.path in paths

    def tls(self) -> ssl.SSLContext:
        """TLS as configured, made anew after a change of its files."""
        stamp = self._stamped()
        if stamp != self._stamp:
            self._context = self._made()
            self._stamp = stamp
        return self._context

    def _stamped(self) -> _Stamp:
        tls = self._settings
        files = (Path(name) for name in (tls.ca_file, tls.cert_file, tls.key_file) if name)
        try:
            stats = [file.stat() for file in files]
        except OSError as error:
            raise ConfigurationError(
                self._at, f"{error.filename} cannot be read: {error.strerror}", "mount it, or correct the path"
            ) from error
        return tuple((stat.st_mtime_ns, stat.st_size) for stat in stats)

    def _made(self) -> ssl.SSLContext:
        tls = self._settings
        authority = _decoded(tls.ca_data, f"{self._at}.caData").decode(errors="replace")
        try:
            context = ssl.create_default_context(
                cafile=None if authority else tls.ca_file or None, cadata=authority or None
            )
        except (ssl.SSLError, OSError, ValueError) as error:
            field = "caData" if authority else "caFile"
            raise ConfigurationError(
                f"{self._at}.{field}", f"no certificate can be read: {error}", "give certificates in PEM"
            ) from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        has_authority = bool(authority or tls.ca_file)
        if tls.insecure or (self.extender.enable_https and not has_authority):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.cert_data or tls.cert_file:
            self._identify(context)
        return context

    def _identify(self, context: ssl.SSLContext) -> None:
        """Have a client certificate sent. Data take precedence over files; Python loads files alone."""
        tls = self._settings
        certificate = _decoded(tls.cert_data, f"{self._at}.certData")
        key = _decoded(tls.key_data, f"{self._at}.keyData")
        try:
            pair = b"\n".join((certificate or Path(tls.cert_file).read_bytes(), key or Path(tls.key_file).read_bytes()))
            with tempfile.NamedTemporaryFile(prefix="headgate-") as file:  # mode 0600
                file.write(pair)
                file.flush()
                context.load_cert_chain(file.name)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise ConfigurationError(
                self._at, f"certificate and key cannot be used: {error}", "give a pair of them in PEM"
            ) from error


def _decoded(data: str, at: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ConfigurationError(at, f"it is no base64: {error}", "encode the PEM as base64") from error


def _proxy_of(url: str) -> str | None:
    """The proxy that the environment names for a URL; this machine is reached without one."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if is_local or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)


def _without_password(url: str) -> str:
    return str(URL(url).with_user(None))


def _reason(error: Exception, route: _Route) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {route.timeout_ms} ms (httpTimeout)"
    return str(error) or type(error).__name__
