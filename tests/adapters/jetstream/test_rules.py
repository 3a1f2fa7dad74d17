"""
The parts without I/O.

The window of requests, the rules of leases, the health of dependencies, the memory log's damage.
"""

import asyncio

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.adapters.jetstream.health import Dependency, DependencyHealth
from headgate.adapters.jetstream.requests import Window
from headgate.adapters.lease import LeaseRecord, LeaseRules, Registered
from headgate.adapters.log import Appended, LogHole, LogTruncated
from headgate.testing.memory_log import AsyncMemoryLog, MemoryLog, MemoryRegister

# Each event: a candidate looks (and bids if it may) or its process is restarted, after some time has passed.
lease_events = st.lists(
    st.tuples(st.sampled_from(["look", "restart"]), st.sampled_from(["a", "b", "c"]), st.integers(0, 150)), max_size=60
)


@given(events=lease_events)
def test_epochs_rise_with_every_acquisition_whoever_bids(events: list[tuple[str, str, int]]) -> None:
    """Under any interleaving each successful bid has a higher epoch, and no live leader is deposed before its term."""
    term_ms, now_ms = 100, 0
    register, instance = MemoryRegister(), 0
    rules = {name: LeaseRules(name, name, term_ms) for name in "abc"}
    leader, written_at_ms, epochs = "", 0, []
    for what, name, passed_ms in events:
        now_ms += passed_ms
        if what == "restart":
            instance += 1
            rules[name] = LeaseRules(name, f"{name}{instance}", term_ms)
            continue
        seen = register.read_now()
        bid = rules[name].bid(seen, now_ms)
        if bid is None:
            assert leader not in ("", name)
            continue
        if leader not in ("", name):
            assert now_ms - written_at_ms > term_ms
        assert register.write_now(bid, expected=seen.revision) is not None
        leader, written_at_ms = name, now_ms
        epochs.append(bid.epoch)
    assert epochs == list(range(1, len(epochs) + 1))


def test_an_observer_counts_from_its_own_first_look() -> None:
    """
    However old the record is, it is valid until this observer has watched it for a term.

    A renewal starts that again.
    """
    record = LeaseRecord(holder="a", epoch=3, term_ms=1000)
    rules = LeaseRules("b", "i", 1000)
    assert rules.bid(Registered(5, record), 10_000) is None
    assert rules.bid(Registered(5, record), 11_000) is None
    assert rules.bid(Registered(6, LeaseRules.renewed(record)), 11_001) is None
    assert rules.bid(Registered(6, LeaseRules.renewed(record)), 12_001) is None
    bid = rules.bid(Registered(6, LeaseRules.renewed(record)), 12_002)
    assert bid is not None
    assert (bid.holder, bid.epoch) == ("b", 4)


def test_a_longer_term_in_the_record_is_respected() -> None:
    """The leader goes by the term that it wrote; an impatient observer waits for that one."""
    record = LeaseRecord(holder="a", epoch=1, term_ms=5000)
    rules = LeaseRules("b", "i", 100)
    assert rules.bid(Registered(1, record), 0) is None
    assert rules.bid(Registered(1, record), 5000) is None
    assert rules.bid(Registered(1, record), 5001) is not None


@pytest.mark.anyio
async def test_the_window_never_holds_more_than_its_bounds() -> None:
    """Messages and bytes are bounded, callers go in order, and a cancelled one leaves no room behind."""
    window = Window(messages_max=3, bytes_max=100)
    served: list[int] = []

    async def call(number: int, size: int) -> None:
        await window.enter(size)
        assert window.messages <= 3
        assert window.bytes <= 100 or window.messages == 1
        served.append(number)
        await asyncio.sleep(0)
        window.leave(size)

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(call, number, 400 if number % 10 == 0 else 30)
        await asyncio.sleep(0)
        with anyio.move_on_after(0) as impatient:
            await window.enter(30)
        assert impatient.cancelled_caught
    assert served == list(range(50))
    assert (window.messages, window.bytes, window.waiting) == (0, 0, 0)


@pytest.mark.anyio
async def test_a_caller_cancelled_in_line_lets_the_others_pass() -> None:
    """Room that was granted to a cancelled caller is given on."""
    window = Window(messages_max=1, bytes_max=100)
    await window.enter(1)
    waiting = [asyncio.ensure_future(window.enter(1)) for _ in range(3)]
    await asyncio.sleep(0)
    window.leave(1)
    waiting[0].cancel()
    waiting[1].cancel()
    await asyncio.wait(waiting)
    assert waiting[2].exception() is None
    assert (window.messages, window.waiting) == (1, 0)


def test_health_keeps_the_time_of_the_first_failure_in_a_row() -> None:
    """Changes are reported once; the error shown is the latest."""
    now_ms = iter(range(100, 1000, 100))
    told: list[Dependency] = []
    health = DependencyHealth(told.append, now_ms=lambda: next(now_ms))
    health.well("nats")
    health.unwell("nats", "refused")
    health.unwell("nats", "timed out")
    assert health.dependencies() == [Dependency(name="nats", ok=False, since_ms=200, error="timed out")]
    assert not health.ok
    health.well("nats")
    health.well("nats")
    assert [(each.ok, each.since_ms) for each in told] == [(True, 100), (False, 200), (True, 300)]
    assert health.ok


@pytest.mark.anyio
async def test_a_damaged_memory_log_is_not_read_on() -> None:
    """The twin loses its end and its middle as the broker would, and its readers stop alike."""
    memory = MemoryLog()
    for number in range(6):
        assert memory.append("a", b"%d" % number, expected_last=number) == Appended(number + 1)
    log = AsyncMemoryLog(memory)
    async with log.tail(1) as tail:
        assert len(await tail.receive()) == 6
        memory.lose_suffix(2)
        with pytest.raises(LogTruncated, match="ends at 4, but entries up to 6"):
            await tail.receive()
    memory.lose_middle(2, 2)
    async with log.tail(1) as tail:
        assert [entry.seq for entry in await tail.receive()] == [1]
        with pytest.raises(LogHole, match="entry 2 is missing"):
            await tail.receive()
    assert memory.last_seq("a") == 4
