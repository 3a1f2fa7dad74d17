"""
Following one resource: everything that exists, then every change, without a gap, for as long as the process runs.

A `Reflector` lists its resource page by page, watches from the version of the list, and continues from the last version
it delivered whenever a watch ends: because its time is up, because the connection broke, because a line did not decode,
because nothing arrived for too long. Only when the server has dropped that version (410) does it list again. An owner
that stores the version of what it has processed can pass it after a restart and skip the list.

A server that was restored from a backup is behind versions it once gave out. Until it passes them again a watch from
such a version waits in silence; after that it is accepted, and the changes in between are missing. So a watch that
broke, or ended before its time, is resumed with an overlap: from just before the last received change. If the history
is still ours, that very change arrives first, byte for byte, and is skipped; anything else, or no such change to
request, leads to a list. (It is cheap: the server has the change in its cache, or answers 410.) After a restart of the
process there is no such change; then the newest version is requested, and if it is older than ours, the reflector
lists. (Versions of one resource compare as numbers: KEP-5504.) A different cluster with higher versions cannot be
detected by its versions; the owner has to detect that.

Lists are consistent reads (no resourceVersion is sent), in pages. A list "from version 0", which client-go begins with,
may come from a server that lags, and would set the owner back in time after a restart; since Kubernetes 1.31 the cache
answers consistent reads too. A streaming list would save the server the memory of a list without pages, which ours are
not, and does not separate pages, which bound the memory here.

The messages to the owner, in order, through a bounded stream:

* `ListPage`: a page of the list. Page 0 begins a list, also after an unfinished one; the page with `complete` ends it.
An
  object that the owner has and that no page of a complete list named is gone. Pages, and not the whole list, because
  100,000 pods are 600 MB.
* `WatchResumed`: the server accepted a watch from the version passed. If that version was dropped after all, a list
follows. * `Changes`: changes in the order in which they happened, as many as were pending when the owner was ready for
more. * `Bookmark`: nothing relevant happened up to this version.

The versions of `Changes`, `Bookmark` and the complete `ListPage` may be stored to resume from; the version of an
incomplete list may not, because its missing pages would never be seen.

Back-pressure reaches the server: when the owner is slow, at most `pending_max` objects wait here, then the connection
is no longer read. Decoding is partial: an object stays `msgspec.Raw` and only its metadata is decoded. An object
without usable metadata is reported through `on_undecodable` and skipped; the objects around it still arrive.
"""
# Over 400 lines: one loop; list, watch, resumption and each way in which they fail lead into one another.

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from random import Random
from typing import Final, TypeAlias

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectSendStream

from headgate.adapters.backoff import Backoff
from headgate.adapters.kubernetes.client import KubeClient, Page
from headgate.adapters.kubernetes.errors import (
    ApiError,
    KubernetesError,
    StreamGarbled,
    StreamSilent,
    TransportError,
    is_operating_error,
    kind_of,
    watch_error,
)
from headgate.adapters.kubernetes.messages import (
    Bookmark,
    ChangeType,
    Entry,
    ListPage,
    Message,
    ObjectChange,
    ObjectMeta,
    WatchResumed,
)
from headgate.adapters.kubernetes.outbox import Outbox
from headgate.adapters.kubernetes.resources import Resource
from headgate.adapters.kubernetes.retry import ApiServerHealth, Repeats, Sleep
from headgate.adapters.kubernetes.transport import NO_QUERY

_LOG: Final = logging.getLogger(__name__)

#: Characters of an undecodable line that are repeated in the log.
_EXCERPT_MAX: Final = 120


class ReflectorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and times of a `Reflector`."""

    page_items: int = 500
    #: Objects that may wait for the owner, not counting what the owner's stream itself holds.
    pending_max: int = 2000
    #: The most changes in one message.
    burst_max: int = 500
    #: The server is asked to end each watch after this time plus up to the jitter, so that watches do not all end at
    #: once and none lives through a change of the server's mind about who we are.
    watch_s: int = 290
    watch_jitter_s: int = 20
    #: The longest silence on a watch of a server that sends bookmarks, which it does about once a minute.
    silence_max_s: float = 150.0
    #: Where no bookmark has been seen, a watch is half-open if the server has not ended it this long after its time.
    grace_s: float = 30.0
    #: A watch that sends nothing and ends sooner than this counts as a failure, to prevent a busy loop.
    short_watch_s: float = 1.0
    backoff_first_s: float = 0.5
    backoff_max_s: float = 10.0
    #: The pauses between two questions for an optional resource that is not installed: Kueue's.
    absent_first_s: float = 1.0
    absent_max_s: float = 120.0
    #: Before resuming after a restart, a failure or an early end, verify that the server's history is still ours.
    verify_resume: bool = True
    #: How long to wait for the overlap of a resumed watch before listing instead.
    overlap_s_max: float = 10.0
    #: How often a page that is refused or lost is requested, so that a list does not begin anew with each.
    page_tries_max: int = 5
    #: After so many lines in a row, at one version, that are no watch events, the resource is listed instead.
    garbled_max: int = 3
    #: After so many lists in a row that expired before their last page, the whole list is requested at once.
    paged_lists_max: int = 2


class ReflectorCounters(msgspec.Struct, kw_only=True):
    """What a reflector has counted since it was made."""

    lists: int = 0
    pages: int = 0
    listed: int = 0
    watches: int = 0
    changes: int = 0
    bookmarks: int = 0
    #: 410: versions and continue tokens that the server had dropped.
    expired: int = 0
    #: The server was behind our version, or its history was another.
    rewound: int = 0
    #: No change had been received by which to recognise the history.
    unproven: int = 0
    #: Failed lists and broken watches of any other cause, and what two causes contributed.
    failures: int = 0
    silences: int = 0
    undecodable_lines: int = 0
    undecodable_objects: int = 0
    #: How often the server was asked for an optional resource that is not installed.
    absences: int = 0


class _Envelope(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    object: msgspec.Raw


class _WithMeta(msgspec.Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_META: Final = msgspec.json.Decoder(_WithMeta)
_CHANGE_TYPES: Final[Mapping[str, ChangeType]] = {change.value: change for change in ChangeType}

#: Called with the resource, the bytes and the reason when an object cannot be read.
OnUndecodable: TypeAlias = Callable[[Resource, bytes, Exception], None]


def _ignore(resource: Resource, found: bytes, error: Exception) -> None:
    """The reflector has logged and counted it."""


def _is_older(version: str, than: str) -> bool:
    """Whether a version is certainly the older one; versions that are not numeric do not compare."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


class Reflector:
    """
    Follows one resource and reports to one owner.

    Attributes:
        counters: what has happened so far.
        health: whether the server responds.
        resource_version: the version up to which the owner has received changes (or will, from the outbox).
        synced: whether a list was completed, or a resumed watch accepted, since the start.

    """

    # Large: the fields of the reflector, one line each.
    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        *,
        namespace: str | None = None,
        selectors: Mapping[str, str] = NO_QUERY,
        settings: ReflectorSettings = ReflectorSettings(),  # noqa: B008  (frozen)
        on_undecodable: OnUndecodable = _ignore,
        random: Random | None = None,
        sleep: Sleep = anyio.sleep,
        clock: Callable[[], float] = anyio.current_time,
        wall_clock: Callable[[], float] = time.time,
        repeats: Repeats | None = None,
    ) -> None:
        """
        `selectors` are query parameters (`labelSelector`, `fieldSelector`) of both list and watch.

        Reflectors of one server share `repeats`, so that an unreachable server is logged once and not by each.
        """
        self.resource = resource
        self.counters = ReflectorCounters()
        self.health = ApiServerHealth()
        self.resource_version = ""
        self.synced = False
        self.is_absent = False
        self._client = client
        self._namespace = namespace
        self._selectors = selectors
        self._settings = settings
        self._on_undecodable = on_undecodable
        # Jitter needs no cryptography.
        self._random = random or Random()  # noqa: S311
        self._sleep = sleep
        self._clock = clock
        self._wall_clock = wall_clock
        self._repeats = repeats or Repeats(clock=clock)
        self._backoff = Backoff(first_s=settings.backoff_first_s, max_s=settings.backoff_max_s, random=self._random)
        self._absence = Backoff(first_s=settings.absent_first_s, max_s=settings.absent_max_s, random=self._random)
        # Failures in a row without progress in between.
        self._stuck = 0
        self._expired_in_row = 0
        self._lists_expired = 0
        self._garbled = 0
        self._bookmarks_seen = False
        self._must_verify = True
        # The last change received since the list, by which the server's history is recognised.
        self._anchor: ObjectChange | None = None
        self._outbox = Outbox(pending_max=settings.pending_max, burst_max=settings.burst_max)

    @property
    def pending(self) -> int:
        """Objects that wait for the owner."""
        return self._outbox.pending

    async def run(self, sink: MemoryObjectSendStream[Message], *, resume_rv: str = "") -> None:
        """
        Follow the resource until cancelled; never returns otherwise.

        Args:
            sink: the owner's stream. It stays open: several reflectors may share it.
            resume_rv: the version up to which the owner knows everything; empty to begin with a list.

        Raises:
            ExceptionGroup: of `anyio.BrokenResourceError`, when the owner has closed its end.

        """
        self.resource_version = resume_rv
        self._must_verify = True
        self._anchor = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._outbox.pump, sink)
            while True:
                try:
                    if self.resource_version and self._must_verify and self._settings.verify_resume:
                        await self._verify()
                    if not self.resource_version:
                        await self._list()
                    await self._watch()
                except KubernetesError as error:
                    if self.resource.optional and isinstance(error, ApiError) and error.is_unserved:
                        await self._pass_over_absence()
                    else:
                        await self._recover(error)

    async def _pass_over_absence(self) -> None:
        """An optional resource is not installed: it has no objects, and is asked for again after a while."""
        self.counters.absences += 1
        if not self.is_absent:
            self.is_absent = True
            _LOG.info("%s: the API server does not serve it; it counts as empty until it does", self.resource.name)
            empty = ListPage(resource=self.resource, items=[], resource_version="", page=0, complete=True)
            await self._put(empty)
        self.resource_version, self._anchor = "", None
        self._heard()
        await self._sleep(self._absence.next_s())

    async def _verify(self) -> None:
        """Drop the version if the server has never reached it, or if nothing can prove that its history is ours."""
        if self._anchor is not None:
            # The watch itself shows it.
            return
        if self.synced:
            self.counters.unproven += 1
            _LOG.info("%s: no message since the list; listing again", self.resource.plural)
            self.resource_version = ""
            return
        page = await self._client.page(self.resource, self._namespace, query=self._selectors, limit=1)
        if _is_older(page.resource_version, self.resource_version):
            self._forget(f"the server is at version {page.resource_version}, behind our {self.resource_version}")
        self._must_verify = False

    def _forget(self, why: str) -> None:
        """The server's history is not ours: begin anew."""
        self.counters.rewound += 1
        _LOG.warning("%s: %s: it was restored or replaced; listing again", self.resource.plural, why)
        self.resource_version = ""
        self._anchor = None

    async def _list(self) -> None:
        """Send the whole list, page by page. Sets the version once the last page is on its way."""
        self.counters.lists += 1
        self._anchor = None
        limit = 0 if self._lists_expired >= self._settings.paged_lists_max else self._settings.page_items
        number, token, complete = 0, "", False
        while not complete:
            page = await self._page(limit, token)
            token = page.continue_token
            complete = not token
            if self.is_absent:
                _LOG.info("%s: the API server serves it now", self.resource.name)
                self.is_absent = False
                self._absence.reset()
            if complete and not page.resource_version:
                raise TransportError(f"the list of {self.resource.plural} has no resourceVersion", maybe_applied=False)
            self._heard()
            self.counters.pages += 1
            self.counters.listed += len(page.items)
            await self._put(
                ListPage(
                    resource=self.resource,
                    items=page.items,
                    resource_version=page.resource_version,
                    page=number,
                    complete=complete,
                )
            )
            number += 1
            if complete:
                self.resource_version = page.resource_version
        self._lists_expired = 0
        self._garbled = 0
        self.synced = True
        self._must_verify = False

    async def _page(self, limit: int, token: str) -> Page:
        """A page. One that is not the first is retried: the list it belongs to would begin anew."""
        tries = 1
        while True:
            try:
                return await self._client.page(
                    self.resource, self._namespace, query=self._selectors, limit=limit, continue_token=token
                )
            except (ApiError, TransportError) as error:
                passes = isinstance(error, TransportError) or is_operating_error(error)
                if not token or not passes or tries >= self._settings.page_tries_max:
                    raise
                tries += 1
                self.counters.failures += 1
                await self._pause(error, "asking for the page again")

    async def _watch(self) -> None:
        """Send every change since the version, until the server ends the watch as requested."""
        self.counters.watches += 1
        anchor = self._anchor if self._must_verify and self._settings.verify_resume else None
        seconds = self._settings.watch_s + self._random.randint(0, self._settings.watch_jitter_s)
        query = dict(self._selectors) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.resource_version if anchor is None else str(int(anchor.resource_version) - 1),
            "timeoutSeconds": str(seconds),
        }
        patience_s = self._settings.silence_max_s if self._bookmarks_seen else seconds + self._settings.grace_s
        path = self.resource.path(namespace=self._namespace)
        begun_s = self._clock()
        lines_heard = 0
        async with self._client.stream(path, query=query, read_timeout_s=patience_s) as lines:
            if anchor is None:
                self._heard()
            if not self.synced:
                await self._put(WatchResumed(resource=self.resource, resource_version=self.resource_version))
            self.synced = True
            if anchor is not None and not await self._is_ours(lines, anchor):
                return
            async for line in lines:
                entry = self._read(line)
                lines_heard += 1
                self._progressed()
                if entry is not None:
                    await self._tell(entry)
        self._end_watch(path, lines_heard, self._clock() - begun_s, seconds)

    async def _is_ours(self, lines: AsyncIterator[bytes], anchor: ObjectChange) -> bool:
        """Whether the overlap is the change that was received before."""
        line = None
        # It arrives at once or never: a server that is behind our version sends nothing.
        with anyio.move_on_after(self._settings.overlap_s_max):
            line = await anext(lines, None)
        if line is None or self._read(line) != anchor:
            self._forget(f"version {anchor.resource_version} is not the change that it was")
            return False
        self._heard()
        self._must_verify = False
        return True

    def _end_watch(self, path: str, lines_heard: int, lasted_s: float, seconds: int) -> None:
        """The server has ended a watch in an orderly way."""
        if lasted_s < seconds:
            # It is most likely shutting down, and the server that answers next may have another history.
            self._must_verify = True
        if not lines_heard and lasted_s < self._settings.short_watch_s:
            raise TransportError(f"watch {path}: it ended at once without a message", maybe_applied=False)
        self._progressed()

    async def _tell(self, entry: ObjectChange | Bookmark) -> None:
        await self._put(entry)
        self.resource_version = entry.resource_version
        if isinstance(entry, ObjectChange):
            self._anchor = entry if entry.resource_version.isdecimal() else None

    async def _put(self, entry: Entry) -> None:
        if self._outbox.is_full:
            await self._outbox.wait_for_room()
        self._outbox.put(entry)

    def _read(self, line: bytes) -> ObjectChange | Bookmark | None:
        """
        The entry of a watch line; None for an object that had to be skipped.

        Raises:
            ApiError: the line is an ERROR event.
            StreamGarbled: the line is no watch event, so the lines after it cannot be trusted either.

        """
        try:
            envelope = _ENVELOPE.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self.counters.undecodable_lines += 1
            excerpt = line[:_EXCERPT_MAX].decode(errors="replace")
            raise StreamGarbled(
                f"a line of the watch does not decode ({error}): {excerpt}", maybe_applied=False
            ) from error
        if envelope.type == "ERROR":
            raise watch_error(bytes(envelope.object), request=f"watch {self.resource.path(namespace=self._namespace)}")
        try:
            meta = _META.decode(envelope.object).metadata
            if envelope.type == "BOOKMARK":
                self.counters.bookmarks += 1
                self._bookmarks_seen = True
                return Bookmark(resource=self.resource, resource_version=meta.resource_version)
            change = ObjectChange(
                resource=self.resource, type=_CHANGE_TYPES[envelope.type], meta=meta, object=envelope.object
            )
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
            self._pass_over(envelope, error)
            return None
        self.counters.changes += 1
        return change

    def _pass_over(self, envelope: _Envelope, error: Exception) -> None:
        self.counters.undecodable_objects += 1
        found = bytes(envelope.object)
        _LOG.error(
            "watch of %s: passed over a %s event whose object cannot be read (%r): %s",
            self.resource.plural,
            envelope.type,
            error,
            found[:_EXCERPT_MAX].decode(errors="replace"),
        )
        self._on_undecodable(self.resource, found, error)

    def _heard(self) -> None:
        """The server answers. That makes the health good, but only progress resets the back-off."""
        if not self.health.ok:
            since_s = self._wall_clock() - (self.health.failing_since or 0.0)
            _LOG.info("%s: the API server answers again, after %.1f s", self.resource.plural, since_s)
            self.health = ApiServerHealth()
            self._repeats.clear()

    def _progressed(self) -> None:
        if self._stuck:
            self._stuck = self._expired_in_row = 0
            self._backoff.reset()

    async def _recover(self, error: KubernetesError) -> None:
        """Record the failure and wait before the next attempt."""
        self._stuck += 1
        self._must_verify = True
        if isinstance(error, ApiError) and error.is_expired:
            self._note_expired()
            # The list that follows is the remedy; only repeated expiry has to be slowed down.
            if self._expired_in_row == 1:
                return
        else:
            self._note_failure(error)
        then = f"watching again from {self.resource_version}" if self.resource_version else "listing again"
        await self._pause(error, then)

    async def _pause(self, error: KubernetesError, then: str) -> None:
        """Report the failure, and wait before the next attempt."""
        delay_s = self._backoff.next_s(error.retry_after if isinstance(error, ApiError) else None)
        since = self._wall_clock() if self.health.failing_since is None else self.health.failing_since
        self.health = ApiServerHealth(failing_since=since, error=str(error), attempts=self.health.attempts + 1)
        _LOG.log(
            logging.WARNING if self._repeats.is_news(kind_of(error)) else logging.DEBUG,
            "%s: %s; %s in %.1f s",
            self.resource.plural,
            error,
            then,
            delay_s,
            extra={"resource": self.resource.plural, "failing_since": since, "attempts": self.health.attempts},
        )
        await self._sleep(delay_s)

    def _note_expired(self) -> None:
        self.counters.expired += 1
        self._expired_in_row += 1
        if self.resource_version:
            _LOG.info("%s: version %s has expired; listing again", self.resource.plural, self.resource_version)
            self.resource_version = ""
        else:
            self._lists_expired += 1
            _LOG.info("%s: the list expired before its last page; listing again", self.resource.plural)

    def _note_failure(self, error: KubernetesError) -> None:
        self.counters.failures += 1
        # A whole list that is too large to arrive in time must not be the only kind that is retried.
        self._lists_expired = 0
        if isinstance(error, StreamSilent):
            self.counters.silences += 1
        self._garbled = self._garbled + 1 if isinstance(error, StreamGarbled) else 0
        if self._garbled >= self._settings.garbled_max:
            self.resource_version = ""
