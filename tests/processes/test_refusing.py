"""What others publish into a running cell's log stops no process, and costs it neither its term nor a decision."""

from typing import Any

import msgspec
import pytest
from tests.processes.runtime.test_host import grow
from tests.support.toys import Counter

from headgate.adapters.log import AppendOutcome
from headgate.core import fold
from headgate.core.log.refusal import has_refused
from headgate.core.machine.commits import next_commit
from headgate.core.machine.contract import Append, Command, Committed, Stimulus
from headgate.core.state.tables import Identity, NamespaceRecord, State
from headgate.events.base import Producer
from headgate.events.commit import decode_entry, encode_commit
from headgate.events.effects import SnapshotTaken
from headgate.events.identity import CellFounded
from headgate.events.ids import Epoch, Seq, UnixMs
from headgate.events.signing import Signer
from headgate.processes.runtime.host_parts import Trust
from headgate.processes.runtime.settings import KeysSettings, SettingsError
from headgate.processes.runtime.signing_keys import (
    ProcessKeys,
    UnknownKeyError,
    finish,
    generate,
    load,
    read_public,
    rotate,
)
from headgate.processes.snapshots import store
from headgate.testing.memory_log import AsyncMemoryLog

pytestmark = pytest.mark.anyio
BRIDGE, SNAPSHOTTER = Producer.INFORMER_BRIDGE, Producer.SNAPSHOTTER
SIGNERS = {producer: Signer([bytes([number]) * 32]) for number, producer in enumerate(Producer, 1)}
PUBLIC = {producer.value: signer.public for producer, signer in SIGNERS.items()}
KEYS = {producer: ProcessKeys(producer, signer, PUBLIC) for producer, signer in SIGNERS.items()}


def folded(around: Any) -> State:
    state = fold.new_state("main")
    for entry in around.memory.read(1):
        fold.apply(state, decode_entry(entry.seq, entry.subject, entry.payload, entry.time_ms))
    return state


def found(around: Any) -> None:
    """The bridge's first commit, by which commits have to be signed."""
    founded = CellFounded(cell="main", cluster="c", stream="s", log_id="l", keys=PUBLIC, signing="required")
    append = Append(events=(founded,))
    commit, expected = next_commit(folded(around), BRIDGE, Epoch(1), append, UnixMs(1))
    around.memory.append(BRIDGE.value, encode_commit(commit), expected_last=expected)


async def test_a_foreign_message_stops_no_process(around, until, running, caplog) -> None:
    """Neither one from before the start nor one that comes while it leads; readiness reports it and stays."""
    around.memory.publish("headgate.main.log.foo", b"before")
    host, status, _ = around.host(lambda state: Counter(state, 5))
    async with running(host):
        await until(lambda: len(host.state.namespaces) == 5)
        around.memory.publish("headgate.main.log.foo", b"live")
        await until(lambda: status.counters.entries_refused == 2)
        report = status.report()
        assert report.ready
        assert "2 entries of the log are not of it and are refused" in report.notices[0]
        assert host.is_leading
    again, _, _ = around.host(lambda state: Counter(state, 8))
    async with running(again):
        await until(lambda: len(again.state.namespaces) == 8)
    assert "none of the subjects of this cell's log" in caplog.text


class Disturbed(AsyncMemoryLog):
    """A log in which a client without a key publishes on the producer's subject just before some of its appends."""

    def __init__(self, around: Any, at: tuple[int, ...]) -> None:
        super().__init__(around.memory)
        self.appends = 0
        self.at = at

    async def append(self, producer: str, payload: bytes, *, expected_last: int, commit_id: str) -> AppendOutcome:
        self.appends += 1
        if self.appends in self.at:
            self.memory.publish(self.subject(producer), payload.replace(b'{"sig":', b'{"gis":'))
        return await super().append(producer, payload, expected_last=expected_last, commit_id=commit_id)


class Told(Counter):
    """A counter that does not get refused entries, like machines."""

    def decide(self, stimulus: Stimulus) -> list[Command]:
        if isinstance(stimulus, Committed):
            assert not has_refused(self.state, stimulus.logged.seq)
            self.seen = Seq(stimulus.logged.seq - 1)
        return super().decide(stimulus)


async def test_an_append_that_a_forgery_got_in_the_way_of_is_made_behind_it(around, until, running) -> None:
    """The decision holds, and so does the term: the same commit, on the log as it is now."""
    found(around)
    log = Disturbed(around, at=(1, 3, 4, 6))
    host, status, _ = around.host(lambda state: Told(state, 6), log=log, trust=Trust(sign=KEYS[BRIDGE].sign))
    async with running(host):
        await until(lambda: len(host.state.namespaces) == 6)
    state = folded(around)
    assert (status.counters.appends_refused, status.counters.terms) == (4, 1)
    assert state.refused is not None
    assert state.refused.count == 4
    assert state.producers[BRIDGE].number == 8
    assert fold.encode(state) == fold.encode(host.state)


def founded(around: Any) -> Identity:
    identity = folded(around).identity
    assert identity is not None
    return identity


async def test_a_process_without_the_logs_key_says_so(around) -> None:
    """No key, or another one: one line that names the setting and the keys."""
    found(around)
    stranger = Signer([b"x" * 32])
    with pytest.raises(UnknownKeyError, match=r"takes signed commits only, and the binder has no key: .*keys\.private"):
        ProcessKeys(Producer.BINDER, None, {}).check(founded(around))
    with pytest.raises(UnknownKeyError, match=r"the log does not know the key of the binder in b\.key"):
        ProcessKeys(Producer.BINDER, stranger, {}, origin="b.key").check(founded(around))
    KEYS[Producer.BINDER].check(founded(around))


async def test_a_snapshot_needs_the_snapshotters_signed_word(around, until, running) -> None:
    """A client that can write snapshots and publish, but has no key, cannot make a process use a false state."""
    state = await grow(around, 3, until, running)
    state.namespaces["forged"] = NamespaceRecord()
    meta, blob = store.pack(state, log_identity="memory", taken_ms=UnixMs(1))
    await around.blobs.put("state-4", blob, position=meta.position)
    taken = SnapshotTaken(
        position=meta.position, state_hash=meta.state_hash, log_hash=meta.log_hash, name="state-4", size_bytes=1
    )
    commit, _ = next_commit(folded(around), SNAPSHOTTER, Epoch(1), Append(events=(taken,)), UnixMs(1))
    around.memory.publish("headgate.main.log.snapshotter", encode_commit(commit))
    believed, _ = await store.newest(around.log, around.blobs, "main")
    assert "forged" in believed.namespaces
    state, used = await store.newest(around.log, around.blobs, "main", trusts=KEYS[BRIDGE].vouches)
    assert (used, state.namespaces) == (None, {})
    around.memory.publish("headgate.main.log.snapshotter", SIGNERS[SNAPSHOTTER].sign(encode_commit(commit)))
    _, used = await store.newest(around.log, around.blobs, "main", trusts=KEYS[BRIDGE].vouches)
    assert used is not None


async def test_key_files_are_private_and_rotate(tmp_path) -> None:
    """Generated once, readable by their owner; while they are rotated the newer one signs once it is in the log."""
    first = generate(tmp_path)
    assert generate(tmp_path) == first == read_public(tmp_path / "public.json")
    assert {file.stat().st_mode & 0o777 for file in tmp_path.glob("*.key")} == {0o600}
    settings = KeysSettings(private=str(tmp_path / "binder.key"), public=str(tmp_path / "public.json"))
    before = load(settings, Producer.BINDER)
    both = rotate(tmp_path)
    assert all(both[name][1:] == first[name] for name in first)
    rotated = load(settings, Producer.BINDER)
    identity = Identity(cell="main", cluster="c", stream="s", log_id="l", keys=first, signing="required")
    state = fold.new_state("main")
    state.identity = identity
    assert rotated.sign(state, b'{"a":1}') == before.sign(state, b'{"a":1}')
    state.identity = Identity(cell="main", cluster="c", stream="s", log_id="l", keys=both, signing="required")
    assert rotated.sign(state, b'{"a":1}') != before.sign(state, b'{"a":1}')
    latest = finish(tmp_path)
    assert latest == {name: keys[:1] for name, keys in both.items()}
    changed = load(msgspec.structs.replace(settings, private=str(tmp_path / "informer-bridge.key")), BRIDGE).change(
        identity
    )
    assert changed is not None
    assert changed.keys == latest
    with pytest.raises(SettingsError, match="give the process its own file"):
        load(settings, Producer.SCHEDULER)
