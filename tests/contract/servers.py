"""
The two servers that every case runs on, behind one face.

`simulated_server` is the in-memory cluster behind HTTP; `real_server` is a kube-apiserver with etcd and the
controller-manager. Both hold Kueue's resources, and both are called through the adapters' own transport, so that for a
case they differ only by their responses.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.crds.install import install
from headgate.adapters.kubernetes.crds.kinds import KUEUE_KINDS
from headgate.adapters.kubernetes.http_transport import HttpTransport, open_transport
from headgate.adapters.kubernetes.kubeconfig import resolve
from headgate.testing.cluster import Cluster, ControllerOptions
from headgate.testing.cluster.api.server import kubeconfig as kubeconfig_for
from headgate.testing.cluster.api.server import serve, wall_clock_ms
from headgate.testing.control_plane import NoAssetsError, control_plane, find_assets

READY_TRIES = 200


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a request got: the HTTP status, the decoded body, the headers (names in lower case)."""

    status: int
    json: Any
    headers: Mapping[str, str]


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What a command printed, and how it ended."""

    returncode: int
    stdout: str
    stderr: str


class Server:
    """
    One API server under test.

    Attributes:
        client, transport: the adapters' own way to it.
        kubeconfig: a file for kubectl and for our command line.
        is_real: for the frame only; a case that uses this expects two different things.

    """

    def __init__(
        self,
        transport: HttpTransport,
        kubeconfig: Path,
        *,
        is_real: bool,
        kubectl: str,
        compact: Callable[[], Awaitable[None]],
    ) -> None:
        self.transport = transport
        self.client = KubeClient(transport)
        self.kubeconfig = kubeconfig
        self.is_real = is_real
        self._kubectl = kubectl
        self._compact = compact
        self._made = 0

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> Answer:
        """Make one request; whatever the answer is, it is returned. `body` is bytes, or anything JSON can say."""
        given = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        response = await self.transport.request(
            method,
            path,
            query=query,
            body=given,
            content_type=None if body is None else content_type,
            headers=headers or {},
        )
        try:
            found = msgspec.json.decode(response.body)
        except msgspec.DecodeError:
            found = response.body.decode()
        return Answer(status=response.status, json=found, headers=response.headers)

    async def kubectl(self, *args: str, stdin: str | None = None) -> Ran:
        """Run kubectl against the server; skips the case where there is no kubectl at all."""
        if not self._kubectl:
            pytest.skip("no kubectl: run `make kube`")
        process = await asyncio.create_subprocess_exec(
            self._kubectl,
            f"--kubeconfig={self.kubeconfig}",
            *args,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "KUBECACHEDIR": str(self.kubeconfig.parent / "kubectl-cache")},
        )
        out, err = await process.communicate(None if stdin is None else stdin.encode())
        assert process.returncode is not None
        return Ran(returncode=process.returncode, stdout=out.decode(), stderr=err.decode())

    async def compact(self) -> None:
        """Compact history up to now: a request for an older version is answered that it expired."""
        await self._compact()

    def fresh_name(self, prefix: str = "t") -> str:
        """A name that nothing else on this server has."""
        self._made += 1
        return f"{prefix}-{self._made}"

    async def fresh_namespace(self) -> str:
        """Create a namespace for one case and return its name."""
        name = self.fresh_name()
        made = await self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        assert made.status == 201, made.json
        return name


def _assets_kubectl() -> str:
    """The kubectl of the control plane, else nothing: what the machine has may be of a version with other words."""
    try:
        return str(find_assets().binary("kubectl"))
    except NoAssetsError:
        return ""


@asynccontextmanager
async def simulated_server(folder: Path) -> AsyncIterator[Server]:
    """The simulated cluster, with its controllers in real time; pods that run by themselves take no time."""
    # The Job controller batches pod changes, and records Events, like the real one: what is observed is then the same.
    options = ControllerOptions(run_ms=50, job_batch_ms=1000, events=True)
    cluster = Cluster(wall_clock_ms, track_all_fields=True, controllers=options)
    cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"}})

    async def compact() -> None:
        for table in cluster.store.tables.values():
            table.compact()

    async with serve(cluster) as url:
        path = folder / "kubeconfig"
        path.write_text(kubeconfig_for(url))
        async with open_transport(resolve(kubeconfig=str(path))) as transport:
            yield Server(transport, path, is_real=False, kubectl=_assets_kubectl(), compact=compact)


@asynccontextmanager
async def real_server(folder: Path) -> AsyncIterator[Server]:
    """A kube-apiserver with Kueue's resources installed. Raises NoAssetsError where it was not built."""
    assets = find_assets()
    async with control_plane(assets, folder) as plane, open_transport(plane.access()) as transport:

        async def compact() -> None:
            # The API server keeps minutes of history in memory, after etcd's compaction, too; so both are compacted.
            await plane.compact()
            plane.kill("kube-apiserver")
            await plane.start("kube-apiserver")
            for path in (
                "/apis/coordination.k8s.io/v1/leases",
                *(f"/apis/{kind.api_version}/{kind.plural}" for kind in KUEUE_KINDS),
            ):
                await _served(server, path, resourceVersion="0")

        server = Server(
            transport, plane.kubeconfig, is_real=True, kubectl=str(assets.binary("kubectl")), compact=compact
        )
        await _install_crds(server)
        yield server


async def _install_crds(server: Server) -> None:
    """Kueue's resources as the product installs them; each is served when it is done."""
    async for _ in install(server.client):
        pass


async def _served(server: Server, path: str, **query: Any) -> None:
    """Wait until a collection answers; with resourceVersion=0, until it can be watched."""
    for _ in range(READY_TRIES):
        answer = await server.call("GET", path, **query)
        if answer.status == 200:
            return
        assert answer.status in {404, 429, 503}, answer.json
        await asyncio.sleep(0.05)
    raise AssertionError(f"{path} is not served after its definition was installed")
