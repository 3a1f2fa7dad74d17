"""The snapshotter: when it takes snapshots, what it stores, and what it finds when it folds the log again."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.logs import START_MS, TestLog
from tests.support.toys import Counter

from headgate.core import fold
from headgate.core.machine.contract import Append, Command, Committed, Completed, Settled, TakeSnapshot, WakeAt
from headgate.core.state.tables import NamespaceRecord, SnapshotRecord, State
from headgate.events.base import Producer
from headgate.events.effects import DivergenceFound, LeaderElected, SnapshotTaken
from headgate.events.facts import InformersSynced, NamespaceObserved
from headgate.events.ids import Seq, UnixMs
from headgate.machines.snapshotter.decide import VERIFY, Rules, Snapshotter, SnapshotVerification, StoredSnapshot
from headgate.processes.snapshots import store
from headgate.processes.snapshots.point_in_time import fold_on, refolding
from headgate.processes.snapshotter.storing import SnapshotCarrier

RULES = Rules(commits=5, every_ms=60_000, idle_ms=1_000)


class Machine:
    """A snapshotter on a log of its own. `stored` answers the snapshot that it has requested."""

    def __init__(self) -> None:
        self.log = TestLog()
        self.machine = Snapshotter(self.log.state, RULES)
        self.asked: list[str] = []

    def commit(self, count: int = 1, producer: Producer = Producer.BINDER) -> None:
        for _ in range(count):
            logged = self.log.append(producer, LeaderElected(holder="x"))
            assert self.machine.decide(Committed(logged)) == []

    def settle(self, after_ms: int = 0) -> list[Command]:
        commands = self.machine.decide(Settled(UnixMs(START_MS + after_ms)))
        self.asked += [command.call_id for command in commands if isinstance(command, TakeSnapshot)]
        return commands

    def stored(self) -> None:
        position = self.log.state.position
        body = StoredSnapshot(name="s", position=position, state_hash="h", log_hash="l", size_bytes=7)
        self.machine.decide(Completed(self.asked[-1], 200, msgspec.json.encode(body)))


def test_nothing_is_stored_of_an_empty_log() -> None:
    """Without a commit of another process there is nothing to do, however long it lasts."""
    machine = Machine()
    assert machine.settle() == []
    machine.commit(3, Producer.SNAPSHOTTER)
    assert machine.settle(10**9) == []


def test_marks_of_the_watches_do_not_disturb_the_quiet() -> None:
    """Alone they are no reason for a snapshot until there are as many as `commits`; nor do they delay one."""
    machine = Machine()
    for _ in range(RULES.commits - 1):
        machine.machine.decide(Committed(machine.log.append(Producer.INFORMER_BRIDGE, InformersSynced())))
    assert machine.settle(10**9) == []
    machine.commit(1)
    assert machine.settle(10**9) == [TakeSnapshot(f"snapshot/{RULES.commits}")]
    machine.stored()
    machine.commit(1)
    machine.log.now_ms = UnixMs(START_MS + RULES.idle_ms)
    machine.machine.decide(Committed(machine.log.append(Producer.INFORMER_BRIDGE, InformersSynced())))
    assert TakeSnapshot(f"snapshot/{RULES.commits + 2}") in machine.settle(RULES.idle_ms)


def test_a_snapshot_is_due_after_so_many_commits() -> None:
    """One is taken when the count is full, and the count starts again."""
    machine = Machine()
    machine.commit(4)
    assert machine.settle() == [WakeAt(UnixMs(START_MS + RULES.idle_ms))]
    machine.commit(1)
    assert machine.settle() == [TakeSnapshot("snapshot/5")]
    machine.stored()
    machine.commit(4)
    assert not any(isinstance(command, TakeSnapshot) for command in machine.settle())


def test_a_snapshot_is_due_when_a_busy_cell_falls_silent() -> None:
    """A quiet cell's next start folds next to nothing."""
    machine = Machine()
    machine.commit(1)
    machine.settle()
    assert machine.settle(RULES.idle_ms) == [TakeSnapshot("snapshot/1")]


def test_only_one_snapshot_is_under_way() -> None:
    """Until the last one is stored no other is requested."""
    machine = Machine()
    machine.commit(5)
    machine.settle()
    machine.commit(20)
    assert machine.settle(10**6) == []


def test_a_stored_snapshot_is_told_to_the_log_once() -> None:
    """`snapshot.taken` has position, hash and name; it is no reason for the next one."""
    machine = Machine()
    machine.commit(5)
    machine.settle()
    machine.stored()
    (append,) = machine.settle()
    assert isinstance(append, Append)
    taken = SnapshotTaken(position=Seq(5), state_hash="h", log_hash="l", name="s", size_bytes=7)
    assert append.events == (taken,)
    machine.commit(1, Producer.SNAPSHOTTER)
    assert machine.settle(10**9) == []


def test_a_divergence_is_told_to_the_log_once() -> None:
    """Equal hashes say nothing; different ones are appended."""
    machine = Machine()
    for live, refolded in (("a", "a"), ("a", "b"), ("a", "b")):
        body = SnapshotVerification(position=Seq(9), live_hash=live, refolded_hash=refolded)
        machine.machine.decide(Completed(f"{VERIFY}9", 200, msgspec.json.encode(body)))
    (append,) = machine.settle()
    assert isinstance(append, Append)
    assert append.events == (DivergenceFound(position=Seq(9), live_hash="a", refolded_hash="b"),)


def test_what_was_not_stored_is_tried_again() -> None:
    """A snapshot that failed counts for nothing: the next commit makes another due in its time."""
    machine = Machine()
    machine.commit(5)
    machine.settle()
    machine.machine.decide(Completed(machine.asked[-1], 500))
    machine.commit(5)
    assert machine.settle() == [TakeSnapshot("snapshot/10")]


@given(st.integers(0, 30), st.integers(0, 30))
def test_a_new_machine_knows_how_far_the_last_snapshot_is_behind(before: int, since: int) -> None:
    """After a crash the next snapshot is due as if nothing had happened."""
    machine = Machine()
    machine.commit(before)
    machine.log.state.snapshot = SnapshotRecord(position=Seq(before), state_hash="", log_hash="", name="")
    machine.commit(1, Producer.SNAPSHOTTER)
    machine.commit(since)
    machine.machine = Snapshotter(machine.log.state, RULES)
    taken = any(isinstance(command, TakeSnapshot) for command in machine.settle())
    assert taken == (since >= RULES.commits)


# --- in the loop -----------------------------------------------------------------------------------------------------


def snapshotter(around: Any, rules: Rules, *, keep: int = 2) -> Any:
    host, status, _ = around.host(lambda state: Snapshotter(state, rules), producer=Producer.SNAPSHOTTER, holder="s")
    carrier = SnapshotCarrier(around.log, around.blobs, status, keep=keep, verify=True, now_ms=lambda: 1)
    host._parts.carrier = carrier
    return host, status


@pytest.mark.anyio
async def test_snapshots_are_stored_verified_and_pruned(around, until, running) -> None:
    """Each is the state at its position; folding the log again agrees; only the newest are kept."""
    counting, _, _ = around.host(lambda state: Counter(state, 40))
    host, status = snapshotter(around, Rules(commits=10, every_ms=10**9, idle_ms=10**9))
    async with running(counting, host):
        await until(lambda: status.counters.verifications >= 3)
        assert status.report().ready
    kept = await around.blobs.listing()
    assert len(kept) == 2
    meta, state = store.unpack(await around.blobs.get(kept[-1].name), "main")
    expected = fold.new_state("main")
    expected = await fold_on(around.log, expected, meta.position, refolding(around.log, "main"))
    assert fold.state_hash(state) == fold.state_hash(expected) == meta.state_hash
    assert status.counters.divergences == 0
    assert host.state.snapshot is not None


@pytest.mark.anyio
async def test_a_live_state_that_is_not_the_logs_is_found_out(around, until, running, caplog) -> None:
    """A record that no event made shows as a divergence: in the log of the cell, in readiness, and in words."""
    counting, _, _ = around.host(lambda state: Counter(state, 40))
    host, status = snapshotter(around, Rules(commits=10, every_ms=10**9, idle_ms=10**9))
    async with running(host):
        await until(lambda: host.is_leading)
        host.state.namespaces["ghost"] = NamespaceRecord()
        async with running(counting):
            await until(lambda: status.counters.divergences > 0)
        assert not status.report().ready
        assert "folding the log again" in status.report().problems[0]
    text = b"".join(entry.payload for entry in around.memory.read(1)).decode()
    assert '"divergence.found"' in text
    assert "divergence" in caplog.text


def test_a_state_is_named_by_its_position() -> None:
    """Names are subject tokens."""
    assert store.name_of(Seq(12)) == "state-12"


def test_states_survive_packing() -> None:
    """What is unpacked has the hash that was packed."""
    log = TestLog()
    log.append(Producer.INFORMER_BRIDGE, NamespaceObserved(name="a", labels={"x": "ü"}))
    meta, blob = store.pack(log.state, log_identity="i", taken_ms=UnixMs(5))
    again, state = store.unpack(blob, "main")
    assert again == meta
    assert fold.state_hash(state) == meta.state_hash == fold.state_hash(log.state)
    assert isinstance(state, State)
