"""The queue manager and second passes: another attempt when its time has come and it may end otherwise."""

import pytest
from tests.machines.queue_manager.test_node_failures import GONE, Placed
from tests.machines.ungater.test_topology_gates import node
from tests.support.queueing import SCHEDULER

from headgate.events import facts
from headgate.events.base import EventBase
from headgate.events.decisions import CycleDecided, SecondPassFailed
from headgate.events.ids import Seq, UnixMs
from headgate.events.objects import ResourceFlavorSpec, TopologySpec
from headgate.events.queueing import DeadlinePassed

RETRY_MS = 4_000


class Failing(Placed):
    """A workload that has lost the node a, and for which a cycle has found no other."""

    def __init__(self) -> None:
        super().__init__()
        self.seen(GONE)
        self.fail()

    def fail(self, *meanwhile: EventBase) -> None:
        """A cycle finds nothing; these facts are recorded after it was decided, and before it is."""
        decided_at = self.state.position
        if meanwhile:
            self.see(*meanwhile)
        failed = SecondPassFailed(
            workload=self.key,
            uid=self[self.key].uid,
            cluster_queue="cq",
            message="m",
            failures=1,
            retry_at_ms=UnixMs(self.log.now_ms + RETRY_MS),
        )
        self.cycle += 1
        decided = CycleDecided(cycle=self.cycle, decided_at=Seq(decided_at), heads=())
        self.put(SCHEDULER, decided, failed, decided_at=decided_at)

    def after(self, ms: int) -> list[EventBase]:
        """What it decides when this time has passed."""
        self.pass_s(ms / 1000)
        return self.settle()


def is_retry(said: list[EventBase]) -> bool:
    """Whether the time of the next attempt is recorded as over, and nothing else."""
    return [event.deadline for event in said if isinstance(event, DeadlinePassed)] == ["SecondPass"] and len(said) == 1


def test_nothing_is_recorded_while_the_next_attempt_would_fail_alike() -> None:
    """However long it takes. What changes nothing about topologies does not matter."""
    cell = Failing()
    assert cell.after(RETRY_MS) == []
    cell.see(facts.NamespaceObserved(name="x"))
    assert cell.after(3_600_000) == []


@pytest.mark.parametrize(
    "event",
    [
        node("d"),
        node("c", unschedulable=True),
        facts.NodeUsageObserved(node="b", requests={"cpu": "1"}, pods=1),
        facts.ResourceFlavorObserved(name="default", spec=ResourceFlavorSpec(topology_name="t")),
        facts.TopologyObserved(name="t", spec=TopologySpec()),
    ],
)
def test_a_change_of_nodes_or_of_what_is_used_of_them_leads_to_another_attempt(event: EventBase) -> None:
    """Not before the backoff is over; at once if it is."""
    early, late = Failing(), Failing()
    assert not is_retry(early.seen(event))
    assert is_retry(early.after(RETRY_MS))
    assert late.after(RETRY_MS) == []
    assert is_retry(late.seen(event))


def test_what_changed_while_the_attempt_was_decided_counts() -> None:
    """The cycle did not know it."""
    cell = Failing()
    cell.fail(node("d"))
    assert is_retry(cell.after(RETRY_MS))


def test_a_queue_manager_that_starts_lets_one_more_attempt_be_made() -> None:
    """It does not know what has changed; the workload does not wait for ever."""
    cell = Failing()
    cell.after(RETRY_MS)
    cell.restart()
    assert is_retry(cell.settle())
