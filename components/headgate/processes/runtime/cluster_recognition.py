"""
A transport that verifies its cluster's identity again after an interruption.

Another cluster may answer at the same address after a while: a control plane that was set up anew, a load balancer with
another target. This cell's decisions must not go to it, and its objects do not belong to this cell. So after a broken
connection, or the end of a watch, the next request waits until the cluster's id is verified.
"""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

import anyio

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.errors import KubernetesError, TransportError
from headgate.adapters.kubernetes.resources import NAMESPACES
from headgate.adapters.kubernetes.transport import NO_HEADERS, NO_QUERY, Response, Transport
from headgate.core.reading.decoding import CLUSTER_NAMESPACE, UnreadableObjectError, cluster_id_of


class ForeignCellError(Exception):
    """
    Raised when a log, or a cluster, is not the one that this process is for.

    A restart does not help; the settings must change.
    """


async def ask_cluster_id(transport: Transport) -> str:
    """The id of this cluster (`decoding.cluster_id_of`). Raises KubernetesError, UnreadableObjectError."""
    return cluster_id_of(await KubeClient(transport).get(NAMESPACES, CLUSTER_NAMESPACE))


class RecognisingTransport:
    """
    A `Transport` that wraps another one. Until `expected` is set it passes everything through.

    Raises ForeignCellError from any request or stream once another cluster answers.
    """

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.expected = ""
        self._doubts = 0  # counts events that may have changed the cluster behind the address
        self._settled = 0  # the value of `doubts` up to which the cluster was verified
        self._asking = anyio.Lock()

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
        await self._recognise()
        try:
            return await self.inner.request(
                method, path, query=query, body=body, content_type=content_type, headers=headers
            )
        except TransportError:
            self._doubts += 1
            raise

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] = NO_QUERY, read_timeout_s: float | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """See `Transport.stream`."""
        await self._recognise()
        try:
            async with self.inner.stream(path, query=query, read_timeout_s=read_timeout_s) as lines:
                yield lines
        finally:
            self._doubts += 1

    async def _recognise(self) -> None:
        doubt = self._doubts
        if self._settled == doubt or not self.expected:
            return
        async with self._asking:
            if self._settled >= doubt:
                return  # Another request has verified it meanwhile.
            try:
                found = await ask_cluster_id(self.inner)
            except TransportError:
                raise
            except (KubernetesError, UnreadableObjectError) as error:
                raise TransportError(
                    f"the identity of the cluster cannot be read: {error}", maybe_applied=False
                ) from error
            if found != self.expected:
                raise ForeignCellError(
                    f"another cluster answers at the API server's address: {found}, where it was {self.expected}. "
                    "Point this process to the cluster of its cell, or give the new cluster a cell name of its own"
                )
            self._settled = doubt


if TYPE_CHECKING:

    def _is_a_transport(transport: RecognisingTransport) -> Transport:
        return transport
