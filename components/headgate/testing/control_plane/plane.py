"""
A real Kubernetes control plane on this machine, for tests and the demo.

etcd, kube-apiserver, kube-controller-manager, and kwok in place of kubelets:

    async with control_plane(find_assets(), folder) as plane:
        await plane.kubectl("get", "nodes")

It is ready when the block begins: the API server serves, the controllers run, the nodes are Ready. It ends with the
block, and with the process however that ends. Everything is on loopback, on ports below those that the system gives to
clients, so that a component which is stopped finds its port free when it is started again. One folder holds its data,
its credentials and the logs; a plane that is started in a folder with data continues from them.

Start it from the main thread: its components end with the thread that started them.
"""

import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import anyio
import anyio.to_thread
import msgspec

from headgate.adapters.kubernetes.kubeconfig import ClusterAccess, resolve
from headgate.testing.control_plane import audit, credentials, etcd, flags
from headgate.testing.control_plane.assets import API_SERVER, CONTROLLERS, ETCD, KUBECTL, KWOK, Assets
from headgate.testing.control_plane.component import Component, StartError
from headgate.testing.control_plane.flags import HOST, Files, Options, Ports
from headgate.testing.control_plane.ports import free_ports
from headgate.testing.control_plane.stages import stages

COMPONENTS: Final = (ETCD, API_SERVER, CONTROLLERS, KWOK)
"""Their names, in the order of starting."""

_STARTS_MAX: Final = 3
"""How often a start is tried when another process has taken one of its ports between the choice and the start."""
_POLL_S: Final = 0.02
_TIMEOUT_S: Final = 60.0


class ControlPlaneError(Exception):
    """The control plane refused a request: the error of kubectl or the API server."""


class ControlPlane:
    """A running control plane. Made by `control_plane`; its methods are for the task that holds it."""

    def __init__(
        self, assets: Assets, files: Files, ports: Ports, options: Options, session: aiohttp.ClientSession
    ) -> None:
        self.assets = assets
        self.options = options
        self.url = f"https://{HOST}:{ports.api_server}"
        self.ca_file = files.ca
        self.token = credentials.token_of(files.tokens, credentials.ADMIN)
        self.kubeconfig = files.kubeconfig(credentials.ADMIN)
        self._files = files
        self._ports = ports
        self._session = session
        self._tls: ssl.SSLContext | None = None
        self._started_controllers = False
        components = [
            Component(ETCD, flags.etcd(assets, files, ports, options), files.log(ETCD), self._etcd_ready),
            Component(
                API_SERVER, flags.api_server(assets, files, ports, options), files.log(API_SERVER), self._api_ready
            ),
        ]
        if options.controllers:
            args = flags.controllers(assets, files, ports, options)
            components.append(Component(CONTROLLERS, args, files.log(CONTROLLERS), self._controllers_ready))
        if options.kwok:
            components.append(Component(KWOK, flags.kwok(assets, files, ports), files.log(KWOK), self._kwok_ready))
        self._components = {component.name: component for component in components}

    @property
    def folder(self) -> Path:
        """Where its data, credentials and logs are."""
        return self._files.folder

    def access(self) -> ClusterAccess:
        """The cluster, for the adapters' transport, as the operator."""
        return resolve(kubeconfig=str(self.kubeconfig))

    def pids(self) -> dict[str, int]:
        """The components that run, with their process ids."""
        return {name: each.pid for name, each in self._components.items() if each.pid is not None}

    def log_file(self, name: str) -> Path:
        """What a component has printed."""
        return self._components[name].log_file

    async def version(self) -> str:
        """The API server's version, `v1.36.3`: of a folder of the user's it may be another than the pinned one."""
        _, answer = await self._ask("GET", "/version")
        version: str = answer["gitVersion"]
        return version

    def audit_lines(self) -> Iterator[audit.AuditLine]:
        """Every request that the API server has answered so far. Needs the option `audit`."""
        assert self.options.audit, "start the control plane with Options(audit=True)"
        return audit.read(self._files.audit_log)

    # --- kubectl and credentials -----------------------------------------------------------------------------------

    async def kubectl(
        self, *args: str, stdin: str | None = None, check: bool = True, kubeconfig: Path | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """
        Run kubectl as the operator, or with another kubeconfig.

        Raises ControlPlaneError with its words when it fails, unless `check` is False.
        """
        command = [
            str(self.assets.binary(KUBECTL)),
            f"--kubeconfig={kubeconfig or self.kubeconfig}",
            f"--cache-dir={self.folder / 'kubectl-cache'}",
            *args,
        ]
        done = await anyio.run_process(command, input=(stdin or "").encode(), check=False)
        if check and done.returncode != 0:
            raise ControlPlaneError(f"kubectl {' '.join(args)}: {done.stderr.decode(errors='replace').strip()}")
        return subprocess.CompletedProcess(
            command, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )

    async def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """
        A kubeconfig with a token of a service account that exists; the token is good for an hour.

        Raises ControlPlaneError when there is no such service account.
        """
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        code, answer = await self._ask("POST", path, body)
        if code != 201:
            raise ControlPlaneError(f"no token for the service account {namespace}/{name}: {answer.get('message')}")
        file = self._files.kubeconfig(f"{namespace}.{name}")
        token = answer["status"]["token"]
        credentials.write_kubeconfig(
            file, url=self.url, ca_file=self.ca_file, user=name, token=token, namespace=namespace
        )
        return file

    # --- its life --------------------------------------------------------------------------------------------------

    async def stop(self, name: str) -> None:
        """End a component gracefully. Ports and data stay for `start`."""
        await self._components[name].stop()

    def kill(self, name: str) -> None:
        """End a component at once (SIGKILL). Ports and data stay for `start`."""
        self._components[name].kill()

    async def start(self, name: str) -> None:
        """Start a component that does not run and wait until it is ready. Raises StartError."""
        component = self._components[name]
        component.launch()
        await component.wait_ready()

    async def compact(self) -> int:
        """
        Compact etcd up to now, and let the API server see it; the revision up to which.

        The API server still answers from its watch cache, as after each of its own compactions: a watch from an old
        version ends with 410 only when the cache does not reach back to it (or is off, by a flag).
        """
        return await etcd.compact(self._session, f"http://{HOST}:{self._ports.etcd_client}")

    async def backup(self) -> None:
        """Copy etcd's present data, in place of the previous backup. etcd is suspended during the copy."""
        pid = self._components[ETCD].pid
        assert pid is not None, "etcd does not run"
        await etcd.copy_data(self._files.etcd, self._files.backup, pid)

    async def restore(self) -> None:
        """
        Put the last backup in place of etcd's data, as after a lost disk.

        What was written since is gone, and resource versions go back. All components that run end at once and are
        started again.
        """
        running = [name for name in COMPONENTS if name in self.pids()]
        for name in reversed(running):
            self.kill(name)
        await anyio.to_thread.run_sync(shutil.rmtree, self._files.etcd)
        await anyio.to_thread.run_sync(shutil.copytree, self._files.backup, self._files.etcd)
        for name in running:
            await self.start(name)

    async def _start_all(self) -> None:
        """Start everything; what does not need each other at the same time."""
        # The API server waits for etcd itself, and has much to do before.
        for name in (ETCD, API_SERVER):
            self._components[name].launch()
        for name in (ETCD, API_SERVER):
            await self._components[name].wait_ready()
        for index in range(self.options.nodes):
            await self._make_node(f"node-{index}")
        for name in (CONTROLLERS, KWOK):
            if name in self._components:
                self._components[name].launch()
        for name in (CONTROLLERS, KWOK):
            if name in self._components:
                await self._components[name].wait_ready()
        if self.options.kwok:
            for index in range(self.options.nodes):
                await self._until_ready(f"node-{index}")

    def _end_all(self) -> None:
        """End everything at once: the data are worth nothing, or survive a crash."""
        for component in reversed(self._components.values()):
            component.kill()

    # --- readiness -------------------------------------------------------------------------------------------------

    async def _etcd_ready(self) -> bool:
        return await self._says_ok(f"http://{HOST}:{self._ports.etcd_client}/health", '"true"')

    async def _api_ready(self) -> bool:
        if not self.ca_file.exists():
            return False
        try:
            code, _ = await self._ask("GET", "/readyz")
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
        return code == 200

    async def _controllers_ready(self) -> bool:
        if not await self._says_ok(f"https://{HOST}:{self._ports.controllers}/healthz", "ok"):
            return False
        if not self._started_controllers:
            # The first thing that shows them at work.
            code, _ = await self._ask("GET", "/api/v1/namespaces/default/serviceaccounts/default")
            self._started_controllers = code == 200
        return self._started_controllers

    async def _kwok_ready(self) -> bool:
        return await self._says_ok(f"http://{HOST}:{self._ports.kwok}/healthz", "ok")

    async def _says_ok(self, url: str, word: str) -> bool:
        try:
            async with self._session.get(url, ssl=False) as response:
                return response.status == 200 and word in await response.text()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def _make_node(self, name: str) -> None:
        code, answer = await self._ask(
            "POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        )
        if code not in (201, 409):
            raise ControlPlaneError(f"node {name}: {answer.get('message')}")

    async def _until_ready(self, name: str) -> None:
        with anyio.fail_after(_TIMEOUT_S):
            while True:
                _, node = await self._ask("GET", f"/api/v1/nodes/{name}")
                conditions = node.get("status", {}).get("conditions") or ()
                if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
                    return
                await anyio.sleep(_POLL_S)

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Ask the API server as the operator; the status, and the object in the answer if there is one."""
        if self._tls is None:
            self._tls = ssl.create_default_context(cafile=str(self.ca_file))
        headers = {"Authorization": f"Bearer {self.token}"}
        async with self._session.request(
            method, self.url + path, json=body, headers=headers, ssl=self._tls
        ) as response:
            raw = await response.read()
            return response.status, msgspec.json.decode(raw) if response.content_type == "application/json" else {}


@asynccontextmanager
async def control_plane(assets: Assets, folder: Path, *, options: Options | None = None) -> AsyncIterator[ControlPlane]:
    """
    A control plane for as long as the block runs, ready when it begins.

    Raises NoAssetsError when the options need a binary that the assets lack, StartError when a component does not come
    up.
    """
    files = Files.of(folder)
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        plane = await _started(assets, files, options or Options(), session)
        try:
            yield plane
        finally:
            plane._end_all()  # noqa: SLF001 - made here, ended here


async def _started(assets: Assets, files: Files, options: Options, session: aiohttp.ClientSession) -> ControlPlane:
    for left in reversed(range(_STARTS_MAX)):
        ports = Ports(**dict(zip(Ports.__struct_fields__, free_ports(len(Ports.__struct_fields__)), strict=True)))
        _prepare(files, ports, options)
        plane = ControlPlane(assets, files, ports, options, session)
        try:
            await plane._start_all()  # noqa: SLF001
        except BaseException as error:
            plane._end_all()  # noqa: SLF001
            if left and isinstance(error, StartError) and "address already in use" in str(error):
                continue
            raise
        return plane
    raise AssertionError("the last try returns or raises")


def _prepare(files: Files, ports: Ports, options: Options) -> None:
    """Write what the components read. Keys, certificates and tokens of an earlier run in this folder stay good."""
    files.folder.mkdir(parents=True, exist_ok=True)
    if not files.tokens.exists():
        credentials.write_tokens(files.tokens)
    if not files.signing_key.exists():
        credentials.write_signing_key(files.signing_key)
    users = {credentials.ADMIN: credentials.ADMIN, CONTROLLERS: "system:kube-controller-manager", KWOK: "kwok"}
    for name, user in users.items():
        credentials.write_kubeconfig(
            files.kubeconfig(name),
            url=f"https://{HOST}:{ports.api_server}",
            ca_file=files.ca,
            user=user,
            token=credentials.token_of(files.tokens, user),
        )
    files.stages.write_bytes(stages())
    if options.audit:
        files.audit_policy.write_bytes(audit.POLICY)
