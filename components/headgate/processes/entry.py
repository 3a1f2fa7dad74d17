"""
The entry: from settings to a running process, and from its end to an exit code.

`run_process` is what `headgate run PROCESS` calls. It serves /healthz first, so that a process that waits for its
broker can report it; connects to NATS; opens the log, the leases and the snapshots; builds what the process needs; and
runs the loop until SIGTERM or SIGINT. A second signal, or a shutdown that takes too long, cancels it.
"""
# Over 400 lines: the start of a process, from its settings to its exit code, in the order in which it happens.

import enum
import logging
import os
import signal
import socket
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from aiohttp import web

from headgate.adapters.jetstream import BrokerError, Connection, Dependency, DependencyHealth, connect, open_log
from headgate.adapters.jetstream.blobs import open_blobs
from headgate.adapters.jetstream.errors import STREAM_NOT_FOUND, JetStreamApiError
from headgate.adapters.jetstream.lease import open_leases
from headgate.adapters.kubernetes.errors import KubeConfigurationError
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kubeconfig import resolve
from headgate.adapters.log import Blobs, CommitTooLarge, Log, LogDamaged
from headgate.adapters.telemetry import Metrics, TracingError, configure_logs, open_traces
from headgate.core.fold import BrokenLogError
from headgate.core.fold.quarantine import EventFailedError
from headgate.core.fold.quarantine_limit import TooManyFailedError
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import UnreadableCommitError
from headgate.events.remedy import REMEDY
from headgate.processes.runtime.cell_identity import IdentityGate
from headgate.processes.runtime.cell_record import CellRecords
from headgate.processes.runtime.cluster_recognition import ForeignCellError, RecognisingTransport
from headgate.processes.runtime.crash_report import story_of
from headgate.processes.runtime.host import Host
from headgate.processes.runtime.host_parts import Stores, Trust, TurnTiming
from headgate.processes.runtime.http import CannotListenError, application, serving
from headgate.processes.runtime.pacing import Pace
from headgate.processes.runtime.process import Given, Process
from headgate.processes.runtime.process_status import Phase, Status
from headgate.processes.runtime.settings import Settings, SettingsError
from headgate.processes.runtime.signing_keys import UnknownKeyError, load
from headgate.processes.runtime.stream_origin import origin_of
from headgate.processes.snapshots.store import Trusts
from headgate.processes.telemetry.observer import Observing

_LOG: Final = logging.getLogger(__name__)

VARZ_TIMEOUT_S: Final = 2.0


class Exit(enum.IntEnum):
    """Exit codes of a process."""

    OK = 0
    """Stopped by request."""
    FAILED = 1
    """A defect in Headgate; the traceback is in the log."""
    CONFIGURATION = 2
    """The settings are wrong, or refer to something unusable. Correct them; a restart does not help."""
    BROKEN = 3
    """A condition that is impossible in a sound log. A restart does not help; the log output has the remedy."""
    BROKER = 4
    """The broker refuses permanently: credentials, or an unusable stream."""


class ReadData:
    """
    The data of the read side. Everything but the status is None until the process is connected.

    `log` and `blobs` are those of the process; `state` is the live state, to be read within one step of the loop.
    """

    def __init__(self, settings: Settings, status: Status) -> None:
        self.settings = settings
        self.status = status
        self.log: Log | None = None
        self.blobs: Blobs | None = None
        self.host: Host | None = None
        self.trusts: Trusts = lambda _: True

    @property
    def state(self) -> State | None:
        """The live state; None until the log is folded for the first time."""
        if self.host is None or self.status.phase is Phase.STARTING or not self.host.is_whole:
            return None
        return self.host.state


Routes = Callable[[web.Application, ReadData], None]
"""Adds routes, such as the read side, to a process's HTTP server."""

Decorate = Callable[[Log], Log]
"""Wraps a process's log (tests stop or delay a process there)."""


def processes() -> dict[str, Process]:
    """The six by name."""
    from headgate.processes.binder.process import PROCESS as BINDER  # noqa: N811, PLC0415, RUF100
    from headgate.processes.informer_bridge.process import PROCESS as INFORMER_BRIDGE  # noqa: N811, PLC0415, RUF100
    from headgate.processes.queue_manager.process import PROCESS as QUEUE_MANAGER  # noqa: N811, PLC0415, RUF100
    from headgate.processes.scheduler.process import PROCESS as SCHEDULER  # noqa: N811, PLC0415, RUF100
    from headgate.processes.snapshotter.process import PROCESS as SNAPSHOTTER  # noqa: N811, PLC0415, RUF100
    from headgate.processes.ungater.process import PROCESS as UNGATER  # noqa: N811, PLC0415, RUF100

    every = (INFORMER_BRIDGE, QUEUE_MANAGER, SCHEDULER, BINDER, UNGATER, SNAPSHOTTER)
    return {process.name: process for process in every}


NAMES: Final = tuple(producer.value for producer in Producer)


def default_holder() -> str:
    """A name for this instance: the pod's name in a pod, else one that is unique across machines."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"


def run_process(
    name: str, settings: Settings, *, routes: Routes | None = None, decorate: Decorate | None = None
) -> int:
    """
    Run one process until it is stopped; the exit code (`Exit`).

    Raises SettingsError when there is no process of this name.
    """
    if name not in NAMES:
        raise SettingsError(f"there is no process {name!r}; there is {', '.join(NAMES)}")
    holder = settings.holder or default_holder()
    settings = msgspec.structs.replace(settings, holder=holder)
    configure_logs(form=settings.log.format, level=settings.log.level, process=name, cell=settings.cell, holder=holder)
    runner = Runner(processes()[name], settings, routes=routes, decorate=decorate)
    return anyio.run(main_of, runner, backend="asyncio", backend_options=backend_options())


def backend_options() -> dict[str, bool]:
    """Options of anyio: uvloop where it is installed."""
    try:
        import uvloop  # noqa: F401, PLC0415, RUF100
    except ImportError:
        return {}
    return {"use_uvloop": True}


async def main_of(runner: "Runner") -> int:
    """Run until a signal, and report how it ended: the exit code."""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_on_signals, runner, tasks.cancel_scope)
            await runner.run()
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        return await _explain(group, runner)
    _LOG.info("stopped")
    return Exit.OK


async def _on_signals(runner: "Runner", scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            if runner.stopping:
                _LOG.warning("%s again: cancelled", signal.Signals(number).name)
                scope.cancel()
                return
            _LOG.info("%s: finishing what is under way", signal.Signals(number).name)
            runner.stop()


class Runner:
    """One process with everything around it, in one event loop. `run` ends after `stop`, or raises."""

    def __init__(
        self,
        process: Process,
        settings: Settings,
        *,
        routes: Routes | None = None,
        decorate: Decorate | None = None,
    ) -> None:
        self.process = process
        self.settings = settings
        self.url = ""
        self.stopping = False
        self.health = DependencyHealth(_HealthLog())
        self.status = Status(process=process.name, cell=settings.cell, holder=settings.holder, health=self.health)
        self.view = ReadData(settings, self.status)
        self.serving = anyio.Event()
        self._routes = routes
        self._decorate = decorate
        self._scope: anyio.CancelScope | None = None

    def stop(self) -> None:
        """Finish what is under way, within the time that the settings give."""
        self.stopping = True
        if self._scope is None:
            return
        if self.view.host is not None and self.status.phase is not Phase.STARTING:
            self._scope.deadline = anyio.current_time() + self.settings.limits.shutdown_ms / 1000
            self.view.host.stop()
        else:
            self._scope.cancel()

    async def run(self) -> None:
        """Run the process. Raises what `_explain` can explain."""
        settings = self.settings
        with anyio.CancelScope() as self._scope:
            async with AsyncExitStack() as stack:
                traces = stack.enter_context(
                    open_traces(
                        exporter=settings.tracing.exporter,
                        endpoint=settings.tracing.endpoint,
                        sampled=settings.tracing.sampled,
                        resource=self._resource(),
                    )
                )
                metrics = Metrics(**self._resource())
                stack.callback(metrics.close)
                is_reader = self.process.producer is Producer.SNAPSHOTTER
                observing = Observing(self.status, metrics, traces, kueue=is_reader)
                await self._serve(stack, metrics)
                await self._host(stack, await self._connect(stack), observing)
        if self._scope.cancelled_caught and self.view.host is not None:
            # Nothing is lost: the next start finds in the log whether the append under way was stored.
            _LOG.warning("stopped with something under way: it did not end within limits.shutdown_ms")

    def _resource(self) -> dict[str, str]:
        return {
            "service.name": f"headgate-{self.process.name}",
            "service.namespace": self.settings.cell,
            "service.instance.id": self.settings.holder,
        }

    async def _serve(self, stack: AsyncExitStack, metrics: Metrics) -> None:
        app = application(self.status, metrics.render)
        if self._routes is not None:
            self._routes(app, self.view)
        self.url = await stack.enter_async_context(serving(app, self.settings.http, what=self.process.name))
        self.serving.set()

    # Large: what a process is given, opened one after the other; each step needs what the ones before have opened.
    async def _connect(self, stack: AsyncExitStack) -> Given:
        settings = self.settings
        keys = load(settings.keys, self.process.producer)
        transport = await stack.enter_async_context(self._transport()) if self.process.kubernetes else None
        records: CellRecords | None = None
        if transport is not None and self.process.producer is Producer.INFORMER_BRIDGE:
            records = CellRecords(transport, cell=settings.cell, namespace=settings.record.namespace)
        connection: Connection = await stack.enter_async_context(
            connect(
                settings.nats.url,
                name=f"headgate {settings.cell} {self.process.name} {settings.holder}",
                options=settings.nats.options(settings.cell, self.process.name),
                health=self.health,
            )
        )
        varz = await _varz(settings.nats.monitor_url)
        log = await open_log(connection, settings.cell, replicas=settings.nats.replicas, varz=varz)
        blobs = await open_blobs(connection, settings.cell, replicas=settings.nats.replicas)
        leases = await open_leases(connection, settings.cell, replicas=settings.nats.replicas)
        self._warn([*log.warnings, *blobs.warnings])
        self.view.log = self._decorate(log) if self._decorate is not None else log
        self.view.blobs = blobs
        self.view.trusts = keys.vouches
        return Given(
            settings=settings,
            status=self.status,
            log=self.view.log,
            blobs=blobs,
            connection=connection,
            transport=transport,
            gate=IdentityGate(
                producer=self.process.producer,
                cell=settings.cell,
                log=self.view.log,
                status=self.status,
                transport=transport,
                records=records,
                origin=origin_of(log.opened),
                keys=keys,
                leases=leases,
            ),
            keys=keys,
            records=records,
            warn=self._warn,
            leases=leases,
        )

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[RecognisingTransport]:
        kubernetes = self.settings.kubernetes
        access = resolve(server=kubernetes.server, kubeconfig=kubernetes.kubeconfig, context=kubernetes.context)
        _LOG.info("the API server is %s (from %s)", access.server, access.origin)
        async with open_transport(access) as transport:
            yield RecognisingTransport(transport)

    async def _host(self, stack: AsyncExitStack, given: Given, observing: Observing) -> None:
        settings = self.settings
        parts = await stack.enter_async_context(self.process.build(given))
        lease = given.leases.lease(
            self.process.name,
            settings.holder,
            term_ms=settings.lease.term_ms,
            head=lambda: (host.state.position, host.state.log_hash),
        )
        host = Host(
            self.process.producer,
            parts,
            Stores(log=given.log, blobs=given.blobs, lease=lease),
            self.status,
            observer=observing,
            gate=given.gate,
            trust=Trust(sign=given.keys.sign, vouches=given.keys.vouches),
            rhythm=TurnTiming(
                pace=Pace(self.process.producer), rest=given.connection.gather, linger_s=self.process.linger_s
            ),
            limits=settings.limits,
        )
        self.view.host = host
        observing.gauges_of(lambda: host.state)
        self.status.quarantine = lambda: tuple(host.state.quarantine)
        await host.run()

    def _warn(self, warnings: list[str]) -> None:
        """Warn if the broker is set up less safely than it should be: once per cell, not in every process."""
        level = logging.WARNING if self.process.producer is Producer.SNAPSHOTTER else logging.DEBUG
        for warning in warnings:
            _LOG.log(level, "%s", warning)


async def _varz(monitor_url: str) -> bytes | None:
    """The broker's own report of how safely it stores; None when it is not available."""
    if not monitor_url:
        return None

    def fetch() -> bytes:
        with urllib.request.urlopen(f"{monitor_url.rstrip('/')}/varz", timeout=VARZ_TIMEOUT_S) as answer:  # noqa: S310
            body: bytes = answer.read()
            return body

    try:
        return await anyio.to_thread.run_sync(fetch)
    except (OSError, ValueError) as error:
        _LOG.warning("nats.monitor_url %s does not answer: %s", monitor_url, error)
        return None


class _HealthLog:
    """Logs failures and recoveries of dependencies; the first success is not logged."""

    def __init__(self) -> None:
        self._failing: set[str] = set()
        self._worked: set[str] = set()

    def __call__(self, dependency: Dependency) -> None:
        extra = {"dependency": dependency.name, "since_ms": dependency.since_ms}
        if not dependency.ok:
            self._failing.add(dependency.name)
            level = logging.WARNING if dependency.name in self._worked else logging.INFO
            _LOG.log(level, "waiting for %s: %s", dependency.name, dependency.error, extra=extra)
            return
        level = logging.INFO if dependency.name in self._failing else logging.DEBUG
        _LOG.log(level, "%s works", dependency.name, extra=extra)
        self._failing.discard(dependency.name)
        self._worked.add(dependency.name)


def _flat(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _flat(each)
    else:
        yield error


async def _explain(group: BaseExceptionGroup[BaseException], runner: Runner) -> int:
    """A readable explanation, and its exit code."""
    errors = list(_flat(group))
    for error in errors:
        match error:
            case EventFailedError():
                _LOG.critical("stopped: %s", await _story(error, runner))
                return Exit.BROKEN
            case BrokenLogError() | UnreadableCommitError() | LogDamaged() | TooManyFailedError():
                _LOG.critical("stopped: %s", error)
                return Exit.BROKEN
            case (
                KubeConfigurationError()
                | TracingError()
                | CannotListenError()
                | SettingsError()
                | ForeignCellError()
                | UnknownKeyError()
            ):
                _LOG.critical("stopped: %s", error)
                return Exit.CONFIGURATION
            case JetStreamApiError(err_code=code) if code == STREAM_NOT_FOUND:
                _LOG.critical("stopped: %s: the broker has lost its store. %s", error, REMEDY)
                return Exit.BROKEN
            case BrokerError() | CommitTooLarge():
                _LOG.critical("stopped: %s", error)
                return Exit.BROKER
            case _:
                pass
    if all(isinstance(error, KeyboardInterrupt | SystemExit) for error in errors):
        return Exit.OK
    _LOG.critical("stopped by a mistake in Headgate", exc_info=group)
    return Exit.FAILED


async def _story(error: EventFailedError, runner: Runner) -> str:
    """The workload's history, read anew over a separate connection: the process's is closed by now."""
    settings = runner.settings
    with anyio.move_on_after(settings.limits.shutdown_ms / 1000):
        options = settings.nats.options(settings.cell, runner.process.name)
        async with connect(settings.nats.url, name="story", options=options) as connection:
            return await story_of(await open_log(connection, settings.cell, change=False), settings.cell, error)
    return str(error)
