"""All six processes on a real broker and the simulated cluster behind HTTP: jobs run, and the log records it."""

from pathlib import Path
from typing import Any

import pytest
from tests.processes.cells import Cell, cell_of
from tests.support.brokers import Broker
from tests.support.waiting import until

from headgate.adapters.jetstream import Connection, connect, open_log
from headgate.adapters.jetstream.feed import open_feed
from headgate.adapters.jetstream.messages import by_seq
from headgate.core import fold
from headgate.core.reading.decoding import RESOURCES
from headgate.core.state.tables import Stage, State
from headgate.events.commit import decode_commit
from headgate.processes.runtime.settings import SnapshotSettings
from headgate.testing.cluster import Cluster, ServerResponse, kind_of

pytestmark = pytest.mark.anyio

KUEUE = "kueue.x-k8s.io/v1beta2"
CONFIGURATION: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node"},
        "status": {
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    },
    {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "default"}},
    {
        "apiVersion": KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu"],
                    "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "2"}]}],
                }
            ],
        },
    },
    {
        "apiVersion": KUEUE,
        "kind": "LocalQueue",
        "metadata": {"name": "lq", "namespace": "default"},
        "spec": {"clusterQueue": "cq"},
    },
]


def job(name: str, cpu: str = "1", *, queue: str = "lq", labels: Any = (), **plays: int) -> dict[str, Any]:
    """A Job of one pod. `plays` are annotations of the pod for the simulated kubelet, as `run_ms`."""
    annotations = {f"headgate.dev/{key.replace('_', '-')}": str(value) for key, value in plays.items()}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": queue, **dict(labels)},
        },
        "spec": {
            "suspend": True,
            "parallelism": 1,
            "completions": 1,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


async def finished(cell: Cell, count: int) -> State:
    """The snapshotter's state when so many workloads have finished."""

    def is_reached() -> bool:
        host = cell.runners["snapshotter"].view.host
        return host is not None and count == sum(
            workload.stage is Stage.FINISHED for workload in host.state.workloads.values()
        )

    await until(is_reached)
    host = cell.runners["snapshotter"].view.host
    assert host is not None
    return host.state


async def test_jobs_run_to_their_end_within_quota(tmp_path: Path) -> None:
    """Four jobs, quota for two: each is admitted, started, bound, finished; at the end nothing holds quota."""
    async with Broker(tmp_path) as server, cell_of(server, "e2e") as cell:
        cell.apply(*CONFIGURATION, *(job(f"j{n}") for n in range(4)))
        state = await finished(cell, 4)
        assert not any(state.index.usage["cq"].values())
        await until(lambda: all(runner.status.report().ready for runner in cell.runners.values()))
    # The states of all processes at the same position are equal.
    hashes: dict[int, set[str]] = {}
    for runner in cell.runners.values():
        assert runner.view.host is not None
        its = runner.view.host.state
        hashes.setdefault(its.position, set()).add(fold.state_hash(its))
    assert all(len(each) == 1 for each in hashes.values())


async def test_a_preempted_job_stops_resumes_and_runs_to_its_end(tmp_path: Path) -> None:
    """A higher priority takes the quota of a running Job, which is suspended, gives it back, and comes again."""
    cq = next(each for each in CONFIGURATION if each["kind"] == "ClusterQueue")
    preempting = {**cq, "spec": {**cq["spec"], "preemption": {"withinClusterQueue": "LowerPriority"}}}
    urgent = {
        "apiVersion": KUEUE,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }

    def runs(cell: Cell, name: str) -> bool:
        found = cell.cluster.find(kind_of("batch/v1", "Job"), "default", name)
        return bool(found is not None and found.get("status", {}).get("ready"))

    async with Broker(tmp_path) as server, cell_of(server, "e2e") as cell:
        cell.apply(*CONFIGURATION, preempting, urgent, job("low", "2", run_ms=2_000))
        await until(lambda: runs(cell, "low"))
        cell.apply(job("high", labels={"kueue.x-k8s.io/priority-class": "urgent"}, run_ms=200))
        await until(lambda: runs(cell, "high"))
        assert not runs(cell, "low")
        state = await finished(cell, 2)
        low, high = (
            next(each for each in state.workloads.values() if each.owner is not None and each.owner.name == name)
            for name in ("low", "high")
        )
        assert [(stat.reason, stat.count) for stat in low.evictions] == [("Preempted", 1)]
        assert high.evictions == ()
        conditions = {each.type: (each.status, each.reason) for each in low.conditions}
        assert conditions["Preempted"] == ("False", "QuotaReserved")
        assert conditions["Requeued"] == ("True", "Preempted")
        assert not any(state.index.usage["cq"].values())


async def test_a_cell_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """All processes stop in mid-work and start again, from a snapshot: every job still runs to its end."""
    sections: dict[str, Any] = {"snapshots": SnapshotSettings(commits=20, idle_ms=200)}
    async with Broker(tmp_path) as server:
        async with cell_of(server, "e2e", **sections) as cell:
            cell.apply(*CONFIGURATION, *(job(f"j{n}") for n in range(6)))
            await finished(cell, 2)
            cluster = cell.cluster
        async with cell_of(server, "e2e", cluster=cluster, **sections) as cell:
            state = await finished(cell, 6)
            assert state.snapshot is not None
            await until(lambda: cell.runners["snapshotter"].status.counters.feed_messages > 0)
            async with connect(server.url, name="test") as connection:
                await feed_tells_all(connection)


async def test_a_cell_that_starts_again_lists_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge resumes at the versions in the log: changes in the meantime are seen, and no list is requested."""
    lists: list[str] = []

    def request(
        cluster: Cluster, method: str, path: str, query: Any = None, *args: Any, **given: Any
    ) -> ServerResponse:
        if method == "GET" and (query or {}).get("limit") == "500":
            lists.append(path)
        return answer(cluster, method, path, query or {}, *args, **given)

    answer = Cluster.request
    monkeypatch.setattr(Cluster, "request", request)
    async with Broker(tmp_path) as server:
        async with cell_of(server, "e2e") as cell:
            cell.apply(*CONFIGURATION, job("j0"))
            await finished(cell, 1)
            cluster = cell.cluster
        assert len(lists) == len(RESOURCES)
        cluster.apply(job("j1"))
        lists.clear()
        async with cell_of(server, "e2e", cluster=cluster) as cell:
            await finished(cell, 2)
            assert lists == []


async def feed_tells_all(connection: Connection) -> None:
    """Wait until the feed holds every event of the log, each once and in order."""
    log, feed = await open_log(connection, "e2e"), await open_feed(connection, "e2e")

    async def positions_of_log() -> list[str]:
        found = []
        async for entries in log.read(1):
            for entry in entries:
                commit = decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms).commit
                found += [f"{entry.seq}.{index}" for index in range(len(commit.events))]
        return found

    async def holds_as_many() -> bool:
        return await feed.count() == len(await positions_of_log())

    await until(holds_as_many)
    told = [await by_seq(connection, feed.name, seq + 1) for seq in range(await feed.count())]
    ids = [message.headers["Nats-Msg-Id"] for message in told if message is not None]
    assert ids == (await positions_of_log())[: len(ids)]
