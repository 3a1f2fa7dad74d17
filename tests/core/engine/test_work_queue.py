"""The work queue loses nothing, never makes two calls for a key, and backs off after failures as specified."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.core.engine.budget import Budget, BudgetSettings, Load
from headgate.core.engine.work_queue import BACKOFF_MAX_MS, BACKOFF_MIN_MS, JITTER_SHARE, WorkQueue, backoff_ms
from headgate.events.ids import UnixMs

IN_FLIGHT_MAX = 3
KEYS = st.sampled_from("abcdef")


def at(ms: int) -> UnixMs:
    return UnixMs(1_700_000_000_000 + ms)


def taken(queue: WorkQueue[str], ms: int = 0) -> list[str]:
    """Everything that is ready, with a call begun for each."""
    keys = []
    for key in queue.ready(at(ms)):
        queue.begin(key)
        keys.append(key)
    return keys


def test_a_key_waits_once_and_keys_come_in_the_order_in_which_they_were_added() -> None:
    """However often they are added."""
    queue = WorkQueue[str](10)
    for key in "bacab":
        queue.add(key)
    assert taken(queue) == ["b", "a", "c"]


def test_what_happens_during_a_call_is_looked_at_after_it() -> None:
    """Once, and not while the call is under way."""
    queue = WorkQueue[str](10, keys="a")
    assert taken(queue) == ["a"]
    queue.add("a")
    queue.add("a")
    assert taken(queue) == []
    queue.done("a")
    assert taken(queue) == ["a"]
    queue.done("a")
    assert taken(queue) == []


def test_a_failed_key_waits_for_its_backoff_whatever_happens_to_it() -> None:
    """It is not ready before, and it is ready then although nothing happens."""
    queue = WorkQueue[str](10, keys="a")
    taken(queue)
    queue.retry("a")
    queue.add("a")
    due_ms = queue.next_at(at(0))
    assert due_ms is not None
    wait_ms = due_ms - at(0)
    assert taken(queue, wait_ms - 1) == []
    assert taken(queue, wait_ms) == ["a"]


def test_success_ends_the_row_of_failures() -> None:
    """The next failure waits as long as the first one did."""
    queue = WorkQueue[str](10, keys="a")
    waits: list[Any] = []
    for ends in (queue.retry, queue.retry, queue.done, queue.retry):
        (key,) = taken(queue, 10**9 * (len(waits) + 1))
        ends(key)
        if ends == queue.done:
            queue.add(key)
        now = at(10**9 * (len(waits) + 1))
        waits.append((queue.next_at(now) or now) - now)
    assert waits[0] == waits[3] < waits[1]
    assert waits[2] == 0


def test_of_several_times_the_earliest_counts() -> None:
    """A key that is added for a time is ready then, not before and not twice."""
    queue = WorkQueue[str](10)
    for ms in (500, 300, 400):
        queue.add_at("a", at(ms))
    assert queue.next_at(at(0)) == at(300)
    assert taken(queue, 299) == []
    assert taken(queue, 300) == ["a"]
    queue.done("a")
    assert taken(queue, 1000) == []


def test_a_budget_bounds_how_many_calls_begin() -> None:
    """A burst, then as many as the rate gives; the queue gives the time of the next."""
    budget = Budget(BudgetSettings(rate_max=10, rate_min=10, burst=3), Load())
    queue = WorkQueue(100, budget=budget, keys="abcdef")
    assert taken(queue) == ["a", "b", "c"]
    due_ms = queue.next_at(at(0))
    assert due_ms == at(100)
    assert taken(queue, 100) == ["d"]
    assert taken(queue, 1000) == ["e", "f"]


@given(st.integers(1, 60), st.text(max_size=8))
def test_backoffs_are_doubled_and_bounded(failures: int, key: str) -> None:
    """A second, two, four ... five minutes, and up to a fifth more; the same for the same key."""
    base = min(BACKOFF_MIN_MS * 2 ** (failures - 1), BACKOFF_MAX_MS)
    assert base <= backoff_ms(failures, key) <= base + base // JITTER_SHARE
    assert backoff_ms(failures, key) == backoff_ms(failures, key)


def test_keys_that_failed_together_do_not_come_back_together() -> None:
    """The jitter spreads them."""
    assert len({backoff_ms(3, f"team/job-{number}") for number in range(100)}) > 50


def test_two_calls_for_a_key_are_a_mistake() -> None:
    """The queue gives no key out that has a call under way; a caller that begins one all the same is stopped."""
    queue = WorkQueue[str](10, keys="a")
    taken(queue)
    with pytest.raises(AssertionError, match="two calls at a time about a"):
        queue.begin("a")


class Histories(RuleBasedStateMachine):
    """In any order of events: a model of what is owed beside the queue."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = WorkQueue[str](IN_FLIGHT_MAX)
        self.now_ms = 0
        self.owed: set[str] = set()
        """Keys that something has happened to, or has failed for, since their last look."""
        self.running: list[str] = []
        self.not_before: dict[str, int] = {}
        """The first moment at which a failed key may be given out again, at the earliest."""
        self.failures: dict[str, int] = {}

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.queue.add(key)
        self.owed.add(key)

    @rule(key=KEYS, wait_ms=st.integers(0, 3000))
    def add_at(self, key: str, wait_ms: int) -> None:
        self.queue.add_at(key, at(self.now_ms + wait_ms))
        self.owed.add(key)

    @rule(looks=st.lists(st.booleans(), max_size=6))
    def turn(self, looks: list[bool]) -> None:
        """Each key that is given out either needs a call or, seen closely, nothing."""
        needs = iter(looks)
        for key in self.queue.ready(at(self.now_ms)):
            assert key not in self.running, "two calls at a time for one key"
            assert 0 <= self.not_before.get(key, 0) <= self.now_ms, "before its backoff was over"
            assert key in self.owed, "nothing had happened to it"
            self.owed.discard(key)
            if next(needs, True):
                self.queue.begin(key)
                self.running.append(key)
        for key, count in self.failures.items():
            if self.not_before.get(key) == -1:
                self.not_before[key] = self.now_ms + min(BACKOFF_MIN_MS * 2 ** (count - 1), BACKOFF_MAX_MS)

    @precondition(lambda self: self.running)
    @rule()
    def succeed(self) -> None:
        key = self.running.pop(0)
        self.queue.done(key)
        self.failures.pop(key, None)
        self.not_before.pop(key, None)

    @precondition(lambda self: self.running)
    @rule()
    def fail(self) -> None:
        key = self.running.pop(0)
        self.queue.retry(key)
        self.owed.add(key)
        self.failures[key] = self.failures.get(key, 0) + 1
        # The backoff begins with the turn that follows; until then the key must not be given out at all.
        self.not_before[key] = -1

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        self.owed.discard(key)
        self.failures.pop(key, None)
        self.not_before.pop(key, None)

    @rule(ms=st.sampled_from([1, 100, 1000, 60_000]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @invariant()
    def bounds_hold(self) -> None:
        assert self.queue.in_flight == len(self.running) <= IN_FLIGHT_MAX
        assert all(key in self.queue for key in self.owed), "forgotten"

    def teardown(self) -> None:
        """In the end everything that is owed is given out, when calls end and time passes."""
        for _ in range(20):
            while self.running:
                self.succeed()
            self.now_ms += 2 * BACKOFF_MAX_MS
            self.turn([])
        while self.running:
            self.succeed()
        assert self.owed == set()
        assert self.queue.next_at(at(self.now_ms)) is None


TestHistories = Histories.TestCase
