"""
From reflectors to stimuli: each resource that matters is listed and watched, for as long as a term lasts.

A reflector tells a list page by page; the machine compares whole lists, so the pages of one list are put together here.
Everything on the way is bounded: the stream between reflectors and here, and the machine's own queue of stimuli. When
the log is slow, the machine is; then these fill up, and the connections to the API server are no longer read.

What the log has a mark of (`State.resource_versions`) is not listed: its watch goes on from there. That holds only if
the marks were given out by this cluster, and the objects read by the rules of this program; otherwise, and for what the
server has forgotten or never reached, everything is listed as at the first start.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Final, assert_never

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from headgate.adapters.jetstream.health import Dependency
from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.errors import ApiError, KubernetesError, is_operating_error
from headgate.adapters.kubernetes.messages import Bookmark, Changes, Message
from headgate.adapters.kubernetes.messages import Listed as ListedPage
from headgate.adapters.kubernetes.messages import Resumed as ResumedWatch
from headgate.adapters.kubernetes.reflector import Reflector, ReflectorSettings
from headgate.adapters.kubernetes.resources import NAMESPACES, Resource
from headgate.adapters.kubernetes.retry import Backoff, Sleep
from headgate.adapters.kubernetes.transport import Transport
from headgate.core.ingest import CLUSTER_NAMESPACE, READING, UnreadableObjectError, cluster_id_of
from headgate.core.machine import Changed, Listed, Progressed, Resumed
from headgate.core.state import State
from headgate.processes.term import Offer

_LOG: Final = logging.getLogger(__name__)

MESSAGES_MAX: Final = 64
"""Messages between all reflectors and the machine's queue; each holds a page or a burst of changes."""


class Watching:
    """
    The feeder of the informer bridge. One for the process; its reflectors begin anew with each term.

    With `resumes` False every term begins with lists.
    """

    def __init__(
        self,
        transport: Transport,
        resources: Mapping[str, Resource],
        names: Sequence[str],
        *,
        page_items: int,
        resumes: bool = True,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        self._client = KubeClient(transport)
        self._resources = [resources[name] for name in names]
        self._settings = ReflectorSettings(page_items=page_items)
        self._resumes = resumes
        self._sleep = sleep
        self._reflectors: list[Reflector] = []

    async def __call__(self, state: State, offer: Offer) -> None:
        """Follow every resource until cancelled: from its mark in the log, or beginning with a list."""
        # Read before anything of this term is appended: later marks come from these very watches.
        cluster_id, marks = state.cluster_id, dict(state.resource_versions)
        is_readable = self._resumes and state.reading == READING and cluster_id != ""
        if not (marks and is_readable and await self._ask_cluster_id() == cluster_id):
            marks = {}
        _LOG.info("resuming the watches of %d of %d resources", len(marks), len(self._resources))
        send, receive = anyio.create_memory_object_stream[Message](MESSAGES_MAX)
        self._reflectors = [Reflector(self._client, resource, settings=self._settings) for resource in self._resources]
        async with send, receive, anyio.create_task_group() as tasks:
            for reflector in self._reflectors:
                tasks.start_soon(partial(reflector.run, send, resume_rv=marks.get(reflector.resource.plural, "")))
            await self._pass_on(receive, offer)

    async def _ask_cluster_id(self) -> str:
        """Which cluster this is; "" when it does not tell. Waits for as long as there is no answer."""
        # Jitter needs no cryptography.
        backoff = Backoff(first_s=0.5, max_s=30.0, random=Random())  # noqa: S311
        while True:
            try:
                return cluster_id_of(await self._client.get(NAMESPACES, CLUSTER_NAMESPACE))
            except UnreadableObjectError as error:
                _LOG.warning("which cluster this is cannot be told: %s", error)
                return ""
            except KubernetesError as error:
                if isinstance(error, ApiError) and not is_operating_error(error.status):
                    _LOG.warning("which cluster this is cannot be told: %s", error)
                    return ""
                delay_s = backoff.next_s(error.retry_after if isinstance(error, ApiError) else None)
                _LOG.warning("%s; asking again in %.1f s", error, delay_s)
                await self._sleep(delay_s)

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
                case ResumedWatch():
                    await offer(Resumed(name, message.resource_version))
                case Bookmark():
                    await offer(Progressed(name, message.resource_version))
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
