"""
One connection to NATS per process, and the calls that all other modules use.

`connect` returns a `Connection` that recovers by itself: it reconnects without limit, notifies the tails, ends calls in
flight as "outcome unknown", and updates `DependencyHealth`. `call` is a JetStream API request that is safe to repeat
and therefore waits out transient failures; `call_once` is for those that are not.
"""
# Over 400 lines: one connection and its life; calls, reconnection and health read and change the same fields.

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import msgspec
import nats.errors
from msgspec import Struct
from nats.aio.client import Client

from headgate.adapters.backoff import Backoff
from headgate.adapters.jetstream.errors import (
    BrokerClosed,
    BrokerError,
    JetStreamApiError,
    NotSent,
    OutcomeUnknown,
    PermissionDenied,
)
from headgate.adapters.jetstream.frames import frame
from headgate.adapters.jetstream.health import DependencyHealth
from headgate.adapters.jetstream.nkeys import NatsCredentials
from headgate.adapters.jetstream.options import NatsOptions, TlsNotOffered, explain, wants_tls, without_secrets
from headgate.adapters.jetstream.requests import Requests
from headgate.adapters.jetstream.stored_time import only_header
from headgate.adapters.log import CommitTooLarge

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

T = TypeVar("T")

DEPENDENCY = "nats"
PERMISSIONS = "nats permissions"

_DENIED = re.compile(
    r"permissions violation for (?P<act>publish|subscription) to \"(?P<subject>[^\"]+)\"", re.IGNORECASE
)
_ANNOUNCED_MAX = 16
"""Kinds of connection errors that are logged separately."""

_STEPS_TO_READ = 5
"""Turns of the event loop from a readable socket to a tail's owner: the socket, its stream, the parser, that task."""


class _ApiFault(Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _ApiReply(Struct):
    error: _ApiFault | None = None


class PubAck(Struct):
    """The broker's answer to a message for a stream: its sequence, and whether it is a duplicate."""

    stream: str = ""
    seq: int = 0
    duplicate: bool = False
    error: _ApiFault | None = None


_PUB_ACK = msgspec.json.Decoder(PubAck)
_API_REPLY = msgspec.json.Decoder(_ApiReply)


Outgoing = tuple[str, bytes, Mapping[str, str]]
"""A message to be sent: its subject, payload and headers."""

Handler = Callable[[bytes, bytes, bytes, "dict[str, str] | None"], Awaitable[None]]
"""Takes a message at once: its subject, reply subject, payload, and the headers of a status (None without one)."""


class _Client(Client):
    """
    nats-py's client without the parsing of ordinary message headers, and with subscriptions that are served at once.

    Only one module reads headers (`stored_time`), and parsing them halves a replay's speed. A subscription of nats-py's
    own has a queue and a task, and each message is a switch to that task; those in `handlers` are called by the task
    that reads the socket.
    """

    handlers: dict[int, Handler]
    demands_tls: bool = False
    credentials: NatsCredentials | None = None

    def _setup_nkeys_connect(self) -> None:
        # nats-py's own needs a package that is not used otherwise.
        assert self.credentials is not None, "set before connecting"
        self._public_nkey = self.credentials.public_key
        self._signature_cb = self.credentials.sign
        self._user_jwt_cb = self.credentials.jwt if self._public_nkey is None else None

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        # nats-py uses the offer only where the server requires it.
        if self.demands_tls and info.get("tls_available"):
            info["tls_required"] = True
        await super()._process_info(info, initial_connection=initial_connection)

    def _connect_command(self) -> bytes:
        # The command holds the credentials. nats-py would send it in plain text, whatever the URL's scheme is.
        if self.demands_tls and not self._server_info.get("tls_required"):
            raise TlsNotOffered
        command: bytes = super()._connect_command()
        return command

    async def close(self) -> None:
        """Close permanently, including the socket of an attempt whose own close was cancelled (a bug of nats-py)."""
        await super().close()
        if self._transport:
            self._transport.close()  # type: ignore[no-untyped-call]

    def write(self, data: bytes) -> None:
        """Pass frames to the socket, at once, after what waits for nats-py's flusher (a task that it would wake)."""
        assert self._transport is not None, "only while connected"
        self._pending.append(data)
        self._transport.writelines(self._pending)
        self._pending = []
        self._pending_data_size = 0

    def hold_reading(self) -> asyncio.Transport | None:
        """Stop reading the socket; None when there is none whose reading can be stopped."""
        writer = getattr(self._transport, "_io_writer", None) if self.is_connected else None
        transport: asyncio.Transport | None = writer.transport if writer is not None else None
        if transport is None or transport.is_closing() or not transport.is_reading():
            return None
        transport.pause_reading()
        return transport

    def go_on_reading(self, transport: asyncio.Transport) -> None:
        """Resume reading after `hold_reading`."""
        if not transport.is_closing():
            transport.resume_reading()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any) -> None:
        handler = self.handlers.get(sid)
        if handler is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        try:
            await handler(subject, reply, data, await self._process_headers(headers) if headers else None)
        except Exception as error:  # noqa: BLE001  (as nats-py does: what one handler raises must not end the reading)
            await self._error_cb(error)

    async def _process_headers(self, headers: Any) -> dict[str, str] | None:
        # A status line ("NATS/1.0 503") has a blank after the version; plain headers have the line's end there.
        if not headers or headers[8:9] != b" ":
            return only_header(headers) if headers else None
        parsed: dict[str, str] | None = await super()._process_headers(headers)
        return parsed


class Connection:
    """A connected client with its requester. Created by `connect`; used by one event loop."""

    def __init__(self, *, options: NatsOptions, health: DependencyHealth) -> None:
        self.options = options
        self.health = health
        self.client = _Client()
        self.client.handlers = {}
        self.api_prefix = f"$JS.{options.js_domain}.API" if options.js_domain else "$JS.API"
        self._connected = asyncio.Event()
        self._closed_because = ""
        self._last_error = ""
        self._announced: set[str] = set()
        self._listeners: set[Callable[[], None]] = set()
        self._denial_listeners: set[Callable[[PermissionDenied, str], None]] = set()
        self._requests: Requests | None = None
        self.refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection now, as far as the client knows."""
        return self._connected.is_set() and self.client.is_connected

    @property
    def requests(self) -> Requests:
        """The pipelined requester."""
        assert self._requests is not None, "connect() starts the requester"
        return self._requests

    def on_change(self, listener: Callable[[], None]) -> None:
        """Registers `listener` for every loss and every return of the connection. It must not block."""
        self._listeners.add(listener)

    def no_more(self, listener: Callable[[], None]) -> None:
        """Unregisters a listener of `on_change`."""
        self._listeners.discard(listener)

    def on_denied(self, listener: Callable[[PermissionDenied, str], None]) -> None:
        """Registers `listener` for each denied permission, with the subject in lower case. It must not block."""
        self._denial_listeners.add(listener)

    def no_more_denied(self, listener: Callable[[PermissionDenied, str], None]) -> None:
        """Unregisters a listener of `on_denied`."""
        self._denial_listeners.discard(listener)

    async def wait_connected(self) -> None:
        """
        Returns when there is a connection.

        :raises BrokerClosed: the connection is closed permanently.
        """
        while True:
            if self._closed_because or self.client.is_closed:
                raise BrokerClosed(self._closed_because or "the connection to NATS is closed")
            if self.is_connected:
                return
            self._connected.clear()
            await self._connected.wait()

    async def gather(self, for_s: float) -> None:
        """
        Wait, leaving what the server sends in the socket; when this returns, it has been read, in one batch.

        Ten messages that are read one by one, as they arrive, cost five times as much as ten that are read together. A
        task that will process none of them for a while waits here instead of sleeping. Answers to requests wait too.
        """
        transport = self.client.hold_reading()
        try:
            await anyio.sleep(for_s)
        finally:
            if transport is not None:
                self.client.go_on_reading(transport)
        if transport is not None:
            for _ in range(_STEPS_TO_READ):
                await asyncio.sleep(0)

    async def subscribe(self, subject: str, handler: Handler) -> "Subscription":
        """
        Registers `handler` for a subject's messages, in order, as they are read from the socket. It must not block.

        The subscription outlives reconnections; `unsubscribe` ends it.
        """
        subscription = await self.client.subscribe(subject, pending_msgs_limit=0, pending_bytes_limit=0)
        self.client.handlers[subscription._id] = handler  # noqa: SLF001  (the one name by which messages name it)
        return subscription

    async def unsubscribe(self, subscription: "Subscription") -> None:
        """End a subscription of `subscribe`: its handler is not called again."""
        self.client.handlers.pop(subscription._id, None)  # noqa: SLF001
        await subscription.unsubscribe()

    async def publish(self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None) -> PubAck:
        """
        One attempt to store a message in the stream that binds `subject`.

        :raises CommitTooLarge: NATS accepts no message of this size. :raises NotSent: it was not stored. :raises
        OutcomeUnknown: it may have been. :raises Refused: the stream refused it.
        """
        self._check_size(subject, payload)
        return self._acknowledged(subject, await self.requests.request(subject, payload, headers))

    async def publish_all(self, messages: Sequence[Outgoing]) -> PubAck:
        """
        One attempt to store messages that are fenced on each other, in one write; the answer to the last of them.

        It covers all: no answer is requested for the others. Raises what `publish` raises, for the last.
        """
        *others, (subject, payload, headers) = messages
        for name, body, _ in messages:
            self._check_size(name, body)
        before = b"".join([frame(name, body, attributes) for name, body, attributes in others])
        return self._acknowledged(subject, await self.requests.request(subject, payload, headers, before=before))

    def _check_size(self, subject: str, payload: bytes) -> None:
        if len(payload) > self.client.max_payload:
            raise CommitTooLarge(subject, len(payload), self.client.max_payload)

    @staticmethod
    def _acknowledged(subject: str, reply: bytes) -> PubAck:
        ack = _PUB_ACK.decode(reply)
        if ack.error is not None:
            raise _refused(subject, ack.error)
        return ack

    async def call_once(
        self, verb: str, body: bytes, decoder: "msgspec.json.Decoder[T]", *, timeout_s: float | None = None
    ) -> T:
        """
        One attempt at `<prefix>.<verb>`.

        :raises NotSent:
        :raises OutcomeUnknown:
        :raises Refused: each as its docstring says.
        """
        reply = await self.requests.request(f"{self.api_prefix}.{verb}", body, timeout_s=timeout_s)
        fault = _API_REPLY.decode(reply).error
        if fault is not None:
            raise _refused(verb, fault)
        return decoder.decode(reply)

    async def call(
        self, verb: str, body: bytes, decoder: "msgspec.json.Decoder[T]", *, dependency: str = "jetstream"
    ) -> T:
        """
        A request that is safe to repeat, repeated until it is answered; `dependency` is reported unhealthy meanwhile.

        :raises Refused: the broker's answer is a permanent error.
        """
        backoff = Backoff()
        while True:
            try:
                answer = await self.call_once(verb, body, decoder)
            except (NotSent, OutcomeUnknown) as error:
                self.health.unwell(dependency, str(error))
            except JetStreamApiError as error:
                if error.code != 503:
                    raise
                self.health.unwell(dependency, str(error))
            else:
                self.health.well(dependency)
                return answer
            await backoff.wait()
            await self.wait_connected()

    async def start(self) -> None:
        """Creates the requester; called once by `connect`."""
        self._requests = Requests(
            self.client,
            self.client.new_inbox(),
            messages_max=self.options.window_messages_max,
            bytes_max=self.options.window_bytes_max,
            timeout_s=self.options.request_timeout_s,
        )
        await self.subscribe(f"{self._requests.inbox}.*", self._requests.on_reply)
        await self.on_connected()

    async def on_connected(self) -> None:
        """The client has a (new) connection."""
        self._connected.set()
        self.health.well(DEPENDENCY)
        self._tell()

    async def on_disconnected(self) -> None:
        """The client lost its connection and reconnects."""
        self._connected.clear()
        if self._closed_because:
            return
        self.health.unwell(DEPENDENCY, self._last_error or "the connection was lost; reconnecting")
        if self._requests is not None:
            self._requests.connection_lost()
        self._tell()

    async def on_closed(self) -> None:
        """The client is closed: by us, or because the server refused it."""
        self.shut(self._last_error or "the connection to NATS was closed")

    async def on_error(self, error: Exception) -> None:
        """Asynchronous errors of the client: refused connections, permission violations."""
        denied = _DENIED.search(str(error))
        if denied is not None:
            self._on_denied(denied["act"], denied["subject"])
            return
        self._last_error = explain(error, self.options)
        unauthorized = isinstance(error, nats.errors.AuthorizationError) or "authorization" in str(error).lower()
        if unauthorized and not self.refused.done():
            self.refused.set_result(self._last_error)
        if not self.client.is_connected:
            # Each kind of connection failure is logged once; attempts continue meanwhile.
            is_new = self._last_error not in self._announced and len(self._announced) < _ANNOUNCED_MAX
            self._announced.add(self._last_error)
            self.health.unwell(DEPENDENCY, self._last_error, announce=is_new)

    def _on_denied(self, act: str, subject: str) -> None:
        """
        NATS reports dropped requests asynchronously, and never answers them: the answer is given here.

        The subject is in lower case, so it is compared so.
        """
        if act == "subscription":
            denied = PermissionDenied(self.options.who, "subscribe to", subject)
            if self._requests is not None and subject.startswith(self._requests.inbox.lower()):
                self.shut(
                    f"{denied}; nats.inbox_prefix ({self.options.inbox_prefix}) has to be the one that they allow"
                )
        else:
            waiting = self._requests.subject_of(subject) if self._requests is not None else None
            denied = PermissionDenied(self.options.who, "publish on", waiting or subject)
            if waiting is not None and self._requests is not None:
                self._requests.deny(waiting, denied)
        for listener in tuple(self._denial_listeners):
            listener(denied, subject)

    def shut(self, reason: str) -> None:
        """Ends everything that waits for this connection."""
        self._closed_because = self._closed_because or reason
        if self._requests is not None:
            self._requests.close(self._closed_because)
        self._connected.set()
        self._tell()

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()


def _refused(what: str, fault: _ApiFault) -> JetStreamApiError:
    return JetStreamApiError(what, code=fault.code, err_code=fault.err_code, description=fault.description)


@asynccontextmanager
async def connect(
    url: str, *, name: str, options: NatsOptions | None = None, health: DependencyHealth | None = None
) -> AsyncIterator[Connection]:
    """
    Connects to NATS at `url` (several, separated by commas, for a cluster) and stays connected until the block ends.

    Waits until a server is available; `health` reports that meanwhile. `name` appears in the server's monitoring.

    :raises BrokerError: the server refuses these credentials.
    """
    options = options or NatsOptions()
    # Errors in files are reported before a server is contacted.
    identity = {"password": options.secret("password"), "token": options.secret("token"), "tls": options.tls_context()}
    connection = Connection(options=options, health=health or DependencyHealth())
    connection.client.demands_tls = wants_tls(url, options)
    if options.creds_file or options.nkey_seed_file:
        files = {"creds_file": options.creds_file, "nkey_seed_file": options.nkey_seed_file}
        connection.client.credentials = NatsCredentials(**files)
    connection.health.unwell(DEPENDENCY, f"connecting to {without_secrets(url)}")
    try:
        await _dial(connection, url, name, identity)
        await connection.start()
        yield connection
    finally:
        connection.shut("the connection to NATS was closed by this process")
        connection.refused.cancel()
        with anyio.move_on_after(2, shield=True):
            await connection.client.close()


async def _dial(connection: Connection, url: str, name: str, identity: dict[str, Any]) -> None:
    """Waits for the first connection, or for a permanent refusal by the server."""
    options = connection.options
    dialling = asyncio.ensure_future(
        connection.client.connect(
            [part.strip() for part in url.split(",")],
            name=name,
            error_cb=connection.on_error,
            disconnected_cb=connection.on_disconnected,
            reconnected_cb=connection.on_connected,
            closed_cb=connection.on_closed,
            connect_timeout=options.connect_timeout_s,  # type: ignore[arg-type]
            ping_interval=options.ping_interval_s,  # type: ignore[arg-type]
            reconnect_time_wait=options.reconnect_wait_s,  # type: ignore[arg-type]
            max_reconnect_attempts=-1,
            pending_size=0,
            inbox_prefix=options.inbox_prefix,
            user=options.user,
            password=partial(_again, options, "password") if options.password_file else identity["password"],
            token=partial(_again, options, "token") if options.token_file else identity["token"],
            user_credentials=options.creds_file,
            nkeys_seed=options.nkey_seed_file,
            tls=identity["tls"],
            tls_hostname=options.tls_hostname,
        )
    )
    try:
        waited: set[asyncio.Future[Any]] = {dialling, connection.refused}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if dialling.done():
            dialling.result()
            return
        raise BrokerError(
            f"{without_secrets(url)} refuses this client: {connection.refused.result()}. "
            "Check the user, token or credentials file"
        )
    finally:
        if not dialling.done():
            dialling.cancel()
            await asyncio.wait({dialling})


def _again(options: NatsOptions, key: str) -> str:
    """A secret as its file has it now. Raises nats-py's own error: an unknown one would end its reconnecting."""
    try:
        return options.secret(key) or ""
    except BrokerError as error:
        raise nats.errors.Error(str(error)) from error
