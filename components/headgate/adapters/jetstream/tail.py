"""
The self-healing tail: a reader of a stream that misses nothing and repeats nothing, whatever the broker does.

It reads through an ephemeral pull consumer without relevant state: after any irregularity (a gap in the consumer's
sequence, a status that reports the loss of the consumer, silence for longer than heartbeats allow, a reconnection) the
tail drops the consumer and creates a new one directly after the last entry it has. A consumer always starts at an
explicit sequence, never at "new".

A tail has no task. Messages are put into its buffer by the subscription's callback; a timer detects silence; the task
that waits in `receive` does the repair. Requests for more are only sent while the buffer has room, so a slow reader
slows the broker down and costs bounded memory.

A lingering tail is for readers that are not latency-critical. Entries sent one by one cost the broker and the reader
several times what they cost in one batch, so once it has everything it requests nothing for a while, and then all that
has arrived (a request that does not wait). When nothing has arrived, it waits for one entry.

Before each new consumer the stream itself is checked: if it is another stream than before, or ends before what was
read, reading on would be wrong, and `receive` raises `LogTruncated`. If it claims more than it can deliver, `receive`
returns what is readable and then raises `LogTorn`.
"""
# Over 400 lines: one reader; buffer, consumer, requests and repair are one state machine over the same fields.

import asyncio
from collections import deque
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
import msgspec
from msgspec import Struct

from headgate.adapters.backoff import Backoff
from headgate.adapters.jetstream.connection import Connection
from headgate.adapters.jetstream.ending import torn_end
from headgate.adapters.jetstream.errors import (
    STREAM_NOT_FOUND,
    BrokerError,
    JetStreamApiError,
    NotSent,
    OutcomeUnknown,
    PermissionDenied,
)
from headgate.adapters.jetstream.stored_time import stored_ms
from headgate.adapters.jetstream.stream import SECOND_NS, StreamInfo, identity_of, stream_info
from headgate.adapters.log import LogEntry, LogHole, LogTorn, LogTruncated

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription


class TailOptions(Struct, frozen=True, kw_only=True):
    """
    Bounds and timeouts of a tail.

    `buffer_entries_max` and `buffer_bytes_max` bound what was received and not yet taken; up to two requests
    (`pull_entries_max`, `pull_bytes_max`) more may be in flight. `truncation_grace_s` is how long a replicated stream
    may look shorter than what was read until that is accepted: a newly elected leader may still be applying entries.
    """

    buffer_entries_max: int = 16_384
    buffer_bytes_max: int = 32 * 1024 * 1024
    pull_entries_max: int = 2_000
    pull_bytes_max: int = 8 * 1024 * 1024
    pull_expires_s: float = 30.0
    heartbeat_s: float = 1.0
    silence_heartbeats_max: float = 2.5
    consumer_idle_s: float = 60.0
    truncation_grace_s: float = 5.0


class _ConsumerInfo(Struct):
    num_pending: int = 0


_CONSUMER_INFO = msgspec.json.Decoder(_ConsumerInfo)


class _Pull(Struct):
    """One request in flight: the number of requested entries, and of those that it may still deliver."""

    token: str
    asked: int
    left: int


class JetStreamTail:
    """
    A tail of `stream` from `start` on; an async context manager, owned by one task.

    `subjects` restricts it to some subjects; the stream's sequence then has legitimate gaps, and only the consumer's is
    checked. `identity` is the stream's creation time if known; without it the first check of the stream sets it. With
    `linger_s` entries may arrive so much later, and then in batches.
    """

    # Large: the fields of the reader, one line each.
    def __init__(
        self,
        connection: Connection,
        stream: str,
        *,
        start: int,
        subjects: tuple[str, ...] = (),
        identity: str | None = None,
        linger_s: float = 0.0,
        options: TailOptions | None = None,
    ) -> None:
        if start < 1:
            raise ValueError(f"the log starts at 1, not {start}")
        self._connection = connection
        self._stream = stream
        self._subjects = subjects
        self._identity = identity
        self._linger_s = linger_s
        self._options = options or TailOptions()
        self._expected = start  # the next stream sequence to be buffered
        self._returned = start - 1  # the last stream sequence that receive returned
        self._buffer: deque[LogEntry] = deque()
        self._buffer_bytes = 0
        self._broker_pending = 0  # the broker's backlog beyond the last entry it sent
        self._seen_once = False
        self._taken_at = 0.0
        self._found_nothing = False  # by the last request that did not wait
        self._damage: LogHole | PermissionDenied | None = None
        self._torn: LogTorn | None = None
        # The consumer in use. `_generation` changes with it, so that late messages of an earlier one are not taken for
        # its own.
        self._generation = 0
        self._consumer = ""
        self._consumer_next = 1
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._pulls: deque[_Pull] = deque()
        self._pull_token = 0
        self._broken = "not started"
        self._wake = asyncio.Event()
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._repairs = 0

    async def __aenter__(self) -> Self:
        self._connection.on_change(self._on_connection_change)
        self._connection.on_denied(self._on_denied)
        self._watch_silence()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.no_more(self._on_connection_change)
        self._connection.no_more_denied(self._on_denied)
        if self._timer is not None:
            self._timer.cancel()
        with anyio.move_on_after(1, shield=True):
            await self._drop_consumer()

    @property
    def position(self) -> int:
        """The sequence of the last entry that `receive` returned; `start - 1` before the first."""
        return self._returned

    @property
    def lag(self) -> int:
        """The number of entries known to be in the stream and not yet returned."""
        return len(self._buffer) + self._broker_pending

    @property
    def caught_up(self) -> bool:
        """Whether everything that the broker held at its last message has been returned."""
        return self._seen_once and self.lag == 0

    @property
    def repairs(self) -> int:
        """How often the consumer was created anew since the first."""
        return max(self._repairs - 1, 0)

    async def receive(self) -> list[LogEntry]:
        """
        The next entries, at least one; waits for as long as there is none.

        :raises LogTruncated: the stream lost what was read, or is another.
        :raises LogHole: entries are missing in its middle.
        :raises LogTorn: all that can be delivered was returned, and the stream claims more.
        :raises BrokerError: the stream cannot be read (permissions, configuration), or the connection is closed for
        good.
        """
        while not self._buffer:
            if self._damage is not None:
                raise self._damage
            await self._rest()
            await self._settle()
            if self._buffer:
                break
            if self._torn is not None and self._expected > self._torn.ends_at:
                raise self._torn
            self._wake.clear()
            await self._wake.wait()
        entries = self._take()
        # The next ones arrive while the caller is busy with these.
        if not self._may_linger:
            await self._top_up()
        return entries

    async def ready(self) -> None:
        """
        Returns when a consumer exists, so that `lag` and `caught_up` are valid.

        `receive` does this by itself.
        """
        await self._settle()

    def _take(self) -> list[LogEntry]:
        entries = list(self._buffer)
        self._buffer.clear()
        self._buffer_bytes = 0
        self._returned = entries[-1].seq
        self._taken_at = asyncio.get_running_loop().time()
        return entries

    @property
    def _may_linger(self) -> bool:
        """Whether the next request can wait: there was nothing more at the broker's last message."""
        return self._linger_s > 0 and self._broker_pending == 0

    async def _rest(self) -> None:
        if self._may_linger and not self._pulls:
            await anyio.sleep(max(0.0, self._taken_at + self._linger_s - asyncio.get_running_loop().time()))

    async def _settle(self) -> None:
        while self._broken:
            await self._connection.wait_connected()
            await self._make_consumer()
        await self._top_up()

    # --- what the broker sends ---------------------------------------------------------------------------------------

    async def _on_message(
        self, generation: int, subject: bytes, reply: bytes, payload: bytes, status: dict[str, str] | None
    ) -> None:
        """Called by the connection for each message of the inbox, in order."""
        if generation != self._generation or self._broken:
            return
        self._heard_at = asyncio.get_running_loop().time()
        if status is not None and "Status" in status:
            self._on_status(subject.decode(), status)
            return
        fields = reply.split(b".")
        # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>; with two more tokens
        # before the stream, and one more at the end, where the server includes the domain and account.
        at = 5 if len(fields) == 9 else 7
        seq, consumer_seq = int(fields[at]), int(fields[at + 1])
        if consumer_seq != self._consumer_next:
            self._break(f"consumer sequence {consumer_seq} where {self._consumer_next} was due")
            return
        if seq != self._expected and not self._subjects:
            self._damage = LogHole(f"stream {self._stream}", expected=self._expected, found=seq)
            self._break("a hole in the stream")
            return
        self._consumer_next += 1
        self._expected = seq + 1
        self._broker_pending = int(fields[at + 3])
        time_ms = int(fields[at + 2]) // 1_000_000
        self._buffer.append(LogEntry(seq, subject.decode(), stored_ms(status, time_ms) if status else time_ms, payload))
        self._buffer_bytes += len(payload)
        self._wake.set()
        pulls = self._pulls
        if pulls:
            pulls[0].left -= 1
            if pulls[0].left == 0:
                pulls.popleft()
                if not self._may_linger:
                    await self._top_up()

    def _on_status(self, subject: str, headers: dict[str, str]) -> None:
        status, text = headers.get("Status", ""), headers.get("Description", "")
        if status == "100":
            return
        over = status in ("404", "408") or (status == "409" and ("MaxBytes" in text or "Batch Completed" in text))
        if not over:
            self._break(f"{status} {text}".strip())
            return
        done = subject.rpartition(".")[2]
        self._found_nothing = status == "404" and all(pull.left == pull.asked for pull in self._pulls)
        self._pulls = deque(pull for pull in self._pulls if pull.token != done)
        self._wake.set()

    def _on_connection_change(self) -> None:
        # A pull request does not outlive its connection.
        self._break("the connection changed")

    def _on_denied(self, denied: PermissionDenied, subject: str) -> None:
        # Pull requests are not awaited one by one: without this a tail without the permission would wait forever.
        if self._consumer and subject == self._next_verb.lower():
            self._damage = denied
            self._break(str(denied))

    def _watch_silence(self) -> None:
        options, loop = self._options, asyncio.get_running_loop()
        if self._pulls and loop.time() - self._heard_at > options.heartbeat_s * options.silence_heartbeats_max:
            self._break("the broker fell silent")
        self._timer = loop.call_later(options.heartbeat_s / 2, self._watch_silence)

    def _break(self, why: str) -> None:
        """The consumer is invalid; the task that waits in `receive` creates another."""
        self._broken = why
        self._wake.set()

    # --- what we ask of the broker -----------------------------------------------------------------------------------

    @property
    def _next_verb(self) -> str:
        return f"{self._connection.api_prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"

    async def _top_up(self) -> None:
        """Keeps two requests in flight (lingering: one) while the buffer has room for their entries."""
        options, client = self._options, self._connection.client
        while len(self._pulls) < (1 if self._linger_s else 2) and not self._broken and client.is_connected:
            coming = sum(pull.left for pull in self._pulls)
            room = options.buffer_entries_max - len(self._buffer) - coming
            if room <= 0 or self._buffer_bytes >= options.buffer_bytes_max:
                return
            self._pull_token += 1
            asked = 1 if self._found_nothing else min(room, options.pull_entries_max)
            pull = _Pull(str(self._pull_token), asked, asked)
            if not self._pulls:
                self._heard_at = asyncio.get_running_loop().time()
            self._pulls.append(pull)
            body = self._request(pull)
            await client.publish(self._next_verb, msgspec.json.encode(body), reply=f"{self._inbox}.{pull.token}")

    def _request(self, pull: _Pull) -> dict[str, int | bool]:
        options = self._options
        body: dict[str, int | bool] = {"batch": pull.asked, "max_bytes": options.pull_bytes_max}
        if self._linger_s and not self._found_nothing:
            return {**body, "no_wait": True}
        self._found_nothing = False
        return {
            **body,
            "expires": int(options.pull_expires_s * SECOND_NS),
            "idle_heartbeat": int(options.heartbeat_s * SECOND_NS),
        }

    async def _make_consumer(self) -> None:
        """
        One consumer directly after what is buffered, however long it takes.

        Leaves `_broken` set if it broke again meanwhile.
        """
        dependency, backoff = f"tail of {self._stream}", Backoff()
        while True:
            await self._drop_consumer()
            self._broken = ""
            try:
                await self._check_stream()
                await self._create()
            except (NotSent, OutcomeUnknown) as error:
                trouble: Exception = error
            except JetStreamApiError as error:
                if error.for_good:
                    raise BrokerError(f"stream {self._stream} cannot be read: {error}") from error
                trouble = error
            else:
                self._connection.health.well(dependency)
                self._repairs += 1
                return
            self._connection.health.unwell(dependency, str(trouble))
            await backoff.wait()
            await self._connection.wait_connected()

    async def _create(self) -> None:
        client, options = self._connection.client, self._options
        self._generation += 1
        self._inbox = client.new_inbox()
        self._consumer = f"tail-{self._inbox.rpartition('.')[2]}"
        self._consumer_next = 1
        self._pulls.clear()
        self._subscription = await self._connection.subscribe(
            f"{self._inbox}.*", partial(self._on_message, self._generation)
        )
        config = {
            "name": self._consumer,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._expected,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": int(options.consumer_idle_s * SECOND_NS),
            "mem_storage": True,
            "num_replicas": 1,
        }
        if self._subjects:
            config["filter_subjects"] = list(self._subjects)
        body = msgspec.json.encode({"stream_name": self._stream, "config": config, "action": "create"})
        info = await self._connection.call_once(
            f"CONSUMER.CREATE.{self._stream}.{self._consumer}", body, _CONSUMER_INFO
        )
        self._broker_pending = info.num_pending
        self._seen_once = True

    async def _drop_consumer(self) -> None:
        """Deletes the consumer; the broker would do so by itself a little later, so its answer is not awaited."""
        self._generation += 1
        self._pulls.clear()
        subscription, self._subscription = self._subscription, None
        client = self._connection.client
        if subscription is None or client.is_closed:
            return
        await self._connection.unsubscribe(subscription)
        if client.is_connected:
            await client.publish(f"{self._connection.api_prefix}.CONSUMER.DELETE.{self._stream}.{self._consumer}", b"")

    async def _check_stream(self) -> None:
        """
        Checks that the stream still holds what was read, and whether it delivers what it claims.

        :raises LogTruncated: it does not, and a transient state of a replicated stream is ruled out.
        """
        clock, backoff = asyncio.get_running_loop().time, Backoff(first_s=0.05, max_s=0.5)
        believed_at: float | None = None
        while True:
            detail, replicas = await self._doubt()
            if not detail:
                return
            if believed_at is None:
                believed_at = clock() + (self._options.truncation_grace_s if replicas != 1 else 0.0)
            if clock() >= believed_at:
                raise LogTruncated(f"stream {self._stream}", read_up_to=self._expected - 1, detail=detail)
            await backoff.wait()

    async def _doubt(self) -> tuple[str, int]:
        """The reason against reading on, or "", and the number of replicas of the stream (0: there is no stream)."""
        try:
            info: StreamInfo = await stream_info(self._connection, self._stream)
        except JetStreamApiError as refused:
            if refused.err_code != STREAM_NOT_FOUND:
                raise
            return "the stream does not exist any more", 0
        replicas = info.config.num_replicas
        if self._identity is None:
            self._identity = identity_of(info)
        if identity_of(info) != self._identity:
            return f"it is another stream now (created {identity_of(info)}, was {self._identity})", replicas
        if info.state.last_seq < self._expected - 1:
            return f"the stream ends at {info.state.last_seq}", replicas
        # Where only some subjects are read, missing entries are legitimate.
        self._torn = None if self._subjects else await torn_end(self._connection, info)
        return "", replicas
