"""A table whose records may be at rest answers like a dict, and what the fold writes to a record stays."""

import sys

import msgspec
import pytest
from tests.core.fold.test_fold import a_life, with_queue

from headgate.core import fold
from headgate.core.state import resting
from headgate.core.state.records import AtRest, Records
from headgate.core.state.tables import JobRecord, Stage, State, Workload
from headgate.events.ids import JobKey, Seq, Uid, UnixMs, WorkloadKey
from headgate.events.objects import OwnerReference, WorkloadSpec

KEYS = [WorkloadKey(f"ns/job-a{n}-12345") for n in range(5)]


def a_workload(key: WorkloadKey) -> Workload:
    return Workload(key=key, uid=Uid("7a1c0000-0000-4000-8000-000000000001"), created_ms=UnixMs(5), spec=WorkloadSpec())


def queued(awake_max: int = 0) -> Records[WorkloadKey, Workload]:
    """A table of five queued workloads."""
    table: Records[WorkloadKey, Workload] = Records(resting._Workloads().pack, awake_max=awake_max)
    for key in KEYS:
        table[key] = a_workload(key)
        table[key].stage = Stage.QUEUED
    for key in KEYS:
        table.touch(key)
    return table


def at_rest(table: Records[WorkloadKey, Workload]) -> list[WorkloadKey]:
    return [key for key in table if isinstance(table.peek(key), AtRest)]


def test_a_record_at_rest_comes_back_as_it_was() -> None:
    """Every field, whatever its value."""
    changed = {
        "uid": Uid("no uuid"),
        "owner": OwnerReference(api_version="v1", kind="Job", name="other", uid="u"),
        "labels": {"a": "1", "b": "2", "c": "3"},
        "annotations": {"x": "u"},
        "queued_at_ms": UnixMs(9),
        "last_seq": Seq(8),
        "offered_no": 3,
        "applied": "digest",
        "unhealthy_nodes": ("n1",),
        "arrival": 77,
    }
    table = queued()
    for field, value in changed.items():
        setattr(table[KEYS[0]], field, value)
    before = msgspec.json.encode(table[KEYS[0]])
    table.touch(KEYS[0])
    assert at_rest(table) == KEYS
    assert msgspec.json.encode(table[KEYS[0]]) == before


def test_what_is_written_to_a_record_stays() -> None:
    """A record that was asked for is the table's own, also while all are gone through."""
    table = queued()
    table[KEYS[1]].generation = 7
    for workload in table.values():
        workload.priority += 1
    assert [workload.priority for workload in table.values()] == [1] * 5
    assert table[KEYS[1]].generation == 7
    kept = list(table.values())
    kept[3].generation = 9
    assert table[KEYS[3]] is kept[3]
    assert list(table) == KEYS, "in the order of insertion"


def test_a_record_that_is_referred_to_does_not_rest() -> None:
    """Whoever has one may write to it."""
    table = queued()
    held = table[KEYS[2]]
    for _ in range(3):
        for key in KEYS:
            table.touch(key)
    assert at_rest(table) == [key for key in KEYS if key != KEYS[2]]
    assert table[KEYS[2]] is held


def test_a_small_table_does_not_rest() -> None:
    """Nothing is packed before there are many."""
    assert at_rest(queued(awake_max=100)) == []


@pytest.fixture
def little_stays_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every record goes to rest when the next comes."""

    def new_state(cell: str) -> State:
        workloads: Records[WorkloadKey, Workload] = Records(resting._Workloads().pack, awake_max=1)
        jobs: Records[JobKey, JobRecord] = Records(resting._Jobs().pack, awake_max=1)
        return State(cell=cell, workloads=workloads, jobs=jobs)

    monkeypatch.setattr(sys.modules["headgate.core.fold.applying"], "new_state", new_state)


@pytest.mark.usefixtures("little_stays_awake")
def test_no_encoded_byte_shows_who_rests() -> None:
    """Folded and restored with everything at rest, a state has the bytes of one where nothing is."""
    for log in (a_life(), with_queue(*(f"team-a/w{n}" for n in range(9)))):
        state = fold.applying.new_state("main")
        for logged in log.commits:
            fold.apply(state, logged)
        assert at_rest(state.workloads) or len(state.workloads) < 3
        assert fold.encode(state) == fold.encode(log.state)
        assert fold.encode(fold.restore("main", fold.encode(state))) == fold.encode(log.state)
