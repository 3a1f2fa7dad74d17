"""
From reflectors to stimuli: each relevant resource is listed and watched, for as long as a term lasts.

A reflector delivers a list page by page; the machine compares whole lists, so the pages of one list are joined here.
Every buffer is bounded: the stream between reflectors and here, and the machine's own queue of stimuli. When the log is
slow, the machine is too; then these fill up, and the connections to the API server are no longer read.

Resources with a mark in the log (`State.resource_versions`) are not listed: their watch continues from there. That is
valid only if the marks come from this cluster, the objects were read by the rules of this program, and the history of
the cluster still is the one that the marks belong to, which the anchor in the log proves
(`headgate.core.log.cluster_anchors`): one request. Otherwise, and for versions that the server has dropped or never
reached, everything is listed as at the first start.
"""

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, assert_never

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from headgate.adapters.backoff import Backoff
from headgate.adapters.jetstream.health import Dependency
from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.errors import ApiError, KubernetesError, is_operating_error
from headgate.adapters.kubernetes.messages import Bookmark, Changes, ListPage, Message, ObjectMeta, WatchResumed
from headgate.adapters.kubernetes.reflector import Reflector, ReflectorSettings
from headgate.adapters.kubernetes.resources import NAMESPACES, Resource
from headgate.adapters.kubernetes.retry import ApiServerHealth, RateLimiter, Repeats, Sleep
from headgate.adapters.kubernetes.transport import Transport
from headgate.core.log.cluster_anchors import Anchor, anchor_of, parse_anchor, within
from headgate.core.machine.contract import Changed, Listed, Progressed, Resumed
from headgate.core.reading.decoding import CLUSTER_NAMESPACE, READING, UnreadableObjectError, cluster_id_of
from headgate.core.state.tables import State
from headgate.processes.runtime.leadership import Offer

_LOG: Final = logging.getLogger(__name__)

MESSAGES_MAX: Final = 64
"""Messages between all reflectors and the machine's queue; each holds a page or a burst of changes."""

ANCHOR_S_MAX: Final = 10.0
"""How long to wait for the change that proves the history. The server delivers it at once or never."""


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    object: msgspec.Raw


class _Versioned(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta


def _anchor_in(line: bytes, resource: str) -> Anchor | None:
    """The anchor that a line of a watch is; None for anything else, such as an ERROR."""
    try:
        said = msgspec.json.decode(line, type=_Line)
        meta = msgspec.json.decode(said.object, type=_Versioned).metadata
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return anchor_of(resource, meta.resource_version, said.type, bytes(said.object))


class Watching:
    """
    The feeder of the informer bridge. One per process; its reflectors start anew with each term.

    `names` gives, at the start of a term, the names of the resources to follow: those that the bridge's machine has to
    be shown. With `resumes` False every term begins with lists; `listed_anew` gives the resources of which this
    term begins with lists. `limiter` bounds the rate of new lists and watches.
    """

    def __init__(
        self,
        transport: Transport,
        resources: Mapping[str, Resource],
        names: Callable[[], Sequence[str]],
        *,
        page_items: int,
        resumes: bool = True,
        sleep: Sleep = anyio.sleep,
        limiter: RateLimiter | None = None,
        listed_anew: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._client = KubeClient(transport, limiter)
        self._known = resources
        self._names = names
        self._listed_anew = listed_anew
        self._resources: list[Resource] = []
        self._settings = ReflectorSettings(page_items=page_items)
        self._resumes = resumes
        self._sleep = sleep
        self._reflectors: list[Reflector] = []
        self._following: dict[str, anyio.CancelScope] = {}
        self._begin: Callable[[Resource, str], None] | None = None
        # Resources that are to be listed in this term, whatever their mark.
        self._without_mark: dict[str, None] = {}
        # Health of the requests before the reflectors start.
        self._asking = ApiServerHealth()
        # By resource and event, in terms that are over.
        self._counted: Counter[tuple[str, str]] = Counter()

    async def __call__(self, state: State, offer: Offer) -> None:
        """Follow every resource until cancelled: from its mark in the log, or beginning with a list."""
        self._resources = [self._known[name] for name in self._names()]
        self._following, self._without_mark = {}, {}
        # Read before anything of this term is appended: later marks come from these very watches.
        cluster_id, marks = state.cluster_id, dict(state.resource_versions)
        for name in self._listed_anew():
            marks.pop(name, None)
        is_readable = self._resumes and state.reading == READING and cluster_id != ""
        if not (marks and is_readable and await self._ask_cluster_id() == cluster_id):
            marks = {}
        if marks:
            anchor = parse_anchor(state.anchor)
            proven = anchor is not None and await self._is_shown(anchor)
            marks = {name: within(mark, anchor) for name, mark in marks.items()} if anchor and proven else {}
        _LOG.info("resuming the watches of %d of %d resources", len(marks), len(self._resources))
        send, receive = anyio.create_memory_object_stream[Message](MESSAGES_MAX)
        self._counted += self._counts_of_term()
        self._reflectors = []
        # A message about an unreachable server applies to all reflectors.
        repeats = Repeats()

        def begin(resource: Resource, mark: str) -> None:
            reflector = Reflector(self._client, resource, settings=self._settings, repeats=repeats)
            self._reflectors.append(reflector)
            tasks.start_soon(self._follow, reflector, send, mark)

        async with send, receive, anyio.create_task_group() as tasks:
            for resource in self._resources:
                begin(resource, marks.get(resource.name, ""))
            self._begin = begin
            try:
                await self._pass_on(receive, offer)
            finally:
                self._begin = None

    async def _follow(self, reflector: Reflector, send: MemoryObjectSendStream[Message], mark: str) -> None:
        name = reflector.resource.name
        while reflector in self._reflectors:
            with anyio.CancelScope() as scope:
                self._following[name] = scope
                await reflector.run(send, resume_rv="" if name in self._without_mark else mark)

    def begin(self, names: Iterable[str]) -> None:
        """Follow these resources, too, for the rest of the term, beginning with lists; nothing between terms."""
        if self._begin is None:
            return
        followed = {reflector.resource.name for reflector in self._reflectors}
        for name in names:
            if name not in followed:
                self._begin(self._known[name], "")

    def end(self, names: Iterable[str]) -> None:
        """Follow these resources no longer."""
        for name in names:
            ended = [reflector for reflector in self._reflectors if reflector.resource.name == name]
            self._counted += self._counts_of(ended)
            self._reflectors = [reflector for reflector in self._reflectors if reflector not in ended]
            if ended and name in self._following:
                self._following.pop(name).cancel()

    def list_again(self, names: Iterable[str]) -> None:
        """Leave the watches of these resources and begin with lists: their objects are read otherwise from now on."""
        for name in names:
            _LOG.info("%s: listing again, because the configuration has other objects or labels of them read", name)
            self._without_mark[name] = None
            if name in self._following:
                self._following[name].cancel()

    async def _ask_cluster_id(self) -> str:
        """The id of this cluster; "" when the server does not return it."""
        found = await self._answered(lambda: self._client.get(NAMESPACES, CLUSTER_NAMESPACE), "which cluster this is")
        try:
            return "" if found is None else cluster_id_of(found)
        except UnreadableObjectError as error:
            _LOG.warning("the identity of the cluster cannot be read: %s", error)
            return ""

    async def _is_shown(self, anchor: Anchor) -> bool:
        """Whether the server's history has the change of the anchor."""
        resource = next((each for each in self._resources if each.name == anchor.resource), None)
        if resource is None:
            return False
        query = {"watch": "true", "resourceVersion": str(anchor.version - 1), "timeoutSeconds": str(int(ANCHOR_S_MAX))}

        async def ask() -> bytes:
            # A server that is behind the version sends nothing.
            with anyio.move_on_after(ANCHOR_S_MAX):
                async with self._client.stream(resource.path(), query=query, read_timeout_s=None) as lines:
                    return await anext(lines, b"")
            return b""

        line = await self._answered(ask, "whether the history is the one of the marks")
        if line is not None and anchor == _anchor_in(line, resource.name):
            return True
        # Dropped, as after each restart of an API server, or another history: all is listed in either case.
        _LOG.info("the API server does not show %s %s as the log has it", resource.plural, anchor.version)
        return False

    async def _answered(self, ask: Callable[[], Awaitable[bytes]], what: str) -> bytes | None:
        """The answer, waited for without limit; None when the server refuses it permanently."""
        # Jitter needs no cryptography.
        backoff = Backoff(first_s=0.5, max_s=10.0)
        while True:
            try:
                answer = await ask()
            except KubernetesError as error:
                if isinstance(error, ApiError) and not is_operating_error(error):
                    _LOG.warning("%s cannot be read: %s", what, error)
                    self._asking = ApiServerHealth()
                    return None
                since_s = self._asking.failing_since or time.time()
                self._asking = ApiServerHealth(failing_since=since_s, error=str(error))
                delay_s = backoff.next_s(error.retry_after if isinstance(error, ApiError) else None)
                _LOG.warning("%s; asking again in %.1f s", error, delay_s)
                await self._sleep(delay_s)
            else:
                self._asking = ApiServerHealth()
                return answer

    async def _pass_on(self, messages: MemoryObjectReceiveStream[Message], offer: Offer) -> None:
        pages: dict[str, list[bytes]] = {}
        async for message in messages:
            name = message.resource.name
            match message:
                case ListPage():
                    whole = pages.setdefault(name, [])
                    if message.page == 0:
                        whole.clear()
                    whole.extend(bytes(item) for item in message.items)
                    if message.complete:
                        await offer(Listed(name, tuple(pages.pop(name)), message.resource_version))
                case Changes():
                    for change in message.changes:
                        await offer(Changed(name, change.type.value, bytes(change.object), change.resource_version))
                case WatchResumed():
                    await offer(Resumed(name, message.resource_version))
                case Bookmark():
                    await offer(Progressed(name, message.resource_version))
                case _:
                    assert_never(message)

    def counts(self) -> Iterable[tuple[float, Mapping[str, str]]]:
        """Counts of watch events since the process began, by resource."""
        counted = self._counted + self._counts_of_term()
        return ((count, {"resource": resource, "what": what}) for (resource, what), count in counted.items())

    def _counts_of_term(self) -> Counter[tuple[str, str]]:
        return self._counts_of(self._reflectors)

    def _counts_of(self, reflectors: Iterable[Reflector]) -> Counter[tuple[str, str]]:
        return Counter(
            {
                (reflector.resource.name, what): count
                for reflector in reflectors
                for what, count in msgspec.structs.asdict(reflector.counters).items()
            }
        )

    def probe(self, started_ms: int) -> Dependency:
        """Whether the API server responds; the resource that has failed for longest is named."""
        if not self._asking.ok:
            since_ms = int((self._asking.failing_since or 0.0) * 1000)
            return Dependency(name="kubernetes watch", ok=False, since_ms=since_ms, error=self._asking.error)
        failing = [
            (reflector.health.failing_since, reflector) for reflector in self._reflectors if not reflector.health.ok
        ]
        if not failing:
            return Dependency(name="kubernetes watch", ok=True, since_ms=started_ms)
        since_s, reflector = min(failing, key=lambda each: each[0] or 0.0)
        error = f"{reflector.resource.name}: {reflector.health.error}"
        return Dependency(name="kubernetes watch", ok=False, since_ms=int((since_s or 0.0) * 1000), error=error)
