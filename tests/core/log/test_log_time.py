"""The log's time: what no single clock can move, and what follows it when any one clock is wrong."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core import fold
from headgate.core.log.log_time import CLOCK_SKEW_MS_MAX, WINDOW_MS, Clocks, commit_ms, effective_ms
from headgate.core.machine.commits import next_commit
from headgate.core.machine.contract import Append
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import decode_commit, encode_commit
from headgate.events.facts import NamespaceObserved
from headgate.events.ids import Epoch, UnixMs
from headgate.events.subjects import log_subject

START_MS = 1_700_000_000_000
DAYS_1000_MS = 1000 * 86_400_000
BROKER = "broker"
CLOCKS = [BROKER, *Producer]

wrongs = st.one_of(
    st.sampled_from([-DAYS_1000_MS, DAYS_1000_MS, -60_000, 60_000, -CLOCK_SKEW_MS_MAX - 1, CLOCK_SKEW_MS_MAX + 1]),
    st.integers(-DAYS_1000_MS, DAYS_1000_MS),
)


class Cell:
    """A log whose clocks may be wrong. `true_ms` is the time; `off` is by how much a clock is wrong now."""

    def __init__(self) -> None:
        self.true_ms = START_MS
        self.state: State = fold.new_state("main")
        self.off: dict[str, int] = {}
        self.stopped: dict[str, int] = {}

    def shows(self, clock: str) -> UnixMs:
        return UnixMs(self.stopped.get(clock, self.true_ms + self.off.get(clock, 0)))

    def append(self, producer: Producer) -> None:
        """A producer appends by its own clock alone, as one without any bound of its own would."""
        events = (NamespaceObserved(name=f"n{self.state.position}"),)
        commit, _ = next_commit(self.state, producer, Epoch(1), Append(events=events), self.shows(producer))
        subject, stored_ms = log_subject("main", producer), self.shows(BROKER)
        fold.apply(self.state, decode_commit(self.state.position + 1, subject, encode_commit(commit), stored_ms))

    def round(self, after_ms: int) -> None:
        """Everybody appends once."""
        for producer in Producer:
            self.true_ms += after_ms
            self.append(producer)


@settings(max_examples=200, deadline=None)
@given(
    wrong=st.sampled_from(CLOCKS),
    by_ms=wrongs,
    rounds=st.lists(st.tuples(st.integers(1, 30_000), st.booleans()), min_size=1, max_size=6),
)
def test_no_single_clock_moves_the_time_of_the_log(wrong: str, by_ms: int, rounds: list[tuple[int, bool]]) -> None:
    """Whichever clock it is, in whichever direction, from whenever on: the log's time stays within the bound."""
    cell = Cell()
    cell.round(100)
    for after_ms, is_wrong in rounds:
        cell.off = {wrong: by_ms} if is_wrong else {}
        before_ms = cell.state.now_ms
        for producer in Producer:
            cell.true_ms += after_ms
            cell.append(producer)
            assert cell.state.now_ms <= cell.true_ms + CLOCK_SKEW_MS_MAX
        assert cell.state.now_ms >= before_ms
        # All but one clock are right, and two of them have appended since: so the log's time is right, too.
        assert cell.state.now_ms >= cell.true_ms - 2 * after_ms


@settings(max_examples=100, deadline=None)
@given(stopped=st.sampled_from(CLOCKS), steps_ms=st.lists(st.integers(1, 600_000), min_size=1, max_size=8))
def test_the_time_of_the_log_goes_on_when_any_one_clock_is_stopped(stopped: str, steps_ms: list[int]) -> None:
    """What the others show suffices."""
    cell = Cell()
    cell.round(100)
    cell.stopped = {stopped: cell.true_ms}
    for step_ms in steps_ms:
        cell.round(step_ms)
        assert cell.true_ms - 2 * step_ms <= cell.state.now_ms <= cell.true_ms + CLOCK_SKEW_MS_MAX


@given(st.sampled_from(list(Producer)), wrongs)
def test_a_clock_that_was_in_error_binds_nobody_once_it_is_right(producer: Producer, by_ms: int) -> None:
    """The producer's own time becomes right again, and with it the log's offset for it."""
    cell = Cell()
    cell.round(100)
    cell.off = {producer: by_ms}
    cell.round(1000)
    cell.off = {}
    cell.true_ms += 2 * CLOCK_SKEW_MS_MAX
    cell.round(1000)
    assert cell.state.producers[producer].last_ms <= cell.true_ms
    assert cell.true_ms - 1000 <= cell.state.now_ms <= cell.true_ms


@given(st.integers(-DAYS_1000_MS, DAYS_1000_MS), st.integers(0, 10**9))
def test_a_commit_of_unknown_storage_is_believed(claimed_ms: int, after_ms: int) -> None:
    """Logs without the broker's times fold as they always did."""
    cell = Cell()
    cell.round(after_ms)
    claimed = UnixMs(START_MS + claimed_ms)
    assert effective_ms(cell.state, Producer.BINDER, claimed, UnixMs(0)) == claimed


def test_what_is_folded_from_a_commit_happens_at_the_time_that_it_counts_for() -> None:
    """A clock that is days behind dates nothing days back, so no deadline has passed before it began."""
    cell = Cell()
    cell.round(1000)
    cell.off = {Producer.SCHEDULER: -DAYS_1000_MS}
    counted = effective_ms(cell.state, Producer.SCHEDULER, cell.shows(Producer.SCHEDULER), cell.shows(BROKER))
    assert counted == cell.state.now_ms - CLOCK_SKEW_MS_MAX


def test_a_clock_that_is_set_back_a_little_does_not_set_the_log_back() -> None:
    """Within the bound a producer's commits never go back."""
    cell = Cell()
    cell.round(1000)
    last_ms = cell.state.producers[Producer.BINDER].last_ms
    assert commit_ms(cell.state, Producer.BINDER, UnixMs(last_ms - 5000)) == last_ms


# --- as a process sees it --------------------------------------------------------------------------------------------


class Heard:
    """A process that reads the others' commits for a while, its own clock and theirs off by so much."""

    def __init__(self, **off: int) -> None:
        self.off = {name.replace("_", "-"): by_ms for name, by_ms in off.items()}
        self.mono_ms = 5_000
        self.clocks = Clocks(Producer.SCHEDULER)

    @property
    def wall_ms(self) -> int:
        return START_MS + self.mono_ms + self.off.get("scheduler", 0)

    def hear(self, *producers: Producer, late_ms: int = 0) -> None:
        now_ms = START_MS + self.mono_ms - late_ms
        for producer in producers:
            stored_ms = now_ms + self.off.get(BROKER, 0)
            self.clocks.observe(producer, now_ms + self.off.get(producer.value, 0), stored_ms, self.mono_ms)

    def verdict(self) -> tuple[bool, str]:
        judged = self.clocks.judge(self.wall_ms, self.mono_ms)
        return judged.own_is_off, judged.text

    def error_ms(self) -> int:
        return self.clocks.now_ms(self.wall_ms, self.mono_ms) - START_MS - self.mono_ms


OTHERS = (Producer.BINDER, Producer.QUEUE_MANAGER, Producer.SNAPSHOTTER)


@given(wrongs)
def test_a_process_whose_clock_is_wrong_by_all_others_knows_it_and_decides_within_the_bound(by_ms: int) -> None:
    """It gets the names of the clocks that disagree with it, and by how much."""
    heard = Heard(scheduler=by_ms)
    heard.hear(*OTHERS)
    own_is_off, text = heard.verdict()
    assert own_is_off == (abs(by_ms) > CLOCK_SKEW_MS_MAX)
    assert abs(heard.error_ms()) <= CLOCK_SKEW_MS_MAX
    assert bool(text) == own_is_off
    assert not own_is_off or ("does not lead" in text and "the broker's" in text)


@given(wrongs, st.sampled_from([BROKER, "binder"]))
def test_a_process_whose_clock_is_right_is_not_disturbed_by_one_that_is_not(by_ms: int, wrong: str) -> None:
    """The broker's clock is reported, another process's only by that process; the time of decisions is right."""
    heard = Heard(**{wrong: by_ms})
    heard.hear(*OTHERS)
    own_is_off, text = heard.verdict()
    assert not own_is_off
    assert bool(text) == (wrong == BROKER and abs(by_ms) > CLOCK_SKEW_MS_MAX)
    assert heard.error_ms() == 0


@pytest.mark.parametrize("by_ms", [-60_000, 60_000])
def test_with_nobody_else_to_compare_with_the_broker_alone_is_no_proof(by_ms: int) -> None:
    """Which of two is wrong cannot be determined: it is reported, and no process steps down."""
    heard = Heard(scheduler=by_ms)
    heard.hear(Producer.SCHEDULER)
    own_is_off, text = heard.verdict()
    assert (own_is_off, "set whichever is wrong" in text) == (False, True)


@given(wrongs)
def test_the_broker_alone_holds_a_clock_back_and_never_pulls_it_up(by_ms: int) -> None:
    """Right after a start there is no commit of others: a deadline may pass too late, but not too early."""
    heard = Heard(broker=by_ms)
    heard.hear(Producer.SCHEDULER)
    assert heard.error_ms() == min(0, by_ms + CLOCK_SKEW_MS_MAX)


def test_what_is_heard_late_makes_no_clock_slow() -> None:
    """Entries that waited say little; the best of the last while counts."""
    heard = Heard()
    heard.hear(*OTHERS)
    for _ in range(10):
        heard.mono_ms += WINDOW_MS // 5
        heard.hear(*OTHERS, late_ms=60_000)
        heard.hear(*OTHERS)
        assert heard.verdict() == (False, "")
        assert heard.error_ms() == 0


def test_a_clock_that_has_been_set_right_is_believed_again() -> None:
    """Ours at once; the broker's after two windows at the latest."""
    heard = Heard(broker=DAYS_1000_MS)
    heard.hear(*OTHERS)
    assert "set the broker's" in heard.verdict()[1]
    heard.off = {}
    for _ in range(3):
        heard.mono_ms += WINDOW_MS
        heard.hear(*OTHERS)
    assert heard.verdict() == (False, "")
    heard.off = {"scheduler": -DAYS_1000_MS}
    assert heard.verdict()[0]
    heard.off = {}
    assert not heard.verdict()[0]
