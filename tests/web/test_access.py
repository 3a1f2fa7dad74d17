"""Access: by the cluster's own rights in a cluster, and from other machines only if configured."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from tests.support.doors import Answering
from tests.support.history import History
from tests.support.read_side import ReadSide
from tests.support.topology_cell import host, reserve, topology_cell

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.transport import InProcessTransport
from headgate.events.base import Producer
from headgate.events.facts import ClusterQueueObserved, LocalQueueObserved, WorkloadObserved
from headgate.events.ids import LocalQueueKey, Shape, Uid, UnixMs, WorkloadKey
from headgate.events.objects import ClusterQueueSpec, LocalQueueSpec, PodSet, WorkloadSpec
from headgate.events.queueing import WorkloadQueued
from headgate.processes.runtime.settings import HttpSettings, Settings, SettingsError
from headgate.testing.memory_log import AsyncMemoryLog, MemoryLog
from headgate.web import routes
from headgate.web.access import REMEMBERED_MAX, TTL_S, Access, KubernetesAccess, Remembered

pytestmark = pytest.mark.anyio

LIST_ALL = ("list", "workloads.kueue.x-k8s.io", "")
LIST_NODES = ("list", "nodes.", "")
TABLE = {
    "ops": {LIST_ALL, ("list", "clusterqueues.kueue.x-k8s.io", ""), LIST_NODES},
    "node-viewer": {LIST_NODES},
    "pod-viewer": {("list", "pods.", "team-a"), ("get", "pods.", "team-a")},
    "pod-and-node-viewer": {("get", "pods.", "team-a"), LIST_NODES},
    "dev": {
        ("list", "workloads.kueue.x-k8s.io", "team-a"),
        ("get", "workloads.kueue.x-k8s.io", "team-a"),
        ("get", "localqueues/pendingworkloads.visibility.kueue.x-k8s.io", "team-a"),
    },
    "batch-admin": {("get", "clusterqueues/pendingworkloads.visibility.kueue.x-k8s.io", "")},
}
"""Who (and whose token) may do what, and where."""


def whole_topology() -> History:
    """A host that a workload uses."""
    history = topology_cell(host("b1", "r1", "h1"))
    reserve(history, "train", {"h1": 1})
    return history


class ApiServer(Answering):
    """Answers reviews by the table. `asked` are the kinds of all reviews; `broken` refuses them."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.broken = False

    def answer(self, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        self.asked.append(body["kind"])
        if self.broken:
            return 500, {}
        spec = body["spec"]
        if body["kind"] == "TokenReview":
            user = {"username": spec["token"], "groups": ["all"]} if spec["token"] in TABLE else {}
            return 201, {"status": {"authenticated": bool(user), "user": user}}
        about = spec["resourceAttributes"]
        resource = f"{about['resource']}/{about['subresource']}".rstrip("/") + f".{about['group']}"
        rights = TABLE[spec["user"]]
        return 201, {"status": {"allowed": (about["verb"], resource, about["namespace"]) in rights}}


class Side(ReadSide):
    """A read side in a cluster, with workloads of two teams. `now_s` is the clock of its memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.api = ApiServer()
        self.now_s = 0.0
        access = KubernetesAccess(KubeClient(InProcessTransport(self.api)), now_s=lambda: self.now_s)
        monkeypatch.setattr(routes, "access_of", lambda *_: access)
        self.memory = MemoryLog("main")
        self.view.log = AsyncMemoryLog(self.memory)
        self.log.append(
            Producer.INFORMER_BRIDGE,
            ClusterQueueObserved(name="cq", spec=ClusterQueueSpec()),
            *(
                LocalQueueObserved(queue=LocalQueueKey(f"{team}/lq"), spec=LocalQueueSpec(cluster_queue="cq"))
                for team in ("team-a", "team-b")
            ),
            *(
                WorkloadObserved(
                    workload=WorkloadKey(f"{team}/w"),
                    uid=Uid(team),
                    created_ms=UnixMs(1),
                    spec=WorkloadSpec(queue_name="lq", pod_sets=(PodSet(),)),
                )
                for team in ("team-a", "team-b")
            ),
        )
        self.log.append(
            Producer.QUEUE_MANAGER,
            *(
                WorkloadQueued(
                    workload=WorkloadKey(f"{team}/w"),
                    uid=Uid(team),
                    cluster_queue="cq",
                    priority=0,
                    queued_at_ms=UnixMs(1),
                    shape=Shape("s"),
                )
                for team in ("team-b", "team-a")
            ),
        )

    async def status(self, path: str, token: str | None = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        async with self.session.get(f"{self.url}{path}", headers=headers) as answer:
            if answer.content_type == "text/event-stream":
                return answer.status, None
            return answer.status, await answer.json()


@pytest.fixture
async def side(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Side]:
    side = Side(monkeypatch)
    async with side.serving():
        yield side


EVERYTHING = [
    "/queues",
    "/pending?clusterQueue=cq",
    "/pods",
    "/topology",
    "/topology/gpu",
    "/state",
    "/state?table=workloads",
    "/state/hash",
    "/workloads/team-a/w",
    "/explain/team-a/w",
    "/explain/pods/team-a/p",
    "/events?follow=false",
    "/apis",
    "/apis/visibility.kueue.x-k8s.io",
    "/apis/visibility.kueue.x-k8s.io/v1beta2",
    "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads",
    "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/team-a/localqueues/lq/pendingworkloads",
]


@pytest.mark.parametrize("path", EVERYTHING)
@pytest.mark.parametrize("token", [None, "forged"])
async def test_nothing_is_shown_to_a_stranger(side: Side, path: str, token: str | None) -> None:
    """401 wherever there are data, before anything is looked up."""
    status, body = await side.status(path, token)
    assert status == 401
    if path.startswith("/apis"):
        assert (body["kind"], body["reason"], body["code"]) == ("Status", "Unauthorized", 401)
    else:
        assert "token" in body["error"]


def test_every_route_is_known_to_these_tests() -> None:
    """A new one is either in the list above or has no data."""
    app = web.Application()
    routes.add_routes(app, ReadSide().view)
    patterns = {resource.canonical for resource in app.router.resources()}
    without_data = {"/", "/events/types"}
    assert len(patterns - without_data) == len({path.partition("?")[0] for path in EVERYTHING})


@pytest.mark.parametrize(
    ("token", "path", "status"),
    [
        ("ops", "/queues", 200),
        ("ops", "/topology", 200),
        ("ops", "/topology/gpu", 404),
        ("node-viewer", "/topology", 200),
        ("dev", "/topology", 403),
        ("dev", "/topology/gpu", 403),
        ("dev", "/topology/gpu?format=svg", 403),
        ("pod-viewer", "/pods", 403),
        ("pod-viewer", "/pods?namespace=team-a", 200),
        ("pod-viewer", "/pods?namespace=team-a,team-b", 403),
        ("ops", "/pods", 403),
        ("pod-viewer", "/explain/pods/team-a/p", 403),
        ("node-viewer", "/explain/pods/team-a/p", 403),
        ("pod-and-node-viewer", "/explain/pods/team-a/p", 404),
        ("pod-and-node-viewer", "/explain/pods/team-b/p", 403),
        ("ops", "/state", 200),
        ("ops", "/pending?clusterQueue=cq", 200),
        ("ops", "/events?follow=false", 200),
        ("ops", "/workloads/team-a/w", 403),
        ("ops", "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads", 403),
        ("dev", "/queues", 403),
        ("dev", "/state", 403),
        ("dev", "/state?table=workloads", 403),
        ("dev", "/state?table=workloads&namespace=team-a", 200),
        ("dev", "/state?table=workloads&namespace=team-a,team-b", 403),
        ("dev", "/pending?clusterQueue=cq", 403),
        ("dev", "/pending?clusterQueue=cq&namespace=team-a", 200),
        ("dev", "/pending?localQueue=team-a/lq", 200),
        ("dev", "/pending?localQueue=team-b/lq", 403),
        ("dev", "/workloads/team-a/w", 200),
        ("dev", "/workloads/team-b/w", 403),
        ("dev", "/explain/team-b/w", 403),
        ("dev", "/events?follow=false", 403),
        ("dev", "/events?follow=false&namespace=team-a", 200),
        ("dev", "/events?follow=false&namespace=team-b", 403),
        ("dev", "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/team-a/localqueues/lq/pendingworkloads", 200),
        ("dev", "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/team-b/localqueues/lq/pendingworkloads", 403),
        ("batch-admin", "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads", 200),
        ("batch-admin", "/pending?clusterQueue=cq", 403),
        ("batch-admin", "/apis", 200),
    ],
)
async def test_the_rights_of_the_cluster_decide(side: Side, token: str, path: str, status: int) -> None:
    """Workloads by get and list in the requested namespace, queues by list, visibility as in Kueue's roles."""
    assert (await side.status(path, token))[0] == status


async def test_a_refusal_names_the_right_and_the_way_out(side: Side) -> None:
    """For a user with rights in some namespaces the error names the way to request them."""
    _, body = await side.status("/pending?clusterQueue=cq", "dev")
    assert body["error"] == (
        "dev may not list workloads.kueue.x-k8s.io in all namespaces; ask for some with namespace=A,B"
    )


async def test_an_answer_for_some_namespaces_shows_no_others(side: Side) -> None:
    """Rows of others are left out; places in line count them all."""
    _, pending = await side.status("/pending?clusterQueue=cq&namespace=team-a", "dev")
    assert [(row["workload"], row["place"]) for row in pending["pending"]] == [("team-a/w", 1)]
    _, table = await side.status("/state?table=workloads&namespace=team-a", "dev")
    assert list(table["rows"]) == ["team-a/w"]
    _, table = await side.status("/state?table=cluster_queues&namespace=team-a", "dev")
    assert table["rows"] == {}


async def test_a_topology_names_workloads_to_those_who_may_list_them_all(side: Side) -> None:
    """Whoever may list nodes sees how much is used of them, and no more."""
    for commit in whole_topology().commits:
        side.log.append(commit.commit.producer, *commit.commit.events)
    for form in ("json", "svg"):
        told = {}
        for token in ("ops", "node-viewer"):
            headers = {"Authorization": f"Bearer {token}"}
            async with side.session.get(f"{side.url}/topology/gpu?format={form}", headers=headers) as answer:
                assert answer.status == 200
                told[token] = await answer.text()
        assert "a/train" in told["ops"]
        assert "train" not in told["node-viewer"]
        assert "h1" in told["node-viewer"]


async def test_answers_are_remembered_for_seconds_and_no_longer(side: Side) -> None:
    """One review of the token and one of the right; after `TTL_S` they are repeated."""
    for _ in range(5):
        await side.status("/state", "ops")
    assert side.api.asked == ["TokenReview", "SubjectAccessReview"]
    side.now_s = TTL_S
    await side.status("/state", "ops")
    assert side.api.asked[2:] == ["TokenReview", "SubjectAccessReview"]


async def test_while_the_api_server_cannot_be_asked_nothing_is_shown(side: Side) -> None:
    """503, and the failure is not remembered."""
    side.api.broken = True
    status, body = await side.status("/state", "ops")
    assert (status, "cannot be asked" in body["error"]) == (503, True)
    side.api.broken = False
    assert (await side.status("/state", "ops"))[0] == 200


def test_what_is_remembered_is_bounded() -> None:
    """The oldest goes first."""
    memory: Remembered[int, int] = Remembered(1.0, REMEMBERED_MAX, lambda: 0.0)
    for number in range(REMEMBERED_MAX + 10):
        memory.put(number, number)
    assert len(memory) == REMEMBERED_MAX
    assert memory.get(9) is None
    assert memory.get(10) == 10


# --- without a cluster ---------------------------------------------------------------------------------------------


def access(**http: Any) -> Access:
    return routes.access_of(web.Application(), Settings(http=HttpSettings(**http)))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "host.example"])
def test_an_open_read_side_beyond_loopback_has_to_be_asked_for(host: str) -> None:
    """It does not start, and the line names the settings."""
    with pytest.raises(SettingsError, match=rf"http\.host {host}: .*http\.authentication to kubernetes .* or to off"):
        access(host=host)
    access(host=host, authentication="off")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_on_loopback_nobody_is_asked(host: str) -> None:
    """The default of `headgate up`."""
    access(host=host)


@pytest.mark.parametrize(("host", "status"), [("127.0.0.1:1", 200), ("localhost", 200), ("evil.example", 401)])
async def test_a_page_from_elsewhere_does_not_reach_a_loopback_read_side(host: str, status: int) -> None:
    """A browser that was made to take a foreign name for this machine sends that name."""
    side = ReadSide()
    async with (
        side.serving(),
        side.session.get(f"{side.url}/queues", headers={"Host": host}) as answer,
    ):
        assert answer.status == status


async def test_every_answer_forbids_browsers_what_the_page_does_not_need() -> None:
    """The page's own script and style by their digests, no frames, no sniffing, nothing kept."""
    side = ReadSide()
    async with side.serving():
        for path in ("/", "/queues", "/pending"):
            async with side.session.get(f"{side.url}{path}") as answer:
                policy = answer.headers["Content-Security-Policy"]
                assert policy.startswith("default-src 'none'; script-src 'sha256-")
                assert "unsafe" not in policy
                assert "frame-ancestors 'none'" in policy
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
                assert answer.headers["Cache-Control"] == "no-store"
