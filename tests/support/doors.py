"""API servers in one process with their callers: the simulated cluster, or answers that a test gives."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from headgate.adapters.kubernetes.errors import TransportError
from headgate.adapters.kubernetes.transport import Request, Response
from headgate.testing.cluster import ApiStatusError as Refusal
from headgate.testing.cluster import Cluster, ConnectionDropped, Watch


class Answering(ABC):
    """An `InProcessServer` without watches, which answers a decoded body by a status and another body."""

    async def handle(self, request: Request) -> Response:
        body = None if request.body is None else msgspec.json.decode(request.body)
        status, answer = self.answer(request.method, request.path, body)
        return Response(status=status, headers={}, body=msgspec.json.encode(answer))

    async def watch(self, request: Request) -> Response:
        raise NotImplementedError

    @abstractmethod
    def answer(self, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        """The answer to a request. Raises TransportError for none."""


class Door:
    """The simulated cluster as an `InProcessServer`. `requests` are those that were no watches, in order."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.requests: list[Request] = []

    async def handle(self, request: Request) -> Response:
        await anyio.lowlevel.checkpoint()
        self.requests.append(request)
        try:
            answer = self.cluster.request(
                request.method, request.path, request.query, request.body, request.content_type, user="headgate"
            )
        except ConnectionDropped as error:
            raise TransportError(str(error), maybe_applied=True) from error
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return Response(status=answer.status, headers=headers, body=answer.body)

    async def watch(self, request: Request) -> Response | AsyncIterator[bytes]:
        try:
            watch = self.cluster.watch(request.path, request.query)
        except Refusal as error:
            return Response(status=error.code, headers={}, body=msgspec.json.encode(error.status()))
        return self._lines(watch)

    async def _lines(self, watch: Watch) -> AsyncIterator[bytes]:
        changed = [anyio.Event()]
        watch.notify(lambda: changed[0].set())
        try:
            while True:
                changed[0] = anyio.Event()
                for line in watch.poll():
                    yield line
                if watch.closed:
                    return
                await changed[0].wait()
        finally:
            watch.close()
