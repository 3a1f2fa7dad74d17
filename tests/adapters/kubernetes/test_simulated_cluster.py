"""The adapter against the simulated cluster, over HTTP and in process: the same results, also under faults."""

import json
import time
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from tests.support.doors import Door

from headgate.adapters.kubernetes.call import CallExecutor, CallSettings, KubeCall
from headgate.adapters.kubernetes.client import KubeClient, PatchType
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kubeconfig import resolve
from headgate.adapters.kubernetes.messages import Bookmark, Changes, ChangeType, ListPage
from headgate.adapters.kubernetes.reflector import Reflector, ReflectorSettings
from headgate.adapters.kubernetes.resources import LIMIT_RANGES, NAMESPACES, NODES, PODS, RESOURCES, WORKLOADS
from headgate.adapters.kubernetes.transport import InProcessTransport
from headgate.testing.cluster import Cluster, Fault, FaultPlan, FaultRule
from headgate.testing.cluster.api.server import kubeconfig, serve

pytestmark = pytest.mark.anyio


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def cluster():
    return Cluster(now_ms)


@pytest.fixture(params=["http", "in-process"])
async def api(request, cluster, tmp_path, anyio_backend):
    """A transport to the cluster."""
    if request.param == "in-process":
        yield InProcessTransport(Door(cluster))
        return
    async with serve(cluster) as url:
        path = tmp_path / "kubeconfig"
        path.write_text(kubeconfig(url))
        async with open_transport(resolve(kubeconfig=str(path), environ={})) as made:
            yield made


@pytest.fixture
def client(api):
    return KubeClient(api)


def limit_range(name, **labels):
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]},
    }


def pod(name):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    }


@pytest.mark.parametrize("plural", sorted(name for name, each in RESOURCES.items() if not each.optional))
async def test_every_resource_of_the_table_is_served(client, plural):
    """Group, version, plural and scope of each entry are those of the cluster."""
    resource = RESOURCES[plural]
    page = await client.list(resource)
    assert int(page.resource_version) > 0
    assert all(msgspec.json.decode(item) for item in page.items)


async def test_the_verbs_do_what_they_say(client):
    """Create, get, the three patches, status apart from spec, update, conflict, delete."""
    made = json.loads(await client.create(LIMIT_RANGES, limit_range("a"), "default"))
    assert made["metadata"]["uid"]
    with pytest.raises(ApiError) as caught:
        await client.create(LIMIT_RANGES, limit_range("a"), "default")
    assert caught.value.is_already_exists
    merged = await client.patch(LIMIT_RANGES, "a", {"metadata": {"labels": {"x": "1"}}}, "default")
    assert json.loads(merged)["metadata"]["labels"] == {"x": "1"}
    operations = [{"op": "test", "path": "/metadata/labels/x", "value": "1"}]
    operations.append({"op": "add", "path": "/metadata/labels/y", "value": "2"})
    patched = json.loads(await client.patch(LIMIT_RANGES, "a", operations, "default", patch_type=PatchType.JSON))
    assert patched["metadata"]["labels"] == {"x": "1", "y": "2"}
    stale = patched | {"metadata": patched["metadata"] | {"resourceVersion": made["metadata"]["resourceVersion"]}}
    with pytest.raises(ApiError) as caught:
        await client.update(LIMIT_RANGES, "a", stale, "default")
    assert caught.value.is_conflict
    patched["metadata"]["labels"] = {}
    updated = json.loads(await client.update(LIMIT_RANGES, "a", patched, "default"))
    assert not updated["metadata"].get("labels")
    with pytest.raises(ApiError) as caught:
        await client.delete(LIMIT_RANGES, "a", "default", uid="another")
    assert caught.value.status == 409
    await client.delete(LIMIT_RANGES, "a", "default", uid=made["metadata"]["uid"])
    with pytest.raises(ApiError) as caught:
        await client.get(LIMIT_RANGES, "a", "default")
    assert caught.value.is_not_found


async def test_what_is_not_there_is_found_to_be_none_and_a_path_that_leads_nowhere_is_an_error(client):
    """A kind whose definition is missing says nothing about its objects."""
    assert await client.find(PODS, "none", "default") is None
    assert msgspec.json.decode(await client.find(NAMESPACES, "default"))["metadata"]["name"] == "default"
    unserved = msgspec.structs.replace(PODS, group="example.com", version="v1")
    with pytest.raises(ApiError) as caught:
        await client.find(unserved, "none", "default")
    assert caught.value.is_unserved


async def test_apply_owns_fields_and_can_take_them(client):
    """Two managers conflict over a field until one of them forces."""
    mine = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a", "labels": {"x": "1"}}}
    other = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a", "labels": {"x": "2"}}}
    apply = {"patch_type": PatchType.APPLY}
    await client.patch(NAMESPACES, "team-a", mine, field_manager="one", **apply)
    with pytest.raises(ApiError) as caught:
        await client.patch(NAMESPACES, "team-a", other, field_manager="two", **apply)
    assert caught.value.is_conflict
    taken = await client.patch(NAMESPACES, "team-a", other, field_manager="two", force=True, **apply)
    assert json.loads(taken)["metadata"]["labels"]["x"] == "2"


async def test_binding_happens_once_and_eviction_removes_the_pod(client):
    """A bound pod cannot be bound again; an evicted one goes."""
    await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    await client.create(PODS, pod("p"), "default")
    await client.bind("p", "default", "n1")
    assert json.loads(await client.get(PODS, "p", "default"))["spec"]["nodeName"] == "n1"
    with pytest.raises(ApiError) as caught:
        await client.bind("p", "default", "n1")
    assert caught.value.status == 409
    await client.evict("p", "default", grace_period_s=0)
    with pytest.raises(ApiError) as caught:
        await client.get(PODS, "p", "default")
    assert caught.value.is_not_found


async def test_an_invalid_object_is_refused_with_its_fields(client):
    """422 carries the causes that say where."""
    with pytest.raises(ApiError) as caught:
        await client.create(
            WORKLOADS,
            {
                "apiVersion": WORKLOADS.api_version,
                "kind": WORKLOADS.kind,
                "metadata": {"name": "w", "namespace": "default"},
                "spec": {"podSets": [{"name": "main", "count": -1, "template": {"spec": {"containers": []}}}]},
            },
            "default",
        )
    assert caught.value.is_invalid
    assert any(cause.field.startswith("spec.podSets") for cause in caught.value.causes)


class Mirror:
    """An owner that keeps the reflector's messages, by the rules of `ListPage` and `Changes`."""

    def __init__(self):
        self.versions: dict[str, str] = {}
        self.resume_rv = ""
        self._named: set[str] = set()

    def hear(self, message):
        match message:
            case ListPage():
                if message.page == 0:
                    self._named = set()
                for item in message.items:
                    meta = msgspec.json.decode(item)["metadata"]
                    self.versions[meta["name"]] = meta["resourceVersion"]
                    self._named.add(meta["name"])
                if message.complete:
                    self.versions = {name: at for name, at in self.versions.items() if name in self._named}
                    self.resume_rv = message.resource_version
            case Changes():
                for change in message.changes:
                    if change.type is ChangeType.DELETED:
                        assert self.versions.pop(change.meta.name, None) is not None
                    else:
                        self.versions[change.meta.name] = change.resource_version
                self.resume_rv = message.resource_version
            case Bookmark():
                self.resume_rv = message.resource_version


async def short_sleep(seconds):
    await anyio.lowlevel.checkpoint()


def faults(seed):
    """Everything that can go wrong, often."""
    rules = [
        FaultRule(fault=Fault.THROTTLED, probability=0.05),
        FaultRule(fault=Fault.INTERNAL, probability=0.05),
        FaultRule(fault=Fault.UNAVAILABLE, probability=0.05),
        FaultRule(fault=Fault.DROP_BEFORE, probability=0.05),
        FaultRule(fault=Fault.DROP_AFTER, probability=0.05),
        FaultRule(fault=Fault.WATCH_CUT, probability=0.1),
        FaultRule(fault=Fault.WATCH_GONE, probability=0.05),
    ]
    return FaultPlan(Random(seed), rules)


def truth(cluster):
    response = cluster.request("GET", LIMIT_RANGES.path())
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in response.json()["items"]}


async def churn(executor, random, *, count):
    """Creates, changes and deletes a few objects again and again; returns what each name's last write left behind."""

    async def write(name, steps):
        path = LIMIT_RANGES.path(namespace="default", name=name)
        collection = LIMIT_RANGES.path(namespace="default")
        for step in steps:
            label = msgspec.json.encode({"metadata": {"labels": {"step": str(step)}}})
            body = msgspec.json.encode(limit_range(name))
            create = KubeCall(id="c", method="POST", path=collection, body=body, content_type="application/json")
            patch = KubeCall(id="p", method="PATCH", path=path, body=label, content_type="application/merge-patch+json")
            delete = KubeCall(id="d", method="DELETE", path=path)
            created = await executor.run(create)
            assert created.ok or (created.error().is_already_exists and created.maybe_repeated)
            assert (await executor.run(patch)).ok
            if step % 2:
                deleted = await executor.run(delete)
                assert deleted.ok or (deleted.error().is_not_found and deleted.maybe_repeated)
            else:
                return

    async with anyio.create_task_group() as tasks:
        for number in range(count):
            odd = [2 * n + 1 for n in range(random.randint(0, 6))]
            tasks.start_soon(write, f"r{number}", [*odd, 0] if random.random() < 0.6 else odd)


@pytest.mark.parametrize("seed", range(5))
async def test_the_mirror_is_the_cluster_whatever_goes_wrong(cluster, api, seed):
    """Under faults and restarts of the owner: at the end it has exactly the objects that exist."""
    plan, random, mirror = faults(seed), Random(seed), Mirror()
    executor = CallExecutor(api, CallSettings(qps=1e6, burst=1000), random=random, sleep=short_sleep)
    settings = ReflectorSettings(page_items=3, pending_max=4, burst_max=3, short_watch_s=0)
    restarts = 0

    async def follow(done: anyio.Event):
        nonlocal restarts
        while True:
            reflector = Reflector(KubeClient(api), LIMIT_RANGES, settings=settings, random=random, sleep=short_sleep)
            sink, source = anyio.create_memory_object_stream[Any](0)
            async with sink, source, anyio.create_task_group() as tasks:

                async def run(reflector=reflector, sink=sink):
                    await reflector.run(sink, resume_rv=mirror.resume_rv)

                tasks.start_soon(run)
                async for message in source:
                    mirror.hear(message)
                    if cluster.faults is None and mirror.versions == truth(cluster):
                        done.set()
                    elif random.random() < 0.05:
                        # The process is killed; what the reflector had not handed over is lost with it.
                        restarts += 1
                        break
                tasks.cancel_scope.cancel()

    done = anyio.Event()
    cluster.faults = plan
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, done)
        await churn(executor, random, count=12)
        cluster.faults = None
        # One more change makes the owner compare, whatever it was doing.
        cluster.create(limit_range("last"))
        with anyio.fail_after(20):
            await done.wait()
        tasks.cancel_scope.cancel()
    assert mirror.versions == truth(cluster)
    assert "last" in mirror.versions
    assert sum(plan.struck) > 20
    assert executor.counters.retries > 0
    assert executor.health.ok
