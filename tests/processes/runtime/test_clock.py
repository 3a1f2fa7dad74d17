"""A process whose clock is wrong steps down and reports it; one whose clock is right is not disturbed by others'."""

from typing import Any

import pytest
from tests.support.toys import Recorder

from headgate.core import fold
from headgate.core.log.log_time import CLOCK_SKEW_MS_MAX
from headgate.core.machine.commits import next_commit
from headgate.core.machine.contract import Append, Settled, WakeAt
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import decode_commit, encode_commit
from headgate.events.facts import NamespaceObserved
from headgate.events.ids import Epoch, UnixMs
from headgate.processes.runtime.host import Host
from headgate.processes.runtime.process_status import Phase, Status

pytestmark = pytest.mark.anyio

START_MS = 1_700_000_000_000
DAYS_1000_MS = 1000 * 86_400_000


class Times:
    """The clocks of a cell: `wall` is the process's own, `broker` the broker's, `mono` runs on its own."""

    def __init__(self, around: Any) -> None:
        self.around = around
        self.wall = self.broker = self.others = START_MS
        self.mono = 7
        around.memory.now_ms = lambda: self.broker

    def host(self, make: Any, **more: Any) -> tuple[Host, Status]:
        host, status, _ = self.around.host(make, now_ms=lambda: self.wall, mono_ms=lambda: self.mono, **more)
        return host, status

    def advance(self, by_ms: int) -> None:
        self.wall, self.broker, self.others, self.mono = (
            each + by_ms for each in (self.wall, self.broker, self.others, self.mono)
        )

    def other_commits(self, producer: Producer = Producer.BINDER) -> None:
        """Another producer appends something, by its clock."""
        state: State = fold.new_state("main")
        for entry in self.around.memory.read(1):
            fold.apply(state, decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms))
        events = (NamespaceObserved(name=f"other-{state.position}"),)
        commit, expected = next_commit(state, producer, Epoch(1), Append(events=events), UnixMs(self.others))
        self.around.memory.append(producer.value, encode_commit(commit), expected_last=expected)


@pytest.mark.parametrize("by_ms", [DAYS_1000_MS, -DAYS_1000_MS])
async def test_a_leader_whose_clock_jumps_steps_down_and_comes_back(around, until, running, caplog, by_ms) -> None:
    """It is not ready and reports by how much its clock is off; it is ready again once the clock is right."""
    times = Times(around)
    host, status = times.host(lambda state: Recorder(state, [[]] * 1000))
    async with running(host):
        await until(lambda: status.phase is Phase.LEADING)
        times.other_commits()
        await until(lambda: host.state.position == 2)
        assert status.report().ready
        times.wall += by_ms
        times.other_commits()
        await until(lambda: status.phase is Phase.STANDBY)
        assert not status.report().ready
        assert "the clock of this machine is 86400000 s" in status.problems["clock"]
        assert status.counters.clock_off == 1
        times.wall -= by_ms
        await until(lambda: status.phase is Phase.LEADING)
        assert status.report().ready
        assert status.counters.clock_off == 0
    assert host.state.producers[Producer.INFORMER_BRIDGE].epoch == 2
    assert abs(host.state.now_ms - times.others) <= CLOCK_SKEW_MS_MAX
    assert "the clocks agree again" in caplog.text or "until then this process does not lead" in caplog.text


async def test_a_process_that_starts_with_a_wrong_clock_moves_nothing(around, until, running) -> None:
    """Without a commit of others yet it leads; what it decides and writes is held back by the broker's clock."""
    times = Times(around)
    times.wall += DAYS_1000_MS
    machines: list[Recorder] = []

    def make(state: State) -> Recorder:
        machines.append(Recorder(state, [[]] * 1000))
        return machines[-1]

    host, status = times.host(make)
    async with running(host):
        await until(lambda: status.phase is Phase.LEADING)
        await until(lambda: machines[0].of(Settled))
    (settled, *_) = machines[0].of(Settled)
    assert settled.now_ms <= times.broker + CLOCK_SKEW_MS_MAX
    assert host.state.now_ms <= times.broker + CLOCK_SKEW_MS_MAX


@pytest.mark.parametrize("whose", ["broker", "others"])
async def test_a_wrong_clock_of_somebody_else_is_no_reason_to_stop(around, until, running, whose: str) -> None:
    """A leader whose own clock is right continues, and the time of its commits is its own."""
    times = Times(around)
    host, status = times.host(lambda state: Recorder(state, [[]] * 1000))
    async with running(host):
        await until(lambda: status.phase is Phase.LEADING)
        times.other_commits(Producer.SNAPSHOTTER)
        times.other_commits(Producer.QUEUE_MANAGER)
        setattr(times, whose, START_MS + DAYS_1000_MS)
        for _ in range(3):
            times.other_commits()
        await until(lambda: host.state.position == around.memory.last_seq())
        assert status.phase is Phase.LEADING
        assert status.report().ready
    assert host.state.producers[Producer.INFORMER_BRIDGE].epoch == 1


async def test_a_time_that_was_waited_for_comes_although_the_clock_was_set_back(around, until, running) -> None:
    """The timer rings too early by the clock that was wrong when it was set, and is set again."""
    times = Times(around)
    machines: list[Recorder] = []

    def make(state: State) -> Recorder:
        machines.append(Recorder(state, [[WakeAt(UnixMs(START_MS + 300))], [], []]))
        return machines[-1]

    host, status = times.host(make)
    async with running(host):
        await until(lambda: status.phase is Phase.LEADING)
        asked = len(machines[0].of(Settled))
        times.wall -= 200
        await until(lambda: host._term is not None and host._term._timer.is_set)
        times.advance(600)
        await until(lambda: len(machines[0].of(Settled)) > asked)
    assert machines[0].of(Settled)[-1].now_ms >= START_MS + 300
