"""When an entry was stored first: from the header that a restore leaves, and never later than the broker's time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.adapters.jetstream.stored_time import HEADER, only_header, stored_ms


@given(st.integers(0, 10**14), st.integers(0, 10**14))
def test_a_header_makes_an_entry_older_and_never_younger(first: int, broker: int) -> None:
    """A client that writes the header itself cannot advance the log's time."""
    assert stored_ms({HEADER: str(first)}, broker) == min(first, broker)


@pytest.mark.parametrize("value", ["", "-1", "1e9", "x", "9" * 5000, "1 2", "٣x"])
def test_what_is_no_time_is_passed_over(value: str) -> None:
    """The broker's own time counts."""
    assert stored_ms({HEADER: value}, 7) == 7
    assert stored_ms(None, 7) == 7


@given(
    st.dictionaries(st.sampled_from(["Nats-Msg-Id", "ce-id", "X"]), st.text("abc 1:", max_size=9)), st.integers(0, 99)
)
def test_it_is_found_among_other_headers_and_only_itself(others: dict[str, str], value: int) -> None:
    """As the broker delivers them, in whatever order."""
    lines = [*(f"{name}: {text}" for name, text in others.items()), f"{HEADER}: {value}"]
    for turn in range(len(lines)):
        block = "\r\n".join(["NATS/1.0", *lines[turn:], *lines[:turn], "", ""]).encode()
        assert only_header(block) == {HEADER: str(value)}
    assert only_header("\r\n".join(["NATS/1.0", *lines[:-1], "", ""]).encode()) is None
