"""
The simulated cluster behind HTTP, for kubectl, for adapters and as the embedded cluster of `headgate up`.

`serve` owns three things for as long as its block runs: a listening socket, the streams of open watches, and one task
that steps the cluster's controllers in real time. Requests are answered by `Cluster.request` in the event loop, one
at a time, which is what makes the store need no locks.

Bounds: a request body has at most `BODY_BYTES_MAX`; a watch holds nothing but its position in the shared history, its
writes wait for the client, and a client that takes nothing for `WRITE_TIMEOUT_S` is cut. One that reads slowly falls
out of the history and gets 410.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import anyio.lowlevel
import msgspec
from aiohttp import web

from headgate.testing.cluster.api.list_options import is_true
from headgate.testing.cluster.api.routing import names_object
from headgate.testing.cluster.api.watch import Watch
from headgate.testing.cluster.cluster import Cluster, ServerResponse, refusal
from headgate.testing.cluster.errors import ApiStatusError, body_too_large
from headgate.testing.cluster.faults import ConnectionDropped
from headgate.testing.cluster.storage.store import Change, Table

BODY_BYTES_MAX: Final = 3 * 1024 * 1024
"""The largest request body, as of a real API server."""

WRITE_TIMEOUT_S: Final = 30.0
"""How long a watch waits for a client that reads nothing."""

_CHUNK_LINES: Final = 500
_NO_QUERY: Final[Mapping[str, str]] = {}


def wall_clock_ms() -> int:
    """The clock of a cluster that people use: unix milliseconds."""
    return time.time_ns() // 1_000_000


class _Front:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._streams: list[asyncio.Event] = []
        self._closing = False

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        query = dict(request.rel_url.query) if request.query_string else _NO_QUERY
        headers = request.headers
        try:
            if request.method == "GET" and is_true(query.get("watch", "")) and not names_object(request.path):
                return await self._watch(request, query)
            body = await request.read() if request.body_exists else None
            response = self.cluster.request(
                request.method,
                request.path,
                query,
                body,
                headers.get("Content-Type"),
                user=headers.get("User-Agent", ""),
                accept=headers.get("Accept", ""),
            )
        except ConnectionDropped:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=503)
        except web.HTTPRequestEntityTooLarge:
            refusal = body_too_large(f"limit is {BODY_BYTES_MAX}")
            response = ServerResponse(refusal.code, msgspec.json.encode(refusal.status()))
        return _plain(response)

    async def _watch(self, request: web.BaseRequest, query: Mapping[str, str]) -> web.StreamResponse:
        try:
            watch = self.cluster.watch(request.path, query, accept=request.headers.get("Accept", ""))
        except ApiStatusError as error:
            return _plain(refusal(error))
        stream = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
        stream.enable_chunked_encoding()
        changed = asyncio.Event()
        watch.notify(changed.set)
        self._streams.append(changed)
        try:
            await stream.prepare(request)
            await self._pump(stream, watch, changed)
        except (ConnectionResetError, TimeoutError):
            # The client is gone, or does not read any more: no response is sent.
            if request.transport is not None:
                request.transport.abort()
        finally:
            watch.close()
            self._streams.remove(changed)
        return stream

    async def _pump(self, stream: web.StreamResponse, watch: Watch, changed: asyncio.Event) -> None:
        while not self._closing:
            changed.clear()
            lines = watch.poll()
            for start in range(0, len(lines), _CHUNK_LINES):
                with anyio.fail_after(WRITE_TIMEOUT_S):
                    await stream.write(b"".join(lines[start : start + _CHUNK_LINES]))
            if watch.closed:
                break
            due_ms = watch.next_due_ms()
            wait_s = None if due_ms is None else max(0.0, (due_ms - self.cluster.clock()) / 1000)
            with anyio.move_on_after(wait_s):
                await changed.wait()
        with anyio.fail_after(WRITE_TIMEOUT_S):
            await stream.write_eof()

    def close(self) -> None:
        self._closing = True
        for stream in self._streams:
            stream.set()


def _plain(response: ServerResponse) -> web.Response:
    return web.Response(
        status=response.status,
        body=response.body,
        headers={"Content-Type": response.content_type, **response.headers}
        if response.headers
        else {"Content-Type": response.content_type},
    )


async def _drive(cluster: Cluster) -> None:
    """Step the controllers whenever something changed or became due."""
    changed = asyncio.Event()

    def on_change(_table: Table, _change: Change) -> None:
        changed.set()

    cluster.store.listen(on_change)
    while True:
        changed.clear()
        cluster.step(cluster.clock())
        due_ms = cluster.next_due_ms()
        wait_s = None if due_ms is None else max(0.001, (due_ms - cluster.clock()) / 1000)
        with anyio.move_on_after(wait_s):
            await changed.wait()
        # Requests that are waiting go first: the controllers then see them as one batch.
        await anyio.lowlevel.checkpoint()


def _request_factory(loop: asyncio.AbstractEventLoop) -> Callable[..., web.BaseRequest]:
    def make(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=BODY_BYTES_MAX)

    return make


@asynccontextmanager
async def serve(cluster: Cluster, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """
    Serve a cluster over HTTP while the block runs; yields its URL (`http://127.0.0.1:12345`).

    `port` 0 takes a free one. One task steps the cluster's controllers against the cluster's own clock, which should
    then be a real one (`wall_clock_ms`). Leaving the block ends open watches and closes the socket. Raises OSError if
    the address is taken.
    """
    front = _Front(cluster)
    server = web.Server(
        front.handle,
        request_factory=_request_factory(asyncio.get_running_loop()),
        handler_cancellation=True,
        access_log=None,
    )
    runner = web.ServerRunner(server, shutdown_timeout=2.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        bound_host, bound_port = runner.addresses[0][:2]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_drive, cluster)
            yield f"http://{bound_host}:{bound_port}"
            tasks.cancel_scope.cancel()
    finally:
        front.close()
        await runner.cleanup()


def kubeconfig(url: str) -> str:
    """A kubeconfig (JSON, which is YAML) for the cluster at `url`, with the context `headgate`."""
    return msgspec.json.format(
        msgspec.json.encode(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "headgate", "cluster": {"server": url}}],
                "users": [{"name": "headgate", "user": {}}],
                "contexts": [
                    {"name": "headgate", "context": {"cluster": "headgate", "user": "headgate", "namespace": "default"}}
                ],
                "current-context": "headgate",
            }
        )
    ).decode()
