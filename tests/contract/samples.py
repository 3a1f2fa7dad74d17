"""
What the cases about reading try things on: one of Kubernetes' own kinds and one custom kind, both cheap.

A server reads the two on different paths (typed and untyped), so cases about reading are tested on both. Leases and
LocalQueues, because no controller makes or changes any in a namespace.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
from tests.contract.servers import Server

JsonObject = dict[str, Any]
PATIENCE_S = 15.0


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A namespaced kind: where it is served, what an object of it holds."""

    group: str
    version: str
    plural: str
    kind: str
    spec: JsonObject

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}"

    @property
    def resource(self) -> str:
        """The name that refusals call it by."""
        return f"{self.plural}.{self.group}"

    def path(self, namespace: str = "", *rest: str, version: str = "") -> str:
        """The path of a collection (over all namespaces without one) or, with a name, of an object."""
        middle = ["namespaces", namespace] if namespace else []
        return "/".join(["/apis", self.group, version or self.version, *middle, self.plural, *rest])

    def manifest(self, name: str, **metadata: object) -> JsonObject:
        """An object to create."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": name, **metadata},
            "spec": self.spec,
        }

    async def create(self, server: Server, namespace: str, *names: str, **metadata: object) -> list[JsonObject]:
        """Create objects, one after the other."""
        made = []
        for name in names:
            answer = await server.call("POST", self.path(namespace), self.manifest(name, **metadata))
            assert answer.status == 201, answer.json
            made.append(answer.json)
        return made

    async def label(self, server: Server, namespace: str, name: str, **labels: str | None) -> JsonObject:
        """Change the labels of an object; None takes one away."""
        patch = {"metadata": {"labels": labels}}
        answer = await server.call(
            "PATCH", self.path(namespace, name), patch, content_type="application/merge-patch+json"
        )
        assert answer.status == 200, answer.json
        return answer.json

    async def delete(self, server: Server, namespace: str, *names: str) -> None:
        """Delete objects that nothing holds."""
        for name in names:
            answer = await server.call("DELETE", self.path(namespace, name))
            assert answer.status == 200, answer.json


LEASE = Sample(
    group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", spec={"holderIdentity": "somebody"}
)
LOCAL_QUEUE = Sample(
    group="kueue.x-k8s.io", version="v1beta2", plural="localqueues", kind="LocalQueue", spec={"clusterQueue": "cq"}
)


def names(answer: Any) -> list[str]:
    """The names of a list's items, in its order."""
    assert answer.status == 200, answer.json
    return [item["metadata"]["name"] for item in answer.json["items"]]


def version_of(obj: JsonObject) -> int:
    """The resourceVersion of an object or a list as a number."""
    return int(obj["metadata"]["resourceVersion"])


class Events:
    """The events of one watch, as they come."""

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self._lines = lines

    async def next(self) -> JsonObject:
        """The next event. Fails if none comes."""
        with anyio.fail_after(PATIENCE_S):
            return msgspec.json.decode(await anext(self._lines))

    async def take(self, count: int) -> list[JsonObject]:
        """The next so many events."""
        return [await self.next() for _ in range(count)]

    async def seen(self, count: int) -> list[tuple[str, str]]:
        """The next so many events as type and name."""
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in await self.take(count)]

    async def rest(self) -> list[JsonObject]:
        """Everything up to the end of the watch."""
        with anyio.fail_after(PATIENCE_S):
            return [msgspec.json.decode(line) async for line in self._lines]


@asynccontextmanager
async def watching(server: Server, path: str, **query: str) -> AsyncIterator[Events]:
    """A watch. Raises ApiError where the server refuses it."""
    asked = {"watch": "true", "timeoutSeconds": "60", **query}
    async with server.transport.stream(path, query=asked, read_timeout_s=PATIENCE_S) as lines:
        yield Events(lines)


async def watched(
    server: Server, path: str, *, headers: Mapping[str, str] | None = None, **query: str
) -> list[JsonObject]:
    """All events of a watch that lasts one second."""
    asked = {"watch": "true", "timeoutSeconds": "1", **query}
    answer = await server.transport.request("GET", path, query=asked, headers=headers or {})
    assert answer.status == 200, answer.body
    return [msgspec.json.decode(line) for line in answer.body.splitlines()]


def told(event: JsonObject) -> tuple[str, str, int]:
    """An event as its type, its object's name and its object's version."""
    return event["type"], event["object"]["metadata"].get("name", ""), version_of(event["object"])
