"""The read side answers Kueue's visibility API: the pending workloads, in queue order, in Kueue's form."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.read_side import ReadSide

from headgate.events.base import Producer
from headgate.events.decisions import CycleDecided, WorkloadSkipped
from headgate.events.facts import ClusterQueueObserved, LocalQueueObserved, WorkloadObserved
from headgate.events.ids import LocalQueueKey, Shape, Uid, UnixMs, WorkloadKey
from headgate.events.objects import ClusterQueueSpec, LocalQueueSpec, OwnerReference, PodSet, WorkloadSpec
from headgate.events.queueing import Head, HeadsOffered, QuotaFreed, WorkloadParked, WorkloadQueued

pytestmark = pytest.mark.anyio

BRIDGE, MANAGER, SCHEDULER = Producer.INFORMER_BRIDGE, Producer.QUEUE_MANAGER, Producer.SCHEDULER
API = "/apis/visibility.kueue.x-k8s.io/v1beta2"

ROWS = """
name  queue  priority
a     one    9
b     two    1
c     one    5
d     two    0
e     one    7
"""
"""Pending workloads of two LocalQueues. a is offered, d sleeps, e was set aside by a cycle."""


@pytest.fixture
async def side() -> AsyncIterator[ReadSide]:
    side = ReadSide()
    async with side.serving():
        yield side


def key(name: str) -> WorkloadKey:
    return WorkloadKey(f"ns/{name}")


def with_pending(side: ReadSide, strategy: str = "BestEffortFIFO") -> None:
    rows = [line.split() for line in ROWS.strip().splitlines()[1:]]
    side.log.append(
        BRIDGE,
        ClusterQueueObserved(name="cq", spec=ClusterQueueSpec(queueing_strategy=strategy)),
        *(
            LocalQueueObserved(queue=LocalQueueKey(f"ns/{name}"), spec=LocalQueueSpec(cluster_queue="cq"))
            for name in ("one", "two")
        ),
        *(
            WorkloadObserved(
                workload=key(name),
                uid=Uid(name),
                created_ms=UnixMs(1_768_471_200_000),
                spec=WorkloadSpec(queue_name=queue, priority=int(priority), pod_sets=(PodSet(),)),
                owner=OwnerReference(api_version="batch/v1", kind="Job", name=f"job-{name}", uid=f"u-{name}"),
            )
            for name, queue, priority in rows
        ),
    )
    heads = tuple(Head(cluster_queue="cq", workload=key(name), uid=Uid(name)) for name in ("a", "e"))
    side.log.append(
        MANAGER,
        *(
            WorkloadQueued(
                workload=key(name),
                uid=Uid(name),
                cluster_queue="cq",
                priority=int(priority),
                queued_at_ms=UnixMs(1),
                shape=Shape(name),
            )
            for name, _, priority in rows
        ),
        HeadsOffered(heads=heads),
    )


def skipped(name: str, scope: str, **fields: Any) -> WorkloadSkipped:
    return WorkloadSkipped(
        workload=key(name),
        uid=Uid(name),
        cluster_queue="cq",
        status="notNominated",
        requeue_reason="NamespaceMismatch",
        scope=scope,  # type: ignore[arg-type]
        reason="Misconfigured",
        message="m",
        **fields,
    )


def set_aside(side: ReadSide) -> None:
    """A cycle sets e aside by itself; d sleeps with its shape."""
    wake = (QuotaFreed(tree="ClusterQueue/cq"),)
    parked = {"reason": "NoFit", "message": "m", "wake": wake, "cluster_queue": "cq"}
    head = Head(cluster_queue="cq", workload=key("e"), uid=Uid("e"))
    decided_at = side.log.state.position
    side.log.append(SCHEDULER, CycleDecided(cycle=1, decided_at=decided_at, heads=(head,)), skipped("e", "workload"))
    side.log.append(
        MANAGER,
        WorkloadParked(workload=key("e"), uid=Uid("e"), decided_at=decided_at, **parked),  # type: ignore[arg-type]
        WorkloadParked(workload=key("d"), uid=Uid("d"), scope="shape", **parked),  # type: ignore[arg-type]
    )


def places(body: Any) -> list[tuple[str, int, int]]:
    return [
        (each["metadata"]["name"], each["positionInClusterQueue"], each["positionInLocalQueue"])
        for each in body["items"]
    ]


async def test_everybody_who_waits_stands_in_queue_order(side: ReadSide) -> None:
    """Offered, asleep or set aside: one line by priority, positions count from 0, as Kueue's Snapshot sorts them."""
    with_pending(side)
    set_aside(side)
    body = await side.get(f"{API}/clusterqueues/cq/pendingworkloads")
    assert (body["kind"], body["apiVersion"]) == ("PendingWorkloadsSummary", "visibility.kueue.x-k8s.io/v1beta2")
    assert places(body) == [("a", 0, 0), ("e", 1, 1), ("c", 2, 2), ("b", 3, 0), ("d", 4, 1)]
    assert body["items"][0] == {
        "metadata": {
            "name": "a",
            "namespace": "ns",
            "creationTimestamp": "2026-01-15T10:00:00Z",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "job-a", "uid": "u-a"}],
        },
        "priority": 9,
        "localQueueName": "one",
        "positionInClusterQueue": 0,
        "positionInLocalQueue": 0,
    }


async def test_the_command_line_and_the_reasons_have_the_same_order(side: ReadSide) -> None:
    """`/pending` has the reasons, and `headgate queue status --pending` shows it: each in the order of the API."""
    from headgate.cli.queue import pending_in

    with_pending(side)
    set_aside(side)
    api = [name for name, _, _ in places(await side.get(f"{API}/clusterqueues/cq/pendingworkloads"))]
    assert [each["workload"] for each in (await side.get("/pending?clusterQueue=cq"))["pending"]] == [
        f"ns/{name}" for name in api
    ]
    assert [each.workload for each in pending_in(side.log.state, "cq")] == [f"ns/{name}" for name in api]


async def test_a_sticky_preemptor_stands_first(side: ReadSide) -> None:
    """What was freed for it must not go to others of its ClusterQueue, whatever their priority (Kueue #6929)."""
    with_pending(side)
    side.log.state.workloads[key("b")].sticky = True
    body = await side.get(f"{API}/clusterqueues/cq/pendingworkloads?limit=2")
    assert places(body) == [("b", 0, 0), ("a", 1, 0)]


async def test_a_local_queue_shows_its_own(side: ReadSide) -> None:
    """With their positions in the ClusterQueue; offset and limit count its own."""
    with_pending(side)
    path = f"{API}/namespaces/ns/localqueues/one/pendingworkloads"
    assert places(await side.get(path)) == [("a", 0, 0), ("e", 1, 1), ("c", 2, 2)]
    assert places(await side.get(f"{path}?offset=1&limit=1")) == [("e", 1, 1)]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", "aecbd"),
        ("?limit=2", "ae"),
        ("?offset=1&limit=2", "ec"),
        ("?offset=9", ""),
        ("?limit=0", ""),
        ("?limit=-1", ""),
        ("?offset=-3&limit=1", "a"),
    ],
)
async def test_a_page_begins_at_its_offset(side: ReadSide, query: str, names: str) -> None:
    """Negative numbers count as 0, as for Kueue."""
    with_pending(side)
    body = await side.get(f"{API}/clusterqueues/cq/pendingworkloads{query}")
    assert [name for name, _, _ in places(body)] == list(names)


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        (f"{API}/clusterqueues/x/pendingworkloads", 404, 'clusterqueue.visibility.kueue.x-k8s.io "x" not found'),
        (f"{API}/namespaces/ns/localqueues/x/pendingworkloads", 404, 'localqueue.visibility.kueue.x-k8s.io "x" not'),
        (f"{API}/clusterqueues/cq/pendingworkloads?limit=many", 400, "limit=many: write a whole number"),
        ("/apis/visibility.kueue.x-k8s.io/v1", 404, "could not find the requested resource"),
    ],
)
async def test_an_error_is_a_status(side: ReadSide, path: str, status: int, message: str) -> None:
    """What client libraries read errors from."""
    with_pending(side)
    body = await side.get(path, status)
    assert (body["kind"], body["apiVersion"], body["status"], body["code"]) == ("Status", "v1", "Failure", status)
    assert message in body["message"]


async def test_before_the_log_is_folded_the_answer_is_to_come_again(side: ReadSide) -> None:
    """503, as a Status."""
    side.view.host = None
    body = await side.get(f"{API}/clusterqueues/cq/pendingworkloads", 503)
    assert body["reason"] == "ServiceUnavailable"


async def test_discovery_names_the_group_its_versions_and_resources(side: ReadSide) -> None:
    """What kubectl requests first: both versions, the newer one preferred."""
    groups = (await side.get("/apis"))["groups"]
    group = await side.get("/apis/visibility.kueue.x-k8s.io")
    assert [each["name"] for each in groups] == ["visibility.kueue.x-k8s.io"]
    assert group["preferredVersion"]["version"] == "v1beta2"
    for version in group["versions"]:
        body = await side.get(f"/apis/{version['groupVersion']}")
        served = {each["name"]: (each["namespaced"], each["verbs"]) for each in body["resources"]}
        assert served["clusterqueues/pendingworkloads"] == (False, ["get"])
        assert served["localqueues/pendingworkloads"] == (True, ["get"])
