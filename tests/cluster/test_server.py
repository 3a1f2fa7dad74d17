"""The cluster behind HTTP: the same answers, streaming watches, and kubectl."""

import io
import random
import shutil

import aiohttp
import anyio
import msgspec
import pytest

from headgate.testing.cluster import Cluster, ControllerOptions, Fault, FaultPlan, FaultRule
from headgate.testing.cluster.api.server import kubeconfig, serve, wall_clock_ms

PATH = "/api/v1/namespaces/default/configmaps"
pytestmark = pytest.mark.anyio


@pytest.fixture
async def served():
    """A cluster with a first-fit scheduler in real time; pods run for 50 ms."""
    cluster = Cluster(wall_clock_ms, controllers=ControllerOptions(default_scheduler=True, run_ms=50))
    async with serve(cluster) as url, aiohttp.ClientSession(url) as session:
        yield cluster, url, session


async def test_http_gives_what_the_function_gives(served, config_map):
    """Status, body, content type, errors, queries and warnings."""
    cluster, _, session = served
    async with session.post(PATH, json={**config_map, "nope": 1}) as response:
        assert response.status == 201
        assert response.headers["Warning"] == '299 - "unknown field \\"nope\\""'
        created = await response.json()
    assert cluster.request("GET", f"{PATH}/c").json() == created
    async with session.get(PATH, params={"labelSelector": "a=b"}) as response:
        assert (await response.json())["items"] == []
    async with session.get(f"{PATH}/d") as response:
        assert response.status == 404
        assert (await response.json())["reason"] == "NotFound"
    async with session.get("/readyz") as response:
        assert await response.text() == "ok"


async def test_a_watch_streams_as_things_happen(served, config_map):
    """One line per event; the stream ends with its timeout."""
    _, _, session = served
    query = {"watch": "true", "timeoutSeconds": "2", "allowWatchBookmarks": "true"}
    lines = []
    async with session.get(PATH, params=query) as stream:
        async with session.post(PATH, json=config_map):
            pass
        lines += [await stream.content.readline(), await stream.content.readline()]
        async with session.delete(f"{PATH}/c"):
            pass
        lines += [line async for line in stream.content]
    types = [msgspec.json.decode(line)["type"] for line in lines]
    # The first bookmark marks that there was nothing at the start.
    assert types == ["BOOKMARK", "ADDED", "DELETED", "BOOKMARK"]


async def test_a_watch_of_the_forgotten_past_gets_an_error_event(served, config_map):
    """200 and then ERROR with 410, as a real API server answers."""
    cluster, _, session = served
    cluster.apply(config_map)
    cluster.store.tables[("", "configmaps")].compact()
    async with session.get(PATH, params={"watch": "1", "resourceVersion": "2"}) as stream:
        (line,) = [line async for line in stream.content]
    event = msgspec.json.decode(line)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_a_watch_that_cannot_start_is_refused(served):
    """With a Status, not a stream."""
    _, _, session = served
    async with session.get("/api/v1/unicorns", params={"watch": "1"}) as response:
        assert response.status == 404
        assert (await response.json())["reason"] == "NotFound"


async def test_closing_the_server_ends_its_watches(config_map):
    """A client that only listens is not left hanging."""
    cluster = Cluster(wall_clock_ms)
    async with aiohttp.ClientSession() as session:
        async with serve(cluster) as url:
            stream = await session.get(url + PATH, params={"watch": "1"})
            assert stream.status == 200
        with anyio.fail_after(5):
            assert [line async for line in stream.content] == []


async def test_jobs_run_in_real_time(served, job, node):
    """The server steps the controllers by itself."""
    _, _, session = served
    async with session.post("/api/v1/nodes", json=node):
        pass
    path = "/apis/batch/v1/namespaces/default/jobs"
    query = {"watch": "1", "timeoutSeconds": "20"}
    async with session.get(path, params=query) as stream:
        async with session.post(path, json=job):
            pass
        async for line in stream.content:
            status = msgspec.json.decode(line)["object"]["status"]
            if status.get("completionTime"):
                break
    assert status["succeeded"] == 1


async def test_a_dropped_response_is_a_broken_connection(config_map):
    """The request was carried out, the client cannot know."""
    plan = FaultPlan(random.Random(1), [FaultRule(fault=Fault.DROP_AFTER, probability=1.0, count_max=1)])
    cluster = Cluster(wall_clock_ms, faults=plan)
    async with serve(cluster) as url, aiohttp.ClientSession(url) as session:
        with pytest.raises(aiohttp.ClientError):
            await session.post(PATH, json=config_map)
        async with session.get(f"{PATH}/c") as response:
            assert response.status == 200


async def test_a_body_that_is_too_large_is_refused(served):
    """413 above three megabytes."""
    _, _, session = served
    async with session.post(PATH, data=io.BytesIO(b" " * (3 * 1024 * 1024 + 1))) as response:
        assert response.status == 413


MANIFESTS = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {capacity: {cpu: "4", memory: 8Gi}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: QUOTA}]}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: j, labels: {quota: "QUOTA"}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox}]
"""


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
async def test_kubectl_works_without_flags(served, tmp_path):
    """version, apply (twice, client and server side), get, wait, describe, create, explain, delete."""
    _, url, _ = served
    config = tmp_path / "kubeconfig"
    config.write_text(kubeconfig(url))
    manifests = tmp_path / "m.yaml"

    async def kubectl(*arguments, check=True):
        command = ["kubectl", "--kubeconfig", str(config), "--cache-dir", str(tmp_path / "cache"), *arguments]
        done = await anyio.run_process(command, check=False)
        assert not check or done.returncode == 0, done.stderr.decode()
        return done.stdout.decode() + (done.stderr.decode() if not check else "")

    manifests.write_text(MANIFESTS.replace("QUOTA", "9"))
    assert "clusterqueue.kueue.x-k8s.io/cq created" in await kubectl("apply", "-f", str(manifests))
    manifests.write_text(MANIFESTS.replace("QUOTA", "10"))
    again = await kubectl("apply", "-f", str(manifests))
    assert "clusterqueue.kueue.x-k8s.io/cq configured" in again
    assert "job.batch/j configured" in again
    quota = await kubectl("get", "cq", "cq", "-o", "jsonpath={.spec.resourceGroups[0].flavors[0].resources[0]}")
    assert msgspec.json.decode(quota) == {"name": "cpu", "nominalQuota": 10}
    assert "condition met" in await kubectl("wait", "--for=condition=complete", "job/j", "--timeout=30s")
    assert (await kubectl("get", "cq")).split()[:4] == ["NAME", "COHORT", "PENDING", "WORKLOADS"]
    assert "Complete" in await kubectl("get", "jobs")
    assert "Completions:" in await kubectl("describe", "job", "j")
    assert "podSets" in await kubectl("explain", "workload.spec")
    assert "serverside-applied" in await kubectl("apply", "--server-side", "-f", str(manifests), "--force-conflicts")
    assert "namespace/team created" in await kubectl("create", "namespace", "team")
    assert "job.batch/hello created" in await kubectl("create", "job", "hello", "--image=busybox", "--", "true")
    manifests.write_text(MANIFESTS.replace("QUOTA", "many"))
    assert "in body should match" in await kubectl("apply", "-f", str(manifests), check=False)
    deleted = await kubectl("delete", "namespace/team", "cq/cq", "job/j")
    assert 'namespace "team" deleted' in deleted
