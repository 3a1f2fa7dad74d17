"""What a real API server does when it is killed, restored, refuses or lacks something, and what is made of it."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import msgspec
import pytest
import yaml
from tests.support.waiting import until

from headgate.adapters.kubernetes.call import CallExecutor, CallSettings, KubeCall
from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.crds.render import custom_resource_definitions
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kubeconfig import ClusterAccess, resolve
from headgate.adapters.kubernetes.messages import (
    Bookmark,
    Changes,
    ChangeType,
    ListPage,
    Message,
    ObjectChange,
    WatchResumed,
)
from headgate.adapters.kubernetes.reflector import Reflector, ReflectorSettings
from headgate.adapters.kubernetes.resources import CONFIG_MAPS, NAMESPACES, PODS, WORKLOADS, Resource
from headgate.core import fold
from headgate.core.log.cluster_anchors import anchor_of
from headgate.core.machine.contract import Listed as ListedStimulus
from headgate.core.machine.contract import Resumed as ResumedStimulus
from headgate.core.machine.contract import Stimulus
from headgate.core.reading.decoding import CLUSTER_NAMESPACE, READING, cluster_id_of
from headgate.processes.informer_bridge.watching import Watching
from headgate.testing.control_plane import API_SERVER, Assets, ControlPlane, Options, control_plane
from headgate.testing.control_plane.fault_proxy import ProxyFaults, fault_proxy

pytestmark = [pytest.mark.kube, pytest.mark.anyio, pytest.mark.timeout(300)]

SETTINGS = ReflectorSettings(page_items=5, backoff_first_s=0.1, backoff_max_s=0.5)


@pytest.fixture(scope="module")
async def own(
    anyio_backend: str, assets: Assets, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    """A control plane for this module alone: an API server and its storage, which these tests mistreat."""
    options = Options(controllers=False, kwok=False, nodes=0)
    async with control_plane(assets, tmp_path_factory.mktemp("faults"), options=options) as plane:
        yield plane


class Follower:
    """The state of a reflector's receiver: name -> content."""

    def __init__(self, reflector: Reflector) -> None:
        self.reflector = reflector
        self.known: dict[str, str] = {}
        self.told: list[tuple[str, str, str]] = []
        self.lists = 0
        self.last: ObjectChange | None = None
        self._listing: dict[str, str] = {}

    def hear(self, message: Message) -> None:
        """Take a message in."""
        match message:
            case ListPage():
                if message.page == 0:
                    self._listing = {}
                self._listing |= dict(_read(item) for item in message.items)
                if message.complete:
                    self.lists += 1
                    self.known = self._listing
            case Changes():
                for change in message.changes:
                    name, content = _read(change.object)
                    self.last = change
                    self.told.append((change.type.value, name, change.resource_version))
                    if change.type is ChangeType.DELETED:
                        self.known.pop(name, None)
                    else:
                        self.known[name] = content
            case WatchResumed() | Bookmark():
                pass

    async def until(self, holds: Callable[["Follower"], bool]) -> None:
        """Wait until what is known satisfies a condition."""
        await until(lambda: holds(self), lambda: f"{self.reflector.health}, {self.lists} lists, {self.known}")


def _read(item: msgspec.Raw) -> tuple[str, str]:
    found: dict[str, Any] = msgspec.json.decode(item)
    return found["metadata"]["name"], (found.get("data") or {}).get("n", "")


@asynccontextmanager
async def following(
    access: ClusterAccess, resource: Resource = CONFIG_MAPS, namespace: str = ""
) -> AsyncIterator[Follower]:
    """A follower of one resource until the block ends."""
    async with open_transport(access) as transport:
        reflector = Reflector(KubeClient(transport), resource, namespace=namespace or None, settings=SETTINGS)
        follower = Follower(reflector)
        sink, source = anyio.create_memory_object_stream[Message](16)

        async def listen() -> None:
            async for message in source:
                follower.hear(message)

        async with sink, source, anyio.create_task_group() as tasks:
            tasks.start_soon(reflector.run, sink)
            tasks.start_soon(listen)
            yield follower
            tasks.cancel_scope.cancel()


def config_map(name: str, content: str = "") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"n": content}}


@asynccontextmanager
async def namespace_of(plane: ControlPlane, name: str) -> AsyncIterator[KubeClient]:
    """A client, and a namespace with five objects and what Kubernetes puts there."""
    async with open_transport(plane.access()) as transport:
        client = KubeClient(transport)
        await client.create(NAMESPACES, {"metadata": {"name": name}})
        for number in range(12):
            await client.create(CONFIG_MAPS, config_map(f"c{number}"), name)
        yield client


async def truth(client: KubeClient, namespace: str) -> dict[str, str]:
    """What the API server has."""
    return dict(_read(item) for item in (await client.list(CONFIG_MAPS, namespace)).items)


async def test_a_killed_api_server_loses_nothing_and_repeats_nothing(own: ControlPlane) -> None:
    """Writes before and after are received once; the follower was unhealthy in the meantime and reports since when."""
    async with namespace_of(own, "killed") as client, following(own.access(), namespace="killed") as follower:
        await follower.until(lambda each: len(each.known) == 12)
        await client.create(CONFIG_MAPS, config_map("before"), "killed")
        await follower.until(lambda each: "before" in each.known)
        own.kill(API_SERVER)
        await follower.until(lambda each: each.reflector.health.failing_since is not None)
        await own.start(API_SERVER)
        await client.delete(CONFIG_MAPS, "c3", "killed")
        await client.create(CONFIG_MAPS, config_map("after"), "killed")
        await follower.until(lambda each: "after" in each.known)
        assert follower.known == await truth(client, "killed")
        assert follower.reflector.health.ok
        assert len({version for _, _, version in follower.told}) == len(follower.told)


async def test_a_cut_connection_is_resumed_without_a_list(own: ControlPlane, tmp_path: Path) -> None:
    """The server shows the last change again, byte for byte; it is recognised, nothing is listed or delivered twice."""
    async with namespace_of(own, "cut") as client, fault_proxy(own.access(), ProxyFaults(), Random(1)) as proxy:
        proxied = tmp_path / "kubeconfig"
        proxy.write_kubeconfig(own.kubeconfig, proxied)
        async with following(resolve(kubeconfig=str(proxied)), namespace="cut") as follower:
            await follower.until(lambda each: len(each.known) == 12)
            for number in range(3):
                await client.update(CONFIG_MAPS, "c2", config_map("c2", f"before {number}"), "cut")
                await client.delete(CONFIG_MAPS, f"c{number + 5}", "cut")
                await follower.until(lambda each, number=number: f"c{number + 5}" not in each.known)  # type: ignore[misc]
                proxy.cut_all()
                await client.update(CONFIG_MAPS, "c1", config_map("c1", f"after {number}"), "cut")
                await follower.until(lambda each, number=number: each.known["c1"] == f"after {number}")  # type: ignore[misc]
            assert follower.known == await truth(client, "cut")
            assert (follower.lists, follower.reflector.counters.rewound) == (1, 0)
            assert len({version for _, _, version in follower.told}) == len(follower.told) == 9
            assert proxy.done["cut"] >= 3


@pytest.mark.parametrize("is_same", [True, False], ids=["the same history", "another history"])
async def test_a_bridge_resumes_where_the_history_proves_to_be_the_one_of_its_marks(
    own: ControlPlane, is_same: bool
) -> None:
    """The change that the log has written down is shown again, byte for byte; if it is not, all is listed."""
    async with open_transport(own.access()) as transport, following(own.access(), NAMESPACES) as follower:
        await follower.until(lambda each: each.reflector.synced)
        client = KubeClient(transport)
        made = f"anchor-{is_same}".lower()
        await client.create(NAMESPACES, {"metadata": {"name": made}})
        await follower.until(lambda each: made in each.known and each.last is not None)
        last = follower.last
        assert last is not None
        state = fold.new_state("main")
        state.cluster_id = cluster_id_of(await client.get(NAMESPACES, CLUSTER_NAMESPACE))
        state.reading = READING
        state.resource_versions = {"namespaces": last.resource_version}
        raw = bytes(last.object) if is_same else bytes(last.object) + b" "
        state.anchor = str(anchor_of("namespaces", last.resource_version, last.type.value, raw))
        offered: list[Stimulus] = []

        async def offer(stimulus: Stimulus) -> None:
            offered.append(stimulus)

        async with anyio.create_task_group() as tasks:
            watching = Watching(transport, {"namespaces": NAMESPACES}, lambda: ["namespaces"], page_items=500)
            tasks.start_soon(watching, state, offer)
            await follower.until(lambda _: offered != [])
            tasks.cancel_scope.cancel()
        assert [type(each) for each in offered[:1]] == [ResumedStimulus if is_same else ListedStimulus]


async def test_a_forgotten_history_is_listed_again(own: ControlPlane) -> None:
    """Compacted while the connection was gone, and the API server's own memory lost: 410, then a list."""
    async with namespace_of(own, "forgotten") as client, following(own.access(), namespace="forgotten") as follower:
        await follower.until(lambda each: len(each.known) == 12)
        own.kill(API_SERVER)
        await own.compact()
        await own.start(API_SERVER)
        await client.delete(CONFIG_MAPS, "c1", "forgotten")
        await follower.until(lambda each: "c1" not in each.known)
        assert follower.known == await truth(client, "forgotten")
        assert follower.lists == 2


@pytest.mark.parametrize("catches_up", [False, True], ids=["behind our version", "past our version"])
async def test_a_restored_storage_is_listed_again(own: ControlPlane, tmp_path: Path, catches_up: bool) -> None:
    """What the backup lacks is gone, what was deleted since is back; also if the versions have come past ours."""
    name = "past" if catches_up else "behind"
    async with namespace_of(own, name) as client, fault_proxy(own.access(), ProxyFaults(), Random(1)) as proxy:
        proxied = tmp_path / "kubeconfig"
        proxy.write_kubeconfig(own.kubeconfig, proxied)
        async with following(resolve(kubeconfig=str(proxied)), namespace=name) as follower:
            await follower.until(lambda each: len(each.known) == 12)
            await own.backup()
            await client.delete(CONFIG_MAPS, "c1", name)
            await client.create(CONFIG_MAPS, config_map("lost"), name)
            await follower.until(lambda each: "lost" in each.known and "c1" not in each.known)
            async with proxy.half_open():
                # No watch sees what happens to the history.
                await own.restore()
                if catches_up:
                    for number in range(40):
                        await client.update(CONFIG_MAPS, "c2", config_map("c2", str(number)), name)
                proxy.cut_all()
            await follower.until(lambda each: each.lists >= 2)
            await client.create(CONFIG_MAPS, config_map("new"), name)
            await follower.until(lambda each: "new" in each.known)
            assert follower.known == await truth(client, name)
            assert "c1" in follower.known
            assert "lost" not in follower.known


async def test_a_missing_definition_is_named_with_what_installs_it(
    own: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    """Line and health name `headgate crds install`; a call to such a resource waits; afterwards both continue."""
    with caplog.at_level(logging.WARNING):
        async with following(own.access(), WORKLOADS) as follower, open_transport(own.access()) as transport:
            await follower.until(lambda each: not each.reflector.health.ok)
            assert "workloads.kueue.x-k8s.io" in follower.reflector.health.error
            assert "headgate crds install" in follower.reflector.health.error
            assert [text for text in caplog.messages if "headgate crds install" in text]
            executor = CallExecutor(transport, CallSettings(backoff_max_s=0.5))
            path = WORKLOADS.path(namespace="default", name="w")
            answers = []

            async def call() -> None:
                answers.append(await executor.run(KubeCall(id="c", method="GET", path=path)))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await follower.until(lambda _: not executor.health.ok)
                assert answers == []
                for each in custom_resource_definitions():
                    await own.kubectl("create", "-f", "-", stdin=msgspec.json.encode(each).decode())
                await follower.until(lambda each: each.reflector.synced and each.reflector.health.ok)
            assert (answers[0].status, answers[0].error().is_from_api) == (404, True)


async def test_a_missing_right_names_user_verb_and_resource_and_is_waited_for(own: ControlPlane) -> None:
    """A service account without rights; once it has them, all continues."""
    await own.kubectl("create", "serviceaccount", "poor", "-n", "default")
    access = resolve(kubeconfig=str(await own.service_account_kubeconfig("default", "poor")))
    async with following(access, namespace="default") as follower, open_transport(access) as transport:
        await follower.until(lambda each: not each.reflector.health.ok)
        error = follower.reflector.health.error
        assert 'User "system:serviceaccount:default:poor" cannot list resource "configmaps"' in error
        assert "system:serviceaccount:default:poor needs an RBAC rule for list configmaps in namespace default" in error
        executor = CallExecutor(transport, CallSettings(backoff_max_s=0.5))
        path = CONFIG_MAPS.path(namespace="default")
        body = msgspec.json.encode(config_map("rich"))
        create = KubeCall(id="c", method="POST", path=path, body=body, content_type="application/json")
        answers = []

        async def call() -> None:
            answers.append(await executor.run(create))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await follower.until(lambda _: not executor.health.ok)
            await own.kubectl(
                "create", "clusterrolebinding", "rich", "--clusterrole=cluster-admin", "--serviceaccount=default:poor"
            )
        assert answers[0].status == 201
        await follower.until(lambda each: "rich" in each.known)


async def test_a_token_that_is_not_accepted_names_its_user_and_is_replaced_in_its_file(
    own: ControlPlane, tmp_path: Path
) -> None:
    """401 until the file has a good token; nothing is started again."""
    token = tmp_path / "token"
    token.write_text("worthless")
    config = yaml.safe_load(own.kubeconfig.read_text())
    config["users"][0]["user"] = {"tokenFile": "token"}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    async with following(resolve(kubeconfig=str(file)), namespace="default") as follower:
        await follower.until(lambda each: not each.reflector.health.ok)
        assert "401 Unauthorized" in follower.reflector.health.error
        assert f"the user {config['users'][0]['name']!r}" in follower.reflector.health.error
        token.write_text(own.token)
        await follower.until(lambda each: each.reflector.health.ok and each.reflector.synced)


async def test_an_eviction_against_a_budget_is_a_final_answer(own: ControlPlane) -> None:
    """The real server's 429 of a budget is distinguished from one of load, and is not retried for ever."""
    await own.kubectl("create", "namespace", "evicting")
    async with open_transport(own.access()) as transport:
        client = KubeClient(transport)
        container = {"name": "c", "image": "i"}
        pod = {"metadata": {"name": "p", "labels": {"app": "a"}}, "spec": {"containers": [container], "nodeName": "n"}}
        await client.create(PODS, pod, "evicting")
        status = {"status": {"phase": "Running"}}
        await client.patch(PODS, "p", status, "evicting", subresource="status")
        budgets = Resource(
            group="policy", version="v1", plural="poddisruptionbudgets", kind="PodDisruptionBudget", namespaced=True
        )
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
        await client.create(budgets, {"metadata": {"name": "b"}, "spec": spec}, "evicting")
        executor = CallExecutor(transport)
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "evicting"}}
        outcome = await executor.run(
            KubeCall(
                id="evict",
                method="POST",
                path=PODS.path(namespace="evicting", name="p", subresource="eviction"),
                body=msgspec.json.encode(eviction),
                content_type="application/json",
            )
        )
        assert (outcome.status, outcome.attempts) == (429, 1)
        assert outcome.error().is_budget_exhausted
