"""Waiting times: never shorter than promised, never longer than declared."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.adapters.backoff import Backoff
from headgate.adapters.kubernetes.retry import RateLimiter, Repeats


@given(seed=st.integers(), attempts=st.integers(1, 30))
def test_backoff_grows_within_its_bounds(seed, attempts):
    """A delay is between half and the whole of its step; steps double up to the maximum; reset starts again."""
    backoff = Backoff(first_s=0.5, max_s=30, random=Random(seed))
    step = 0.5
    for _ in range(attempts):
        assert step / 2 <= backoff.next_s() <= step
        step = min(step * 2, 30)
    backoff.reset()
    assert backoff.next_s() <= 0.5


@given(seed=st.integers(), asked=st.floats(0, 1000))
def test_the_servers_wish_is_never_undercut(seed, asked):
    """Retry-After is a lower bound, with a quarter of jitter at most."""
    backoff = Backoff(first_s=0.001, max_s=0.001, random=Random(seed))
    assert asked <= backoff.next_s(asked) <= max(asked * 1.25, 0.001)


@given(burst=st.integers(1, 20), pauses=st.lists(st.floats(0, 2), min_size=1, max_size=60))
def test_no_more_than_burst_and_rate_are_let_through(burst, pauses):
    """In any time span, at most `burst + qps * span` begin, whatever the pattern of arrivals."""
    qps, now = 10.0, 0.0
    begun: list[float] = []

    def drive() -> None:
        nonlocal now
        for pause in pauses:
            now += pause
            slept: list[float] = []

            async def sleep(seconds: float, slept: list[float] = slept) -> None:
                slept.append(seconds)

            limiter._sleep = sleep
            step = limiter.acquire()
            with pytest.raises(StopIteration):
                step.send(None)
            begun.append(now + sum(slept))

    limiter = RateLimiter(qps=qps, burst=burst, clock=lambda: now)
    drive()
    assert begun == sorted(begun)
    for first, start in enumerate(begun):
        for last, end in enumerate(begun[first:], first):
            assert last - first + 1 <= burst + qps * (end - start) + 1e-6


def test_a_limit_that_lets_nothing_through_is_refused():
    """Zero queries a second would wait for ever."""
    with pytest.raises(ValueError, match="qps"):
        RateLimiter(qps=0, burst=1)


def test_a_kind_of_failure_is_news_once_in_a_while():
    """One line for what fails together; again when it continues, when it is of another kind, and after all was well."""
    now = 0.0
    repeats = Repeats(quiet_s=30, clock=lambda: now)
    assert [repeats.is_news(kind) for kind in ("503", "503", "TransportError", "503")] == [True, False, True, False]
    now = 29.0
    assert not repeats.is_news("503")
    now = 30.0
    assert repeats.is_news("503")
    repeats.clear()
    assert repeats.is_news("503")
