"""An API server that misbehaves on purpose, behind a real socket: it follows its script, request by request."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from aiohttp import web

from headgate.adapters.kubernetes.http_transport import HttpTransport, TransportSettings, open_transport
from headgate.adapters.kubernetes.kubeconfig import ClusterAccess

Behaviour = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Fake:
    """Follows `script`, one behaviour a request; requests beyond its end never get an answer."""

    def __init__(self) -> None:
        self.url = ""
        self.script: list[Behaviour] = []
        self.seen: list[SimpleNamespace] = []
        self._arrived = anyio.Event()
        self._closing = anyio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(
            SimpleNamespace(
                method=request.method,
                path=request.rel_url.raw_path,
                query=dict(request.query),
                headers=request.headers,
                body=await request.read(),
            )
        )
        self._arrived.set()
        behaviour = self.script.pop(0) if self.script else self.hang()
        return await behaviour(request)

    async def until_seen(self, count: int) -> None:
        """Wait until so many requests have arrived."""
        with anyio.fail_after(10):
            while len(self.seen) < count:
                self._arrived = anyio.Event()
                await self._arrived.wait()

    def close(self) -> None:
        self._closing.set()

    def answer(self, status: int = 200, body: Any = None, **headers: str) -> Behaviour:
        """An ordinary answer; keyword arguments are headers with underscores."""

        async def behave(request: web.Request) -> web.StreamResponse:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            return web.Response(status=status, body=raw, headers=names)

        return behave

    def status(self, code: int, reason: str, **headers: str) -> Behaviour:
        """A refusal with a Status object."""
        return self.answer(code, {"kind": "Status", "code": code, "reason": reason, "message": "no"}, **headers)

    def chunks(self, *parts: bytes, end: str = "well") -> Behaviour:
        """A stream. `end` is what follows the parts: 'well', 'reset' the connection, or 'hang'."""

        async def behave(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            response.enable_chunked_encoding()
            await response.prepare(request)
            for part in parts:
                await response.write(part)
            if end == "reset":
                assert request.transport is not None
                request.transport.close()
            elif end == "hang":
                await self._closing.wait()
            return response

        return behave

    def lines(self, *events: Any, end: str = "well") -> Behaviour:
        """A watch that sends these events, each in a chunk of its own."""
        return self.chunks(*(json.dumps(event).encode() + b"\n" for event in events), end=end)

    def reset(self) -> Behaviour:
        """The connection is closed where an answer is expected."""

        async def behave(request: web.Request) -> web.StreamResponse:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

        return behave

    def hang(self) -> Behaviour:
        """No answer, and the connection stays open."""

        async def behave(request: web.Request) -> web.StreamResponse:
            await self._closing.wait()
            return web.Response(status=503)

        return behave


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def fake(anyio_backend: str) -> AsyncIterator[Fake]:
    server = Fake()
    runner = web.ServerRunner(web.Server(server.handle), shutdown_timeout=1)  # type: ignore[arg-type]
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    server.url = f"http://127.0.0.1:{port}"
    try:
        yield server
    finally:
        server.close()
        await runner.cleanup()


@pytest.fixture
async def transport(fake: Fake) -> AsyncIterator[HttpTransport]:
    async with open_transport(ClusterAccess(server=fake.url), TransportSettings(request_timeout_s=5)) as made:
        yield made


class Sleeps(list[float]):
    """A sleep that only records the requested durations."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        await anyio.lowlevel.checkpoint()


@pytest.fixture
def sleeps() -> Sleeps:
    return Sleeps()


def pod(name: str, version: int, **extra: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "team-a", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": meta} | extra


def event(kind: str, name: str, version: int) -> dict[str, Any]:
    return {"type": kind, "object": pod(name, version)}


@pytest.fixture
def make() -> SimpleNamespace:
    """Builders of objects: `pod`, `event`, `bookmark`, `page`."""

    def bookmark(version: int) -> dict[str, Any]:
        meta = {"resourceVersion": str(version), "creationTimestamp": None}
        return {"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": meta}}

    def page(*items: dict[str, Any], version: int, token: str = "") -> dict[str, Any]:
        meta: dict[str, Any] = {"resourceVersion": str(version)} | ({"continue": token} if token else {})
        return {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": list(items) or None}

    return SimpleNamespace(pod=pod, event=event, bookmark=bookmark, page=page)
