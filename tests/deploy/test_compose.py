"""
docker-compose.yml without Docker: every service's command as a process, with its environment, volumes and order.

Volumes are folders, names of services are this machine, and their ports are free ones; everything else is what the file
says. So a command, a path, a variable, a key or a healthcheck that does not fit is found.
"""

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
import yaml

from headgate.adapters.jetstream.embedded import find_nats_server
from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kubeconfig import resolve
from headgate.adapters.kubernetes.resources import JOBS, RESOURCES
from headgate.cli.demo_objects import cluster_objects, job_objects
from headgate.events.base import Producer

ROOT = Path(__file__).parents[2]
DOCUMENT: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = DOCUMENT["services"]
PATIENCE_S = 90
PROGRAMS = {
    "python": (sys.executable,),
    # The broker's image has busybox's; here Python asks for the last argument.
    "wget": (sys.executable, "-c", "import sys, urllib.request; urllib.request.urlopen(sys.argv[-1])"),
}
"""What healthchecks call."""
PROBE = aiohttp.ClientTimeout(total=2)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Composed:
    """The services of the file, each as a process of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ports = {
            (name, port): free_port() for name, port in (("nats", "4222"), ("nats", "8222"), ("cluster", "8001"))
        }
        for producer in Producer:
            self.ports[(producer.value, "8080")] = free_port()

    def order(self) -> list[str]:
        """The services, each after those that it depends on."""
        found: list[str] = []

        def add(name: str) -> None:
            for other in SERVICES[name].get("depends_on", {}):
                add(other)
            if name not in found:
                found.append(name)

        for name in SERVICES:
            add(name)
        return found

    async def start(self, name: str) -> None:
        """Start a service when what it depends on is as its conditions say; one that ends has to end well."""
        service = SERVICES[name]
        for other, condition in service.get("depends_on", {}).items():
            await self._until(other, condition["condition"])
        environment = {key: self._here(name, str(value)) for key, value in service.get("environment", {}).items()}
        command = [self._here(name, each) for each in service["command"]]
        if service["image"] == "headgate":
            command = [sys.executable, "-c", "from headgate.cli.main import main; main()", *command]
        else:
            command = [str(find_nats_server()), *command]
        with self.log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(  # noqa: ASYNC220 - as short as a fork
                command,
                env={"PATH": os.environ["PATH"], "POD_NAME": name, **environment},
                cwd=self._folder,
                stdout=log,
                stderr=log,
            )

    def end(self) -> None:
        """All of them, the last first."""
        for process in reversed(list(self._processes.values())):
            process.terminate()
        for process in self._processes.values():
            process.wait(30)

    def log(self, name: str) -> Path:
        """What a service has printed."""
        return self._folder / f"{name}.log"

    async def ready(self, name: str) -> None:
        """Wait until a process is ready by its own word."""
        url = f"http://127.0.0.1:{self.ports[(name, '8080')]}/readyz"
        async with aiohttp.ClientSession(timeout=PROBE) as session:
            await self._wait(name, lambda: _answers(session, url))

    async def _until(self, name: str, condition: str) -> None:
        match condition:
            case "service_started":
                assert name in self._processes
            case "service_completed_successfully":

                async def ended() -> bool:
                    return self._processes[name].poll() is not None

                await self._wait(name, ended)
                assert self._processes[name].returncode == 0, self.log(name).read_text()
            case "service_healthy":
                kind, *test = SERVICES[name]["healthcheck"]["test"]
                assert kind == "CMD"
                program, *arguments = (self._here(name, each) for each in test)
                command = [*PROGRAMS[program], *arguments]

                async def healthy() -> bool:
                    done = await anyio.run_process(command, check=False)
                    return done.returncode == 0

                await self._wait(name, healthy)
            case _:
                raise AssertionError(f"no such condition: {condition}")

    async def _wait(self, name: str, holds: Callable[[], Any]) -> None:
        with anyio.move_on_after(PATIENCE_S):
            while not await holds():
                assert self._processes[name].poll() in (None, 0), f"{name}: {self.log(name).read_text()}"
                await anyio.sleep(0.1)
            return
        pytest.fail(f"{name} was not there in time: {self.log(name).read_text()[-2000:]}")

    def _here(self, name: str, text: str) -> str:
        """An argument or value with the service's volumes, other services and ports as they are on this machine."""
        for volume in SERVICES[name].get("volumes", ()):
            source, target, *_ = volume.split(":")
            if text == target or text.startswith(f"{target}/"):
                return f"{self._source(source)}{text.removeprefix(target)}"
        if text == "0.0.0.0":
            return "127.0.0.1"
        for (service, port), here in self.ports.items():
            text = text.replace(f"{service}:{port}", f"127.0.0.1:{here}")
            if service == name:
                text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{here}")
                text = str(here) if text == port else text
        return text

    def _source(self, source: str) -> Path:
        """A named volume, or a file of the repository; the broker's configuration has paths and a port in it too."""
        if not source.startswith("./"):
            folder = self._folder / "volumes" / source
            folder.mkdir(parents=True, exist_ok=True)
            return folder
        if source == "./deploy/compose-scheduler.yaml":
            return ROOT / source
        assert source == "./deploy/compose-nats.conf"
        text = "\n" + (ROOT / source).read_text()
        for before, after in (
            ("\nport: 4222", f"\nlisten: 127.0.0.1:{self.ports[('nats', '4222')]}"),
            ("http_port: 8222", f"http: 127.0.0.1:{self.ports[('nats', '8222')]}"),
            ("/data", str(self._source("nats-data"))),
        ):
            assert before in text
            text = text.replace(before, after)
        etc = self._folder / "etc-nats"
        etc.mkdir(exist_ok=True)
        file = etc / "nats.conf"
        file.write_text(text)
        # What is mounted beside it is beside it here.
        for name, target in (volume.split(":")[:2] for volume in SERVICES["nats"]["volumes"]):
            if target.startswith("/etc/nats/") and not name.startswith("./"):
                (etc / Path(target).name).symlink_to(self._source(name))
        return file


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


@contextmanager
def composed(folder: Path) -> Iterator[Composed]:
    """The services, taken down at the end."""
    cell = Composed(folder)
    try:
        yield cell
    finally:
        cell.end()


async def test_the_services_start_in_their_order_and_run_jobs(tmp_path: Path) -> None:
    """Keys and users are made, the broker knows them, the streams are there, all six are ready, and jobs finish."""
    with composed(tmp_path) as cell:
        for name in cell.order():
            await cell.start(name)
        for producer in Producer:
            await cell.ready(producer.value)
        by_kind = {resource.kind: resource for resource in RESOURCES.values()}
        jobs = job_objects(4, seed=3)
        server = f"http://127.0.0.1:{cell.ports[('cluster', '8001')]}"
        async with open_transport(resolve(server=server)) as transport:
            client = KubeClient(transport)
            for each in (*cluster_objects(), *jobs):
                await client.create(by_kind[each["kind"]], each, each["metadata"].get("namespace"))
            with anyio.fail_after(PATIENCE_S):
                while True:
                    page = await client.list(JOBS)
                    if sum(b'"type":"Complete"' in bytes(item) for item in page.items) == len(jobs):
                        break
                    await anyio.sleep(0.2)


async def test_what_is_published_is_what_is_served() -> None:
    """On loopback only, and by the ports that the commands and the environment name."""
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"cluster": ["127.0.0.1:8001:8001"], "snapshotter": ["127.0.0.1:8080:8080"]}
    assert "8001" in SERVICES["cluster"]["command"]
    assert SERVICES["snapshotter"]["environment"]["HEADGATE_HTTP_PORT"] == "8080"
    assert "127.0.0.1:8001" in shlex.join(SERVICES["cluster"]["healthcheck"]["test"])
