"""
Calls as data: pure code returns them, and this module carries them out.

A process's `decide` returns `KubeCall`s. Its loop, once the commit that decided them is acknowledged, passes them to a
`CallExecutor` and turns each `CallOutcome` into an event. The executor hides network failures from both sides:

* Operating errors (no answer, 5xx, 429, an expired credential, a missing RBAC rule, a resource that is not installed)
  are retried with back-off and jitter, for as long as the executor runs; a `Retry-After` is honoured. Only final
  outcomes are returned: success, or the server's definite refusal.
* Calls with the same non-empty `key` run one after the other, in the order in which they were passed in. A call that
  is being retried delays the later ones of its key, and no others: while it waits it has no slot.
* At most `in_flight_max` requests are under way, at most `qps` (with bursts) are begun in a second.
* Every retry is counted, and `health` reports since when a call has been failing, and why. It is logged once for
  each kind of failure (and again every half minute): an unreachable server fails hundreds of calls at once.

A request whose answer was lost may have been carried out, so repeated calls must be idempotent. `maybe_repeated` in the
outcome is set when a definite refusal may be caused by our own success (`AlreadyExists` after a create, `Conflict`
after a binding): the process reads the object, or waits for the watch to show it, before it accepts the refusal.

The 429 with which a PodDisruptionBudget forbids an eviction is no sign of load and may stay forever, so it is a final
outcome: `is_budget_exhausted` of its `error()` identifies it, and the process decides when to retry. A 429 of priority
and fairness, or of an overloaded server, is retried like every operating error.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final, assert_never

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from headgate.adapters.backoff import Backoff
from headgate.adapters.kubernetes.errors import ApiError, TransportError, api_error, is_operating_error, kind_of
from headgate.adapters.kubernetes.resources import asked_for
from headgate.adapters.kubernetes.retry import ApiServerHealth, RateLimiter, Repeats, Sleep
from headgate.adapters.kubernetes.transport import Response, Transport

_LOG: Final = logging.getLogger(__name__)


class KubeCall(msgspec.Struct, frozen=True, kw_only=True):
    """A request to the API server, as data."""

    #: Chosen by the caller, and returned in the outcome.
    id: str
    method: str
    #: Percent-encoded, without the query.
    path: str
    query: dict[str, str] = {}
    body: bytes | None = None
    content_type: str | None = None
    #: Calls with the same key run in order; without one, in no particular order.
    key: str = ""


class CallOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The server's final answer to a call: 2xx, or a 4xx that another try would not change."""

    id: str
    status: int
    body: bytes
    #: Requests made, at least 1.
    attempts: int = 1
    #: An earlier attempt, whose answer was lost, may have been carried out.
    maybe_repeated: bool = False

    @property
    def ok(self) -> bool:
        """The call succeeded."""
        return 200 <= self.status < 300

    def error(self) -> ApiError:
        """The refusal as an error. Only for outcomes that are not `ok`."""
        return api_error(self.status, {}, self.body, request=self.id)


class CallSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a `CallExecutor`."""

    #: Requests under way at once.
    in_flight_max: int = 32
    #: Calls that `serve` takes before it stops reading; the rest waits at the sender.
    accepted_max: int = 1024
    #: Requests begun per second, and how many of them may come at once.
    qps: float = 500.0
    burst: int = 1000
    backoff_first_s: float = 0.1
    backoff_max_s: float = 10.0


class CallCounters(msgspec.Struct, kw_only=True):
    """What an executor has done since it was made."""

    calls: int = 0
    succeeded: int = 0
    refused: int = 0
    attempts: int = 0
    retried_transport: int = 0
    retried_throttled: int = 0
    retried_unauthorized: int = 0
    #: 403 of an authorizer, and 404 of a resource that is not served: an operator's hand is needed.
    retried_refused: int = 0
    retried_server: int = 0
    #: Now: requests under way; calls that were handed in and have no outcome yet.
    in_flight: int = 0
    unfinished: int = 0

    @property
    def retries(self) -> int:
        """All retries, of whatever cause."""
        return sum(self.by_cause().values())

    def by_cause(self) -> dict[str, int]:
        """The retries, by what each was for."""
        return {
            "transport": self.retried_transport,
            "throttled": self.retried_throttled,
            "unauthorized": self.retried_unauthorized,
            "refused": self.retried_refused,
            "server": self.retried_server,
        }


class _Failing(msgspec.Struct, frozen=True, kw_only=True):
    since: float
    error: str
    attempts: int


class CallExecutor:
    """Carries out calls against one API server. Safe for use by many tasks at once."""

    def __init__(
        self,
        transport: Transport,
        settings: CallSettings = CallSettings(),  # noqa: B008  (frozen)
        *,
        random: Random | None = None,
        sleep: Sleep = anyio.sleep,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        limiter: RateLimiter | None = None,
    ) -> None:
        """`limiter` is one that is shared with other users of the same server; without it, `settings` make one."""
        self.settings = settings
        self.counters = CallCounters()
        self.limiter = limiter or RateLimiter(qps=settings.qps, burst=settings.burst, clock=clock, sleep=sleep)
        self._transport = transport
        # Jitter needs no cryptography.
        self._random = random or Random()  # noqa: S311
        self._sleep = sleep
        self._wall_clock = wall_clock
        self._slots = anyio.Semaphore(settings.in_flight_max, fast_acquire=True)
        # One per key with unfinished calls: those that wait for the first of them, in the order of arrival.
        self._turns: dict[str, deque[anyio.Event]] = {}
        # Calls under retry, by internal numbers: ids are the caller's and need not be unique.
        self._failing: dict[int, _Failing] = {}
        self._started = 0
        self._repeats = Repeats()

    @property
    def health(self) -> ApiServerHealth:
        """Whether calls succeed: since when the oldest of those under retry fails, and the newest error."""
        if not self._failing:
            return ApiServerHealth()
        newest = next(reversed(self._failing.values()))
        return ApiServerHealth(
            failing_since=min(failing.since for failing in self._failing.values()),
            error=newest.error,
            attempts=sum(failing.attempts for failing in self._failing.values()),
        )

    async def run(self, call: KubeCall) -> CallOutcome:
        """
        Carry out one call and return its final outcome, however long that takes.

        The call takes its place in the order of its key before anything else happens, so tasks started one after the
        other keep their order. When cancelled, a request under way may or may not have been carried out.
        """
        self.counters.calls += 1
        self.counters.unfinished += 1
        try:
            if not call.key:
                outcome = await self._attempt_until_final(call)
            else:
                await self._take_turn(call.key)
                try:
                    outcome = await self._attempt_until_final(call)
                finally:
                    self._pass_turn(call.key)
        finally:
            self.counters.unfinished -= 1
        if outcome.ok:
            self.counters.succeeded += 1
        else:
            self.counters.refused += 1
        return outcome

    async def serve(
        self, calls: MemoryObjectReceiveStream[KubeCall], outcomes: MemoryObjectSendStream[CallOutcome]
    ) -> None:
        """
        Carry out every call of a stream and send each outcome when it is final; return when the stream has ended.

        Takes at most `accepted_max` unfinished calls at a time, so a slow server blocks the sender and does not fill
        the memory. Outcomes of the same key are in order.
        """
        room = anyio.Semaphore(self.settings.accepted_max)

        async def carry_out(call: KubeCall) -> None:
            try:
                await outcomes.send(await self.run(call))
            finally:
                room.release()

        async with anyio.create_task_group() as tasks:
            await room.acquire()
            async for call in calls:
                tasks.start_soon(carry_out, call)
                await room.acquire()

    async def _take_turn(self, key: str) -> None:
        """Return when all earlier calls of the key have ended. Most keys have one call at a time."""
        waiting = self._turns.get(key)
        if waiting is None:
            self._turns[key] = deque()
            return
        turn = anyio.Event()
        waiting.append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self._pass_turn(key)
            else:
                waiting.remove(turn)
            raise

    def _pass_turn(self, key: str) -> None:
        """Pass the key to the call that has waited for it longest; without one it is forgotten."""
        waiting = self._turns[key]
        if waiting:
            waiting.popleft().set()
        else:
            del self._turns[key]

    async def _attempt_until_final(self, call: KubeCall) -> CallOutcome:
        backoff = Backoff(first_s=self.settings.backoff_first_s, max_s=self.settings.backoff_max_s, random=self._random)
        self._started += 1
        number = self._started
        attempts = 0
        maybe_repeated = False
        try:
            while True:
                attempts += 1
                result = await self._attempt(call)
                error = _as_error(call, result)
                if error is None or (isinstance(error, ApiError) and _is_final(call, error)):
                    assert isinstance(result, Response), "no answer is never final"
                    break
                maybe_repeated = maybe_repeated or _maybe_applied(error)
                delay_s = backoff.next_s(error.retry_after if isinstance(error, ApiError) else None)
                self._note_retry(number, call, error, attempts, delay_s)
                await self._sleep(delay_s)
        finally:
            self._failing.pop(number, None)
        if attempts > 1:
            _LOG.debug("call %s got through after %d attempts", call.id, attempts)
            if not self._failing:
                _LOG.info("calls to the API server get through again; %s was the last to wait", call.id)
                self._repeats.clear()
        return CallOutcome(
            id=call.id, status=result.status, body=result.body, attempts=attempts, maybe_repeated=maybe_repeated
        )

    async def _attempt(self, call: KubeCall) -> Response | TransportError:
        async with self._slots:
            await self.limiter.acquire()
            self.counters.attempts += 1
            self.counters.in_flight += 1
            try:
                return await self._transport.request(
                    call.method, call.path, query=call.query, body=call.body, content_type=call.content_type
                )
            except TransportError as error:
                return error
            finally:
                self.counters.in_flight -= 1

    def _note_retry(
        self, number: int, call: KubeCall, error: ApiError | TransportError, attempts: int, delay_s: float
    ) -> None:
        match error:
            case TransportError():
                self.counters.retried_transport += 1
            case ApiError(status=429):
                self.counters.retried_throttled += 1
            case ApiError(status=401):
                self.counters.retried_unauthorized += 1
            case ApiError(status=403 | 404):
                self.counters.retried_refused += 1
            case ApiError():
                self.counters.retried_server += 1
            case _:
                assert_never(error)
        known = self._failing.pop(number, None)
        since = self._wall_clock() if known is None else known.since
        # Moved to the end: the dictionary's order is that of the newest failure.
        self._failing[number] = _Failing(since=since, error=str(error), attempts=attempts)
        _LOG.log(
            logging.WARNING if self._repeats.is_news(kind_of(error)) else logging.DEBUG,
            "call %s: %s; attempt %d follows in %.1f s",
            call.id,
            error,
            attempts + 1,
            delay_s,
            extra={"call": call.id, "failing_since": since},
        )


def _as_error(call: KubeCall, result: Response | TransportError) -> ApiError | TransportError | None:
    if isinstance(result, TransportError):
        return result
    if 200 <= result.status < 300:
        return None
    request = f"{call.method} {call.path}"
    return api_error(result.status, result.headers, result.body, request=request, user=result.user)


def _is_final(call: KubeCall, error: ApiError) -> bool:
    """Whether a retry would not change the answer."""
    if error.is_conflict and call.method == "POST":
        # An object that does not exist yet has nothing to conflict with (AlreadyExists is another reason): the conflict
        # is internal to the server, as when a quota changes meanwhile. A subresource, such as a binding, is about an
        # object.
        asked = asked_for(f"{call.method} {call.path}")
        return asked is None or asked.name != ""
    return not is_operating_error(error)


def _maybe_applied(error: ApiError | TransportError) -> bool:
    """Whether a failed attempt may have been carried out. A server that answers 5xx may have stored it before."""
    if isinstance(error, TransportError):
        return error.maybe_applied
    return error.status >= 500
