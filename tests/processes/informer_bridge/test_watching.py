"""A bridge that starts again resumes at the log's positions: against the simulated cluster, through reflectors."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import msgspec
import pytest
from tests.support.doors import Door
from tests.support.logs import TestLog
from tests.support.playing import node
from tests.support.waiting import until

from headgate.adapters.jetstream.health import Dependency
from headgate.adapters.kubernetes.resources import RESOURCES as ADDRESSES
from headgate.adapters.kubernetes.resources import Resource, watchable
from headgate.adapters.kubernetes.transport import InProcessTransport
from headgate.core.machine.contract import Append, Changed, Committed, Listed, Resumed, Settled, Stimulus
from headgate.core.reading.decoding import READING, RESOURCES
from headgate.events import facts
from headgate.events.base import Producer
from headgate.events.ids import UnixMs
from headgate.events.registry import Event
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.machines.informer_bridge.marks import MARK_MS
from headgate.machines.informer_bridge.placement_objects import ALWAYS, OWN, SCHEDULER_CONFIGURATIONS
from headgate.processes.informer_bridge.watching import Watching
from headgate.testing.cluster import BY_PLURAL, Cluster, Fault, FaultPlan, FaultRule

pytestmark = pytest.mark.anyio
START_MS = 1_700_000_000_000


def cluster_of(*nodes: str, begun_ms: int = START_MS) -> Cluster:
    cluster = Cluster(lambda: begun_ms, controllers=None)
    for name in nodes:
        cluster.apply(node(name))
    return cluster


def delete(cluster: Cluster, name: str) -> None:
    assert cluster.request("DELETE", f"/api/v1/nodes/{name}").status == 200


class Term:
    """One term of the bridge: what was shown to its machine, what it appended, the requests to the API server."""

    def __init__(self, log: TestLog, door: Door) -> None:
        self.log = log
        self.door = door
        self.machine = InformerBridge(log.state)
        self.shown: list[Stimulus] = []
        self.events: list[Event] = []
        self.watching: Watching

    async def offer(self, stimulus: Stimulus) -> None:
        self.shown.append(stimulus)
        self.machine.decide(stimulus)
        self.settle()

    def settle(self, after_ms: int = 0) -> None:
        self.log.now_ms = UnixMs(self.log.now_ms + after_ms)
        for command in self.machine.decide(Settled(self.log.now_ms)):
            if isinstance(command, Append):
                self.events += command.events
                self.machine.decide(Committed(self.log.append(Producer.INFORMER_BRIDGE, *command.events)))

    @property
    def listed(self) -> list[str]:
        return [stimulus.resource for stimulus in self.shown if isinstance(stimulus, Listed)]

    @property
    def resumed(self) -> list[str]:
        return [stimulus.resource for stimulus in self.shown if isinstance(stimulus, Resumed)]

    @property
    def pages(self) -> int:
        """Lists of whole resources, page by page; the request for the newest version has a limit of one object."""
        return sum(request.query.get("limit") == "500" for request in self.door.requests)

    @property
    def facts(self) -> list[Event]:
        return [event for event in self.events if not isinstance(event, facts.InformersSynced)]


@asynccontextmanager
async def term(
    log: TestLog, cluster: Cluster, *, known: Mapping[str, Resource] = ADDRESSES, **options: Any
) -> AsyncIterator[Term]:
    """A term that has come to its sync."""
    running = Term(log, Door(cluster))
    watching = Watching(InProcessTransport(running.door), known, lambda: RESOURCES, page_items=500, **options)
    async with anyio.create_task_group() as tasks:
        running.watching = watching
        tasks.start_soon(watching, log.state, running.offer)
        await until(lambda: running.machine.synced)
        yield running
        tasks.cancel_scope.cancel()


async def first(cluster: Cluster, *, is_anchored: bool = True) -> TestLog:
    """A log whose bridge has listed everything once, and seen a change since, if it is anchored, and is down."""
    log = TestLog()
    async with term(log, cluster) as running:
        assert sorted(running.listed) == sorted(RESOURCES)
        assert running.pages == len(RESOURCES)
        if is_anchored:
            cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "anchor"}})
            await until(lambda: any(isinstance(each, Changed) for each in running.shown))
            running.settle(MARK_MS)
    return log


async def test_a_restart_lists_nothing() -> None:
    """No list is requested, and no fact appended: the watches resume at the marks."""
    cluster = cluster_of("n1", "n2")
    log = await first(cluster)
    async with term(log, cluster) as again:
        assert (again.listed, again.pages) == ([], 0)
        assert sorted(again.resumed) == sorted(RESOURCES)
        assert again.facts == []
        # And the watches do watch.
        cluster.apply(node("n3"))
        await until(lambda: "n3" in log.state.nodes)


async def test_what_a_changed_configuration_has_read_otherwise_is_listed_again() -> None:
    """Once, and that alone; its watch goes on behind the list."""
    cluster = cluster_of("n1")
    log = await first(cluster)
    async with term(log, cluster) as again:
        again.watching.list_again(("pods", "nodes"))
        await until(lambda: len(again.listed) >= 2)
        cluster.apply(node("n2"))
        await until(lambda: "n2" in log.state.nodes)
        assert sorted(again.listed) == ["nodes", "pods"]


async def test_what_has_to_be_listed_again_before_its_watch_begins_is_not_resumed() -> None:
    """The mark was for objects that were read otherwise."""
    cluster = cluster_of("n1")
    log = await first(cluster)
    running = Term(log, Door(cluster))
    made: list[Watching] = []

    def listed_anew() -> tuple[str, ...]:
        made[0].list_again(("pods",))
        return ()

    transport = InProcessTransport(running.door)
    made.append(Watching(transport, ADDRESSES, lambda: RESOURCES, page_items=500, listed_anew=listed_anew))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made[0], log.state, running.offer)
        await until(lambda: running.machine.synced)
        tasks.cancel_scope.cancel()
    assert running.listed == ["pods"]


async def test_what_happened_while_the_bridge_was_down_is_seen() -> None:
    """Changes and deletions, and nothing else."""
    cluster = cluster_of("n1", "n2", "n3")
    log = await first(cluster)
    cluster.apply(node("n2", unschedulable=True))
    delete(cluster, "n3")
    cluster.apply(node("n4"))
    async with term(log, cluster) as again:
        await until(lambda: len(again.facts) >= 3)
        assert again.pages == 0
        assert [type(event) for event in again.facts] == [facts.NodeObserved, facts.NodeDeleted, facts.NodeObserved]
    assert list(log.state.nodes) == ["n1", "n2", "n4"]
    assert log.state.nodes["n2"].unschedulable


async def test_what_was_marked_on_the_way_is_not_shown_again() -> None:
    """The next term resumes from the newest mark, not from the first."""
    cluster = cluster_of("n1")
    log = TestLog()
    async with term(log, cluster) as running:
        cluster.apply(node("n2"))
        await until(lambda: "n2" in log.state.nodes)
        running.settle(MARK_MS)
        assert int(log.state.resource_versions["nodes"]) == cluster.store.rv
    async with term(log, cluster) as again:
        await anyio.wait_all_tasks_blocked()
        assert again.shown
        assert all(isinstance(stimulus, Resumed) for stimulus in again.shown)


async def test_an_expired_version_falls_back_to_a_list() -> None:
    """Of the resource whose history is forgotten; what is gone shows in what the list lacks."""
    cluster = cluster_of("n1", "n2")
    log = await first(cluster)
    delete(cluster, "n2")
    cluster.store.table(BY_PLURAL["", "nodes"]).compact()
    async with term(log, cluster) as again:
        await until(lambda: again.listed)
        await until(lambda: "n2" not in log.state.nodes)
        assert again.listed == ["nodes"]
        assert again.facts == [facts.NodeDeleted(name="n2")]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that never comes is waited for more briefly."""
    monkeypatch.setattr("headgate.processes.informer_bridge.watching.ANCHOR_S_MAX", 1.0)


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_went_back_falls_back_to_lists() -> None:
    """The same cluster, restored from a backup: versions that it has not reached yet are not waited for."""
    cluster = cluster_of("n1", *(f"m{number}" for number in range(40)))
    log = await first(cluster)
    restored = cluster_of("n1", "n2")
    assert restored.store.rv < cluster.store.rv
    async with term(log, restored) as again:
        await until(lambda: len(again.listed) == len(RESOURCES))
        assert list(log.state.nodes) == ["n1", "n2"]


def restored(*nodes: str) -> Cluster:
    """The same cluster from a backup that was taken before anything was changed, and what has happened there since."""
    cluster = cluster_of("n1", "n2")
    for name in nodes:
        cluster.apply(node(name))
    return cluster


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_went_back_and_came_past_the_marks_falls_back_to_lists() -> None:
    """The versions prove nothing; the change that the log has recorded is missing."""
    cluster = cluster_of("n1", "n2")
    log = await first(cluster)
    delete(cluster, "n2")
    other = restored(*(f"m{number}" for number in range(40)))
    assert other.store.rv > cluster.store.rv
    async with term(log, other) as again:
        assert sorted(again.listed) == sorted(RESOURCES)
        assert sorted(log.state.nodes) == sorted(["n1", "n2", *(f"m{number}" for number in range(40))])


async def test_a_history_that_nothing_was_seen_of_is_not_trusted() -> None:
    """Only lists so far: the history cannot be distinguished from another."""
    cluster = cluster_of("n1")
    log = await first(cluster, is_anchored=False)
    async with term(log, cluster) as again:
        assert sorted(again.listed) == sorted(RESOURCES)


async def test_a_history_whose_anchor_is_forgotten_is_not_trusted() -> None:
    """What cannot be shown any more proves nothing."""
    cluster = cluster_of("n1")
    log = await first(cluster)
    cluster.store.table(BY_PLURAL["", "namespaces"]).compact()
    async with term(log, cluster) as again:
        assert sorted(again.listed) == sorted(RESOURCES)


async def test_another_cluster_is_listed() -> None:
    """Its versions are higher than the marks, and mean something else."""
    log = await first(cluster_of("n1", "n2"))
    other = cluster_of("x1", *(f"m{number}" for number in range(40)), begun_ms=START_MS + 60_000)
    delete(other, "x1")
    async with term(log, other) as again:
        assert sorted(again.listed) == sorted(RESOURCES)
        assert sorted(log.state.nodes) == sorted(f"m{number}" for number in range(40))


async def test_facts_by_other_rules_are_read_again() -> None:
    """After an upgrade that reads objects differently, every object is read once more."""
    cluster = cluster_of("n1")
    log = await first(cluster)
    marks = dict(log.state.resource_versions)
    log.append(Producer.INFORMER_BRIDGE, facts.InformersSynced(resource_versions=marks, reading=READING + 1))
    assert log.state.resource_versions == marks
    async with term(log, cluster) as again:
        assert sorted(again.listed) == sorted(RESOURCES)


async def test_resuming_can_be_switched_off() -> None:
    """For the start after a restore that no version shows."""
    cluster = cluster_of("n1")
    log = await first(cluster)
    async with term(log, cluster, resumes=False) as again:
        assert sorted(again.listed) == sorted(RESOURCES)


async def test_a_resource_without_a_mark_is_listed_alone() -> None:
    """A resource that a newer version of the program watches, for example."""
    cluster = cluster_of("n1")
    log = await first(cluster)
    log.append(Producer.INFORMER_BRIDGE, facts.InformersSynced(resource_versions={"jobs": ""}))
    async with term(log, cluster) as again:
        assert again.listed == ["jobs"]
        assert len(again.resumed) == len(RESOURCES) - 1


async def test_an_api_server_that_is_unwell_at_the_start_is_asked_again() -> None:
    """Which cluster it is decides whether to resume, so the answer is waited for."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await anyio.lowlevel.checkpoint()

    cluster = cluster_of("n1")
    log = await first(cluster)
    unwell = FaultRule(fault=Fault.UNAVAILABLE, probability=1.0, path_contains="kube-system", count_max=2)
    cluster.faults = FaultPlan(Random(1), [unwell])
    async with term(log, cluster, sleep=sleep) as again:
        assert again.pages == 0
    assert len(pauses) == 2


async def test_what_is_waited_for_at_the_start_shows_in_readiness() -> None:
    """Before any watch has begun: which dependency, since when and why; and that it is over."""
    said: list[Dependency] = []

    async def sleep(seconds: float) -> None:
        said.append(watching.probe(0))
        await anyio.lowlevel.checkpoint()

    cluster = cluster_of("n1")
    log = await first(cluster)
    unwell = FaultRule(fault=Fault.UNAVAILABLE, probability=1.0, path_contains="kube-system", count_max=2)
    cluster.faults = FaultPlan(Random(1), [unwell])
    running = Term(log, Door(cluster))
    watching = Watching(InProcessTransport(running.door), ADDRESSES, lambda: RESOURCES, page_items=500, sleep=sleep)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watching, log.state, running.offer)
        await until(lambda: running.machine.synced)
        tasks.cancel_scope.cancel()
    assert [(each.name, each.ok) for each in said] == [("kubernetes watch", False)] * 2
    assert said[0].since_ms == said[1].since_ms > 0
    assert "503" in said[0].error
    assert watching.probe(0).ok


# --- placement, turned on and off in a term ------------------------------------------------------------------------

PLACING = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "headgate"}],
}


async def place_by(running: Term, document: dict[str, Any]) -> None:
    """As a change of the file does."""
    await running.offer(Changed(SCHEDULER_CONFIGURATIONS, "MODIFIED", msgspec.json.encode(document), ""))
    running.settle()


async def test_what_placement_reads_is_watched_from_when_it_is_turned_on_until_it_is_turned_off() -> None:
    cluster = cluster_of("n1")
    log = TestLog()
    async with term(log, cluster, known=watchable()) as running:
        cluster.apply(claim("c"))
        await place_by(running, PLACING)
        running.watching.begin(OWN)
        running.watching.list_again(ALWAYS)
        await until(lambda: log.state.scheduler_configuration == PLACING)
        assert set(log.state.objects["persistentvolumeclaims"]) == {"default/c"}
        assert set(log.state.objects["nodes"]) == {"n1"}
        cluster.apply(claim("d"))
        await until(lambda: len(log.state.objects["persistentvolumeclaims"]) == 2)

        await place_by(running, {})
        running.watching.end(OWN)
        shown = len(running.shown)
        cluster.apply(claim("e"))
        cluster.apply(node("n2"))
        await until(lambda: "n2" in log.state.nodes)
        assert [each.resource for each in running.shown[shown:] if isinstance(each, Changed)] == ["nodes"]
        assert log.state.objects == {}

        await place_by(running, PLACING)
        running.watching.begin(OWN)
        running.watching.list_again(ALWAYS)
        await until(lambda: log.state.scheduler_configuration == PLACING)
        assert len(log.state.objects["persistentvolumeclaims"]) == 3


def claim(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
