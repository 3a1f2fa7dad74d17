"""
How bytes get to an API server and back: the interface between this adapter and the network.

A `Transport` makes requests and opens line streams. It does not depend on resources, retries or objects. Two exist:
`http_transport.HttpTransport` over aiohttp, and `InProcessTransport` here, which calls an API server in the same
process (the simulated cluster) without sockets, so that a whole system can run under a virtual clock.

The contract of every transport:

* `request` returns whatever the server answered, of any status; it raises `TransportError` when no answer came.
* `stream` raises `ApiError` if the server does not answer 200; else it yields complete lines only. A stream that ends
  in the middle of a line raises `TransportError`; one that is silent for too long raises `StreamSilent`.
* Paths are already percent-encoded. Header names in answers are in lower case.
* It does not retry. Two repetitions are no retries: after renewing a credential that was refused with 401, and of a GET
  whose reused connection was closed already.
"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import anyio
import msgspec

from headgate.adapters.kubernetes.errors import StreamSilent, api_error

NO_QUERY: Final[Mapping[str, str]] = {}
NO_HEADERS: Final[Mapping[str, str]] = {}


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, of any status."""

    status: int
    #: Names in lower case.
    headers: Mapping[str, str]
    body: bytes
    #: The identity that the request presented, where that was refused (401, 403); for messages.
    user: str = ""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request as an in-process server receives it."""

    method: str
    #: Percent-encoded, beginning with a slash, without the query.
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | None
    content_type: str | None


class Transport(Protocol):
    """A way to reach one API server. Safe for use by many tasks at once."""

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
        """
        Make one request and return the answer, whatever its status.

        Raises:
            TransportError: no complete answer arrived in time; `maybe_applied` says whether the request may have.

        """
        ...

    def stream(
        self, path: str, *, query: Mapping[str, str] = NO_QUERY, read_timeout_s: float | None = None
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """
        GET a body that arrives line by line, such as a watch. The iterator ends when the server ends the stream.

        Args:
            path: percent-encoded path.
            query: query parameters.
            read_timeout_s: the longest silence on the wire; None waits for ever.

        Raises:
            ApiError: the server answered with something other than 200 (on entering).
            TransportError: no connection (on entering), or the stream broke (while iterating).
            StreamSilent: nothing arrived for `read_timeout_s`.

        """
        ...


class InProcessServer(Protocol):
    """What an API server in the same process must offer. `watch` belongs to GET requests with `watch=true`."""

    async def handle(self, request: Request) -> Response:
        """Answer one request that is not a watch. Raises TransportError where the connection is to break instead."""
        ...

    async def watch(self, request: Request) -> Response | AsyncIterator[bytes]:
        """
        Open a watch: lines with or without their line feed, or an answer that refuses it.

        An iterator that has an `aclose` is closed when the watcher leaves.
        """
        ...


class InProcessTransport:
    """A `Transport` that calls an `InProcessServer` directly."""

    def __init__(self, server: InProcessServer) -> None:
        self._server = server

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
        return await self._server.handle(
            Request(method=method, path=path, query=query, headers=headers, body=body, content_type=content_type)
        )

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] = NO_QUERY, read_timeout_s: float | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """See `Transport.stream`."""
        answer = await self._server.watch(
            Request(method="GET", path=path, query=query, headers=NO_HEADERS, body=None, content_type=None)
        )
        if isinstance(answer, Response):
            raise api_error(answer.status, answer.headers, answer.body, request=f"watch {path}")
        lines = _timed(answer, path, read_timeout_s)
        try:
            yield lines
        finally:
            await lines.aclose()
            # A server may hand out any iterator; a generator wants to be closed, so that it can forget the watcher.
            close = getattr(answer, "aclose", None)
            if close is not None:
                await close()


async def _timed(source: AsyncIterator[bytes], path: str, read_timeout_s: float | None) -> AsyncGenerator[bytes, None]:
    """The lines of a source, without line feeds, each awaited no longer than `read_timeout_s` seconds."""
    while True:
        try:
            with anyio.fail_after(read_timeout_s):
                line = await anext(source)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            raise silent(path, read_timeout_s) from error
        if line := line.rstrip(b"\r\n"):
            yield line


def silent(path: str, read_timeout_s: float | None) -> StreamSilent:
    """The error for a stream that stayed silent for `read_timeout_s` seconds."""
    return StreamSilent(f"GET {path} sent nothing for {read_timeout_s} s; taken for half-open", maybe_applied=False)
