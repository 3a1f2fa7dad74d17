"""Numbers in labels and annotations: what Go's strconv reads, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.kubernetes.numbers import decimal, is_true, positive


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("007", 7),
        ("0" * 5000 + "7", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_what_parse_int_reads_is_a_number(text: str, number: int) -> None:
    """With a sign, with leading zeros, to the ends of its range."""
    assert decimal(text) == number


@pytest.mark.parametrize(
    "text",
    [None, "", "-", "+-1", "²", "٣", "\uff11", " 1", "1\n", "1_000", "1.0", "0x1", "9223372036854775808", "9" * 5000],
)
def test_what_parse_int_refuses_is_none(text: str | None) -> None:
    """Digits of other scripts, what only Python reads, and what is out of range."""
    assert decimal(text) is None


@given(st.integers())
def test_a_number_is_read_if_it_has_so_many_bits(number: int) -> None:
    """With its sign."""
    for bits in (32, 64):
        is_within = -(2 ** (bits - 1)) <= number < 2 ** (bits - 1)
        assert decimal(str(number), bits=bits) == (number if is_within else None)


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    """Whoever wrote it."""
    number = decimal(text)
    assert number is None or int(text) == number


def test_a_positive_number_has_32_bits() -> None:
    """As times and counts of pods have in Kueue."""
    assert [positive(each) for each in ("1", "2147483647", "0", "-1", "2147483648", None)] == [
        1,
        2**31 - 1,
        *[None] * 4,
    ]


def test_true_is_what_parse_bool_takes_for_it() -> None:
    """Upper and lower case, not mixed."""
    assert all(map(is_true, ("1", "t", "T", "true", "TRUE", "True")))
    assert not any(map(is_true, (None, "", "0", "yes", "tRUE", "on")))
