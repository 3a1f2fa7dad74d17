"""
`python -m tests.benchmarks.kube_costs [--rounds N] [--objects N] [--only NAME]...`: what each kind of request costs.

On a control plane of its own, with our definitions: creating a Workload, writing its status in each way there is, a
second write on an admitted one, further watchers, Events, Jobs, a queue's status. All kinds take turns, in another
order each round, so that they meet the same noise. CPU is that of kube-apiserver and etcd from /proc, the lower
quartile of the rounds; beside it is how much the API server has allocated for a request, which hardly scatters and
which its CPU follows (almost half of it is garbage collection).
"""

import argparse
import itertools
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import anyio
import anyio.abc
import msgspec
from tests.benchmarks.kube_cell import install_crds
from tests.benchmarks.kube_load import CLASSES, queue_names, queues, workload
from tests.benchmarks.kube_meter import Api, load_of_machine
from tests.benchmarks.manifests import KUEUE, Manifest, job
from tests.benchmarks.measure import Report, Row, cpu_s, show

from headgate.testing.control_plane import (
    API_SERVER,
    ETCD,
    ControlPlane,
    NoAssetsError,
    Options,
    control_plane,
    find_assets,
)

ROUNDS: Final = 8
OBJECTS: Final = 150
IN_FLIGHT: Final = 16
QUEUE: Final = "cq-0-cohort-0"
KUEUE_PATH: Final = f"/apis/{KUEUE}"
WORKLOADS: Final = f"{KUEUE_PATH}/namespaces/{QUEUE}/workloads"
QUIET: Final = {"Accept-Encoding": "identity"}
"""aiohttp requests compressed responses by default."""
JSON, APPLY = "application/json", "application/apply-patch+yaml"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
AT: Final = "2026-01-01T12:00:00Z"
_ALLOCATED = re.compile(rb"^go_memstats_alloc_bytes_total (\S+)$", re.MULTILINE)

Objects = dict[str, dict[str, Any]]
"""The Workloads that a kind of request is made on, as they were created."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request."""

    method: str
    path: str
    body: object = None
    content_type: str = JSON
    accept: str = JSON


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of request: the request for each object, its preparation, and the number of watchers of Workloads."""

    name: str
    calls: Callable[[Objects], list[Call]]
    after: tuple[Callable[[Objects], list[Call]], ...] = ()
    watchers: int = 0


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What one request of a batch has cost."""

    api_ms: float
    etcd_ms: float
    allocated_kb: float
    per_s: float


# --- what is written -----------------------------------------------------------------------------------------------


def _condition(kind: str, status: str, reason: str, message: str) -> Manifest:
    fields = {"type": kind, "status": status, "reason": reason, "message": message}
    return {**fields, "lastTransitionTime": AT, "observedGeneration": 1}


ADMITTED: Final[Manifest] = {
    "conditions": [
        _condition("QuotaReserved", "True", "QuotaReserved", f"Quota reserved in ClusterQueue {QUEUE}"),
        _condition("Admitted", "True", "Admitted", "The workload is admitted"),
    ],
    "admission": {
        "clusterQueue": QUEUE,
        "podSetAssignments": [
            {"name": "main", "flavors": {"cpu": "rf"}, "resourceUsage": {"cpu": "1"}, "count": 1},
        ],
    },
}
WAITING: Final[Manifest] = {
    "conditions": [
        _condition(
            "QuotaReserved",
            "False",
            "Pending",
            "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor rf, 1 more needed",
        )
    ],
    "resourceRequests": [{"name": "main", "resources": {"cpu": "1"}}],
}
DONE: Final = _condition("Finished", "True", "Succeeded", "Job finished successfully")
FINISHED: Final = {**ADMITTED, "conditions": [*ADMITTED["conditions"], DONE]}


def _named(name: str, status: Manifest) -> Manifest:
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": QUEUE},
        "status": status,
    }


def _status(name: str, query: str) -> str:
    return f"{WORKLOADS}/{name}/status?{query}"


def applied(status: Manifest, query: str, accept: str = JSON) -> Callable[[Objects], list[Call]]:
    """Server-side apply of a status."""

    def calls(objects: Objects) -> list[Call]:
        return [
            Call(
                method="PATCH", path=_status(name, query), body=_named(name, status), content_type=APPLY, accept=accept
            )
            for name in objects
        ]

    return calls


def merged(status: Manifest, query: str) -> Callable[[Objects], list[Call]]:
    """A merge patch of a status."""

    def calls(objects: Objects) -> list[Call]:
        body = {"status": status}
        return [Call(method="PATCH", path=_status(name, query), body=body, content_type=MERGE) for name in objects]

    return calls


def patched(path: str, value: object, query: str) -> Callable[[Objects], list[Call]]:
    """A JSON patch that adds one thing to a status."""

    def calls(objects: Objects) -> list[Call]:
        body = [{"op": "add", "path": path, "value": value}]
        return [Call(method="PATCH", path=_status(name, query), body=body, content_type=JSON_PATCH) for name in objects]

    return calls


def put(status: Manifest, query: str) -> Callable[[Objects], list[Call]]:
    """An update of a status, with the whole object."""

    def calls(objects: Objects) -> list[Call]:
        return [
            Call(method="PUT", path=_status(name, query), body={**found, "status": status})
            for name, found in objects.items()
        ]

    return calls


def read(objects: Objects) -> list[Call]:
    """Each object."""
    return [Call(method="GET", path=f"{WORKLOADS}/{name}") for name in objects]


def event(objects: Objects) -> list[Call]:
    """An Event about each."""
    path = f"/apis/events.k8s.io/v1/namespaces/{QUEUE}/events"
    return [Call(method="POST", path=path, body=_event(name, found)) for name, found in objects.items()]


def _event(name: str, found: dict[str, Any]) -> Manifest:
    about = {"kind": "Workload", "namespace": QUEUE, "name": name, "apiVersion": KUEUE}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": f"{name}-", "namespace": QUEUE},
        "regarding": {**about, "uid": found["metadata"]["uid"]},
        "reason": "Admitted",
        "action": "Admit",
        "note": f"Admitted by ClusterQueue {QUEUE}, wait time since reservation was 0s",
        "type": "Normal",
        "eventTime": "2026-01-01T12:00:00.000000Z",
        "reportingController": "headgate",
        "reportingInstance": "headgate-0",
    }


def job_created(objects: Objects) -> list[Call]:
    """A Job for each."""
    return [Call(method="POST", path=_jobs(), body=job(name, QUEUE)) for name in objects]


def job_resumed(objects: Objects) -> list[Call]:
    """The Job of each, resumed with a node selector."""
    body = {"spec": {"suspend": False, "template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}}
    return [Call(method="PATCH", path=f"{_jobs()}/{name}", body=body, content_type=MERGE) for name in objects]


def _jobs() -> str:
    return f"/apis/batch/v1/namespaces/{QUEUE}/jobs"


_counts = itertools.count()


def queue_status(objects: Objects) -> list[Call]:
    """The status of a ClusterQueue, another each time; of all in turn, so that they do not wait for each other."""
    names = queue_names()
    return [
        Call(
            method="PATCH",
            path=f"{KUEUE_PATH}/clusterqueues/{name}/status?fieldManager=headgate&force=true&fieldValidation=Ignore",
            body={
                "apiVersion": KUEUE,
                "kind": "ClusterQueue",
                "metadata": {"name": name},
                "status": {
                    "conditions": [_condition("Active", "True", "Ready", "Can admit new workloads")],
                    "pendingWorkloads": next(_counts),
                    "reservingWorkloads": 3,
                    "admittedWorkloads": 3,
                    "flavorsReservation": [
                        {"name": "rf", "resources": [{"name": "cpu", "total": "3", "borrowed": "0"}]}
                    ],
                    "flavorsUsage": [{"name": "rf", "resources": [{"name": "cpu", "total": "3", "borrowed": "0"}]}],
                },
            },
            content_type=APPLY,
        )
        for _, name in zip(objects, itertools.cycle(names), strict=False)
    ]


OURS: Final = "fieldManager=headgate&force=true"
OTHERS: Final = "fieldManager=driver&force=true"
FAST: Final = "&fieldValidation=Ignore"
ADMISSION: Final = applied(ADMITTED, OURS + FAST)

KINDS: Final = (
    Kind(name="status by apply, fields validated", calls=applied(ADMITTED, OURS)),
    Kind(name="status by apply", calls=ADMISSION),
    Kind(name="status by apply, answered with metadata", calls=applied(ADMITTED, OURS + FAST, METADATA)),
    Kind(name="status by merge patch", calls=merged(ADMITTED, OURS.removesuffix("&force=true") + FAST)),
    Kind(name="status by JSON patch", calls=patched("/status", ADMITTED, OURS.removesuffix("&force=true") + FAST)),
    Kind(name="status by update", calls=put(ADMITTED, OURS.removesuffix("&force=true") + FAST)),
    Kind(name="status by apply, a reason to wait", calls=applied(WAITING, OURS + FAST)),
    Kind(name="status by apply, 1 watcher more", calls=ADMISSION, watchers=1),
    Kind(name="status by apply, 3 watchers more", calls=ADMISSION, watchers=3),
    Kind(name="finish by apply, same manager", calls=applied(FINISHED, OURS + FAST), after=(ADMISSION,)),
    Kind(
        name="finish by apply, another manager",
        calls=applied({"conditions": [DONE]}, OTHERS + FAST),
        after=(ADMISSION,),
    ),
    Kind(
        name="finish by merge patch",
        calls=merged({"conditions": FINISHED["conditions"]}, "fieldManager=driver" + FAST),
        after=(ADMISSION,),
    ),
    Kind(
        name="finish by JSON patch",
        calls=patched("/status/conditions/-", DONE, "fieldManager=driver" + FAST),
        after=(ADMISSION,),
    ),
    Kind(name="get Workload", calls=read),
    Kind(name="create Event", calls=event),
    Kind(name="create Job", calls=job_created),
    Kind(name="resume Job by merge patch", calls=job_resumed, after=(job_created,)),
    Kind(name="ClusterQueue status by apply", calls=queue_status),
)
CREATE: Final = "create Workload"


# --- measuring -----------------------------------------------------------------------------------------------------


class Server:
    """The API server under load."""

    def __init__(self, session: aiohttp.ClientSession, plane: ControlPlane) -> None:
        self._session = session
        self._plane = plane
        self._api = Api(session, plane.url, plane.token, plane.ca_file)
        self._tls = self._api.tls
        self._serial = itertools.count()

    async def prepare(self) -> None:
        """The namespace that everything is in, and the ClusterQueues."""
        for manifest in queues():
            if manifest["kind"] == "ClusterQueue" or manifest["metadata"]["name"] == QUEUE:
                await self._call(_creation(manifest))

    async def created(self, count: int, costs: dict[str, list[Cost]]) -> Objects:
        """So many new Workloads."""
        manifests = [workload(QUEUE, CLASSES["baseline"][0], next(self._serial)) for _ in range(count)]
        calls = [Call(method="POST", path=WORKLOADS, body=manifest) for manifest in manifests]
        cost, answers = await self.measured(calls)
        costs.setdefault(CREATE, []).append(cost)
        found = (msgspec.json.decode(answer) for answer in answers)
        return {each["metadata"]["name"]: each for each in found}

    async def measured(self, calls: list[Call]) -> tuple[Cost, list[bytes]]:
        """Make requests, several at a time, and say what each has cost."""
        pids = self._plane.pids()
        allocated = await self._allocated()
        api_s, etcd_s, begun = cpu_s(pids[API_SERVER]), cpu_s(pids[ETCD]), time.perf_counter()
        answers = await self._make(calls)
        took_s = time.perf_counter() - begun
        api_s, etcd_s = cpu_s(pids[API_SERVER]) - api_s, cpu_s(pids[ETCD]) - etcd_s
        allocated = await self._allocated() - allocated
        count = len(calls)
        return Cost(
            api_ms=1000 * api_s / count,
            etcd_ms=1000 * etcd_s / count,
            allocated_kb=allocated / count / 1000,
            per_s=count / took_s,
        ), answers

    async def make(self, calls: list[Call]) -> None:
        """Make requests that are not measured."""
        await self._make(calls)

    async def _make(self, calls: list[Call]) -> list[bytes]:
        left = iter(calls)
        answers: list[bytes] = []

        async def worker() -> None:
            for call in left:
                answers.append(await self._call(call))  # noqa: PERF401  (as they come, from all workers)

        async with anyio.create_task_group() as tasks:
            for _ in range(IN_FLIGHT):
                tasks.start_soon(worker)
        return answers

    async def _call(self, call: Call) -> bytes:
        headers = {**QUIET, "Authorization": f"Bearer {self._plane.token}", "Accept": call.accept}
        body = None
        if call.body is not None:
            headers["Content-Type"] = call.content_type
            body = msgspec.json.encode(call.body)
        url = self._plane.url + call.path
        async with self._session.request(call.method, url, data=body, headers=headers, ssl=self._tls) as answer:
            said = await answer.read()
            assert answer.status in (200, 201), (call.method, call.path, answer.status, said[:500])
            return said

    async def _allocated(self) -> float:
        found = _ALLOCATED.search(await self._api.get("/metrics"))
        assert found is not None, "the API server does not say what it allocates"
        return float(found[1])

    @asynccontextmanager
    async def watched(self, count: int) -> AsyncIterator[None]:
        """With so many watchers of all Workloads."""

        async def watch(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            lines = self._api.lines(f"{KUEUE_PATH}/workloads?watch=1")
            task_status.started()
            async for _ in lines:
                pass

        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                await tasks.start(watch)
            if count:
                await anyio.sleep(0.5)
            yield
            tasks.cancel_scope.cancel()


def _creation(manifest: Manifest) -> Call:
    paths = {
        "Namespace": "/api/v1/namespaces",
        "ClusterQueue": f"{KUEUE_PATH}/clusterqueues",
        "LocalQueue": f"{KUEUE_PATH}/namespaces/{QUEUE}/localqueues",
    }
    return Call(method="POST", path=paths[manifest["kind"]], body=manifest)


async def measure(folder: Path, options: argparse.Namespace) -> dict[str, list[Cost]]:
    """All kinds, round by round."""
    costs: dict[str, list[Cost]] = {}
    chosen = [kind for kind in KINDS if not options.only or kind.name in options.only]
    plane_options = Options(controllers=False, kwok=False, nodes=0)
    async with control_plane(find_assets(), folder, options=plane_options) as plane, aiohttp.ClientSession() as session:
        await install_crds(plane)
        server = Server(session, plane)
        await server.prepare()
        await server.created(options.objects, {})
        for number in range(options.rounds):
            for kind in random.sample(chosen, len(chosen)):
                objects = await server.created(options.objects, costs)
                for before in kind.after:
                    await server.make(before(objects))
                async with server.watched(kind.watchers):
                    cost, _ = await server.measured(kind.calls(objects))
                costs.setdefault(kind.name, []).append(cost)
            print(f"  round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    return costs


def report(costs: dict[str, list[Cost]], options: argparse.Namespace, took_s: float) -> Report:
    """A line for each kind."""
    done = Report(name="bench-kube-costs", took_s=took_s)
    base = _low(cost.api_ms for cost in costs.get("status by apply", costs[CREATE]))
    for name in (CREATE, *(kind.name for kind in KINDS if kind.name in costs)):
        each = costs[name]
        api_ms = _low(cost.api_ms for cost in each)
        done.rows.append(
            Row(
                what=name,
                figure=f"{api_ms:.1f} ms of API server CPU, {api_ms / base:.2f} of a status by apply",
                compared=f"{statistics.median(cost.allocated_kb for cost in each):.0f} kB allocated, "
                f"etcd {_low(cost.etcd_ms for cost in each):.1f} ms, "
                f"{statistics.median(cost.per_s for cost in each):.0f} a second",
            )
        )
    done.notes.append(
        f"{options.rounds} rounds of {options.objects} requests of a kind, {IN_FLIGHT} in flight; {load_of_machine()}"
    )
    return done


def _low(values: Iterable[float]) -> float:
    """The lower quartile: noise only adds."""
    ordered = sorted(values)
    return ordered[len(ordered) // 4]


def main() -> None:
    """Run and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.kube_costs", description="Measure and compare.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how many (default {ROUNDS})")
    parser.add_argument("--objects", type=int, default=OBJECTS, help=f"requests of a kind in a round ({OBJECTS})")
    parser.add_argument("--only", action="append", choices=[kind.name for kind in KINDS], help="only this kind")
    options = parser.parse_args()
    begun = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="headgate-bench-kube-costs-") as directory:
            costs: dict[str, list[Cost]] = anyio.run(
                measure, Path(directory), options, backend_options={"use_uvloop": True}
            )
    except NoAssetsError as error:
        sys.exit(f"headgate: {error}")
    print(show([report(costs, options, time.perf_counter() - begun)]))


if __name__ == "__main__":
    main()
