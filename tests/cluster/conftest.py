"""What the tests of the simulated cluster share: a virtual clock, and a client that speaks in decoded JSON."""

from typing import Any

import pytest

from headgate.testing.cluster import Cluster, ControllerOptions, ServerResponse, object_path
from headgate.testing.cluster.kinds import kind_of

START_MS = 1_700_000_000_000
PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


class Client:
    """Requests by manifest instead of by path; the answers are decoded, refusals included."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self.cluster = cluster
        self.clock = clock
        self.last: ServerResponse | None = None

    def path(self, manifest: dict[str, Any], subresource: str = "") -> str:
        version = manifest["apiVersion"].rpartition("/")[2]
        kind = kind_of(manifest["apiVersion"], manifest["kind"])
        metadata = manifest.get("metadata", {})
        namespace = metadata.get("namespace", "default")
        return object_path(kind, namespace, metadata.get("name", ""), subresource, version=version)

    def call(self, method: str, path: str, body: Any = None, content_type: str | None = None, **query: str) -> Any:
        self.last = self.cluster.request(method, path, query, body, content_type, user="tester/1.0")
        return self.last.json()

    def create(self, manifest: dict[str, Any], **query: str) -> Any:
        unnamed = {**manifest, "metadata": {k: v for k, v in manifest["metadata"].items() if k != "name"}}
        return self.call("POST", self.path(unnamed), manifest, **query)

    def get(self, manifest: dict[str, Any]) -> Any:
        return self.call("GET", self.path(manifest))

    def put(self, manifest: dict[str, Any], subresource: str = "", **query: str) -> Any:
        return self.call("PUT", self.path(manifest, subresource), manifest, **query)

    def patch(self, manifest: dict[str, Any], how: str, body: Any, subresource: str = "", **query: str) -> Any:
        return self.call("PATCH", self.path(manifest, subresource), body, PATCHES[how], **query)

    def apply(self, manifest: dict[str, Any], manager: str, subresource: str = "", **query: str) -> Any:
        return self.patch(manifest, "apply", manifest, subresource, fieldManager=manager, **query)

    def delete(self, manifest: dict[str, Any], body: Any = None, **query: str) -> Any:
        return self.call("DELETE", self.path(manifest), body, **query)

    @property
    def status(self) -> int:
        """The HTTP status of the last answer."""
        assert self.last is not None
        return self.last.status

    def settle(self, until_ms: int | None = None) -> None:
        """Run the controllers, and time, until nothing is left to do (or the time is reached)."""
        while (due := self.cluster.next_due_ms()) is not None and (until_ms is None or due <= START_MS + until_ms):
            self.clock.now_ms = max(self.clock.now_ms, due)
            self.cluster.step(self.clock.now_ms)
        if until_ms is not None:
            self.clock.now_ms = START_MS + until_ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def client(clock):
    """A cluster with controllers that only run when stepped."""
    return Client(Cluster(clock, controllers=ControllerOptions(default_scheduler=True)), clock)


@pytest.fixture
def pod():
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}],
        },
    }


@pytest.fixture
def config_map():
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "default"},
        "data": {"a": "1"},
    }


@pytest.fixture
def cluster_queue():
    quota = {"name": "cpu", "nominalQuota": "9"}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [
                {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]},
            ],
        },
    }


@pytest.fixture
def workload():
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {
            "queueName": "lq",
            "podSets": [
                {"name": "main", "count": 2, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
            ],
        },
    }


@pytest.fixture
def job():
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
                }
            }
        },
    }


@pytest.fixture
def node():
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"capacity": {"cpu": "4", "memory": "8Gi"}},
    }
