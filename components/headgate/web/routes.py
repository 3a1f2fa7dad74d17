"""
The routes of the read side, and the mapping from requests to answers.

    GET /                                  a page for people
    GET /queues?at=                        every ClusterQueue: waiting, holding, usage
    GET /pending?clusterQueue=|localQueue= pending workloads in order, reasons, wake conditions (&at= &limit=)
    GET /pods?at=                          pods that were tried and have no node, and why (&limit= &namespace=)
    GET /topology?at=                      every flavor with a topology: its levels, capacity, use
    GET /topology/<flavor>?at=&resource=   the tree of its domains, as JSON or (&format=svg) as a picture
    GET /state?at=&table=                  the state: an overview, or the rows of one table (&limit= &after=)
    GET /state/hash?at=                    the hash of the canonical state
    GET /workloads/<namespace>/<name>?at=  one workload's record and status
    GET /explain/<namespace>/<name>?at=    its whole history
    GET /explain/pods/<namespace>/<name>?at= that of a pod, with where it could go
    GET /events?from=&type=&namespace=     server-sent events (&follow=false ends at the log's end; Last-Event-ID)
    GET /events/types                      every type of event
    GET /apis/visibility.kueue.x-k8s.io/   Kueue's visibility API (headgate.web.visibility)

`at` is a position (`812`) or a time (RFC 3339); without it the live state answers. Live answers are computed within one
step of the loop, so they are of one position, and are bounded; answers that need folding are computed in a worker
thread. `headgate.web.access` authorizes requests; a caller with access to some namespaces only adds `namespace=A,B` to
/pending, /pods, /events and tables of /state.
"""
# Over 400 lines: one handler for each route of the list above, and what they share in reading a request.

import datetime as dt
import importlib.resources
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from aiohttp import web

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kubeconfig import SERVICE_ACCOUNT, resolve
from headgate.adapters.kubernetes.retry import RateLimiter
from headgate.adapters.log import Log, LogEntry
from headgate.core import fold
from headgate.core.fold.quarantine import EventFailedError
from headgate.core.kubernetes.numbers import decimal
from headgate.core.log.refusal import CommitFilter, admitted
from headgate.core.state.tables import State
from headgate.core.views.diagnosis import standing
from headgate.core.views.explain import Explainer, Lookup, Story, UnknownWorkloadError
from headgate.core.views.topology import topology_view
from headgate.core.views.topology_json import to_plain, topology_summaries
from headgate.core.views.topology_picture import picture
from headgate.events.commit import LoggedCommit, decode_entry
from headgate.events.ids import PodKey, Seq, WorkloadKey
from headgate.events.registry import TAGS
from headgate.processes.entry import ReadData
from headgate.processes.runtime.process_status import Phase
from headgate.processes.runtime.settings import Settings, SettingsError
from headgate.processes.snapshots.point_in_time import NotInLogError, Past, treatments_of
from headgate.web import answers, guard, visibility
from headgate.web.access import (
    KUEUE,
    NAMESPACES_MAX,
    VISIBILITY,
    Access,
    Caller,
    ForbiddenError,
    KubernetesAccess,
    NoAnswerError,
    OpenAccess,
    Right,
    UnauthorizedError,
    is_loopback,
)
from headgate.web.aggregated import listening_in
from headgate.web.answers import NoSuchQueueError, NoSuchTableError
from headgate.web.events import Filter, parse_position
from headgate.web.guard import BadRequestError, NotReadyError, to_json
from headgate.web.streams import CLIENTS_MAX, Streams

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from headgate.core.views.pod_story import PodStory

LIMIT: Final = 1_000
LIMIT_MAX: Final = 10_000
REVIEWS_QPS: Final = 50
"""Reviews by the API server per second, for tokens and permissions that are not cached."""

_VISIBILITY: Final = f"/apis/{visibility.GROUP}"


def add_routes(app: web.Application, view: ReadData) -> None:
    """Add the read side to a process's HTTP server."""
    access = access_of(app, view.settings)
    side = ReadSide(view, access)
    guard.install(app, PAGE)
    if view.settings.visibility.enabled:
        app.cleanup_ctx.append(partial(listening_in, view.settings, partial(add_visibility, view)))
    _add_visibility(app, side)
    for path, handler in (
        ("/", side.index),
        ("/queues", side.queues),
        ("/pending", side.pending),
        ("/pods", side.pods),
        ("/topology", side.topologies),
        ("/topology/{flavor}", side.topology),
        ("/state", side.state),
        ("/state/hash", side.state_hash),
        ("/workloads/{namespace}/{name}", side.workload),
        ("/explain/{namespace}/{name}", side.explain),
        ("/explain/pods/{namespace}/{name}", side.explain_pod),
        ("/events", side.events),
        ("/events/types", side.event_types),
    ):
        app.router.add_get(path, handler)


def add_visibility(view: ReadData, app: web.Application, access: Access) -> None:
    """Add the visibility API alone, for callers that `access` knows."""
    guard.install(app, PAGE)
    _add_visibility(app, ReadSide(view, access))


def _add_visibility(app: web.Application, side: "ReadSide") -> None:
    for path, handler in (
        ("/apis", side.visibility_groups),
        (_VISIBILITY, side.visibility_group),
        (f"{_VISIBILITY}/{{version}}", side.visibility_resources),
        (f"{_VISIBILITY}/{{version}}/clusterqueues/{{name}}/pendingworkloads", side.visibility_pending),
        (
            f"{_VISIBILITY}/{{version}}/namespaces/{{namespace}}/localqueues/{{name}}/pendingworkloads",
            side.visibility_pending,
        ),
    ):
        app.router.add_get(path, handler)


PAGE: Final = importlib.resources.files("headgate.web").joinpath("index.html").read_text()


def access_of(app: web.Application, settings: Settings) -> Access:
    """
    The access rules, by `http.authentication`.

    Raises SettingsError where all clients that reach the port would see everything without explicit configuration.
    """
    http = settings.http
    way = http.authentication
    if way == "auto" and not is_loopback(http.host):
        way = "kubernetes" if SERVICE_ACCOUNT.exists() else way
        if way == "auto":
            raise SettingsError(
                f"http.host {http.host}: the read side would show everything to whoever reaches this address: set "
                "http.authentication to kubernetes (callers show a token of the cluster) or to off, or http.host to "
                "127.0.0.1"
            )
    if way != "kubernetes":
        return OpenAccess(None if way == "off" else frozenset({http.host}))
    opened = _Opened()
    app.cleanup_ctx.append(partial(_opened, opened, settings))
    return opened


class _Opened:
    """Access by the API server, opened when the application starts."""

    def __init__(self) -> None:
        self.access: Access | None = None

    @property
    def _access(self) -> Access:
        if self.access is None:
            raise NoAnswerError("the API server is not connected yet")
        return self.access

    async def caller(self, request: web.Request) -> Caller | None:
        """See `Access.caller`."""
        return await self._access.caller(request)

    async def require(self, caller: Caller | None, right: Right) -> None:
        """See `Access.require`."""
        await self._access.require(caller, right)


async def _opened(opened: _Opened, settings: Settings, _: web.Application) -> AsyncIterator[None]:
    kubernetes = settings.kubernetes
    access = resolve(server=kubernetes.server, kubeconfig=kubernetes.kubeconfig, context=kubernetes.context)
    async with open_transport(access) as transport:
        opened.access = KubernetesAccess(KubeClient(transport, RateLimiter(qps=REVIEWS_QPS, burst=2 * REVIEWS_QPS)))
        yield


class ReadSide:
    """The handlers. `view` is the data of the process."""

    def __init__(self, view: ReadData, access: Access) -> None:
        self.streams = Streams(self._admits)
        self._view = view
        self._access = access
        self._past: Past | None = None
        self._explaining = anyio.Lock()

    def _admits(self, logged: LoggedCommit) -> bool:
        state = self._view.state
        return state is not None and admitted(state, logged)

    # --- request parameters ----------------------------------------------------------------------------------------

    @property
    def _log(self) -> Log:
        if self._view.log is None:
            raise NotReadyError("the log is not connected yet; /readyz shows what is missing")
        return self._view.log

    def _live(self) -> State:
        state = self._view.state
        if state is None:
            raise NotReadyError(f"the log is not folded yet: {self._view.status.detail}")
        return state

    def _history(self) -> Past:
        if self._past is None:
            log = self._log
            assert self._view.blobs is not None, "log and blobs are opened together"
            self._past = Past(log, self._view.blobs, self._view.settings.cell, self._view.trusts)
        return self._past

    async def _position(self, request: web.Request) -> Seq | None:
        """The position that `at` means; None for the live state."""
        text = request.query.get("at", "")
        if text in ("", "now"):
            return None
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return parse_position(text).seq
        try:
            # An unescaped plus sign of a time zone arrives as a blank.
            moment = dt.datetime.fromisoformat(text.replace(" ", "+"))
        except ValueError:
            raise BadRequestError(f"at={text}: neither a position (812) nor a time (2026-01-31T12:00:00Z)") from None
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
        return await self._history().position_at(int(moment.timestamp() * 1000))

    async def _state(self, request: web.Request) -> State:
        """The requested state. A live one is only valid until the next await."""
        position = await self._position(request)
        live = self._view.state
        if position is None or (live is not None and live.position == position):
            return self._live()
        return await self._history().state_at(position)

    @staticmethod
    def _limit(request: web.Request) -> int:
        text = request.query.get("limit", str(LIMIT))
        limit = decimal(text)
        if limit is None or not 1 <= limit <= LIMIT_MAX:
            raise BadRequestError(f"limit={text}: a number from 1 to {LIMIT_MAX}")
        return limit

    # --- authorization ---------------------------------------------------------------------------------------------

    async def _known(self, request: web.Request) -> None:
        """Only for callers with an identity, or where none is needed."""
        await self._access.caller(request)

    async def _may(self, request: web.Request, *rights: Right) -> None:
        caller = await self._access.caller(request)
        for right in rights:
            await self._access.require(caller, right)

    async def _may_list(
        self, request: web.Request, namespaces: tuple[str, ...], *, resource: str = "workloads", group: str = KUEUE
    ) -> None:
        """Workloads, or other objects, in some namespaces, or in all if none is given."""
        if len(namespaces) > NAMESPACES_MAX:
            raise BadRequestError(f"namespace: {len(namespaces)} are asked for, at most {NAMESPACES_MAX} can be")
        try:
            await self._may(
                request,
                *(Right(verb="list", group=group, resource=resource, namespace=each) for each in namespaces or ("",)),
            )
        except ForbiddenError as error:
            if namespaces:
                raise
            raise ForbiddenError(f"{error}; ask for some with namespace=A,B") from error

    # --- answers ---------------------------------------------------------------------------------------------------

    async def index(self, _: web.Request) -> web.StreamResponse:
        """GET /: a page for people, which reads the API below."""
        return web.Response(text=PAGE, content_type="text/html")

    async def queues(self, request: web.Request) -> web.StreamResponse:
        """
        GET /queues.

        Query: `at`. Every ClusterQueue: what waits, what holds quota, and the usage of each flavor. Needs
        `list` of ClusterQueues.
        """
        await self._may(request, Right(verb="list", resource="clusterqueues", is_namespaced=False))
        state = await self._state(request)
        rows = answers.queues(state)
        return to_json({"cell": state.cell, "position": state.position, "now_ms": state.now_ms, "queues": rows})

    async def pending(self, request: web.Request) -> web.StreamResponse:
        """
        GET /pending.

        Query: `clusterQueue=NAME` or `localQueue=NAMESPACE/NAME`, `at`, `limit` (at most 10,000), `namespace`.
        The pending workloads of a queue in their order: why each waits, and what would wake it. Needs `list` of
        Workloads, in the namespaces asked for or in all.
        """
        limit = self._limit(request)
        cluster_queue = request.query.get("clusterQueue", "")
        local_queue = request.query.get("localQueue", "")
        if bool(cluster_queue) == bool(local_queue):
            raise BadRequestError("name the queue: clusterQueue=NAME, or localQueue=NAMESPACE/NAME")
        namespaces = _listed(request.query.get("namespace", ""))
        await self._may_list(request, (local_queue.partition("/")[0],) if local_queue else namespaces)
        state = await self._state(request)
        rows = answers.pending(
            state, cluster_queue=cluster_queue, local_queue=local_queue, namespaces=namespaces, limit=limit
        )
        return to_json({"position": state.position, "pending": rows})

    async def pods(self, request: web.Request) -> web.StreamResponse:
        """
        GET /pods.

        Query: `at`, `limit` (at most 10,000), `namespace`. The pods that were tried and have no node, with the reason
        and message of the condition PodScheduled, and how many nodes each plugin refuses; first the one that has been
        refused so for the longest time. Empty where Headgate places no pods. Needs `list` of Pods, in the namespaces
        asked for or in all.
        """
        limit = self._limit(request)
        namespaces = _listed(request.query.get("namespace", ""))
        await self._may_list(request, namespaces, resource="pods", group="")
        state = await self._state(request)
        rows = answers.unplaced_pods(state, namespaces=namespaces, limit=limit)
        return to_json({"position": state.position, "now_ms": state.now_ms, "pods": rows})

    async def topologies(self, request: web.Request) -> web.StreamResponse:
        """
        GET /topology.

        Query: `at`. Every ResourceFlavor with a topology: its levels, how many domains each has, and the amounts of
        its most used resource. Needs `list` of Nodes.
        """
        await self._may(request, _NODES)
        state = await self._state(request)
        return to_json({"position": state.position, "topologies": topology_summaries(state)})

    async def topology(self, request: web.Request) -> web.StreamResponse:
        """
        GET /topology/<flavor>.

        Query: `at`, `resource`, `format` (`json` or `svg`). The tree of a ResourceFlavor's topology, as `headgate
        topology show` prints it: each domain with its capacity, what topology-aware workloads use of it
        (`topology_aware`), what other pods do (`other`), and what is free, by resource; with `resource`, of that one.
        `domains` are nested, in the order of their values; those of the lowest level have the number of pods of each
        workload. `resource` is the one that is used most; the picture shows it. `left_out` has nodes of the flavor
        that are not in the tree. Needs `list` of Nodes. Names of workloads are shown to those who may `list`
        Workloads in all namespaces.
        """
        await self._may(request, _NODES)
        names = await self._may_see_workloads(request)
        form = request.query.get("format", "json")
        if form not in ("json", "svg"):
            raise BadRequestError(f"format={form}: json or svg")
        state = await self._state(request)
        view = topology_view(state, request.match_info["flavor"], request.query.get("resource") or None)
        if form == "svg":
            drawn = await anyio.to_thread.run_sync(partial(picture, view, names=names))
            return web.Response(text=drawn, content_type="image/svg+xml")
        return await anyio.to_thread.run_sync(lambda: to_json(to_plain(view, names=names)))

    async def _may_see_workloads(self, request: web.Request) -> bool:
        try:
            await self._may(request, Right(verb="list", resource="workloads"))
        except ForbiddenError:
            return False
        return True

    async def state(self, request: web.Request) -> web.StreamResponse:
        """
        GET /state.

        Query: `at`, `table`, `namespace`, `limit`, `after`. An overview of the state, or the rows of one table.
        `after` is the key of the last row of the page before. Needs `list` of Workloads.
        """
        limit, name = self._limit(request), request.query.get("table", "")
        namespaces = _listed(request.query.get("namespace", "")) if name else ()
        await self._may_list(request, namespaces)
        state = await self._state(request)
        if name:
            after = request.query.get("after", "")
            return to_json(answers.table(state, name, namespaces=namespaces, limit=limit, after=after))
        return to_json(answers.overview(state))

    async def state_hash(self, request: web.Request) -> web.StreamResponse:
        """
        GET /state/hash.

        Query: `at`. The hash of the canonical state, and of the log up to there. Needs `list` of Workloads in
        all namespaces.
        """
        await self._may_list(request, ())
        state = await self._state(request)
        live = state is self._view.state
        position, log_hash = state.position, state.log_hash
        hashed = fold.state_hash(state) if live else await anyio.to_thread.run_sync(fold.state_hash, state)
        return to_json({"position": position, "stateHash": hashed, "logHash": log_hash, "live": live})

    async def workload(self, request: web.Request) -> web.StreamResponse:
        """
        GET /workloads/<namespace>/<name>.

        Query: `at`. One workload as the state has it, and what it waits for. Needs `get` of that Workload.
        """
        await self._may(request, _this_workload(request))
        key = WorkloadKey(f"{request.match_info['namespace']}/{request.match_info['name']}")
        state = await self._state(request)
        record = state.workloads.get(key)
        if record is None:
            raise NoSuchQueueError(f"there is no workload {key!r} at position {state.position}")
        return to_json({"position": state.position, "workload": record, "standing": standing(state, key)})

    async def explain(self, request: web.Request) -> web.StreamResponse:
        """
        GET /explain/<namespace>/<name>.

        Query: `at`. The whole story of a Workload or a Job, as `headgate explain` prints it. Needs `get` of
        that Workload.
        """
        await self._may(request, _this_workload(request))
        last = await self._last(request)
        about = request.match_info
        async with self._explaining:
            story = await _explain(self._log, self._view.settings.cell, about["name"], about["namespace"], last)
        return to_json(story)

    async def explain_pod(self, request: web.Request) -> web.StreamResponse:
        """
        GET /explain/pods/<namespace>/<name>.

        Query: `at`. The whole story of a pod and where it could go, as `headgate explain` prints it: the plugins and
        extenders that refuse nodes, the best nodes with their scores, the victims. Needs `get` of that Pod, and `list`
        of Nodes.
        """
        about = request.match_info
        pod = PodKey(f"{about['namespace']}/{about['name']}")
        await self._may(request, _this("pods", request, group=""), _NODES)
        last = await self._last(request)
        async with self._explaining:
            story = await _explain_pod(self._log, self._view.settings.cell, pod, last, self._state_at)
        return to_json(story)

    async def _state_at(self, position: Seq) -> State:
        return await self._history().state_at(position)

    async def _last(self, request: web.Request) -> Seq:
        """The position up to which a history is asked for. Raises NotInLogError."""
        at = await self._position(request)
        last = await self._log.last_seq()
        if at is not None and at > last:
            raise NotInLogError(f"position {at} is not in the log, which ends at {last}")
        return Seq(last) if at is None else at

    async def event_types(self, _: web.Request) -> web.StreamResponse:
        """GET /events/types: every event type, for clients that must subscribe to each by name."""
        return to_json(sorted(TAGS))

    # --- Kueue's visibility API ------------------------------------------------------------------------------------

    async def visibility_groups(self, request: web.Request) -> web.StreamResponse:
        """GET /apis: the API groups, as the discovery of Kubernetes."""
        await self._known(request)
        return to_json(visibility.group_list())

    async def visibility_group(self, request: web.Request) -> web.StreamResponse:
        """GET /apis/visibility.kueue.x-k8s.io: the versions of the visibility API."""
        await self._known(request)
        return to_json(visibility.group())

    async def visibility_resources(self, request: web.Request) -> web.StreamResponse:
        """GET /apis/visibility.kueue.x-k8s.io/<version>: the resources of a version of the visibility API."""
        await self._known(request)
        return to_json(visibility.resource_list(request.match_info["version"]))

    async def visibility_pending(self, request: web.Request) -> web.StreamResponse:
        """
        GET .../clusterqueues/<name>/pendingworkloads and .../localqueues/<name>/pendingworkloads.

        Query: `offset`, `limit`. The pending workloads of a queue in the form of Kueue's visibility API. Needs
        `get` of `pendingworkloads`, as Kueue's roles grant it.
        """
        about = request.match_info
        version, name = about["version"], about["name"]
        visibility.require_version(version)
        await self._may(request, _pending_of(about))
        offset, limit = visibility.page_of(request.query)
        try:
            state = self._live()
        except NotReadyError as error:
            raise visibility.StatusError(503, "ServiceUnavailable", str(error)) from error
        if "namespace" in about:
            return to_json(visibility.of_local_queue(state, about["namespace"], name, version, offset, limit))
        return to_json(visibility.of_cluster_queue(state, name, version, offset, limit))

    # --- events ----------------------------------------------------------------------------------------------------

    async def events(self, request: web.Request) -> web.StreamResponse:
        """
        GET /events.

        Query: `from`, `type`, `namespace`, `follow`. Server-sent events, one per event of the log. `type` takes
        patterns (`workload.*`), several separated by commas. `follow=false` ends at the log's end. A client
        that reconnects sends `Last-Event-ID`. Needs `list` of Workloads.
        """
        query = request.query
        wanted = Filter(types=_listed(query.get("type", "")), namespaces=_listed(query.get("namespace", "")))
        await self._may_list(request, wanted.namespaces)
        follow = query.get("follow", "true").lower() not in ("false", "0", "no")
        log = self._log
        last = await log.last_seq()
        resumed = request.headers.get("Last-Event-ID", "")
        try:
            after = parse_position(resumed) if resumed else None
            begin = after.seq if after is not None else parse_position(query.get("from", str(last + 1))).seq
        except ValueError as error:
            raise BadRequestError(str(error)) from None
        if not self.streams.has_room:
            raise NotReadyError(f"{CLIENTS_MAX} clients follow events already; ask again later")

        async def may_go_on() -> bool:
            try:
                await self._may_list(request, wanted.namespaces)
            except (UnauthorizedError, ForbiddenError):
                return False
            except NoAnswerError:
                return True  # it was allowed a minute ago, and is checked again in one
            return self._view.status.phase is not Phase.STOPPING

        headers = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        await response.write(b": headgate\n\n")
        await self.streams.serve(
            response,
            request,
            log,
            begin=min(max(begin, 1), last + 1),
            end=None if follow else last,
            wanted=wanted,
            after=after,
            may_go_on=may_go_on,
        )
        return response


_NODES: Final = Right(verb="list", group="", resource="nodes", is_namespaced=False)


def _this_workload(request: web.Request) -> Right:
    return _this("workloads", request)


def _this(resource: str, request: web.Request, group: str = KUEUE) -> Right:
    about = request.match_info
    return Right(verb="get", group=group, resource=resource, namespace=about["namespace"], name=about["name"])


def _pending_of(about: Mapping[str, str]) -> Right:
    """As Kueue's roles grant it."""
    namespace = about.get("namespace", "")
    return Right(
        verb="get",
        group=VISIBILITY,
        resource="localqueues" if namespace else "clusterqueues",
        subresource="pendingworkloads",
        namespace=namespace,
        name=about["name"],
        is_namespaced=bool(namespace),
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


async def _explain(log: Log, cell: str, name: str, namespace: str, last: int) -> Story:
    """The history, from two passes over the log: one to resolve the name, one to follow the workloads."""
    lookup, gate = Lookup(), CommitFilter(cell)
    await _feed(log, last, lambda logged: lookup.feed(logged) if gate.admits(logged) else None)
    target = lookup.find(name, namespace)
    explainer = Explainer(fold.new_state(cell), target)
    try:
        await _feed(log, last, explainer.feed)
    except EventFailedError:
        explainer = Explainer(fold.new_state(cell), target, await treatments_of(log, cell, Seq(last)))
        await _feed(log, last, explainer.feed)
    return await anyio.to_thread.run_sync(explainer.story)


async def _explain_pod(
    log: Log, cell: str, pod: PodKey, last: Seq, state_at: Callable[[Seq], Awaitable[State]]
) -> "PodStory":
    """The history of a pod, from one pass over the log, and the answer to where it could go."""
    # The engine of placement takes a while to import, and most requests do without it.
    from headgate.core.views.pod_story import PodExplainer, RecordedAttempt, answered, instead
    from headgate.processes.runtime.extensions import load_placement_plugins

    explainer = PodExplainer(fold.new_state(cell), pod)
    try:
        await _feed(log, last, explainer.feed)
    except EventFailedError:
        explainer = PodExplainer(fold.new_state(cell), pod, await treatments_of(log, cell, last))
        await _feed(log, last, explainer.feed)
    story = explainer.story()
    if not story.lines:
        raise UnknownWorkloadError(f"no pod {pod!r} in this log")
    plugins = await anyio.to_thread.run_sync(load_placement_plugins)

    async def told(attempt: RecordedAttempt | None) -> "PodStory":
        at = explainer.state if attempt is None else await state_at(attempt.decided_at)
        return await anyio.to_thread.run_sync(answered, story, at, attempt, plugins)

    first = await told(explainer.decided)
    other = instead(first, explainer)
    return first if other is None else await told(other)


async def _feed(log: Log, last: int, feed: Callable[[Any], None]) -> None:
    def some(entries: list[LogEntry]) -> None:
        for entry in entries:
            feed(decode_entry(entry.seq, entry.subject, entry.payload, entry.time_ms))

    if not last:
        return
    reading: AsyncGenerator[list[LogEntry], None] = log.read(1, stop=last)  # type: ignore[assignment]
    async with aclosing(reading):
        async for entries in reading:
            await anyio.to_thread.run_sync(some, entries)


__all__ = ["NoSuchTableError", "ReadSide", "add_routes"]
