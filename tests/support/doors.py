"""The simulated cluster in one process with its caller, as the Kubernetes adapter sees it."""

from collections.abc import AsyncIterator

import anyio
import anyio.lowlevel
import msgspec

from headgate.adapters.kubernetes.errors import TransportError
from headgate.adapters.kubernetes.transport import Request, Response
from headgate.testing.cluster import ApiStatusError as Refusal
from headgate.testing.cluster import Cluster, ConnectionDropped, Watch


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
