"""
What a run on a real API server has cost: CPU and memory of every process, requests as the API server counted them.

`Meter` reads all of it twice, before and after, and gives the difference. CPU comes from /proc, peak memory too (the
kernel keeps it), requests from the API server's `apiserver_request_total`.
"""

import os
import re
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
from tests.benchmarks.measure import cpu_s

WRITES: Final = ("POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION")
_REQUEST = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Requests(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A sort of request: `resource` with its subresource, `code` the answer's."""

    verb: str
    group: str
    resource: str
    code: str


class Costs(msgspec.Struct, kw_only=True):
    """What was spent between two readings: CPU seconds and peak MiB by process, requests by sort, seconds."""

    took_s: float
    cpu_s: dict[str, float]
    peak_mib: dict[str, float]
    requests: dict[Requests, int]

    def writes(self, *groups: str) -> dict[Requests, int]:
        """The requests that change something, in these API groups."""
        return {each: count for each, count in self.requests.items() if each.verb in WRITES and each.group in groups}


class Api:
    """The API server as its operator sees it: metrics and profiles."""

    def __init__(self, session: aiohttp.ClientSession, server: str, token: str, ca_file: Path) -> None:
        self._session = session
        self._server = server
        self._headers = {"Authorization": f"Bearer {token}"}
        self.tls = ssl.create_default_context(cafile=str(ca_file))

    async def get(self, path: str, timeout_s: float = 60.0) -> bytes:
        """The body of an answer."""
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        url = self._server + path
        async with self._session.get(url, headers=self._headers, ssl=self.tls, timeout=timeout) as answer:
            body = await answer.read()
            assert answer.status == 200, (path, answer.status, body[:200])
            return body

    async def post(self, path: str, body: bytes) -> bytes:
        """Create an object that is not there."""
        headers = self._headers | {"Content-Type": "application/json"}
        async with self._session.post(self._server + path, data=body, headers=headers, ssl=self.tls) as answer:
            said = await answer.read()
            assert answer.status == 201, (path, answer.status, said[:400])
            return said

    async def patch(self, path: str, body: bytes) -> bytes:
        """Change an object by a merge patch."""
        headers = self._headers | {"Content-Type": "application/merge-patch+json"}
        async with self._session.patch(self._server + path, data=body, headers=headers, ssl=self.tls) as answer:
            said = await answer.read()
            assert answer.status == 200, (path, answer.status, said[:400])
            return said

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        """The lines of an answer that continues, such as a watch."""
        timeout = aiohttp.ClientTimeout(total=None)
        url = self._server + path
        async with self._session.get(url, headers=self._headers, ssl=self.tls, timeout=timeout) as answer:
            assert answer.status == 200, (path, answer.status)
            rest = b""
            while chunk := await answer.content.readany():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line

    async def requests(self) -> dict[Requests, int]:
        """The requests that it has answered so far."""
        text = (await self.get("/metrics")).decode()
        counts: dict[Requests, int] = {}
        for found in _REQUEST.finditer(text):
            labels = dict(_LABEL.findall(found["labels"]))
            resource = "/".join(part for part in (labels["resource"], labels["subresource"]) if part)
            sort = Requests(verb=labels["verb"], group=labels["group"], resource=resource, code=labels["code"])
            counts[sort] = counts.get(sort, 0) + int(float(found["count"]))
        return counts


class Meter:
    """Readings of processes and of the API server."""

    def __init__(self, api: Api, pids: dict[str, int]) -> None:
        self._api = api
        self._pids = pids
        self._cpu: dict[str, float] = {}
        self._requests: dict[Requests, int] = {}
        self._began = 0.0

    async def begin(self) -> None:
        """Read for the first time."""
        self._requests = await self._api.requests()
        self._cpu = {name: cpu_s(pid) for name, pid in self._pids.items()}
        self._began = time.perf_counter()

    async def end(self) -> Costs:
        """Read again."""
        took_s = time.perf_counter() - self._began
        used = {name: cpu_s(pid) - self._cpu[name] for name, pid in self._pids.items()}
        peaks = {name: peak_mib(pid) for name, pid in self._pids.items()}
        requests = {
            each: count - self._requests.get(each, 0)
            for each, count in (await self._api.requests()).items()
            if count != self._requests.get(each, 0)
        }
        return Costs(took_s=took_s, cpu_s=used, peak_mib=peaks, requests=requests)


def peak_mib(pid: int) -> float:
    """The largest resident memory that a process has had, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def load_of_machine() -> str:
    """How busy the machine is, in words: figures of a busy one are worth less."""
    one, five, _ = os.getloadavg()
    return f"{os.cpu_count()} cores, load average {one:.1f} (1 min), {five:.1f} (5 min)"
