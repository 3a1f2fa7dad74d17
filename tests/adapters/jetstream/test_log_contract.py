"""What every log, every lease and every blob store promises, over JetStream and over memory."""

import random
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.adapters.jetstream import Connection, open_log
from headgate.adapters.jetstream.blobs import open_blobs
from headgate.adapters.jetstream.lease import open_leases
from headgate.adapters.lease import Lease, LeaseRecord
from headgate.adapters.log import (
    Appended,
    BlobNotFound,
    Blobs,
    CommitTooLarge,
    Conflict,
    EntryNotFound,
    Log,
    LogEntry,
    LogTruncated,
)
from headgate.testing.memory_log import AsyncMemoryLog, MemoryBlobs, MemoryLeases, MemoryLog

pytestmark = pytest.mark.anyio

both = pytest.mark.parametrize("kind", ["memory", "jetstream"])


@pytest.fixture
async def log(kind: str, cell: str, connection: Connection) -> Log:
    if kind == "memory":
        return AsyncMemoryLog(MemoryLog(cell))
    return await open_log(connection, cell)


async def append(log: Log, producer: str, *payloads: bytes) -> list[int]:
    """Appends the payloads after whatever the producer has; their sequences."""
    seqs = []
    for payload in payloads:
        outcome = await log.append(
            producer, payload, expected_last=await log.last_seq(producer), commit_id=payload.decode()
        )
        assert isinstance(outcome, Appended)
        seqs.append(outcome.seq)
    return seqs


async def everything(log: Log, start: int = 1, stop: int | None = None) -> list[LogEntry]:
    return [entry async for batch in log.read(start, stop=stop) for entry in batch]


@both
async def test_a_new_log_is_empty(log: Log) -> None:
    """Nothing is in it, and its first entry will be 1."""
    assert await log.last_seq() == 0
    assert await log.last_seq("scheduler") == 0
    assert await log.first_seq() == 1
    assert await everything(log) == []


@both
async def test_appends_are_read_back_in_one_total_order(log: Log) -> None:
    """Sequences run from 1 without gaps over all producers, and each entry names its producer."""
    assert await append(log, "scheduler", b"a", b"b") == [1, 2]
    assert await append(log, "binder", b"c") == [3]
    assert await append(log, "scheduler", b"d") == [4]
    entries = await everything(log)
    assert [(entry.seq, entry.payload) for entry in entries] == [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d")]
    assert [entry.subject.rpartition(".")[2] for entry in entries] == ["scheduler", "scheduler", "binder", "scheduler"]
    assert [entry.subject for entry in entries][2] == log.subject("binder")
    assert await log.last_seq() == 4
    assert await log.last_seq("binder") == 3
    assert await log.first_seq() == 1


@both
async def test_entries_are_stamped_with_the_time_of_their_storage(log: Log) -> None:
    """`get`, `read` and `tail` agree on an entry in every field."""
    await append(log, "scheduler", b"a", b"b")
    async with log.tail(1) as tail:
        tailed = await tail.receive()
    assert tailed[0] == (await everything(log))[0] == await log.get(1)


@both
async def test_read_keeps_to_its_bounds(log: Log) -> None:
    """Both ends are included; what is beyond the end is not waited for."""
    await append(log, "scheduler", *(b"%d" % n for n in range(1, 8)))
    assert [entry.seq for entry in await everything(log, 3, 5)] == [3, 4, 5]
    assert [entry.seq for entry in await everything(log, 6, 99)] == [6, 7]
    assert await everything(log, 8) == []


@both
async def test_an_append_at_an_old_position_is_refused(log: Log) -> None:
    """
    The fence: a writer who has not seen the producer's last commit does not land.

    The response has the last sequence of the subject.
    """
    [first] = await append(log, "scheduler", b"epoch 1")
    [second] = await append(log, "scheduler", b"epoch 2")
    outcome = await log.append("scheduler", b"epoch 1 again", expected_last=first, commit_id="x")
    assert outcome == Conflict(first, second)
    assert await log.append("scheduler", b"from nothing", expected_last=0, commit_id="y") == Conflict(0, second)
    assert len(await everything(log)) == 2


@both
async def test_producers_do_not_fence_each_other(log: Log) -> None:
    """Another producer's commits in between do not move a producer's own last sequence."""
    [mine] = await append(log, "scheduler", b"a")
    await append(log, "binder", b"b", b"c")
    assert await log.append("scheduler", b"d", expected_last=mine, commit_id="d") == Appended(4)


@both
async def test_the_same_append_again_is_the_same_append(log: Log) -> None:
    """
    A process that died before it saw the answer repeats its commit and gets the old position.

    Also when more was appended in between.
    """
    await append(log, "scheduler", b"a", b"b", b"c")
    assert await log.append("scheduler", b"b", expected_last=1, commit_id="b") == Appended(2)
    assert len(await everything(log)) == 3


@both
async def test_an_append_beyond_the_end_is_refused(log: Log) -> None:
    """A reader that expects more than there is has seen entries which the broker lost; the outcome shows it."""
    await append(log, "scheduler", b"a")
    assert await log.append("scheduler", b"b", expected_last=9, commit_id="b") == Conflict(9, 1)


@both
async def test_a_payload_the_broker_cannot_take_is_refused_at_once(log: Log) -> None:
    """The error requires a split; nothing is stored."""
    with pytest.raises(CommitTooLarge, match="split it"):
        await log.append("scheduler", bytes(2 * 1024 * 1024), expected_last=0, commit_id="big")
    assert await log.last_seq() == 0


@both
async def test_get_says_when_there_is_no_such_entry(log: Log) -> None:
    """Positions outside the log are an error, not an empty answer."""
    await append(log, "scheduler", b"a")
    for seq in (0, 2):
        with pytest.raises(EntryNotFound):
            await log.get(seq)


@both
async def test_the_next_entry_of_a_producer_is_found_without_reading_the_others(log: Log) -> None:
    """The first at or after a position, with other producers between; None when there is none."""
    for number, producer in enumerate(("binder", "scheduler", "binder", "scheduler", "scheduler")):
        await log.append(
            producer, b'{"n":%d}' % number, expected_last=await log.last_seq(producer), commit_id=f"c{number}"
        )
    for start, expected in ((1, 1), (2, 3), (3, 3), (4, None), (9, None)):
        entry = await log.next_of("binder", start)
        assert (entry.seq if entry is not None else None) == expected
    entry = await log.next_of("scheduler", 3)
    assert entry == await log.get(4)


@both
async def test_a_tail_gives_old_entries_and_then_new_ones(log: Log) -> None:
    """It starts at the given position, continues past the end without a gap, and reports how far behind it is."""
    await append(log, "scheduler", b"1", b"2", b"3")
    async with log.tail(2) as tail:
        assert tail.position == 1
        seen = await tail.receive()
        while len(seen) < 2:
            seen += await tail.receive()
        assert tail.caught_up
        assert tail.lag == 0
        await append(log, "binder", b"4")
        seen += await tail.receive()
        assert [entry.payload for entry in seen] == [b"2", b"3", b"4"]
        assert tail.position == 4


@both
async def test_a_tail_of_an_empty_log_waits_for_the_first_entry(log: Log) -> None:
    """Nothing is missed between the start of the tail and the first append."""
    async with log.tail(1) as tail, anyio.create_task_group() as tasks:
        tasks.start_soon(append, log, "scheduler", b"first")
        assert [entry.payload for entry in await tail.receive()] == [b"first"]


@both
async def test_a_tail_can_be_cancelled_while_it_waits(log: Log) -> None:
    """Cancellation loses nothing: the next receive continues where the last entry was."""
    async with log.tail(1) as tail:
        with anyio.move_on_after(0.05) as scope:
            await tail.receive()
        assert scope.cancelled_caught
        await append(log, "scheduler", b"a")
        assert [entry.seq for entry in await tail.receive()] == [1]


@both
async def test_reading_from_beyond_the_end_is_damage(log: Log) -> None:
    """A reader that has seen entry 4 of a log that ends at 1 must stop, with the remedy."""
    await append(log, "scheduler", b"a")
    with pytest.raises(LogTruncated, match="Stop every process"):
        await everything(log, 5)
    with pytest.raises(LogTruncated, match="headgate restore"):
        async with log.tail(5) as tail:
            await tail.receive()


@both
async def test_one_of_many_writers_at_the_same_position_wins(log: Log) -> None:
    """However many append at once for one producer, exactly one lands."""
    outcomes = []

    async def attempt(number: int) -> None:
        outcomes.append(await log.append("scheduler", b"%d" % number, expected_last=0, commit_id=str(number)))

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(attempt, number)
    assert [type(outcome) for outcome in outcomes].count(Appended) == 1
    assert await log.last_seq() == 1


@both
async def test_writers_that_retry_on_conflict_all_land(log: Log) -> None:
    """Reading the new position and trying again makes progress; nothing is lost or doubled."""

    async def write(number: int) -> None:
        for step in range(5):
            payload = b"%d.%d" % (number, step)
            while True:
                last = await log.last_seq("scheduler")
                outcome = await log.append("scheduler", payload, expected_last=last, commit_id=payload.decode())
                if isinstance(outcome, Appended):
                    break

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(write, number)
    payloads = [entry.payload for entry in await everything(log)]
    assert sorted(payloads) == sorted(b"%d.%d" % (number, step) for number in range(5) for step in range(5))


steps = st.lists(
    st.tuples(st.sampled_from(["scheduler", "binder"]), st.binary(max_size=4), st.integers(-2, 0)), max_size=12
)
examples = iter(range(1_000_000))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
async def test_memory_and_jetstream_answer_alike(
    connection: Connection, cell: str, steps: list[tuple[str, bytes, int]]
) -> None:
    """Any run of appends, at current or outdated positions, has the same outcomes and leaves the same log in both."""
    memory = AsyncMemoryLog(MemoryLog(f"{cell}-{next(examples)}"))
    broker = await open_log(connection, memory.memory.cell)
    for producer, payload, behind in steps:
        expected = max(await memory.last_seq(producer) + behind, 0)
        outcomes = [
            await log.append(producer, payload, expected_last=expected, commit_id="c") for log in (memory, broker)
        ]
        assert outcomes[0] == outcomes[1]
    contents = [[(e.seq, e.subject, e.payload) for e in await everything(log)] for log in (memory, broker)]
    assert contents[0] == contents[1]


# --- leases --------------------------------------------------------------------------------------------------------

Leases = Any


@pytest.fixture
async def leases(kind: str, cell: str, connection: Connection) -> Leases:
    if kind == "memory":
        return MemoryLeases()
    return await open_leases(connection, cell)


@both
async def test_epochs_only_rise(leases: Leases) -> None:
    """Each acquisition has a higher epoch than all before, also after a release, also for another holder."""
    epochs = []
    for holder in ("a", "b", "b", "a"):
        async with leases.lease("scheduler", holder).hold() as leadership:
            assert leadership.is_valid()
            epochs.append(leadership.epoch)
    assert epochs == [1, 2, 3, 4]
    async with leases.lease("scheduler", "a").hold(epoch_min=40) as leadership:
        assert leadership.epoch == 41


@both
async def test_leases_of_different_producers_are_independent(leases: Leases) -> None:
    """Two processes lead side by side if they are two producers."""
    async with leases.lease("scheduler", "a").hold() as one, leases.lease("binder", "b").hold() as other:
        assert one.epoch == other.epoch == 1
        assert (await leases.holder("binder")).holder == "b"


@both
async def test_a_released_lease_is_taken_without_waiting_for_its_term(leases: Leases) -> None:
    """A graceful stop hands over: the next holder comes at its next look, long before the term is over."""
    order = []

    async def follower() -> None:
        async with leases.lease("scheduler", "b", term_ms=400).hold() as leadership:
            order.append(("b leads", leadership.epoch))

    async with anyio.create_task_group() as tasks:
        async with leases.lease("scheduler", "a", term_ms=60_000).hold() as leadership:
            tasks.start_soon(follower)
            await anyio.sleep(0.25)
            order.append(("a leads", leadership.epoch))
        assert leadership.lost.is_set()
        assert not leadership.is_valid()
    assert order == [("a leads", 1), ("b leads", 2)]


@both
async def test_a_live_leader_keeps_its_lease(leases: Leases) -> None:
    """Renewals keep others out for longer than a term."""
    async with leases.lease("scheduler", "a", term_ms=1_000).hold() as leadership:
        with anyio.move_on_after(1.6):
            async with leases.lease("scheduler", "b", term_ms=1_000).hold():
                pytest.fail("two leaders")
        assert leadership.is_valid()


@both
async def test_the_restart_of_a_holder_takes_over_at_once(leases: Leases) -> None:
    """The same name need not wait for its former self, which learns of its end at its next renewal."""
    async with leases.lease("scheduler", "pod-0", term_ms=900).hold() as former:
        with anyio.fail_after(0.6):
            async with leases.lease("scheduler", "pod-0", term_ms=60_000).hold() as latter:
                assert latter.epoch == former.epoch + 1
                await former.lost.wait()
        assert "took the lease over" in former.why_lost


@both
async def test_a_dead_holder_is_replaced_after_its_term(leases: Leases) -> None:
    """A record that is not renewed expires once an observer has watched it for a term."""
    register = leases.register("scheduler")
    dead = LeaseRecord(holder="dead", epoch=7, term_ms=300, instance="x")
    assert await register.write(dead, expected=0) is not None
    async with leases.lease("scheduler", "b", term_ms=300).hold() as leadership:
        assert leadership.epoch == 8


@both
async def test_a_paused_holder_counts_itself_out_and_cannot_come_back(leases: Leases) -> None:
    """A holder frozen for longer than its term finds the lease lost when it thaws, and its renewal is refused."""
    clock_ms = [0]
    register = leases.register("scheduler")
    paused = Lease(register, "a", term_ms=60_000, now_ms=lambda: clock_ms[0])
    async with paused.hold() as leadership:
        assert leadership.is_valid()
        clock_ms[0] = 60_001
        async with leases.lease("scheduler", "a", term_ms=60_000).hold() as successor:
            assert not leadership.is_valid()
            assert leadership.lost.is_set()
            assert successor.epoch == leadership.epoch + 1
    assert (await leases.holder("scheduler")).epoch == successor.epoch


@both
async def test_one_of_many_candidates_leads_at_a_time(leases: Leases) -> None:
    """Many candidates take turns: the intervals of leadership never overlap and the epochs are those of the turns."""
    leading: list[int] = []
    turns: list[int] = []

    async def candidate(number: int) -> None:
        async with leases.lease("scheduler", f"c{number}", term_ms=120).hold() as leadership:
            leading.append(number)
            assert leading == [number]
            await anyio.sleep(0.01)
            turns.append(leadership.epoch)
            leading.remove(number)

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(candidate, number)
    assert turns == sorted(set(turns))
    assert len(turns) == 6


# --- blobs ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def blobs(kind: str, cell: str, connection: Connection) -> Blobs:
    if kind == "memory":
        return MemoryBlobs()
    return await open_blobs(connection, cell, chunk_bytes_max=1_000)


def noise(size: int) -> bytes:
    """Bytes that do not compress, the same each time."""
    return random.Random(size).randbytes(size)


@both
@pytest.mark.parametrize("data", [b"", b"x", bytes(100_000), noise(50_000)], ids=["empty", "one", "zeros", "noise"])
async def test_a_blob_comes_back_as_it_went_in(blobs: Blobs, data: bytes) -> None:
    """Whatever its size, and however well it compresses."""
    info = await blobs.put("s-1", data, position=17)
    assert (info.position, info.size_bytes) == (17, len(data))
    assert await blobs.get("s-1") == data
    assert [each.sha256 for each in await blobs.listing()] == [info.sha256]


@both
async def test_only_the_newest_blobs_are_kept(blobs: Blobs) -> None:
    """`keep_last` goes by position, not by the order of storing; what it removed is gone."""
    for position in (3, 1, 4, 2):
        await blobs.put(f"s-{position}", noise(5_000 + position), position=position)
    assert [info.position for info in await blobs.listing()] == [1, 2, 3, 4]
    assert await blobs.keep_last(2) == ["s-1", "s-2"]
    assert [info.name for info in await blobs.listing()] == ["s-3", "s-4"]
    assert await blobs.get("s-4") == noise(5_004)
    with pytest.raises(BlobNotFound):
        await blobs.get("s-1")


@both
async def test_storing_a_name_again_replaces_it(blobs: Blobs) -> None:
    """The last one stored is the one that is read."""
    await blobs.put("s", noise(9_000), position=1)
    await blobs.put("s", noise(4_000), position=2)
    assert await blobs.get("s") == noise(4_000)
    assert [info.position for info in await blobs.listing()] == [2]


@both
async def test_deleting_a_blob_removes_it_and_nothing_else(blobs: Blobs) -> None:
    """Deleting what is not there does nothing."""
    await blobs.put("a", b"a", position=1)
    await blobs.put("b", b"b", position=2)
    await blobs.delete("a")
    await blobs.delete("a")
    assert [info.name for info in await blobs.listing()] == ["b"]
    assert await blobs.get("b") == b"b"
