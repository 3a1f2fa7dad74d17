"""The adapters' reflector: a list and every change after it, on and from whatever mark it is given."""

from typing import Any

import anyio
import msgspec
import pytest
from tests.contract.samples import LEASE, LOCAL_QUEUE, version_of

from headgate.adapters.kubernetes.messages import Changes, ListPage, Message, WatchResumed
from headgate.adapters.kubernetes.reflector import Reflector, ReflectorSettings
from headgate.adapters.kubernetes.resources import LEASES, LOCAL_QUEUES

pytestmark = pytest.mark.anyio

SETTINGS = ReflectorSettings(page_items=2, backoff_first_s=0.05, backoff_max_s=0.5)
PATIENCE_S = 30.0


@pytest.fixture(params=[(LEASE, LEASES), (LOCAL_QUEUE, LOCAL_QUEUES)], ids=["leases", "localqueues"])
def kind(request):
    """The sample and the resource that is followed."""
    return request.param


class Owner:
    """The receiver of a reflector: keeps the state that its messages make, and the messages."""

    def __init__(self) -> None:
        self.said: list[Message] = []
        self.state: dict[str, int] = {}
        self._fresh: dict[str, int] = {}

    def take(self, message: Message) -> None:
        """Apply one message."""
        self.said.append(message)
        if isinstance(message, ListPage):
            found = {obj["metadata"]["name"]: version_of(obj) for obj in map(msgspec.json.decode, message.items)}
            self._fresh = found if message.page == 0 else self._fresh | found
            self.state = self._fresh if message.complete else self.state
        elif isinstance(message, Changes):
            for change in message.changes:
                if change.type.value == "DELETED":
                    self.state.pop(change.meta.name)
                else:
                    self.state[change.meta.name] = int(change.meta.resource_version)

    def changes(self) -> list[tuple[str, str]]:
        """Type and name of each change, in order."""
        found = [change for message in self.said if isinstance(message, Changes) for change in message.changes]
        return [(change.type.value, change.meta.name) for change in found]


async def follow(reflector, owner, doing, *, until, resume_rv=""):
    """Run a reflector beside `doing`, which starts when it is synced, until the owner's state is as wished."""
    sink, source = anyio.create_memory_object_stream[Any](100)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks, sink, source:
            tasks.start_soon(lambda: reflector.run(sink, resume_rv=resume_rv))
            while not reflector.synced:
                owner.take(await source.receive())
            tasks.start_soon(doing)
            while not until(owner):
                owner.take(await source.receive())
            tasks.cancel_scope.cancel()


async def test_a_reflector_lists_and_then_follows(server, namespace, kind):
    """Pages of one version, then each change once and in order; its state is that of the server."""
    sample, resource = kind
    await sample.create(server, namespace, "a", "b", "c", "d", "e")

    async def change() -> None:
        await sample.create(server, namespace, "f")
        await sample.label(server, namespace, "a", x="1")
        await sample.delete(server, namespace, "b")
        await sample.create(server, namespace, "g")

    owner = Owner()
    reflector = Reflector(server.client, resource, namespace=namespace, settings=SETTINGS)
    await follow(reflector, owner, change, until=lambda owner: "g" in owner.state)
    pages = [message for message in owner.said if isinstance(message, ListPage)]
    assert [(page.page, page.complete) for page in pages] == [(0, False), (1, False), (2, True)]
    assert owner.changes() == [("ADDED", "f"), ("MODIFIED", "a"), ("DELETED", "b"), ("ADDED", "g")]
    listed = (await server.call("GET", sample.path(namespace))).json
    assert owner.state == {item["metadata"]["name"]: version_of(item) for item in listed["items"]}
    assert reflector.counters.failures == 0


async def test_a_reflector_resumes_at_a_mark(server, namespace, kind):
    """After a restart nothing is listed: what happened meanwhile comes as changes, deletions included."""
    sample, resource = kind
    await sample.create(server, namespace, "a", "b")
    mark = (await server.call("GET", sample.path(namespace))).json["metadata"]["resourceVersion"]
    await sample.delete(server, namespace, "a")
    await sample.create(server, namespace, "c")

    async def change() -> None:
        await sample.create(server, namespace, "d")

    owner = Owner()
    owner.state = {"a": 0, "b": 0}
    reflector = Reflector(server.client, resource, namespace=namespace, settings=SETTINGS)
    await follow(reflector, owner, change, until=lambda owner: "d" in owner.state, resume_rv=mark)
    assert owner.said[0] == WatchResumed(resource=resource, resource_version=mark)
    assert owner.changes() == [("DELETED", "a"), ("ADDED", "c"), ("ADDED", "d")]
    assert reflector.counters.lists == 0


async def test_a_reflector_notices_a_mark_from_the_future(server, namespace, kind):
    """A server that has not reached the mark was restored or replaced, and would be silent: it is listed."""
    sample, resource = kind
    await sample.create(server, namespace, "a")

    async def nothing() -> None:
        pass

    owner = Owner()
    reflector = Reflector(server.client, resource, namespace=namespace, settings=SETTINGS)
    await follow(reflector, owner, nothing, until=lambda owner: "a" in owner.state, resume_rv="99999999")
    assert (reflector.counters.rewound, reflector.counters.lists) == (1, 1)


async def test_a_reflector_follows_a_selection(server, namespace, kind):
    """What enters the selection is added, what leaves it is deleted."""
    sample, resource = kind
    await sample.create(server, namespace, "a", labels={"chosen": "yes"})
    await sample.create(server, namespace, "b")

    async def change() -> None:
        await sample.label(server, namespace, "b", chosen="yes")
        await sample.label(server, namespace, "a", chosen=None)
        await sample.create(server, namespace, "end", labels={"chosen": "yes"})

    owner = Owner()
    selectors = {"labelSelector": "chosen=yes"}
    reflector = Reflector(server.client, resource, namespace=namespace, selectors=selectors, settings=SETTINGS)
    await follow(reflector, owner, change, until=lambda owner: "end" in owner.state)
    assert owner.changes() == [("ADDED", "b"), ("DELETED", "a"), ("ADDED", "end")]
    assert set(owner.state) == {"b", "end"}


async def test_a_reflector_goes_on_when_its_watch_ends(server, namespace, kind):
    """The server ends each watch after its time; the next begins where it ended, and nothing is lost in between."""
    sample, resource = kind
    await sample.create(server, namespace, "a")
    settings = msgspec.structs.replace(SETTINGS, watch_s=1, watch_jitter_s=0, short_watch_s=0.1)
    reflector = Reflector(server.client, resource, namespace=namespace, settings=settings)

    async def change() -> None:
        number = 0
        while reflector.counters.watches < 3:
            await sample.create(server, namespace, f"b{number}")
            number += 1
            await anyio.sleep(0.1)
        await sample.create(server, namespace, "end")

    owner = Owner()
    await follow(reflector, owner, change, until=lambda owner: "end" in owner.state)
    listed = (await server.call("GET", sample.path(namespace))).json
    assert owner.state == {item["metadata"]["name"]: version_of(item) for item in listed["items"]}
    assert [name for _, name in owner.changes()] == [*(f"b{n}" for n in range(len(owner.state) - 2)), "end"]
    assert reflector.counters.lists == 1
