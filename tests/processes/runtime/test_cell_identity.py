"""The gate of each process before election, the cluster's record of its cell, and a cluster exchanged."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import msgspec
import pytest
from tests.support.doors import Door
from tests.support.waiting import until

from headgate.adapters.jetstream.health import DependencyHealth
from headgate.adapters.kubernetes.errors import TransportError
from headgate.adapters.kubernetes.transport import InProcessTransport, Request, Response
from headgate.core import fold
from headgate.core.machine.commits import next_commit
from headgate.core.machine.contract import Append
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import decode_commit, encode_commit
from headgate.events.effects import LeaderElected
from headgate.events.facts import InformersSynced, NamespaceObserved
from headgate.events.identity import CellFounded, CellRestored
from headgate.events.ids import Epoch, Seq, UnixMs
from headgate.events.registry import Event
from headgate.processes.runtime.cell_identity import IdentityGate
from headgate.processes.runtime.cell_record import CellRecord, CellRecords, LogForgottenError, keep_record, record_of
from headgate.processes.runtime.cluster_recognition import ForeignCellError, RecognisingTransport, ask_cluster_id
from headgate.processes.runtime.process_status import Status
from headgate.testing.cluster import Cluster
from headgate.testing.memory_log import AsyncMemoryLog, MemoryLog

pytestmark = pytest.mark.anyio

BRIDGE = Producer.INFORMER_BRIDGE
PATIENCE_S = 20


class Exchangeable(Door):
    """An API server whose connections can be cut, and behind whose address another one may answer."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.cut = False
        self.refused = ""

    async def handle(self, request: Request) -> Response:
        if self.cut:
            self.cut = False
            raise TransportError("the connection was reset", maybe_applied=True)
        if self.refused and self.refused in request.path:
            body = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"}
            return Response(status=403, headers={}, body=msgspec.json.encode(body))
        return await super().handle(request)


class Place:
    """A log, a cluster and a state that follows the log."""

    def __init__(self, seed: str = "one", memory: MemoryLog | None = None) -> None:
        self.door = Exchangeable(Cluster(lambda: 1_700_000_000_000, seed=seed))
        self.transport = RecognisingTransport(InProcessTransport(self.door))
        self.memory = memory if memory is not None else MemoryLog("main", identity="created first")
        self.log = AsyncMemoryLog(self.memory)
        self.records = CellRecords(self.transport, cell="main", namespace="headgate-system")
        self.status = Status(process="p", cell="main", holder="h", health=DependencyHealth())
        self.state: State = fold.new_state("main")

    def append(self, *events: Event) -> None:
        """The bridge appends, and the state follows."""
        commit, expected = next_commit(self.state, BRIDGE, Epoch(1), Append(events=events), UnixMs(1))
        self.memory.append(BRIDGE.value, encode_commit(commit), expected_last=expected)
        self.follow()

    def follow(self) -> None:
        for entry in self.memory.read(self.state.position + 1):
            fold.apply(self.state, decode_commit(entry.seq, entry.subject, entry.payload))

    def gate(self, producer: Producer = BRIDGE, *, outside: bool = True) -> IdentityGate:
        return IdentityGate(
            producer=producer,
            cell="main",
            log=self.log,
            status=self.status,
            transport=self.transport if outside else None,
            records=self.records if producer is BRIDGE else None,
        )

    async def founded(self, *, commits: int = 3) -> CellFounded:
        gate = self.gate()
        await gate.prepare(self.state)
        founding = gate.founding()
        assert founding is not None
        self.append(LeaderElected(holder="h"), founding)
        self.grow(commits)
        return founding

    def grow(self, commits: int) -> None:
        for _ in range(commits):
            self.append(NamespaceObserved(name=f"n{self.state.position}"))

    async def recorded(self) -> CellRecord:
        """The record as the bridge writes it at this moment."""
        async with keeping(self):
            while (record := await self.records.read()) is None or record.position != self.state.position:
                await anyio.lowlevel.checkpoint()
        return record


@asynccontextmanager
async def keeping(place: Place) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:

        async def keep() -> None:
            async def pause(_: float) -> None:
                await anyio.sleep(0.001)

            await keep_record(place.records, place.state, place.log, every_ms=1000, sleep=pause)

        tasks.start_soon(keep)
        with anyio.fail_after(PATIENCE_S):
            yield
        tasks.cancel_scope.cancel()


# --- founding ------------------------------------------------------------------------------------------------------


async def test_the_bridge_founds_with_what_is_in_front_of_it() -> None:
    """Its cell, the cluster that answers and the stream it appends to; each log gets an id of its own."""
    place = Place()
    founding = await place.founded()
    assert founding.cell == "main"
    assert founding.cluster == await ask_cluster_id(place.transport)
    assert founding.stream == "created first"
    assert founding.log_id != (await Place().founded()).log_id


@pytest.mark.parametrize("producer", [each for each in Producer if each is not BRIDGE])
async def test_the_others_wait_until_the_cell_is_founded(producer: Producer) -> None:
    """And say for whom."""
    place = Place()
    assert "informer bridge" in place.gate(producer).waits_for(place.state)
    await place.founded()
    assert place.gate(producer).waits_for(place.state) == ""


async def test_the_bridge_waits_for_nobody_and_nothing_but_the_api_server() -> None:
    """While the API server refuses its identity, the status reports it; then the bridge continues."""
    place = Place()
    gate = place.gate()
    place.door.refused = "kube-system"
    assert gate.waits_for(place.state) == ""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(gate.prepare, place.state)
        await until(lambda: place.status.problems)
        assert "the identity of the cluster cannot be read" in place.status.problems["identity"]
        place.door.refused = ""
        await until(lambda: gate.founding() is not None)
    assert not place.status.problems


# --- foreign logs and clusters ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("producer", [BRIDGE, Producer.BINDER, Producer.UNGATER])
async def test_a_process_of_another_cluster_is_refused(producer: Producer) -> None:
    """Two clusters with one cell name and one broker: the second gets an error, and appends nothing."""
    first = Place()
    await first.founded()
    second = Place(seed="another", memory=first.memory)
    second.follow()
    with pytest.raises(ForeignCellError, match=r"two clusters must not share a cell.*HEADGATE_CELL"):
        await second.gate(producer).prepare(second.state)


async def test_an_old_log_with_the_objects_of_another_cluster_is_not_founded_for_this_one() -> None:
    """A log without an identity still names the cluster of its versions."""
    place = Place()
    place.append(LeaderElected(holder="h"), InformersSynced(cluster_id="another cluster"))
    with pytest.raises(ForeignCellError, match="another cluster"):
        await place.gate().prepare(place.state)


@pytest.mark.parametrize("producer", list(Producer))
async def test_a_copy_of_a_stream_is_refused_by_everybody(producer: Producer) -> None:
    """The same entries in a stream that was created at another time."""
    place = Place()
    await place.founded()
    place.memory.identity = "created later"
    outside = producer in (BRIDGE, Producer.BINDER, Producer.UNGATER)
    with pytest.raises(ForeignCellError, match="created later"):
        await place.gate(producer, outside=outside).prepare(place.state)


async def test_a_cell_founded_for_another_cluster_meanwhile_ends_the_standby() -> None:
    """Two bridges find an empty log; the one that does not found the cell detects it before its first term."""
    first = Place()
    second = Place(seed="another", memory=first.memory)
    gate = second.gate()
    await gate.prepare(second.state)
    await first.founded()
    second.follow()
    with pytest.raises(ForeignCellError):
        gate.check(second.state)


async def test_a_cluster_that_is_exchanged_behind_its_address_is_noticed_before_the_next_request() -> None:
    """The connection breaks, another cluster answers: nothing of this cell reaches it, nothing of it is believed."""
    place = Place()
    await place.founded()
    place.door.cut = True
    with pytest.raises(TransportError):
        await place.transport.request("GET", "/api/v1/namespaces")
    assert (await place.transport.request("GET", "/api/v1/namespaces")).status == 200
    place.door.cut = True
    with pytest.raises(TransportError):
        await place.transport.request("POST", "/api/v1/namespaces", body=b"{}")
    place.door.cluster = Cluster(lambda: 1_700_000_000_000, seed="another")
    place.door.requests.clear()
    for _ in range(2):
        with pytest.raises(ForeignCellError, match="another cluster answers"):
            await place.transport.request("DELETE", "/api/v1/namespaces/default")
        with pytest.raises(ForeignCellError):
            async with place.transport.stream("/api/v1/namespaces", query={"watch": "true"}):
                pass
    assert {(request.method, request.path) for request in place.door.requests} == {
        ("GET", "/api/v1/namespaces/kube-system")
    }


# --- the record ------------------------------------------------------------------------------------------------------


async def test_the_record_follows_the_log() -> None:
    """Which log, how far, and its hash; the namespace is made where it is missing."""
    place = Place()
    assert await record_of(place.state, place.log) is None
    founding = await place.founded()
    record = await place.recorded()
    assert (record.log_id, record.position) == (founding.log_id, place.state.position)
    assert (record.log_hash, record.stream) == (place.state.log_hash, "created first")
    place.grow(4)
    assert (await place.recorded()).position == record.position + 4
    await place.gate().prepare(place.state)


def emptied(place: Place) -> None:
    place.memory = MemoryLog("main", identity="created later")
    place.log = AsyncMemoryLog(place.memory)
    place.state = fold.new_state("main")


def rolled_back(place: Place) -> None:
    place.memory.lose_suffix(2)
    place.state = fold.new_state("main")
    place.follow()


def rolled_back_before_the_founding(place: Place) -> None:
    place.memory.lose_suffix(place.memory.last_seq() - 1)
    place.state = fold.new_state("main")
    place.follow()


def rolled_back_and_gone_on(place: Place) -> None:
    rolled_back(place)
    place.grow(1)
    place.append(NamespaceObserved(name="another"))
    place.append(NamespaceObserved(name="yet another"))


def founded_anew(place: Place) -> None:
    founding = place.state.identity
    assert founding is not None
    place.memory = MemoryLog("main", identity="created first")
    place.log = AsyncMemoryLog(place.memory)
    place.state = fold.new_state("main")
    place.append(
        LeaderElected(holder="h"),
        CellFounded(cell="main", cluster=founding.cluster, stream="created first", log_id="another"),
    )
    place.grow(9)


LOSSES: dict[Callable[[Place], None], str] = {
    emptied: "the log is empty",
    rolled_back: "the log ends at 4",
    rolled_back_before_the_founding: "was never founded",
    rolled_back_and_gone_on: "the log has another commit at position 6",
    founded_anew: "the log is another one",
}


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
async def test_a_broker_that_has_lost_what_the_cluster_remembers_is_not_believed(loss: Callable[[Place], None]) -> None:
    """The bridge neither founds nor continues; it names what is missing, the record, and what to do."""
    place = Place()
    place.append(LeaderElected(holder="h"))
    await place.founded(commits=4)
    await place.recorded()
    loss(place)
    with anyio.fail_after(PATIENCE_S), pytest.raises(LogForgottenError) as error:
        await place.gate().prepare(place.state)
    for words in (LOSSES[loss], "ConfigMap headgate-system/headgate-cell-main", "headgate restore", "headgate rebuild"):
        assert words in str(error.value)


async def test_a_log_that_says_itself_what_it_has_lost_goes_on() -> None:
    """`cell.restored` covers the positions up to the cluster's record, and no more."""
    place = Place()
    await place.founded(commits=6)
    record = await place.recorded()
    place.memory.lose_suffix(3)
    place.memory.identity = "created later"
    place.state = fold.new_state("main")
    place.follow()
    restored = CellRestored(
        backup="b", position=place.state.position, stream="created later", lost_to=Seq(record.position - 1)
    )
    place.append(restored)
    with pytest.raises(LogForgottenError):
        await place.gate().prepare(place.state)
    place.append(msgspec.structs.replace(restored, position=Seq(record.position - 3), lost_to=record.position))
    await place.gate().prepare(place.state)
    assert (await place.recorded()).stream == "created later"


async def test_a_log_that_takes_the_place_of_the_recorded_one_goes_on() -> None:
    """A cell rebuilt from its API server names the log that it replaces."""
    place = Place()
    founding = await place.founded()
    await place.recorded()
    emptied(place)
    place.append(
        LeaderElected(holder="h"),
        msgspec.structs.replace(founding, log_id="rebuilt", stream="created later", resumes=founding.log_id),
    )
    await place.gate().prepare(place.state)
    assert (await place.recorded()).log_id == "rebuilt"


async def test_a_second_cell_that_writes_the_same_record_ends_the_first() -> None:
    """Two brokers, two logs, one cluster and one cell name: the one that finds the other's record stops."""
    place = Place()
    await place.founded()
    await place.recorded()
    record = await place.records.read()
    assert record is not None
    await place.records.write(msgspec.structs.replace(record, log_id="another"))
    place.grow(1)
    with pytest.raises(BaseExceptionGroup) as error:
        async with keeping(place):
            await anyio.sleep(PATIENCE_S)
    assert error.group_contains(LogForgottenError)


async def test_a_record_that_may_not_be_written_is_told_and_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """One line, and it is tried again until it works."""
    place = Place()
    await place.founded()
    place.door.refused = "configmaps"
    async with keeping(place):
        await until(lambda: "cannot be written" in caplog.text)
        await anyio.sleep(0.02)
        place.door.refused = ""
        await until(place.records.read)
    assert caplog.text.count("cannot be written") == 1


async def test_something_else_in_the_records_place_is_written_over(caplog: pytest.LogCaptureFixture) -> None:
    """A ConfigMap that is no record proves nothing about the log."""
    place = Place()
    for each in (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "headgate-system"}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "headgate-cell-main", "namespace": "headgate-system"},
            "data": {"position": "soon"},
        },
    ):
        place.door.cluster.create(each)
    await place.founded()
    assert "is no record of a cell" in caplog.text
    assert (await place.recorded()).position == place.state.position
