"""What processes do with a marked stream: the bridge records where the log is from, the others wait."""

import pytest
from tests.support.logs import TestLog

from headgate.adapters.jetstream.health import DependencyHealth
from headgate.adapters.jetstream.refill import Marker
from headgate.core.log import reconciliation
from headgate.events.base import Producer
from headgate.events.effects import LeaderElected
from headgate.events.facts import InformersSynced
from headgate.events.identity import CellFounded, CellRestored
from headgate.processes.runtime.cell_identity import UNKNOWN_LOG, IdentityGate
from headgate.processes.runtime.cluster_recognition import ForeignCellError
from headgate.processes.runtime.process_status import Status
from headgate.processes.runtime.stream_origin import UNRECORDED, Origin
from headgate.testing.memory_log import AsyncMemoryLog, MemoryLog

BRIDGE = Producer.INFORMER_BRIDGE
OTHERS = [each for each in Producer if each is not BRIDGE]


def founded() -> TestLog:
    """A log that was written to another stream than its present one."""
    log = TestLog()
    log.append(BRIDGE, LeaderElected(holder="one"), CellFounded(cell="main", cluster="c", stream="lost", log_id="l"))
    return log


def origin_behind(log: TestLog) -> Origin:
    marker = Marker(kind="restored", at_ms=7, backup="b", position=log.state.position, log_hash=log.state.log_hash)
    return Origin(stream="new", marker=marker)


def gate_of(producer: Producer, origin: Origin) -> IdentityGate:
    status = Status(process=producer.value, cell="main", holder="one", health=DependencyHealth())
    log = AsyncMemoryLog(MemoryLog("main", identity=origin.stream))
    return IdentityGate(producer=producer, cell="main", log=log, status=status, origin=origin)


def test_the_bridge_says_first_that_the_log_was_restored_and_says_it_once() -> None:
    """Before its term; once it is in the log no more is appended."""
    log = founded()
    origin = origin_behind(log)
    gate = gate_of(BRIDGE, origin)
    gate.check(log.state)
    (event,) = gate.opening(log.state)
    assert event == CellRestored(backup="b", position=log.state.position, stream="new")
    log.append(BRIDGE, event, LeaderElected(holder="two"), epoch=2)
    assert gate.opening(log.state) == ()
    gate.check(log.state)
    assert log.state.identity is not None
    assert log.state.identity.stream == "new"


@pytest.mark.parametrize("producer", OTHERS)
def test_the_others_wait_for_the_bridge_and_then_for_the_lists(producer: Producer) -> None:
    """The snapshotter only for the first: the feed begins behind the break."""
    log = founded()
    origin = origin_behind(log)
    gate = gate_of(producer, origin)
    assert gate.waits_for(log.state) == UNRECORDED
    assert gate.opening(log.state) == ()
    restored = origin.unrecorded(log.state)
    assert restored is not None
    log.append(BRIDGE, restored, LeaderElected(holder="two"), epoch=2)
    assert gate.waits_for(log.state) == ("" if producer is Producer.SNAPSHOTTER else reconciliation.WAITING)
    log.append(BRIDGE, InformersSynced(resources=("jobs",)), epoch=2)
    assert gate.waits_for(log.state) == ""


def test_a_stream_that_nobody_has_restored_stays_a_copy() -> None:
    """Only the marker that a restore leaves makes another stream the log's own."""
    log = founded()
    with pytest.raises(ForeignCellError, match="it is a copy"):
        gate_of(BRIDGE, Origin(stream="new")).check(log.state)


def test_a_rebuilt_log_is_founded_in_the_place_of_another() -> None:
    """Also where the cluster has no record of that one: its feed must not be gone on with as if it were the same."""
    origin = Origin(stream="new", marker=Marker(kind="rebuilt", at_ms=7))
    gate = gate_of(BRIDGE, origin)
    gate.cluster = "c"
    founding = gate.founding()
    assert founding is not None
    assert founding.resumes == UNKNOWN_LOG
    plain = gate_of(BRIDGE, Origin(stream="new"))
    plain.cluster = "c"
    first = plain.founding()
    assert first is not None
    assert first.resumes == ""
