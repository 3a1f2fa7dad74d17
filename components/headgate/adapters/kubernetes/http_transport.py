"""
The wire: one aiohttp session to one API server.

Everything is shared by one `ClientSession`: connections, TLS, the credential. Three settings of it are measured ones:
no `trust_env`, which makes every request read the environment and netrc again (half a millisecond each); a read buffer
of 2 MiB, because one watch line can be as long as the largest object etcd stores; a declared number of connections, of
which each open watch holds one.

A request ends within `request_timeout_s` and its jitter, whatever the server does. A stream has no such end, so it ends
when nothing arrives for the read time-out its caller chose: TCP alone would notice a half-open connection after many
minutes. Where the kernel allows it (Linux), data that the other side does not acknowledge, and an idle connection whose
other side is gone, end the connection after `unacknowledged_max_s`: pooled connections to a machine that vanished do
not each cost a request its whole time.
"""

import contextlib
import functools
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from random import Random
from typing import Final
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from headgate.adapters.kubernetes.credentials import KubeCredentials, load_credentials
from headgate.adapters.kubernetes.errors import TransportError, api_error
from headgate.adapters.kubernetes.kubeconfig import ClusterAccess
from headgate.adapters.kubernetes.transport import NO_HEADERS, NO_QUERY, Response, silent

#: etcd refuses objects above 1.5 MiB; JSON of a protobuf-stored object can be several times as large, not ten times.
LINE_BYTES_MAX: Final = 2**24
#: How many spelt-out queries are kept; those of lists and watches, which hold versions, come and go.
QUERIES_MAX: Final = 64


class TransportSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of an `HttpTransport`."""

    #: Connections to the server; each open watch holds one for its lifetime.
    connections_max: int = 128
    connect_timeout_s: float = 5.0
    #: From the first byte sent to the last byte received of a request that is no stream.
    request_timeout_s: float = 30.0
    #: Added to it at random, as a share: requests that timed out together are not repeated together.
    timeout_jitter: float = 0.2
    unacknowledged_max_s: float = 20.0
    read_buffer_bytes: int = 2**21
    user_agent: str = "headgate"


def _socket_factory(unacknowledged_max_s: float) -> Callable[[aiohttp.AddrInfoType], socket.socket]:
    """Sockets on which the kernel detects that the peer is gone."""

    def make(address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        seconds = max(1, int(unacknowledged_max_s))
        # Missing on some systems (macOS has no user time-out): then only our own time-outs detect it.
        for name, value in (
            ("TCP_USER_TIMEOUT", 1000 * seconds),
            ("TCP_KEEPIDLE", seconds),
            ("TCP_KEEPINTVL", max(1, seconds // 4)),
            ("TCP_KEEPCNT", 3),
        ):
            if (option := getattr(socket, name, None)) is not None:
                made.setsockopt(socket.IPPROTO_TCP, option, value)
        return made

    return make


class LineSplitter:
    """Splits chunks into lines. `rest` is the beginning of an incomplete line."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their line feeds and without empty ones."""
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        return [line for line in lines if line]


class HttpTransport:
    """
    A `Transport` over HTTP. Made by `open_transport`.

    Attributes:
        requests, streams: how many were begun.
        failures: how many ended in a `TransportError`.

    """

    def __init__(
        self,
        access: ClusterAccess,
        credentials: KubeCredentials,
        settings: TransportSettings,
        *,
        random: Random | None = None,
    ) -> None:
        self.access = access
        self.credentials = credentials
        self.requests = 0
        self.streams = 0
        self.failures = 0
        self._settings = settings
        # Jitter needs no cryptography.
        self._random = random or Random()  # noqa: S311
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=settings.connections_max,
                ssl=credentials.ssl_context or True,
                socket_factory=_socket_factory(settings.unacknowledged_max_s),
            ),
            # API servers set no cookies, and looking them up costs time in every request.
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=settings.read_buffer_bytes,
            headers={
                "User-Agent": settings.user_agent,
                "Accept": "application/json",
                # aiohttp would ask for gzip, and the API server would compress every page of a list.
                "Accept-Encoding": "identity",
            },
        )
        # aiohttp would silently repeat a PUT or DELETE whose reused connection broke, and a 409 or 404 that echoes our
        # own success could not be told from a real one. It has no public switch; its own test client sets this one.
        self._session._retry_connection = False  # noqa: SLF001

    async def aclose(self) -> None:
        """Close every connection. Requests under way fail."""
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] = NO_QUERY,
        body: bytes | None = None,
        content_type: str | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Response:
        """See `Transport.request`."""
        self.requests += 1
        sent = dict(headers)
        if content_type is not None:
            sent["Content-Type"] = content_type
        authorization = await self.credentials.authorization()
        response = await self._send(method, path, query, body, sent, authorization)
        if response.status == 401 and await self.credentials.refused(authorization):
            response = await self._send(method, path, query, body, sent, await self.credentials.authorization())
        if response.status in {401, 403}:
            return msgspec.structs.replace(response, user=self.credentials.user)
        return response

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None,
        headers: dict[str, str],
        authorization: str | None,
    ) -> Response:
        timeout = aiohttp.ClientTimeout(
            total=self._settings.request_timeout_s * (1.0 + self._random.random() * self._settings.timeout_jitter),
            sock_connect=self._settings.connect_timeout_s,
        )
        try:
            try:
                return await self._exchange(method, path, query, body, headers, authorization, timeout)
            except aiohttp.ServerDisconnectedError:
                # Most likely the server closed an idle connection just as it was reused. Reading again is harmless.
                if method != "GET":
                    raise
                return await self._exchange(method, path, query, body, headers, authorization, timeout)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self.failures += 1
            raise _transport_error(error, f"{method} {path}", self.access.server) from error

    async def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None,
        headers: dict[str, str],
        authorization: str | None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  (a setting that aiohttp applies)
    ) -> Response:
        # Reading to the end returns the connection, and an earlier end closes it: nothing is left to release.
        answer = await self._begin(method, path, query, body, headers, authorization, timeout)
        return Response(status=answer.status, headers=_lower(answer), body=await answer.read())

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] = NO_QUERY, read_timeout_s: float | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """See `Transport.stream`."""
        self.streams += 1
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._settings.connect_timeout_s, sock_read=read_timeout_s
        )
        async with contextlib.AsyncExitStack() as stack:
            try:
                answer = await self._open(stack, path, query, timeout)
                if answer.status != 200:
                    raise api_error(
                        answer.status,
                        _lower(answer),
                        await answer.read(),
                        request=f"watch {path}",
                        user=self.credentials.user,
                    )
            except aiohttp.SocketTimeoutError as error:
                self.failures += 1
                raise silent(path, read_timeout_s) from error
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self.failures += 1
                raise _transport_error(error, f"GET {path}", self.access.server) from error
            yield await stack.enter_async_context(
                contextlib.aclosing(self._lines(answer.content, path, read_timeout_s))
            )

    async def _open(
        self,
        stack: contextlib.AsyncExitStack,
        path: str,
        query: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  (a setting that aiohttp applies to the whole stream)
    ) -> aiohttp.ClientResponse:
        authorization = await self.credentials.authorization()
        begun = self._begin("GET", path, query, None, {}, authorization, timeout)
        answer = await stack.enter_async_context(await begun)
        if answer.status == 401 and await self.credentials.refused(authorization):
            authorization = await self.credentials.authorization()
            begun = self._begin("GET", path, query, None, {}, authorization, timeout)
            answer = await stack.enter_async_context(await begun)
        return answer

    def _begin(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None,
        headers: dict[str, str],
        authorization: str | None,
        timeout: aiohttp.ClientTimeout,
    ) -> Awaitable[aiohttp.ClientResponse]:
        url = self.access.server + path
        if query:
            url += _query_string(tuple(query.items()))
        return self._session.request(
            method,
            URL(url, encoded=True),
            data=body,
            headers=headers if authorization is None else headers | {"Authorization": authorization},
            timeout=timeout,
            allow_redirects=False,
            server_hostname=self.credentials.tls_server_name,
            proxy=self.credentials.proxy,
        )

    async def _lines(
        self, content: aiohttp.StreamReader, path: str, read_timeout_s: float | None
    ) -> AsyncGenerator[bytes, None]:
        """Complete lines, split here and not by aiohttp: a burst that arrived together costs one read, not one each."""
        splitter = LineSplitter()
        try:
            while chunk := await content.readany():
                for line in splitter.feed(chunk):
                    yield line
                if len(splitter.rest) > LINE_BYTES_MAX:
                    self.failures += 1
                    raise TransportError(f"GET {path}: a line exceeds {LINE_BYTES_MAX} bytes", maybe_applied=False)
        except aiohttp.SocketTimeoutError as error:
            self.failures += 1
            raise silent(path, read_timeout_s) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self.failures += 1
            raise _transport_error(error, f"GET {path}", self.access.server) from error
        if splitter.rest:
            self.failures += 1
            raise TransportError(
                f"GET {path}: the stream ended in the middle of a line, after {len(splitter.rest)} bytes of it",
                maybe_applied=False,
            )


@functools.lru_cache(maxsize=QUERIES_MAX)
def _query_string(query: tuple[tuple[str, str], ...]) -> str:
    """A query as it stands in a URL. Nearly all requests have one of a few."""
    return "?" + urlencode(query)


def _lower(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


def _transport_error(error: Exception, request: str, server: str) -> TransportError:
    """The error in one line. Only a connection that was never established rules out that the request was applied."""
    never_sent = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
    text = str(error) or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)
    return TransportError(f"{request} at {server}: {text}", maybe_applied=not never_sent)


@contextlib.asynccontextmanager
async def open_transport(
    access: ClusterAccess,
    settings: TransportSettings = TransportSettings(),  # noqa: B008  (frozen)
) -> AsyncIterator[HttpTransport]:
    """
    A transport to a cluster, closed on leaving.

    Raises:
        ConfigurationError: the credentials of the access cannot be loaded.

    """
    transport = HttpTransport(access, await load_credentials(access), settings)
    try:
        yield transport
    finally:
        await transport.aclose()
