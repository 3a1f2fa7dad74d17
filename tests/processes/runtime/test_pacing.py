"""The pace of a process: at once on an idle machine, in batches on a busy one."""

import pytest

from headgate.events.base import Producer
from headgate.processes.runtime.pacing import (
    HURRIED_S,
    LOOK_S,
    PAUSE_S,
    QUIET_AFTER_S,
    QUIET_PAUSE_S,
    CpuTimes,
    Pace,
    machine_times,
)

APART_S = PAUSE_S[Producer.BINDER]


class Machine:
    """A machine of which so large a share is idle, and a clock."""

    def __init__(self, idle: float) -> None:
        self.idle = idle
        self.now_s = 100.0
        self._idle_ticks = 0.0
        self._ticks = 0.0

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        self._ticks += 200 * seconds
        self._idle_ticks += 200 * seconds * self.idle

    def times(self) -> CpuTimes | None:
        return CpuTimes(idle=round(self._idle_ticks), total=round(self._ticks))

    def pace(self, producer: Producer = Producer.BINDER) -> Pace:
        return Pace(producer, self.times, lambda: self.now_s)


def paces(machine: Machine, pace: Pace, turns: int) -> list[float]:
    """The pauses before turns of 10 ms each."""
    pauses = []
    for _ in range(turns):
        pauses.append(pace.pause_s())
        machine.pass_s(pauses[-1] + 0.01)
    return pauses


def test_turns_begin_at_once_while_cpu_is_idle() -> None:
    """However many there are."""
    machine = Machine(idle=0.5)
    assert set(paces(machine, machine.pace(), 500)) == {0.0}


def test_on_a_busy_machine_turns_begin_a_pause_apart() -> None:
    """Counted from beginning to beginning, so a long turn is followed by the next at once."""
    machine = Machine(idle=0.0)
    pace = machine.pace()
    machine.pass_s(LOOK_S)
    assert pace.pause_s() == 0.0  # the last one was long ago
    machine.pass_s(0.01)
    assert paces(machine, pace, 20) == pytest.approx([APART_S - 0.01] * 20)
    machine.pass_s(2 * APART_S)
    assert pace.pause_s() == 0.0


@pytest.mark.parametrize("producer", Producer)
def test_who_has_not_acted_for_long_may_take_its_time(producer: Producer) -> None:
    """The ungater only: it waits for jobs; for every other process another component waits whenever it has work."""
    machine = Machine(idle=0.0)
    pace = machine.pace(producer)
    machine.pass_s(QUIET_AFTER_S)
    pace.pause_s()
    quiet_s = QUIET_PAUSE_S[producer] if producer is Producer.UNGATER else PAUSE_S[producer]
    assert paces(machine, pace, 20)[1:] == pytest.approx([max(0.0, quiet_s - 0.01)] * 19)
    pace.acted()
    machine.pass_s(0.01)
    assert paces(machine, pace, 20)[1:] == pytest.approx([max(0.0, PAUSE_S[producer] - 0.01)] * 19)


def test_the_pace_follows_the_machine() -> None:
    """Within one look after it has become busy or idle."""
    machine = Machine(idle=0.0)
    pace = machine.pace()
    machine.pass_s(LOOK_S)
    pace.pause_s()
    assert pace.is_busy
    machine.idle = 0.9
    machine.pass_s(LOOK_S)
    assert pace.pause_s() == 0.0
    assert not pace.is_busy


def test_every_process_has_its_pause() -> None:
    """The scheduler's is short: what is admitted in a second hangs on its cycles."""
    assert PAUSE_S.keys() == set(Producer)
    assert PAUSE_S[Producer.SCHEDULER] == min(PAUSE_S.values())


def test_who_has_work_already_pauses_for_a_shorter_time() -> None:
    """On a busy machine only: on an idle one nobody pauses."""
    for idle, pause_s in ((0.0, HURRIED_S - 0.01), (0.5, 0.0)):
        machine = Machine(idle=idle)
        pace = machine.pace(Producer.SCHEDULER)
        machine.pass_s(LOOK_S)
        pace.pause_s()
        machine.pass_s(0.01)
        assert pace.pause_s(hurried=True) == pytest.approx(pause_s)


def test_a_machine_that_cannot_be_read_counts_as_idle() -> None:
    """A missing file causes no wait."""
    pace = Pace(Producer.BINDER, lambda: None, iter(range(100)).__next__)
    assert [pace.pause_s() for _ in range(50)] == [0.0] * 50


def test_this_machine_is_read_as_a_sum_of_times() -> None:
    """Idle time is part of all time."""
    times = machine_times()
    assert times is None or 0 <= times.idle <= times.total
