"""
The driver of the benchmark on a real API server, a process of its own: it creates the Workloads and ends them.

`python -m tests.benchmarks.kube_driver --server URL --ca FILE --token-file FILE --scale S`. It watches all Workloads;
when one is admitted and its time is up it adds the condition Finished, as Kueue's performance runner does, by the
cheapest write there is. One that is evicted has to run for all of its time when it is admitted again; its quota is
given back by QuotaReserved=False, Admitted=False and the removal of the admission, as that runner does for want of a
job that would have to stop. In the end it prints what it has seen as JSON: the waits, the makespan, its own requests.
"""

import argparse
import asyncio
import ssl
import sys
import time
from pathlib import Path
from typing import Final, get_args

import aiohttp
import anyio
import anyio.abc
import msgspec
from tests.benchmarks.kube_load import CLASSES, SIZES, Class, LoadName, classes, queue_names, total, workload

GROUP: Final = "/apis/kueue.x-k8s.io/v1beta2"
FINISHERS: Final = 16
"""How many requests that finish Workloads are under way at most."""
LIMIT_S: Final = 3600
PROGRESS_S: Final = 10.0
ONLY_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""The requested response to a write: as little as possible."""


class Condition(msgspec.Struct):
    """As much of a condition as is looked at."""

    type: str
    status: str


class Eviction(msgspec.Struct):
    """How often a workload was evicted for a reason."""

    count: int = 0


class SchedulingStats(msgspec.Struct):
    """How often a workload was evicted, by reason."""

    evictions: list[Eviction] = []


class Status(msgspec.Struct, rename="camel"):
    """As much of a status as is looked at."""

    conditions: list[Condition] = []
    scheduling_stats: SchedulingStats = msgspec.field(default_factory=SchedulingStats)


class Metadata(msgspec.Struct, rename="camel"):
    """As much of an object's metadata as is looked at."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Workload(msgspec.Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    status: Status = msgspec.field(default_factory=Status)


class _Event(msgspec.Struct):
    type: str
    object: _Workload


class Seen(msgspec.Struct, kw_only=True):
    """What the driver has seen. Times in seconds; `requests` counts its writes by "<verb> <resource>"."""

    workloads: int = 0
    makespan_s: float = 0.0
    created_s: float = 0.0
    waits_s: dict[str, list[float]] = {}
    requests: dict[str, int] = {}
    repeated: int = 0
    evictions: int = 0
    cpu_s: float = 0.0


class _Run:
    """
    One workload: when it was created, whether it runs, how often it was evicted, and whether it has ended.

    `marked`: it was marked finished; what has happened to it until Headgate saw that is void.
    """

    __slots__ = ("admitted", "begun", "evictions", "finished", "marked", "of", "timer", "waited")

    def __init__(self, of: Class, begun: float) -> None:
        self.of = of
        self.begun = begun
        self.admitted = False
        self.evictions = 0
        self.finished = False
        self.marked = False
        self.waited = False
        self.timer: asyncio.TimerHandle | None = None


class Driver:
    """The load of `of` classes, made, watched and ended."""

    def __init__(self, session: aiohttp.ClientSession, server: str, of: tuple[Class, ...]) -> None:
        self._session = session
        self._server = server
        self._of = of
        self._runs: dict[tuple[str, str], _Run] = {}
        self._due: asyncio.Queue[tuple[tuple[str, str], int]] = asyncio.Queue()
        """Whose time is up, and how often it had been evicted when that began."""
        self._evicted: asyncio.Queue[tuple[tuple[str, str], list[str]]] = asyncio.Queue()
        """A workload that has to release its quota, and the types of its conditions, as they stand."""
        self._ended = 0
        self._begun = 0.0
        self._all_ended = anyio.Event()
        self._decoder = msgspec.json.Decoder(_Event)
        self.seen = Seen(workloads=total(of), waits_s={size: [] for size in SIZES})

    async def run(self) -> Seen:
        """Make the load and wait until all of it has ended."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._watch)
            tasks.start_soon(self._tell)
            for _ in range(FINISHERS):
                tasks.start_soon(self._finish)
                tasks.start_soon(self._give_back)
            self._begun = time.perf_counter()
            async with anyio.create_task_group() as creating:
                for queue in queue_names():
                    for each in self._of:
                        creating.start_soon(self._create, queue, each)
            self.seen.created_s = time.perf_counter() - self._begun
            await self._all_ended.wait()
            tasks.cancel_scope.cancel()
        self.seen.cpu_s = time.process_time()
        return self.seen

    async def _create(self, queue: str, of: Class) -> None:
        """One loop of Kueue's generator: wait, create, and again."""
        path = f"{GROUP}/namespaces/{queue}/workloads"
        for number in range(of.count):
            await asyncio.sleep(of.every_ms / 1000)
            manifest = workload(queue, of, number)
            self._runs[queue, manifest["metadata"]["name"]] = _Run(of, time.perf_counter())
            await self._request("POST", "create", path, msgspec.json.encode(manifest), "application/json")

    async def _watch(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        version = "0"
        async with self._session.get(f"{self._server}{GROUP}/workloads?limit=1") as answer:
            version = msgspec.json.decode(await answer.read())["metadata"]["resourceVersion"]
        task_status.started()
        while True:
            url = f"{self._server}{GROUP}/workloads?watch=1&timeoutSeconds={LIMIT_S}&resourceVersion={version}"
            async with self._session.get(url, timeout=aiohttp.ClientTimeout(total=None)) as answer:
                assert answer.status == 200, await answer.text()
                rest = b""
                while chunk := await answer.content.readany():
                    now = time.perf_counter()
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        event = self._decoder.decode(line)
                        assert event.type != "ERROR", line
                        version = event.object.metadata.resource_version
                        self._hear(event.object, now)

    def _hear(self, seen: _Workload, now: float) -> None:
        key = (seen.metadata.namespace, seen.metadata.name)
        run = self._runs.get(key)
        if run is None or run.finished:
            return
        evictions = sum(each.count for each in seen.status.scheduling_stats.evictions)
        if evictions != run.evictions:
            # Also one that was admitted again before its eviction was observed: it starts again.
            self.seen.evictions += evictions - run.evictions
            run.evictions, run.admitted = evictions, False
            if run.timer is not None:
                run.timer.cancel()
        true = {each.type for each in seen.status.conditions if each.status == "True"}
        if {"Evicted", "QuotaReserved"} <= true and "Finished" not in true:
            self._evicted.put_nowait((key, [each.type for each in seen.status.conditions]))
        if "Finished" in true:
            run.finished = True
            self._ended += 1
            if self._ended == self.seen.workloads:
                self.seen.makespan_s = now - self._begun
                self._all_ended.set()
        elif ("Admitted" in true and "Evicted" not in true) != run.admitted:
            run.admitted = not run.admitted
            if run.admitted:
                self._admitted(key, run, now)
            elif run.timer is not None:
                run.timer.cancel()

    def _admitted(self, key: tuple[str, str], run: _Run, now: float) -> None:
        if not run.waited:
            run.waited = True
            self.seen.waits_s[run.of.size].append(now - run.begun)
        due = (key, run.evictions)
        run.timer = asyncio.get_running_loop().call_later(run.of.run_ms / 1000, self._due.put_nowait, due)

    async def _finish(self) -> None:
        while True:
            (namespace, name), evictions = await self._due.get()
            run = self._runs[namespace, name]
            if run.marked or not run.admitted or run.evictions != evictions:
                continue
            run.marked = True
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            condition = {"type": "Finished", "status": "True", "reason": "ByTest", "message": "By test runner"}
            patch = [{"op": "add", "path": "/status/conditions/-", "value": condition | {"lastTransitionTime": at}}]
            path = f"{GROUP}/namespaces/{namespace}/workloads/{name}/status?fieldManager=driver&fieldValidation=Ignore"
            await self._request("PATCH", "finish", path, msgspec.json.encode(patch), "application/json-patch+json")

    async def _give_back(self) -> None:
        while True:
            (namespace, name), types = await self._evicted.get()
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            patch: list[dict[str, object]] = [{"op": "remove", "path": "/status/admission"}]
            for kind, reason in (("QuotaReserved", "Pending"), ("Admitted", "NoReservation")):
                if kind in types:
                    where = f"/status/conditions/{types.index(kind)}"
                    condition = {"type": kind, "status": "False", "reason": reason, "message": "By test runner"}
                    patch.append({"op": "test", "path": f"{where}/type", "value": kind})
                    patch.append({"op": "replace", "path": where, "value": condition | {"lastTransitionTime": now}})
            path = f"{GROUP}/namespaces/{namespace}/workloads/{name}/status?fieldManager=driver&fieldValidation=Ignore"
            await self._request("PATCH", "give back", path, msgspec.json.encode(patch), "application/json-patch+json")

    async def _request(self, method: str, what: str, path: str, body: bytes, content_type: str) -> None:
        headers = {"Content-Type": content_type, "Accept": ONLY_METADATA}
        while True:
            self.seen.requests[what] = self.seen.requests.get(what, 0) + 1
            async with self._session.request(method, self._server + path, data=body, headers=headers) as answer:
                said = await answer.read()
                if answer.status in (200, 201):
                    return
                if answer.status == 422 and what == "give back":
                    # Its conditions have changed since: what it has become is shown, too.
                    return
                if answer.status not in (409, 429, 500, 503, 504):
                    raise RuntimeError(f"{method} {path}: {answer.status} {said[:500]!r}")
            self.seen.repeated += 1
            await asyncio.sleep(0.1)

    async def _tell(self) -> None:
        while True:
            await anyio.sleep(PROGRESS_S)
            waits = sum(len(each) for each in self.seen.waits_s.values())
            took_s = time.perf_counter() - self._begun
            text = f"  {took_s:4.0f} s: {len(self._runs)} created, {waits} admitted, {self._ended} finished"
            print(text, file=sys.stderr, flush=True)


async def drive(options: argparse.Namespace) -> Seen:
    """Connect and run."""
    context = ssl.create_default_context(cafile=options.ca)
    headers = {"Authorization": f"Bearer {options.token_file.read_text()}", "Accept-Encoding": "identity"}
    connector = aiohttp.TCPConnector(limit=0, ssl=context)
    async with aiohttp.ClientSession(connector=connector, headers=headers, read_bufsize=2**21) as session:
        return await Driver(session, options.server, classes(options.scale, options.load)).run()


def main() -> None:
    """The process."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.kube_driver")
    parser.add_argument("--server", required=True)
    parser.add_argument("--ca", required=True)
    parser.add_argument("--token-file", type=Path, required=True)
    parser.add_argument("--load", choices=get_args(LoadName), default="baseline")
    parser.add_argument("--scale", type=float, default=1.0, help=f"the share of {total(CLASSES['baseline'])} workloads")
    seen = anyio.run(drive, parser.parse_args(), backend_options={"use_uvloop": True})
    sys.stdout.buffer.write(msgspec.json.encode(seen))


if __name__ == "__main__":
    main()
