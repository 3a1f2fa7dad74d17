"""How the state speaks to people."""

import pytest
from tests.support.cells import Cell, cluster_queue

from headgate.core import fold
from headgate.core.state.tables import Stage, Verdict, Workload
from headgate.core.views.descriptions import (
    SPEC_CHANGE,
    describe_needs,
    describe_short,
    describe_wake,
    format_amount,
    format_span,
    format_time,
)
from headgate.core.views.diagnosis import standing
from headgate.events.ids import Seq, Uid, UnixMs, WorkloadKey
from headgate.events.objects import WorkloadSpec
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


def test_what_no_freed_quota_can_help_is_said_so() -> None:
    """`*` is never shown: what waits for it waits for a change of a spec, in every place that words it."""
    state = fold.new_state("main")
    assert describe_wake(QuotaFreed(tree="research", flavor_resources=("*",)), state) == SPEC_CHANGE
    assert describe_short(("*",)) == f", and only {SPEC_CHANGE} can help"
    assert describe_short(("spot/cpu", "spot/memory")) == ", short of spot/cpu, spot/memory"
    assert describe_short(()) == ""
    key = WorkloadKey("team-a/w")
    workload = Workload(key=key, uid=Uid("u"), created_ms=UnixMs(1), spec=WorkloadSpec(queue_name="main"))
    workload.stage = Stage.SKIPPED
    workload.verdict = Verdict(
        status="notNominated",
        requeue_reason="NoFit",
        scope="workload",
        reason="NoMatchingFlavor",
        message="m",
        decided_at=Seq(1),
        at=Seq(2),
        since=Seq(1),
        short=("*",),
    )
    state.workloads[key] = workload
    assert standing(state, key).would_change == (SPEC_CHANGE,)


def test_what_is_needed_is_told_with_what_is_there() -> None:
    """Only what is lacking of each way, the first few ways, and their number."""
    quota = {"on-demand": {"cpu": 16, "memory": "64Gi"}, "spot": {"cpu": 8, "memory": "64Gi"}}
    cell = Cell(cluster_queue("cq", quota))
    cell.state.index.usage["cq"] = {("on-demand", "cpu"): 8000}
    ways = ({"on-demand/cpu": "16", "on-demand/memory": "4Gi"}, {"spot/cpu": "16", "spot/memory": "65Gi"})
    wake = QuotaFreed(tree="ClusterQueue/cq", flavor_resources=("on-demand/cpu",), needs=ways)
    assert describe_wake(wake, cell.state, "cq") == (
        "unused quota in ClusterQueue cq: 16 cpu of on-demand (8 available), or "
        "16 cpu of spot (8 available) and 65Gi memory of spot (64Gi available)"
    )
    assert describe_wake(wake, cell.state).endswith(
        "16 cpu of on-demand and 4Gi memory of on-demand, or 16 cpu of spot and 65Gi memory of spot"
    )
    assert describe_needs(ways[:1] * 6, cell.state, "cq").endswith(", or 2 more ways")
