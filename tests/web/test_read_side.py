"""The read side answers for now and for the past, in order, with bounds, and names the fault of a request."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from tests.support import placements
from tests.support.logs import START_MS
from tests.support.read_side import ReadSide
from tests.support.waiting import until

from headgate.core import fold
from headgate.core.state.manifests import encoded
from headgate.events.base import EventBase, Producer
from headgate.events.commit import encode_commit
from headgate.events.decisions import PluginRefusal, PodNominated, PodPlaced, PodUnschedulable
from headgate.events.effects import SnapshotTaken
from headgate.events.facts import (
    ClusterQueueObserved,
    LocalQueueObserved,
    NamespaceObserved,
    ObjectDeleted,
    ObjectObserved,
    SchedulerConfigurationObserved,
    WorkloadObserved,
)
from headgate.events.ids import LocalQueueKey, PodKey, Seq, Shape, Uid, UnixMs, WorkloadKey
from headgate.events.objects import ClusterQueueSpec, LocalQueueSpec, PodSet, WorkloadSpec
from headgate.events.queueing import Head, HeadsOffered, QuotaFreed, WorkloadParked, WorkloadQueued
from headgate.events.registry import TAGS
from headgate.processes.snapshots import store
from headgate.testing.memory_log import AsyncMemoryLog, MemoryBlobs, MemoryLog

pytestmark = pytest.mark.anyio

BRIDGE, MANAGER = Producer.INFORMER_BRIDGE, Producer.QUEUE_MANAGER


class Side(ReadSide):
    """With the log in a broker's place too, for the past. The broker's clock shows one second a commit."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = MemoryLog("main", now_ms=lambda: START_MS + 1000 * self.memory.last_seq())
        self.blobs = MemoryBlobs()
        self.view.log = AsyncMemoryLog(self.memory)
        self.view.blobs = self.blobs

    def append(self, producer: Producer, *events: EventBase, decided_at: int = 0) -> None:
        logged = self.log.append(producer, *events, decided_at=Seq(decided_at))
        last = self.memory.last_seq(producer.value)
        self.memory.append(producer.value, encode_commit(logged.commit), expected_last=last)


@pytest.fixture
async def side() -> AsyncIterator[Side]:
    side = Side()
    async with side.serving():
        yield side


def workload(name: str, queue: str = "lq") -> WorkloadObserved:
    return WorkloadObserved(
        workload=WorkloadKey(f"ns/{name}"),
        uid=Uid(name),
        created_ms=UnixMs(1),
        spec=WorkloadSpec(queue_name=queue, pod_sets=(PodSet(),)),
    )


def queued(name: str, priority: int = 0, shape: str = "s") -> WorkloadQueued:
    return WorkloadQueued(
        workload=WorkloadKey(f"ns/{name}"),
        uid=Uid(name),
        cluster_queue="cq",
        priority=priority,
        queued_at_ms=UnixMs(1),
        shape=Shape(shape),
    )


def with_workloads(side: Side) -> None:
    """Five workloads: one offered, two in line, one asleep with its shape, one set aside."""
    local_queue = LocalQueueObserved(queue=LocalQueueKey("ns/lq"), spec=LocalQueueSpec(cluster_queue="cq"))
    side.append(BRIDGE, ClusterQueueObserved(name="cq", spec=ClusterQueueSpec()), local_queue)
    side.append(BRIDGE, *(workload(name) for name in ("a", "b", "c", "d", "e")))
    side.append(MANAGER, queued("a", 9), queued("b", 1), queued("c", 5), queued("d", 0, "big"), queued("e"))
    head = Head(cluster_queue="cq", workload=WorkloadKey("ns/a"), uid=Uid("a"))
    wake = (QuotaFreed(tree="ClusterQueue/cq"),)
    side.append(
        MANAGER,
        HeadsOffered(heads=(head,)),
        WorkloadParked(
            workload=WorkloadKey("ns/d"),
            uid=Uid("d"),
            reason="NoFit",
            message="too big",
            wake=wake,
            cluster_queue="cq",
            scope="shape",
        ),
        WorkloadParked(
            workload=WorkloadKey("ns/e"), uid=Uid("e"), reason="Odd", message="by itself", wake=wake, cluster_queue="cq"
        ),
    )


async def test_pending_workloads_come_in_the_order_of_their_turn(side: Side) -> None:
    """Offered first, then the queue by priority, then those set aside; each with reason and wake-up conditions."""
    with_workloads(side)
    body = await side.get("/pending?clusterQueue=cq")
    rows = {row["workload"]: row for row in body["pending"]}
    assert [row["workload"] for row in body["pending"]] == ["ns/a", "ns/c", "ns/b", "ns/d", "ns/e"]
    assert [row["place"] for row in body["pending"]] == [1, 2, 3, 4, 0]
    assert rows["ns/d"]["reason"] == "NoFit"
    assert rows["ns/d"]["message"] == "too big"
    assert rows["ns/d"]["wakes"]
    assert rows["ns/e"]["stage"] == "Parked"
    assert rows["ns/a"]["stage"] == "Offered"


async def test_a_local_queue_shows_its_own_workloads_at_their_places_in_the_cluster_queue(side: Side) -> None:
    """As Kueue's visibility API: the place counts everybody of the ClusterQueue."""
    with_workloads(side)
    other = LocalQueueObserved(queue=LocalQueueKey("ns/other"), spec=LocalQueueSpec(cluster_queue="cq"))
    side.append(BRIDGE, other, workload("z", "other"))
    side.append(MANAGER, queued("z", 7))
    body = await side.get("/pending?localQueue=ns/other")
    assert [(row["workload"], row["place"]) for row in body["pending"]] == [("ns/z", 2)]


async def test_queues_show_how_many_wait_and_sleep(side: Side) -> None:
    """One row a ClusterQueue."""
    with_workloads(side)
    (row,) = (await side.get("/queues"))["queues"]
    assert (row["cluster_queue"], row["pending"], row["asleep"], row["admitted"]) == ("cq", 4, 1, 0)


async def test_pods_without_a_node_come_with_why_the_longest_refused_first(side: Side) -> None:
    """Of some namespaces if they are named; a pod that got its node is left out, a nominated one has its node."""
    refusal = PluginRefusal(plugin="NodeResourcesFit", reason="Insufficient cpu", nodes=2)

    def refused(pod: str, message: str = "too big") -> PodUnschedulable:
        return PodUnschedulable(
            pod=PodKey(pod), uid=Uid(pod), reason="Unschedulable", message=message, refusals=(refusal,)
        )

    for name in ("ns/later", "ns/gone", "ns/earlier", "other/pod"):
        shown = {"metadata": {"name": name, "uid": name}}
        side.append(BRIDGE, ObjectObserved(resource="pods", name=name, object=encoded(shown)))
    side.append(Producer.SCHEDULER, refused("ns/later"), refused("ns/gone"))
    side.append(Producer.SCHEDULER, refused("ns/earlier"), refused("other/pod"))
    side.log.now_ms = UnixMs(side.log.now_ms + 1000)
    side.append(Producer.SCHEDULER, refused("ns/later", "too many"))
    side.append(Producer.SCHEDULER, PodPlaced(pod=PodKey("ns/gone"), uid=Uid("ns/gone"), node="node-1"))
    side.append(Producer.SCHEDULER, PodNominated(pod=PodKey("other/pod"), uid=Uid("other/pod"), node="node-2"))
    rows = (await side.get("/pods"))["pods"]
    assert [row["pod"] for row in rows] == ["ns/earlier", "other/pod", "ns/later"]
    assert (rows[0]["reason"], rows[0]["message"]) == ("Unschedulable", "too big")
    assert rows[0]["refusals"] == [{"plugin": "NodeResourcesFit", "reason": "Insufficient cpu", "nodes": 2}]
    assert [row.get("nominated", "") for row in rows] == ["", "node-2", ""]
    assert rows[2]["message"] == "too many"
    assert [row["pod"] for row in (await side.get("/pods?namespace=ns"))["pods"]] == ["ns/earlier", "ns/later"]
    assert [row["pod"] for row in (await side.get("/pods?limit=1"))["pods"]] == ["ns/earlier"]


async def test_the_past_is_folded_from_the_nearest_snapshot_and_equals_itself(side: Side) -> None:
    """The hash of a past position is what the live state had there, with or without a snapshot on the way."""
    hashes = {0: fold.state_hash(side.log.state)}
    for count in (1, 2, 3, 5, 6):
        side.append(BRIDGE, NamespaceObserved(name=f"n{count}"))
        hashes[count] = fold.state_hash(side.log.state)
        if count == 3:
            meta, blob = store.pack(side.log.state, log_identity="memory", taken_ms=UnixMs(1))
            await side.blobs.put("state-3", blob, position=3)
            side.append(
                Producer.SNAPSHOTTER,
                SnapshotTaken(
                    position=meta.position,
                    state_hash=meta.state_hash,
                    log_hash=meta.log_hash,
                    name="state-3",
                    size_bytes=1,
                ),
            )
            hashes[4] = fold.state_hash(side.log.state)
    for position, expected in hashes.items():
        body = await side.get(f"/state/hash?at={position}")
        assert (body["position"], body["stateHash"], body["live"]) == (position, expected, position == 6)
    assert (await side.get("/state/hash"))["stateHash"] == hashes[6]


async def test_a_time_means_the_last_position_stored_by_then(side: Side) -> None:
    """Times are the broker's; before the first commit there was nothing."""
    for count in range(1, 6):
        side.append(BRIDGE, NamespaceObserved(name=f"n{count}"))
    for time, position in (("22:13:19Z", 0), ("22:13:21Z", 1), ("22:13:23.500Z", 3), ("22:13:59%2B00:00", 5)):
        body = await side.get(f"/state?at=2023-11-14T{time}")
        assert body["position"] == position
        assert body["tables"]["namespaces"] == position


async def test_tables_come_in_pages(side: Side) -> None:
    """Rows in the order of keys; `next` leads on."""
    side.append(BRIDGE, *(NamespaceObserved(name=f"n{count}") for count in range(5)))
    first = await side.get("/state?table=namespaces&limit=3")
    assert list(first["rows"]) == ["n0", "n1", "n2"]
    rest = await side.get(f"/state?table=namespaces&limit=3&after={first['next']}")
    assert list(rest["rows"]) == ["n3", "n4"]
    assert "next" not in rest


async def test_a_workload_has_its_record_its_standing_and_its_story(side: Side) -> None:
    """A request for one workload returns all of it, for now and for the past."""
    with_workloads(side)
    body = await side.get("/workloads/ns/d")
    assert body["workload"]["cluster_queue"] == "cq"
    assert "too big" in body["standing"]["why"]
    story = await side.get("/explain/ns/d")
    assert story["workload"] == "ns/d"
    assert [line["position"] for line in story["lines"]][-1][0] == 4
    earlier = await side.get("/explain/ns/d?at=3")
    assert len(earlier["lines"]) < len(story["lines"])
    assert (await side.get("/workloads/ns/d?at=2"))["workload"].get("stage", "New") == "New"


async def test_a_pod_has_its_story_and_where_it_could_go(side: Side) -> None:
    """As `headgate explain` tells it: while it waits now, then as of its decision."""
    nodes = [(name, placements.node(name, cpu=cpu)) for name, cpu in (("n1", "1"), ("n2", "4"))]
    objects = [("nodes", *each) for each in nodes] + [("pods", "team/p", placements.pod("p", cpu="2"))]
    side.append(BRIDGE, *(ObjectObserved(resource=of, name=name, object=encoded(each)) for of, name, each in objects))
    side.append(BRIDGE, SchedulerConfigurationObserved(document=placements.CONFIGURATION))
    decided_at = side.log.state.position
    story = await side.get("/explain/pods/team/p")
    assert (story["pod"], story["answer"]["node"], story["standing"]["stage"]) == ("team/p", "n2", "pending")
    assert story["answer"]["refused"] == [{"plugin": "NodeResourcesFit", "reason": "Insufficient cpu", "nodes": 1}]
    side.append(Producer.SCHEDULER, PodPlaced(pod=PodKey("team/p"), uid=Uid("uid-p"), node="n2"), decided_at=decided_at)
    side.append(BRIDGE, ObjectDeleted(resource="nodes", name="n1"))
    story = await side.get("/explain/pods/team/p")
    assert (story["answer"]["position"], story["answer"]["nodes"]) == (decided_at, 2)
    assert [line["event"] for line in story["lines"]] == ["object.observed", "pod.placed"]
    assert len((await side.get("/explain/pods/team/p?at=2"))["lines"]) == 1


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/state?at=yesterday", 400, "neither a position"),
        ("/state?at=99", 404, "which has 0 to 4"),
        ("/state?table=pots", 404, "there is no table 'pots'; there is producers"),
        ("/state?table=pods&limit=0", 400, "a number from 1"),
        ("/pods?limit=x", 400, "a number from 1"),
        ("/pending", 400, "name the queue"),
        ("/pending?clusterQueue=x", 404, "no ClusterQueue 'x'"),
        ("/pending?localQueue=ns/x", 404, "no LocalQueue 'ns/x'"),
        ("/workloads/ns/x", 404, "no workload 'ns/x'"),
        ("/explain/ns/x", 404, "no workload or job"),
        ("/explain/ns/a?at=99", 404, "ends at 4"),
        ("/explain/pods/ns/a?at=99", 404, "ends at 4"),
        ("/explain/pods/ns/x", 404, "no pod 'ns/x' in this log"),
        ("/events?from=x", 400, "is not a position"),
    ],
)
async def test_a_wrong_question_is_answered_with_what_to_do(side: Side, path: str, status: int, error: str) -> None:
    """Errors are JSON."""
    with_workloads(side)
    assert error in (await side.get(path, status))["error"]


async def test_before_the_log_is_there_the_answer_is_to_come_again(side: Side) -> None:
    """503, not a guess."""
    side.view.log = side.view.host = None
    for path in ("/state", "/queues", "/events", "/explain/ns/a", "/state?at=1"):
        assert (await side.get(path, 503))["error"]


async def sse(side: Side, path: str, count: int | None = None, headers: dict[str, str] | None = None) -> list[Any]:
    """The events of a stream: (id, type, data), `count` of them, or all until it ends."""
    found: list[Any] = []
    async with side.session.get(f"{side.url}{path}", headers=headers) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        fields: dict[str, str] = {}
        async for line in answer.content:
            text = line.decode().rstrip("\n")
            if text:
                name, _, value = text.partition(": ")
                fields[name] = value
            elif "data" in fields:
                found.append((fields["id"], fields["event"], json.loads(fields["data"])))
                fields = {}
                if len(found) == count:
                    break
    return found


async def test_events_are_told_from_any_position_and_filtered(side: Side) -> None:
    """By type, by pattern, by namespace; `follow=false` ends where the log did."""
    with_workloads(side)
    every = await sse(side, "/events?from=1&follow=false")
    assert len(every) == 15
    assert every[0][:2] == ("1.0", "clusterqueue.observed")
    assert every[0][2]["event"]["name"] == "cq"
    parked = await sse(side, "/events?from=1&follow=false&type=workload.parked")
    assert [event[0] for event in parked] == ["4.1", "4.2"]
    assert len(await sse(side, "/events?from=1&follow=false&type=workload.*&namespace=ns")) == 12
    assert await sse(side, "/events?from=1&follow=false&namespace=elsewhere") == []
    assert (await side.get("/events/types")) == sorted(TAGS)


async def test_a_client_that_reconnects_misses_and_repeats_nothing(side: Side) -> None:
    """`Last-Event-ID` continues in the middle of a commit."""
    with_workloads(side)
    resumed = await sse(side, "/events?follow=false", headers={"Last-Event-ID": "3.3"})
    assert [event[0] for event in resumed] == ["3.4", "4.0", "4.1", "4.2"]


async def test_events_follow_as_they_happen(side: Side) -> None:
    """Without `from` a stream begins with what comes next."""
    with_workloads(side)
    found: list[Any] = []

    async def follow() -> None:
        found.extend(await sse(side, "/events", count=2))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        await until(lambda: side.memory.listeners)
        side.append(BRIDGE, NamespaceObserved(name="x"))
        side.append(BRIDGE, NamespaceObserved(name="y"))
    assert [event[2]["event"]["name"] for event in found] == ["x", "y"]


async def test_the_page_needs_nothing_from_elsewhere(side: Side) -> None:
    """It contains no address of another server."""
    async with side.session.get(f"{side.url}/") as answer:
        text = await answer.text()
    assert answer.content_type == "text/html"
    assert "http://" not in text
    assert "https://" not in text
