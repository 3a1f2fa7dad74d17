"""
From reflectors to stimuli: each resource that matters is listed and watched, for as long as a term lasts.

A reflector tells a list page by page; the machine compares whole lists, so the pages of one list are put together here.
Everything on the way is bounded: the stream between reflectors and here, and the machine's own queue of stimuli. When
the log is slow, the machine is; then these fill up, and the connections to the API server are no longer read.
"""

from collections.abc import Mapping, Sequence
from typing import Final, assert_never

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from headgate.adapters.jetstream.health import Dependency
from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.messages import Bookmark, Changes, Message
from headgate.adapters.kubernetes.messages import Listed as ListedPage
from headgate.adapters.kubernetes.reflector import Reflector, ReflectorSettings
from headgate.adapters.kubernetes.resources import Resource
from headgate.adapters.kubernetes.transport import Transport
from headgate.core.machine import Changed, Listed
from headgate.core.state import State
from headgate.processes.term import Offer

MESSAGES_MAX: Final = 64
"""Messages between all reflectors and the machine's queue; each holds a page or a burst of changes."""


class Watching:
    """The feeder of the informer bridge. One for the process; its reflectors begin anew with each term."""

    def __init__(
        self, transport: Transport, resources: Mapping[str, Resource], names: Sequence[str], *, page_items: int
    ) -> None:
        self._client = KubeClient(transport)
        self._resources = [resources[name] for name in names]
        self._settings = ReflectorSettings(page_items=page_items)
        self._reflectors: list[Reflector] = []

    async def __call__(self, state: State, offer: Offer) -> None:  # noqa: ARG002
        """Follow every resource until cancelled. A new term begins with lists: what was missed shows in them."""
        send, receive = anyio.create_memory_object_stream[Message](MESSAGES_MAX)
        self._reflectors = [Reflector(self._client, resource, settings=self._settings) for resource in self._resources]
        async with send, receive, anyio.create_task_group() as tasks:
            for reflector in self._reflectors:
                tasks.start_soon(reflector.run, send)
            await self._pass_on(receive, offer)

    async def _pass_on(self, messages: MemoryObjectReceiveStream[Message], offer: Offer) -> None:
        pages: dict[str, list[bytes]] = {}
        async for message in messages:
            name = message.resource.plural
            match message:
                case ListedPage():
                    whole = pages.setdefault(name, [])
                    if message.page == 0:
                        whole.clear()
                    whole.extend(bytes(item) for item in message.items)
                    if message.complete:
                        await offer(Listed(name, tuple(pages.pop(name)), message.resource_version))
                case Changes():
                    for change in message.changes:
                        await offer(Changed(name, change.type.value, bytes(change.object), change.resource_version))
                case Bookmark():
                    pass
                case _:
                    assert_never(message)

    def probe(self, started_ms: int) -> Dependency:
        """Whether the API server is heard; the resource that has failed for longest is named."""
        failing = [
            (reflector.health.failing_since, reflector) for reflector in self._reflectors if not reflector.health.ok
        ]
        if not failing:
            return Dependency(name="kubernetes watch", ok=True, since_ms=started_ms)
        since_s, reflector = min(failing, key=lambda each: each[0] or 0.0)
        error = f"{reflector.resource.plural}: {reflector.health.error}"
        return Dependency(name="kubernetes watch", ok=False, since_ms=int((since_s or 0.0) * 1000), error=error)
