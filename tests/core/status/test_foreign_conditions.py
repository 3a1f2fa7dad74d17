"""Writes of others to a status are distinguished from Headgate's own, however late they are observed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.owning import applied, gives_back, shows
from tests.support.queueing import QueueCell

from headgate.core.state.tables import Stage
from headgate.core.status.workload_status import is_settled
from headgate.core.workload.last_fact import last_fact
from headgate.events.base import Producer
from headgate.events.effects import StatusApplied
from headgate.events.ids import WorkloadKey
from headgate.events.objects import Condition, ShownConditions
from headgate.machines.informer_bridge.diff import news

A = WorkloadKey("team/a")


def evicted() -> QueueCell:
    """A workload without a Job that holds quota and has to stop; what the API server has of it is an older status."""
    cell = QueueCell().ready()
    cell.submit("a")
    cell.settle()
    cell.admit(A)
    cell.put(Producer.BINDER, applied(cell.state, cell[A]))
    cell.local_queue(stop="HoldAndDrain")
    cell.settle()
    assert cell.stage(A) is Stage.EVICTED
    return cell


def test_a_status_that_is_older_than_our_last_write_says_nothing() -> None:
    """A watch may show what we have written before, or what was there before us."""
    cell = evicted()
    cell.put(Producer.BINDER, applied(cell.state, cell[A]))
    reserved = Condition(type="QuotaReserved", status="False", reason="Pending")
    for later in (-1, 0):
        assert news(cell.state, shows(cell[A], reserved, later=later)) is None
    assert news(cell.state, shows(cell[A], reserved, later=1)) is not None


def test_what_comes_before_our_last_word_is_kept_until_that_is_written() -> None:
    """It may be the result of our own write under way: the response to that decides."""
    cell = evicted()
    cell.see(gives_back(cell[A]))
    ours_shown = cell[A].shown
    assert ours_shown is not None
    assert cell.settle() == []
    ours = applied(cell.state, cell[A])
    theirs = replace(ours, version=ours_shown.version - 1)
    cell.put(Producer.BINDER, theirs)
    assert "WorkloadReleased" in [type(event).__name__ for event in cell.settle()]
    cell = evicted()
    cell.see(gives_back(cell[A]))
    shown = cell[A].shown
    assert shown is not None
    cell.put(Producer.BINDER, replace(applied(cell.state, cell[A]), version=shown.version))
    assert cell[A].shown is None
    assert cell.settle() == []


def test_an_object_that_shows_what_the_state_says_is_no_news() -> None:
    """The echo of each of our writes costs no fact."""
    cell = evicted()
    conditions = {each.type: each for each in cell[A].conditions}
    shown = ShownConditions(
        version=10**6,
        quota_reserved=conditions["QuotaReserved"],
        evicted=conditions["Evicted"],
        requeued=conditions.get("Requeued"),
    )
    assert news(cell.state, replace(last_fact(cell[A]), shown=shown)) is None


@pytest.mark.parametrize("status", ["True", "False"])
def test_others_cannot_let_in_what_nothing_keeps_out(status: str) -> None:
    """Requeued=True where it is not False has no effect; False keeps the workload out of its queue."""
    cell = QueueCell().ready()
    cell.submit("a")
    cell.settle()
    requeued = Condition(type="Requeued", status=status, reason="Theirs")  # type: ignore[arg-type]
    seen = shows(cell[A], requeued)
    assert (news(cell.state, seen) is None) == (status == "True")
    cell.see(seen)
    cell.settle()
    assert (cell.stage(A) is Stage.PARKED) == (status == "False")


versions = st.integers(1, 6)
statuses = st.sampled_from(["True", "False"])


@given(st.lists(st.tuples(versions, versions, statuses, statuses), max_size=8))
def test_in_whatever_order_it_is_shown_and_answered_only_a_later_version_counts(
    steps: list[tuple[int, int, str, str]],
) -> None:
    """Released exactly when a version after the newest of our writes shows QuotaReserved=False, and all is written."""
    cell = evicted()
    base = cell[A].applied_version
    for shown_at, applied_at, reserved, answered in steps:
        workload = cell[A]
        if workload.stage is not Stage.EVICTED:
            return
        if answered == "True":
            status = applied(cell.state, workload)
            cell.put(Producer.BINDER, StatusApplied(**{**_fields(status), "version": base + applied_at}))
        condition = Condition(type="QuotaReserved", status=reserved, reason="x")  # type: ignore[arg-type]
        seen = replace(last_fact(workload), shown=ShownConditions(version=base + shown_at, quota_reserved=condition))
        fact = news(cell.state, seen)
        if fact is not None:
            cell.see(fact)
        counts = reserved == "False" and base + shown_at > cell[A].applied_version and is_settled(cell.state, cell[A])
        cell.settle()
        assert (cell.stage(A) is not Stage.EVICTED) == counts


def _fields(event: StatusApplied) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}
