"""
The visibility API through a real API server: kubectl asks it, its aggregator asks us.

The APIService names a Service of the type ExternalName, so that the aggregator of a control plane without a network of
pods reaches the process on this machine.
"""

import socket
import ssl
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import anyio
import msgspec
import pytest
from tests.support.front_proxy import NAME, write_front_proxy
from tests.support.pki import make_certificate
from tests.support.read_side import ReadSide
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.events.base import Producer
from headgate.events.facts import ClusterQueueObserved, LocalQueueObserved, WorkloadObserved
from headgate.events.ids import LocalQueueKey, Shape, Uid, UnixMs, WorkloadKey
from headgate.events.objects import ClusterQueueSpec, LocalQueueSpec, PodSet, WorkloadSpec
from headgate.events.queueing import WorkloadQueued
from headgate.processes.runtime.settings import VisibilitySettings
from headgate.testing.control_plane import Assets, ControlPlane, Options, control_plane
from headgate.web.aggregated import AggregatedServer
from headgate.web.routes import add_visibility

pytestmark = [pytest.mark.kube, pytest.mark.anyio]

Json = dict[str, Any]

MANIFESTS = Path(__file__).parents[2] / "deploy" / "kubernetes" / "visibility"
GROUP = "visibility.kueue.x-k8s.io"
KINDS = ("clusterqueues", "localqueues")
VERSIONS = ("v1beta1", "v1beta2")
QUEUE = f"/apis/{GROUP}/v1beta2/clusterqueues/cq/pendingworkloads"


class Aggregated(NamedTuple):
    """A control plane whose aggregator forwards to the server."""

    plane: ControlPlane
    server: AggregatedServer
    folder: Path


def with_pending(side: ReadSide) -> None:
    """Three workloads of two LocalQueues wait in a ClusterQueue."""
    side.log.append(
        Producer.INFORMER_BRIDGE,
        ClusterQueueObserved(name="cq", spec=ClusterQueueSpec()),
        *(
            LocalQueueObserved(queue=LocalQueueKey(f"team/{name}"), spec=LocalQueueSpec(cluster_queue="cq"))
            for name in ("one", "two")
        ),
        *(
            WorkloadObserved(
                workload=WorkloadKey(f"team/{name}"),
                uid=Uid(name),
                created_ms=UnixMs(1_768_471_200_000),
                spec=WorkloadSpec(queue_name=queue, priority=priority, pod_sets=(PodSet(),)),
            )
            for name, queue, priority in (("a", "one", 9), ("b", "two", 5), ("c", "one", 1))
        ),
    )
    queued = [
        WorkloadQueued(
            workload=WorkloadKey(f"team/{name}"),
            uid=Uid(name),
            cluster_queue="cq",
            priority=priority,
            queued_at_ms=UnixMs(1),
            shape=Shape("s"),
        )
        for name, priority in (("a", 9), ("b", 5), ("c", 1))
    ]
    side.log.append(Producer.QUEUE_MANAGER, *queued)


def free_port() -> int:
    """A port that is free now: the APIService names it before the server listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
async def aggregated(
    anyio_backend: str, assets: Assets, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Aggregated]:
    """The server with a state, on a free port, and the objects of `deploy/kubernetes/visibility` that lead to it."""
    folder = tmp_path_factory.mktemp("aggregated")
    flags = write_front_proxy(folder)
    options = Options(controllers=False, kwok=False, nodes=0, apiserver_flags=flags)
    side = ReadSide()
    with_pending(side)
    async with (
        control_plane(assets, folder / "plane", options=options) as plane,
        open_transport(plane.access()) as transport,
        anyio.create_task_group() as tasks,
    ):
        await plane.kubectl("create", "namespace", "headgate-system")
        settings = VisibilitySettings(enabled=True, host="127.0.0.1", port=free_port())
        server = AggregatedServer(settings, KubeClient(transport), partial(add_visibility, side.view))
        rendered = (await plane.kubectl("kustomize", str(MANIFESTS))).stdout
        documents = [each for each in rendered.split("\n---\n") if "kind: Service\n" not in each]
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "headgate-visibility", "namespace": "headgate-system"},
            "spec": {"type": "ExternalName", "externalName": "127.0.0.1"},
        }
        documents.append(msgspec.json.encode(service).decode())
        text = "\n---\n".join(documents).replace("port: 443", f"port: {settings.port}")
        await plane.kubectl("apply", "-f", "-", stdin=text)
        tasks.start_soon(server.run)
        await until(lambda: server.port, lambda: server.problem)
        await until(partial(is_forwarded, plane), lambda: f"{GROUP} is not served: {server.problem}")
        yield Aggregated(plane, server, folder)
        tasks.cancel_scope.cancel()


async def is_forwarded(plane: ControlPlane) -> bool:
    """Whether both versions are answered: the aggregator refuses requests until it has found the server there."""
    asked = [await plane.kubectl("get", "--raw", QUEUE.replace("v1beta2", each), check=False) for each in VERSIONS]
    return all(each.returncode == 0 for each in asked)


async def raw(plane: ControlPlane, path: str, *flags: str) -> Json:
    found: Json = msgspec.json.decode((await plane.kubectl("get", "--raw", path, *flags)).stdout)
    return found


async def test_kubectl_reads_pending_workloads_through_the_api_server(aggregated: Aggregated) -> None:
    """Both versions, both kinds of queues, limit and offset; the certificate is trusted by its bundle."""
    plane = aggregated.plane
    service = msgspec.json.decode((await plane.kubectl("get", "apiservice", f"v1beta2.{GROUP}", "-o", "json")).stdout)
    assert service["spec"]["caBundle"]
    assert not service["spec"].get("insecureSkipTLSVerify")
    found = await raw(plane, QUEUE)
    assert [each["metadata"]["name"] for each in found["items"]] == ["a", "b", "c"]
    found = await raw(plane, f"{QUEUE}?limit=1&offset=1")
    assert [(each["metadata"]["name"], each["positionInClusterQueue"]) for each in found["items"]] == [("b", 1)]
    found = await raw(plane, f"/apis/{GROUP}/v1beta1/namespaces/team/localqueues/one/pendingworkloads")
    assert found["apiVersion"] == f"{GROUP}/v1beta1"
    assert [each["metadata"]["name"] for each in found["items"]] == ["a", "c"]
    done = await plane.kubectl("get", "--raw", QUEUE.replace("/cq/", "/none/"), check=False)
    assert "not found" in done.stderr
    listed = await raw(plane, f"/apis/{GROUP}/v1beta2")
    assert {each["name"] for each in listed["resources"]} >= {f"{kind}/pendingworkloads" for kind in KINDS}


async def test_a_caller_sees_what_rbac_allows(aggregated: Aggregated) -> None:
    """The aggregator names the caller, and the API server is asked what it may see."""
    plane = aggregated.plane
    await plane.kubectl("create", "namespace", "team")
    for name in ("viewer", "stranger"):
        await plane.kubectl("create", "serviceaccount", name, "-n", "team")
    await plane.kubectl(
        "create", "role", "viewer", "-n", "team", "--verb=get", f"--resource=localqueues.{GROUP}/pendingworkloads"
    )
    await plane.kubectl(
        "create", "rolebinding", "viewer", "-n", "team", "--role=viewer", "--serviceaccount=team:viewer"
    )
    path = f"/apis/{GROUP}/v1beta2/namespaces/team/localqueues/two/pendingworkloads"
    viewer = await plane.service_account_kubeconfig("team", "viewer")
    done = await plane.kubectl("get", "--raw", path, kubeconfig=viewer)
    assert [each["metadata"]["name"] for each in msgspec.json.decode(done.stdout)["items"]] == ["b"]
    assert "forbidden" in (await plane.kubectl("get", "--raw", QUEUE, kubeconfig=viewer, check=False)).stderr.lower()
    stranger = await plane.service_account_kubeconfig("team", "stranger")
    assert "forbidden" in (await plane.kubectl("get", "--raw", path, kubeconfig=stranger, check=False)).stderr.lower()


async def ask(aggregated: Aggregated, certificate: str | None, **headers: str) -> tuple[int, Json]:
    """Ask the server itself, with the names in headers, past the API server."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate, certificate.replace(".crt", ".key"))
    url = f"https://127.0.0.1:{aggregated.server.port}{QUEUE}"
    async with aiohttp.ClientSession() as session, session.get(url, ssl=context, headers=headers) as answer:
        return answer.status, await answer.json()


async def test_nobody_but_the_front_proxy_names_callers(aggregated: Aggregated, tmp_path: Path) -> None:
    """Headers without the certificate, or with another name of the same authority, are no identity; a token is."""
    named = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    folder = aggregated.folder
    assert (await ask(aggregated, str(folder / f"{NAME}.crt"), **named))[0] == 200
    status, body = await ask(aggregated, None, **named)
    assert (status, body["kind"], body["reason"]) == (401, "Status", "Unauthorized")
    make_certificate(folder, "other", subject="/CN=other", extension="extendedKeyUsage=clientAuth")
    assert (await ask(aggregated, str(folder / "other.crt"), **named))[0] == 401
    assert (await ask(aggregated, None, Authorization=f"Bearer {aggregated.plane.token}"))[0] == 200
    assert (await ask(aggregated, None, Authorization="Bearer forged", **named))[0] == 401
    write_front_proxy(tmp_path)  # of another authority
    with pytest.raises(aiohttp.ClientError):
        await ask(aggregated, str(tmp_path / f"{NAME}.crt"), **named)
