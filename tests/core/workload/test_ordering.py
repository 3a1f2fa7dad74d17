"""What workloads rank by: effective priority and the queue-order timestamp, as Kueue reads them."""

import pytest

from headgate.core.api.names import PRIORITY_BOOST
from headgate.core.state.tables import Workload
from headgate.core.workload.ordering import priority_of, queued_at
from headgate.events.configuration import Configuration, RequeuingStrategy, WaitForPodsReady
from headgate.events.ids import Uid, UnixMs, WorkloadKey
from headgate.events.objects import Condition, WorkloadSpec

CREATED_MS = UnixMs(1_700_000_000_000)
LATER, LATER_MS = "2023-11-14T22:14:20Z", UnixMs(1_700_000_060_000)


def workload(*conditions: Condition, priority: int | None = 3, boost: str | None = None) -> Workload:
    return Workload(
        key=WorkloadKey("team/a"),
        uid=Uid("a"),
        created_ms=CREATED_MS,
        spec=WorkloadSpec(queue_name="q", pod_sets=(), priority=priority),
        annotations={} if boost is None else {PRIORITY_BOOST: boost},
        conditions=conditions,
    )


def condition(kind: str, reason: str, status: str = "True") -> Condition:
    return Condition(type=kind, status=status, reason=reason, message="", last_transition_time=LATER)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("boost", "on", "effective"),
    [
        ("7", True, 10),
        ("-7", True, -4),
        ("+1", True, 4),
        ("7", False, 3),
        (None, True, 3),
        ("much", True, 3),
        ("1_0", True, 3),
        ("2147483648", True, 3),
    ],
)
def test_a_boost_is_added_where_the_gate_is_on_and_it_is_a_number(boost: str | None, on: bool, effective: int) -> None:
    """Kueue's webhook refuses what is no 32-bit number; its scheduler takes it for 0."""
    configuration = Configuration(feature_gates={"PriorityBoost": on})
    assert priority_of(workload(boost=boost), configuration) == effective


def test_no_priority_counts_as_0() -> None:
    """As Kueue's DefaultPriority."""
    assert priority_of(workload(priority=None), Configuration()) == 0


BY_CREATION = Configuration(
    wait_for_pods_ready=WaitForPodsReady(requeuing_strategy=RequeuingStrategy(timestamp="Creation"))
)
UNSORTED = Configuration(feature_gates={"PrioritySortingWithinCohort": False})
WHILE_BORROWING = condition("Preempted", "InCohortReclaimWhileBorrowing")


@pytest.mark.parametrize(
    ("conditions", "configuration", "at_ms"),
    [
        ((), Configuration(), CREATED_MS),
        ((condition("Evicted", "PodsReadyTimeout"),), Configuration(), LATER_MS),
        ((condition("Evicted", "PodsReadyTimeout"),), BY_CREATION, CREATED_MS),
        ((condition("Evicted", "AdmissionCheck"),), BY_CREATION, LATER_MS),
        ((condition("Evicted", "AdmissionCheck", "False"),), Configuration(), CREATED_MS),
        ((condition("Evicted", "Preempted"), WHILE_BORROWING), Configuration(), CREATED_MS),
        ((condition("Evicted", "Preempted"), WHILE_BORROWING), UNSORTED, LATER_MS + 1),
        ((condition("Preempted", "InClusterQueue"),), UNSORTED, CREATED_MS),
    ],
)
def test_a_workload_ranks_by_what_sent_it_to_the_end_of_the_queue(
    conditions: tuple[Condition, ...], configuration: Configuration, at_ms: int
) -> None:
    """Creation, unless evicted by a check or slow pods; or reclaimed by a borrower where priority does not sort."""
    assert queued_at(workload(*conditions), configuration) == at_ms
