"""How the state speaks to people."""

import pytest

from headgate.core import fold
from headgate.core.wording import describe_wake, format_amount, format_span, format_time
from headgate.events.ids import UnixMs
from headgate.events.queueing import ObjectChanged, QuotaFreed, TimePassed


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [
        ("cpu", 1500, "1.5"),
        ("cpu", 32_000, "32"),
        ("memory", 4 * 1024**3, "4Gi"),
        ("memory", 1536 * 1024**2, "1.5Gi"),
        ("memory", 1000, "1000"),
        ("nvidia.com/gpu", 8, "8"),
    ],
)
def test_amounts_read_as_quantities(resource: str, value: int, text: str) -> None:
    """As one would write them in a manifest."""
    assert format_amount(resource, value) == text


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [(0, "0ms"), (840, "840ms"), (12_340, "12.3s"), (245_000, "4m05s"), (12_000_000, "3h20m"), (188_000_000, "2d4h")],
)
def test_spans_have_at_most_two_units(span_ms: int, text: str) -> None:
    """Short enough for a table."""
    assert format_span(span_ms) == text


def test_every_wake_is_described() -> None:
    """Quota by flavor and tree, objects by name, times as such."""
    state = fold.new_state("main")
    at = TimePassed(at_ms=UnixMs(1_700_000_000_123))
    assert describe_wake(at, state) == f"the time {format_time(at.at_ms)}" == "the time 2023-11-14T22:13:20.123Z"
    assert "LocalQueue a/main" in describe_wake(ObjectChanged(kind="LocalQueue", name="a/main"), state)
    freed = QuotaFreed(tree="research", flavor_resources=("spot/cpu",))
    assert describe_wake(freed, state) == "quota of spot/cpu to be freed or raised in cohort research"
    assert describe_wake(QuotaFreed(tree="ClusterQueue/a"), state).endswith("in ClusterQueue a")
