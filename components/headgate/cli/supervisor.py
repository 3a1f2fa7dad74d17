"""
A whole cell on one machine: broker, simulated cluster, the six processes.

`Supervisor` is used by `headgate up`, the demo, the chaos tests and the benchmarks. It owns a data directory (locked:
one supervisor at a time), starts the broker, the cluster and the processes as processes of the operating system,
restarts those that die, publishes the cell's addresses for other commands (`cell.json`, `kubeconfig`, `env`), and stops
everything at the end, the broker last.

    async with Supervisor(UpOptions(data=Path(".headgate/main"))) as cell: await cell.wait_ready()
    cell.kill("scheduler")            # it is started again

Start it from the main thread: children end with the thread that started them.
"""
# Over 400 lines: one class that owns every child process of a cell: broker, cluster and processes, from start to stop.

import os
import shlex
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp
import anyio
import anyio.abc
import msgspec

from headgate.adapters.jetstream import NatsOptions, connect
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.jetstream.errors import BrokerError
from headgate.adapters.jetstream.permissions import ADMIN, READER
from headgate.adapters.jetstream.users import broker_configuration, make_streams, options_of, seed_file
from headgate.adapters.private import write_private
from headgate.cli import cell as cells
from headgate.cli.children import BACKOFF_S_MAX, BACKOFF_S_MIN, Child, ChildState
from headgate.cli.disk import DiskWatch
from headgate.cli.output import FAILED, CliError
from headgate.events.base import Producer
from headgate.events.commit import digest
from headgate.processes.runtime.settings import NatsSettings
from headgate.processes.runtime.signing_keys import PUBLIC, generate, private_file

NATS: Final = "nats"
CLUSTER: Final = "cluster"
PROCESSES: Final = tuple(producer.value for producer in Producer)
_PLACEMENT_FILE: Final = "kube-scheduler-config.yaml"
_PLACEMENT: Final = """\
# Written at each start: in a cluster without a kube-scheduler Headgate places all pods, whichever of the two they name.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: headgate
"""
READY_TIMEOUT_S: Final = 60.0
PUBLISH_S: Final = 0.25
DISK_S: Final = 1.0
"""The interval between two checks of free disk space."""
_PROBE_S: Final = 0.1


def place_all(folder: Path) -> str:
    """The path of a new file in a folder, by which Headgate places all pods: for clusters without a kube-scheduler."""
    file = (folder / _PLACEMENT_FILE).resolve()
    file.write_text(_PLACEMENT)
    return str(file)


@asynccontextmanager
async def until_signal() -> AsyncIterator[None]:
    """
    Run the block until it ends or the user interrupts it (SIGINT, SIGTERM), which cancels it.

    Raises KeyboardInterrupt in the second case, after the block has cleaned up.
    """
    told = False

    async def listen(scope: anyio.CancelScope) -> None:
        nonlocal told
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                told = True
                scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen, tasks.cancel_scope)
        yield
        tasks.cancel_scope.cancel()
    if told:
        raise KeyboardInterrupt


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """
    What to start, and where.

    `nats_url` "" starts a broker, its store below `data`; `sync_interval` is for that one. `kubeconfig` "" starts a
    simulated cluster, which keeps its objects below `data`. `nats` are settings beside the URL (`NatsSettings`) for a
    broker of the user's; one that is started here has a user for each process. `config` is the settings file of the
    processes, `configuration` a file of Kueue's Configuration; `env` goes on top of our environment for them.
    `placement` is a file of a KubeSchedulerConfiguration, or `none`; "" has Headgate place all pods of a simulated
    cluster, and leaves it to the log in another one. Pods of the default scheduler that Headgate is not to place are
    placed by the simulated cluster itself.
    """

    data: Path
    cell: str = "main"
    nats_url: str = ""
    nats: dict[str, str | bool] = {}
    kubeconfig: str = ""
    config: str = ""
    configuration: str = ""
    placement: str = ""
    sync_interval: str = ""
    verbose: int = 0
    processes: tuple[str, ...] = PROCESSES
    env: dict[str, str] = {}


class ProcessReport(msgspec.Struct, frozen=True, kw_only=True):
    """The status of one child. `phase`, `position` and `detail` are from its /readyz."""

    name: str
    state: str
    pid: int
    restarts: int
    ready: bool
    phase: str = ""
    position: int = 0
    log_end: int = 0
    detail: str = ""


class _Ready(msgspec.Struct):
    """The part of a process's /readyz that is shown."""

    ready: bool = False
    phase: str = ""
    position: int = 0
    log_end: int = 0
    detail: str = ""
    problems: tuple[str, ...] = ()


class Supervisor:
    """A running cell; an async context manager. `told` is called with messages about its children."""

    def __init__(self, options: UpOptions, told: Callable[[str], None] = lambda _: None) -> None:
        self.options = options
        self.data = options.data
        self.nats_url = options.nats_url
        self.kubeconfig = options.kubeconfig
        self.children: dict[str, Child] = {}
        self.nats: EmbeddedServer | None = None
        self.nats_restarts = 0
        self._placement = options.placement
        self._told = told
        self._lock = cells.DataLock(options.data)
        self._stack = AsyncExitStack()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._session: aiohttp.ClientSession | None = None
        self._stopping = False
        self._mark = digest(f"{socket.gethostname()}:{options.data.resolve()}".encode())[:6]

    # --- lifecycle -------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """
        Start everything. Returns when broker and cluster answer; `wait_ready` waits for the processes.

        Raises CliError when the directory is in use or something cannot be started, BrokerError for the broker.
        """
        self._lock.take()
        try:
            self._session = await self._stack.enter_async_context(
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2))
            )
            self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
            await self._start_broker(self._tasks)
            await self._start_cluster(self._tasks)
            for name in self.options.processes:
                self._start_child(self._tasks, name, ["run", name, *self._flags()])
            self._publish()
            self._tasks.start_soon(self._keep_published)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop everything: the processes at once, then the cluster, then the broker. Safe to call twice."""
        self._stopping = True
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as stopping:
                for name, child in self.children.items():
                    if name != CLUSTER:
                        stopping.start_soon(child.stop)
            if CLUSTER in self.children:
                await self.children[CLUSTER].stop()
            if self._tasks is not None:
                self._tasks.cancel_scope.cancel()
                self._tasks = None
            if self.nats is not None:
                await self.nats.__aexit__(None, None, None)
        # Scopes end in the order in which they were entered: the task group's only after the shield's.
        await self._stack.aclose()
        self._lock.release()

    async def _start_broker(self, tasks: anyio.abc.TaskGroup) -> None:
        if self.nats_url:
            return
        self.nats = EmbeddedServer(
            self.data / cells.NATS_STORE,
            sync_interval=self.options.sync_interval or None,
            port=self._old_port("nats"),
            extra_config=broker_configuration(self._users, self.options.cell),
        )
        generate(self.data / cells.KEYS)
        await self.nats.start()
        async with connect(self.nats.url, name="headgate up", options=self.nats_options(ADMIN)) as connection:
            await make_streams(connection, self.options.cell)
        self._keep_port("nats", int(self.nats.url.rpartition(":")[2]))
        self.nats_url = self.nats.url
        tasks.start_soon(self._keep_broker, self.nats)
        tasks.start_soon(self._watch_disk, self.nats)

    @property
    def _users(self) -> Path:
        return self.data / cells.NATS_USERS

    def nats_options(self, name: str) -> NatsOptions:
        """Connection options of a user of the cell for the broker started here, or of all users for an external one."""
        if self.nats is not None:
            return options_of(self._users, self.options.cell, name)
        return msgspec.convert(self.options.nats, NatsSettings).options(self.options.cell, name)

    async def _keep_broker(self, server: EmbeddedServer) -> None:
        while True:
            await server.wait_exited()
            if self._stopping:
                return
            self.nats_restarts += 1
            self._told(f"{NATS} ended; it starts again in {BACKOFF_S_MIN:g} s")
            await anyio.sleep(BACKOFF_S_MIN)
            await self._restart_broker(server)

    async def _watch_disk(self, server: EmbeddedServer) -> None:
        """Restart a broker that has met a full disk once there is free space: by itself it writes no more."""
        disk = DiskWatch(self.data, self._told)
        while True:
            await anyio.sleep(DISK_S)
            if disk.look():
                server.send_signal(signal.SIGTERM)

    async def _restart_broker(self, server: EmbeddedServer) -> None:
        """Restart it until it runs: on a full disk it cannot, and the processes wait for it as for an external one."""
        while not self._stopping:
            try:
                await server.start()
            except (BrokerError, OSError) as error:
                self._told(f"{NATS} does not start: {' '.join(str(error).split())}; tried again in {BACKOFF_S_MAX:g} s")
                await anyio.sleep(BACKOFF_S_MAX)
            else:
                return

    async def _start_cluster(self, tasks: anyio.abc.TaskGroup) -> None:
        if self.kubeconfig:
            return
        self.kubeconfig = str((self.data / "kubeconfig").resolve())
        if not self._placement and "HEADGATE_PLACEMENT_CONFIGURATION" not in os.environ:
            self._placement = place_all(self.data)
        address = self._address_file(CLUSTER)
        address.unlink(missing_ok=True)
        # Its objects are kept with the log: objects in the log have to exist again after a restart.
        data = str(self.data.resolve())
        args = ["run", CLUSTER, "--data", data, "--kubeconfig", self.kubeconfig, "--address-file", str(address)]
        args += ["--config", self.options.configuration] if self.options.configuration else []
        args += [] if self._places_default() else ["--default-scheduler"]
        old_port = self._old_port(CLUSTER)
        child = self._start_child(tasks, CLUSTER, [*args, "--port", str(old_port or 0)])
        with anyio.move_on_after(READY_TIMEOUT_S):
            await self._answering(child)
        if not child.address:
            raise CliError(f"the simulated cluster did not start: {child.last_words()} ({child.log_file})", FAILED)
        port = int(child.address.rpartition(":")[2])
        self._keep_port(CLUSTER, port)
        # It has to keep its address: the processes are configured with it.
        child.replace_args(self._command([*args, "--port", str(port)]))

    def _places_default(self) -> bool:
        """Whether Headgate places the pods of the default scheduler. Raises SettingsError."""
        from headgate.core.placement.configuration.profiles import DEFAULT_NAME
        from headgate.processes.runtime.configuration_files import load_scheduler_document

        file = self._placement or os.environ["HEADGATE_PLACEMENT_CONFIGURATION"]
        document = load_scheduler_document(file) if file else {}
        profiles = document.get("profiles") or [{}] if document else []
        return any(each.get("schedulerName", DEFAULT_NAME) == DEFAULT_NAME for each in profiles)

    @staticmethod
    async def _answering(child: Child) -> None:
        """Wait until a child has reported its address, or has given up."""
        while True:
            if child.address or child.state is ChildState.FAILED:
                return
            await anyio.sleep(0.02)

    def _start_child(self, tasks: anyio.abc.TaskGroup, name: str, args: list[str]) -> Child:
        child = self.children[name] = Child(
            name,
            self._command(args),
            env=self._env(name),
            log_file=self.data / "logs" / f"{name}.log",
            address_file=self._address_file(name),
            changed=self._told,
        )
        tasks.start_soon(child.keep)
        return child

    # --- configuration of children ---------------------------------------------------------------------------------

    @staticmethod
    def _command(args: list[str]) -> list[str]:
        return [sys.executable, "-m", "headgate.cli.main", *args]

    def _flags(self) -> list[str]:
        flags = ["--config", self.options.config] if self.options.config else []
        return flags + ["-v"] * self.options.verbose

    def _env(self, name: str) -> dict[str, str]:
        configuration = self.options.configuration
        return {
            **self._inherited(),
            **({"HEADGATE_BRIDGE_CONFIGURATION": configuration} if configuration else {}),
            **({"HEADGATE_PLACEMENT_CONFIGURATION": self._placement} if self._placement else {}),
            "HEADGATE_CELL": self.options.cell,
            "HEADGATE_HOLDER": self.holder(name),
            "NATS_URL": self.nats_url,
            **self._nats_env(name),
            **self._keys_env(name),
            "HEADGATE_NATS_MONITOR_URL": self.nats.monitor_url if self.nats is not None else "",
            "HEADGATE_KUBERNETES_KUBECONFIG": self.kubeconfig,
            "HEADGATE_HTTP_ADDRESS_FILE": str(self._address_file(name)),
            **self.options.env,
        }

    def _inherited(self) -> dict[str, str]:
        """Our environment; without the settings of another broker for users of the one started here."""
        prefix = "HEADGATE_NATS_" if self.nats is not None else None
        return {key: value for key, value in os.environ.items() if prefix is None or not key.startswith(prefix)}

    def _nats_env(self, name: str) -> dict[str, str]:
        """How a child connects. Secrets are passed by file or environment: command lines are world-readable."""
        if self.nats is None:
            return {f"HEADGATE_NATS_{key}".upper(): _text(value) for key, value in self.options.nats.items()}
        if name not in PROCESSES:
            return {}
        return {"HEADGATE_NATS_NKEY_SEED_FILE": str(seed_file(self._users, name).resolve())}

    def _keys_env(self, name: str) -> dict[str, str]:
        """The signing keys of a process: generated ones on the broker started here, else those of our settings."""
        if self.nats is None or name not in PROCESSES or "HEADGATE_KEYS_PRIVATE" in os.environ:
            return {}
        folder = self.data / cells.KEYS
        return {
            "HEADGATE_KEYS_PRIVATE": str(private_file(folder, name).resolve()),
            "HEADGATE_KEYS_PUBLIC": str((folder / PUBLIC).resolve()),
        }

    def holder(self, name: str) -> str:
        """
        A process's name in leases. It outlives a restart: the process takes its own lease over at once.

        A process of another data directory has another name, in case it uses the same broker by mistake.
        """
        return f"{name}-{self._mark}"

    def _address_file(self, name: str) -> Path:
        return (self.data / "run" / f"{name}.address").resolve()

    def _old_port(self, name: str) -> int | None:
        """The port of an earlier run in this directory: existing kubeconfigs and shells continue to work."""
        try:
            port = int((self.data / "run" / f"{name}.port").read_text())
        except (OSError, ValueError):
            return None
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return None  # another process has it by now
        return port

    def _keep_port(self, name: str, port: int) -> None:
        file = self.data / "run" / f"{name}.port"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{port}\n")

    # --- addresses for other commands ------------------------------------------------------------------------------

    def info(self) -> cells.CellInfo:
        """The data that other commands need of this cell."""
        cluster = self.children.get(CLUSTER)
        return cells.CellInfo(
            cell=self.options.cell,
            nats_url=self.nats_url,
            nats=self.options.nats,
            kubeconfig=self.kubeconfig,
            server=cluster.address if cluster is not None else "",
            embedded=self.nats is not None,
            pid=os.getpid(),
            processes={
                name: cells.ProcessInfo(pid=child.pid or 0, address=child.address)
                for name, child in self.children.items()
            },
        )

    def _publish(self) -> None:
        info = self.info()
        cells.write(self.data, info)
        variables = {"HEADGATE_CELL": info.cell, "NATS_URL": info.nats_url, **self._reader_env()}
        variables |= {"KUBECONFIG": info.kubeconfig} if info.kubeconfig else {}
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
        write_private(self.data / "env", "".join(lines))

    def _reader_env(self) -> dict[str, str]:
        """How the reader of the cell connects, for a shell."""
        if self.nats is None:
            return self._nats_env(READER)
        return {"HEADGATE_NATS_NKEY_SEED_FILE": str(seed_file(self._users, READER).resolve())}

    async def _keep_published(self) -> None:
        known, failed = self.info(), False
        while True:
            await anyio.sleep(PUBLISH_S)
            now = self.info()
            if now == known:
                continue
            try:
                cells.write(self.data, now)
            except OSError as error:
                # As on a full disk: running processes continue, and commands find them at their former addresses.
                if not failed:
                    self._told(f"{self.data}: what runs cannot be noted: {error.strerror}")
                failed = True
                continue
            known, failed = now, False

    # --- status ----------------------------------------------------------------------------------------------------

    def pid(self, name: str) -> int | None:
        """The process id of a child (or of the broker, "nats") while it runs."""
        if name == NATS:
            return self.nats.pid if self.nats is not None else None
        return self.children[name].pid

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a child (or the broker, "nats") a signal; SIGKILL by default. A child that dies is restarted."""
        if name == NATS:
            assert self.nats is not None, "the broker is not ours"
            self.nats.send_signal(number)
        else:
            self.children[name].send_signal(number)

    async def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """
        Wait until every process is ready: leading or standing by, with healthy dependencies.

        Raises CliError when one gives up, or when it takes too long; the message names the process and the reason.
        """
        with anyio.move_on_after(timeout_s):
            while True:
                reports = await self.reports()
                self.fail_if_given_up()
                if all(report.ready for report in reports):
                    return
                await anyio.sleep(_PROBE_S)
        late = [f"{each.name} ({each.detail or each.state})" for each in await self.reports() if not each.ready]
        raise CliError(f"not ready within {timeout_s:g} s: {', '.join(late)}; logs are in {self.data / 'logs'}", FAILED)

    def fail_if_given_up(self) -> None:
        """Raises CliError when a child has given up, damage to the log before anything else."""
        ended = [error for child in self.children.values() if (error := child.gave_up()) is not None]
        if ended:
            raise max(ended, key=lambda error: error.code)

    async def reports(self) -> list[ProcessReport]:
        """The status of each process, as reported by itself."""
        answers: dict[str, ProcessReport] = {}

        async def ask(name: str) -> None:
            answers[name] = await self._report(self.children[name])

        async with anyio.create_task_group() as asking:
            for name in self.options.processes:
                asking.start_soon(ask, name)
        return [answers[name] for name in self.options.processes]

    async def _report(self, child: Child) -> ProcessReport:
        ready = _Ready(detail="does not answer yet")
        address = child.address
        if address and self._session is not None:
            try:
                async with self._session.get(f"{address}/readyz") as response:
                    ready = msgspec.json.decode(await response.read(), type=_Ready)
            except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError):
                pass
        return ProcessReport(
            name=child.name,
            state=child.state.value,
            pid=child.pid or 0,
            restarts=child.restarts,
            ready=ready.ready and child.state is ChildState.RUNNING,
            phase=ready.phase,
            position=ready.position,
            log_end=ready.log_end,
            detail=ready.problems[0] if ready.problems else ready.detail,
        )


def _text(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else value
