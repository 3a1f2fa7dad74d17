"""
What a server has forgotten: lists, watches and the adapters' reflector after history is gone.

Forgetting takes the real server some seconds, so it happens once, under a reflector that watches and between two pages
of one that lists; every case looks at the same forgotten history.
"""

from collections.abc import Mapping
from typing import Any

import anyio
import msgspec
import pytest
from tests.contract.cases import status
from tests.contract.samples import LEASE, LOCAL_QUEUE, Sample, names, told, version_of, watching
from tests.contract.servers import Server

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.messages import Bookmark, Changes, ListPage, Message
from headgate.adapters.kubernetes.reflector import Reflector, ReflectorCounters, ReflectorSettings
from headgate.adapters.kubernetes.resources import LOCAL_QUEUES
from headgate.adapters.kubernetes.transport import Response

pytestmark = pytest.mark.anyio

CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
LIST_EXPIRED = "The resourceVersion for the provided list is too old."
STREAM = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
SETTINGS = ReflectorSettings(page_items=2, backoff_first_s=0.05, backoff_max_s=0.5)
PATIENCE_S = 60.0


class ForgettingTransport:
    """A transport on which an object is created, and then all history forgotten, before a list's second page."""

    def __init__(self, server: Server, namespace: str) -> None:
        self._server = server
        self._namespace = namespace
        self._forgotten = False
        self.stream = server.transport.stream

    async def request(self, method: str, path: str, *, query: Mapping[str, str] = {}, **rest: Any) -> Response:
        """See `Transport.request`."""
        if "continue" in query and not self._forgotten:
            self._forgotten = True
            await LOCAL_QUEUE.create(self._server, self._namespace, "f")
            await self._server.compact()
        return await self._server.transport.request(method, path, query=query, **rest)


class Forgotten(msgspec.Struct, kw_only=True):
    """The objects before the compaction, and what two reflectors received in the meantime."""

    namespace: str
    #: Of each sample the metadata of the first page of a list.
    pages: list[tuple[Sample, dict[str, Any]]]
    watched: list[Message]
    listed: list[Message]
    listing: ReflectorCounters


def listed_names(messages: list[Message]) -> list[str]:
    """The names on the pages of the last list among messages."""
    found: list[str] = []
    for message in messages:
        if isinstance(message, ListPage):
            found = found if message.page else []
            found += [msgspec.json.decode(item)["metadata"]["name"] for item in message.items]
    return found


async def hear(reflector: Reflector, into: list[Message], resume_rv: str = "", *, enough) -> None:
    """Run a reflector until enough has been received."""
    sink, source = anyio.create_memory_object_stream[Message](100)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks, sink, source:
            tasks.start_soon(lambda: reflector.run(sink, resume_rv=resume_rv))
            while not enough(into):
                into.append(await source.receive())
            tasks.cancel_scope.cancel()


def is_listed(messages: list[Message]) -> bool:
    """Whether a list is complete."""
    return any(isinstance(message, ListPage) and message.complete for message in messages)


def changed(messages: list[Message]) -> list[tuple[str, str]]:
    """Type and name of each change."""
    changes = [change for message in messages if isinstance(message, Changes) for change in message.changes]
    return [(change.type.value, change.meta.name) for change in changes]


def known(messages: list[Message]) -> set[str]:
    """The names in messages."""
    return {*listed_names(messages), *(name for _, name in changed(messages))}


@pytest.fixture(scope="module")
async def forgotten(server) -> Forgotten:
    """Objects, pages and two reflectors from before the server forgot."""
    namespace = await server.fresh_namespace()
    pages = []
    for sample in (LEASE, LOCAL_QUEUE):
        await sample.create(server, namespace, "a", "b", "c", "d", "e")
        first = await server.call("GET", sample.path(namespace), limit="2")
        pages.append((sample, first.json["metadata"]))
        await sample.delete(server, namespace, "c")
        await sample.create(server, namespace, "aa", "dd")
    watched: list[Message] = []
    listed: list[Message] = []
    client = KubeClient(ForgettingTransport(server, namespace))
    listing = Reflector(client, LOCAL_QUEUES, namespace=namespace, settings=SETTINGS)
    watching_on = Reflector(server.client, LOCAL_QUEUES, namespace=namespace, settings=SETTINGS)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: hear(watching_on, watched, enough=lambda found: "late" in known(found)))
        while not is_listed(watched):  # noqa: ASYNC110  (its own task collects; nothing sets an event)
            await anyio.sleep(0.01)
        await hear(listing, listed, enough=is_listed)
        await LOCAL_QUEUE.create(server, namespace, "late")
    return Forgotten(namespace=namespace, pages=pages, watched=watched, listed=listed, listing=listing.counters)


@pytest.fixture(params=[0, 1], ids=["leases", "localqueues"])
def page(request, forgotten):
    """A kind, and the metadata of a first page of its list from before."""
    return forgotten.pages[request.param]


async def test_a_forgotten_version_cannot_be_listed(server, forgotten, page):
    """410 Expired, for an exact version or with a limit; "not older than" it is answered with the present objects."""
    sample, meta = page
    path, version = sample.path(forgotten.namespace), meta["resourceVersion"]
    for query in ({"resourceVersionMatch": "Exact"}, {"limit": "2"}):
        answer = await server.call("GET", path, resourceVersion=version, **query)
        assert answer.json == status(410, "Expired", LIST_EXPIRED)
    newer = await server.call("GET", path, resourceVersion=version)
    assert names(newer)[:6] == ["a", "aa", "b", "d", "dd", "e"]


async def test_a_list_whose_version_is_forgotten_can_be_finished_inconsistently(server, forgotten, page):
    """The 410 offers another token, which continues after the same key with what is there now, at a new version."""
    sample, meta = page
    path = sample.path(forgotten.namespace)
    expired = await server.call("GET", path, limit="2", **{"continue": meta["continue"]})
    token = expired.json["metadata"].pop("continue")
    assert expired.json == status(410, "Expired", CONTINUE_EXPIRED)
    second = await server.call("GET", path, limit="2", **{"continue": token})
    assert names(second) == ["d", "dd"]
    assert version_of(second.json) > int(meta["resourceVersion"])
    third = await server.call("GET", path, limit="1", **{"continue": second.json["metadata"]["continue"]})
    assert names(third) == ["e"]
    assert third.json["metadata"]["resourceVersion"] == second.json["metadata"]["resourceVersion"]


async def test_a_watch_from_a_forgotten_version_ends_with_an_error_event(server, forgotten, page):
    """The watch is accepted, and its one event is 410 Expired with the oldest version that the server has."""
    sample, meta = page
    version = int(meta["resourceVersion"])
    for query in ({}, {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}):
        path = sample.path(forgotten.namespace)
        async with watching(server, path, resourceVersion=str(version), **query) as events:
            (event,) = await events.rest()
        oldest = int(event["object"]["message"].partition("(")[2].rstrip(")"))
        assert oldest > version
        message = f"too old resource version: {version} ({oldest})"
        assert event == {"type": "ERROR", "object": status(410, "Expired", message)}


async def test_a_streaming_list_needs_no_history(server, forgotten, page):
    """From a forgotten version it is answered with what is there; from its bookmark a watch continues."""
    sample, meta = page
    path = sample.path(forgotten.namespace)
    async with watching(server, path, resourceVersion=meta["resourceVersion"], **STREAM) as events:
        seen = []
        while (event := await events.next())["type"] == "ADDED":
            seen.append(event["object"]["metadata"]["name"])
    assert seen[:6] == ["a", "aa", "b", "d", "dd", "e"]
    (made,) = await sample.create(server, forgotten.namespace, server.fresh_name("zz"))
    async with watching(server, path, resourceVersion=str(version_of(event["object"]))) as events:
        assert told(await events.next()) == ("ADDED", made["metadata"]["name"], version_of(made))


async def test_a_reflector_that_watches_misses_nothing_when_history_is_forgotten(forgotten):
    """Whether its watch was cut or continued, from its mark or with a new list, it receives what comes after."""
    assert known(forgotten.watched) >= {"a", "aa", "b", "d", "dd", "e", "f", "late"}


async def test_a_reflector_whose_list_expires_between_its_pages_begins_again(forgotten):
    """Page 0 comes twice, and the list that is completed is consistent."""
    pages = [message for message in forgotten.listed if isinstance(message, ListPage)]
    assert [(page.page, page.complete) for page in pages] == [
        (0, False), (0, False), (1, False), (2, False), (3, True),
    ]  # fmt: skip
    assert forgotten.listing.expired == 1
    assert listed_names(forgotten.listed) == ["a", "aa", "b", "d", "dd", "e", "f"]
    assert len({page.resource_version for page in pages[1:]}) == 1


async def test_a_reflector_that_resumes_at_a_forgotten_mark_lists(server, forgotten):
    """The server accepts the watch and then answers 410, so a list follows; then it continues as without a mark."""
    _, meta = forgotten.pages[1]
    reflector = Reflector(server.client, LOCAL_QUEUES, namespace=forgotten.namespace, settings=SETTINGS)
    heard: list[Message] = []
    await hear(reflector, heard, meta["resourceVersion"], enough=is_listed)
    assert reflector.counters.expired == 1
    assert listed_names(heard)[:6] == ["a", "aa", "b", "d", "dd", "e"]
    assert not any(isinstance(message, Bookmark) for message in heard)
