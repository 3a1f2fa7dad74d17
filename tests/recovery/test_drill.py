"""
The drill: a cell with hundreds of running jobs loses its broker, and comes back from a backup or from nothing.

Everything is real but the cluster's nodes: a NATS server, the simulated API server behind HTTP, the six processes, and
the commands that an operator types.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import nats
import pytest
from tests.processes.cells import Cell, cell_of
from tests.processes.test_end_to_end import CONFIGURATION, job
from tests.simulation.oracle import overdrawn
from tests.support.brokers import Broker
from tests.support.waiting import until

from headgate.adapters.jetstream import connect, open_log
from headgate.adapters.jetstream.permissions import ADMIN, READER
from headgate.adapters.jetstream.refill import delete_stream
from headgate.adapters.jetstream.users import seed_file
from headgate.adapters.log import LogEntry
from headgate.cli import main
from headgate.core import fold
from headgate.core.log.branches import parse_event_id
from headgate.core.state.tables import HOLDS_QUOTA, PENDING, Stage, State
from headgate.events.commit import decode_commit
from headgate.events.effects import JobStopped
from headgate.processes.runtime.settings import RecordSettings, SnapshotSettings
from headgate.processes.snapshotter.feed_writer import FeedWriter
from headgate.testing.cluster import BY_PLURAL, Cluster
from headgate.testing.cluster.api.server import wall_clock_ms
from headgate.testing.world.world import CONTROLLERS

pytestmark = pytest.mark.anyio

CELL = "main"
JOBS, PODS = BY_PLURAL["batch", "jobs"], BY_PLURAL["", "pods"]
WORKLOADS = BY_PLURAL["kueue.x-k8s.io", "workloads"]
FOR_EVER_MS = 10**9


def configuration(quota: int) -> list[dict[str, Any]]:
    """One queue of so many cpus, on nodes that have room for all."""
    objects = [dict(each) for each in CONFIGURATION if each["kind"] != "Node"]
    for each in objects:
        if each["kind"] == "ClusterQueue":
            flavors = [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": str(quota)}]}]
            groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
            each["spec"] = {**each["spec"], "resourceGroups": groups}
    room = {"cpu": "128", "memory": "512Gi", "pods": "110"}
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"node-{number}"},
            "status": {
                "allocatable": room,
                "capacity": room,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        for number in range(4)
    ]
    return [*nodes, *objects]


def running(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """The running pods by uid: when each was started, and how often the spec of its Job has changed."""
    generations = {each["metadata"]["uid"]: each["metadata"]["generation"] for each in cluster.objects(JOBS)}
    return {
        pod["metadata"]["uid"]: (pod["status"]["startTime"], generations[pod["metadata"]["ownerReferences"][0]["uid"]])
        for pod in cluster.objects(PODS)
        if pod.get("status", {}).get("phase") == "Running"
    }


def shown_as_admitted(cluster: Cluster) -> int:
    """How many Workloads the API server shows as admitted."""
    return sum(
        any(each["type"] == "Admitted" and each["status"] == "True" for each in found["status"].get("conditions", []))
        for found in cluster.objects(WORKLOADS)
        if "status" in found
    )


def state_of(cell: Cell) -> State | None:
    host = cell.runners["snapshotter"].view.host
    return host.state if host is not None else None


async def settled(cell: Cell, *, admitted: int, pending: int) -> None:
    """Wait until so many are admitted and run, so many wait, and the API server shows all of that."""

    def is_reached() -> bool:
        state = state_of(cell)
        if state is None or state.reconciling:
            return False
        stages = [each.stage for each in state.workloads.values()]
        return (
            stages.count(Stage.ADMITTED) == admitted
            and sum(stage in PENDING for stage in stages) == pending
            and len(running(cell.cluster)) == admitted
            and shown_as_admitted(cell.cluster) == admitted
        )

    def told() -> str:
        state = state_of(cell)
        stages = [each.stage.value for each in state.workloads.values()] if state is not None else []
        counts = {stage: stages.count(stage) for stage in sorted({*stages})}
        phases = {name: (runner.status.phase, runner.status.detail) for name, runner in cell.runners.items()}
        return f"{counts}, {len(running(cell.cluster))} running, {shown_as_admitted(cell.cluster)} shown; {phases}"

    await until(is_reached, told)


@asynccontextmanager
async def cell_on(broker: Broker, cluster: Cluster) -> AsyncIterator[Cell]:
    """The six processes on a broker, beside a cluster that outlives them."""
    snapshots, record = SnapshotSettings(commits=60, idle_ms=300), RecordSettings(every_ms=200)
    async with cell_of(broker, CELL, cluster=cluster, snapshots=snapshots, record=record) as cell:
        yield cell


def at(broker: Broker, user: str) -> tuple[object, ...]:
    """The options by which a command reaches a broker, as one of the cell's users."""
    return ("--nats", broker.url, "--cell", CELL, "--nats-nkey", seed_file(broker.users(CELL), user))


async def headgate(*args: object) -> None:
    """Run a command line in this process; it must succeed."""
    code = await anyio.to_thread.run_sync(main.run, [str(arg) for arg in args])
    assert code == 0, args


async def entries_of(broker: Broker) -> list[LogEntry]:
    async with connect(broker.url, name="test") as connection:
        log = await open_log(connection, CELL)
        return [entry async for entries in log.read(1) for entry in entries]


async def feed_of(broker: Broker) -> list[tuple[str, str]]:
    """The ids and types of all messages of the feed, in its order."""
    client = await nats.connect(broker.url)
    try:
        stream = client.jetstream()
        last = (await stream.stream_info(f"HEADGATE_{CELL}_FEED")).state.last_seq
        found = [await stream.get_msg(f"HEADGATE_{CELL}_FEED", seq) for seq in range(1, last + 1)]
    finally:
        await client.close()
    return [((each.headers or {})["ce-id"], (each.headers or {})["ce-type"]) for each in found]


async def is_published(broker: Broker, position: int) -> bool:
    """Whether the feed has come that far."""
    async with connect(broker.url, name="test") as connection:
        last = await FeedWriter(connection, f"HEADGATE_{CELL}_FEED").last()
    return last is not None and last.id.position.seq >= position


def positions_of(entries: list[LogEntry]) -> list[tuple[int, int]]:
    """The position of each event of a log."""
    return [
        (entry.seq, index)
        for entry in entries
        for index in range(len(decode_commit(entry.seq, entry.subject, entry.payload).commit.events))
    ]


def judge(entries: list[LogEntry], since: int) -> State:
    """Fold a log; from a position on no queue ever holds more than it may, and no Job is stopped."""
    state = fold.new_state(CELL)
    for entry in entries:
        logged = decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms)
        fold.apply(state, logged)
        if logged.seq > since:
            stopped = [event.job for event in logged.commit.events if isinstance(event, JobStopped)]
            assert not stopped, f"position {logged.seq}: {stopped}"
            over = [each for name in state.cluster_queues for each in overdrawn(state, name)]
            assert not over, f"position {logged.seq}: {over}"
    return state


async def test_a_cell_comes_back_from_a_backup_without_disturbing_what_runs(tmp_path: Path) -> None:
    """
    200 jobs run and 20 wait; a backup; then 5 end, the quota grows, and 100 more come; then the broker's store is lost.

    After the restore every pod is the same, none has stopped in between, all that runs is charged and no more than the
    quota at any position; pending workloads are admitted when room comes free. The new feed continues after the backup
    with `cell.restored`, and no two events ever had the same id.
    """
    cluster = Cluster(wall_clock_ms, controllers=CONTROLLERS)
    backup = tmp_path / "backup"
    async with Broker(tmp_path / "first") as broker:
        async with cell_on(broker, cluster) as cell:
            cell.apply(*configuration(200))
            for number in range(110):
                cell.apply(job(f"old-{number}", run_ms=FOR_EVER_MS))
            # While all of this is on its way.
            await until(lambda: len(running(cluster)) > 20)
            await headgate("backup", "--out", backup, *at(broker, READER))
            for number in range(110, 220):
                cell.apply(job(f"old-{number}", run_ms=FOR_EVER_MS))
            await until(lambda: len(running(cluster)) > 120)
            await headgate("backup", "--out", backup, *at(broker, READER))
            await settled(cell, admitted=200, pending=20)
            await headgate("backup", "--out", backup, *at(broker, READER))
            await headgate("backup", "--out", backup, "--verify")
            for pod in [*cluster.objects(PODS)][:5]:
                name = pod["metadata"]["ownerReferences"][0]["name"]
                path = f"/apis/batch/v1/namespaces/default/jobs/{name}"
                cluster.request("DELETE", path, {"propagationPolicy": "Background"})
            cell.apply(*(each for each in configuration(300) if each["kind"] == "ClusterQueue"))
            for number in range(100):
                cell.apply(job(f"new-{number}", run_ms=FOR_EVER_MS))
            await settled(cell, admitted=300, pending=15)
        lost, lost_feed = await entries_of(broker), await feed_of(broker)
        before = running(cluster)
        await broker.kill()

    async with Broker(tmp_path / "second") as broker:
        await broker.admit(CELL)
        await headgate("restore", "--from", backup, *at(broker, ADMIN))
        restored_to = (await entries_of(broker))[-1].seq
        assert restored_to < lost[-1].seq
        assert await entries_of(broker) == lost[:restored_to]
        async with cell_on(broker, cluster) as cell:
            await settled(cell, admitted=300, pending=15)
            assert running(cluster) == before
            state = state_of(cell)
            assert state is not None
            assert sum(each.stage in HOLDS_QUOTA for each in state.workloads.values()) == 300
            entries = await entries_of(broker)
            identity = judge(entries, restored_to).identity
            assert identity is not None
            assert identity.restored is not None
            assert identity.restored.position == restored_to
            # As in the cluster's record, up to its last renewal.
            assert restored_to < identity.restored.lost_to <= lost[-1].seq
            victim = next(iter(before))
            pod = next(each for each in cluster.objects(PODS) if each["metadata"]["uid"] == victim)
            path = f"/apis/batch/v1/namespaces/default/jobs/{pod['metadata']['ownerReferences'][0]['name']}"
            cluster.request("DELETE", path, {"propagationPolicy": "Background"})
            await settled(cell, admitted=300, pending=14)
            shown_to = (await entries_of(broker))[-1].seq
            await until(partial(is_published, broker, shown_to))
        await headgate("audit", *at(broker, READER))
        await headgate("replay", "--verify", *at(broker, READER))
        entries, feed = await entries_of(broker), await feed_of(broker)
        assert broker.violations() == []
    ids = [parse_event_id(text) for text, _ in feed]
    # What was appended as the cell stopped may not be published yet; up to there nothing is missing.
    assert ids[-1].position.seq >= shown_to
    assert [(each.position.seq, each.position.index) for each in ids] == positions_of(entries)[: len(ids)]
    behind = [(each, kind) for each, (_, kind) in zip(ids, feed, strict=True) if each.token]
    assert behind[0][1] == "cell.restored"
    assert behind[0][0].position.seq == restored_to + 1
    assert all(each.position.seq <= restored_to for each in ids if not each.token)
    assert not {text for text, _ in lost_feed} & {text for text, _ in feed if ":" in text}


async def test_a_cell_begins_anew_from_its_api_server(tmp_path: Path) -> None:
    """No log and no backup: what runs keeps running and is charged, and who waited waits on."""
    cluster = Cluster(wall_clock_ms, controllers=CONTROLLERS)
    async with Broker(tmp_path / "first") as broker:
        async with cell_on(broker, cluster) as cell:
            cell.apply(*configuration(30))
            for number in range(40):
                cell.apply(job(f"old-{number}", run_ms=FOR_EVER_MS))
            await settled(cell, admitted=30, pending=10)
        before = running(cluster)
        await broker.kill()
    async with Broker(tmp_path / "second") as broker:
        await broker.admit(CELL)
        await headgate("rebuild", *at(broker, ADMIN), "--why", "the disk is gone")
        async with cell_on(broker, cluster) as cell:
            await settled(cell, admitted=30, pending=10)
            assert running(cluster) == before
            state = judge(await entries_of(broker), 0)
            assert state.identity is not None
            assert state.identity.resumes
            await until(partial(is_published, broker, state.position))
        await headgate("audit", *at(broker, READER))
        await headgate("replay", "--verify", *at(broker, READER))
        feed = await feed_of(broker)
    assert feed
    assert all(":" in text for text, _ in feed)


async def test_a_feed_that_outlives_its_log_goes_on_behind_the_break(tmp_path: Path) -> None:
    """Only the log's stream is lost: subscribers keep theirs, and find `cell.restored` behind all that they have."""
    cluster = Cluster(wall_clock_ms, controllers=CONTROLLERS)
    async with Broker(tmp_path / "nats") as broker:
        async with cell_on(broker, cluster) as cell:
            cell.apply(*configuration(4))
            for number in range(3):
                cell.apply(job(f"old-{number}", run_ms=FOR_EVER_MS))
            await settled(cell, admitted=3, pending=0)
            await headgate("backup", "--out", tmp_path / "backup", *at(broker, READER))
            for number in range(3):
                cell.apply(job(f"new-{number}", run_ms=FOR_EVER_MS))
            await settled(cell, admitted=4, pending=2)
            await until(partial(is_published, broker, (await entries_of(broker))[-1].seq))
        before, ran = await feed_of(broker), running(cluster)
        async with connect(broker.url, name="test") as connection:
            await delete_stream(connection, f"HEADGATE_{CELL}")
        await headgate("restore", "--from", tmp_path / "backup", *at(broker, ADMIN))
        async with cell_on(broker, cluster) as cell:
            await settled(cell, admitted=4, pending=2)
            assert running(cluster) == ran
            await until(partial(is_behind_break, broker))
        await headgate("audit", *at(broker, READER))
        after = await feed_of(broker)
    assert after[: len(before)] == before
    assert after[len(before)][1] == "cell.restored"
    assert len({text for text, _ in after}) == len(after)


async def is_behind_break(broker: Broker) -> bool:
    """Whether the feed has gone on in a branch of its own."""
    async with connect(broker.url, name="test") as connection:
        last = await FeedWriter(connection, f"HEADGATE_{CELL}_FEED").last()
    return last is not None and last.id.token != ""
