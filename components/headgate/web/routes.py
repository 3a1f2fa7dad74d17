"""
The routes of the read side, and how a request becomes an answer.

    GET /                                  a page for people
    GET /queues?at=                        every ClusterQueue: waiting, holding, usage
    GET /pending?clusterQueue=|localQueue= who waits, in order, why, and what would wake them (&at= &limit=)
    GET /state?at=&table=                  the state: an overview, or the rows of one table (&limit= &after=)
    GET /state/hash?at=                    the hash of the canonical state
    GET /workloads/<namespace>/<name>?at=  one workload's record and standing
    GET /explain/<namespace>/<name>?at=    its whole story
    GET /events?from=&type=&namespace=     server-sent events (&follow=false ends at the log's end; Last-Event-ID)
    GET /events/types                      every type of event
    GET /apis/visibility.kueue.x-k8s.io/   Kueue's visibility API (headgate.web.visibility)

`at` is a position (`812`) or a time (RFC 3339); without it the live state answers. Live answers are computed within one
step of the loop, so they are of one position, and are bounded; what needs folding happens in a worker thread. Errors
are JSON, `{"error": ...}`, and say what to do.
"""

import datetime as dt
import importlib.resources
import re
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
import msgspec
from aiohttp import web

from headgate.adapters.log import Entry, Log
from headgate.core import fold
from headgate.core.explain import Explainer, Lookup, Story, UnknownWorkloadError
from headgate.core.quarantine import EventFailedError
from headgate.core.standing import standing
from headgate.core.state import State
from headgate.events.commit import decode_commit
from headgate.events.ids import Seq, WorkloadKey
from headgate.events.registry import TAGS
from headgate.processes.entry import View
from headgate.processes.past import NotInLogError, Past, treatments_of
from headgate.processes.status import Phase
from headgate.web import answers, visibility
from headgate.web.answers import NoSuchQueueError, NoSuchTableError
from headgate.web.events import Filter, parse_position, told_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

LIMIT: Final = 1_000
LIMIT_MAX: Final = 10_000
STREAMS_MAX: Final = 128
"""Clients of /events at a time."""
HEARTBEAT_S: Final = 15.0

_VISIBILITY: Final = f"/apis/{visibility.GROUP}"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class BadRequestError(ValueError):
    """Raised when a query parameter cannot be used; the message says how to write it."""


class NotReadyError(Exception):
    """Raised while the process is not connected to the log, or has not folded it yet. Ask again later."""


def add_routes(app: web.Application, view: View) -> None:
    """Add the read side to a process's front."""
    side = ReadSide(view)
    app.middlewares.append(_errors_as_json)
    for path, handler in (
        ("/", side.index),
        ("/queues", side.queues),
        ("/pending", side.pending),
        ("/state", side.state),
        ("/state/hash", side.state_hash),
        ("/workloads/{namespace}/{name}", side.workload),
        ("/explain/{namespace}/{name}", side.explain),
        ("/events", side.events),
        ("/events/types", side.event_types),
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


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except visibility.StatusError as error:
        return _json(error.status(), status=error.code)
    except BadRequestError as error:
        return _json({"error": str(error)}, status=400)
    except (LookupError, UnknownWorkloadError) as error:
        return _json({"error": str(error.args[0])}, status=404)
    except NotReadyError as error:
        return _json({"error": str(error)}, status=503)


def _json(body: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body) + b"\n", status=status, content_type="application/json")


class ReadSide:
    """The handlers. `view` is what the process shows of itself."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._past: Past | None = None
        self._explaining = anyio.Lock()
        self._streams = 0

    # --- what is asked for -----------------------------------------------------------------------------------------

    @property
    def _log(self) -> Log:
        if self._view.log is None:
            raise NotReadyError("the log is not connected yet; /readyz says what is waited for")
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
            self._past = Past(log, self._view.blobs, self._view.settings.cell)
        return self._past

    async def _position(self, request: web.Request) -> Seq | None:
        """The position that `at` means; None for the live state."""
        text = request.query.get("at", "")
        if text in ("", "now"):
            return None
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return parse_position(text).seq
        try:
            # A plus sign of a time zone that was not escaped arrives as a blank.
            moment = dt.datetime.fromisoformat(text.replace(" ", "+"))
        except ValueError:
            raise BadRequestError(f"at={text}: neither a position (812) nor a time (2026-01-31T12:00:00Z)") from None
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
        return await self._history().position_at(int(moment.timestamp() * 1000))

    async def _state(self, request: web.Request) -> State:
        """The state that is asked for. A live one is only good until the next await."""
        position = await self._position(request)
        live = self._view.state
        if position is None or (live is not None and live.position == position):
            return self._live()
        return await self._history().state_at(position)

    @staticmethod
    def _limit(request: web.Request) -> int:
        text = request.query.get("limit", str(LIMIT))
        if not text.isdecimal() or not 1 <= int(text) <= LIMIT_MAX:
            raise BadRequestError(f"limit={text}: a number from 1 to {LIMIT_MAX}")
        return int(text)

    # --- answers ---------------------------------------------------------------------------------------------------

    async def index(self, _: web.Request) -> web.StreamResponse:
        """GET /: the page."""
        page = importlib.resources.files("headgate.web").joinpath("index.html").read_text()
        return web.Response(text=page, content_type="text/html")

    async def queues(self, request: web.Request) -> web.StreamResponse:
        """GET /queues."""
        state = await self._state(request)
        return _json({"position": state.position, "now_ms": state.now_ms, "queues": answers.queues(state)})

    async def pending(self, request: web.Request) -> web.StreamResponse:
        """GET /pending."""
        limit = self._limit(request)
        cluster_queue = request.query.get("clusterQueue", "")
        local_queue = request.query.get("localQueue", "")
        if bool(cluster_queue) == bool(local_queue):
            raise BadRequestError("say which queue: clusterQueue=NAME, or localQueue=NAMESPACE/NAME")
        state = await self._state(request)
        rows = answers.pending(state, cluster_queue=cluster_queue, local_queue=local_queue, limit=limit)
        return _json({"position": state.position, "pending": rows})

    async def state(self, request: web.Request) -> web.StreamResponse:
        """GET /state."""
        limit, name = self._limit(request), request.query.get("table", "")
        state = await self._state(request)
        if name:
            return _json(answers.table(state, name, limit=limit, after=request.query.get("after", "")))
        return _json(answers.overview(state))

    async def state_hash(self, request: web.Request) -> web.StreamResponse:
        """GET /state/hash."""
        state = await self._state(request)
        live = state is self._view.state
        position, log_hash = state.position, state.log_hash
        hashed = fold.state_hash(state) if live else await anyio.to_thread.run_sync(fold.state_hash, state)
        return _json({"position": position, "stateHash": hashed, "logHash": log_hash, "live": live})

    async def workload(self, request: web.Request) -> web.StreamResponse:
        """GET /workloads/<namespace>/<name>."""
        key = WorkloadKey(f"{request.match_info['namespace']}/{request.match_info['name']}")
        state = await self._state(request)
        record = state.workloads.get(key)
        if record is None:
            raise NoSuchQueueError(f"there is no workload {key!r} at position {state.position}")
        return _json({"position": state.position, "workload": record, "standing": standing(state, key)})

    async def explain(self, request: web.Request) -> web.StreamResponse:
        """GET /explain/<namespace>/<name>."""
        at = await self._position(request)
        log = self._log
        last = await log.last_seq()
        if at is not None and at > last:
            raise NotInLogError(f"position {at} is not in the log, which ends at {last}")
        async with self._explaining:
            story = await _explain(
                log,
                self._view.settings.cell,
                request.match_info["name"],
                request.match_info["namespace"],
                last if at is None else at,
            )
        return _json(story)

    async def event_types(self, _: web.Request) -> web.StreamResponse:
        """GET /events/types: every tag there is, for clients that must listen to each by name."""
        return _json(sorted(TAGS))

    # --- Kueue's visibility API ------------------------------------------------------------------------------------

    async def visibility_groups(self, _: web.Request) -> web.StreamResponse:
        """GET /apis."""
        return _json(visibility.group_list())

    async def visibility_group(self, _: web.Request) -> web.StreamResponse:
        """GET /apis/visibility.kueue.x-k8s.io."""
        return _json(visibility.group())

    async def visibility_resources(self, request: web.Request) -> web.StreamResponse:
        """GET /apis/visibility.kueue.x-k8s.io/<version>."""
        return _json(visibility.resource_list(request.match_info["version"]))

    async def visibility_pending(self, request: web.Request) -> web.StreamResponse:
        """GET .../clusterqueues/<name>/pendingworkloads and .../localqueues/<name>/pendingworkloads."""
        about = request.match_info
        version, name = about["version"], about["name"]
        visibility.require_version(version)
        offset, limit = visibility.page_of(request.query)
        try:
            state = self._live()
        except NotReadyError as error:
            raise visibility.StatusError(503, "ServiceUnavailable", str(error)) from error
        if "namespace" in about:
            return _json(visibility.of_local_queue(state, about["namespace"], name, version, offset, limit))
        return _json(visibility.of_cluster_queue(state, name, version, offset, limit))

    # --- events ----------------------------------------------------------------------------------------------------

    async def events(self, request: web.Request) -> web.StreamResponse:
        """GET /events."""
        query = request.query
        wanted = Filter(types=_listed(query.get("type", "")), namespaces=_listed(query.get("namespace", "")))
        follow = query.get("follow", "true").lower() not in ("false", "0", "no")
        log = self._log
        last = await log.last_seq()
        resumed = request.headers.get("Last-Event-ID", "")
        try:
            after = parse_position(resumed) if resumed else None
            begin = after.seq if after is not None else parse_position(query.get("from", str(last + 1))).seq
        except ValueError as error:
            raise BadRequestError(str(error)) from None
        if self._streams >= STREAMS_MAX:
            raise NotReadyError(f"{STREAMS_MAX} clients follow events already; ask again later")
        self._streams += 1
        try:
            return await self._stream(
                request, log, min(max(begin, 1), last + 1), None if follow else last, wanted, after
            )
        finally:
            self._streams -= 1

    async def _stream(
        self, request: web.Request, log: Log, begin: int, end: int | None, wanted: Filter, after: Any
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
            }
        )
        await response.prepare(request)
        await response.write(b": headgate\n\n")
        async with log.tail(begin) as tail:
            while end is None or tail.position < end:
                entries: list[Entry] = []
                with anyio.move_on_after(HEARTBEAT_S):
                    entries = await tail.receive()
                if end is not None:
                    entries = [entry for entry in entries if entry.seq <= end]
                try:
                    await response.write(told_of(entries, wanted, after) if entries else b": alive\n\n")
                except (ConnectionResetError, BrokenPipeError):
                    break
                if self._view.status.phase is Phase.STOPPING:
                    break
        return response


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


async def _explain(log: Log, cell: str, name: str, namespace: str, last: int) -> Story:
    """The story, told by reading the log twice: whom the name means, then what happened to them."""
    lookup = Lookup()
    await _feed(log, last, lookup.feed)
    target = lookup.find(name, namespace)
    explainer = Explainer(fold.new_state(cell), target)
    try:
        await _feed(log, last, explainer.feed)
    except EventFailedError:
        explainer = Explainer(fold.new_state(cell), target, await treatments_of(log, cell, Seq(last)))
        await _feed(log, last, explainer.feed)
    return await anyio.to_thread.run_sync(explainer.story)


async def _feed(log: Log, last: int, feed: Callable[[Any], None]) -> None:
    def some(entries: list[Entry]) -> None:
        for entry in entries:
            feed(decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms))

    if not last:
        return
    reading: AsyncGenerator[list[Entry], None] = log.read(1, stop=last)  # type: ignore[assignment]
    async with aclosing(reading):
        async for entries in reading:
            await anyio.to_thread.run_sync(some, entries)


__all__ = ["BadRequestError", "NoSuchTableError", "NotReadyError", "ReadSide", "add_routes"]
