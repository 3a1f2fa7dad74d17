"""
A proxy before an API server that makes trouble on purpose, for the fault runs on a real control plane.

    async with fault_proxy(plane.access(), Faults(writes=0.05), Random(seed)) as proxy:
        proxy.write_kubeconfig(plane.kubeconfig, folder / "kubeconfig")

Towards its clients it speaks plain HTTP on a loopback port (or TLS, with a context), towards the API server the
server's protocol. Requests pass unchanged, with their Authorization header; client certificates end here. It answers a
share of the writes with a refusal or a broken connection, each either before the API server has received the request or
after it has carried it out, which a client cannot distinguish; it delays requests, cuts streams, in the middle of a
line if it can, and on demand does not respond at all for a while (`half_open`). What it did is counted in `done`.
"""

import asyncio
import contextlib
import enum
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from random import Random
from typing import Final

import aiohttp
import anyio
import msgspec
import yaml
from aiohttp import web
from yarl import URL

from headgate.adapters.kubernetes.credentials import load_credentials
from headgate.adapters.kubernetes.kubeconfig import ClusterAccess

#: Headers that belong to one connection and not to the message (RFC 9110, 7.6.1).
_HOP_BY_HOP: Final = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "content-length", "host"}
)

_TOO_MANY: Final = "too many requests, please try again later"

#: How long a stream whose time is up may have something to say.
_LAST_WORDS_S: Final = 2.0


class Trouble(enum.StrEnum):
    """What a write meets. `_AFTER`: the API server has carried it out."""

    CONFLICT = "409"
    CONFLICT_AFTER = "409 after"
    THROTTLED = "429 with Retry-After"
    THROTTLED_BARE = "429"
    UNAVAILABLE = "503"
    UNAVAILABLE_AFTER = "503 after"
    RESET = "reset"
    RESET_AFTER = "reset after"

    @property
    def is_after(self) -> bool:
        """Whether the request is carried out first."""
        return self in {Trouble.CONFLICT_AFTER, Trouble.UNAVAILABLE_AFTER, Trouble.RESET_AFTER}


class ProxyFaults(msgspec.Struct, frozen=True, kw_only=True):
    """How much trouble. Shares are of requests, 0 to 1."""

    #: Writes that meet one of `troubles`, each of which is as likely.
    writes: float = 0.0
    troubles: tuple[Trouble, ...] = tuple(Trouble)
    #: Requests of any kind that wait first, and for how long at most.
    delays: float = 0.0
    delay_s_max: float = 0.3
    #: How long a stream lives on average before it is cut; None: until its end.
    stream_s_mean: float | None = None


class FaultProxy:
    """A running proxy. `faults` may be exchanged while it runs. Made by `fault_proxy`."""

    def __init__(self, upstream: str, session: aiohttp.ClientSession, faults: ProxyFaults, random: Random) -> None:
        self.url = ""
        self.faults = faults
        #: What was done, by name: each trouble, "delay", "cut", "cut in a line", "unreachable", "swallowed", "passed".
        self.done: Counter[str] = Counter()
        self._upstream = upstream
        self._session = session
        self._random = random
        self._speaks = asyncio.Event()
        self._speaks.set()
        self._open: set[asyncio.Timeout] = set()

    @contextlib.asynccontextmanager
    async def half_open(self) -> AsyncIterator[None]:
        """For as long as the block runs connections are accepted, and nothing is sent on any of them."""
        self._speaks.clear()
        try:
            yield
        finally:
            self._speaks.set()

    def cut_all(self) -> None:
        """Cut every stream that is open now."""
        now_s = asyncio.get_running_loop().time()
        for patience in self._open:
            patience.reschedule(now_s)

    def write_kubeconfig(self, source: Path, target: Path) -> None:
        """The kubeconfig `source`, with this proxy in place of its clusters."""
        config = yaml.safe_load(source.read_text())
        for each in config["clusters"]:
            each["cluster"] = {"server": self.url}
        target.write_text(yaml.safe_dump(config))
        target.chmod(0o600)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Pass one request on, or not."""
        body = await request.read()
        await self._until_speaking()
        if self._random.random() < self.faults.delays:
            self.done["delay"] += 1
            await asyncio.sleep(self._random.uniform(0, self.faults.delay_s_max))
        trouble = self._draw(request.method)
        if trouble is not None and not trouble.is_after:
            return self._make_trouble(trouble, request)
        try:
            async with self._session.request(
                request.method,
                URL(self._upstream + request.raw_path, encoded=True),
                data=body or None,
                headers=_passing(request.headers),
                allow_redirects=False,
            ) as answer:
                if trouble is not None:
                    await answer.read()
                    return self._make_trouble(trouble, request)
                return await self._answer(request, answer)
        except (aiohttp.ClientError, OSError):
            # As if the client had reached the API server itself.
            self.done["unreachable"] += 1
            return _reset(request)

    def _draw(self, method: str) -> Trouble | None:
        if method in {"GET", "HEAD"} or self._random.random() >= self.faults.writes:
            return None
        return self._random.choice(self.faults.troubles)

    async def _until_speaking(self) -> None:
        if not self._speaks.is_set():
            self.done["swallowed"] += 1
            await self._speaks.wait()

    async def _answer(self, request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        self.done["passed"] += 1
        if request.query.get("watch") not in {"true", "1"} or answer.status != 200:
            body = await answer.read()
            await self._until_speaking()
            return web.Response(status=answer.status, headers=_passing(answer.headers), body=body)
        response = web.StreamResponse(status=answer.status, headers=_passing(answer.headers))
        response.enable_chunked_encoding()
        await response.prepare(request)
        mean, clock = self.faults.stream_s_mean, asyncio.get_running_loop().time
        ends_s = None if mean is None else clock() + self._random.expovariate(1.0 / mean)
        try:
            # A stream whose time is up is cut in the middle of its next data, or after a time without any.
            async with asyncio.timeout_at(None if ends_s is None else ends_s + _LAST_WORDS_S) as patience:
                self._open.add(patience)
                async for chunk in answer.content.iter_any():
                    await self._until_speaking()
                    if ends_s is not None and clock() >= ends_s:
                        await response.write(chunk[: self._random.randint(1, max(1, len(chunk) - 2))])
                        self.done["cut in a line"] += 1
                        return _reset(request)
                    await response.write(chunk)
        except TimeoutError:
            self.done["cut"] += 1
            return _reset(request)
        finally:
            self._open.discard(patience)
        return response

    def _make_trouble(self, trouble: Trouble, request: web.BaseRequest) -> web.StreamResponse:
        self.done[trouble.value] += 1
        match trouble:
            case Trouble.CONFLICT | Trouble.CONFLICT_AFTER:
                return _refusal(409, "Conflict", "the object has been modified; apply your changes to the latest one")
            case Trouble.THROTTLED:
                return _refusal(429, "TooManyRequests", _TOO_MANY, {"Retry-After": "1"})
            case Trouble.THROTTLED_BARE:
                return _refusal(429, "TooManyRequests", _TOO_MANY)
            case Trouble.UNAVAILABLE | Trouble.UNAVAILABLE_AFTER:
                return _refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request")
            case Trouble.RESET | Trouble.RESET_AFTER:
                return _reset(request)


def _refusal(code: int, reason: str, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message}
    body = msgspec.json.encode(status | {"reason": reason, "code": code, "metadata": {}})
    return web.Response(status=code, body=body, content_type="application/json", headers=headers)


def _reset(request: web.BaseRequest) -> web.Response:
    """Break the connection without an end that could be taken for an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=502)


def _passing(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}


@contextlib.asynccontextmanager
async def fault_proxy(
    access: ClusterAccess, faults: ProxyFaults, random: Random, *, tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[FaultProxy]:
    """
    A proxy before the cluster of `access` until the block ends.

    Raises ConfigurationError when what the access names cannot be loaded; OSError when the port is taken.
    """
    credentials = await load_credentials(access)
    connector = aiohttp.TCPConnector(limit=0, ssl=credentials.ssl_context or True)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
        proxy = FaultProxy(access.server, session, faults, random)
        runner = web.ServerRunner(web.Server(proxy.handle, access_log=None), shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
            scheme = "http" if tls is None else "https"
            proxy.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"
            yield proxy
        finally:
            with anyio.CancelScope(shield=True):
                await runner.cleanup()
