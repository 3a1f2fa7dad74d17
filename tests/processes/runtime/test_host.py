"""The loop keeps its promises to the machine and to the log (over a log in memory)."""

from typing import Any

import anyio
import msgspec
import pytest
from tests.support.toys import Counter, Recorder

from headgate.adapters.log import AppendOutcome, LogDamaged, LogTruncated
from headgate.core import fold
from headgate.core.fold import BrokenLogError, quarantine, quarantine_limit
from headgate.core.fold.quarantine_limit import TooManyFailedError
from headgate.core.machine.call_object import body_of
from headgate.core.machine.commits import next_commit
from headgate.core.machine.contract import Append, AskExtender, Call, Completed, Settled, TakeSnapshot, WakeAt
from headgate.core.state.attribution import about
from headgate.core.state.tables import NamespaceRecord, State
from headgate.events.base import Producer
from headgate.events.commit import UnreadableCommitError, decode_commit, encode_commit
from headgate.events.effects import LeaderElected, SnapshotTaken
from headgate.events.facts import NamespaceObserved
from headgate.events.ids import Epoch, PodKey, UnixMs
from headgate.processes.runtime.process_status import Phase
from headgate.processes.runtime.settings import LimitSettings
from headgate.processes.snapshots import store
from headgate.processes.snapshots.store import LogShorterThanSnapshotError, SnapshotMeta
from headgate.testing.memory_log import AsyncMemoryLog

pytestmark = pytest.mark.anyio


def folded(around: Any) -> State:
    """The state of the whole log, folded from its beginning."""
    state = fold.new_state("main")
    for entry in around.memory.read(1):
        fold.apply(state, decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms))
    return state


def only(group: BaseExceptionGroup) -> BaseException:
    """The one error in a group of groups."""
    (error,) = group.exceptions
    return only(error) if isinstance(error, BaseExceptionGroup) else error


async def test_a_term_opens_with_leader_elected_and_decides_until_nothing_is_left(around, until, running) -> None:
    """The first commit of a term names its holder; each decision is one fenced commit on the state before it."""
    host, status, _ = around.host(lambda state: Counter(state, 10))
    async with running(host):
        await until(lambda: len(host.state.namespaces) == 10)
        assert status.report().ready
        assert status.phase is Phase.LEADING
    state = folded(around)
    record = state.producers[Producer.INFORMER_BRIDGE]
    assert (record.holder, record.epoch, record.number) == ("one", 1, 11)
    assert fold.state_hash(state) == fold.state_hash(host.state)


async def test_a_standby_folds_along_and_takes_over_when_the_leader_stops(around, until, running) -> None:
    """The standby decides nothing before; then a term with the next epoch continues where the first one stopped."""
    first, _, _ = around.host(lambda state: Counter(state, 5), holder="one")
    second, status, _ = around.host(lambda state: Counter(state, 9), holder="two")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run)
        await until(lambda: len(first.state.namespaces) == 5)
        tasks.start_soon(second.run)
        await until(lambda: len(second.state.namespaces) == 5)
        assert status.phase is Phase.STANDBY
        assert status.report().ready
        first.stop()
        await until(lambda: len(second.state.namespaces) == 9)
        second.stop()
    assert folded(around).producers[Producer.INFORMER_BRIDGE].epoch == 2


class Usurped(AsyncMemoryLog):
    """A log in which another leader writes just before the nth append of ours."""

    def __init__(self, around: Any, at: int) -> None:
        super().__init__(around.memory)
        self.left = at

    async def append(self, producer: str, payload: bytes, *, expected_last: int, commit_id: str) -> AppendOutcome:
        self.left -= 1
        if self.left == 0:
            state = fold.new_state("main")
            for entry in self.memory.read(1):
                fold.apply(state, decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms))
            await write(self, state, LeaderElected(holder="rival"), epoch=state.producers[Producer(producer)].epoch + 1)
        return await super().append(producer, payload, expected_last=expected_last, commit_id=commit_id)


class Forgetful(Usurped):
    """A log that loses its last entry just before the nth append of ours."""

    async def append(self, producer: str, payload: bytes, *, expected_last: int, commit_id: str) -> AppendOutcome:
        self.left -= 1
        if self.left == 0:
            self.memory.lose_suffix(1)
        return await AsyncMemoryLog.append(self, producer, payload, expected_last=expected_last, commit_id=commit_id)


async def write(log: AsyncMemoryLog, state: State, *events: Any, epoch: int) -> None:
    commit, expected = next_commit(state, Producer.INFORMER_BRIDGE, Epoch(epoch), Append(events=events), UnixMs(1))
    payload = encode_commit(commit)
    await AsyncMemoryLog.append(log, commit.producer.value, payload, expected_last=expected, commit_id=commit.id)


async def test_a_refused_append_ends_the_epoch(around, until, running, caplog) -> None:
    """What was decided under the old epoch is not in the log; the process leads again only under a newer epoch."""
    log = Usurped(around, at=4)
    host, status, _ = around.host(lambda state: Counter(state, 6), log=log)
    async with running(host):
        await until(lambda: len(host.state.namespaces) == 6)
    record = folded(around).producers[Producer.INFORMER_BRIDGE]
    assert record.epoch == 3
    assert status.counters.appends_refused == 1
    assert "our epoch 1 is over: the log refused commit informer-bridge-1-4" in caplog.text


async def test_settled_comes_with_time_and_wakes_when_asked(around, until, running) -> None:
    """`WakeAt` brings `Settled` without any other stimulus, and time never runs backwards."""
    machines: list[Recorder] = []

    def make(state: State) -> Recorder:
        machines.append(Recorder(state, [[WakeAt(UnixMs(5))], [WakeAt(UnixMs(5))], []]))
        return machines[0]

    clock = iter([10, 9, 8, 7])
    last = [10]

    def now_ms() -> int:
        last[0] = next(clock, last[0])
        return last[0]

    host, _, _ = around.host(make, now_ms=now_ms)
    async with running(host):
        await until(lambda: bool(machines) and len(machines[0].of(Settled)) >= 3)
    times = [settled.now_ms for settled in machines[0].of(Settled)]
    assert min(times) >= folded(around).producers[Producer.INFORMER_BRIDGE].last_ms


async def test_each_call_is_answered_once_and_too_many_unanswered_ones_hold_decisions_back(
    around, until, running
) -> None:
    """While `calls_max` calls have no answer no `Settled` is sent, and readiness has the reason."""
    machines: list[Recorder] = []
    calls: list[Any] = [Call(id=f"c{n}", method="GET", path="/") for n in range(5)]

    def make(state: State) -> Recorder:
        machines.append(Recorder(state, [calls, []]))
        return machines[0]

    host, status, carrier = around.host(make, limits=LimitSettings(calls_max=3))
    carrier.gate = anyio.Event()
    async with running(host):
        await until(lambda: carrier.running == 3)
        await write(around.log, host.state, NamespaceObserved(name="x"), epoch=1)
        await until(lambda: "x" in host.state.namespaces)
        assert len(machines[0].of(Settled)) == 1
        assert "5 calls" in status.report().detail
        carrier.gate.set()
        await until(lambda: len(machines[0].of(Completed)) == 5 and len(machines[0].of(Settled)) >= 2)
    assert carrier.running_max == 3
    assert sorted(each.call_id for each in machines[0].of(Completed)) == [f"c{n}" for n in range(5)]


async def test_an_append_too_large_for_a_message_is_split_and_complete_before_the_next_decision(
    around, until, running
) -> None:
    """All its events are in the log, in order, in commits that each fit; the machine is settled only after the last."""
    events = tuple(NamespaceObserved(name=f"n{n}", labels={"filling": "x" * 200}) for n in range(40))
    machines: list[Recorder] = []

    def make(state: State) -> Recorder:
        machines.append(Recorder(state, [[Append(events=events)], []]))
        return machines[0]

    host, _, _ = around.host(make, limits=LimitSettings(commit_bytes_max=2_000))
    async with running(host):
        await until(lambda: len(host.state.namespaces) == 40 and len(machines[0].of(Settled)) == 2)
    entries = around.memory.read(2)
    assert max(len(entry.payload) for entry in entries) <= 2_000
    told = [event for entry in entries for event in decode_commit(1, "", entry.payload).commit.events]
    names = [event.name for event in told if isinstance(event, NamespaceObserved)]
    assert names == [event.name for event in events]


async def test_a_snapshot_is_of_the_state_at_the_command(around, until, running) -> None:
    """`TakeSnapshot` is carried out before anything else is folded, and answered."""
    machines: list[Recorder] = []

    def make(state: State) -> Recorder:
        machines.append(Recorder(state, [[TakeSnapshot("s")]]))
        return machines[0]

    host, _, _ = around.host(make)
    async with running(host):
        await until(lambda: bool(machines and machines[0].of(Completed)))
    assert machines[0].of(Completed) == [Completed("s", 200, b"1")]


async def test_an_extender_is_asked_and_its_answer_comes_back(around, until, running) -> None:
    """As a call does; one without an answer counts as refused."""
    machines: list[Recorder] = []
    ask = AskExtender(id="a", pod=PodKey("ns/p"), extender="http://x", path="filter", body={})

    def make(state: State) -> Recorder:
        machines.append(Recorder(state, [[ask]]))
        return machines[0]

    host, status, _ = around.host(make)
    async with running(host):
        await until(lambda: bool(machines and machines[0].of(Completed)))
    assert machines[0].of(Completed) == [Completed("a", 0, b"http://x/filter is not there")]
    assert (status.counters.calls, status.counters.calls_refused) == (1, 1)


async def store_snapshot(around: Any, state: State) -> None:
    """A snapshot, and the log's word for it."""
    meta, blob = store.pack(state, log_identity="memory", taken_ms=UnixMs(1))
    name = store.name_of(meta.position)
    await around.blobs.put(name, blob, position=meta.position)
    announce(around, meta, name)


def announce(around: Any, meta: SnapshotMeta, name: str) -> None:
    taken = SnapshotTaken(
        position=meta.position, state_hash=meta.state_hash, log_hash=meta.log_hash, name=name, size_bytes=1
    )
    commit, expected = next_commit(folded(around), Producer.SNAPSHOTTER, Epoch(1), Append(events=(taken,)), UnixMs(1))
    around.memory.append(commit.producer.value, encode_commit(commit), expected_last=expected)


async def grow(around: Any, goal: int, until: Any, running: Any) -> State:
    """A log in which a counter has come to its goal."""
    host, _, _ = around.host(lambda state: Counter(state, goal))
    async with running(host):
        await until(lambda: len(host.state.namespaces) == goal)
    return folded(around)


async def test_a_start_from_a_snapshot_gives_the_same_state_as_folding_everything(around, until, running) -> None:
    """Only the tail is folded."""
    await store_snapshot(around, await grow(around, 5, until, running))
    await grow(around, 8, until, running)
    host, status, _ = around.host(lambda state: Counter(state, 0))
    async with running(host):
        await until(lambda: status.phase is Phase.LEADING)
    assert fold.state_hash(host.state) == fold.state_hash(folded(around))
    assert status.counters.commits_folded < around.memory.last_seq()


async def test_a_damaged_snapshot_is_passed_over_for_an_older_one(around, until, running, caplog) -> None:
    """A snapshot is never the truth: what is wrong with it costs time and nothing else."""
    await store_snapshot(around, await grow(around, 3, until, running))
    state = await grow(around, 6, until, running)
    meta, blob = store.pack(state, log_identity="memory", taken_ms=UnixMs(1))
    await around.blobs.put("state-damaged", blob[:-1] + b" ", position=meta.position)
    restored, used = await store.newest(around.log, around.blobs, "main")
    assert used is not None
    assert used.position == 4 == restored.position
    assert "state-damaged is passed over" in caplog.text


async def test_a_snapshot_that_the_log_does_not_name_is_passed_over(around, until, running, caplog) -> None:
    """Its blob is stored before its event: a crash between the two leaves a blob without an event."""
    state = await grow(around, 3, until, running)
    _, blob = store.pack(state, log_identity="memory", taken_ms=UnixMs(1))
    await around.blobs.put("state-4", blob, position=state.position)
    restored, used = await store.newest(around.log, around.blobs, "main")
    assert (used, restored.position) == (None, 0)
    assert "state-4 is passed over: the log has no snapshot.taken for it" in caplog.text
    later = await grow(around, 6, until, running)
    await store_snapshot(around, later)
    assert (await store.newest(around.log, around.blobs, "main"))[0].position == later.position


async def test_a_snapshot_that_was_changed_with_all_its_hashes_is_not_believed(around, until, running, caplog) -> None:
    """The log names the hash that the state had; another state, however well made, is passed over."""
    state = await grow(around, 3, until, running)
    await store_snapshot(around, state)
    state.namespaces["forged"] = NamespaceRecord()
    _, forged = store.pack(state, log_identity="memory", taken_ms=UnixMs(1))
    await around.blobs.put("state-4", forged, position=state.position)
    restored, used = await store.newest(around.log, around.blobs, "main")
    assert (used, restored.position) == (None, 0)
    assert "state-4 is passed over: it was changed after it was taken" in caplog.text


async def test_a_snapshot_of_an_earlier_format_is_passed_over(around, until, running) -> None:
    """What a former version left out of the state cannot be made up from its snapshot."""
    meta, blob = store.pack(await grow(around, 3, until, running), log_identity="memory", taken_ms=UnixMs(1))
    former = msgspec.json.encode(msgspec.structs.replace(meta, format=1)) + blob[blob.index(b"\n") :]
    await around.blobs.put("state-4", former, position=meta.position)
    announce(around, meta, "state-4")
    assert (await store.newest(around.log, around.blobs, "main"))[1] is None


@pytest.mark.parametrize("damage", ["shorter", "another stream", "another commit"])
async def test_a_log_that_a_snapshot_proves_damaged_stops_the_process(around, until, running, damage) -> None:
    """A stream shorter than a snapshot, another one, or with another commit there, is an error with the remedy."""
    state = await grow(around, 5, until, running)
    if damage == "another commit":
        state.producers[Producer.INFORMER_BRIDGE].last_hash = "0" * 32
    await store_snapshot(around, state)
    if damage == "shorter":
        around.memory.lose_suffix(2)
    elif damage == "another stream":
        around.memory.identity = "later"
    host, _, _ = around.host(lambda state: Counter(state, 0))
    with pytest.raises(LogShorterThanSnapshotError, match="headgate restore"):
        await host.run()


@pytest.mark.parametrize("damage", ["the end is torn", "the middle is gone"])
async def test_a_log_that_cannot_be_delivered_stops_the_process_before_it_stands(
    around, until, running, damage
) -> None:
    """Also where a snapshot would let it begin behind the gap."""
    state = await grow(around, 5, until, running)
    await store_snapshot(around, state)
    last = around.memory.last_seq()
    if damage == "the end is torn":
        around.memory.tear_end(2)
        expected = f"the log ends at {last - 2}, the stream claims {last}"
    else:
        around.memory.lose_middle(2, 3)
        expected = "entry 2 is missing, the next one there is 4"
    host, _, _ = around.host(lambda state: Counter(state, 0))
    with pytest.raises(LogDamaged, match=expected):
        await host.run()


async def test_a_leader_whose_own_last_commit_is_gone_stops(around, until, running) -> None:
    """A subject that ends before our last append is not due to a rival: entries are lost, and the process stops."""
    host, _, _ = around.host(lambda state: Counter(state, 6), log=Forgetful(around, at=3))
    with pytest.raises(BaseExceptionGroup) as caught, anyio.fail_after(10):
        await host.run()
    assert isinstance(only(caught.value), LogTruncated)
    assert "headgate restore" in str(only(caught.value))


async def test_an_unreadable_entry_stops_the_process(around, running) -> None:
    """What cannot be read is never skipped."""
    around.memory.append("scheduler", b'{"events":[{"type":"no.such"}]}', expected_last=0)
    host, _, _ = around.host(lambda state: Counter(state, 0))
    with pytest.raises(BaseExceptionGroup) as caught:
        await host.run()
    assert isinstance(only(caught.value), UnreadableCommitError)


async def test_a_commit_on_anothers_subject_stops_the_process(around, until, running) -> None:
    """The subject is what the broker fenced; an envelope with another producer is a broken log."""
    await grow(around, 2, until, running)
    payload = around.memory.read(1)[0].payload
    around.memory.append("binder", payload, expected_last=0)
    host, _, _ = around.host(lambda state: Counter(state, 0))
    with pytest.raises(BaseExceptionGroup) as caught:
        await host.run()
    assert isinstance(only(caught.value), BrokenLogError)


async def test_a_lease_whose_store_was_lost_is_outbid_by_the_log(around, until, running) -> None:
    """A new store of leases starts at epoch 1; the log's epoch is used instead, so the fence never goes back."""
    await grow(around, 3, until, running)
    around.leases = type(around.leases)()
    await grow(around, 6, until, running)
    assert folded(around).producers[Producer.INFORMER_BRIDGE].epoch == 2


class Slow(AsyncMemoryLog):
    """A log whose appends after the first wait for the gate."""

    def __init__(self, around: Any) -> None:
        super().__init__(around.memory)
        self.gate = anyio.Event()
        self.waiting = 0
        self.first = True

    async def append(self, producer: str, payload: bytes, *, expected_last: int, commit_id: str) -> AppendOutcome:
        if not self.first:
            self.waiting += 1
            await self.gate.wait()
        self.first = False
        return await super().append(producer, payload, expected_last=expected_last, commit_id=commit_id)


async def test_a_stop_waits_for_the_append_under_way(around, until, running) -> None:
    """What was sent is in the log, and folded, when `run` returns; nothing is decided after the stop."""
    log = Slow(around)
    host, _, _ = around.host(lambda state: Counter(state, 10), log=log)
    async with running(host):
        await until(lambda: log.waiting == 1)
        host.stop()
        log.gate.set()
    assert len(folded(around).namespaces) == 1 == len(host.state.namespaces)
    assert (await around.leases.holder("informer-bridge")).holder == ""


async def test_a_leader_without_its_lease_awaits_its_append_and_steps_down(around, until, running, caplog) -> None:
    """An append that hangs while another leads is refused by the log when it arrives, not by a flag in memory."""
    log = Slow(around)
    first, status, _ = around.host(lambda state: Counter(state, 10), log=log, holder="one")
    second, _, _ = around.host(lambda state: Counter(state, 4), holder="two")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run)
        await until(lambda: log.waiting == 1)
        around.leases.register("informer-bridge")._registered = type(
            around.leases.register("informer-bridge").read_now()
        )(99, None)
        tasks.start_soon(second.run)
        await until(lambda: len(second.state.namespaces) == 4)
        assert status.counters.appends_refused == 0
        log.gate.set()
        await until(lambda: status.counters.appends_refused == 1)
        await until(lambda: status.phase is Phase.STANDBY)
        first.stop()
        second.stop()
    assert len(folded(around).namespaces) == 4
    assert "our epoch 1 is over" in caplog.text


async def test_two_processes_of_one_name_take_turns_and_say_so(around, until, running, caplog) -> None:
    """A name given twice deposes its twin at every start; they do it slowly, lose nothing, and log the reason."""
    first, _, _ = around.host(lambda state: Counter(state, 3), holder="twin")
    second, _, _ = around.host(lambda state: Counter(state, 6), holder="twin")
    async with running(first):
        await until(lambda: len(first.state.namespaces) == 3)
        async with running(second):
            await until(lambda: len(first.state.namespaces) == 6)
            await until(lambda: "another process leads under our name twin" in caplog.text)
    assert folded(around).producers[Producer.INFORMER_BRIDGE].epoch < 6


class Careful:
    """Appends n1, n2, ... up to a goal, but those in quarantine; fails over n3, and may say so."""

    def __init__(self, state: State, goal: int = 9, *, fails: bool = True, names_it: bool = True) -> None:
        self.state = state
        self.goal = goal
        self.fails = fails
        self.names_it = names_it

    def decide(self, stimulus: Any) -> list[Any]:
        if not isinstance(stimulus, Settled):
            return []
        if self.fails and "n3" in self.state.namespaces:
            self.look_at_n3()
        for name in (f"n{number}" for number in range(1, self.goal + 1)):
            if name not in self.state.namespaces and f"Namespace/{name}" not in self.state.quarantine:
                return [Append(events=(NamespaceObserved(name=name),))]
        return []

    def look_at_n3(self) -> None:
        if not self.names_it:
            raise KeyError("planted")
        if not quarantine.is_aside(self.state, "Namespace", "n3", Producer.INFORMER_BRIDGE):
            with about("Namespace", "n3"):
                raise KeyError("planted")


async def test_what_a_machine_fails_over_is_set_aside_and_the_term_goes_on(around, until, running, caplog) -> None:
    """One object, one event, another machine, the same epoch; a standby reads it from the log."""
    host, status, _ = around.host(Careful)
    standby, _, _ = around.host(Careful, holder="two")
    async with running(host):
        await until(lambda: len(host.state.namespaces) == 9)
        assert status.phase is Phase.LEADING
        async with running(standby):
            await until(lambda: standby.state.position == host.state.position)
    (record,) = host.state.quarantine.values()
    assert (record.kind, record.key, record.process) == ("Namespace", "n3", "informer-bridge")
    assert record.error == "KeyError: 'planted'"
    assert host.state.producers[Producer.INFORMER_BRIDGE].epoch == 1
    assert "Namespace/n3 is in quarantine; see `headgate quarantine`" in caplog.text
    assert fold.state_hash(folded(around)) == fold.state_hash(host.state)


async def test_another_version_tries_again_what_one_has_failed_over(around, until, running, monkeypatch) -> None:
    """When it begins to lead, before it makes its machine."""
    host, _, _ = around.host(Careful)
    async with running(host):
        await until(lambda: len(host.state.namespaces) == 9)
    monkeypatch.setattr(quarantine, "VERSION", "mended")
    mended, status, _ = around.host(lambda state: Careful(state, 10, fails=False))
    async with running(mended):
        await until(lambda: len(mended.state.namespaces) == 10 and status.phase is Phase.LEADING)
        assert mended.state.quarantine == {}


async def test_one_defect_sets_no_more_aside_than_the_limit(around, monkeypatch) -> None:
    """Then the process stops, and reports the defect, the number of objects, and the remedy."""
    monkeypatch.setattr(quarantine_limit, "LIMIT_MIN", 4)

    class Careless(Careful):
        def decide(self, stimulus: Any) -> list[Any]:
            for number in range(1, 9) if isinstance(stimulus, Settled) else ():
                name = f"n{number}"
                if not quarantine.is_aside(self.state, "Namespace", name, Producer.INFORMER_BRIDGE):
                    with about("Namespace", name):
                        raise KeyError("planted")
            return []

    host, _, _ = around.host(Careless)
    with pytest.raises(BaseExceptionGroup) as caught:
        await host.run()
    error = only(caught.value)
    assert isinstance(error, TooManyFailedError)
    assert "has put 4 objects in quarantine with the same failure, and fails on Namespace n5, too" in str(error)
    assert len(folded(around).quarantine) == 4


async def test_a_call_that_cannot_be_made_costs_its_object(around, until, running, monkeypatch) -> None:
    """A machine's body that no JSON can be made of, and the end of a call that the machine fails at."""

    class Calling(Careful):
        def decide(self, stimulus: Any) -> list[Any]:
            if isinstance(stimulus, Completed):
                raise KeyError("planted")
            if not isinstance(stimulus, Settled):
                return []
            return [
                Call(id=name, method="PATCH", path=f"/api/v1/nodes/{name}", body=body)
                for name, body in (("sound", {}), ("unsendable", {"oops": KeyError}))
                if not quarantine.is_aside(self.state, "Node", name, Producer.INFORMER_BRIDGE)
            ]

    async def encode(call: Call) -> Completed:
        body_of(call)
        return Completed(call.id, 200)

    host, status, carrier = around.host(Calling)
    monkeypatch.setattr(carrier, "call", encode)
    async with running(host):
        await until(lambda: set(host.state.quarantine) == {"Node/sound", "Node/unsendable"})
        await until(lambda: status.phase is Phase.LEADING)
    assert host.state.producers[Producer.INFORMER_BRIDGE].epoch == 1


async def test_what_names_no_object_stops_the_process(around) -> None:
    """There is no object to set aside."""
    host, _, _ = around.host(lambda state: Careful(state, names_it=False))
    with pytest.raises(BaseExceptionGroup) as caught:
        await host.run()
    assert isinstance(only(caught.value), KeyError)


async def test_what_cannot_be_folded_is_set_aside_by_every_process(around, until, running, monkeypatch) -> None:
    """By leader, standby, and one that folds from the start of the log later; then a corrected one folds it."""
    handler = fold.HANDLERS[NamespaceObserved]

    def broken(state: State, event: Any, *rest: Any) -> None:
        handler(state, event, *rest)
        if event.name == "n3":
            raise KeyError("planted")

    def host_of(holder: str) -> Any:
        return around.host(lambda state: Careful(state, fails=False), holder=holder)

    with monkeypatch.context() as planted:
        planted.setitem(fold.HANDLERS, NamespaceObserved, broken)
        first, status, _ = host_of("one")
        second, _, _ = host_of("two")
        async with running(first), running(second):
            await until(lambda: len(first.state.namespaces) == 8 and status.phase is Phase.LEADING)
            await until(lambda: second.state.position == first.state.position)
        late, _, _ = host_of("three")
        async with running(late):
            await until(lambda: late.is_leading)
            assert list(late.state.quarantine) == ["Namespace/n3"]
        assert fold.state_hash(second.state) == fold.state_hash(first.state)
        assert late.state.namespaces == first.state.namespaces
    mended, _, _ = host_of("four")
    async with running(mended):
        await until(lambda: mended.is_leading)
        assert len(mended.state.namespaces) == 9
        assert mended.state.quarantine == {}
