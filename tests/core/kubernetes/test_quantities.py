"""Amounts: quantities in, integers that saturate, canonical quantities out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.kubernetes.quantities import (
    LOWEST,
    UNLIMITED,
    QuantityError,
    add,
    amount,
    canonical,
    limit_text,
    multiply,
    parse_quantity,
    parse_weight,
    subtract,
)

bounded = st.integers(LOWEST, UNLIMITED - 1)
any_amount = st.integers(LOWEST, UNLIMITED)


@pytest.mark.parametrize(
    ("resource", "quantity", "value"),
    [
        ("cpu", "500m", 500),
        ("cpu", 2, 2000),
        ("cpu", "1.5", 1500),
        ("cpu", "1n", 1),
        ("memory", "4Gi", 4 << 30),
        ("memory", "1.5Ki", 1536),
        ("memory", "100m", 1),
        ("pods", "1e3", 1000),
        ("pods", 2.5e3, 2500),
        ("memory", "64Ki", 65536),
        ("memory", ".5M", 500_000),
        ("example.com/gpu", "3k", 3000),
        ("cpu", "9223372036854775807", UNLIMITED),
        ("memory", "-20E", LOWEST),
    ],
)
def test_a_quantity_is_counted_in_its_unit(resource: str, quantity: str | int, value: int) -> None:
    """CPU in milli-units, all else in whole units, rounded up, saturated at 64 bits."""
    assert amount(resource, quantity) == value


@pytest.mark.parametrize("quantity", ["", "x", "1/2", "4gi", "--1", "1 Gi", "1Ki2", "٣"])
def test_what_is_no_quantity_is_refused(quantity: str) -> None:
    """A string that Kubernetes would not take is an error that names it."""
    with pytest.raises(QuantityError, match="is not a quantity"):
        parse_quantity(quantity)


@pytest.mark.parametrize(
    ("quantity", "weight"),
    [("0.5", 0.5), (3, 3.0), ("250m", 0.25), ("9e999", float(UNLIMITED)), ("-9e999", float(LOWEST))],
)
def test_a_weight_is_a_number_however_large_its_quantity(quantity: str | int, weight: float) -> None:
    """Kubernetes caps each quantity at the largest 64-bit integer, so that it fits into a float."""
    assert parse_weight(quantity) == weight


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("cpu", 2500, "2500m"),
        ("cpu", 60_000, "60"),
        ("cpu", 2_000_000, "2k"),
        ("cpu", -500, "-500m"),
        ("memory", 4 << 30, "4Gi"),
        ("memory", 1536 << 20, "1536Mi"),
        ("memory", 10**9, "1G"),
        ("memory", 1025, "1025"),
        ("memory", 1000 << 10, "1000Ki"),
        ("hugepages-2Mi", 33_000, "33k"),
        ("memory", 1000, "1k"),
        ("memory", 0, "0"),
        ("ephemeral-storage", 2048, "2Ki"),
        ("hugepages-2Mi", 4 << 20, "4Mi"),
        ("pods", 1000, "1k"),
        ("example.com/gpu", 1024, "1024"),
    ],
)
def test_an_amount_is_written_as_kubernetes_writes_it(resource: str, value: int, text: str) -> None:
    """The canonical form of apimachinery."""
    assert canonical(resource, value) == text


def test_only_a_limit_can_be_unlimited() -> None:
    """Kueue's messages name no number where there is no end to a quota; a request always has one."""
    assert limit_text("cpu", UNLIMITED) == "<unlimited>"
    assert canonical("cpu", UNLIMITED) == "9223372036854775807m"
    assert limit_text("memory", 4 << 30) == "4Gi"


@given(st.sampled_from(["cpu", "memory", "pods"]), st.integers(-(10**15), 10**15))
def test_writing_and_reading_an_amount_gives_it_back(resource: str, value: int) -> None:
    """Canonical loses nothing."""
    assert amount(resource, canonical(resource, value)) == value


@given(bounded, bounded)
def test_bounded_amounts_add_and_subtract_like_integers_within_bounds(left: int, right: int) -> None:
    """Only what leaves the range of 64 bits saturates."""
    assert add(left, right) == max(LOWEST, min(UNLIMITED, left + right))
    assert subtract(left, right) == max(LOWEST, min(UNLIMITED, left - right))


@given(bounded)
def test_unlimited_stays_unlimited(value: int) -> None:
    """Unlimited plus or minus anything bounded is unlimited; taken from itself it is nothing."""
    assert add(UNLIMITED, value) == add(value, UNLIMITED) == subtract(UNLIMITED, value) == UNLIMITED
    assert subtract(value, UNLIMITED) == LOWEST
    assert subtract(UNLIMITED, UNLIMITED) == 0


@given(any_amount, st.integers(0, 10**6))
def test_products_stay_in_range(value: int, factor: int) -> None:
    """Requests of many pods saturate instead of growing past 64 bits."""
    assert LOWEST <= multiply(value, factor) <= UNLIMITED
